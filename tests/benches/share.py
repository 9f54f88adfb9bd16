"""Handing tiles to another process: opened in shared memory, beside DoGet and pickling of the same table, and `ray.get` of it where Ray is.

Run by `make bench-share`, without Ray, and by `make bench-share-ray`, in the environment of that peer. Figures are medians after a warm-up.
"opened" is from the pickled tile to a `pyarrow.RecordBatch` over its memory, with a new connection each time; "read" is the first pass over the values, which
brings the pages into the process. Of DoGet, from the ticket of the tile to a `pyarrow.Table`: by pyarrow.flight, over a connection of loopback that is there
already, from a server in this process. Of pickling, the sender's and the receiver's time; the bytes go through a pipe. Of Ray, what a process of its own needs
for the table that another one has put.
"""

from __future__ import annotations

import gc
import importlib.util
import pickle
import statistics
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import partgrid as pg

HAS_RAY = importlib.util.find_spec("ray") is not None
ROUNDS = 21
# Of what copies every byte.
FETCHES = 5

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

FETCHER = f"""
import statistics, sys, time
from pyarrow import flight
took = []
with flight.connect(sys.argv[1]) as client:
    [end] = client.get_flight_info(flight.FlightDescriptor.for_path("tile")).endpoints
    for number in range({FETCHES} + 1):
        started = time.perf_counter()
        table = client.do_get(end.ticket).read_all()
        took.append(time.perf_counter() - started)
        del table
print(statistics.median(took[1:]))
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


def fetched(grid: pg.Grid) -> float:
    """Seconds to fetch the only tile elsewhere by Flight."""
    with pg.Server({"tile": grid}) as server:
        command = [sys.executable, "-c", FETCHER, server.uri]
        done = subprocess.run(command, stdout=-1, check=True)
    return float(done.stdout)


def pickled(table: pa.Table) -> float:
    """Seconds to hand the table over by pickling it."""
    times = []
    for _ in range(FETCHES):
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


def read(table: pa.Table) -> None:
    """The pass over the values that the reader of shared memory makes."""
    for column in table.columns:
        if pa.types.is_string(column.type):
            pc.sum(pc.binary_length(column))
        else:
            pc.min_max(column)


def get_all(references: list[object]) -> tuple[float, float, float]:
    """Runs in a process of Ray: seconds of `ray.get` of the first, of the first pass over its values, and of the slowest `ray.get`."""
    import ray  # noqa: PLC0415 - optional

    opened, passes = [], []
    for number in range(ROUNDS + 1):
        started = time.perf_counter()
        table = ray.get(references[0])
        done = time.perf_counter()
        read(table)
        ended = time.perf_counter()
        del table
        gc.collect()
        if number:
            opened.append(done - started)
            passes.append(ended - done)
    return statistics.median(opened), statistics.median(passes), max(opened)


def by_ray(table: pa.Table) -> list[str]:
    """Cells of the table for the same values in Ray's object store."""
    import ray  # noqa: PLC0415 - optional

    started = time.perf_counter()
    reference = ray.put(table)
    copied = time.perf_counter() - started
    opened, first_pass, slowest = ray.get(ray.remote(get_all).remote([reference]))
    times = [f"{copied * 1e3:,.1f} ms", f"{opened * 1e3:.3f} ms"]
    return [*times, f"{slowest * 1e3:.3f} ms", f"{first_pass * 1e3:,.1f} ms"]


def main() -> None:
    """Prints one table."""
    head = ["tile", "bytes", "to_shared, once", "opened", "slowest", "read"]
    head += ["DoGet instead", "pickled instead"]
    if HAS_RAY:
        import ray  # noqa: PLC0415 - optional

        ray.init(num_cpus=1, object_store_memory=4 << 30, include_dashboard=False)
        head += ["ray.put, once", "ray.get of the same table", "slowest", "read"]
    print(f"| {' | '.join(head)} |")
    print("| --- " * len(head) + "|")
    for num_bytes in (1 << 20, 64 << 20, 1 << 30):
        for name, table in tables(num_bytes).items():
            private = pg.from_arrow(table.combine_chunks())
            started = time.perf_counter()
            grid = private.to_shared()
            copied = time.perf_counter() - started
            opened, read, slowest = in_shared_memory(grid)
            cells = [name, f"{grid.nbytes:,}", f"{copied * 1e3:,.1f} ms", f"{opened * 1e3:.3f} ms"]
            cells += [f"{slowest * 1e3:.3f} ms", f"{read * 1e3:,.1f} ms"]
            cells.append(f"{fetched(private) * 1e3:,.1f} ms")
            cells.append(f"{pickled(table) * 1e3:,.1f} ms")
            if HAS_RAY:
                cells += by_ray(table.combine_chunks())
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
