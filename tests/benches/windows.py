"""Windows over a million rows in no order: numbers, ranks and sums so far, frames that slide, whole partitions, beside DuckDB.

Prints the median of each engine, taken in turn in one run, and the ratio of the medians. Needs duckdb beside partgrid:

    python tests/benches/windows.py [ROWS [ROUNDS]]
"""

import statistics
import sys
import time
from collections.abc import Callable

import duckdb
import numpy as np
import pyarrow as pa

import partgrid as pg

WARM_UP = 2
NUM_PARTITIONS = 1_000

WINDOWS = {
    "row_number": "row_number() OVER (PARTITION BY g ORDER BY o)",
    "rank of few values": "rank() OVER (PARTITION BY g ORDER BY i)",
    "sum so far": "sum(i) OVER (PARTITION BY g ORDER BY o)",
    "sum so far, ROWS": "sum(x) OVER (PARTITION BY g ORDER BY o ROWS UNBOUNDED PRECEDING)",
    "max so far": "max(i) OVER (PARTITION BY g ORDER BY o)",
    "sum so far of all rows": "sum(i) OVER (ORDER BY o)",
    "lag": "lag(x) OVER (PARTITION BY g ORDER BY o)",
    "sum of seven rows": "sum(i) OVER (PARTITION BY g ORDER BY o ROWS 6 PRECEDING)",
    "sum of the partition": "sum(i) OVER (PARTITION BY g)",
}


def table(num_rows: int) -> pa.Table:
    """Rows in no order."""
    random = np.random.default_rng(1)
    return pa.table(
        {
            "g": random.integers(0, NUM_PARTITIONS, num_rows),
            "o": random.permutation(num_rows),
            "i": random.integers(0, 100, num_rows),
            "x": random.random(num_rows),
        }
    )


def engines(rows: pa.Table) -> dict[str, Callable[[str], float]]:
    """What each finds: the sum of all values of a window."""
    session = pg.Session(threads=2)
    session.register("t", pg.from_arrow(rows))
    connection = duckdb.connect(config={"threads": 2})
    connection.register("source", rows)
    connection.execute("CREATE TABLE t AS SELECT * FROM source")
    return {
        "partgrid": lambda text: float(session.sql(text).to_arrow()["s"][0].as_py()),
        "DuckDB": lambda text: float(connection.sql(text).fetchall()[0][0]),
    }


def main() -> None:
    """Measures all and prints a row of each."""
    num_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rounds = int(next(iter(sys.argv[2:]), "5"))
    run = engines(table(num_rows))
    print(f"{num_rows:,} rows, {NUM_PARTITIONS:,} partitions, medians of {rounds} rounds")
    print(f"{'':24}{'partgrid s':>12}{'DuckDB s':>12}{'DuckDB / partgrid':>20}")
    for name, window in WINDOWS.items():
        text = f"SELECT sum(w) AS s FROM (SELECT {window} AS w FROM t)"
        times: dict[str, list[float]] = {engine: [] for engine in run}
        sums: dict[str, float] = {}
        for _ in range(rounds + WARM_UP):
            for engine, query in run.items():
                begun = time.perf_counter()
                sums[engine] = query(text)
                times[engine].append(time.perf_counter() - begun)
        ours, other = (statistics.median(found[WARM_UP:]) for found in times.values())
        print(f"{name:24}{ours:12.3f}{other:12.3f}{other / ours:20.2f}", flush=True)
        if abs(sums["partgrid"] - sums["DuckDB"]) > 1e-6 * abs(sums["DuckDB"]):
            print(f"  the sums differ: {sums}")


if __name__ == "__main__":
    main()
