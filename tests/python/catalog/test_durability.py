"""A catalog whose disk fails: the server says that nothing is durable, until something is again; who would send rows for nothing is told at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from failing_disk import NEVER, ON_LINUX, FailingDisk
from served import numbers
from services import Service, http_answer, metrics, service, status, until

pytestmark = ON_LINUX

ERRORS = pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=os.strerror)

TOLD = (pg.errors.ResourcesExhaustedError, pg.errors.StorageError, adbc.Error)


def served(folder: Path) -> tuple[FailingDisk, Any]:
    """A disk that fails when it is told to, and a server with a catalog there."""
    disk = FailingDisk(folder, folder / "catalog")
    words = ["--catalog", folder / "catalog", "--set", f"load.from={folder}"]
    return disk, service(*words, **disk.environment)


def ready(one: Service) -> bytes:
    code, _, body = http_answer(one.http_uri, "/readyz")
    assert code == 200, body
    return body


DURABLE, NOT_DURABLE = (f"ready\ndurable: {word}\ndamaged: 0\n".encode() for word in ("yes", "no"))


def failed(one: Service, disk: FailingDisk, error: int) -> None:
    """Has a write fail, and all that follow."""
    disk.fail(1, error, NEVER)
    with pytest.raises(TOLD, match=os.strerror(error)):
        pg.connect(one.uri).upload(numbers(2), "failed")


@ERRORS
def test_a_server_says_that_nothing_is_durable_until_it_is_again(
    tmp_path: Path, error: int
) -> None:
    disk, starting = served(tmp_path)
    with starting as one:
        connection = pg.connect(one.uri)
        assert connection.upload(numbers(1), "kept")["durable"]
        assert ready(one) == DURABLE
        assert metrics(one)["partgrid_catalog_durable"] == 1
        assert status(one)["server"]["durable"] is True
        failed(one, disk, error)
        assert ready(one) == NOT_DURABLE
        found = metrics(one)
        assert found["partgrid_catalog_durable"] == 0
        assert found["partgrid_catalog_write_failures_total"] >= 1
        said = status(one)
        assert said["server"]["durable"] is False
        [standing] = [each for each in said["errors"] if "nothing is durable" in each["message"]]
        assert os.strerror(error) in standing["message"]
        assert connection.grid("kept").to_arrow() == numbers(1)
        # Whoever looks has it tried again; nothing is written for that to be known.
        disk.heal()
        until(lambda: ready(one) == DURABLE, 20)
        assert metrics(one)["partgrid_catalog_durable"] == 1
        said = status(one)
        assert not [each for each in said["errors"] if "nothing is durable" in each["message"]]
        assert connection.upload(numbers(3), "later")["durable"]
        assert sorted(connection.grids()) == ["kept", "later"]
    # Nothing is left of what was tried.
    with pg.Server(catalog=tmp_path / "catalog", http=None) as server:
        assert sorted(server.tables) == ["kept", "later"]
        assert len(list((tmp_path / "catalog" / "tiles").iterdir())) == 2


def upload(one: Service, _folder: Path) -> None:
    pg.connect(one.uri).upload(numbers(4), "new", ack="durable")


def ingest(one: Service, _folder: Path) -> None:
    with adbc.connect(one.uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("new", numbers(4), mode="create")


def load(one: Service, folder: Path) -> None:
    pq.write_table(numbers(4), folder / "rows.parquet")
    pg.connect(one.uri).load_parquet(folder / "rows.parquet", "new", progress=False)


def test_a_table_is_not_made_of_a_query_that_would_be_run_for_nothing(tmp_path: Path) -> None:
    disk, starting = served(tmp_path)
    with starting as one:
        connection = pg.connect(one.uri)
        connection.sql("CREATE TABLE made AS SELECT 1 AS a").to_arrow()
        disk.fail(1, errno.EIO, NEVER)
        for said in (os.strerror(errno.EIO), "nothing was begun"):
            with pytest.raises(TOLD, match=said) as caught:
                connection.sql("CREATE TABLE new AS SELECT 2 AS a").to_arrow()
            assert "upload" not in str(caught.value)
        # The second one was not run; the first is told as what it was.
        listed = [(each["sql"], each["state"]) for each in status(one)["queries"]]
        assert [state for sql, state in listed if "new" in sql] == ["failed"]
        assert {state for sql, state in listed if "made" in sql} == {"done"}
        disk.heal()
        connection.sql("CREATE TABLE new AS SELECT 2 AS a").to_arrow()
        assert sorted(connection.grids()) == ["made", "new"]


@ERRORS
@pytest.mark.parametrize("way", [upload, ingest, load])
def test_who_begins_is_told_and_the_first_who_can_write_needs_no_second_try(
    tmp_path: Path, way: Callable[..., None], error: int
) -> None:
    disk, starting = served(tmp_path)
    with starting as one:
        failed(one, disk, error)
        with pytest.raises(TOLD, match="nothing was begun") as caught:
            way(one, tmp_path)
        assert os.strerror(error) in str(caught.value)
        assert pg.connect(one.uri).grids() == []
        disk.heal()
        way(one, tmp_path)
        assert pg.connect(one.uri).grid("new").to_arrow() == numbers(4)
        assert ready(one) == DURABLE


def test_what_needs_no_catalog_goes_on(tmp_path: Path) -> None:
    disk, starting = served(tmp_path)
    with starting as one:
        connection = pg.connect(one.uri)
        done = connection.upload(numbers(1), "done", load_id="first")
        assert done == {"rows": 1000, "durable": True}
        failed(one, disk, errno.EIO)
        held = connection.upload(numbers(2), "held", ack="memory")
        assert held == {"rows": 1000, "durable": False}
        # It was done, and is durable, whatever is so now.
        assert connection.upload(numbers(1), "done", load_id="first") == done
        connection.sql("CREATE VIEW seen AS SELECT count(*) AS n FROM done").to_arrow()
        assert connection.sql("SELECT n FROM seen").to_arrow()["n"].to_pylist() == [1000]
        assert ready(one) == NOT_DURABLE


def test_a_server_without_a_catalog_promises_nothing() -> None:
    with pg.Server() as server:
        assert http_answer(server.http_uri, "/readyz")[2] == b"ready\n"
        assert not [name for name in metrics(server) if "catalog" in name]
        assert status(server)["server"]["durable"] is None
