"""What statements say of tiles whose member is gone: which tile of the grid it is, and whose it was."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from clusters import (
    BAND_ROWS,
    BANDS,
    PART_ROWS,
    QUERY,
    Member,
    answer,
    cluster,
    expected,
    free_port,
    refresh,
    until,
    write_list,
)


def bands_of(member: Member, process: int) -> list[int]:
    """The row bands of the grid that a process has, as a member shows them."""
    sql = f"SELECT row_band FROM tiles('sales') WHERE process = {process} ORDER BY row_band"
    bands: list[int] = pg.connect(member.uri).sql(sql).to_arrow()["row_band"].to_pylist()
    return bands


def lost(member: Member, text: str) -> str:
    """What a member says to a statement that reads what is lost."""
    with pytest.raises(pg.errors.PartitionLostError) as caught:
        pg.connect(member.uri).sql(text).to_arrow()
    return str(caught.value)


@pytest.mark.parametrize("fetch", [True, False])
def test_a_tile_that_is_lost_is_named_as_the_grid_counts_it(tmp_path: Path, fetch: bool) -> None:
    with cluster(tmp_path, 3, **{"cluster.fetch": fetch}) as members:
        for number, member in enumerate(members):
            member.contribute(number, len(members))
        refresh(members)
        *left, gone = members
        bands = bands_of(left[0], gone.pid)
        assert bands == list(range(2 * BANDS, 3 * BANDS))
        gone.kill()
        for member in left:
            until(lambda member=member: member.ask("len(server.members)"), lambda seen: seen == 2)
        for member in left:
            for band in bands:
                first = band * BAND_ROWS
                one = f"x >= {first} AND x < {first + BAND_ROWS}"
                # Alone, and behind all that the others have.
                for some in (one, f"x < {2 * PART_ROWS} OR {one}"):
                    said = lost(member, f"SELECT g, sum(x) AS x FROM sales WHERE {some} GROUP BY g")
                    assert f"position: ({band}, 0)" in said
                    assert said.count("position: ") == 1
                    assert f"member: {gone.uri}" in said
                    assert "table: sales" in said
            [band] = re.findall(r"position: \((\d+), 0\)", lost(member, QUERY))
            assert int(band) in bands


def hint(member: Member) -> str:
    """What it says can be done about it."""
    return lost(member, QUERY).partition("\nhint: ")[2]


def test_who_misses_rows_of_a_member_that_came_back_without_them_is_told_that_they_are_missing(
    tmp_path: Path,
) -> None:
    """To ask again gives the same as long as nobody contributes them."""
    fixed = {"server.address": f"127.0.0.1:{free_port()}"}
    with cluster(tmp_path, 1) as members:
        members.append(Member(tmp_path / "members", **fixed))
        write_list(tmp_path / "members", members)
        for number, member in enumerate(members):
            member.contribute(number, 2)
        refresh(members)
        asked = members[0]
        assert answer(asked.uri) == expected(0, 1)
        members[1].kill()
        until(lambda: asked.ask("len(server.members)"), lambda seen: seen == 1)
        wrong = "grid 'sales': 1 of the 2 parts is there; part 1 is missing; "
        said = until(lambda: hint(asked), lambda said: said.startswith(wrong))
        assert "contribute(name, grid, part=1, of=2)" in said
        members[1] = Member(tmp_path / "members", **fixed)
        refresh(members)
        assert hint(asked) == said
        members[1].contribute(1, 2)
        refresh(members)
        assert answer(asked.uri) == expected(0, 1)


def last_band(member: Member) -> pa.Table | None:
    """The last row band of a grid, which another member has, as this one gives it to clients of Flight; nothing if it says that it is lost."""
    with fl.connect(member.uri) as client:
        *_, end = client.get_flight_info(fl.FlightDescriptor.for_path("wide")).endpoints
        try:
            return client.do_get(end.ticket).read_all()
        except (pa.ArrowKeyError, fl.FlightUnavailableError) as error:
            said = str(error)
    assert "the member that had the tile" in said
    return None


@pytest.mark.parametrize("rows", [1000, 600_000], ids=["kept", "mapped"])
def test_who_has_given_a_row_band_of_another_to_a_client_loses_it_with_its_owner(
    tmp_path: Path, rows: int
) -> None:
    """As those do who have not: of a small tile the columns are kept, a large one is mapped."""
    with cluster(tmp_path, 3) as members:
        for number, member in enumerate(members):
            values = f"pa.array(range({number * rows}, {(number + 1) * rows}))"
            told = f"server.contribute('wide', pa.table({{'x': {values}}}), part={number}, of=3)"
            assert member.ask(told) is None
        refresh(members)
        has_given, has_not, gone = members
        for _ in range(2):
            seen = last_band(has_given)
            assert seen is not None
            assert seen["x"][-1].as_py() == 3 * rows - 1
        gone.kill()
        for member in (has_given, has_not):
            until(lambda member=member: member.ask("len(server.members)"), lambda seen: seen == 2)
            until(lambda member=member: last_band(member) is None, bool, 15)
            assert last_band(member) is None
