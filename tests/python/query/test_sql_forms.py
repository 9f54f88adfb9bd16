"""Forms of SQL that are other ones, written shorter, where statements are kept, explained or beside what somebody has registered."""

from __future__ import annotations

import pyarrow as pa
import pytest

import partgrid as pg


def test_a_statement_names_columns_of_using_in_views_and_prepared_statements() -> None:
    session = pg.Session()
    session.register("f", pa.table({"c": ["a", "b"], "t": ["x", "y"], "v": [1, 2]}))
    session.register("a", pa.table({"c": ["a", "b"], "n": [10, 20]}))
    session.register("p", pa.table({"t": ["x", "z"], "y": [1990, 2000]}))
    text = "SELECT v, t, y FROM f JOIN a USING (c) LEFT JOIN p USING (t) WHERE t < 'y' OR c = 'b'"
    expected = [{"v": 1, "t": "x", "y": 1990}, {"v": 2, "t": "y", "y": None}]
    session.sql(f"CREATE VIEW w AS {text}")
    session.sql(f"PREPARE s AS {text} AND v < $1")
    for statement in (text, "SELECT * FROM w", "EXECUTE s(3)"):
        rows = session.sql(statement).to_arrow().to_pylist()
        assert sorted(rows, key=lambda row: row["v"]) == expected
    explained = session.sql(f"EXPLAIN {text}").to_arrow().to_pylist()
    assert "f.t" in explained[0]["plan"]


def test_functions_that_somebody_has_registered_come_before_synonyms() -> None:
    session = pg.Session()
    [row] = session.sql("SELECT year(DATE '2013-02-03') AS y").to_arrow().to_pylist()
    assert row == {"y": 2013}

    def year(days: pa.Array) -> pa.Array:
        return pa.array([-1] * len(days), pa.int64())

    session.register_function("year", year, [pa.date32()], pa.int64())
    [row] = session.sql("SELECT year(DATE '2013-02-03') AS y").to_arrow().to_pylist()
    assert row == {"y": -1}
    listed = session.sql("SHOW FUNCTIONS LIKE 'year'").to_arrow().to_pylist()
    assert [row["function_type"] for row in listed] == ["scalar"]
    assert len(session.sql("SHOW FUNCTIONS LIKE 'arg_max'").to_arrow()) == 1


def test_lambdas_are_written_with_an_arrow_or_as_lambda() -> None:
    for text in ("x -> x + 1", "lambda x: x + 1", "(x) -> x + 1"):
        [row] = pg.sql(f"SELECT list_transform([1, NULL], {text}) AS l").to_arrow().to_pylist()
        assert row == {"l": [2, None]}
    with pytest.raises(pg.errors.QueryError, match="has no room in its type"):
        pg.sql("SELECT list_transform([9223372036854775807], x -> x + 1)").to_arrow()


def test_lists_of_rows_of_lists() -> None:
    table = pa.table({"id": [1, 2, 3], "l": [[3, 1], [], None]})
    text = """SELECT id, ARRAY(SELECT x + 1 FROM unnest(t.l) WITH ORDINALITY AS u(x, i) ORDER BY i) AS l
        FROM t ORDER BY id"""
    found = pg.sql(text, t=table).to_arrow()
    assert found["l"].to_pylist() == [[4, 2], [], []]


def test_fields_of_structs_are_columns_within_limits() -> None:
    session = pg.Session()
    rows = [{"s": {"A": {"x": 1}, "a": {"x": 2, "Y": 3}}}, {"s": None}]
    session.register("t", pa.Table.from_pylist(rows))
    assert session.sql('SELECT t.s."A".* FROM t').to_arrow().to_pydict() == {"x": [1, None]}
    names = session.sql("SELECT s.* FROM t").to_arrow().column_names
    assert names == ["A", "a"]
    assert session.sql("SELECT s.* EXCLUDE (a) FROM t").to_arrow().column_names == ["A"]
    session.sql("CREATE VIEW v AS SELECT s.a.* EXCLUDE (x) FROM t")
    assert session.sql("SELECT * FROM v ORDER BY 1").to_arrow().to_pydict() == {"Y": [3, None]}
    looked = session.prepare("SELECT s.a.* FROM t WHERE s.a.x < $1")
    assert looked.sql([5]).to_arrow().to_pydict() == {"x": [2], "Y": [3]}
    fields = ", ".join(f"'f{number}': 1" for number in range(900))
    for stars in ("s.*, " * 12, "s.*, " * 3_000):
        with pytest.raises(pg.errors.ResourcesExhaustedError, match=r"come to 10000 columns"):
            session.sql(f"SELECT {stars} 1 FROM (SELECT {{{fields}}} AS s)")


@pytest.mark.parametrize("over", ["", " OVER (PARTITION BY k)"])
def test_values_that_differ_in_a_cast_have_their_names_in_what_is_named(over: str) -> None:
    session = pg.Session()
    session.register("t", pa.table({"k": [1, 1, 1], "i": [1, 2, 3]}))
    text = f"SELECT sum(i){over}, sum(i::DOUBLE){over} FROM t"
    session.sql(f"CREATE VIEW v AS {text}")
    # A view of a view, each with such values.
    inner = "SELECT sum(k) AS a, sum(k::DOUBLE) AS b FROM v, t"
    session.sql(f"CREATE VIEW w AS {inner}")
    session.sql(f"CREATE TABLE c AS {text}")
    session.sql(f"PREPARE p AS SELECT sum(i){over}, sum(i::DOUBLE){over}, sum(i){over} FROM t")
    first = session.sql(text).to_arrow()
    for statement in ("SELECT * FROM v", "SELECT * FROM c"):
        assert session.sql(statement).to_arrow().equals(first)
    assert first.column(0).type == pa.int64()
    assert first.column(1).type == pa.float64()
    names = session.sql("EXECUTE p").to_arrow().column_names
    assert names == [*first.column_names, first.column_names[0]]
    rows = 3 * first.num_rows
    assert session.sql("SELECT * FROM w").to_arrow().to_pylist() == [{"a": rows, "b": rows}]
    with pytest.raises(pg.errors.QueryError, match="have the same name"):
        session.sql("CREATE VIEW twice AS SELECT i, i FROM t")
