"""Times of days, of which neither statistics of timestamps nor their order say anything."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import partgrid as pg

HOURS = 24 * 30
START = datetime.datetime(2013, 5, 1)


@pytest.fixture(scope="module", params=[None, "America/New_York"])
def grid(request: pytest.FixtureRequest) -> pg.Grid:
    """A row for each hour of thirty days, in order, in tiles whose ends are hours that follow each other from one day to the next."""
    moments = [START + datetime.timedelta(hours=hour) for hour in range(HOURS)]
    table = pa.table({"t": pa.array(moments, pa.timestamp("us", request.param))})
    return pg.from_arrow(pa.Table.from_batches(table.to_batches(max_chunksize=23)))


def test_no_tile_is_left_out_by_its_ends(grid: pg.Grid) -> None:
    text = "SELECT count(*) AS n FROM self WHERE CAST(t AS TIME) = TIME '02:00:00'"
    assert grid.sql(text).to_arrow()["n"].to_pylist() == [30]


def test_times_are_not_in_the_order_of_their_days(grid: pg.Grid) -> None:
    text = (
        "SELECT CAST(t AS TIME) AS x FROM (SELECT t FROM self ORDER BY t LIMIT 100) AS s ORDER BY x"
    )
    found = grid.sql(text).to_arrow()["x"].to_pylist()
    assert found == sorted(found)
    assert len(found) == 100
