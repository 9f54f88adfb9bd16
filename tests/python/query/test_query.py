"""SQL: answers as DuckDB gives them, results in every form, errors that name the place."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import partgrid as pg
from conftest import DATA

QUERIES = [
    "SELECT carrier, count(*), sum(distance), avg(dep_delay) FROM flights GROUP BY carrier",
    "SELECT CAST(month AS BIGINT), origin, max(arr_delay), min(dep_time) FROM flights GROUP BY 1, 2",
    "SELECT dest, count(*) FROM flights WHERE month IN (6, 7) AND dep_delay > 60 GROUP BY dest",
    "SELECT a.name, count(*) FROM flights f JOIN airlines a ON f.carrier = a.carrier GROUP BY a.name",
    "SELECT f.tailnum, count(*) FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum "
    "WHERE p.tailnum IS NULL GROUP BY f.tailnum HAVING count(*) > 100",
    "SELECT count(*), count(tailnum), count(DISTINCT tailnum), count(DISTINCT dest) FROM flights",
    "SELECT day, sum(CASE WHEN dep_time IS NULL THEN 1 ELSE 0 END) FROM flights GROUP BY day",
    "SELECT w.origin, count(*), avg(f.dep_delay) FROM flights f JOIN weather w "
    "ON f.origin = w.origin AND f.time_hour = w.time_hour WHERE w.precip > 0.1 GROUP BY w.origin",
    "SELECT carrier, rank() OVER (ORDER BY n DESC) FROM "
    "(SELECT carrier, count(*) AS n FROM flights GROUP BY carrier)",
    "SELECT distinct dest FROM flights EXCEPT SELECT faa FROM airports",
]
TABLES = ["airlines", "airports", "planes", "weather"]


@pytest.fixture(scope="module")
def session(flights: pg.Grid) -> pg.Session:
    session = pg.Session()
    session.register("flights", flights)
    for name in TABLES:
        session.register(name, pg.read_parquet(DATA / f"{name}.parquet"))
    return session


@pytest.fixture(scope="module")
def duck(flights_glob: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW flights AS SELECT * FROM '{flights_glob}'")
    for name in TABLES:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{DATA / name}.parquet'")
    return connection


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows sorted, floats rounded."""

    def plain(value: object) -> object:
        return round(value, 6) if isinstance(value, float) else value

    found = [tuple(plain(value) for value in row.values()) for row in table.to_pylist()]
    return sorted(found, key=lambda row: [(value is None, str(value)) for value in row])


@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_those_of_duckdb(
    session: pg.Session, duck: duckdb.DuckDBPyConnection, query: str
) -> None:
    ours = session.sql(query).to_arrow()
    names = [f"c{number}" for number in range(ours.num_columns)]
    theirs = duck.sql(query).to_arrow_table()
    assert rows(ours.rename_columns(names)) == rows(theirs.rename_columns(names))
    assert ours.num_rows > 0


def test_answers_do_not_depend_on_tiles_or_threads(session: pg.Session) -> None:
    small = pg.Session(threads=1)
    small.register("flights", pg.read_parquet(DATA / "flights", tile_rows=2000))
    query = QUERIES[0]
    assert rows(small.sql(query).to_arrow()) == rows(session.sql(query).to_arrow())


def test_a_filter_on_the_folder_column_reads_one_tile(flights: pg.Grid) -> None:
    result = flights.sql("SELECT sum(distance) AS s FROM self WHERE month = 3")
    assert "tiles=1/12" in result.explain()
    assert "columns=[distance], where=month@1 = 3," in result.explain()


def test_a_result_comes_in_every_form(flights: pg.Grid) -> None:
    result = flights.sql(
        "SELECT dest, count(*) AS n FROM self GROUP BY dest ORDER BY n DESC LIMIT 3"
    )
    assert result.columns == ["dest", "n"]
    assert len(result) == 3
    table = result.to_arrow()
    assert table["dest"].to_pylist() == ["ORD", "ATL", "LAX"]
    assert result.to_pandas()["n"].tolist() == table["n"].to_pylist()
    assert isinstance(result.to_polars(), pl.DataFrame)
    assert result.to_grid().shape == (3, 2)
    assert pa.schema(result).names == ["dest", "n"]
    assert duckdb.sql("SELECT sum(n) FROM result").fetchall() == [(17283 + 17215 + 16174,)]


def test_a_result_may_be_read_many_times(flights: pg.Grid) -> None:
    result = flights.sql(
        "SELECT carrier, count(*) AS n FROM self GROUP BY carrier ORDER BY carrier"
    )
    tables = [result.to_arrow() for _ in range(3)]
    assert tables[0] == tables[1] == tables[2]
    streams = [pa.RecordBatchReader.from_stream(result) for _ in range(2)]
    assert streams[0].read_all() == streams[1].read_all() == tables[0]


def test_notebooks_show_a_table(flights: pg.Grid) -> None:
    html = flights.sql("SELECT month, origin, dep_delay FROM self")._repr_html_()
    assert html.count("<tr>") == 11
    assert "336776 rows, the first 10 shown" in html
    assert "<th>dep_delay<br><small>Float64</small></th>" in html
    text = "SELECT '<b>&' AS \"<i>\", NULL::INT AS n, 7 AS seven, e'a\\nb' AS lines"
    html = pg.sql(text)._repr_html_()
    assert "<th>&lt;i&gt;<br>" in html
    assert '<td style="text-align:left">&lt;b&gt;&amp;</td>' in html
    assert '<td style="text-align:right">7</td>' in html
    assert ">null</em>" in html
    assert "a\\nb" in html
    assert "0 rows" in pg.sql("SELECT 1 AS x WHERE false")._repr_html_()


def test_a_stream_ends_with_its_block(flights: pg.Grid) -> None:
    with flights.sql("SELECT * FROM self").stream() as batches:
        assert next(batches).num_rows > 0
    assert list(batches) == []
    with pytest.raises(ZeroDivisionError), flights.sql("SELECT * FROM self").stream() as batches:
        1 / 0  # noqa: B018
    assert list(batches) == []


def test_what_is_made_takes_weak_references(flights: pg.Grid) -> None:
    makers: list[Callable[[], object]] = [
        lambda: flights[:5],
        lambda: flights.tile(0),
        lambda: flights.sql("SELECT 1"),
        pg.Session,
    ]
    for make in makers:
        made = make()
        kept = weakref.ref(made)
        assert kept() is made
        del made
        gc.collect()
        assert kept() is None


def test_the_repr_shows_some_rows_and_says_what_is_left_out(flights: pg.Grid) -> None:
    text = repr(flights.sql("SELECT carrier FROM self"))
    assert "336776 rows, the first 10 shown" in text
    assert len(text.splitlines()) < 20
    assert "1 row" in repr(flights.sql("SELECT 1 AS one"))


def test_show_prints(flights: pg.Grid, capsys: pytest.CaptureFixture[str]) -> None:
    flights.sql("SELECT 42 AS answer").show()
    assert "42" in capsys.readouterr().out


def test_sql_takes_grids_by_name(flights: pg.Grid) -> None:
    airlines = pg.read_parquet(DATA / "airlines.parquet")
    query = "SELECT name FROM a WHERE carrier IN (SELECT carrier FROM f) ORDER BY name LIMIT 1"
    assert pg.sql(query, a=airlines, f=flights).to_arrow()["name"].to_pylist() == [
        "AirTran Airways Corporation"
    ]
    with pytest.raises(
        pg.errors.ProtocolError,
        match=r"f must be a table, got str\nhint: values are given as params=",
    ):
        pg.sql("SELECT 1", f="flights")


def test_names_can_be_registered_replaced_and_taken_away(flights: pg.Grid) -> None:
    session = pg.Session()
    session.register("f", flights)
    session.register("g", flights)
    session.register("g", flights[:5])
    assert session.tables == ["f", "g"]
    assert repr(session) == "Session with f, g"
    assert session.sql("SELECT count(*) AS n FROM g").to_arrow()["n"].to_pylist() == [5]
    assert session.deregister("g")
    assert not session.deregister("g")
    with pytest.raises(pg.errors.QueryError, match="no table `g`"):
        session.sql("SELECT * FROM g")


def test_an_unknown_column_names_the_near_one(flights: pg.Grid) -> None:
    with pytest.raises(pg.errors.QueryError, match="no column `dep_dely`") as caught:
        flights.sql("SELECT dep_dely FROM self")
    assert caught.value.hint == "did you mean `dep_delay`?"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("operator", ["+1", " AND true", " OR true", "||'a'", "::int"])
def test_twenty_thousand_chained_terms_are_a_typed_error(flights: pg.Grid, operator: str) -> None:
    first = "'a'" if operator == "||'a'" else "true" if "true" in operator else "1"
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="chain of operators"):
        flights.sql(f"SELECT {first}{operator * 20_000} FROM self")
    assert len(flights.sql("SELECT 1 AS one")) == 1


def test_nested_functions_are_planned_once_each() -> None:
    """A value that a function looks at twice would be there 2 to the power of 30 times."""
    session, text = pg.Session(), "x"
    for number in range(30):
        text = f"nullif({text}, {number}.5e0)"
    session.register("t", pg.from_arrow(pa.table({"x": [7.5, 100.5, None]})))
    answer = session.sql(f"SELECT {text} AS y FROM t").to_arrow()
    assert answer.to_pydict() == {"y": [None, 100.5, None]}


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("COPY self TO 'x.csv'", "write_parquet"),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION 'x.csv'", "got CREATE"),
        ("CREATE TABLE x (a INT)", "CREATE TABLE"),
        ("INSERT INTO self SELECT * FROM self", "CREATE OR REPLACE TABLE"),
        ("DELETE FROM self", "CREATE OR REPLACE TABLE"),
        ("SET a = 1", "when it is made"),
        ("RESET a", "when it is made"),
        ("BEGIN", "no transactions"),
        ("END", "no transactions"),
        ("nonsense", "nonsense"),
    ],
)
def test_statements_that_do_not_read_are_refused(
    flights: pg.Grid, statement: str, remedy: str
) -> None:
    with pytest.raises(pg.errors.QueryError, match=remedy):
        flights.sql(statement)


def test_errors_while_running_keep_their_kind(flights: pg.Grid) -> None:
    result = flights.sql("SELECT 1 / (month - month) FROM self")
    with pytest.raises(pg.errors.QueryError, match="(?i)divide by zero"):
        len(result)
    with pytest.raises(pg.errors.QueryError, match="(?i)divide by zero"):
        result.to_arrow()


def test_a_memory_limit_is_a_memory_error(flights: pg.Grid) -> None:
    session = pg.Session(memory_limit=1_000_000, threads=2)
    session.register("f", flights)
    with pytest.raises(MemoryError) as caught:
        len(session.sql("SELECT array_agg(dest) FROM f"))
    assert isinstance(caught.value, pg.errors.ResourcesExhaustedError)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        pg.Session(threads=0)


def test_names_and_values_steer_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    steering = "\x1b[2J\x9b\u202etxt"
    grid = pg.from_arrow(pa.table({steering: [steering, "two\nlines"]}))
    result = grid.sql("SELECT * FROM self")
    result.show()
    shown = capsys.readouterr().out + repr(result) + repr(grid)
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)
    assert shown.count("\\x1b[2J\\x9b\\u{202e}txt") == 5
    # Only what is shown is changed.
    assert result.to_arrow().column_names == [steering]
