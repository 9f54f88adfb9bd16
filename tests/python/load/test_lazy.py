"""Lazy grids: what is read, when, and what is kept."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from conftest import DATA
from stores import KEYS, Proxy, fault_proxy, s3_client, s3_server

FLIGHTS = DATA / "flights"
BUCKET = "lazy"
ROWS = 4_000


@pytest.mark.parametrize("wishes", [{}, {"tile_rows": 8_000, "tile_columns": 5}])
def test_values_are_those_of_an_eager_grid(wishes: dict[str, Any]) -> None:
    lazy, eager = pg.read_parquet(FLIGHTS, lazy=True, **wishes), pg.read_parquet(FLIGHTS, **wishes)
    assert lazy.cuts == eager.cuts
    assert lazy.schema.equals(eager.schema)
    assert lazy.to_arrow().equals(eager.to_arrow())
    assert lazy[5_000:100_000].to_arrow().equals(eager[5_000:100_000].to_arrow())
    assert lazy[["tailnum", "month"]].to_arrow().equals(eager[["tailnum", "month"]].to_arrow())
    assert lazy.tile(3, 0).to_pandas().equals(eager.tile(3, 0).to_pandas())
    assert repr(lazy).splitlines()[0].startswith("Grid of 336,776 rows x 19 columns")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM {}",
        "SELECT min(month) AS a, max(month) AS b, min(day) AS c, max(hour) AS d FROM {}",
        "SELECT min(time_hour) AS a, max(distance + 0) AS b, min(carrier) AS c FROM {}",
        "SELECT carrier, count(*) AS n, sum(distance) AS s FROM {} GROUP BY carrier ORDER BY carrier",
        "SELECT count(*) AS n FROM {} WHERE month = 7 AND day < 5",
        "SELECT count(*) AS n FROM {} WHERE distance > 4900 OR dep_delay IS NULL",
        "SELECT count(dep_delay) AS n, count(tailnum) AS m FROM {}",
        "SELECT tailnum FROM {} WHERE time_hour > '2013-12-31 22:00:00-05' ORDER BY tailnum",
    ],
)
def test_queries_give_the_same(query: str, flights: pg.Grid) -> None:
    lazy = pg.read_parquet(FLIGHTS, lazy=True)
    assert (
        lazy.sql(query.format("self"))
        .to_arrow()
        .equals(flights.sql(query.format("self")).to_arrow())
    )


def test_statistics_of_the_footer_are_exact_or_left_out(tmp_path: Path) -> None:
    """Nulls, row groups of nulls, floats with NaN, long texts, unsigned numbers, cut row groups."""
    table = pa.table(
        {
            "i": pa.array([None] * 10 + list(range(10)) + [None, 5] * 5, pa.int32()),
            "f": pa.array([float("nan"), 1.0] * 15),
            "u": pa.array([2**64 - 1, 0, 1] * 10, pa.uint64()),
            "t": pa.array(["x" * 200, "y" * 300, None] * 10),
            "d": pa.array([datetime.date(2020, 1, 1 + number) for number in range(30)]),
            "n": pa.array([None] * 30, pa.int64()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    for tile_rows in (4, 10, 30):
        lazy = pg.read_parquet(tmp_path, lazy=True, tile_rows=tile_rows)
        for name in table.column_names:
            query = f"SELECT min({name}) AS a, max({name}) AS b, count({name}) AS c FROM self"
            eager = pg.read_parquet(tmp_path, tile_rows=tile_rows).sql(query).to_arrow()
            assert str(lazy.sql(query).to_arrow().to_pylist()) == str(eager.to_pylist()), name
        for condition in ["i < 3", "i IS NULL", "f > 2", "u > 5", "t > 'y'", "d = '2020-01-15'"]:
            query = f"SELECT count(*) AS n FROM self WHERE {condition}"
            connection = duckdb.connect()
            connection.register("self", table)
            wanted = connection.sql(query).fetchall()[0][0]
            assert lazy.sql(query).to_arrow()["n"].to_pylist() == [wanted], condition


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("bucket") / "file.parquet"
    with s3_server() as address:
        client = s3_client(address)
        client.create_bucket(Bucket=BUCKET)
        random = np.random.default_rng(5)
        for number in range(3):
            columns = {f"c{column}": random.integers(0, 2**60, ROWS) for column in range(8)}
            table = pa.table({"file": [number] * ROWS, **columns})
            pq.write_table(table, path, use_dictionary=["file"], compression="none")
            client.put_object(Bucket=BUCKET, Key=f"{number}.parquet", Body=path.read_bytes())
        yield address


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    with fault_proxy(server) as proxy:
        yield proxy


def lazy_grid(proxy: Proxy, **wishes: Any) -> pg.Grid:
    storage_options = {**KEYS, "endpoint": proxy.address}
    return pg.read_parquet(f"s3://{BUCKET}/", storage_options=storage_options, lazy=True, **wishes)


def test_only_what_is_asked_for_is_read_and_once(proxy: Proxy) -> None:
    grid = lazy_grid(proxy)
    assert grid.shape == (3 * ROWS, 9)
    footers = proxy.read_bytes()
    grid.sql("SELECT count(*), min(file), max(file) FROM self").to_arrow()
    repr(grid)
    assert grid.nbytes > 0
    assert proxy.read_bytes() == footers
    column_bytes = 8 * ROWS
    grid.sql("SELECT avg(c3) FROM self WHERE file = 1").to_arrow()
    first = proxy.read_bytes() - footers
    assert column_bytes <= first <= 1.1 * column_bytes + 2_000
    grid.sql("SELECT avg(c3), max(c3) FROM self WHERE file = 1").to_arrow()
    assert proxy.read_bytes() == footers + first
    grid.tile(1, 0).to_arrow()
    assert proxy.read_bytes() - footers <= 1.1 * 8 * column_bytes + 4_000
    before = len(proxy.requests)
    grid.tile(1, 0).to_pandas()
    assert len(proxy.requests) == before


def test_a_selection_that_is_opened_reads_its_columns_only(proxy: Proxy) -> None:
    grid = lazy_grid(proxy)
    footers, column_bytes = proxy.read_bytes(), 8 * ROWS
    array = grid.distarray("c2")
    assert 3 * column_bytes <= proxy.read_bytes() - footers <= 1.1 * 3 * column_bytes + 6_000
    before = proxy.read_bytes()
    assert grid[["c2", "c4"]].tile(1, 0).to_arrow().num_columns == 2
    assert column_bytes <= proxy.read_bytes() - before <= 1.1 * column_bytes + 2_000
    assert len(array) == 3


def test_columns_of_conditions_come_first_and_the_others_only_where_a_row_passes(
    proxy: Proxy,
) -> None:
    grid = lazy_grid(proxy)
    value = grid.sql("SELECT c1 FROM self WHERE file = 1 LIMIT 1").to_arrow()["c1"][0].as_py()
    grid = lazy_grid(proxy)
    footers, column_bytes = proxy.read_bytes(), 8 * ROWS
    session = pg.Session(threads=1)
    session.register("t", grid)
    result = session.sql("SELECT c2, c3, c4 FROM t WHERE c1 + 0 = $1", [value]).collect()
    assert len(result) == 1
    # Of one file all three columns, of the others only that of the condition.
    assert proxy.read_bytes() - footers <= 1.1 * 6 * column_bytes + 10_000
    assert result.metrics is not None
    assert result.metrics.read_bytes == result.metrics.groups["file"]["bytes"] == 6 * column_bytes
    none = session.sql("SELECT c5, c6 FROM t WHERE c1 + 0 = -1").collect()
    assert none.metrics is not None
    assert (len(none), none.metrics.read_bytes) == (0, 3 * column_bytes)
    assert (none.metrics.read_rows, none.metrics.read_tiles) == (3 * ROWS, 3)


@pytest.fixture(scope="module")
def with_blooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Row groups that statistics cannot tell from one another, with bloom filters."""
    path = tmp_path_factory.mktemp("blooms") / "a.parquet"
    duckdb.connect().sql(
        f"""
        COPY (SELECT (i * 7919 % 20000)::BIGINT * 2 AS n, 'text ' || (i * 7919 % 20000) * 2 AS t, i AS place
              FROM range(20000) AS r(i))
        TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, DICTIONARY_SIZE_LIMIT 100000)
        """
    )
    return path


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("n = 19999", 0),
        ("n = 19998", 1),
        ("n IN (19999, 19998, 20001)", 1),
        ("n IN (1, 3, 5, 7, 9) AND place >= 0", 0),
        ("n = 19999 OR n = 20001", 0),
        ("t = 'text 19999'", 0),
        ("t = 'text 19998' AND n < 20000", 1),
        ("n IN (SELECT x FROM (VALUES (19998), (3)) AS v(x))", 1),
    ],
)
def test_bloom_filters_leave_tiles_unread(with_blooms: Path, condition: str, rows: int) -> None:
    for rows_of_a_tile in (2048, 1000):
        grid = pg.read_parquet(with_blooms, lazy=True, tile_rows=rows_of_a_tile)
        result = grid.sql(f"SELECT place FROM self WHERE {condition}").collect()
        assert len(result) == rows
        metrics = result.metrics
        assert metrics is not None
        # One value in a hundred or so seems to be there though it is not.
        assert metrics.read_rows <= (rows + 2) * 2048, condition
        # What every row group might hold is read.
        every = grid.sql("SELECT count(place) AS n FROM self WHERE n != 19999").to_arrow()
        assert every["n"].to_pylist() == [20_000]


def test_views_of_lazy_tiles_ask_the_same_filters(with_blooms: Path) -> None:
    grid = pg.read_parquet(with_blooms, lazy=True, tile_rows=2048)[100:15_000][["place", "n"]]
    result = grid.sql("SELECT place FROM self WHERE n = 19999").collect()
    assert result.metrics is not None
    assert (len(result), result.metrics.read_rows <= 2 * 2048) == (0, True)
    frame = grid.to_arrow()
    value = frame["n"][7_000].as_py()
    found = grid.sql("SELECT place FROM self WHERE n = $1", [value]).to_arrow()
    assert found["place"].to_pylist() == [frame["place"][7_000].as_py()]


def test_many_who_ask_at_once_read_once(proxy: Proxy) -> None:
    grid = lazy_grid(proxy)
    footers = proxy.read_bytes()
    with ThreadPoolExecutor(8) as pool:
        tables = list(pool.map(lambda _: grid.tile(2, 0).to_arrow(), range(16)))
    assert all(table.equals(tables[0]) for table in tables)
    assert proxy.read_bytes() - footers <= 1.1 * 8 * 8 * ROWS + 4_000


def test_what_does_not_fit_is_read_again(proxy: Proxy) -> None:
    grid = lazy_grid(proxy, memory_limit=1_200_000)
    footers = proxy.read_bytes()
    whole = grid.to_arrow()
    first = proxy.read_bytes() - footers
    assert grid.to_arrow().equals(whole)
    # 9 columns of 3 x 4,000 rows are 860 kB, which fit into three quarters of the limit; in 600 kB they do not.
    assert proxy.read_bytes() - footers == first
    small = lazy_grid(proxy, memory_limit=600_000)
    before = proxy.read_bytes()
    assert small.to_arrow().equals(whole)
    assert small.to_arrow().equals(whole)
    assert proxy.read_bytes() - before > 1.2 * first


def test_resident_memory_stays_within_the_limit(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    for number in range(8):
        columns = {f"c{column}": random.integers(0, 2**60, 500_000) for column in range(8)}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet", row_group_size=125_000)
    program = textwrap.dedent(
        f"""
        import resource
        import partgrid as pg
        grid = pg.read_parquet({str(tmp_path)!r}, lazy=True, tile_rows=125_000, memory_limit="64MB")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for column in grid.columns:
            grid.sql(f"SELECT sum({{column}} % 7) FROM self").to_arrow()
        for row in range(grid.tiling[0]):
            grid.tile(row, 0).to_arrow()
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # 256 MB in all.
    assert int(done.stdout) < 128


def test_a_file_that_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3]}), path)
    grid = pg.read_parquet(path, lazy=True)
    pq.write_table(pa.table({"a": [4, 5, 6]}), path)
    with pytest.raises(pg.errors.InvalidDataError, match="changed"):
        grid.to_arrow()
    with pytest.raises(pg.errors.InvalidDataError, match="changed"):
        grid.sql("SELECT sum(a) FROM self").to_arrow()
    path.unlink()
    with pytest.raises(pg.errors.PathNotFoundError):
        grid.tile(0, 0).to_arrow()


def test_a_forked_child_reads_local_tiles() -> None:
    grid = pg.read_parquet(FLIGHTS, lazy=True)
    wanted = grid.tile(0, 0).to_arrow().num_rows
    child = os.fork()
    if child == 0:
        try:
            same = grid.tile(0, 0).to_arrow().num_rows == wanted
            rows = grid.sql("SELECT count(*) AS n FROM self WHERE distance > 0").to_arrow()["n"][0]
            os._exit(0 if same and rows.as_py() == 336_776 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "wishes",
    [
        {"filters": [("month", "=", 1)]},
        {"sort_by": "day"},
        {"partition_by": "day"},
        {"dense": ["dep_delay"]},
        {"spill_to": "."},
        {"resume": "."},
    ],
    ids=str,
)
def test_what_needs_the_values_is_refused(wishes: dict[str, Any]) -> None:
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=f"lazy load cannot take {next(iter(wishes))}"
    ):
        pg.read_parquet(FLIGHTS, lazy=True, **wishes)
