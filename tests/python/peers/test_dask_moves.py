"""Partitions stay in the workers that have them, while grids are made of them and asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("dask.dataframe", reason="dask is not installed: make test-peers")
pytest.importorskip("distributed", reason="distributed is not installed: make test-peers")

import dask
import pandas as pd

from partgrid.engines import dask as engine
from peers.dask_cluster import QUERY, brought, facts, rows, slow_steps, where, workers


@pytest.fixture(autouse=True)
def texts() -> Iterator[None]:
    """The texts of dask itself are not what is tested here."""
    with dask.config.set({"dataframe.convert-string": False}):
        yield


def test_nothing_is_moved_but_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of all that the client and the scheduler hear, both in this process.
    heard = []
    from distributed.comm import tcp  # noqa: PLC0415

    original = tcp.from_frames

    async def counted(frames: Any, *more: Any, **named: Any) -> Any:
        heard.append(sum(memoryview(frame).nbytes for frame in frames))
        return await original(frames, *more, **named)

    with workers(3) as client:
        monkeypatch.setattr(tcp, "from_frames", counted)
        with engine.persist(facts(6, 200_000)) as grid:
            assert len(grid.sql(QUERY)) == 11
            assert grid.__partitioned__["shape"] == (1_200_000, 4)
            assert grid.to_dask().npartitions == 6
            moved = sum(heard)
            assert moved < 2_000_000
            assert brought(client) == 0
            # The counter counts.
            assert len(grid.to_arrow()) == 1_200_000
            assert sum(heard) - moved > 1_200_000 * 4 * 8


def test_workers_with_nothing_to_do_take_no_partitions() -> None:
    with workers(3) as client:
        # Dask would have the others help.
        client.run(slow_steps, 0.2)
        busy, *_ = sorted(client.nthreads())
        made = [client.submit(mixed, number, workers=[busy]) for number in range(8)]
        with engine.persist(made) as grid:
            assert where(grid) == {client.run(os.getpid)[busy]}
            assert brought(client) == 0
            assert grid.sql("SELECT count(text) AS n FROM self").to_pylist() == [{"n": 4000}]
            # They are free to be made elsewhere, once they are made.
            assert restricted(client, [handle.key for handle in grid._handles]) == []


def mixed(number: int) -> pd.DataFrame:
    """A partition whose texts are all null if its number is odd, so that it has another type than others."""
    return rows(number).assign(text=None if number % 2 else "x")


def restricted(client: Any, keys: list[str]) -> list[str]:
    def found(dask_scheduler: Any) -> list[str]:
        return [key for key in keys if dask_scheduler.tasks[key].worker_restrictions]

    kept: list[str] = client.run_on_scheduler(found)
    return kept
