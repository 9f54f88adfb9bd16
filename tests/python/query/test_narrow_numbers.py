"""Decimals of 32 and 64 bits, and floats of 16, beside whole numbers in SQL, and decimals on their way to polars."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import partgrid as pg

DECIMALS = [pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(12, 2)]
OF_DECIMALS = ["decimal32", "decimal64", "decimal128"]


def values(text: str, table: pa.Table, *arguments: Any) -> list[Any]:
    answer = pg.from_arrow(table).sql(text, *arguments).to_arrow()
    return [tuple(row.values()) for row in answer.to_pylist()]


@pytest.mark.parametrize("kind", DECIMALS, ids=OF_DECIMALS)
def test_arithmetic_with_whole_numbers_keeps_the_digits(kind: pa.DataType) -> None:
    table = pa.table({"a": pa.array([Decimal("1.50"), Decimal("-2.75"), None], kind)})
    text = "SELECT a + 1, 2 * a, a - $1, a / 2, a % 1 FROM self"
    assert values(text, table, [3]) == [
        (Decimal("2.50"), Decimal("3.00"), Decimal("-1.50"), Decimal("0.75"), Decimal("0.50")),
        (Decimal("-1.75"), Decimal("-5.50"), Decimal("-5.75"), Decimal("-1.375"), Decimal("-0.75")),
        (None, None, None, None, None),
    ]


@pytest.mark.parametrize("kind", DECIMALS, ids=OF_DECIMALS)
def test_what_is_chosen_and_compared_keeps_the_digits(kind: pa.DataType) -> None:
    array = pa.array([Decimal("1.50"), Decimal("1.00"), None], kind)
    table = pa.table({"a": array, "i": pa.array([1, 1, 2], pa.int32())})
    text = "SELECT coalesce(a, 0), CASE WHEN a > 1 THEN a ELSE 0 END, greatest(a, i), avg(a) OVER () + 1 FROM self"
    assert values(text, table) == [
        (Decimal("1.50"), Decimal("1.50"), Decimal("1.50"), Decimal("2.25")),
        (Decimal("1.00"), Decimal("0.00"), Decimal("1.00"), Decimal("2.25")),
        (Decimal("0.00"), Decimal("0.00"), Decimal("2.00"), Decimal("2.25")),
    ]
    text = "SELECT a = i, a > i, a IN (1, 2), a BETWEEN 1 AND i, a = $1 FROM self"
    assert values(text, table, [1]) == [
        (False, True, False, False, False),
        (True, False, True, True, True),
        (None, None, None, None, None),
    ]


@pytest.mark.parametrize("kind", DECIMALS, ids=OF_DECIMALS)
def test_joins_sets_and_subqueries_keep_the_digits(kind: pa.DataType) -> None:
    array = pa.array([Decimal("1.50"), Decimal("1.00"), Decimal("-2.75")], kind)
    table = pa.table({"a": array, "i": pa.array([1, 1, 1], pa.int32())})
    assert values("SELECT count(*) FROM self l JOIN self r ON l.a = r.i", table) == [(3,)]
    assert values("SELECT a FROM self WHERE a IN (SELECT i FROM self)", table) == [
        (Decimal("1.00"),)
    ]
    assert values("SELECT count(*) FROM self WHERE i IN (SELECT a FROM self)", table) == [(3,)]
    text = "SELECT a FROM self UNION SELECT i FROM self ORDER BY a"
    assert values(text, table) == [(Decimal("-2.75"),), (Decimal("1.00"),), (Decimal("1.50"),)]
    text = "SELECT a FROM self INTERSECT SELECT i FROM self"
    assert values(text, table) == [(Decimal("1.00"),)]


def test_a_written_number_takes_the_type_of_the_column() -> None:
    table = pa.table({"a": pa.array([Decimal("1.50"), None], pa.decimal64(12, 2))})
    answer = pg.from_arrow(table).sql("SELECT coalesce(a, 0) AS a FROM self WHERE a > 1")
    assert answer.to_arrow().schema.field("a").type == pa.decimal64(12, 2)


def test_floats_of_16_bits_beside_whole_numbers() -> None:
    halves = pa.array([np.float16(2048), np.float16(1.5)])
    table = pa.table({"h": halves, "i": pa.array([2049, 70000], pa.int32())})
    text = "SELECT h = i, CASE WHEN h > 2 THEN i ELSE h END, greatest(h, i), h + i FROM self"
    assert values(text, table) == [(False, 2049.0, 2049.0, 4097.0), (False, 1.5, 70000.0, 70001.5)]
    text = "SELECT h FROM self UNION ALL SELECT i FROM self"
    assert sorted(values(text, table)) == [(1.5,), (2048.0,), (2049.0,), (70000.0,)]


@pytest.mark.parametrize("kind", DECIMALS, ids=OF_DECIMALS)
def test_polars_gets_the_decimals(kind: pa.DataType) -> None:
    array = pa.array([Decimal("1.50"), None, Decimal("-2.75")], kind)
    nested = pa.array([[Decimal("1.50")], None, [Decimal("-2.75"), None]], pa.list_(kind))
    table = pa.table({"a": array, "l": nested, "s": pa.array(["x", "y", "z"])})
    grid = pg.from_arrow(table)
    expected = [Decimal("1.50"), None, Decimal("-2.75")]
    frames = [
        grid.to_polars(),
        grid.tile(0).to_polars(),
        grid.sql("SELECT * FROM self").to_polars(),
        pg.Get("polars")(grid.__partitioned__["partitions"][(0, 0)]["data"]),
    ]
    for frame in frames:
        assert isinstance(frame, pl.DataFrame)
        assert frame["a"].to_list() == expected
        assert frame["l"].to_list() == [[Decimal("1.50")], None, [Decimal("-2.75"), None]]
        assert frame["s"].to_list() == ["x", "y", "z"]
