"""Intervals in Parquet files: months, days and milliseconds, as DuckDB writes them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import partgrid as pg

INTERVALS = "(VALUES (INTERVAL '1 month', 1), (INTERVAL '3 hours', 2), (INTERVAL '1 year 2 months 3 days 4 seconds', 3), (INTERVAL '600 hours', 4), (NULL, 5))"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "intervals.parquet"
    select = "SELECT iv, n, [iv, NULL] AS l, {'a': iv, 'n': n} AS s, NULL::INTERVAL AS none"
    duckdb.sql(f"COPY ({select} FROM {INTERVALS} AS t(iv, n)) TO '{path}'")
    return path


@pytest.mark.parametrize("lazy", [False, True])
def test_months_days_and_milliseconds_are_kept(file: Path, lazy: bool) -> None:
    grid = pg.read_parquet(file, lazy=lazy)
    assert pa.schema(grid.schema).field("iv").type == pa.month_day_nano_interval()
    second = 1_000_000_000
    parts = [(1, 0, 0), (0, 0, 10_800 * second), (14, 3, 4 * second), (0, 25, 0)]
    expected = [pa.MonthDayNano(part) for part in parts]
    found = grid.to_arrow()
    assert found["iv"].to_pylist() == [*expected, None]
    assert found["l"].to_pylist() == [[each, None] for each in [*expected, None]]
    assert [row["a"] for row in found["s"].to_pylist()] == [*expected, None]
    assert found["none"].to_pylist() == [None] * 5


def test_they_count_in_sql_as_in_duckdb(file: Path) -> None:
    select = "SELECT n, DATE '2020-01-31' + iv AS d FROM {} ORDER BY n"
    ours = pg.read_parquet(file, tile_rows=2).sql(select.format("self")).to_arrow()
    theirs = duckdb.sql(select.format(f"'{file}'")).to_arrow_table()
    assert ours.to_pylist() == theirs.to_pylist()
    filtered = pg.read_parquet(file, filters=[("n", ">", 2)], columns=["iv"])
    assert filtered.to_arrow()["iv"].to_pylist()[0] == pa.MonthDayNano((14, 3, 4_000_000_000))
