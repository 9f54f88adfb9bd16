"""Columns of dictionaries in SQL: windows and aggregates that give values of other rows, of which there may be more than the keys of a dictionary can count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from type_samples import of_two_tiles

ROWS = 300
TEXTS = ["p", "q", None]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """More rows than an int8 counts, of three values."""
    values = pa.array([TEXTS[number % 3] for number in range(ROWS)])
    encoded = pa.DictionaryArray.from_arrays(
        pa.array(
            [None if text is None else "pq".index(text) for text in values.to_pylist()], pa.int8()
        ),
        ["p", "q"],
    )
    return pa.table({"id": range(ROWS), "c": encoded})


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("lag(c)", lambda row: TEXTS[(row - 1) % 3] if row else None),
        ("lead(c, 2)", lambda row: TEXTS[(row + 2) % 3] if row + 2 < ROWS else None),
        ("lag(c, 1, 'none')", lambda row: TEXTS[(row - 1) % 3] if row else "none"),
        ("first_value(c)", lambda _: "p"),
        ("last_value(c)", lambda row: TEXTS[row % 3]),
        ("nth_value(c, 2)", lambda row: "q" if row else None),
        ("max(c)", lambda row: "q" if row else "p"),
    ],
)
def test_windows_give_the_values_of_other_rows(
    table: pa.Table, function: str, expected: Any
) -> None:
    found = pg.sql(
        f"SELECT {function} OVER (ORDER BY id) AS v FROM t ORDER BY id", t=table
    ).to_arrow()
    assert found["v"].to_pylist() == [expected(row) for row in range(ROWS)]


def test_aggregates_in_an_order_give_them_too(table: pa.Table) -> None:
    text = "SELECT array_agg(c ORDER BY id) AS all, first_value(c ORDER BY id DESC) AS last FROM t"
    [found] = pg.sql(text, t=table).to_arrow().to_pylist()
    assert found == {"all": [TEXTS[row % 3] for row in range(ROWS)], "last": TEXTS[(ROWS - 1) % 3]}
    text = "SELECT id % 150 AS g, first_value(c ORDER BY id) AS f, array_agg(id ORDER BY c NULLS FIRST, id) AS ids FROM t GROUP BY 1 ORDER BY 1"
    found = pg.sql(text, t=table).to_arrow()
    assert found["f"].to_pylist() == [TEXTS[group % 3] for group in range(150)]
    assert found["ids"].to_pylist() == [[group, group + 150] for group in range(150)]


def test_any_value_of_more_groups_than_there_are_keys(table: pa.Table) -> None:
    text = "SELECT id % 200 AS g, any_value(c) AS a, max(c) AS m FROM t WHERE c IS NOT NULL GROUP BY 1 ORDER BY 1"
    found = pg.sql(text, t=table).to_arrow().to_pylist()
    assert len(found) == 167
    for row in found:
        of_group = {TEXTS[number % 3] for number in range(row["g"], ROWS, 200)} - {None}
        assert (row["a"] in of_group, row["m"]) == (True, max(of_group))


def test_categories_of_pandas_are_such_columns() -> None:
    frame = pd.DataFrame(
        {"id": range(ROWS), "c": pd.Categorical([TEXTS[row % 3] for row in range(ROWS)])}
    )
    found = pg.sql("SELECT lag(c) OVER (ORDER BY id) AS v FROM df ORDER BY id", df=frame).to_arrow()
    assert found["v"].to_pylist() == [None, *[TEXTS[row % 3] for row in range(ROWS - 1)]]


def test_distinct_on_gives_the_values_of_one_row_of_each(table: pa.Table) -> None:
    text = "SELECT DISTINCT ON (id) id, c, upper(c) AS u FROM t ORDER BY id, c DESC"
    found = pg.sql(text, t=table).to_arrow()
    assert found["c"].to_pylist() == [TEXTS[row % 3] for row in range(ROWS)]
    text = "SELECT count(*) AS n FROM (SELECT DISTINCT ON (id) c FROM t ORDER BY id) AS r WHERE c = 'q'"
    assert pg.sql(text, t=table).to_arrow()["n"].to_pylist() == [100]
    text = "SELECT c FROM t WHERE c IN (SELECT DISTINCT ON (id) c FROM t ORDER BY id) AND id < 4"
    assert pg.sql(text, t=table).to_arrow()["c"].to_pylist() == ["p", "q", "p"]
    # More groups than keys where these say which row is taken, over rows in several threads.
    wide = pa.table({"g": [row % 200 for row in range(400)], "w": [1] * 400})
    wide = wide.append_column("c", pa.concat_tables([table, table])["c"].combine_chunks()[:400])
    session = pg.Session(threads=3)
    session.register("wide", pg.from_arrow(wide))
    for where in ("", "WHERE w = 1"):
        text = f"SELECT DISTINCT ON (g) g, w FROM wide {where} ORDER BY g, c"
        assert session.sql(text).to_arrow()["g"].to_pylist() == list(range(200))
    # The keys themselves.
    text = "SELECT DISTINCT ON (c) c, id FROM t ORDER BY c, id"
    found = pg.sql(text, t=table).to_arrow()
    assert found["c"].to_pylist() == ["p", "q", None]
    assert found["id"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EXISTS (SELECT 1 FROM t AS u WHERE u.c = d.c AND u.id <> d.id)", 200),
        ("EXISTS (SELECT 1 FROM t AS u WHERE u.c = d.c)", 200),
        ("(SELECT count(*) FROM t AS u WHERE u.c = d.c) = 100", 200),
        ("d.id IN (SELECT u.id FROM t AS u WHERE u.c <> d.c)", 100),
        ("NOT EXISTS (SELECT 1 FROM t AS u WHERE u.c = d.c)", 100),
    ],
)
def test_subqueries_compare_with_values_of_other_rows(
    table: pa.Table, text: str, expected: int
) -> None:
    before = "(SELECT id, lag(c) OVER (ORDER BY id) AS c FROM t) AS d"
    for rows in (before, f"(SELECT id, c FROM {before}) AS d"):
        found = pg.sql(f"SELECT count(*) AS n FROM {rows} WHERE {text}", t=table)
        assert found.to_arrow()["n"].to_pylist() == [expected]


def test_rows_beside_others_compare_with_values_of_one_row_of_each(table: pa.Table) -> None:
    rows = "(SELECT DISTINCT ON (id) id, c FROM t ORDER BY id) AS d"
    text = f"SELECT d.id, n FROM {rows}, LATERAL (SELECT count(*) AS n FROM t AS u WHERE u.c = d.c) AS l ORDER BY d.id LIMIT 3"
    found = pg.sql(text, t=table).to_arrow()
    assert found["n"].to_pylist() == [100, 100, 0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CASE WHEN id % 2 = 0 THEN c ELSE o END", lambda row: "ab"[row % 2] + str(row % 100)),
        ("CASE id % 2 WHEN 0 THEN c WHEN 1 THEN o END", lambda row: "ab"[row % 2] + str(row % 100)),
        ("coalesce(nullif(c, 'a7'), o)", lambda row: "ab"[row % 100 == 7] + str(row % 100)),
        ("greatest(c, o)", lambda row: f"b{row % 100}"),
        ("least(o, c, NULL)", lambda row: f"a{row % 100}"),
        ("nvl(c, o)", lambda row: f"a{row % 100}"),
        ("[c, o]", lambda row: [f"a{row % 100}", f"b{row % 100}"]),
        ("[c, o][2]", lambda row: f"b{row % 100}"),
    ],
)
def test_values_of_two_dictionaries_that_have_more_than_there_are_keys(
    text: str, expected: Any
) -> None:
    def encoded(letter: str) -> pa.Array:
        values = pa.array([f"{letter}{number}" for number in range(100)])
        keys = pa.array([row % 100 for row in range(ROWS)], pa.int8())
        return pa.DictionaryArray.from_arrays(keys, values)

    table = pa.table({"id": range(ROWS), "c": encoded("a"), "o": encoded("b")})
    found = pg.sql(f"SELECT id, {text} AS v FROM t ORDER BY id", t=table).to_arrow()
    assert found["v"].to_pylist() == [expected(row) for row in range(ROWS)]
    joined = "SELECT c FROM t FULL JOIN (SELECT id + 150 AS id, o AS c FROM t) AS u USING (c)"
    both = pg.sql(f"SELECT count(DISTINCT c) AS n FROM ({joined}) AS j", t=table).to_arrow()
    assert both["n"].to_pylist() == [200]


def test_keys_of_an_order_that_stand_there_once_more(table: pa.Table) -> None:
    text = "SELECT id % 3 AS g, first_value(id ORDER BY c, id DESC, c) AS f, last_value(id ORDER BY id, id DESC) AS l FROM t GROUP BY g ORDER BY g"
    found = pg.sql(text, t=table).to_arrow().to_pylist()
    assert found == [{"g": g, "f": ROWS - 3 + g, "l": ROWS - 3 + g} for g in range(3)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT c, count(*) AS n FROM t GROUP BY c",
        "SELECT DISTINCT c FROM t",
        "SELECT count(DISTINCT c) AS n FROM t",
        "SELECT * FROM t ORDER BY c, id LIMIT 7",
        "SELECT * FROM t ORDER BY id DESC",
        "SELECT a.c, b.id FROM t AS a JOIN t AS b ON a.c = b.c AND a.id < b.id",
        "SELECT c, row_number() OVER (PARTITION BY c ORDER BY id) AS n FROM t",
        "SELECT id % 7 AS k, array_agg(c ORDER BY id) AS l FROM t GROUP BY k",
        "SELECT c FROM t INTERSECT SELECT c FROM t WHERE id > 140",
        "SELECT c FROM t WHERE c IN (SELECT c FROM t WHERE id > 140)",
        "SELECT c, id % 2 AS e, count(*) AS n FROM t GROUP BY ROLLUP (c, e)",
        "SELECT CASE WHEN id % 2 = 0 THEN c ELSE 'other' END AS x, count(*) AS n FROM t GROUP BY x",
        "SELECT id, c FROM t WHERE c = 'b17' OR c >= 'b98' AND id > 10",
        "SELECT id FROM t WHERE c = 'a3'",
        "SELECT max(c) AS m, min(c) AS l FROM t WHERE id % 3 = 1",
    ],
)
def test_tiles_have_dictionaries_of_their_own(text: str, tmp_path: Path) -> None:
    table = of_two_tiles()
    plain = table.set_column(1, "c", table["c"].cast(pa.string()))

    def rows(found: pa.Table) -> list[str]:
        values = [str([*row.values()]) for row in found.to_pylist()]
        return values if "ORDER BY c" in text or "ORDER BY id DESC" in text else sorted(values)

    expected = rows(pg.sql(text, t=plain).to_arrow())
    session = pg.Session(threads=2)
    grid = pg.from_arrow(table)
    assert len(grid.tiles) == 2
    session.register("t", grid)
    assert rows(session.sql(text).to_arrow()) == expected
    # Of files, whose tiles are read when they are needed.
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=150)
    files = pg.read_parquet(str(tmp_path / "t.parquet"), lazy=True, tile_rows=150)
    session.register("t", files)
    assert rows(session.sql(text).to_arrow()) == expected


def test_keys_have_32_bits_where_they_would_be_used_up() -> None:
    def first(text: str, **tables: object) -> object:
        return pg.sql(text, **tables).to_arrow().schema.field(0).type

    narrow, wide = (pa.dictionary(keys, pa.string()) for keys in (pa.int8(), pa.int32()))
    table = of_two_tiles()
    grid = pg.from_arrow(table)
    assert first("SELECT c FROM t", t=grid) == wide
    assert pa.table(grid).schema.field("c").type == narrow
    # One dictionary, in however many tiles, and few values in several.
    one = table.slice(0, 150)
    assert first("SELECT c FROM t", t=one) == narrow
    parts = pa.concat_tables([one.slice(0, 70), one.slice(70)])
    assert first("SELECT c FROM t WHERE id > 3", t=pg.from_arrow(parts)) == narrow
    # Within lists and structs.
    offsets = pa.array(range(151), pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, chunk) for chunk in table["c"].chunks]
    nested = pa.table({"l": pa.chunked_array(lists)})
    assert first("SELECT l FROM t", t=nested) == pa.list_(wide)
    found = pg.sql("SELECT l[1] AS v, count(*) AS n FROM t GROUP BY v", t=nested).to_arrow()
    assert (found.num_rows, sorted(set(found["n"].to_pylist()))) == (200, [1, 2])
    # Two tables in one union.
    text = "SELECT c FROM a UNION SELECT c FROM b"
    found = pg.sql(text, a=one, b=table.slice(150)).to_arrow()
    assert (found.num_rows, found.schema.field(0).type) == (200, wide)


def test_dictionaries_within_maps_and_of_views_in_several_tiles(tmp_path: Path) -> None:
    chunks = of_two_tiles()["c"].chunks
    keys = pa.array(["k"] * 150)
    offsets = pa.array(range(151), pa.int32())
    maps = [pa.MapArray.from_arrays(offsets, keys, chunk) for chunk in chunks]
    table = pa.table({"m": pa.chunked_array(maps)})
    text = "SELECT m['k'] AS v, count(*) AS n FROM t GROUP BY v"
    assert pg.sql(text, t=pg.from_arrow(table)).to_arrow().num_rows == 200
    views = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string_view()))
        for chunk in chunks
    ]
    table = pa.table({"v": pa.chunked_array(views)})
    assert pg.sql("SELECT v FROM t", t=pg.from_arrow(table)).to_arrow().num_rows == 300
    # Of two unions of lists a file that everybody reads.
    lists = [pa.table({"l": pa.ListArray.from_arrays(offsets, chunk)}) for chunk in chunks]
    text = "SELECT l FROM a UNION ALL SELECT l FROM b"
    pg.sql(text, a=lists[0], b=lists[1]).write_parquet(str(tmp_path / "o"))
    found = pg.read_parquet(str(tmp_path / "o")).to_arrow()["l"].to_pylist()
    assert sorted(found) == sorted(row for part in lists for row in part["l"].to_pylist())


def test_few_keys_beside_other_values() -> None:
    keys = pa.array([row % 128 for row in range(ROWS)], pa.int8())
    encoded = pa.DictionaryArray.from_arrays(keys, [f"c{number}" for number in range(128)])
    table = pa.table({"id": range(ROWS), "c": encoded})
    for text in (
        "CASE WHEN id < 128 THEN c ELSE 'other' END",
        "coalesce(CASE WHEN id < 128 THEN c END, 'other')",
        "[c, 'other'][CASE WHEN id < 128 THEN 1 ELSE 2 END]",
    ):
        found = pg.sql(f"SELECT {text} AS v FROM t ORDER BY id", t=table).to_arrow()["v"]
        assert found.to_pylist() == [f"c{n}" for n in range(128)] + ["other"] * (ROWS - 128)


def test_texts_of_a_dictionary_become_times_as_plain_texts_do() -> None:
    texts = ["2013-7-1 6:30", "2013-07-01 23:30:00-05:00", None, "2013-07-02 06:30:15 "]
    plain = pa.array(texts)
    table = pa.table({"d": plain.dictionary_encode(), "p": plain})
    casts = [
        "CAST({} AS TIMESTAMP)",
        "CAST({} AS DATE)",
        "TRY_CAST({} AS TIMESTAMP)",
        "CAST({} AS TIMESTAMP WITH TIME ZONE)",
        "{} = TIMESTAMP '2013-07-01 06:30:00'",
    ]
    columns = ", ".join(
        f"{cast.format(name)} AS {name}{number}"
        for number, cast in enumerate(casts)
        for name in "dp"
    )
    found = pg.sql(f"SELECT {columns} FROM t", t=table).to_arrow()
    for number in range(len(casts)):
        assert found[f"d{number}"].to_pylist() == found[f"p{number}"].to_pylist()
        assert found[f"p{number}"].null_count == 1
