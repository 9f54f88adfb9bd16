"""Rows of one key that are with one member already are not sent to meet: the answers are those of one process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from members import Member, cluster

KEYS = 60_000
BOUNDS = [0, 21_002, 39_003, KEYS]
Engines = tuple[pg.Session, pg.Connection]


def tables() -> dict[str, tuple[pa.Table, list[int]]]:
    """Tables, and the rows where their parts begin.

    `orders` and `lines` are cut between the same keys, `loose` within a key, `texts` as `orders` by texts; `nulls` has keys that are null in two parts.
    `mixed` has the rows of `lines`, two of each part in each other's place, and `wide` has keys that lie far from each other.
    `hot` is cut within a key that most rows behind the cut have.
    `most` ends with rows of the greatest number of its type, in two parts, `least` begins with those of the least.
    """
    keys = list(range(KEYS))
    orders = pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "day": [date(2020, 1, 1) + timedelta(days=key % 700) for key in keys],
            "total": [Decimal(key * 7 % 1000) / 100 for key in keys],
            "state": ["OFP"[key % 3] for key in keys],
        }
    )
    of_lines = [key for key in keys if key % 11 for _ in range(key % 4)]
    lines = pa.table(
        {
            "k": pa.array(of_lines, pa.int64()),
            "n": pa.array([row % 3 for row in range(len(of_lines))], pa.int32()),
            "price": [row * 31 % 977 for row in range(len(of_lines))],
        }
    )
    cuts = [sum(key < bound for key in of_lines) for bound in BOUNDS]
    inside = [cut + (0 < at < 3) for at, cut in enumerate(cuts)]
    assert all(of_lines[cut - 1] == of_lines[cut] for cut in inside[1:3])
    texts = orders.set_column(0, "k", pa.array([f"key {key:06}" for key in keys]))
    nulls = [None if key in (5, 30_000) else key for key in keys]
    places = list(range(len(of_lines)))
    for begin, end in pairwise(cuts):
        middle = (begin + end) // 2
        places[middle], places[middle + 50] = middle + 50, middle
    hot = [*range(BOUNDS[1]), *[BOUNDS[1]] * 100_000, *range(BOUNDS[1], KEYS)]
    hot_table = pa.table(
        {"k": pa.array(hot, pa.int64()), "v": [row * 31 % 977 for row in range(len(hot))]}
    )
    rows = 65_536
    most = pa.table(
        {
            "k": pa.array([row * 256 // rows - 128 for row in range(rows)], pa.int8()),
            "v": [row % 1000 for row in range(rows)],
        }
    )
    wide = pa.array([key * 1_000_000_007 for key in keys], pa.int64())
    return {
        "orders": (orders, BOUNDS),
        "lines": (lines, cuts),
        "loose": (lines, inside),
        "texts": (texts, BOUNDS),
        "mixed": (lines.take(places), cuts),
        "hot": (hot_table, [0, BOUNDS[1] + 2, BOUNDS[2] + 100_000, len(hot)]),
        "wide": (orders.set_column(0, "k", wide), BOUNDS),
        "most": (most, [0, 20_000, rows - 100, rows]),
        "least": (most, [0, 100, 40_000, rows]),
        "nulls": (orders.set_column(0, "k", pa.array(nulls, pa.int64())), BOUNDS),
    }


def contribute(members: list[Member], name: str, path: Path, cuts: list[int]) -> None:
    for part, member in enumerate(members):
        grid = f"pg.read_parquet({str(path)!r})[{cuts[part]}:{cuts[part + 1]}]"
        assert member.ask(f"server.contribute({name!r}, {grid}, part={part}, of=3)") is None


@pytest.fixture(scope="module", params=["all is fetched", "nothing is fetched"])
def engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    """One process, and a member of a cluster of three, over the same rows."""
    one, folder = pg.Session(), tmp_path_factory.mktemp("together")
    with cluster(folder, **{"cluster.fetch": request.param == "all is fetched"}) as members:
        for name, (table, cuts) in tables().items():
            one.register(name, pg.from_arrow(table))
            pq.write_table(table, folder / f"{name}.parquet")
            contribute(members, name, folder / f"{name}.parquet", cuts)
        for member in members:
            assert member.ask("server.refresh()") is None
        yield one, pg.connect(members[0].uri)


def same(engines: Engines, text: str) -> None:
    one, connection = engines
    expected = one.sql(text).to_arrow()
    assert expected.num_rows > 0
    for _ in range(2):
        assert connection.sql(text).to_arrow() == expected


# Nothing is exchanged for these but what the last stage gathers.
TOGETHER = [
    "SELECT count(*) AS n, sum(price) AS p, sum(total) AS t FROM orders JOIN lines USING (k)",
    "SELECT count(*) AS n, count(price) AS p FROM orders LEFT JOIN lines ON orders.k = lines.k AND lines.n > 0",
    "SELECT count(*) AS n, count(state) AS s FROM orders RIGHT JOIN lines ON orders.k = lines.k AND state = 'O'",
    "SELECT count(*) AS n, count(o.k) AS o, count(l.k) AS l FROM (SELECT * FROM orders WHERE k % 5 > 0) o FULL JOIN lines l ON o.k = l.k",
    "SELECT count(*) AS n FROM orders WHERE k IN (SELECT k FROM lines WHERE price < 100)",
    "SELECT count(*) AS n FROM orders WHERE EXISTS (SELECT 1 FROM lines WHERE lines.k = orders.k AND price > total)",
    "SELECT count(*) AS n, min(k) AS k FROM orders WHERE NOT EXISTS (SELECT 1 FROM lines WHERE lines.k = orders.k)",
    "SELECT k, count(*) AS n, sum(price) AS p FROM lines GROUP BY k ORDER BY k LIMIT 20",
    "SELECT n, k, count(*) AS c FROM lines GROUP BY n, k ORDER BY c DESC, k, n LIMIT 20",
    "SELECT DISTINCT k FROM lines ORDER BY k DESC LIMIT 20",
    "SELECT k, price, rank() OVER (PARTITION BY k ORDER BY price) AS r FROM lines ORDER BY k, price, r LIMIT 20",
    "SELECT o.k, state, sum(price) AS p FROM orders o JOIN lines l ON o.k = l.k GROUP BY o.k, state ORDER BY p DESC, o.k LIMIT 20",
    "SELECT count(*) AS n, sum(total) AS t FROM orders JOIN (SELECT k, sum(price) AS p FROM lines GROUP BY k) s ON orders.k = s.k WHERE p > 500",
    "SELECT o.k, sum(l.price) AS p FROM orders o JOIN lines l ON o.k = l.k WHERE o.k IN (SELECT k FROM lines GROUP "
    "BY k HAVING sum(price) > 1500) GROUP BY o.k ORDER BY p DESC, o.k LIMIT 20",
    "SELECT count(*) AS n FROM lines a JOIN lines b ON a.k = b.k AND a.n = b.n WHERE a.price < b.price",
    "SELECT count(*) AS n FROM lines a WHERE EXISTS (SELECT 1 FROM lines b WHERE b.k = a.k AND b.price <> a.price) "
    "AND NOT EXISTS (SELECT 1 FROM lines c WHERE c.k = a.k AND c.price > a.price)",
    "SELECT count(*) AS n FROM texts a JOIN texts b ON a.k = b.k AND a.state = b.state",
    "SELECT max(c) AS c FROM (SELECT k, count(*) AS c FROM texts GROUP BY k)",
    "SELECT count(*) AS n FROM orders JOIN lines USING (k) JOIN nulls USING (k)",
]

# Of these something has to be exchanged.
APART = [
    "SELECT k, count(*) AS n FROM loose GROUP BY k ORDER BY n DESC, k LIMIT 20",
    "SELECT count(*) AS n FROM orders JOIN loose USING (k)",
    "SELECT count(*) AS n, count(x) AS x FROM (SELECT k, count(*) AS x FROM nulls GROUP BY k)",
    "SELECT count(*) AS n FROM nulls a JOIN nulls b ON a.k IS NOT DISTINCT FROM b.k",
    "SELECT count(*) AS n FROM orders JOIN lines ON orders.k = lines.k + 1",
    "SELECT state, count(*) AS n FROM orders GROUP BY state ORDER BY state",
    "SELECT count(*) AS n FROM orders a JOIN orders b ON a.day = b.day AND a.total = b.total",
]

# Whatever is exchanged.
OTHER = [
    "SELECT count(*) AS n FROM orders WHERE k NOT IN (SELECT k FROM lines)",
    "SELECT count(*) AS n FROM orders WHERE k NOT IN (SELECT k FROM nulls WHERE k > 100)",
    "SELECT count(*) > 0 AS n FROM (SELECT k FROM orders UNION ALL SELECT k FROM loose) GROUP BY k ORDER BY k LIMIT 5",
    "SELECT count(*) AS n FROM (SELECT k FROM orders EXCEPT SELECT k FROM lines)",
    "SELECT count(*) AS n FROM (SELECT k FROM orders INTERSECT SELECT k FROM loose)",
    "SELECT count(*) AS n FROM (SELECT k, state FROM orders GROUP BY GROUPING SETS ((k), (state), ()))",
    "SELECT state, sum(price) AS p FROM orders JOIN lines USING (k) GROUP BY state ORDER BY state",
    "SELECT count(*) AS n FROM orders o LEFT JOIN lines l ON o.k = l.k LEFT JOIN loose x ON l.k = x.k",
    "SELECT l.k, count(*) AS n FROM orders o LEFT JOIN (SELECT * FROM lines WHERE n = 1) l ON o.k = l.k GROUP BY l.k ORDER BY n DESC, l.k LIMIT 5",
    "SELECT o.k, (SELECT max(price) FROM lines l WHERE l.k = o.k) AS m FROM orders o WHERE k % 1000 < 3 ORDER BY o.k LIMIT 50",
]


@pytest.mark.parametrize("text", TOGETHER)
def test_rows_that_are_together_are_not_sent(engines: Engines, text: str) -> None:
    plan = engines[1].sql(text).explain()
    assert "NetworkShuffleExec" not in plan, plan
    assert "NetworkBroadcastExec" not in plan, plan
    same(engines, text)


@pytest.mark.parametrize("text", APART)
def test_rows_that_are_apart_are_sent_or_read_by_all(engines: Engines, text: str) -> None:
    plan = engines[1].sql(text).explain()
    # Few groups are finished by the member that was asked.
    is_finished = "mode=FinalPartitioned" in plan.split("Stage", maxsplit=1)[0]
    is_sent = "NetworkShuffleExec" in plan or "NetworkBroadcastExec" in plan or is_finished
    assert is_sent or "tiles=3/3" in plan, plan
    same(engines, text)


@pytest.mark.parametrize("text", OTHER)
def test_other_statements_give_the_same(engines: Engines, text: str) -> None:
    same(engines, text)


def test_what_a_join_in_place_reads_is_not_reduced_before(engines: Engines) -> None:
    """The join tells its own scan which keys it wants: no other table of them is made for it, as it is for rows that are sent."""
    text = (
        "SELECT state, count(*) AS n FROM orders WHERE day < '2020-02-01' AND EXISTS (SELECT 1 FROM {} l "
        "WHERE l.k = orders.k AND price > 100) GROUP BY state ORDER BY state"
    )
    for name in ("lines", "loose"):
        plan = engines[1].sql(text.format(name)).explain()
        # Rows at borders are read by a scan of their own.
        assert plan.count("DistributedLeafExec") == 2 + plan.count("BorderExec"), plan
        same(engines, text.format(name))


def test_rows_that_are_sorted_already_are_grouped_in_their_order(engines: Engines) -> None:
    """Members tell each other which columns ascend."""
    text = "SELECT k, count(*) AS n, sum({}) AS p FROM {} GROUP BY k ORDER BY k LIMIT 1000"
    tables = [("price", "lines", 1), ("total", "orders", 1), ("price", "mixed", 0)]
    for column, name, is_sorted in [*tables, ("total", "nulls", 0)]:
        plan = engines[1].sql(text.format(column, name)).explain()
        assert ("ordering_mode=Sorted" in plan) == is_sorted, plan
        assert ("sorted_by=[k@0 ASC NULLS LAST]" in plan) == is_sorted, plan
        same(engines, text.format(column, name))


def test_few_rows_at_borders_are_handed_over_instead_of_sending_all(engines: Engines) -> None:
    """`loose` is cut within keys: of two keys rows change the member, and nothing else is exchanged."""
    whole = "SELECT count(*) AS n, sum(k * c) AS s, sum(p) AS p FROM (SELECT k, count(*) AS c, sum(price) AS p FROM loose GROUP BY k)"
    texts = [
        whole,
        "SELECT k, count(*) AS n FROM loose GROUP BY k ORDER BY k LIMIT 60000",
        "SELECT count(*) AS n, sum(price) AS p FROM loose a WHERE EXISTS (SELECT 1 FROM loose b WHERE b.k = a.k AND b.price <> a.price)",
        "SELECT count(*) AS n, count(price) AS p FROM orders LEFT JOIN loose USING (k)",
        "SELECT count(*) AS n, sum(r) AS r FROM (SELECT rank() OVER (PARTITION BY k ORDER BY price, n) AS r FROM loose)",
    ]
    for text in texts:
        plan = engines[1].sql(text).explain()
        assert "NetworkShuffleExec" not in plan, plan
        assert "BorderExec: k, of each task" in plan, plan
        assert plan.count("NetworkBroadcastExec") == plan.count("BorderExec"), plan
        same(engines, text)


def test_many_rows_of_a_key_at_a_border_are_not_handed_over(engines: Engines) -> None:
    """By its least and its greatest key a part would have a few rows with the key of another; all but two rows of the key are there."""
    for text in [
        "SELECT k, count(*) AS n, sum(v) AS v FROM hot GROUP BY k ORDER BY n DESC, k LIMIT 20",
        "SELECT count(*) AS n, sum(r) AS r FROM (SELECT rank() OVER (PARTITION BY k ORDER BY v) AS r FROM hot)",
    ]:
        plan = engines[1].sql(text).explain()
        assert "BorderExec" not in plan, plan
        # Few groups are finished by the member that was asked.
        is_finished = "mode=FinalPartitioned" in plan.split("Stage", maxsplit=1)[0]
        assert "NetworkShuffleExec" in plan or is_finished, plan
        same(engines, text)


@pytest.mark.parametrize("name", ["most", "least"])
def test_borders_are_at_the_ends_of_a_type(engines: Engines, name: str) -> None:
    """All rows of a part belong to the one beside it: what would be its own numbers are beyond those of the type."""
    for text in [
        f"SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM {name} ORDER BY k, v LIMIT 300",
        f"SELECT count(*) AS n FROM {name} a WHERE EXISTS (SELECT 1 FROM {name} b WHERE a.k = b.k AND a.v > b.v)",
    ]:
        assert "BorderExec: k" in engines[1].sql(text).explain()
        same(engines, text)


def test_groups_that_are_joined_by_their_key_are_sent_once(engines: Engines) -> None:
    """All groups of a key are where its hash says, before the join asks for that."""
    one = "(SELECT price AS x, count(*) AS c FROM lines GROUP BY price)"
    other = "(SELECT k % 700 AS x, count(*) AS c FROM loose GROUP BY k % 700)"
    text = f"SELECT count(*) AS n, count(a.c) AS a, count(b.c) AS b, sum(a.c * b.c) AS s FROM {one} a FULL JOIN {other} b ON a.x = b.x"
    plan = engines[1].sql(text).explain()
    assert plan.count("NetworkShuffleExec") == 2, plan
    assert "join_type=Full" in plan, plan
    assert plan.count("mode=FinalPartitioned") == 2, plan
    same(engines, text)
    # Rows without a partner have no value: they are not where its hash says.
    for key, by in [("a.x", 3), ("a.x % 2", 3), ("coalesce(a.x, b.x)", 3)]:
        grouped = f"SELECT {key} AS x, count(*) AS n FROM {one} a FULL JOIN {other} b ON a.x = b.x GROUP BY 1 ORDER BY n DESC, x LIMIT 20"
        assert engines[1].sql(grouped).explain().count("NetworkShuffleExec") == by
        same(engines, grouped)
    # Groups by more than the key of the join are elsewhere.
    more = "(SELECT price AS x, n, count(*) AS c FROM lines GROUP BY price, n)"
    text = f"SELECT count(*) AS n, count(a.c) AS a, sum(a.c * b.c) AS s FROM {more} a FULL JOIN {other} b ON a.x = b.x"
    assert engines[1].sql(text).explain().count("NetworkShuffleExec") == 3
    same(engines, text)


def test_few_groups_that_are_read_in_several_places_are_made_once(engines: Engines) -> None:
    """The members group, and the one that was asked keeps the groups and does the rest; not where that would be much."""
    groups = "WITH r AS (SELECT n, price % 50 AS p, sum(price) AS t, count(*) AS c FROM lines GROUP BY n, price % 50) "
    for text in [
        "SELECT n, p, t FROM r WHERE t = (SELECT max(t) FROM r) ORDER BY n, p",
        "SELECT a.n, a.p, b.c FROM r a JOIN r b ON a.n = b.n AND a.p = b.p + 1 WHERE a.t > b.t ORDER BY a.n, a.p",
        "SELECT count(*) AS n, sum(r.t) AS t FROM r JOIN orders ON orders.k = r.p WHERE r.t < (SELECT avg(t) FROM r)",
    ]:
        plan = engines[1].sql(groups + text).explain()
        assert plan.count("SpoolExec") == 2, plan
        assert plan.count("made here") == 1, plan
        assert plan.count("SpreadExec") == (2 if "orders" in text else 1), plan
        same(engines, groups + text)
    pairs = "WITH r AS (SELECT k, a.n AS n, b.n AS m, count(*) AS c FROM lines a JOIN lines b USING (k) GROUP BY 1, 2, 3) "
    text = "SELECT count(*) AS n FROM r a JOIN r b ON a.k = b.k AND a.n = b.m WHERE a.c < b.c + 1"
    assert "SpoolExec" not in engines[1].sql(pairs + text).explain()
    same(engines, pairs + text)


def test_joins_in_place_look_up_by_number_where_that_is_worth_it_for_each_member(
    engines: Engines,
) -> None:
    text = "SELECT count(*) AS n, sum(total) AS t FROM {0} WHERE day < '2020-03-01' AND EXISTS (SELECT 1 FROM {1} l WHERE l.k = {0}.k AND price > 300)"
    for names, is_by_number in ((("orders", "lines"), True), (("wide", "wide"), False)):
        asked = (
            text.format(*names)
            if is_by_number
            else text.format(*names).replace("price > 300", "total > 3")
        )
        plan = engines[1].sql(asked).explain()
        assert ("LookupExec: by=number" in plan) == is_by_number, plan
        same(engines, asked)


def test_not_in_counts_nulls_instead_of_reading_all_in_one_place(engines: Engines) -> None:
    _, connection = engines
    text = "SELECT count(*) AS n FROM {} WHERE k NOT IN (SELECT k FROM {} WHERE k > {})"
    for names in (("lines", "orders"), ("nulls", "lines"), ("loose", "nulls")):
        for bound in (100, 90_000):
            same(engines, text.format(*names, bound))
    # Some key is null, and is so for all; no key is there, and all rows are.
    holes = "SELECT count(*) AS n FROM {} WHERE k NOT IN (SELECT k FROM nulls WHERE {})"
    answers = [(f"{key} k % 7 < 5 OR k IS NULL", 0) for key in ("", "true OR")]
    for condition, rows in [*answers, ("k < 0", KEYS)]:
        assert connection.sql(holes.format("nulls", condition)).to_arrow()["n"][0].as_py() == rows
    assert "tasks=3" in connection.sql(text.format("loose", "nulls", 100)).explain()


def test_random_statements_give_the_same(engines: Engines) -> None:
    """Chains of joins, groups and windows over tables that lie together or do not."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    one, connection = engines
    for _ in range(25):
        text = statement(chance)
        expected = one.sql(text).to_arrow()
        assert connection.sql(text).to_arrow() == expected, (seed, text)


def statement(chance: random.Random) -> str:
    def source(depth: int) -> str:
        name = chance.choice(["orders", "lines", "loose", "nulls", "mixed"])
        plain = f"SELECT k, {chance.randrange(9)} AS v FROM {name} WHERE k % {chance.randrange(2, 9)} > 0"
        if depth == 0:
            return plain
        below, beside = source(depth - 1), source(0)
        kind = chance.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        return chance.choice(
            [
                f"SELECT k, count(*) AS v FROM ({below}) s GROUP BY k",
                f"SELECT DISTINCT k, v FROM ({below}) s",
                f"SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) AS v FROM ({below}) s",
                f"SELECT {chance.choice('ab')}.k, coalesce(a.v, 0) + coalesce(b.v, 1) AS v FROM ({below}) a {kind} ({beside}) b ON a.k = b.k",
                f"SELECT k, v FROM ({below}) s WHERE k IN (SELECT k FROM ({beside}) t)",
                f"SELECT k, v FROM ({below}) a WHERE NOT EXISTS (SELECT 1 FROM ({beside}) b WHERE b.k = a.k)",
                f"{below} UNION ALL {beside}",
            ]
        )

    return f"SELECT count(*) AS n, count(k) AS c, sum(k) AS k, sum(v) AS v, count(DISTINCT k) AS d FROM ({source(chance.randrange(1, 4))})"
