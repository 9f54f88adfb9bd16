"""SQL over grids that were sorted while they were loaded: what is known of their order is used, and never more than holds."""

import random
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg

ROWS = 3000

COLUMNS = {
    "word": lambda rng: rng.choice(["a", "aa", "b", "Z", "é", ""]),
    "key": lambda rng: f"key {rng.randint(0, 400)}",
    "maybe": lambda rng: rng.choice([None, "x", "y"]),
    "day": lambda rng: date(2013, 1, 1) + timedelta(rng.randint(0, 5)),
    "n": lambda rng: rng.randint(-3, 3),
    "hole": lambda rng: rng.choice([None, 1, 2]),
    "x": lambda rng: rng.choice([0.0, -0.0, 1.5, float("nan"), None]),
    "flag": lambda rng: rng.random() < 0.5,
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = random.Random(7)
    columns = {name: [make(rng) for _ in range(ROWS)] for name, make in COLUMNS.items()}
    return pa.table({**columns, "row": range(ROWS)})


@pytest.fixture(scope="module")
def path(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("sorted") / "t.parquet"
    pq.write_table(table, path, row_group_size=500)
    return path


def session(path: Path, by: list[tuple[str, str]], threads: int = 3) -> pg.Session:
    session = pg.Session(threads=threads)
    session.register("t", pg.read_parquet(path, sort_by=by, tile_rows=700))
    return session


def plan(session: pg.Session, sql: str) -> str:
    return session.sql(sql).explain()


ORDERS = [
    [("word", "asc")],
    [("word", "desc"), ("n", "asc")],
    [("maybe", "asc"), ("word", "desc")],
    [("maybe", "desc"), ("day", "asc"), ("n", "desc")],
    [("day", "asc"), ("hole", "desc"), ("word", "asc")],
    [("flag", "desc"), ("hole", "asc")],
]


def sql_order(by: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {direction} NULLS LAST" for name, direction in by)


@pytest.mark.parametrize("by", ORDERS, ids=sql_order)
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_in_the_order_of_the_grid_are_not_sorted_again(
    path: Path, table: pa.Table, by: list[tuple[str, str]], threads: int
) -> None:
    sql = f"SELECT {', '.join(name for name, _ in by)} FROM t ORDER BY {sql_order(by)}"
    grid = session(path, by, threads)
    assert "SortExec" not in plan(grid, sql)
    with duckdb.connect() as connection:
        connection.register("t", table)
        expected = connection.sql(sql).fetchall()
    answer = grid.sql(sql).to_arrow()
    assert [tuple(row.values()) for row in answer.to_pylist()] == expected


@pytest.mark.parametrize("by", ORDERS, ids=sql_order)
def test_groups_joins_and_windows_over_sorted_grids_are_those_of_others(
    path: Path, table: pa.Table, by: list[tuple[str, str]]
) -> None:
    grid = session(path, by)
    names = [name for name, _ in by]
    keys = ", ".join(names)
    first = names[0]
    queries = [
        f"SELECT {keys}, count(*) AS c, sum(row) AS s FROM t GROUP BY {keys}",
        f"SELECT {first}, min(row) AS c, count(DISTINCT n) AS d FROM t GROUP BY {first}",
        f"SELECT {keys}, count(*) AS c FROM t WHERE n > 0 GROUP BY {keys}",
        f"SELECT row, rank() OVER (ORDER BY {sql_order(by)}) AS r FROM t",
        f"SELECT row, count(*) OVER (PARTITION BY {first} ORDER BY row) AS r FROM t",
        f"SELECT DISTINCT {keys} FROM t",
        f"SELECT a.{first} AS k, count(*) AS c FROM t a JOIN t b ON a.{first} = b.{first} AND a.row + 1 = b.row GROUP BY a.{first}",
        f"SELECT {first}, row FROM t ORDER BY {first} NULLS LAST, row LIMIT 20",
        f"SELECT {first}, row FROM t ORDER BY {first} DESC NULLS FIRST, row LIMIT 20",
    ]
    with duckdb.connect() as connection:
        connection.register("t", table)
        for sql in queries:
            expected = connection.sql(sql).fetchall()
            found = [tuple(row.values()) for row in grid.sql(sql).to_arrow().to_pylist()]
            assert sorted(map(repr, found)) == sorted(map(repr, expected)), sql


def test_an_order_of_floats_is_not_taken_for_that_of_sql(path: Path) -> None:
    grid = session(path, [("x", "asc")])
    assert "SortExec" in plan(grid, "SELECT x FROM t ORDER BY x")


def test_an_order_ends_where_a_column_is_not_read_or_has_another_order(path: Path) -> None:
    grid = session(path, [("word", "asc"), ("x", "asc"), ("n", "asc")])
    assert "SortExec" not in plan(grid, "SELECT word, x FROM t ORDER BY word")
    for sql in [
        "SELECT word, x FROM t ORDER BY word, x",
        "SELECT word, n FROM t ORDER BY word, n",
        "SELECT n FROM t ORDER BY n",
        "SELECT word FROM t ORDER BY word DESC",
        "SELECT word FROM t ORDER BY word NULLS FIRST, 1 + n",
    ]:
        assert "SortExec" in plan(grid, sql), sql


def test_row_bands_of_a_partitioned_grid_are_sorted_each_by_itself(
    path: Path, table: pa.Table
) -> None:
    grid = pg.read_parquet(path, sort_by="word", partition_by="n")
    session = pg.Session(threads=2)
    session.register("t", grid)
    sql = "SELECT word FROM t ORDER BY word"
    assert "SortExec" in plan(session, sql)
    words = session.sql(sql).to_arrow()["word"].to_pylist()
    assert words == sorted(table["word"].to_pylist(), key=lambda word: word.encode())


def test_equal_texts_are_in_one_share_and_need_no_exchange(path: Path, table: pa.Table) -> None:
    grid = session(path, [("key", "asc"), ("n", "asc")])
    sql = "SELECT key, count(*) AS c, sum(row) AS s FROM t GROUP BY key"
    shown = plan(grid, sql)
    assert "RepartitionExec" not in shown
    assert "shares=3" in shown
    assert "sorted_by=[key@0 ASC NULLS LAST" in shown
    found = grid.sql(sql).to_arrow().sort_by("key")
    expected = table.group_by("key").aggregate([([], "count_all"), ("row", "sum")]).sort_by("key")
    assert [column.to_pylist() for column in found.columns] == [
        column.to_pylist() for column in expected.columns
    ]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [50, 777])
def test_rows_merged_by_one_order_have_lost_the_other(threads: int, rows: int) -> None:
    """A table that is sorted by two columns, read by several threads."""
    count = 12_000
    table = pa.table({"id": range(count), "k": [row // 1000 for row in range(count)]})
    session = pg.Session(threads=threads)
    batches = table.to_batches(max_chunksize=rows)
    session.register("t", pg.from_arrow(pa.Table.from_batches(batches)))
    texts = [
        "SELECT id, k FROM (SELECT id, k FROM t ORDER BY k LIMIT 11000) ORDER BY id",
        "SELECT id, rank() OVER (ORDER BY k) AS r FROM t ORDER BY id",
        "SELECT id, first_value(id) OVER (ORDER BY k) AS f FROM t ORDER BY id",
        "SELECT id, k, first_value(id) OVER (ORDER BY id) AS w FROM t ORDER BY k, id LIMIT 40",
        "SELECT id, k, count(*) OVER (ORDER BY id) AS w FROM t ORDER BY k, w, id LIMIT 40",
        "SELECT id, k, max(id) OVER (ORDER BY k) AS w FROM t ORDER BY k, w, id LIMIT 40",
    ]
    for text in texts:
        ids = session.sql(text).to_arrow()["id"].to_pylist()
        assert ids == sorted(ids), text
        if "LIMIT 40" in text:
            assert ids == list(range(40)), text
