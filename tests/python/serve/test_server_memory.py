"""A server that the system gives no more memory than it has and 2 GiB: what wants more is refused, and nothing else is harmed."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import partgrid as pg
from services import Service, service

HUNGRY = {
    "a list": "SELECT array_length(array_agg(repeat('x', 1000))) FROM generate_series(1, 9999999)",
    "a text": "SELECT length(string_agg(repeat('x', 1000), ',')) FROM generate_series(1, 9999999)",
    "a join": "SELECT count(*) FROM generate_series(1, 30000000) a JOIN generate_series(1, 30000000) b"
    " ON a.value = b.value",
    "a product": "SELECT count(*) FROM generate_series(1, 30000000) a, generate_series(1, 30000000) b"
    " WHERE a.value < b.value",
    "a sort": "SELECT value, repeat('x', 1000) AS t FROM generate_series(1, 9999999) ORDER BY t, value",
    "a value": "SELECT length(repeat('x', 2000000000))",
    "a range": "SELECT array_length(range(1, 2000000000))",
    "a text that doubles": "WITH RECURSIVE r AS (SELECT 'x' AS a UNION ALL SELECT a || a FROM r)"
    " SELECT max(length(a)) FROM r",
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of a process are Linux's")


@pytest.fixture(scope="module")
def one() -> Iterator[Service]:
    limits = ["memory=400MB", "query_memory=200MB", "query_time=1"]
    words = [word for each in limits for word in ("--set", f"limits.{each}")]
    # What is counted is addresses, of which the allocator gives none back unless it is told to.
    with service(*words, _RJEM_MALLOC_CONF="retain:false") as one:
        pg.connect(one.uri).upload(pa.table({"a": [1, 2, 3]}), "t")
        sizes = Path(f"/proc/{one.process.pid}/statm").read_text().split()
        most = int(sizes[0]) * resource.getpagesize() + 2 * 1024**3
        resource.prlimit(one.process.pid, resource.RLIMIT_AS, (most, most))
        yield one


@pytest.mark.parametrize("what", HUNGRY)
def test_who_wants_all_memory_is_refused_and_nobody_else_harmed(one: Service, what: str) -> None:
    connection = pg.connect(one.uri)
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        connection.sql(HUNGRY[what]).to_arrow()
    assert connection.sql("SELECT sum(a) AS s FROM t").to_arrow()["s"].to_pylist() == [6]
    assert one.process.poll() is None
