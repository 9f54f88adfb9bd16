"""`format` and `printf` of SQL, beside those of Python."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import partgrid as pg

KINDS = {"whole": ["", "d", "x", "X", "b"], "float": ["", "f", "e", "g", "E"], "text": ["", "s"]}


def specs(kind: str, count: int) -> list[str]:
    """Some specifications that mean the same in Python."""
    chosen = random.Random(kind)
    found = []
    for _ in range(count):
        letter = chosen.choice(KINDS[kind])
        align = chosen.choice(["", "<", ">", "^", "*>", "é^"])
        sign = chosen.choice(["", "+", " "]) if kind != "text" else ""
        zeros = chosen.choice(["", "0"]) if kind != "text" and not align else ""
        width = chosen.choice(["", "1", "7", "20"])
        between = chosen.choice(["", ","]) if letter in ("", "d", "f") and kind != "text" else ""
        if zeros and between:
            between = ""
        # Without a letter Python has another rule for when an exponent comes.
        precision = chosen.choice(["", ".0", ".3", ".12"]) if letter in ("f", "e", "g", "E") else ""
        if kind == "text":
            precision = chosen.choice(["", ".0", ".2"])
        found.append(f"{align}{sign}{zeros}{width}{between}{precision}{letter}")
    return found


VALUES = {
    "whole": [0, 1, -1, 42, -1_234_567, 2**62],
    "float": [0.0, 1.5, -2.5, 1234567.891, 1e-7, 3e22, -0.1, 123456.0],
    "text": ["", "a", "äöü", "longer than seven"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_written_as_python_writes_them(kind: str) -> None:
    values = VALUES[kind]
    formats = [f"<{{:{spec}}}>" for spec in specs(kind, 150)]
    pairs = [(text, value) for text in formats for value in values]
    table = pa.table(
        {
            "row": range(len(pairs)),
            "f": [text for text, _ in pairs],
            "v": [value for _, value in pairs],
        }
    )
    statement = "SELECT format(f, v) AS t FROM t ORDER BY row"
    found = pg.sql(statement, t=pg.from_arrow(table)).to_arrow()
    for (text, value), written in zip(pairs, found["t"].to_pylist(), strict=True):
        assert written == text.format(value), (text, value)


def test_printf_writes_as_python_does() -> None:
    formats = ["%d", "%5d|", "%-7d|", "%05d", "%+d", "% d", "%x", "%X", "%o"]
    for text in formats:
        for value in (0, 7, 255, 123_456):
            found = pg.sql("SELECT printf($1, $2) AS t", params=[text, value]).to_arrow()["t"]
            assert found.to_pylist() == [text % value], (text, value)
    for text in ["%f", "%.2f", "%10.3f|", "%-10.1f|", "%e", "%.3e", "%g", "%010.2f"]:
        for number in (0.0, 1.5, -1234.5678, 1e20, 2.5e-7):
            found = pg.sql("SELECT printf($1, $2) AS t", params=[text, number]).to_arrow()["t"]
            assert found.to_pylist() == [text % number], (text, number)


def test_formats_and_values_may_be_of_each_row_or_of_all() -> None:
    table = pa.table({"f": ["{} {}", None, "{1}{0}"], "v": pa.array([1, 2, 3], pa.int8())})
    text = "SELECT format(f, v, 'x') AS a, format('{:>3}', v) AS b, printf('%s', f) AS c FROM t"
    rows = pg.sql(text, t=pg.from_arrow(table)).to_arrow().to_pylist()
    assert [row["a"] for row in rows] == ["1 x", None, "x3"]
    assert [row["b"] for row in rows] == ["  1", "  2", "  3"]
    assert [row["c"] for row in rows] == ["{} {}", None, "{1}{0}"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("format('{', 1)", "`}` must follow"),
        ("format('}', 1)", "a `}` without"),
        ("format('{:q}', 1)", "no type `q`"),
        ("format('{:2000}', 1)", "a number beyond 1000"),
        ("format('{}')", "it has a place for value 1, and there are 0"),
        ("format('{:d}', 1.5)", "`d` writes whole numbers, got 1.5"),
        ("format('{:x}', 'a')", "`x` writes numbers, got the text 'a'"),
        ("printf('%y', 1)", "no type `y`"),
        ("printf('%5', 1)", "without a type"),
    ],
)
def test_wrong_formats_say_what_is_wrong(call: str, told: str) -> None:
    with pytest.raises(
        pg.errors.QueryError, match=r"the format '.*' of (format|printf): "
    ) as caught:
        pg.sql(f"SELECT {call}").to_arrow()
    assert told in str(caught.value)


def test_texts_beyond_the_memory_limit_are_refused() -> None:
    session = pg.Session(memory_limit=10_000_000)
    session.register("t", pg.from_arrow(pa.table({"s": ["x" * 1_000_000] * 8})))
    text = "SELECT sum(length(format($1, s))) AS n FROM t"
    assert session.sql(text, ["{0}"]).to_arrow()["n"].to_pylist() == [8_000_000]
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        session.sql(text, ["{0}" * 100]).to_arrow()


def test_aggregates_that_are_written_with_others_have_windows_and_filters() -> None:
    table = pa.table({"g": [1, 1, 1, 2], "x": [1.0, 2.0, 4.0, 9.0], "w": [1, 1, 2, 5]})
    text = """SELECT g, sem(x) OVER (PARTITION BY g) AS s, weighted_avg(x, w) OVER (PARTITION BY g) AS a,
        sem(x) FILTER (WHERE x < 4) OVER () AS f FROM t ORDER BY g"""
    rows = pg.sql(text, t=pg.from_arrow(table)).to_arrow().to_pylist()
    assert [round(row["s"], 9) for row in rows] == [0.720082300] * 3 + [0.0]
    assert [row["a"] for row in rows] == [2.75] * 3 + [9.0]
    assert {round(row["f"], 9) for row in rows} == {round(0.5 / 2**0.5, 9)}
