"""The answers to the 22 queries of TPC-H, row by row against DuckDB over the same Parquet files.

`PARTGRID_TPCH_SCALE` says how large the tables are.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from tpch import QUERIES, TABLES, TILE_ROWS, check, peer, tables

__all__ = ["peer", "tables"]


def in_few_tiles(path: Path) -> pg.Grid:
    return pg.read_parquet(path)


def in_small_tiles(path: Path) -> pg.Grid:
    return pg.read_parquet(path, tile_rows=TILE_ROWS)


def lazily(path: Path) -> pg.Grid:
    return pg.read_parquet(path, tile_rows=TILE_ROWS, lazy=True)


def shuffled_in_two(path: Path) -> pg.Grid:
    """Two slices of the rows, the later one first: sorted no more."""
    table = pq.read_table(path)
    half = table.num_rows // 2
    return pg.from_arrow(pa.concat_tables([table.slice(half), table.slice(0, half)]))


@pytest.fixture(
    scope="session",
    params=[in_few_tiles, in_small_tiles, lazily, shuffled_in_two],
    ids=lambda cut: cut.__name__,
)
def session(request: pytest.FixtureRequest, tables: Path) -> pg.Session:
    session = pg.Session(threads=3)
    for name in TABLES:
        session.register(name, request.param(tables / f"{name}.parquet"))
    return session


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_answer_is_that_of_duckdb(
    session: pg.Session, peer: duckdb.DuckDBPyConnection, path: Path
) -> None:
    text = path.read_text(encoding="utf-8")
    check(text, session.sql(text).to_arrow(), peer)


def test_there_are_22_queries() -> None:
    assert [path.stem for path in QUERIES] == [f"q{number:02}" for number in range(1, 23)]
