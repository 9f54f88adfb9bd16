"""Grids in actors of Ray on one machine: SQL where the tiles are, `__partitioned__`."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
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
from partgrid.engines import ray as engine
from peers.ray_grids import (
    FLIGHTS,
    FRAME,
    ROWS,
    WHOLE,
    cluster,
    facts,
    folder,
    made,
    places,
    refs_of,
    rows,
    tiles_read,
)

__all__ = ["cluster", "facts", "folder"]


def test_ray_is_imported_only_when_it_is_used() -> None:
    code = "import sys, partgrid.engines.ray; print(sorted({'ray', 'pandas', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Where the tiles are.


def test_each_actor_reads_its_share(facts: engine.RayGrid) -> None:
    assert (len(facts), facts.shape, facts.columns) == (ROWS, (ROWS, 8), WHOLE.column_names)
    assert facts.schema.equals(WHOLE.schema)
    assert facts.cuts[0][0] == 0
    assert facts.cuts[0][-1] == ROWS
    assert facts.tiling == (len(facts.cuts[0]) - 1, 1)
    assert facts.nbytes > ROWS * 8
    found = places(facts)
    assert len(found) == facts.tiling[0]
    assert {address for address, _ in found} == {ray.util.get_node_ip_address()}
    pids = {pid for _, pid in found}
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
        assert len({pid for _, pid in places(grid)}) == 3
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
        assert len(set(places(grid))) > 1


def test_filtered_files_that_cannot_be_listed_are_one_share(folder: Path) -> None:
    filters, pattern = [("id", ">=", 6_000)], str(folder / "*.parquet")
    with engine.read_parquet(pattern, num_members=2, filters=filters) as grid:
        assert grid.to_arrow().equals(WHOLE.slice(6_000))


def test_more_actors_than_rows_have_empty_shares(tmp_path: Path) -> None:
    pq.write_table(WHOLE.slice(0, 2), tmp_path / "few.parquet")
    with engine.read_parquet(tmp_path, num_members=3) as grid:
        assert len(set(places(grid))) == 3
        assert grid.to_arrow().equals(WHOLE.slice(0, 2))
        assert grid.sql("SELECT count(*) AS n, max(id) AS m FROM self").to_pydict() == {
            "n": [2],
            "m": [1],
        }
        assert deviations(grid) == {}


def test_one_actor_on_each_node_by_default(folder: Path) -> None:
    with engine.read_parquet(folder) as grid:
        assert len(set(places(grid))) == len(ray.nodes()) == 1
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
    for _, pid in places(facts):
        expected[pid] = expected.get(pid, 0) + 1
    assert {pid: tiles for pid, (tiles, _) in read.items()} == expected
    assert sum(elsewhere for _, elsewhere in read.values()) == 0
    assert "SpreadExec: members=" in engine.explain(query, facts=facts)


def test_the_engine_names_the_same_processes(facts: engine.RayGrid) -> None:
    table = engine.sql(
        "SELECT row_band, host, process FROM tiles('facts') ORDER BY row_band", facts=facts
    )
    assert table["process"].to_pylist() == [pid for _, pid in places(facts)]


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
            os.kill(places(grids[0])[turn // 10 - 2][1], signal.SIGKILL)
        answer = grids[number].sql("SELECT min(a) AS low, max(a) AS high FROM self")
        assert answer.to_pydict() == {"low": [number], "high": [number]}
        return number, len(grids[number].to_arrow())

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(asked, range(60 if dying else 24)))
    assert found == [(turn % 3, 10) for turn in range(len(found))]


# Objects of Ray.


def test_objects_of_tasks_are_adopted_in_order() -> None:
    refs = [made.remote(0, 4_000), made.remote(4_000, 0), made.remote(4_000, 5_000)]
    with engine.from_refs(refs, num_members=3) as grid:
        assert grid.cuts[0] == (0, 4_000, 4_000, 9_000)
        assert len(set(places(grid))) == 3
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
        assert entry["location"] == [places(facts)[row]]
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
    assert int(pid) not in {os.getpid(), *(pid for _, pid in places(facts))}


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
