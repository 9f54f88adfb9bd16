"""The grid as a user sees it: shape, indexing, repr, frames."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import partgrid as pg


@pytest.fixture
def grid() -> pg.Grid:
    return pg.from_arrow(pa.table({"a": pa.chunked_array([[1, 2, 3], [4, 5]]), "b": list("vwxyz")}))


def test_it_says_its_shape_tiling_and_cuts(grid: pg.Grid) -> None:
    assert (grid.shape, grid.tiling, len(grid)) == ((5, 2), (2, 1), 5)
    assert grid.cuts == ((0, 3, 5), (0, 2))
    assert grid.columns == ["a", "b"]
    assert "a" in grid
    assert "c" not in grid
    assert grid.nbytes > 0


def test_tiles_say_where_they_are(grid: pg.Grid) -> None:
    tiles = grid.tiles
    assert [tile.position for tile in tiles] == [(0, 0), (1, 0)]
    assert [(tile.start, tile.shape) for tile in tiles] == [((0, 0), (3, 2)), ((3, 0), (2, 2))]
    assert tiles[0].location == grid.__partitioned__["partitions"][(0, 0)]["location"]
    assert grid.locations() == [tile.location for tile in tiles]
    assert (len(tiles[1]), tiles[1].columns) == (2, ["a", "b"])
    assert tiles[1].to_pandas()["b"].tolist() == ["y", "z"]
    assert tiles[1].to_polars().shape == (2, 2)


def test_indexing_gives_grids_of_columns_and_rows(grid: pg.Grid) -> None:
    assert grid["b"].columns == ["b"]
    assert grid[["b", "a"]].to_arrow().column_names == ["b", "a"]
    assert grid[1:4].to_arrow().to_pydict() == {"a": [2, 3, 4], "b": ["w", "x", "y"]}
    assert grid[-2:, "a"].to_arrow().to_pydict() == {"a": [4, 5]}
    assert grid[4:2].shape == (0, 2)
    assert grid[2:100].shape == (3, 2)


def test_wrong_keys_are_typed_errors_with_a_remedy(grid: pg.Grid) -> None:
    with pytest.raises(pg.errors.NotFoundError, match="no column `c`") as caught:
        grid["c"]
    assert isinstance(caught.value, KeyError)
    assert caught.value.context == {"column": "c"}
    assert caught.value.hint == "the columns are a, b"
    with pytest.raises(ValueError, match="step 1, got 2"):
        grid[::2]
    with pytest.raises(TypeError, match=r"grid\.tile"):
        grid[3]  # type: ignore[index]
    with pytest.raises(KeyError, match=r"no tile at position \(9, 0\), the grid has 2 x 1 tiles"):
        grid.tile(9)


def test_a_grid_is_not_iterable_so_that_nobody_takes_it_for_a_list(grid: pg.Grid) -> None:
    with pytest.raises(TypeError, match="not iterable"):
        iter(grid)  # type: ignore[call-overload]


def test_the_repr_shows_shape_tiles_schema_and_place(grid: pg.Grid, flights: pg.Grid) -> None:
    text = repr(flights)
    for part in ["336,776 rows x 19 columns", "12 x 1 tiles", "time_hour", "Timestamp", "pid"]:
        assert part in text
    assert len(text.splitlines()) < 40
    assert "not null" in text
    assert "5 rows x 2 columns in 2 x 1 tiles" in repr(grid)


def test_the_notebook_picture_is_well_formed(flights: pg.Grid) -> None:
    html = flights._repr_html_()
    root = ET.fromstring(html)
    rectangles = [element for element in root.iter() if element.tag.endswith("rect")]
    assert len(rectangles) >= 12
    assert "script" not in html


def test_frames_of_other_libraries_are_taken(grid: pg.Grid) -> None:
    frame = pl.DataFrame({"a": [1, 2], "s": ["x", None]})
    assert pg.from_arrow(frame).to_polars().equals(frame)
    pandas = grid.to_pandas()
    assert pg.from_arrow(pandas).to_arrow()["a"].to_pylist() == [1, 2, 3, 4, 5]
    assert pg.from_arrow(grid).to_arrow().equals(grid.to_arrow())
    assert pg.from_arrow(pg.from_arrow(frame).tile(0)).shape == (2, 2)


def test_other_objects_are_refused_by_their_class() -> None:
    with pytest.raises(pg.errors.ProtocolError, match="got dict"):
        pg.from_arrow({"a": [1]})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="distinct"):
        pg.from_arrow(pa.table([[1], [2]], names=["a", "a"]))


def test_a_frame_without_rows_or_columns_is_a_grid() -> None:
    empty = pg.from_arrow(pa.table({"a": pa.array([], type=pa.int8())}))
    assert (empty.shape, empty.tiling) == ((0, 1), (1, 1))
    assert empty.to_arrow().schema.field("a").type == pa.int8()
    assert len(empty.sql("SELECT * FROM self")) == 0


def test_an_object_that_raises_in_its_stream_passes_its_error_on() -> None:
    def batches() -> object:
        yield pa.record_batch({"a": [1]})
        message = "the producer gave up"
        raise RuntimeError(message)

    schema = pa.schema([("a", pa.int64())])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(pg.PartgridError, match="the producer gave up"):
        pg.from_arrow(reader)


@pytest.mark.parametrize(
    "key", [(slice(0, 9), slice(5, 7)), ("origin", "dest"), (), (slice(0, 9), ["origin"], 1)]
)
def test_two_indices_are_rows_and_names(flights: pg.Grid, key: Any) -> None:
    with pytest.raises(TypeError, match="a slice of rows and names of columns"):
        flights[key]
    assert flights[0:9, "origin"].shape == (9, 1)
