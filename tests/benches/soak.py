"""A server under mixed load for a while: whether its memory, descriptors and threads stay, and every answer is right.

Comes in: seconds (`PARTGRID_SOAK_SECONDS`, 600 by default) and, to measure some alone, kinds of operations. Goes out: a table over time, the number of
operations of each kind, wrong answers, and what the server has after a quiet pause beside that after the warm-up. Ends with 1 if an answer was lost or wrong or
an operation failed; if the memory is more than 5 % above, or, over ten minutes or more, rose by 1 MB each minute; or if there are more descriptors, threads or
shared segments than before.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import partgrid as pg
from hostile import PREFIX, harmed, send
from services import ENDLESS, Service, asked, query_request, service, statement, tickets
from test_hostile_requests import good_requests

WORKERS = 4
BASE_ROWS = 200_000
MANY_ROWS = "SELECT value, value * 2 AS twice FROM generate_series(1, 100000000)"
# A client begins anew after so many operations.
TURNS = 40
QUIET_SECONDS = 60
# The most memory after the pause, beside that after the warm-up.
MOST_RATIO = 1.05
# By how much it may rise each minute; in less than ten a few pages of the allocator would decide.
MOST_BYTES_A_MINUTE = 1_000_000
LONG_SECONDS = 600
# A call that takes longer is lost: no query runs for more than 30 seconds.
LOST_SECONDS = 120


def numbers(seed: int, rows: int) -> pa.Table:
    """Rows that no other seed gives."""
    values = np.random.default_rng(seed).integers(0, 2**60, rows)
    return pa.table({"n": values, "t": [f"row {value}" for value in values]})


def base() -> pa.Table:
    """The grid that is there all the time."""
    at = np.arange(BASE_ROWS)
    return pa.table({"n": at, "k": at % 100, "t": [f"row {number}" for number in at]})


def same(what: str, found: object, expected: object) -> None:
    """Complains of an answer that is wrong."""
    if found != expected:
        raise AssertionError(f"{what}: got {str(found)[:200]}, not {str(expected)[:200]}")


class Client:
    """Somebody who uses the server for a while. Each method that is a kind of operation checks what it is told."""

    def __init__(self, one: Service, number: int, folder: Path, rows: pa.Table) -> None:
        self.one, self.folder, self.base = one, folder, rows
        self.source = random.Random(number)
        self.name = f"of_{number}"
        self.partgrid = pg.connect(one.uri)
        self.flight = fl.connect(one.uri)
        self.adbc = adbc.connect(one.uri, autocommit=True)
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(one.uri.removeprefix("grpc://"), options)
        self.requests = good_requests()

    def close(self) -> None:
        """Goes away as one should."""
        self.adbc.close()
        self.flight.close()
        self.channel.close()

    def rows(self) -> pa.Table:
        """Rows for a grid."""
        return numbers(self.source.getrandbits(30), self.source.randint(1, 5000))

    def query(self) -> None:
        """A small query."""
        key = self.source.randrange(100)
        with self.adbc.cursor() as cursor:
            cursor.execute(f"SELECT count(*), sum(n) FROM base WHERE k = {key}")
            each = BASE_ROWS // 100
            expected = (each, each * key + 100 * each * (each - 1) // 2)
            same("query", cursor.fetchall(), [expected])

    def stream(self) -> None:
        """A query with many rows."""
        most = self.source.randrange(20)
        with self.adbc.cursor() as cursor:
            cursor.execute(f"SELECT n, t FROM base WHERE k <= {most} ORDER BY n")
            found = cursor.fetch_arrow_table()
        at = np.flatnonzero(np.arange(BASE_ROWS) % 100 <= most)
        same("stream", found["n"].to_pylist(), at.tolist())
        same("stream", found["t"][-1].as_py(), f"row {at[-1]}")

    def prepared(self) -> None:
        """A prepared statement, run several times."""
        query = "SELECT count(*) FROM base WHERE k = ? AND n < ?"
        with self.adbc.cursor() as cursor:
            cursor.adbc_prepare(query)
            for _ in range(3):
                key, most = self.source.randrange(100), self.source.randrange(BASE_ROWS)
                cursor.execute(query, (key, most))
                same("prepared", cursor.fetchall(), [(len(range(key, most, 100)),)])

    def metadata(self) -> None:
        """What tables there are."""
        schema = self.adbc.adbc_get_table_schema("base")
        same("metadata", schema.names, ["n", "k", "t"])
        found = self.adbc.adbc_get_objects(table_name_filter="base").read_all().to_pylist()
        same("metadata", found[0]["catalog_name"], "partgrid")

    def read_back_and_drop(self, rows: pa.Table) -> None:
        """Compares the grid with what was sent, and drops it."""
        found = self.partgrid.grid(self.name).to_arrow()
        same("rows", found, rows)
        summed = self.partgrid.sql(f"SELECT count(*) AS c, min(n) AS m FROM {self.name}")
        lowest = min(rows["n"].to_pylist())
        same("sum", summed.to_arrow().to_pylist(), [{"c": rows.num_rows, "m": lowest}])
        self.partgrid.sql(f"DROP TABLE {self.name}")
        same("dropped", self.name in self.partgrid.grids(), False)

    def upload(self) -> None:
        """A grid that is uploaded, read and dropped."""
        rows = self.rows()
        answer = self.partgrid.upload(rows, self.name)
        same("upload", answer["rows"], rows.num_rows)
        self.read_back_and_drop(rows)

    def ingest(self) -> None:
        """Rows that are ingested and appended."""
        rows, more = self.rows(), self.rows()
        with self.adbc.cursor() as cursor:
            for mode, part in (("create", rows), ("append", more)):
                same("ingest", cursor.adbc_ingest(self.name, part, mode=mode), part.num_rows)
        self.read_back_and_drop(pa.concat_tables([rows, more]))

    def load(self) -> None:
        """Files that the server loads."""
        rows = self.rows()
        path = self.folder / f"{self.name}.parquet"
        pq.write_table(rows, path)
        done = self.partgrid.load_parquet(path, self.name, tile_rows=1000, progress=False)
        same("load", done, {"rows": rows.num_rows})
        self.read_back_and_drop(rows)

    def tiles(self) -> None:
        """All tiles of a grid, fetched."""
        found = asked(self.flight, fl.FlightDescriptor.for_path("base"))
        same("tiles", found.equals(self.base), True)

    def mapped(self) -> None:
        """All tiles of a grid, mapped where they are."""
        same("mapped", self.partgrid.grid("base").to_arrow().equals(self.base), True)

    def cancel(self) -> None:
        """Queries that are cancelled."""
        info = self.flight.get_flight_info(statement(ENDLESS))
        reader = self.flight.do_get(info.endpoints[0].ticket)
        time.sleep(self.source.uniform(0, 0.05))
        reader.cancel()
        result = self.partgrid.sql("SELECT count(*) AS n FROM generate_series(1, 20000000)")
        timer = threading.Timer(self.source.uniform(0, 0.1), result.cancel)
        timer.start()
        try:
            same("cancelled", result.to_arrow()["n"].to_pylist(), [20_000_000])
        except (pg.errors.CancelledError, pg.errors.NotFoundError):
            pass
        finally:
            timer.join()

    def vanish(self) -> None:
        """A reader whose connection ends in the middle."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self.one.uri.removeprefix("grpc://"), options) as channel:
            info = channel.unary_unary(PREFIX + "GetFlightInfo")(query_request(MANY_ROWS))
            call = channel.unary_stream(PREFIX + "DoGet")(tickets(info)[0])
            next(call)

    def killed(self) -> None:
        """A process that is killed while it writes and reads."""
        code = (
            "import sys, pyarrow as pa, pyarrow.flight as fl\n"
            f"sys.path[:0] = {sys.path!r}\n"
            "from services import command, proto, statement\n"
            f"client = fl.connect({self.one.uri!r})\n"
            f"info = client.get_flight_info(statement({MANY_ROWS!r}))\n"
            "reader = client.do_get(info.endpoints[0].ticket)\n"
            "batch = pa.record_batch({'a': list(range(10_000))})\n"
            f"made = (1, proto((1, 1), (2, 3))), (2, {self.name + '_half'!r})\n"
            "writer, _ = client.do_put(command('CommandStatementIngest', *made), batch.schema)\n"
            "writer.write_batch(batch)\n"
            "print('began', flush=True)\n"
            "sys.stdin.read()"
        )
        child = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True)
        assert child.stdout is not None
        same("killed", child.stdout.readline(), "began\n")
        child.send_signal(signal.SIGKILL)
        child.communicate()
        self.nothing_stays()

    def broken(self) -> None:
        """An ingestion whose source fails in the middle."""
        batch = pa.record_batch({"n": list(range(1000))})

        def failing() -> Iterator[pa.RecordBatch]:
            yield batch
            yield batch
            raise ValueError("the source is broken")

        reader = pa.RecordBatchReader.from_batches(batch.schema, failing())
        with self.adbc.cursor() as cursor:
            try:
                cursor.adbc_ingest(self.name + "_half", reader, mode="replace")
            except adbc_driver_manager.Error as error:
                same("broken", "the source is broken" in str(error), True)
        time.sleep(0.05)
        self.nothing_stays()

    def nothing_stays(self) -> None:
        """Of what was not sent in full there is nothing."""
        name = self.name + "_half"
        if name in self.partgrid.grids():
            self.partgrid.sql(f"DROP TABLE {name}")
            raise AssertionError("half a grid: rows that were not sent in full became a grid")

    def malformed(self) -> None:
        """Requests that are none."""
        for _ in range(10):
            method = self.source.choice(sorted(self.requests))
            send(
                self.channel, method, harmed(self.source, self.source.choice(self.requests[method]))
            )


# Kinds of operations, and how often each is chosen.
KINDS: dict[str, tuple[Callable[[Client], None], int]] = {
    "query": (Client.query, 30),
    "stream": (Client.stream, 6),
    "prepared": (Client.prepared, 10),
    "metadata": (Client.metadata, 5),
    "upload": (Client.upload, 8),
    "ingest": (Client.ingest, 6),
    "load": (Client.load, 4),
    "tiles": (Client.tiles, 5),
    "mapped": (Client.mapped, 5),
    "cancel": (Client.cancel, 3),
    "vanish": (Client.vanish, 5),
    "killed": (Client.killed, 1),
    "broken": (Client.broken, 3),
    "malformed": (Client.malformed, 10),
}


class Load:
    """Clients that come and go, and what became of their operations."""

    def __init__(self, one: Service, folder: Path, kinds: list[str]) -> None:
        self.one, self.folder, self.kinds, self.base = one, folder, kinds, base()
        self.lock = threading.Lock()
        self.begun: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.clients = iter(range(1 << 30))

    def _work(self, stop: float) -> None:
        weights = [KINDS[kind][1] for kind in self.kinds]
        while time.monotonic() < stop:
            with self.lock:
                number = next(self.clients)
            client = Client(self.one, number, self.folder, self.base)
            for kind in client.source.choices(self.kinds, weights, k=TURNS):
                if time.monotonic() > stop:
                    break
                self._one(client, kind)
            client.close()

    def _one(self, client: Client, kind: str) -> None:
        wrong = failed = None
        with self.lock:
            self.begun[kind] += 1
        try:
            KINDS[kind][0](client)
        except AssertionError as error:
            wrong = f"{kind}: {error}"
        except Exception as error:
            failed = (
                f"{kind}: {type(error).__name__}: {re.sub('[0-9a-f]{16,}', '…', str(error))[:300]}"
            )
        with self.lock:
            self.done[kind] += 1
            self.wrong.update([wrong] if wrong else [])
            self.failed.update([failed] if failed else [])

    def run(self, seconds: float) -> list[threading.Thread]:
        """Begins; the threads end in so many seconds."""
        stop = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self._work, args=[stop], daemon=True) for _ in range(WORKERS)
        ]
        for thread in threads:
            thread.start()
        return threads

    def lost(self) -> int:
        """Operations of which nothing is heard any more."""
        return self.begun.total() - self.done.total()


class Sample:
    """What a process has at a moment. Sizes in bytes."""

    def __init__(self, pid: int) -> None:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )

        def size(key: str) -> int:
            return int(status[key].split()[0]) * 1024

        self.resident, self.anonymous = size("VmRSS"), size("RssAnon")
        self.threads = int(status["Threads"])
        self.descriptors = self.shared = self.segments = 0
        self.kinds: Counter[str] = Counter()
        for path in Path(f"/proc/{pid}/fd").iterdir():
            self.descriptors += 1
            try:
                target = os.readlink(path)
                self.kinds[re.sub(r"\d+", "N", target)] += 1
                if target.startswith("/memfd:"):
                    self.segments += 1
                    self.shared += path.stat().st_blocks * 512
            except OSError:
                # It was closed meanwhile.
                continue

    def least(self, other: Sample) -> Sample:
        """Of each the lesser number."""
        if other.descriptors < self.descriptors:
            self.kinds = other.kinds
        for name, number in vars(other).items():
            if name != "kinds":
                setattr(self, name, min(getattr(self, name), number))
        return self


def show(label: str, sample: Sample, catalog: Path, operations: int, rate: float) -> None:
    """A line of the table."""
    files = [path.stat().st_size for path in catalog.rglob("*") if path.is_file()]
    cells = [label, f"{operations:,}", f"{rate:.0f}", f"{sample.resident / 1e6:.1f}"]
    cells += [f"{sample.anonymous / 1e6:.1f}", f"{sample.shared / 1e6:.1f}"]
    cells += [str(sample.descriptors), str(sample.threads), f"{len(files):,}"]
    print(f"| {' | '.join([*cells, f'{sum(files) / 1e6:.1f}'])} |", flush=True)


def quiet(pid: int, seconds: float) -> Sample:
    """The least of everything within a while in which nobody asks."""
    # Connections of clients that nobody uses any more.
    gc.collect()
    stop, best = time.monotonic() + seconds, Sample(pid)
    while time.monotonic() < stop:
        time.sleep(1)
        best = best.least(Sample(pid))
    return best


def measure(
    one: Service, load: Load, catalog: Path, warm_up: float, seconds: float
) -> tuple[Sample, Sample]:
    """Prints the table; gives what there is after the warm-up and at the end."""
    pid = one.process.pid
    print("| s | operations | /s | resident MB | anonymous | shared | fds | threads | files | MB |")
    print("| --- " * 10 + "|")
    wait(load.run(warm_up), warm_up)
    after_warm_up = quiet(pid, min(10.0, warm_up))
    show("warm-up", after_warm_up, catalog, load.done.total(), load.done.total() / warm_up)
    begun, before = time.monotonic(), load.done.total()
    threads = load.run(seconds)
    for part in range(1, 11):
        time.sleep(max(0.0, begun + seconds * part / 10 - time.monotonic()))
        now = load.done.total()
        show(f"{seconds * part / 10:.0f}", Sample(pid), catalog, now, (now - before) * 10 / seconds)
        before = now
    wait(threads, 0)
    at_end = quiet(pid, min(QUIET_SECONDS, seconds))
    show("quiet", at_end, catalog, load.done.total(), 0)
    return after_warm_up, at_end


def wait(threads: list[threading.Thread], seconds: float) -> None:
    """Waits for all that are to end in so many seconds; not for ever."""
    stop = time.monotonic() + seconds + LOST_SECONDS
    for thread in threads:
        thread.join(max(0.0, stop - time.monotonic()))


def grown(before: Sample, after: Sample, seconds: float) -> list[str]:
    """Prints what there is more than before; gives what is too much."""
    ratio = after.resident / before.resident
    rise = (after.resident - before.resident) / (seconds / 60)
    print(
        f"memory after the pause is {ratio:.3f} of that after the warm-up, {rise / 1e6:+.2f} MB/min"
    )
    found = ["memory"] if ratio > MOST_RATIO else []
    found += (
        ["memory each minute"] if seconds >= LONG_SECONDS and rise > MOST_BYTES_A_MINUTE else []
    )
    for name in ("descriptors", "threads", "segments"):
        had, has = getattr(before, name), getattr(after, name)
        print(f"{name}: {had} before, {has} after")
        found += [name] if has > had else []
    if "descriptors" in found:
        more = after.kinds - before.kinds
        print(
            "descriptors that there are more of: "
            + ", ".join(f"{n} x {kind}" for kind, n in more.items())
        )
    return found


def report(load: Load, said: list[str]) -> None:
    """Prints what became of the operations."""
    print("\n" + ", ".join(f"{kind} {load.done[kind]:,}" for kind in load.kinds))
    wrong, failed = load.wrong.total(), load.failed.total()
    print(f"{load.lost()} answers lost, {wrong} wrong, {failed} operations failed")
    for text, times in [*load.wrong.most_common(), *load.failed.most_common()]:
        print(f"  {times} x {text}")
    for line in sorted({line for line in said if "panicked" in line}):
        print(f"  {line.strip()}")


def main() -> int:
    """Runs it; says what was wrong."""
    asks = argparse.ArgumentParser(description=__doc__)
    default = float(os.environ.get("PARTGRID_SOAK_SECONDS", "600"))
    asks.add_argument("seconds", type=float, nargs="?", default=default)
    asks.add_argument("kinds", nargs="*", choices=[[], *KINDS], help="only these operations")
    asks.add_argument("--warm-up", type=float, help="seconds; a tenth of the others by default")
    asks.add_argument("--no-catalog", action="store_true", help="grids live as long as the server")
    said = asks.parse_args()
    with tempfile.TemporaryDirectory() as work:
        catalog, data = Path(work) / "catalog", Path(work) / "data"
        data.mkdir()
        words: list[object] = ["--set", f"load.from={data}", "--set", "limits.query_time=30"]
        words += [] if said.no_catalog else ["--catalog", catalog]
        with service(*words, RUST_BACKTRACE="0") as one:
            connection = pg.connect(one.uri)
            connection.upload(base(), "base")
            connection.upload(pa.table({"a": [1, 2, 3]}), "t")
            load = Load(one, data, said.kinds or list(KINDS))
            warm_up = said.warm_up or said.seconds / 10
            before, after = measure(one, load, catalog, warm_up, said.seconds)
            report(load, one.said)
            more = grown(before, after, said.seconds)
            lost = load.lost()
            left = connection.grids()
        if not said.no_catalog:
            begun = time.monotonic()
            with service("--catalog", catalog) as one:
                print(f"restarted in {time.monotonic() - begun:.1f} s")
                left = pg.connect(one.uri).grids()
                kept = pg.connect(one.uri).grid("base").to_arrow()
                load.wrong.update([] if kept.equals(load.base) else ["after a restart"])
    print(f"grids that there are: {', '.join(left)}; there should be base, t")
    if more:
        print(f"too much is left: {', '.join(more)}")
    return int(bool(lost or load.wrong or load.failed or more) or left != ["base", "t"])


if __name__ == "__main__":
    sys.exit(main())
