"""Small queries: a group-by over 100 rows, asked again and again, and with another number each time.

Prints the median and the best time of partgrid, DuckDB, DataFusion and Polars, taken in turn in one run. Needs duckdb, datafusion and polars beside partgrid:

    python tests/benches/small.py [ROUNDS]
"""

import itertools
import statistics
import sys
import time
from collections.abc import Callable

import datafusion
import duckdb
import polars
import pyarrow as pa

import partgrid as pg

WARM_UP = 50


def engines(table: pa.Table) -> dict[str, Callable[[str], object]]:
    """What runs a text in each engine and fetches its answer as Arrow data."""
    session = pg.Session(threads=2)
    session.register("t", pg.from_arrow(table))
    connection = duckdb.connect(config={"threads": 2})
    connection.register("source", table)
    connection.execute("CREATE TABLE t AS SELECT * FROM source")
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(2))
    context.register_record_batches("t", [table.to_batches()])
    frames = polars.SQLContext(t=polars.from_arrow(table), eager=True)
    return {
        "partgrid": lambda sql: session.sql(sql).to_arrow(),
        "DuckDB": lambda sql: connection.sql(sql).to_arrow_table(),
        "DataFusion": lambda sql: context.sql(sql).to_arrow_table(),
        "Polars": frames.execute,
    }


def measure(
    run: dict[str, Callable[[str], object]], texts: Callable[[int], str], rounds: int
) -> dict[str, list[float]]:
    """The seconds of each engine, round by round."""
    times: dict[str, list[float]] = {name: [] for name in run}
    for number in range(rounds + WARM_UP):
        for name, query in run.items():
            begun = time.perf_counter()
            query(texts(number))
            times[name].append(time.perf_counter() - begun)
    return {name: found[WARM_UP:] for name, found in times.items()}


def main() -> None:
    """Measures both kinds of texts and prints a table of each."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    table = pa.table(
        {"g": [row % 7 for row in range(100)], "x": [float(row) for row in range(100)]}
    )
    run = engines(table)
    fresh = itertools.count()
    kinds = {
        "the same text each time": lambda _: "SELECT g, sum(x) AS s FROM t GROUP BY g",
        "another number each time": lambda _: (
            f"SELECT g, sum(x) AS s FROM t WHERE x <> {next(fresh) + 1000} GROUP BY g"
        ),
    }
    for kind, texts in kinds.items():
        times = measure(run, texts, rounds)
        ours = statistics.median(times["partgrid"])
        print(f"\n{kind}, {rounds} rounds")
        print(f"{'':12}{'median ms':>10}{'best ms':>10}{'median / partgrid':>19}")
        for name, found in times.items():
            median = statistics.median(found)
            print(f"{name:12}{median * 1e3:10.3f}{min(found) * 1e3:10.3f}{median / ours:19.2f}")


if __name__ == "__main__":
    main()
