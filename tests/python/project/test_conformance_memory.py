"""The conformance suites of Arrow PyCapsules and DLPack: on partgrid, and on producers of other libraries, whose deviations are recorded by name."""

from __future__ import annotations

from typing import Any

import arro3.core
import duckdb
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tvm_ffi

import partgrid as pg
from conformance import arrow_capsules, dlpack

TABLE = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
BATCH = TABLE.to_batches()[0]


def grid() -> pg.Grid:
    return pg.from_arrow(pa.Table.from_batches(TABLE.to_batches(max_chunksize=2)))


OURS: dict[str, Any] = {
    "grid": grid,
    "grid without rows": lambda: grid()[0:0],
    "grid of one column": lambda: grid()["a"],
    "tile": lambda: grid().tile(0),
    "result": lambda: grid().sql("SELECT * FROM self"),
    "schema": lambda: grid().__partitioned__["schema"],
}


@pytest.mark.parametrize("name", OURS)
def test_partgrid_keeps_every_rule_of_capsules(name: str) -> None:
    assert arrow_capsules.deviations(OURS[name]()) == {}


ONCE = {
    "stream: None for no wish",
    "stream: can be asked for twice",
    "stream: its schema is that of its batches",
    "stream: a wish for its own schema changes nothing",
    "stream: an unread capsule is released with it",
}

# What is made, and the rules that it is known to break.
PEERS: dict[str, tuple[Any, set[str]]] = {
    "pyarrow table": (lambda: TABLE, set()),
    "pyarrow batch": (lambda: BATCH, set()),
    "polars": (lambda: pl.DataFrame({"a": [1, None]}), set()),
    "pandas": (lambda: pd.DataFrame({"a": [1, 2]}), set()),
    "duckdb": (lambda: duckdb.sql("SELECT 1 AS a"), set()),
    "arro3 table": (lambda: arro3.core.Table.from_arrow(TABLE), set()),
    "arro3 batch": (lambda: arro3.core.RecordBatch.from_arrow(BATCH), set()),
    "nanoarrow array": (
        lambda: nanoarrow.Array(BATCH),
        {"stream: a wish for its own schema changes nothing"},
    ),
    # It is a stream and not a table: it can be read once.
    "nanoarrow stream": (lambda: nanoarrow.ArrayStream(TABLE), ONCE),
}


@pytest.mark.parametrize("name", PEERS)
def test_peers_break_the_rules_of_capsules_that_are_known(name: str) -> None:
    make, known = PEERS[name]
    assert set(arrow_capsules.deviations(make())) == known


class Odd:
    """Breaks most of the rules."""

    def __arrow_c_stream__(self) -> Any:
        return TABLE.schema.__arrow_c_schema__()

    def __arrow_c_array__(self, _requested: Any = None) -> Any:
        return BATCH.__arrow_c_array__()[1]

    def __arrow_c_device_array__(self, _requested: Any = None, **_later: Any) -> Any:
        return BATCH.__arrow_c_array__()

    def __arrow_c_device_stream__(self, _requested: Any = None) -> Any:
        return 5

    def __arrow_c_schema__(self) -> Any:
        return BATCH.__arrow_c_array__()[1]


def test_the_rules_of_capsules_can_be_broken() -> None:
    assert set(arrow_capsules.deviations(Odd())) == set(arrow_capsules.RULES)


@pytest.mark.parametrize("order", ["F", "C"])
def test_partgrid_keeps_every_rule_of_dlpack(order: Any) -> None:
    frame = pg.from_numpy(np.array(np.arange(6.0).reshape(3, 2), order=order))
    assert dlpack.deviations(frame.tile(0).column("column_1")) == {}
    dense = pg.from_numpy(np.asfortranarray(np.arange(6.0).reshape(3, 2)))
    assert dlpack.deviations(dense.tile(0).array()) == {}
    assert dlpack.deviations(pg.from_numpy(np.zeros(0)).tile(0).column("column_0")).keys() <= {
        # There is no memory to be shared.
        "copy=False: the same memory"
    }


@pytest.mark.parametrize("layout", [(0, 1), (1, 0)])
def test_storages_keep_every_rule_of_dlpack(layout: tuple[int, int]) -> None:
    storage = pg.storage.full((4, 3), 2.5, layout=layout, alignment_size=64)
    assert dlpack.deviations(storage) == {}
    frozen = pg.storage.ones((4, 3), layout=(1, 0))
    grid = pg.from_storage(frozen)
    assert dlpack.deviations(frozen) == {}
    assert dlpack.deviations(grid.tile(0).storage()) == {}


def test_peers_break_the_rules_of_dlpack_that_are_known() -> None:
    fixed = np.arange(3.0)
    fixed.flags.writeable = False
    assert dlpack.deviations(np.arange(3.0)) == {}
    assert dlpack.deviations(fixed) == {}
    assert set(dlpack.deviations(tvm_ffi.from_dlpack(np.arange(3.0)))) == {
        "a legacy capsule, or BufferError, for others",
        "copy=True: memory of its own",
        "stream: None on the CPU, others are refused",
    }


class Sly:
    """Gives everybody the same legacy capsule."""

    def __dlpack__(self, **_arguments: Any) -> Any:
        return np.arange(3.0).__dlpack__()

    def __dlpack_device__(self) -> Any:
        return [1, 0]


def test_the_rules_of_dlpack_can_be_broken() -> None:
    broken = set(dlpack.deviations(Sly()))
    assert {
        "device: a tuple of two integers, the CPU",
        "a versioned capsule for a consumer of version 1",
        "version 2 gets version 1",
        "copy=False: the same memory",
        "dl_device: a device that is not there is refused",
        "stream: None on the CPU, others are refused",
    } <= broken
