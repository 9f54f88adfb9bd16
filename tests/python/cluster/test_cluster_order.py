"""Loads that sort and partition, by all members of a cluster: the rows and the order are those of a load of one process, and nothing is left behind."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from services import act
from test_cluster_catalog import Member, cluster, tiles, wait_for, written

ROWS = 12_000


def files(folder: Path, count: int = 6) -> None:
    """Rows in no order, with few keys, nulls, texts, lists and a column that says where each row was."""
    rng = random.Random(11)
    source = folder / "data" / "rows"
    source.mkdir(parents=True)
    for number in range(count):
        rows = range(number * ROWS // count, (number + 1) * ROWS // count)
        table = pa.table(
            {
                "k": [rng.choice([None, *range(40)]) for _ in rows],
                "t": [rng.choice([None, "", "a", "a long text that is no view"]) for _ in rows],
                "f": [rng.choice([0.0, -0.0, float("nan"), 1.5, None]) for _ in rows],
                "l": pa.array([[row % 3] * (row % 4) for row in rows], pa.list_(pa.int64())),
                "n": list(rows),
            }
        )
        pq.write_table(table, source / f"{number}.parquet", row_group_size=250)


def load(member: Member, folder: Path, **wishes: Any) -> int:
    connection = pg.connect(member.uri)
    told = connection.load_parquet(str(folder / "data" / "rows"), "rows", **wishes)
    return int(told["rows"])


ORDERS: list[dict[str, Any]] = [
    {"sort_by": "k"},
    {"sort_by": [("t", "descending"), "f"]},
    {"sort_by": "n"},
    {"partition_by": "k", "num_partitions": 7},
    {"partition_by": ["t", "f"], "sort_by": ("n", "descending")},
]


BY_KEYS = [
    "SELECT k, count(*) AS c, sum(n) AS s, min(t) AS t FROM rows GROUP BY k ORDER BY k",
    "SELECT count(DISTINCT k) AS k, count(*) AS c FROM rows",
    "SELECT DISTINCT k FROM others ORDER BY k",
    "SELECT k, t, count(*) AS c, max(n) AS m FROM others GROUP BY k, t ORDER BY k, t",
    "SELECT a.k, count(*) AS c, sum(a.n + b.n) AS s FROM rows a JOIN rows b ON a.k = b.k WHERE a.n % 10 = 3 AND b.n % 10 = 7 GROUP BY a.k ORDER BY a.k",
    "SELECT a.k, count(b.n) AS c FROM rows a LEFT JOIN others b ON a.k = b.k AND b.n % 50 = 1 WHERE a.n % 40 = 0 GROUP BY a.k ORDER BY a.k",
    "SELECT a.t, count(*) AS c FROM others a JOIN others b ON a.k = b.k AND a.t = b.t WHERE a.n % 20 = 0 AND b.n % 20 = 1 GROUP BY a.t ORDER BY a.t",
    "SELECT a.k, b.c FROM (SELECT DISTINCT k FROM rows) a FULL JOIN (SELECT k, count(*) AS c FROM others GROUP BY k) b ON a.k = b.k ORDER BY a.k, b.c",
    "SELECT n, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM rows WHERE n % 500 = 7 ORDER BY n",
    "SELECT count(*) AS c FROM rows a WHERE NOT EXISTS (SELECT 1 FROM others b WHERE b.k = a.k AND b.n < 300)",
]


@pytest.mark.parametrize("wishes", ORDERS, ids=str)
def test_rows_lie_as_one_process_puts_them(tmp_path: Path, wishes: dict[str, Any]) -> None:
    files(tmp_path)
    alone = pg.read_parquet(tmp_path / "data" / "rows", tile_rows=500, **wishes)
    with cluster(tmp_path) as members:
        before = written(members[1:])
        assert load(members[0], tmp_path, tile_rows=500, **wishes) == ROWS
        # Two of three write most of the tiles, and the pieces that these are made of.
        folder = tmp_path / "catalog" / "tiles"
        size = sum((folder / name).stat().st_size for name in tiles(tmp_path))
        assert written(members[1:]) - before > size / 2
        with fl.connect(members[0].uri) as client:
            [said] = act(client, "Status")
        [job] = json.loads(said)["jobs"]
        assert job["state"] == "done"
        for member in members:
            wait_for(lambda member=member: member.ask("server.tables") == ["rows"])
            grid = pg.connect(member.uri).grid("rows")
            # Lists of columns hold NaN, which equals nothing.
            assert str(grid.to_arrow().to_pylist()) == str(alone.to_arrow().to_pylist())
            if "partition_by" in wishes:
                assert grid.cuts[0] == alone.cuts[0]
            else:
                assert max(tile.shape[0] for tile in grid.tiles) <= 500
        # What was written on the way is gone.
        assert len(tiles(tmp_path)) == len(grid.tiles)
        plan = pg.connect(members[1].uri).sql("SELECT sum(n) AS n FROM rows").explain()
        assert "SpreadExec: members=3" in plan


def test_groups_and_joins_by_the_keys_of_partitions_are_those_of_one_process(
    tmp_path: Path,
) -> None:
    """All rows of a key are in one tile, but in that of another member in each grid, and no member knows all keys."""
    files(tmp_path)
    data = tmp_path / "data" / "rows"
    alone = pg.Session()
    by: dict[str, dict[str, Any]] = {
        "rows": {"partition_by": "k", "num_partitions": 16},
        "others": {"partition_by": ["k", "t"], "num_partitions": 9},
    }
    with cluster(tmp_path, **{"cluster.fetch": False}) as members:
        for name, wishes in by.items():
            alone.register(name, pg.read_parquet(data))
            pg.connect(members[0].uri).load_parquet(str(data), name, **wishes)
        for member in members:
            assert member.ask("server.refresh()") is None
            connection = pg.connect(member.uri)
            for text in BY_KEYS:
                assert connection.sql(text).to_arrow() == alone.sql(text).to_arrow(), text
            plan = connection.sql(BY_KEYS[0]).explain()
            assert "SpreadExec: members=3" in plan
            assert plan.count("GridScanExec") == 3, plan


def test_tiles_know_their_values_so_that_others_are_not_read(tmp_path: Path) -> None:
    files(tmp_path)
    with cluster(tmp_path) as members:
        assert load(members[0], tmp_path, tile_rows=500, sort_by="n") == ROWS
        query = "SELECT count(*) AS c, sum(k) AS k FROM rows WHERE n BETWEEN 3000 AND 3100"
        plan = pg.connect(members[0].uri).sql(query)
        assert plan.to_arrow()["c"].to_pylist() == [101]
        read = [line for line in plan.explain().splitlines() if "GridScanExec" in line]
        rows = sum(int(line.split(" rows=")[1].split(",")[0]) for line in read)
        assert 101 <= rows <= 1500, read


def test_a_sorted_load_goes_on_without_a_member_that_is_lost(tmp_path: Path) -> None:
    files(tmp_path, count=60)
    alone = pg.read_parquet(tmp_path / "data" / "rows", tile_rows=100, sort_by="k")
    with cluster(tmp_path) as members, ThreadPoolExecutor() as threads:
        job = threads.submit(load, members[0], tmp_path, tile_rows=100, sort_by="k")
        wait_for(lambda: len(tiles(tmp_path)) > 10 or job.done())
        members[2].kill()
        assert job.result() == ROWS
        found = pg.connect(members[1].uri)
        wait_for(lambda: members[1].ask("server.tables") == ["rows"])
        assert str(found.grid("rows").to_arrow().to_pylist()) == str(alone.to_arrow().to_pylist())


def test_what_cannot_be_sorted_is_an_error_and_no_grid(tmp_path: Path) -> None:
    files(tmp_path)
    with cluster(tmp_path) as members:
        with pytest.raises(pg.errors.NotFoundError, match="nosuch"):
            load(members[0], tmp_path, sort_by="nosuch")
        with pytest.raises(pg.errors.InvalidArgumentError, match="num_partitions needs"):
            load(members[0], tmp_path, num_partitions=3)
        with pytest.raises(pg.errors.InvalidArgumentError, match="lazy"):
            load(members[0], tmp_path, sort_by="k", lazy=True)
        for member in members:
            assert member.ask("server.refresh()") is None
            assert member.ask("server.tables") == []
        assert tiles(tmp_path) == []


def test_a_server_alone_partitions_too(tmp_path: Path) -> None:
    files(tmp_path)
    data = tmp_path / "data" / "rows"
    alone = pg.read_parquet(data, partition_by="k", num_partitions=5)
    with pg.Server(http=None, settings={"load.from": str(data)}) as server:
        connection = pg.connect(server.uri)
        connection.load_parquet(str(data), "rows", partition_by="k", num_partitions=5)
        grid = connection.grid("rows")
        assert grid.cuts[0] == alone.cuts[0]
        assert grid.to_arrow()["n"].to_pylist() == alone.to_arrow()["n"].to_pylist()
