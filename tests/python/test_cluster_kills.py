"""Members that are killed at random moments of a statement: a right answer or an error in time, never fewer rows, and afterwards the cluster is whole again.

`PARTGRID_MEMBER_KILLS` says how often one is killed (200 for a release).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import partgrid as pg
from clusters import Member, cluster, write_list

KILLS = int(os.environ.get("PARTGRID_MEMBER_KILLS", "4"))


MEMBERS = 3


# One that groups where rows are, one that sends rows to other members, and one that sends many of them to the client.
TEXTS = [
    "SELECT g, sum(x) AS x, count(*) AS n FROM sales GROUP BY g ORDER BY g",
    "SELECT x % 1000003 AS k, count(*) AS n, sum(who) AS w FROM sales GROUP BY k ORDER BY n DESC, k LIMIT 100",
    "SELECT x FROM sales WHERE x % 3 = 1",
]


LOST = (pg.errors.WorkerLostError, pg.errors.PartitionLostError)


def contribute(member: Member, number: int) -> None:
    told = member.ask(f"server.contribute('sales', large({number}), part={number}, of={MEMBERS})")
    assert told is None, told


def rows(connection: pg.Connection, text: str) -> object:
    found = connection.sql(text).to_arrow()
    # The order of rows is open where none is asked for.
    return found if "ORDER BY" in text else found.sort_by("x")


def is_right_after(connection: pg.Connection, text: str, expected: object, pause: float) -> bool:
    """Whether a statement is answered that begins while a member is killed; an error must say that it was lost, in time."""
    begun = time.monotonic()
    try:
        found = rows(connection, text)
    except LOST:
        assert time.monotonic() - begun < 10 + pause
        return False
    assert found == expected, "another answer than before"
    return True


def test_a_member_that_is_killed_at_any_moment_costs_no_rows(tmp_path: Path) -> None:
    source = random.Random(KILLS)
    outcomes: Counter[bool] = Counter()
    with cluster(tmp_path, MEMBERS) as members, ThreadPoolExecutor(1) as threads:
        for number, member in enumerate(members):
            contribute(member, number)
        for member in members:
            assert member.ask("server.refresh()") is None
        connection = pg.connect(members[0].uri)
        expected, took = {}, {}
        for text in TEXTS:
            rows(connection, text)
            begun = time.monotonic()
            expected[text] = rows(connection, text)
            took[text] = time.monotonic() - begun
        for turn in range(KILLS):
            text = TEXTS[turn % len(TEXTS)]
            victim = source.randrange(1, MEMBERS)
            pause = source.uniform(0, 1.2 * took[text])
            asked = threads.submit(is_right_after, connection, text, expected[text], pause)
            time.sleep(pause)
            members[victim].kill()
            outcomes[asked.result(30 + pause)] += 1
            members[victim] = Member(tmp_path / "members")
            contribute(members[victim], victim)
            write_list(tmp_path / "members", members)
            for member in members:
                assert member.ask("server.refresh()") is None
            for each, wanted in expected.items():
                assert rows(connection, each) == wanted, turn
    print(f"{KILLS} killed: {outcomes[True]} right answers, {outcomes[False]} errors, 0 others")
    assert outcomes.total() == KILLS
