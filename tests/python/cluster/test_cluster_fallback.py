"""A statement that one task runs reads tiles of other members after all: that is counted and logged, and refused where tiles are not to be fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from services import Service, until

# So many that the tile of each member is larger than what members keep of each other (4 MiB).
ROWS = 300_000

# A join that must see all rows in one place, and one whose rows are sent to one.
FULL = "SELECT count(*) AS n, sum(x) AS x, count(k) AS k FROM (VALUES (5), (17)) AS few(k) FULL JOIN wide ON x < k"
NOT_IN = "SELECT count(*) AS n, sum(x) AS x FROM wide WHERE x NOT IN (SELECT y FROM wide WHERE y % 1000 = 1 AND random() < 2)"


def rows(part: int) -> pa.Table:
    x = np.arange(part * ROWS, (part + 1) * ROWS)
    return pa.table({"x": x, "y": x % 1013})


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """Three, of which the last may fetch nothing."""
    folder = tmp_path_factory.mktemp("members")
    started = []
    try:
        for part in range(3):
            pq.write_table(rows(part), folder / f"{part}.parquet")
            wishes = ["--join", f"file:{folder / 'members'}", "--part", f"{part}/3"]
            wishes += ["--grid", f"wide={folder / f'{part}.parquet'}", "--set"]
            fetch = f"cluster.fetch={str(part < 2).lower()}"
            started.append(Service(*wishes, fetch, PARTGRID_LOG__FILTER="info"))
        uris = [each.ready().uri for each in started]
        (folder / "members").write_text("\n".join(uris))
        for uri in uris:
            until(lambda uri=uri: "wide" in pg.connect(uri).grids())
        yield started
    finally:
        for each in started:
            each.process.kill()
            each.process.wait()


def fetched(member: Service) -> set[str]:
    """The members whose tiles one says that it fetches."""
    lines = [line for line in member.said if "a tile of another member is fetched" in line]
    return {re.findall(r"uri=(\S+)", line)[0] for line in lines}


def bytes_of(number: str) -> float:
    """A number as EXPLAIN ANALYZE shows it."""
    digits, _, unit = number.partition(" ")
    return float(digits) * {"": 1, "K": 1e3, "M": 1e6}[unit]


def alone() -> pg.Session:
    session = pg.Session()
    session.register("wide", pg.from_arrow(pa.concat_tables(map(rows, range(3)))))
    return session


def test_tiles_that_are_fetched_are_counted_and_logged(members: list[Service]) -> None:
    first, *others = members
    one = alone()
    connection = pg.connect(first.uri)
    sizes = connection.sql("SELECT bytes FROM tiles('wide')").to_arrow()["bytes"].to_pylist()
    assert len(sizes) == 3
    assert min(sizes) > 4 * 2**20
    # Again and again: nothing of such tiles is kept.
    for _ in range(2):
        assert connection.sql(NOT_IN).to_arrow() == one.sql(NOT_IN).to_arrow()
        plan = connection.sql(NOT_IN).explain(analyze=True)
        [scan] = [line for line in plan.splitlines() if "GridScanExec: tiles=3/3" in line]
        counted = dict(re.findall(r"(\w+)=(?:\{0:)?([\d.]+(?: [KM])?)", scan))
        assert (counted["memory_tiles"], counted["process_tiles"]) == ("1", "2"), scan
        assert bytes_of(counted["process_rows"]) == 2 * ROWS, scan
        assert bytes_of(counted["process_bytes"]) > 2 * 8 * ROWS * 0.9, scan
    until(lambda: fetched(first) == {each.uri for each in others})
    assert fetched(others[0]) == fetched(others[1]) == set()


def test_a_statement_counts_what_its_last_stage_fetches(members: list[Service]) -> None:
    """What it says of itself is what all of its scans have counted, also those of the member that was asked."""
    plan = pg.connect(members[0].uri).sql(NOT_IN).explain(analyze=True)
    [counted] = re.findall(r"metrics=\[([^\[\]]*)\]$", plan)
    assert " process_tiles=2," in counted, plan


def test_tiles_that_must_not_be_fetched_are_an_error(members: list[Service]) -> None:
    connection = pg.connect(members[2].uri)
    with pytest.raises(
        pg.errors.NotLocalError, match=r"lives in another member.* not to be fetched"
    ):
        connection.sql(NOT_IN).to_arrow()
    # What needs none of them is answered.
    where = "SELECT count(*) AS n, sum(x) AS x FROM wide WHERE x % 7 = 3"
    assert connection.sql(where).to_arrow() == pg.connect(members[0].uri).sql(where).to_arrow()


def test_rows_of_a_full_join_without_keys_come_from_where_they_are(members: list[Service]) -> None:
    expected = alone().sql(FULL).to_arrow()
    for member in members:
        connection = pg.connect(member.uri)
        assert connection.sql(FULL).to_arrow() == expected
        plan = connection.sql(FULL).explain(analyze=True)
        [counted] = re.findall(r"metrics=\[([^\[\]]*)\]$", plan)
        assert "process_tiles" not in counted or " process_tiles=0," in counted, plan
