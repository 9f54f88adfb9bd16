"""How fast tiles go to a GPU and come back, beside plain copies of the driver in the same run. A table and no verdict: the aim is 80 %."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

import partgrid as pg
from driver import Driver

MIB = 1 << 20
SIZES = [MIB, 16 * MIB, 256 * MIB]
ROUNDS = 9


def median_rates(nbytes: int, *ways: Callable[[], object]) -> list[float]:
    """GB/s of each, taken in turn so that all see the same machine."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, spent in zip(ways, times, strict=True):
            begin = time.perf_counter()
            kept = way()
            spent.append(time.perf_counter() - begin)
            del kept
    return [nbytes / statistics.median(spent) / 1e9 for spent in times]


def test_copies_beside_those_of_the_driver() -> None:
    lines = [
        "",
        "GB/s, medians of 9; cudaMemcpy is the driver's cuMemcpy of the same pageable memory",
        f"{'MiB':>5} {'direction':<14} {'partgrid':>9} {'cudaMemcpy':>11} {'of it':>7} {'with allocation':>16} {'of it':>7}",
    ]
    for nbytes in SIZES:
        values = np.arange(nbytes // 8, dtype="f8")
        grid = pg.from_numpy(values)
        there = grid.to("kDLCUDA:0")
        with Driver() as driver:
            place, out = driver.allocate(nbytes), np.zeros_like(values)

            def to_device(
                driver: Driver = driver, values: np.ndarray = values, place: int = place
            ) -> None:
                driver.to_device(place, values.ctypes.data, values.nbytes)

            def to_new_device(driver: Driver = driver, values: np.ndarray = values) -> None:
                fresh = driver.allocate(values.nbytes)
                driver.to_device(fresh, values.ctypes.data, values.nbytes)
                driver.free(fresh)

            def to_host(driver: Driver = driver, out: np.ndarray = out, place: int = place) -> None:
                driver.to_host(out.ctypes.data, place, out.nbytes)

            def to_new_host(
                driver: Driver = driver, values: np.ndarray = values, place: int = place
            ) -> np.ndarray:
                fresh = np.empty_like(values)
                driver.to_host(fresh.ctypes.data, place, fresh.nbytes)
                return fresh

            pairs = [
                ("host to GPU", lambda grid=grid: grid.to("kDLCUDA:0"), to_device, to_new_device),
                ("GPU to host", lambda there=there: there.to("kDLCPU"), to_host, to_new_host),
            ]
            for name, ours, plain, fresh in pairs:
                rate, theirs, allocating = median_rates(nbytes, ours, plain, fresh)
                lines.append(
                    f"{nbytes // MIB:>5} {name:<14} {rate:>9.2f} {theirs:>11.2f} {rate / theirs:>7.0%} {allocating:>16.2f} {rate / allocating:>7.0%}"
                )
            to_host()
            assert np.array_equal(out, values), "what the driver copied is what was measured"
            driver.free(place)
        assert np.array_equal(there.to("kDLCPU").tile(0).column("column_0"), values)
    print("\n".join(lines))
