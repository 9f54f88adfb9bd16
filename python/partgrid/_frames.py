"""Frames of pandas as Arrow tables: every label, type and value kept, or refused.

Comes in: a `pandas.DataFrame` or `Series`. Goes out: a `pyarrow.Table` over the same memory where pandas keeps columns in one piece. Never here: values that
change their type in silence, as `pyarrow.Table.from_pandas` has it for mixed columns and for NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partgrid import errors
from partgrid._objects import object_array
from partgrid._refusals import needed, refused, wrong_frame

if TYPE_CHECKING:
    from partgrid._native import Grid

# Libraries that are imported only where their frames come in.
Frame = Any
Series = Any
Table = Any
Labels = Any
Module = Any


def from_pandas(frame: Frame, *, index: str | None = None) -> Grid:
    """Makes a grid of one tile of a pandas frame, without copying what pandas keeps in one piece for each column.

    Values, types, NaN, categories, time zones, decimals and nested columns are kept, or refused. Needs pandas and pyarrow.

    Args:
        frame: A `pandas.DataFrame`, or a `pandas.Series` for a grid of one column.
        index: What becomes of row labels: `"keep"` makes columns of them, `"drop"` leaves them away. By default they must be 0, 1, 2 and so on.

    Returns:
        A grid that shares the memory of the frame; do not write to the frame while the grid is in use.

    Raises:
        InvalidArgumentError: There are row labels and `index` does not say what becomes of them, or a label of a column is no text or repeats.
        UnsupportedError: A column holds what Arrow cannot keep, for instance values of several types.

    Examples:
        >>> import pandas as pd, partgrid as pg
        >>> pg.from_pandas(pd.DataFrame({"a": [1.5, 2.5]})).to_arrow()["a"].to_pylist()
        [1.5, 2.5]
    """
    check_index(index)
    from partgrid._native import from_arrow  # noqa: PLC0415 - the package is still being imported

    return from_arrow(pandas_to_arrow(frame, index))


def as_table(frame: Frame) -> Table:
    """A table of a frame as pandas itself gives it, in which row labels with a name are columns, and those without are left away.

    Left to itself, pandas makes columns of labels without names unless they are 0, 1, 2 and so on, and leaves those with names away if they are.
    """
    pa = needed("pyarrow", "a pandas frame")
    names = list(frame.index.names)
    bare = [level for level, name in enumerate(names) if name is None]
    if bare and len(frame.columns) == 0:
        return _rows_alone(len(frame))
    if 0 < len(bare) < len(names):
        frame, bare = frame.reset_index(level=bare, drop=True), []
    if not bare:
        label_names(frame.index, frame.columns)
    return pa.Table.from_pandas(frame, preserve_index=not bare)


def pandas_to_arrow(frame: Frame, index: str | None = None, first: int = 0) -> Table:
    """A table of the columns of a frame.

    Args:
        frame: The frame; a series is a frame of one column.
        index: `"keep"` makes columns of the row labels, `"drop"` leaves them away; by default they must be 0, 1, 2 and so on, with `"range"` any unnamed range.
        first: The number of the first row, of a part of a larger frame: by default labels may also start with it.

    Raises:
        InvalidArgumentError: There are row labels and `index` does not say what becomes of them, or a label of a column is no text or repeats.
        UnsupportedError: A column holds what Arrow cannot keep.
    """
    pd, pa = needed("pandas", "from_pandas"), needed("pyarrow", "from_pandas")
    if isinstance(frame, pd.Series):
        if frame.name is not None and not isinstance(frame.name, str):
            message = f"the name of a series must be a text, got {frame.name!r}"
            raise refused(errors.InvalidArgumentError, message, "series.rename('name')")
        frame = frame.to_frame(name="column_0" if frame.name is None else frame.name)
    if not isinstance(frame, pd.DataFrame):
        raise wrong_frame("pandas.DataFrame or pandas.Series", frame)
    names = list(frame.columns)
    check_names(names)
    if without_labels(frame.index, index, first):
        labels = label_names(frame.index, frame.columns)
        names = [*labels, *names]
        check_names(names)
        frame = frame.reset_index(names=labels)
    columns = [_column(name, frame.iloc[:, number]) for number, name in enumerate(names)]
    if not columns:
        return pa.table({}).slice(0) if len(frame) == 0 else _rows_alone(len(frame))
    if len(frame) == 0:
        # A table without rows would lose its categories on the way.
        whole = [each.combine_chunks() if hasattr(each, "chunks") else each for each in columns]
        return pa.record_batch(whole, names=names)
    return pa.table(columns, names=names)


def _rows_alone(count: int) -> Table:
    import pyarrow as pa  # noqa: PLC0415

    return pa.table({"": pa.nulls(count)}).select([])


RENAMED = (
    "rename them: frame.columns = frame.columns.map(str); those of rows: frame.index.names = [...]"
)


def check_names(names: list[Any]) -> None:
    """Refuses labels of columns that cannot be names of columns of a grid."""
    for name in names:
        if not isinstance(name, str):
            message = f"labels of columns must be texts, got {name!r}"
            several = isinstance(name, tuple)
            named = "frame.columns = frame.columns.map('_'.join)"
            hint = f"write them as one: {named}" if several else RENAMED
            raise refused(errors.InvalidArgumentError, message, hint)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        message = f"two columns have the label {twice!r}"
        raise refused(errors.InvalidArgumentError, message, None)


def check_index(index: str | None) -> None:
    """Refuses what no argument `index` may be."""
    if index not in (None, "keep", "drop"):
        message = f'index must be "keep", "drop" or None, got {index!r}'
        raise refused(errors.InvalidArgumentError, message, None)


def without_labels(labels: Labels, index: str | None, first: int = 0) -> bool:
    """Whether row labels become columns; refuses labels of which `index` does not say what becomes."""
    import pandas as pd  # noqa: PLC0415

    if index in ("keep", "drop"):
        return index == "keep"
    counted = isinstance(labels, pd.RangeIndex) and labels.name is None
    numbers = counted and (len(labels) == 0 or (labels.start in (0, first) and labels.step == 1))
    if numbers or (counted and index == "range"):
        return False
    message = f"the rows have labels, which a grid does not keep: {type(labels).__name__} {list(labels.names)}"
    hint = 'from_pandas(frame, index="keep") makes columns of them, index="drop" leaves them away; so do frame.reset_index() and frame.reset_index(drop=True)'
    raise refused(errors.InvalidArgumentError, message, hint)


def label_names(labels: Labels, columns: Labels) -> list[str]:
    """The names of the columns that row labels become: their own, else those that pandas gives them."""
    import pandas as pd  # noqa: PLC0415

    taken = [name for name in labels.names if name is not None and name in columns]
    if taken:
        message = f"the row labels are called {taken[0]!r}, as is a column"
        hint = 'index="drop" leaves them away; frame.rename_axis(...) calls them otherwise'
        raise refused(errors.InvalidArgumentError, message, hint, column=str(taken[0]))
    frame = pd.DataFrame(columns=columns, index=labels[:0])
    return list(frame.reset_index(allow_duplicates=True).columns[: labels.nlevels])


def _column(name: str, series: Series) -> Table:
    import numpy as np  # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    dtype = series.dtype
    try:
        if isinstance(dtype, np.dtype) and dtype.kind != "O":
            # NaN is a value here, and not a null.
            return pa.array(series.to_numpy())
        if isinstance(dtype, (pd.PeriodDtype, pd.IntervalDtype, pd.SparseDtype)):
            message = f"Arrow has no such type: {dtype}"
            raise refused(errors.UnsupportedError, message, None, column=name)
        if isinstance(dtype, np.dtype):
            return object_array(series.rename(name))
        if isinstance(dtype, pd.CategoricalDtype):
            # Periods and intervals would lose what they are.
            _column(name, pd.Series(dtype.categories, dtype=dtype.categories.dtype))
        extension = series.array
        if hasattr(extension, "__arrow_array__"):
            return extension.__arrow_array__()
        return pa.array(extension, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        message = f"Arrow cannot keep the values: {error}"
        raise refused(errors.UnsupportedError, message, None, column=name) from error
