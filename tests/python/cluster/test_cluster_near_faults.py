"""Faults of members of one host as a server comes (`cluster.near`): the member that was asked runs statements alone, over memory of others that it maps.

One that hangs or is killed costs no wrong answer, and nobody keeps anything of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from clusters import (
    LARGE_ROWS,
    LOST,
    QUERY,
    Member,
    answer,
    expected,
    known_to_each_other,
    maps_tiles,
    nothing_stays,
    refresh,
    until,
    works,
    write_list,
)
from sharing import ON_LINUX

pytestmark = ON_LINUX

# As a server is of which nobody says anything.
DEFAULT: dict[str, object] = {"cluster.near": None}

# One column of another member: 16 MB.
LARGE = "SELECT x FROM big"
# Pairs of rows of all members, which a join looks at one by one, for hours.
PAIRS = "SELECT a.x, count(*) AS n FROM big a JOIN big b ON a.x <> b.x AND a.x < -b.x GROUP BY a.x"


@contextmanager
def near(folder: Path, count: int) -> Iterator[list[Member]]:
    """Members of which each has a small part and knows all; the first of them maps those of the others."""
    path = folder / "members"
    members = [Member(path, **DEFAULT) for _ in range(count)]
    with known_to_each_other(path, members):
        for number, member in enumerate(members):
            member.contribute(number, count)
        refresh(members)
        yield members


def contribute_large(members: list[Member]) -> None:
    for number, member in enumerate(members):
        told = f"server.contribute('big', large({number}), part={number}, of={len(members)})"
        assert member.ask(told) is None
    refresh(members)


def is_alone(member: Member, text: str) -> bool:
    plan = pg.connect(member.uri).sql(text).explain()
    return "SpreadExec" not in plan and "shared: " in plan


def is_right(member: Member, count: int) -> bool:
    """Whether a member answers; else it must say, in time, that rows are lost."""
    began = time.monotonic()
    try:
        seen = answer(member.uri)
    except LOST:
        assert time.monotonic() - began < 25
        return False
    assert seen == expected(*range(count)), "another answer than before"
    return True


def test_a_member_that_hangs_for_long_costs_no_wrong_answer(tmp_path: Path) -> None:
    with near(tmp_path, 3) as members:
        one, hanging, other = members
        for member in (one, other):
            until(lambda member=member: is_alone(member, QUERY), bool)

        def hang(seconds: float) -> None:
            hanging.stop()
            try:
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    for member in (one, other):
                        is_right(member, 3)
            finally:
                hanging.go_on()
            # It is a member as before: all have mapped the memory of each other.
            for member in members:
                until(lambda member=member: is_right(member, 3) and is_alone(member, QUERY), bool)

        # The first time is long enough for it to be taken for gone.
        hang(6)
        with nothing_stays(members):
            hang(3)


def test_a_member_that_is_killed_while_it_maps_memory_of_others_leaves_nothing_there(
    tmp_path: Path,
) -> None:
    with ThreadPoolExecutor(1) as threads, near(tmp_path, 2) as members:
        one, other = members
        contribute_large(members)
        until(lambda: is_alone(one, PAIRS), bool)
        assert answer(one.uri) == answer(other.uri) == expected(0, 1)

        def mapped_by() -> set[int]:
            listed = [each for each in pg.shared_memory() if each["pid"] == other.pid]
            segments = [one for each in listed for one in each["segments"]]
            return {reader for each in segments for reader in each["readers"]}

        assert one.pid in mapped_by()
        with nothing_stays([other]):
            job = threads.submit(pg.connect(one.uri).sql(PAIRS).to_arrow)
            # It does all the work.
            until(lambda: works(members), lambda working: working == [True, False])
            one.kill()
            with pytest.raises(pg.errors.StorageError):
                job.result(60)
            until(mapped_by, lambda readers: one.pid not in readers, 30)
            # It is seen within seconds that its rows are gone, which were mapped.
            until(lambda: is_right(other, 2), lambda right: not right)
            members[0] = one = Member(tmp_path / "members", **DEFAULT)
            one.contribute(0, 2)
            write_list(tmp_path / "members", members)
            refresh(members)
            until(lambda: is_right(other, 2) and is_alone(other, QUERY), bool)
            assert answer(one.uri) == expected(0, 1)


def test_a_stream_over_memory_of_a_member_that_is_killed_is_whole_or_an_error(
    tmp_path: Path,
) -> None:
    with near(tmp_path, 2) as members:
        one, other = members
        contribute_large(members)
        connection = pg.connect(one.uri)
        until(lambda: is_alone(one, LARGE), bool)
        with nothing_stays([one]):
            stream = connection.sql(LARGE).stream()
            seen = [pa.record_batch(next(stream))["x"].to_numpy()]
            assert maps_tiles(one)
            other.kill()
            began = time.monotonic()
            with suppress(*LOST):
                seen.extend(pa.record_batch(batch)["x"].to_numpy() for batch in stream)
                assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(2 * LARGE_ROWS))
            assert time.monotonic() - began < 20
            del stream
            with pytest.raises(LOST):
                until(lambda: answer(one.uri), lambda _: False)
            # What it had mapped goes with its owner.
            until(lambda: maps_tiles(one), lambda maps: not maps, 30)
