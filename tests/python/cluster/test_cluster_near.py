"""Statements over little data of members on one host: the member that was asked runs them alone, over memory that the others share with it."""

from __future__ import annotations

import json
import re
import select
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from clusters import (
    BANDS,
    LOST,
    PART_ROWS,
    QUERY,
    Member,
    answer,
    copies,
    expected,
    known_to_each_other,
    maps_tiles,
    refresh,
    until,
    write_list,
)
from services import config
from sharing import ON_LINUX

pytestmark = ON_LINUX

# What a server does of which nobody says how much it reads of others so.
DEFAULT = {"cluster.near": None}

JOIN = "SELECT a.g, count(*) AS n, max(b.x) AS x FROM sales a JOIN sales b ON a.x = b.x + 7 WHERE a.g < 5 GROUP BY a.g ORDER BY a.g"
SHAPES = [
    QUERY,
    JOIN,
    "SELECT x, who, row_number() OVER (PARTITION BY g ORDER BY x DESC) AS r FROM sales WHERE x % 97 = 0 ORDER BY x",
    "SELECT g, count(*) AS n FROM sales a WHERE x > (SELECT avg(x) FROM sales b WHERE b.g = a.g) GROUP BY g ORDER BY g",
    "SELECT count(*) AS n, sum(x) AS x FROM sales WHERE x NOT IN (SELECT x + 1 FROM sales WHERE g = 3)",
    "WITH big AS (SELECT g, sum(x) AS x FROM sales GROUP BY g) SELECT a.g, a.x - b.x AS d FROM big a JOIN big b ON a.g = b.g + 1 ORDER BY a.g",
    "SELECT x, g FROM sales ORDER BY g, x DESC LIMIT 7",
    "SELECT DISTINCT who FROM sales ORDER BY who",
    "SELECT count(*) AS n FROM sales a FULL JOIN (VALUES (5), (17)) AS few(k) ON a.x < few.k",
    "WITH RECURSIVE up(x) AS (SELECT min(x) FROM sales UNION ALL SELECT s.x FROM up JOIN sales s ON s.x = up.x + 400) SELECT x FROM up ORDER BY x",
]
# It must see all rows in one place, which a spread statement has fetched there.
ONE_PLACE = "SELECT count(*) AS n FROM sales WHERE x NOT IN (SELECT x FROM sales WHERE x % 10 = 1 AND random() < 2)"


@contextmanager
def cluster(
    folder: Path, *each: dict[str, Any], replicas: int = 1, **environments: Any
) -> Iterator[list[Member]]:
    """A member with each of these settings, with its part of `sales`; they know each other and the grid."""
    path = folder / "members"
    members = [
        Member(path, environments.get(f"of_{number}"), **settings)
        for number, settings in enumerate(each)
    ]
    with known_to_each_other(path, members):
        for number, member in enumerate(members):
            member.contribute(number, len(members), replicas)
        refresh(members)
        yield members


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    """The first runs statements over little data alone, the others spread them."""
    with cluster(tmp_path_factory.mktemp("near"), DEFAULT, {}, {}) as members:
        yield members


def is_spread(plan: str) -> bool:
    return "SpreadExec" in plan or "Network" in plan


def explained(member: Member, text: str = QUERY, *, analyze: bool = False) -> str:
    return pg.connect(member.uri).sql(text).explain(analyze=analyze)


def near_plan(member: Member, text: str = QUERY) -> str:
    """The plan of a statement that the member runs alone. An owner that was busy for half a second is not asked again for ten."""
    return until(lambda: explained(member, text), lambda plan: not is_spread(plan))


def tried(member: Member, text: str = QUERY) -> dict[str, list[Any]] | None:
    """What a member answers; nothing if it says that rows are lost."""
    try:
        rows: dict[str, list[Any]] = pg.connect(member.uri).sql(text).to_arrow().to_pydict()
        return rows
    except LOST:
        return None


def lost_during_a_look(member: Member) -> int:
    """How many statements, one after the other, a member tells that rows are lost before a look at who there is ends."""
    said, count = member.process.stdout, 0
    assert said is not None
    member.begin("server.refresh()")
    while tried(member) is None and not select.select([said], [], [], 0)[0]:
        count += 1
    assert json.loads(member.line()) is None
    return count


def counted(plan: str) -> list[dict[str, str]]:
    """What the scans of a plan that ran say of themselves."""
    lines = [line for line in plan.splitlines() if "GridScanExec" in line]
    return [dict(re.findall(r"(\w+)=([\d.]+)", line.partition("metrics=")[2])) for line in lines]


@pytest.mark.parametrize("text", SHAPES)
def test_answers_are_those_of_statements_that_are_spread(members: list[Member], text: str) -> None:
    near, spread, _ = members
    near_plan(near, text)
    rows = pg.connect(near.uri).sql(text).to_arrow()
    assert rows.num_rows > 0
    # Again by the plan that was kept.
    assert pg.connect(near.uri).sql(text).to_arrow().equals(rows)
    assert pg.connect(spread.uri).sql(text).to_arrow().equals(rows)


def test_a_statement_over_little_data_has_no_stages(members: list[Member]) -> None:
    near, *others = members
    plan = near_plan(near)
    assert f"memory: {BANDS} kept; shared: {2 * BANDS} kept" in plan, plan
    assert all(is_spread(explained(member)) for member in others)
    assert answer(near.uri) == expected(0, 1, 2)
    assert maps_tiles(near)


def test_what_is_mapped_is_counted_as_such(members: list[Member]) -> None:
    near_plan(members[0], JOIN)
    plan = explained(members[0], JOIN, analyze=True)
    scans = counted(plan)
    assert len(scans) == 2
    for scan in scans:
        assert scan["shared_tiles"] == str(2 * BANDS), plan
        assert scan["shared_bytes_copied"] == scan["memory_bytes_copied"] == "0", plan
        assert "process_tiles" not in scan


def test_a_tile_that_is_mapped_is_not_fetched(tmp_path: Path) -> None:
    settings = DEFAULT | {"cluster.fetch": False}
    with cluster(tmp_path, settings, settings | {"cluster.near": 0}) as (near, spread):
        with pytest.raises(pg.errors.NotLocalError, match="not to be fetched"):
            pg.connect(spread.uri).sql(ONE_PLACE).to_arrow()
        near_plan(near, ONE_PLACE)
        told = pg.connect(near.uri).sql(ONE_PLACE).to_arrow()
        assert told.to_pydict() == {"n": [2 * PART_ROWS * 9 // 10]}


def test_what_is_more_than_the_bound_is_spread(tmp_path: Path) -> None:
    """Of two other members: the column has 9,600 bytes there, a row band of it 800."""
    with cluster(tmp_path, {"cluster.near": "8KiB"}, {}, {}) as (near, *_):
        whole, some = "SELECT sum(x) AS x FROM sales", "SELECT sum(x) AS x FROM sales WHERE x < 700"
        assert is_spread(explained(near, whole))
        # Filters leave less of it, and what the member has itself does not count.
        near_plan(near, some)
        assert tried(near, whole) == {"x": [sum(range(3 * PART_ROWS))]}
        assert tried(near, some) == {"x": [sum(range(700))]}


def test_nothing_is_near_to_who_is_told_so() -> None:
    assert config()["cluster.near"] == (str(32 * 2**20), "default")
    told = config("--join", "alone", "--set", "cluster.near=0")
    assert told["cluster.near"] == ("0", "command line")
    assert config("--join", "alone", "--set", "cluster.near=1MiB")["cluster.near"][0] == str(2**20)


def test_members_of_other_hosts_are_not_near(tmp_path: Path) -> None:
    far = {"PARTGRID_HOST": "192.0.2.1"}
    with cluster(tmp_path, DEFAULT, DEFAULT, of_1=far) as members:
        for member in members:
            assert is_spread(explained(member))
            assert answer(member.uri) == expected(0, 1)
            assert not maps_tiles(member)


def test_a_tile_of_which_much_is_not_read_is_mapped_only_if_it_is_small(tmp_path: Path) -> None:
    """Tiles are mapped whole: at most sixteen times as much as may be read."""
    with cluster(tmp_path, {"cluster.near": "16KiB"}, {}) as (near, other):
        for member, number in ((near, 0), (other, 1)):
            # Each has 8,000 bytes of x, and 400,000 of texts.
            texts = "'text' * 100"
            told = f"server.contribute('wide', pa.table({{'x': list(range(1000)), 't': [{texts}] * 1000}}), part={number}, of=2)"
            assert member.ask(told) is None
        assert near.ask("server.refresh()") is None
        text = "SELECT sum(x) AS x FROM wide"
        assert is_spread(explained(near, text))
        assert tried(near, text) == {"x": [2 * sum(range(1000))]}


def test_rows_of_a_member_that_is_killed_are_lost(tmp_path: Path) -> None:
    with cluster(tmp_path, DEFAULT, DEFAULT, DEFAULT) as members:
        assert answer(members[0].uri) == expected(0, 1, 2)
        members[2].kill()
        began = time.monotonic()
        # As long as the others have not seen it, its memory is there.
        seen: list[dict[str, list[Any]]] = []
        while (rows := tried(members[0])) is not None:
            seen.append(rows)
            assert time.monotonic() - began < 20
        assert all(rows == expected(0, 1, 2) for rows in seen)
        # They stay lost, also where all was mapped.
        until(lambda: members[0].ask("len(server.members)"), lambda count: count == 2)
        for _ in range(3):
            assert tried(members[0]) is None
        # What does not need them is near as before.
        some = f"SELECT sum(x) AS x FROM sales WHERE x < {2 * PART_ROWS}"
        near_plan(members[0], some)
        assert tried(members[0], some) == {"x": [sum(range(2 * PART_ROWS))]}


def test_a_copy_takes_the_place_of_what_was_mapped(tmp_path: Path) -> None:
    with cluster(tmp_path, DEFAULT, DEFAULT, DEFAULT, replicas=2) as members:
        until(lambda: copies(members), lambda seen: seen == [0, 1, 2])
        assert answer(members[0].uri) == expected(0, 1, 2)
        members[2].kill()
        left = members[:2]
        until(lambda: [len(each.ask("server.members")) for each in left], lambda n: n == [2, 2])
        for member in left:
            until(lambda member=member: tried(member), lambda rows: rows == expected(0, 1, 2))
            near_plan(member)


def test_a_member_that_begins_anew_has_the_rows_of_now(tmp_path: Path) -> None:
    text = "SELECT sum(x) AS x FROM sales"
    old = {"x": [sum(range(2 * PART_ROWS))]}
    new = {"x": [sum(range(2 * PART_ROWS)) + 1000 * PART_ROWS]}
    with cluster(tmp_path, DEFAULT, DEFAULT) as members:
        for _ in range(2):
            assert tried(members[0], text) == old
        members[1].kill()
        members[1] = Member(tmp_path / "members", **DEFAULT)
        members[1].contribute(1, 2, shift=1000)
        write_list(tmp_path / "members", members)
        seen = []
        until(lambda: seen.append(tried(members[0], text)) or seen[-1], lambda rows: rows == new)
        # Never some of each.
        assert all(rows in (old, new, None) for rows in seen)
        assert tried(members[0], text) == new
        near_plan(members[0], text)


@pytest.mark.parametrize("count", [2, 3])
def test_rows_of_a_member_that_hangs_are_lost_soon_once_it_is_no_member(
    tmp_path: Path, count: int
) -> None:
    """Two members make a cluster of one, whose statements run there alone: that the other one hangs is seen by its socket, once for many statements."""
    with cluster(tmp_path, *[DEFAULT] * count) as (near, *_, last):
        wanted = expected(*range(count))
        assert answer(near.uri) == wanted
        last.stop()
        try:
            until(lambda: near.ask("len(server.members)"), lambda seen: seen == count - 1)
            # A look waits two seconds for the one that hangs. If statements waited for that one as well, or for the look, not so many would end meanwhile.
            until(lambda: lost_during_a_look(near), lambda ended: ended >= 3)
        finally:
            last.go_on()
        until(lambda: tried(near), lambda rows: rows == wanted)


def test_what_is_not_at_hand_once_is_mapped_later(tmp_path: Path) -> None:
    """The plan that was spread because an owner was busy is not the one for ever after."""
    with cluster(tmp_path, DEFAULT, DEFAULT) as (near, busy):
        with ThreadPoolExecutor(1) as threads:
            busy.stop()
            try:
                asked = threads.submit(answer, near.uri)
                # Shorter than a member may be silent.
                time.sleep(2)
            finally:
                busy.go_on()
            assert asked.result(60) == expected(0, 1)
        assert not maps_tiles(near)
        # Nobody else is asked meanwhile, so that names and members are the same.
        until(lambda: answer(near.uri) == expected(0, 1) and maps_tiles(near), bool)


def test_memory_goes_with_its_grid(tmp_path: Path) -> None:
    with cluster(tmp_path, DEFAULT, {}) as (near, other):
        near_plan(near)
        assert answer(near.uri) == expected(0, 1)
        assert maps_tiles(near)

        def readers() -> list[int]:
            listed = [each for each in pg.shared_memory() if each["pid"] == other.pid]
            return [
                reader for each in listed for one in each["segments"] for reader in one["readers"]
            ]

        assert near.pid in readers()
        # A few rows of a table do not keep all others.
        few = pg.connect(near.uri).sql("CREATE TABLE few AS SELECT x FROM sales WHERE x % 50 = 7")
        assert few.to_arrow().num_rows == 1
        for member in (near, other):
            assert member.ask("server.withdraw('sales')") is True
        until(lambda: maps_tiles(near), lambda maps: not maps)
        until(readers, lambda seen: near.pid not in seen)


def test_a_table_that_is_made_of_it_outlives_its_owner(tmp_path: Path) -> None:
    with cluster(tmp_path, DEFAULT, {}) as (near, other):
        connection = pg.connect(near.uri)
        connection.sql("CREATE TABLE own AS SELECT x, g FROM sales").to_arrow()
        other.kill()
        rows = connection.sql("SELECT count(*) AS n, sum(x) AS x FROM own WHERE g >= 0").to_arrow()
        assert rows.to_pydict() == {"n": [2 * PART_ROWS], "x": [sum(range(2 * PART_ROWS))]}


def test_one_server_and_three_members_answer_alike_over_more_rows(tmp_path: Path) -> None:
    """Some megabytes, of which texts are the most."""
    count, path = 30_000, tmp_path / "members"
    keys = np.arange(3 * count)
    table = pa.table({"k": keys, "g": keys % 1000, "t": [f"a text of row {key}" for key in keys]})
    members = [Member(path, **DEFAULT) for _ in range(3)]
    with known_to_each_other(path, members):
        for number, member in enumerate(members):
            rows = f"range({number * count}, {(number + 1) * count})"
            columns = f"'k': list({rows}), 'g': [k % 1000 for k in {rows}], 't': [f'a text of row {{k}}' for k in {rows}]"
            told = f"server.contribute('rows', pa.table({{{columns}}}), part={number}, of=3)"
            assert member.ask(told) is None
        refresh(members)
        text = "SELECT a.g, max(b.t) AS t, count(*) AS n FROM rows a JOIN rows b ON a.k = b.k + 1000 WHERE a.g < 50 GROUP BY a.g ORDER BY a.g"
        wanted = pg.sql(text, rows=table).to_arrow()
        for member in members:
            near_plan(member, text)
            assert pg.connect(member.uri).sql(text).to_arrow().equals(wanted)
