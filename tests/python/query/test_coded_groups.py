"""Groups by columns of small tables, beside DuckDB: keys are coded before the tables are joined, and are there again in the end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from answers_alike import rows
from beside_duckdb import Both, columns, with_nulls

NUM_ROWS = 120_000


def _tables() -> dict[str, pa.Table]:
    random = np.random.default_rng(11)
    num_items, num_stores, num_cities = 3_000, 90, 12

    def words(most: int, count: int, what: str) -> pa.Array:
        texts = [f"{what} {number}" for number in random.integers(0, most, count)]
        return with_nulls(random, pa.array(texts))

    facts = {
        "item": with_nulls(random, pa.array(random.integers(0, num_items, NUM_ROWS))),
        "store": pa.array(random.integers(0, num_stores + 5, NUM_ROWS)),
        "day": pa.array(random.integers(0, 50, NUM_ROWS)),
        **columns(random, NUM_ROWS),
    }
    items = {
        "item": pa.array(random.permutation(num_items)),
        # Brands have names that other brands have, too; some are longer than a view has room for.
        "brand": words(40, num_items, "a brand with a long name"),
        "category": words(7, num_items, "category"),
        "weight": with_nulls(random, pa.array(random.integers(0, 4, num_items))),
        "share": pa.array(random.choice([0.0, -0.0, 0.5], num_items)),
        "code": words(9, num_items, "code").dictionary_encode(),
    }
    stores = {
        "store": pa.array(np.arange(num_stores)),
        "name": words(25, num_stores, "store"),
        "city": pa.array(random.integers(0, num_cities, num_stores)),
    }
    cities = {
        "city": pa.array(np.arange(num_cities)),
        "town": words(8, num_cities, "town"),
        "land": pa.array(["north", "south"] * (num_cities // 2)),
    }
    tables = {"facts": facts, "items": items, "stores": stores, "cities": cities}
    return {name: pa.table(table) for name, table in tables.items()}


TABLES = _tables()


@pytest.fixture(name="both", scope="module", params=[1, 3])
def _both(request: pytest.FixtureRequest) -> Both:
    return Both.over(TABLES, request.param)


# The day is a key, too, so that groups are not made before the joins.
JOINED = "facts JOIN items USING (item)"

CODED = [
    f"SELECT brand, category, day, name, sum(i) AS v, count(*) AS c FROM {JOINED} JOIN stores USING (store) GROUP BY ALL",
    "SELECT brand, facts.item % 900 AS part, sum(d) AS v, count(DISTINCT s) AS u FROM facts JOIN items ON facts.item = items.item GROUP BY ALL",
    "SELECT town, name, s, max(m) AS v FROM facts JOIN stores USING (store) JOIN cities USING (city) GROUP BY ALL",
    # A key that somebody else looks at stays as it is.
    f"SELECT brand, category, weight, s, count(*) AS c FROM {JOINED} WHERE brand <> s GROUP BY ALL",
    f"SELECT brand, category, s, min(brand) AS v FROM {JOINED} GROUP BY ALL",
    f"SELECT brand, upper(brand) AS u, category, s, count(*) AS c FROM {JOINED} GROUP BY ALL",
    f"SELECT brand AS one, brand AS two, category, s, count(*) AS c FROM {JOINED} GROUP BY ALL",
    f"SELECT category, weight, s, count(*) FILTER (WHERE brand LIKE '%3') AS c FROM {JOINED} GROUP BY ALL",
    "SELECT name, town, land, s, string_agg(land, '+' ORDER BY land) AS v FROM facts JOIN stores USING (store) JOIN cities USING (city) GROUP BY ALL",
    # Keys of other types, and of values that are worked out.
    f"SELECT weight, code::VARCHAR AS code, category, s, count(*) AS c FROM {JOINED} GROUP BY ALL",
    f"SELECT b, s, category, weight, bool_and(b) AS v FROM {JOINED} GROUP BY ALL",
    # Joins that give all rows of a side, with it or without.
    "SELECT brand, category, s, count(*) AS c FROM items LEFT JOIN facts USING (item) GROUP BY ALL",
    f"SELECT brand, name, s, count(*) AS c FROM {JOINED} LEFT JOIN stores USING (store) GROUP BY ALL",
    f"SELECT brand, category, s, count(*) AS c FROM {JOINED} WHERE store IN (SELECT store FROM stores WHERE name > 'store 2') GROUP BY ALL",
    f"SELECT brand, category, s, count(*) AS c FROM {JOINED} WHERE NOT EXISTS (SELECT 1 FROM stores WHERE store = facts.store AND city = 3) GROUP BY ALL",
    # Columns that are called otherwise, and values that are worked out in between.
    f"SELECT DISTINCT brand AS b, category AS k, s FROM {JOINED}",
    f"SELECT g, s, count(*) AS c FROM (SELECT brand AS g, s FROM {JOINED}) GROUP BY g, s",
    f"SELECT brand, category, s, any_value(day ORDER BY day) AS u, any_value(day ORDER BY day DESC) AS v FROM {JOINED} GROUP BY brand, category, s",
    f"SELECT brand, s, day, regr_count(DISTINCT i, day)::INT AS u, regr_count(DISTINCT day, i)::INT AS v FROM {JOINED} GROUP BY brand, s, day",
    "SELECT s, a.brand, b.brand AS other, count(*) AS c FROM facts JOIN items a ON facts.item = a.item JOIN items b ON facts.store = b.item GROUP BY ALL",
    # A table with itself.
    "SELECT s, t, count(*) AS c FROM (SELECT item, s FROM facts) JOIN (SELECT item, s AS t FROM facts WHERE day < 9) USING (item) GROUP BY ALL",
    # What stands above.
    f"SELECT brand, category, day, sum(v) OVER (PARTITION BY brand, category, day) AS w "
    f"FROM (SELECT brand, category, day, s, sum(i) AS v FROM {JOINED} GROUP BY ALL)",
    f"SELECT a.brand, a.s, a.c, b.c AS o FROM (SELECT brand, category, s, count(*) AS c FROM {JOINED} GROUP BY ALL) a "
    f"JOIN (SELECT brand, category, s, max(day) AS c FROM {JOINED} GROUP BY ALL) b ON a.brand = b.brand AND a.category = b.category AND a.s = b.s",
    f"SELECT brand, category, s, sum(i) AS v FROM {JOINED} GROUP BY ROLLUP (brand, category, s)",
    f"SELECT DISTINCT brand, category, s FROM {JOINED}",
    f"SELECT brand, category, s, count(*) AS c FROM {JOINED} GROUP BY ALL HAVING count(*) > 1 "
    "ORDER BY c DESC, brand NULLS LAST, category NULLS LAST, s NULLS LAST LIMIT 50",
    f"SELECT brand, count(*) AS c FROM (SELECT DISTINCT brand, s FROM {JOINED}) GROUP BY brand",
    "SELECT brand, category, s, sum(i) AS v FROM facts JOIN (SELECT * FROM items WHERE weight = 1) USING (item) GROUP BY ALL "
    f"UNION ALL SELECT brand, category, s, sum(i) AS v FROM {JOINED} GROUP BY ALL",
    f"SELECT brand, category, s, v, (SELECT max(land) FROM cities WHERE city = v % 12) AS l "
    f"FROM (SELECT brand, category, s, count(*) AS v FROM {JOINED} GROUP BY ALL)",
]


@pytest.mark.parametrize("text", CODED)
def test_groups_are_those_of_duckdb(both: Both, text: str) -> None:
    query = both.agree_in_any_order(text)
    assert "KeyDecodeExec" in query.explain(analyze=True)


# Keys of which each is looked at on the way, or not of one table, or of rows that are not there; zeros that are equal.
AS_THEY_ARE = [
    f"SELECT brand, category, s, count(*) AS c FROM {JOINED} WHERE brand <> s AND category > s GROUP BY ALL",
    "SELECT brand, category, s, count(*) AS c FROM facts LEFT JOIN items USING (item) GROUP BY ALL",
    "SELECT brand, category, s, count(*) AS c FROM facts FULL JOIN items USING (item) GROUP BY ALL",
    f"SELECT share, category, s, count(*) AS c FROM {JOINED} GROUP BY ALL",
    f"SELECT brand || category AS b, s, count(*) AS c FROM {JOINED} GROUP BY ALL",
]


@pytest.mark.parametrize("text", AS_THEY_ARE)
def test_other_keys_stay_as_they_are(both: Both, text: str) -> None:
    query = both.agree_in_any_order(text)
    assert "KeyDecodeExec" not in query.explain(analyze=True)


def test_keys_of_a_table_have_one_code_for_all_of_them(both: Both) -> None:
    plan = both.session.sql(CODED[0]).explain(analyze=True)
    assert "KeyEncodeExec: keys=[brand, category]" in plan
    assert "KeyEncodeExec: keys=[name]" in plan


def test_groups_have_their_keys_again_above_the_last_step(both: Both) -> None:
    plan = both.session.sql(CODED[0]).explain(analyze=True)
    assert plan.count("KeyDecodeExec") == 1
    decode, last = (plan.index(name) for name in ("KeyDecodeExec", "AggregateExec"))
    assert decode < last


def test_a_join_by_partitions_gets_rows_where_it_looks_for_them() -> None:
    """Its sides are dealt out by keys, of which codes know nothing."""
    both = Both.over(TABLES, 3)
    groups = "SELECT brand, category, count(*) AS c FROM facts JOIN items USING (item) GROUP BY brand, category, s"
    text = f"SELECT count(*) AS n, sum(a.c * b.c) AS v FROM ({groups}) a JOIN ({groups}) b USING (brand, category)"
    both.agree(text)


def test_few_rows_are_left_alone() -> None:
    session = pg.Session(threads=2)
    for name, table in TABLES.items():
        session.register(name, pg.from_arrow(table.slice(0, 9_000)))
    text = "SELECT brand, category, s, count(*) FROM facts JOIN items USING (item) GROUP BY ALL"
    assert "KeyDecodeExec" not in session.sql(text).explain(analyze=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_groups_without_room_are_the_same(threads: int) -> None:
    text = "SELECT brand, category, s, name, count(*) AS c, sum(i) AS v FROM facts JOIN items USING (item) JOIN stores USING (store) GROUP BY ALL"
    text = f"SELECT count(*) AS n, sum(c) AS c, sum(v) AS v, max(brand) AS b, min(name) AS m FROM ({text})"
    answers = []
    for limit in (8_000_000, None):
        session = pg.Session(threads=threads, memory_limit=limit)
        for name, table in TABLES.items():
            session.register(name, pg.from_arrow(table))
        query = session.sql(text)
        answers.append(query.to_arrow().to_pylist())
        assert "KeyDecodeExec" in query.explain(analyze=True)
        if limit:
            assert query.metrics.peak_memory <= limit
    assert answers[0] == answers[1]


def test_a_statement_is_run_twice() -> None:
    both = Both.over(TABLES, 2)
    text = f"SELECT brand, category, s, count(*) AS c FROM {JOINED} WHERE day < $1 GROUP BY ALL"
    query = both.session.prepare(text)
    for day in (50, 20, 50):
        wanted = both.peer.sql(text.replace("$1", str(day))).to_arrow_table()
        found = query.sql([day]).to_arrow()
        assert rows(found, ordered=False) == rows(wanted, ordered=False)


def test_keys_that_differ_in_the_place_of_a_null_are_different() -> None:
    """To the hash of the engine they are equal."""
    random = np.random.default_rng(2)
    places = pa.array(["Paris", "Rome", None])
    num_stores = 600

    def some() -> pa.Array:
        return places.take(pa.array(random.integers(0, 3, num_stores)))

    stores = {"store": np.arange(num_stores), "home": some(), "billed": some(), "sent": some()}
    facts = {
        "store": random.integers(0, num_stores, NUM_ROWS),
        "v": random.integers(0, 9_000, NUM_ROWS),
    }
    tables = {"facts": pa.table(facts), "stores": pa.table(stores)}
    text = "SELECT home, billed, sent, v, count(*) AS c FROM facts JOIN stores USING (store) GROUP BY ALL"
    for threads in (1, 3):
        query = Both.over(tables, threads).agree_in_any_order(text)
        assert "KeyDecodeExec" in query.explain(analyze=True)


def test_a_join_of_groups_knows_their_keys() -> None:
    session = pg.Session(threads=2)
    tables = {
        "facts": pa.table({"k": np.arange(60_000) % 2_000 * 10, "s": np.arange(60_000) % 2_999}),
        "items": pa.table({"s": np.arange(2_999), "name": [f"name {s % 3}" for s in range(2_999)]}),
        "many": pa.table({"k": np.arange(90_000) % 20_000}),
    }
    for name, table in tables.items():
        session.register(name, pg.from_arrow(table))
    groups = "SELECT k, name, count(*) AS c FROM facts JOIN items USING (s) GROUP BY k, name"
    text = f"SELECT count(*) AS n, sum(c) AS c FROM many JOIN ({groups}) USING (k)"
    plan = session.sql(text).explain(analyze=True)
    assert "KeyDecodeExec" in plan
    assert "by=hash" not in plan, plan
