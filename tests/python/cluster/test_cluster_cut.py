"""Members of a cluster that are cut off from each other, and statements that are cancelled while members work for them.

The member that was asked says so in bounded time, and nobody goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow.flight as fl
import pytest

import partgrid as pg
from clusters import (
    LOST,
    QUERY,
    Member,
    answer,
    expected,
    free_port,
    nothing_stays,
    status_of,
    until,
    works,
    write_list,
)
from proxies import Proxy
from services import statement

# Pairs of rows of both members, which a join looks at one by one, for hours.
PAIRS = "SELECT a.x, count(*) AS n FROM big a JOIN big b ON a.x <> b.x AND a.g < -b.g GROUP BY a.x"

# The same in the member that was asked alone: the first rows in an order are brought together there.
FIRST = "(SELECT x FROM big ORDER BY x LIMIT 2000000)"
THERE = f"SELECT count(*) AS n FROM {FIRST} a JOIN {FIRST} b ON a.x - b.x > 10000000 + b.x"


SETTINGS: dict[str, object] = {"limits.silence": 1.5, "limits.query_time": 600}


@contextmanager
def through_a_proxy(
    folder: Path, *, are_far: bool = False, **more: object
) -> Iterator[tuple[list[Member], Proxy]]:
    """Two members with a part each, of which the second is reached by a proxy alone.

    Those that are far take each other for other hosts: each has as many shares of a statement as threads then.
    """
    path, port = folder / "members", free_port()
    with Proxy(port) as proxy:
        behind = {"server.address": f"127.0.0.1:{port}", "server.advertised": proxy.uri}
        settings = {**SETTINGS, **more}
        # Of the addresses for documentation.
        hosts = [{"PARTGRID_HOST": f"192.0.2.{number}"} if are_far else {} for number in (1, 2)]
        members = [Member(path, hosts[0], **settings), Member(path, hosts[1], **settings, **behind)]
        try:
            write_list(path, members)
            for number, member in enumerate(members):
                member.contribute(number, 2)
                part = f"server.contribute('big', large({number}), part={number}, of=2)"
                assert member.ask(part) is None
            for member in members:
                assert member.ask("server.refresh()") is None
            yield members, proxy
        finally:
            for member in members:
                member.kill()


@pytest.mark.parametrize(("text", "who"), [(PAIRS, [True, True]), (THERE, [True, False])])
def test_members_work_for_no_statement_that_was_cancelled(
    tmp_path: Path, text: str, who: list[bool]
) -> None:
    with through_a_proxy(tmp_path) as (members, _), fl.connect(members[0].uri) as client:
        for _ in range(2):
            info = client.get_flight_info(statement(text))
            reader = client.do_get(info.endpoints[0].ticket)
            until(lambda: works(members), lambda working: working == who)
            assert any(held(members))
            reader.cancel()
            until(lambda: works(members), lambda working: not any(working), 30)
            # The engine has let go of its parts, too.
            until(lambda: held(members), lambda parts: not any(parts), 10)
        assert answer(members[0].uri) == expected(0, 1)


def held(members: list[Member]) -> list[int]:
    """How many parts of statements each holds."""
    return [status_of(member)["parts"] for member in members]


def lost_in_time(job: Future[object], since: float) -> None:
    """The statement says that a member is lost."""
    with pytest.raises(LOST):
        job.result(60)
    # The deadline is ten seconds.
    assert time.monotonic() - since < 25


@pytest.mark.parametrize("how", ["closes", "is silent", "hangs"])
def test_a_member_that_is_cut_off_is_an_error_in_time_and_works_for_nobody(
    tmp_path: Path, how: str
) -> None:
    are_far = how == "hangs"
    with (
        ThreadPoolExecutor(1) as threads,
        through_a_proxy(tmp_path, are_far=are_far) as (members, proxy),
    ):
        connection = pg.connect(members[0].uri)
        assert answer(members[0].uri) == expected(0, 1)

        def is_whole() -> bool:
            try:
                for member in members:
                    member.ask("server.refresh()")
                return answer(members[0].uri) == expected(0, 1)
            except pg.errors.PartgridError:
                return False

        # Where one is no member for a moment, its rows come by memory that it shares.
        with nothing_stays(members, segments=False, sharing=False):
            job = threads.submit(connection.sql(PAIRS).to_arrow)
            until(lambda: works(members), all)
            began = time.monotonic()
            match how:
                case "closes":
                    proxy.cut()
                case "is silent":
                    proxy.stall()
                case _:
                    # All threads are busy, and both are members nevertheless.
                    for _ in range(8):
                        assert [len(member.ask("server.members")) for member in members] == [2, 2]
                        time.sleep(0.5)
                    began = time.monotonic()
                    members[1].stop()
            # It is told while the other one is away, and nobody goes on.
            lost_in_time(job, began)
            until(lambda: works(members), lambda working: not any(working), 30)
            if how != "closes":
                began = time.monotonic()
                lost_in_time(threads.submit(connection.sql(QUERY).to_arrow), began)
            # It heals, once both reach each other again.
            members[1].go_on()
            proxy.cut()
            until(is_whole, bool)


def test_a_member_works_for_no_coordinator_that_was_killed(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads, through_a_proxy(tmp_path) as (members, _):
        for member in members:
            assert answer(member.uri) == expected(0, 1)
        left = members[1:]
        with nothing_stays(left):
            job = threads.submit(pg.connect(members[0].uri).sql(PAIRS).to_arrow)
            until(lambda: works(left), all)
            members[0].kill()
            with pytest.raises(pg.errors.StorageError):
                job.result(60)
            until(lambda: works(left), lambda working: not any(working), 30)
        left[0].contribute(0, 2)
        assert left[0].ask("server.refresh()") is None
        assert answer(left[0].uri) == expected(0, 1)


def test_a_statement_of_several_members_ends_at_its_deadline(tmp_path: Path) -> None:
    with through_a_proxy(tmp_path, **{"limits.query_time": 2}) as (members, _):
        assert answer(members[0].uri) == expected(0, 1)
        with nothing_stays(members):
            began = time.monotonic()
            with pytest.raises(pg.errors.ResourcesExhaustedError, match="2 seconds"):
                pg.connect(members[0].uri).sql(PAIRS).to_arrow()
            assert 1 < time.monotonic() - began < 15
            until(lambda: works(members), lambda working: not any(working), 30)
        assert answer(members[0].uri) == expected(0, 1)
