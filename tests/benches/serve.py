"""What a server gives over loopback: bytes of DoGet beside pyarrow's own Flight server, and small queries of many clients.

Comes in: how many small queries each of 100 clients asks; 1,000 by default. Goes out: tables on standard output. Each figure of bytes is the median of nine
rounds after a warm-up, and both servers are measured in the same run, in turns, each in a process of its own, by the same client (pyarrow.flight). Ends with 1
if an answer to a small query was lost, wrong or an error, or if one of a hundred took more than 20 times the median.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import repeat

import numpy as np
import pyarrow as pa
from adbc_driver_flightsql import dbapi
from pyarrow import flight

import partgrid as pg

ROUNDS = 9
# The most that 99 of 100 small queries may take, in medians.
MOST_MEDIANS = 20
ROWS = 1 << 20
TILES = 16


def word(number: int) -> str:
    """The text of a row."""
    return f"row {number:09d} of the table"


def tables() -> dict[str, pa.Table]:
    """256 MiB of floats, and about as much of text."""
    random = np.random.default_rng(1)
    numbers = {f"x{column}": random.random(ROWS * TILES // 8) for column in range(16)}
    words = [word(number) for number in range(ROWS)]
    text = {"key": np.arange(ROWS), "text": words, "other": words, "third": words}
    return {"floats": pa.table(numbers), "text": pa.table(text)}


def cut(table: pa.Table) -> list[pa.RecordBatch]:
    """Sixteen tiles."""
    rows = -(-table.num_rows // TILES)
    return table.combine_chunks().to_batches(max_chunksize=rows)


class Peer(flight.FlightServerBase):
    """pyarrow's server over the same batches: one endpoint for each."""

    def __init__(self, all_tables: dict[str, pa.Table]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.cut = {name: cut(table) for name, table in all_tables.items()}

    def get_flight_info(self, _context: object, descriptor: flight.FlightDescriptor) -> object:
        """A ticket for each tile."""
        name = descriptor.path[0].decode()
        batches = self.cut[name]
        tickets = [f"{name} {number}".encode() for number in range(len(batches))]
        ends = [flight.FlightEndpoint(ticket, []) for ticket in tickets]
        return flight.FlightInfo(batches[0].schema, descriptor, ends, -1, -1)

    def do_get(self, _context: object, ticket: flight.Ticket) -> object:
        """The rows of a tile."""
        name, number = ticket.ticket.decode().split()
        batch = self.cut[name][int(number)]
        # Slices as large as those that partgrid sends.
        rows = max(1, batch.num_rows * (2 << 20) // batch.nbytes)
        return flight.RecordBatchStream(pa.Table.from_batches([batch]).to_reader(rows))


def serve(which: str) -> None:
    """The process of one of the servers: says its URI, and ends with its standard input."""
    if which == "pyarrow":
        peer = Peer(tables())
        print(f"grpc://127.0.0.1:{peer.port}", flush=True)
        sys.stdin.read()
        peer.shutdown()
        return
    grids = {
        name: pg.from_arrow(pa.Table.from_batches(cut(table))) for name, table in tables().items()
    }
    with pg.Server(grids) as server:
        print(server.uri, flush=True)
        sys.stdin.read()


class Served:
    """One of the servers in a process of its own."""

    def __init__(self, which: str) -> None:
        command = [sys.executable, __file__, which]
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
        assert self.process.stdout is not None
        self.uri = self.process.stdout.readline().strip()

    def close(self) -> None:
        """Ends it."""
        self.process.communicate("")


def fetch(uri: str, name: str) -> int:
    """All bytes of a table, one endpoint after the other."""
    with flight.connect(uri) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path(name))
        read = [client.do_get(end.ticket).read_all() for end in info.endpoints]
        return sum(part.nbytes for part in read)


def in_turns(works: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds of each, in turns, after a warm-up: what slows the machine for a while slows all."""
    times: list[list[float]] = [[] for _ in works]
    for number in range(ROUNDS + 1):
        for work, taken in zip(works, times, strict=True):
            begun = time.perf_counter()
            work()
            if number:
                taken.append(time.perf_counter() - begun)
    return [statistics.median(taken) for taken in times]


def throughput(ours: str, theirs: str) -> None:
    """Prints the table of bytes."""
    print(f"DoGet over loopback, GB/s (median of {ROUNDS}, in turns)")
    print(f"{'table':8} {'MB':>6} {'partgrid':>9} {'pyarrow':>9} {'ratio':>6}")
    for name in tables():
        num_bytes = fetch(ours, name)
        taken = in_turns([partial(fetch, uri, name) for uri in (ours, theirs)])
        rates = [num_bytes / seconds / 1e9 for seconds in taken]
        print(
            f"{name:8} {num_bytes / 1e6:6.0f} {rates[0]:9.2f} {rates[1]:9.2f} {rates[0] / rates[1]:6.2f}"
        )


def ask(uri: str, number: int, queries: int) -> tuple[list[float], int, list[str]]:
    """One client: the seconds of each query, how many answers were right, and what failed."""
    took, right, failed = [], 0, []
    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        for turn in range(queries):
            key = (number * queries + turn) % 1000
            begun = time.perf_counter()
            try:
                cursor.execute(f"SELECT key, text FROM text WHERE key = {key}")
                right += cursor.fetchall() == [(key, word(key))]
            except dbapi.Error as error:
                failed.append(str(error))
            took.append(time.perf_counter() - begun)
    return took, right, failed


def ask_at_once(uri: str, numbers: range, queries: int) -> list[tuple[list[float], int, list[str]]]:
    """Some of the clients, each in a thread."""
    with ThreadPoolExecutor(len(numbers)) as threads:
        return list(threads.map(lambda number: ask(uri, number, queries), numbers))


def small_queries(uri: str, clients: int, queries: int) -> bool:
    """Prints what many clients get at once; says whether it is within the bounds. One process would keep them waiting for one another."""
    processes = os.cpu_count() or 1
    shares = [range(clients)[first::processes] for first in range(processes)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(ask_at_once, repeat(uri), shares, repeat(1)))
        begun = time.perf_counter()
        answers = [
            each
            for part in pool.map(ask_at_once, repeat(uri), shares, repeat(queries))
            for each in part
        ]
        elapsed = time.perf_counter() - begun
    took = sorted(seconds for each, _, _ in answers for seconds in each)
    right = sum(each for _, each, _ in answers)
    failed = [text for _, _, each in answers for text in each]
    middle, late = took[len(took) // 2], took[len(took) * 99 // 100]
    asked = clients * queries
    print(f"\n{clients} clients x {queries} queries: {right} of {asked} answers right")
    # What failed was told to its client; an answer is lost when there was none, and no error.
    lost = asked - len(took)
    wrong = asked - right - len(failed) - lost
    print(f"{lost} lost, {wrong} wrong, {len(failed)} failed{': ' + failed[0] if failed else ''}")
    print(
        f"{len(took) / elapsed:.0f} queries/s in {elapsed:.0f} s, median {middle * 1e3:.1f} ms, "
        f"p99 {late * 1e3:.1f} ms ({late / middle:.1f} x), slowest {took[-1] * 1e3:.1f} ms"
    )
    return right == asked and late < MOST_MEDIANS * middle


def main() -> int:
    """Runs both, or the server that is named."""
    if len(sys.argv) > 1 and sys.argv[1] in ("partgrid", "pyarrow"):
        serve(sys.argv[1])
        return 0
    ours, theirs = Served("partgrid"), Served("pyarrow")
    try:
        throughput(ours.uri, theirs.uri)
        queries = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
        return int(not small_queries(ours.uri, 100, queries))
    finally:
        ours.close()
        theirs.close()


if __name__ == "__main__":
    sys.exit(main())
