"""Frames of polars as grids.

Comes in: a `polars.DataFrame` or `Series`. Goes out: a grid over the same memory. Never here: frames that have no data yet, types that Arrow does not have.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from partgrid import errors
from partgrid._refusals import needed, refused, wrong_frame

if TYPE_CHECKING:
    from partgrid._native import Grid

# polars is imported only where its frames come in.
Frame = Any


def from_polars(frame: Frame) -> Grid:
    """Makes a grid of a polars frame, one tile for each of its chunks, without copying.

    Where columns are cut in different places, all of these are cuts of the grid. Texts and bytes are views, as polars keeps them. All types are kept,
    categories with their order too, but for 128-bit integers and Python objects, which Arrow does not have.

    Args:
        frame: A `polars.DataFrame`, or a `polars.Series` for a grid of one column, called as the series, or `column_0` without a name.

    Returns:
        A grid that shares the memory of the frame.

    Raises:
        InvalidArgumentError: It is neither of these; a `LazyFrame` has no data before `collect`.
        UnsupportedError: A column holds what Arrow cannot keep.

    Examples:
        >>> import polars as pl, partgrid as pg
        >>> pg.from_polars(pl.DataFrame({"a": [1.5, 2.5]})).to_polars()["a"].to_list()
        [1.5, 2.5]
    """
    pl = needed("polars", "from_polars")
    if isinstance(frame, pl.LazyFrame):
        message = "frame must be a polars.DataFrame, got a LazyFrame, which has no data yet"
        hint = "frame.collect() runs its query"
        raise refused(errors.InvalidArgumentError, message, hint)
    if isinstance(frame, pl.Series):
        frame = frame.to_frame(frame.name or "column_0")
    if not isinstance(frame, pl.DataFrame):
        raise wrong_frame("polars.DataFrame or polars.Series", frame)
    for name, dtype in frame.schema.items():
        check_polars(name, dtype)
    from partgrid._native import _from_parts  # noqa: PLC0415 - the package is still being imported

    # A frame of several chunks would be copied into one when it is asked for its Arrow stream, and keep the copy.
    ends = {end for column in frame for end in accumulate(column.chunk_lengths())}
    cuts = sorted({0, *ends})
    return _from_parts([[frame[start:end]] for start, end in pairwise(cuts)] or [[frame]])


def check_polars(name: str, dtype: Any) -> None:  # noqa: ANN401
    """Refuses the types of polars that Arrow does not have; an object would become the bytes of its address."""
    kind = dtype.base_type().__name__
    if kind in ("Object", "Int128", "UInt128"):
        hint = "cast it to Decimal or a smaller integer first" if kind != "Object" else None
        message = f"Arrow has no such type: {dtype}"
        raise refused(errors.UnsupportedError, message, hint, column=name)
    inner = getattr(dtype, "inner", None)
    for part in (inner, *(field.dtype for field in getattr(dtype, "fields", ()))):
        if part is not None:
            check_polars(name, part)
