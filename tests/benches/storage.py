"""Allocating storages beside numpy: time for one, in the same process, in turns, medians; and what it costs to hand memory over.

Run by `make bench-storage`. "made" is a storage that is made and dropped, "written" one that is written once in between, so that its pages must come.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

import partgrid as pg

SHAPES = [(8, 8, 8), (32, 32, 32), (64, 64, 64), (128, 128, 80), (256, 256, 160), (512, 512, 160)]
ROUNDS = 9
SECONDS = 0.03


def seconds_each(work: Callable[[], object]) -> float:
    """The time of one call, of as many as fit into a slice of time."""
    count, begin = 0, time.perf_counter()
    while True:
        work()
        count += 1
        passed = time.perf_counter() - begin
        if passed > SECONDS:
            return passed / count


def compared(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Medians of both, measured in turns."""
    pairs = [(seconds_each(ours), seconds_each(theirs)) for _ in range(ROUNDS)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def written(array: object) -> None:
    """Writes every page once."""
    np.asarray(array).reshape(-1)[::512] = 1.0


def main() -> None:
    """Prints one table."""
    print("| what | shape of float64 | bytes | partgrid | numpy | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    full = {
        "ours": lambda shape: pg.storage.full(shape, 1.5),
        "theirs": lambda shape: np.full(shape, 1.5),
    }
    for name in ("empty", "zeros", "full"):
        ours = full["ours"] if name == "full" else getattr(pg.storage, name)
        theirs = full["theirs"] if name == "full" else getattr(np, name)
        for shape in SHAPES:
            num_bytes = 8 * int(np.prod(shape))
            for what in ("made", "written"):
                if what == "written" and (name == "full" or num_bytes < 1 << 20):
                    continue

                def one(make: Callable[..., object], what: str = what) -> Callable[[], object]:
                    if what == "made":
                        return lambda: make(shape)  # noqa: B023 - called within this turn
                    return lambda: written(make(shape))  # noqa: B023

                a, b = compared(one(ours), one(theirs))
                print(
                    f"| {name}, {what} | {shape} | {num_bytes:,} | {a * 1e6:,.2f} us | {b * 1e6:,.2f} us | {a / b:.2f} |",
                    flush=True,
                )
    grid = pg.from_storage(pg.storage.ones((100_000, 16), layout=(1, 0)))
    tile = grid.tile(0)
    array = tile.array()
    view = seconds_each(lambda: np.asarray(array)) * 1e6
    both = seconds_each(lambda: np.asarray(tile.array())) * 1e6
    print(f"\nnumpy view of a dense band: {view:.2f} us, with tile.array() {both:.2f} us")
    exports()


class Cards:
    """A device whose memory is a dict."""

    def __init__(self) -> None:
        self.buffers: dict[int, bytes] = {}

    def read(self, _ordinal: int, handle: int, start: int, nbytes: int) -> bytes:
        """Bytes of a buffer."""
        return self.buffers[handle][start : start + nbytes]

    def write(self, _ordinal: int, data: bytes) -> tuple[int, None]:
        """A new buffer."""
        self.buffers[len(self.buffers) + 1] = data
        return len(self.buffers), None

    def wait(self, _ordinal: int, _event: int) -> None:
        """Nothing: all that is done here is done at once."""


def exports() -> None:
    """Prints what it costs to hand a tile of 16 columns over: to make both capsules, and to drop them."""
    pg.register_copy_engine("kDLExtDev", Cards())
    here = pg.from_numpy(np.zeros((1000, 16), order="F"))
    for where, grid in (("the host", here), ("a device", here.to("kDLExtDev:0"))):
        export = grid.tile(0).__arrow_c_device_array__
        each = statistics.median(seconds_each(export) for _ in range(ROUNDS)) * 1e6
        print(f"16 columns on {where} as Arrow C Device array: {each:.2f} us", flush=True)


if __name__ == "__main__":
    main()
