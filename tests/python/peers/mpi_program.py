"""SQL over the tiles of all ranks: run by `test_mpi.py` under `mpirun`; each check says on every rank that it holds."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from mpi4py import MPI

import partgrid as pg
from partgrid.engines import mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()
CHECKS: list[Callable[[], None]] = []


def check(test: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(test)
    return test


def rows(rank: int) -> pd.DataFrame:
    """What a rank has; all ranks can work it out, so that answers can be compared."""
    ids = np.arange(rank * 5_000, rank * 5_000 + 3_000 + rank * 100)
    return pd.DataFrame({"id": ids, "g": ids % 11, "x": ids * 37 % 1009, "rank": rank})


EVERYTHING = pd.concat([rows(rank) for rank in range(SIZE)], ignore_index=True)
FACTS = mpi.from_local(rows(RANK), COMM)


@check
def groups_are_those_of_pandas() -> None:
    query = "SELECT g, sum(x) AS x, count(*) AS n, count(DISTINCT rank) AS ranks FROM facts GROUP BY g ORDER BY g"
    table = mpi.sql(query, COMM, facts=FACTS)
    if RANK != 0:
        assert table is None
        return
    groups = EVERYTHING.groupby("g")
    expected = pd.DataFrame(
        {"x": groups.x.sum(), "n": groups.size(), "ranks": groups["rank"].nunique()}
    )
    pd.testing.assert_frame_equal(table.to_pandas().set_index("g"), expected, check_dtype=False)


@check
def any_rank_gets_the_answer() -> None:
    for root in range(SIZE):
        table = mpi.sql("SELECT max(id) AS id FROM facts", COMM, root=root, facts=FACTS)
        assert (table is None) == (root != RANK)
        if table is not None:
            assert table.to_pydict() == {"id": [EVERYTHING.id.max()]}


@check
def two_grids_are_joined() -> None:
    mine = [g for g in range(11) if g % SIZE == (RANK + 1) % SIZE]
    names = mpi.from_local(
        pa.table({"g": pa.array(mine, pa.int64()), "name": [f"name {g}" for g in mine]}), COMM
    )
    query = "SELECT name, count(*) AS n FROM facts JOIN names USING (g) GROUP BY name ORDER BY name"
    table = mpi.sql(query, COMM, facts=FACTS, names=names)
    if table is not None:
        expected = EVERYTHING.groupby("g").size()
        assert table.to_pylist() == sorted(
            ({"name": f"name {g}", "n": n} for g, n in expected.items()),
            key=lambda row: row["name"],
        )


@check
def each_rank_reads_its_own_tiles() -> None:
    query = "EXPLAIN SELECT sum(x) FROM facts WHERE g > 3"
    table = mpi.sql(query, COMM, facts=FACTS)
    if table is not None and SIZE > 1:
        plan = table.to_pandas().to_string(max_colwidth=None)
        assert f"SpreadExec: members={SIZE}" in plan, plan
        assert plan.count("GridScanExec") == SIZE, plan


@check
def a_rank_without_rows_takes_part() -> None:
    lonely = mpi.from_local(rows(0) if RANK == SIZE - 1 else None, COMM)
    table = mpi.sql(
        "SELECT count(*) AS n, sum(x) AS x FROM lonely WHERE id >= 0", COMM, lonely=lonely
    )
    if table is not None:
        assert table.to_pydict() == {"n": [len(rows(0))], "x": [rows(0).x.sum()]}


@check
def wrong_sql_is_an_error_on_all_ranks() -> None:
    with pytest.raises(pg.errors.QueryError, match="nothing"):
        mpi.sql("SELECT nothing FROM facts", COMM, facts=FACTS)


@check
def different_wishes_are_an_error_on_all_ranks() -> None:
    if SIZE == 1:
        return
    with pytest.raises(pg.errors.InvalidArgumentError, match="same"):
        mpi.sql(f"SELECT {RANK}", COMM, facts=FACTS)


@check
def a_grid_of_one_process_is_refused() -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match="from_local"):
        mpi.sql("SELECT 1", COMM, facts=pg.from_arrow(pa.table({"a": [1]})))


for each in CHECKS:
    each()
    # In one piece, since all ranks write to one place.
    os.write(1, f"\nrank {RANK} {each.__name__}\n".encode())
COMM.Barrier()
