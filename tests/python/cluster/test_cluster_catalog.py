"""A catalog that several servers have, and files that all members reach: who reads what, loads by all, and what happens when one is gone."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from clusters import Child, nothing_stays
from services import SPREAD, act

MEMBER = """
import json, sys
import partgrid as pg

server = pg.Server(http=None, **json.loads(sys.argv[1]))
print(server.uri, flush=True)
"""


class Member(Child):
    """A server in a child."""

    def __init__(self, environment: Mapping[str, str] | None = None, **wishes: Any) -> None:
        if "join" in wishes:
            wishes["settings"] = SPREAD | wishes.get("settings", {})
        super().__init__(MEMBER, json.dumps(wishes), environment=environment)
        self.uri = self.line()


def started(folder: Path, **settings: object) -> Member:
    """A member with the catalog in a folder, which reaches `data` there."""
    shared = str(folder / "data")
    settings = {"cluster.shared": shared, "load.from": shared, **settings}
    catalog, join = f"shared://{folder / 'catalog'}", f"file:{folder / 'members'}"
    return Member(catalog=catalog, join=join, settings=settings)


def met(folder: Path, members: list[Member]) -> None:
    """Writes the list of members, which know each other then."""
    (folder / "members").write_text("\n".join(member.uri for member in members) + "\n")
    for member in members:
        assert member.ask("server.refresh()") is None


@contextmanager
def cluster(folder: Path, of: int = 3, **settings: object) -> Iterator[list[Member]]:
    """Members that share a catalog, and reach `data` alike. Those that a test adds end with the others."""
    members: list[Member] = []
    try:
        for _ in range(of):
            members.append(started(folder, **settings))
        met(folder, members)
        yield members
    finally:
        for member in members:
            member.kill()


def files(folder: Path, count: int = 6, rows: int = 2000) -> pa.Table:
    """Files below hive folders, several tiles each; all rows."""
    whole = []
    for number in range(count):
        first = number * rows
        table = pa.table(
            {
                "x": list(range(first, first + rows)),
                "text": [f"row {row}" if row % 5 else None for row in range(first, first + rows)],
            }
        )
        below = folder / "data" / "sales" / f"part={number}"
        below.mkdir(parents=True)
        pq.write_table(table, below / "a.parquet", row_group_size=rows // 4)
        whole.append(table.append_column("part", pa.array([number] * rows, pa.int64())))
    return pa.concat_tables(whole)


QUERY = "SELECT part, count(*) AS n, sum(x) AS x, count(text) AS t, max(text) AS m FROM sales GROUP BY part ORDER BY part"


def expected(table: pa.Table) -> list[dict[str, Any]]:
    return pg.from_arrow(table).sql(QUERY.replace("sales", "self")).to_arrow().to_pylist()


def load(member: Member, folder: Path) -> int:
    """A load of the files at a member; gives how many rows."""
    connection = pg.connect(member.uri)
    told = connection.load_parquet(str(folder / "data" / "sales"), "sales", tile_rows=500)
    return int(told["rows"])


def answers(member: Member, table: pa.Table) -> None:
    rows = pg.connect(member.uri).sql(QUERY).to_arrow().to_pylist()
    assert rows == expected(table)


def loaded_before(members: list[Member], folder: Path) -> list[Member]:
    """Members that have loaded something together, and answered over it: they have by then what they keep. Nothing of it is left."""
    part = folder / "data" / "sales" / "part=1"
    connection = pg.connect(members[0].uri)
    assert connection.load_parquet(str(part), "first", tile_rows=500)["rows"] > 0
    for member in members:
        assert member.ask("server.refresh()") is None
        pg.connect(member.uri).sql("SELECT sum(x) AS x FROM first").to_arrow()
    connection.sql("DROP TABLE first").to_arrow()
    for member in members:
        assert member.ask("server.refresh()") is None
        assert member.ask("server.tables") == []
    for path in (folder / "catalog" / "tiles").glob("*.arrow"):
        path.unlink()
    return members


def tiles(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "catalog" / "tiles").glob("*.arrow"))


def written(members: list[Member]) -> int:
    """The bytes that these have written, to files and to others."""
    told = [Path(f"/proc/{member.process.pid}/io").read_text() for member in members]
    counts = [dict(line.split(": ") for line in text.splitlines()) for text in told]
    return sum(int(each["wchar"]) for each in counts)


def readers(plan: str) -> list[int]:
    """How many rows of the grid each member was dealt."""
    return [int(rows) for rows in re.findall(r"t\d: GridScanExec.*? rows=(\d+)", plan)]


def test_a_load_is_shared_by_all_and_known_to_all(tmp_path: Path) -> None:
    table = files(tmp_path)
    with cluster(tmp_path) as members:
        before = written(members[1:])
        assert load(members[0], tmp_path) == 12_000
        assert len(tiles(tmp_path)) == 24
        # Two of three write most of the tiles; here at least an eighth, since placement is like chance.
        folder = tmp_path / "catalog" / "tiles"
        size = sum((folder / name).stat().st_size for name in tiles(tmp_path))
        assert written(members[1:]) - before > size / 8
        with fl.connect(members[0].uri) as client:
            [said] = act(client, "Status")
        [job] = json.loads(said)["jobs"]
        size = sum(path.stat().st_size for path in (tmp_path / "data").rglob("*.parquet"))
        assert 0 < job["bytes"] == job["total_bytes"] < size
        for member in members:
            connection = pg.connect(member.uri)
            assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
            plan = connection.sql(QUERY).explain()
            assert "SpreadExec: members=3" in plan
            assert plan.count("GridScanExec") == 3, plan


def in_memory(member: Member) -> int:
    """How many tiles a member has in its memory."""
    query = "SELECT count(*) AS n FROM tiles('sales') WHERE NOT lazy"
    return int(pg.connect(member.uri).sql(query).to_arrow().to_pylist()[0]["n"])


def test_members_read_the_same_tiles_by_whatever_addresses_they_know_each_other(
    tmp_path: Path,
) -> None:
    table = files(tmp_path)
    with cluster(tmp_path) as members:
        # Each knows itself by its address, and the others by a name.
        uris = [member.uri.replace("127.0.0.1", "localhost") for member in members]
        (tmp_path / "members").write_text("\n".join(uris) + "\n")
        for member in members:
            assert member.ask("server.refresh()") is None
            seen = member.ask("server.members")
            assert sum("localhost" in uri for uri in seen) == 2
        assert load(members[0], tmp_path) == 12_000
        for member in members:
            wait_for(lambda member=member: member.ask("server.tables") == ["sales"])
            rows = pg.connect(member.uri).sql(QUERY).to_arrow().to_pylist()
            assert rows == expected(table)
        # Whoever is asked, each tile is read by one member.
        assert sum(in_memory(member) for member in members) == 24


def test_grids_of_the_catalog_are_there_after_all_members_have_ended(tmp_path: Path) -> None:
    table = files(tmp_path)
    with cluster(tmp_path) as members:
        load(members[1], tmp_path)
        wait_for(lambda: members[0].ask("server.tables") == ["sales"])
        pg.connect(members[0].uri).sql("CREATE TABLE few AS SELECT x FROM sales WHERE x < 10")
    with cluster(tmp_path, of=2) as members:
        connection = pg.connect(members[1].uri)
        assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
        assert connection.sql("SELECT sum(x) AS s FROM few").to_arrow().to_pylist() == [{"s": 45}]


def test_what_one_member_keeps_and_drops_others_know_at_once(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        first, other = (pg.connect(member.uri) for member in members[:2])
        first.upload(pa.table({"n": [1, 2, 3]}), "kept")
        assert members[1].ask("server.tables") == ["kept"]
        assert other.sql("SELECT sum(n) AS n FROM kept").to_arrow().to_pylist() == [{"n": 6}]
        other.sql("DROP TABLE kept")
        assert members[0].ask("server.tables") == []


def wait_for(is_so: Any, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.05)


def test_servers_without_a_cluster_share_a_catalog_too(tmp_path: Path) -> None:
    catalog = f"shared://{tmp_path / 'catalog'}"
    with pg.Server(catalog=catalog, http=None) as one, pg.Server(catalog=catalog, http=None) as two:
        pg.connect(one.uri).upload(pa.table({"n": [1]}), "kept")
        two.refresh()
        assert two.tables == ["kept"]
        # Whoever has a folder alone keeps others out, and they it.
        with pytest.raises(
            pg.errors.ResourcesExhaustedError, match="another process has the catalog"
        ):
            pg.Server(catalog=tmp_path / "catalog", http=None)


def test_of_two_who_write_one_name_at_once_one_is_told(tmp_path: Path) -> None:
    catalog = f"shared://{tmp_path / 'catalog'}"
    with pg.Server(catalog=catalog, http=None) as one, pg.Server(catalog=catalog, http=None) as two:
        pg.connect(one.uri).upload(pa.table({"n": [1]}), "kept")
        late = pg.connect(two.uri)
        with pytest.raises(
            pg.errors.StorageError, match=r"another process has changed .*kept"
        ) as told:
            late.upload(pa.table({"n": [2]}), "kept", if_exists="replace")
        assert told.value.retryable
        two.refresh()
        assert late.sql("SELECT n FROM kept").to_arrow().to_pylist() == [{"n": 1}]
        late.upload(pa.table({"n": [2]}), "kept", if_exists="replace")
        one.refresh()
        assert pg.connect(one.uri).sql("SELECT n FROM kept").to_arrow().to_pylist() == [{"n": 2}]


def test_two_loads_of_one_name_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    table = files(tmp_path)
    with cluster(tmp_path) as members, nothing_stays(loaded_before(members, tmp_path)):
        with ThreadPoolExecutor() as threads:
            jobs = [threads.submit(load, member, tmp_path) for member in members[:2]]
        outcomes: list[int | str] = []
        for job in jobs:
            try:
                outcomes.append(job.result())
            except (pg.errors.StorageError, pg.errors.QueryError) as error:
                outcomes.append(str(error))
        # An error keeps the connection of its call.
        jobs.clear()
        del job
        kinds = sorted(type(outcome).__name__ for outcome in outcomes)
        assert kinds == ["int", "str"], outcomes
        [told] = [outcome for outcome in outcomes if isinstance(outcome, str)]
        assert "sales" in told
        for member in members:
            member.ask("server.refresh()")
            answers(member, table)


def test_who_leaves_only_gives_its_tiles_away_and_who_is_lost_costs_no_answer(
    tmp_path: Path,
) -> None:
    table = files(tmp_path)
    with cluster(tmp_path) as members:
        load(members[0], tmp_path)
        connection = pg.connect(members[0].uri)
        assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
        members[2].kill()
        # It is not known yet that it is gone: the statement begins anew, or is planned for two.
        began = time.monotonic()
        assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
        assert time.monotonic() - began < 30
        members[0].ask("server.refresh()")
        assert len(members[0].ask("server.members")) == 2
        plan = connection.sql(QUERY).explain()
        assert "members=2" in plan
        assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)


def test_a_member_that_hangs_costs_no_answer_either(tmp_path: Path) -> None:
    table = files(tmp_path)
    with cluster(tmp_path) as members:
        load(members[0], tmp_path)
        connection = pg.connect(members[0].uri)
        assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
        members[1].process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
        assert time.monotonic() - began < 60


def test_a_load_goes_on_without_a_member_that_is_lost(tmp_path: Path) -> None:
    table = files(tmp_path, count=60)
    with ThreadPoolExecutor() as threads, cluster(tmp_path) as members:
        with nothing_stays(loaded_before(members, tmp_path)[:2]):
            job = threads.submit(load, members[0], tmp_path)
            wait_for(lambda: len(tiles(tmp_path)) > 10)
            assert not job.done()
            members[2].kill()
            assert job.result(60) == 120_000
            answers(members[0], table)
        # Tiles of the member that it had not told of are there twice, and go after the grace.
        assert len(tiles(tmp_path)) >= 240


def test_a_load_goes_on_without_a_member_that_hangs(tmp_path: Path) -> None:
    table = files(tmp_path, count=60)
    with (
        ThreadPoolExecutor() as threads,
        cluster(tmp_path) as members,
        nothing_stays(loaded_before(members, tmp_path)),
    ):
        job = threads.submit(load, members[0], tmp_path)
        wait_for(lambda: len(tiles(tmp_path)) > 10)
        members[2].stop()
        assert not job.done()
        began = time.monotonic()
        assert job.result(120) == 120_000
        # It is taken for lost after ten seconds.
        assert time.monotonic() - began < 25
        members[2].go_on()
        # Whatever it still writes is of no grid.
        for member in members:
            assert member.ask("server.refresh()") is None
            answers(member, table)


def test_a_load_whose_coordinator_is_lost_leaves_no_grid(tmp_path: Path) -> None:
    table = files(tmp_path, count=60)
    with (
        ThreadPoolExecutor() as threads,
        cluster(tmp_path) as members,
        nothing_stays(loaded_before(members, tmp_path)[1:]),
    ):
        job = threads.submit(load, members[0], tmp_path)
        wait_for(lambda: len(tiles(tmp_path)) > 10)
        members[0].kill()
        with pytest.raises(pg.errors.PartgridError):
            job.result(60)
        members[1].ask("server.refresh()")
        assert members[1].ask("server.tables") == []
        assert load(members[1], tmp_path) == 120_000
        # It may still be busy with the load that was lost, and is waited for a second only.
        assert members[2].ask("server.refresh()") is None
        answers(members[2], table)


def test_a_load_of_a_damaged_file_is_an_error_and_no_grid(tmp_path: Path) -> None:
    files(tmp_path)
    path = tmp_path / "data" / "sales" / "part=3" / "a.parquet"
    content = bytearray(path.read_bytes())
    for place in range(200, 2000):
        content[place] ^= 0x55
    path.write_bytes(content)
    with cluster(tmp_path) as members:
        with pytest.raises(pg.errors.PartgridError, match=r"part=3/a\.parquet"):
            load(members[0], tmp_path)
        for member in members:
            member.ask("server.refresh()")
            assert member.ask("server.tables") == []


def test_a_load_into_a_catalog_that_fails_is_an_error_and_no_grid(tmp_path: Path) -> None:
    files(tmp_path)
    with cluster(tmp_path) as members:
        # A file where a folder should be: whoever runs the tests may write everywhere.
        (tmp_path / "catalog" / "tiles").rmdir()
        (tmp_path / "catalog" / "tiles").write_text("in the way")
        with pytest.raises(pg.errors.StorageError, match="the catalog cannot"):
            load(members[0], tmp_path)
        (tmp_path / "catalog" / "tiles").unlink()
        assert load(members[0], tmp_path) == 12_000


def test_lazy_grids_of_files_that_all_reach_are_read_by_all(tmp_path: Path) -> None:
    table = files(tmp_path)
    with cluster(tmp_path) as members:
        source = str(tmp_path / "data" / "sales")
        lazy = f"server.register('sales', pg.read_parquet({source!r}, tile_rows=500, lazy=True))"
        assert members[0].ask(lazy) is None
        connection = pg.connect(members[0].uri)
        for _ in range(2):
            assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
        plan = connection.sql(QUERY).explain(analyze=True)
        assert "SpreadExec: members=3" in plan
        rows = readers(plan)
        assert len(rows) == 3, plan
        assert sum(rows) == 12_000, plan
        assert min(rows) > 0, plan


def test_a_file_that_has_changed_since_is_an_error(tmp_path: Path) -> None:
    files(tmp_path)
    with cluster(tmp_path) as members:
        source = str(tmp_path / "data" / "sales")
        lazy = f"server.register('sales', pg.read_parquet({source!r}, lazy=True))"
        assert members[0].ask(lazy) is None
        for number in range(6):
            path = tmp_path / "data" / "sales" / f"part={number}" / "a.parquet"
            pq.write_table(pa.table({"x": [1], "text": ["other"]}), path)
        with pytest.raises(pg.errors.InvalidDataError, match="changed"):
            pg.connect(members[0].uri).sql(QUERY).to_arrow()


def test_files_elsewhere_are_read_by_the_member_that_has_the_grid(tmp_path: Path) -> None:
    table = files(tmp_path)
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with cluster(tmp_path) as members:
        source = str(tmp_path / "elsewhere" / "sales")
        lazy = f"server.register('sales', pg.read_parquet({source!r}, lazy=True))"
        assert members[0].ask(lazy) is None
        connection = pg.connect(members[0].uri)
        assert "SpreadExec" not in connection.sql(QUERY).explain()
        assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
