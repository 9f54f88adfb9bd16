"""Readers of a grid that others replace and drop: each sees one version of it from beginning to end, whatever it asks.

`PARTGRID_SNAPSHOT_QUERIES` says how many questions are asked (10,000 for a release).
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from served import ingest, run
from services import service, shown

QUERIES = int(os.environ.get("PARTGRID_SNAPSHOT_QUERIES", "200"))


READERS = 4

# How many versions there are at least while they read.
VERSIONS = 12


TILE_ROWS = 500


def version(number: int) -> pa.Table:
    """Rows that all say which version they are of; each version has another number of them, in several tiles."""
    count = 2_000 + 100 * (number % 7)
    rows = pa.table({"i": np.arange(count), "v": np.full(count, number)})
    return pa.Table.from_batches(rows.to_batches(max_chunksize=TILE_ROWS))


def check(how: str, low: int, high: int, count: int) -> int:
    """The version that was seen, if it was one and whole."""
    assert low == high, f"rows of several versions: {how}"
    assert count == version(low).num_rows, f"{count} rows of version {low}: {how}"
    return low


# What no version may answer otherwise: smallest and largest version, and the rows of one reading.
TEXTS = [
    "SELECT min(v), max(v), count(*) FROM flips",
    "SELECT least(min(a.v), min(b.v)), greatest(max(a.v), max(b.v)), count(*) FROM flips a JOIN flips b ON a.i = b.i",
    "SELECT min(v), max(v), count(*) / 2 FROM (SELECT v FROM flips UNION ALL SELECT v FROM flips)",
    "SELECT min(v), (SELECT max(v) FROM flips), (SELECT count(*) FROM flips) FROM flips",
    "WITH one AS (SELECT v, count(*) AS n FROM flips GROUP BY v) SELECT min(v), max(v), sum(n) FROM one",
    "SELECT min(v), max(v), count(*) FROM seen",
    "SELECT min(f.v), max(s.v), count(*) FROM flips f JOIN seen s ON f.i = s.i",
]


class Reading:
    """A client that reads in many ways."""

    def __init__(self, uri: str, seed: int) -> None:
        self.connection, self.source = pg.connect(uri), random.Random(seed)
        self.client = fl.connect(uri)
        self.asked = ""

    def text(self) -> tuple[int, int, int]:
        self.asked = self.source.choice(TEXTS)
        found = self.connection.sql(self.asked).to_arrow()
        low, high, count = (column[0].as_py() for column in found.columns)
        return int(low), int(high), int(count)

    def grid(self) -> tuple[int, int, int]:
        """Tile by tile, after it may be another one by name."""
        return self._of(self.connection.grid("flips").to_arrow())

    def parts(self) -> tuple[int, int, int]:
        """By its endpoints, one after the other."""
        info = self.client.get_flight_info(fl.FlightDescriptor.for_path("flips"), shown(None))
        each = [self.client.do_get(part.ticket, shown(None)).read_all() for part in info.endpoints]
        return self._of(pa.concat_tables(each))

    def rows(self) -> tuple[int, int, int]:
        return self._of(self.connection.sql("SELECT v FROM flips").to_arrow())

    @staticmethod
    def _of(rows: pa.Table) -> tuple[int, int, int]:
        values = rows["v"].to_numpy()
        return int(values.min()), int(values.max()), len(values)

    def ask(self) -> int | None:
        """The version that it saw; nothing, if it was told that the table is gone."""
        kinds: list[Callable[[], tuple[int, int, int]]] = [self.grid, self.parts, self.rows]
        how = self.source.choice([*kinds, self.text, self.text, self.text, self.text])
        self.asked = how.__name__
        try:
            found = how()
        except (pg.errors.PartgridError, pa.ArrowException, fl.FlightError) as error:
            said = str(error)
            # Dropped, or dropped since it was looked up.
            assert any(word in said for word in GONE), said
            return None
        return check(self.asked, *found)


GONE = ["flips", "seen", "not there any more", "no such", "is gone", "was replaced"]


def flip(uri: str, number: int) -> None:
    """Makes another version, in one of the ways that there are; now and then there is none for a moment."""
    connection = pg.connect(uri)
    with fl.connect(uri) as client:
        if number % 5 == 0:
            run(client, "DROP TABLE flips")
        match number % 3:
            case 0:
                connection.upload(pg.from_arrow(version(number)), "flips", if_exists="replace")
            case 1:
                ingest(client, "flips", version(number), 3)
            case 2:
                count = version(number).num_rows
                rows = f"SELECT value AS i, {number} AS v FROM generate_series(0, {count - 1})"
                run(client, f"CREATE OR REPLACE TABLE flips AS {rows}")


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a catalog"])
def test_a_reader_sees_one_version_while_others_replace_and_drop_it(
    tmp_path: Path, kept: bool
) -> None:
    words: list[Any] = ["--catalog", tmp_path] if kept else []
    with service(*words) as one:
        flip(one.uri, 1)
        with fl.connect(one.uri) as client:
            run(client, "CREATE VIEW seen AS SELECT i, v FROM flips")
        ended, written = threading.Event(), [1]

        def write() -> int:
            for number in itertools.count(2):
                flip(one.uri, number)
                written.append(number)
                if ended.is_set():
                    return number
            raise AssertionError

        def read(seed: int) -> Counter[int | None]:
            reading, seen = Reading(one.uri, seed), Counter[int | None]()
            # On a busy machine the versions come more slowly than answers.
            while seen.total() < QUERIES // READERS or len(written) < VERSIONS:
                seen[reading.ask()] += 1
                assert not writing.done(), writing.result()
            return seen

        with ThreadPoolExecutor(READERS + 1) as threads:
            writing = threads.submit(write)
            try:
                seen = sum(threads.map(read, range(READERS)), Counter[int | None]())
            finally:
                ended.set()
            last = writing.result(60)
        versions = set(seen) - {None}
        print(
            f"{seen.total()} questions, {len(versions)} of {last} versions, {seen[None]} times gone"
        )
        assert len(versions) > 5, "there was nothing to mix"
        assert seen[None] < seen.total() / 2
        assert Reading(one.uri, 0).grid()[0] == last
