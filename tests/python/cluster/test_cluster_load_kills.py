"""Members that are killed at random moments of a load that all share: the grid is there whole or not at all, who asked is told, and what was left behind goes.

`PARTGRID_LOAD_KILLS` says how often one is killed (500 for a release).
"""

from __future__ import annotations

import json
import os
import random
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pyarrow as pa

import partgrid as pg
from clusters import nothing_stays, works
from dying_loads import Loading, files, of_a_load
from services import until
from test_cluster_catalog import Member, cluster, met, started

KILLS = int(os.environ.get("PARTGRID_LOAD_KILLS", "3"))

# Whether it is the member that was asked for the load, and when.
ENDS = [(True, "tile"), (False, "tile"), (True, "any"), (True, "manifest"), (False, "any")]

DAYS = 2 * 24 * 60 * 60


def held(member: Member) -> dict[str, pa.Table]:
    connection = pg.connect(member.uri)
    return {name: connection.grid(name).to_arrow() for name in connection.grids()}


def named(folder: Path) -> dict[str, set[str]]:
    """The files of tiles that the latest manifest of each name has."""
    latest: dict[str, tuple[int, set[str]]] = {}
    for path in (folder / "grids").rglob("*.json"):
        try:
            text = path.read_text()
        except FileNotFoundError:
            # A later one has taken its place.
            continue
        contents = json.loads(text.split("\n", 1)[1])["contents"]
        made = int(path.stem), {tile["path"] for tile in contents["tiles"]}
        latest[path.parent.name] = max(made, latest.get(path.parent.name, made))
    return {name: tiles for name, (_, tiles) in latest.items()}


def at_rest(folder: Path, members: list[Member]) -> None:
    """Waits until nobody writes any more what nobody waits for."""

    def rests() -> bool:
        before = files(folder, "tiles")
        return not any(works(members)) and files(folder, "tiles") == before

    until(rests, 60)


def aged(folder: Path) -> None:
    """Makes everything two days old."""
    then = time.time() - DAYS
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            os.utime(path, (then, then))


class Moment:
    """A moment of a load that is about to begin: any, that its first tile is there, or that its manifest is."""

    def __init__(self, which: str, folder: Path, seconds: float, source: random.Random) -> None:
        self.part = {"tile": "tiles", "manifest": "grids"}.get(which)
        self.folder, self.before = folder, files(folder, self.part or "grids")
        later = source.choice([0, 0, source.uniform(0, 0.01)])
        self.pause = later if self.part else source.uniform(0, 1.3 * seconds)

    def wait(self, load: Loading) -> None:
        """Waits for it, or for the end of the load."""
        while self.part and load.is_alive() and files(self.folder, self.part) <= self.before:
            """It is looked at again."""
        time.sleep(self.pause)


def test_a_load_whose_members_are_killed_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    catalog, data = tmp_path / "catalog", tmp_path / "data"
    source = random.Random(KILLS)
    num_done = 0
    known = {"kept": of_a_load(data / "kept", 1)}
    with cluster(tmp_path) as members:
        begun = time.monotonic()
        first = Loading(members[0].uri, data / "kept", "kept")
        first.run()
        assert first.rows == 60_000, first.refusal
        seconds = time.monotonic() - begun
        # Those that were there from the beginning have all loaded and answered.
        lasting = [*members]
        for member in members:
            assert member.ask("server.refresh()") is None
            again = Loading(member.uri, data / "kept", "kept")
            again.run()
            assert again.rows == 60_000, again.refusal
            assert sorted(held(member)) == ["kept"]
        for turn in range(KILLS):
            # A name that has a grid, or one that may be new.
            name = source.choice(["kept", "a", "b"])
            is_asked, which = ENDS[turn % len(ENDS)]
            rows = of_a_load(data / str(turn), turn + 2)
            victim = 0 if is_asked else source.choice([1, 2])
            lasting = [member for member in lasting if member is not members[victim]]
            with nothing_stays(lasting, segments=False) if lasting else nullcontext():
                load = Loading(members[0].uri, data / str(turn), name)
                moment = Moment(which, catalog, seconds, source)
                load.start()
                moment.wait(load)
                members[victim].kill()
                load.join(60)
                assert not load.is_alive()
                assert (load.rows is None) == (load.refusal is not None)
                # What one has not written that only took part, others write.
                assert is_asked or load.rows == 60_000, (turn, load.refusal)
                if load.refusal is not None:
                    assert isinstance(load.refusal, pg.errors.StorageError), (turn, load.refusal)
                    assert load.refusal.retryable
                num_done += load.rows is not None
                members[victim] = started(tmp_path)
                met(tmp_path, members)
                for member in members:
                    found = held(member)
                    if name in found and found[name].equals(rows):
                        # Committed, and not said any more, at the most.
                        known[name] = rows
                    assert load.rows is None or known[name].equals(rows), (turn, which)
                    assert sorted(found) == sorted(known), (turn, which, name)
                    for each, expected in known.items():
                        assert found[each].equals(expected), (turn, which, each)
                # What was read is mapped as long as somebody has it.
                del found
            source.shuffle(members)
        print(f"{KILLS} killed: {num_done} loads were done, 0 were done in part")
        collected(catalog, data, members, known)


def collected(catalog: Path, data: Path, members: list[Member], known: dict[str, pa.Table]) -> None:
    """A day later what nobody has any more is removed, also by others; and not what may still be read."""
    at_rest(catalog, members)
    read = named(catalog)
    aged(catalog)
    with pg.Server(catalog=f"shared://{catalog}", http=None):
        again = Loading(members[0].uri, data / "kept", "kept")
        again.run()
        assert again.rows == 60_000, again.refusal
        wanted = set.union(*read.values(), *named(catalog).values())
        until(lambda: files(catalog, "tiles") == wanted, 60)
        assert read["kept"] != named(catalog)["kept"]
        for member in members:
            assert member.ask("server.refresh()") is None
            assert sorted(held(member)) == sorted(known)
