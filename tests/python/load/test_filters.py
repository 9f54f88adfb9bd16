"""Filters on loads: exactly the rows that SQL gives, and no more row groups read than they must."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from conftest import DATA

FILTERS = [
    ([("month", "=", 7)], "month = 7"),
    (
        [("month", ">", 10), ("carrier", "in", ["UA", "AA"])],
        "month > 10 AND carrier IN ('UA', 'AA')",
    ),
    (
        [[("month", "<=", 1), ("dep_delay", "is null")], [("distance", ">=", 4000.5)]],
        "(month <= 1 AND dep_delay IS NULL) OR distance >= 4000.5",
    ),
    (
        [("origin", "not in", {"JFK", "LGA"}), ("dest", "!=", "ORD")],
        "origin NOT IN ('JFK', 'LGA') AND dest <> 'ORD'",
    ),
    (
        [("arr_delay", "is not null"), ("dep_delay", "<", -20)],
        "arr_delay IS NOT NULL AND dep_delay < -20",
    ),
    (
        [("time_hour", ">=", "2013-12-31T00:00:00-05:00")],
        "time_hour >= TIMESTAMP '2013-12-31 05:00:00Z'",
    ),
    ([("carrier", "=", "nobody")], "false"),
    ([("carrier", "in", [])], "false"),
]


@pytest.mark.parametrize(("filters", "where"), FILTERS)
@pytest.mark.parametrize("wishes", [{}, {"tile_rows": 7_000}, {"tile_columns": 6}])
def test_filters_give_the_rows_that_sql_gives(
    flights: pg.Grid, filters: object, where: str, wishes: dict[str, int]
) -> None:
    found = pg.read_parquet(DATA / "flights", filters=filters, **wishes)
    expected = flights.sql(f"SELECT * FROM self WHERE {where}").to_arrow()
    # SQL gives rows in any order.
    assert sorted(map(repr, found.to_arrow().to_pylist())) == sorted(
        map(repr, expected.to_pylist())
    )
    assert all(tile.shape[0] > 0 for tile in found.tiles) or len(found) == 0


def test_filters_read_only_what_they_must(tmp_path: Path) -> None:
    columns = {
        "n": pa.array(range(100_000)),
        "t": pa.array([f"text {row}" for row in range(100_000)]),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=1_000)
    job = pg.load_parquet(
        tmp_path, columns=["t"], filters=[("n", ">=", 50_500), ("n", "<", 52_500)]
    )
    grid = job.result()
    assert grid.columns == ["t"]
    assert grid.to_arrow()["t"].to_pylist() == [f"text {row}" for row in range(50_500, 52_500)]
    assert job.progress().total_rows == 3_000
    assert pg.load_parquet(DATA / "flights", filters=[("month", "=", 2)]).result().tiling == (1, 1)


@pytest.mark.parametrize(
    ("filters", "error", "text"),
    [
        ([("carrier", "like", "U%")], pg.errors.InvalidArgumentError, "operators are"),
        ([("carrier", "=")], pg.errors.InvalidArgumentError, "a tuple"),
        ([("carier", "=", "UA")], pg.errors.NotFoundError, "did you mean `carrier`"),
        ([("distance", "=", "far")], pg.errors.InvalidArgumentError, "Float64"),
        ([("carrier", "=", None)], pg.errors.InvalidArgumentError, "is null"),
        ([("month", "=", 7.5)], pg.errors.InvalidArgumentError, "would change"),
        ([("month", "in", [7, 7.5])], pg.errors.InvalidArgumentError, "would change"),
        ([("origin", "=", 3)], pg.errors.InvalidArgumentError, "would change"),
        (
            [("time_hour", "<", "2013-01-01T00:00:00.0000001Z")],
            pg.errors.InvalidArgumentError,
            "would change",
        ),
        ([("origin", "is null", 3)], pg.errors.InvalidArgumentError, "a tuple"),
        ([("month", "in", 7)], pg.errors.InvalidArgumentError, "take a list"),
        ([("carrier", "in", "UA")], pg.errors.InvalidArgumentError, "take a list"),
        ([("carrier", "in", {"UA": 1})], pg.errors.InvalidArgumentError, "take a list"),
        (
            [("day", "=>", 1)],
            pg.errors.InvalidArgumentError,
            r"unknown operator, got '=>' in \('day', '=>', 1\)\nhint: operators are =, ==,",
        ),
        (
            ("day", "=", 1),
            pg.errors.InvalidArgumentError,
            r"list of tuples .*got \('day', '=', 1\)\nhint: filters=\[\('day', '=', 1\)\]",
        ),
        (
            ["day", "=", 1],
            pg.errors.InvalidArgumentError,
            r"list of tuples .*\nhint: filters=\[\('day', '=', 1\)\]",
        ),
        (
            [["day", "=", 1]],
            pg.errors.InvalidArgumentError,
            r"list of tuples .*\nhint: filters=\[\('day', '=', 1\)\]",
        ),
        (
            [["day", "=", 1], ["day", "=", 2]],
            pg.errors.InvalidArgumentError,
            r"hint: write \('day', '=', 1\)",
        ),
        ([5], pg.errors.InvalidArgumentError, "list of tuples"),
        ([(5, "=", 1)], pg.errors.InvalidArgumentError, "a tuple"),
        ([("day", "=", 2**70)], pg.errors.InvalidArgumentError, "64 bits.*1180591620717411303424"),
        ([("day", "in", [-1, 2**63])], pg.errors.InvalidArgumentError, "64 bits"),
        ([("distance", "in", [0.5, 10**400])], pg.errors.InvalidArgumentError, "64 bits"),
        (
            [("carrier", "in", ["UA", 5])],
            pg.errors.InvalidArgumentError,
            "must be of one type, got 'UA' and 5",
        ),
        ([("day", "in", [True, 5])], pg.errors.InvalidArgumentError, "of one type, got True and 5"),
        ([("carrier", "=", ["UA"])], pg.errors.InvalidArgumentError, "several values are in"),
        ([("day", "=", object())], pg.errors.InvalidArgumentError, "must be a number, text"),
        ([("day", "=", timedelta(1))], pg.errors.InvalidArgumentError, "a filter value"),
        ([("carrier", "=", timedelta(1))], pg.errors.InvalidArgumentError, "would change"),
    ],
)
def test_wrong_filters_are_refused(filters: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pg.read_parquet(DATA / "flights", filters=filters)


def test_filters_compare_decimals_and_times_exactly(tmp_path: Path) -> None:
    times = pa.array([date(2020, 1, 1), date(2020, 1, 2)])
    pq.write_table(
        pa.table({"d": [Decimal("1.20"), Decimal("1.25")], "t": times}), tmp_path / "a.parquet"
    )
    assert len(pg.read_parquet(tmp_path, filters=[("d", "=", Decimal("1.25"))])) == 1
    assert len(pg.read_parquet(tmp_path, filters=[("t", ">", date(2020, 1, 1))])) == 1
    for wish in [("d", "=", Decimal("1.249")), ("t", "=", "2020-01-01T12:00:00")]:
        with pytest.raises(pg.errors.InvalidArgumentError, match="would change"):
            pg.read_parquet(tmp_path, filters=[wish])


def test_all_nan_are_one_value_above_all_numbers_and_there_is_one_zero(tmp_path: Path) -> None:
    negative = np.copysign(np.nan, -1.0)
    values = [negative, -0.0, 1.0, np.nan, 0.0, None, -2.5, np.inf]
    for data_type in (pa.float64(), pa.float32(), pa.float16()):
        path = tmp_path / f"{data_type}.parquet"
        typed = [None if value is None else data_type.to_pandas_dtype()(value) for value in values]
        table = pa.table({"x": pa.array(typed, data_type), "row": range(len(values))})
        pq.write_table(table, path, row_group_size=2)

        def rows(path: Path, operator: str, value: object) -> list[int]:
            filters = [("x", operator, value)]
            return pg.read_parquet(path, filters=filters).to_arrow()["row"].to_pylist()

        assert rows(path, "=", 0) == rows(path, "==", -0.0) == rows(path, "in", [0]) == [1, 4]
        assert rows(path, "<", 0.0) == [6]
        assert rows(path, ">", -0.0) == [0, 2, 3, 7]
        assert rows(path, "!=", 0) == [0, 2, 3, 6, 7]
        assert rows(path, "=", float("nan")) == rows(path, ">", float("inf")) == [0, 3]
        assert rows(path, "<", 1.0) == [1, 4, 6]
        ordered = pg.read_parquet(path, sort_by="x").to_arrow()["row"].to_pylist()
        assert ordered == [6, 1, 4, 2, 7, 0, 3, 5]
        down = pg.read_parquet(path, sort_by=("x", "descending")).to_arrow()["row"].to_pylist()
        assert down == [0, 3, 7, 2, 1, 4, 6, 5]
        parted = pg.read_parquet(path, partition_by="x", num_partitions=5)
        bands = [tile.to_arrow()["row"].to_pylist() for tile in parted.tiles]
        assert any({1, 4} <= set(band) for band in bands)
        assert any({0, 3} <= set(band) for band in bands)


def test_values_finer_than_the_column_are_refused_in_all_years(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    column = pa.array([datetime(9999, 1, 1)], pa.timestamp("ms"))
    pq.write_table(pa.table({"d": [date(1, 1, 1)], "s": column}), path)
    for wish in [
        ("d", "<", datetime(1, 1, 1, 12)),
        ("d", "=", datetime(1, 1, 1, 12)),
        ("s", "=", datetime(9999, 1, 1, 0, 0, 0, 500)),
    ]:
        with pytest.raises(pg.errors.InvalidArgumentError, match="would change"):
            pg.read_parquet(path, filters=[wish])
    assert len(pg.read_parquet(path, filters=[("d", "=", date(1, 1, 1))])) == 1
    assert len(pg.read_parquet(path, filters=[("s", "=", datetime(9999, 1, 1))])) == 1


@pytest.mark.parametrize(
    "values",
    [
        frozenset([1, 3]),
        range(1, 4, 2),
        {1: None, 3: None}.keys(),
        (day for day in [1, 3]),
        np.array([1, 3], dtype=np.int16),
        [np.int64(1), 3],
        pd.Series([1, 3]),
        pa.array([1, 3]),
        [pa.scalar(1), pa.scalar(3)],
        pl.Series([1, 3]),
    ],
)
def test_in_takes_any_values_that_can_be_gone_through(flights: pg.Grid, values: object) -> None:
    found = pg.read_parquet(DATA / "flights", filters=[("day", "in", values)])
    assert len(found) == len(flights.sql("SELECT day FROM self WHERE day IN (1, 3)").to_arrow())


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_in_takes_times_of_other_libraries(tmp_path: Path, unit: str) -> None:
    times = [datetime(2020, 1, day) for day in (1, 2, 3)]
    pq.write_table(pa.table({"t": pa.array(times, pa.timestamp("us"))}), tmp_path / "a.parquet")
    array = np.array(times[:2], dtype=f"datetime64[{unit}]")
    for values in [array, list(array), pd.Series(array), pa.array(array)]:
        assert len(pg.read_parquet(tmp_path, filters=[("t", "in", values)])) == 2
    assert len(pg.read_parquet(tmp_path, filters=[("t", ">", array[0])])) == 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_are_compared_with_timedeltas(tmp_path: Path, unit: str) -> None:
    durations = [timedelta(days=days, seconds=5) for days in (-1, 0, 1)]
    table = pa.table({"d": pa.array(durations, pa.duration(unit))})
    pq.write_table(table, tmp_path / "a.parquet")

    def count(operator: str, value: object) -> int:
        return len(pg.read_parquet(tmp_path, filters=[("d", operator, value)]))

    assert count("<", timedelta(0)) == 1
    assert count("=", durations[2]) == 1
    assert count("in", durations[:2]) == 2
    assert count(">=", pd.Timedelta(seconds=5)) == 2
    assert count("=", np.timedelta64(5, "s")) == 1
    for value, text in [
        (timedelta(days=365 * 300), "292 years"),
        (pd.Timedelta(5, "ns"), "whole microseconds"),
        (5.5, "would change|no Duration"),
        ("5s", "no Duration"),
        (np.timedelta64(5, "ns"), "must be a number"),
    ]:
        with pytest.raises(pg.errors.InvalidArgumentError, match=text):
            count("=", value)
    if unit == "s":
        with pytest.raises(pg.errors.InvalidArgumentError, match="would change"):
            count("=", timedelta(milliseconds=1))


def test_decimals_take_whole_numbers_beyond_64_bits(tmp_path: Path) -> None:
    pq.write_table(pa.table({"d": [Decimal(2**70), Decimal(3)]}), tmp_path / "a.parquet")
    assert len(pg.read_parquet(tmp_path, filters=[("d", "=", Decimal(2**70))])) == 1
    assert len(pg.read_parquet(tmp_path, filters=[("d", "in", [Decimal(2**70), 3])])) == 2


def test_naive_times_are_taken_in_the_zone_of_the_column(tmp_path: Path) -> None:
    times = pa.array(["2020-01-01T12:00:00"]).cast(pa.timestamp("us"))
    zoned = pc.assume_timezone(times, "America/New_York")
    pq.write_table(pa.table({"t": zoned}), tmp_path / "a.parquet")
    wish = [("t", "=", datetime(2020, 1, 1, 12))]
    assert len(pg.read_parquet(tmp_path, filters=wish)) == 1
