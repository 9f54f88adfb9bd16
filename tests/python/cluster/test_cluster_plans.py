"""Statements whose plans are others in a cluster than in one process: the answers are the same."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from clusters import does_nothing, status_of, until
from members import ALL, cluster
from services import COMMAND

SUBQUERIES = [
    "SELECT sum(x * (SELECT max(g) FROM sales)) AS s FROM sales",
    "SELECT g, count(*) AS n FROM sales GROUP BY g ORDER BY (SELECT max(g) FROM sales) - g",
    "SELECT g, sum(x) AS s FROM sales GROUP BY g HAVING sum(x) > (SELECT avg(x) FROM sales) ORDER BY g",
    "SELECT x, sum(x + (SELECT max(g) FROM sales)) OVER (ORDER BY x) AS s FROM sales ORDER BY x LIMIT 3",
    "SELECT (SELECT max(x) FROM sales) AS m",
    "SELECT count(*) FILTER (WHERE x > (SELECT avg(x) FROM sales)) AS n FROM sales",
    "SELECT g + (SELECT min(g) FROM sales) AS k, count(*) AS n FROM sales GROUP BY g + (SELECT min(g) FROM sales) ORDER BY k",
    "SELECT sum(x) + (SELECT max(g) FROM sales) AS s FROM sales",
    "SELECT (SELECT max(x) FROM sales) AS m, count(*) AS n FROM sales GROUP BY (SELECT max(x) FROM sales), g ORDER BY g",
    "SELECT g, max(x - (SELECT min(x) FROM sales)) AS s FROM sales GROUP BY g ORDER BY s DESC, g LIMIT 3",
    "WITH RECURSIVE r(n) AS (SELECT min(x) FROM sales UNION ALL SELECT n + 1 FROM r WHERE n < (SELECT max(g) FROM sales)) SELECT count(*) AS n FROM r",
]

REDUCED = [
    # An aggregate of all that is joined with few of its groups.
    "SELECT sum(big.x) AS s FROM big, few WHERE big.k = few.k AND few.tag = 'a' AND big.x < (SELECT 1.5 * avg(x) FROM big b WHERE b.k = few.k)",
    "SELECT few.k, t.s FROM few JOIN (SELECT k, sum(x) AS s FROM big GROUP BY k) t ON t.k = few.k WHERE few.tag = 'a' ORDER BY few.k",
    "SELECT few.k, t.s FROM few LEFT JOIN (SELECT k, sum(x) AS s FROM big WHERE x > 10 GROUP BY k) t ON t.k = few.k WHERE few.tag = 'a' ORDER BY few.k",
    "SELECT few.k, t.s FROM (SELECT k, sum(x) AS s FROM big GROUP BY k) t RIGHT JOIN few ON t.k = few.k WHERE few.tag = 'a' ORDER BY few.k",
    "SELECT count(*) AS n FROM few WHERE few.tag = 'a' AND EXISTS (SELECT 1 FROM big WHERE big.k = few.k AND big.x > 5)",
    "SELECT count(*) AS n FROM few WHERE few.tag = 'a' AND NOT EXISTS (SELECT 1 FROM big WHERE big.k = few.k)",
    # A null among what is looked through makes NOT IN unknown: it must not be left out.
    "SELECT count(*) AS n FROM few WHERE few.tag = 'a' AND few.k NOT IN (SELECT k FROM big)",
    "SELECT count(*) AS n FROM few WHERE few.tag = 'a' AND few.k NOT IN (SELECT k FROM big WHERE k IS NOT NULL)",
    "SELECT count(*) AS n FROM few WHERE few.tag = 'a' AND few.k IN (SELECT k FROM big GROUP BY k HAVING count(*) > 60)",
    "SELECT few.k, t.n FROM few JOIN (SELECT k, count(*) AS n FROM big GROUP BY GROUPING SETS ((k), ())) t ON t.k = few.k WHERE few.tag = 'a' ORDER BY few.k",
    "SELECT few.k, t.n FROM few JOIN (SELECT k, row_number() OVER (ORDER BY k) AS n FROM big GROUP BY k) t ON t.k = few.k WHERE few.tag = 'a' ORDER BY few.k",
    "SELECT few.k, t.n FROM few JOIN (SELECT k, count(*) AS n FROM big GROUP BY k ORDER BY n, k LIMIT 100) t ON t.k = few.k WHERE few.tag = 'a' ORDER BY few.k",
    "SELECT few.k, t.n FROM few JOIN (SELECT f, count(*) AS n FROM big GROUP BY f) t ON t.f = few.f WHERE few.tag = 'a' ORDER BY few.k",
]

# What operators ask of their inputs, where the engine loses sight of it.
ASKED = [
    # Inputs whose keys are apart, and need no exchange.
    "SELECT DISTINCT id, a FROM steps UNION ALL SELECT DISTINCT id, a FROM nothing",
    "SELECT id, a, count(*) AS n FROM (SELECT DISTINCT id, a FROM steps UNION ALL SELECT DISTINCT id, a FROM nothing) AS r GROUP BY id, a",
    "SELECT DISTINCT id, a FROM nothing UNION ALL SELECT DISTINCT id, a FROM steps UNION ALL SELECT DISTINCT id, a FROM nothing",
    "SELECT DISTINCT id, a FROM steps UNION SELECT DISTINCT id, a FROM nothing",
    # Groups of which it is known that they are not many.
    "SELECT DISTINCT a FROM (SELECT DISTINCT ON (id) id, a FROM single ORDER BY id) AS r ORDER BY a",
    "SELECT DISTINCT a FROM (SELECT DISTINCT ON (id) id, a FROM nothing ORDER BY id) AS r ORDER BY a",
    "SELECT a, count(*) AS n FROM (SELECT id, max(a) AS a FROM single GROUP BY id ORDER BY id) AS r GROUP BY a",
    # A column and a field of a struct that are equal.
    "SELECT id, max({'p': a}) OVER (PARTITION BY a ORDER BY {'p': a}) AS m FROM steps",
    "SELECT id, max({'p': a}) OVER (PARTITION BY a) AS m, rank() OVER (ORDER BY {'p': a}) AS r FROM steps",
    "SELECT id, sum(id) OVER (PARTITION BY a ORDER BY {'p': a, 'q': id}) AS s FROM steps",
    # The same where one member has all rows, so that nothing stands between what makes the struct and the window.
    "SELECT id, max(id) OVER (PARTITION BY a, {'p': a, 'q': id} ORDER BY {'p': a, 'q': id}) AS m FROM single",
    "SELECT id, count(*) OVER (PARTITION BY a) AS n, max(id) OVER (PARTITION BY a, {'p': a, 'q': id} ORDER BY {'p': a, 'q': id}) AS m FROM single",
    # Keys of windows made of columns that are one.
    "SELECT id, count(*) OVER (PARTITION BY a + b, id % 5) AS n FROM (SELECT id, a, a AS b FROM steps) AS r",
    "SELECT id, count(*) OVER (PARTITION BY a = b, id % 5) AS n FROM (SELECT id, a, a AS b FROM steps) AS r",
    # Columns of one value, by statistics of which other members know nothing.
    "SELECT count(*) OVER (PARTITION BY b) AS n FROM (SELECT a, b FROM same ORDER BY id LIMIT 20) AS f WHERE b = a",
    "SELECT count(*) OVER (PARTITION BY b) AS n FROM (SELECT a, b FROM same LIMIT 20) AS f WHERE b = a",
    "SELECT b, row_number() OVER (PARTITION BY b) AS n FROM (SELECT a, b FROM same ORDER BY id LIMIT 20) AS f WHERE b = a GROUP BY b",
    "SELECT rank() OVER (PARTITION BY a ORDER BY id) AS n FROM (SELECT * FROM single LIMIT 9) AS f WHERE id > a",
    # The direction of an order that says which value of a group it is, and not how rows come.
    "SELECT a, percentile_disc(0.9) WITHIN GROUP (ORDER BY id DESC) AS p FROM steps GROUP BY a",
    "SELECT a, id % 3 AS b, percentile_disc(0.9) WITHIN GROUP (ORDER BY id DESC) AS p, quantile_disc(id, 0.2) AS q FROM steps GROUP BY CUBE (a, b)",
    # A constant of one side of a join.
    "SELECT w.id, rank() OVER (ORDER BY w.flag) AS r FROM single AS p JOIN (SELECT id, 'x' AS flag FROM steps) AS w ON p.id = w.id",
    "SELECT w.id, w.flag FROM single AS p JOIN (SELECT id, 'x' AS flag FROM steps) AS w ON p.id = w.id ORDER BY w.flag",
    "SELECT w.id, sum(p.a) OVER (PARTITION BY w.flag ORDER BY w.id) AS s FROM steps AS p JOIN (SELECT id, 'x' AS flag FROM steps) AS w ON p.id = w.id",
]


def tables() -> dict[str, pa.Table]:
    """Many rows, and few that name some of their keys; floats among the keys, -0.0 and nulls; rows in order of their keys, one of them, and none."""
    rows = 150_000
    keys = [row % 3001 if row % 97 else None for row in range(rows)]
    big = pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "x": [row % 51 for row in range(rows)],
            "f": [float(row % 3001) * (-1.0 if row % 2 else 1.0) for row in range(rows)],
        }
    )
    few = pa.table(
        {
            "k": pa.array([*range(0, 4000, 5), None], pa.int64()),
            "f": [float(key) for key in range(0, 4000, 5)] + [0.0],
            "tag": ["a" if row % 40 == 0 else "b" for row in range(800)] + ["a"],
        }
    )
    steps = pa.table(
        {
            "id": pa.array(range(300), pa.int64()),
            "a": pa.array([row % 7 if row % 11 else None for row in range(300)], pa.int64()),
        }
    )
    small = {"single": steps.slice(8, 1), "nothing": steps.slice(0, 0)}
    same = pa.table({"id": range(45), "a": [1] * 45, "b": [1] * 45})
    return {"big": big, "few": few, "steps": steps, "same": same, **small}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[pg.Session, pg.Connection]]:
    """One process, and a member of a cluster of three, over the same rows."""
    one = pg.Session()
    one.register("sales", pg.from_arrow(ALL))
    for name, table in tables().items():
        one.register(name, pg.from_arrow(table))
    folder = tmp_path_factory.mktemp("plans")
    with cluster(folder) as members:
        for name, table in tables().items():
            path = folder / f"{name}.parquet"
            pq.write_table(table, path)
            rows = table.num_rows
            for part, member in enumerate(members):
                slices = f"[{rows * part // 3}:{rows * (part + 1) // 3}]"
                grid = f"pg.read_parquet({str(path)!r}){slices}"
                assert member.ask(f"server.contribute({name!r}, {grid}, part={part}, of=3)") is None
        for member in members:
            assert member.ask("server.refresh()") is None
        yield one, pg.connect(members[0].uri)


@pytest.mark.parametrize("text", SUBQUERIES)
def test_subqueries_may_be_anywhere(engines: tuple[pg.Session, pg.Connection], text: str) -> None:
    one, connection = engines
    assert connection.sql(text).to_arrow() == one.sql(text).to_arrow()


@pytest.mark.parametrize("text", ASKED)
def test_operators_are_given_what_they_ask_for(
    engines: tuple[pg.Session, pg.Connection], text: str
) -> None:
    one, connection = engines
    answers = [engine.sql(text).to_arrow() for engine in (one, connection)]
    here, there = (sorted(answer.to_pylist(), key=repr) for answer in answers)
    assert here == there


@pytest.mark.parametrize("text", ["SUMMARIZE sales", "SUMMARIZE SELECT g, x * 2 AS y FROM sales"])
def test_what_is_in_columns_is_the_same(
    engines: tuple[pg.Session, pg.Connection], text: str
) -> None:
    one, connection = engines
    # Quartiles are estimated of the parts.
    exact = ["column_name", "data_type", "min", "max", "approx_unique", "avg", "count"]
    here, there = (engine.sql(text).to_arrow().select(exact) for engine in (one, connection))
    assert here == there
    assert connection.sql(text.replace("SUMMARIZE sales", "DESCRIBE sales")).to_arrow().num_rows > 1


@pytest.mark.parametrize("text", REDUCED)
def test_inputs_that_are_reduced_give_the_same(
    engines: tuple[pg.Session, pg.Connection], text: str
) -> None:
    one, connection = engines
    assert connection.sql(text).to_arrow() == one.sql(text).to_arrow()


def test_an_aggregation_reads_only_groups_that_are_wanted(
    engines: tuple[pg.Session, pg.Connection],
) -> None:
    """The plan has a semi join below the aggregation."""
    _, connection = engines
    plan = connection.sql(REDUCED[1]).explain()
    assert "Semi" in plan, plan
    assert "Semi" not in connection.sql(REDUCED[-1]).explain()


def test_joins_look_up_by_number_where_their_keys_lie_close_together(
    engines: tuple[pg.Session, pg.Connection],
) -> None:
    """What the members run says so, since they do not see the keys of each other."""
    one, connection = engines
    text = "SELECT tag, count(*) AS n, sum(x) AS s FROM big JOIN few ON big.k = few.k GROUP BY tag ORDER BY tag"
    floats = text.replace("big.k = few.k", "big.f = few.f")
    assert "LookupExec: by=number" in connection.sql(text).explain()
    assert "LookupExec" not in connection.sql(floats).explain()
    for each in (text, floats):
        assert connection.sql(each).to_arrow() == one.sql(each).to_arrow()


WHOLE = [
    # Joined, with conditions on either side, and the joined rows joined again.
    "SELECT tag, count(*) AS n, sum(x) AS s FROM big JOIN few ON big.k = few.k WHERE few.f < 500 GROUP BY tag ORDER BY tag",
    "SELECT big.x, count(*) AS n FROM big JOIN few ON big.k = few.k JOIN sales ON sales.g = few.k GROUP BY big.x ORDER BY big.x",
    "SELECT count(*) AS n FROM big WHERE k IN (SELECT k FROM few WHERE tag = 'a')",
    "SELECT few.k, count(*) AS n FROM big RIGHT JOIN few ON big.k = few.k AND big.x > 48 GROUP BY few.k ORDER BY few.k LIMIT 20",
    # These must not be made by each for itself: nobody would have the same rows.
    "SELECT count(*) AS n FROM big JOIN (SELECT k FROM few WHERE random() < 2) t ON big.k = t.k",
    "SELECT count(*) > 0 AS n FROM big JOIN (SELECT k FROM few LIMIT 30) t ON big.k = t.k",
    "SELECT count(*) AS n FROM big JOIN (SELECT k, count(*) AS c FROM few GROUP BY k) t ON big.k = t.k",
]


@pytest.mark.parametrize("text", WHOLE)
def test_small_tables_that_all_read_whole_give_the_same(
    engines: tuple[pg.Session, pg.Connection], text: str
) -> None:
    one, connection = engines
    for _ in range(2):
        assert connection.sql(text).to_arrow() == one.sql(text).to_arrow()


def test_a_small_table_is_read_whole_by_all_and_brought_once(tmp_path: Path) -> None:
    """The plan sends nothing of it, and what the members fetched of it they have in memory from then on."""
    text = "SELECT count(*) AS n, sum(b.g) AS s FROM sales a JOIN sales b ON a.x = b.x + 1"
    with cluster(tmp_path) as members:
        connection = pg.connect(members[0].uri)
        plan = connection.sql(text).explain()
        assert "NetworkBroadcastExec" not in plan, plan
        assert plan.count("GridScanExec: tiles=3/3") == 3, plan
        # Each of three reads three, of which others have two.
        assert tiles_fetched(connection, text) == [2, 2, 2]
        # The one that was asked tells what it had when the grid was made.
        for _ in range(2):
            assert tiles_fetched(connection, text) == [2, 0, 0]


def tiles_fetched(connection: pg.Connection, text: str) -> list[int]:
    """How many tiles of other processes each task reads of a table that all read whole."""
    plan = connection.sql(text).explain(analyze=True)
    scans = [line for line in plan.splitlines() if "GridScanExec: tiles=3/3" in line]
    found = [re.findall(r" process_tiles=\{\d+:(\d+)\}", line) for line in scans]
    return [sum(map(int, each)) for each in found]


def test_a_table_that_all_have_read_lives_where_it_did(
    engines: tuple[pg.Session, pg.Connection],
) -> None:
    """Who has mapped or kept a tile of another member does not become its place."""
    _, connection = engines
    for _ in range(2):
        connection.sql(WHOLE[0]).to_arrow()
        processes = connection.sql("SELECT process FROM tiles('few') ORDER BY row_band").to_arrow()
        assert len(set(processes["process"].to_pylist())) == 3, processes


def test_rows_that_nobody_else_would_choose_are_sent(
    engines: tuple[pg.Session, pg.Connection],
) -> None:
    _, connection = engines
    for text in WHOLE[-3:]:
        assert "=> Network" in connection.sql(text).explain()


def test_without_fetching_small_tables_are_sent(tmp_path: Path) -> None:
    with cluster(tmp_path, **{"cluster.fetch": False}) as members:
        connection = pg.connect(members[0].uri)
        text = "SELECT count(*) AS n FROM sales a JOIN sales b ON a.x = b.x"
        assert "Network" in connection.sql(text).explain()
        assert connection.sql(text).to_arrow()["n"][0].as_py() == ALL.num_rows


def test_an_input_of_a_union_that_one_task_makes_is_dealt_out(tmp_path: Path) -> None:
    """The others are made where their tiles are: one task for all would read those of all members."""
    first = "(SELECT g FROM sales ORDER BY x LIMIT 10)"
    text = f"SELECT g, count(*) AS n FROM ({first} UNION ALL SELECT g FROM sales) GROUP BY g ORDER BY g"
    with cluster(tmp_path, **{"cluster.fetch": False}) as members:
        connection = pg.connect(members[0].uri)
        plan = connection.sql(text).explain()
        assert "tiles=3/3" not in plan, plan
        expected = pg.from_arrow(ALL).sql(text.replace("sales", "self")).to_arrow()
        assert connection.sql(text).to_arrow() == expected


def test_a_statement_that_needs_few_rows_does_not_wait_for_parts_that_nobody_asked(
    engines: tuple[pg.Session, pg.Connection],
) -> None:
    """Who was asked for no rows has counted nothing, and says so. Each of these waited two seconds for it."""
    _, connection = engines
    began = time.monotonic()
    for text in ("SELECT x FROM big LIMIT 1", "SELECT DISTINCT k FROM big LIMIT 1"):
        for _ in range(3):
            assert connection.sql(text).to_arrow().num_rows == 1
    assert time.monotonic() - began < 8
    ran = connection.sql("SELECT x FROM big LIMIT 1").explain(analyze=True)
    assert "output_rows" in ran, ran


def test_a_row_made_of_all_is_made_by_all_if_the_order_does_not_matter(
    engines: tuple[pg.Session, pg.Connection],
) -> None:
    """No task of one member makes it for the others; a sum of floats, which depends on the order, is made once."""
    one, connection = engines
    text = "SELECT count(*) AS n FROM big WHERE x > (SELECT {} FROM big WHERE k IS NOT NULL)"
    exact, floats = (text.format(value) for value in ("sum(x) / 150000", "sum(f) / 150000 + 30"))
    assert "tasks=1," not in connection.sql(exact).explain()
    assert "tasks=1," in connection.sql(floats).explain()
    for each in (exact, floats, text.format("max(x) - min(x) - count(*) / 10000")):
        assert connection.sql(each).to_arrow() == one.sql(each).to_arrow()


def test_a_small_table_of_which_the_member_that_was_asked_has_all_wanted_rows_is_not_sent(
    engines: tuple[pg.Session, pg.Connection],
) -> None:
    one, connection = engines
    text = "SELECT count(*) AS n FROM big JOIN few ON big.k = few.k WHERE few.k < 100 AND few.tag = 'b'"
    plan = connection.sql(text).explain()
    assert "NetworkBroadcastExec" not in plan, plan
    assert connection.sql(text).to_arrow() == one.sql(text).to_arrow()


def test_members_of_one_host_share_its_cores(tmp_path: Path) -> None:
    """Three of them have together at most as many shares as one needs for all cores, and one for each that is begun."""
    # As many as a process may use here: fewer than there are, within a container.
    without = {name: value for name, value in os.environ.items() if "PARTGRID" not in name}
    command = [str(COMMAND), "config"]
    said = subprocess.run(command, env=without, capture_output=True, text=True, check=True).stdout
    cores = int(re.findall(r"^\s*server\.threads\s+(\d+)", said, re.MULTILINE)[0])
    most = max(1, -(-(4 * cores - 3) // 12))
    threads = most + 2
    text = "SELECT x * 7 % 2999 AS k, g, x % 5 AS m, count(*) AS n FROM sales GROUP BY k, g, m ORDER BY k, g, m"
    with cluster(tmp_path, **{"server.threads": threads}) as members:
        connection = pg.connect(members[0].uri)
        plan = connection.sql(text).explain()
        assert {int(shares) for shares in re.findall(r"shares=(\d+)", plan)} == {most}, plan
        assert f"NetworkShuffleExec: output_partitions={most}," in plan, plan
        expected = pg.from_arrow(ALL).sql(text.replace("sales", "self")).to_arrow()
        assert connection.sql(text).to_arrow() == expected


def test_keys_that_are_only_looked_up_are_sent_once(
    engines: tuple[pg.Session, pg.Connection],
) -> None:
    """Fifty rows have each key: they are grouped before they are sent."""
    one, connection = engines
    text = "SELECT few.tag, count(*) AS n FROM few WHERE {}EXISTS (SELECT 1 FROM big WHERE big.k = few.k AND big.x > 5) GROUP BY few.tag ORDER BY few.tag"
    for no in ("", "NOT "):
        each = text.format(no).replace("FROM few WHERE", "FROM few WHERE few.tag = 'a' AND")
        plan = connection.sql(each).explain()
        assert re.search(r"AggregateExec: mode=Partial, gby=\[k@0 as k\], aggr=\[\]", plan), plan
        assert connection.sql(each).to_arrow() == one.sql(each).to_arrow()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x, count(*) AS n, sum(k) AS s, avg(f) AS a FROM big GROUP BY x ORDER BY x",
        "SELECT x % 5 AS m, max(k) AS n FROM big WHERE k > 3 GROUP BY m HAVING max(k) > 10 ORDER BY n DESC, m LIMIT 3",
        "SELECT DISTINCT x FROM big WHERE k IS NULL ORDER BY x",
        "SELECT x, count(DISTINCT k) AS n FROM big GROUP BY x ORDER BY x",
        "SELECT x, n, rank() OVER (ORDER BY n DESC, x) AS r FROM (SELECT x, count(*) AS n FROM big GROUP BY x) ORDER BY r LIMIT 7",
        "SELECT tag, substr(tag, 1, 1) AS t, count(*) AS n, sum(x) AS s FROM big JOIN few ON big.k = few.k GROUP BY tag, t ORDER BY tag",
        "SELECT date_part('year', DATE '2020-01-01' + CAST(k AS INTEGER)) AS y, count(*) AS n FROM big WHERE k IS NOT NULL GROUP BY y ORDER BY y",
        "SELECT k, string_agg(CAST(x AS VARCHAR), ',' ORDER BY x) AS s FROM big WHERE k < 5 GROUP BY k ORDER BY k",
        "SELECT x, sum(k) FILTER (WHERE k > 5) AS s, bool_or(k > 3000) AS b FROM big GROUP BY x ORDER BY x",
    ],
)
def test_few_groups_are_finished_by_the_member_that_was_asked(
    engines: tuple[pg.Session, pg.Connection], text: str
) -> None:
    """The others group their rows, and do not deal these out once more."""
    one, connection = engines
    plan = connection.sql(text).explain()
    head = plan.split("Stage", maxsplit=1)[0]
    assert "mode=FinalPartitioned" in head or "mode=SinglePartitioned" in plan, plan
    assert connection.sql(text).to_arrow() == one.sql(text).to_arrow()


def test_many_groups_are_finished_by_all(engines: tuple[pg.Session, pg.Connection]) -> None:
    one, connection = engines
    text = "SELECT k, x, count(*) AS n FROM big GROUP BY k, x ORDER BY n DESC, k, x LIMIT 20"
    plan = connection.sql(text).explain()
    assert "NetworkShuffleExec" in plan, plan
    assert "mode=FinalPartitioned" not in plan.split("Stage", maxsplit=1)[0], plan
    assert connection.sql(text).to_arrow() == one.sql(text).to_arrow()


def test_rows_are_over_with_the_last_one(engines: tuple[pg.Session, pg.Connection]) -> None:
    """Many short statements one after the other, each of which ends while the members still end their parts."""
    _, connection = engines
    for number in range(50):
        text = f"SELECT k % 3 AS m, count(*) AS n FROM big WHERE x = {number} AND k < 3000 GROUP BY m ORDER BY m"
        assert connection.sql(text).to_arrow().num_rows == 3


def test_answers_that_were_read_keep_nothing_of_their_joins(tmp_path: Path) -> None:
    """Clients may ask again for an answer for some minutes; what its joins held, and their part of the limits, is given back at once."""
    joins = [
        "SELECT a.g, count(*) AS n FROM sales a JOIN sales b ON a.x = b.x + 7 GROUP BY a.g",
        "SELECT count(*) AS n FROM sales a JOIN sales b ON a.x = b.x + 7 AND a.who = b.who",
        "SELECT a.x FROM (SELECT x FROM sales ORDER BY x LIMIT 2000) a JOIN (SELECT x FROM sales ORDER BY x DESC LIMIT 2000) b ON a.x = b.x",
    ]
    with cluster(tmp_path) as members:
        connection = pg.connect(members[0].uri)
        kept = []
        for text in joins:
            kept.append(connection.sql(text))
            assert kept[-1].to_arrow().num_rows > 0
        for member in members:
            until(lambda member=member: status_of(member), does_nothing)
        assert all(answer.to_arrow().num_rows > 0 for answer in kept)
