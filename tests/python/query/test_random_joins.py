"""Random joins of tables with themselves and each other, whose columns share names, compared with DuckDB; in one process and over two members."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import partgrid as pg
from members import cluster

ROWS = [400, 40, 8, 120]
COLUMNS = "abc"
VALUES = {"a": 30, "b": 10, "c": 4}
COUNT = int(os.environ.get("PARTGRID_RANDOM_QUERIES", "300")) // 2
SEED = int(os.environ.get("PARTGRID_RANDOM_SEED", random.randrange(1 << 32)))


def tables() -> dict[str, pa.Table]:
    """Four tables with the same columns, some values null."""
    chosen = random.Random(11)
    made = {}
    for number, rows in enumerate(ROWS):
        columns = {
            column: pa.array(
                [
                    None if chosen.random() < 0.08 else chosen.randrange(VALUES[column])
                    for _ in range(rows)
                ],
                pa.int64(),
            )
            for column in COLUMNS
        }
        made[f"t{number}"] = pa.table(columns)
    return made


def condition(chosen: random.Random, names: list[str]) -> str:
    """What is asked of rows beside the keys."""
    name, column, other = chosen.choice(names), chosen.choice(COLUMNS), f"t{chosen.randrange(4)}"
    no = chosen.choice(["", "", "NOT "])
    inner = chosen.choice(COLUMNS)
    return chosen.choice(
        [
            f"{name}.{column} {no}IN (SELECT {inner} FROM {other} WHERE b < {chosen.randrange(9)})",
            f"{no}EXISTS (SELECT 1 FROM {other} s WHERE s.a = {name}.{column} AND s.c = {chosen.choice(names)}.c)",
            f"{name}.{column} > (SELECT min({column}) FROM {other})",
            f"{no}EXISTS (SELECT 1 FROM {other} s WHERE s.b = {name}.b AND s.a <> {name}.a)",
        ]
    )


def query(chosen: random.Random) -> str:
    """A join of two to four tables, each with a key to one before it."""
    count = chosen.randint(2, 4)
    names = [f"x{place}" for place in range(count)]
    # Of the largest table there is one at most: products of it would take long.
    sizes = [chosen.choice([1, 2, 3]) for _ in names]
    sizes[chosen.randrange(count)] = chosen.randrange(4)
    conditions = []
    for place in range(1, count):
        for _ in range(chosen.randint(1, 2)):
            left = f"{names[chosen.randrange(place)]}.{chosen.choice(COLUMNS)}"
            conditions.append(f"{left} = {names[place]}.{chosen.choice(COLUMNS)}")
    conditions += [condition(chosen, names) for _ in range(chosen.randint(0, 2))]
    chosen.shuffle(conditions)
    tables = ", ".join(f"t{size} {name}" for size, name in zip(sizes, names, strict=True))
    rows = f"FROM {tables} WHERE {' AND '.join(conditions)}"
    one = chosen.choice(names)
    if chosen.random() < 0.3:
        inner = f"SELECT {one}.a AS v, {names[0]}.b AS w {rows}"
        return f"SELECT count(*) AS n, sum(v) AS s FROM ({inner}) q WHERE w IN (SELECT b FROM t1 WHERE c < 2)"
    return f"SELECT count(*) AS n, sum({one}.a) AS s {rows}"


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """What answers: one process, two members, DuckDB."""
    session, duck = pg.Session(), duckdb.connect()
    for name, table in tables().items():
        session.register(name, pg.from_arrow(table))
        duck.register(name, table)
    with cluster(tmp_path_factory.mktemp("joins"), of=2) as members:
        for name, table in tables().items():
            for part, member in enumerate(members):
                half = table.num_rows // 2
                rows = table.slice(part * half, half).to_pydict()
                fields = ", ".join(f"({column!r}, pa.int64())" for column in COLUMNS)
                grid = f"pg.from_arrow(pa.table({rows!r}, schema=pa.schema([{fields}])))"
                assert member.ask(f"server.contribute({name!r}, {grid}, part={part}, of=2)") is None
        for member in members:
            assert member.ask("server.refresh()") is None
        connection = pg.connect(members[0].uri)
        yield {"one process": session, "a cluster": connection, "DuckDB": duck}


@pytest.mark.parametrize("engine", ["one process", "a cluster"])
def test_random_joins_answer_as_duckdb(engines: dict[str, object], engine: str) -> None:
    """Counts and sums of all."""
    print("seed", SEED)
    chosen = random.Random(SEED)
    for number in range(COUNT):
        text = query(chosen)
        expected = engines["DuckDB"].execute(text).fetchone()
        row = engines[engine].sql(text).to_arrow().to_pylist()[0]
        got = (row["n"], row["s"])
        assert got == expected, f"seed {SEED}, query {number}: {text}"


def test_a_condition_reaches_the_side_it_is_about(engines: dict[str, object]) -> None:
    """A table with itself, twice: columns of one name are of several sides."""
    text = "SELECT count(*) AS n, sum(x2.a) AS s FROM t3 x0, t1 x1, t1 x2 WHERE x0.b = x1.c AND x0.a = x2.b"
    expected = engines["DuckDB"].execute(text).fetchone()
    for engine in ["one process", "a cluster"]:
        row = engines[engine].sql(text).to_arrow().to_pylist()[0]
        assert (row["n"], row["s"]) == expected
