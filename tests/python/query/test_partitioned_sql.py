"""SQL over grids that were partitioned by columns while they were loaded: groups are made in one step where that holds, and nowhere else."""

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg

ROWS = 6000

COLUMNS = {
    "word": lambda rng: rng.choice(["a", "aa", "b", "Z", "é", "", None]),
    "key": lambda rng: f"key {rng.randint(0, 900)}",
    "n": lambda rng: rng.randint(-300, 300),
    "x": lambda rng: rng.choice([0.0, -0.0, 1.5, float("nan"), None]),
    "flag": lambda rng: rng.random() < 0.5,
}

CUTS = [["key"], ["n"], ["key", "word"], ["n", "flag"]]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = random.Random(11)
    columns = {name: [make(rng) for _ in range(ROWS)] for name, make in COLUMNS.items()}
    return pa.table({**columns, "row": range(ROWS)})


@pytest.fixture(scope="module")
def path(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("partitioned") / "t.parquet"
    pq.write_table(table, path, row_group_size=500)
    return path


def session(path: Path, by: list[str], threads: int = 3, **wishes: Any) -> pg.Session:
    session = pg.Session(threads=threads)
    wishes = {"num_partitions": 7, **wishes}
    session.register("t", pg.read_parquet(path, partition_by=by, **wishes))
    # The same number of row bands, cut by another column.
    session.register("u", pg.read_parquet(path, partition_by="row", num_partitions=7))
    session.register("v", pg.read_parquet(path, tile_rows=700))
    return session


QUERIES = [
    "SELECT {keys}, count(*) AS c, sum(row) AS s FROM t GROUP BY {keys}",
    "SELECT {keys}, min(row) AS c FROM t WHERE row % 3 = 1 GROUP BY {keys} HAVING count(*) > 1",
    "SELECT {keys}, flag, count(DISTINCT n % 5) AS d FROM t GROUP BY {keys}, flag",
    "SELECT DISTINCT {keys} FROM t",
    "SELECT {keys}, sum(row) FILTER (WHERE flag) AS s, avg(n) AS a FROM t GROUP BY {keys}",
    "SELECT n, count(*) AS c FROM t GROUP BY n",
    "SELECT word, max(row) AS m FROM t GROUP BY word",
    "SELECT {keys}, count(*) AS c FROM t GROUP BY ROLLUP ({keys})",
    "SELECT {first} || 'x' AS k, count(*) AS c FROM t GROUP BY {first} || 'x'",
    "SELECT k, sum(c) AS s FROM (SELECT {first} AS k, flag, count(*) AS c FROM t GROUP BY {keys}, flag) GROUP BY k",
    "SELECT a.{first} AS k, a.c, b.c AS d FROM (SELECT {keys}, count(*) AS c FROM t GROUP BY {keys}) AS a "
    "JOIN (SELECT {keys}, sum(row) AS c FROM v GROUP BY {keys}) AS b USING ({keys})",
    "SELECT a.{first} AS k, a.c, b.c AS d FROM (SELECT {keys}, count(*) AS c FROM t GROUP BY {keys}) AS a "
    "FULL JOIN (SELECT {keys}, sum(row) AS c FROM u GROUP BY {keys}) AS b USING ({keys})",
    "SELECT {first} AS k, c, rank() OVER (PARTITION BY c ORDER BY {first}) AS r FROM (SELECT {keys}, count(*) AS c FROM t GROUP BY {keys})",
    "SELECT {first}, c, row_number() OVER (PARTITION BY {first} ORDER BY c) AS r FROM (SELECT {keys}, count(*) AS c FROM t GROUP BY {keys})",
    "SELECT {first} AS k, count(*) AS c FROM (SELECT * FROM t UNION ALL SELECT * FROM u) GROUP BY {first}",
    "SELECT {first} AS k, count(*) AS c FROM t WHERE {first} IN (SELECT {first} FROM v WHERE row < 50) GROUP BY {keys}",
    "SELECT {keys}, count(*) AS c FROM t GROUP BY {keys} ORDER BY c DESC, {keys} LIMIT 9",
    "SELECT {keys}, max(row) AS c FROM t GROUP BY {keys} ORDER BY c DESC LIMIT 9",
    "SELECT count(*) AS c FROM (SELECT {keys} FROM t GROUP BY {keys} INTERSECT SELECT {keys} FROM v GROUP BY {keys})",
]


@pytest.mark.parametrize("by", CUTS, ids=" ".join)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_answers_are_those_of_others(
    path: Path, table: pa.Table, by: list[str], threads: int
) -> None:
    grid = session(path, by, threads)
    with duckdb.connect() as connection:
        for name in "tuv":
            connection.register(name, table)
        for query in QUERIES:
            if by[0] == "n" and "||" in query:
                continue
            sql = query.format(keys=", ".join(by), first=by[0])
            wanted = sorted(map(repr, connection.sql(sql).fetchall()))
            answer = grid.sql(sql).to_arrow()
            rows = zip(*(column.to_pylist() for column in answer.columns), strict=True)
            found = sorted(map(repr, rows))
            assert found == wanted, sql


@pytest.mark.parametrize("by", CUTS, ids=" ".join)
def test_groups_of_a_partitioned_grid_are_made_in_one_step(path: Path, by: list[str]) -> None:
    keys = ", ".join(by)
    grid = session(path, by)
    for sql in [
        f"SELECT {keys}, count(*) FROM t GROUP BY {keys}",
        f"SELECT DISTINCT {keys}, flag FROM t",
        f"SELECT {keys}, flag, sum(row) AS s FROM t WHERE row > 9 GROUP BY {keys}, flag ORDER BY s",
    ]:
        shown = grid.sql(sql).explain()
        assert "RepartitionExec" not in shown, shown
        assert shown.count("AggregateExec") == 1
    others = [f"SELECT {keys}, count(*) FROM u GROUP BY {keys}", "SELECT flag FROM t GROUP BY flag"]
    if len(by) > 1:
        others.append(f"SELECT {by[0]}, count(*) FROM t GROUP BY {by[0]}")
    for sql in others:
        shown = grid.sql(sql).explain()
        assert "RepartitionExec" in shown, shown


def test_a_part_of_the_rows_and_uneven_bands_are_dealt_out_as_others(path: Path) -> None:
    session = pg.Session(threads=3)
    whole = pg.read_parquet(path, partition_by="key", num_partitions=7)
    session.register("part", whole[10:5000])
    session.register("few", pg.read_parquet(path, partition_by="flag", num_partitions=2))
    for name, key in [("part", "key"), ("few", "flag")]:
        sql = f"SELECT {key}, count(*) AS c FROM {name} GROUP BY {key}"
        assert "RepartitionExec" in session.sql(sql).explain()
    kept = session.sql("SELECT sum(c) AS s FROM (SELECT key, count(*) AS c FROM part GROUP BY key)")
    assert kept.to_arrow()["s"].to_pylist() == [4990]
