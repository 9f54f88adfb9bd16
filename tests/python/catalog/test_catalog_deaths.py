"""A server with a catalog that is killed at random moments: what was acknowledged is there, bit for bit.

`PARTGRID_CATALOG_KILLS` says how often it is killed.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from dying_loads import GONE, Loading, files, of_a_load
from served import ingest, numbers, run
from services import service

KILLS = int(os.environ.get("PARTGRID_CATALOG_KILLS", "20"))


LOAD_KILLS = int(os.environ.get("PARTGRID_CATALOG_KILLS", "3"))


NAMES = ["a", "b", "c"]


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


def wanted(folder: Path) -> set[str]:
    """The files of tiles that the manifests name. Of each name there is one manifest."""
    found: set[str] = set()
    manifests = [folder / path for path in files(folder, "grids")]
    assert len(manifests) == len({path.parent for path in manifests})
    for path in manifests:
        contents = json.loads(path.read_text().split("\n", 1)[1])["contents"]
        found.update(tile["path"] for tile in contents["tiles"])
    return found


def wait_for(moment: str, folder: Path, seconds: float, source: random.Random) -> None:
    """Waits for a moment of a load: any, that its first tile is there, or that its manifest is."""
    parts = {"tile": "tiles", "manifest": "grids"}
    if moment == "any":
        time.sleep(source.uniform(0, 1.3 * seconds))
        return
    before, stop = files(folder, parts[moment]), time.monotonic() + 20
    while files(folder, parts[moment]) <= before:
        assert time.monotonic() < stop
    time.sleep(source.choice([0, 0, source.uniform(0, 0.01)]))


def test_a_load_that_is_killed_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    folder, data = tmp_path / "catalog", tmp_path / "data"
    known = {"kept": of_a_load(data / "kept", 1)}
    settings = ("--catalog", folder, "--set", f"load.from={data}")
    with service(*settings) as one:
        begun = time.monotonic()
        assert pg.connect(one.uri).load_parquet(data / "kept", "kept") == {"rows": 60_000}
        seconds = time.monotonic() - begun
    source = random.Random(LOAD_KILLS)
    for turn in range(LOAD_KILLS):
        # A name that has a grid, or one that may be new.
        name = source.choice(["kept", "a", "b", "c"])
        moment = ("tile", "manifest", "any")[turn % 3]
        rows = of_a_load(data / str(turn), turn + 2)
        with service(*settings) as one:
            load = Loading(one.uri, data / str(turn), name)
            load.start()
            wait_for(moment, folder, seconds, source)
            one.kill()
            load.join(20)
            assert not load.is_alive()
        assert (load.rows is None) == (load.refusal is not None)
        with service(*settings) as one:
            found = held(one)
            assert wanted(folder) == files(folder, "tiles"), (turn, moment)
        if load.rows is not None or (name in found and found[name].equals(rows)):
            # Committed, and not said any more, at the most.
            known[name] = rows
        assert sorted(found) == sorted(known), (turn, moment, name)
        for each, expected in known.items():
            assert found[each].equals(expected), (turn, moment, each)


@pytest.mark.parametrize("mode", ["create", "append"])
def test_of_an_ingestion_whose_source_fails_nothing_stays(tmp_path: Path, mode: Any) -> None:
    rows = numbers(1).to_batches()[0]

    def broken() -> Iterator[pa.RecordBatch]:
        yield rows
        yield rows
        raise ValueError("the source is broken")

    with service("--catalog", tmp_path) as one, adbc.connect(one.uri, autocommit=True) as client:
        if mode == "append":
            pg.connect(one.uri).upload(numbers(2), "g")
        known = held(one)
        for _ in range(100):
            reader = pa.RecordBatchReader.from_batches(rows.schema, broken())
            with client.cursor() as cursor, pytest.raises(adbc.Error, match="source is broken"):
                cursor.adbc_ingest("g", reader, mode=mode)
            assert held(one) == known
    with service("--catalog", tmp_path) as one:
        assert held(one) == known
