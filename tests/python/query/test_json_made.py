"""Texts of JSON that SQL makes, as `json` reads them."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import pyarrow as pa
import pytest

import partgrid as pg


def made(values: pa.Array) -> list[object]:
    """What `to_json` makes of values, read again."""
    texts = pg.sql("SELECT to_json(x) AS j FROM t", t=pa.table({"x": values})).to_arrow()["j"]
    return [None if text is None else json.loads(text) for text in texts.to_pylist()]


LETTERS = ["", "a", 'x"y\\', "line\nfeed\ttab", "\x00\x1f\x7f", "é€😀", "</script>", None]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array(LETTERS), LETTERS),
        (pa.array(LETTERS).dictionary_encode(), LETTERS),
        (pa.array([-(2**63), 0, 2**63 - 1, None]), [-(2**63), 0, 2**63 - 1, None]),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (
            pa.array([0.1, -0.0, 1e300, 5e-324, float("nan"), float("inf")]),
            [0.1, -0.0, 1e300, 5e-324, None, None],
        ),
        (pa.array([True, None, False]), [True, None, False]),
        (pa.array([Decimal("1.10"), Decimal("-0.05")]), [1.1, -0.05]),
        (pa.array([[1, None], [], None]), [[1, None], [], None]),
        (
            pa.array([{"a": 1, 'b"': ["x"]}, {"a": None, 'b"': None}, None]),
            [{"a": 1, 'b"': ["x"]}, {"a": None, 'b"': None}, None],
        ),
        (
            pa.array([[("k", 1), ("l", None)], []], pa.map_(pa.string(), pa.int64())),
            [{"k": 1, "l": None}, {}],
        ),
        (pa.array([datetime.date(2013, 1, 31)]), ["2013-01-31"]),
        (pa.array([datetime.datetime(2013, 1, 31, 5, 0, 0, 250_000)]), ["2013-01-31 05:00:00.250"]),
        (pa.array([datetime.time(1, 2, 3)]), ["01:02:03"]),
        (pa.array([b"\x00\xff"]), ["00ff"]),
        (pa.array([None, None]), [None, None]),
    ],
)
def test_what_is_made_is_what_was_there(values: pa.Array, expected: list[object]) -> None:
    assert made(values) == expected


def test_json_in_json_is_no_text() -> None:
    text = """
        SELECT json_object('rows', json_group_array(json_object('n', n, 'of', json(j), 'text', j)), 'count', count(*)) AS j
        FROM t
    """
    rows = pa.table({"n": [1, 2], "j": ['{"a": [1]}', "null"]})
    [answer] = pg.sql(text, t=rows).to_arrow()["j"].to_pylist()
    assert json.loads(answer) == {
        "rows": [
            {"n": 1, "of": {"a": [1]}, "text": '{"a": [1]}'},
            {"n": 2, "of": None, "text": "null"},
        ],
        "count": 2,
    }


def test_rows_of_tables_are_objects() -> None:
    rows = pa.table({"n": [1, 2], "t": ["x", None]})
    texts = pg.sql("SELECT to_json(r) AS j FROM rows AS r ORDER BY n", rows=rows).to_arrow()["j"]
    assert [json.loads(text) for text in texts.to_pylist()] == rows.to_pylist()
    # A column of that name is the column.
    texts = pg.sql("SELECT to_json(t) AS j FROM rows AS t ORDER BY n", rows=rows).to_arrow()["j"]
    assert texts.to_pylist() == ['"x"', None]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("json('{a}')", "no JSON: .*got '{a}'"),
        ("json_object('a')", "names and values in turn, got 1 arguments"),
        ("json_object(1, 2)", "names of json_object are texts, got Int64"),
        ("json_object(CAST(NULL AS VARCHAR), 2)", "names of json_object are texts, got NULL"),
        ("json_group_object([n], n)", "names of json_group_object are texts, got List"),
    ],
)
def test_what_is_no_json_is_said(value: str, said: str) -> None:
    with pytest.raises(pg.errors.QueryError, match=said):
        pg.sql(f"SELECT {value} AS j FROM t", t=pa.table({"n": [1]})).to_arrow()


def test_groups_have_an_order_and_each_value_once() -> None:
    rows = pa.table({"n": [1, 2, 3, 2], "t": ["b", "a", "c", "a"]})
    text = """
        SELECT json_group_array(n ORDER BY n DESC) AS a,
            json_group_array(n ORDER BY t, n DESC) FILTER (WHERE n < 3) AS b,
            json_group_array(DISTINCT n ORDER BY n) AS c,
            json_group_object(t, n ORDER BY n DESC) FILTER (WHERE t <> 'a') AS d
        FROM t
    """
    found = pg.sql(text, t=rows).to_arrow().to_pylist()[0]
    found = {name: json.loads(value) for name, value in found.items()}
    assert found == {"a": [3, 2, 2, 1], "b": [2, 2, 1], "c": [1, 2, 3], "d": {"c": 3, "b": 1}}
    # What it stands for has an order of its own.
    with pytest.raises(pg.errors.QueryError, match="arg_max takes"):
        pg.sql("SELECT arg_max(n, t ORDER BY n) FROM t", t=rows)


def test_casts_look_texts_over() -> None:
    rows = pa.table({"s": ["[1]", "x"], "n": [1, 2]})
    assert pg.sql("SELECT TRY_CAST(s AS JSON) AS j FROM t", t=rows).to_arrow()["j"].to_pylist() == [
        "[1]",
        None,
    ]
    with pytest.raises(pg.errors.QueryError, match="no JSON.*got 'x'"):
        pg.sql("SELECT CAST(s AS JSON) AS j FROM t", t=rows).to_arrow()
    objects = pg.sql("SELECT {'n': n, 's': [s]}::JSON AS j FROM t ORDER BY n", t=rows).to_arrow()
    assert objects["j"].to_pylist() == ['{"n":1,"s":["[1]"]}', '{"n":2,"s":["x"]}']
    given = pg.sql("SELECT $1::JSON ->> 'a' AS a", params=['{"a": 5}']).to_arrow()
    assert given["a"].to_pylist() == ["5"]
    text = "SELECT TRY_CAST($1 AS JSON) AS a, json_array(JSON '[1]', TRY_CAST($1 AS JSON)) AS b"
    assert pg.sql(text, params=["x"]).to_arrow().to_pylist() == [{"a": None, "b": "[[1],null]"}]
    text = "SELECT CAST(['[1]'::JSON] AS JSON) AS a, {'k': json('[2]')}::JSON AS b"
    assert pg.sql(text).to_arrow().to_pylist() == [{"a": "[[1]]", "b": '{"k":[2]}'}]
