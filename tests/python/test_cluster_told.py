"""Members that share a catalog: who has changed something through one of them asks any other one at once, and never sees what was before."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

import partgrid as pg
from clusters import until
from services import service
from test_cluster_catalog import Member, cluster, files

ROUNDS = 20

# What a change of the catalog waits for a member that hangs, and some time of a busy machine.
PATIENCE = 1.0
BUSY = 4.0


def ingested(uri: str, name: str, table: pa.Table, mode: Any) -> None:
    """Bulk ingest of Flight SQL."""
    with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(name, table, mode=mode)


def numbers(first: int, count: int) -> pa.Table:
    return pa.table({"n": list(range(first, first + count))})


def total(connection: pg.Connection, name: str) -> int:
    """What a member sees of a table, at this moment."""
    told = connection.sql(f"SELECT sum(n) AS n FROM {name}").to_arrow().to_pylist()
    return int(told[0]["n"])


def is_unknown(connection: pg.Connection, name: str) -> bool:
    with pytest.raises(pg.errors.PartgridError, match=name):
        total(connection, name)
    return True


def test_every_member_knows_what_was_changed_through_another_one(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        connections = [pg.connect(member.uri) for member in members]
        for turn in range(ROUNDS):
            at = turn % len(members)
            uri, writer = members[at].uri, connections[at]
            others = [each for each in connections if each is not writer]
            name, first = f"t{turn}", 10 * turn + 1

            def seen(name: str = name, others: list[pg.Connection] = others) -> list[int]:
                return [total(other, name) for other in others]

            writer.upload(numbers(first, 1), name)
            assert seen() == [first] * 2, turn
            writer.upload(numbers(first + 1, 1), name, if_exists="replace")
            assert seen() == [first + 1] * 2, turn
            ingested(uri, name, numbers(first + 2, 1), "append")
            assert seen() == [2 * first + 3] * 2, turn
            ingested(uri, name, numbers(first + 3, 1), "replace")
            assert seen() == [first + 3] * 2, turn
            writer.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT n + 1 AS n FROM {name}")
            assert seen() == [first + 4] * 2, turn
            writer.sql(f"DROP TABLE {name}")
            assert all(is_unknown(other, name) for other in others), turn
            # One of those who were told has the name next.
            others[0].sql(f"CREATE TABLE {name} AS SELECT {first} AS n")
            assert [total(each, name) for each in connections] == [first] * 3, turn


def test_every_member_knows_a_load_that_has_ended(tmp_path: Path) -> None:
    files(tmp_path, count=1, rows=400)
    with cluster(tmp_path) as members:
        source = str(tmp_path / "data" / "sales")
        connections = [pg.connect(member.uri) for member in members]
        for turn in range(9):
            writer = connections[turn % 3]
            writer.load_parquet(source, "sales", tile_rows=100, if_exists="replace")
            extra = numbers(turn, 1)
            for other in connections:
                rows = other.sql("SELECT count(*) AS n FROM sales").to_arrow().to_pylist()
                assert rows == [{"n": 400}], turn
            # The next load is of what the others have changed.
            connections[(turn + 1) % 3].upload(extra, "sales", if_exists="replace")
            assert [total(each, "sales") for each in connections] == [turn] * 3


def test_members_that_change_something_at_the_same_time_wait_for_each_other_and_not_for_ever(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path) as members:

        def writes(at: int) -> list[float]:
            """Makes tables at one member, and looks at the others for each; gives the seconds of each change."""
            connections = [pg.connect(member.uri) for member in members]
            took: list[float] = []
            for turn in range(ROUNDS):
                name = f"of_{at}_{turn}"
                took.append(seconds(lambda name=name: connections[at].upload(numbers(5, 2), name)))
                assert [total(each, name) for each in connections] == [11] * 3, (at, turn)
            return took

        with ThreadPoolExecutor(len(members)) as threads:
            each = list(threads.map(writes, range(len(members))))
        took = sorted(second for of_member in each for second in of_member)
        # Nobody was waited for in vain, though all gave names to tables while they were told of those of others.
        assert took[len(took) // 2] < PATIENCE / 2, took
        assert took[-1] < BUSY, took
        tables = sorted(f"of_{at}_{turn}" for at in range(3) for turn in range(ROUNDS))
        assert [sorted(member.ask("server.tables")) for member in members] == [tables] * 3


def seconds(change: Callable[[], object]) -> float:
    began = time.monotonic()
    change()
    return time.monotonic() - began


def test_a_member_that_hangs_keeps_no_change_from_its_end(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        connections = [pg.connect(member.uri) for member in members]
        connections[0].upload(numbers(1, 1), "before")
        members[2].stop()
        try:

            def change(number: int) -> float:
                return seconds(lambda: connections[0].upload(numbers(number, 1), f"t{number}"))

            first = change(0)
            later = [change(number) for number in range(1, 4)]
            # It is waited for once; the one that does not hang is told each time.
            assert first < PATIENCE + BUSY, first
            assert min(later) < first, (first, later)
            assert max(later) < PATIENCE + BUSY, later
            assert [total(connections[1], f"t{number}") for number in range(4)] == [0, 1, 2, 3]
        finally:
            members[2].go_on()
        # It was told all the same, and looks by itself.
        wanted = ["before", *(f"t{number}" for number in range(4))]
        until(lambda: sorted(members[2].ask("server.tables")), lambda seen: seen == wanted)
        # Once it is a member again, everybody waits for it again.
        for member in members[:2]:
            until(lambda member=member: len(member.ask("server.members")), lambda count: count == 3)
        until(lambda: is_told(connections, members), bool)


def is_told(connections: list[pg.Connection], members: list[Member]) -> bool:
    """Whether the last member knows at once what is changed through the first one."""
    name = f"t{time.monotonic_ns()}"
    connections[0].upload(numbers(1, 1), name)
    return name in members[2].ask("server.tables")


def test_who_comes_is_told_of_what_was_changed_before_it_was_known(tmp_path: Path) -> None:
    """Whoever looks by itself does so every five seconds."""
    with cluster(tmp_path, of=2) as members:
        uris = (tmp_path / "members").read_text()
        (tmp_path / "members").write_text(f"{members[0].uri}\n")
        until(lambda: len(members[0].ask("server.members")), lambda count: count == 1)
        # Not told to somebody who is no member.
        pg.connect(members[0].uri).upload(numbers(3, 1), "kept")
        (tmp_path / "members").write_text(uris)
        until(lambda: len(members[0].ask("server.members")), lambda count: count == 2)
        until(lambda: members[1].ask("server.tables"), lambda tables: tables == ["kept"], 2.5)


def test_a_list_of_members_that_is_wrong_is_said_once_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "members"
    log = ("--set", "log.filter=warn")
    with service() as stranger, service("--join", f"file:{path}", *log) as member:
        # A server that is no member, where nobody answers, and not where this one does.
        nobody = "grpc://127.0.0.1:9"
        path.write_text(f"{stranger.uri}\n{nobody}\n")

        def said(text: str) -> list[str]:
            return [line for line in list(member.said) if text in line]

        away, without = "does not take part", "does not name this server"
        until(lambda: len(said(away)) == 2 and said(without), bool)
        assert len([line for line in said(away) if "no member of a cluster" in line]) == 1
        time.sleep(5)
        assert (len(said(away)), len(said(without))) == (2, 1), member.said
        path.write_text(f"{member.uri}\n")
        time.sleep(3)
        # Who comes back into the list is another matter.
        path.write_text(f"{member.uri}\n{nobody}\n")
        until(lambda: len(said(away)), lambda count: count == 3)
        assert len(said(without)) == 1
