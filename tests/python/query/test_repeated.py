"""Parts that a statement has in several places are made once: how often, in how much memory, and what becomes of errors."""

from __future__ import annotations

import gc
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import partgrid as pg

ROWS = 400_000
GROUPS = "WITH n AS (SELECT k, count(*) AS n, max(v) AS v FROM t GROUP BY k) "


def session_of(**options: object) -> pg.Session:
    """A session with a table of 100,000 groups in tiles."""
    numbers = range(ROWS)
    table = pa.table({"k": [number % 100_000 for number in numbers], "v": list(numbers)})
    session = pg.Session(threads=2, **options)
    session.register(
        "t", pg.from_arrow(pa.Table.from_batches(table.to_batches(max_chunksize=50_000)))
    )
    return session


@pytest.fixture(scope="module")
def session() -> pg.Session:
    return session_of()


def is_given_back(session: pg.Session) -> bool:
    """Tasks that are stopped let go of what they hold a moment later, and errors of a result that nobody has any more."""
    gc.collect()
    end = time.monotonic() + 10
    while session.memory_bytes and time.monotonic() < end:
        time.sleep(0.01)
    return session.memory_bytes == 0


def scans(plan: str) -> int:
    return plan.count("GridScanExec")


@pytest.mark.parametrize(
    ("text", "made", "answer"),
    [
        ("SELECT count(*) FROM n a JOIN n b ON a.k = b.k", 1, 100_000),
        ("SELECT count(*) FROM n WHERE v >= (SELECT max(v) FROM n)", 1, 1),
        ("SELECT (SELECT sum(n) FROM n) + (SELECT count(*) FROM n)", 1, ROWS + 100_000),
        ("SELECT sum(n) FROM n", 1, ROWS),
        ("SELECT a.v - b.v FROM n a, n b WHERE a.k = 7 AND b.k = 5", 2, 2),
        ("SELECT a.v - b.v FROM n a, n b WHERE a.k = 7 AND b.v = 300005", 1, 2),
    ],
)
def test_it_is_read_once_where_that_pays(
    session: pg.Session, text: str, made: int, answer: int
) -> None:
    """Where all places want other groups, each reads its own."""
    result = session.sql(GROUPS + text)
    assert scans(result.explain()) == made
    [value] = result.to_arrow()[0].to_pylist()
    assert value == answer


def test_set_operations_are_made_once(session: pg.Session) -> None:
    """Each side is read once, and once what asks for them."""
    both = "WITH s AS (SELECT k FROM t WHERE v < 300 INTERSECT SELECT v FROM t WHERE k > 99 EXCEPT SELECT k FROM t WHERE k = 200) "
    for text, made in [
        ("SELECT count(*) FROM t WHERE k IN (SELECT k FROM s) AND v IN (SELECT k + 0 FROM s)", 4),
        ("SELECT count(*) FROM s a JOIN s b ON a.k = b.k", 3),
        ("SELECT count(*) FROM s", 3),
    ]:
        result = session.sql(both + text)
        assert scans(result.explain()) == made, text
        assert result.to_arrow()[0].to_pylist() == [199], text


def test_what_cannot_be_shared_is_made_twice(session: pg.Session) -> None:
    """Parts of a union have other types than they seem to have, and a condition goes below them."""
    for operation in ["UNION", "EXCEPT"]:
        text = (
            "WITH s AS (SELECT DISTINCT k, CAST(v AS INTEGER) AS v FROM t WHERE v < 5), "
            f"b AS ((SELECT k, v FROM s WHERE k IN (SELECT k FROM t) UNION ALL SELECT k, v FROM s) {operation} SELECT k, v FROM t WHERE v < 0) "
            "SELECT k FROM b WHERE k <= (SELECT max(v) FROM b)"
        )
        assert sorted(session.sql(text).to_arrow()["k"].to_pylist()) == [0, 1, 2, 3, 4]


def test_the_rows_that_are_scanned_are_counted_once(session: pg.Session) -> None:
    result = session.sql(GROUPS + "SELECT count(*) FROM n a JOIN n b ON a.k = b.k")
    result.to_arrow()
    [scan] = re.findall(r"GridScanExec.*output_rows=([\d.]+ ?K?)", result.explain(analyze=True))
    assert scan == "400.0 K"


def test_rows_without_room_go_to_a_file(tmp_path: object) -> None:
    """6 MB of rows, of which a quarter of the limit may stay in memory until the last reader comes."""
    session = session_of(memory_limit="16MB", spill_to=str(tmp_path))
    text = (
        "WITH w AS (SELECT k, v + 1 AS v FROM t LIMIT 390000) "
        "SELECT count(*) AS n, min(k) AS least FROM w WHERE v >= (SELECT min(v) + 0 * sum(k) FROM w)"
    )
    [row] = session.sql(text).to_arrow().to_pylist()
    assert row == {"n": 390_000, "least": 0}
    again = session.sql(text).explain(analyze=True)
    [spilled] = re.findall(r"SpoolExec: rows=1, made here.*spilled_rows=([\d.]+)", again)
    assert float(spilled) > 0
    assert is_given_back(session)


def test_memory_is_given_back_when_a_reader_does_not_come(session: pg.Session) -> None:
    """One of the places is never read."""
    for _ in range(3):
        text = "SELECT count(*) FROM n a WHERE EXISTS (SELECT 1 FROM t WHERE v < 0) AND k IN (SELECT k FROM n)"
        assert session.sql(GROUPS + text).to_arrow()[0].to_pylist() == [0]
        first = GROUPS + "SELECT a.k FROM n a JOIN n b ON a.k = b.k LIMIT 1"
        assert session.sql(first).to_arrow().num_rows == 1
        assert is_given_back(session)


def test_an_error_reaches_whoever_reads(session: pg.Session) -> None:
    text = "WITH n AS (SELECT k, max(10 / (v - 5)) AS x FROM t GROUP BY k) SELECT count(*) FROM n a JOIN n b ON a.x = b.x"
    with pytest.raises(pg.errors.QueryError, match="zero"):
        session.sql(text).to_arrow()
    assert session.sql("SELECT count(*) FROM t").to_arrow()[0].to_pylist() == [ROWS]


def test_many_at_once_and_one_after_the_other(session: pg.Session) -> None:
    """The plan is kept for the next time, its rows are not."""
    text = GROUPS + "SELECT sum(a.v - b.v) AS none, count(*) AS n FROM n a JOIN n b ON a.k = b.k"

    def ask(_: int) -> dict[str, int]:
        [row] = session.sql(text).to_arrow().to_pylist()
        return row

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, range(24)))
    assert answers == [{"none": 0, "n": 100_000}] * 24


def test_a_timeout_ends_it(session: pg.Session) -> None:
    text = "WITH n AS (SELECT DISTINCT a.k * 7 + b.v AS x FROM t a, t b) SELECT count(*) FROM n a JOIN n b ON a.x = b.x"
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        session.sql(text, timeout=0.5).to_arrow()
    assert is_given_back(session)


def test_a_query_of_with_that_gives_other_rows_each_time_is_one() -> None:
    """As the standard says; a view is looked up in each place."""
    session = session_of()
    session.sql("CREATE VIEW other AS SELECT random() AS x").to_arrow()
    ask = {
        "WITH r AS (SELECT random() AS x) SELECT a.x = b.x FROM r a, r b": True,
        "WITH r AS (SELECT k, random() AS x FROM t) SELECT count(*) = 400000 FROM (SELECT * FROM r INTERSECT ALL SELECT * FROM r)": True,
        "WITH f AS (SELECT v FROM t LIMIT 10) SELECT count(*) = 0 FROM (SELECT v FROM f EXCEPT ALL SELECT v FROM f)": True,
        "SELECT a.x = b.x FROM other a, other b": False,
        "WITH r AS (SELECT k, random() AS x FROM t WHERE k IN (SELECT v FROM t WHERE v < 3)) SELECT count(*) = 12 FROM r a JOIN r b ON a.x = b.x": True,
        "WITH r AS (SELECT random() AS x FROM t WHERE EXISTS (FROM t AS o WHERE o.v = t.v AND v < 3)) SELECT count(*) = 3 FROM r a JOIN r b ON a.x = b.x": True,
        "WITH r AS (SELECT random() AS x, (SELECT max(v) FROM t) AS m FROM t LIMIT 5) SELECT count(*) = 5 FROM r a JOIN r b ON a.x = b.x AND a.m = b.m": True,
        "WITH r AS (SELECT k, random() AS x FROM t WHERE v < 3) SELECT (SELECT sum(x) FROM r) = (SELECT sum(x) FROM r AS again)": True,
        "SELECT a.x = b.x FROM (SELECT random() AS x) a, (SELECT random() AS x) b": False,
    }
    for text, same in ask.items():
        assert session.sql(text).to_arrow()[0].to_pylist() == [same], text
