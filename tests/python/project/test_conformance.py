"""The conformance suites on partgrid, and on producers whose deviations are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from conformance.partitioned import RULES, deviations


def grids() -> dict[str, pg.Grid]:
    table = pa.table({"a": range(10), "b": [float(n) for n in range(10)], "c": range(10)})
    batches = table.to_batches(max_chunksize=4)
    return {
        "one tile": pg.from_arrow(table),
        "three tiles": pg.from_arrow(pa.Table.from_batches(batches)),
        "no rows": pg.from_arrow(table.slice(0, 0)),
        "a slice": pg.from_arrow(pa.Table.from_batches(batches))[3:9][["c", "a"]],
    }


@pytest.mark.parametrize("name", ["one tile", "three tiles", "no rows", "a slice"])
@pytest.mark.parametrize("data", [None, "pandas", "polars", "pyarrow", "arro3", "numpy", "tile"])
def test_partgrid_keeps_every_rule(name: str, data: str | None) -> None:
    grid = grids()[name]
    producer = grid if data is None else grid.partitioned(data)
    assert deviations(producer) == {}


class LikeHeat:
    """The dictionary that HeAT 1.8.0 makes on one of two ranks, with numpy in the place of torch."""

    def __init__(self) -> None:
        self._kept = {
            "shape": (6, 2),
            "partition_tiling": (2, 1),
            "partitions": {
                (rank, 0): {
                    "start": (3 * rank, 0),
                    "shape": (3, 2),
                    "data": np.zeros((3, 2)) if rank == 0 else None,
                    "location": [rank],
                    "dtype": "float64",
                    "device": "cpu",
                }
                for rank in range(2)
            },
            "locals": [(0, 0)],
            "get": lambda x: x,
        }

    @property
    def __partitioned__(self) -> dict[str, Any]:
        return self._kept


class Method:
    def __partitioned__(self) -> dict[str, Any]:
        return {}


class Broken:
    """Breaks most of the rules."""

    @property
    def __partitioned__(self) -> dict[str, Any]:
        parts = {(0,): {"start": [0], "shape": (3,), "data": np.zeros(2), "location": "here"}}
        return {"shape": (4,), "partition_tiling": (2,), "partitions": parts, "get": len}

    def __iter__(self) -> Any:
        return iter(())


def test_deviations_have_names() -> None:
    seen = deviations(LikeHeat())
    assert set(seen) == {
        "location",
        "pickles with the standard library",
        "beyond: fresh at each access",
    }
    assert seen["location"] == "[0] at (0, 0)"
    assert "lambda" in seen["pickles with the standard library"]
    assert deviations(Method()) == {"property": "it is a method"}
    broken = deviations(Broken())
    assert set(broken) == set(RULES) - {
        "fields",
        "shape and partition_tiling",
        "locals",
        "one type of data",
        "pickles with the standard library",
        "beyond: fresh at each access",
    }
