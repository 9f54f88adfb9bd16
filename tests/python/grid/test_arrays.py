"""Numbers of tiles as arrays: buffers, numpy, DLPack, the Arrow C Device interface; addresses, copies, refusals."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import nanoarrow as na
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from arro3.core import RecordBatch as Arro3RecordBatch

import partgrid as pg
from conftest import DATA

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS += ["float16", "float32", "float64"]


def address_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def column(values: pa.Array) -> pg.Array:
    return pg.from_arrow(pa.table({"x": values})).tile(0).column("x")


@pytest.fixture(scope="module")
def dense() -> pg.Grid:
    """Four columns of the weather in one allocation, one tile."""
    names = ["temp", "dewp", "humid", "wind_speed"]
    return pg.read_parquet(DATA / "weather.parquet", columns=names, dense=names)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("offset", [0, 3])
def test_every_way_out_of_a_column_is_its_own_memory(name: str, offset: int) -> None:
    values = pa.array(np.arange(10).astype(name)).slice(offset)
    array = column(values)
    address = values.buffers()[1].address + offset * np.dtype(name).itemsize
    assert (array.address, array.shape, array.nbytes) == (
        address,
        (10 - offset,),
        (10 - offset) * np.dtype(name).itemsize,
    )
    assert (np.dtype(array.dtype), array.strides) == (np.dtype(name), (np.dtype(name).itemsize,))
    assert len(array) == 10 - offset
    assert repr(array) == f"Array ({10 - offset},) of {name}, read-only"
    for view in (
        np.asarray(array),
        np.asarray(memoryview(array)),
        np.from_dlpack(array),
        np.array(array, copy=False),
        array.__array__(),
        np.ndarray((10 - offset,), name, array),
    ):
        assert address_of(view) == address
        assert view.dtype == np.dtype(name)
        assert view.tolist() == values.to_pylist()
        assert not view.flags.writeable
    interface = array.__array_interface__
    assert (interface["version"], interface["data"]) == (3, (address, True))
    assert np.dtype(interface["typestr"]) == np.dtype(name)


def test_a_dense_tile_and_its_slices_are_strided_arrays(dense: pg.Grid) -> None:
    grid = dense[100:200]
    table = grid.to_arrow()
    array = grid.tile(0).array(fill_null=float("nan"))
    assert array.shape == (100, 4)
    whole = pg.read_parquet(DATA / "flights", columns=["hour", "minute"], dense=["hour", "minute"])
    for part in (whole.tile(3), whole[60_000:60_100].tile(0)):
        array, batch = part.array(), part.to_arrow()
        first = batch["hour"].buffers()[1].address + batch["hour"].offset
        stride = batch["minute"].buffers()[1].address - batch["hour"].buffers()[1].address
        assert (array.address, array.strides) == (first, (1, stride))
        for view in (np.asarray(array), np.from_dlpack(array), np.asarray(memoryview(array))):
            assert address_of(view) == first
            assert view.strides == (1, stride)
            assert view.shape == (len(part), 2)
            for number, name in enumerate(["hour", "minute"]):
                assert view[:, number].tolist() == batch[name].to_pylist()
    assert table.num_rows == 100


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 100])
def test_copies_of_strided_arrays_lie_without_gaps(dense: pg.Grid, rows: int) -> None:
    array = dense[50 : 50 + rows].tile(0).array()
    view = np.asarray(array)
    assert view.shape == (rows, 4)
    for copied in (np.from_dlpack(array, copy=True), np.array(array), array.__array__(copy=True)):
        assert copied.flags.writeable
        assert copied.flags.f_contiguous
        assert copied.nbytes == array.nbytes == rows * 32
        assert np.array_equal(copied, view)


def test_memoryviews_obey_the_flags_of_the_consumer(dense: pg.Grid) -> None:
    array = dense[:3][["temp", "dewp"]].tile(0).array()
    view = memoryview(array)
    assert (view.ndim, view.shape, view.format, view.readonly) == (2, (3, 2), "d", True)
    assert (view.contiguous, view.c_contiguous, view.f_contiguous) == (False, False, False)
    assert view.tolist() == np.asarray(array).tolist()
    assert bytes(view) == np.asarray(array).tobytes()
    flags = {
        0x0: "the array has strides, which this consumer does not take",
        0x8: "the array has strides, which this consumer does not take",
        0x1: "Arrow memory is read-only",
        0x38: "the array does not lie in C order without gaps",
        0x58: "the array does not lie in Fortran order without gaps",
        0x98: "the array has gaps between its columns",
    }
    for flag, text in flags.items():
        with pytest.raises(BufferError, match=text) as caught:
            buffer_of(array, flag)
        _, remedy = str(caught.value).split("\nhint: copy it: ")
        copied = eval(remedy, {"numpy": np, "array": array})
        assert copied.tolist() == view.tolist()
        assert buffer_of(copied, flag)[1] == 48, remedy
    for flag in (0x18, 0x1C):
        assert buffer_of(array, flag) == (2, 48)
    one = dense[:50].tile(0).column("humid")
    for flag in (0x0, 0x8, 0x18, 0x38, 0x58, 0x98):
        assert buffer_of(one, flag) == (1, one.nbytes)


def test_a_single_column_is_contiguous_in_two_dimensions() -> None:
    tile = pg.from_arrow(pa.table({"x": [1.0, 2.0, 3.0]})).tile(0)
    view = memoryview(tile.array())
    assert (view.shape, view.c_contiguous, view.f_contiguous) == ((3, 1), True, True)
    assert buffer_of(tile.array(), 0x0) == (1, 24)


@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("dtype", [None, "int32", "float64"])
def test_array_copies_as_numpy_2_says(copy: bool | None, dtype: str | None) -> None:
    array = column(pa.array([1, 2, 3], type=pa.int32()))
    if copy is False and dtype == "float64":
        with pytest.raises(ValueError, match="int32 cannot become float64 without a copy"):
            array.__array__(dtype, copy=copy)
        return
    result = array.__array__(dtype, copy=copy)
    shared = copy is not True and dtype != "float64"
    assert (address_of(result) == array.address) is shared
    assert result.flags.writeable is not shared
    assert result.dtype == np.dtype(dtype or "int32")
    assert result.tolist() == [1, 2, 3]


def test_dlpack_capsules_are_named_and_refused_as_the_array_api_says() -> None:
    array = column(pa.array([1, 2, 3]))
    assert array.__dlpack_device__() == (1, 0)
    assert '"dltensor_versioned"' in repr(array.__dlpack__(max_version=(1, 0)))
    assert '"dltensor_versioned"' in repr(array.__dlpack__(max_version=(1, 3), dl_device=(1, 0)))
    assert '"dltensor"' in repr(array.__dlpack__(copy=True))
    old = "Arrow memory is read-only, which DLPack can say since version 1.0, and the consumer takes an older one"
    refusals: list[tuple[dict[str, Any], str]] = [
        ({}, old + "\nhint: pass copy=True, or max_version=(1, 0) where the consumer takes it"),
        ({"max_version": (0, 8), "copy": False}, old),
        ({"max_version": (1, 0), "stream": 1}, "stream must be None for memory of the CPU, got 1"),
        ({"dl_device": (2, 1)}, "dl_device must be (1, 0), the CPU, got (2, 1)"),
    ]
    for arguments, text in refusals:
        with pytest.raises(BufferError) as caught:
            array.__dlpack__(**arguments)
        assert str(caught.value).startswith(text)


def test_dlpack_copies_only_on_request() -> None:
    array = column(pa.array([1, 2, 3]))
    assert address_of(np.from_dlpack(array, copy=False)) == array.address
    copied = np.from_dlpack(array, copy=True)
    assert address_of(copied) != array.address
    assert copied.flags.writeable
    copied[0] = 9
    assert np.asarray(array).tolist() == [1, 2, 3]


def test_capsules_that_nobody_takes_and_views_that_outlive_the_grid_keep_nothing_too_long() -> None:
    values = np.arange(1000.0)
    for _ in range(20):
        array = pg.from_numpy(values).tile(0).column("column_0")
        array.__dlpack__(max_version=(1, 0))
        array.__dlpack__(copy=True)
        view = np.from_dlpack(array)
        del array
        assert view.sum() == values.sum()
        again = pg.from_dlpack(view)
        assert again.tile(0).column("column_0").address == address_of(values)


def test_nulls_are_refused_or_filled(dense: pg.Grid) -> None:
    values = pa.array([1, None, 3], type=pa.int16())
    tile = pg.from_arrow(pa.table({"x": values})).tile(0)
    for read in (lambda: tile.column("x"), tile.array):
        with pytest.raises(pg.errors.InvalidDataError) as caught:
            read()
        assert str(caught.value) == (
            "an array has no nulls, the column has 1 (column: x)\n"
            "hint: give a value for them with fill_null=, or filter them out in SQL"
        )
    assert np.asarray(tile.column("x", fill_null=-1)).tolist() == [1, -1, 3]
    assert np.asarray(tile.array(fill_null=np.float32(7))).tolist() == [[1], [7], [3]]
    whole = pg.from_arrow(pa.table({"x": values.slice(2)})).tile(0)
    assert whole.column("x", fill_null=0).address == values.buffers()[1].address + 4
    for fill, text in [(0.5, "0.5"), (70_000, "70000"), (float("nan"), "NaN")]:
        with pytest.raises(pg.errors.InvalidArgumentError) as refused:
            whole.column("x", fill_null=fill)
        assert f"fill_null must be a value of int16, got {text}" in str(refused.value)
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="fill_null must be an int or a float, got"
    ):
        tile.column("x", fill_null="0")
    filled = np.asarray(dense.tile(0).array(fill_null=float("nan")))
    assert np.isnan(filled).sum() == sum(each.null_count for each in dense.to_arrow().columns)


def test_what_makes_no_array_is_refused_with_the_remedy() -> None:
    tile = pg.from_arrow(pa.table({"a": [1, 2], "b": [1.0, 2.0], "s": ["x", "y"]})).tile(0)
    with pytest.raises(pg.errors.UnsupportedError) as caught:
        tile.column("s")
    assert str(caught.value) == (
        "an array holds int8 to int64, uint8 to uint64 or float16 to float64 without copying, the column is Utf8"
        " (column: s)\nhint: cast to BIGINT or DOUBLE in SQL if the texts are numbers"
    )
    with pytest.raises(KeyError, match="no column `c`"):
        tile.column("c")
    two = pg.from_arrow(pa.table({"a": [1, 2], "b": [1.0, 2.0]})).tile(0)
    with pytest.raises(pg.errors.UnsupportedError) as caught:
        two.array()
    assert str(caught.value) == (
        "an array over the memory of a tile wants columns of one type at one distance in one allocation, got columns"
        " of int64 and float64\nhint: load the columns with dense=, or copy them with to_numpy()"
    )
    same = pg.from_arrow(pa.table({"a": [1, 2], "b": [1, 2]})).tile(0)
    with pytest.raises(
        pg.errors.UnsupportedError, match="uneven distances or in several allocations"
    ):
        same.array()


def test_a_lazy_tile_reads_the_one_column() -> None:
    lazy = pg.read_parquet(DATA / "flights", lazy=True)
    array = lazy.tile(2).column("distance")
    assert (
        np.asarray(array).sum()
        == np.asarray(pg.read_parquet(DATA / "flights").tile(2).column("distance")).sum()
    )


def test_consumers_of_the_device_interface_share_the_memory(dense: pg.Grid) -> None:
    tile = dense.tile(0)
    ours = tile.to_arrow()["humid"].buffers()[1].address
    schema, array = tile.__arrow_c_device_array__()
    assert '"arrow_schema"' in repr(schema)
    assert '"arrow_device_array"' in repr(array)
    assert pa.record_batch(OnlyDevice(tile)).column("humid").buffers()[1].address == ours
    assert pa.record_batch(tile).column("humid").buffers()[1].address == ours
    assert na.c_array(tile).n_children == 4
    arro3 = Arro3RecordBatch.from_arrow(tile)
    assert pa.record_batch(arro3).column("humid").buffers()[1].address == ours
    with pytest.raises(
        NotImplementedError, match="knows no argument device, only requested_schema"
    ):
        tile.__arrow_c_device_array__(device=1)
    tile.__arrow_c_device_array__(device=None)
    with pytest.raises(NotImplementedError, match="knows no argument stream"):
        dense.__arrow_c_device_stream__(stream=1)
    assert '"arrow_device_array_stream"' in repr(dense.__arrow_c_device_stream__())


def test_a_requested_schema_is_met_by_the_device_method() -> None:
    tile = pg.from_arrow(pa.table({"a": [1, 2]})).tile(0)
    wanted = pa.schema({"a": pa.float64()})
    batch = pa.record_batch(tile, schema=wanted)
    assert batch.schema == wanted
    assert batch["a"].to_pylist() == [1.0, 2.0]


def test_from_arrow_takes_objects_with_device_methods_only() -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    address = batch["a"].buffers()[1].address
    grid = pg.from_arrow(OnlyDevice(batch))
    assert grid.to_arrow()["a"].chunk(0).buffers()[1].address == address
    again = pg.from_arrow(OnlyDeviceStream(grid))
    assert again.to_arrow()["a"].chunk(0).buffers()[1].address == address
    with pytest.raises(
        pg.errors.ProtocolError, match='a PyCapsule named "arrow_device_array" was expected'
    ):
        pg.from_arrow(WrongCapsules(batch))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_numpy_column_is_shared_both_ways(name: str) -> None:
    values = np.arange(100).astype(name)
    grid = pg.from_numpy(values)
    assert (grid.columns, grid.shape) == (["column_0"], (100, 1))
    array = grid.tile(0).column("column_0")
    assert array.address == address_of(values)
    back = grid.to_numpy()
    assert address_of(back) == address_of(values)
    assert back.dtype == np.dtype(name)
    assert back[:, 0].tolist() == values.tolist()
    assert pg.from_dlpack(values).tile(0).column("column_0").address == address_of(values)


def test_columns_in_fortran_order_are_shared_and_others_copied() -> None:
    fortran = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    for make in (pg.from_numpy, pg.from_dlpack):
        grid = make(fortran, names=["a", "b", "c"])
        assert grid.columns == ["a", "b", "c"]
        array = grid.tile(0).array()
        assert (array.address, array.strides) == (address_of(fortran), (8, 32))
        assert address_of(grid.to_numpy()) == address_of(fortran)
        assert address_of(grid[1:3].to_numpy(copy=False)) == address_of(fortran) + 8
        copied = make(np.ascontiguousarray(fortran))
        assert copied.to_numpy().tolist() == fortran.tolist()
        assert make(fortran[::-1]).to_numpy().tolist() == fortran[::-1].tolist()
        assert make(fortran[::2, ::2]).to_numpy().tolist() == fortran[::2, ::2].tolist()


def test_random_arrays_come_back_as_they_were() -> None:
    generator = random.Random(7)
    for _ in range(300):
        name = generator.choice(NUMBERS)
        shape = (generator.randrange(6), generator.randrange(1, 5))
        array = np.arange(shape[0] * shape[1] * 4).astype(name).reshape(shape[0] * 2, shape[1] * 2)
        array = np.asfortranarray(array) if generator.random() < 0.5 else array
        rows = slice(generator.randrange(2), None, generator.choice([1, 2, -1]))
        part = array[rows, :: generator.choice([1, 2, -1])]
        order: Any = generator.choice(["C", "F"])
        for make in (pg.from_numpy, pg.from_dlpack):
            grid = make(part)
            start = generator.randrange(part.shape[0] + 1)
            back = grid[start:].to_numpy(order=order, copy=generator.choice([None, True]))
            assert back.dtype == part.dtype
            assert np.array_equal(back, part[start:])
            tile = grid[start:].tile(0)
            for number in range(part.shape[1]):
                one = np.asarray(tile.column(f"column_{number}"))
                assert np.array_equal(one, part[start:, number])


def test_times_texts_and_booleans_become_columns() -> None:
    nat = np.datetime64("NaT")
    for unit in ["s", "ms", "us", "ns"]:
        times = np.array(["2020-01-01", nat], dtype=f"datetime64[{unit}]")
        table = pg.from_numpy(times).to_arrow()["column_0"]
        assert table.type == pa.timestamp(unit)
        assert table.null_count == 1
        assert table.chunk(0).buffers()[1].address == address_of(times)
        spans = times - times[0]
        assert pg.from_numpy(spans).to_arrow()["column_0"].combine_chunks().equals(pa.array(spans))
    days = np.array(["2020-01-01", nat, "1950-05-05"], dtype="datetime64[D]")
    assert pg.from_numpy(days).to_arrow()["column_0"].combine_chunks().equals(pa.array(days))
    texts = np.array(["", "aé", "x\0y", "\U0001f600"])
    assert pg.from_numpy(texts).to_arrow()["column_0"].to_pylist() == texts.tolist()
    flags = np.array([True, False, True])
    for make in (pg.from_numpy, pg.from_dlpack):
        assert make(flags).to_arrow()["column_0"].to_pylist() == [True, False, True]
    with pytest.raises(
        pg.errors.InvalidDataError, match="the date of row 0 must be within 32-bit days"
    ):
        pg.from_numpy(np.array([2**40]).view("datetime64[D]"))
    with pytest.raises(pg.errors.InvalidDataError, match="code point 0xd800, which is no unicode"):
        pg.from_numpy(np.array([0xD800], dtype="u4").view("U1"))


def test_records_become_columns_and_foreign_byte_order_is_changed() -> None:
    records = np.array(
        [(1, 2.5, "a"), (3, 4.5, "b")], dtype=[("n", ">i4"), ("x", "f8"), ("s", "U3")]
    )
    grid = pg.from_numpy(records)
    assert grid.to_arrow().to_pydict() == {"n": [1, 3], "x": [2.5, 4.5], "s": ["a", "b"]}
    assert pg.from_numpy(records, names=["p", "q", "r"]).columns == ["p", "q", "r"]
    swapped = np.arange(5, dtype=">f4")
    assert pg.from_numpy(swapped).to_numpy()[:, 0].tolist() == [0, 1, 2, 3, 4]
    nested = np.zeros(2, dtype=[("v", "f8", (3,))])
    with pytest.raises(pg.errors.UnsupportedError, match="each field is one value") as caught:
        pg.from_numpy(nested)
    assert caught.value.context["column"] == "v"


def test_what_has_no_arrow_type_is_refused_with_the_remedy() -> None:
    for array, hint in [
        (np.array([1, "a", None], dtype=object), "objects have no one type"),
        (np.array([1j]), "pass array.real and array.imag as columns of their own"),
        (np.array([b"x"]), "texts are unicode: array.astype('U')"),
        (np.array([1], dtype="longdouble"), "convert it first: array.astype('float64')"),
        (np.array([1], dtype="datetime64[h]"), "array.astype('datetime64[s]')"),
        (np.array([1], dtype="timedelta64[D]"), "array.astype('timedelta64[s]')"),
    ]:
        with pytest.raises(pg.errors.UnsupportedError) as caught:
            pg.from_numpy(array)
        assert str(caught.value).startswith(
            "columns are made of booleans, integers, floats up to float64,"
        )
        assert hint in (caught.value.hint or "")
    for make in (pg.from_numpy, pg.from_dlpack):
        for shape, remedy in [((), "1"), ((2, 2, 2), "len(array), -1")]:
            with pytest.raises(
                pg.errors.InvalidArgumentError, match="one or two dimensions"
            ) as wrong:
                make(np.zeros(shape))
            assert wrong.value.hint == f"reshape it: array.reshape({remedy})"
        with pytest.raises(pg.errors.InvalidArgumentError, match="each of the 2 columns, got 1"):
            make(np.zeros((3, 2)), names=["a"])
        with pytest.raises(pg.errors.InvalidArgumentError, match="at least one column"):
            make(np.zeros((3, 0)))
        with pytest.raises(pg.errors.ProtocolError, match="was expected, got list"):
            make([1, 2])
    with pytest.raises(pg.errors.ProtocolError, match="got MaskedArray"):
        pg.from_numpy(np.ma.masked_equal([1, 2], 2))


def test_from_dlpack_takes_old_producers_and_refuses_broken_ones() -> None:
    values = np.arange(4.0)
    assert pg.from_dlpack(Old(values)).tile(0).column("column_0").address == address_of(values)
    with pytest.raises(pg.errors.ProtocolError, match="__dlpack__ must return a PyCapsule named"):
        pg.from_dlpack(Broken())
    used = Twice(values)
    pg.from_dlpack(used)
    with pytest.raises(pg.errors.ProtocolError, match="that nobody has used"):
        pg.from_dlpack(used)


def test_to_numpy_promotes_as_numpy_does() -> None:
    generator = random.Random(3)
    for _ in range(200):
        names = generator.choices(NUMBERS, k=generator.randrange(1, 5))
        table = pa.table({f"c{n}": np.array([1, 2]).astype(name) for n, name in enumerate(names)})
        array = pg.from_arrow(table).to_numpy()
        assert array.dtype == np.result_type(*(np.dtype(name) for name in names)), names
        assert array.tolist() == [[1] * len(names), [2] * len(names)]


def test_to_numpy_copies_where_it_must_and_says_where_it_may_not(flights: pg.Grid) -> None:
    names = ["distance", "month"]
    array = flights.to_numpy(names)
    frame = flights.to_arrow().select(names).to_pandas()
    assert np.array_equal(array, frame.to_numpy())
    assert array.flags.writeable
    assert array.flags.f_contiguous
    assert flights.to_numpy(names, order="C").flags.c_contiguous
    with pytest.raises(ValueError, match="not one dense tile of this type and order without nulls"):
        flights.to_numpy(names, copy=False)
    small = flights.to_numpy(["month", "day"], dtype=np.int8)
    assert (small.dtype, small.max()) == (np.dtype("int8"), 31)
    with pytest.raises(pg.errors.InvalidDataError) as caught:
        flights.to_numpy(["dep_delay"])
    assert str(caught.value).startswith(
        "an array has no nulls, the column has 8255 (column: dep_delay)"
    )
    filled = flights.to_numpy(["dep_delay", "hour"], fill_null=float("nan"))
    assert np.isnan(filled).sum() == 8255
    with pytest.raises(pg.errors.UnsupportedError, match="the column is Utf8"):
        flights.to_numpy(["carrier"])
    with pytest.raises(pg.errors.InvalidArgumentError, match="got complex128"):
        flights.to_numpy(names, dtype=complex)
    with pytest.raises(pg.errors.InvalidArgumentError, match="order must be 'C'"):
        flights.to_numpy(names, order="K")
    lazy = pg.read_parquet(DATA / "flights", lazy=True)
    assert np.array_equal(lazy.to_numpy(names), array)


def test_to_numpy_never_rounds() -> None:
    grid = pg.from_arrow(pa.table({"n": [1, 2**53 + 1], "x": [0.5, 1.5]}))
    with pytest.raises(pg.errors.InvalidDataError) as caught:
        grid.to_numpy()
    assert str(caught.value) == (
        "float64 does not hold the value 9007199254740993 of row 1 exactly (column: n)\n"
        "hint: choose a type that holds it, or round it in SQL"
    )


def test_a_dense_tile_is_numpy_without_a_copy(dense: pg.Grid) -> None:
    grid = dense[["temp", "dewp"]][:20]
    array = grid.to_numpy(copy=False)
    assert address_of(array) == grid.tile(0).column("temp").address
    assert not array.flags.writeable
    copied = grid.to_numpy(copy=True)
    assert address_of(copied) != address_of(array)
    assert np.array_equal(copied, array)
    assert copied.flags.writeable


def test_polars_takes_a_tile_over_the_same_memory(dense: pg.Grid) -> None:
    frame = pl.DataFrame(dense.tile(0))
    ours = dense.tile(0).to_arrow()["humid"].buffers()[1].address
    assert frame["humid"].to_arrow().buffers()[1].address == ours


class OnlyDevice:
    """Another object's `__arrow_c_device_array__` and nothing else."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __arrow_c_device_array__(self, requested_schema: Any = None, **kwargs: Any) -> Any:
        return self.inner.__arrow_c_device_array__(requested_schema, **kwargs)


class OnlyDeviceStream:
    """Another object's `__arrow_c_device_stream__` and nothing else."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **kwargs: Any) -> Any:
        return self.inner.__arrow_c_device_stream__(requested_schema, **kwargs)


class WrongCapsules:
    """Capsules of the plain interface under the method for devices."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __arrow_c_device_array__(self, requested_schema: Any = None) -> Any:
        return self.inner.__arrow_c_array__(requested_schema)


class Old:
    """A producer from before DLPack 1.0."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.values.__dlpack__()


class Broken:
    """A producer that returns no capsule."""

    def __dlpack__(self, **_: Any) -> int:
        return 7


class Twice:
    """A producer that gives the same capsule away twice."""

    def __init__(self, values: np.ndarray) -> None:
        self.capsule = values.__dlpack__()

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


class PyBuffer(ctypes.Structure):
    """`Py_buffer` as the stable interface has it."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def buffer_of(exporter: object, flags: int) -> tuple[int, int]:
    """Dimensions and bytes of the buffer that an object gives for some flags."""
    view = PyBuffer()
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.POINTER(PyBuffer), ctypes.c_int]
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes = [ctypes.POINTER(PyBuffer)]
    get(exporter, ctypes.byref(view), flags)
    found = (view.ndim, view.len)
    assert bool(view.shape) == bool(flags & 0x8)
    assert bool(view.strides) == bool(flags & 0x10)
    assert bool(view.format) == bool(flags & 0x4)
    release(ctypes.byref(view))
    return found
