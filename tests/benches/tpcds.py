"""TPC-DS in memory: partgrid beside DuckDB and, if asked for, Polars and DataFusion, all in one run on one machine.

Run `make bench-tpcds`, or `python tests/benches/tpcds.py --help`. Comes in: the tables and the 99 texts of DuckDB's extension, which `--make` writes (in the
environment of the peer `tpcds`: the extension is a package of its own for DuckDB 1.5). Goes out: the table of `tpch.py`, in which engines take turns at every
query: one warm-up, then the best of the repetitions. Decides nothing.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import tpch


def make(folder: Path, scale: float) -> None:
    """Writes the tables and the texts, once."""
    import duckdb  # noqa: PLC0415 - of the peer's environment
    import duckdb_extension_tpcds  # noqa: PLC0415 - of the peer's environment

    target = source(folder, scale)
    if target.exists():
        return
    making = folder / f"making-tpcds-{scale:g}-{os.getpid()}"
    making.mkdir(parents=True)
    connection = duckdb.connect()
    [extension] = Path(duckdb_extension_tpcds.__file__).parent.rglob("tpcds.duckdb_extension")
    connection.execute(f"LOAD '{extension}'")
    connection.execute(f"CALL dsdgen(sf={scale})")
    for (name,) in connection.execute(
        "SELECT table_name FROM information_schema.tables"
    ).fetchall():
        connection.execute(f"COPY {name} TO '{making}/{name}.parquet' (ROW_GROUP_SIZE 131072)")
    texts = connection.execute(
        "SELECT query_nr, query FROM tpcds_queries() ORDER BY query_nr"
    ).fetchall()
    (making / "queries.json").write_text(json.dumps([list(each) for each in texts]))
    making.rename(target)


def source(folder: Path, scale: float) -> Path:
    """Where they are."""
    return folder / f"tpcds-{scale:g}"


def main() -> None:
    """Makes the data, or runs the engines and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cache = Path.home() / ".cache" / "partgrid" / "bench"
    parser.add_argument("--make", action="store_true", help="only make the data")
    parser.add_argument("--data", type=Path, default=cache, help="where made data is kept")
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor of TPC-DS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--engines", default="partgrid,duckdb", help="the first is compared with the others"
    )
    parser.add_argument("--queries", default="", help="numbers, with commas; all by default")
    wishes = parser.parse_args()
    if wishes.make:
        make(wishes.data, wishes.scale)
        return
    tables = source(wishes.data, wishes.scale)
    texts = json.loads((tables / "queries.json").read_text())
    wanted = {int(number) for number in wishes.queries.split(",") if number}
    engines = [tpch.Engine(name, tables, wishes.threads) for name in wishes.engines.split(",")]
    results = {
        f"q{number:02}": tpch.measure(engines, text, wishes.repetitions)
        for number, text in texts
        if not wanted or number in wanted
    }
    print(
        f"TPC-DS, scale {wishes.scale:g}, {wishes.threads} threads, in memory, best of {wishes.repetitions}"
    )
    tpch.table(engines, results)
    for engine in engines:
        engine.stop()


if __name__ == "__main__":
    main()
