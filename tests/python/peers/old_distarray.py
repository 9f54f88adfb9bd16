"""distarray 0.6.0 (2015) on a Python and a numpy of today.

Comes in: the package as it was released. Goes out: `LocalArray` and `Distribution` of its ranks, the maps and plans of its client, and its validator. Names
that Python and numpy dropped are put back before the import, in the processes of tests only. Never here: another answer than the package gives.
"""

from __future__ import annotations

import ast
import collections
import collections.abc
import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import six

# Names that `localarray` hands on at import, and that nothing here calls.
HANDED_ON = ("cast", "issctype", "issubclass_", "maximum_sctype", "obj2sctype", "sctype2char")


def put_back() -> None:
    """The names that are gone: of `collections` since Python 3.10, of `distutils` since 3.12, of numpy since 2.0."""
    for name in ("Mapping", "Sequence"):
        setattr(collections, name, getattr(collections.abc, name))
    for name in HANDED_ON:
        if not hasattr(np, name):
            setattr(np, name, None)
    # Used for files only.
    module("numpy.lib.utils", safe_eval=ast.literal_eval)
    module("numpy.compat", asbytes=lambda text: text.encode("latin1"))
    if importlib.util.find_spec("distutils") is None:
        module("distutils")
        module("distutils.version", StrictVersion=StrictVersion)
    # The one that comes along finds its parts in a way that Python 3.12 does not know.
    sys.modules["distarray.externals.six"] = six
    sys.modules["distarray.externals.six.moves"] = six.moves
    # The client as a whole imports IPython; its maps do not.
    [root] = importlib.util.find_spec("distarray").submodule_search_locations
    module("distarray.globalapi", __path__=[str(Path(root) / "globalapi")])


def module(name: str, **contents: Any) -> None:
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(contents)


class StrictVersion:
    """What `distutils.version.StrictVersion` makes of two or three numbers; of others it knew more."""

    def __init__(self, text: str) -> None:
        numbers = text.split(".")
        if not 2 <= len(numbers) <= 3:
            raise ValueError(f"invalid version number {text!r}")
        self.version = tuple(int(each) for each in [*numbers, "0"][:3])


put_back()
validator = importlib.import_module("distarray.externals.protocol_validator")


def on_ranks() -> tuple[Any, Any]:
    """The modules of its ranks, `localarray` and `maps`. They start MPI."""
    names = ("distarray.localapi.localarray", "distarray.localapi.maps")
    localarray, maps = (importlib.import_module(name) for name in names)
    return localarray, maps


def of_client() -> Any:
    """The module of its client that has `Distribution.get_redist_plan`."""
    return importlib.import_module("distarray.globalapi.maps")
