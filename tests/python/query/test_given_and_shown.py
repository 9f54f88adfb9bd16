"""What SQL is given by pandas, and what people are shown of long values and of errors."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

import partgrid as pg


def test_moments_of_pandas_keep_their_nanoseconds() -> None:
    moment = pd.Timestamp("2020-01-01 00:00:00.123456789")
    zoned = moment.tz_localize("Europe/Berlin")
    session = pg.Session()
    table = pa.table(
        {
            "t": pa.array([moment], pa.timestamp("ns")),
            "z": pa.array([zoned], pa.timestamp("ns", "Europe/Berlin")),
            "d": pa.array([pd.Timedelta(5, "ns")], pa.duration("ns")),
        }
    )
    session.register("t", pg.from_arrow(table))
    text = "SELECT count(*) AS n FROM t WHERE t = $1 AND z = $2 AND d = $3"
    values = [moment, zoned, pd.Timedelta(5, "ns")]
    assert session.sql(text, values).to_arrow()["n"].to_pylist() == [1]
    assert session.sql("SELECT $1 IS NULL AS n", [pd.NaT]).to_arrow()["n"].to_pylist() == [True]


def test_a_long_text_is_shown_by_its_beginning() -> None:
    table = pa.table({"s": ["x" * 100_000], "n": [5]})
    shown = str(pg.from_arrow(table).sql("SELECT * FROM self"))
    assert "xxx… and 70000 more letters |" in shown
    assert "| 5 |" in shown


def test_errors_are_placed_in_the_text_as_it_was_written() -> None:
    """Not in the one in which columns are called as they are."""
    table = pa.table({"Amount": [1], "Ort": ["x"]})
    with pytest.raises(pg.errors.QueryError, match="no column `nope`") as caught:
        pg.sql("SELECT Amount, ORT,\n  Amount + nope FROM t", t=table)
    lines = str(caught.value).split("\n")
    assert "line 2, column 12:" in lines
    assert "    Amount + nope FROM t" in lines
    assert " " * 13 + "^^^^" in lines


def test_a_column_is_found_as_in_duckdb_whatever_its_letters() -> None:
    table = pa.table({"Amount": [1, 2], "größe": ["x", "y"]})
    session = pg.Session()
    session.register("t", pg.from_arrow(table))
    found = session.sql("SELECT T.AMOUNT, Größe FROM t WHERE amount > $1", [1]).to_arrow()
    assert found.to_pylist() == [{"Amount": 2, "größe": "y"}]
