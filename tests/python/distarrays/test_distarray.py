"""The Distributed Array Protocol 0.10.0: every rule of the conformance note that one column can show."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS += ["float16", "float32", "float64"]


def chunked(values: list[list[float]], name: str) -> pg.Grid:
    """A grid of one column, one tile for each list."""
    kind = getattr(pa, name)()
    arrays = [
        pa.array(np.array(part), type=pa.from_numpy_dtype(np.array(part).dtype)) for part in values
    ]
    return pg.from_arrow(pa.table({"x": pa.chunked_array([array.cast(kind) for array in arrays])}))


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_type_gives_sections_that_join_to_the_column(name: str) -> None:
    array = chunked([[1.0, 2.0, 3.0], [4.0], [5.0, 6.0]], name).distarray("x")
    parts = [np.asarray(section.__distarray__()["buffer"]) for section in array.sections]
    dtype = np.dtype(name)
    assert np.dtype(array.dtype) == dtype
    assert all(part.dtype == dtype and part.ndim == 1 for part in parts)
    assert np.concatenate(parts).tolist() == [1, 2, 3, 4, 5, 6]


def test_a_section_has_exactly_the_keys_of_the_protocol() -> None:
    array = chunked([[1.0, 2.0, 3.0], [4.0], [5.0, 6.0]], "float64").distarray("x")
    bounds = []
    for rank, section in enumerate(array.sections):
        exported = section.__distarray__()
        assert type(exported) is dict
        assert set(exported) == {"__version__", "buffer", "dim_data"}
        assert exported["__version__"] == "0.10.0"
        assert type(exported["dim_data"]) is tuple
        [dimension] = exported["dim_data"]
        assert dimension["dist_type"] == "b"
        expected = {"dist_type", "size", "proc_grid_size", "proc_grid_rank", "start", "stop"}
        assert set(dimension) == expected
        numbers = [value for key, value in dimension.items() if key != "dist_type"]
        assert all(type(number) is int for number in numbers)
        assert (dimension["size"], dimension["proc_grid_size"]) == (6, 3)
        assert dimension["proc_grid_rank"] == rank == section.rank
        view = memoryview(exported["buffer"])
        assert view.shape == (dimension["stop"] - dimension["start"],)
        bounds.append((dimension["start"], dimension["stop"]))
    assert bounds == [(0, 3), (3, 4), (4, 6)]


def test_an_empty_tile_is_an_empty_section() -> None:
    table = pa.table({"x": pa.chunked_array([[1, 2], pa.array([], type=pa.int64()), [3]])})
    sections = pg.from_arrow(table).distarray("x").sections
    dimension = sections[1].__distarray__()["dim_data"][0]
    assert dimension["start"] == dimension["stop"] == 2
    assert memoryview(sections[1].buffer).nbytes == 0
    assert np.asarray(sections[1].buffer).shape == (0,)


def test_each_export_is_fresh() -> None:
    section = chunked([[1.0]], "float64").distarray("x").sections[0]
    section.__distarray__()["dim_data"][0].clear()
    assert section.__distarray__()["dim_data"][0]["size"] == 1


def test_the_buffer_is_read_only_contiguous_and_typed() -> None:
    buffer = chunked([[1.0, 2.0]], "float32").distarray("x").sections[0].buffer
    view = memoryview(buffer)
    assert (view.format, view.itemsize, view.ndim, view.readonly) == ("f", 4, 1, True)
    assert view.c_contiguous
    assert bytes(buffer) == np.array([1, 2], dtype="f4").tobytes()
    with pytest.raises((BufferError, TypeError, ValueError)):
        np.frombuffer(buffer, dtype="f4")[0] = 5
    with pytest.raises((BufferError, TypeError)):
        (np.ctypeslib.ctypes.c_float * 2).from_buffer(buffer)


def test_slices_of_grids_are_exported_from_where_they_start() -> None:
    grid = pg.from_arrow(pa.table({"x": list(range(10))}))[3:7]
    assert np.asarray(grid.distarray("x").sections[0].buffer).tolist() == [3, 4, 5, 6]


def test_a_result_of_sql_is_an_array(flights: pg.Grid) -> None:
    grid = flights.sql("SELECT coalesce(dep_delay, 0.0) AS d FROM self").to_grid()
    total = sum(np.asarray(section.buffer).sum() for section in grid.distarray("d").sections)
    assert total == flights.sql("SELECT sum(dep_delay) AS s FROM self").to_arrow()["s"][0].as_py()


def test_nulls_are_refused_with_count_position_and_remedy(flights: pg.Grid) -> None:
    with pytest.raises(pg.errors.InvalidDataError) as caught:
        flights.distarray("dep_delay")
    assert "8255" in str(caught.value)
    assert caught.value.context == {"position": "(0, 0)", "column": "dep_delay"}
    assert "coalesce" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (pa.array(["x"]), "Utf8"),
        (pa.array([True]), "Boolean"),
        (pa.array([1]).cast(pa.decimal128(30, 2)), "Decimal128"),
        (pa.array([0], type=pa.timestamp("s")), "Timestamp"),
        (pa.array(["x"]).dictionary_encode(), "Dictionary"),
        (pa.array([[1]]), "List"),
    ],
    ids=str,
)
def test_other_types_are_refused_by_name_with_a_remedy(column: pa.Array, named: str) -> None:
    grid = pg.from_arrow(pa.table({"x": column}))
    with pytest.raises(pg.errors.UnsupportedError, match=named) as caught:
        grid.distarray("x")
    assert caught.value.context["column"] == "x"
    assert caught.value.hint


def test_an_unknown_column_is_a_key_error(flights: pg.Grid) -> None:
    with pytest.raises(KeyError, match="did you mean `distance`"):
        flights.distarray("distnce")


def test_arrays_and_sections_are_no_arrays_of_objects() -> None:
    array = pg.from_arrow(pa.table({"a": [1, 2]})).distarray("a")
    for thing in [array, array[0]]:
        with pytest.raises(TypeError, match="numpy.asarray takes"):
            np.asarray(thing)
    assert np.asarray(array[0].buffer).tolist() == [1, 2]
