"""PIVOT of few values and of many, in few groups and in many, beside DuckDB and Polars (`DataFrame.pivot`).

Prints the median of each engine, taken in turn in one run, and the ratio of the medians. Needs duckdb and polars beside partgrid:

    python tests/benches/pivot.py [ROWS [ROUNDS]]
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
TEXT = "PIVOT t ON k USING sum(x) GROUP BY g"


def table(num_rows: int, num_values: int, num_groups: int) -> pa.Table:
    """Rows in no order; where there are as many groups as would hold all rows, one for each value of each."""
    random = np.random.default_rng(1)
    if num_values * num_groups == num_rows:
        places = random.permutation(num_rows)
        groups, values = places // num_values, places % num_values
    else:
        groups = random.integers(0, num_groups, num_rows)
        values = random.integers(0, num_values, num_rows)
    return pa.table({"g": groups, "k": values, "x": random.random(num_rows)})


def engines(rows: pa.Table) -> dict[str, Callable[[], tuple[int, int]]]:
    """The number of rows and columns of what each makes of them."""
    session = pg.Session(threads=2)
    cut = pa.Table.from_batches(rows.to_batches(max_chunksize=250_000))
    session.register("t", pg.from_arrow(cut))
    connection = duckdb.connect(config={"threads": 2})
    connection.register("source", rows)
    connection.execute("CREATE TABLE t AS SELECT * FROM source")
    frame = polars.from_arrow(rows)

    def by_partgrid() -> tuple[int, int]:
        return session.sql(TEXT).to_arrow().shape

    def by_duckdb() -> tuple[int, int]:
        return connection.sql(TEXT).to_arrow_table().shape

    def by_polars() -> tuple[int, int]:
        return frame.pivot("k", index="g", values="x", aggregate_function="sum").shape

    return {"partgrid": by_partgrid, "DuckDB": by_duckdb, "Polars": by_polars}


def main() -> None:
    """Measures all and prints a table of each."""
    num_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000
    rounds = int(next(iter(sys.argv[2:]), "7"))
    for num_values, num_groups in (
        (4, 1_000),
        (12, 1_000),
        (50, 1_000),
        (200, 1_000),
        (50, num_rows // 50),
    ):
        run = engines(table(num_rows, num_values, num_groups))
        times: dict[str, list[float]] = {engine: [] for engine in run}
        shapes: dict[str, tuple[int, int]] = {}
        for _ in range(rounds + WARM_UP):
            for engine, query in run.items():
                begun = time.perf_counter()
                shapes[engine] = query()
                times[engine].append(time.perf_counter() - begun)
        ours = statistics.median(times["partgrid"][WARM_UP:])
        print(f"\n{num_rows:,} rows, {num_values} values, {num_groups:,} groups, {rounds} rounds")
        print(f"{'':12}{'median s':>10}{'median / partgrid':>19}{'rows, columns':>20}")
        for engine, all_times in times.items():
            median = statistics.median(all_times[WARM_UP:])
            print(f"{engine:12}{median:>10.3f}{median / ours:>19.2f}{shapes[engine]!s:>20}")
        if len(set(shapes.values())) > 1:
            sys.exit(f"the engines do not agree: {shapes}")


if __name__ == "__main__":
    main()
