"""Fixtures that several test files need."""

from __future__ import annotations

from pathlib import Path

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
