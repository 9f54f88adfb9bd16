"""Errors of ours that Python code raises, and libraries that are missing.

Comes in: what is wrong, the remedy, what it is about. Goes out: an exception of `partgrid.errors` as the engine would make it. Never here: what is refused.
"""

from __future__ import annotations

import importlib
from typing import Any

from partgrid import errors

# A module and a frame of any library.
Module = Any
Frame = Any


def needed(module: str, wanted_by: str) -> Module:
    """The module of another library, or an `ImportError` that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        package = "'dask[dataframe]'" if module == "dask.dataframe" else package
        message = f"{wanted_by} needs {module}\nhint: pip install {package}"
        raise ImportError(message, name=error.name) from error


def wrong_frame(wanted: str, got: Frame) -> errors.PartgridError:
    """The refusal of what is no frame of a library."""
    kind = type(got)
    message = f"frame must be a {wanted}, got {kind.__module__}.{kind.__qualname__}"
    return refused(errors.InvalidArgumentError, message, None)


def refused(
    kind: type[errors.PartgridError], message: str, hint: str | None, *, column: str | None = None
) -> errors.PartgridError:
    """An error of ours with everything that belongs to it."""
    context = {} if column is None else {"column": column}
    where = "" if column is None else f" (column: {column})"
    text = f"{message}{where}" + ("" if hint is None else f"\nhint: {hint}")
    return kind(text, context, hint, False)


def placed(error: errors.PartgridError, place: str) -> errors.PartgridError:
    """The error with the part of a frame that it is about."""
    return type(error)(f"{place}: {error}", error.context, error.hint, error.retryable)
