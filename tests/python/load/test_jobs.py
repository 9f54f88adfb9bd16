"""Loads as jobs: progress, cancelling, memory limits, and what tiles can look like."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from conftest import DATA
from partgrid import _progress

ROWS = 400_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files of numbers and texts that do not compress."""
    folder = tmp_path_factory.mktemp("large")
    random = np.random.default_rng(7)
    for number in range(4):
        columns = {f"n{column}": random.integers(0, 2**62, ROWS) for column in range(6)}
        texts = pa.array([f"text {value}" for value in random.integers(0, 10**9, ROWS)])
        pq.write_table(
            pa.table({**columns, "t": texts}), folder / f"{number}.parquet", row_group_size=50_000
        )
    return folder


def test_a_job_counts_what_it_does() -> None:
    job = pg.load_parquet(DATA / "flights")
    assert job.wait()
    assert job.wait(0.0)
    assert job.finished
    progress = job.progress()
    assert (progress.files, progress.total_files, progress.tiles, progress.total_tiles) == (
        12,
        12,
        12,
        12,
    )
    assert progress.rows == progress.total_rows == 336_776
    assert progress.bytes == progress.total_bytes > 1_000_000
    assert 1.0 <= progress.tile_bytes / job.result().nbytes < 1.2
    assert progress.rate > 0
    assert progress.remaining == 0.0
    time.sleep(0.05)
    assert job.progress().elapsed == progress.elapsed
    assert job.result().shape == (336_776, 19)
    assert "finished" in repr(job)
    assert "tiles=12/12" in repr(progress)


def test_errors_of_a_job_come_with_its_result() -> None:
    job = pg.load_parquet("no/such/file.parquet")
    assert job.wait(10)
    for _ in range(2):
        with pytest.raises(pg.errors.PathNotFoundError, match="no/such/file"):
            job.result()
    with pytest.raises(pg.errors.InvalidArgumentError, match="schema_evolution"):
        pg.load_parquet("x", schema_evolution="loose")


def test_a_job_can_be_cancelled(large: Path) -> None:
    job = pg.load_parquet(large, tile_rows=10_000)
    job.cancel()
    assert job.wait(10)
    with pytest.raises(pg.errors.CancelledError):
        job.result()
    with pytest.raises(pg.errors.InvalidArgumentError, match="timeout"):
        job.wait(-1)


def test_waiting_ends_in_time(large: Path) -> None:
    job = pg.load_parquet(large)
    with pytest.raises(TimeoutError, match="0 seconds"):
        job.result(timeout=0)
    assert job.result().shape == (4 * ROWS, 7)


def test_a_job_of_the_parent_is_refused_in_a_forked_child(large: Path) -> None:
    job = pg.load_parquet(large)
    child = os.fork()
    if child == 0:
        try:
            job.result()
        except pg.errors.NotLocalError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert job.wait(60)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_load_spills_what_the_limit_leaves_no_room_for(large: Path, tmp_path: Path) -> None:
    whole = pg.read_parquet(large)
    limit = whole.nbytes // 4
    job = pg.load_parquet(large, memory_limit=limit, spill_to=tmp_path)
    grid = job.result()
    assert job.progress().spilled_tiles > grid.tiling[0] // 2
    assert grid.to_arrow() == whole.to_arrow()
    assert not list(tmp_path.iterdir()), "spilled tiles have no name"
    assert (
        grid.sql("SELECT count(DISTINCT n0) AS n FROM self").to_arrow()
        == whole.sql("SELECT count(DISTINCT n0) AS n FROM self").to_arrow()
    )
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="memory_limit"):
        pg.read_parquet(large, memory_limit=limit)
    made = tmp_path / "made"
    assert pg.read_parquet(large, memory_limit=limit, spill_to=made).to_arrow() == whole.to_arrow()
    assert made.is_dir()
    # It is looked at before the load begins, also where all has room.
    (tmp_path / "file").touch()
    with pytest.raises(pg.errors.PathNotFoundError, match="spill_to"):
        pg.read_parquet(large, spill_to=tmp_path / "file" / "none")


def test_sizes_can_be_texts() -> None:
    assert len(pg.read_parquet(DATA / "airlines.parquet", memory_limit="1.5 GiB")) == 16
    with pytest.raises(pg.errors.InvalidArgumentError, match="512MB"):
        pg.read_parquet(DATA / "airlines.parquet", memory_limit="much")


def test_a_spilling_load_keeps_within_its_limit(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    for number in range(4):
        columns = {f"n{column}": random.integers(0, 2**62, 3 * ROWS) for column in range(8)}
        pq.write_table(
            pa.table(columns),
            tmp_path / f"{number}.parquet",
            row_group_size=100_000,
            use_dictionary=False,
        )
    script = f"""
        import partgrid as pg
        def resident(name):
            text = open("/proc/self/status").read()
            return int(text.split(name + ":")[1].split()[0]) * 1024
        before = resident("VmRSS")
        limit = 64 << 20
        grid = pg.read_parquet({str(tmp_path)!r}, memory_limit=limit, spill_to={str(tmp_path)!r})
        used = resident("VmHWM") - before
        # Threads, the allocator's own pages and what Parquet needs to decode are not counted by the limit.
        assert used < limit + (96 << 20) < grid.nbytes // 4 * 3, (used, grid.nbytes)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_columns_are_cut_into_bands() -> None:
    source = DATA / "flights" / "month=01"
    plain = pg.read_parquet(source)
    counted = pg.read_parquet(source, tile_columns=5)
    assert counted.cuts[1] == (0, 5, 10, 15, 19)
    assert counted.to_arrow() == plain.to_arrow()
    named = pg.read_parquet(source, tile_columns=[["dest", "origin"], ["carrier"]])
    assert named.columns[:3] == ["dest", "origin", "carrier"]
    assert named.cuts[1] == (0, 2, 3, 19)
    assert named.to_arrow().select(plain.columns) == plain.to_arrow()
    empty = pg.read_parquet(source, columns=["dest", "month"], tile_columns=1)
    assert empty.cuts[1] == (0, 1, 2)
    for wish, text in [
        (0, "at least 1"),
        ([[]], "empty list"),
        ([["dest"], ["dest"]], "one band only"),
    ]:
        with pytest.raises(pg.errors.InvalidArgumentError, match=text):
            pg.read_parquet(source, tile_columns=wish)
    with pytest.raises(pg.errors.NotFoundError, match="did you mean `dest`"):
        pg.read_parquet(source, tile_columns=[["dets"]])


def test_dense_columns_are_arrow_columns_and_a_2d_array(tmp_path: Path) -> None:
    rows = 1001
    columns = {
        name: np.arange(rows) * factor for name, factor in [("a", 1.5), ("b", -2.0), ("c", 0.25)]
    }
    pq.write_table(
        pa.table({"text": pa.array(["x"] * rows), **columns}),
        tmp_path / "a.parquet",
        row_group_size=100,
    )
    grid = pg.read_parquet(tmp_path, dense=["c", "a", "b"], tile_rows=500)
    assert grid.columns == ["c", "a", "b", "text"]
    assert grid.cuts[1] == (0, 3, 4)
    for tile in grid.tiles[::2]:
        batch = tile.to_arrow()
        addresses = [column.buffers()[1].address for column in batch.columns]
        steps = set(np.diff(addresses))
        assert len(steps) == 1
        assert all(address % 64 == 0 for address in addresses)
        shape = (batch.num_columns, batch.num_rows)
        block = np.lib.stride_tricks.as_strided(
            batch.column(0).to_numpy(), shape, (int(steps.pop()), 8)
        )
        assert np.array_equal(block, [column.to_numpy() for column in batch.columns])
    assert grid.to_arrow().select(["a", "b", "c"]).to_pydict() == {
        name: values.tolist() for name, values in columns.items()
    }
    with pytest.raises(pg.errors.InvalidArgumentError, match="of one type"):
        pg.read_parquet(tmp_path, dense=["a", "text"])


def _write(folder: Path, name: str, **columns: pa.Array) -> None:
    pq.write_table(pa.table(columns), folder / name)


def test_union_fills_what_is_missing(tmp_path: Path) -> None:
    _write(tmp_path, "a.parquet", x=pa.array([1, 2]), y=pa.array(["a", "b"]))
    _write(tmp_path, "b.parquet", z=pa.array([1.5]), x=pa.array([3]), y=pa.nulls(1))
    with pytest.raises(pg.errors.InvalidDataError, match="`z`"):
        pg.read_parquet(tmp_path)
    assert pg.read_parquet(tmp_path, columns=["x"]).to_arrow().to_pydict() == {"x": [1, 2, 3]}
    grid = pg.read_parquet(tmp_path, schema_evolution="union")
    assert grid.to_arrow().to_pydict() == {
        "x": [1, 2, 3],
        "y": ["a", "b", None],
        "z": [None, None, 1.5],
    }
    _write(tmp_path, "c.parquet", x=pa.array([1.5]))
    with pytest.raises(pg.errors.InvalidDataError, match="Float64, expected Int64"):
        pg.read_parquet(tmp_path, schema_evolution="union")


@pytest.mark.parametrize(
    ("left", "right", "wide"),
    [
        (pa.int8(), pa.uint8(), pa.int16()),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.uint32(), pa.int8(), pa.int64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), pa.decimal128(9, 4)),
        (pa.decimal128(9, 2), pa.int32(), pa.decimal128(12, 2)),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.null(), pa.string(), pa.string()),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.int64(), pa.float64(), None),
        (pa.uint64(), pa.int64(), None),
        (pa.string(), pa.int64(), None),
        (pa.timestamp("ms", "UTC"), pa.timestamp("ms"), None),
    ],
)
def test_widening_keeps_every_value(
    tmp_path: Path, left: pa.DataType, right: pa.DataType, wide: pa.DataType | None
) -> None:
    def column(data_type: pa.DataType) -> pa.Array:
        if pa.types.is_list(data_type):
            return pa.array([[1, 2], []], data_type)
        if pa.types.is_null(data_type):
            return pa.nulls(2)
        if pa.types.is_dictionary(data_type) or "string" in str(data_type):
            return pa.array(["3", "4"]).cast(data_type)
        if pa.types.is_decimal(data_type):
            return pa.array([Decimal("3.25"), Decimal(-4)], data_type)
        if pa.types.is_date(data_type):
            return pa.array([date(2013, 1, 31), date(1969, 12, 31)], data_type)
        return pa.array([3, 4]).cast(data_type)

    for order in [(left, right), (right, left)]:
        _write(tmp_path, "a.parquet", x=column(order[0]))
        _write(tmp_path, "b.parquet", x=column(order[1]))
        if wide is None:
            with pytest.raises(pg.errors.InvalidDataError, match="expected"):
                pg.read_parquet(tmp_path, schema_evolution="widen")
            continue
        found = pg.read_parquet(tmp_path, schema_evolution="widen").to_arrow()["x"]
        assert found.type == wide
        expected = [
            pa.compute.cast(column(each), wide) if not pa.types.is_null(each) else pa.nulls(2, wide)
            for each in order
        ]
        assert found.to_pylist() == pa.chunked_array(expected).to_pylist()


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_where_a_person_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert _progress.bar(None) is None
    assert _progress.bar(True) is not None
    monkeypatch.setattr(sys, "stderr", screen := _Screen())
    for off in ["0", "false", "No", "OFF"]:
        monkeypatch.setenv("PARTGRID_PROGRESS", off)
        assert _progress.bar(None) is None
    monkeypatch.setenv("PARTGRID_PROGRESS", "1")
    assert _progress.bar(None) is not None
    monkeypatch.delenv("PARTGRID_PROGRESS")
    bar = _progress.bar(None)
    assert bar is not None
    job = pg.load_parquet(DATA / "flights")
    job.wait()
    bar.show(job.progress())
    bar.close()
    assert screen.getvalue() == "", "a short load shows nothing"
    bar._next = 0
    bar.show(job.progress())
    bar.close()
    text = screen.getvalue()
    assert text.startswith("\rloading: 100%|█")
    assert "12/12 tiles" in text
    assert text.endswith("\n")
    for width in (20, 80, 200):
        assert len(_progress.line(job.progress(), width)) == width - 1


def test_ctrl_c_ends_a_load(large: Path) -> None:
    def raise_interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def load_again_and_again() -> None:
        for _ in range(100):
            pg.read_parquet(large, progress=True)

    before = signal.signal(signal.SIGALRM, raise_interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(KeyboardInterrupt):
            load_again_and_again()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_columns_in_one_allocation_are_counted_once() -> None:
    job = pg.load_parquet(DATA / "flights", columns=["hour", "minute"], dense=["hour", "minute"])
    grid = job.result()
    # Between the columns and behind them lie less than a page of each of twelve tiles.
    assert 0 <= job.progress().tile_bytes - grid.nbytes < 12 * 4096
