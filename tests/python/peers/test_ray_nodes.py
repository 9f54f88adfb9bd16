"""Grids in actors of Ray on two nodes: rows stay on the node that has them, and a node that is gone takes nothing along that can be made again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: make test-peers")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

import partgrid as pg
from partgrid.engines import ray as engine
from peers.ray_grids import places
from peers.ray_nodes import two_nodes


@ray.remote
def made(start: int, count: int) -> pa.Table:
    return table(start, count)


def table(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    return pa.table({"id": ids, "g": ids % 3})


def on(node: str, **options: Any) -> Any:
    strategies = pytest.importorskip("ray.util.scheduling_strategies")
    strategy = strategies.NodeAffinitySchedulingStrategy(node, soft=True)
    return made.options(scheduling_strategy=strategy, **options)


def nodes_of(grid: engine.RayGrid) -> list[str]:
    """The node on which each part is, as its actor says."""

    def node(_: Any) -> str:
        return str(ray.get_runtime_context().get_node_id())

    parts = grid._open().all
    return ray.get([part.member.actor.__ray_call__.remote(node) for part in parts], timeout=60)


def test_ray_must_run(tmp_path: Path) -> None:
    assert not ray.is_initialized()
    for use in (
        lambda: engine.read_parquet(tmp_path),
        lambda: engine.from_refs([]),
        lambda: engine.from_dataset(None),
        lambda: engine.get([]),
        engine.node_address,
    ):
        with pytest.raises(
            pg.errors.InvalidArgumentError,
            match=r"Ray is not running .*\nhint: call ray.init\(\) first",
        ):
            use()
        assert not ray.is_initialized()


def test_nodes_keep_their_rows_and_are_replaced(tmp_path: Path) -> None:
    pq.write_table(table(0, 60_000), tmp_path / "all.parquet", row_group_size=10_000)
    query = "SELECT g, count(*) AS n, sum(id) AS id FROM self GROUP BY g ORDER BY g"
    expected = pg.from_arrow(table(0, 60_000)).sql(query).to_arrow()
    with two_nodes() as (second, remove):
        first = ray.get_runtime_context().get_node_id()
        files = engine.read_parquet(tmp_path)
        assert nodes_of(files) == [first, second]
        again = [
            on(node).remote(start, 20_000)
            for node, start in ((second, 0), (first, 20_000), (second, 40_000))
        ]
        objects = engine.from_refs(again)
        assert nodes_of(objects) == [second, first, second]
        once = on(second, max_retries=0).remote(0, 60_000)
        lost = engine.from_refs([once])
        assert nodes_of(lost) == [second]
        frames = lost.partitioned("pyarrow").__partitioned__
        for grid in (files, objects, lost):
            assert grid.sql(query).equals(expected)

        remove()
        began = time.monotonic()
        # Until Ray has noticed, its processes may go on.
        assert files.sql(query).equals(expected)
        while second in {node["NodeID"] for node in ray.nodes() if node["Alive"]}:
            assert time.monotonic() - began < 60
            time.sleep(0.5)
        # Its files are read again, and its objects made again by their task, if Ray may do that.
        for grid in (files, objects):
            assert grid.sql(query).equals(expected)
            assert grid.to_arrow().equals(table(0, 60_000))
            assert set(nodes_of(grid)) == {first}
        for use in (lambda: lost.sql(query), lambda: lost.__partitioned__, lost.to_arrow):
            with pytest.raises(
                pg.errors.PartitionLostError, match=r"refs\[0\]: .*(Lost|Reconstruction)"
            ):
                use()
        with pytest.raises(pg.errors.PartitionLostError, match="a partition: "):
            frames["get"](frames["partitions"][0, 0]["data"])
        assert time.monotonic() - began < 150
        assert os.getpid() not in {pid for _, pid in places(files)}
