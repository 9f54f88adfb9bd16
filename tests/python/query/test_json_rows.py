"""Rows of what texts of JSON hold, as `json` reads them."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

import partgrid as pg

KEYS = ["a", "b c", "", "é", "1", "$x", "deep"]


def document(chance: random.Random, depth: int) -> object:
    """Any value, of at most so many steps."""
    kind = chance.randrange(9 if depth else 6)
    if kind < 6:
        return [None, True, chance.randrange(-5, 5), chance.random(), 'x"y\\', 2**63][kind]
    count = chance.randrange(4)
    if kind < 8:
        keys = chance.sample(KEYS, count)
        return {key: document(chance, depth - 1) for key in keys}
    return [document(chance, depth - 1) for _ in range(count)]


def walked(value: object, path: str = "$") -> list[tuple[object, str]]:
    """All values, with their places."""
    found = [(value, path)]
    if isinstance(value, dict):
        for key, within in value.items():
            plain = key.isascii() and key.isidentifier()
            found += walked(within, f"{path}.{key}" if plain else f'{path}."{key}"')
    if isinstance(value, list):
        for place, within in enumerate(value):
            found += walked(within, f"{path}[{place}]")
    return found


def test_all_values_come_in_their_order_and_are_found_at_their_paths() -> None:
    chance = random.Random(7)
    documents = [document(chance, 4) for _ in range(300)]
    texts = [json.dumps(each, ensure_ascii=False) for each in documents]
    session = pg.Session(threads=2)
    session.register("t", pg.from_arrow(pa.table({"n": range(len(texts)), "j": texts})))
    rows = session.sql(
        "SELECT n, e.value, e.fullkey, json_type(j, e.fullkey) = e.type AS same FROM t, json_tree(t.j) AS e ORDER BY n, e.id"
    ).to_arrow()
    assert rows["same"].to_pylist() == [True] * rows.num_rows
    found: list[list[tuple[object, str]]] = [[] for _ in documents]
    for row in rows.to_pylist():
        found[row["n"]].append((json.loads(row["value"]), row["fullkey"]))
    assert found == [walked(each) for each in documents]


def test_without_path_or_text_there_are_no_rows() -> None:
    table = pa.table({"j": ['{"a": [1]}', None, "[2]"], "p": ["a", "a", None]})
    text = "SELECT e.value FROM t, json_each(t.j, t.p) AS e"
    assert pg.sql(text, t=table).to_arrow()["value"].to_pylist() == ["1"]


def test_a_text_that_is_another_one_each_time_is_made_once() -> None:
    text = "SELECT count(*) AS n FROM json_each('[' || random() || ']') AS e WHERE e.value = e.atom"
    assert pg.Session().sql(text).to_arrow()["n"].to_pylist() == [1]


@pytest.mark.parametrize("sample", ["TABLESAMPLE (2 ROWS)", "USING SAMPLE 2"])
def test_a_sample_is_one_of_the_rows(sample: str) -> None:
    text = f"SELECT count(*) AS n FROM json_each('[1, 2, 3]') {sample}"
    assert pg.Session().sql(text).to_arrow()["n"].to_pylist() == [2]


def test_they_stand_beside_joins() -> None:
    tables = {"t": pa.table({"k": [1, 2], "j": ["[1, 2]", "[2]"]}), "u": pa.table({"k": [1, 2]})}
    text = "SELECT t.k, e.value FROM t, json_each(t.j) AS e JOIN u ON u.k = e.value::BIGINT ORDER BY t.k, e.id"
    found = pg.sql(text, **tables).to_arrow().to_pylist()
    assert [(row["k"], row["value"]) for row in found] == [(1, "1"), (1, "2"), (2, "2")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM json_each()", r"json_each takes \(json\[, path\]\), got \(\)"),
        ("SELECT * FROM json_each('[1', '$')", "no JSON"),
        ("SELECT * FROM json_tree('[1]', '$[*]')", r"\$\[\*\]"),
        ("SELECT * FROM json_each(5)", "json of json_each must be a text, got Int64"),
        ("SELECT json_type('{x')", "no JSON.*got '{x'"),
        ("SELECT json_value('1')", r"json_value\(json, path\)"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(pg.errors.PartgridError, match=said):
        pg.Session().sql(text).to_arrow()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(length(json_pretty(j))) AS n FROM t",
        "SELECT count(e.fullkey) AS n FROM t, json_tree(t.j) AS e",
    ],
)
def test_long_texts_are_refused_before_they_are_made(text: str) -> None:
    """Each of a million values has a path of 100 kB, their lines begin far from the margin: nothing of that is made to find out."""
    deep = "[" * 100 + ",".join(["1"] * 100_000) + "]" * 100
    table = {"pretty": deep, "tree": json.dumps({"k" * 100_000: list(range(1_000_000))})}
    given = table["pretty" if "pretty" in text else "tree"]
    session = pg.Session(threads=2, memory_limit="16MB")
    session.register("t", pg.from_arrow(pa.table({"j": [given]})))
    with pytest.raises(
        pg.errors.ResourcesExhaustedError, match=r"^json_(pretty|tree)\(\) would need about"
    ):
        session.sql(text).to_arrow()
    small = text.replace("FROM t", "FROM (SELECT '[1]' AS j) AS t")
    assert session.sql(small).to_arrow()["n"].to_pylist()[0] >= 1
