"""Object columns of pandas as Arrow arrays: every value comes back as it was, or the column is refused.

Comes in: a series of Python objects. Goes out: a `pyarrow.Array`. pyarrow alone cuts nanoseconds, drops zones and times of day, and makes nulls of NaN, all in
silence; so what it made is held against what was given. Never here: types that pandas has of its own.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from partgrid import errors
from partgrid._refusals import refused

Series = Any
Array = Any

# What pandas calls columns whose values Arrow keeps without a second look. NaN among them is pandas' word for null.
SURE = {"string", "bytes", "integer", "boolean", "empty"}
# What it calls columns of one kind of values, of which some may still change.
TIMES = {"date", "datetime", "datetime64", "time", "timedelta", "timedelta64"}
PLAIN = SURE | TIMES | {"decimal", "floating"}


def object_array(series: Series) -> Array:
    """The array of a column of Python objects.

    Args:
        series: The column.

    Raises:
        UnsupportedError: A value would come back as another one, or Arrow cannot hold it.
    """
    import pandas as pd  # noqa: PLC0415 - only when a frame is there
    import pyarrow as pa  # noqa: PLC0415

    kind = pd.api.types.infer_dtype(series, skipna=True)
    types = set() if kind in PLAIN else {type(value) for value in series if not _missing(value)}
    if len(types) > 1:
        found = ", ".join(sorted(each.__name__ for each in types))
        raise _refused(series, f"the values of a column must be of one type, got {found}")
    try:
        if kind in SURE and not (kind == "empty" and any(map(_is_nan, series))):
            return pa.array(series, from_pandas=True)
        nulls = () if kind in {"floating", "mixed", "empty"} else (float,)
        values = [None if _is_null(value, nulls) else value for value in series]
        nanoseconds = any(getattr(value, "nanosecond", 0) for value in values)
        nanoseconds = nanoseconds or any(getattr(value, "nanoseconds", 0) for value in values)
        array = pa.array(values, from_pandas=False)
        if nanoseconds and (pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type)):
            zone = getattr(array.type, "tz", None)
            is_time = pa.types.is_timestamp(array.type)
            fine = pa.timestamp("ns", zone) if is_time else pa.duration("ns")
            array = pa.array(values, fine, from_pandas=False)
        found = array.to_pylist()
    except (OverflowError, TypeError, ValueError, NotImplementedError) as error:
        hint = MORE_BITS if isinstance(error, OverflowError) else ONE_TYPE
        raise _refused(series, f"Arrow cannot keep the values: {error}", hint) from error
    for row, (value, other) in enumerate(zip(values, found, strict=True)):
        if not _same(value, other):
            message = f"the values of a column must be of one type: row {row} has {value!r}, which would become {other!r}"
            raise _refused(series, message)
    return array


def _is_nan(value: Any) -> bool:  # noqa: ANN401 - any value of a column
    return isinstance(value, float) and value != value  # noqa: PLR0124 - only NaN is not itself


def _missing(value: Any) -> bool:  # noqa: ANN401
    return _is_null(value, (float,))


def _is_null(value: Any, kinds: tuple[type, ...]) -> bool:  # noqa: ANN401
    import pandas as pd  # noqa: PLC0415

    return value is None or value is pd.NA or value is pd.NaT or (kinds != () and _is_nan(value))


def _same(given: Any, found: Any) -> bool:  # noqa: ANN401, PLR0911 - one line for each kind
    """Whether a value came back as it was."""
    if _is_null(given, ()):
        return found is None
    if _is_nan(given):
        return _is_nan(found)
    if type(given).__name__ == "ndarray":
        given = given.tolist()
    if isinstance(given, (list, dict)):
        if type(found) is not type(given) or len(given) != len(found):
            return False
        if isinstance(given, dict):
            return list(given) == list(found) and all(_same(given[k], found[k]) for k in given)
        return all(map(_same, given, found))
    if isinstance(given, dt.datetime):
        same_zone = isinstance(found, dt.datetime) and given.utcoffset() == found.utcoffset()
        return same_zone and given == found
    if isinstance(given, dt.time):
        return isinstance(found, dt.time) and given == found and given.tzinfo == found.tzinfo
    if isinstance(given, bool) != isinstance(found, bool) or isinstance(found, dt.datetime):
        return False
    return bool(given == found)


ONE_TYPE = "frame.astype({...}) makes them one type"

MORE_BITS = "whole numbers have 64 bits at most: frame.astype({...: 'uint64'}) where none is negative, or a text of each: frame.astype({...: str})"


def _refused(series: Series, message: str, hint: str = ONE_TYPE) -> errors.PartgridError:
    return refused(errors.UnsupportedError, message, hint, column=str(series.name))
