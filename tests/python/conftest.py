"""Fixtures that several test files need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest

import partgrid as pg
from devices import Faulting

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"


@pytest.fixture(scope="session")
def flights() -> pg.Grid:
    """All flights, twelve tiles."""
    return pg.read_parquet(DATA / "flights")


@pytest.fixture(scope="session")
def flights_glob() -> str:
    """The same files as DuckDB and others take them."""
    return str(DATA / "flights" / "*" / "*.parquet")


@pytest.fixture
def driver() -> Faulting:
    """The driver of a device whose memory faults when the host touches it, known as kDLExtDev."""
    made = Faulting()
    pg.register_copy_engine("kDLExtDev", made)
    return made


@pytest.fixture
def client(server: pg.Server) -> Iterator[fl.FlightClient]:
    """A client of Flight, for the `server` of the test file."""
    with fl.connect(server.uri) as client:
        yield client


@pytest.fixture
def connection(server: pg.Server) -> Iterator[Any]:
    """A connection of ADBC to it."""
    # The environments of peers have none.
    import adbc_driver_flightsql.dbapi as adbc  # noqa: PLC0415

    with adbc.connect(server.uri, autocommit=True) as connection:
        yield connection


@pytest.fixture
def cursor(connection: Any) -> Iterator[Any]:
    """A cursor of that connection."""
    with connection.cursor() as cursor:
        yield cursor


@pytest.fixture
def name(server: pg.Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for a table of this test, free before and after."""
    made = f"made_{abs(hash(request.node.nodeid))}"
    yield made
    server.deregister(made)
