"""Grids of the `__partitioned__` dictionaries of others: every variant that real libraries write, and every fault with its path."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import partgrid as pg

HERE = [("10.0.0.1", 7)]


def table(first: int = 0, rows: int = 4, names: str = "ab") -> pa.Table:
    values = {name: [first + row + 10 * ord(name) for row in range(rows)] for name in names}
    return pa.table(values)


def four() -> dict[str, Any]:
    """Two row bands and two column bands of pyarrow tables, as the draft has it."""
    parts = {
        (i, j): {
            "start": (4 * i, 2 * j),
            "shape": (4, 2),
            "data": table(4 * i, 4, "abcd"[2 * j : 2 * j + 2]),
            "location": list(HERE),
        }
        for i in range(2)
        for j in range(2)
    }
    return {"shape": (8, 4), "partition_tiling": (2, 2), "partitions": parts, "get": lambda x: x}


WHOLE = table(0, 8, "abcd")


class Producer:
    def __init__(self, dictionary: Any) -> None:
        self.__partitioned__ = dictionary


class Method:
    def __partitioned__(self) -> dict[str, Any]:
        return four()


class FirstDraft:
    """As in July 2021: a method, the shape of the partition grid, one location, no `get`."""

    def __partitioned_interface__(self) -> dict[str, Any]:
        found = with_location("10.0.0.1")
        del found["partition_tiling"], found["get"]
        return found | {"shape": (2, 2), "row_labels": None}


class OfDict(dict[str, Any]):
    @property
    def __partitioned__(self) -> dict[str, Any]:
        return dict(self)


def singly(handle: Any) -> Any:
    if not isinstance(handle, pa.Table):
        raise TypeError("one at a time")
    return handle


def listed(handles: Any) -> Any:
    if not isinstance(handles, list):
        raise TypeError("a list, please")
    return tuple(handles)


def with_get(get: Any) -> dict[str, Any]:
    return four() | {"get": get}


def with_location(location: Any) -> dict[str, Any]:
    found = four()
    for entry in found["partitions"].values():
        entry["location"] = location
    return found


def converted(convert: Callable[[pa.Table], Any]) -> dict[str, Any]:
    found = four()
    for entry in found["partitions"].values():
        entry["data"] = convert(entry["data"])
    return found


def without(name: str) -> dict[str, Any]:
    found = four()
    del found[name]
    return found


def reversed_keys() -> dict[str, Any]:
    found = four()
    found["partitions"] = dict(reversed(list(found["partitions"].items())))
    return found


def numpy_numbers() -> dict[str, Any]:
    found = four()
    for entry in found["partitions"].values():
        entry["start"] = list(np.array(entry["start"]))
        entry["shape"] = np.array(entry["shape"])
    found["shape"] = [np.int64(8), np.uint8(4)]
    return found


@pytest.mark.parametrize(
    "given",
    [
        four(),
        Producer(four()),
        Method(),
        FirstDraft(),
        OfDict(four()),
        MappingProxyType(four()),
        with_get(singly),
        with_get(listed),
        without("get"),
        with_location(3),
        with_location([np.int64(0)]),
        with_location("10.0.0.1:8786"),
        with_location(["Alice"]),
        with_location(("10.0.0.1", 5)),
        with_location((("10.0.0.1", 5), ("10.0.0.2", 6, "kDLCPU"))),
        with_location([("10.0.0.1", 5, "kDLCUDA:0")]),
        with_location([("node-7", 5)]),
        with_location([]),
        converted(pa.Table.to_pandas),
        converted(lambda part: part.to_pandas(types_mapper=pd.ArrowDtype)),
        converted(pl.from_arrow),
        converted(lambda part: part.to_batches()[0]),
        converted(pg.from_arrow),
        reversed_keys(),
        numpy_numbers(),
        four() | {"extra": 1},
    ],
)
def test_every_variant_makes_the_same_grid(given: Any) -> None:
    grid = pg.from_partitioned(given)
    assert (grid.shape, grid.tiling) == ((8, 4), (2, 2))
    assert grid.to_arrow().to_pydict() == WHOLE.to_pydict()


def addresses(columns: Any) -> list[int]:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return [chunk.buffers()[1].address for chunk in chunks]


def test_nothing_is_copied() -> None:
    given = four()
    grid = pg.from_partitioned(given)
    for tile in grid.tiles:
        theirs = given["partitions"][tile.position]["data"]
        ours = pa.table(tile)
        assert addresses(ours.columns) == addresses(theirs.columns)


def test_our_own_dictionary_comes_back_over_the_same_memory(flights: pg.Grid) -> None:
    for description in (
        flights,
        flights.__partitioned__,
        flights.partitioned("polars"),
        pickle.loads(pickle.dumps(flights.__partitioned__)),
    ):
        again = pg.from_partitioned(description)
        assert (again.cuts, again.tiling) == (flights.cuts, flights.tiling)
        assert again.to_arrow().schema == flights.to_arrow().schema
        ours, theirs = (pa.table(grid.tile(3))["distance"] for grid in (again, flights))
        assert addresses([ours]) == addresses([theirs])


def test_one_dimension_and_none_are_frames_too() -> None:
    parts = {
        (i,): {"start": (3 * i,), "shape": (3,), "data": table(3 * i, 3, "a"), "location": [i]}
        for i in (0, 1)
    }
    grid = pg.from_partitioned({"shape": (6,), "partition_tiling": (2,), "partitions": parts})
    assert (grid.shape, grid.tiling) == ((6, 1), (2, 1))
    entry = {"start": (), "shape": (), "data": table(5, 1, "a"), "location": [0]}
    scalar = {"shape": (), "partition_tiling": (), "partitions": {(): entry}, "locals": [()]}
    assert pg.from_partitioned(scalar).to_arrow().to_pydict() == {"a": [975]}


def test_a_partition_of_nulls_without_a_type_takes_that_of_the_others() -> None:
    values = [[None, None], ["x", None], [Decimal("1.5"), None], [Decimal("22.25"), None]]
    frames = [pd.DataFrame({"v": pd.Series(part, dtype=object)}) for part in values]
    for parts in (frames[:2], frames[1::-1], frames[2:]):
        described = {
            (number, 0): {
                "start": (2 * number, 0),
                "shape": (2, 1),
                "data": part,
                "location": [number],
            }
            for number, part in enumerate(parts)
        }
        whole = {"shape": (4, 1), "partition_tiling": (2, 1), "partitions": described}
        found = pg.from_partitioned(whole).to_arrow()["v"].to_pylist()
        assert found == [value for part in parts for value in part["v"]]


def test_empty_partitions_are_kept() -> None:
    lengths = [2, 0, 3, 0]
    starts = np.cumsum([0, *lengths])
    parts = {
        (i, 0): {
            "start": (int(start), 0),
            "shape": (rows, 1),
            "data": table(int(start), rows, "a"),
            "location": [i],
        }
        for i, (start, rows) in enumerate(zip(starts, lengths, strict=False))
    }
    for entry in parts.values():
        entry["data"] = entry["data"].cast(pa.schema([("a", pa.int64())]))
    grid = pg.from_partitioned({"shape": (5, 1), "partition_tiling": (4, 1), "partitions": parts})
    assert grid.cuts[0] == (0, 2, 2, 5, 5)


def test_of_an_spmd_program_the_other_ranks_keep_their_outline() -> None:
    given = four() | {"locals": [(1, 0), (1, 1)]}
    for position, entry in given["partitions"].items():
        entry["location"] = [("10.0.0.1", 5 + position[0])]
        if position[0] == 0:
            entry["data"] = None
    grid = pg.from_partitioned(given)
    assert grid.shape == (8, 4)
    assert grid.tile(0, 1).location == [("10.0.0.1", 5)]
    assert grid.locations()[1] == [("10.0.0.1", 5)]
    assert grid.tile(1, 1).to_arrow().to_pydict() == table(4, 4, "cd").to_pydict()
    with pytest.raises(pg.errors.NotLocalError, match=r"10\.0\.0\.1 pid 5"):
        grid.tile(0, 0).to_arrow()
    with pytest.raises(pg.errors.NotLocalError):
        grid.to_arrow()
    given["locals"] = []
    with pytest.raises(pg.errors.NotLocalError, match="columns are not known"):
        pg.from_partitioned(given)


def test_columns_can_be_named() -> None:
    grid = pg.from_partitioned(four(), names=["w", "x", "y", "z"])
    assert grid.columns == ["w", "x", "y", "z"]
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="one name for each of 4 columns, got 1"
    ):
        pg.from_partitioned(four(), names=["w"])


def edited(*path: Any, to: Any = None, drop: bool = False) -> dict[str, Any]:
    """The good dictionary with one place changed."""
    found = copy.copy(four())
    place = found
    for name in path[:-1]:
        place = place[name]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return found


def moved(old: Any, new: Any) -> dict[str, Any]:
    found = four()
    found["partitions"][new] = found["partitions"].pop(old)
    return found


def entry(name: str, to: Any, position: tuple[int, ...] = (1, 0)) -> dict[str, Any]:
    return edited("partitions", position, name, to=to)


def raising(_: Any) -> Any:
    raise RuntimeError("no such luck")


class Raising:
    @property
    def __partitioned__(self) -> Any:
        raise RuntimeError("no such luck")


class FirstDraftWithAGap:
    def __partitioned_interface__(self) -> dict[str, Any]:
        found = FirstDraft().__partitioned_interface__()
        for column in range(2):
            row, width = found["partitions"][1, column]["start"]
            found["partitions"][1, column]["start"] = (row + 1, width)
        return found


class RaisingMethod:
    def __partitioned__(self) -> Any:
        raise RuntimeError("no such luck")


class RaisingMapping(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no such luck")


START, SHAPE = r"partitions\[\(1, 0\)\]\.start: ", r"partitions\[\(1, 0\)\]\.shape: "
PLACE, DATA = r"partitions\[\(1, 0\)\]\.location", r"partitions\[\(1, 0\)\]\.data: "
BROKEN: list[tuple[Any, str]] = [
    (5, "an object with __partitioned__ or its dictionary was expected, got int"),
    (None, "was expected, got NoneType"),
    ([], "was expected, got list"),
    (Producer(None), "__partitioned__: must be a dictionary, got NoneType"),
    (Producer([1]), "__partitioned__: must be a dictionary, got list"),
    (Raising(), "__partitioned__: raised RuntimeError: no such luck"),
    (FirstDraftWithAGap(), r"partitions\[\(1, 0\)\]\.start"),
    (RaisingMethod(), r"__partitioned__\(\): raised RuntimeError: no such luck"),
    (RaisingMapping(four()), "shape: raised RuntimeError: no such luck"),
    ({}, "shape: is missing"),
    (edited("shape", drop=True), "shape: is missing"),
    (edited("partition_tiling", drop=True), "partition_tiling: is missing"),
    (edited("partitions", drop=True), "partitions: is missing"),
    (edited("shape", to=None), "shape: must be a tuple of integers of at least 0, got None"),
    (edited("shape", to="84"), "shape: must be a tuple of integers of at least 0, got '84'"),
    (edited("shape", to=(8.0, 4.0)), r"shape: must be a tuple .* got \(8\.0, 4\.0\)"),
    (edited("shape", to=(-8, 4)), r"shape: must be a tuple .* got \(-8, 4\)"),
    (edited("shape", to=(True, 4)), r"shape: must be a tuple .* got \(True, 4\)"),
    (edited("shape", to=(2**64, 4)), r"shape: must be a tuple .* got \(18446744073709551616, 4\)"),
    (edited("shape", to={8: 4}), "shape: must be a tuple"),
    (edited("shape", to=iter((8, 4))), "shape: must be a tuple"),
    (edited("shape", to=(8,)), r"partition_tiling: must have one number for each of the 1 dim"),
    (
        edited("shape", to=(9, 4)),
        "shape: must be what the partitions add up to, 8 in dimension 0, got 9",
    ),
    (
        edited("shape", to=(8, 3)),
        "shape: must be what the partitions add up to, 4 in dimension 1, got 3",
    ),
    (
        edited("shape", to=(8, 4, 1)),
        r"partition_tiling: must have one number for each of the 3 dim",
    ),
    (edited("partition_tiling", to=(2,)), r"partition_tiling: must have one number .* got \(2,\)"),
    (
        edited("partition_tiling", to=(2, 0)),
        "partition_tiling: must be at least 1 in each dimension, got 0",
    ),
    (
        edited("partition_tiling", to=(3, 2)),
        r"partitions: must have all .* are 6, got 4; \(2, 0\) is missing",
    ),
    (edited("partition_tiling", to=(1, 2)), "partitions: must have all .* are 2, got 4"),
    (
        edited("partition_tiling", to=(4, 1)),
        r"partitions\[\(0, 1\)\]: the key must be a position in the tiling \(4, 1\)",
    ),
    (
        edited("partition_tiling", to=(2**63, 2)),
        r"partitions: must have all .* more than 2\^64, got 4",
    ),
    (edited("partition_tiling", to="22"), "partition_tiling: must be a tuple of integers"),
    (edited("partitions", to=[1, 2]), r"partitions: must be a dictionary, got \[1, 2\]"),
    (edited("partitions", to={}), r"partitions: must have all .* got 0; \(0, 0\) is missing"),
    (edited("partitions", (1, 1), drop=True), r"partitions: .* got 3; \(1, 1\) is missing"),
    (
        moved((1, 0), (5, 0)),
        r"partitions\[\(5, 0\)\]: the key must be a position in the tiling \(2, 2\)",
    ),
    (moved((1, 0), (1, 0, 0)), r"partitions\[\(1, 0, 0\)\]: the key must be a position"),
    (moved((1, 0), 2), r"partitions\[2\]: the key must be a tuple of integers, got 2"),
    (moved((1, 0), "10"), r"partitions\['10'\]: the key must be a tuple of integers, got '10'"),
    (moved((1, 0), (-1, 0)), r"partitions\[\(-1, 0\)\]: must be a tuple of integers of at least 0"),
    (moved((1, 0), (1.0, 0.5)), r"partitions\[\(1\.0, 0\.5\)\]: must be a tuple of integers"),
    (
        edited("partitions", (1, 0), to=None),
        r"partitions\[\(1, 0\)\]: must be a dictionary, got None",
    ),
    (
        edited("partitions", (1, 0), to=[1]),
        r"partitions\[\(1, 0\)\]: must be a dictionary, got \[1\]",
    ),
    (edited("partitions", (1, 0), "start", drop=True), START + "is missing"),
    (edited("partitions", (1, 0), "shape", drop=True), SHAPE + "is missing"),
    (edited("partitions", (1, 0), "data", drop=True), DATA + "is missing"),
    (edited("partitions", (1, 0), "location", drop=True), PLACE + ": is missing"),
    (entry("start", None), START + "must be a tuple of integers of at least 0, got None"),
    (
        entry("start", (4,)),
        START + r"must have one number for each of the 2 dimensions of shape, got \(4,\)",
    ),
    (entry("start", (5, 0)), START + "must be 4 in dimension 0, .* got 5, which leaves a gap"),
    (entry("start", (3, 0)), START + "must be 4 in dimension 0, .* got 3, which leaves an overlap"),
    (entry("start", (4, 1)), START + "must be 0 in dimension 1, .* got 1, which leaves a gap"),
    (entry("shape", (4, -2)), SHAPE + "must be a tuple of integers of at least 0"),
    (entry("shape", (4, 2, 1)), SHAPE + "must have one number for each of the 2 dimensions"),
    (
        entry("shape", (4, 3)),
        SHAPE + r"must have 2 elements in dimension 1, as partitions\[\(0, 0\)\] has, got 3",
    ),
    (
        edited("partitions", (1, 1), "shape", to=(5, 2)),
        r"partitions\[\(1, 1\)\]\.shape: must have 4 elements in dimension 0, as partitions\[\(1, 0\)\] has, got 5",
    ),
    (entry("shape", (2**63, 2)), "partitions"),
    (entry("location", None), PLACE + ": must be a list, got None"),
    (entry("location", 1.5), PLACE + r": must be a list, got 1\.5"),
    (entry("location", [None]), PLACE + r"\[0\]: must be \(IP, PID\) or"),
    (entry("location", [("10.0.0.1",)]), PLACE + r"\[0\]: must be \(IP, PID\) or"),
    (entry("location", [("10.0.0.1", "7")]), PLACE + r"\[0\]: must be \(IP, PID\) or"),
    (entry("location", [("10.0.0.1", -7)]), PLACE + r"\[0\]: must be \(IP, PID\) or"),
    (entry("location", [(7, "10.0.0.1")]), PLACE + r"\[0\]: must be \(IP, PID\) or"),
    (
        entry("location", [("10.0.0.1", 7, "cuda")]),
        PLACE + r"\[0\]\[2\]: a device must read like 'kDLCPU'",
    ),
    (entry("location", [("10.0.0.1", 7, 2)]), PLACE + r"\[0\]: must be \(IP, PID\) or"),
    (entry("data", None), DATA + "is None, although the partition should be here"),
    (entry("data", 5) | {"get": None}, "get: must be callable, got None"),
    (with_get("ray"), "get: must be callable, got 'ray'"),
    (with_get(raising), r"get\(partitions\[\(0, 0\)\]\.data\): raised RuntimeError: no such luck"),
    (
        with_get(lambda _: None),
        r"partitions\[\(0, 0\)\]\.data: must be a frame or an array, got NoneType",
    ),
    (with_get(lambda _: 5), r"partitions\[\(0, 0\)\]\.data: must be a frame or an array, got int"),
    (with_get(lambda handles: [5 for _ in handles]), r"data: must be a frame or an array, got int"),
    (
        with_get(lambda _: table(0, 3, "ab")),
        r"partitions\[\(0, 0\)\]\.data: the entry says 4 rows and 2 columns, the data has 3 and 2",
    ),
    (
        entry("data", table(4, 3, "ab")),
        DATA + "the entry says 4 rows and 2 columns, the data has 3 and 2",
    ),
    (
        entry("data", table(4, 4, "abc")),
        DATA + "the entry says 4 rows and 2 columns, the data has 4 and 3",
    ),
    (
        entry("data", table(4, 4, "ax")),
        DATA + r"all data must be of the same type: .* has a column `b` Int64, this has `x` Int64",
    ),
    (
        entry("data", table(4, 4, "ab").cast(pa.schema([("a", pa.int64()), ("b", pa.float64())]))),
        DATA + "all data must be of the same type",
    ),
    (entry("data", {"a": 1}), DATA + "must be a frame or an array, got dict"),
    (
        entry("data", pd.DataFrame({"a": [1, 2, 3, 4], "b": [1, "x", 2.5, 3]})),
        DATA + "the values of a column must be of one type",
    ),
    (
        entry("data", pd.DataFrame({"a": [1] * 4, "b": [1] * 4}, index=list("wxyz"))),
        DATA + "the rows have labels",
    ),
    (
        edited("locals", to=[(0, 0), (7, 7)]),
        r"locals\[1\]: must be a position of partitions, got \(7, 7\)",
    ),
    (edited("locals", to=5), "locals: must be a list, got 5"),
    (edited("locals", to=[0]), r"locals\[0\]: must be a tuple of integers"),
    (
        edited("partitions", (0, 1), "data", to=table(0, 4, "ab")),
        r"partitions\[\(1, 1\)\]\.data: all data must be of the same type",
    ),
]


@pytest.mark.parametrize(("given", "text"), BROKEN)
def test_a_broken_dictionary_is_refused_with_the_path(given: Any, text: str) -> None:
    with pytest.raises(pg.errors.ProtocolError, match=text):
        pg.from_partitioned(given)


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 60


def test_two_column_bands_with_one_name_are_refused() -> None:
    given = four()
    for i in range(2):
        given["partitions"][(i, 1)]["data"] = table(4 * i, 4, "ab")
    with pytest.raises(pg.errors.ProtocolError, match="two column bands have a column `a`"):
        pg.from_partitioned(given)
    assert pg.from_partitioned(given, names=list("abcd")).columns == list("abcd")


def test_the_exception_of_get_is_the_cause_and_interrupts_pass() -> None:
    with pytest.raises(pg.errors.ProtocolError) as caught:
        pg.from_partitioned(with_get(raising))
    assert isinstance(caught.value.__cause__, RuntimeError)

    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pg.from_partitioned(with_get(interrupted))


def test_a_get_that_hangs_ends_with_the_timeout() -> None:
    start = time.monotonic()
    with pytest.raises(pg.errors.ProtocolError, match="get: took longer than timeout"):
        pg.from_partitioned(with_get(lambda _: time.sleep(5)), timeout=0.2)
    assert time.monotonic() - start < 3
    assert pg.from_partitioned(four(), timeout=20).shape == (8, 4)


def test_more_than_two_dimensions_are_no_frame() -> None:
    part = {"start": (0, 0, 0), "shape": (1, 1, 1), "data": table(0, 1, "a"), "location": []}
    cube = {"shape": (1, 1, 1), "partition_tiling": (1, 1, 1), "partitions": {(0, 0, 0): part}}
    with pytest.raises(pg.errors.UnsupportedError, match="at most 2 dimensions"):
        pg.from_partitioned(cube)


def test_a_hundred_thousand_partitions_are_read_in_linear_time() -> None:
    def seconds(count: int) -> float:
        grid = pg.from_arrow(pa.Table.from_batches([pa.record_batch({"a": [1]})] * count))
        description = grid.__partitioned__
        start = time.monotonic()
        assert pg.from_partitioned(description).tiling == (count, 1)
        return time.monotonic() - start

    # Quadratic time would be a hundred times as much.
    few = max(seconds(2_000), 0.01)
    assert seconds(20_000) < 40 * few


def of_arrays(convert: Callable[[Any], Any], dtype: Any = np.float64) -> dict[str, Any]:
    """Two row bands and two column bands of arrays."""
    whole = np.arange(24, dtype=dtype).reshape(6, 4)
    parts = {
        (i, j): {
            "start": (3 * i, 2 * j),
            "shape": (3, 2),
            "data": convert(np.array(whole[3 * i : 3 * i + 3, 2 * j : 2 * j + 2])),
            "location": [i],
        }
        for i in range(2)
        for j in range(2)
    }
    return {"shape": (6, 4), "partition_tiling": (2, 2), "partitions": parts, "get": lambda x: x}


class OnlyDlpack:
    """What tensors of other libraries offer."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._array.__dlpack_device__()
        return device


@pytest.mark.parametrize(
    "convert",
    [lambda array: array, np.asfortranarray, lambda array: array[::-1][::-1], OnlyDlpack],
)
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.float16, ">i4"])
def test_arrays_become_columns(convert: Callable[[Any], Any], dtype: Any) -> None:
    if convert is OnlyDlpack and dtype == ">i4":
        dtype = np.int64
    grid = pg.from_partitioned(of_arrays(convert, dtype))
    assert grid.columns == ["column_0", "column_1", "column_2", "column_3"]
    assert grid.tiling == (2, 2)
    assert (grid.to_numpy() == np.arange(24).reshape(6, 4)).all()


def test_columns_of_arrays_in_fortran_order_are_shared() -> None:
    given = of_arrays(np.asfortranarray)
    grid = pg.from_partitioned(given)
    for tile in grid.tiles:
        theirs = given["partitions"][tile.position]["data"]
        assert addresses([pa.table(tile)[0]]) == [theirs.ctypes.data]


@pytest.mark.parametrize(
    "wrong",
    [
        np.ma.masked_array([[1.0, 2.0]] * 3, mask=[[True, False]] * 3),
        np.array([[1j, 2]] * 3),
        np.array([["a", 1]] * 3, dtype=object),
        np.zeros((3, 2, 1)),
        np.zeros((2, 3)),
        np.float64(5),
    ],
)
def test_arrays_that_no_columns_hold_are_refused_with_the_path(wrong: Any) -> None:
    given = of_arrays(lambda array: array)
    given["partitions"][(1, 1)]["data"] = wrong
    with pytest.raises(pg.errors.ProtocolError, match=r"partitions\[\(1, 1\)\]\.data: "):
        pg.from_partitioned(given)


def test_an_interrupt_in_get_is_no_reason_to_call_it_again() -> None:
    calls = []

    def get(handles: Any) -> Any:
        calls.append(handles)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return handles

    for timeout in (None, 5.0):
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            pg.from_partitioned(with_get(get), timeout=timeout)
        assert len(calls) == 1


def test_a_get_that_calls_itself_ends() -> None:
    found = four()
    found["get"] = lambda _: pg.from_partitioned(found)
    with pytest.raises(pg.errors.ProtocolError, match="get"):
        pg.from_partitioned(found)


def test_process_ids_of_any_size_as_in_the_examples_of_the_draft() -> None:
    found = with_location([("1.1.1.2", 9174756892)]) | {"locals": [(0, 0), (1, 0), (0, 1)]}
    grid = pg.from_partitioned(found)
    assert grid.__partitioned__["partitions"][1, 1]["location"] == [("1.1.1.2", 9174756892)]


def test_an_array_without_dimensions_is_a_frame_of_one_value() -> None:
    part = {"start": (), "shape": (), "data": np.array(5.5), "location": [0]}
    grid = pg.from_partitioned(
        {"shape": (), "partition_tiling": (), "partitions": {(): part}, "get": lambda x: x}
    )
    assert grid.shape == (1, 1)
    assert grid.to_arrow().to_pydict() == {"column_0": [5.5]}
