"""`Grid.distarray`: several columns, both versions, casts, copies, padding and other distributions, each against numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from partgrid import distarray


def whole(array: Any) -> np.ndarray:
    """The global array, put together from what each rank owns, as its dictionaries say."""
    sections = list(array)
    result = np.full(array.shape, -12345.0)
    lying = distarray.from_sections(sections).distribution
    for rank, section in enumerate(sections):
        values = np.asarray(section.__distarray__()["buffer"])
        assert values.shape == lying.local_shape(rank) == section.shape
        for local in np.ndindex(*values.shape):
            places = zip(lying.maps, local, lying.coordinates(rank), strict=True)
            index = [lying_map.global_index(place, at) for lying_map, at, place in places]
            owner = lying.locate(index)
            if owner == (rank, local):
                result[tuple(index)] = values[local]
    assert -12345.0 not in result
    return result


def frame(rows: list[int], columns: int, kind: str = "float64") -> tuple[pg.Grid, np.ndarray]:
    """A grid of row bands of these lengths, and its values."""
    values = np.arange(sum(rows) * columns).reshape(-1, columns).astype(kind)
    names = [f"c{number}" for number in range(columns)]
    cuts = np.cumsum([0, *rows])
    tables = [
        pa.table(dict(zip(names, values[a:b].T, strict=True))) for a, b in itertools.pairwise(cuts)
    ]
    chunks = {
        name: pa.chunked_array(
            [t[name].chunk(0) if len(t) else pa.array([], t[name].type) for t in tables]
        )
        for name in names
    }
    return pg.from_arrow(pa.table(chunks)), values


def clean(array: Any) -> Any:
    """The array, in which the validator finds nothing."""
    assert distarray.validate(list(array)) == []
    return array


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
def test_several_columns_are_rows_and_columns(version: str) -> None:
    grid, values = frame([3, 0, 4], 3)
    array = clean(grid.distarray(grid.columns, version=version))
    assert (array.shape, array.dtype, array.version) == ((7, 3), "d", version)
    assert array.columns == grid.columns
    assert (whole(array) == values).all()
    assert {section.__distarray__()["__version__"] for section in array} == {version}


def test_a_dense_array_is_shared_and_any_other_copied_or_refused() -> None:
    values = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    grid = pg.from_numpy(values, names=["a", "b", "c"])
    array = grid.distarray(["a", "b", "c"], copy=False)
    assert np.shares_memory(np.asarray(array.local.buffer), values)
    assert array.copies == []
    assert memoryview(array.local.buffer).readonly
    every_second = grid.distarray(["a", "c"], copy=False)
    assert np.shares_memory(np.asarray(every_second.local.buffer), values)
    table = pg.from_arrow(pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}))
    with pytest.raises(
        pg.errors.UnsupportedError, match="one distance in one allocation"
    ) as caught:
        table.distarray(["b", "a"], copy=False)
    assert "dense=" in (caught.value.hint or "")
    backwards = table.distarray(["b", "a"])
    assert backwards.copies == ["columns at uneven distances: 1 section, 32 bytes"]
    assert np.asarray(backwards.local.buffer).tolist() == [[3.0, 1.0], [4.0, 2.0]]


def test_copies_can_be_written_and_leave_the_tiles_alone() -> None:
    grid, values = frame([2, 3], 1)
    array = clean(grid.distarray("c0", copy=True))
    assert array.copies == ["as asked: 2 sections, 40 bytes"]
    view = np.asarray(array[1].buffer)
    assert view.flags.writeable
    view[:] = -1
    memoryview(array[0].buffer)[0] = 9.0
    assert (np.asarray(grid.distarray("c0")[1].buffer) == values[2:, 0]).all()
    assert np.asarray(array[0].buffer).tolist() == [9.0, 1.0]


@pytest.mark.parametrize(
    ("column", "cast", "expected", "is_shared"),
    [
        (pa.array([5, 7], pa.timestamp("us", "UTC")), "int64", [5, 7], True),
        (pa.array([5, 7], pa.duration("ns")), "int64", [5, 7], True),
        (pa.array([5, 7], pa.time64("us")), "int64", [5, 7], True),
        (pa.array([0, 86_400_000]).view(pa.date64()), "int64", None, True),
        (pa.array([5, 7], pa.date32()), "int32", [5, 7], True),
        (pa.array([5, 7], pa.time32("s")), "int64", [5, 7], False),
        (pa.array([5, 7], pa.date32()), "int64", [5, 7], False),
        (pa.array([True, False]), "uint8", [1, 0], False),
        (pa.array([True, False]), "float32", [1, 0], False),
        (pa.array([1, 2]).cast(pa.decimal128(21, 2)), "int16", [1, 2], False),
        (pa.array([7, 8, 7], pa.int32()).dictionary_encode(), "int32", [7, 8, 7], False),
        (pa.array([1, 2], pa.int8()), "float64", [1, 2], False),
        (pa.array([1.0, 2.0]), "int8", [1, 2], False),
    ],
    ids=[f"case{number}" for number in range(13)],
)
def test_casts(column: pa.Array, cast: str, expected: list[float] | None, is_shared: bool) -> None:
    grid = pg.from_arrow(pa.table({"x": column}))
    array = clean(grid.distarray("x", cast=cast))
    values = np.asarray(array.local.buffer)
    assert values.dtype == np.dtype(cast)
    assert values.tolist() == (
        column.view(pa.int64()).to_pylist() if expected is None else expected
    )
    assert bool(array.copies) != is_shared
    if not is_shared:
        with pytest.raises(pg.errors.UnsupportedError, match=f"become {cast}"):
            grid.distarray("x", cast=cast, copy=False)


@pytest.mark.parametrize(
    ("column", "cast", "error", "text"),
    [
        (pa.array([1.5]), "int64", "InvalidDataError", "1.5"),
        (pa.array([300]), "int8", "InvalidDataError", "300"),
        (pa.array(["1"]), "int64", "UnsupportedError", "Utf8"),
        (pa.array([b"1"]), "int64", "UnsupportedError", "Binary"),
        (pa.array([[1]]), "int64", "UnsupportedError", "List"),
        (pa.array(["1"]).dictionary_encode(), "int64", "UnsupportedError", "Dictionary"),
        (pa.array(["1.25"]).cast(pa.decimal128(9, 2)), "int64", "InvalidDataError", "1.25"),
        (pa.array([1]), "complex64", "InvalidArgumentError", "complex64"),
        (pa.array([2**53 + 1]), "float64", "InvalidDataError", "9007199254740993"),
    ],
    ids=str,
)
def test_what_a_cast_does_not_hold_is_refused(
    column: pa.Array, cast: str, error: str, text: str
) -> None:
    grid = pg.from_arrow(pa.table({"x": column}))
    with pytest.raises(getattr(pg.errors, error), match=text.replace(".", r"\.")):
        grid.distarray("x", cast=cast)


def test_nulls_get_the_value_that_is_given() -> None:
    grid = pg.from_arrow(
        pa.table(
            {
                "x": pa.chunked_array([[1.0, None], [2.0]]),
                "y": pa.chunked_array([[1.0, 3.0], [2.0]]),
            }
        )
    )
    array = clean(grid.distarray("x", fill_null=-1))
    assert whole(array).tolist() == [1.0, -1.0, 2.0]
    # Only the tile that has one is copied.
    assert array.copies == ["nulls replaced: 1 section, 16 bytes"]
    assert not np.asarray(array[1].buffer).flags.writeable
    with pytest.raises(pg.errors.UnsupportedError, match="nulls are replaced") as caught:
        grid.distarray("x", fill_null=0, copy=False)
    assert caught.value.context == {"column": "x", "position": "(0, 0)"}
    for column in ("x", "y"):
        with pytest.raises(
            pg.errors.InvalidArgumentError, match="fill_null must be a value of int8"
        ):
            grid.distarray(column, fill_null=1000, cast="int8")


def test_several_types_become_the_one_that_holds_all() -> None:
    grid = pg.from_arrow(pa.table({"x": pa.array([1, 2], pa.int16()), "y": [1.5, 2.5]}))
    array = clean(grid.distarray(["x", "y"]))
    assert array.dtype == "d"
    assert whole(array).tolist() == [[1.0, 1.5], [2.0, 2.5]]
    assert array.copies == ["another type: 1 section, 32 bytes"]


MAPS = {
    "block": lambda size: distarray.block(size, 3),
    "one": distarray.block,
    "irregular": lambda size: distarray.block([0, 1, 1, size]),
    "cyclic": lambda size: distarray.cyclic(size, 3),
    "block-cyclic": lambda size: distarray.cyclic(size, 2, block_size=2),
    "unstructured": lambda size: distarray.unstructured(
        [list(range(size - 1, -1, -2)), list(range(size - 2, -1, -2))]
    ),
    "padded": lambda size: distarray.block(size, 2, padding=1, boundary=(1, 1)),
}


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
@pytest.mark.parametrize(("rows", "columns"), list(itertools.product(MAPS, MAPS)))
def test_every_pair_of_distributions_holds_the_values(
    rows: str, columns: str, version: str
) -> None:
    grid, values = frame([3, 0, 4], 5)
    to = [MAPS[rows](7), MAPS[columns](5)]
    array = clean(grid.distarray(grid.columns, distribution=to, version=version))
    assert (whole(array) == values).all()
    assert array.copies[-1].startswith("another distribution: ")
    # And back again.
    back = array.redistribute([distarray.block([0, 3, 3, 7]), distarray.block(5)]).execute()
    assert (np.concatenate([np.asarray(section.buffer) for section in back]) == values).all()


def test_selections_of_rows() -> None:
    grid, values = frame([4, 4], 2)
    rows = distarray.unstructured([np.array([6, 1], "u1"), [], [0]])
    array = clean(grid.distarray(grid.columns, distribution=[rows, distarray.block(2)]))
    assert [np.asarray(section.buffer).tolist() for section in array] == [
        values[[6, 1]].tolist(),
        [],
        values[[0]].tolist(),
    ]
    with pytest.raises(pg.errors.InvalidArgumentError, match="8"):
        grid.distarray("c0", distribution=distarray.unstructured([[8]]))


def test_the_distribution_of_the_tiles_needs_no_copy() -> None:
    grid, _ = frame([3, 4], 1)
    array = grid.distarray("c0", distribution=distarray.block([0, 3, 7]), copy=False)
    assert array.copies == []
    copied = grid.distarray("c0", distribution=distarray.block([0, 3, 7]), copy=True)
    assert np.asarray(copied[0].buffer).flags.writeable
    with pytest.raises(pg.errors.UnsupportedError, match="other places"):
        grid.distarray("c0", distribution=distarray.block(7), copy=False)
    nulls = pg.from_arrow(pa.table({"x": [1, None]}))
    for more in ({"padding": 0}, {"distribution": distarray.block(2)}):
        with pytest.raises(pg.errors.UnsupportedError, match="nulls are replaced"):
            nulls.distarray("x", fill_null=0, copy=False, **more)
    assert grid.distarray("c0", padding=0, copy=True).copies == ["as asked: 2 sections, 56 bytes"]
    booleans = pg.from_arrow(pa.table({"f": [1.0], "b": [True]}))
    with pytest.raises(pg.errors.UnsupportedError) as caught:
        booleans.distarray(["f", "b"], cast="float64", copy=False)
    assert caught.value.context["column"] == "b"


def test_padding_is_a_copy_with_the_elements_of_the_neighbours() -> None:
    grid, _ = frame([3, 4, 2], 2)
    array = clean(grid.distarray("c0", padding=2))
    held = [np.asarray(section.buffer).tolist() for section in array]
    assert held == [[0, 2, 4, 6, 8], [2, 4, 6, 8, 10, 12, 14, 16], [10, 12, 14, 16]]
    assert [section.dim_data[0]["padding"] for section in array] == [(0, 2), (2, 2), (2, 0)]
    plane = clean(grid.distarray(["c0", "c1"], padding=(1, 0)))
    assert plane[1].shape == (6, 2)
    with pytest.raises(pg.errors.InvalidArgumentError, match="rank 2 owns 2"):
        grid.distarray("c0", padding=3)
    with pytest.raises(pg.errors.InvalidArgumentError, match="2 dimensions, got 1"):
        grid.distarray(["c0", "c1"], padding=[1])


def test_one_section_for_all_tiles() -> None:
    grid, values = frame([3, 0, 4], 2)
    array = clean(grid.distarray(["c1", "c0"], distribution="rank"))
    assert array.copies == ["tiles joined: 1 section, 112 bytes"]
    assert (np.asarray(array.local.buffer) == values[:, ::-1]).all()
    with pytest.raises(pg.errors.UnsupportedError, match="3 tiles become one section"):
        grid.distarray("c0", distribution="rank", copy=False)


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        ({"columns": []}, "at least one column"),
        ({"columns": ["c0", "c0"]}, "each column once"),
        ({"columns": 5}, "columns must be the name of a column, or a list of names, got 5"),
        ({"version": "0.11.0"}, "0.9 or 0.10"),
        ({"version": 10}, "version must be"),
        ({"distribution": "tile"}, "distribution must be"),
        ({"distribution": [1]}, "distribution must be a Distribution, a Map, or a list of maps"),
        ({"distribution": distarray.block(5)}, "one global shape"),
        ({"padding": -1}, "padding must"),
        ({"padding": 1, "distribution": distarray.block(7)}, "padding must be left out"),
        ({"copy": 1}, "copy must be True or False"),
        ({"cast": 5}, "cast must be a text"),
        ({"fill_null": "x"}, "fill_null must be an int or a float"),
    ],
    ids=str,
)
def test_wrong_wishes_say_what_is_wanted(wish: dict[str, Any], text: str) -> None:
    grid, _ = frame([3, 4], 2)
    with pytest.raises(pg.PartgridError, match=text):
        grid.distarray(**{"columns": "c0"} | wish)


def test_an_array_says_what_it_is() -> None:
    grid, _ = frame([3, 4], 2)
    array = grid.distarray(["c0", "c1"])
    assert repr(array).splitlines() == [
        "DistArray `c0` to `c1` (7, 2) of d in 2 sections",
        "copied, columns at uneven distances: 2 sections, 112 bytes",
    ]
    assert repr(array[1]) == "Section 1: (4, 2) of d"
    assert (len(array), len(array[1]), array[1].rank, array[1].is_local) == (2, 4, 1, True)
    with pytest.raises(IndexError, match="there are 2"):
        array[2]
    with pytest.raises(pg.errors.UnsupportedError, match="there are 2"):
        _ = array.local
    assert (
        pg.from_distarray(array, names=["c0", "c1"]).to_arrow().to_pydict()
        == grid.to_arrow().to_pydict()
    )
