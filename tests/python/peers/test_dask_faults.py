"""Grids in the workers of Dask when workers come, go, hang and are killed: the answer of before, or an error in time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("dask.dataframe", reason="dask is not installed: make test-peers")
pytest.importorskip("distributed", reason="distributed is not installed: make test-peers")

import dask
import distributed

import partgrid as pg
from conformance.partitioned import deviations
from partgrid.engines import _dask_adopt, _dask_cluster, _dask_tasks, _dask_worker
from partgrid.engines import dask as engine
from peers.dask_cluster import (
    QUERY,
    facts,
    groups,
    kill,
    member,
    pids,
    readers,
    rows,
    slow_steps,
    tables,
    until,
    where,
    workers,
)


def test_partitions_that_dask_moves_are_read_where_they_are() -> None:
    # It would take copies away.
    lazy = {"distributed.scheduler.active-memory-manager.start": False}
    with dask.config.set(lazy), workers(3) as client:
        first, *_ = sorted(client.nthreads())
        made = [client.submit(rows, number, workers=[first]) for number in range(6)]
        with engine.persist(made) as grid:
            assert len(where(grid)) == 1
            client.cluster.scale(4)
            client.wait_for_workers(4, timeout=30)
            assert grid.sql(QUERY).to_pylist() == groups()
            new = pids(client) - where(grid)
            client.replicate(grid._handles, n=2)
            assert [len(set(places)) for places in grid.locations()] == [2] * 6
            assert grid.sql(QUERY).to_pylist() == groups()
            client.retire_workers([first])
            assert where(grid) <= new
            assert grid.sql(QUERY).to_pylist() == groups()
            assert len(member(client)) == 3
            # Dask may take another copy away meanwhile.
            until(lambda: reads_where_it_is(client, grid))


def reads_where_it_is(client: Any, grid: engine.DaskGrid) -> bool:
    """Whether every member has each partition read where the grid says that it is."""
    here = Counter(places[0][1] for places in grid.locations())
    query = f'SELECT g, sum(x) FROM "{grid._adoption.name}" GROUP BY g'
    try:
        found = [readers(at, query) for at in member(client)]
    except pg.PartgridError:
        return False
    return all(read == here and fetched == 0 for read, fetched in found)


def test_a_worker_that_comes_later_reads_what_dask_gives_it() -> None:
    with workers(1) as client, engine.persist(facts()) as grid:
        before = where(grid)
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=30)
        [late] = pids(client) - before
        [key, *others] = [handle.key for handle in grid._handles]
        [to] = [at for at, pid in client.run(os.getpid).items() if pid == late]
        client.replicate([grid._handles[0]], n=2, workers=[to])
        holders = client.who_has(grid._handles)
        assert to in holders[key]
        client.rebalance([grid._handles[0]])
        # The copy in the first worker goes.
        client.retire_workers([at for at in client.nthreads() if at != to])
        assert where(grid) == {late}
        assert grid.sql(QUERY).to_pylist() == groups()
        assert len(others) == 5


def test_workers_without_partgrid_are_told_of() -> None:
    blocked = "import sys\nsys.modules['partgrid'] = None"
    with workers(1, preload=[blocked]) as client:
        with pytest.raises(
            pg.errors.UnsupportedError, match="cannot become members: .*\nhint: install partgrid"
        ):
            engine.persist(facts())
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=30)


def test_partitions_of_a_killed_worker_are_made_again() -> None:
    with workers(3) as client:
        grid = engine.persist(facts())
        before = grid.locations()
        victim = before[2][0][1]
        kill(victim)
        began = time.monotonic()
        assert grid.sql(QUERY).to_pylist() == groups()
        assert time.monotonic() - began < 30
        assert victim not in where(grid)
        assert where(grid) <= pids(client)
        assert deviations(grid) == {}
        # The nanny starts another worker, which becomes a member as well.
        client.wait_for_workers(3, timeout=30)
        until(lambda: len(client.run(tables)) == 3)
        assert grid.sql(QUERY).to_pylist() == groups()


def test_a_worker_that_is_killed_while_it_makes_tables_is_replaced_by_others() -> None:
    with workers(3) as client:
        client.run(slow_steps, 0.5)

        def strike() -> int:
            at = until(lambda: at_work(client))
            victim = client.run(os.getpid, workers=[at])[at]
            kill(victim)
            return victim

        with ThreadPoolExecutor(1) as pool:
            killed = pool.submit(strike)
            began = time.monotonic()
            grid = engine.persist(facts())
            assert time.monotonic() - began < 60
            victim = killed.result()
        assert grid.sql(QUERY).to_pylist() == groups()
        assert victim not in where(grid)
        # What was made instead can be lost as well.
        kill(grid.locations()[0][0][1])
        assert grid.sql(QUERY).to_pylist() == groups()


def at_work(client: Any) -> str | None:
    """A worker that makes tables."""
    for at, keys in client.processing().items():
        if any(str(key).startswith("table_of") for key in keys):
            return str(at)
    return None


def test_partitions_of_a_worker_that_takes_no_tasks_become_tables_elsewhere() -> None:
    # It would take tasks again, as it has memory.
    with workers(2, memory_limit=0) as client:
        full, other = sorted(client.nthreads())
        made = [client.submit(rows, number, workers=[full]) for number in range(6)]
        distributed.wait(made)
        client.run(pause, workers=[full])
        with engine.persist(made) as grid:
            assert set(grid._adoption.at) == {other}
            assert grid.sql(QUERY).to_pylist() == groups()


def pause(dask_worker: Any) -> None:
    dask_worker.status = distributed.Status.paused


@pytest.mark.parametrize("victim", ["asked", "other"])
def test_a_statement_outlives_a_worker_that_is_killed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    original = _dask_cluster.Cluster.answer
    victims: list[int] = []
    failed: list[Exception] = []

    def killing(self: Any, query: str, adoptions: Any, until: float, end: Any) -> Any:
        def meanwhile(result: Any) -> Any:
            if victims:
                threading.Timer(0.2, kill, [victims.pop()]).start()
            return end(result)

        try:
            return original(self, query, adoptions, until, meanwhile)
        except Exception as error:
            failed.append(error)
            raise

    monkeypatch.setattr(_dask_cluster.Cluster, "answer", killing)
    slow = "SELECT count(*) AS n FROM self AS a, self AS b WHERE (a.x * b.x + a.id) % 7 = 3 AND a.id < b.id * 9"
    with workers(3) as client:
        grid = engine.persist(facts(6, 1000))
        wanted = grid.sql(slow)
        # All have as many rows: the first of them is asked.
        first, *_, last = sorted(set(grid._adoption.at))
        at = first if victim == "asked" else last
        victims.append(client.run(os.getpid)[at])
        assert grid.sql(slow) == wanted
        assert failed, "the worker was killed too late"


def test_what_was_scattered_is_lost_with_its_worker_in_time() -> None:
    with workers(3) as client:
        scattered = client.scatter([rows(number) for number in range(6)], hash=False)
        grid = engine.persist(scattered)
        assert grid.sql(QUERY).to_pylist() == groups()
        kill(grid.locations()[0][0][1])
        began = time.monotonic()
        with pytest.raises(
            pg.errors.PartitionLostError, match=r"cannot compute it anew.*\n.*scattered"
        ):
            grid.sql(QUERY)
        with pytest.raises(pg.errors.PartitionLostError):
            _ = grid.__partitioned__
        with pytest.raises(pg.errors.PartitionLostError):
            grid.to_arrow()
        assert time.monotonic() - began < 20
        # Others are not touched.
        assert engine.persist(facts(2, 10)).sql("SELECT count(*) AS n FROM self").num_rows == 1


def test_a_worker_that_hangs_is_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_dask_cluster, _dask_adopt):
        monkeypatch.setattr(module, "MISSED_FOR", 8.0)
    monkeypatch.setattr(_dask_cluster, "ANSWERS_WITHIN", 8.0)
    monkeypatch.setattr(_dask_cluster.Cluster.ask, "__defaults__", (8.0,))
    with workers(3):
        grid = engine.persist(facts())
        grid.sql(QUERY)
        victim = grid.locations()[0][0][1]
        os.kill(victim, signal.SIGSTOP)
        began = time.monotonic()
        try:
            with pytest.raises(pg.errors.WorkerLostError):
                grid.sql(QUERY)
            assert time.monotonic() - began < 60
        finally:
            os.kill(victim, signal.SIGCONT)
        assert grid.sql(QUERY).to_pylist() == groups()


def test_a_grid_that_a_worker_has_no_more_is_lost() -> None:
    with workers(1) as client, engine.persist(facts()) as grid:
        [at] = client.nthreads()
        with pytest.raises(pg.errors.PartitionLostError, match="not with the members any more"):
            client.run(_dask_worker.lend, "lease", {"t": "nothing"}, workers=[at])
        # Nobody waits for the turn of that statement.
        assert grid.sql(QUERY).to_pylist() == groups()


def test_members_listen_where_workers_do() -> None:
    def address(of: str) -> str:
        return _dask_worker._address(SimpleNamespace(address=of))

    assert address("tcp://127.0.0.1:1") == address("tls://127.0.0.1:1") == "127.0.0.1"
    assert address("tcp://[::1]:1") == address("tcp://localhost:1") == "127.0.0.1"
    assert address("tcp://10.1.1.1:1") == "10.1.1.1"
    assert address("tcp://[fe80::1]:1") == "fe80::1"
    with pytest.raises(pg.errors.UnsupportedError, match="got tls://10.1.1.1:1\nhint: .*TLS"):
        address("tls://10.1.1.1:1")


def test_no_worker_at_all_is_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dask_tasks, "MISSED_FOR", 2.0)
    with workers(1) as client:
        client.cluster.scale(0)
        until(lambda: not client.nthreads())
        with pytest.raises(pg.errors.WorkerLostError, match="no worker for 2 seconds"):
            engine.persist(facts())
        with pytest.raises(pg.errors.ResourcesExhaustedError, match="longer than `timeout`"):
            engine.persist(facts(), timeout=0.5)


def test_threads_of_this_process_are_workers_as_well() -> None:
    with workers(2, processes=False) as client:
        grid = engine.persist(facts())
        assert where(grid) == {os.getpid()}
        assert grid.sql(QUERY).to_pylist() == groups()
        assert len({at["uri"] for at in member(client)}) == 1
        assert deviations(grid) == {}
