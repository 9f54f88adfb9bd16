"""Random queries over random grids, against DuckDB over the same tables.

300 queries; PARTGRID_RANDOM_QUERIES says another number, PARTGRID_RANDOM_SEED where to begin. A failure names the seed and the query.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import duckdb
import pytest

import partgrid as pg
from answers_alike import SAME_NAME, rows
from random_queries import Writer, grid, table

QUERIES = int(os.environ.get("PARTGRID_RANDOM_QUERIES", "300"))
FIRST = int(os.environ.get("PARTGRID_RANDOM_SEED", "20261121"))
# Queries over the tables of one seed.
EACH = 10


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(QUERIES // EACH, 1)))
def test_random_queries_have_the_answers_of_duckdb(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = {name: table(rng, many=name == "t") for name in "tuv"}
    session = pg.Session(threads=rng.choice([1, 2, 3]))
    kinds = []
    other = duckdb.connect()
    other.execute("SET threads = 1")
    for name, rows_of in data.items():
        made, kind = grid(rng, rows_of, tmp_path / name)
        kinds.append(f"{name}: {len(rows_of)} rows, {kind}")
        session.register(name, made)
        other.register(name, rows_of)
    for number in range(EACH):
        query, ordered = Writer(rng).query()
        told = f"seed {seed}, query {number} ({'; '.join(kinds)}):\n{query}"
        try:
            expected = other.sql(query).to_arrow_table()
        except duckdb.Error as error:
            # The same must hold for both: an overflow, for instance.
            if isinstance(
                error, (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException)
            ):
                raise AssertionError(f"no query of both dialects: {error}\n{told}") from error
            continue
        try:
            found = session.sql(query).to_arrow()
        except Exception as error:
            if SAME_NAME.search(str(error)) and "CAST" in query:
                continue
            raise AssertionError(f"{type(error).__name__}: {error}\n{told}") from error
        ours, theirs = rows(found, ordered=ordered), rows(expected, ordered=ordered)
        if ours != theirs:
            missing = [row for row in theirs if row not in ours][:5]
            extra = [row for row in ours if row not in theirs][:5]
            raise AssertionError(
                f"{len(ours)} rows, DuckDB has {len(theirs)}; missing {missing}, too many {extra}\n{told}"
            )
