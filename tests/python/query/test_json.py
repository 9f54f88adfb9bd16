"""Texts of JSON: of every type of text, with paths that are written, values of parameters, and columns; what comes of it is plain text."""

from __future__ import annotations

import pyarrow as pa
import pytest

import partgrid as pg
from partgrid.errors import QueryError

ROWS = ['{"a": {"b": [1, "two"]}, "n": 5}', '{"a": "x", "t": true}', None, "no json"]
KINDS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
]


@pytest.fixture(name="session", params=KINDS, ids=str)
def _session(request: pytest.FixtureRequest) -> pg.Session:
    session = pg.Session()
    paths = pa.array(["$.a.b[1]", "a", "a", "$.a"])
    table = pa.table({"k": [1, 2, 3, 4], "j": pa.array(ROWS, request.param), "path": paths})
    session.register("t", pg.from_arrow(table))
    return session


def column(result: pg.Result) -> list[object]:
    """The values of the only column."""
    table = result.to_arrow()
    assert "extension" not in str(table.schema.field(0))
    return table.column(0).to_pylist()


def test_operators_and_functions(session: pg.Session) -> None:
    cases = {
        "j ->> 'a'": ['{"b": [1, "two"]}', "x", None, None],
        "j -> 'a'": ['{"b": [1, "two"]}', '"x"', None, None],
        "j -> 'a' -> 'b' ->> 1": ["two", None, None, None],
        "j ->> '$.a.b[-1]'": ["two", None, None, None],
        "json_get_int(j, 'n')": [5, None, None, None],
        "json_get_float(j, 'n')": [5.0, None, None, None],
        "json_get_bool(j, 't')": [None, True, None, None],
        "json_get_str(j, 'a')": [None, "x", None, None],
        "json_exists(j, '$.a.b')": [True, False, None, False],
        "json_array_length(j, '$.a.b')": [2, None, None, None],
        "json_keys(j)": [["a", "n"], ["a", "t"], None, None],
        "json_get_array(j, 'a', 'b')": [["1", '"two"'], None, None, None],
        "greatest(json_get_array(j, 'a', 'b'), ['0'])": [["1", '"two"'], ["0"], ["0"], ["0"]],
        "j ->> path": ["two", "x", None, None],
        "json_extract_string(j, path) || '!'": ["two!", "x!", None, None],
        "json_exists(j, path)": [True, True, None, False],
        "CASE WHEN j ->> 'a' = 'x' THEN 1 ELSE 0 END": [0, 1, 0, 0],
    }
    for expression, expected in cases.items():
        found = column(session.sql(f"SELECT {expression} AS x FROM t ORDER BY k"))
        assert found == expected, expression


def test_values_of_parameters_are_keys_and_paths(session: pg.Session) -> None:
    query = "SELECT j ->> $1 AS x FROM t ORDER BY k"
    assert column(session.sql(query, ["n"])) == ["5", None, None, None]
    assert column(session.sql(query, ["$.a.b[0]"])) == ["1", None, None, None]
    prepared = session.prepare(query)
    assert column(prepared.sql(["t"])) == [None, "true", None, None]
    assert column(prepared.sql(["$.a.b[1]"])) == ["two", None, None, None]
    assert column(session.sql("SELECT $1 ->> 'a' AS x", ['{"a": 7}'])) == ["7"]


def test_places_in_statements(session: pg.Session) -> None:
    rows = session.sql(
        "SELECT k, j -> 'n' AS n, j -> 'a' AS a FROM t WHERE j -> 'n' IS NOT NULL GROUP BY k, j ORDER BY k, j -> 'n'"
    )
    assert rows.to_arrow().to_pylist() == [{"k": 1, "n": "5", "a": '{"b": [1, "two"]}'}]
    many = ", ".join(f"k + {place} AS k{place}" for place in range(2000))
    assert (
        session.sql(f"SELECT {many}, j ->> 'n' AS n, j -> 'n' AS m FROM t").schema.names[-1] == "m"
    )
    lists = session.sql(
        "SELECT list_transform([1, 2], x -> x + 1) AS l, j -> 'n' AS n FROM t WHERE k = 1"
    )
    assert lists.to_arrow().to_pylist() == [{"l": [2, 3], "n": "5"}]
    inner = (
        "SELECT list_transform(json_get_array(j, 'a', 'b'), x -> x -> 0) AS l FROM t WHERE k = 1"
    )
    assert column(session.sql(inner)) == [[None, None]]


def test_what_is_wrong_is_told(session: pg.Session) -> None:
    with pytest.raises(QueryError, match=r"the path '\$\.a\[' must be of keys and numbers"):
        session.sql("SELECT j ->> '$.a[' FROM t")
    with pytest.raises(QueryError, match="must be of keys and numbers"):
        session.sql("SELECT j ->> $1 AS x FROM t", ["$.a["]).to_arrow()
    with pytest.raises(QueryError, match="functions of JSON take a text"):
        session.sql("SELECT k -> 'a' FROM t")
