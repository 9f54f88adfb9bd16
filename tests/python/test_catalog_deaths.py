"""A server with a catalog that is killed at random moments: what was acknowledged is there, bit for bit.

`PARTGRID_CATALOG_KILLS` says how often it is killed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

import partgrid as pg
from services import command, proto, service, statement

KILLS = int(os.environ.get("PARTGRID_CATALOG_KILLS", "20"))


NAMES = ["a", "b", "c"]


GONE = (pa.ArrowException, fl.FlightError, pg.errors.PartgridError, OSError)


def numbers(seed: int, rows: int = 1000) -> pa.Table:
    values = np.random.default_rng(seed).integers(0, 2**60, rows)
    return pa.table({"n": values, "t": [f"row {value}" for value in values[:rows]]})


def ingest(client: fl.FlightClient, name: str, rows: pa.Table, if_there: int) -> None:
    """Replaces (3) or appends (2) by DoPut."""
    made = command("CommandStatementIngest", (1, proto((1, 1), (2, if_there))), (2, name))
    writer, reader = client.do_put(made, rows.schema)
    writer.write_table(rows, max_chunksize=200)
    writer.done_writing()
    answer = reader.read()
    writer.close()
    assert answer is not None


def run(client: fl.FlightClient, text: str) -> None:
    list(client.get_flight_info(statement(text)).endpoints)


class Writer(threading.Thread):
    """Changes grids of a server until it dies; knows what was acknowledged, and what may have happened."""

    def __init__(self, uri: str, seed: int, known: dict[str, pa.Table]) -> None:
        super().__init__(daemon=True)
        self.uri, self.source, self.known = uri, random.Random(seed), dict(known)
        # The one change that was not answered: a name, and what it may stand for.
        self.open: tuple[str, pa.Table | None] | None = None
        self.last: list[str] = []

    def run(self) -> None:
        try:
            with fl.connect(self.uri) as client:
                connection = pg.connect(self.uri)
                while True:
                    self.change(client, connection)
        except GONE:
            return

    def change(self, client: fl.FlightClient, connection: pg.Connection) -> None:
        name, seed = self.source.choice(NAMES), self.source.getrandbits(30)
        rows, before = numbers(seed, self.source.randint(0, 2000)), self.known.get(name)
        after: pa.Table | None = rows
        what = self.source.choice(["ingest", "append", "upload", "create", "drop"])
        self.last = [*self.last[-10:], f"{what} {name}"]
        match what:
            case "append" if before is not None:
                after = pa.concat_tables([before, rows])
                do: Callable[[], Any] = lambda: ingest(client, name, rows, 2)  # noqa: E731
            case "upload":
                do = lambda: connection.upload(rows, name, if_exists="replace")  # noqa: E731
            case "create" if before is not None:
                text = f"CREATE OR REPLACE TABLE {name} AS SELECT n, t FROM {name} ORDER BY n"
                after = before.sort_by("n")
                do = lambda: run(client, text)  # noqa: E731
            case "drop" if before is not None:
                after = None
                do = lambda: run(client, f"DROP TABLE {name}")  # noqa: E731
            case _:
                do = lambda: ingest(client, name, rows, 3)  # noqa: E731
        self.open = name, after
        do()
        self.open = None
        if after is None:
            del self.known[name]
        else:
            self.known[name] = after


def held(server: Any) -> dict[str, pa.Table]:
    connection = pg.connect(server.uri)
    return {name: connection.grid(name).to_arrow() for name in connection.grids()}


def same(found: pa.Table | None, expected: pa.Table | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return found.to_pydict() == expected.to_pydict()


def test_what_was_acknowledged_is_there_after_any_death(tmp_path: Path) -> None:
    source = random.Random(KILLS)
    known: dict[str, pa.Table] = {}
    writer = Writer("", 0, known)
    changes = 0
    for turn in range(KILLS):
        with service("--catalog", tmp_path) as one:
            found = held(one)
            assert set(found) <= set(NAMES)
            for name in NAMES:
                right = same(found.get(name), known.get(name))
                if writer.open is not None and writer.open[0] == name:
                    right = right or same(found.get(name), writer.open[1])
                assert right, (turn, name, writer.last)
            known = found
            writer = Writer(one.uri, turn, known)
            writer.start()
            time.sleep(source.uniform(0.0, 0.15))
            one.kill()
            writer.join(20)
            assert not writer.is_alive()
        changes += sum(writer.known.get(name) is not known.get(name) for name in NAMES)
        known = writer.known
    assert changes > 0
    manifests = list((tmp_path / "grids").rglob("*.json"))
    assert manifests
    with service("--catalog", tmp_path):
        assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".writing")]
        kept = list((tmp_path / "grids").rglob("*.json"))
        assert len(kept) == len({path.parent for path in kept})
