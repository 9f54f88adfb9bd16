"""`__partitioned__` to the letter of the draft, and handles that travel."""

from __future__ import annotations

import gc
import ipaddress
import os
import pickle
import subprocess
import sys
from typing import Any

import cloudpickle
import pandas as pd
import pyarrow as pa
import pytest

import partgrid as pg


@pytest.fixture
def grid() -> pg.Grid:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    columns = [[[1, 2, 3], ["u", "v", "w"]], [[4, 5], ["x", None]], [[], []]]
    batches = [pa.record_batch(part, schema=schema) for part in columns]
    return pg.from_arrow(pa.RecordBatchReader.from_batches(schema, batches))


def test_the_keys_are_those_of_the_draft(grid: pg.Grid) -> None:
    description = grid.__partitioned__
    assert type(description) is dict
    assert set(description) == {
        "shape",
        "partition_tiling",
        "partitions",
        "get",
        "schema",
        "version",
    }
    assert description["shape"] == (5, 2)
    assert description["partition_tiling"] == (3, 1)
    assert list(description["partitions"]) == [(0, 0), (1, 0), (2, 0)]
    for entry in description["partitions"].values():
        assert set(entry) == {"start", "shape", "data", "location"}


def test_numbers_are_plain_ints_in_tuples(grid: pg.Grid) -> None:
    def check(value: Any) -> None:
        assert type(value) is tuple
        assert all(type(number) is int for number in value)

    description = grid.__partitioned__
    check(description["shape"])
    check(description["partition_tiling"])
    for position, entry in description["partitions"].items():
        check(position)
        check(entry["start"])
        check(entry["shape"])


def test_the_partitions_cover_the_frame_once(flights: pg.Grid) -> None:
    description = flights.__partitioned__
    covered = 0
    for _, entry in sorted(description["partitions"].items()):
        assert entry["start"] == (covered, 0)
        assert entry["shape"][1] == 19
        covered += entry["shape"][0]
    assert covered == description["shape"][0] == 336776


def test_the_location_is_this_process_under_a_real_address(grid: pg.Grid) -> None:
    for entry in grid.__partitioned__["partitions"].values():
        [(address, process)] = entry["location"]
        ipaddress.ip_address(address)
        assert type(address) is str
        assert process == os.getpid()


def test_the_address_can_be_set() -> None:
    code = (
        "import partgrid as pg, pyarrow as pa;"
        "g = pg.from_arrow(pa.table({'a': [1]}));"
        "print(g.__partitioned__['partitions'][(0, 0)]['location'][0][0])"
    )

    def run(host: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PARTGRID_HOST": host}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert run("10.1.2.3").stdout.strip() == "10.1.2.3"
    refused = run("my-machine")
    assert 'PARTGRID_HOST must hold an IP address, got "my-machine"' in refused.stderr


def test_get_takes_one_handle_a_list_a_tuple_and_nothing(grid: pg.Grid) -> None:
    description = grid.__partitioned__
    get, parts = description["get"], description["partitions"]
    first, second = parts[(0, 0)]["data"], parts[(1, 0)]["data"]
    assert isinstance(get(first), pd.DataFrame)
    assert get(first)["a"].tolist() == [1, 2, 3]
    frames = get([second, first, second])
    assert type(frames) is list
    assert [frame["a"].tolist() for frame in frames] == [[4, 5], [1, 2, 3], [4, 5]]
    assert type(get((first,))) is tuple
    assert get([]) == []
    assert get(()) == ()
    assert len(get(parts[(2, 0)]["data"])) == 0


def test_get_refuses_other_things(grid: pg.Grid) -> None:
    get = grid.__partitioned__["get"]
    for wrong in [None, 5, "x", [None], {"a": 1}]:
        with pytest.raises(pg.errors.ProtocolError, match="a Handle, or a list or tuple"):
            get(wrong)


def test_get_is_importable_and_every_part_pickles_with_the_standard_library(grid: pg.Grid) -> None:
    description = grid.__partitioned__
    assert pickle.loads(pickle.dumps(description["get"])) == pg.get
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(description, protocol=protocol))
        assert copy == description
        handle = copy["partitions"][(1, 0)]["data"]
        assert copy["get"](handle)["b"].tolist()[0] == "x"


def test_each_access_gives_a_fresh_dictionary_with_the_same_handles(grid: pg.Grid) -> None:
    first, second = grid.__partitioned__, grid.__partitioned__
    assert first == second
    first["partitions"][(0, 0)]["shape"] = (9, 9)
    del first["shape"]
    assert grid.__partitioned__ == second
    ours, theirs = first["partitions"][(1, 0)]["data"], second["partitions"][(1, 0)]["data"]
    assert ours is theirs
    assert len({ours, theirs}) == 1


def test_a_pickled_handle_is_small() -> None:
    grid = pg.from_arrow(pa.table({"a": range(1_000_000)}))
    handle = grid.__partitioned__["partitions"][(0, 0)]["data"]
    assert len(pickle.dumps(handle)) < 300


def test_the_handle_keeps_the_grid_alive_and_a_pickled_one_does_not() -> None:
    handle = pg.from_arrow(pa.table({"a": [1]})).__partitioned__["partitions"][(0, 0)]["data"]
    pickled = pickle.dumps(handle)
    assert len(pg.get(handle)) == 1
    del handle
    with pytest.raises(pg.errors.PartitionLostError, match="dropped"):
        pg.get(pickle.loads(pickled))


def test_a_handle_opens_in_another_process_and_one_of_another_host_says_where_its_tile_lives(
    grid: pg.Grid,
) -> None:
    handle = grid.__partitioned__["partitions"][(1, 0)]["data"]
    _, [parts] = handle.__reduce__()
    # Nobody on this host has this incarnation.
    foreign = pg.Handle._from_parts((*parts[:2], 77 << 64, "192.0.2.99", 4711, parts[5]))
    code = (
        "import pickle, sys, partgrid as pg\n"
        "handle, foreign = pickle.loads(sys.stdin.buffer.read())\n"
        "print(pg.get(handle)['a'].tolist(), handle.tile().location)\n"
        "try:\n    pg.get(foreign)\n"
        "except pg.errors.NotLocalError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", code]
    sent = pickle.dumps((handle, foreign))
    output = subprocess.run(command, input=sent, capture_output=True, check=True).stdout.decode()
    assert output.startswith("[4, 5] [")
    assert f"{os.getpid()})]" in output
    assert "192.0.2.99 pid 4711" in output


def test_cloudpickle_carries_handles_and_dictionaries_but_no_data(grid: pg.Grid) -> None:
    described = grid.__partitioned__
    handle = described["partitions"][(1, 0)]["data"]
    assert cloudpickle.loads(cloudpickle.dumps(described)) == described
    # As Ray and Dask send functions: the handle lies within a closure.
    opened = cloudpickle.loads(cloudpickle.dumps(lambda: handle.tile().to_arrow().to_pydict()))
    assert opened() == {"a": [4, 5], "b": ["x", None]}
    sent = cloudpickle.dumps((handle, described))
    code = (
        "import cloudpickle, sys, partgrid as pg\n"
        "handle, described = cloudpickle.loads(sys.stdin.buffer.read())\n"
        "assert described['partitions'][(1, 0)]['data'] == handle\n"
        "print(handle.tile().to_arrow().to_pydict(), described['get'](handle)['a'].tolist())\n"
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, input=sent, capture_output=True, check=True).stdout.decode()
    assert output == "{'a': [4, 5], 'b': ['x', None]} [4, 5]\n"


def test_what_cloudpickle_carries_does_not_keep_the_grid_alive() -> None:
    handle = pg.from_arrow(pa.table({"a": [1]})).__partitioned__["partitions"][(0, 0)]["data"]
    sent = cloudpickle.dumps({"handle": handle})
    assert cloudpickle.loads(sent)["handle"].tile().shape == (1, 1)
    del handle
    gc.collect()
    with pytest.raises(pg.errors.PartitionLostError, match="dropped"):
        cloudpickle.loads(sent)["handle"].tile()


def test_a_missing_frame_library_is_named(grid: pg.Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = grid.__partitioned__["partitions"][(0, 0)]["data"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="hint: pip install pandas"):
        pg.get(handle)
    assert hasattr(grid, "__partitioned__")


def test_a_hundred_thousand_tiles_are_described_in_linear_time() -> None:
    batches = [pa.record_batch({"a": [1]})] * 100_000
    grid = pg.from_arrow(pa.Table.from_batches(batches))
    description = grid.__partitioned__
    assert description["partition_tiling"] == (100_000, 1)
    assert description["partitions"][(99_999, 0)]["start"] == (99_999, 0)


@pytest.mark.parametrize("data", ["pandas", "polars", "pyarrow", "arro3", "numpy", "tile"])
def test_get_gives_data_of_the_library_that_was_asked_for(data: str) -> None:
    grid = pg.from_arrow(pa.table({"a": [1, 2], "b": [3, 4]}))
    described = grid.partitioned(data).__partitioned__
    get = pickle.loads(pickle.dumps(described["get"]))
    assert (get, get.data, repr(get)) == (pg.Get(data), data, f'Get("{data}")')
    [first] = get([described["partitions"][(0, 0)]["data"]])
    module = type(first).__module__.split(".")[0]
    assert module == {"tile": "partgrid"}.get(data, data)
    assert first.shape == (2, 2)
    if data != "numpy":
        assert list(pa.table(first)["b"].to_pylist()) == [3, 4]
    else:
        assert first.tolist() == [[1, 3], [2, 4]]


def test_get_of_another_library_is_refused(grid: pg.Grid) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match='"pandas", "polars", .* got "dask"'):
        grid.partitioned("dask")
    assert repr(grid.partitioned("tile")).startswith('Partitioned("tile") of Grid of 5 rows')


def test_the_schema_travels_with_the_dictionary(flights: pg.Grid) -> None:
    described = pickle.loads(pickle.dumps(flights.__partitioned__))
    schema = described["schema"]
    assert pa.schema(schema).equals(flights.schema, check_metadata=True)
    assert (schema.names, len(schema), schema.types[0]) == (flights.columns, 19, "Int16")
    assert schema == flights.__partitioned__["schema"]
    assert described["version"] == "2022-01-27"
