"""Disks that fail at each call that changes the catalog, and processes that die there.

Whoever writes is told so, of what failed nothing is there, and what was acknowledged is there bit for bit.
`PARTGRID_DISK_FAULTS=all` takes all ways to write, to new names and to those that have a grid, not some of each.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from failing_disk import DEATH, NEVER, ON_LINUX, FailingDisk
from served import numbers
from services import Service, service

pytestmark = ON_LINUX

# What a client of partgrid is told, and through the driver of ADBC.
TOLD: dict[int, tuple[type[Exception], ...]] = {
    errno.ENOSPC: (pg.errors.ResourcesExhaustedError, adbc.Error),
    errno.EIO: (pg.errors.StorageError, adbc.Error),
}


GONE = (pg.errors.PartgridError, adbc.Error, OSError)


ALL = os.environ.get("PARTGRID_DISK_FAULTS") == "all"


Grids = dict[str, pa.Table]


class Writing:
    """A server with a catalog on a disk that fails, and what it has acknowledged."""

    def __init__(self, work: Path) -> None:
        self.folder, self.data = work / "catalog", work / "data"
        self.data.mkdir()
        self.disk = FailingDisk(work, self.folder)
        self.known: Grids = {}
        self.tried: Grids = {}
        self.turn = 0

    def service(self) -> Any:
        words = ["--catalog", self.folder, "--set", f"load.from={self.data}"]
        return service(*words, **self.disk.environment)

    def rows(self) -> pa.Table:
        """Rows that there were never before, for two tiles."""
        self.turn += 1
        batches = numbers(self.turn, 400).to_batches(max_chunksize=200)
        return pa.Table.from_batches(batches)

    def attempt(self, way: Way, one: Service, name: str) -> Grids:
        """What there is after a change to a name, if it succeeds; `tried` is that in any case."""
        rows, do = way(self, name)
        self.tried = {**self.known, name: rows}
        if rows is None:
            del self.tried[name]
        do(one.uri)
        return self.tried

    def told(self, way: Way, one: Service, name: str, error: int) -> str | None:
        """What is said of a change that fails; nothing of one that is made and acknowledged."""
        try:
            self.known = self.attempt(way, one, name)
        except TOLD[error] as told:
            return str(told)
        assert not self.disk.has_failed, "a call failed, and the change was acknowledged"
        return None

    def after_a_restart(self) -> Grids:
        """What another server finds in the catalog as it is at this moment."""
        copy = self.folder.with_name("copy")
        for _ in range(10):
            shutil.rmtree(copy, ignore_errors=True)
            try:
                shutil.copytree(self.folder, copy)
                break
            except shutil.Error as error:
                # What a call that failed has left may be removed meanwhile.
                if not all("No such file" in why for _, _, why in error.args[0]):
                    raise
        else:
            pytest.fail("files of the catalog go away all the time")
        with pg.Server(catalog=copy, http=None) as server:
            return {name: server.grid(name).to_arrow() for name in server.tables}


# A way to write: the rows that there are afterwards, and what is done with a server.
Way = Callable[[Writing, str], tuple[pa.Table | None, Callable[[str], Any]]]


def upload(to: Writing, name: str) -> tuple[pa.Table, Callable[[str], Any]]:
    rows = to.rows()
    grid = pg.from_arrow(rows)
    return rows, lambda uri: pg.connect(uri).upload(grid, name, if_exists="replace")


def ingest(to: Writing, name: str, mode: Any = "replace") -> tuple[pa.Table, Callable[[str], Any]]:
    rows = to.rows()

    def do(uri: str) -> None:
        with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest(name, rows, mode=mode)

    return rows, do


def append(to: Writing, name: str) -> tuple[pa.Table, Callable[[str], Any]]:
    before = to.known.get(name)
    rows, do = ingest(to, name, "create_append")
    return rows if before is None else pa.concat_tables([before, rows]), do


def create(to: Writing, name: str) -> tuple[pa.Table, Callable[[str], Any]]:
    to.turn += 1
    query = f"SELECT value * {to.turn} AS n FROM generate_series(1, 300) ORDER BY n"
    text = f"CREATE OR REPLACE TABLE {name} AS {query}"
    rows = pa.table({"n": [value * to.turn for value in range(1, 301)]})
    return rows, lambda uri: pg.connect(uri).sql(text)


def load(to: Writing, name: str) -> tuple[pa.Table, Callable[[str], Any]]:
    rows, path = to.rows(), to.data / f"{to.turn}.parquet"
    pq.write_table(rows, path)
    wishes: dict[str, Any] = {"tile_rows": 200, "if_exists": "replace", "progress": False}
    return rows, lambda uri: pg.connect(uri).load_parquet(path, name, **wishes)


def drop(_to: Writing, name: str) -> tuple[None, Callable[[str], Any]]:
    return None, lambda uri: pg.connect(uri).sql(f"DROP TABLE {name}")


WAYS = [upload, ingest, append, create, load, drop]


def same(found: Grids, expected: Grids) -> bool:
    return found.keys() == expected.keys() and all(
        rows.to_pydict() == expected[name].to_pydict() for name, rows in found.items()
    )


def held(one: Service) -> Grids:
    connection = pg.connect(one.uri)
    return {name: connection.grid(name).to_arrow() for name in connection.grids()}


def cases() -> list[Any]:
    """Ways to write, to a name that is new or that has a grid; what is not there cannot be dropped."""
    few = [(upload, False), (ingest, True), (create, False), (load, True)]
    more = [(way, is_there) for way, is_there in product(WAYS, [False, True]) if way is not drop]
    each = [*(more if ALL else few), (drop, True)]
    words = {False: "new", True: "there"}
    return [pytest.param(*case, id=f"{case[0].__name__}-{words[case[1]]}") for case in each]


@pytest.mark.parametrize(("way", "is_there"), cases())
def test_a_call_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, way: Way, is_there: bool
) -> None:
    to = Writing(tmp_path)
    with to.service() as one:
        for error in TOLD:
            name = errno.errorcode[error].lower()
            if is_there:
                to.known = to.attempt(upload, one, name)
            for number in range(1, 100):
                to.disk.fail(number, error)
                told = to.told(way, one, name, error)
                to.disk.heal()
                assert same(held(one), to.known), (number, told)
                assert same(to.after_a_restart(), to.known), (number, told)
                if told is None:
                    break
                assert os.strerror(error) in told, number
            # It is made, written, synced and named, and the folder synced.
            assert number > 5


@pytest.mark.parametrize("error", TOLD, ids=os.strerror)
def test_a_disk_that_fails_from_a_call_on_leaves_everything_as_it_was(
    tmp_path: Path, error: int
) -> None:
    to = Writing(tmp_path)
    with to.service() as one:
        to.known = to.attempt(upload, one, "kept")
        for number in range(1, 100):
            to.disk.fail(number, error, NEVER)
            told = to.told(upload, one, "kept", error)
            if told is None:
                break
            assert same(held(one), to.known), (number, told)
            assert to.told(ingest, one, "other", error) is not None
            to.disk.heal()
            assert same(to.after_a_restart(), to.known), (number, told)
        assert number > 5
        to.disk.heal()
        assert to.told(ingest, one, "other", error) is None
    assert same(to.after_a_restart(), to.known)


@pytest.mark.parametrize("way", WAYS if ALL else [ingest])
def test_a_process_that_dies_at_a_call_leaves_the_old_or_the_new(tmp_path: Path, way: Way) -> None:
    to = Writing(tmp_path)
    with to.service() as one:
        to.known = to.attempt(upload, one, "kept")
        to.known = to.attempt(upload, one, "changed")
    deaths = 0
    while deaths < 100:
        with to.service() as one:
            to.disk.fail(deaths + 1, DEATH)
            try:
                to.known = to.attempt(way, one, "changed")
            except GONE:
                one.process.wait(20)
            else:
                break
            finally:
                to.disk.heal()
        deaths += 1
        found = to.after_a_restart()
        # Committed, and not said any more, at the most.
        assert same(found, to.known) or same(found, to.tried), deaths
        to.known = found
        if "changed" not in found:
            with to.service() as one:
                to.known = to.attempt(upload, one, "changed")
    assert deaths >= 5
    assert same(to.after_a_restart(), to.known)
