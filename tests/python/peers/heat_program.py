"""What HeAT does with grids of partgrid, run by `test_heat.py` with `mpirun` on some ranks: each check prints its name when it holds on a rank."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import heat as ht
import numpy as np
import pyarrow as pa
from mpi4py import MPI

import partgrid as pg
from conformance.partitioned import deviations
from partgrid.engines import mpi

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


def rows_of(which: int, columns: int = 3) -> np.ndarray[Any, Any]:
    """Rank r has r + 2 rows."""
    first = sum(n + 2 for n in range(which))
    count = (which + 2) * columns
    return (np.arange(count, dtype=np.float64) + first * columns).reshape(-1, columns)


def whole(columns: int = 3) -> np.ndarray[Any, Any]:
    return np.concatenate([rows_of(each, columns) for each in range(size)])


def table_of(values: np.ndarray[Any, Any]) -> pa.Table:
    columns = [pa.array(np.ascontiguousarray(column)) for column in values.T]
    return pa.table(columns, names=[f"c{n}" for n in range(len(columns))])


def grid_of_ranks() -> pg.Grid:
    return mpi.from_local(table_of(rows_of(rank)), comm)


def to_heat(grid: pg.Grid, **options: Any) -> ht.DNDarray:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ranks have other numbers of rows")
        return ht.from_partitioned(grid.partitioned(dialect="heat", **options))


@check
def values_and_split() -> None:
    array = to_heat(grid_of_ranks())
    assert array.shape == whole().shape
    assert array.split == (0 if size > 1 else None)
    np.testing.assert_array_equal(array.numpy(), whole())


@check
def ranks_with_other_numbers_of_rows_are_warned_of() -> None:
    for counts, warned in (
        (range(1, size + 1), size > 1),
        ([3] * size, False),
        ([2] + [1] * (size - 1), False),
    ):
        grid = mpi.from_local(table_of(rows_of(rank)[:1].repeat(counts[rank], axis=0)), comm)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            grid.partitioned(dialect="heat")
        assert bool(found) == warned, (counts, found)
        assert not found or "balance_()" in str(found[0].message)


@check
def mean() -> None:
    array = to_heat(grid_of_ranks())
    np.testing.assert_allclose(ht.mean(array, axis=0).numpy(), whole().mean(axis=0))
    np.testing.assert_allclose(float(ht.mean(array)), whole().mean())


@check
def matmul() -> None:
    array = to_heat(grid_of_ranks())
    # HeAT 1.8.0 multiplies its own arrays wrongly as well when ranks have more rows than others.
    array.balance_()
    product = ht.matmul(ht.transpose(array, (1, 0)), array)
    np.testing.assert_allclose(product.numpy(), whole().T @ whole())


@check
def resplit() -> None:
    array = to_heat(grid_of_ranks())
    np.testing.assert_array_equal(ht.resplit(array, None).numpy(), whole())
    # HeAT 1.8.0 raises MPI_ERR_TRUNCATE for its own arrays as well when ranks have more rows than others.
    array.balance_()
    np.testing.assert_array_equal(ht.resplit(array, 1).numpy(), whole())


@check
def standardise_in_place_leaves_the_tiles_alone() -> None:
    grid = grid_of_ranks()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*not writable.*")
        array = to_heat(grid)
    array += 1.0
    np.testing.assert_array_equal(array.numpy(), whole() + 1.0)
    mine = grid.tile(rank).to_arrow().column(0).to_numpy()
    np.testing.assert_array_equal(mine, rows_of(rank)[:, 0])


@check
def several_row_bands_and_column_bands_of_one_rank() -> None:
    batches = table_of(rows_of(rank)).to_batches(max_chunksize=1)
    grid = mpi.from_local(pa.Table.from_batches(batches), comm)
    assert len(grid.tiles) == len(whole())
    np.testing.assert_array_equal(to_heat(grid[["c2", "c0"]]).numpy(), whole()[:, [2, 0]])


@check
def integers_bytes_and_small_floats() -> None:
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "float32", "float64"):
        grid = mpi.from_local(table_of(rows_of(rank).astype(dtype)), comm)
        array = to_heat(grid)
        assert np.dtype(array.dtype.char()) == np.dtype(dtype), dtype
        np.testing.assert_array_equal(array.numpy(), whole().astype(dtype))


@check
def a_rank_without_rows() -> None:
    given = None if rank == size - 1 and size > 2 else table_of(rows_of(rank))
    grid = mpi.from_local(given, comm)
    wanted = whole() if size <= 2 else np.concatenate([rows_of(each) for each in range(size - 1)])
    array = to_heat(grid)
    np.testing.assert_array_equal(array.numpy(), wanted)
    np.testing.assert_allclose(float(ht.sum(array)), wanted.sum())


def refused(kind: type[Exception], text: str, call: Callable[[], object]) -> None:
    """All ranks get the same error, none waits."""
    try:
        call()
        message = "nothing was raised"
    except kind as error:
        message = str(error)
    said = set(comm.allgather(message))
    assert len(said) == 1, said
    assert text in message, message


@check
def nulls_of_one_rank_are_refused_on_all() -> None:
    values = [1.0, None] if rank == size - 1 else [1.0, 2.0]
    grid = mpi.from_local(pa.table({"a": values}), comm)
    refused(pg.errors.InvalidDataError, f"rank {size - 1}: ", lambda: to_heat(grid))
    filled = to_heat(grid, fill_null=-1.0)
    assert float(ht.min(filled)) == -1.0


@check
def a_value_of_one_rank_that_the_type_does_not_hold_is_refused_on_all() -> None:
    large = 2**60 + 1 if rank == 0 else 1
    grid = mpi.from_local(pa.table({"a": [large, 1], "b": [0.5, 1.5]}), comm)
    refused(pg.errors.InvalidDataError, "rank 0: ", lambda: to_heat(grid))


@check
def types_that_heat_does_not_have_are_refused_with_a_cast() -> None:
    grid = mpi.from_local(table_of(rows_of(rank).astype("uint32")), comm)
    refused(pg.errors.UnsupportedError, 'dtype="int64"', lambda: to_heat(grid))
    np.testing.assert_array_equal(to_heat(grid, dtype="int64").numpy(), whole())


@check
def one_rank_with_all_rows_is_refused_where_heat_would_wait() -> None:
    grid = mpi.from_local(table_of(rows_of(0)) if rank == 0 else None, comm)
    if size == 1:
        np.testing.assert_array_equal(to_heat(grid).numpy(), rows_of(0))
    else:
        refused(pg.errors.UnsupportedError, "rank 0 has all rows", lambda: to_heat(grid))


@check
def other_columns_on_one_rank_are_refused_on_all() -> None:
    name = "b" if rank == size - 1 and size > 1 else "a"
    if size > 1:
        refused(
            pg.errors.InvalidArgumentError,
            f"rank 0 has `a` Int64, rank {size - 1} has `b` Int64",
            lambda: mpi.from_local(pa.table({name: [1]}), comm),
        )


@check
def an_error_of_one_rank_is_raised_on_all() -> None:
    broken = object() if rank == size - 1 else pa.table({"a": [1]})
    refused(pg.errors.ProtocolError, f"rank {size - 1}: ", lambda: mpi.from_local(broken, comm))


@check
def the_draft_has_the_processes_and_locals() -> None:
    described = grid_of_ranks().__partitioned__
    processes = [entry["location"][0][1] for entry in described["partitions"].values()]
    assert processes == comm.allgather(__import__("os").getpid())
    assert described["locals"] == [(rank, 0)]
    present = [key for key, entry in described["partitions"].items() if entry["data"] is not None]
    assert present == described["locals"]


@check
def rules_of_the_draft() -> None:
    """What HeAT 1.8.0 does otherwise, by name; and our dialect for it."""
    heats = deviations(ht.array(whole(), split=0))
    wanted = {"location", "pickles with the standard library", "beyond: fresh at each access"}
    assert wanted <= set(heats), heats
    comm.Barrier()
    sys.stdout.write(f"deviations of HeAT: {sorted(heats)}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert set(deviations(grid_of_ranks().partitioned(dialect="heat"))) == {"location"}
    assert deviations(grid_of_ranks()) == {}


@check
def arrays_of_heat_come_back_without_a_copy() -> None:
    array = ht.array(whole(), split=0)
    grid = pg.from_partitioned(array)
    assert grid.shape == whole().shape
    mine = array.__partitioned__["locals"][0]
    local = array.larray
    assert grid.tile(*mine).shape == tuple(local.shape)
    column = ht.array(np.arange(float(4 * size)), split=0)
    grid = pg.from_partitioned(column)
    tile = grid.tile(*column.__partitioned__["locals"][0]) if size > 1 else grid.tile(0)
    address = tile.column("column_0").__array_interface__["data"][0]
    assert address == column.larray.data_ptr()


@check
def arrays_of_heat_keep_their_ranks() -> None:
    array = ht.array(whole(), split=0)
    grid = mpi.from_local(array, comm)
    assert (grid.rank, grid.num_ranks, grid.shape) == (rank, size, whole().shape)
    again = to_heat(grid)
    np.testing.assert_array_equal(again.numpy(), whole())
    assert again.split == (0 if size > 1 else None)


@check
def a_heat_array_of_one_value() -> None:
    grid = pg.from_partitioned(ht.array(5.0))
    assert grid.to_arrow().to_pydict() == {"column_0": [5.0]}


@check
def views_are_shared_where_they_are_asked_for() -> None:
    values = np.asfortranarray(rows_of(rank))
    grid = mpi.from_local(pg.from_numpy(values), comm)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        described = grid.partitioned(dialect="heat", copy=False).__partitioned__
    mine = described["get"](described["partitions"][described["locals"][0]]["data"])
    assert np.shares_memory(mine, values)


def main() -> None:
    for function in CHECKS:
        function()
        comm.Barrier()
        sys.stdout.write(f"rank {rank} {function.__name__}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
