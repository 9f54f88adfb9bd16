"""Arrays keep memory as long as somebody uses it, and no longer: owners, threads, leaks."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg


class Owned(np.ndarray):
    """An array that weak references can watch."""


def watched(count: int = 1000) -> tuple[Owned, weakref.ref[Any]]:
    array = np.arange(float(count)).view(Owned)
    return array, weakref.ref(array)


@pytest.mark.parametrize("make", [pg.from_numpy, pg.from_dlpack])
def test_a_grid_keeps_its_array_and_lets_it_go(make: Callable[[Any], pg.Grid]) -> None:
    array, alive = watched()
    grid = make(array)
    del array
    gc.collect()
    assert alive() is not None
    column = grid.tile(0).column("column_0")
    del grid
    view = np.from_dlpack(column)
    del column
    assert alive() is not None
    assert view.sum() == 499_500
    del view
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("make", [pg.from_numpy, pg.from_dlpack])
def test_refused_and_copied_arrays_are_let_go_at_once(make: Callable[..., pg.Grid]) -> None:
    array, alive = watched()
    with pytest.raises(pg.errors.InvalidArgumentError):
        make(array, names=["a", "b"])
    grid = make(array[::2])
    del array
    gc.collect()
    assert alive() is None
    assert len(grid) == 500


def test_a_failed_read_leaves_no_reference_to_its_array() -> None:
    array = np.zeros((2, 2, 2))
    before = sys.getrefcount(array)
    for make in (pg.from_numpy, pg.from_dlpack):
        for _ in range(50):
            with pytest.raises(pg.errors.InvalidArgumentError):
                make(array)
    assert sys.getrefcount(array) == before


def test_threads_that_drop_the_last_reference_release_it() -> None:
    for _ in range(20):
        array, alive = watched()
        parts = [pg.from_numpy(array)[start : start + 10] for start in range(0, 80, 10)]
        del array
        views = [np.asarray(part.tile(0).column("column_0")) for part in parts]
        del parts
        start = threading.Barrier(len(views))

        def drop(view: list[np.ndarray], start: threading.Barrier = start) -> None:
            start.wait()
            view.clear()

        threads = [threading.Thread(target=drop, args=([views.pop()],)) for _ in range(len(views))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        assert alive() is None


def test_a_query_may_drop_the_last_reference_on_its_own_thread() -> None:
    array, alive = watched(200_000)
    query = pg.from_numpy(array).sql("SELECT sum(column_0) AS s FROM self WHERE column_0 > 5")
    del array
    assert query.to_arrow()["s"][0].as_py() == sum(range(6, 200_000))
    del query
    for _ in range(100):
        gc.collect()
        if alive() is None:
            break
        threading.Event().wait(0.05)
    assert alive() is None


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def every_way(table: pa.Table, values: np.ndarray) -> None:
    tile = pg.from_arrow(table).tile(0)
    column = tile.column("x")
    column.__dlpack__(max_version=(1, 0))
    column.__dlpack__(copy=True)
    np.from_dlpack(column)
    np.asarray(column)
    memoryview(column).release()
    pa.record_batch(tile)
    tile.__arrow_c_device_array__()
    grid = pg.from_numpy(values)
    grid.to_numpy(copy=True)
    grid.__arrow_c_device_stream__()
    pg.from_dlpack(values)
    pg.from_numpy(values[:, ::-1])


def test_no_way_in_or_out_leaks() -> None:
    table = pa.table({"x": np.arange(100_000.0)})
    values = np.asfortranarray(np.arange(100_000.0).reshape(-1, 2))
    for _ in range(30):
        every_way(table, values)
    gc.collect()
    before = resident_bytes()
    for _ in range(150):
        every_way(table, values)
    gc.collect()
    # One array is 800 kB: a single leak would add 120 MB.
    assert resident_bytes() - before < 40e6
