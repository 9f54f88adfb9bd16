"""A member that is killed and started again at its address, with other rows.

Whoever holds something of its life before gets the rows of then, or those of now, or is told that they are lost; never some of each.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from clusters import (
    BAND_ROWS,
    LARGE_ROWS,
    LOST,
    MEMBER,
    PART_ROWS,
    Child,
    Member,
    copies,
    free_port,
    nothing_stays,
    rows_of,
    until,
    write_list,
)
from services import SPREAD, act, asked, command, flight_sql, inner, shown

# Has imported all before the one is killed whose address it takes.
NEXT = f"""
import sys
import clusters
sys.stdin.readline()
{MEMBER}
"""

SHIFT = 1000
OLD = pa.concat_tables([rows_of(0), rows_of(1)])
NEW = pa.concat_tables([rows_of(0), rows_of(1, SHIFT)])

GROUPS = "SELECT g, sum(x) AS x, min(x) AS low, count(who) AS n FROM sales GROUP BY g ORDER BY g"
ROWS = "SELECT x, who FROM sales WHERE g >= 0"
LARGE = "SELECT x, g, who FROM big"

# What is said of what a life before had: by members, by a server whose client asked it, in the words of pyarrow.
GONE = (*LOST, pg.errors.StorageError, pg.errors.NotFoundError, pa.ArrowException, fl.FlightError)


class Next(Member):
    """A member that begins when it is told to."""

    def __init__(self, members: Path, **settings: object) -> None:
        Child.__init__(self, NEXT, str(members), json.dumps(SPREAD | settings))

    def live(self) -> None:
        self.begin("")
        self.uri = self.line()


@contextmanager
def one_and_another(folder: Path) -> Iterator[tuple[Member, Member, Next]]:
    """A member, another one with a fixed address, and who takes the place of that one."""
    path, fixed = folder / "members", {"server.address": f"127.0.0.1:{free_port()}"}
    one, other, after = Member(path), Member(path, **fixed), Next(path, **fixed)
    try:
        write_list(path, [one, other])
        yield one, other, after
    finally:
        for member in (one, other, after):
            member.kill()


def seen_in(rows: pa.Table) -> list[dict[str, Any]]:
    """What tells rows from others, of grids and of statements."""
    if "low" in rows.column_names:
        return rows.to_pylist()
    return rows.select(["x", "who"]).sort_by("x").to_pylist()


def groups_of(rows: pa.Table) -> pa.Table:
    return pg.from_arrow(rows).sql(GROUPS.replace("sales", "self")).to_arrow()


# All that may be seen of the rows of one time.
THEN = [seen_in(OLD), seen_in(groups_of(OLD))]
NOW = [seen_in(NEW), seen_in(groups_of(NEW))]


def outcome(read: Callable[[], pa.Table]) -> str:
    """Whether the rows are those of before or of now, or are lost."""
    try:
        seen = seen_in(read())
    except GONE:
        return "lost"
    assert seen in [*THEN, *NOW], "neither the rows of before nor those of now"
    return "old" if seen in THEN else "new"


def held_of(one: Member, other: Member, client: fl.FlightClient) -> dict[str, Callable[[], Any]]:
    """What clients hold of the grid, and how they read it."""
    near, far = pg.connect(one.uri), pg.connect(other.uri)
    rows, groups, of_other = near.sql(ROWS), near.sql(GROUPS), far.sql(ROWS)
    grid, begun, far_grid = near.grid("sales"), near.grid("sales"), far.grid("sales")
    first = begun[PART_ROWS : PART_ROWS + BAND_ROWS].to_arrow()
    assert first["x"].to_pylist() == OLD["x"].to_pylist()[PART_ROWS : PART_ROWS + BAND_ROWS]
    request = flight_sql("ActionCreatePreparedStatementRequest", (1, GROUPS))
    [prepared] = act(client, "CreatePreparedStatement", request)
    again = command("CommandPreparedStatementQuery", (1, inner(prepared)[1][0]))
    ends = client.get_flight_info(fl.FlightDescriptor.for_path("sales"), shown(None)).endpoints

    def by_tickets() -> pa.Table:
        with fl.connect(other.uri) as there:
            tables = [there.do_get(end.ticket, shown(None)).read_all() for end in ends]
        return pa.concat_tables(tables)

    return {
        "planned": rows.to_arrow,
        "planned groups": groups.to_arrow,
        "prepared": lambda: asked(client, again),
        "grid": grid.to_arrow,
        "grid of which a tile was read": begun.to_arrow,
        "grid of the other": far_grid.to_arrow,
        "planned by the other": of_other.to_arrow,
        "tickets at the other": by_tickets,
    }


def numbers_in(batch: Any) -> Any:
    return pa.record_batch(batch)["x"].to_numpy()


@pytest.mark.parametrize("replicas", [1, 2])
def test_rows_of_two_lives_are_never_mixed(tmp_path: Path, replicas: int) -> None:
    with ThreadPoolExecutor(1) as threads, one_and_another(tmp_path) as (one, other, after):
        for number, member in enumerate([one, other]):
            member.contribute(number, 2, replicas)
            assert member.ask(f"server.contribute('big', large({number}), {number}, 2)") is None
        until(lambda: copies([one, other]), lambda seen: seen == [0, 1][: 2 * replicas - 2])
        for member in (one, other):
            assert member.ask("server.refresh()") is None
        # Tiles that clients of this host have read stay in the memory that is shared with them.
        for member in (one, other):
            assert outcome(pg.connect(member.uri).grid("sales").to_arrow) == "old"
            assert outcome(pg.connect(member.uri).sql(GROUPS).to_arrow) == "old"
        # Of the one that lives on, once clients hold nothing of it. Where there are copies, it depends on who reads which of them how much memory is shared.
        with nothing_stays([one]) if replicas == 1 else nullcontext():
            live_twice((one, other, after), threads, replicas)


def live_twice(
    members: tuple[Member, Member, Next], threads: ThreadPoolExecutor, replicas: int
) -> None:
    """One is killed and started again with other rows, while clients hold much of what was there before."""
    one, other, after = members
    connection, is_over = pg.connect(one.uri), threading.Event()

    def fresh() -> str:
        return outcome(lambda: connection.sql(GROUPS).to_arrow())

    def asking() -> list[str]:
        """What statements give one after the other."""
        seen = [fresh()]
        while not is_over.is_set():
            seen.append(fresh())
        return seen

    with fl.connect(one.uri) as client:
        held = held_of(one, other, client)
        streams = [pg.connect(member.uri).sql(LARGE).stream() for member in (one, other)]
        batches = [[numbers_in(next(stream))] for stream in streams]
        others = threads.submit(asking)
        try:
            other.kill()
            after.live()
            assert after.uri == other.uri
            first = {what: outcome(read) for what, read in held.items()}
            after.contribute(1, 2, replicas, shift=SHIFT)
            part = f"server.contribute('big', large(1, {SHIFT}), 1, 2)"
            assert after.ask(part) is None
            second = {what: outcome(read) for what, read in held.items()}
            for member in (one, after):
                assert member.ask("server.refresh()") is None
            third = {what: outcome(read) for what, read in held.items()}
        finally:
            is_over.set()
        # Once the rows of now were seen, those of before are not any more.
        seen = [each for each in others.result(60) if each != "lost"]
        assert seen == sorted(seen, key=["old", "new"].index)
    print(first, second, third)
    # Copies stand for what nobody has contributed anew; without them nothing does.
    assert first["planned groups"] == ("lost" if replicas == 1 else "old")
    assert "new" not in first.values()
    for told in (first, second, third):
        assert {told[what] for what in told if "other" in what} <= {"lost"}
    assert third["prepared"] == fresh() == "new"
    for stream, seen in zip(streams, batches, strict=True):
        with suppress(*GONE):
            seen.extend(numbers_in(batch) for batch in stream)
            assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(2 * LARGE_ROWS))
    sums = connection.sql("SELECT sum(x) AS x, count(g) AS n FROM big").to_arrow()
    whole = LARGE_ROWS * (2 * LARGE_ROWS - 1) + LARGE_ROWS * SHIFT
    assert sums.to_pylist() == [{"x": whole, "n": 2 * LARGE_ROWS}]
