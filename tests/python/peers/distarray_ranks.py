"""What the checks of `distarray_program.py` share: the ranks, arrays that lie on them in every way, and what distarray and partgrid make of a section.

Comes in: a section of this rank, and what it should hold. Goes out: nothing, or an `AssertionError` that says where the two libraries, or the model, differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI

import partgrid as pg
from peers import old_distarray
from peers.distarray_model import Array, Line, Lying, block, cyclic, padded, unstructured

localarray, maps = old_distarray.on_ranks()
client = old_distarray.of_client()
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
CHECKS: list[Callable[[], None]] = []
KINDS = ["i1", "u2", "<f4", ">f8", "f2", "c8", "c16", "?", "S5"]


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


def even(count: int, ranks: int) -> list[int]:
    return [count * each // ranks for each in range(ranks + 1)]


def grids(dimensions: int) -> list[tuple[int, ...]]:
    """The ways to place all ranks."""
    counts = itertools.product(range(1, size + 1), repeat=dimensions)
    return [each for each in counts if np.prod(each) == size]


def dealt(count: int, ranks: int, seed: int = 0) -> list[list[int]]:
    """All indices in any order, on any rank; perhaps some have none."""
    random = np.random.default_rng(seed)
    cuts = np.sort(random.integers(0, count + 1, ranks - 1))
    return [each.tolist() for each in np.split(random.permutation(count), cuts)]


def lines(ranks: int) -> dict[str, Line]:
    """One dimension on some ranks in each way that distarray reads as the protocol says."""
    return {
        "even block": block(even(3 * ranks, ranks)),
        "irregular block": block([0, *range(2, ranks + 1), 2 * ranks + 3]),
        "empty ranks": block([0, *[0] * (ranks // 2), *[5] * (ranks - ranks // 2)]),
        "padded": padded(even(4 * ranks, ranks), 2),
        "cyclic": cyclic(2 * ranks + 1, ranks),
        "cyclic, ranks without elements": cyclic(max(1, ranks - 1), ranks),
        "block-cyclic, whole blocks": cyclic(6 * ranks, ranks, 3),
        "block-cyclic, an uneven number of blocks": cyclic(2 * ranks + 2, ranks, 2),
        "block-cyclic, the last block on rank 0": cyclic(2 * ranks + 1, ranks, 2),
        "unstructured": unstructured(dealt(3 * ranks, ranks)),
    }


def places() -> Iterator[tuple[str, Lying]]:
    """Arrays of one to three dimensions on all ranks; each kind of line meets others."""
    for name, line in lines(size).items():
        yield name, Lying(line)
    for dimensions in (2, 3):
        for number, grid in enumerate(grids(dimensions)):
            kinds = [list(lines(ranks).items()) for ranks in grid]
            for turn in range(0, len(kinds[0]), 2 if dimensions == 2 else 5):
                chosen = [
                    each[(turn + number + 3 * axis) % len(each)] for axis, each in enumerate(kinds)
                ]
                yield " x ".join(name for name, _ in chosen), Lying(*[line for _, line in chosen])


@contextmanager
def read(section: Any, ranks: MPI.Comm = comm) -> Iterator[Any]:
    """The section as a `LocalArray`; its communicators are freed, since there are only so many."""
    local = localarray.LocalArray.from_distarray(ranks, section)
    yield local
    if local.distribution.comm != MPI.COMM_NULL:
        local.distribution.comm.Free()


@contextmanager
def first(count: int) -> Iterator[MPI.Comm | None]:
    """A communicator of the first ranks; nothing on the others."""
    made = comm.Split(0 if rank < count else MPI.UNDEFINED, rank)
    yield None if made == MPI.COMM_NULL else made
    if made != MPI.COMM_NULL:
        made.Free()


def same(found: Any, expected: Array, what: object = "") -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (what, found, expected)
    assert np.array_equal(found, expected), (what, found, expected)


def findings(section: dict[str, Any], ranks: MPI.Comm) -> list[pg.distarray.Finding]:
    """What the validator of partgrid says of the sections of all ranks. Arrays of partgrid, such as `indices`, do not pickle."""
    dimensions = [
        dictionary | {key: np.asarray(dictionary[key]) for key in dictionary if key == "indices"}
        for dictionary in section["dim_data"]
    ]
    plain = {"buffer": np.asarray(section["buffer"]), "dim_data": tuple(dimensions)}
    return pg.distarray.validate(ranks.allgather(section | plain))


def agrees(local: Any, lying: Lying, expected: Array, what: object) -> None:
    """A `LocalArray` of this rank has the elements, and its maps lead where partgrid's lead, for every index."""
    same(local.ndarray, expected, what)
    assert local.global_shape == lying.shape == lying.ours.shape, what
    assert local.grid_shape == lying.grid, what
    assert local.cart_coords == lying.places(rank) == lying.ours.coordinates(rank), what
    assert local.local_shape == lying.ours.local_shape(rank), what
    for index in np.ndindex(*lying.shape):
        owner, at = lying.ours.locate(index)
        if owner == rank:
            assert local.local_from_global(index) == at, (what, index)
            assert local.global_from_local(at) == index, (what, at)
            assert local.global_index[index] == expected[at], (what, index)
    for line, theirs, place, held in zip(
        lying.lines, local.distribution, lying.places(rank), lying.held(rank), strict=True
    ):
        assert [int(each) for each in theirs.global_iter] == held.tolist(), what
        for at, index in enumerate(held.tolist()):
            assert theirs.global_from_local_index(at) == index == line.map.global_index(place, at)
            assert theirs.local_from_global_index(index) == at, (what, index)
        for index in set(range(line.size)) - set(held.tolist()):
            try:
                theirs.local_from_global_index(index)
            except IndexError:
                continue
            raise AssertionError((what, index, "distarray finds it here"))


def refused(
    kind: type[Exception], text: str, call: Callable[[], object], ranks: MPI.Comm = comm
) -> None:
    """All ranks get the same error, none waits."""
    try:
        call()
        message = "nothing was raised"
    except kind as error:
        message = str(error)
    said = set(ranks.allgather(message))
    assert len(said) == 1, said
    assert text in message, message
