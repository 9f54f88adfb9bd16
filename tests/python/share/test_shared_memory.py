"""Shared memory: tiles that other processes read in place, and how much memory that takes."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from programs import on_ranks
from sharing import (
    BUFFERS,
    ON_LINUX,
    grids_shared,
    in_another,
    numbers,
    own_segments,
    shared_kilobytes,
    soon,
    tile_sum,
    total,
)
from type_samples import samples

pytestmark = ON_LINUX


def test_another_process_reads_every_type_in_place() -> None:
    table = pa.table(samples()).replace_schema_metadata({"of": "the schema"})
    grid = pg.from_arrow(table)
    code = BUFFERS + (
        "[grid] = objects\n"
        "table = grid.to_arrow()\n"
        "assert table.schema.metadata == {b'of': b'the schema'}\n"
        "table.validate(full=True)\n"
        "print(outside(table))\n"
    )
    for each in (grid, grid.to_shared()):
        assert in_another(code, each) == "0"


def test_values_of_every_type_are_the_same_in_another_process() -> None:
    table = pa.table(samples())
    for part in (table, table.slice(3, 4), table.slice(0, 0)):
        code = (
            "import partgrid as pg, pyarrow as pa\n"
            "grid, stream = objects\n"
            "expected = pa.ipc.open_stream(stream).read_all()\n"
            "found = grid.to_arrow()\n"
            "assert found.schema.equals(expected.schema, check_metadata=True)\n"
            "for name in expected.column_names:\n"
            "    assert found[name].to_pylist() == expected[name].to_pylist(), name\n"
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
        in_another(code, pg.from_arrow(part), sink.getvalue().to_pybytes())


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_grids_tiles_and_handles_go_to_processes_of_multiprocessing(method: str) -> None:
    grid = numbers(1000, 10).to_shared()
    handles = [each["data"] for each in grid.__partitioned__["partitions"].values()]
    with multiprocessing.get_context(method).Pool(2) as pool:
        [(process, found)] = pool.map(total, [grid])
        assert process != os.getpid()
        assert found == sum(range(1000)) + sum(range(10))
        assert pool.map(tile_sum, grid.tiles) == [sum(range(1000)), sum(range(10))]
        assert pool.map(tile_sum, handles) == [sum(range(1000)), sum(range(10))]


def test_joblib_sends_names_and_no_data() -> None:
    grid = numbers(100_000, 50_000)
    assert len(pickle.dumps(grid)) < 1000
    assert len(pickle.dumps(grid.tile(0))) < 1000
    with joblib.parallel_config(backend="loky", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(tile_sum)(tile) for tile in grid.tiles)
    assert found == [sum(range(100_000)), sum(range(50_000))]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_in_this_process_a_pickle_gives_the_very_memory(protocol: int) -> None:
    grid = numbers(5, 3)
    back = pickle.loads(pickle.dumps(grid, protocol))
    address = [chunk.buffers()[1].address for chunk in grid.to_arrow()["a"].chunks]
    assert [chunk.buffers()[1].address for chunk in back.to_arrow()["a"].chunks] == address
    assert back.__partitioned__ == grid.__partitioned__
    tile = grid.tile(1)
    again = pickle.loads(pickle.dumps(tile, protocol))
    assert (again.position, again.start, again.shape) == ((1, 0), (5, 0), (3, 1))
    assert pa.record_batch(again)["a"].buffers()[1].address == address[1]
    assert copy.deepcopy(grid).cuts == grid.cuts


def test_a_pickled_grid_knows_its_shape_order_and_size_before_anything_is_opened() -> None:
    table = pa.table({"a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"]})
    grid = pg.from_arrow(table)
    code = (
        "import partgrid as pg\n"
        "[grid] = objects\n"
        "print(grid.shape, grid.cuts, grid.columns, grid.nbytes, grid.schema.names)\n"
        "print([tile.location for tile in grid.tiles])\n"
        "print(pg.shared_memory()[0]['segments'])\n"
        "print(repr(grid).splitlines()[0])\n"
    )
    lines = in_another(code, grid).splitlines()
    assert lines[0] == f"(4, 2) ((0, 4), (0, 2)) ['a', 'b'] {grid.nbytes} ['a', 'b']"
    [place] = grid.tile(0).location
    assert lines[1] == str([[place]])
    assert lines[3].endswith("in shared memory")


def test_sorted_columns_and_column_bands_travel(tmp_path: Any) -> None:
    pg.from_arrow(pa.table({"a": [3, 1, 2], "b": [1.0, 2.0, 3.0]})).write_parquet(tmp_path / "x")
    grid = pg.read_parquet(tmp_path / "x", sort_by="a", tile_columns=1)
    code = "[grid] = objects\nprint(grid.sorted_by, grid.tiling, grid.to_arrow().to_pydict())"
    expected = {"a": [1, 2, 3], "b": [2.0, 3.0, 1.0]}
    assert in_another(code, grid) == f"[('a', 'ascending')] (1, 2) {expected}"


def test_a_lazy_grid_is_read_by_its_owner(tmp_path: Any) -> None:
    pg.from_arrow(pa.table({"a": [3, 1, 2]})).write_parquet(tmp_path / "x")
    grid = pg.read_parquet(tmp_path / "x", lazy=True)
    code = "print(objects[0].to_arrow()['a'].to_pylist())"
    assert in_another(code, grid) == "[3, 1, 2]"


def test_a_reader_hands_on_the_names_of_the_owner() -> None:
    grid = numbers(7)
    code = (
        "import subprocess\n"
        "[grid] = objects\n"
        "grid.to_arrow()\n"
        "code = 'import pickle, sys; grid = pickle.load(sys.stdin.buffer);"
        " print(grid.to_arrow().num_rows, grid.tile(0).location[-1][1])'\n"
        "command = [sys.executable, '-c', code]\n"
        "done = subprocess.run(command, input=pickle.dumps(grid), capture_output=True)\n"
        "print(done.stdout.decode(), done.stderr.decode())\n"
    )
    assert in_another(code, grid) == f"7 {os.getpid()}"


def test_rows_and_columns_of_a_shared_grid_need_no_other_segment() -> None:
    grid = numbers(1000, 1000).to_shared()
    part = grid[990:1010, ["a"]]
    before = len(own_segments())
    code = (
        "import partgrid as pg\n"
        "print(objects[0].to_arrow()['a'].to_pylist())\n"
        "owner = next(each for each in pg.shared_memory() if each['pid'] == objects[1])\n"
        "print(len(owner['segments']), sum(s['readers'].count(objects[2]()) for s in owner['segments']))"
    )
    values, listed = in_another(code, part, os.getpid(), os.getpid).splitlines()
    assert values == str([*range(990, 1000), *range(10)])
    assert listed == f"{before} 2"


def test_a_grid_of_an_spmd_program_does_not_pickle() -> None:
    def pickled(comm: Any) -> str:
        grid = pg.engines.mpi.from_local(pa.table({"a": [1]}), comm)
        try:
            pickle.dumps(grid)
        except pg.errors.UnsupportedError as error:
            return str(error)
        return "pickled"

    assert all("SPMD program" in said for said in on_ranks(2, pickled))


def test_a_private_tile_is_copied_once_and_only_as_long_as_it_is_read() -> None:
    grid = numbers(500_000, 500_000)
    before = grids_shared()
    sent = pickle.dumps(grid)
    assert grids_shared() == before
    code = (
        "import pickle, sys\ngrid = pickle.load(sys.stdin.buffer)\n"
        "grid.to_arrow()\nprint('open', flush=True)\nsys.stdin.buffer.read()\n"
    )
    readers = [
        subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) for _ in range(3)
    ]
    for reader in readers:
        reader.stdin.write(sent)
        reader.stdin.flush()
    assert [reader.stdout.readline() for reader in readers] == [b"open\n"] * 3
    segments = [each for each in own_segments() if each["grid"] not in before]
    processes = sorted(reader.pid for reader in readers)
    assert [each["position"] for each in segments] == [(0, 0), (1, 0)]
    for each in segments:
        assert each["copy"]
        assert sorted(each["readers"]) == processes
        assert 4_000_000 <= each["nbytes"] < 4_010_000
    for reader in readers:
        reader.communicate()
    assert soon(lambda: grids_shared() <= before)


def test_what_is_shared_takes_memory_once() -> None:
    before = shared_kilobytes()
    grid = pg.from_arrow(pa.table({"a": np.ones(8 << 20)})).to_shared()
    assert 63 << 10 <= shared_kilobytes() - before < 72 << 10
    code = (
        "import partgrid as pg, pyarrow.compute as pc\n"
        "[grid] = objects\n"
        "assert pc.sum(grid.to_arrow()['a']).as_py() == 8 << 20\n"
        "status = open('/proc/self/status').read()\n"
        "print(next(line.split()[1] for line in status.splitlines() if 'RssShmem' in line))\n"
    )
    assert int(in_another(code, grid)) >= 64 << 10, "read in place"
    assert shared_kilobytes() - before < 72 << 10
    del grid
    gc.collect()
    assert soon(lambda: shared_kilobytes() - before < 8 << 10)


def test_there_is_no_thread_before_something_is_handed_over() -> None:
    code = (
        "import os, pickle, partgrid as pg, pyarrow as pa\n"
        "grid = pg.from_arrow(pa.table({'a': [1]}))\n"
        "threads = lambda: {open(f'/proc/self/task/{t}/comm').read() for t in os.listdir('/proc/self/task')}\n"
        "grid.__partitioned__\n"
        "assert not any('partgrid' in name for name in threads()), threads()\n"
        "pickle.dumps(grid)\n"
        "import time\n"
        "while not any('partgrid' in name for name in threads()):\n    time.sleep(0.01)\n"
        "print(sorted(name.strip() for name in threads() if 'partgrid' in name))\n"
    )
    assert in_another(code) == "['partgrid-share']"


def test_ps_shows_owners_segments_and_readers() -> None:
    grid = numbers(1000, 20).to_shared()
    code = (
        "import subprocess, os\n"
        "table = objects[0].tile(0).to_arrow()\n"
        "print(os.getpid())\n"
        "command = [sys.executable, '-m', 'partgrid', 'ps']\n"
        "print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)\n"
    )
    reader, header, *lines = in_another(code, grid).splitlines()
    assert header.split() == ["owner", "grid", "tile", "bytes", "kind", "readers"]
    own = [line.split() for line in lines if line.startswith(str(os.getpid()))]
    own = [fields for fields in own if fields[1] == own_segments()[-1]["grid"]]
    first, second = own
    assert first[2:4] == ["(0,", "0)"]
    assert first[5:] == ["shared", reader]
    assert second[5:] == ["shared"]
    assert int(first[4].replace(",", "")) == own_segments()[-2]["nbytes"]
    assert "share" in lines[-1]
    del grid
    assert not [each for each in own_segments() if each["grid"] == own[0][1]]
