"""Frames of pandas as Arrow tables: every label, type and value kept, or refused.

Comes in: a `pandas.DataFrame` or `Series`. Goes out: a `pyarrow.Table` over the same memory where pandas keeps columns in one piece. Never here: values that
change their type in silence, as `pyarrow.Table.from_pandas` has it for mixed columns and for NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partgrid import errors

if TYPE_CHECKING:
    from partgrid._native import Grid

# Libraries that are imported only where their frames come in.
Frame = Any
Series = Any
Table = Any

# What pandas calls object columns whose values are of one type.
PLAIN_OBJECTS = {
    "string",
    "bytes",
    "integer",
    "floating",
    "decimal",
    "boolean",
    "date",
    "datetime",
    "datetime64",
    "timedelta",
    "timedelta64",
    "time",
    "empty",
}


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
    if index not in (None, "keep", "drop"):
        message = f'index must be "keep", "drop" or None, got {index!r}'
        raise _refused(errors.InvalidArgumentError, message, None)
    from partgrid._native import from_arrow  # noqa: PLC0415 - the package is still being imported

    return from_arrow(pandas_to_arrow(frame, index))


def pandas_to_arrow(frame: Frame, index: str | None = None) -> Table:
    """A table of the columns of a frame.

    Args:
        frame: The frame; a series is a frame of one column.
        index: `"keep"` makes columns of the row labels, `"drop"` leaves them away; by default they must be 0, 1, 2 and so on, with `"range"` any unnamed range.

    Raises:
        InvalidArgumentError: There are row labels and `index` does not say what becomes of them, or a label of a column is no text or repeats.
        UnsupportedError: A column holds what Arrow cannot keep.
    """
    import pandas as pd  # noqa: PLC0415 - only when a frame is there
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(frame, pd.Series):
        frame = frame.to_frame(name="column_0" if frame.name is None else frame.name)
    frame = _without_index(frame, index)
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str):
            message = f"labels of columns must be texts, got {name!r}"
            hint = "rename them: frame.rename(columns=str)"
            raise _refused(errors.InvalidArgumentError, message, hint)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _refused(errors.InvalidArgumentError, f"two columns have the label {twice!r}", None)
    columns = [_column(name, frame.iloc[:, number]) for number, name in enumerate(names)]
    if not columns:
        return pa.table({}).slice(0) if len(frame) == 0 else _rows_alone(len(frame))
    return pa.table(columns, names=names)


def _rows_alone(count: int) -> Table:
    import pyarrow as pa  # noqa: PLC0415

    return pa.table({"": pa.nulls(count)}).select([])


def _without_index(frame: Frame, index: str | None) -> Frame:
    import pandas as pd  # noqa: PLC0415

    labels = frame.index
    counted = isinstance(labels, pd.RangeIndex) and labels.name is None
    plain = counted and (index == "range" or (labels.start == 0 and labels.step == 1))
    if index == "drop" or (plain and index != "keep"):
        return frame
    if index != "keep":
        message = f"the rows have labels, which a grid does not keep: {type(labels).__name__} {list(labels.names)}"
        hint = 'index="keep" makes columns of them, index="drop" leaves them away'
        raise _refused(errors.InvalidArgumentError, message, hint)
    return frame.reset_index()


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
            raise _refused(errors.UnsupportedError, message, None, column=name)
        if isinstance(dtype, np.dtype):
            _check_objects(name, series)
            return pa.array(series, from_pandas=True)
        extension = series.array
        if hasattr(extension, "__arrow_array__"):
            return extension.__arrow_array__()
        return pa.array(extension, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        message = f"Arrow cannot keep the values: {error}"
        raise _refused(errors.UnsupportedError, message, None, column=name) from error


def _check_objects(name: str, series: Series) -> None:
    import pandas as pd  # noqa: PLC0415

    kind = pd.api.types.infer_dtype(series, skipna=True)
    if kind in PLAIN_OBJECTS:
        return
    kinds = {
        type(value) for value in series if not pd.api.types.is_scalar(value) or pd.notna(value)
    }
    if len(kinds) > 1:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        message = f"the values of a column must be of one type, got {found}"
        hint = "frame.astype({...}) makes them one type"
        raise _refused(errors.UnsupportedError, message, hint, column=name)


def _refused(
    kind: type[errors.PartgridError], message: str, hint: str | None, *, column: str | None = None
) -> errors.PartgridError:
    context = {} if column is None else {"column": column}
    where = "" if column is None else f" (column: {column})"
    text = f"{message}{where}" + ("" if hint is None else f"\nhint: {hint}")
    return kind(text, context, hint, False)
