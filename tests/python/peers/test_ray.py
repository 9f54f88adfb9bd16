"""Grids in actors of Ray on one machine: SQL where the tiles are, `__partitioned__`, and what happens when actors die."""

from __future__ import annotations

import gc
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: make test-peers")

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import ray

import partgrid as pg
from conformance.partitioned import deviations
from conftest import DATA
from partgrid.engines import ray as engine
from peers.ray_nodes import started

FLIGHTS = DATA / "flights"
ROWS = 9_000


def rows(start: int, count: int) -> pa.Table:
    """Rows of all sorts of types, with nulls; anybody can work them out."""
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "g": ids % 11,
            "x": pa.array([None if i % 7 == 0 else i * 37 % 1009 for i in ids], pa.int64()),
            "f": ids * 0.25,
            "text": pa.array([None if i % 5 == 0 else f"text {i % 101}" for i in ids], pa.string()),
            "price": pa.array(
                [Decimal(int(i) * 7 % 5000) / 100 for i in ids], pa.decimal128(12, 2)
            ),
            "day": pa.array([date(2020, 1 + i % 12, 1 + i % 28) for i in ids], pa.date32()),
            "at": pa.array(ids * 1_000_003, pa.timestamp("us", "Europe/Rome")),
        }
    )


WHOLE = rows(0, ROWS)
FRAME = WHOLE.to_pandas()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with started(num_cpus=3):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows in four files of other lengths, one of them empty."""
    folder = tmp_path_factory.mktemp("facts")
    cuts = [0, 1_000, 1_000, 5_500, ROWS]
    for number, (start, end) in enumerate(pairwise(cuts)):
        pq.write_table(rows(start, end - start), folder / f"{number}.parquet", row_group_size=1_500)
    return folder


@pytest.fixture(scope="module")
def facts(folder: Path) -> Iterator[engine.RayGrid]:
    """Three actors, which tests may kill."""
    with engine.read_parquet(folder, num_members=3) as grid:
        yield grid


def refs_of(table: pa.Table, *lengths: int) -> list[Any]:
    refs, start = [], 0
    for length in lengths:
        refs.append(ray.put(table.slice(start, length).combine_chunks()))
        start += length
    return refs


# Where the tiles are.


def test_each_actor_reads_its_share(facts: engine.RayGrid) -> None:
    assert (len(facts), facts.shape, facts.columns) == (ROWS, (ROWS, 8), WHOLE.column_names)
    assert facts.schema.equals(WHOLE.schema)
    assert facts.cuts[0][0] == 0
    assert facts.cuts[0][-1] == ROWS
    assert facts.tiling == (len(facts.cuts[0]) - 1, 1)
    assert facts.nbytes > ROWS * 8
    places = facts.locations
    assert len(places) == facts.tiling[0]
    assert {address for address, _ in places} == {ray.util.get_node_ip_address()}
    pids = {pid for _, pid in places}
    assert len(pids) == 3
    assert os.getpid() not in pids
    assert all(Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::") for pid in pids)


def test_the_rows_are_those_of_the_files_in_order(facts: engine.RayGrid, folder: Path) -> None:
    assert facts.to_arrow().equals(WHOLE)
    assert facts.to_arrow().equals(pg.read_parquet(folder).to_arrow())
    assert facts.to_pandas()["id"].tolist() == list(range(ROWS))


def test_one_file_is_shared_out_by_its_row_groups(folder: Path) -> None:
    with engine.read_parquet(folder / "2.parquet", num_members=3) as grid:
        assert grid.cuts[0] == (0, 1_500, 3_000, 4_500)
        assert len({pid for _, pid in grid.locations}) == 3
        assert grid.to_arrow().equals(rows(1_000, 4_500))


def test_flights_are_those_that_partgrid_reads_alone(flights: pg.Grid) -> None:
    """Folder names become columns, and column statistics say that all actors see the same files."""
    with engine.read_parquet(FLIGHTS, num_members=3) as grid:
        assert grid.cuts == flights.cuts
        assert grid.to_arrow().equals(flights.to_arrow())
    with engine.read_parquet(
        FLIGHTS, num_members=3, columns=["month", "carrier"], tile_rows=10_000
    ) as grid:
        assert grid.columns == ["month", "carrier"]
        assert grid.cuts[0] == pg.read_parquet(FLIGHTS, lazy=True, tile_rows=10_000).cuts[0]
        assert grid.tiling[0] > 12
        assert grid.to_arrow().equals(flights[["month", "carrier"]].to_arrow())


@pytest.mark.parametrize(
    "filters",
    [
        [("month", "in", [2, 7, 11]), ("carrier", "=", "UA")],
        [[("month", "=", 1)], [("distance", ">", 4000)]],
        [("carrier", "=", "nobody")],
    ],
)
def test_filters_leave_the_rows_that_partgrid_leaves(filters: Any) -> None:
    expected = pg.read_parquet(FLIGHTS, filters=filters)
    with engine.read_parquet(FLIGHTS, num_members=3, filters=filters) as grid:
        assert grid.to_arrow().equals(expected.to_arrow())
        assert len(set(grid.locations)) > 1


def test_filtered_files_that_cannot_be_listed_are_one_share(folder: Path) -> None:
    filters, pattern = [("id", ">=", 6_000)], str(folder / "*.parquet")
    with engine.read_parquet(pattern, num_members=2, filters=filters) as grid:
        assert grid.to_arrow().equals(WHOLE.slice(6_000))


def test_more_actors_than_rows_have_empty_shares(tmp_path: Path) -> None:
    pq.write_table(WHOLE.slice(0, 2), tmp_path / "few.parquet")
    with engine.read_parquet(tmp_path, num_members=3) as grid:
        assert len(set(grid.locations)) == 3
        assert grid.to_arrow().equals(WHOLE.slice(0, 2))
        assert grid.sql("SELECT count(*) AS n, max(id) AS m FROM self").to_pydict() == {
            "n": [2],
            "m": [1],
        }
        assert deviations(grid) == {}


def test_one_actor_on_each_node_by_default(folder: Path) -> None:
    with engine.read_parquet(folder) as grid:
        assert len(set(grid.locations)) == len(ray.nodes()) == 1
        assert grid.sql("SELECT sum(x) AS x FROM self").to_pydict() == {"x": [FRAME.x.sum()]}


# SQL.


def test_groups_are_those_of_pandas(facts: engine.RayGrid) -> None:
    table = facts.sql(
        "SELECT g, sum(x) AS x, count(*) AS n, count(x) AS known, count(DISTINCT text) AS texts, sum(price) AS price, min(day) AS first, max(at) AS last "
        "FROM self GROUP BY g ORDER BY g"
    )
    groups = FRAME.groupby("g")
    assert table["n"].to_pylist() == groups.size().tolist()
    assert table["x"].to_pylist() == groups.x.sum().tolist()
    assert table["known"].to_pylist() == groups.x.count().tolist()
    assert table["texts"].to_pylist() == groups.text.nunique().tolist()
    assert table["price"].to_pylist() == groups.price.sum().tolist()
    assert table["first"].to_pylist() == groups.day.min().tolist()
    assert table["last"].to_pandas().tolist() == groups["at"].max().tolist()


def test_groups_of_texts_and_nulls_are_those_of_pandas(facts: engine.RayGrid) -> None:
    table = facts.sql(
        "SELECT text, avg(f) AS f, count(*) AS n FROM self GROUP BY text ORDER BY text NULLS LAST"
    )
    groups = FRAME.groupby("text", dropna=False)
    expected = groups.agg(f=("f", "mean"), n=("id", "size")).sort_index(na_position="last")
    assert table["text"].to_pylist()[-1] is None
    assert table["n"].to_pylist() == expected.n.tolist()
    np.testing.assert_allclose(table["f"].to_numpy(), expected.f.to_numpy())


def test_order_and_limit_are_those_of_pandas(facts: engine.RayGrid) -> None:
    table = engine.sql(
        "SELECT id, x FROM facts ORDER BY x DESC NULLS LAST, id LIMIT 25", facts=facts
    )
    expected = FRAME.sort_values(["x", "id"], ascending=[False, True], na_position="last").head(25)
    assert table["id"].to_pylist() == expected.id.tolist()


def test_two_grids_of_other_actors_are_joined(facts: engine.RayGrid) -> None:
    names = pa.table({"g": range(11), "name": [f"name {g}" for g in range(11)]})
    with engine.from_refs(refs_of(names, 4, 0, 7), num_members=2) as other:
        table = engine.sql(
            "SELECT name, count(*) AS n, sum(x) AS x FROM facts JOIN names USING (g) WHERE day >= DATE '2020-06-01' GROUP BY name ORDER BY name",
            facts=facts,
            names=other,
        )
    joined = FRAME[FRAME.day >= date(2020, 6, 1)].merge(names.to_pandas(), on="g")
    groups = joined.groupby("name")
    assert table["name"].to_pylist() == sorted(names["name"].to_pylist())
    assert table["n"].to_pylist() == groups.size().tolist()
    assert table["x"].to_pylist() == groups.x.sum().tolist()


def test_a_grid_joins_itself_and_parameters_are_values(facts: engine.RayGrid) -> None:
    query = "SELECT count(*) AS n FROM a JOIN b ON a.id = b.id + $1 WHERE a.text = $2"
    table = engine.sql(query, [1, "text 7"], a=facts, b=facts)
    assert table.to_pydict() == {"n": [int((FRAME.text == "text 7").sum())]}


def test_tiles_are_read_in_the_actors_that_have_them(facts: engine.RayGrid) -> None:
    query = "SELECT g, sum(x) AS x FROM facts WHERE f > 3 GROUP BY g"
    read = tiles_read(query, facts=facts)
    expected: dict[int, int] = {}
    for _, pid in facts.locations:
        expected[pid] = expected.get(pid, 0) + 1
    assert {pid: tiles for pid, (tiles, _) in read.items()} == expected
    assert sum(elsewhere for _, elsewhere in read.values()) == 0
    assert "SpreadExec: members=" in engine.explain(query, facts=facts)


def test_the_engine_names_the_same_processes(facts: engine.RayGrid) -> None:
    table = engine.sql(
        "SELECT row_band, host, process FROM tiles('facts') ORDER BY row_band", facts=facts
    )
    assert table["process"].to_pylist() == [pid for _, pid in facts.locations]


@pytest.mark.parametrize("dying", [False, True])
def test_threads_may_use_one_name_for_other_grids(dying: bool) -> None:
    grids = [
        engine.from_refs(refs_of(pa.table({"a": [number] * 10}), 5, 5), num_members=3)
        for number in range(3)
    ]

    def asked(turn: int) -> tuple[int, int]:
        number = turn % 3
        if dying and turn in (10, 20):
            # The second time that actor is asked for plans.
            os.kill(grids[0].locations[turn // 10 - 2][1], signal.SIGKILL)
        answer = grids[number].sql("SELECT min(a) AS low, max(a) AS high FROM self")
        assert answer.to_pydict() == {"low": [number], "high": [number]}
        return number, len(grids[number].to_arrow())

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(asked, range(60 if dying else 24)))
    assert found == [(turn % 3, 10) for turn in range(len(found))]


# Objects of Ray.


@ray.remote
def made(start: int, count: int) -> pa.Table:
    return rows(start, count)


@ray.remote
def failing() -> pa.Table:
    raise ValueError("no such rows")


@ray.remote
def slow() -> pa.Table:
    time.sleep(20)
    return WHOLE


def test_objects_of_tasks_are_adopted_in_order() -> None:
    refs = [made.remote(0, 4_000), made.remote(4_000, 0), made.remote(4_000, 5_000)]
    with engine.from_refs(refs, num_members=3) as grid:
        assert grid.cuts[0] == (0, 4_000, 4_000, 9_000)
        assert len(set(grid.locations)) == 3
        assert grid.to_arrow().equals(WHOLE)
        assert grid.sql("SELECT count(DISTINCT x) AS n FROM self").to_pydict() == {
            "n": [FRAME.x.nunique()]
        }


def test_frames_of_pandas_and_arrays_are_adopted() -> None:
    frames = [
        pd.DataFrame({"a": [1.5, 2.5], "s": ["x", None]}),
        pd.DataFrame({"a": [3.5], "s": ["y"]}),
    ]
    with engine.from_refs([ray.put(frame) for frame in frames], num_members=2) as grid:
        assert grid.sql("SELECT sum(a) AS a, count(s) AS s FROM self").to_pydict() == {
            "a": [7.5],
            "s": [2],
        }
    labelled = ray.put(frames[0].set_index("s"))
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"refs\[0\]: the rows have labels.*\n.*keep"
    ):
        engine.from_refs([labelled])
    with engine.from_refs([labelled], index="keep") as grid:
        assert grid.columns == ["s", "a"]
    with engine.from_refs([ray.put(np.arange(6.0).reshape(3, 2))]) as grid:
        assert grid.shape == (3, 2)


def test_objects_are_adopted_without_copying() -> None:
    table = pa.table({"v": np.arange(100_000.0)})
    ref = ray.put(table)
    with engine.from_refs([ref]) as grid:
        [part] = grid._open().all

        def addresses(holder: Any, refs: list[Any]) -> tuple[int, int, bool]:
            [own] = [each for place, each in holder._parts.items() if place.grid == name]
            buffer = ray.get(refs[0])["v"].chunk(0).buffers()[1]
            return own.tile(0).column("v").address, buffer.address, buffer.is_mutable

        name = grid._open().name
        ours, theirs, is_mutable = ray.get(
            part.member.actor.__ray_call__.remote(addresses, [ref]), timeout=60
        )
        assert ours == theirs
        assert not is_mutable


def test_a_dataset_of_ray_data_is_a_grid() -> None:
    data = pytest.importorskip("ray.data", reason="Ray Data is not installed: make test-peers")
    data.DataContext.get_current().enable_progress_bars = False
    dataset = data.from_arrow([WHOLE.slice(0, 2_000), WHOLE.slice(2_000)])
    with engine.from_dataset(dataset, num_members=2) as grid:
        assert grid.sql("SELECT sum(id) AS id FROM self").to_pydict() == {"id": [FRAME.id.sum()]}
        assert grid.shape == WHOLE.shape


# __partitioned__.


def test_every_rule_of_the_draft_is_kept(facts: engine.RayGrid) -> None:
    assert deviations(facts) == {}
    assert deviations(facts.partitioned("pyarrow")) == {}


def test_the_dictionary_says_where_each_partition_is(facts: engine.RayGrid) -> None:
    described = facts.__partitioned__
    assert set(described) == {"shape", "partition_tiling", "partitions", "get"}
    assert described["shape"] == facts.shape
    assert described["partition_tiling"] == facts.tiling
    for (row, column), entry in described["partitions"].items():
        start, end = facts.cuts[0][row : row + 2]
        assert column == 0
        assert entry["start"] == (start, 0)
        assert entry["shape"] == (end - start, 8)
        assert entry["location"] == [facts.locations[row]]
        assert isinstance(entry["data"], ray.ObjectRef)
        frame = ray.get(entry["data"])
        assert isinstance(frame, pd.DataFrame)
        assert frame["id"].tolist() == list(range(start, end))
        assert (
            pa.Table.from_pandas(frame).cast(WHOLE.schema).equals(WHOLE.slice(start, end - start))
        )


def test_frames_of_pandas_stand_in_it_themselves() -> None:
    refs = [ray.put(pd.DataFrame({"a": [1, 2]})), ray.put(pd.DataFrame({"a": [3]}))]
    with engine.from_refs(refs, num_members=2) as grid:
        entries = grid.__partitioned__["partitions"].values()
        assert [entry["data"] for entry in entries] == refs
        tables = grid.partitioned("pyarrow").__partitioned__
        assert tables["get"](tables["partitions"][0, 0]["data"]).equals(pa.table({"a": [1, 2]}))
        assert deviations(grid) == {}


OTHER = """
import os, pickle, sys
import ray
ray.init(address=sys.argv[1], log_to_driver=False)
described = pickle.loads(open(sys.argv[2], "rb").read())
frames = described["get"]([entry["data"] for entry in described["partitions"].values()])
print("found", os.getpid(), sum(len(frame) for frame in frames), sum(int(frame["id"].sum()) for frame in frames))
"""


def test_get_comes_through_a_pickle_into_another_process(
    facts: engine.RayGrid, tmp_path: Path
) -> None:
    path = tmp_path / "described"
    path.write_bytes(pickle.dumps(facts.__partitioned__))
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, "-c", OTHER, address, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    word, pid, count, total = done.stdout.split()[-4:]
    assert (word, int(count), int(total)) == ("found", ROWS, int(FRAME.id.sum()))
    assert int(pid) not in {os.getpid(), *(pid for _, pid in facts.locations)}


@ray.remote
def opened(described: dict[str, Any]) -> int:
    handles = [entry["data"] for entry in described["partitions"].values()]
    return sum(len(frame) for frame in described["get"](handles))


def test_tasks_take_the_dictionary(facts: engine.RayGrid) -> None:
    assert ray.get(opened.remote(facts.__partitioned__), timeout=60) == ROWS


def test_partgrid_takes_it_back(facts: engine.RayGrid) -> None:
    again = pg.from_partitioned(facts)
    assert again.cuts == facts.cuts
    assert again.sql("SELECT sum(x) AS x FROM self").to_arrow().to_pydict() == {
        "x": [FRAME.x.sum()]
    }


def test_xgboost_ray_still_gets_its_frames() -> None:
    grid = pg.from_arrow(pa.table({"x": [1.0, 2.0, 3.0, 4.0]}))
    described = grid.partitioned(dialect="xgboost_ray", num_actors=2).__partitioned__
    frames = described["get"]([entry["data"] for entry in described["partitions"].values()])
    assert [frame["x"].tolist() for frame in frames] == [[1.0, 2.0], [3.0, 4.0]]


# Actors that die.


def test_what_a_killed_actor_had_is_read_again(facts: engine.RayGrid) -> None:
    described = facts.__partitioned__
    before, query = facts.locations, "SELECT sum(id) AS id, count(*) AS n FROM self"
    victim = before[-1][1]
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    assert facts.sql(query).to_pydict() == {"id": [FRAME.id.sum()], "n": [ROWS]}
    assert time.monotonic() - began < 60
    after = facts.locations
    assert [old == new for old, new in zip(before, after, strict=True)] == [
        pid != victim for _, pid in before
    ]
    assert set(tiles_read(query, self=facts)) == {pid for _, pid in after}
    again = facts.__partitioned__
    assert [entry["location"] for entry in again["partitions"].values()] == [
        [place] for place in after
    ]
    # What references stand for outlives the actor.
    for found in (described, again):
        frames = found["get"]([entry["data"] for entry in found["partitions"].values()])
        assert sum(frame["id"].sum() for frame in frames) == FRAME.id.sum()
    assert deviations(facts) == {}


def test_an_actor_that_ray_kills_is_replaced_when_anything_is_asked(
    facts: engine.RayGrid,
) -> None:
    uses: list[Callable[[], Any]] = [
        lambda: facts.__partitioned__,
        facts.to_arrow,
        lambda: facts.locations,
        lambda: engine.explain("SELECT count(*) FROM f", f=facts),
    ]
    for number, use in enumerate(uses):
        member = facts._open().members.all[number % 3]
        killed = member.pid
        ray.kill(member.actor)
        use()
        assert member.pid != killed
        assert killed not in {pid for _, pid in facts.locations}
    assert facts.to_arrow().equals(WHOLE)


def test_objects_are_adopted_again() -> None:
    refs = refs_of(WHOLE, 3_000, 3_000, 3_000)
    with engine.from_refs(refs, num_members=3) as grid:
        del refs
        killed = {pid for _, pid in grid.locations}
        assert len(killed) == 3
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        assert grid.to_arrow().equals(WHOLE)
        assert not killed & {pid for _, pid in grid.locations}


SLOW = "SELECT count(*) AS n FROM a JOIN b ON a.g = b.g AND a.f < b.f JOIN c ON b.g = c.g AND b.id % 40 < c.id % 40 WHERE c.id % 97 = 3"


@pytest.mark.parametrize("victim", [0, -1])
def test_a_statement_is_begun_again_when_an_actor_dies_meanwhile(
    facts: engine.RayGrid, victim: int
) -> None:
    """The first row band is that of the actor which plans statements."""
    began = time.monotonic()
    expected = engine.sql(SLOW, a=facts, b=facts, c=facts)
    alone = time.monotonic() - began
    assert alone > 0.2
    pid = facts.locations[victim][1]
    killer = threading.Timer(min(0.5, alone / 2), os.kill, (pid, signal.SIGKILL))
    began = time.monotonic()
    killer.start()
    found = engine.sql(SLOW, a=facts, b=facts, c=facts)
    took = time.monotonic() - began
    killer.join()
    assert found.equals(expected)
    assert alone < took < alone * 3 + 60
    assert facts.locations[victim][1] != pid


def test_an_actor_that_hangs_is_replaced_in_bounded_time(facts: engine.RayGrid) -> None:
    pid = facts.locations[-1][1]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert facts.sql("SELECT count(*) AS n FROM self WHERE id >= 0").to_pydict() == {
            "n": [ROWS]
        }
        assert time.monotonic() - began < 60
        assert pid not in {pid for _, pid in facts.locations}
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not is_alive(pid))


def test_an_actor_that_dies_while_it_loads_is_replaced(folder: Path) -> None:
    with engine.read_parquet(folder, num_members=3) as first:
        members = first._open().members
        pids = [member.pid for member in members.all]
        killer = threading.Timer(0.005, os.kill, (pids[1], signal.SIGKILL))
        killer.start()
        with engine.read_parquet(FLIGHTS, num_members=3) as grid:
            killer.join()
            assert grid.sql("SELECT count(*) AS n FROM self").to_pydict() == {"n": [336_776]}
            assert pids[1] not in {pid for _, pid in grid.locations}
        assert first.to_arrow().equals(WHOLE)


def test_files_that_are_gone_or_others_are_lost(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(rows(number * 100, 100), tmp_path / f"{number}.parquet")
    with engine.read_parquet(tmp_path, num_members=3) as grid:
        assert len(grid.to_arrow()) == 300
        pq.write_table(rows(7_000, 100), tmp_path / "1.parquet")
        # Nobody reads them again as long as the actors live.
        assert grid.to_arrow()["id"].to_pylist() == list(range(300))
        os.kill(grid.locations[1][1], signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(pg.errors.PartitionLostError, match="others than those"):
            grid.sql("SELECT * FROM self")
        shutil.rmtree(tmp_path)
        with pytest.raises(pg.errors.PartitionLostError, match="cannot be read again"):
            _ = grid.__partitioned__
        assert time.monotonic() - began < 60


# Ends.


def test_actors_let_go_of_tiles_and_end_with_the_last_grid(folder: Path) -> None:
    code = f"""
import gc, os, time
from peers.ray_nodes import started
from partgrid.engines import ray as engine
import ray
with started(num_cpus=2):
    one = engine.read_parquet({str(folder)!r}, num_members=2)
    two = engine.read_parquet({str(folder)!r}, num_members=2)
    one.sql("SELECT count(*) FROM self")
    members = one._open().members
    pids = [member.pid for member in members.all]
    count = lambda: [ray.get(each.actor.__ray_call__.remote(lambda self: len(self._parts) + len(self._names))) for each in members.all]
    assert count() == [3, 2], count()
    one.close()
    assert count() == [1, 1], count()
    one.close()
    assert two.sql("SELECT count(*) AS n FROM self").to_pydict() == {{"n": [{ROWS}]}}
    del members, count
    del two
    gc.collect()
    ends = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{{pid}}/exe") for pid in pids):
        assert time.monotonic() < ends
        time.sleep(0.1)
    print("ended")
    kept = engine.read_parquet({str(folder)!r}, num_members=1)
try:
    kept.sql("SELECT 1 FROM self")
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert "ended" in done.stdout
    assert "Ray is not running in this process\nhint: call ray.init() first" in done.stdout


def known_grids(members: Any) -> set[str]:
    """The grids of which the actors have something."""

    def known(holder: Any) -> list[str]:
        return [*(place.grid for place in holder._parts), *holder._names.values()]

    calls = [member.actor.__ray_call__.remote(known) for member in members.all]
    return {name for found in ray.get(calls, timeout=60) for name in found}


def test_a_grid_that_nobody_has_is_let_go_of(facts: engine.RayGrid) -> None:
    members = facts._open().members
    before = known_grids(members)
    grid = engine.from_refs(refs_of(WHOLE, ROWS))
    grid.sql("SELECT count(*) FROM self")
    assert len(known_grids(members) - before) == 1
    del grid
    gc.collect()
    wait_for(lambda: known_grids(members) == before)


def test_a_load_that_is_given_up_leaves_nothing(facts: engine.RayGrid) -> None:
    members = facts._open().members
    before = known_grids(members)
    with pytest.raises(
        pg.errors.ResourcesExhaustedError, match="no answer within 0.01 seconds: actor"
    ):
        engine.read_parquet(FLIGHTS, num_members=3, timeout=0.01)
    # Long enough for the load to end.
    time.sleep(2)
    assert known_grids(members) == before


def test_a_closed_grid_says_so(folder: Path) -> None:
    with engine.read_parquet(folder) as grid:
        described = grid.__partitioned__
        assert repr(grid).startswith("RayGrid of 9,000 rows x 8 columns in ")
        assert f"pid {grid.locations[0][1]}): {grid.tiling[0]} row band" in repr(grid)
        assert "  price  decimal128(12, 2)" in repr(grid)
    assert repr(grid).endswith("closed")
    for use in (lambda: grid.sql("SELECT 1 FROM self"), lambda: grid.locations, grid.to_arrow):
        with pytest.raises(pg.errors.PartitionLostError, match="the grid was closed"):
            use()
    # References live on.
    [first, *_] = described["partitions"].values()
    assert described["get"](first["data"]).shape == first["shape"]


# What is refused.


def test_wrong_references_are_refused() -> None:
    ref = ray.put(WHOLE)
    table: Any = WHOLE
    for given, text in (
        ([], "at least"),
        (ref, "refs must be a list of ray.ObjectRef, got ObjectRef"),
        (3, "refs must be a list of ray.ObjectRef, got int"),
        ([ref, table], r"refs\[1\] must be a ray.ObjectRef, got Table\nhint: refs=\[ray.put"),
    ):
        with pytest.raises(pg.errors.InvalidArgumentError, match=text):
            engine.from_refs(given)
    with pytest.raises(
        pg.errors.ProtocolError, match=r"actor 0 \(.* pid \d+\): refs\[1\]: .*got int"
    ):
        engine.from_refs([ref, ray.put(3)])
    with pytest.raises(
        pg.errors.InvalidDataError, match=r"refs\[0\]: .*failed: ValueError.*no such rows"
    ):
        engine.from_refs([failing.remote()])
    began = time.monotonic()
    with pytest.raises(
        pg.errors.ResourcesExhaustedError, match="1 of 2 objects were not there within 1 seconds"
    ):
        engine.from_refs([ref, slow.remote()], timeout=1)
    assert time.monotonic() - began < 15
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="must be a ray.data.Dataset, got builtins.list"
    ):
        engine.from_dataset([ref])


def test_objects_of_other_columns_are_refused() -> None:
    one, other = pa.table({"a": [1], "b": ["x"]}), pa.table({"a": [1.5], "b": ["x"]})
    text = "part 0 has a: int64, b: string, part 1 has a: double, b: string\nhint"
    with pytest.raises(pg.errors.InvalidArgumentError, match=text):
        engine.from_refs([ray.put(one), ray.put(other)], num_members=2)
    noted = pa.table(
        one.columns,
        schema=pa.schema([("a", pa.int64()), pa.field("b", pa.string(), metadata={"unit": "m"})]),
    )
    with pytest.raises(pg.errors.InvalidArgumentError, match="b: string .*unit"):
        engine.from_refs([ray.put(one), ray.put(noted)])


def test_wrong_files_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        pg.errors.PathNotFoundError, match=r"actor \d .*no such file.*nowhere"
    ) as caught:
        engine.read_parquet(tmp_path / "nowhere", num_members=2)
    assert caught.value.context["file"].endswith("nowhere")
    with pytest.raises(pg.errors.NotFoundError, match="did you mean `text`"):
        engine.read_parquet(folder, columns=["texd"], num_members=2)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 this is none PAR1")
    with pytest.raises(pg.errors.InvalidDataError, match="bad.parquet"):
        engine.read_parquet(tmp_path, num_members=2)
    with pytest.raises(pg.errors.InvalidArgumentError, match="unknown operator"):
        engine.read_parquet(folder, filters=[("id", "=>", 1)])
    for source in ([], 3, None):
        with pytest.raises(pg.errors.InvalidArgumentError, match="source must be a path or a list"):
            engine.read_parquet(source)  # type: ignore[arg-type]


def test_wrong_numbers_and_nodes_are_refused(folder: Path) -> None:
    for count in (0, -1, 1.5, True, "3"):
        with pytest.raises(
            pg.errors.InvalidArgumentError, match="num_members must be a whole number from 1"
        ):
            engine.read_parquet(folder, num_members=count)  # type: ignore[arg-type]
    for nodes in ([], ["nobody"], "nobody"):
        with pytest.raises(
            pg.errors.InvalidArgumentError, match="nodes must be ids of nodes that are alive"
        ):
            engine.read_parquet(folder, nodes=nodes)
    [node] = [each["NodeID"] for each in ray.nodes()]
    with engine.read_parquet(folder, nodes=[node], num_members=2) as grid:
        assert len(set(grid.locations)) == 2


def test_wrong_statements_are_refused(facts: engine.RayGrid) -> None:
    for query, text in (
        ("SELECT nothing FROM facts", "nothing"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELEC 1", "SELEC"),
    ):
        with pytest.raises(pg.errors.QueryError, match=text):
            engine.sql(query, facts=facts)
    with pytest.raises(pg.errors.InvalidArgumentError, match="needs a grid of Ray at least"):
        engine.sql("SELECT 1")
    grid: Any = pg.from_arrow(WHOLE)
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"g must be a RayGrid, got .*Grid\nhint: .*from_refs"
    ):
        engine.sql("SELECT 1 FROM g", g=grid)
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        engine.sql(SLOW, timeout=0.05, a=facts, b=facts, c=facts)
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="data must be 'pandas' or 'pyarrow', got 'polars'"
    ):
        facts.partitioned("polars")
    with pytest.raises(
        pg.errors.UnsupportedError, match=r"does not pickle\nhint: pass grid.__partitioned__"
    ):
        pickle.dumps(facts)


def test_the_example_of_the_page_runs() -> None:
    """It starts a Ray of its own."""
    page = (DATA.parent / "docs" / "ray.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    assert code.count("assert") >= 3
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as own:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=DATA.parent,
            env=os.environ | {"RAY_TMPDIR": own},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]


# Helpers.


def tiles_read(query: str, **grids: engine.RayGrid) -> dict[int, tuple[int, int]]:
    """For each process that scanned something, how many tiles in its own memory it read, and how many elsewhere."""
    plan = engine.explain(query, analyze=True, **grids)
    members = next(iter(grids.values()))._open().members
    # Task i is with member i, the one that was asked first.
    order = ray.get(members.asked().actor.bind.remote({}), timeout=60)
    pids = {member.uri: member.pid for member in members.all}
    found: dict[int, tuple[int, int]] = {}
    for task, counted in re.findall(r"t(\d+): GridScanExec:(.*)", plan):
        numbers = {
            place: int(count) for place, count in re.findall(r"(\w+)_tiles=\{\d+:(\d+)\}", counted)
        }
        memory = numbers.pop("memory", 0)
        pid = pids[order[int(task)]]
        old = found.get(pid, (0, 0))
        found[pid] = old[0] + memory, old[1] + sum(numbers.values())
    return {pid: counts for pid, counts in found.items() if counts != (0, 0)}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.1)
