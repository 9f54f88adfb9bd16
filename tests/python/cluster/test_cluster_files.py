"""Parts of files that all members reach: when the member is lost that contributed them, others read them again, on first use or at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from clusters import (
    BAND_ROWS,
    PART_ROWS,
    Member,
    answer,
    cluster,
    copies,
    expected,
    held,
    processes,
    rows_of,
    until,
    write_list,
)
from services import Service


def shared(folder: Path, **more: object) -> dict[str, object]:
    """Settings of members that reach the files in a folder."""
    (folder / "data").mkdir(exist_ok=True)
    return {"cluster.shared": str(folder / "data"), **more}


def write(folder: Path, number: int, shift: int = 0) -> Path:
    """The rows of a part as a file; `shift` makes them others."""
    path = folder / "data" / f"{number}.parquet"
    pq.write_table(rows_of(number, shift), path, row_group_size=BAND_ROWS)
    return path


def grid_of(path: Path, *, lazy: bool = True) -> str:
    """What a member says to have the rows of a file."""
    return f"pg.read_parquet({str(path)!r}, tile_rows={BAND_ROWS}, lazy={lazy})"


def give(member: Member, grid: str, number: int, of: int, replicas: int = 1) -> None:
    """Has a member contribute a part."""
    part = f"part={number}, of={of}, replicas={replicas}"
    told = member.ask(f"server.contribute('sales', {grid}, {part})")
    assert told is None, told


def contribute(member: Member, folder: Path, number: int, of: int) -> None:
    """Gives a part of lazy tiles."""
    give(member, grid_of(write(folder, number)), number, of)


def known(members: list[Member], wanted: list[int]) -> None:
    """Waits until members know the files of these parts, and all have the grid."""
    until(lambda: copies(members), lambda seen: seen == wanted)
    for member in members:
        assert member.ask("server.refresh()") is None


def away(folder: Path) -> Path:
    """Puts the files where nobody finds them."""
    data, other = folder / "data", folder / "away"
    data.rename(other)
    return other


def test_files_of_a_member_that_was_killed_are_read_by_others(tmp_path: Path) -> None:
    with cluster(tmp_path, 3, **shared(tmp_path, **{"cluster.fetch": False})) as members:
        for number, member in enumerate(members):
            contribute(member, tmp_path, number, 3)
        known(members, [0, 0, 1, 1, 2, 2])
        wanted = expected(0, 1, 2)
        # Its own tiles, as long as it is there.
        assert processes(members[1].uri) == {member.pid: PART_ROWS for member in members}
        planned = pg.connect(members[1].uri).sql("SELECT sum(x) AS x FROM sales WHERE g < 9")
        members[0].kill()
        assert answer(members[1].uri) == wanted
        assert planned.to_arrow().to_pydict() == {"x": [sum(wanted["x"])]}
        members[2].kill()
        assert answer(members[1].uri) == wanted
        seen = until(lambda: processes(members[1].uri), lambda seen: len(seen) == 1)
        assert seen == {members[1].pid: 3 * PART_ROWS}


def test_who_knows_the_files_tells_others_when_members_are_lost_one_after_the_other(
    tmp_path: Path,
) -> None:
    """Those who know them were told by one who was told itself."""
    with cluster(tmp_path, 5, **shared(tmp_path)) as members:
        contribute(members[0], tmp_path, 0, 1)
        known(members, [0, 0])
        left = list(members)
        for _ in range(2):
            lost = next(member for member in left if held(member))
            lost.kill()
            left.remove(lost)
            known(left, [0, 0, 0])
            assert answer(left[-1].uri) == expected(0)


def test_a_new_original_takes_the_place_of_known_files(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, **shared(tmp_path)) as members:
        for number, member in enumerate(members):
            contribute(member, tmp_path, number, 2)
        known(members, [0, 1])
        members[0].kill()
        assert answer(members[1].uri) == expected(0, 1)
        path = tmp_path / "members"
        members[0] = Member(path, **shared(tmp_path))
        write_list(path, members)
        give(members[0], grid_of(write(tmp_path, 0, shift=1000), lazy=False), 0, 2)
        until(lambda: processes(members[1].uri).get(members[0].pid), lambda seen: seen == PART_ROWS)
        # It has rows in memory, which nobody else reads.
        known(members, [1])
        found = answer(members[1].uri)
        assert sum(found["x"]) == sum(expected(0, shift=1000)["x"]) + sum(expected(1)["x"])


def test_known_files_go_with_what_was_withdrawn(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, **shared(tmp_path)) as members:
        contribute(members[0], tmp_path, 0, 1)
        known(members, [0])
        assert members[0].ask("server.withdraw('sales')") is True
        until(lambda: [held(member) for member in members], lambda seen: seen == [[], []])
        for member in members:
            assert member.ask("server.refresh()") is None
            assert "sales" not in member.ask("server.tables")


def test_files_that_have_changed_or_are_gone_are_an_error_and_never_other_rows(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, 2, **shared(tmp_path)) as members:
        for number, member in enumerate(members):
            contribute(member, tmp_path, number, 2)
        known(members, [0, 1])
        members[0].kill()
        other = away(tmp_path)
        began = time.monotonic()
        with pytest.raises(pg.errors.PartgridError):
            answer(members[1].uri)
        assert time.monotonic() - began < 30
        other.rename(tmp_path / "data")
        assert answer(members[1].uri) == expected(0, 1)
    (tmp_path / "members").unlink()
    with cluster(tmp_path, 2, **shared(tmp_path)) as members:
        for number, member in enumerate(members):
            contribute(member, tmp_path, number, 2)
        known(members, [0, 1])
        members[0].kill()
        pq.write_table(pa.concat_tables([rows_of(0, 7)] * 2), tmp_path / "data" / "0.parquet")
        until(lambda: processes(members[1].uri), lambda seen: seen.keys() == {members[1].pid})
        with pytest.raises(pg.errors.PartgridError, match="changed"):
            answer(members[1].uri)


def test_files_elsewhere_and_tiles_in_memory_are_lost_with_their_member(tmp_path: Path) -> None:
    (tmp_path / "other" / "data").mkdir(parents=True)
    with cluster(tmp_path, 2, **shared(tmp_path)) as members:
        contribute(members[0], tmp_path / "other", 0, 2)
        give(members[1], grid_of(write(tmp_path, 1), lazy=False), 1, 2)
        for member in members:
            assert member.ask("server.refresh()") is None
        # As long as a copy would take.
        time.sleep(3)
        assert copies(members) == []
        members[0].kill()
        with pytest.raises((pg.errors.WorkerLostError, pg.errors.PartitionLostError)):
            answer(members[1].uri)


def test_what_servers_of_the_command_have_loaded_is_read_again(tmp_path: Path) -> None:
    """It is in memory; the servers remember from which files."""
    (tmp_path / "data").mkdir()
    path = tmp_path / "members"
    flags = ["--join", f"file:{path}", "--set", f"cluster.shared={tmp_path / 'data'}"]
    services = [
        Service(*flags, "--part", f"{number}/2", "--grid", f"sales={write(tmp_path, number)}")
        for number in range(2)
    ]
    try:
        path.write_text("\n".join(service.ready().uri for service in services))
        # What they say of their parts is said as by other members.
        members = cast("list[Member]", services)
        until(lambda: copies(members), lambda seen: seen == [0, 1])
        connection = pg.connect(services[1].uri)
        until(connection.grids, lambda seen: seen == ["sales"])
        lazy = "SELECT DISTINCT lazy FROM tiles('sales') WHERE process = {}"
        pid = services[1].process.pid
        assert connection.sql(lazy.format(pid)).to_arrow().to_pydict() == {"lazy": [False]}
        services[0].kill()
        assert answer(services[1].uri) == expected(0, 1)
    finally:
        for service in services:
            service.process.kill()
            service.process.wait()


def test_copies_that_are_asked_for_have_the_rows(tmp_path: Path) -> None:
    """`replicas` is for files that may go as well."""
    with cluster(tmp_path, 2, **shared(tmp_path)) as members:
        give(members[0], grid_of(write(tmp_path, 0)), 0, 1, replicas=2)
        known(members, [0])
        away(tmp_path)
        members[0].kill()
        assert answer(members[1].uri) == expected(0)


def reads_no_file(member: Member, folder: Path, *numbers: int) -> bool:
    """Whether a member answers while the files are away, which they are not all the time: they must be read before."""
    time.sleep(0.5)
    other = away(folder)
    try:
        return answer(member.uri) == expected(*numbers)
    except pg.errors.PartgridError:
        return False
    finally:
        other.rename(folder / "data")


def test_with_eager_they_are_read_at_once(tmp_path: Path) -> None:
    with cluster(tmp_path, 4, **shared(tmp_path, **{"cluster.eager": True})) as members:
        for number, member in enumerate(members[:2]):
            contribute(member, tmp_path, number, 2)
        known(members, [0, 0, 1, 1])
        until(lambda: reads_no_file(members[2], tmp_path, 0, 1), bool)
        members[0].kill()
        left = members[1:]
        serving = until(lambda: processes(members[1].uri), lambda seen: members[0].pid not in seen)
        # One that reads nothing itself.
        asked = next(member for member in left if member.pid not in serving)
        assert asked.ask("server.refresh()") is None
        until(lambda: reads_no_file(asked, tmp_path, 0, 1), bool)


def test_with_eager_one_member_reads_all_that_it_serves(tmp_path: Path) -> None:
    """Asked itself it deals the bands out to the others; those that ask it have it read all."""
    with cluster(tmp_path, 3, **shared(tmp_path, **{"cluster.eager": True})) as members:
        contribute(members[0], tmp_path, 0, 1)
        known(members, [0, 0])
        for member in members:
            until(lambda member=member: reads_no_file(member, tmp_path, 0), bool)
        assert set(processes(members[1].uri)) == {members[0].pid}
