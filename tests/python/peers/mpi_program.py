"""SQL over the tiles of all ranks: run by `test_mpi.py` under `mpirun`; each check says on every rank that it holds."""

from __future__ import annotations

import os
import pickle
import re
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


def uris() -> list[str]:
    """Where the server of each rank answers. Every rank must call it."""
    mpi.sql("SELECT 1", COMM)
    [[server, _]] = mpi._members.values()
    return COMM.allgather(server.uri)


URIS = uris()


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


def tiles_read(query: str) -> dict[int, dict[str, int]]:
    """How many tiles of FACTS each rank reads, by where they are. To be asked on rank 0, once all ranks have run some SQL over it."""
    [[server, token]] = mpi._members.values()
    connection = pg.connect(server.uri, token=token, insecure=True)
    plan = connection.sql(query).explain(analyze=True)
    scans = re.findall(r"t(\d+): GridScanExec:(.*)", plan)
    assert len(scans) == SIZE, plan
    # Task i is with member i, the one that was asked first.
    order = [URIS.index(uri) for uri in server.members]
    return {order[int(task)]: tiles_by_place(counted) for task, counted in scans}


def tiles_by_place(counted: str) -> dict[str, int]:
    found = re.findall(r"(\w+)_tiles=\{\d+:(\d+)\}", counted)
    return {place: int(count) for place, count in found}


@check
def each_rank_reads_its_own_tiles() -> None:
    pids = COMM.allgather(os.getpid())
    assert [[pid for _, pid in places] for places in FACTS.locations()] == [[pid] for pid in pids]
    query = "SELECT sum(x) AS x FROM facts WHERE g > 3"
    table = mpi.sql(query, COMM, facts=FACTS)
    if table is None or SIZE == 1:
        return
    assert table.to_pydict() == {"x": [EVERYTHING[EVERYTHING.g > 3].x.sum()]}
    assert tiles_read(query) == {rank: {"memory": 1} for rank in range(SIZE)}


@check
def handles_of_a_rank_open_in_the_next_one() -> None:
    before = (RANK - 1) % SIZE
    sent = pickle.dumps(FACTS.__partitioned__)
    heard = pickle.loads(COMM.sendrecv(sent, dest=(RANK + 1) % SIZE, source=before))
    assert heard["locals"] == [(before, 0)]
    for position, entry in heard["partitions"].items():
        if position in heard["locals"]:
            frame = heard["get"](entry["data"])
            pd.testing.assert_frame_equal(frame, rows(before), check_dtype=False)
        else:
            # What is with others than the one that said it has no handle.
            with pytest.raises(pg.errors.ProtocolError, match="NoneType"):
                heard["get"](entry["data"])


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
    with pytest.raises(pg.errors.InvalidArgumentError, match="from_local") as caught:
        mpi.sql("SELECT 1", COMM, facts=pg.from_arrow(pa.table({"a": [1]})))
    assert "got partgrid.Grid\n" in str(caught.value)


@check
def values_take_the_place_of_parameters() -> None:
    for query, params in (
        ("SELECT sum(x) AS x FROM facts WHERE g = $1 AND id >= $2", [3, 100]),
        ("SELECT sum(x) AS x FROM facts WHERE g = $g AND id >= $id", {"g": 3, "id": 100}),
    ):
        table = mpi.sql(query, COMM, params=params, facts=FACTS)
        if table is not None:
            some = EVERYTHING[(EVERYTHING.g == 3) & (EVERYTHING.id >= 100)]
            assert table.to_pydict() == {"x": [some.x.sum()]}
    table = mpi.sql("SELECT length($1) AS n", COMM, params=[memoryview(b"abc")])
    assert table is None or table.to_pydict() == {"n": [3]}
    if SIZE > 1:
        with pytest.raises(pg.errors.InvalidArgumentError, match=r"with \[1\]"):
            mpi.sql("SELECT $1", COMM, params=[RANK])


@check
def what_is_no_communicator_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"comm must have .*, got \[3\]"
    ) as caught:
        mpi.sql("SELECT sum(x) FROM facts WHERE g = $1", [3], facts=FACTS)
    assert "params=[" in caught.value.hint
    with pytest.raises(pg.errors.InvalidArgumentError, match=r"got partgrid\.Grid"):
        mpi.sql("SELECT 1 FROM facts", FACTS)


for each in CHECKS:
    each()
    # In one piece, since all ranks write to one place.
    os.write(1, f"\nrank {RANK} {each.__name__}\n".encode())
COMM.Barrier()
