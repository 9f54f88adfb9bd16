"""Frames of pandas as grids: labels, types and values are kept, or refused; nothing is changed."""

from __future__ import annotations

import datetime as dt
import sys
import zoneinfo
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import partgrid as pg

KEPT: list[tuple[Any, list[Any]]] = [
    (np.array([1, 2, 3], np.int8), [1, 2, 3]),
    (np.array([1, 2, 2**64 - 1], np.uint64), [1, 2, 2**64 - 1]),
    (np.array([1.5, -0.0, 2.5], np.float32), [1.5, -0.0, 2.5]),
    (np.array([True, False, True]), [True, False, True]),
    (pd.array([1, None, 3], "Int64"), [1, None, 3]),
    (pd.array([1.5, None, 3], "Float64"), [1.5, None, 3.0]),
    (pd.array([True, None, False], "boolean"), [True, None, False]),
    (["a", None, "c"], ["a", None, "c"]),
    (pd.array(["a", None, "c"], "string"), ["a", None, "c"]),
    ([b"a", None, b"c"], [b"a", None, b"c"]),
    ([Decimal("1.10"), None, Decimal("22")], [Decimal("1.10"), None, Decimal("22.00")]),
    ([date(2020, 1, 1), None, date(1, 1, 1)], [date(2020, 1, 1), None, date(1, 1, 1)]),
    ([time(1, 2, 3), None, time(0)], [time(1, 2, 3), None, time(0)]),
    ([[1, 2], None, []], [[1, 2], None, []]),
    ([{"a": 1}, None, {"a": 2}], [{"a": 1}, None, {"a": 2}]),
    (
        pd.to_datetime(["2020-01-01", None, "2021-01-01"]),
        [datetime(2020, 1, 1), None, datetime(2021, 1, 1)],
    ),
    (pd.to_timedelta(["1s", None, "2s"]), [timedelta(seconds=1), None, timedelta(seconds=2)]),
    (pd.Categorical(["x", None, "y"]), ["x", None, "y"]),
    (pd.Series([1, 2, None], dtype=pd.ArrowDtype(pa.int32())), [1, 2, None]),
    ([None, None, None], [None, None, None]),
]


@pytest.mark.parametrize(("values", "wanted"), KEPT)
def test_values_are_kept(values: Any, wanted: list[Any]) -> None:
    frame = pd.DataFrame({"v": values})
    assert pg.from_pandas(frame).to_arrow()["v"].to_pylist() == wanted


def test_nan_stays_nan_and_is_no_null() -> None:
    frame = pd.DataFrame({"v": [1.0, np.nan]})
    column = pg.from_pandas(frame).to_arrow()["v"]
    assert column.null_count == 0
    assert np.isnan(column.to_pylist()[1])


def test_zones_categories_and_their_order_are_kept() -> None:
    zoned = pd.date_range("2020-01-01", periods=3, tz="Europe/Berlin")
    ordered = pd.Categorical(["b", "a", "b"], categories=["b", "a"], ordered=True)
    frame = pd.DataFrame({"t": zoned, "c": ordered})
    schema = pg.from_pandas(frame).to_arrow().schema
    assert schema.field("t").type.tz == "Europe/Berlin"
    kind = schema.field("c").type
    assert pa.types.is_dictionary(kind)
    assert kind.ordered


def test_columns_in_one_piece_are_shared() -> None:
    values = np.arange(1000, dtype=np.float64)
    frame = pd.DataFrame({"v": values}, copy=False)
    ours = pg.from_pandas(frame).to_arrow()["v"].chunk(0).buffers()[1].address
    assert ours == frame["v"].to_numpy().ctypes.data


def test_row_labels_are_named_kept_or_left_away() -> None:
    frame = pd.DataFrame({"v": [1, 2]}, index=pd.Index(["x", "y"], name="k"))
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"rows have labels.*\n.*index=\"keep\""
    ):
        pg.from_pandas(frame)
    assert pg.from_pandas(frame, index="keep").to_arrow().to_pydict() == {
        "k": ["x", "y"],
        "v": [1, 2],
    }
    assert pg.from_pandas(frame, index="drop").columns == ["v"]
    with pytest.raises(pg.errors.InvalidArgumentError, match="rows have labels"):
        pg.from_pandas(pd.DataFrame({"v": [1, 2, 3]})[1:])
    with pytest.raises(pg.errors.InvalidArgumentError, match="must be"):
        pg.from_pandas(frame, index="yes")


@pytest.mark.parametrize(
    ("frame", "kind", "text"),
    [
        (pd.DataFrame({"v": [1, "x"]}), pg.errors.UnsupportedError, "of one type, got int, str"),
        (pd.DataFrame({"v": [1, 2.5]}, dtype=object), pg.errors.UnsupportedError, "got float, int"),
        (pd.DataFrame({"v": [1j]}), pg.errors.UnsupportedError, "cannot keep"),
        (pd.DataFrame({"v": [object()]}), pg.errors.UnsupportedError, "cannot keep"),
        (
            pd.DataFrame({"v": pd.period_range("2020", periods=2, freq="M")}),
            pg.errors.UnsupportedError,
            "no such type",
        ),
        (
            pd.DataFrame({"v": pd.arrays.SparseArray([0, 1])}),
            pg.errors.UnsupportedError,
            "no such type",
        ),
        (
            pd.DataFrame({0: [1]}),
            pg.errors.InvalidArgumentError,
            "labels of columns must be texts, got 0",
        ),
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            pg.errors.InvalidArgumentError,
            "two columns have the label 'a'",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(
    frame: pd.DataFrame, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        pg.from_pandas(frame)


def test_what_is_no_frame_of_pandas_is_refused() -> None:
    with pytest.raises(
        pg.errors.InvalidArgumentError,
        match=r"must be a pandas\.DataFrame or pandas\.Series, got builtins\.list",
    ):
        pg.from_pandas([1, 2])


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (pd.Index([5, 6], name="k"), ["k"]),
        (pd.Index([5, 6]), ["index"]),
        (pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["k", "n"]), ["k", "n"]),
        (pd.MultiIndex.from_tuples([("x", 1), ("y", 2)]), ["level_0", "level_1"]),
        (pd.date_range("2020-01-01", periods=2, tz="Europe/Rome", name="t"), ["t"]),
    ],
)
def test_labels_that_became_columns_come_back(labels: pd.Index, names: list[str]) -> None:
    grid = pg.from_pandas(pd.DataFrame({"v": [1.5, 2.5]}, index=labels), index="keep")
    assert grid.columns == [*names, "v"]
    back = grid.to_pandas(index=names)
    assert list(back.columns) == ["v"]
    assert list(back.index.names) == names
    assert list(back.index) == list(labels)
    if len(names) == 1:
        assert list(grid.to_pandas(index=names[0]).index) == list(labels)
    with_text = grid.sql("SELECT * FROM self").to_pandas(index=names)
    assert list(with_text.index) == list(labels)


def test_labels_called_as_a_column_are_refused() -> None:
    frame = pd.DataFrame({"v": [1]}, index=pd.Index([5], name="v"))
    with pytest.raises(pg.errors.InvalidArgumentError, match=r"labels are called 'v', as is a col"):
        pg.from_pandas(frame, index="keep")
    twice = pd.MultiIndex.from_tuples([(1, 2)], names=["k", "k"])
    with pytest.raises(pg.errors.InvalidArgumentError, match="two columns have the label 'k'"):
        pg.from_pandas(pd.DataFrame({"v": [1]}, index=twice), index="keep")


def test_wrong_labels_are_refused_before_anything_is_read() -> None:
    grid = pg.from_pandas(pd.DataFrame({"key": [1], "value": [2]}))
    result = grid.sql("SELECT key, value FROM self")
    for source in (grid, result):
        with pytest.raises(
            pg.errors.NotFoundError, match="no column `kee`.*\n.*did you mean `key`"
        ):
            source.to_pandas(index="kee")
        with pytest.raises(pg.errors.InvalidArgumentError, match="at least one column"):
            source.to_pandas(index=[])
        with pytest.raises(pg.errors.InvalidArgumentError, match="each column once"):
            source.to_pandas(index=["key", "key"])
        with pytest.raises(
            pg.errors.InvalidArgumentError, match="must be a name or a list of names"
        ):
            source.to_pandas(index=5)


@pytest.mark.parametrize(
    ("name", "missing", "package"),
    [
        ("from_pandas", "pandas", "pandas"),
        ("from_polars", "polars", "polars"),
        ("from_dask", "dask", "dask"),
        ("from_modin", "modin.pandas", "modin"),
    ],
)
def test_a_missing_library_is_named(
    name: str, missing: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=f"{name} needs {missing}\nhint: pip install {package}"):
        getattr(pg, name)(object())


def test_empty_frames_and_series() -> None:
    assert pg.from_pandas(pd.DataFrame()).shape == (0, 0)
    assert pg.from_pandas(pd.DataFrame(index=range(3))).shape == (3, 0)
    assert pg.from_pandas(pd.DataFrame({"v": []})).shape == (0, 1)
    assert pg.from_pandas(pd.Series([1, 2], name="s")).columns == ["s"]


def test_categories_of_a_frame_without_rows_are_kept() -> None:
    kept = pd.Categorical([], categories=["z", "y"], ordered=True)
    grid = pg.from_pandas(pd.DataFrame({"c": kept, "n": pd.Series([], dtype="int64")}))
    column = grid.to_arrow()["c"]
    assert column.type.ordered
    assert column.chunk(0).dictionary.to_pylist() == ["z", "y"]
    assert grid.to_arrow().schema.field("n").type == "int64"


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
TOKYO = zoneinfo.ZoneInfo("Asia/Tokyo")

CHANGED: dict[str, list[Any]] = {
    "a date and a time of day": [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 5)],
    "with a zone and without": [dt.datetime(2020, 1, 1, tzinfo=BERLIN), dt.datetime(2020, 1, 1)],
    "two zones": [dt.datetime(2020, 1, 1, tzinfo=BERLIN), dt.datetime(2020, 1, 1, tzinfo=TOKYO)],
    "a time with a zone": [dt.time(1, 2, tzinfo=dt.UTC)],
    "no decimal": [Decimal("NaN")],
    "endless": [Decimal("Infinity")],
    "large": [2**70],
    "tuples": [(1, 2)],
    "sets": [{1, 2}],
    "other keys": [{"a": 1}, {"b": 2}],
    "numbers and truth": [1, True],
}


@pytest.mark.parametrize("name", CHANGED)
def test_objects_that_would_change_are_refused(name: str) -> None:
    frame = pd.DataFrame({"c": pd.Series(CHANGED[name], dtype=object)})
    with pytest.raises(pg.errors.UnsupportedError, match="column: c"):
        pg.from_pandas(frame)


OBJECTS: dict[str, list[Any]] = {
    "nanoseconds": [pd.Timestamp("2020-01-01 00:00:00.123456789"), None],
    "nanoseconds of spans": [dt.timedelta(1), pd.Timedelta(1, "ns")],
    "NaN and null": [1.5, float("nan"), None],
    "NaN within": [[1.5, float("nan")], None, []],
    "NaN alone": [float("nan"), float("nan")],
    "structs": [{"a": 1, "b": [1]}, {"a": None, "b": []}],
    "a zone": [dt.datetime(2020, 1, 1, tzinfo=BERLIN), None],
    "dates": [dt.date(2020, 1, 1), None],
    "decimals": [Decimal("1.50"), None],
    "lists": [[1, 2], None, [3]],
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_kept(name: str) -> None:
    values = OBJECTS[name]
    found = pg.from_pandas(pd.DataFrame({"c": pd.Series(values, dtype=object)})).to_arrow()["c"]
    assert repr(found.to_pylist()) == repr(values) or found.to_pylist() == values


def test_text_with_nan_for_null_is_text() -> None:
    frame = pd.DataFrame({"c": pd.Series(["a", float("nan"), None], dtype=object)})
    assert pg.from_pandas(frame).to_arrow()["c"].to_pylist() == ["a", None, None]


@pytest.mark.parametrize(
    "values", [pd.period_range("2020", periods=2, freq="M"), pd.interval_range(0, 2)], ids=str
)
def test_categories_of_periods_and_intervals_are_refused_as_these_are(values: Any) -> None:
    with pytest.raises(pg.errors.UnsupportedError, match="Arrow has no such type"):
        pg.from_pandas(pd.DataFrame({"c": pd.Categorical(values)}))


def test_hints_about_labels_can_be_followed() -> None:
    several = pd.MultiIndex.from_tuples([("a", "b"), ("c", "d")])
    frame = pd.DataFrame([[1, 2]], columns=several)
    with pytest.raises(pg.errors.InvalidArgumentError, match="got \\('a', 'b'\\)") as told:
        pg.from_pandas(frame)
    assert "frame.columns = frame.columns.map('_'.join)" in told.value.hint
    frame.columns = frame.columns.map("_".join)
    assert pg.from_pandas(frame).columns == ["a_b", "c_d"]

    frame = pd.DataFrame({1: [1]}, index=pd.Index([5], name=7))
    with pytest.raises(pg.errors.InvalidArgumentError, match="got 1") as told:
        pg.from_pandas(frame, index="keep")
    assert "frame.columns.map(str); those of rows: frame.index.names = [...]" in told.value.hint
    frame.columns = frame.columns.map(str)
    with pytest.raises(pg.errors.InvalidArgumentError, match="got 7"):
        pg.from_pandas(frame, index="keep")
    frame.index.names = ["x"]
    assert pg.from_pandas(frame, index="keep").columns == ["x", "1"]

    series = pd.Series([1], name=5)
    with pytest.raises(pg.errors.InvalidArgumentError, match="name of a series must be") as told:
        pg.from_pandas(series)
    assert told.value.hint == "series.rename('name')"
    assert pg.from_pandas(series.rename("name")).columns == ["name"]


def test_hints_about_long_numbers_can_be_followed() -> None:
    frame = pd.DataFrame({"c": pd.Series([2**63 + 1], dtype=object)})
    with pytest.raises(pg.errors.UnsupportedError) as told:
        pg.from_pandas(frame)
    assert "'uint64'" in told.value.hint
    kept = pg.from_pandas(frame.astype({"c": "uint64"})).to_arrow()["c"]
    assert kept.to_pylist() == [2**63 + 1]
    texts = pg.from_pandas(frame.astype({"c": str})).to_arrow()["c"]
    assert texts.to_pylist() == [str(2**63 + 1)]
