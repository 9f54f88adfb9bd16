"""Clients and servers that are cut off from each other: by a connection that closes, and by one on which nothing comes any more.

Each side is told within its deadline, and the server ends what was asked for: no query runs, no memory is held, nobody computes.
`PARTGRID_CANCELLED=all` cancels queries of all kinds, not of some.
`PARTGRID_CUT_SILENCE=client` lets clients wait for their own deadline, too, which is 30 seconds.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from proxies import Proxy
from resting import at_rest
from services import (
    ENDLESS,
    Service,
    command,
    proto,
    running,
    service,
    statement,
    status,
    until,
)

# What never ends, at each kind of operator that brings rows from several partitions together.
WORKS = {
    "count": ENDLESS,
    "groups": "SELECT value % 10 AS k, count(*) AS n FROM generate_series(1, 9000000000000000)"
    " WHERE value < 0 GROUP BY 1",
    "join": "SELECT a.value, count(*) AS n FROM generate_series(1, 9000000000000000) a"
    " JOIN generate_series(-5, -1) b ON a.value = b.value GROUP BY a.value",
    "pairs": "SELECT count(*) AS n FROM generate_series(1, 9000000) a, generate_series(1, 9000000) b"
    " WHERE a.value * b.value = 7",
    "window": "SELECT value, row_number() OVER (PARTITION BY value % 7 ORDER BY value) AS n"
    " FROM generate_series(1, 9000000000000000) WHERE value < 0",
    "recursion": "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a % 5 + 1 FROM r)"
    " SELECT count(*) FROM r WHERE a < 0",
    "subquery": f"SELECT 1 AS a WHERE 0 = ({ENDLESS})",
    "rows": "SELECT value, value * 2 AS twice FROM generate_series(1, 100000000000)",
    "sorted": "SELECT value % 1000 AS k FROM generate_series(1, 9000000000000000) ORDER BY k",
}


# Kinds that are cancelled in any case.
SOME = ["groups", "join", "pairs"]


CUTS = ["closes", "is silent"]


@pytest.fixture(scope="module")
def one() -> Iterator[Service]:
    words = ["limits.silence=1.5", "limits.query_time=600", "limits.query_memory=256MB"]
    with service(*(word for each in words for word in ("--set", each))) as one:
        yield one


@contextmanager
def between(one: Service) -> Iterator[Proxy]:
    with Proxy(int(one.uri.rsplit(":", 1)[1])) as proxy:
        yield proxy


def part(proxy: Proxy, how: str) -> None:
    proxy.cut() if how == "closes" else proxy.stall()


@pytest.mark.parametrize("what", WORKS if os.environ.get("PARTGRID_CANCELLED") == "all" else SOME)
def test_what_was_cancelled_is_over(one: Service, what: str) -> None:
    with fl.connect(one.uri) as client:
        for pause in (0.0, 0.3):
            info = client.get_flight_info(statement(WORKS[what]))
            reader = client.do_get(info.endpoints[0].ticket)
            until(lambda: running(one))
            time.sleep(pause)
            reader.cancel()
            until(lambda: not running(one))
            # Its ticket is there yet: another one may ask again.
            at_rest(one)


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("what", ["groups", "rows"])
def test_a_query_of_a_client_that_is_cut_off_ends(one: Service, what: str, how: str) -> None:
    with between(one) as proxy, fl.connect(proxy.uri) as client:
        info = client.get_flight_info(statement(WORKS[what]))
        reader = client.do_get(info.endpoints[0].ticket)
        if what == "rows":
            reader.read_chunk()
        until(lambda: running(one))
        part(proxy, how)
        at_rest(one)
        assert status(one)["queries"][0]["state"] == "cancelled"
        proxy.cut()
        with pytest.raises((pa.ArrowException, fl.FlightError)):
            reader.read_all()


@pytest.mark.parametrize("how", CUTS)
def test_of_a_table_whose_client_is_cut_off_nothing_stays(one: Service, how: str) -> None:
    name = f"cut_{CUTS.index(how)}"
    with between(one) as proxy, fl.connect(proxy.uri) as client:
        batch = pa.record_batch({"a": np.arange(10_000)})
        wanted = command("CommandStatementIngest", (1, proto((1, 1), (2, 1))), (2, name))
        writer, _ = client.do_put(wanted, batch.schema)
        before = proxy.passed
        writer.write_batch(batch)
        until(lambda: proxy.passed - before > batch.nbytes)
        failed = len(status(one)["errors"])
        part(proxy, how)
        until(lambda: len(status(one)["errors"]) > failed, 20)
        assert status(one)["errors"][0]["kind"] == "Cancelled"
        at_rest(one)
        assert name not in pg.connect(one.uri).grids()
        proxy.cut()
        with pytest.raises((pa.ArrowException, fl.FlightError)):
            writer.close()


@pytest.mark.parametrize("how", CUTS)
def test_a_client_that_is_cut_off_is_told(one: Service, how: str) -> None:
    if how == "is silent" and os.environ.get("PARTGRID_CUT_SILENCE") != "client":
        pytest.skip("a client waits for 30 s: PARTGRID_CUT_SILENCE=client waits with it")
    with between(one) as proxy:
        connection = pg.connect(proxy.uri)
        told: list[Callable[[], Any]] = [
            lambda: connection.sql(WORKS["groups"]).to_arrow(),
            lambda: connection.sql(WORKS["rows"]).to_arrow(),
            lambda: connection.sql(f"CREATE TABLE never AS {WORKS['groups']}"),
        ]
        with ThreadPoolExecutor(len(told)) as threads:
            asked = [threads.submit(each) for each in told]
            until(lambda: len(running(one)) == len(told))
            part(proxy, how)
            # Twice the deadline, for a machine that has more to do.
            for each in asked:
                with pytest.raises(pg.errors.StorageError, match=proxy.uri) as caught:
                    each.result(60)
                assert "\nhint: " in str(caught.value)
        at_rest(one)
        assert pg.connect(one.uri).grids() == []


def test_a_program_that_does_not_read_is_no_client_that_is_silent(one: Service) -> None:
    """Its library says that it is there."""
    with fl.connect(one.uri) as client:
        info = client.get_flight_info(statement("SELECT value FROM generate_series(1, 9000000)"))
        reader = client.do_get(info.endpoints[0].ticket)
        first = reader.read_chunk().data.num_rows
        rests = threading.Event()
        assert not rests.wait(3)
        assert first + sum(chunk.data.num_rows for chunk in reader) == 9_000_000
    at_rest(one)
