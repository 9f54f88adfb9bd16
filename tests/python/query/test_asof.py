"""ASOF JOIN: the nearest row of another table, beside `pandas.merge_asof` as a second opinion."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import partgrid as pg

OPERATORS = {
    ">=": ("backward", True),
    ">": ("backward", False),
    "<=": ("forward", True),
    "<": ("forward", False),
}


def tables(
    seed: int, num_left: int, num_right: int, num_keys: int, longest: int
) -> tuple[pa.Table, pa.Table]:
    """Two tables with keys and moments; those of the right one are all different within a key."""
    random = np.random.default_rng(seed)
    left = pa.table(
        {
            "k": random.integers(0, num_keys, num_left),
            "m": random.integers(0, longest, num_left),
            "row": np.arange(num_left),
        }
    )
    places = random.choice(num_keys * longest, num_right, replace=False)
    right = pa.table({"k": places // longest, "m": places % longest, "v": np.arange(num_right)})
    return left, right


def expected(left: pa.Table, right: pa.Table, operator: str) -> list[float]:
    direction, exact = OPERATORS[operator]
    found = pd.merge_asof(
        left.to_pandas().sort_values("m"),
        right.to_pandas().sort_values("m"),
        on="m",
        by="k",
        direction=direction,
        allow_exact_matches=exact,
    )
    return found.sort_values("row")["v"].tolist()


def tiled(table: pa.Table, rows: int) -> pg.Grid:
    batches = table.to_batches(max_chunksize=rows)
    return pg.from_arrow(pa.Table.from_batches(batches, table.schema))


SIZES = [
    # A few rows beside very many, of which each batch has none, one or several: batches are let go of.
    (1, 40, 400_000, 1, 800_000),
    (2, 3_000, 300_000, 7, 100_000),
    (3, 200_000, 50, 5, 1_000),
    (4, 50_000, 50_000, 20_000, 1_000),
    (5, 100, 0, 3, 50),
    (6, 0, 100, 3, 50),
]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_found_is_what_pandas_finds(
    sizes: tuple[int, int, int, int, int], operator: str, threads: int
) -> None:
    left, right = tables(*sizes)
    session = pg.Session(threads=threads)
    session.register("a", tiled(left, 20_000))
    session.register("b", tiled(right, 7_000))
    condition = f"a.k = b.k AND a.m {operator} b.m"
    rows = session.sql(f"SELECT a.row, b.v FROM a ASOF LEFT JOIN b ON {condition}").to_arrow()
    rows = rows.sort_by("row")
    wanted = expected(left, right, operator)
    assert rows["row"].to_pylist() == list(range(left.num_rows))
    np.testing.assert_array_equal(rows["v"].to_pandas().astype(float), wanted)
    inner = session.sql(f"SELECT a.row, b.v FROM a ASOF JOIN b ON {condition}").to_arrow()
    inner = inner.sort_by("row")
    kept = [row for row, found in enumerate(wanted) if not np.isnan(found)]
    assert inner["row"].to_pylist() == kept
    np.testing.assert_array_equal(inner["v"].to_pandas(), [wanted[row] for row in kept])


# Tables of one key, which is not asked for: all tiles of the right one are beside each of the left one.
WITHOUT_KEYS = [
    (11, 90_000, 40_000, 1, 60_000),
    (12, 40, 50_000, 1, 60_000),
    (13, 90_000, 3, 1, 10),
]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("sizes", WITHOUT_KEYS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_without_keys_all_rows_are_near(
    sizes: tuple[int, int, int, int, int], operator: str, threads: int, kind: str
) -> None:
    left, right = tables(*sizes)
    wanted = expected(left, right, operator)
    if kind == "string":
        texts = [
            pa.array([f"{moment:09}" for moment in table["m"].to_pylist()])
            for table in (left, right)
        ]
        left, right = (
            table.set_column(1, "m", moments)
            for table, moments in zip((left, right), texts, strict=True)
        )
    session = pg.Session(threads=threads)
    session.register("a", tiled(left, 9_000))
    session.register("b", tiled(right, 4_000))
    text = f"SELECT a.row, b.v FROM a ASOF LEFT JOIN b ON a.m {operator} b.m"
    rows = session.sql(text).to_arrow().sort_by("row")
    assert rows["row"].to_pylist() == list(range(left.num_rows))
    np.testing.assert_array_equal(rows["v"].to_pandas().astype(float), wanted)
    text = f"SELECT sum(b.v) AS s, count(*) AS n FROM a ASOF JOIN b ON a.m {operator} b.m"
    found = [int(value) for value in wanted if not np.isnan(value)]
    # Of the same plan once more, too.
    for _ in range(2):
        [row] = session.sql(text).to_arrow().to_pylist()
        assert row == {"s": sum(found) if found else None, "n": len(found)}


def test_without_keys_and_room_all_rows_are_sorted(tmp_path: object) -> None:
    left, right = tables(14, 300_000, 300_000, 1, 400_000)
    session = pg.Session(threads=3, memory_limit=12_000_000, spill_to=str(tmp_path))
    session.register("a", tiled(left, 20_000))
    session.register("b", tiled(right, 20_000))
    text = "SELECT sum(b.v) AS s, count(b.v) AS n FROM a ASOF JOIN b ON a.m >= b.m"
    result = session.sql(text).collect()
    [row] = result.to_arrow().to_pylist()
    wanted = [value for value in expected(left, right, ">=") if not np.isnan(value)]
    assert row == {"s": int(sum(wanted)), "n": len(wanted)}
    assert result.metrics.spilled_bytes > 0


def test_without_keys_the_right_table_is_read_once() -> None:
    left, right = tables(15, 50_000, 40_000, 1, 60_000)
    session = pg.Session(threads=2)
    session.register("a", tiled(left, 5_000))
    session.register("b", tiled(right, 5_000))
    text = "SELECT count(b.v) AS n FROM a ASOF JOIN b ON a.m >= b.m"
    plan = session.sql(text).explain(analyze=True)
    [line] = [line for line in plan.splitlines() if "AsofJoinExec" in line]
    assert "mode=CollectRight" in line
    assert "build_input_rows=40.00 K" in line or "build_input_rows=40000" in line
    some = session.sql("SELECT a.row, b.v FROM a ASOF LEFT JOIN b ON a.m >= b.m LIMIT 7").to_arrow()
    wanted = expected(left, right, ">=")
    found = some["v"].to_pandas().astype(float)
    np.testing.assert_array_equal(found, [wanted[row] for row in some["row"].to_pylist()])
    assert some.num_rows == 7


def test_without_keys_an_error_of_the_right_table_is_told() -> None:
    left, right = tables(16, 50_000, 40_000, 1, 60_000)
    session = pg.Session(threads=3)
    session.register("a", tiled(left, 5_000))
    session.register("b", tiled(right, 5_000))
    text = "SELECT count(*) FROM a ASOF JOIN (SELECT 10 / (v - 39999) AS q, m FROM b) b ON a.m >= b.m WHERE q > 0"
    with pytest.raises(pg.errors.QueryError, match="(?i)divi"):
        session.sql(text).to_arrow()


def test_a_match_condition_keeps_rows_without_one() -> None:
    left, right = tables(7, 500, 300, 4, 200)
    text = "SELECT a.row, b.v FROM a ASOF JOIN b MATCH_CONDITION (a.m >= b.m) ON a.k = b.k"
    rows = pg.sql(text, a=pg.from_arrow(left), b=pg.from_arrow(right)).to_arrow().sort_by("row")
    wanted = expected(left, right, ">=")
    np.testing.assert_array_equal(rows["v"].to_pandas().astype(float), wanted)
    assert any(np.isnan(wanted))
    without = (
        "SELECT count(*) AS n, count(b.v) AS found FROM a ASOF JOIN b MATCH_CONDITION (b.m < a.m)"
    )
    [row] = pg.sql(without, a=pg.from_arrow(left), b=pg.from_arrow(right)).to_arrow().to_pylist()
    first = min(right["m"].to_pylist())
    assert row == {"n": 500, "found": sum(moment > first for moment in left["m"].to_pylist())}


WORDS = ["x", "y", None, "z"]
NUMBERS = pa.array([1, 2, None, 3])
FIELDS = pa.array([{"f": 1}, {"f": 2}, None, {"f": 3}])
LISTS = pa.array([[1], [2, 3], None, []])
MOMENTS = pa.array([0, 10**9, None, 2 * 10**9], pa.timestamp("ns", "UTC"))
BYTES = [b"x", b"y", None, b"z"]

# Keys of both tables, of four values, one of which is null.
KEYS = {
    "dictionary": (pa.array(WORDS).dictionary_encode(), pa.array(WORDS, pa.large_string())),
    "views": (pa.array(WORDS, pa.string_view()), pa.array(WORDS)),
    "decimal": (NUMBERS.cast(pa.decimal128(21, 2)), NUMBERS),
    "bytes": (pa.array(BYTES), pa.array(BYTES, pa.binary(1))),
    "struct": (FIELDS, FIELDS),
    "list": (LISTS, LISTS),
    "instant": (MOMENTS, MOMENTS.cast(pa.timestamp("s", "Europe/Paris"))),
    "boolean": (pa.array([True, False, None, True]),) * 2,
    "runs": (pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4], pa.array(WORDS)), pa.array(WORDS)),
    "float": (
        pa.array([1.5, -0.0, None, float("nan")]),
        pa.array([1.5, 0.0, None, float("nan")], pa.float32()),
    ),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("threads", [1, 3])
def test_keys_of_many_types(kind: str, threads: int) -> None:
    keys, others = KEYS[kind]
    rows = pa.array([0, 1, 2, 3] * 50)
    left = pa.table({"k": pa.concat_arrays([keys] * 50), "m": np.arange(200), "i": rows})
    right = pa.table(
        {
            "k": others,
            "m": [7, 50, 0, 120],
            "i": [0, 1, 2, 3],
            "nested": [[{"a": i}] for i in range(4)],
        }
    )
    session = pg.Session(threads=threads)
    session.register("a", tiled(left, 60))
    session.register("b", tiled(right, 3))
    text = "SELECT a.m, a.i, b.m AS found, b.i AS other, b.nested FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.m >= b.m ORDER BY a.m"
    begins = {0: 7, 1: 50, 3: 120}
    same = {0: [0], 1: [1], 3: [3]}
    if kind == "boolean":
        # Two rows have the one key.
        same = {0: [0, 3], 1: [1], 3: [0, 3]}
    for row in session.sql(text).to_arrow().to_pylist():
        candidates = [i for i in same.get(row["i"], []) if begins[i] <= row["m"]]
        nearest = max(candidates, key=begins.__getitem__, default=None)
        assert row["other"] == nearest, row
        assert row["found"] == (None if nearest is None else begins[nearest])
        assert row["nested"] == (None if nearest is None else [{"a": nearest}])


DAYS = pa.array([-3, 0, 4, 9])

# What is compared, of four values in ascending order.
COMPARED = {
    "small": DAYS.cast(pa.int8()),
    "unsigned": pa.array([0, 1, 2**63, 2**64 - 1], pa.uint64()),
    "date": DAYS.cast(pa.int32()).cast(pa.date32()),
    "time": pa.array([0, 1, 2, 86_399], pa.time32("s")),
    "moment": DAYS.cast(pa.timestamp("ns")),
    "span": DAYS.cast(pa.duration("us")),
    "float": pa.array([float("-inf"), -0.0, 1e-300, float("nan")]),
    "half": pa.array(np.array([-2, 0, 1, np.inf], np.float16)),
    "decimal": DAYS.cast(pa.decimal128(30, 2)),
    "small decimal": pa.array([-3, 0, 4, 9], pa.decimal32(9, 1)),
    "text": pa.array(["", "a", "ab", "b"]),
    "bytes": pa.array([b"", b"\x00", b"a", b"\xff"]),
    "boolean": pa.array([False, False, True, True]),
    "words": pa.array(["", "a", "ab", "b"]).dictionary_encode(),
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("kind", COMPARED)
def test_values_of_many_types_are_compared(kind: str, operator: str) -> None:
    values = COMPARED[kind]
    places = [3, 0, 2, 1, 0, 3]
    left = pa.table({"m": values.take(pa.array(places)), "row": range(6)})
    right = pa.table({"m": values.take(pa.array([2, 0, 3, 1])), "place": [2, 0, 3, 1]})
    # Equal values are one to all of them.
    ranks = [0, 0, 1, 1] if kind == "boolean" else [0, 1, 2, 3]
    text = f"SELECT row, place FROM a ASOF LEFT JOIN b ON a.m {operator} b.m ORDER BY row"
    rows = pg.sql(text, a=pg.from_arrow(left), b=pg.from_arrow(right)).to_arrow()
    near = {
        ">=": lambda own: max((rank for rank in ranks if rank <= own), default=None),
        ">": lambda own: max((rank for rank in ranks if rank < own), default=None),
        "<=": lambda own: min((rank for rank in ranks if rank >= own), default=None),
        "<": lambda own: min((rank for rank in ranks if rank > own), default=None),
    }
    found = [None if place is None else ranks[place] for place in rows["place"].to_pylist()]
    assert found == [near[operator](ranks[place]) for place in places]


def test_columns_of_every_kind_come_along() -> None:
    words = pa.array(["x", "y", None, "x"])
    right = pa.table(
        {
            "m": [1, 2, 3, 4],
            "runs": pa.RunEndEncodedArray.from_arrays([1, 3, 4], pa.array(["p", None, "q"])),
            "words": words.dictionary_encode(),
            "views": words.cast(pa.string_view()),
            "lists": pa.array([[1], [], None, [2, None]]),
            "nothing": pa.nulls(4),
            "fields": pa.array([{"a": 1}, None, {"a": None}, {"a": 4}]),
        }
    )
    left = pa.table({"m": [4, 0, 2, None, 3]})
    text = "SELECT a.m AS k, b.* FROM a ASOF LEFT JOIN b ON a.m >= b.m"
    for tile_rows in (4, 2):
        grids = {"a": pg.from_arrow(left), "b": tiled(right, tile_rows)}
        rows = {row.pop("k"): row for row in pg.sql(text, **grids).to_arrow().to_pylist()}
        wanted = {row["m"]: row for row in right.to_pylist()}
        nothing = dict.fromkeys(right.column_names)
        assert rows == {4: wanted[4], 0: nothing, 2: wanted[2], None: nothing, 3: wanted[3]}


def test_runs_of_many_batches_are_told_apart() -> None:
    """The ends of runs of all rows together are beyond what 16 bits count."""
    kind = pa.run_end_encoded(pa.int16(), pa.string())
    batches = []
    for number in range(3):
        moments = np.arange(30_000) + number * 30_000
        runs = pa.RunEndEncodedArray.from_arrays(
            pa.array([10_000, 30_000], pa.int16()), pa.array([f"a{number}", f"b{number}"])
        )
        assert runs.type == kind
        batches.append(pa.record_batch({"m": moments, "c": runs}))
    right = pg.from_arrow(pa.Table.from_batches(batches))
    left = pg.from_arrow(pa.table({"m": [0, 9_999, 10_000, 65_000, 89_999, 100_000, -1]}))
    text = "SELECT a.m, b.c FROM a ASOF LEFT JOIN b ON a.m >= b.m ORDER BY a.m"
    found = pg.sql(text, a=left, b=right).to_arrow()["c"].to_pylist()
    assert found == [None, "a0", "a0", "b0", "a2", "b2", "b2"]


def test_keys_that_the_right_table_has_not_are_forgotten() -> None:
    left = pa.table({"k": np.arange(300_000), "m": np.ones(300_000, np.int64)})
    right = pa.table({"k": np.arange(0, 300_000, 100_000), "m": np.zeros(3, np.int64)})
    session = pg.Session(threads=1, memory_limit=20_000_000)
    session.register("a", tiled(left, 10_000))
    session.register("b", pg.from_arrow(right))
    text = "SELECT count(*) AS n, sum(b.k) AS s FROM a ASOF JOIN b ON a.k = b.k AND a.m >= b.m"
    assert session.sql(text).to_arrow().to_pylist() == [{"n": 3, "s": 300_000}]


def test_metrics_say_how_many_rows_are_kept() -> None:
    left, right = tables(10, 1_000, 700, 3, 2_000)
    text = "SELECT count(b.v) AS n FROM a ASOF JOIN b ON a.k = b.k AND a.m >= b.m"
    plan = pg.sql(text, a=pg.from_arrow(left), b=pg.from_arrow(right)).explain(analyze=True)
    [line] = [line for line in plan.splitlines() if "AsofJoinExec" in line]
    assert "build_input_rows=700" in line
    assert "SortExec" not in plan


def test_a_sort_that_does_not_fit_is_spilled(tmp_path: object) -> None:
    left, right = tables(8, 300_000, 300_000, 50, 100_000)
    session = pg.Session(threads=2, memory_limit=12_000_000, spill_to=str(tmp_path))
    session.register("a", tiled(left, 20_000))
    session.register("b", tiled(right, 20_000))
    text = "SELECT sum(b.v) AS s, count(b.v) AS n FROM a ASOF JOIN b ON a.k = b.k AND a.m >= b.m"
    result = session.sql(text).collect()
    [row] = result.to_arrow().to_pylist()
    wanted = [value for value in expected(left, right, ">=") if not np.isnan(value)]
    assert row == {"s": int(sum(wanted)), "n": len(wanted)}
    assert result.metrics.spilled_bytes > 0


def test_conditions_of_the_left_table_choose_tiles_of_both() -> None:
    session = pg.Session(threads=2)
    keys = np.arange(8).repeat(1_000)
    left = pa.table({"k": keys, "m": np.arange(8_000)})
    right = pa.table({"k": keys, "m": np.arange(8_000), "v": np.arange(8_000)})
    session.register("a", tiled(left, 1_000))
    session.register("b", tiled(right, 1_000))
    text = "SELECT count(*) AS n FROM a ASOF JOIN b ON a.k = b.k AND a.m >= b.m WHERE a.k = 3"
    result = session.sql(text).collect()
    assert result.to_arrow().to_pylist() == [{"n": 1_000}]
    assert (result.metrics.read_tiles, result.metrics.tiles) == (2, 16)
    # One of the other table leaves out what was found, and finds nothing else.
    text = "SELECT count(*) AS n FROM a ASOF JOIN b ON a.k = b.k AND a.m >= b.m WHERE b.v % 2 = 1"
    assert session.sql(text).to_arrow().to_pylist() == [{"n": 4_000}]


def test_views_and_prepared_statements_keep_what_they_say() -> None:
    session = pg.Session(threads=2)
    left, right = tables(9, 1_000, 1_000, 3, 2_000)
    session.register("a", pg.from_arrow(left))
    session.register("b", pg.from_arrow(right))
    session.sql("CREATE VIEW v AS SELECT a.row, b.v FROM a ASOF JOIN b USING (k, m)").collect()
    wanted = [value for value in expected(left, right, ">=") if not np.isnan(value)]
    assert session.sql("SELECT count(*) AS n FROM v").to_arrow().to_pylist() == [{"n": len(wanted)}]
    prepared = session.prepare(
        "SELECT count(*) AS n FROM a ASOF JOIN b ON a.k = b.k AND a.m >= b.m + $1"
    )
    assert prepared.sql([0]).to_arrow().to_pylist() == [{"n": len(wanted)}]
    assert prepared.sql([5_000]).to_arrow().to_pylist() == [{"n": 0}]
    text = "SELECT definition FROM information_schema.views WHERE table_name = 'v'"
    [view] = session.sql(text).to_arrow().to_pylist()
    assert view["definition"].endswith("FROM a ASOF JOIN b ON a.k = b.k AND a.m >= b.m")


def small() -> dict[str, pg.Grid]:
    left = pa.table({"k": [1, 1, 2], "m": [5, 9, 3]})
    right = pa.table({"k": [1, 1, 2], "m": [4, 6, 3], "v": [10, 20, 30]})
    return {"a": pg.from_arrow(left), "b": pg.from_arrow(right)}


def found(text: str) -> list[tuple[object, ...]]:
    rows = pg.sql(text, **small()).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_subqueries_in_the_condition_are_of_the_table_that_they_look_at() -> None:
    text = "SELECT a.m, b.v FROM a ASOF {} JOIN b ON a.k = b.k AND a.m >= b.m AND {}"
    right = "EXISTS (SELECT 1 FROM b c WHERE c.k = b.k AND c.v > 20)"
    assert found(text.format("", right)) == [(3, 30)]
    assert found(text.format("LEFT", right)) == [(3, 30), (5, None), (9, None)]
    left = "(SELECT max(c.v) FROM b c WHERE c.k = a.k) > 20"
    assert found(text.format("", left)) == [(3, 30)]
    with pytest.raises(pg.errors.QueryError, match="cannot choose rows of the left table"):
        found(text.format("LEFT", left))


def test_statements_are_called_as_they_are_written() -> None:
    text = "SELECT (SELECT max(b.v) FROM a ASOF JOIN b USING (k, m)) AS x, (SELECT max(v) FROM a ASOF LEFT JOIN b USING (k, m))"
    _, name = pg.sql(text, **small()).columns
    assert name == "(SELECT max(v) FROM a ASOF LEFT JOIN b USING(k, m))"
    functions = pg.sql("SHOW FUNCTIONS").to_arrow()["function_name"].to_pylist()
    assert len(functions) > 300
    assert not [name for name in functions if name.startswith("__")]


def test_tables_may_be_called_asof_and_global() -> None:
    grids = {"asof": small()["a"], "global": small()["b"]}
    text = "SELECT count(*) AS n FROM asof JOIN global ON asof.k = global.k"
    assert pg.sql(text, **grids).to_arrow()["n"].to_pylist() == [5]
    text = "SELECT count(*) AS n FROM asof ASOF JOIN global USING (k, m)"
    assert pg.sql(text, **grids).to_arrow()["n"].to_pylist() == [3]
    for kind in ("RIGHT", "FULL", "LEFT SEMI"):
        text = f"SELECT 1 FROM a {kind} JOIN b ON __asof_condition(a.m >= b.m)"
        with pytest.raises(pg.errors.QueryError, match="it is for conditions of ASOF JOIN"):
            pg.sql(text, **small()).to_arrow()


def test_keys_that_are_named_again_count_once() -> None:
    condition = " AND ".join(["a.k = b.k"] * 40)
    text = f"SELECT a.m, b.v FROM a ASOF JOIN b ON {condition} AND a.m >= b.m"
    assert found(text) == [(3, 30), (5, 10), (9, 20)]


def test_the_plan_says_what_is_compared() -> None:
    text = "EXPLAIN SELECT a.m, b.v FROM a ASOF JOIN b ON b.m < a.m AND a.k = b.k"
    plans = pg.sql(text, **small()).to_arrow()["plan"].to_pylist()
    assert "AsofJoin: Inner, a.k = b.k, a.m > b.m" in plans[0]
    assert "AsofJoinExec: join_type=Inner, k@0 = k@0, m@1 > m@1" in plans[1]
