"""ASOF JOIN of trades and quotes, and without keys, beside DuckDB and Polars (`join_asof`).

Prints the median and the best time of each engine, taken in turn in one run, and the ratio of the medians. Needs duckdb and polars beside partgrid:

    python tests/benches/asof.py [ROWS [ROUNDS]]
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


def tables(num_rows: int, num_symbols: int) -> tuple[pa.Table, pa.Table]:
    """Trades and twice as many quotes, in the order of time, as they come."""
    random = np.random.default_rng(1)
    symbols = pa.array([f"S{number:05}" for number in range(num_symbols)])

    def made(count: int, value: str) -> pa.Table:
        times = np.sort(random.integers(0, 86_400_000_000, count))
        return pa.table(
            {
                "symbol": symbols.take(pa.array(random.integers(0, num_symbols, count))),
                "time": pa.array(times, pa.timestamp("us")),
                value: random.random(count),
            }
        )

    return made(num_rows, "size"), made(2 * num_rows, "price")


def engines(trades: pa.Table, quotes: pa.Table, by: bool) -> dict[str, Callable[[], float]]:
    """What each engine finds: the sum of all prices."""
    keys = "t.symbol = q.symbol AND " if by else ""
    text = f"SELECT sum(q.price) AS s FROM trades t ASOF JOIN quotes q ON {keys}t.time >= q.time"
    session = pg.Session(threads=2)
    session.register("trades", pg.from_arrow(trades))
    session.register("quotes", pg.from_arrow(quotes))
    connection = duckdb.connect(config={"threads": 2})
    for name, table in (("trades", trades), ("quotes", quotes)):
        connection.register("source", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM source")
    left, right = polars.from_arrow(trades), polars.from_arrow(quotes)

    def by_partgrid() -> float:
        return float(session.sql(text).to_arrow()["s"][0].as_py())

    def by_polars() -> float:
        joined = left.join_asof(right, on="time", by="symbol" if by else None)
        return float(joined["price"].sum())

    return {
        "partgrid": by_partgrid,
        "DuckDB": lambda: connection.sql(text).fetchall()[0][0],
        "Polars": by_polars,
    }


def main() -> None:
    """Measures all and prints a table of each."""
    num_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rounds = int(next(iter(sys.argv[2:]), "7"))
    for name, num_symbols, by in (
        ("of 1,000 symbols", 1_000, True),
        ("of 100,000 symbols", 100_000, True),
        ("without keys", 10, False),
    ):
        run = engines(*tables(num_rows, num_symbols), by)
        times: dict[str, list[float]] = {engine: [] for engine in run}
        sums: dict[str, float] = {}
        for _ in range(rounds + WARM_UP):
            for engine, query in run.items():
                begun = time.perf_counter()
                sums[engine] = query()
                times[engine].append(time.perf_counter() - begun)
        ours = statistics.median(times["partgrid"][WARM_UP:])
        print(f"\n{num_rows:,} trades beside {2 * num_rows:,} quotes, {name}, {rounds} rounds")
        print(f"{'':12}{'median s':>10}{'best s':>10}{'median / partgrid':>19}{'sum':>18}")
        for engine, all_times in times.items():
            found = all_times[WARM_UP:]
            median = statistics.median(found)
            print(
                f"{engine:12}{median:10.3f}{min(found):10.3f}{median / ours:19.2f}{sums[engine]:18.3f}"
            )


if __name__ == "__main__":
    main()
