"""ORDER BY of a million rows in no order, whole, by numbers, several keys and texts, beside DuckDB and Polars.

Prints the median of each engine, taken in turn in one run, and the ratios of the medians. All make a table of Arrow. Needs duckdb and polars beside partgrid:

    python tests/benches/sorts.py [ROWS [ROUNDS]]
"""

import statistics
import sys
import time
from collections.abc import Callable

import duckdb
import numpy as np
import polars
import pyarrow as pa

import partgrid as pg

WARM_UP = 2

# A key, and whether it descends.
ORDERS = {
    "a number": [("n", False)],
    "a float, descending": [("x", True)],
    "two numbers": [("g", False), ("n", True)],
    "a text": [("t", False)],
    "a text of few and a number": [("w", False), ("n", False)],
    "three wide numbers": [("h", False), ("x", False), ("n", False)],
}


def table(num_rows: int) -> pa.Table:
    """Rows in no order."""
    random = np.random.default_rng(1)
    words = pa.array([f"word {number}" for number in range(100)])
    return pa.table(
        {
            "n": random.permutation(num_rows),
            "g": random.integers(0, 1_000, num_rows),
            "h": random.integers(-(2**62), 2**62, num_rows),
            "x": random.random(num_rows),
            "t": pa.array([f"customer {number:09}" for number in random.permutation(num_rows)]),
            "w": words.take(pa.array(random.integers(0, 100, num_rows))),
        }
    )


def engines(rows: pa.Table) -> dict[str, Callable[[list[tuple[str, bool]]], pa.Table]]:
    """What each makes of an order."""
    session = pg.Session(threads=2)
    session.register("t", pg.from_arrow(rows))
    connection = duckdb.connect(config={"threads": 2})
    connection.register("source", rows)
    connection.execute("CREATE TABLE t AS SELECT * FROM source")
    frame = polars.from_arrow(rows)

    def text(order: list[tuple[str, bool]]) -> str:
        keys = [f"{name} {'DESC' if descending else 'ASC'}" for name, descending in order]
        return f"SELECT * FROM t ORDER BY {', '.join(keys)}"

    def by_polars(order: list[tuple[str, bool]]) -> pa.Table:
        names, descending = zip(*order, strict=True)
        return frame.sort(list(names), descending=list(descending)).to_arrow()

    return {
        "partgrid": lambda order: session.sql(text(order)).to_arrow(),
        "DuckDB": lambda order: connection.sql(text(order)).to_arrow_table(),
        "Polars": by_polars,
    }


def main() -> None:
    """Measures all and prints a row of each."""
    num_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rounds = int(next(iter(sys.argv[2:]), "5"))
    run = engines(table(num_rows))
    print(f"{num_rows:,} rows of 6 columns, medians of {rounds} rounds")
    print(f"{'':28}{'partgrid s':>12}{'DuckDB / partgrid':>20}{'Polars / partgrid':>20}")
    for name, order in ORDERS.items():
        times: dict[str, list[float]] = {engine: [] for engine in run}
        found: dict[str, list[int]] = {}
        for _ in range(rounds + WARM_UP):
            for engine, query in run.items():
                begun = time.perf_counter()
                answer = query(order)
                times[engine].append(time.perf_counter() - begun)
                found[engine] = answer["n"].to_numpy()[:: num_rows // 1_000].tolist()
        ours, *others = (statistics.median(taken[WARM_UP:]) for taken in times.values())
        ratios = "".join(f"{other / ours:20.2f}" for other in others)
        print(f"{name:28}{ours:12.3f}{ratios}", flush=True)
        if any(rows != found["partgrid"] for rows in found.values()):
            print("  the orders differ")


if __name__ == "__main__":
    main()
