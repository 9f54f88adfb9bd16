"""TPC-DS at scale factor 0.01: the data and the 99 queries of DuckDB's extension, answered by both, by partgrid in one process and in three.

The extension is a package of its own for DuckDB 1.5; run by `make test-peers`.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

duckdb = pytest.importorskip("duckdb")
extension = pytest.importorskip(
    "duckdb_extension_tpcds", reason="duckdb-extension-tpcds is not installed"
)

import partgrid as pg  # noqa: E402
from clusters import members_of_files  # noqa: E402

SCALE = 0.01
# Averages of decimals have 6 digits behind the point, cut off; DuckDB's are doubles.
TOLERANCE = 2e-6


@pytest.fixture(scope="module")
def other() -> Iterator[Any]:
    """DuckDB with the tables."""
    connection = duckdb.connect()
    [path] = Path(extension.__file__).parent.rglob("tpcds.duckdb_extension")
    connection.execute(f"LOAD '{path}'")
    connection.execute(f"CALL dsdgen(sf={SCALE})")
    yield connection
    connection.close()


Asked = pg.Session | pg.Connection


@pytest.fixture(scope="module", params=["one tile", "tiles of 1,000 rows", "three members"])
def asked(
    request: pytest.FixtureRequest, other: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    """The same tables as grids, here or with a third of each in three processes."""
    names = other.execute("SELECT table_name FROM information_schema.tables").fetchall()
    assert len(names) == 24
    if request.param == "three members":
        folder = tmp_path_factory.mktemp("cluster")
        tables = folder / "tables"
        tables.mkdir()
        for (name,) in names:
            other.execute(f"COPY {name} TO '{tables}/{name}.parquet'")
        with members_of_files(tables, folder, tile_rows=1000) as connection:
            yield connection
        return
    session = pg.Session(threads=2)
    for (name,) in names:
        table = other.sql(f"FROM {name}").to_arrow_table().combine_chunks()
        if request.param != "one tile" and len(table):
            parts = [[table.slice(start, 1000)] for start in range(0, len(table), 1000)]
            session.register(name, pg._native._from_parts(parts))
        else:
            session.register(name, pg.from_arrow(table))
    yield session


def rows(table: Any) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


def same(one: Any, other: Any) -> bool:
    numbers = (int, float, decimal.Decimal)
    if isinstance(one, numbers) and isinstance(other, numbers):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)


def take(found: list[tuple[Any, ...]], wanted: tuple[Any, ...]) -> bool:
    """Whether there is a row like this one, which is then taken out."""
    for place, row in enumerate(found):
        if all(map(same, row, wanted)):
            del found[place]
            return True
    return False


@pytest.mark.parametrize("number", range(1, 100))
def test_the_answer_is_that_of_duckdb(number: int, asked: Asked, other: Any) -> None:
    [(query,)] = other.execute(
        "SELECT query FROM tpcds_queries() WHERE query_nr = ?", [number]
    ).fetchall()
    expected = other.sql(query).to_arrow_table()
    found = asked.sql(query).to_arrow()
    assert found.num_columns == expected.num_columns
    assert found.num_rows == expected.num_rows
    left = rows(found)
    missing = [row for row in rows(expected) if not take(left, row)]
    assert (missing, left) == ([], [])
