"""Clusters of Dask and frames that several tests need; what the functions here do runs in their workers too."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dask
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pyarrow.flight as fl

import partgrid as pg
from partgrid.engines import _dask_worker
from partgrid.engines.dask import DaskGrid


@contextmanager
def workers(number: int = 3, **more: Any) -> Iterator[distributed.Client]:
    """A client of a cluster of processes with one thread each."""
    wanted = {"processes": True, "threads_per_worker": 1, "dashboard_address": ":0"} | more
    with (
        distributed.LocalCluster(n_workers=number, **wanted) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def rows(number: int, length: int = 1000) -> pd.DataFrame:
    """A partition that any process can work out."""
    ids = np.arange(number * length, (number + 1) * length)
    return pd.DataFrame(
        {"id": ids, "g": ids % 11, "x": ids * 37 % 1009, "part": number}, index=range(length)
    )


def facts(parts: int = 6, length: int = 1000) -> Any:
    """A frame whose partitions are made where Dask computes them."""
    return dd.from_map(rows, range(parts), length=length, meta=rows(0, 1))


def everything(parts: int = 6, length: int = 1000) -> pd.DataFrame:
    """The same in this process."""
    return pd.concat([rows(number, length) for number in range(parts)], ignore_index=True)


def pids(client: distributed.Client) -> set[int]:
    return set(client.run(os.getpid).values())


def where(grid: DaskGrid) -> set[int]:
    """The processes that read the grid."""
    return {places[0][1] for places in grid.locations()}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def until(check: Callable[[], Any], seconds: float = 60) -> Any:
    """What a check gives once that is true."""
    over = time.monotonic() + seconds
    while not (seen := check()):
        assert time.monotonic() < over, "it did not come about"
        time.sleep(0.05)
    return seen


def slow_steps(seconds: float) -> None:
    """A function for `client.run`: the tasks that are run in this worker from now on take so long."""
    for name in ("table_of", "outline", "first_label", "conform"):
        setattr(_dask_worker, name, partial(_after, seconds, getattr(_dask_worker, name)))


def _after(seconds: float, step: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    time.sleep(seconds)
    return step(*arguments, **more)


def brought(client: distributed.Client) -> int:
    """How many times a worker got something from others."""
    logs = client.run(lambda dask_worker: len(dask_worker.transfer_incoming_log))
    return sum(logs.values())


def member(client: distributed.Client) -> list[dict[str, Any]]:
    """Where the members of all workers are, and how to speak to them."""
    return list(client.run(_dask_worker.tell).values())


async def tables(dask_worker: Any) -> list[str]:
    """A function for `client.run`: the names that the member of a worker knows."""
    known: list[str] = dask_worker.plugins["partgrid"].hosted.server.tables
    return known


async def addresses(name: str, column: str, dask_worker: Any) -> list[tuple[int, int]]:
    """A function for `client.run`: where a column lies in the tables that Dask keeps, and in the tiles of the member."""
    kept = {
        table[column].chunk(0).buffers()[1].address
        for table in dask_worker.data.values()
        if hasattr(table, "schema")
    }
    grid = dask_worker.plugins["partgrid"].hosted.server.grid(name)
    own = [tile for tile in grid.tiles if tile.location[0][1] == os.getpid()]
    return [(tile.column(column).address, tile.column(column).address in kept) for tile in own]


def readers(at: dict[str, Any], query: str) -> tuple[Counter[int], int]:
    """How many tiles each process read of its own memory, and how many tiles were fetched, for a query of one member."""
    options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {at['token']}".encode())])
    with fl.connect(at["uri"]) as flight:
        [status] = flight.do_action(fl.Action("Status", b""), options)
    order = [each["pid"] for each in json.loads(status.body.to_pybytes())["members"]]
    connection = pg.connect(at["uri"], token=at["token"])
    plan = connection.sql(query).explain(analyze=True)
    read: Counter[int] = Counter()
    fetched = 0
    for scan in re.findall(r"t\d+: GridScanExec.*", plan):
        for group, task, tiles in re.findall(
            r"(memory|process|shared)_tiles=\{(\d+):(\d+)\}", scan
        ):
            if group == "memory":
                read[order[int(task)]] += int(tiles)
            else:
                fetched += int(tiles)
    # Without those who read none.
    return +read, fetched


def delayed(parts: list[Any]) -> list[Any]:
    return [dask.delayed(part) for part in parts]


QUERY = "SELECT g, sum(x) AS x, count(*) AS n FROM self GROUP BY g ORDER BY g"


def groups() -> list[dict[str, int]]:
    """What it gives for the facts, by pandas."""
    by = everything().groupby("g").x
    sums = pd.DataFrame({"x": by.sum(), "n": by.size()}).reset_index()
    return sums.to_dict("records")
