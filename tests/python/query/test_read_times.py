"""Points in time of texts by formats, and whole parts of time between two: as Python and DuckDB have them."""

from __future__ import annotations

import datetime
import random

import duckdb
import pyarrow as pa
import pytest

import partgrid as pg

FORMATS = [
    "%Y-%m-%d %H:%M:%S.%f",
    "%d.%m.%Y %H:%M",
    "%m/%d/%y %I:%M:%S %p",
    "%A, %d %B %Y",
    "%Y%m%dT%H%M%S",
    "%j %Y",
    "%G-W%V-%u",
    "%Y %U %w",
    "%b %d %Y, %H h",
    "%H:%M:%S,%f",
]


def moments(count: int) -> list[datetime.datetime]:
    """Some of 1970 to 2060."""
    chance = random.Random(3)
    first = datetime.datetime(1970, 1, 1)
    seconds = [chance.randrange(90 * 365 * 86_400) for _ in range(count)]
    return [
        first + datetime.timedelta(seconds=each, microseconds=chance.randrange(1_000_000))
        for each in seconds
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_texts_are_read_as_python_reads_them(form: str) -> None:
    texts = [moment.strftime(form) for moment in moments(500)]
    table = pa.table({"t": texts, "f": [form] * len(texts)})
    wanted = [datetime.datetime.strptime(text, form) for text in texts]
    for text in [
        f"SELECT strptime(t, '{form}') AS m FROM t",
        "SELECT try_strptime(t, f) AS m FROM t",
        "SELECT strptime(t, ['%s x', f]) AS m FROM t",
    ]:
        found = pg.sql(text, t=table).to_arrow()["m"].cast(pa.timestamp("us"))
        assert found.to_pylist() == wanted


def test_each_row_has_its_own_format() -> None:
    table = pa.table(
        {
            "t": ["2013-02-01", "01.02.2013", "Feb 1, 2013", "2013", None, "x"],
            "f": ["%Y-%m-%d", "%d.%m.%Y", None, "%Y", "%Y", "%Y"],
        }
    )
    found = pg.sql("SELECT CAST(try_strptime(t, f) AS DATE) AS d FROM t", t=table).to_arrow()
    day = datetime.date(2013, 2, 1)
    assert found["d"].to_pylist() == [day, day, None, datetime.date(2013, 1, 1), None, None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("strptime('2013-13-01', '%Y-%m-%d')", "the format '%Y-%m-%d', got '2013-13-01'"),
        ("strptime('x', ['%Y', '%m'])", "the format '%Y' or '%m', got 'x'"),
        ("strptime('2013', '%Q')", "an unknown item in '%Q'"),
        ("try_strptime('2013', '')", "got nothing in ''"),
        ("strptime('2013', []::VARCHAR[])", "at least one format"),
        ("strptime('1913', '%C%y')", "a century or a quarter in '%C%y'"),
        ("date_sub('day', TIME '10:00:00', DATE '2013-01-02')", "two points in time or two times"),
        ("strptime('1500', '%Y')", "1678 to 2261, got '1500'"),
        ("strptime('2013', 5)", "format of strptime must be a text or a list of texts, got Int64"),
        ("date_sub('fortnight', DATE '2013-01-01', DATE '2013-02-01')", "'fortnight'"),
        ("date_sub('day', 1, 2)", "date_sub takes dates, timestamps and times of a day, got Int64"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(pg.errors.QueryError, match=said):
        pg.Session().sql(f"SELECT {text}").to_arrow()


def test_whole_parts_are_those_of_duckdb() -> None:
    found = moments(400)
    ends_of_months = [
        datetime.datetime(2012 + month // 12, month % 12 + 1, 1)
        - datetime.timedelta(days=1, hours=-(month % 24))
        for month in range(80)
    ]
    begins = found[:200] + ends_of_months[:40]
    ends = found[200:] + ends_of_months[40:]
    table = pa.table({"a": begins, "b": ends})
    parts = "millennium century decade year quarter month week day hour minute second millisecond microsecond"
    columns = ", ".join(f"date_sub('{part}', a, b) AS {part}" for part in parts.split())
    text = f"SELECT {columns} FROM t"
    wanted = duckdb.sql(text, connection=registered(table)).to_arrow_table()
    assert pg.sql(text, t=table).to_arrow().to_pylist() == wanted.to_pylist()


def test_hours_are_those_that_pass_and_days_those_of_clocks() -> None:
    """On the tenth of March a day of New York had 23 hours."""
    zone = pa.timestamp("us", "America/New_York")
    begin, end = datetime.datetime(2013, 3, 10, 5), datetime.datetime(2013, 3, 11, 4)
    table = pa.table({"a": pa.array([begin], zone), "b": pa.array([end], zone)})
    text = "SELECT date_sub('day', a, b) AS day, date_sub('hour', a, b) AS hour, date_sub('second', b, a) AS second FROM t"
    found = pg.sql(text, t=table).to_arrow().to_pylist()
    assert found == [{"day": 1, "hour": 23, "second": -23 * 3600}]


def test_a_list_of_formats_that_is_null_is_none() -> None:
    """Also where it has elements behind the null."""
    lists = pa.array([["%Y"], ["%Y"]])
    masked = pa.ListArray.from_arrays(lists.offsets, lists.values, mask=pa.array([False, True]))
    fixed = pa.FixedSizeListArray.from_arrays(lists.values, 1, mask=pa.array([False, True]))
    for formats in [masked, fixed]:
        table = pa.table({"t": ["2013", "2013"], "f": formats})
        found = pg.sql("SELECT try_strptime(t, f) IS NULL AS n FROM t", t=table).to_arrow()
        assert found["n"].to_pylist() == [False, True]


def registered(table: pa.Table) -> duckdb.DuckDBPyConnection:
    """A DuckDB with the table."""
    connection = duckdb.connect()
    connection.register("t", table)
    return connection
