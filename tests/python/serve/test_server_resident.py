"""What a server holds: grids, and queries on them within their pool; and what it has for clients that do not read.

`PARTGRID_RESIDENT_BYTES` says how much lies in grids (8e9 for a release; queries have a quarter).
`PARTGRID_SLOW_SECONDS` says how long clients do not read (60 for a release).
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from services import Service, asked, command, proto, running, service, statement, status, until

RESIDENT_BYTES = int(float(os.environ.get("PARTGRID_RESIDENT_BYTES", "200e6")))


POOL_BYTES = RESIDENT_BYTES // 4


# For the program itself, what its allocator keeps, and answers under way.
BESIDE_BYTES = 1_000_000_000 if RESIDENT_BYTES >= 4_000_000_000 else 400_000_000


GRIDS = 4


# Of three columns of eight bytes.
ROWS = RESIDENT_BYTES // GRIDS // 24


PART_ROWS = max(ROWS // 8, 1)


SLOW_SECONDS = float(os.environ.get("PARTGRID_SLOW_SECONDS", "1"))


class Most(threading.Thread):
    """The most memory that a process has, as long as it is watched."""

    def __init__(self, one: Service) -> None:
        super().__init__(daemon=True)
        self.path = Path(f"/proc/{one.process.pid}/status")
        self.resident_bytes = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            lines = dict(line.split(":", 1) for line in self.path.read_text().splitlines())
            now = int(lines["VmRSS"].split()[0]) * 1024
            self.resident_bytes = max(self.resident_bytes, now)
            time.sleep(0.02)


def fill(client: fl.FlightClient, number: int) -> None:
    """Sends a grid in parts: what clients are sending lies in the pool of queries, too."""
    wanted = command("CommandStatementIngest", (1, proto((1, 1), (2, 2))), (2, f"g{number}"))
    for first in range(0, ROWS, PART_ROWS):
        k = np.arange(first, min(first + PART_ROWS, ROWS))
        rows = pa.table({"k": k, "g": k % 1000, "r": (k * 7919 + number) % 1000003})
        writer, reader = client.do_put(wanted, rows.schema)
        writer.write_table(rows, max_chunksize=65_536)
        writer.done_writing()
        assert reader.read() is not None
        writer.close()


def questions() -> list[tuple[str, int]]:
    """Texts, and the number that is the first of their answers."""
    every = " UNION ALL ".join(f"SELECT * FROM g{number}" for number in range(GRIDS))
    return [
        (f"SELECT sum(k) FROM ({every})", GRIDS * ROWS * (ROWS - 1) // 2),
        (f"SELECT count(DISTINCT g) FROM ({every})", 1000),
        (
            "SELECT count(*) FROM g0 a JOIN g1 b ON a.k = b.k WHERE a.k % 100 = 7",
            -(-(ROWS - 7) // 100),
        ),
        (f"SELECT max(n) FROM (SELECT k, count(*) AS n FROM ({every}) GROUP BY k)", GRIDS),
        (f"SELECT last_value(k) FROM (SELECT k FROM ({every}) ORDER BY r, k)", -1),
        ("SELECT count(*) FROM (SELECT k, row_number() OVER (ORDER BY r DESC) AS n FROM g2)", ROWS),
    ]


def test_queries_on_all_grids_stay_within_their_pool() -> None:
    words = [f"limits.memory={POOL_BYTES}", f"limits.query_memory={POOL_BYTES}"]
    words += [f"limits.grids={2 * RESIDENT_BYTES}", "limits.query_time=600", "limits.answer=1GB"]
    refused = 0
    with service(*(word for each in words for word in ("--set", each))) as one:
        connection = pg.connect(one.uri)
        with fl.connect(one.uri) as client:
            for number in range(GRIDS):
                fill(client, number)
        grids = status(one)["memory"]["grid_bytes"]
        assert grids >= 0.95 * RESIDENT_BYTES
        most = Most(one)
        most.start()
        for text, expected in questions():
            try:
                [first] = connection.sql(text).to_arrow().column(0).to_pylist()
            except pg.errors.ResourcesExhaustedError:
                refused += 1
            else:
                assert expected in (-1, first), text
        most.ended.set()
        most.join()
        print(
            f"grids {grids / 1e6:.0f} MB, pool {POOL_BYTES / 1e6:.0f} MB,"
            f" most resident {most.resident_bytes / 1e6:.0f} MB, {refused} queries refused"
        )
        assert most.resident_bytes <= grids + POOL_BYTES + BESIDE_BYTES
        assert refused < len(questions())
        until(lambda: status(one)["memory"]["query_bytes"] == 0)


# What there is always more of: small rows, long values, a grid as it lies, what was sorted.
ENDLESS_ROWS = {
    "rows": "SELECT value, value * 2 AS twice FROM generate_series(1, 100000000000)",
    "long values": "SELECT repeat('x', 100000) AS t FROM generate_series(1, 100000000000)",
    "a grid": "SELECT a.* FROM big a, generate_series(1, 1000) b",
}


UNREAD = 4


@pytest.mark.parametrize("what", ENDLESS_ROWS)
def test_a_client_that_does_not_read_has_little_of_the_memory(what: str) -> None:
    with service("--set", "limits.query_time=600") as one:
        rows = "SELECT value AS a, value AS b, value AS c FROM generate_series(1, 500000)"
        pg.connect(one.uri).sql(f"CREATE TABLE big AS {rows}")
        with fl.connect(one.uri) as quick:
            # What is made once: threads, caches, plans.
            asked(quick, "SELECT count(*) AS n FROM big GROUP BY a % 10")
            asked(quick, "SELECT repeat('x', 100000) AS t FROM generate_series(1, 300)")
            before = status(one)["memory"]["resident_bytes"]
            slow, readers = [], []
            for _ in range(UNREAD):
                # Connections of their own.
                slow.append(
                    fl.connect(one.uri, generic_options=[("grpc.use_local_subchannel_pool", 1)])
                )
                info = slow[-1].get_flight_info(statement(ENDLESS_ROWS[what]))
                readers.append(slow[-1].do_get(info.endpoints[0].ticket))
                readers[-1].read_chunk()
            most = Most(one)
            most.start()
            stop = time.monotonic() + SLOW_SECONDS
            while time.monotonic() < stop:
                found = asked(quick, "SELECT sum(a) AS s FROM big")["s"].to_pylist()
                assert found == [500_000 * 500_001 // 2]
            most.ended.set()
            most.join()
            each = (most.resident_bytes - before) / UNREAD
            print(f"{what}: {each / 1e6:.1f} MB for each client that does not read")
            assert each < 64_000_000
            assert len(running(one)) == UNREAD
            for reader in readers:
                # They were not forgotten.
                assert reader.read_chunk().data.num_rows > 0
                reader.cancel()
            until(lambda: not running(one))
