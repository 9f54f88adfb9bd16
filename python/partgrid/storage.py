"""Laid-out, aligned memory for stencils, as "Storage Allocation and Interfaces" of GT4Py has it.

`empty`, `zeros`, `ones`, `full` and their siblings make storages. `partgrid.from_storage` makes a grid of one, `Tile.storage` a storage of a dense band.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from partgrid._native import (
    Storage,
    empty,
    empty_like,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from partgrid._storage import as_cupy, as_numpy, dims_of
from partgrid.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Storage",
    "as_cupy",
    "as_numpy",
    "empty",
    "empty_like",
    "full",
    "full_like",
    "get_dims",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


def get_dims(storage: object, annotation: object = None) -> tuple[str, ...]:
    """The labels of the dimensions of a storage, or those that the annotation of a stencil's field has.

    Args:
        storage: Any array; its `__gt_dims__`, an attribute or a method, comes first.
        annotation: A `gtscript.Field`, or labels in a text or a sequence.

    Returns:
        The labels in index order.

    Raises:
        InvalidArgumentError: Neither says anything.

    Examples:
        >>> import partgrid as pg
        >>> pg.storage.get_dims(pg.storage.zeros((4, 3), dims=("K", "I")))
        ('K', 'I')
        >>> pg.storage.get_dims(pg.storage.zeros((4, 3)), "IJ")
        ('I', 'J')
    """
    dims = dims_of(storage)
    if dims is not None:
        return dims
    if annotation is None:
        text, hint = (
            "neither the storage nor an annotation has labels",
            'make the storage with dims=("I", "J", "K")',
        )
        raise InvalidArgumentError(f"{text}\nhint: {hint}", None, hint)
    axes: Iterable[object] | None = getattr(annotation, "axes", None)
    if axes is not None:
        data = getattr(annotation, "data_dims", ())
        return (*map(str, axes), *map(str, range(len(data))))
    if isinstance(annotation, str | tuple | list):
        return tuple(str(label) for label in annotation)
    text = f"annotation must be a gtscript.Field or labels, got {annotation!r}"
    raise InvalidArgumentError(text)
