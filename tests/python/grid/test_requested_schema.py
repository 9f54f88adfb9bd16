"""Requested schemas: another type is given only where it holds every value exactly, and times keep their moment."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg


def asked(array: pa.Array, wanted: pa.DataType) -> Any:
    grid = pg.from_arrow(pa.table({"a": array}))
    schema = pa.schema([("a", wanted)])
    found = pa.RecordBatchReader.from_stream(grid, schema=schema).read_all()["a"]
    batch = pa.record_batch(grid.tile(0), schema=schema)
    assert str(batch.column(0).to_pylist()) == str(found.to_pylist())
    return found.combine_chunks()


EXACT: list[tuple[pa.Array, pa.DataType, list[Any]]] = [
    (pa.array([1, None, 3]), pa.int8(), [1, None, 3]),
    (pa.array([1, 2**53]), pa.float64(), [1.0, 2.0**53]),
    (pa.array([1.0, float("nan")]), pa.float32(), [1.0, None]),
    (pa.array(["a", None]), pa.large_utf8(), ["a", None]),
    (pa.array(["a", "b"]), pa.string_view(), ["a", "b"]),
    (pa.array(["a", "b", "a"]).dictionary_encode(), pa.utf8(), ["a", "b", "a"]),
    (pa.array([Decimal("1.50")]), pa.decimal128(20, 4), [Decimal("1.5000")]),
    (pa.array([1000], pa.timestamp("ms")), pa.timestamp("s"), [dt.datetime(1970, 1, 1, 0, 0, 1)]),
]


@pytest.mark.parametrize(("array", "wanted", "values"), EXACT, ids=[str(each[1]) for each in EXACT])
def test_types_that_hold_the_values(array: pa.Array, wanted: pa.DataType, values: Any) -> None:
    found = asked(array, wanted)
    assert found.type == wanted
    if str(wanted) != "float":
        assert found.to_pylist() == values


LOSSY: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([1.5]), pa.int64()),
    (pa.array([2**53 + 1]), pa.float64()),
    (pa.array([0.1]), pa.float32()),
    (pa.array([1500], pa.timestamp("ms")), pa.timestamp("s")),
    (pa.array([Decimal("1.25")]), pa.decimal128(10, 1)),
    (pa.array([300]), pa.int8()),
    (pa.array(["01"]), pa.int64()),
]


@pytest.mark.parametrize(("array", "wanted"), LOSSY, ids=[str(each[1]) for each in LOSSY])
def test_types_that_do_not_hold_them_are_refused(array: pa.Array, wanted: pa.DataType) -> None:
    with pytest.raises((pa.ArrowInvalid, pg.PartgridError), match="a"):
        asked(array, wanted)


def test_zones_come_and_go_without_moving_the_moment() -> None:
    plain = pa.array([0], pa.timestamp("ns"))
    zoned = asked(plain, pa.timestamp("ns", "Europe/Berlin"))
    assert zoned.cast(pa.int64()).to_pylist() == [0]
    assert asked(zoned, pa.timestamp("ns")).cast(pa.int64()).to_pylist() == [0]
    coarse = asked(zoned, pa.timestamp("s"))
    assert coarse.cast(pa.int64()).to_pylist() == [0]
    tokyo = asked(zoned, pa.timestamp("ns", "Asia/Tokyo"))
    assert tokyo.cast(pa.int64()).to_pylist() == [0]


def test_categories_of_columns_without_rows_are_kept() -> None:
    for value in (pa.array(["z", "y"]), pa.array([2, 1])):
        column = pa.DictionaryArray.from_arrays(pa.array([], pa.int8()), value, ordered=True)
        nested = pa.StructArray.from_arrays([column], names=["c"])
        batch = pa.record_batch([column, nested], names=["a", "b"])
        for given in (batch, pa.Table.from_batches([batch])):
            found = pa.record_batch(pg.from_arrow(given).tile(0))
            if isinstance(given, pa.RecordBatch):
                assert found.column(0).dictionary.to_pylist() == value.to_pylist()
                assert found.column(1).field(0).dictionary.to_pylist() == value.to_pylist()
                assert found.schema.field(0).type.ordered
