"""Grids in the workers of Dask: SQL where the partitions are, `__partitioned__` of futures, what is refused, what is let go of."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("dask.dataframe", reason="dask is not installed: make test-peers")
pytest.importorskip("distributed", reason="distributed is not installed: make test-peers")

import dask
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa

import partgrid as pg
from conformance.partitioned import deviations
from partgrid.engines import _dask_handle
from partgrid.engines import dask as engine
from peers.dask_cluster import (
    QUERY,
    addresses,
    delayed,
    everything,
    facts,
    groups,
    member,
    pids,
    readers,
    rows,
    tables,
    until,
    where,
    workers,
)

ALL = everything()


@pytest.fixture(autouse=True)
def texts() -> Iterator[None]:
    """The texts of dask itself are not what is tested here."""
    with dask.config.set({"dataframe.convert-string": False}):
        yield


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Three workers that no test kills."""
    with workers(3) as client:
        yield client


@pytest.fixture(scope="module")
def grid(client: Any) -> engine.DaskGrid:
    return engine.persist(facts(), client=client)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (QUERY, groups()),
        ("SELECT count(*) AS n FROM self", [{"n": len(ALL)}]),
        (
            "SELECT count(DISTINCT x) AS n, count(DISTINCT part) AS parts FROM self",
            [{"n": ALL.x.nunique(), "parts": 6}],
        ),
        (
            "SELECT id, x FROM self WHERE g = 3 ORDER BY x DESC, id LIMIT 5",
            ALL[ALL.g == 3].sort_values(["x", "id"], ascending=[False, True])[["id", "x"]][:5],
        ),
        (
            "SELECT part, max(id) AS id FROM self GROUP BY part HAVING max(id) > 2000 ORDER BY part",
            ALL.groupby("part").id.max()[lambda ids: ids > 2000].reset_index(),
        ),
        (
            "WITH few AS (SELECT * FROM self WHERE id < 4000) SELECT sum(x) AS x FROM few UNION ALL SELECT sum(g) FROM self ORDER BY x",
            sorted(
                [{"x": ALL[ALL.id < 4000].x.sum()}, {"x": ALL.g.sum()}], key=lambda row: row["x"]
            ),
        ),
        (
            "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY g ORDER BY x DESC, id) AS n FROM self) WHERE n = 1 ORDER BY id",
            ALL.sort_values(["x", "id"], ascending=[False, True])
            .groupby("g")
            .head(1)[["id"]]
            .sort_values("id"),
        ),
        ("SELECT * FROM self WHERE id < 0", []),
    ],
)
def test_answers_are_those_of_pandas(grid: engine.DaskGrid, query: str, expected: Any) -> None:
    found = grid.sql(query)
    assert isinstance(found, pa.Table)
    wanted = expected if isinstance(expected, list) else expected.to_dict("records")
    assert found.to_pylist() == wanted


def test_values_take_the_place_of_parameters(grid: engine.DaskGrid) -> None:
    some = ALL[(ALL.g == 3) & (ALL.id >= 100)]
    for query, params in (
        ("SELECT sum(x) AS x FROM self WHERE g = $1 AND id >= $2", [3, 100]),
        ("SELECT sum(x) AS x FROM self WHERE g = $g AND id >= $id", {"g": 3, "id": 100}),
    ):
        assert grid.sql(query, params).to_pylist() == [{"x": some.x.sum()}]
        found = engine.sql(query.replace("self", "facts"), params, facts=grid)
        assert found.to_pylist() == [{"x": some.x.sum()}]
        plan = engine.explain(query.replace("self", "facts"), params, facts=grid)
        assert "GridScanExec" in plan
    with pytest.raises(pg.errors.QueryError, match=r"\$1"):
        grid.sql("SELECT sum(x) AS x FROM self WHERE g = $1")
    with pytest.raises(pg.errors.InvalidArgumentError, match="params must be a list"):
        grid.sql("SELECT sum(x) AS x FROM self WHERE g = $1", 3)


def test_two_grids_are_joined(client: Any, grid: engine.DaskGrid) -> None:
    names = pd.DataFrame({"g": range(0, 11, 2), "name": [f"name {g}" for g in range(0, 11, 2)]})
    [there] = client.scatter([names])
    with engine.persist([there]) as few:
        found = engine.sql(
            "SELECT name, count(*) AS n, sum(x) AS x FROM facts JOIN names USING (g) GROUP BY name ORDER BY name",
            facts=grid,
            names=few,
        )
    joined = ALL.merge(names).groupby("name").x
    wanted = pd.DataFrame({"n": joined.size(), "x": joined.sum()}).reset_index()
    assert found.to_pylist() == wanted.to_dict("records")


def test_each_worker_reads_its_own_partitions(client: Any, grid: engine.DaskGrid) -> None:
    assert where(grid) == pids(client)
    here = Counter(places[0][1] for places in grid.locations())
    name = grid._adoption.name
    for at in member(client):
        read, fetched = readers(at, f'SELECT g, sum(x) FROM "{name}" GROUP BY g')
        assert read == here
        assert fetched == 0


def test_members_share_the_memory_that_dask_has(client: Any, grid: engine.DaskGrid) -> None:
    found = client.run(addresses, grid._adoption.name, "x")
    assert sum(len(own) for own in found.values()) == 6
    assert all(is_shared for own in found.values() for _, is_shared in own)


def test_the_protocol_is_kept(grid: engine.DaskGrid) -> None:
    assert deviations(grid) == {}
    description = grid.__partitioned__
    assert set(description) == {"shape", "partition_tiling", "partitions", "get"}
    assert description["partition_tiling"] == (6, 1)
    entry = description["partitions"][2, 0]
    assert set(entry) == {"start", "shape", "data", "location"}
    assert (entry["start"], entry["shape"]) == ((2000, 0), (1000, 4))
    assert isinstance(entry["data"], distributed.Future)
    assert entry["location"] == grid.locations()[2]
    frame = description["get"](entry["data"])
    pd.testing.assert_frame_equal(frame.astype("int64"), rows(2))
    assert description["get"]([]) == []
    assert pg.from_partitioned(grid).sql(QUERY).to_arrow().to_pylist() == groups()
    with pytest.raises(
        pg.errors.ProtocolError, match="get takes what stands under `data`.*got int"
    ):
        engine.get([3])


GET = """
import pickle, sys
description = pickle.load(sys.stdin.buffer)
handles = {position: entry["data"] for position, entry in description["partitions"].items()}
one = description["get"](handles[1, 0])
many = description["get"](tuple(handles.values()))
print(int(one["id"].min()), len(one), sum(int(each["x"].sum()) for each in many), type(many).__name__)
"""


def test_handles_open_in_another_process(grid: engine.DaskGrid) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GET],
        input=pickle.dumps(grid.__partitioned__),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split() == ["1000", "1000", str(ALL.x.sum()), "tuple"]


def test_handles_open_in_a_task(client: Any, grid: engine.DaskGrid) -> None:
    def total(sent: bytes) -> int:
        description = pickle.loads(sent)
        frame = description["get"](description["partitions"][4, 0]["data"])
        return int(frame["x"].sum())

    sent = pickle.dumps(grid.__partitioned__)
    assert client.submit(total, sent).result(timeout=30) == rows(4).x.sum()
    handle = grid.__partitioned__["partitions"][4, 0]["data"]
    assert client.submit(len, handle).result(timeout=30) == 1000


def test_a_handle_of_a_scheduler_that_is_gone_is_an_error_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_dask_handle, "ANSWERS_WITHIN", 1.0)
    lost = _dask_handle.PartitionFuture("key", None, "tcp://127.0.0.1:9")
    with pytest.raises(pg.errors.WorkerLostError, match="does not answer: tcp://127.0.0.1:9"):
        engine.get(lost)
    with pytest.raises(pg.errors.NotLocalError, match="inproc"):
        engine.get(_dask_handle.PartitionFuture("key", None, "inproc://1.1.1.1/1/1"))


def test_handles_of_a_closed_grid_are_lost(client: Any) -> None:
    grid = engine.persist(facts(2, 50), client=client)
    sent = pickle.dumps(grid.__partitioned__)
    grid.close()
    with pytest.raises(pg.errors.InvalidArgumentError, match="the grid is closed\nhint: .*persist"):
        grid.sql("SELECT 1 FROM self")
    with pytest.raises(pg.errors.PartitionLostError, match="no more"):
        until(lambda: None if open_all(sent) else True)
    assert repr(grid) == "DaskGrid of 100 rows x 4 columns, closed"


def open_all(sent: bytes) -> list[Any]:
    description = pickle.loads(sent)
    opened: list[Any] = description["get"]([e["data"] for e in description["partitions"].values()])
    return opened


VALUES: dict[str, Any] = {
    "ints": np.arange(6, dtype=np.int16),
    "masked": pd.array([1, None, 3, None, 2**62, 0], "Int64"),
    "floats": np.array([1.5, np.nan, -0.0, np.inf, 2.0, 0.1]),
    "texts": pd.Series(["a", None, "c", "", "e", "é"], dtype=object),
    "arrow": pd.array(["a", None, "c", "", "e", "f"], pd.ArrowDtype(pa.string())),
    "dates": pd.Series([date(2020, 1, day) for day in range(1, 7)], dtype=object),
    "times": pd.date_range("2020-01-01", periods=6, tz="Europe/Rome"),
    "decimals": pd.Series([Decimal("1.5"), None, Decimal("22.25"), None, None, Decimal(100)]),
    "categories": pd.Categorical(["b", "a", None, "b", "a", "b"], ["b", "a"], ordered=True),
    "nulls": pd.Series([None, None, "x", None, None, None], dtype=object),
    "lists": pd.array([[1], None, [], [2, None], [3], []], pd.ArrowDtype(pa.list_(pa.int64()))),
    "flags": pd.array([True, None, False] * 2, "boolean"),
}


def test_values_and_types_are_those_of_one_process(client: Any) -> None:
    frame = pd.DataFrame(VALUES)
    there = dd.from_pandas(frame, npartitions=3, sort=False)
    with engine.persist(there, client=client) as grid:
        whole = pg.from_dask(there, where="here").to_arrow()
        assert grid.schema == whole.schema
        assert grid.to_arrow().drop_columns("floats").equals(whole.drop_columns("floats"))
        found = grid.sql("SELECT * FROM self ORDER BY ints")
        assert found["decimals"].to_pylist() == whole["decimals"].to_pylist()
        assert found["texts"].to_pylist() == ["a", None, "c", "", "e", "é"]
        assert found["dates"].to_pylist()[0] == date(2020, 1, 1)
        assert found["times"].to_pylist()[0] == whole["times"].to_pylist()[0]
        assert found["nulls"].to_pylist() == [None, None, "x", None, None, None]
        frames = grid.__partitioned__["get"](
            [entry["data"] for entry in grid.__partitioned__["partitions"].values()]
        )
        assert len({tuple(map(str, each.dtypes)) for each in frames}) == 1


def test_empty_partitions_are_row_bands(client: Any) -> None:
    frame = facts(4, 100)
    some = frame[(frame.id < 100) | (frame.id >= 300)]
    with engine.persist(some, index="drop", client=client) as grid:
        assert grid.cuts == ((0, 100, 100, 100, 200), (0, 4))
        assert deviations(grid) == {}
        wanted = everything(4, 100)[lambda all_of: all_of.part.isin([0, 3])]
        assert grid.sql("SELECT sum(x) AS x FROM self").to_pylist() == [{"x": wanted.x.sum()}]
        assert list(grid.to_dask().compute().id) == list(wanted.id)
    with engine.persist(frame[frame.id < 0], index="drop", client=client) as none:
        assert (len(none), none.shape, none.tiling) == (0, (0, 4), (4, 1))
        assert none.sql("SELECT count(*) AS n, max(x) AS x FROM self").to_pylist() == [
            {"n": 0, "x": None}
        ]


def test_labels_are_kept_left_away_and_refused(client: Any) -> None:
    frame = pd.DataFrame({"v": [1.5, 2.5, 3.5]}, index=pd.Index([10, 20, 30], name="k"))
    there = dd.from_pandas(frame, npartitions=2)
    with engine.persist(there, index="keep", client=client) as grid:
        assert grid.sql("SELECT sum(k) AS k FROM self").to_pylist() == [{"k": 60}]
    with engine.persist(there, index="drop", client=client) as grid:
        assert grid.columns == ["v"]
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"partition \d: the rows have labels.*\n.*keep"
    ):
        engine.persist(there, client=client)
    numbered = dd.from_pandas(pd.DataFrame({"v": range(6)}), npartitions=2)
    with engine.persist(numbered, client=client) as grid:
        assert grid.cuts[0] == (0, 3, 6)
    with pytest.raises(pg.errors.InvalidArgumentError, match="partition 1: the rows have labels"):
        engine.persist(delayed([pd.DataFrame({"v": [1]}), pd.DataFrame({"v": [1]}, index=[7])]))
    gap = pd.DataFrame({"v": [1]}, index=pd.RangeIndex(7, 8))
    with pytest.raises(pg.errors.InvalidArgumentError, match="partition 1: the rows have labels"):
        engine.persist(delayed([pd.DataFrame({"v": [1]}), gap]), client=client)


def test_partitions_of_any_arrow_library_are_taken(client: Any) -> None:
    parts = [pa.table({"a": [1, 2]}), pa.record_batch({"a": [3]}), pd.DataFrame({"a": [4]})]
    futures = client.scatter(parts, hash=False)
    with engine.persist(futures, client=client) as grid:
        assert grid.to_arrow()["a"].to_pylist() == [1, 2, 3, 4]
        assert grid.sql("SELECT sum(a) AS a FROM self").to_pylist() == [{"a": 10}]
    with engine.persist(client.scatter([np.arange(6).reshape(3, 2)])) as grid:
        assert grid.columns == ["column_0", "column_1"]
    series = dd.from_pandas(pd.Series([1, 2, 3], name="s"), npartitions=2)
    with pg.from_dask(series, where="workers") as of_series:
        assert of_series.columns == ["s"]


def test_what_a_worker_raises_comes_as_the_same_kind(client: Any, grid: engine.DaskGrid) -> None:
    mixed = dd.from_pandas(pd.DataFrame({"v": [1, "x"]}, dtype=object), npartitions=1)
    with pytest.raises(
        pg.errors.UnsupportedError, match="partition 0: .*one type, got int, str"
    ) as caught:
        engine.persist(mixed, client=client)
    assert caught.value.context == {"column": "v"}
    parts = delayed([pd.DataFrame({"v": [1]}), pd.DataFrame({"v": ["x"]})])
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"have `v` Int64.*position: \(1, 0\)\)\n.*one type"
    ):
        engine.persist(parts, client=client)
    with pytest.raises(pg.errors.ProtocolError, match="partition 1"):
        engine.persist(delayed([pd.DataFrame({"v": [1]}), 5]), client=client)
    with pytest.raises(ZeroDivisionError):
        engine.persist([client.submit(lambda: 1 / 0)], client=client)
    with pytest.raises(pg.errors.QueryError, match="nothing"):
        grid.sql("SELECT nothing FROM self")
    assert grid.sql(QUERY).to_pylist() == groups()


def test_wrong_arguments_are_refused_with_the_remedy(client: Any, grid: engine.DaskGrid) -> None:
    wrong = pg.errors.InvalidArgumentError
    for frame in (pd.DataFrame({"a": [1]}), [1], 5):
        with pytest.raises(wrong, match=r"must be a dask\.dataframe\.DataFrame, .*futures.*, got "):
            engine.persist(frame, client=client)
    with pytest.raises(wrong, match="at least one partition"):
        engine.persist([], client=client)
    with pytest.raises(wrong, match='index must be "keep"'):
        engine.persist(facts(), index="yes", client=client)
    with pytest.raises(wrong, match='where must be "here" or "workers", got \'there\''):
        pg.from_dask(facts(), where="there")  # type: ignore[call-overload]
    with pytest.raises(wrong, match="client must be a distributed.Client, got str"):
        engine.persist(facts(), client="tcp://1.1.1.1:1")
    for timeout in (0, -1, "x", True, float("nan")):
        with pytest.raises(wrong, match="timeout must be seconds"):
            engine.persist(facts(), client=client, timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(wrong, match="at least one grid"):
        engine.sql("SELECT 1")
    with pytest.raises(wrong, match=r"a must be a grid of persist, got .*Grid\nhint: .*persist"):
        engine.sql("SELECT 1", a=pg.from_arrow(pa.table({"a": [1]})))  # type: ignore[arg-type]
    with pytest.raises(pg.errors.UnsupportedError, match=r"not pickled\nhint: .*__partitioned__"):
        pickle.dumps(grid)


def test_without_a_client_the_remedy_is_said() -> None:
    code = """
import partgrid as pg, dask.dataframe as dd, pandas as pd
try:
    pg.from_dask(dd.from_pandas(pd.DataFrame({"a": [1]}), npartitions=1), where="workers")
except pg.errors.InvalidArgumentError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "there is no client of distributed\nhint: client = distributed.Client" in done.stdout


def test_dask_is_imported_only_when_it_is_used() -> None:
    code = "import sys, partgrid.engines.dask; print(sorted({'dask', 'distributed', 'pandas', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_frame_of_dask_comes_back_without_moving(grid: engine.DaskGrid) -> None:
    frame = grid.to_dask()
    assert frame.divisions == (0, 1000, 2000, 3000, 4000, 5000, 5999)
    assert frame.x.sum().compute() == ALL.x.sum()
    assert list(frame.loc[1500:1502].compute().id) == [1500, 1501, 1502]
    with pg.from_dask(frame, where="workers") as again:
        assert again.locations() == grid.locations()
        assert again.sql(QUERY).to_pylist() == groups()


def test_rows_stay_where_a_client_computes_unless_they_are_wanted_here(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pg.from_dask(facts()) as grid:
        assert isinstance(grid, engine.DaskGrid)
        assert where(grid) <= pids(client)
        assert grid.sql(QUERY).to_pylist() == groups()
    assert len(pg.from_dask(facts(), where="here")) == len(ALL)
    assert type(pg.from_dask(facts(), where="here")) is pg.Grid
    # By default nothing is gathered, also of what the workers have already.
    there = facts().persist()
    monkeypatch.setattr(client, "gather", None)
    monkeypatch.setattr(dask, "compute", None)
    with pg.from_dask(there) as grid:
        assert len(grid) == len(ALL)


def test_many_statements_at_once_keep_their_names_apart(client: Any) -> None:
    grids = [engine.persist(facts(3, 100 + 10 * number), client=client) for number in range(4)]
    wanted = [everything(3, 100 + 10 * number).x.sum() for number in range(4)]

    def ask(number: int) -> bool:
        found = engine.sql("SELECT sum(x) AS x FROM facts", facts=grids[number % 4])
        return found["x"].to_pylist() == [wanted[number % 4]]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(40)))
    until(lambda: not any("facts" in known for known in client.run(tables).values()))
    for each in grids:
        each.close()


def test_two_clients_use_the_same_members(client: Any, grid: engine.DaskGrid) -> None:
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        with engine.persist(facts(3, 100), client=other) as theirs:
            assert where(theirs) <= pids(client)
            assert theirs.sql("SELECT count(*) AS n FROM self").to_pylist() == [{"n": 300}]
            with pytest.raises(pg.errors.InvalidArgumentError, match="must be of one client"):
                engine.sql("SELECT 1", a=grid, b=theirs)
        [future] = other.scatter([pd.DataFrame({"a": [1]})])
        with pytest.raises(pg.errors.InvalidArgumentError, match="must be of one client"):
            engine.persist([future], client=client)
        left = engine.persist(facts(2, 10), client=other)
    with pytest.raises(pg.errors.InvalidArgumentError, match="client of the grid is closed\nhint"):
        left.sql("SELECT 1 FROM self")
    left.close()


def test_what_nobody_holds_is_gone_from_dask_and_from_the_members(client: Any) -> None:
    def kept(name: str) -> bool:
        return any(name in known for known in client.run(tables).values())

    grid = engine.persist(facts(5, 70), client=client)
    name, keys = grid._adoption.name, {handle.key for handle in grid._handles}
    assert kept(name)
    del grid
    gc.collect()
    until(lambda: not kept(name))
    until(lambda: not any(keys & set(held) for held in client.has_what().values()))


LEAVES = """
import sys, distributed
from partgrid.engines import dask
from peers.dask_cluster import facts
client = distributed.Client(sys.argv[1])
grid = dask.persist(facts(3, 90))
print(grid._adoption.name, flush=True)
sys.stdin.read()
"""


def test_a_client_that_dies_leaves_nothing_in_the_workers(client: Any) -> None:
    arguments = [sys.executable, "-c", LEAVES, client.scheduler.address]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        name = other.stdout.readline().strip()
        assert any(name in known for known in client.run(tables).values())
        other.kill()
    until(lambda: not any(name in known for known in client.run(tables).values()))
