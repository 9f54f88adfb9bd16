"""The tables of TPC-H and its 22 queries, and how an answer is compared with that of DuckDB.

`PARTGRID_TPCH_SCALE` says how large the tables are.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from conftest import ROOT

SCALE = os.environ.get("PARTGRID_TPCH_SCALE", "0.1")
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
QUERIES = sorted((ROOT / "sql" / "tpch").glob("q*.sql"))
TILE_ROWS = 50_000


@pytest.fixture(scope="session")
def tables() -> Path:
    """The folder of the tables, made once for all test runs."""
    cache = Path.home() / ".cache" / "partgrid" / "bench"
    target = cache / f"tpch-{SCALE}"
    if not target.exists():
        making = cache / f"making-tpch-{SCALE}-{os.getpid()}"
        command = ["tpchgen-cli", "parquet", "-s", SCALE]
        subprocess.run([*command, "--quiet", f"--output-dir={making}"], check=True)
        # Another process that was faster is right as well.
        with contextlib.suppress(OSError):
            making.rename(target)
        shutil.rmtree(making, ignore_errors=True)
    return target


@pytest.fixture(scope="session")
def peer(tables: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in TABLES:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{tables / name}.parquet'")
    return connection


def check(text: str, found: pa.Table, peer: duckdb.DuckDBPyConnection) -> None:
    """That an answer is that of the peer, row by row."""
    expected = peer.sql(text)
    assert found.column_names == expected.columns
    rows, expected_rows = rows_of(found), [tuple(map(plain, row)) for row in expected.fetchall()]
    if not is_ordered(text):
        rows, expected_rows = sorted(rows), sorted(expected_rows)
    assert len(rows) == len(expected_rows) > 0
    for number, (row, expected_row) in enumerate(zip(rows, expected_rows, strict=True)):
        assert all(map(equal, row, expected_row)), f"row {number}: {row} is not {expected_row}"


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(map(plain, row.values())) for row in table.to_pylist()]


def plain(value: object) -> object:
    """Texts and dates as they are, numbers as int, exact decimals or float."""
    return value.isoformat() if isinstance(value, datetime.date) else value


def is_ordered(text: str) -> bool:
    return re.search(r"^ORDER BY", text, re.MULTILINE) is not None


def equal(value: object, expected: object) -> bool:
    """Decimals and integers exactly; what one engine gives as float and the other as decimal within what the decimal shows."""
    if isinstance(value, float) or isinstance(expected, float):
        scale = -value.as_tuple().exponent if isinstance(value, Decimal) else 9
        bound = 10.0**-scale + 1e-9 * abs(float(expected))
        return abs(float(value) - float(expected)) <= bound
    return value == expected
