"""Semi joins of small tables that are joined with large ones: which join comes first, and that the rows are the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from beside_duckdb import Both, with_nulls


@pytest.fixture(scope="module")
def both() -> Both:
    """30,000 rows of 50 places, which have names and regions; some are null, in all columns."""
    random = np.random.default_rng(11)

    def numbers(most: int, count: int) -> pa.Array:
        return with_nulls(random, pa.array(random.integers(0, most, count)))

    places = pa.table(
        {
            "id": pa.array(range(50)),
            "name": with_nulls(random, pa.array([f"place {place % 20}" for place in range(50)])),
            "region": numbers(7, 50),
            "x": numbers(1_000, 50),
        }
    )
    sales = pa.table(
        {"id": numbers(60, 30_000), "v": numbers(1_000, 30_000), "x": numbers(9, 30_000)}
    )
    wanted = pa.table(
        {"name": [f"place {place}" for place in (1, 3, 3, 19)] + [None], "x": [1, 2, 3, 4, None]}
    )
    return Both.over({"sales": sales, "places": places, "wanted": wanted}, 2)


IN = "p.name IN (SELECT name FROM wanted)"
EXISTS = "EXISTS (SELECT 1 FROM wanted AS w WHERE w.name = p.name)"


@pytest.mark.parametrize("condition", [IN, EXISTS])
def test_the_small_table_comes_first(both: Both, condition: str) -> None:
    text = f"SELECT p.region, sum(s.v) AS v, count(*) AS n FROM sales AS s JOIN places AS p ON p.id = s.id WHERE {condition} GROUP BY p.region"
    plan = both.agree_in_any_order(text).explain()
    # The join that gives few rows is below the one that gives many.
    semi, inner = plan.index("Semi"), plan.index("join_type=Inner")
    assert inner < semi


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT s.v, p.name, p.x FROM sales s, places p WHERE p.id = s.id AND {IN} AND s.x = 1",
        f"SELECT count(*) AS n FROM sales s JOIN places p ON p.id = s.id WHERE {IN} AND p.region IN (SELECT x FROM wanted)",
        f"SELECT count(*) AS n FROM sales s JOIN places p ON p.id = s.id WHERE {IN} AND s.x NOT IN (SELECT x FROM wanted WHERE x > 1)",
        f"SELECT count(*) AS n FROM sales s JOIN places p ON p.id = s.id WHERE {IN} AND NOT EXISTS (SELECT 1 FROM wanted w WHERE w.x = p.region)",
        "SELECT count(*) AS n FROM sales s JOIN places p ON p.id = s.id WHERE (p.name, s.x) IN (SELECT name, x FROM wanted)",
        "SELECT count(*) AS n FROM sales s JOIN places p ON p.id = s.id WHERE s.x IN (SELECT x FROM wanted)",
        "SELECT count(*) AS n FROM (SELECT s.v, p.name AS called FROM sales s JOIN places p ON p.id = s.id) q WHERE called IN (SELECT name FROM wanted)",
        "SELECT count(*) AS n FROM (SELECT p.x, s.x AS y FROM sales s JOIN places p ON p.id = s.id) q WHERE x % 9 IN (SELECT x FROM wanted)",
        "SELECT q.name, count(*) n FROM sales s JOIN places p USING (id) JOIN places q USING (region) WHERE q.name IN (SELECT name FROM wanted) GROUP BY 1",
        f"SELECT count(*) AS n FROM sales s LEFT JOIN places p ON p.id = s.id WHERE {IN}",
        f"SELECT count(*) AS n FROM places p LEFT JOIN sales s ON p.id = s.id WHERE {IN}",
        f"SELECT p.name, count(*) AS n FROM sales s JOIN places p USING (id) WHERE {IN} GROUP BY ROLLUP (p.name)",
        f"SELECT count(*) AS n FROM sales s JOIN places p ON p.id = s.id WHERE {IN} OR s.x = 2",
        f"SELECT count(*) AS n FROM sales s JOIN places p ON p.id = s.id AND p.x > s.v WHERE {IN}",
        f"SELECT count(*) AS n FROM sales s JOIN places p ON p.id = s.id WHERE {IN} AND p.x > (SELECT min(x) FROM wanted WHERE wanted.x <> p.region)",
    ],
)
def test_rows_are_those_of_duckdb(both: Both, text: str) -> None:
    both.agree_in_any_order(text)
