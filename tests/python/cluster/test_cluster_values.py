"""What crosses from process to process in parts of statements arrives as it was: lists with long offsets, nested keys, windows, limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg
from clusters import Member, cluster
from type_samples import nested, of_two_tiles

ROWS = 40


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pg.Connection]:
    folder: Path = tmp_path_factory.mktemp("values")
    with cluster(folder, 2) as members:
        for part, member in enumerate(members):
            contribute(member, part)
        for member in members:
            member.ask("server.refresh()")
        yield pg.connect(members[0].uri)


def contribute(member: Member, part: int) -> None:
    """Its half of the rows."""
    half = f"__import__('type_samples').nested({ROWS}).slice({part * ROWS // 2}, {ROWS // 2})"
    told = member.ask(f"server.contribute('t', pg.from_arrow({half}), part={part}, of=2)")
    assert told is None, told
    half = f"__import__('type_samples').of_two_tiles().slice({part * 150}, 150)"
    told = member.ask(f"server.contribute('d', pg.from_arrow({half}), part={part}, of=2)")
    assert told is None, told


def of_one(text: str) -> pa.Table:
    return pg.sql(text, t=nested(ROWS)).to_arrow()


def both(connection: pg.Connection, text: str) -> tuple[Any, Any]:
    return connection.sql(text).to_arrow().to_pydict(), of_one(text).to_pydict()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x, l, s FROM t ORDER BY x",
        "SELECT x, l FROM t ORDER BY x DESC LIMIT 3",
        "SELECT x, cardinality(l) AS c, l[1] AS f FROM (SELECT * FROM t WHERE x = 11 LIMIT 1) AS t",
        "SELECT l, count(*) AS n, min(x) AS x FROM t GROUP BY l ORDER BY x",
        "SELECT s, count(*) AS n, min(x) AS x FROM t GROUP BY s ORDER BY x",
        "SELECT count(*) AS n FROM (SELECT DISTINCT s FROM t) AS d",
        "SELECT a.x, b.x AS y FROM t AS a JOIN t AS b ON a.l = b.l WHERE a.x < 9 ORDER BY a.x, b.x",
        "SELECT a.x, b.x AS y FROM t AS a LEFT JOIN t AS b ON a.s = b.s AND a.x + 1 < b.x ORDER BY a.x, b.x",
        "SELECT x FROM t WHERE l IN (SELECT l FROM t WHERE x % 4 = 1) ORDER BY x",
        "SELECT x, (SELECT count(*) FROM t AS u WHERE u.l = t.l) AS n FROM t ORDER BY x",
        "SELECT x FROM t WHERE x = (SELECT max(u.x) FROM t AS u WHERE u.s = t.s) ORDER BY x",
        "SELECT DISTINCT ON (n) n FROM (SELECT count(*) AS n FROM t AS a JOIN t AS b USING (s) GROUP BY a.k) AS d ORDER BY n",
        "SELECT t.x, q.m FROM t, LATERAL (SELECT max(u.x) AS m FROM t AS u WHERE u.s = t.s) AS q ORDER BY t.x",
        "SELECT k, max(l) AS greatest, min(s) AS least FROM t GROUP BY k ORDER BY k",
        "SELECT x, count(*) FILTER (WHERE x % 2 = 0) OVER (PARTITION BY k ORDER BY x) AS n FROM t ORDER BY x",
        "SELECT x, max(x) OVER (PARTITION BY k ORDER BY x DESC) AS m, lag(x) OVER (PARTITION BY k ORDER BY x) AS a FROM t ORDER BY x",
        "SELECT x, last_value(l[1]) IGNORE NULLS OVER (PARTITION BY k ORDER BY x) AS b FROM t ORDER BY x",
        # Of all rows: it runs where the statement was asked.
        "SELECT x, array_agg(x) FILTER (WHERE x % 9 = 0) OVER (ORDER BY x) AS l FROM t ORDER BY x",
    ],
)
def test_answers_are_those_of_one_process(connection: pg.Connection, text: str) -> None:
    found, wanted = both(connection, text)
    assert found == wanted


def test_types_of_lists_stay(connection: pg.Connection) -> None:
    text = "SELECT l, s FROM t ORDER BY x"
    assert connection.sql(text).to_arrow().schema.types == of_one(text).schema.types


def test_what_would_arrive_as_something_else_is_refused(connection: pg.Connection) -> None:
    text = "SELECT array_agg(x) FILTER (WHERE x > 2) OVER (PARTITION BY k) AS l FROM t"
    with pytest.raises(pg.errors.UnsupportedError, match="array_agg with FILTER") as refused:
        connection.sql(text).to_arrow()
    assert "IGNORE NULLS" in str(refused.value)
    text = "SELECT count(*) AS n FROM (SELECT x FROM t WHERE k = 2 LIMIT {}) AS f"
    with pytest.raises(pg.errors.UnsupportedError, match="got 4294967297"):
        connection.sql(text.format(2**32 + 1)).to_arrow()
    # As many as there may be.
    found, wanted = both(connection, text.format(2**32 - 1))
    assert found == wanted


@pytest.mark.parametrize(
    "text",
    [
        "SELECT c, count(*) AS n FROM d GROUP BY c ORDER BY c",
        "SELECT count(DISTINCT c) AS n FROM d",
        "SELECT id, c FROM d WHERE c = 'b7' OR c = 'a99' ORDER BY id",
        "SELECT a.id, b.id AS other FROM d AS a JOIN d AS b ON a.c = b.c AND a.id < b.id ORDER BY 1",
        "SELECT id, lag(c) OVER (ORDER BY c, id) AS l FROM d ORDER BY id",
        "SELECT * FROM d ORDER BY c DESC, id",
    ],
)
def test_members_have_dictionaries_of_their_own(connection: pg.Connection, text: str) -> None:
    table = of_two_tiles()
    plain = table.set_column(1, "c", table["c"].cast(pa.string()))
    expected = pg.sql(text, d=plain).to_arrow().to_pydict()
    assert connection.sql(text).to_arrow().to_pydict() == expected


LISTS = "(SELECT x, k, CASE WHEN x % 5 = 4 THEN NULL ELSE [x, x % 7, 3] END AS l FROM t)"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x, list_transform(l, (e, i) -> e * i + k) AS m FROM {} ORDER BY x",
        "SELECT x, list_filter(l, (e, i) -> e > i) AS m FROM {} ORDER BY x",
        "SELECT x, list_reduce(l, (a, e) -> a + e) AS m FROM {} ORDER BY x",
        "SELECT x, list_reduce(l, (a, e) -> a + e / 2.0) AS m FROM {} ORDER BY x",
        "SELECT x, list_reduce(l, (a, e, i) -> a || '-' || CAST(e * i AS VARCHAR), CAST(k AS VARCHAR)) AS m FROM {} ORDER BY x",
        "SELECT x, list_reduce(list_transform(l, e -> CAST(e AS DECIMAL(9, 2))), (a, e) -> a + e * k) AS m FROM {} ORDER BY x",
        "SELECT k, sum(list_reduce(l, (a, e) -> greatest(a, e), 0)) AS m FROM {} GROUP BY k ORDER BY k",
        "SELECT x FROM {} WHERE list_reduce(l, (a, e) -> a + e, NULL) IS NULL AND list_reduce(l, (a, e) -> a + e) > 9 ORDER BY x",
        "SELECT x, list_transform(l, e -> list_reduce([e, 2], (a, b) -> a * b + k)) AS m FROM {} ORDER BY x",
    ],
)
def test_lambdas_do_the_same(connection: pg.Connection, text: str) -> None:
    ours, expected = both(connection, text.format(LISTS))
    assert ours == expected
    assert any(value is not None for value in ours[list(ours)[-1]])
