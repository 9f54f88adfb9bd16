"""Handing tiles to another process: opened in shared memory, beside pickling the same table. Medians after a warm-up.

Run by `make bench-share`. "opened" is from the pickled tile to a `pyarrow.RecordBatch` over its memory, with a new connection each time; "read" is the first
pass over the values, which brings the pages into the process. Of pickling, the sender's and the receiver's time; the bytes go through a pipe.
"""

from __future__ import annotations

import pickle
import statistics
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa

import partgrid as pg

ROUNDS = 21

READER = f"""
import gc, pickle, statistics, sys, time
import numpy as np, pyarrow as pa, pyarrow.compute as pc, partgrid as pg
sent = pickle.load(sys.stdin.buffer)
opened, read = [], []
for number in range({ROUNDS} + 1):
    started = time.perf_counter()
    batch = pa.record_batch(pickle.loads(sent))
    done = time.perf_counter()
    for column in batch.columns:
        pc.min_max(column) if not pa.types.is_string(column.type) else pc.sum(pc.binary_length(column))
    ended = time.perf_counter()
    del batch, column
    gc.collect()
    if number:
        opened.append(done - started)
        read.append(ended - done)
print(statistics.median(opened), statistics.median(read), max(opened))
"""

RECEIVER = """
import pickle, sys, pyarrow
for _ in range(2):
    pickle.load(sys.stdin.buffer)
    print("received", flush=True)
"""


def tables(num_bytes: int) -> dict[str, pa.Table]:
    """Tables of so many bytes of values."""
    rows = num_bytes // 16
    floats = {name: np.random.default_rng(1).random(rows) for name in "ab"}
    words = pa.array(["a text of 24 characters"] * (1 << 16))
    words = pa.concat_arrays([words] * max(1, num_bytes // (28 << 16)))
    return {"2 x float64": pa.table(floats), "text": pa.table({"t": words})}


def in_shared_memory(grid: pg.Grid) -> tuple[float, float, float]:
    """Seconds to open the only tile elsewhere, to read it then, and the slowest opening."""
    sent = pickle.dumps(pickle.dumps(grid.tile(0)))
    done = subprocess.run([sys.executable, "-c", READER], input=sent, stdout=-1, check=True)
    opened, read, slowest = map(float, done.stdout.split())
    return opened, read, slowest


def pickled(table: pa.Table) -> float:
    """Seconds to hand the table over by pickling it."""
    times = []
    for _ in range(5):
        receiver = subprocess.Popen([sys.executable, "-c", RECEIVER], stdin=-1, stdout=-1)
        pickle.dump(pa.table({"warm": [1]}), receiver.stdin)
        receiver.stdin.flush()
        receiver.stdout.readline()
        started = time.perf_counter()
        pickle.dump(table, receiver.stdin, protocol=5)
        receiver.stdin.flush()
        receiver.stdout.readline()
        times.append(time.perf_counter() - started)
        receiver.communicate()
    return statistics.median(times)


def main() -> None:
    """Prints one table."""
    print("| tile | bytes | to_shared, once | opened | slowest | read | pickled instead |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for num_bytes in (1 << 20, 64 << 20, 1 << 30):
        for name, table in tables(num_bytes).items():
            private = pg.from_arrow(table.combine_chunks())
            started = time.perf_counter()
            grid = private.to_shared()
            copied = time.perf_counter() - started
            opened, read, slowest = in_shared_memory(grid)
            cells = [name, f"{grid.nbytes:,}", f"{copied * 1e3:,.1f} ms", f"{opened * 1e3:.3f} ms"]
            cells += [f"{slowest * 1e3:.3f} ms", f"{read * 1e3:,.1f} ms"]
            cells.append(f"{pickled(table) * 1e3:,.1f} ms")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
