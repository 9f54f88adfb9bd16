"""The 22 queries of TPC-H over three members, each with a third of every table, row by row against DuckDB.

`PARTGRID_TPCH_SCALE` says how large the tables are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import partgrid as pg
from clusters import members_of_files
from tpch import QUERIES, check, peer, tables

__all__ = ["peer", "tables"]


@pytest.fixture(scope="module")
def connection(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pg.Connection]:
    with members_of_files(tables, tmp_path_factory.mktemp("cluster")) as connection:
        yield connection


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_answer_of_three_members_is_that_of_duckdb(
    connection: pg.Connection, peer: duckdb.DuckDBPyConnection, path: Path
) -> None:
    text = path.read_text(encoding="utf-8")
    check(text, connection.sql(text).to_arrow(), peer)
