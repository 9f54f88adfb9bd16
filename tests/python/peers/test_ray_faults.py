"""Grids in actors of Ray that die, hang, are given up and let go: the answer of before, or an error in time."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: make test-peers")

import pyarrow.parquet as pq
import ray

import partgrid as pg
from conformance.partitioned import deviations
from partgrid.engines import ray as engine
from peers.ray_grids import (
    FLIGHTS,
    FRAME,
    ROWS,
    SLOW,
    WHOLE,
    cluster,
    facts,
    folder,
    is_alive,
    known_grids,
    places,
    refs_of,
    rows,
    tiles_read,
    wait_for,
)

__all__ = ["cluster", "facts", "folder"]


# Actors that die.


def test_what_a_killed_actor_had_is_read_again(facts: engine.RayGrid) -> None:
    described = facts.__partitioned__
    before, query = places(facts), "SELECT sum(id) AS id, count(*) AS n FROM self"
    victim = before[-1][1]
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    assert facts.sql(query).to_pydict() == {"id": [FRAME.id.sum()], "n": [ROWS]}
    assert time.monotonic() - began < 60
    after = places(facts)
    assert [old == new for old, new in zip(before, after, strict=True)] == [
        pid != victim for _, pid in before
    ]
    assert set(tiles_read(query, self=facts)) == {pid for _, pid in after}
    again = facts.__partitioned__
    assert [entry["location"] for entry in again["partitions"].values()] == [
        [place] for place in after
    ]
    # What references stand for outlives the actor.
    for found in (described, again):
        frames = found["get"]([entry["data"] for entry in found["partitions"].values()])
        assert sum(frame["id"].sum() for frame in frames) == FRAME.id.sum()
    assert deviations(facts) == {}


def test_an_actor_that_ray_kills_is_replaced_when_anything_is_asked(
    facts: engine.RayGrid,
) -> None:
    uses: list[Callable[[], Any]] = [
        lambda: facts.__partitioned__,
        facts.to_arrow,
        facts.locations,
        lambda: engine.explain("SELECT count(*) FROM f", f=facts),
    ]
    for number, use in enumerate(uses):
        member = facts._open().members.all[number % 3]
        killed = member.pid
        ray.kill(member.actor)
        # It ends a little later, and answers until then.
        wait_for(lambda: not is_alive(killed))  # noqa: B023 - called before the next turn
        use()
        assert member.pid != killed
        assert killed not in {pid for _, pid in places(facts)}
    assert facts.to_arrow().equals(WHOLE)


def test_objects_are_adopted_again() -> None:
    refs = refs_of(WHOLE, 3_000, 3_000, 3_000)
    with engine.from_refs(refs, num_members=3) as grid:
        del refs
        killed = {pid for _, pid in places(grid)}
        assert len(killed) == 3
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        assert grid.to_arrow().equals(WHOLE)
        assert not killed & {pid for _, pid in places(grid)}


@pytest.mark.parametrize("victim", [0, -1])
def test_a_statement_is_begun_again_when_an_actor_dies_meanwhile(
    facts: engine.RayGrid, victim: int
) -> None:
    """The first row band is that of the actor which plans statements."""
    expected = engine.sql(SLOW, a=facts, b=facts, c=facts)
    # The first statement of fresh actors takes longer.
    began = time.monotonic()
    assert engine.sql(SLOW, a=facts, b=facts, c=facts).equals(expected)
    alone = time.monotonic() - began
    assert alone > 0.2
    pid = places(facts)[victim][1]
    killed: list[float] = []

    def kill() -> None:
        os.kill(pid, signal.SIGKILL)
        killed.append(time.monotonic())

    killer = threading.Timer(min(0.5, alone / 4), kill)
    began = time.monotonic()
    killer.start()
    found = engine.sql(SLOW, a=facts, b=facts, c=facts)
    ended = time.monotonic()
    killer.join()
    assert found.equals(expected)
    assert killed[0] < ended < began + alone * 3 + 60
    assert pid not in {location[1] for location in places(facts)}
    assert places(facts)[victim][1] != pid


def test_an_actor_that_hangs_is_replaced_in_bounded_time(facts: engine.RayGrid) -> None:
    pid = places(facts)[-1][1]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert facts.sql("SELECT count(*) AS n FROM self WHERE id >= 0").to_pydict() == {
            "n": [ROWS]
        }
        assert time.monotonic() - began < 60
        assert pid not in {pid for _, pid in places(facts)}
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not is_alive(pid))


def test_an_actor_that_dies_while_it_loads_is_replaced(folder: Path) -> None:
    with engine.read_parquet(folder, num_members=3) as first:
        members = first._open().members
        pids = [member.pid for member in members.all]
        killer = threading.Timer(0.005, os.kill, (pids[1], signal.SIGKILL))
        killer.start()
        with engine.read_parquet(FLIGHTS, num_members=3) as grid:
            killer.join()
            assert grid.sql("SELECT count(*) AS n FROM self").to_pydict() == {"n": [336_776]}
            assert pids[1] not in {pid for _, pid in places(grid)}
        assert first.to_arrow().equals(WHOLE)


def test_files_that_are_gone_or_others_are_lost(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(rows(number * 100, 100), tmp_path / f"{number}.parquet")
    with engine.read_parquet(tmp_path, num_members=3) as grid:
        assert len(grid.to_arrow()) == 300
        pq.write_table(rows(7_000, 100), tmp_path / "1.parquet")
        # Nobody reads them again as long as the actors live.
        assert grid.to_arrow()["id"].to_pylist() == list(range(300))
        os.kill(places(grid)[1][1], signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(pg.errors.PartitionLostError, match="others than those"):
            grid.sql("SELECT * FROM self")
        shutil.rmtree(tmp_path)
        with pytest.raises(pg.errors.PartitionLostError, match="cannot be read again"):
            _ = grid.__partitioned__
        assert time.monotonic() - began < 60


# Ends.


def test_actors_let_go_of_tiles_and_end_with_the_last_grid(folder: Path) -> None:
    code = f"""
import gc, os, time
from peers.ray_nodes import started
from partgrid.engines import ray as engine
import ray
with started(num_cpus=2):
    one = engine.read_parquet({str(folder)!r}, num_members=2)
    two = engine.read_parquet({str(folder)!r}, num_members=2)
    one.sql("SELECT count(*) FROM self")
    members = one._open().members
    pids = [member.pid for member in members.all]
    count = lambda: [ray.get(each.actor.__ray_call__.remote(lambda self: len(self._parts) + len(self._names))) for each in members.all]
    assert count() == [3, 2], count()
    one.close()
    assert count() == [1, 1], count()
    one.close()
    assert two.sql("SELECT count(*) AS n FROM self").to_pydict() == {{"n": [{ROWS}]}}
    del members, count
    del two
    gc.collect()
    ends = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{{pid}}/exe") for pid in pids):
        assert time.monotonic() < ends
        time.sleep(0.1)
    print("ended")
    kept = engine.read_parquet({str(folder)!r}, num_members=1)
try:
    kept.sql("SELECT 1 FROM self")
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert "ended" in done.stdout
    assert "Ray is not running in this process\nhint: call ray.init() first" in done.stdout


def test_a_grid_that_nobody_has_is_let_go_of(facts: engine.RayGrid) -> None:
    members = facts._open().members
    before = known_grids(members)
    grid = engine.from_refs(refs_of(WHOLE, ROWS))
    grid.sql("SELECT count(*) FROM self")
    assert len(known_grids(members) - before) == 1
    del grid
    gc.collect()
    wait_for(lambda: known_grids(members) == before)


def test_a_load_that_is_given_up_leaves_nothing(facts: engine.RayGrid) -> None:
    members = facts._open().members
    before = known_grids(members)
    with pytest.raises(
        pg.errors.ResourcesExhaustedError, match="no answer within 0.01 seconds: actor"
    ):
        engine.read_parquet(FLIGHTS, num_members=3, timeout=0.01)
    # Long enough for the load to end.
    time.sleep(2)
    assert known_grids(members) == before


def test_a_closed_grid_says_so(folder: Path) -> None:
    with engine.read_parquet(folder) as grid:
        described = grid.__partitioned__
        assert repr(grid).startswith("RayGrid of 9,000 rows x 8 columns in ")
        assert f"pid {places(grid)[0][1]}): {grid.tiling[0]} row band" in repr(grid)
        assert "  price  decimal128(12, 2)" in repr(grid)
    assert repr(grid).endswith("closed")
    for use in (lambda: grid.sql("SELECT 1 FROM self"), grid.locations, grid.to_arrow):
        with pytest.raises(pg.errors.PartitionLostError, match="the grid was closed"):
            use()
    # References live on.
    [first, *_] = described["partitions"].values()
    assert described["get"](first["data"]).shape == first["shape"]
