"""Which way an ASOF JOIN with keys is found: dealt out by keys, or beside a right table that all partitions of the left one have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import partgrid as pg

THREADS = 3


def tables(
    num_left: int, num_right: int, num_keys: int, skewed: bool = False
) -> tuple[pa.Table, pa.Table]:
    """Two tables with keys of texts and moments; those of the right one are all different within a key."""
    random = np.random.default_rng(num_left + num_keys)
    longest = 4 * num_right // num_keys + 4

    def keys(count: int) -> np.ndarray:
        chosen = random.integers(0, num_keys, count)
        return np.where(random.random(count) < 0.95, 0, chosen) if skewed else chosen

    places = random.choice(num_keys * longest, num_right, replace=False)
    left = {"k": keys(num_left), "m": random.integers(0, longest, num_left)}
    right = {"k": places // longest, "m": places % longest, "v": np.arange(num_right)}
    for table in (left, right):
        table["k"] = np.array([f"key {key:07}" for key in table["k"]])
    return pa.table({**left, "row": np.arange(num_left)}), pa.table(right)


def expected(left: pa.Table, right: pa.Table) -> pd.DataFrame:
    frames = [table.to_pandas().sort_values("m") for table in (left, right)]
    found = pd.merge_asof(frames[0], frames[1], on="m", by="k")
    return found.sort_values("row", ignore_index=True)


def session_of(left: pa.Table, right: pa.Table, **options: object) -> pg.Session:
    session = pg.Session(**{"threads": THREADS, **options})
    for name, table in (("a", left), ("b", right)):
        batches = table.to_batches(max_chunksize=9_000)
        session.register(name, pg.from_arrow(pa.Table.from_batches(batches, table.schema)))
    return session


def plan_of(session: pg.Session, text: str) -> str:
    [line] = [
        line for line in session.sql(text).explain(analyze=True).splitlines() if "AsofJoin" in line
    ]
    return line


JOINED = "FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.m >= b.m"

FEW, MANY = 300, 40_000


@pytest.mark.parametrize(
    ("num_keys", "skewed"), [(1, False), (FEW, False), (FEW, True), (MANY, False)]
)
def test_what_is_found_does_not_depend_on_the_way(num_keys: int, skewed: bool) -> None:
    left, right = tables(200_000, 150_000, num_keys, skewed)
    session = session_of(left, right)
    is_of_all = "mode=CollectRight" in plan_of(session, f"SELECT a.row, b.v {JOINED}")
    assert is_of_all == (num_keys != MANY)
    wanted = expected(left, right)
    for _ in range(2):
        rows = session.sql(f"SELECT a.row, b.v {JOINED}").to_arrow().sort_by("row")
        assert rows["row"].to_pylist() == list(range(left.num_rows))
        np.testing.assert_array_equal(rows["v"].to_pandas().astype(float), wanted["v"])


def test_who_needs_equal_keys_together_has_them_together() -> None:
    left, right = tables(200_000, 150_000, FEW)
    session = session_of(left, right)
    wanted = expected(left, right)
    sums = wanted.groupby("k")["v"].sum()
    # Groups, windows and joins by the keys of the join, in one step where they can.
    text = f"SELECT a.k, sum(b.v) AS s, count(*) AS n {JOINED} GROUP BY a.k"
    groups = session.sql(text).to_arrow().sort_by("k")
    assert groups["k"].to_pylist() == sums.index.tolist()
    assert groups["s"].to_pylist() == [int(value) for value in sums]
    text = f"SELECT DISTINCT k, s FROM (SELECT a.k, sum(b.v) OVER (PARTITION BY a.k) AS s {JOINED})"
    windows = session.sql(text).to_arrow().sort_by("k")
    assert windows["s"].to_pylist() == groups["s"].to_pylist()
    text = f"SELECT c.k, sum(c.v) AS s FROM (SELECT a.k, b.v {JOINED}) c JOIN (SELECT k, max(m) AS m FROM b GROUP BY k) d ON c.k = d.k GROUP BY c.k"
    joined = session.sql(text).to_arrow().sort_by("k")
    assert joined["s"].to_pylist() == groups["s"].to_pylist()
    both = f"SELECT a.row, b.v {JOINED} UNION ALL SELECT a.row, b.v {JOINED}"
    [row] = session.sql(f"SELECT count(*) AS n, sum(v) AS s FROM ({both})").to_arrow().to_pylist()
    assert row == {"n": 2 * left.num_rows, "s": int(2 * wanted["v"].sum())}


def test_nearest_rows_of_nearest_rows() -> None:
    left, right = tables(60_000, 50_000, FEW)
    session = session_of(left, right)
    text = f"SELECT c.row, b.v FROM (SELECT a.row, a.k, b.m, b.v {JOINED}) c ASOF LEFT JOIN b ON c.k = b.k AND c.m > b.m"
    rows = session.sql(text).to_arrow().sort_by("row")["v"].to_pandas().astype(float)
    frame = right.to_pandas().sort_values(["k", "m"])
    frame["before"] = frame.groupby("k")["v"].shift()
    before = frame.set_index("v")["before"]
    wanted = before.reindex(expected(left, right)["v"]).to_numpy()
    np.testing.assert_array_equal(rows, wanted)


@pytest.mark.parametrize("kind", ["INNER", "LEFT"])
def test_only_columns_that_are_asked_for_are_copied(kind: str) -> None:
    left, right = tables(30_000, 20_000, FEW)
    session = session_of(left, right)
    joined = JOINED.replace("LEFT", "" if kind == "INNER" else kind)
    wanted = expected(left, right)
    if kind == "INNER":
        wanted = wanted[wanted["v"].notna()]
    assert "projection=[v@" in plan_of(session, f"SELECT sum(b.v) AS s {joined}")
    asked = {
        "count(*)": len(wanted),
        "sum(b.v)": int(wanted["v"].sum()),
        "sum(a.row)": int(wanted["row"].sum()),
        "sum(b.v + a.row)": int((wanted["v"] + wanted["row"]).sum()),
        "max(b.k)": wanted[wanted["v"].notna()]["k"].max(),
    }
    for value, found in asked.items():
        assert session.sql(f"SELECT {value} AS x {joined}").to_arrow()["x"].to_pylist() == [found]


def test_where_there_is_no_room_all_rows_are_sorted(tmp_path: object) -> None:
    # Nobody knows how many rows the condition leaves, until they have come.
    left, right = tables(300_000, 300_000, FEW)
    session = session_of(left, right, memory_limit=12_000_000, spill_to=str(tmp_path))
    text = f"SELECT sum(b.v) AS s, count(b.v) AS n {JOINED}"
    assert "mode=CollectRight" not in plan_of(session, text)
    text = text.replace(" b ", " (SELECT * FROM b WHERE abs(v) + length(k) > 0 AND v % 9 >= 0) b ")
    result = session.sql(text).collect()
    wanted = expected(left, right)["v"]
    assert result.to_arrow().to_pylist() == [{"s": int(wanted.sum()), "n": int(wanted.count())}]
    assert result.metrics.spilled_bytes > 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_whoever_is_above_gets_all_rows(threads: int) -> None:
    """Inputs in more partitions than there are threads."""
    left, right = tables(60_000, 50_000, 20)
    session = session_of(left, right, threads=threads)
    once = expected(left, right)["v"]
    both = """
        FROM (SELECT * FROM a UNION ALL SELECT * FROM a) a
        ASOF LEFT JOIN (SELECT * FROM b UNION ALL SELECT k, m - 1000000, v FROM b WHERE v < 0) b
        ON a.k = b.k AND a.m >= b.m
    """
    [row] = session.sql(f"SELECT sum(v) AS s, count(*) AS n {both}").to_arrow().to_pylist()
    assert row == {"s": int(2 * once.sum()), "n": 2 * left.num_rows}
    groups = session.sql(f"SELECT a.k, count(*) AS n {both} GROUP BY a.k").to_arrow()
    assert sum(groups["n"].to_pylist()) == 2 * left.num_rows
    assert groups.num_rows == 20
    rows = session.sql(f"SELECT row {both} ORDER BY row LIMIT 3").to_arrow()
    assert rows["row"].to_pylist() == [0, 0, 1]
    assert session.sql(f"SELECT row {both} LIMIT 100000").to_arrow().num_rows == 100_000
    text = f"SELECT count(*) AS n FROM (SELECT row {both}) c JOIN (SELECT row FROM a WHERE row < 5) d ON c.row = d.row"
    assert session.sql(text).to_arrow()["n"].to_pylist() == [10]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_what_is_made_once_for_several_has_all_rows(threads: int) -> None:
    left, right = tables(60_000, 50_000, 20)
    session = session_of(left, right, threads=threads)
    text = """
        WITH c AS (
            SELECT a.row, b.v
            FROM (
                SELECT k, m, row FROM a
                UNION ALL SELECT k, m + 1, row + 1 FROM a WHERE row < 500
                UNION ALL SELECT k, m, max(row) FROM a GROUP BY k, m
            ) a
            ASOF LEFT JOIN b ON a.k = b.k AND a.m >= b.m
            UNION ALL SELECT count(*), 1 FROM a GROUP BY k
        )
        SELECT (SELECT sum(v) FROM c) AS s, (SELECT count(*) FROM c) AS n, (SELECT max(row) FROM c) AS r
    """
    [row] = session.sql(text).to_arrow().to_pylist()
    frame = left.to_pandas()
    more = frame[frame["row"] < 500].assign(m=lambda rows: rows["m"] + 1)
    latest = frame.groupby(["k", "m"], as_index=False)["row"].max()
    all_rows = pd.concat([frame, more, latest], ignore_index=True)
    all_rows["row"] = np.arange(len(all_rows))
    found = pd.merge_asof(
        all_rows.sort_values("m"), right.to_pandas().sort_values("m"), on="m", by="k"
    )
    assert row["n"] == len(all_rows) + 20
    assert row["s"] == int(found["v"].sum()) + 20
    assert row["r"] == left.num_rows - 1
