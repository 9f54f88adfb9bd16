"""What distarray 0.6.0 reads of partgrid, and partgrid of distarray, run by `test_distarray.py` with `mpiexec` on some ranks.

Each check prints its name when it holds on a rank. Those of `distarray_moves.py` and `distarray_refusals.py` run here too, and `distarray_deviations.py`: what
distarray does otherwise than the protocol says.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

import partgrid as pg
from partgrid.engines import mpi
from peers import distarray_deviations, distarray_moves, distarray_refusals, old_distarray
from peers.distarray_model import Lying, block, cyclic
from peers.distarray_ranks import (
    CHECKS,
    KINDS,
    agrees,
    check,
    comm,
    even,
    findings,
    localarray,
    maps,
    places,
    rank,
    read,
    same,
    size,
)

# They add their checks.
__all__ = ["distarray_moves", "distarray_refusals"]


@check
def sections_of_partgrid_are_read_by_distarray() -> None:
    for number, (name, lying) in enumerate(places()):
        kind = KINDS[number % len(KINDS)]
        # Without padding both versions say the same.
        version = "0.9.0" if number % 3 == 0 and "padded" not in name else "0.10.0"
        given = lying.section(rank, kind, version)
        array = pg.distarray.from_local(given, comm)
        assert (array.distribution, array.version) == (lying.ours, version), name
        section = array.local.__distarray__()
        if version == "0.10.0":
            assert old_distarray.validator.validate(section) == (True, ""), name
        with read(section) as local:
            assert np.shares_memory(local.ndarray, given["buffer"]) or not given["buffer"].size
            agrees(local, lying, lying.buffer(rank, kind), name)


@check
def grids_of_ranks_are_read_without_a_copy() -> None:
    """Rank r has r + 2 rows, of three columns in one allocation."""
    bounds = [sum(each + 2 for each in range(count)) for count in range(size + 1)]
    for version in ("0.10.0", "0.9.0"):
        for kind in ("i2", "f4", "f8"):
            both = Lying(block(bounds), block([0, 3]))
            values = np.asfortranarray(both.buffer(rank, kind))
            grid = mpi.from_local(values, comm)
            for column, name in enumerate(grid.columns):
                array = grid.distarray(name, version=version, distribution="rank")
                assert array.copies == []
                with read(array.local) as local:
                    assert np.shares_memory(local.ndarray, values)
                    assert not local.ndarray.flags.writeable
                    agrees(local, Lying(block(bounds)), values[:, column], name)
            array = grid.distarray(grid.columns, version=version, distribution="rank")
            with read(array.local) as local:
                agrees(local, both, values, "three columns")


class Dealt:
    """A program whose row bands are dealt out: those of others are only known by their place."""

    def __init__(self, lengths: list[int], owners: list[int]) -> None:
        pids = comm.allgather(os.getpid())
        [[(address, _)]] = {
            tuple(each["location"])
            for each in pg.from_numpy(np.arange(1)).__partitioned__["partitions"].values()
        }
        cuts = np.cumsum([0, *lengths]).tolist()
        own = [band for band, owner in enumerate(owners) if owner == rank]
        self.values = {band: np.arange(cuts[band], cuts[band + 1]) + 0.5 for band in own}
        self.__partitioned__ = {
            "shape": (cuts[-1], 1),
            "partition_tiling": (len(lengths), 1),
            "partitions": {
                (band, 0): {
                    "start": (cuts[band], 0),
                    "shape": (length, 1),
                    "data": self.values[band][:, None] if band in own else None,
                    "location": [(address, pids[owners[band]])],
                }
                for band, length in enumerate(lengths)
            },
            "get": lambda data: data,
            "locals": [(band, 0) for band in own],
        }


@check
def row_bands_in_any_turn_are_cyclic_or_unstructured() -> None:
    turns = np.random.default_rng(size).permutation([*range(size)] * 2).tolist()
    for lengths, owners, kind in (
        ([3] * 2 * size, [band % size for band in range(2 * size)], "c"),
        ([3] * (size + 1), [band % size for band in range(size + 1)], "c"),
        ([band + 1 for band in range(2 * size)], turns, "u"),
    ):
        given = Dealt(lengths, owners)
        grid = mpi.from_local(given, comm)
        array = grid.distarray(grid.columns[0], distribution="rank")
        [line] = array.distribution.maps
        assert line.dist_type == kind or owners == sorted(owners), (kind, owners)
        with read(array.local) as local:
            same(local.ndarray, np.concatenate(list(given.values.values())))
            for index in range(array.shape[0]):
                owner, (at,) = array.distribution.locate([index])
                if owner == rank:
                    assert local.ndarray[at] == local.global_index[index] == index + 0.5


def made_by_distarray() -> Iterator[tuple[str, Any]]:
    """Its own arrays: by shape, where it decides how they lie, and by dictionaries."""
    names = ["b", "c"]
    for dimensions in (1, 2, 3):
        for number, kinds in enumerate(itertools.product([*names, "n"], repeat=dimensions)):
            shape = tuple(3 * size + axis + number % 3 for axis in range(dimensions))
            if any(kind != "n" for kind in kinds):
                made = maps.Distribution.from_shape(comm, shape, dist=kinds)
                yield f"{''.join(kinds)} {shape}", made
    for name, lying in places():
        # It forgets padding, and a map of its own has none.
        if "padded" not in name:
            yield name, maps.Distribution(comm, lying.ours.dim_data(rank))


@check
def arrays_of_distarray_come_in() -> None:
    for name, made in made_by_distarray():
        local = localarray.fromfunction(
            lambda *index, shape=made.global_shape: np.ravel_multi_index(index, shape),
            made,
            dtype="f4",
        )
        array = pg.distarray.from_local(local, comm)
        assert array.shape == made.global_shape, name
        assert array.local.shape == local.local_shape, name
        assert (
            np.shares_memory(np.asarray(array.local.buffer), local.ndarray)
            or not local.ndarray.size
        )
        assert findings(local.__distarray__(), comm) == [], name
        owned = {}
        for index in np.ndindex(*array.shape):
            owner, at = array.distribution.locate(index)
            if owner == rank:
                assert np.asarray(array.local.buffer)[at] == np.ravel_multi_index(
                    index, array.shape
                )
                owned[at] = index
        assert len(owned) == local.ndarray.size, name
        whole = Lying(*[block([0, count]) for count in array.shape])
        moved = array.redistribute(whole.ours).execute(comm).local
        if rank == 0:
            same(
                moved.buffer, np.arange(np.prod(array.shape), dtype="f4").reshape(array.shape), name
            )
        made.comm.Free()


@check
def producers_with_other_words_for_one_type() -> None:
    """`<d` of ctypes is `d` of numpy; `q` is `l`; numbers of numpy stand for integers."""
    lying = Lying(block(even(3 * size, size)))
    values = lying.buffer(rank, "f8")
    numbers = {
        key: np.int64(value) if isinstance(value, int) and rank % 2 else value
        for key, value in lying.ours.dim_data(rank)[0].items()
    }
    buffer = (ctypes.c_double * 3)(*values) if rank % 2 else values
    section = {"__version__": "0.10.0", "buffer": buffer, "dim_data": (numbers,)}
    after = Lying(cyclic(3 * size, size))
    array = pg.distarray.from_local(section, comm)
    assert np.shares_memory(np.asarray(array.local.buffer), np.asarray(memoryview(buffer)))
    same(array.redistribute(after.ours).execute(comm).local.buffer, after.buffer(rank, "f8"))


def main() -> None:
    deviations = [each.checked(comm) for each in distarray_deviations.DEVIATIONS.values()]
    for function in [*CHECKS, *deviations]:
        function()
        comm.Barrier()
        sys.stdout.write(f"rank {rank} {function.__name__}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        # The others must not wait for a rank that has failed.
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)
