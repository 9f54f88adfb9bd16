"""Answers of queries written as Parquet files while they are found: none is held whole, and all files are there or none."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import obstore.store
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
    # Three times as many rows as a file has, in seven folders.
    assert pg.sql(MANY).write_parquet(tmp_path, partition_by="k") == 7
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


@pytest.mark.parametrize(
    ("text", "wish", "message"),
    [
        ("SELECT n, k, n + 1 AS n FROM q", {}, "two columns have the same name"),
        ('SELECT n, k AS "" FROM q', {"partition_by": ""}, "a column without a name"),
    ],
)
def test_files_that_nobody_could_read_back_are_not_written(
    tmp_path: Path, text: str, wish: dict, message: str
) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match=message):
        pg.sql(f"WITH q AS ({MANY} LIMIT 3) {text}").write_parquet(tmp_path / "out", **wish)
    assert left(tmp_path) == []


@pytest.mark.parametrize("wish", [{}, {"partition_by": "k"}])
def test_of_two_answers_in_one_folder_the_later_is_refused(tmp_path: Path, wish: dict) -> None:
    out = tmp_path / "out"
    began, go_on = threading.Event(), threading.Event()

    def slow(values: pa.Array) -> pa.Array:
        began.set()
        assert go_on.wait(60)
        return values

    session = pg.Session()
    session.register_function("slow", slow, [pa.int64()], pa.int64(), volatile=True)
    first = session.sql("SELECT slow(value) AS n, 'first' AS k FROM generate_series(1, 3)")
    found: list[BaseException] = []

    def write() -> None:
        try:
            first.write_parquet(out, **wish)
        except pg.errors.PartgridError as error:
            found.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    assert began.wait(60)
    assert pg.sql("SELECT 7 AS n, 'second' AS k").write_parquet(out, **wish) == 1
    kept = left(out)
    go_on.set()
    writer.join()
    [error] = found
    assert isinstance(error, pg.errors.InvalidArgumentError)
    assert "was not there when the call began" in str(error)
    assert left(out) == kept
    assert left(tmp_path) == ["out", *[f"out/{path}" for path in kept]]


def stored(folder: Path) -> obstore.store.LocalStore:
    return obstore.store.LocalStore(str(folder))


def test_files_of_a_store_are_there_until_others_have_taken_their_place(tmp_path: Path) -> None:
    store = stored(tmp_path)
    assert pg.sql(MANY).write_parquet("set", store=store) == 3
    before = left(tmp_path)
    late = "SELECT n, 1 / (2999999 - n) AS k FROM (" + MANY + ")"
    with pytest.raises(pg.errors.QueryError, match="zero"):
        pg.Session().sql(late, threads=1).write_parquet("set", store=store, overwrite=True)
    assert left(tmp_path) == before
    # Also while the query reads them.
    lazy = pg.read_parquet("set", store=store, lazy=True)
    assert (
        lazy.sql("SELECT n, 5 AS k FROM self WHERE n < 2000000").write_parquet(
            "set", store=store, overwrite=True
        )
        == 2
    )
    found = pg.read_parquet("set", store=store)
    assert found.sql(
        "SELECT count(*) AS c, min(k) AS k, sum(n) AS s FROM self"
    ).to_arrow().to_pylist() == [{"c": 2_000_000, "k": 5, "s": 1_999_999_000_000}]
    assert len(list((tmp_path / "set").iterdir())) == 2


def test_folders_of_a_store_may_have_any_name(tmp_path: Path) -> None:
    store = stored(tmp_path)
    one = pg.sql("SELECT 1 AS a, 'ü%/b' AS k")
    for name in ["año/2020", "a b", "50%", "50%25", "x#y", "~"]:
        assert one.write_parquet(name, store=store, partition_by="k") == 1
        assert left(tmp_path / name) == ["k=%C3%BC%25%2Fb", "k=%C3%BC%25%2Fb/part-00000.parquet"]
        with pytest.raises(pg.errors.InvalidArgumentError, match="holds 1 data files"):
            one.write_parquet(name, store=store)
        assert one.write_parquet(name, store=store, partition_by="k", overwrite=True) == 1
        rows = [{"a": 1, "k": "ü%/b"}]
        assert len(left(tmp_path / name)) == 2
        assert pg.read_parquet(name, store=store).to_arrow().to_pylist() == rows
    for name in ["a/../b", ".", "a\nb"]:
        with pytest.raises(pg.errors.InvalidArgumentError, match="no parts"):
            one.write_parquet(name, store=store)
        with pytest.raises(pg.errors.InvalidArgumentError, match="no parts"):
            pg.read_parquet(name, store=store)


GIVEN_UP = """
import os, signal, sys, threading, time, obstore.store, partgrid as pg
store = obstore.store.LocalStore(sys.argv[1])
result = pg.sql("SELECT value AS n FROM generate_series(0, 900000000)")

def stop():
    while not any(name.startswith("part-") for name in os.listdir(sys.argv[1])):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=stop).start()
try:
    result.write_parquet("", store=store)
except KeyboardInterrupt:
    end = time.monotonic() + 30
    while os.listdir(sys.argv[1]) and time.monotonic() < end:
        time.sleep(0.01)
    print(os.listdir(sys.argv[1]))
"""


def test_a_write_into_a_store_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GIVEN_UP, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_other_sets_below_a_folder_are_not_taken_away(tmp_path: Path) -> None:
    one = pg.sql("SELECT 1 AS a")
    one.write_parquet(tmp_path / "lake" / "other")
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"will not be replaced.*other/part-00000"
    ):
        one.write_parquet(tmp_path / "lake", overwrite=True)
    assert left(tmp_path / "lake") == ["other", "other/part-00000.parquet"]


def test_the_working_folder_stays_the_one_that_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = Path.cwd().stat().st_ino
    for value in (1, 2):
        assert pg.sql(f"SELECT {value} AS a").write_parquet(".", overwrite=value > 1) == 1
        assert (Path.cwd().stat().st_ino, left(Path())) == (before, ["part-00000.parquet"])
        assert pg.read_parquet(".").to_arrow().to_pylist() == [{"a": value}]


def test_folders_have_few_files_however_long_the_answer_is(tmp_path: Path) -> None:
    query = "SELECT value AS n, value % 50 AS k FROM generate_series(0, 3999999)"
    assert pg.sql(query).write_parquet(tmp_path / "out", partition_by="k") == 50
    found = pg.read_parquet(tmp_path / "out")
    assert found.sql(
        "SELECT count(DISTINCT n) AS n, sum(n) AS s, count(*) FILTER (WHERE n % 50 = k) AS f FROM self"
    ).to_arrow().to_pylist() == [{"n": 4_000_000, "s": 7_999_998_000_000, "f": 4_000_000}]


def test_categories_are_folders(tmp_path: Path) -> None:
    kinds = pa.array(["ü", None, "b", "ü"]).dictionary_encode()
    data = pg.from_arrow(pa.table({"k": kinds, "n": [1, 2, 3, 4]}))
    for written in (data, data.sql("SELECT * FROM self")):
        assert written.write_parquet(tmp_path / "out", partition_by="k", overwrite=True) == 3
        found = pg.read_parquet(tmp_path / "out").sql("SELECT k, n FROM self ORDER BY n")
        assert found.to_arrow().to_pylist() == data.to_arrow().to_pylist()


@pytest.mark.parametrize(
    ("query", "column", "remedy"),
    [
        ("SELECT INTERVAL '1 day' AS i, 1 AS a", "i", "CAST(x AS TEXT)"),
        ("SELECT [INTERVAL '1 day'] AS l", "l", "CAST(x AS TEXT)"),
    ],
)
def test_types_that_files_do_not_have_are_named(
    tmp_path: Path, query: str, column: str, remedy: str
) -> None:
    with pytest.raises(pg.errors.UnsupportedError, match="Parquet has no intervals") as raised:
        pg.sql(query).write_parquet(tmp_path / "out")
    told = str(raised.value)
    assert (f"column: {column}," in told, remedy in told) == (True, True)
    assert left(tmp_path) == []


def test_decimals_and_unions_that_files_do_not_have_are_named(tmp_path: Path) -> None:
    hundred = pa.array([Decimal(100)], pa.decimal128(5, -2))
    either = pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
    )
    for array, what in ((hundred, "scale below 0"), (either, "unions")):
        grid = pg.from_arrow(pa.table({"x": array}))
        with pytest.raises(
            pg.errors.UnsupportedError, match=rf"{what} \(column: x, .*\nhint: write"
        ):
            grid.write_parquet(tmp_path / "out")
    assert left(tmp_path) == []


def test_there_is_no_folder_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(pg.errors.InvalidArgumentError, match="no folder in a file.*/file"):
        pg.sql("SELECT 1 AS a").write_parquet(tmp_path / "file" / "a" / "b")
    assert left(tmp_path) == ["file"]


def test_settings_of_a_store_are_refused_for_a_folder(tmp_path: Path) -> None:
    one, wish = pg.sql("SELECT 1 AS a"), {"region": "eu-west-1"}
    with pytest.raises(pg.errors.InvalidArgumentError, match="this is a local path"):
        one.write_parquet(tmp_path / "out", storage_options=wish)
    assert one.write_parquet(tmp_path / "out") == 1
    with pytest.raises(pg.errors.InvalidArgumentError, match="this is a local path"):
        pg.read_parquet(tmp_path / "out", storage_options=wish)
