"""Members of a cluster whose clocks are days apart: what they load, keep, replace and collect is right for all of them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import partgrid as pg
from clocks import DAY, Clock, needs_clocks
from clusters import nothing_stays
from services import Service, until
from test_cluster_catalog import QUERY, Member, expected, files, load, tiles

pytestmark = needs_clocks

COLLECTED = "files that no grid of the catalog has any more were removed"


def clock(folder: Path, shift: int) -> Clock:
    folder.mkdir()
    made = Clock(folder)
    made.jump(shift)
    return made


def orphan(folder: Path, number: int, days: int) -> Path:
    """The file of a tile of no grid, which is so many days old."""
    path = folder / "catalog" / "tiles" / f"{number:032x}-0-0-{number:016x}.arrow"
    path.write_bytes(b"rows of nobody")
    then = time.time() - days * DAY
    os.utime(path, (then, then))
    return path


def test_members_whose_clocks_are_days_apart_share_a_catalog(tmp_path: Path) -> None:
    table = files(tmp_path)
    path, data = tmp_path / "members", str(tmp_path / "data")
    catalog, join = f"shared://{tmp_path / 'catalog'}", f"file:{path}"
    ahead, behind = clock(tmp_path / "ahead", DAY), clock(tmp_path / "behind", -DAY)
    settings = {"cluster.shared": data, "load.from": data}

    def begun_ahead() -> Service:
        sets = (word for key, value in settings.items() for word in ("--set", f"{key}={value}"))
        arguments = ("--join", join, "--catalog", catalog, *sets)
        return Service(*arguments, PARTGRID_LOG__FILTER="partgrid=debug", **ahead.environment)

    wishes: dict[str, Any] = {"catalog": catalog, "join": join, "settings": settings}
    first = begun_ahead()
    others = [Member(**wishes), Member(behind.environment, **wishes)]
    services = [first]
    try:
        uris = [member.uri for member in others]
        path.write_text("\n".join([*uris, first.ready().uri]) + "\n")
        for member in others:
            assert member.ask("server.refresh()") is None
            assert len(member.ask("server.members")) == 3
        assert load(first, tmp_path) == 12_000
        for member in others:
            assert member.ask("server.refresh()") is None
        for uri in [*uris, first.uri]:
            assert answers(uri, table)
        planned = pg.connect(uris[0]).sql(QUERY)
        # Each has told the others of something by now.
        for number, uri in enumerate([*uris, first.uri]):
            pg.connect(uri).upload(table.slice(0, 10), f"few_{number}")
        of_load = tiles(tmp_path)
        with nothing_stays(others):
            first.kill()
            again = begun_ahead()
            services.append(again)
            # The one that is behind replaces what the one ahead has loaded.
            newer = table.set_column(0, "x", pa.array(range(5, 12_005), pa.int64()))
            pg.connect(uris[1]).upload(newer, "sales", if_exists="replace")
            path.write_text("\n".join([*uris, again.ready().uri]) + "\n")
            old = orphan(tmp_path, 1, days=2)
            # What is a day old by one of the clocks alone stays, whoever may be reading it.
            orphan(tmp_path, 2, days=0)
            in_use = {*tiles(tmp_path)} - {old.name}
            assert in_use > {*of_load}
            until(lambda: COLLECTED in "".join(again.said), 60)
            assert not old.exists()
            assert in_use == {*tiles(tmp_path)}
            assert planned.to_arrow().to_pylist() == expected(table)
            for uri in [*uris, again.uri]:
                assert answers(uri, newer)
            # And the one ahead what that one has kept.
            pg.connect(again.uri).upload(table, "sales", if_exists="replace")
            for uri in [*uris, again.uri]:
                until(lambda uri=uri: answers(uri, table))
    finally:
        for member in others:
            member.kill()
        for each in services:
            each.kill()
            each.process.wait()


def answers(uri: str, table: pa.Table) -> bool:
    return pg.connect(uri).sql(QUERY).to_arrow().to_pylist() == expected(table)
