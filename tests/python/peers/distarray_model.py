"""What the text of the Distributed Array Protocol says of an array, in a few lines of numpy: nothing of partgrid or distarray works it out.

Comes in: one `Line` for each dimension. Goes out: who holds which global indices, and the elements there, each a function of its global index.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from partgrid import distarray

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Line:
    """One dimension: its map in partgrid, and for each rank the global indices that its buffer holds, with those among them that it owns."""

    map: distarray.Map
    size: int
    held: list[Array]
    owned: list[slice]
    # Whether distarray 0.6.0 counts the elements of every rank as the protocol does.
    sound: bool = True

    @property
    def ranks(self) -> int:
        return len(self.held)


def block(bounds: Sequence[int]) -> Line:
    held = [np.arange(a, b) for a, b in itertools.pairwise(bounds)]
    return Line(distarray.block(list(bounds)), bounds[-1], held, [slice(None)] * len(held))


def padded(bounds: Sequence[int], width: int, *, periodic: bool = False) -> Line:
    """Communication padding at each border, and with `periodic` (0.9) also between the last and the first."""
    size, ranks = bounds[-1], len(bounds) - 1
    held, owned = [], []
    for rank, (first, end) in enumerate(itertools.pairwise(bounds)):
        left = width if rank > 0 or periodic else 0
        right = width if rank < ranks - 1 or periodic else 0
        held.append(np.arange(first - left, end + right) % size)
        owned.append(slice(left, left + end - first))
    more: dict[str, Any] = {"periodic": True, "version": "0.9.0"} if periodic else {}
    return Line(distarray.block(list(bounds), padding=width, **more), size, held, owned)


def cyclic(size: int, ranks: int, by: int = 1) -> Line:
    every = np.arange(size)
    held = [every[every // by % ranks == rank] for rank in range(ranks)]
    # Its counts give the last block to rank 0 when it is not whole, and that is right only there.
    sound = by == 1 or size % by == 0 or size // by % ranks == 0
    made = distarray.cyclic(size, ranks, block_size=by)
    return Line(made, size, held, [slice(None)] * ranks, sound)


def unstructured(indices: Sequence[Sequence[int]]) -> Line:
    held = [np.array(each, dtype=np.int64) for each in indices]
    made = distarray.unstructured([each.tolist() for each in held])
    return Line(made, sum(map(len, held)), held, [slice(None)] * len(held))


class Lying:
    """The product of lines; ranks are numbered row-major."""

    def __init__(self, *lines: Line) -> None:
        self.lines = lines
        self.shape = tuple(line.size for line in lines)
        self.grid = tuple(line.ranks for line in lines)
        self.ranks = math.prod(self.grid)
        self.sound = all(line.sound for line in lines)
        self.ours = distarray.Distribution([line.map for line in lines])

    def places(self, rank: int) -> tuple[int, ...]:
        return tuple(int(each) for each in np.unravel_index(rank, self.grid)) if self.grid else ()

    def held(self, rank: int) -> list[Array]:
        places = zip(self.lines, self.places(rank), strict=True)
        return [line.held[place] for line, place in places]

    def owned(self, rank: int) -> tuple[slice, ...]:
        places = zip(self.lines, self.places(rank), strict=True)
        return tuple(line.owned[place] for line, place in places)

    def buffer(self, rank: int, dtype: Any = "i8") -> Array:
        """The elements that a rank holds."""
        flat: Array = np.zeros([len(each) for each in self.held(rank)], dtype=np.int64)
        for axis, (indices, size) in enumerate(zip(self.held(rank), self.shape, strict=True)):
            row = np.reshape(indices, [-1 if each == axis else 1 for each in range(len(self.grid))])
            flat = flat * size + row
        return np.asarray(of_index(flat, dtype))

    def section(self, rank: int, dtype: Any = "i8", version: str = "0.10.0") -> dict[str, Any]:
        dim_data = self.ours.dim_data(rank, version)
        return {"__version__": version, "buffer": self.buffer(rank, dtype), "dim_data": dim_data}

    def __repr__(self) -> str:
        return repr(self.ours)


def of_index(flat: Array, dtype: Any) -> Array:
    """The element at a global index, numbered row-major; neighbours differ."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return (flat * 7 % 5 < 2).astype(dtype)
    if dtype.kind == "c":
        return (flat - 1j * (flat % 11)).astype(dtype)
    if dtype.kind == "S":
        return np.char.mod("%d", flat).astype(dtype)
    # What the type holds exactly.
    last = {1: 120, 2: 2000}.get(dtype.itemsize, 2**24)
    return (flat % last + 1).astype(dtype)
