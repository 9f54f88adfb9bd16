"""Members of a cluster that are cut off from each other, and statements that are cancelled while members work for them.

The member that was asked says so in bounded time, and nobody goes on.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.flight as fl
import pytest

import partgrid as pg
from clusters import QUERY, Member, answer, expected, until, write_list
from proxies import Proxy
from services import statement

# Pairs of rows of both members, which a join looks at one by one, for hours.
PAIRS = "SELECT a.x, count(*) AS n FROM big a JOIN big b ON a.x <> b.x AND a.g < -b.g GROUP BY a.x"


SETTINGS: dict[str, object] = {"limits.silence": 1.5, "limits.query_time": 600}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


@contextmanager
def through_a_proxy(folder: Path) -> Iterator[tuple[list[Member], Proxy]]:
    """Two members with a part each, of which the second is reached by a proxy alone."""
    path, port = folder / "members", free_port()
    with Proxy(port) as proxy:
        behind = {"server.address": f"127.0.0.1:{port}", "server.advertised": proxy.uri}
        members = [Member(path, **SETTINGS), Member(path, **SETTINGS, **behind)]
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


def seconds_of(member: Member) -> float:
    """Time for which a member has computed."""
    fields = Path(f"/proc/{member.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def works(members: list[Member]) -> list[bool]:
    """Which of them compute."""
    before = [seconds_of(member) for member in members]
    time.sleep(0.5)
    return [seconds_of(member) - then > 0.2 for member, then in zip(members, before, strict=True)]


def test_members_work_for_no_statement_that_was_cancelled(tmp_path: Path) -> None:
    with through_a_proxy(tmp_path) as (members, _), fl.connect(members[0].uri) as client:
        for _ in range(2):
            info = client.get_flight_info(statement(PAIRS))
            reader = client.do_get(info.endpoints[0].ticket)
            until(lambda: works(members), all)
            reader.cancel()
            until(lambda: works(members), lambda working: not any(working), 20)
        assert answer(members[0].uri) == expected(0, 1)


@pytest.mark.parametrize("how", ["closes", "is silent"])
def test_a_member_that_is_cut_off_is_an_error_in_time_and_works_for_nobody(
    tmp_path: Path, how: str
) -> None:
    with through_a_proxy(tmp_path) as (members, proxy):
        assert answer(members[0].uri) == expected(0, 1)
        connection = pg.connect(members[0].uri)
        with fl.connect(members[0].uri) as client:
            info = client.get_flight_info(statement(PAIRS))
            reader = client.do_get(info.endpoints[0].ticket)
            until(lambda: works(members), all)
            proxy.cut() if how == "closes" else proxy.stall()
            # Nobody who was cut off goes on, whatever the one that was asked does.
            until(lambda: works(members[1:]), lambda working: not any(working), 30)
            reader.cancel()
            until(lambda: works(members), lambda working: not any(working), 30)
        if how == "is silent":
            began = time.monotonic()
            lost = (pg.errors.WorkerLostError, pg.errors.PartitionLostError, pg.errors.QueryError)
            with pytest.raises(lost):
                connection.sql(QUERY).to_arrow()
            # The deadline is ten seconds.
            assert time.monotonic() - began < 30
        # It heals, once both reach each other again.
        proxy.cut()

        def healed() -> bool:
            try:
                for member in members:
                    member.ask("server.refresh()")
                return answer(members[0].uri) == expected(0, 1)
            except pg.errors.PartgridError:
                return False

        until(healed, bool)
