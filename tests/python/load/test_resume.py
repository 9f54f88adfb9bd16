"""Loads that go on where an earlier one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from conftest import DATA
from stores import KEYS, Proxy, Request, fault_proxy, s3_client, s3_server

FLIGHTS = DATA / "flights"
BUCKET = "resume"
FILES = 8
ROWS = 5_000
KILL_SECONDS = 60


def resumed(folder: Path, source: Any = FLIGHTS, **wishes: Any) -> tuple[int, pg.Grid]:
    """How many tiles came from the folder, and the grid."""
    job = pg.load_parquet(source, resume=folder, **wishes)
    grid = job.result()
    return job.progress().resumed_tiles, grid


def tiles_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("[!.]*.tile"))


@pytest.mark.parametrize(
    "wishes",
    [
        {},
        {"columns": ["carrier", "month"]},
        {"tile_rows": 9_000, "tile_columns": 7},
        {"dense": ["dep_delay", "arr_delay"], "filters": [("dep_delay", "is not null")]},
        {"filters": [[("month", ">", 10)], [("carrier", "in", ["UA", "AA"])]], "tile_columns": 5},
        {"filters": [("month", "=", 3), ("carrier", "=", "nobody")]},
        {"filters": [("distance", ">", 1000)], "columns": ["carrier"]},
        {"string_type": "string", "hive_partitioning": False},
        {"sort_by": "distance", "tile_rows": 40_000},
    ],
    ids=str,
)
def test_a_second_load_reads_no_source_again(tmp_path: Path, wishes: dict[str, Any]) -> None:
    plain = pg.read_parquet(FLIGHTS, **wishes)
    none, first = resumed(tmp_path, **wishes)
    job = pg.load_parquet(FLIGHTS, resume=tmp_path, **wishes)
    second = job.result()
    progress = job.progress()
    assert none == 0
    assert progress.resumed_tiles == progress.total_tiles == len(tiles_in(tmp_path))
    assert progress.bytes == progress.total_bytes
    for grid in (first, second):
        assert grid.cuts == plain.cuts
        assert grid.schema.equals(plain.schema, check_metadata=True)
        assert grid.to_arrow().equals(plain.to_arrow())


def test_other_wishes_share_nothing(tmp_path: Path) -> None:
    resumed(tmp_path, filters=[("month", ">", 6)])
    for wishes in [
        {"filters": [("month", ">", 7)]},
        {"filters": [("month", ">=", 6)]},
        {"filters": [("month", "in", list(range(30)))]},
        {"filters": [("month", "in", list(range(31)))]},
        {"columns": ["carrier"]},
        {"tile_rows": 5_000},
        {},
    ]:
        count, grid = resumed(tmp_path, **wishes)
        assert count == 0, wishes
        assert grid.to_arrow().equals(pg.read_parquet(FLIGHTS, **wishes).to_arrow())


def test_a_changed_file_is_read_anew_and_its_old_tiles_go(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "tiles"
    source.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"a": [number] * 100}), source / f"{number}.parquet")
    assert resumed(folder, source)[0] == 0
    before = tiles_in(folder)
    pq.write_table(pa.table({"a": [7] * 100}), source / "1.parquet")
    count, grid = resumed(folder, source)
    assert count == 2
    assert grid.to_arrow()["a"].to_pylist() == [0] * 100 + [7] * 100 + [2] * 100
    after = tiles_in(folder)
    assert len(after) == 3
    assert len(set(before) & set(after)) == 2
    # A file that is gone is not in the grid; its tile does no harm.
    (source / "2.parquet").unlink()
    assert resumed(folder, source)[1].shape == (200, 1)


def test_a_damaged_tile_is_read_anew(tmp_path: Path) -> None:
    plain = resumed(tmp_path)[1].to_arrow()
    first, second, *_ = tiles_in(tmp_path)
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    second.write_bytes(second.read_bytes()[:1000])
    count, grid = resumed(tmp_path)
    assert count == 10
    assert grid.to_arrow().equals(plain)
    assert resumed(tmp_path)[0] == 12


def test_under_a_memory_limit_tiles_of_the_folder_are_spilled(tmp_path: Path) -> None:
    wishes: dict[str, Any] = {"memory_limit": "24MB", "tile_rows": 20_000}
    (tmp_path / "spill").mkdir()
    plain = resumed(tmp_path / "tiles", spill_to=tmp_path / "spill", **wishes)[1]
    job = pg.load_parquet(FLIGHTS, resume=tmp_path / "tiles", spill_to=tmp_path / "spill", **wishes)
    grid = job.result()
    assert job.progress().resumed_tiles == len(tiles_in(tmp_path / "tiles"))
    assert job.progress().spilled_tiles > 0
    assert grid.to_arrow().equals(plain.to_arrow())


def test_tiles_of_a_load_that_lacked_memory_are_used_by_one_with_more(tmp_path: Path) -> None:
    rows = 100_000
    for number in range(4):
        table = pa.table(
            {f"n{column}": np.random.default_rng(column).random(rows) for column in range(8)}
        )
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=10_000)
    folder, source = tmp_path / "ck", str(tmp_path / "*.parquet")
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        resumed(folder, source, memory_limit="16MB")
    finished = len(tiles_in(folder))
    assert finished > 0
    from_folder, grid = resumed(folder, source, memory_limit="2GB")
    assert from_folder == finished
    assert grid.to_arrow() == pg.read_parquet(source).to_arrow()
    # A folder without tiles says nothing of their size.
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / ".partgrid-tile-bytes").write_text("1")
    assert resumed(empty, source, memory_limit="2GB")[1].tiling == (4, 1)


@pytest.mark.parametrize("wish", [{"resume": ""}, {"resume": "s3://a/b"}, {"spill_to": "s3://a/b"}])
def test_a_folder_must_be_local(wish: dict[str, Any]) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match="must be a local folder"):
        pg.read_parquet(FLIGHTS, **wish)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(pg.errors.PartgridError, match="resume"):
        pg.read_parquet(FLIGHTS, resume=tmp_path / "file")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("bucket")
    with s3_server() as address:
        client = s3_client(address)
        client.create_bucket(Bucket=BUCKET)
        for number in range(FILES):
            path = folder / f"{number}.parquet"
            columns = {
                f"c{column}": pa.array(
                    [(row * 31 + number * column) % 10_007 for row in range(ROWS)]
                )
                for column in range(6)
            }
            pq.write_table(pa.table(columns), path, use_dictionary=False)
            client.put_object(Bucket=BUCKET, Key=path.name, Body=path.read_bytes())
        yield address


def test_killed_in_the_middle_and_resumed(server: str, tmp_path: Path) -> None:
    with fault_proxy(server) as proxy:
        finished = kill_in_the_middle(proxy, tmp_path)
        proxy.requests.clear()
        proxy.fault = None
        storage_options = {**KEYS, "endpoint": proxy.address}
        count, grid = resumed(tmp_path, f"s3://{BUCKET}/", storage_options=storage_options)
        assert count == finished
        # Each file costs one request for its footer, which is read from a new process's cache or the store; pages are asked for from their start.
        pages = {
            request.path for request in proxy.requests if request.range and request.range[0] == 4
        }
        assert len(pages) == FILES - finished
        plain = pg.read_parquet(f"s3://{BUCKET}/", storage_options=storage_options)
        assert grid.cuts == plain.cuts
        assert grid.to_arrow().equals(plain.to_arrow())


def kill_in_the_middle(proxy: Proxy, folder: Path) -> int:
    """Kills a load (-9) while some tiles are finished and others wait for their pages; the number of finished tiles."""

    def hold(_: int, request: Request, __: Any, ___: Any) -> bool:
        # The pages of the later files never come.
        if request.range and request.range[0] == 4 and int(Path(request.path).stem) >= FILES // 2:
            time.sleep(KILL_SECONDS)
        return False

    proxy.fault = hold
    program = textwrap.dedent(
        f"""
        import partgrid as pg
        pg.read_parquet("s3://{BUCKET}/", resume={str(folder)!r},
                        storage_options={{**{KEYS!r}, "endpoint": {proxy.address!r}}})
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        stop = time.monotonic() + KILL_SECONDS
        while len(tiles_in(folder)) < FILES // 2 and time.monotonic() < stop:
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finished = len(tiles_in(folder))
    assert finished == FILES // 2
    return finished


def test_killed_at_any_moment_and_resumed(tmp_path: Path) -> None:
    """Many small tiles, killed after a random time, again and again until one load ends."""
    wishes = "tile_rows=2_000, tile_columns=4"
    program = textwrap.dedent(
        f"""
        import partgrid as pg
        pg.read_parquet({str(FLIGHTS)!r}, resume={str(tmp_path)!r}, {wishes})
        """
    )
    kills = 0
    for milliseconds in range(100, 3_000, 100):
        process = subprocess.Popen([sys.executable, "-c", program])
        try:
            process.wait(milliseconds / 1_000)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0
        break
    assert kills > 0
    count, grid = resumed(tmp_path, tile_rows=2_000, tile_columns=4)
    assert grid.to_arrow().equals(pg.read_parquet(FLIGHTS, tile_rows=2_000).to_arrow())
    assert count > 0
