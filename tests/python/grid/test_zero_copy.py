"""Buffers keep their addresses: nothing is copied on the way in, through the grid, or out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import partgrid as pg

TYPES = ["int64", "float64", "string", "timestamp"]


def addresses(array: pa.Array) -> list[int]:
    """The addresses of the buffers of an array, validity first."""
    return [0 if buffer is None else buffer.address for buffer in array.buffers()]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rows = range(1000)
    half = {
        "int64": pa.array([None if row % 5 == 0 else row for row in rows], type=pa.int64()),
        "float64": pa.array([row / 7 for row in rows]),
        "string": pa.array([f"row {row}" for row in rows]),
        "timestamp": pa.array(rows, type=pa.timestamp("us", tz="Europe/Rome")),
    }
    return pa.concat_tables([pa.table(half), pa.table(half)])


@pytest.mark.parametrize("name", TYPES)
def test_from_arrow_to_arrow_shares_every_buffer(table: pa.Table, name: str) -> None:
    grid = pg.from_arrow(table)
    assert grid.tiling == (2, 1)
    back = grid.to_arrow()
    for before, after in zip(table[name].chunks, back[name].chunks, strict=True):
        assert addresses(before) == addresses(after)


@pytest.mark.parametrize("name", TYPES)
def test_a_tile_is_the_same_memory_each_time(name: str, flights: pg.Grid) -> None:
    names = {
        "int64": "flight",
        "float64": "dep_delay",
        "string": "tailnum",
        "timestamp": "time_hour",
    }
    tile = flights.tile(3)
    first, second = tile.to_arrow()[names[name]], tile.to_arrow()[names[name]]
    whole = flights.to_arrow()[names[name]].chunk(3)
    assert addresses(first) == addresses(second) == addresses(whole)


@pytest.mark.parametrize("name", TYPES)
def test_columns_and_rows_of_a_grid_share_its_memory(table: pa.Table, name: str) -> None:
    part = pg.from_arrow(table)[100:1500, [name]].to_arrow()
    values = part[name].chunk(0)
    source = table[name].chunk(0)
    assert values.buffers()[-1].address == source.buffers()[-1].address or (
        values.buffers()[-1].address - source.buffers()[-1].address == 100 * 8
    )


@pytest.mark.parametrize("name", TYPES)
def test_get_gives_pandas_over_the_tiles_own_memory(table: pa.Table, name: str) -> None:
    grid = pg.from_arrow(table)
    partitioned = grid.__partitioned__
    frame = partitioned["get"](partitioned["partitions"][(1, 0)]["data"])
    assert isinstance(frame.dtypes[name], pd.ArrowDtype)
    column: Any = frame[name].array
    assert addresses(pa.array(column)) == addresses(table[name].chunk(1))


def test_a_section_is_the_columns_memory(table: pa.Table) -> None:
    array = pg.from_arrow(table).distarray("float64")
    for chunk, section in zip(table["float64"].chunks, array.sections, strict=True):
        buffer = section.__distarray__()["buffer"]
        values = np.asarray(buffer)
        address = values.__array_interface__["data"][0]
        assert address == chunk.buffers()[1].address == buffer.address
        assert not values.flags.writeable


def test_polars_shares_numbers(table: pa.Table) -> None:
    frame = pg.from_arrow(table).to_polars()
    assert isinstance(frame, pl.DataFrame)
    ours = [chunk.buffers()[1].address for chunk in table["float64"].chunks]
    theirs = [chunk.to_arrow().buffers()[1].address for chunk in frame["float64"].get_chunks()]
    assert ours == theirs


def test_the_memory_outlives_the_grid() -> None:
    array = pg.from_arrow(pa.table({"a": np.arange(10_000.0)})).distarray("a")
    values = np.asarray(array.sections[0].buffer)
    del array
    assert values.sum() == sum(range(10_000))


def test_a_filter_in_sql_does_not_touch_the_source(table: pa.Table) -> None:
    before = table["int64"].to_pylist()
    result = pg.from_arrow(table).sql("SELECT int64 + 1 AS n FROM self WHERE int64 > 3")
    assert len(result) == sum(1 for value in before if value is not None and value > 3)
    assert table["int64"].to_pylist() == before
