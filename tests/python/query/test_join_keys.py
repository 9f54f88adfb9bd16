"""Joins whose keys are held equal in more than one way, compared with DuckDB."""

from __future__ import annotations

import decimal
import random

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import partgrid as pg

TABLES = {
    "a": ("x", "y", "z"),
    "b": ("p", "q"),
    "c": ("u", "v"),
    "d": ("k",),
}
ROWS = {"a": 3000, "b": 400, "c": 60, "d": 5}


@pytest.fixture(scope="module")
def engines():
    """The same tables here and in DuckDB."""
    chosen = random.Random(7)
    session, duck = pg.Session(), duckdb.connect()
    for name, columns in TABLES.items():
        values = {
            column: [
                chosen.randrange(20) if chosen.random() > 0.02 else None for _ in range(ROWS[name])
            ]
            for column in columns
        }
        table = pa.table({column: pa.array(some, pa.int64()) for column, some in values.items()})
        session.register(name, pg.from_arrow(table))
        duck.register(name, table)
    return session, duck


def same(engines, text: str) -> None:
    session, duck = engines
    assert (
        session.sql(text).to_arrow().to_pylist() == duck.sql(text).to_arrow_table().to_pylist()
    ), text


@pytest.mark.parametrize(
    "condition",
    [
        "a.x = b.p AND a.y = b.p AND b.q = c.u",
        "a.x = a.y AND a.x = b.p AND b.q = c.u",
        "a.x = b.p AND b.q = c.u AND a.y = c.u AND b.p = b.q",
        "a.x = b.p AND a.z = c.u AND b.p = c.u",
        "a.x = b.p AND c.u = c.v AND b.p = c.v AND a.y = c.u",
    ],
)
def test_each_equality_counts(engines, condition: str) -> None:
    """Two columns of one table that are equal to the same column are equal to each other."""
    same(engines, f"SELECT count(*) AS n, sum(a.z) AS s FROM a, b, c WHERE {condition}")


def test_any_equalities_count(engines) -> None:
    """Random ones, over four tables."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chosen = random.Random(seed)
    columns = [f"{table}.{column}" for table, names in TABLES.items() for column in names]
    for _ in range(60):
        # Each table is joined, so that nothing is a product of all.
        pairs = [("a.x", "b.p"), ("b.q", "c.u"), ("c.v", "d.k")]
        pairs += [tuple(chosen.sample(columns, 2)) for _ in range(chosen.randrange(1, 4))]
        chosen.shuffle(pairs)
        condition = " AND ".join(f"{left} = {right}" for left, right in pairs)
        same(engines, f"SELECT count(*) AS n, sum(a.z) AS s FROM a, b, c, d WHERE {condition}")


# Types of a key here and in the table that it is looked for in, which is converted for the join.
KEYS = [
    (pa.float64(), pa.int32()),
    (pa.float64(), pa.float32()),
    (pa.decimal128(20, 4), pa.decimal128(10, 0)),
    (pa.decimal128(20, 4), pa.int32()),
    (pa.timestamp("ns"), pa.timestamp("s")),
    (pa.string_view(), pa.string()),
    (pa.int64(), pa.int32()),
]


@pytest.mark.parametrize(("own", "other"), KEYS, ids=[f"{own}-{other}" for own, other in KEYS])
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_that_are_in_two_tables_by_converted_keys(
    own: pa.DataType, other: pa.DataType, threads: int
) -> None:
    """What a semi join learns of a key is no condition on the other table's column of that name before it is converted, nor on one that is not compared."""
    numbers = pa.array(range(400), pa.int32())
    as_other = (
        pc.cast(numbers, pa.string()) if pa.types.is_string(other) else _converted(numbers, other)
    )
    as_own = (
        pc.cast(pc.cast(as_other, pa.string()), own)
        if own == pa.string_view()
        else _converted(as_other, own)
    )
    session = pg.Session(threads=threads)
    facts = pa.table({"k": pa.concat_arrays([as_own] * 9)})
    session.register("f", pg.from_arrow(facts))
    session.register("d", pg.from_arrow(pa.table({"k": as_other})))
    # Here the key is called otherwise, and the column of its name is another one.
    session.register("e", pg.from_arrow(pa.table({"key": as_other, "k": as_other[::-1]})))
    for text, expected in [
        ("SELECT count(*) FROM f SEMI JOIN d a ON f.k = a.k SEMI JOIN d b ON f.k = b.k", 3600),
        (
            "SELECT count(*) FROM (SELECT DISTINCT f.k FROM f JOIN d a ON f.k = a.k JOIN d b ON f.k = b.k)",
            400,
        ),
        ("SELECT count(*) FROM f WHERE k IN (SELECT k FROM d) AND k IN (SELECT k FROM d)", 3600),
        (
            "SELECT count(*) FROM f SEMI JOIN e a ON f.k = a.key AND a.k IS NOT NULL SEMI JOIN (SELECT k FROM d LIMIT 200) b ON f.k = b.k",
            1800,
        ),
        (
            "SELECT count(*) FROM (SELECT k FROM d LIMIT 200) b JOIN (SELECT * FROM f SEMI JOIN e ON f.k = e.key AND e.k IS NOT NULL) x ON x.k = b.k",
            1800,
        ),
    ]:
        [[found]] = session.sql(text).to_arrow().to_pydict().values()
        assert found == expected, text


def _converted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Also of numbers that become decimals, which have digits to spare, and points in time."""
    if pa.types.is_decimal(kind) and not pa.types.is_decimal(values.type):
        return pa.array([decimal.Decimal(value) for value in values.to_pylist()], kind)
    if pa.types.is_timestamp(kind) and not pa.types.is_timestamp(values.type):
        return values.cast(pa.int64()).cast(kind)
    return values.cast(kind)
