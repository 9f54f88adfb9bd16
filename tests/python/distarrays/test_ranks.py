"""Grids of SPMD programs: `partgrid.engines.mpi` with threads for ranks, and a communicator that pickles everything as MPI would."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import partgrid as pg
from conformance.partitioned import deviations
from partgrid.engines import mpi
from programs import Comm, on_ranks


def table(rank: int, rows: int = 2) -> pa.Table:
    return pa.table({"a": [rank * 10 + n for n in range(rows)], "b": [rank + 0.5] * rows})


def local(comm: Comm, data: Any) -> pg.Grid:
    return mpi.from_local(data, comm)


def test_all_ranks_have_the_same_outline_and_each_its_own_tiles() -> None:
    found = on_ranks(3, lambda comm: local(comm, table(comm.rank, comm.rank + 1)))
    for rank, grid in enumerate(found):
        assert (grid.shape, grid.tiling, grid.cuts) == ((6, 2), (3, 1), ((0, 1, 3, 6), (0, 2)))
        assert (grid.rank, grid.num_ranks) == (rank, 3)
        assert grid.tile(rank).to_arrow().to_pylist() == table(rank, rank + 1).to_pylist()
        with pytest.raises(pg.errors.NotLocalError):
            grid.tile((rank + 1) % 3).to_arrow()


def test_the_dictionary_has_locals_and_none_for_the_tiles_of_others() -> None:
    def program(comm: Comm) -> Any:
        batches = [table(comm.rank).to_batches()[0]] * (comm.rank + 1)
        return local(comm, pa.Table.from_batches(batches))

    for rank, grid in enumerate(on_ranks(2, program)):
        described = grid.__partitioned__
        assert described["locals"] == [[(0, 0)], [(1, 0), (2, 0)]][rank]
        for position, entry in described["partitions"].items():
            assert (entry["data"] is not None) == (position in described["locals"])
        assert deviations(grid) == {}
        assert deviations(grid.partitioned("tile")) == {}
        with pytest.raises(pg.errors.ProtocolError, match="NoneType"):
            described["get"](None)


def test_a_grid_of_no_program_has_no_rank_and_no_locals() -> None:
    grid = pg.from_arrow(table(0))
    assert grid.rank is None
    assert grid.num_ranks is None
    assert "locals" not in grid.__partitioned__


def test_rows_are_shared_and_not_copied() -> None:
    values = np.arange(6.0)

    def program(comm: Comm) -> Any:
        return local(comm, pg.from_numpy(values[comm.rank * 3 : comm.rank * 3 + 3]))

    for rank, grid in enumerate(on_ranks(2, program)):
        column = grid.tile(rank).column("column_0")
        assert np.shares_memory(np.asarray(column), values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: table(0),
        lambda: pg.from_arrow(table(0)),
        lambda: table(0).to_pandas(),
        lambda: table(0).to_batches()[0],
    ],
)
def test_a_rank_brings_what_it_has(make: Callable[[], Any]) -> None:
    found = on_ranks(2, lambda comm: local(comm, make()))
    assert [grid.shape for grid in found] == [(4, 2), (4, 2)]


def test_a_rank_without_data_has_an_empty_tile() -> None:
    found = on_ranks(3, lambda comm: local(comm, None if comm.rank == 1 else table(comm.rank)))
    assert [grid.shape for grid in found] == [(4, 2)] * 3
    assert found[1].__partitioned__["locals"] == [(1, 0)]
    assert found[1].tile(1).to_arrow().num_rows == 0
    assert found[1].tile(1).to_arrow().schema.names == ["a", "b"]


def test_a_column_is_nullable_where_one_rank_says_so() -> None:
    def program(comm: Comm) -> Any:
        field = pa.field("a", pa.int64(), nullable=comm.rank == 1)
        return local(comm, pa.table([[1]], schema=pa.schema([field])))

    for grid in on_ranks(2, program):
        assert pa.schema(grid.schema).field("a").nullable


def test_no_rank_with_data_is_refused_on_all() -> None:
    found = on_ranks(2, lambda comm: local(comm, None))
    assert {str(error) for error in found} == {
        "at least one rank must have data, so that the columns are known"
    }


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"x": [1], "b": [0.5]}, "rank 0 has `a` Int64, rank 1 has `x` Int64"),
        ({"a": [1.5], "b": [0.5]}, "rank 0 has `a` Int64, rank 1 has `a` Float64"),
        ({"a": [1]}, "rank 0 has 2, rank 1 has 1"),
    ],
)
def test_other_columns_are_refused_on_all_ranks_alike(other: dict[str, Any], text: str) -> None:
    found = on_ranks(3, lambda comm: local(comm, pa.table(other) if comm.rank == 1 else table(0)))
    assert {type(error) for error in found} == {pg.errors.InvalidArgumentError}
    assert len({str(error) for error in found}) == 1
    assert text in str(found[0])


def test_column_bands_must_be_cut_alike() -> None:
    def parts(cut: bool) -> pg.Grid:
        entries = {
            (0, band): {
                "start": (0, band),
                "shape": (1, 1),
                "data": pa.table({"ab"[band]: [1]}),
                "location": [],
            }
            for band in range(2)
        }
        shape = {"shape": (1, 2), "partition_tiling": (1, 2), "partitions": entries}
        return pg.from_partitioned(shape) if cut else pg.from_arrow(pa.table({"a": [1], "b": [1]}))

    found = on_ranks(2, lambda comm: local(comm, parts(comm.rank == 0)))
    assert {str(error) for error in found} == {
        "all ranks must cut columns alike: rank 0 cuts at [0, 1, 2], rank 1 at [0, 2]"
    }
    for grid in on_ranks(2, lambda comm: local(comm, parts(True))):
        assert grid.tiling == (2, 2)
        assert [key[0] for key in grid.__partitioned__["locals"]] == [grid.rank] * 2


def test_what_one_rank_raises_is_raised_on_all_with_its_number() -> None:
    class OddError(Exception):
        def __init__(self, _one: int, _two: int) -> None:
            super().__init__("odd")

    class Hostile:
        def __arrow_c_stream__(self, _requested: object = None) -> object:
            raise OddError(1, 2)

    found = on_ranks(2, lambda comm: local(comm, Hostile() if comm.rank == 1 else table(0)))
    assert all("rank 1: " in str(error) and "odd" in str(error) for error in found), found
    assert {type(error) for error in found} == {RuntimeError}


def test_comm_must_be_one() -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match="comm must have Get_rank"):
        mpi.from_local(table(0), comm=5)


def test_parts_of_the_grid_keep_their_ranks() -> None:
    def program(comm: Comm) -> Any:
        grid = local(comm, table(comm.rank, 4))
        return grid, grid[2:9][["b"]]

    for rank, (grid, part) in enumerate(on_ranks(3, program)):
        assert (part.rank, part.num_ranks, part.shape) == (rank, 3, (7, 1))
        assert part.__partitioned__["locals"] == [(rank, 0)]
        assert part.tile(rank).to_arrow()["b"].to_pylist() == [rank + 0.5] * [2, 4, 1][rank]
        assert grid.shape == (12, 2)


def test_a_dictionary_of_a_program_comes_back_as_one() -> None:
    for rank, grid in enumerate(on_ranks(2, lambda comm: local(comm, table(comm.rank)))):
        again = pg.from_partitioned(grid)
        assert again.__partitioned__["locals"] == [(rank, 0)]
        assert deviations(again) == {}
        assert again.rank is None
        with pytest.raises(pg.errors.UnsupportedError, match="ranks are not known"):
            again.partitioned(dialect="heat")
        assert again["a"].__partitioned__["locals"] == [(rank, 0)]


def heat(grid: pg.Grid, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ranks have other numbers of rows")
        return grid.partitioned(dialect="heat", **options).__partitioned__


def test_heat_has_one_array_for_each_rank() -> None:
    def program(comm: Comm) -> Any:
        batches = table(comm.rank, 4).to_batches(max_chunksize=3)
        return heat(local(comm, pa.Table.from_batches(batches)))

    for rank, described in enumerate(on_ranks(2, program)):
        assert described["shape"] == (8, 2)
        assert described["partition_tiling"] == (2, 1)
        assert described["locals"] == [(rank, 0)]
        assert [entry["location"] for entry in described["partitions"].values()] == [[0], [1]]
        mine = described["partitions"][(rank, 0)]
        assert described["partitions"][(1 - rank, 0)]["data"] is None
        array = described["get"](mine["data"])
        assert array.dtype == np.float64
        assert array.flags.writeable
        assert array.shape == mine["shape"] == (4, 2)
        assert array[:, 0].tolist() == [rank * 10 + n for n in range(4)]
        assert described["get"]([mine["data"]])[0] is array
        assert described["get"]((mine["data"],))[0] is array
        with pytest.raises(pg.errors.NotLocalError, match="another rank"):
            described["get"](None)
        pickle.dumps(described)


def test_heat_of_a_grid_of_one_process() -> None:
    batches = [table(0).to_batches()[0]] * 2
    described = heat(pg.from_arrow(pa.Table.from_batches(batches)))
    assert described["partition_tiling"] == (1, 1)
    assert described["locals"] == [(0, 0)]
    assert described["partitions"][(0, 0)]["location"] == [0]
    assert described["get"](described["partitions"][(0, 0)]["data"]).shape == (4, 2)


def test_heat_and_views() -> None:
    values = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    described = heat(pg.from_numpy(values), copy=False)
    array = described["partitions"][(0, 0)]["data"]
    assert np.shares_memory(array, values)
    with pytest.raises(ValueError, match="copy"):
        heat(pg.from_arrow(table(0)), copy=False)


HEAT_REFUSALS: list[tuple[str, Callable[[int], Any], type[Exception], str]] = [
    ("nulls", lambda r: {"a": [1.0, None if r else 2.0]}, pg.errors.InvalidDataError, "rank 1: "),
    ("text", lambda r: {"a": ["x"] * (r + 1)}, pg.errors.UnsupportedError, "rank 0: "),
    (
        "uint64",
        lambda r: {"a": pa.array([r], pa.uint64())},
        pg.errors.UnsupportedError,
        'dtype="int64"',
    ),
    (
        "float16",
        lambda _: {"a": pa.array(np.zeros(2, np.float16))},
        pg.errors.UnsupportedError,
        'dtype="float32"',
    ),
    (
        "large",
        lambda r: {"a": [2**60 + r], "b": [0.5]},
        pg.errors.InvalidDataError,
        "rank 1: ",
    ),
]


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [each[1:] for each in HEAT_REFUSALS],
    ids=[each[0] for each in HEAT_REFUSALS],
)
def test_heat_is_refused_on_all_ranks_alike(
    make: Callable[[int], Any], kind: type[Exception], text: str
) -> None:
    found = on_ranks(2, lambda comm: heat(local(comm, pa.table(make(comm.rank)))))
    assert [type(error) for error in found] == [kind] * 2, found
    assert len({str(error) for error in found}) == 1
    assert text in str(found[0])


def test_heat_is_refused_when_one_rank_has_all_rows() -> None:
    found = on_ranks(2, lambda comm: heat(local(comm, table(0) if comm.rank else None)))
    assert {type(error) for error in found} == {pg.errors.UnsupportedError}
    assert all("rank 1 has all rows" in str(error) for error in found)
    found = on_ranks(2, lambda comm: heat(local(comm, table(0).slice(0, 0))))
    assert [described["shape"] for described in found] == [(0, 2)] * 2


def test_heat_with_values_for_nulls_and_another_type() -> None:
    def program(comm: Comm) -> Any:
        grid = local(comm, pa.table({"a": [1, None], "b": [2, 3]}))
        described = heat(grid, fill_null=-1, dtype="float32")
        return described["partitions"][(comm.rank, 0)]["data"]

    for array in on_ranks(2, program):
        assert array.dtype == np.float32
        assert array.tolist() == [[1, 2], [-1, 3]]


def test_arguments_of_another_dialect_are_refused() -> None:
    grid = pg.from_arrow(table(0))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"dialect": "dask"}, 'dialect must be "draft", "heat" or "xgboost_ray", got "dask"'),
        ({"fill_null": 0}, 'fill_null is for dialect="heat", got dialect="draft"'),
        ({"copy": True}, 'copy is for dialect="heat"'),
        ({"dtype": "f4"}, 'dtype is for dialect="heat"'),
        ({"num_actors": 2}, 'num_actors is for dialect="xgboost_ray"'),
        ({"dialect": "heat", "num_actors": 2}, 'num_actors is for dialect="xgboost_ray"'),
        ({"dialect": "xgboost_ray", "copy": True}, 'copy is for dialect="heat"'),
        ({"dialect": "heat", "data": "pandas"}, 'data must be "numpy" for dialect="heat"'),
        ({"dialect": "xgboost_ray", "data": "numpy"}, 'data must be "pandas"'),
    ]
    for arguments, text in wrong:
        with pytest.raises(pg.errors.InvalidArgumentError) as caught:
            grid.partitioned(**arguments)
        assert text in str(caught.value)


def test_labels_of_pandas_are_looked_at() -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=["x", "y"])
    found = on_ranks(2, lambda comm: local(comm, frame))
    assert all("rank 0: the rows have labels" in str(error) for error in found)


def test_a_grid_of_a_program_keeps_its_rows_when_it_comes_again() -> None:
    def program(comm: Comm) -> Any:
        grid = local(comm, table(comm.rank, comm.rank + 1))
        return grid, local(comm, grid), local(comm, pg.from_partitioned(grid))

    for rank, (grid, again, imported) in enumerate(on_ranks(3, program)):
        for other in (again, imported):
            assert (other.shape, other.cuts, other.rank) == (grid.shape, grid.cuts, rank)
            assert other.__partitioned__["locals"] == [(rank, 0)]
            assert other.tile(rank).to_arrow() == grid.tile(rank).to_arrow()


@pytest.mark.parametrize("of_program", [0, 1])
def test_a_program_must_bring_one_grid_or_rows_of_its_own(of_program: int) -> None:
    def program(comm: Comm) -> Any:
        grid = local(comm, table(comm.rank))
        return local(comm, grid if comm.rank == of_program else table(1))

    found = on_ranks(2, program)
    assert {str(error) for error in found} == {
        "either all ranks bring rows of their own, or all bring the same grid of an SPMD program: rank 0 and rank 1 differ"
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": "pandas"},
        {"num_actors": 2},
        {"dialect": "Heat"},
        {"copy": "x"},
        {"dialect": 5},
        {"dtype": "nonsense"},
        {"fill_null": "x"},
    ],
    ids=str,
)
def test_wrong_arguments_on_one_rank_are_raised_on_all(wrong: dict[str, Any]) -> None:
    def program(comm: Comm) -> Any:
        grid = local(comm, table(comm.rank))
        return grid.partitioned(**({"dialect": "heat"} | (wrong if comm.rank == 1 else {})))

    found = on_ranks(2, program)
    assert len({str(error) for error in found}) == 1
    assert str(found[0]).startswith("rank 1: "), found


@pytest.mark.parametrize(
    ("wishes", "text"),
    [
        ([{"dtype": "f4"}, {"dtype": "f8"}], "float32, no value for nulls, rank 1 for 4 x 2 of"),
        ([{"fill_null": 0}, {}], "fill_null=0, rank 1 for"),
    ],
)
def test_ranks_must_ask_for_the_same_array(wishes: list[dict[str, Any]], text: str) -> None:
    found = on_ranks(2, lambda comm: heat(local(comm, table(comm.rank)), **wishes[comm.rank]))
    assert {type(error) for error in found} == {pg.errors.InvalidArgumentError}
    assert text in str(found[0])


def test_an_interrupt_of_one_rank_reaches_the_others() -> None:
    class Interrupting:
        def __arrow_c_stream__(self, _requested: object = None) -> object:
            raise KeyboardInterrupt

    class Untold(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise ValueError("no text")

    class Odd:
        def __arrow_c_stream__(self, _requested: object = None) -> object:
            raise Untold

    def program(comm: Comm) -> Any:
        try:
            return local(comm, Interrupting() if comm.rank == 1 else table(0))
        except KeyboardInterrupt:
            return "interrupted"

    found = on_ranks(2, program)
    assert found[1] == "interrupted"
    assert str(found[0]) == "rank 1: KeyboardInterrupt: "
    found = on_ranks(2, lambda comm: local(comm, Odd() if comm.rank == 1 else table(0)))
    assert all("__str__ raised ValueError" in str(error) for error in found)


@pytest.mark.parametrize(
    "wrong",
    [{"data": "polar"}, {"fill_null": 0}, {"dialect": "xgboost_ray", "copy": True}],
    ids=str,
)
def test_wrong_arguments_of_dialects_without_others_are_raised_at_once(
    wrong: dict[str, Any],
) -> None:
    def program(comm: Comm) -> Any:
        grid = local(comm, table(comm.rank))
        if comm.rank == 1:
            return grid.shape
        with pytest.raises(pg.errors.InvalidArgumentError) as caught:
            grid.partitioned(**wrong)
        return str(caught.value)

    # Nobody waits for rank 1, which asks for nothing.
    said, shape = on_ranks(2, program)
    assert shape == (4, 2)
    assert not said.startswith("rank")


def test_what_one_rank_alone_cannot_build_is_raised_on_all(monkeypatch: Any) -> None:
    build = mpi._native._from_ranks

    def failing(parts: Any, rank: int, *more: Any) -> Any:
        if rank == 1:
            raise MemoryError("no room")
        return build(parts, rank, *more)

    monkeypatch.setattr(mpi._native, "_from_ranks", failing)
    found = on_ranks(2, lambda comm: local(comm, table(comm.rank)))
    assert [type(error) for error in found] == [MemoryError] * 2
    assert {str(error) for error in found} == {"rank 1: no room"}
