"""Types that Python and Arrow bring and literals of SQL do not have: units of times, durations, short decimals; and types that do not go together."""

from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

import partgrid as pg

UNITS = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]


def times(unit: pa.DataType) -> pg.Session:
    session = pg.Session()
    values = [time(1, 30), time(6), None, time(6), time(23, 59, 59)]
    session.register("t", pa.table({"n": range(5), "t": pa.array(values, unit)}))
    return session


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("t < TIME '06:00:00'", [0]),
        ("TIME '06:00:00' <= t", [1, 3, 4]),
        ("t = TIME '06:00:00'", [1, 3]),
        ("t <> TIME '06:00:00'", [0, 4]),
        ("t BETWEEN TIME '01:30:00' AND TIME '06:00:00'", [0, 1, 3]),
        ("t NOT BETWEEN TIME '01:30:00' AND TIME '06:00:00'", [4]),
        ("t IN (TIME '06:00:00', TIME '01:30:00')", [0, 1, 3]),
        ("t NOT IN (TIME '06:00:00')", [0, 4]),
        ("t > '06:00:00'", [4]),
    ],
)
def test_times_of_any_unit_are_compared_with_literals(
    unit: pa.DataType, condition: str, rows: list[int]
) -> None:
    answer = times(unit).sql(f"SELECT n FROM t WHERE {condition} ORDER BY n").to_arrow()
    assert answer["n"].to_pylist() == rows


def test_a_literal_finer_than_the_column_is_compared_exactly() -> None:
    session = times(pa.time64("us"))
    sql = "SELECT count(*) AS n FROM t WHERE t < TIME '06:00:00.000000001'"
    assert session.sql(sql).to_arrow()["n"].to_pylist() == [3]


@pytest.mark.parametrize("one", UNITS, ids=str)
@pytest.mark.parametrize("other", UNITS, ids=str)
def test_times_of_two_units_are_compared(one: pa.DataType, other: pa.DataType) -> None:
    session = pg.Session()
    values = [time(1), time(2)], [time(2), time(2)]
    table = pa.table({"a": pa.array(values[0], one), "b": pa.array(values[1], other)})
    session.register("t", table)
    answer = session.sql("SELECT a < b AS less, a = b AS same FROM t").to_arrow()
    assert answer.to_pydict() == {"less": [True, False], "same": [False, True]}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([time(2), time(1), time(2), None], pa.time64("us")),
        pa.array([timedelta(2), timedelta(1), timedelta(2), None]),
        pa.array([b"b", b"a", b"b", None]),
        pa.array([b"b", b"a", b"b", None], pa.large_binary()),
        pa.array([b"b", b"a", b"b", None], pa.binary(1)),
    ],
    ids=lambda values: str(values.type),
)
def test_windows_are_ordered_by_values_without_distances(values: pa.Array) -> None:
    session = pg.Session()
    session.register("t", pa.table({"n": [1, 10, 100, 1000], "v": values}))
    sql = """
        SELECT n, rank() OVER (ORDER BY v) AS place, sum(n) OVER (ORDER BY v) AS so_far,
               last_value(n) OVER (ORDER BY v RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS last
        FROM t ORDER BY n
    """
    answer = session.sql(sql).to_arrow()
    assert answer["place"].to_pylist() == [2, 1, 2, 4]
    assert answer["so_far"].to_pylist() == [111, 10, 111, 1111]
    assert answer["last"].to_pylist() == [1000] * 4


def test_durations_are_parameters_beside_dates_and_timestamps() -> None:
    session = pg.Session()
    columns = {
        "d": [date(2013, 7, 1)],
        "t": [datetime(2013, 7, 1, 12)],
        "length": [timedelta(hours=3)],
    }
    session.register("t", pa.table(columns))
    more = timedelta(days=1, hours=2)
    sql = "SELECT d + $1 AS d, t - $1 AS t, t + $1 AS later, length < $1 AS short FROM t"
    assert session.sql(sql, [more]).to_arrow().to_pylist() == [
        {
            "d": datetime(2013, 7, 2, 2),
            "t": datetime(2013, 6, 30, 10),
            "later": datetime(2013, 7, 2, 14),
            "short": True,
        }
    ]
    sum_of_two = session.sql("SELECT $1 + $2 AS s, d + $3 AS d FROM t", [more, more, 3]).to_arrow()
    assert sum_of_two.to_pydict() == {"s": [2 * more], "d": [date(2013, 7, 4)]}
    named = session.sql("SELECT $more + d AS d FROM t", {"more": more}).to_arrow()
    assert named["d"].to_pylist() == [datetime(2013, 7, 2, 2)]


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT n FROM t WHERE d = 15887", None),
        ("SELECT n FROM t WHERE d = n", None),
        ("SELECT n FROM t WHERE n < d", None),
        ("SELECT n FROM t WHERE s = 1.5", None),
        ("SELECT n FROM t WHERE n = $1", [date(2013, 7, 1)]),
        ("SELECT n FROM t WHERE d > $1", [3]),
        ("SELECT n FROM t WHERE d IN (1, 2)", None),
        ("SELECT n FROM t WHERE s BETWEEN 1 AND 2", None),
        ("SELECT n FROM t WHERE d IS NOT DISTINCT FROM (n)", None),
    ],
)
def test_days_and_numbers_are_not_compared(sql: str, values: list[object] | None) -> None:
    session = pg.Session()
    moments = pa.array([datetime(2013, 7, 1)])
    session.register("t", pa.table({"n": [1], "d": [date(2013, 7, 1)], "s": moments}))
    with pytest.raises(pg.errors.QueryError, match="these types cannot be compared"):
        session.sql(sql, values)


@pytest.mark.parametrize("one", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("other", [pa.string(), pa.large_string(), pa.string_view()])
def test_texts_of_any_kind_are_compared_by_letters(one: pa.DataType, other: pa.DataType) -> None:
    names = ["kitten", "", None, "x"]
    table = pa.table({"a": pa.array(names, one), "b": pa.array(["sitting", "é", "x", None], other)})
    sql = "SELECT levenshtein(a, b) AS n, levenshtein('kitten', b) AS m, levenshtein(a, 'sitting') AS o FROM self"
    assert pg.from_arrow(table).sql(sql).to_arrow().to_pydict() == {
        "n": [3, 1, None, None],
        "m": [3, 6, 6, None],
        "o": [3, 7, None, 7],
    }


def test_functions_are_listed() -> None:
    names = pg.sql("SHOW FUNCTIONS").to_arrow()["function_name"].to_pylist()
    assert {"tiles", "substr", "sum", "generate_series"} <= set(names)
    session = pg.Session()
    session.register_function("twice", lambda x: x, ["int64"], "int64")
    sql = "SELECT routine_name FROM information_schema.routines"
    listed = Counter(session.sql(sql).to_arrow()["routine_name"].to_pylist())
    assert listed["twice"] == 1


def test_a_window_function_without_a_window_says_so() -> None:
    with pytest.raises(pg.errors.QueryError, match=r"row_number\(…\) OVER"):
        pg.sql("SELECT row_number()")


def test_sums_of_short_decimals_are_long() -> None:
    values = pa.array([Decimal("9999999.99")] * 1000, pa.decimal32(9, 2))
    answer = pg.sql("SELECT sum(x) AS s FROM t", t=pa.table({"x": values})).to_arrow()
    assert answer["s"].to_pylist() == [Decimal("9999999990.00")]


def test_sums_beyond_64_bits_are_an_error_and_have_a_remedy() -> None:
    table = pa.table({"x": [2**62] * 4})
    with pytest.raises(pg.errors.QueryError, match=r"sum\(t.x\) is 18446744073709551616") as info:
        pg.sql("SELECT sum(x) FROM t", t=table).to_arrow()
    assert "DECIMAL(38, 0)" in str(info.value)
    sql = "SELECT sum(CAST(x AS DECIMAL(38, 0))) AS s FROM t"
    answer = pg.sql(sql, t=table).to_arrow()
    assert answer["s"].to_pylist() == [Decimal(2**64)]


@pytest.mark.parametrize("text", ["abc", "0", "-1", "2000"])
def test_a_wrong_number_of_threads_in_the_environment_is_an_error(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTGRID_MAX_THREADS", text)
    with pytest.raises(pg.errors.InvalidArgumentError, match="PARTGRID_MAX_THREADS must be"):
        pg.Session()
    assert pg.Session(threads=1).sql("SELECT 1 AS x").to_arrow()["x"].to_pylist() == [1]
