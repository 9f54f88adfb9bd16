"""Tiles of a shared catalog, and of lazy files that all reach, that members read before anybody asks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import partgrid as pg
from test_cluster_catalog import QUERY, Member, cluster, expected, files, in_memory, load


def answer_without_files(member: Member, folder: Path) -> list[dict[str, object]]:
    """What a member answers while nobody can read a file of a tile."""
    tiles, away = folder / "catalog" / "tiles", folder / "away"
    tiles.rename(away)
    try:
        return pg.connect(member.uri).sql(QUERY).to_arrow().to_pylist()
    finally:
        away.rename(tiles)


def wait_for_tiles(members: list[Member], count: int) -> None:
    stop = time.monotonic() + 60
    while sum(in_memory(member) for member in members) < count:
        assert time.monotonic() < stop, "tiles were not read ahead"
        time.sleep(0.1)


@pytest.mark.parametrize("replicas", [1, 2])
def test_members_read_their_tiles_as_soon_as_they_know_them(tmp_path: Path, replicas: int) -> None:
    """A start with a catalog that is there; with a second copy the other member needs nothing when one is lost."""
    table = files(tmp_path)
    with cluster(tmp_path, of=1) as members:
        assert load(members[0], tmp_path) == 12_000
    (tmp_path / "members").unlink()
    wishes = {"cluster.eager": True, "cluster.replicas": replicas}
    with cluster(tmp_path, of=2, **wishes) as members:
        wait_for_tiles(members, 24 * replicas)
        assert answer_without_files(members[0], tmp_path) == expected(table)
        members[1].kill()
        # What the other one had is read at once by who has it now, if it is not there.
        wait_for_tiles(members[:1], 24)
        assert answer_without_files(members[0], tmp_path) == expected(table)


def test_without_it_they_are_read_on_first_use(tmp_path: Path) -> None:
    table = files(tmp_path)
    with cluster(tmp_path, of=1) as members:
        assert load(members[0], tmp_path) == 12_000
    (tmp_path / "members").unlink()
    with cluster(tmp_path, of=2) as members:
        assert [in_memory(member) for member in members] == [0, 0]
        assert pg.connect(members[0].uri).sql(QUERY).to_arrow().to_pylist() == expected(table)
        # Each has its own.
        assert sum(in_memory(member) for member in members) == 24
        assert answer_without_files(members[0], tmp_path) == expected(table)


LAZY = "server.register('sales', pg.read_parquet({!r}, tile_rows=500, lazy=True))"


def without_data(member: Member, folder: Path) -> list[dict[str, object]] | None:
    """What a member answers while the files are away; `None` where it would have to read one."""
    data, away = folder / "data", folder / "elsewhere"
    data.rename(away)
    try:
        return pg.connect(member.uri).sql(QUERY).to_arrow().to_pylist()
    except pg.errors.PartgridError:
        return None
    finally:
        away.rename(data)


def wait_for_files(member: Member, folder: Path) -> list[dict[str, object]]:
    stop = time.monotonic() + 60
    while (rows := without_data(member, folder)) is None:
        assert time.monotonic() < stop, "files were not read ahead"
        time.sleep(0.5)
    return rows


def test_tiles_of_lazy_files_are_read_ahead_by_all(tmp_path: Path) -> None:
    """The member that has the grid tells the others what to read, and anew when one is lost."""
    table = files(tmp_path)
    with cluster(tmp_path, **{"cluster.eager": True}) as members:
        assert members[0].ask(LAZY.format(str(tmp_path / "data" / "sales"))) is None
        assert wait_for_files(members[0], tmp_path) == expected(table)
        members[2].kill()
        stop = time.monotonic() + 30
        while len(members[0].ask("server.members")) == 3:
            assert time.monotonic() < stop, "the loss was not seen"
            time.sleep(0.05)
        assert wait_for_files(members[0], tmp_path) == expected(table)


def test_without_it_lazy_files_are_read_on_first_use(tmp_path: Path) -> None:
    table = files(tmp_path)
    with cluster(tmp_path) as members:
        assert members[0].ask(LAZY.format(str(tmp_path / "data" / "sales"))) is None
        # As long as reading ahead would take.
        time.sleep(3)
        assert without_data(members[0], tmp_path) is None
        assert pg.connect(members[0].uri).sql(QUERY).to_arrow().to_pylist() == expected(table)
        assert without_data(members[0], tmp_path) == expected(table)
