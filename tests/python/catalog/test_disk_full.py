"""Disks that are full: whoever writes is told so, nothing of it stays, what was there is intact, and the server goes on.

A small file system in memory stands for the disk; to mount one takes root.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from services import service, until

FULL = "No space left on device"


# What says that there is no room: partgrid by itself, and through the driver of ADBC.
TYPED = (pg.errors.ResourcesExhaustedError, adbc_driver_manager.Error)


LARGE, SMALL = 5_000_000, 50_000


@contextmanager
def disk(folder: Path, **options: Any) -> Iterator[Path]:
    """A file system of its own on a folder."""
    folder.mkdir()
    wanted = ",".join(f"{name}={value}" for name, value in options.items())
    mount = ["mount", "-t", "tmpfs", "-o", wanted, "partgrid-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk(tmp_path / "disk", size="24m") as folder:
        yield folder


def free(folder: Path) -> int:
    """Bytes that are free on the disk of a folder."""
    said = os.statvfs(folder)
    return said.f_bfree * said.f_bsize


def rows(count: int) -> pa.Table:
    return pa.table({"n": np.random.default_rng(count).integers(0, 2**60, count)})


def refusal(work: Callable[[], Any]) -> str | None:
    """What a server says that has no room; nothing if it has."""
    try:
        work()
    except pg.errors.ResourcesExhaustedError as error:
        return str(error)
    return None


def fill(path: Path) -> None:
    """Takes what is left of a disk."""
    try:
        with path.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
    except OSError:
        assert free(path.parent) == 0


def upload(uri: str, name: str, count: int, _folder: Path) -> None:
    batches = rows(count).to_batches(max_chunksize=500_000)
    grid = pg.from_arrow(pa.Table.from_batches(batches))
    pg.connect(uri).upload(grid, name, if_exists="replace")


def ingest(uri: str, name: str, count: int, _folder: Path, mode: Any = "replace") -> None:
    reader = rows(count).to_reader(max_chunksize=100_000)
    with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(name, reader, mode=mode)


def append(uri: str, name: str, count: int, folder: Path) -> None:
    ingest(uri, name, count, folder, "create_append")


def create(uri: str, name: str, count: int, _folder: Path) -> None:
    query = f"SELECT value AS n FROM generate_series(1, {count})"
    pg.connect(uri).sql(f"CREATE OR REPLACE TABLE {name} AS {query}")


def load(uri: str, name: str, count: int, folder: Path) -> None:
    path = folder / f"{count}.parquet"
    pq.write_table(rows(count), path)
    pg.connect(uri).load_parquet(path, name, tile_rows=500_000, if_exists="replace", progress=False)


WAYS = pytest.mark.parametrize("way", [upload, ingest, append, create, load])


@WAYS
@pytest.mark.parametrize("name", ["large", "kept"])
def test_who_fills_the_disk_is_told_and_the_rest_is_intact(
    small_disk: Path, tmp_path: Path, way: Callable[..., None], name: str
) -> None:
    kept = rows(100_000)
    with service("--catalog", small_disk, "--set", f"load.from={tmp_path}") as one:
        connection = pg.connect(one.uri)
        assert connection.upload(kept, "kept")["durable"]
        with pytest.raises(TYPED, match=FULL):
            way(one.uri, name, LARGE, tmp_path)
        assert connection.grids() == ["kept"]
        assert connection.grid("kept").to_arrow() == kept
        [total] = connection.sql("SELECT count(*) AS n FROM kept").to_arrow().to_pylist()
        assert total == {"n": 100_000}
    with service("--catalog", small_disk) as one:
        connection = pg.connect(one.uri)
        assert connection.grids() == ["kept"]
        assert connection.grid("kept").to_arrow() == kept
        assert connection.upload(rows(SMALL), "small")["durable"]


@WAYS
def test_the_room_of_what_did_not_fit_is_there_again(
    small_disk: Path, tmp_path: Path, way: Callable[..., None]
) -> None:
    with service("--catalog", small_disk, "--set", f"load.from={tmp_path}") as one:
        pg.connect(one.uri).upload(rows(100_000), "kept")
        before = free(small_disk)
        with pytest.raises(TYPED, match=FULL):
            way(one.uri, "large", LARGE, tmp_path)
        until(lambda: free(small_disk) == before)
        way(one.uri, "small", SMALL, tmp_path)
        small = pg.connect(one.uri).grid("small").to_arrow()
        assert small.num_rows == SMALL
    with service("--catalog", small_disk) as one:
        connection = pg.connect(one.uri)
        assert connection.grids() == ["kept", "small"]
        assert connection.grid("kept").to_arrow() == rows(100_000)
        assert connection.grid("small").to_arrow() == small


@pytest.mark.parametrize("gone", ["dropped", "replaced"])
def test_the_room_of_what_is_gone_is_there_again(small_disk: Path, gone: str) -> None:
    half = rows(1_500_000)
    with service("--catalog", small_disk) as one:
        connection = pg.connect(one.uri)
        for turn in range(4):
            assert connection.upload(half, "half", if_exists="replace")["durable"], turn
            if gone == "dropped":
                connection.sql("DROP TABLE half").to_arrow()
            else:
                connection.upload(rows(10), "half", if_exists="replace")


@pytest.mark.parametrize("short_of", ["bytes", "files"])
def test_at_the_edge_a_grid_is_kept_whole_or_not_at_all(tmp_path: Path, short_of: str) -> None:
    edges: list[dict[str, Any]] = [{"size": "256k"}, {"size": "16m", "nr_inodes": 24}]
    options = edges[short_of == "files"]
    with disk(tmp_path / "disk", **options) as folder:
        known: dict[str, pa.Table] = {}
        refused = 0
        with service("--catalog", folder) as one:
            connection = pg.connect(one.uri)
            while refused < 5:
                name, more = f"g{len(known)}", rows(100 + len(known))
                said = refusal(lambda name=name, more=more: connection.upload(more, name))
                if said is None:
                    known[name] = more
                else:
                    assert FULL in said
                    refused += 1
                assert sorted(connection.grids()) == sorted(known)
            assert known
        with service("--catalog", folder) as one:
            connection = pg.connect(one.uri)
            found = {name: connection.grid(name).to_arrow() for name in connection.grids()}
            assert found == known


def test_what_cannot_be_dropped_on_a_full_disk_stays(small_disk: Path) -> None:
    with service("--catalog", small_disk) as one:
        connection = pg.connect(one.uri)
        connection.upload(rows(1000), "kept")
        fill(small_disk / "filler")
        said = refusal(lambda: connection.sql("DROP TABLE kept"))
        assert said is None or FULL in said
        left = ["kept"] if said else []
        assert connection.grids() == left
    with service("--catalog", small_disk) as one:
        connection = pg.connect(one.uri)
        assert connection.grids() == left
        (small_disk / "filler").unlink()
        assert connection.upload(rows(SMALL), "small")["durable"]


@pytest.mark.parametrize("catalog", [False, True])
def test_a_query_that_has_no_room_to_spill_fails_alone(tmp_path: Path, catalog: bool) -> None:
    sort = "SELECT value, value * 7919 % 1000003 AS k FROM generate_series(1, {}) ORDER BY k, value"
    with ExitStack() as stack:
        spill = stack.enter_context(disk(tmp_path / "spill", size="16m"))
        words: list[Any] = [
            "--set",
            f"server.spill_to={spill}",
            "--set",
            "limits.query_memory=48MB",
        ]
        if catalog:
            words += ["--catalog", tmp_path / "catalog"]
        one = stack.enter_context(service(*words))
        connection, before = pg.connect(one.uri), free(spill)
        for _ in range(2):
            with pytest.raises(pg.errors.ResourcesExhaustedError, match=FULL) as caught:
                connection.sql(sort.format(4_000_000)).to_arrow()
            assert "spill_to" in str(caught.value)
            with pytest.raises(pg.errors.ResourcesExhaustedError, match=FULL):
                connection.sql(f"CREATE TABLE never AS {sort.format(4_000_000)}")
            assert connection.grids() == []
            found = connection.sql(sort.format(1_000_000)).to_arrow()
            assert found["k"].to_pylist() == sorted(n * 7919 % 1000003 for n in range(1, 1_000_001))
            until(lambda: free(spill) == before)
