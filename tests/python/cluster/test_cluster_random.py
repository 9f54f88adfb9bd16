"""Random queries over grids whose parts three processes have, against DuckDB over the same tables.

100 queries over the tables of one seed; PARTGRID_RANDOM_QUERIES says another number, three times as many, PARTGRID_RANDOM_SEED where to begin.
A failure names the seed and the query.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import duckdb
import pytest

import partgrid as pg
from answers_alike import SAME_NAME, rows
from clusters import cluster
from random_parts import SEED, tables
from random_queries import Writer

QUERIES = int(os.environ.get("PARTGRID_RANDOM_QUERIES", "300")) // 3
MEMBERS = 3

NO_QUERY = (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException)
Engines = tuple[pg.Connection, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    other = duckdb.connect()
    other.execute("SET threads = 1")
    for name, data in tables().items():
        other.register(name, data)
    with cluster(tmp_path_factory.mktemp("random"), MEMBERS) as members:
        for number, member in enumerate(members):
            for name in "tuv":
                made = f"pg.from_arrow(__import__('random_parts').part({name!r}, {number}))"
                told = member.ask(
                    f"server.contribute({name!r}, {made}, part={number}, of={MEMBERS})"
                )
                assert told is None, told
        for member in members:
            member.ask("server.refresh()")
        yield pg.connect(members[0].uri), other


@pytest.mark.parametrize("seed", range(SEED, SEED + max(QUERIES, 1)))
def test_random_queries_of_members_have_the_answers_of_duckdb(engines: Engines, seed: int) -> None:
    connection, other = engines
    query, ordered = Writer(random.Random(seed)).query()
    told = f"seed {seed}:\n{query}"
    try:
        expected = other.sql(query).to_arrow_table()
    except duckdb.Error as error:
        if isinstance(error, NO_QUERY):
            raise AssertionError(f"no query of both dialects: {error}\n{told}") from error
        # Neither engine has an answer: a number has no room, for instance.
        return
    try:
        found = connection.sql(query).to_arrow()
    except pg.errors.PartgridError as error:
        if SAME_NAME.search(str(error)) and "CAST" in query:
            return
        raise AssertionError(f"{type(error).__name__}: {error}\n{told}") from error
    assert rows(found, ordered=ordered) == rows(expected, ordered=ordered), told
