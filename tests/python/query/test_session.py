"""Sessions: parameters, functions of Python, tables by name, bounds, cancelling, progress."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import partgrid as pg
from partgrid import _progress

UTC = dt.UTC
ENDLESS = "SELECT count(*) FROM f a, f b WHERE a.dep_delay * b.arr_delay = 7.5"

VALUES = [
    (None, pa.null(), None),
    (True, pa.bool_(), True),
    (1, pa.int64(), 1),
    (2**63, pa.uint64(), 2**63),
    (-(2**70), pa.decimal128(22, 0), decimal.Decimal(-(2**70))),
    (1.5, pa.float64(), 1.5),
    ("a'; DROP TABLE f; --", pa.string(), "a'; DROP TABLE f; --"),
    (b"\x00x", pa.binary(), b"\x00x"),
    (bytearray(b"x"), pa.binary(), b"x"),
    (dt.date(2013, 7, 1), pa.date32(), dt.date(2013, 7, 1)),
    (dt.datetime(2013, 7, 1, 6), pa.timestamp("us"), dt.datetime(2013, 7, 1, 6)),
    (
        dt.datetime(2013, 7, 1, 6, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        pa.timestamp("us", "UTC"),
        dt.datetime(2013, 7, 1, 4, tzinfo=UTC),
    ),
    (dt.time(6, 30), pa.time64("us"), dt.time(6, 30)),
    (dt.timedelta(hours=-1), pa.duration("us"), dt.timedelta(hours=-1)),
    (decimal.Decimal("-1.50"), pa.decimal128(3, 2), decimal.Decimal("-1.50")),
    (decimal.Decimal("0.001"), pa.decimal128(3, 3), decimal.Decimal("0.001")),
    (decimal.Decimal("1E+3"), pa.decimal128(4, 0), decimal.Decimal(1000)),
    (uuid.UUID(int=5), pa.string(), "00000000-0000-0000-0000-000000000005"),
    (np.int32(3), pa.int32(), 3),
    (np.uint8(3), pa.uint8(), 3),
    (np.float32(1.5), pa.float32(), 1.5),
    (np.bool_(True), pa.bool_(), True),
    (np.str_("x"), pa.string(), "x"),
    (np.datetime64("2013-07-01"), pa.date32(), dt.date(2013, 7, 1)),
    (np.datetime64("2013-07-01T06", "s"), pa.timestamp("s"), dt.datetime(2013, 7, 1, 6)),
    (np.datetime64("NaT", "s"), pa.timestamp("s"), None),
    (np.timedelta64(5, "s"), pa.duration("s"), dt.timedelta(seconds=5)),
    (pa.scalar(3, pa.int8()), pa.int8(), 3),
    ([1, None], pa.list_(pa.int64()), [1, None]),
    (["a"], pa.list_(pa.string()), ["a"]),
    (np.array([1, 2]), pa.list_(pa.int64()), [1, 2]),
]


@pytest.fixture(scope="module")
def session(flights: pg.Grid) -> pg.Session:
    session = pg.Session(threads=2)
    session.register("f", flights)
    return session


@pytest.mark.parametrize(("given", "kind", "value"), VALUES, ids=lambda value: str(value)[:20])
def test_a_parameter_has_the_type_of_its_value(
    session: pg.Session, given: object, kind: pa.DataType, value: object
) -> None:
    answer = session.sql("SELECT $1 AS v", [given]).to_arrow()
    assert answer.schema.field("v").type == kind
    assert answer["v"].to_pylist() == [value]
    assert session.sql("SELECT $v AS v", {"v": given}).to_arrow() == answer


def test_parameters_stand_where_values_stand(session: pg.Session) -> None:
    def count(query: str, params: object) -> object:
        return (
            session.sql(f"SELECT count(*) AS n FROM f WHERE {query}", params)
            .to_arrow()["n"][0]
            .as_py()
        )  # type: ignore[arg-type]

    assert count("dep_delay > ? AND origin = ?", [60, "JFK"]) == 8401
    assert count("dep_delay > $2 AND origin = $1", ["JFK", 60]) == 8401
    assert count("dep_delay > $d AND origin = $o", {"d": 60, "$o": "JFK"}) == 8401
    assert count("origin IN ($1, $2)", ["JFK", "LGA"]) == 215941
    assert count("array_has($1, origin)", [["JFK", "LGA"]]) == 215941
    assert "tiles=1/12" in session.sql("SELECT dest FROM f WHERE month = $1", [7]).explain()
    assert len(session.sql("SELECT dest FROM f LIMIT $1", [5])) == 5


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("a", "params must be a list of values for $1 and ?"),
        ([object()], "params[0] must be None, a bool"),
        ([[1, "a"]], "params[0] must be a list of values of one type"),
        ([decimal.Decimal("NaN")], "params[0] must be a finite Decimal"),
        ({1: 2}, "params must have texts as names"),
        ([10**80], "a number among params may have 76 digits"),
    ],
)
def test_what_is_no_parameter_is_refused(session: pg.Session, params: Any, message: str) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError) as caught:
        session.sql("SELECT $1", params)
    assert message in str(caught.value)


def test_prepared_statements_follow_the_names(flights: pg.Grid) -> None:
    session = pg.Session()
    session.register("f", flights)
    prepared = session.prepare("SELECT count(*) AS n FROM f WHERE month = $1")
    assert prepared.parameters == [("$1", "Int8")] or prepared.parameters[0][0] == "$1"
    assert prepared.sql([7]).to_arrow()["n"].to_pylist() == [29425]
    session.register("f", flights[:10])
    assert prepared.sql([7]).to_arrow()["n"].to_pylist()[0] <= 10
    with pytest.raises(pg.errors.QueryError, match="values came for none"):
        prepared.sql()


def test_sql_reads_anything_with_arrow_or_partitioned(flights: pg.Grid) -> None:
    class Spread:
        __partitioned__ = flights[:5].__partitioned__

    tables = {
        "pyarrow": pa.table({"a": [1, 2]}),
        "Polars": pl.DataFrame({"a": [1, 2]}),
        "result": pg.sql("SELECT unnest([1, 2]) AS a"),
    }
    for name, table in tables.items():
        answer = pg.sql(f"SELECT sum(a) AS s FROM {name}", **{name: table})
        assert answer.to_arrow()["s"].to_pylist() == [3]
    assert pg.sql("SELECT count(*) AS n FROM T", T=Spread()).to_arrow()["n"].to_pylist() == [5]
    with pytest.raises(pg.errors.ProtocolError, match="data must be a grid"):
        pg.Session().register("t", 3)


def test_views_tables_and_where_tiles_are(flights: pg.Grid) -> None:
    session = pg.Session()
    session.register("f", flights)
    session.sql("CREATE VIEW late AS SELECT dest, dep_delay FROM f WHERE dep_delay > 100")
    status = session.sql(
        "CREATE TABLE worst AS SELECT dest, max(dep_delay) AS d FROM late GROUP BY dest"
    )
    assert status.to_arrow()["status"].to_pylist()[0].startswith("table worst, ")
    assert session.tables == ["f", "late", "worst"]
    grid = session.grid("worst")
    assert grid.shape == (len(session.sql("SELECT DISTINCT dest FROM late")), 2)
    tiles = session.sql("SELECT * FROM tiles('f')").to_arrow()
    assert tiles["rows"].to_pylist() == [flights.tile(band).shape[0] for band in range(12)]
    assert set(tiles["here"].to_pylist()) == {True}
    assert set(tiles["process"].to_pylist()) == {os.getpid()}
    # What was added later comes last.
    assert tiles.column_names[-2:] == ["statistics", "lost"]
    assert set(tiles["lost"].to_pylist()) == {False}
    months = session.sql(
        "SELECT s.min AS m FROM (SELECT unnest(statistics) AS s FROM tiles('f')) WHERE s.\"column\" = 'month'"
    ).to_arrow()
    assert sorted(map(int, months["m"].to_pylist())) == list(range(1, 13))
    with pytest.raises(pg.errors.QueryError, match="`late` is a view"):
        session.grid("late")


def test_functions_of_python(flights: pg.Grid) -> None:
    session = pg.Session(threads=2)
    session.register("f", flights)
    session.register_function("plus", pc.add, ["float64", pa.float64()], pa.float64())
    query = "SELECT sum(plus(dep_delay, arr_delay)) AS a, sum(dep_delay + arr_delay) AS b FROM f"
    (row,) = session.sql(query).to_arrow().to_pylist()
    assert row["a"] == row["b"]
    session.register_function(
        "up", lambda texts: pl.Series(texts).str.to_uppercase(), ["string"], "string"
    )
    assert session.sql("SELECT up('abc') AS u").to_arrow()["u"].to_pylist() == ["ABC"]
    session.register_function("numbered", range, [], "int64", volatile=True)
    assert session.sql("SELECT numbered() AS n FROM f LIMIT 3").to_arrow()["n"].to_pylist() == [
        0,
        1,
        2,
    ]
    with pytest.raises(pg.errors.QueryError, match=r"hint: it takes plus\(Float64, Float64\)"):
        session.sql("SELECT plus(1)")


@pytest.mark.parametrize(
    "read", [len, lambda result: result.to_arrow(), lambda result: list(result.stream())]
)
def test_what_a_function_raises_is_raised(flights: pg.Grid, read: Callable[[Any], object]) -> None:
    class OwnError(Exception):
        pass

    def broken(values: pa.Array) -> pa.Array:
        raise OwnError(f"{len(values) > 0}")

    session = pg.Session(threads=2)
    session.register("f", flights)
    session.register_function("broken", broken, ["float64"], "float64")
    with pytest.raises(OwnError, match="True") as caught:
        read(session.sql("SELECT broken(dep_delay) FROM f"))
    assert caught.value.__notes__ == ["in the SQL function broken"]
    assert len(session.sql("SELECT 1")) == 1


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda values: values[:1], pg.errors.QueryError, "must give"),
        (
            lambda values: values.cast(pa.int64(), safe=False),
            pg.errors.QueryError,
            "must give Float64, got Int64",
        ),
        (lambda _: pa.scalar(1.0), TypeError, "it must give an array"),
        (lambda _: ["a"], TypeError, "a list of double, one value for each row: "),
        (lambda _: None, TypeError, "a list of double, one value for each row, got None"),
        (lambda _: "ab", TypeError, "one value for each row, got 'ab'"),
    ],
)
def test_what_a_function_gives_is_checked(
    session: pg.Session, function: Any, error: Any, message: str
) -> None:
    session.register_function("given", function, ["float64"], "float64")
    with pytest.raises(error, match=message):
        session.sql("SELECT given(dep_delay) FROM f").to_arrow()


class Mean:
    def __init__(self) -> None:
        self.count, self.total = 0, 0.0

    def update(self, values: pa.Array) -> None:
        self.count += len(values) - values.null_count
        self.total += pc.sum(values).as_py() or 0.0

    def merge(self, other: Mean) -> None:
        self.count += other.count
        self.total += other.total

    def evaluate(self) -> float | None:
        return self.total / self.count if self.count else None


class Rows(Mean):
    def evaluate(self) -> float:
        return float(self.count)


def test_aggregates_of_python(session: pg.Session) -> None:
    session.register_aggregate("mean_of", Mean, ["float64"], "float64")
    query = "SELECT carrier, mean_of(dep_delay) AS a, avg(dep_delay) AS b FROM f GROUP BY carrier"
    rows = session.sql(query).to_arrow().to_pylist()
    assert len(rows) == 16
    for row in rows:
        assert row["a"] == pytest.approx(row["b"])
    empty = session.sql("SELECT mean_of(dep_delay) AS m FROM f WHERE dep_delay > 1e9").to_arrow()
    assert empty["m"].to_pylist() == [None]
    late = "SELECT c, (SELECT rows_of(dep_delay) FROM f WHERE f.distance > c) AS n FROM (VALUES (-1), (99999)) t(c) ORDER BY c"
    session.register_aggregate("rows_of", Rows, ["float64"], "float64")
    everything = float(
        session.sql("SELECT count(dep_delay) AS n FROM f").to_arrow()["n"][0].as_py()
    )
    assert session.sql(late).to_arrow()["n"].to_pylist() == [everything, 0.0]

    class Local(Mean):
        def evaluate(self) -> float | None:
            raise LookupError("nothing")

    session.register_aggregate("local", Local, ["float64"], "float64")
    with pytest.raises(LookupError, match="nothing"):
        session.sql("SELECT local(dep_delay) FROM f").to_arrow()
    with pytest.raises(pg.errors.InvalidArgumentError, match="without update, merge, evaluate"):
        session.register_aggregate("none", object, ["float64"], "float64")
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="must be an Arrow type, got 'nonsense'"
    ):
        session.register_function("none", len, ["nonsense"], "float64")


def test_functions_go_with_the_last_reader(flights: pg.Grid) -> None:
    session = pg.Session(threads=2)
    session.register("f", flights)
    session.register_function("same", lambda values: values, ["float64"], "float64")
    reader = pa.RecordBatchReader.from_stream(session.sql("SELECT same(dep_delay) AS d FROM f"))
    del session
    reader.read_next_batch()
    del reader
    assert len(pg.sql("SELECT 1")) == 1


def test_a_forked_child_knows_views_and_functions(session: pg.Session) -> None:
    session.register_function("half", lambda values: pc.divide(values, 2.0), ["float64"], "float64")
    session.sql("CREATE OR REPLACE VIEW halves AS SELECT half(distance) AS h FROM f")
    expected = session.sql("SELECT sum(h) AS s FROM halves").to_arrow()["s"][0].as_py()
    child = os.fork()
    if child == 0:
        try:
            found = session.sql("SELECT sum(h) AS s FROM halves").to_arrow()["s"][0].as_py()
            os._exit(0 if found == expected else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "read",
    [
        len,
        lambda result: result.to_arrow(),
        lambda result: result.to_pandas(),
        lambda result: result.to_polars(),
        lambda result: list(result.stream()),
        lambda result: result.explain(analyze=True),
    ],
)
def test_a_query_is_cancelled_from_another_thread(
    session: pg.Session, read: Callable[[Any], object]
) -> None:
    result = session.sql(ENDLESS)

    def cancel() -> None:
        while result.progress() is None or not result.progress().rows:
            time.sleep(0.01)
        result.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(pg.errors.CancelledError, match="the query was cancelled"):
        read(result)
    canceller.join()


def test_a_query_has_a_timeout(session: pg.Session) -> None:
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="timeout of 0.3 seconds"):
        session.sql(ENDLESS, timeout=0.3).to_arrow()
    with pytest.raises(pg.errors.InvalidArgumentError, match="timeout must be seconds"):
        session.sql("SELECT 1", timeout="soon")  # type: ignore[arg-type]


def test_a_query_over_its_limit_spills_to_the_named_folder(
    flights: pg.Grid, tmp_path: Path
) -> None:
    session = pg.Session(threads=2, memory_limit="25MB", spill_to=tmp_path / "made")
    session.register("f", flights)
    query = "SELECT tailnum, dep_delay FROM f ORDER BY tailnum, dep_delay, arr_delay, dest"
    ours = pa.Table.from_batches(session.sql(query).stream())
    free = pg.Session(threads=2)
    free.register("f", flights)
    assert ours == free.sql(query).to_arrow()
    assert "spill_count=0" not in session.sql("SELECT * FROM f ORDER BY tailnum, dest").explain(
        analyze=True
    )
    assert list((tmp_path / "made").iterdir()) == []
    with pytest.raises(MemoryError, match=r"\(the answer\)"):
        session.sql("SELECT * FROM generate_series(1, 1000000000000)").to_arrow()
    assert session.sql("SELECT * FROM f").to_arrow().num_rows == 336776


def test_many_threads_query_within_one_limit(flights: pg.Grid) -> None:
    session = pg.Session(threads=2, memory_limit="200MB", max_queries=3)
    session.register("f", flights)
    query = (
        "SELECT dest, count(*) AS n FROM f WHERE month <> $1 GROUP BY dest ORDER BY n DESC, dest"
    )
    expected = {month: session.sql(query, [month]).to_arrow() for month in range(1, 13)}
    wrong: list[object] = []

    def ask(month: int) -> None:
        try:
            if session.sql(query, [month]).to_arrow() != expected[month]:
                wrong.append(month)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(number % 12 + 1,)) for number in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_follow_the_environment_at_run_time(
    flights: pg.Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = pg.Session()
    session.register("f", flights)
    for threads in ("1", "3"):
        monkeypatch.setenv("PARTGRID_MAX_THREADS", threads)
        assert f"shares={threads}" in session.sql("SELECT dest FROM f").explain()
    assert "shares=2" in session.sql("SELECT dest FROM f", threads=2).explain()


def test_results_say_what_they_hold(session: pg.Session) -> None:
    result = session.sql("SELECT dest, count(*) AS n FROM f GROUP BY dest")
    assert result.schema.names == ["dest", "n"]
    assert result.progress() is None
    assert result.collect() is result
    assert (result.progress().rows, result.progress().total_rows) == (336776, 336776)
    assert (result.progress().tiles, result.progress().total_tiles) == (12, 12)
    assert repr(result.progress()) == "QueryProgress(rows=336776/336776, tiles=12/12, scans=1)"
    assert "output_rows=105" in result.explain(analyze=True)
    stream = result.stream()
    assert isinstance(next(stream), pa.RecordBatch)
    stream.close()
    assert list(stream) == []


def test_metrics_say_what_a_run_did(session: pg.Session) -> None:
    result = session.sql("SELECT dest, dep_delay FROM f WHERE month = 7 AND origin = 'JFK'")
    assert result.metrics is None
    rows = result.to_arrow().num_rows
    metrics = result.metrics
    assert metrics is not None
    assert metrics.done
    assert 0 <= metrics.waited <= metrics.elapsed
    assert (metrics.rows, metrics.read_rows) == (rows, 29425)
    assert (metrics.tiles, metrics.pruned_tiles, metrics.read_tiles) == (12, 11, 1)
    assert metrics.copied_bytes == 0
    assert metrics.gathered_bytes > 0
    assert list(metrics.groups) == ["memory"]
    assert metrics.groups["memory"]["bytes"] == metrics.read_bytes > 0
    assert metrics.operators[-1]["name"] == "GridScanExec"
    assert metrics.operators[-1]["rows"] == rows
    shown = repr(metrics)
    assert shown.startswith("QueryMetrics: ")
    assert "memory: 1 of 12 tiles read, 11 pruned, 29,425 rows" in shown
    plain = metrics.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) == {name for name in dir(metrics) if not name.startswith("_")} - {"to_dict"}


def test_metrics_tell_what_came_from_files_and_what_was_spilled(
    flights: pg.Grid, tmp_path: Path
) -> None:
    session = pg.Session(threads=2, memory_limit="25MB", spill_to=tmp_path)
    session.register("f", flights)
    session.register("lazy", pg.read_parquet("data/flights", lazy=True))
    result = session.sql("SELECT * FROM f ORDER BY tailnum, dest")
    assert sum(batch.num_rows for batch in result.stream()) == 336776
    spilled = result.metrics
    assert spilled is not None
    assert spilled.spilled_files > 0
    assert spilled.spilled_bytes > 1_000_000
    assert 0 < spilled.peak_memory <= 25_000_000
    assert "spilled: " in repr(spilled)
    read = session.sql("SELECT dest FROM lazy WHERE month = 7").collect().metrics
    assert read is not None
    assert list(read.groups) == ["file"]
    assert read.groups["file"]["copied_bytes"] == read.groups["file"]["bytes"] > 0
    assert (read.tiles, read.read_tiles) == (12, 1)


def test_a_killed_process_leaves_nothing_in_the_folder(tmp_path: Path) -> None:
    script = f"""
import sys, partgrid as pg
session = pg.Session(threads=2, memory_limit="25MB", spill_to={str(tmp_path)!r})
session.register("f", pg.read_parquet("data/flights"))
stream = session.sql("SELECT * FROM f ORDER BY tailnum, dest").stream()
next(stream)
print("spilled", flush=True)
sys.stdin.read()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "spilled\n"
    child.kill()
    child.communicate()
    assert list(tmp_path.iterdir()) == []


def test_an_answer_may_have_a_name_twice(session: pg.Session) -> None:
    result = session.sql("SELECT dest, origin, dest FROM f WHERE month = 7 LIMIT 5")
    assert result.columns == ["dest", "origin", "dest"]
    assert result.to_arrow().column_names == ["dest", "origin", "dest"]
    assert list(result.to_pandas().columns) == ["dest", "origin", "dest"]
    assert len(result) == 5
    with pytest.raises(pg.errors.InvalidArgumentError, match="must be distinct"):
        result.to_grid()
    with pytest.raises(Exception, match="dest"):
        result.to_polars()


def test_a_bar_shows_the_rows_that_were_read(
    monkeypatch: pytest.MonkeyPatch, session: pg.Session
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(_progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        session.sql(ENDLESS, timeout=1).to_arrow()
    lines = screen.getvalue().split("\r")
    assert any("/24 tiles" in line and "/673,552 rows" in line for line in lines)
    assert all(len(line.rstrip("\n").removesuffix("\x1b[K")) < 80 for line in lines)
