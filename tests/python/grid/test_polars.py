"""Frames of polars as grids: chunks, types and values are kept over the same memory, or refused."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest

import partgrid as pg

ROME = ZoneInfo("Europe/Rome")
KEPT: list[tuple[Any, list[Any]]] = [
    (pl.Int8, [1, None, -128]),
    (pl.UInt64, [1, None, 2**64 - 1]),
    (pl.Float32, [1.5, None, -0.0]),
    (pl.Boolean, [True, None, False]),
    (pl.String, ["a", None, "a text that is too long to lie in its view"]),
    (pl.Binary, [b"a", None, b""]),
    (pl.Categorical, ["a", None, "b"]),
    (pl.Enum(["b", "a"]), ["a", None, "b"]),
    (pl.Date, [date(2020, 1, 1), None, date(1, 1, 1)]),
    (pl.Time, [time(1, 2, 3, 4), None, time(0)]),
    (pl.Duration("us"), [timedelta(1), None, timedelta(microseconds=1)]),
    (pl.Datetime("ns"), [datetime(2020, 1, 1), None, datetime(1969, 1, 1)]),
    (pl.Datetime("us", "Europe/Rome"), [datetime(2020, 6, 1, tzinfo=ROME), None, None]),
    (pl.Decimal(38, 2), [Decimal("1.10"), None, Decimal("-9.99")]),
    (pl.List(pl.Int16), [[1, None], None, []]),
    (pl.Array(pl.Int16, 2), [[1, None], None, [3, 4]]),
    (pl.Struct({"x": pl.Int8, "y": pl.List(pl.String)}), [{"x": 1, "y": ["a"]}, None, None]),
    (pl.Null, [None, None, None]),
]


@pytest.mark.parametrize(("dtype", "values"), KEPT, ids=[str(dtype) for dtype, _ in KEPT])
def test_types_and_values_are_kept(dtype: Any, values: list[Any]) -> None:
    frame = pl.DataFrame({"v": pl.Series(values, dtype=dtype)})
    grid = pg.from_polars(frame)
    back = grid.to_polars()
    assert back["v"].dtype == frame["v"].dtype
    assert back["v"].to_list() == frame["v"].to_list()
    nothing = [{"x": None, "y": None} if isinstance(dtype, pl.Struct) else None]
    found = grid.to_arrow()["v"].to_pylist()
    assert [None if [value] == nothing else value for value in found] == values


def test_nan_is_a_value_and_no_null() -> None:
    column = pg.from_polars(pl.DataFrame({"v": [1.0, float("nan"), None]})).to_arrow()["v"]
    assert column.null_count == 1
    assert str(column[1]) == "nan"


def test_the_order_of_categories_is_kept() -> None:
    frame = pl.DataFrame({"v": pl.Series(["a", "b"], dtype=pl.Enum(["b", "a"]))})
    kind = pg.from_polars(frame).to_arrow().schema.field("v").type
    assert kind.ordered
    assert pg.from_polars(frame).to_polars()["v"].dtype.categories.to_list() == ["b", "a"]


def test_each_chunk_becomes_a_tile_over_its_memory() -> None:
    top = pl.DataFrame({"a": [1, 2], "s": ["x", "a text that is too long for its view"]})
    frame = top.vstack(top).vstack(top[:1])
    assert frame.n_chunks() == 3
    theirs = {name: chunks_of(frame[name]) for name in frame.columns}
    grid = pg.from_polars(frame)
    assert frame.n_chunks() == 3
    assert (grid.tiling, grid.cuts[0]) == ((3, 1), (0, 2, 4, 5))
    for name in frame.columns:
        ours = grid.to_arrow()[name].chunks
        assert [places(chunk) for chunk in ours] == [places(chunk) for chunk in theirs[name]]
    assert pg.from_polars(frame.rechunk()).tiling == (1, 1)
    assert grid.to_arrow().schema.field("s").type == pa.string_view()


def test_columns_that_are_cut_in_different_places_are_shared_too() -> None:
    column = pl.Series("a", range(10))
    frame = pl.DataFrame([column.clone().append(column), pl.Series("b", range(20))])
    assert frame.n_chunks("all") == [2, 1]
    grid = pg.from_polars(frame)
    assert grid.cuts[0] == (0, 10, 20)
    first, second = (chunk.buffers()[1].address for chunk in grid.to_arrow()["a"].chunks)
    assert first == second
    assert grid.to_arrow()["b"].to_pylist() == list(range(20))
    assert frame.n_chunks("all") == [2, 1]


def test_series_and_frames_without_rows_or_columns() -> None:
    assert pg.from_polars(pl.Series("s", [1, 2])).columns == ["s"]
    assert pg.from_polars(pl.Series([1, 2])).columns == ["column_0"]
    assert pg.from_polars(pl.DataFrame()).shape == (0, 0)
    assert pg.from_polars(pl.DataFrame({"a": []})).shape == (0, 1)


@pytest.mark.parametrize(
    ("frame", "kind", "text"),
    [
        (
            pl.LazyFrame({"a": [1]}),
            pg.errors.InvalidArgumentError,
            r"got a LazyFrame, which has no data yet\nhint: frame\.collect\(\)",
        ),
        (
            pa.table({"a": [1]}),
            pg.errors.InvalidArgumentError,
            r"must be a polars\.DataFrame or polars\.Series, got pyarrow\.lib\.Table",
        ),
        (
            pl.DataFrame({"o": pl.Series([object()], dtype=pl.Object)}),
            pg.errors.UnsupportedError,
            r"no such type: Object \(column: o\)",
        ),
        (
            pl.DataFrame({"i": pl.Series([1]).cast(pl.Int128)}),
            pg.errors.UnsupportedError,
            r"no such type: Int128 \(column: i\)\nhint: cast",
        ),
        (
            pl.DataFrame({"i": pl.Series([[1]]).cast(pl.List(pl.Int128))}),
            pg.errors.UnsupportedError,
            "no such type: Int128",
        ),
    ],
)
def test_what_has_no_data_or_no_type_is_refused(
    frame: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        pg.from_polars(frame)


def chunks_of(series: pl.Series) -> list[pa.Array]:
    newest = pl.CompatLevel.newest()
    return [chunk.to_arrow(compat_level=newest) for chunk in series.get_chunks()]


def places(array: pa.Array) -> list[int]:
    """The addresses of values and texts; validity may be left out where there are no nulls."""
    return [buffer.address for buffer in array.buffers()[1:] if buffer is not None]


def test_types_that_polars_panics_at_are_refused_by_an_error() -> None:
    table = pa.table({"a": pa.array([Decimal(1)], pa.decimal256(60, 2))})
    grid = pg.from_arrow(table)
    for convert in (
        grid.to_polars,
        lambda: pg.Get("polars")(grid.__partitioned__["partitions"][0, 0]["data"]),
    ):
        with pytest.raises(pg.errors.UnsupportedError, match="polars cannot hold"):
            convert()
