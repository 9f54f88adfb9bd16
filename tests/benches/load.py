"""How fast Parquet files are loaded, beside the peers, all in one run on one machine.

Run `make bench-load`, or `python tests/benches/load.py --help`. Every engine runs in a process of its own: one warm-up, then the median of the
repetitions. Prints tables; decides nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
from pathlib import Path

ROWS_OF_SMALL = 1_000
COLUMNS_OF_SMALL = 16

# Each sets `load`, a function without arguments that loads SOURCE whole.
WHOLE = {
    "partgrid": "import partgrid as pg\nload = lambda: pg.read_parquet(SOURCE)",
    "polars": "import polars as pl\nload = lambda: pl.read_parquet(SOURCE + '/*.parquet')",
    "datafusion": """
        import datafusion
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(THREADS))
        context.register_parquet("t", SOURCE)
        load = lambda: context.table("t").collect()
    """,
    "duckdb": """
        import duckdb
        def load():
            connection = duckdb.connect()
            connection.execute(f"SET threads = {THREADS}")
            connection.execute(f"CREATE TABLE t AS SELECT * FROM '{SOURCE}/*.parquet'")
            return connection
    """,
    "pyarrow": "import pyarrow.parquet as pq\nload = lambda: pq.read_table(SOURCE)",
}
SMALL = {name: WHOLE[name] for name in ("partgrid", "polars", "duckdb", "pyarrow")}
PLANNING = {"partgrid": "import partgrid as pg\nload = lambda: pg.read_parquet(SOURCE, columns=[])"}
SPILL = """
    import partgrid as pg
    grid = pg.read_parquet(SOURCE, memory_limit="512MB", spill_to=SPILL)
    report(resident_mb=resident("VmHWM") // 2**20, tiles_mb=grid.nbytes // 2**20)
"""
PEAK = """
    import partgrid as pg
    before = resident("VmRSS")
    grid = pg.read_parquet(SOURCE)
    report(peak_mb=(resident("VmHWM") - before) // 2**20, tiles_mb=grid.nbytes // 2**20)
"""

HEAD = """
    import json, os, statistics, sys, time
    SOURCE, SPILL, REPETITIONS = sys.argv[1], sys.argv[2], int(sys.argv[3])
    THREADS = len(os.sched_getaffinity(0))
    def resident(name):
        text = open("/proc/self/status").read()
        return int(text.split(name + ":")[1].split()[0]) * 1024
    def report(**values):
        print(json.dumps(values))
"""
TAIL = """
    start = time.perf_counter(); result = load(); first = time.perf_counter() - start
    del result
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter(); result = load(); times.append(time.perf_counter() - start)
        del result
    report(median=statistics.median(times), least=min(times), first=first)
"""


def run(body: str, source: Path, spill: Path, repetitions: int, *, timed: bool) -> dict[str, float]:
    """Runs one body in a process of its own."""
    parts = [HEAD, body, TAIL if timed else ""]
    script = "\n".join(textwrap.dedent(part) for part in parts)
    command = [sys.executable, "-c", script, str(source), str(spill), str(repetitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()
        print(f"  did not run: {last[-1] if last else done.returncode}")
        return {}
    values: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return values


def table(title: str, bodies: dict[str, str], source: Path, spill: Path, repetitions: int) -> None:
    """Prints a line for each engine, with its time in relation to partgrid's."""
    print(f"\n{title} ({repetitions} repetitions after one warm-up)")
    print(f"  {'':12} {'first':>9} {'median':>9} {'least':>9}  {'partgrid is':>12}")
    own = 0.0
    for name, body in bodies.items():
        values = run(body, source, spill, repetitions, timed=True)
        if not values:
            continue
        own = own or values["median"]
        times = (f"{values[key]:8.3f}s" for key in ("first", "median", "least"))
        print(f"  {name:12} {' '.join(times)}  {values['median'] / own:10.2f} x")


def lineitem(folder: Path, scale: float) -> Path:
    """TPC-H lineitem, made once."""
    target = folder / f"lineitem-{scale:g}"
    if not target.exists():
        making = folder / f"making-{scale:g}"
        command = [
            str(Path(sys.executable).parent / "tpchgen-cli"),
            "parquet",
            "-s",
            f"{scale:g}",
            "--tables=lineitem",
            f"--output-dir={making}",
        ]
        subprocess.run(command, check=True, capture_output=True)
        making.rename(target)
    return target


def small_files(folder: Path, count: int) -> Path:
    """Many files of a thousand rows, made once."""
    import numpy as np  # noqa: PLC0415 - only here
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    target = folder / f"small-{count}"
    if not target.exists():
        making = folder / f"making-{count}"
        making.mkdir(parents=True)
        columns = {
            f"c{number}": np.arange(ROWS_OF_SMALL) * number for number in range(COLUMNS_OF_SMALL)
        }
        pq.write_table(pa.table(columns), making / "00000.parquet")
        content = (making / "00000.parquet").read_bytes()
        for number in range(1, count):
            (making / f"{number:05}.parquet").write_bytes(content)
        making.rename(target)
    return target


def main() -> None:
    """Makes the data, runs all engines, prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path.home() / ".cache" / "partgrid" / "bench",
        help="where made data is kept",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor of TPC-H")
    parser.add_argument("--files", type=int, default=20_000, help="number of small files")
    parser.add_argument("--repetitions", type=int, default=5)
    wishes = parser.parse_args()
    wishes.data.mkdir(parents=True, exist_ok=True)
    spill, repetitions = wishes.data, wishes.repetitions
    source = lineitem(wishes.data, wishes.scale)
    table(f"lineitem, scale {wishes.scale:g}, all columns", WHOLE, source, spill, repetitions)
    values = run(PEAK, source, spill, repetitions, timed=False)
    if values:
        print(
            f"  peak {values['peak_mb']:.0f} MB for {values['tiles_mb']:.0f} MB of tiles: {values['peak_mb'] / values['tiles_mb']:.2f} x"
        )
    values = run(SPILL, source, spill, repetitions, timed=False)
    if values:
        print(
            f"  memory_limit 512MB: {values['resident_mb']:.0f} MB resident at most for {values['tiles_mb']:.0f} MB of tiles"
        )
    many = small_files(wishes.data, wishes.files)
    title = f"{wishes.files} files of {ROWS_OF_SMALL} rows"
    table(
        f"{title}, planning only (the first time without cached footers)",
        PLANNING,
        many,
        spill,
        repetitions,
    )
    table(f"{title}, all columns", SMALL, many, spill, repetitions)


if __name__ == "__main__":
    main()
