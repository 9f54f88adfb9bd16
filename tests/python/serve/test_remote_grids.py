"""Grids of a server in another process, once mapped and once fetched as from another host: all that a grid does, and what is said when they go."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from services import Service, metrics, service, until
from sharing import ON_LINUX
from type_samples import others, samples

pytestmark = ON_LINUX

# Nobody has it: addresses for documentation.
ELSEWHERE = "192.0.2.9"
LOST = (pg.errors.PartitionLostError, pg.errors.NotFoundError, pg.errors.StorageError)

# What the other process keeps between two calls.
KEPT: dict[str, Any] = {}


def types() -> pa.Table:
    return pa.table(samples() | others())


def many() -> pa.Table:
    """More rows than come in one message."""
    # Ends of runs in 16 bits number few rows.
    table = types().drop_columns(["run_end_int16"])
    while table.num_rows < 80_000:
        table = pa.concat_tables([table, table]).combine_chunks()
    return table


def cells() -> pa.Table:
    """Ten rows, which the server has in three row bands, one of them empty, and three column bands."""
    texts = [None if row % 4 == 1 else f"text {row}" for row in range(10)]
    numbers = [None if row == 3 else row / 2 for row in range(10)]
    return pa.table({"a": range(10), "x": numbers, "b": texts, "c": range(10, 20)})


def cut(table: pa.Table) -> pg.Grid:
    rows, bands = [(0, 4), (4, 4), (4, 10)], [(0, 2), (2, 3), (3, 4)]
    parts = {}
    for row_band, (start, stop) in enumerate(rows):
        for band, (first, last) in enumerate(bands):
            part = table.slice(start, stop - start).select(range(first, last)).combine_chunks()
            [batch] = part.to_batches() or [pa.RecordBatch.from_pylist([], part.schema)]
            place = {"start": (start, first), "shape": (stop - start, last - first)}
            parts[row_band, band] = place | {"data": batch, "location": []}
    whole = {"shape": (10, 4), "partition_tiling": (3, 3), "partitions": parts}
    return pg.from_partitioned(whole | {"get": lambda data: data})


@pytest.fixture(scope="module")
def server() -> Iterator[Service]:
    with service() as one:
        connection = pg.connect(one.uri)
        connection.upload(pg.from_arrow(types()), "types")
        connection.upload(pg.from_arrow(many()), "many")
        connection.upload(cut(cells()), "cells")
        connection.upload(cells().slice(0, 0), "none")
        assert connection.grid("cells").tiling == (3, 3)
        yield one


class Far:
    """A process that has a connection, and calls functions of this file."""

    def __init__(self, pool: Any, way: str) -> None:
        self.pool, self.way = pool, way

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.begin(function, *arguments).get(60)

    def begin(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.pool.apply_async(called, (function, arguments))


@pytest.fixture(scope="module", params=["mapped", "fetched"])
def far(request: pytest.FixtureRequest, server: Service) -> Iterator[Far]:
    known = (server.uri, request.param)
    with multiprocessing.get_context("spawn").Pool(1, begin, known) as pool:
        yield Far(pool, request.param)


def called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except pytest.fail.Exception as failed:
        # A pool takes it for the end of its process.
        raise AssertionError(str(failed)) from failed


def begin(uri: str, way: str) -> None:
    if way == "fetched":
        os.environ["PARTGRID_HOST"] = ELSEWHERE
    KEPT.update(way=way, connection=pg.connect(uri))


def grid(name: str = "cells") -> pg.Grid:
    return KEPT["connection"].grid(name)


def check_way(process: int) -> None:
    found = grid()
    places = [tile.location for tile in found.tiles]
    assert all([place[1] for place in each] == [process] for each in places)
    assert repr(found).splitlines()[0].startswith("Grid of 10 rows x 4 columns in 3 x 3 tiles")
    found.to_arrow()
    is_mapped = "memfd:partgrid" in Path("/proc/self/maps").read_text()
    assert is_mapped == (KEPT["way"] == "mapped")
    here = [os.getpid(), process] if is_mapped else [process]
    assert [place[1] for place in found.tile(0).location] == here


def test_tiles_are_read_where_they_are_meant_to_be(far: Far, server: Service) -> None:
    far(check_way, server.process.pid)


def check_types() -> None:
    expected, found = pg.from_arrow(types()).to_arrow(), grid("types").to_arrow()
    found.validate(full=True)
    assert found.schema == expected.schema
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    for name in expected.column_names:
        one = grid("types")[[name]].to_arrow()
        assert one[name].to_pylist() == expected[name].to_pylist(), name


def test_every_type_arrives_as_it_is_whole_and_column_by_column(far: Far) -> None:
    far(check_types)


def check_many() -> None:
    expected, found = pg.from_arrow(many()).to_arrow(), grid("many").to_arrow()
    assert found.schema == expected.schema
    for name in expected.column_names:
        assert found[name].equals(expected[name]), name


def test_every_type_arrives_as_it_is_in_several_messages(far: Far) -> None:
    far(check_many)


def check_parts() -> None:
    table, found = cells(), grid()
    assert (found.shape, found.columns) == ((10, 4), ["a", "x", "b", "c"])
    assert found.cuts == ((0, 4, 4, 10), (0, 2, 3, 4))
    assert found.to_arrow() == table
    assert found[3:7].to_arrow() == table.slice(3, 4)
    assert found[4:4].to_arrow() == table.slice(0, 0)
    assert found[["c", "x"]].to_arrow() == table.select(["c", "x"])
    assert found[1:9, ["b", "a"]].to_arrow() == table.slice(1, 8).select(["b", "a"])
    assert found[2:8][1:3, ["c"]].to_arrow() == table.slice(3, 2).select(["c"])
    for row_band, column_band in ((0, 0), (1, 1), (2, 2)):
        tile = found.tile(row_band, column_band)
        (start, first), (rows, columns) = tile.start, tile.shape
        part = table.slice(start, rows).select(range(first, first + columns))
        assert pa.table(tile) == part == pa.table(tile.to_arrow())
    assert pa.table(found) == table
    assert grid("none").to_arrow() == table.slice(0, 0)
    assert grid("none")[["b"]].sql("SELECT count(b) AS n FROM self").to_arrow()["n"][0].as_py() == 0


def test_rows_columns_and_tiles_are_those_of_the_server(far: Far) -> None:
    far(check_parts)


def check_sql() -> None:
    def answered(query: str, **grids: Any) -> list[Any]:
        rows = pg.sql(query, cells=grid(), **grids).to_arrow()
        return [tuple(row.values()) for row in rows.to_pylist()]

    assert answered("SELECT count(*) FROM cells") == [(10,)]
    assert answered("SELECT sum(c) FROM cells WHERE a >= 3 AND b IS NOT NULL") == [(78,)]
    assert answered("SELECT x, b FROM cells WHERE a IN (3, 8) ORDER BY a") == [
        (None, "text 3"),
        (4.0, "text 8"),
    ]
    of_two = "SELECT sum(cells.c + here.d) FROM cells JOIN here ON cells.a = here.k"
    assert answered(of_two, here=pa.table({"k": [2, 7], "d": [100, 200]})) == [(329,)]
    result = grid().sql("SELECT a % 2 AS g, count(*) AS n FROM self GROUP BY g ORDER BY g")
    assert result.to_arrow().to_pylist() == [{"g": 0, "n": 5}, {"g": 1, "n": 5}]
    kept = grid().sql("SELECT a FROM self WHERE c > 17").to_grid()
    assert kept.to_arrow()["a"].to_pylist() == [8, 9]
    session = pg.Session()
    session.register("of_a_server", grid())
    assert session.sql("SELECT max(c) AS m FROM of_a_server").to_arrow()["m"].to_pylist() == [19]


def test_statements_of_this_process_read_it(far: Far) -> None:
    far(check_sql)


def check_few() -> None:
    found = grid()
    assert (found.shape, len(repr(found)) > 0) == ((10, 4), True)
    assert found.sql("SELECT sum(c) AS s FROM self WHERE x >= 2").to_arrow()["s"][0].as_py() == 99


def test_planning_brings_nothing_and_a_query_its_columns(far: Far, server: Service) -> None:
    def count() -> float:
        return metrics(server)["partgrid_do_get_duration_seconds_count"]

    before = count()
    far(check_few)
    # Two columns of three row bands, of which one is empty.
    most = 6 if far.way == "fetched" else 0
    assert count() - before <= most


def check_frames() -> None:
    table, found = cells(), grid()
    assert found.to_pandas().equals(pg.from_arrow(table).to_pandas())
    assert found.to_pandas(index="a").loc[8, "b"] == "text 8"
    assert found.to_polars().equals(pg.from_arrow(table).to_polars())
    expected = np.array([table["a"].to_numpy(), table["c"].to_numpy()]).T
    assert np.array_equal(found.to_numpy(["a", "c"]), expected)
    last = pg.from_arrow(table.slice(4).select(["b"])).to_pandas()
    assert found.tile(2, 1).to_pandas().equals(last)


def test_pandas_polars_and_numpy_have_its_rows(far: Far) -> None:
    far(check_frames)


def check_protocols() -> None:
    table, found = cells(), grid()
    described = found.__partitioned__
    assert (described["shape"], described["partition_tiling"]) == ((10, 4), (3, 3))
    for entry in described["partitions"].values():
        (start, first), (rows, columns) = entry["start"], entry["shape"]
        part = table.slice(start, rows).select(range(first, first + columns))
        frame = described["get"](entry["data"])
        assert frame.equals(pg.from_arrow(part).to_pandas()), entry
        assert pa.table(entry["data"].tile()) == part
    handles = [entry["data"] for entry in described["partitions"].values()]
    assert [len(frame) for frame in described["get"](handles)] == [4] * 3 + [0] * 3 + [6] * 3
    assert pg.from_partitioned(found).to_arrow() == table
    sections = found.distarray("c").sections
    parts = [np.asarray(section.__distarray__()["buffer"]).tolist() for section in sections]
    assert parts == [[*range(10, 14)], [], [*range(14, 20)]]
    assert [np.asarray(found.tile(band, 2).array()).tolist() for band in range(3)] == [
        [[number] for number in part] for part in parts
    ]


def test_the_protocols_describe_it(far: Far) -> None:
    far(check_protocols)


def check_copies(folder: Path) -> None:
    table, found = cells(), grid()
    assert found.write_parquet(folder / "whole") == 3
    assert pq.read_table(folder / "whole") == table
    shared = found.to_shared()
    assert shared.cuts == found.cuts
    assert shared.to_arrow() == table
    [own] = [each for each in pg.shared_memory() if each["pid"] == os.getpid()]
    assert sum(not each["copy"] for each in own["segments"]) == 9
    KEPT["connection"].upload(found, f"again_{KEPT['way']}")
    assert grid(f"again_{KEPT['way']}").to_arrow() == table
    again = pickle.loads(pickle.dumps(found))
    assert again.to_arrow() == table
    assert again.cuts == found.cuts


def test_it_is_written_shared_sent_back_and_pickled(far: Far, tmp_path: Path) -> None:
    far(check_copies, tmp_path)


def check_forked() -> None:
    found = grid()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            said = str(found.to_arrow() == cells())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "it waits"
    expected = "True" if KEPT["way"] == "mapped" else "InvalidArgumentError: the connection"
    assert said.startswith(expected), said
    assert found.to_arrow() == cells()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_maps_and_does_not_wait_for_threads_of_its_parent(far: Far) -> None:
    far(check_forked)


def check_dropped(half: bool) -> None:
    name = f"passing_{KEPT['way']}"
    connection = KEPT["connection"]
    connection.upload(cut(cells()), name, if_exists="replace")
    found = grid(name)
    if half:
        found[["a"]].to_arrow()
    connection.sql(f"DROP TABLE {name}")
    with pytest.raises(LOST[:2]) as caught:
        found.to_arrow()
    assert str(caught.value).count("\n") < 4
    with pytest.raises(pg.errors.PartgridError):
        found.sql("SELECT sum(c) AS s FROM self").to_arrow()
    # The connection is as good as before.
    assert grid().to_arrow() == cells()


@pytest.mark.parametrize("half", [False, True], ids=["unread", "half read"])
def test_tiles_of_a_grid_that_was_dropped_are_lost(far: Far, half: bool) -> None:
    far(check_dropped, half)


def open_of(uri: str) -> None:
    KEPT["open"] = [pg.connect(uri).grid("cells") for _ in range(2)]
    assert KEPT["open"][0].to_arrow() == cells()


def check_gone(uri: str) -> None:
    read, unread = KEPT.pop("open")
    begun = time.monotonic()
    if KEPT["way"] == "mapped":
        # Tiles that this process has mapped are those of both.
        assert read.to_arrow() == unread.to_arrow() == cells()
    else:
        with pytest.raises(LOST):
            unread.to_arrow()
        with pytest.raises(pg.errors.StorageError, match=uri):
            read.to_arrow()
    with pytest.raises(pg.errors.StorageError, match=uri):
        pg.connect(uri)
    assert time.monotonic() - begun < 30


def read_until_told(uri: str, folder: Path) -> str:
    stream = pg.connect(uri).grid("long").sql("SELECT a FROM self").stream()
    assert next(stream).num_rows > 0
    (folder / "begun").touch()
    until((folder / "killed").exists)
    with pytest.raises(LOST) as caught:
        list(stream)
    return str(caught.value)


def test_of_a_server_that_is_killed_what_was_mapped_stays_and_a_read_ends_in_an_error(
    far: Far, tmp_path: Path
) -> None:
    batch = pa.record_batch({"a": np.arange(100_000)})
    with service() as one:
        connection = pg.connect(one.uri)
        connection.upload(cut(cells()), "cells")
        connection.upload(pa.Table.from_batches([batch] * 64), "long")
        far(open_of, one.uri)
        reading = far.begin(read_until_told, one.uri, tmp_path)
        until((tmp_path / "begun").exists)
        one.kill()
        one.process.wait()
        (tmp_path / "killed").touch()
        assert reading.get(60)
        far(check_gone, one.uri)
