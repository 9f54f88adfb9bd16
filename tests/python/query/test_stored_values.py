"""Arithmetic and aggregates of values that the engine takes for others: 64 bits without a sign, decimals of hundreds, values encoded by the ends of runs."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import partgrid as pg
from partgrid.errors import QueryError

MOST = 2**64 - 1


@pytest.fixture(name="session", scope="module")
def _session() -> pg.Session:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([4, 9]))
    columns = {
        "u": pa.array([7, MOST, None], pa.uint64()),
        "i": pa.array([-2, 3, 5]),
        "small": pa.array([5, 255, None], pa.uint8()),
        "d": pa.array([Decimal(1200), Decimal(300), None], pa.decimal128(5, -2)),
        "wide": pa.array([Decimal(1200), Decimal(300), None], pa.decimal256(50, -2)),
        "runs": runs,
        "entry": pa.array([3, 1, 3]).dictionary_encode(),
    }
    session = pg.Session()
    session.register("t", pg.from_arrow(pa.table(columns)))
    return session


def column(session: pg.Session, expression: str, *values: object) -> list[object]:
    """The values of an expression over the table."""
    return session.sql(f"SELECT {expression} AS x FROM t", list(values)).to_arrow()["x"].to_pylist()


def test_quotients_of_whole_numbers_are_whole(session: pg.Session) -> None:
    assert column(session, "u / 2") == column(session, "u // 2") == [3, MOST // 2, None]
    assert column(session, "2 / u") == [0, 0, None]
    assert column(session, "u / i") == [Decimal(-3), Decimal(MOST // 3), None]
    assert column(session, "i / u") == [0, 0, None]
    assert column(session, "u / $1", 2) == [Decimal(3), Decimal(MOST // 2), None]
    assert column(session, "u / -2") == [Decimal(-3), Decimal(-(MOST // 2)), None]
    assert column(session, "sum(u / 2)") == [3 + MOST // 2]
    nested = "u / (u / (u / (u / (u / i + 1) + 1) + 1) + 1)"
    assert len(column(session, nested)) == 3
    with pytest.raises(QueryError, match="divide by zero"):
        column(session, "u / (i - 3)")


def test_bits_the_other_way_round(session: pg.Session) -> None:
    assert column(session, "~small") == [250, 0, None]
    assert column(session, "~u") == [MOST - 7, 0, None]
    assert column(session, "~i + 1") == [~-1, ~4, ~6]


def test_means_of_decimals_of_hundreds(session: pg.Session) -> None:
    assert column(session, "avg(d)") == [Decimal(750)]
    assert column(session, "avg(wide)") == [Decimal(750)]


def test_aggregates_of_runs_and_dictionaries(session: pg.Session) -> None:
    assert column(session, "min(runs) + max(runs)") == [13]
    assert column(session, "approx_distinct(runs)") == [2]
    assert column(session, "approx_distinct(entry)") == [2]
