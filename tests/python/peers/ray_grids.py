"""Grids in actors of Ray that several tests need, and what tells how they are.

Comes in: nothing, or a grid. Goes out: rows that anybody can work out, files and objects of them, what actors have and read. Never here: what is tested.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from conftest import DATA
from partgrid.engines import ray as engine
from peers.ray_nodes import started

FLIGHTS = DATA / "flights"
ROWS = 9_000

SLOW = "SELECT count(*) AS n FROM a JOIN b ON a.g = b.g AND a.f < b.f JOIN c ON b.g = c.g AND b.id % 40 < c.id % 40 WHERE c.id % 97 = 3"


def rows(start: int, count: int) -> pa.Table:
    """Rows of all sorts of types, with nulls; anybody can work them out."""
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "g": ids % 11,
            "x": pa.array([None if i % 7 == 0 else i * 37 % 1009 for i in ids], pa.int64()),
            "f": ids * 0.25,
            "text": pa.array([None if i % 5 == 0 else f"text {i % 101}" for i in ids], pa.string()),
            "price": pa.array(
                [Decimal(int(i) * 7 % 5000) / 100 for i in ids], pa.decimal128(12, 2)
            ),
            "day": pa.array([date(2020, 1 + i % 12, 1 + i % 28) for i in ids], pa.date32()),
            "at": pa.array(ids * 1_000_003, pa.timestamp("us", "Europe/Rome")),
        }
    )


WHOLE = rows(0, ROWS)
FRAME = WHOLE.to_pandas()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with started(num_cpus=3):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows in four files of other lengths, one of them empty."""
    folder = tmp_path_factory.mktemp("facts")
    cuts = [0, 1_000, 1_000, 5_500, ROWS]
    for number, (start, end) in enumerate(pairwise(cuts)):
        pq.write_table(rows(start, end - start), folder / f"{number}.parquet", row_group_size=1_500)
    return folder


@pytest.fixture(scope="module")
def facts(folder: Path) -> Iterator[engine.RayGrid]:
    """Three actors, which tests may kill."""
    with engine.read_parquet(folder, num_members=3) as grid:
        yield grid


def refs_of(table: pa.Table, *lengths: int) -> list[Any]:
    refs, start = [], 0
    for length in lengths:
        refs.append(ray.put(table.slice(start, length).combine_chunks()))
        start += length
    return refs


@ray.remote
def made(start: int, count: int) -> pa.Table:
    return rows(start, count)


@ray.remote
def failing() -> pa.Table:
    raise ValueError("no such rows")


@ray.remote
def slow() -> pa.Table:
    time.sleep(20)
    return WHOLE


def known_grids(members: Any) -> set[str]:
    """The grids of which the actors have something."""

    def known(holder: Any) -> list[str]:
        return [*(place.grid for place in holder._parts), *holder._names.values()]

    calls = [member.actor.__ray_call__.remote(known) for member in members.all]
    return {name for found in ray.get(calls, timeout=60) for name in found}


def tiles_read(query: str, **grids: engine.RayGrid) -> dict[int, tuple[int, int]]:
    """For each process that scanned something, how many tiles in its own memory it read, and how many elsewhere."""
    plan = engine.explain(query, analyze=True, **grids)
    members = next(iter(grids.values()))._open().members
    # Task i is with member i, the one that was asked first.
    order = ray.get(members.asked().actor.bind.remote({}), timeout=60)
    pids = {member.uri: member.pid for member in members.all}
    found: dict[int, tuple[int, int]] = {}
    for task, counted in re.findall(r"t(\d+): GridScanExec:(.*)", plan):
        numbers = {
            place: int(count) for place, count in re.findall(r"(\w+)_tiles=\{\d+:(\d+)\}", counted)
        }
        memory = numbers.pop("memory", 0)
        pid = pids[order[int(task)]]
        old = found.get(pid, (0, 0))
        found[pid] = old[0] + memory, old[1] + sum(numbers.values())
    return {pid: counts for pid, counts in found.items() if counts != (0, 0)}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.1)


def places(grid: engine.RayGrid) -> list[tuple[str, int]]:
    """The node and the actor of each tile."""
    return [place for [place] in grid.locations()]
