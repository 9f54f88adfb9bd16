"""Answers of queries written as Parquet files while they are found: none is held whole, and all files are there or none."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import partgrid as pg
from conftest import DATA

# 3,000,000 rows: the engine's own function of them.
MANY = "SELECT value AS n, value % 7 AS k FROM generate_series(0, 2999999)"


def left(folder: Path) -> list[str]:
    """What lies below a folder, hidden or not."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_files_hold_the_answer_in_its_order(tmp_path: Path, flights: pg.Grid) -> None:
    text = "SELECT carrier, dep_delay, time_hour FROM self WHERE month < 4 ORDER BY dep_delay DESC NULLS LAST, time_hour, carrier"
    result = flights.sql(text)
    assert result.write_parquet(tmp_path / "out") == 1
    assert left(tmp_path) == ["out", "out/part-00000.parquet"]
    assert pg.read_parquet(tmp_path / "out").to_arrow() == flights.sql(text).to_arrow()
    assert result.metrics is not None
    assert result.metrics.rows == 80_789


def test_a_long_answer_has_several_files(tmp_path: Path) -> None:
    assert pg.sql(MANY + " ORDER BY n").write_parquet(tmp_path / "out", compression="lz4") == 3
    grid = pg.read_parquet(tmp_path / "out")
    assert grid.shape == (3_000_000, 2)
    assert grid.to_arrow()["n"].to_pylist() == list(range(3_000_000))


def test_rows_of_folders_are_all_there(tmp_path: Path) -> None:
    # Three times as many rows as a file has, seven folders each time.
    assert pg.sql(MANY).write_parquet(tmp_path, partition_by="k") == 21
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"k={k}" for k in range(7)]
    found = pg.sql(
        "SELECT k, count(*) AS rows, sum(n) AS sum FROM t GROUP BY k ORDER BY k",
        t=pg.read_parquet(tmp_path),
    )
    assert (
        found.to_arrow()
        == pg.sql(
            f"SELECT k, count(*) AS rows, sum(n) AS sum FROM ({MANY}) GROUP BY k ORDER BY k"
        ).to_arrow()
    )


def test_an_answer_may_be_larger_than_the_memory_limit(tmp_path: Path) -> None:
    session = pg.Session(memory_limit="24 MB", threads=1)
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        session.sql(MANY).collect()
    assert session.sql(MANY).write_parquet(tmp_path / "out") == 3
    assert session.memory_bytes == 0


def test_an_answer_that_is_kept_is_not_worked_out_again(tmp_path: Path) -> None:
    calls = []
    session = pg.Session()
    session.register_function(
        "noted",
        lambda values: (calls.append(1), values)[1],
        [pa.int64()],
        pa.int64(),
        volatile=True,
    )
    result = session.sql("SELECT noted(value) AS n FROM generate_series(1, 5)")
    result.collect()
    known = len(calls)
    assert result.write_parquet(tmp_path / "out") == 1
    assert len(calls) == known
    assert pg.read_parquet(tmp_path / "out").to_arrow()["n"].to_pylist() == [1, 2, 3, 4, 5]


def test_the_folder_that_a_query_reads_can_be_replaced(tmp_path: Path, flights: pg.Grid) -> None:
    flights.write_parquet(tmp_path / "data")
    grid = pg.read_parquet(tmp_path / "data", lazy=True)
    result = grid.sql("SELECT origin, count(*) AS n FROM self GROUP BY origin ORDER BY origin")
    with pytest.raises(pg.errors.InvalidArgumentError, match="12 data files already"):
        result.write_parquet(tmp_path / "data")
    assert len(left(tmp_path / "data")) == 12
    assert result.write_parquet(tmp_path / "data", overwrite=True) == 1
    found = pg.read_parquet(tmp_path / "data").to_arrow().to_pydict()
    assert found == {"origin": ["EWR", "JFK", "LGA"], "n": [120_835, 111_279, 104_662]}


def test_an_answer_without_rows_keeps_its_columns(tmp_path: Path, flights: pg.Grid) -> None:
    result = flights.sql("SELECT carrier, distance FROM self WHERE month = 13")
    assert result.write_parquet(tmp_path / "out") == 1
    found = pg.read_parquet(tmp_path / "out")
    assert (found.shape, found.columns) == ((0, 2), ["carrier", "distance"])
    with pytest.raises(pg.errors.InvalidArgumentError, match="leave partition_by out"):
        result.write_parquet(tmp_path / "folders", partition_by="carrier")
    assert left(tmp_path) == ["out", "out/part-00000.parquet"]


@pytest.mark.parametrize(
    ("text", "wish", "kind", "message"),
    [
        (MANY, {"partition_by": "none"}, pg.errors.NotFoundError, "none"),
        (MANY, {"partition_by": ["k", "n"]}, pg.errors.InvalidArgumentError, "leave a column"),
        (MANY, {"partition_by": ["k", "k"]}, pg.errors.InvalidArgumentError, "twice"),
        (MANY, {"compression": "zip"}, pg.errors.InvalidArgumentError, "one of none, snappy"),
        ("SELECT INTERVAL '1 month' AS i", {}, pg.errors.UnsupportedError, "Parquet"),
        (
            "SELECT FROM generate_series(1, 3)",
            {},
            pg.errors.UnsupportedError,
            "3 rows without a column",
        ),
        # The error comes with the last rows, when files are written already.
        ("SELECT 1 / (2999999 - n) AS a FROM (" + MANY + ")", {}, pg.errors.QueryError, "zero"),
    ],
)
def test_what_fails_leaves_nothing(
    tmp_path: Path, text: str, wish: dict, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        pg.sql(text).write_parquet(tmp_path / "deep" / "out", **wish)
    assert left(tmp_path) == []


def test_a_query_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    result = pg.sql(
        "SELECT value AS n, md5(CAST(value AS VARCHAR)) AS text FROM generate_series(0, 900000000)"
    )

    def cancel() -> None:
        while result.metrics is None or result.metrics.rows < 2_000_000:
            time.sleep(0.01)
        result.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(pg.errors.CancelledError):
        result.write_parquet(tmp_path / "out")
    canceller.join()
    assert left(tmp_path) == []


def test_the_answer_of_a_server_is_written_here(tmp_path: Path) -> None:
    with pg.Server({"flights": pg.read_parquet(DATA / "flights")}) as server:
        result = pg.connect(server.uri).sql("SELECT * FROM flights WHERE month = 7")
        assert result.write_parquet(tmp_path, partition_by="origin") == 3
    assert pg.read_parquet(tmp_path).shape == (29_425, 19)
