"""TPC-H in memory: partgrid beside DuckDB, Polars and DataFusion, all in one run on one machine.

Run `make bench-tpch`, or `python tests/benches/tpch.py --help`. Every engine is a process of its own that has loaded the tables once, into what it holds
itself: tiles, native tables, frames, record batches. The engines take turns at every query: one warm-up, then the best of the repetitions. Prints tables;
decides nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]
QUERIES = [
    (path.stem, path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("sql/tpch/q*.sql"))
]

# Each loads the tables of SOURCE and sets `ask`, a function that runs a text and fetches its whole answer as Arrow data.
ENGINES = {
    "partgrid": """
        import partgrid as pg
        session = pg.Session(threads=THREADS)
        for name, path in TABLES.items():
            session.register(name, pg.read_parquet(path))
        ask = lambda text: session.sql(text).to_arrow()
    """,
    "duckdb": """
        import duckdb
        connection = duckdb.connect()
        # Where the machine is busy, it would come between the reports.
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"SET threads = {THREADS}")
        for name, path in TABLES.items():
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{path}'")
        ask = lambda text: connection.sql(text).to_arrow_table()
    """,
    "polars": """
        import polars as pl
        context = pl.SQLContext({name: pl.read_parquet(path) for name, path in TABLES.items()})
        ask = lambda text: context.execute(text, eager=True).to_arrow()
    """,
    "datafusion": """
        import datafusion
        config = datafusion.SessionConfig().with_target_partitions(THREADS)
        context = datafusion.SessionContext(config)
        for name, path in TABLES.items():
            batches = context.read_parquet(path).collect()
            shares = [batches[number::THREADS] for number in range(THREADS)]
            context.register_record_batches(name, [share for share in shares if share])
        del batches, shares
        ask = lambda text: context.sql(text).to_arrow_table()
    """,
}

HEAD = """
    import json, os, sys, time
    from pathlib import Path
    THREADS = int(sys.argv[2])
    TABLES = {path.stem: str(path) for path in sorted(Path(sys.argv[1]).glob("*.parquet"))}
    # Those that answer, with this one.
    PROCESSES = [os.getpid()]
    def resident(name):
        texts = [Path(f"/proc/{process}/status").read_text() for process in PROCESSES]
        return sum(int(text.split(name + ":")[1].split()[0]) for text in texts) / 1024
    def forget_peak():
        for process in PROCESSES:
            Path(f"/proc/{process}/clear_refs").write_text("5")
    def used():
        texts = [Path(f"/proc/{process}/stat").read_text() for process in PROCESSES]
        return sum(int(ticks) for text in texts for ticks in text.rsplit(")")[-1].split()[11:13]) / os.sysconf("SC_CLK_TCK")
"""
TAIL = """
    loaded = resident("VmRSS")
    forget_peak()
    print(json.dumps({"loaded_mb": loaded}), flush=True)
    for line in sys.stdin:
        text = json.loads(line)
        cpu, start = used(), time.perf_counter()
        try:
            rows = ask(text).num_rows
            report = {"wall": time.perf_counter() - start, "cpu": used() - cpu, "rows": rows}
        except Exception as error:
            report = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(report | {"peak_mb": resident("VmHWM")}), flush=True)
"""


class Asked(Protocol):
    """Who answers one query after the other."""

    name: str

    @property
    def loaded_mb(self) -> float:
        """What it has in memory once it has loaded."""

    @property
    def peak_mb(self) -> float:
        """What it had at most."""

    def ask(self, text: str) -> dict[str, Any]:
        """Runs a query once."""


class Engine:
    """A process that answers one query after the other."""

    def __init__(self, name: str, source: Path, threads: int) -> None:
        """Starts it; it loads the tables."""
        self.name = name
        script = "\n".join(textwrap.dedent(part) for part in (HEAD, ENGINES[name], TAIL))
        limits = {"POLARS_MAX_THREADS": str(threads), "PARTGRID_MAX_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(source), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | limits,
        )
        self.loaded_mb: float = self.read()["loaded_mb"]
        self.peak_mb = self.loaded_mb

    def read(self) -> dict[str, Any]:
        """The next report."""
        assert self.process.stdout is not None
        report: dict[str, Any] = json.loads(self.process.stdout.readline())
        return report

    def ask(self, text: str) -> dict[str, Any]:
        """Runs a query once."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        report = self.read()
        self.peak_mb = report["peak_mb"]
        return report

    def stop(self) -> None:
        """Ends the process."""
        self.process.communicate()


def measure(engines: Sequence[Asked], text: str, repetitions: int) -> dict[str, dict[str, Any]]:
    """The best run of each engine, or its error, for one query; the engines take turns."""
    best: dict[str, dict[str, Any]] = {}
    for engine in engines:
        engine.ask(text)
    for _ in range(repetitions):
        for engine in engines:
            report = engine.ask(text)
            known = best.setdefault(engine.name, report)
            if "error" in report:
                continue
            for key in ("wall", "cpu"):
                known[key] = min(known[key], report[key])
    return best


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def tpch(folder: Path, scale: float) -> Path:
    """The tables of TPC-H, made once."""
    target = folder / f"tpch-{scale:g}"
    if not target.exists():
        making = folder / f"making-tpch-{scale:g}-{os.getpid()}"
        command = [str(Path(sys.executable).parent / "tpchgen-cli"), "parquet"]
        command += ["-s", f"{scale:g}", "--quiet", f"--output-dir={making}"]
        subprocess.run(command, check=True, capture_output=True)
        making.rename(target)
    return target


def table(engines: Sequence[Asked], results: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Prints the times, and those of the others in relation to the first engine's."""
    names = [engine.name for engine in engines]
    print(
        f"{'query':8}" + "".join(f"{name + ' ms':>16}" for name in names) + "   partgrid / others"
    )
    for query, best in results.items():
        walls = [best[name].get("wall") for name in names]
        cells = "".join(
            f"{'failed':>16}" if wall is None else f"{wall * 1e3:16.1f}" for wall in walls
        )
        own = walls[0]
        ratios = [f"{own / wall:6.2f}" if own and wall else "     -" for wall in walls[1:]]
        print(f"{query:8}{cells}   {' '.join(ratios)}")
    for key, title in (("wall", "mean"), ("cpu", "mean cpu")):
        means = [
            mean([max(best[name][key], 1e-4) for best in results.values() if key in best[name]])
            for name in names
        ]
        cells = "".join(f"{value * 1e3:16.1f}" for value in means)
        print(f"{title:8}{cells}   {' '.join(f'{means[0] / value:6.2f}' for value in means[1:])}")
    print(f"{'loaded':8}" + "".join(f"{engine.loaded_mb:13.0f} MB" for engine in engines))
    print(f"{'peak':8}" + "".join(f"{engine.peak_mb:13.0f} MB" for engine in engines))
    for query, best in results.items():
        for name, report in best.items():
            if "error" in report:
                print(f"{query} {name}: {report['error']}")


def main() -> None:
    """Makes the data, runs all engines, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cache = Path.home() / ".cache" / "partgrid" / "bench"
    parser.add_argument("--data", type=Path, default=cache, help="where made data is kept")
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor of TPC-H")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--engines", default=",".join(ENGINES), help="the first is compared with the others"
    )
    parser.add_argument("--queries", default="", help="numbers, with commas; all by default")
    wishes = parser.parse_args()
    wishes.data.mkdir(parents=True, exist_ok=True)
    source = tpch(wishes.data, wishes.scale)
    wanted = {f"q{int(number):02}" for number in wishes.queries.split(",") if number}
    engines = [Engine(name, source, wishes.threads) for name in wishes.engines.split(",")]
    results = {
        name: measure(engines, text, wishes.repetitions)
        for name, text in QUERIES
        if not wanted or name in wanted
    }
    print(
        f"TPC-H, scale {wishes.scale:g}, {wishes.threads} threads, in memory, best of {wishes.repetitions}"
    )
    table(engines, results)
    for engine in engines:
        engine.stop()


if __name__ == "__main__":
    main()
