"""Texts of nested values of columns that SQL has no literals of."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import partgrid as pg

MOMENTS = pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("us"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            pa.DictionaryArray.from_arrays([0, 1, None], [["a,b", ""], ["NULL", None]]),
            ["['a,b', '']", "['NULL', NULL]", None],
        ),
        (
            pa.DictionaryArray.from_arrays([1, 0], pa.array([{"k": 1}, {"k": None}])),
            ["{'k': NULL}", "{'k': 1}"],
        ),
        (pa.array([["x"], None]).slice(1), [None]),
        (pa.array([["\x0b", " x", "x "]]), ["['\x0b', ' x', 'x ']"]),
        (
            pa.ListArray.from_arrays([0, 2], MOMENTS.dictionary_encode()),
            ["['2020-01-01 00:00:00', NULL]"],
        ),
        (
            pa.array([[datetime.date(2020, 1, 20)]], pa.list_(pa.date64())),
            ["[2020-01-20]"],
        ),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), ["[1, 2]"]),
        (pa.array([["a", None]], pa.large_list(pa.string_view())), ["[a, NULL]"]),
        (
            pa.array([[("k", [1]), ("", None)]], pa.map_(pa.string(), pa.list_(pa.int64()))),
            ["{k=[1], ''=NULL}"],
        ),
    ],
)
def test_texts_say_what_is_in_them(values: pa.Array, expected: list[str | None]) -> None:
    found = pg.sql("SELECT x::VARCHAR AS s FROM t", t=pa.table({"x": values})).to_arrow()
    assert found["s"].to_pylist() == expected
