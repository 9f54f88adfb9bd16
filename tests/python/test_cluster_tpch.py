"""The 22 queries of TPC-H over three members, each with a third of every table, row by row against DuckDB."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import partgrid as pg
from test_tpch import QUERIES, equal, is_ordered, peer, plain, rows_of, tables

__all__ = ["peer", "tables"]

MEMBER = """
import sys
from pathlib import Path
import partgrid as pg

part, of, members, tables = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
server = pg.Server(join="file:" + members, http=None)
for path in sorted(tables.glob("*.parquet")):
    grid = pg.read_parquet(path, tile_rows=50_000)
    rows = grid.shape[0]
    server.contribute(path.stem, grid[rows * part // of : rows * (part + 1) // of], part=part, of=of)
print(server.uri, flush=True)
sys.stdin.readline()
server.refresh()
print(*server.tables, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def connection(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pg.Connection]:
    members = tmp_path_factory.mktemp("cluster") / "members"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(part), "3", str(members), str(tables)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in range(3)
    ]

    def line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    try:
        uris = [line(process) for process in started]
        members.write_text("\n".join(uris))
        assert started[0].stdin is not None
        print(file=started[0].stdin, flush=True)
        assert len(line(started[0]).split()) == 8
        yield pg.connect(uris[0])
    finally:
        for process in started:
            process.kill()
            process.wait()


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
