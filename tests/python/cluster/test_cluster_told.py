"""Members that share a catalog: who has changed something through one of them asks any other one at once, and never sees what was before."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa

import partgrid as pg
from clusters import until
from services import http_answer, service
from test_cluster_catalog import Member, cluster, files

T = TypeVar("T")

ROUNDS = 20

# What a change of the catalog waits for a member that hangs, and some time of a busy machine.
PATIENCE = 1.0
BUSY = 4.0


# How long nobody waits again for whoever was waited for in vain, and some time of a busy machine.
LATELY = 20.0


class Changes:
    """Changes of a catalog, and how long each took. Whoever has taken a change in within `PATIENCE` was waited for, and knows it at once."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.slow = -LATELY

    def make(self, change: Callable[[], object]) -> None:
        began = time.monotonic()
        change()
        ended = time.monotonic()
        self.took.append(ended - began)
        if ended - began >= PATIENCE:
            self.slow = ended

    def are_seen(self, look: Callable[[], T], wanted: T) -> None:
        """Others see it at once, unless one of them was waited for in vain of late, as on a busy machine: then as soon as it has looked."""
        seen = look()
        assert seen == wanted or time.monotonic() - self.slow < LATELY, (seen, wanted)
        until(look, lambda seen: seen == wanted)


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


def totals(connections: list[pg.Connection], name: str) -> list[int | None]:
    """The same of several members; nothing of one that does not know the name."""

    def of(connection: pg.Connection) -> int | None:
        try:
            return total(connection, name)
        except pg.errors.PartgridError as error:
            if name not in str(error):
                raise
            return None

    return [of(each) for each in connections]


def test_every_member_knows_what_was_changed_through_another_one(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        connections, changes = [pg.connect(member.uri) for member in members], Changes()
        for turn in range(ROUNDS):
            at = turn % len(members)
            uri, writer = members[at].uri, connections[at]
            others = [each for each in connections if each is not writer]
            name, first = f"t{turn}", 10 * turn + 1

            again = f"CREATE OR REPLACE TABLE {name} AS SELECT n + 1 AS n FROM {name}"
            steps: list[tuple[Callable[[], object], int | None]] = [
                (partial(writer.upload, numbers(first, 1), name), first),
                (
                    partial(writer.upload, numbers(first + 1, 1), name, if_exists="replace"),
                    first + 1,
                ),
                (partial(ingested, uri, name, numbers(first + 2, 1), "append"), 2 * first + 3),
                (partial(ingested, uri, name, numbers(first + 3, 1), "replace"), first + 3),
                (partial(writer.sql, again), first + 4),
                (partial(writer.sql, f"DROP TABLE {name}"), None),
            ]
            for change, wanted in steps:
                changes.make(change)
                changes.are_seen(partial(totals, others, name), [wanted] * 2)
            # One of those who were told has the name next.
            changes.make(partial(others[0].sql, f"CREATE TABLE {name} AS SELECT {first} AS n"))
            changes.are_seen(partial(totals, connections, name), [first] * 3)


def test_every_member_knows_a_load_that_has_ended(tmp_path: Path) -> None:
    files(tmp_path, count=1, rows=400)
    with cluster(tmp_path) as members:
        source = str(tmp_path / "data" / "sales")
        connections, changes = [pg.connect(member.uri) for member in members], Changes()

        def counted() -> list[int]:
            texts = [each.sql("SELECT count(*) AS n FROM sales") for each in connections]
            return [each.to_arrow()["n"][0].as_py() for each in texts]

        load = {"path": source, "name": "sales", "tile_rows": 100, "if_exists": "replace"}
        for turn in range(9):
            changes.make(partial(connections[turn % 3].load_parquet, **load))
            changes.are_seen(counted, [400] * 3)
            # The next load is of what the others have changed.
            other, extra = connections[(turn + 1) % 3], numbers(turn, 1)
            changes.make(partial(other.upload, extra, "sales", if_exists="replace"))
            changes.are_seen(partial(totals, connections, "sales"), [turn] * 3)


def test_members_that_change_something_at_the_same_time_wait_for_each_other_and_not_for_ever(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path) as members:
        changes = Changes()

        def writes(at: int) -> None:
            """Makes tables at one member, and looks at all of them for each."""
            connections = [pg.connect(member.uri) for member in members]
            for turn in range(ROUNDS):
                name = f"of_{at}_{turn}"
                changes.make(partial(connections[at].upload, numbers(5, 2), name))
                changes.are_seen(partial(totals, connections, name), [11] * 3)

        with ThreadPoolExecutor(len(members)) as threads:
            list(threads.map(writes, range(len(members))))
        took = sorted(changes.took)
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


def rewrite(path: Path, *uris: str) -> None:
    """Whoever reads the list meanwhile sees the old one or the new one."""
    fresh = path.with_suffix(".new")
    fresh.write_text("\n".join(uris) + "\n")
    fresh.replace(path)


def test_a_list_of_members_that_is_wrong_is_said_once_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "members"
    log = ("--set", "log.filter=warn")
    with service() as stranger, service("--join", f"file:{path}", *log) as member:
        # A server that is no member, where nobody answers, and not where this one does.
        nobody = "grpc://127.0.0.1:9"
        rewrite(path, stranger.uri, nobody)

        def said(text: str) -> list[str]:
            return [line for line in list(member.said) if text in line]

        away, without = "does not take part", "does not name this server"
        until(lambda: len(said(away)) == 2 and said(without), bool)
        assert len([line for line in said(away) if "no member of a cluster" in line]) == 1
        time.sleep(5)
        assert (len(said(away)), len(said(without))) == (2, 1), member.said
        rewrite(path, member.uri)
        alone = b"ready\nmembers: 1\naway: 0\n"
        until(lambda: http_answer(member.http_uri, "/readyz")[2], lambda told: told == alone)
        # Who comes back into the list is another matter.
        rewrite(path, member.uri, nobody)
        until(lambda: len(said(away)), lambda count: count == 3)
        assert len(said(without)) == 1
