"""Fixtures that several test files need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import partgrid as pg
from browser import Browser, chromium
from devices import Faulting

if TYPE_CHECKING:
    import pyarrow.flight as fl

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
# Beside the folders of tests: what several of them need, also in processes of their own.
TESTS = Path(__file__).resolve().parent


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
    # Some environments of peers have no pyarrow.
    import pyarrow.flight as fl  # noqa: PLC0415

    with fl.connect(server.uri) as client:
        yield client


@pytest.fixture
def connection(server: pg.Server) -> Iterator[Any]:
    """A connection of ADBC to it."""
    # None of the environments of peers has this.
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


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """Chromium, where this machine has it."""
    program = chromium()
    if program is None:
        pytest.skip("Chromium is missing (Debian: apt-get install chromium)")
    with Browser(program) as browser:
        yield browser


@pytest.fixture
def browser(chrome: Browser) -> Iterator[Browser]:
    """A browser whose page has complained of nothing when the test is over."""
    chrome.look(1280, 900)
    chrome.open("about:blank")
    chrome.complaints.clear()
    chrome.asked.clear()
    chrome.has_pretended = False
    yield chrome
    chrome.pretend("", None)
    # A request that a pretended server refuses is a line in the console of its own, whatever the page does about it.
    excused = "Failed to load resource" if chrome.has_pretended else None
    assert [text for text in chrome.complaints if not excused or excused not in text] == []
