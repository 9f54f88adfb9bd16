"""Random tables whose parts members of a cluster have."""

from __future__ import annotations

import itertools
import os
import random

import pyarrow as pa

from random_queries import table

SEED = int(os.environ.get("PARTGRID_RANDOM_SEED", "20261127"))


def tables() -> dict[str, pa.Table]:
    """Those of the first seed from there on that have rows enough for all members."""

    def made(seed: int) -> dict[str, pa.Table]:
        rng = random.Random(seed)
        return {name: table(rng, many=name == "t") for name in "tuv"}

    def is_enough(found: dict[str, pa.Table]) -> bool:
        return len(found["t"]) >= 100 and min(map(len, found.values())) >= 10

    return next(filter(is_enough, map(made, itertools.count(SEED))))


def part(name: str, number: int) -> pa.Table:
    """Some of the rows of a table: the first part has few, and the last of `v` none."""
    data = tables()[name]
    ends = [0, len(data) // 5, len(data) if name == "v" else len(data) // 2, len(data)]
    return data.slice(ends[number], ends[number + 1] - ends[number])
