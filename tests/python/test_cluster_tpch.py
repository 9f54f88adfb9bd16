"""The 22 queries of TPC-H over three members, each with a third of every table, row by row against DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import partgrid as pg
from clusters import members_of_files
from test_tpch import QUERIES, equal, is_ordered, peer, plain, rows_of, tables

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
    expected = peer.sql(text)
    found = connection.sql(text).to_arrow()
    assert found.column_names == expected.columns
    rows, expected_rows = rows_of(found), [tuple(map(plain, row)) for row in expected.fetchall()]
    if not is_ordered(text):
        rows, expected_rows = sorted(rows), sorted(expected_rows)
    assert len(rows) == len(expected_rows) > 0
    for number, (row, expected_row) in enumerate(zip(rows, expected_rows, strict=True)):
        assert all(map(equal, row, expected_row)), f"row {number}: {row} is not {expected_row}"
