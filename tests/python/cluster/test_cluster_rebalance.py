"""The rows of a grid of several members, dealt out anew: even shares, the fewest bytes, the same rows in the same order, and the old grid where it fails."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
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
    copies,
    expected,
    held,
    leave,
    maps_tiles,
    processes,
    refresh,
    rows_of,
    until,
    write_list,
)
from services import COMMAND, write_tokens


def joined(folder: Path, members: list[Member]) -> Member:
    """One more member, which all know, and which knows the grid."""
    path = folder / "members"
    members.append(Member(path))
    write_list(path, members)
    for member in members:
        assert member.ask("server.refresh()") is None
        assert len(member.ask("server.members")) == len(members)
    return members[-1]


def band_bytes(uri: str) -> int:
    """The bytes of each row band, which are all equal."""
    sql = "SELECT DISTINCT bytes FROM tiles('sales')"
    [of_each] = pg.connect(uri).sql(sql).to_arrow()["bytes"].to_pylist()
    return int(of_each)


def places(uri: str) -> list[list[int]]:
    """The processes that have the tile of each row band, as the grid of a client says."""
    located = pg.connect(uri).grid("sales").locations()
    assert len({host for each in located for host, _ in each}) == 1
    return [[pid for _, pid in each] for each in located]


def generations(members: list[Member]) -> set[int]:
    return {generation for member in members for generation, _, _ in held(member)}


def new_copies(members: list[Member]) -> list[int]:
    """The numbers of the parts that were dealt out anew of which these members have copies."""
    parts = (each for member in members for each in held(member))
    return sorted(number for generation, number, is_copy in parts if generation == 1 and is_copy)


def test_a_member_that_comes_gets_its_share_and_no_more_moves(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        third = joined(tmp_path, members)
        assert third.pid not in processes(members[0].uri)
        one, two, three = (member.pid for member in members)
        for member in members:
            assert places(member.uri) == [[one]] * BANDS + [[two]] * BANDS
        before = pg.connect(members[0].uri).grid("sales").to_arrow()
        each_band = band_bytes(members[0].uri)
        told = members[0].ask("server.rebalance('sales')")
        # Twelve row bands, of which each of three members is to have four.
        assert (told["tiles_moved"], told["tiles_kept"]) == (4, 8)
        assert told["bytes_moved"] == 4 * each_band
        for member in members:
            assert member.ask("server.refresh()") is None
            assert processes(member.uri) == {each.pid: 4 * BAND_ROWS for each in members}
            assert answer(member.uri) == expected(0, 1)
        after = pg.connect(members[0].uri).grid("sales")
        assert after.to_arrow().equals(before)
        assert before["x"].to_pylist() == list(range(2 * PART_ROWS))
        # The ends of the parts moved: each member reads on from where it read.
        sql = "SELECT row_band, process FROM tiles('sales') ORDER BY row_band"
        by_band = pg.connect(members[1].uri).sql(sql).to_arrow()["process"].to_pylist()
        assert by_band == [one] * 4 + [three] * 2 + [two] * 4 + [three] * 2
        for member in members:
            assert places(member.uri) == [[pid] for pid in by_band]


def test_where_shares_are_even_nothing_changes(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        assert members[0].ask("server.refresh()") is None
        told = members[0].ask("server.rebalance('sales')")
        assert told == {"bytes_moved": 0, "tiles_moved": 0, "tiles_kept": 2 * BANDS}
        assert generations(members) == {0}
        joined(tmp_path, members)
        assert members[1].ask("server.rebalance('sales')")["tiles_moved"] == 4
        again = members[0].ask("server.rebalance('sales')")
        assert again == {"bytes_moved": 0, "tiles_moved": 0, "tiles_kept": 2 * BANDS}
        assert generations(members) == {0, 1}


def test_a_client_may_ask_for_it(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as members:
        members[0].contribute(0, 1)
        second = joined(tmp_path, members)
        # Any member will do, also one that has nothing.
        connection = pg.connect(second.uri)
        told = connection.rebalance("sales")
        assert (told["tiles_moved"], told["tiles_kept"]) == (BANDS // 2, BANDS // 2)
        assert connection.grid("sales").to_arrow()["x"].to_pylist() == list(range(PART_ROWS))
        with pytest.raises(pg.errors.NotFoundError, match="nothing"):
            connection.rebalance("nothing")


def test_a_grid_of_a_client_may_ask_for_it(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as members:
        members[0].contribute(0, 1)
        second = joined(tmp_path, members)
        grid = pg.connect(members[0].uri).grid("sales")
        before = grid.to_arrow()
        moved = grid.rebalance()
        half = BAND_ROWS * (BANDS // 2)
        assert processes(members[0].uri) == {members[0].pid: half, second.pid: half}
        assert moved.to_arrow().equals(before)
        assert moved.rebalance().cuts == moved.cuts
        for other in (grid[["x"]], grid[:10], pg.from_arrow(pa.table({"x": [1]}))):
            with pytest.raises(pg.errors.UnsupportedError, match="no name there"):
                other.rebalance()


def test_a_member_that_is_to_leave_gives_all_that_it_has_and_is_missed_by_nobody(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, 3) as members:
        for number, member in enumerate(members):
            member.contribute(number, 3)
        refresh(members)
        *staying, third = members
        before = pg.connect(members[0].uri).grid("sales").to_arrow()
        told = members[0].ask(f"server.rebalance('sales', without=[{third.uri!r}])")
        assert (told["tiles_moved"], told["tiles_kept"]) == (BANDS, 2 * BANDS)
        refresh(members)
        even = {member.pid: 3 * BANDS // 2 * BAND_ROWS for member in staying}
        assert all(processes(member.uri) == even for member in members)
        # Once more there is nothing to move; and nobody needs what the old parts still hold.
        again = third.ask(f"server.rebalance('sales', without=[{third.uri!r}])")
        assert (again["tiles_moved"], again["tiles_kept"]) == (0, 3 * BANDS)
        third.process.terminate()
        third.process.wait()
        write_list(tmp_path / "members", staying)
        for member in staying:
            until(lambda member=member: len(member.ask("server.members")), lambda n: n == 2)
            assert answer(member.uri) == expected(0, 1, 2)
            assert pg.connect(member.uri).grid("sales").to_arrow().equals(before)


def test_a_member_may_send_itself_away_and_gets_its_share_again_without_that(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        refresh(members)
        one, two = members
        told = one.ask(f"server.rebalance('sales', without=[{one.uri!r}])")
        assert told["tiles_moved"] == BANDS
        assert processes(one.uri) == {two.pid: 2 * PART_ROWS}
        assert one.ask("server.rebalance('sales')")["tiles_moved"] == BANDS
        assert processes(one.uri) == {member.pid: PART_ROWS for member in members}
        refresh(members)
        assert answer(two.uri) == expected(0, 1)


def test_clients_and_the_command_may_send_members_away(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        for number, member in enumerate(members):
            member.contribute(number, 3)
        refresh(members)
        one, two, three = members
        connection = pg.connect(one.uri)
        assert connection.rebalance("sales", without=[two.uri])["tiles_moved"] == BANDS
        assert set(processes(one.uri)) == {one.pid, three.pid}
        grid = connection.grid("sales").rebalance(without=[two.uri, one.uri])
        assert grid.to_arrow()["x"].to_pylist() == list(range(3 * PART_ROWS))
        assert set(processes(one.uri)) == {three.pid}
        command = [str(COMMAND), "--server", one.uri, "rebalance", "sales"]
        command += ["--without", f"{three.uri},{two.uri}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.endswith(f"({3 * BANDS} tiles), kept 0 tiles\n")
        assert set(processes(one.uri)) == {one.pid}


def test_who_is_to_leave_must_be_a_member_and_another_must_stay(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        refresh(members)
        connection = pg.connect(members[0].uri)
        uris = [member.uri for member in members]
        for wrong, text in [(["grpc://elsewhere:1"], "elsewhere"), (uris, "leave a member")]:
            with pytest.raises(pg.errors.InvalidArgumentError, match=text) as raised:
                connection.rebalance("sales", without=wrong)
            assert all(uri in str(raised.value) for uri in uris)
        with pytest.raises(pg.errors.InvalidArgumentError, match="without must be a list"):
            connection.rebalance("sales", without=uris[0])
        assert generations(members) == {0}
        assert answer(uris[0]) == expected(0, 1)


def test_the_command_may_ask_for_it(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as members:
        members[0].contribute(0, 1)
        joined(tmp_path, members)
        command = [str(COMMAND), "--server", members[0].uri, "rebalance", "sales"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("sales: moved ")
        assert done.stdout.endswith("(3 tiles), kept 3 tiles\n")
        wrong = subprocess.run(
            [COMMAND, "rebalance", "sales"], capture_output=True, text=True, check=False
        )
        assert wrong.returncode == 2
        assert "rebalance asks a server" in wrong.stderr


def test_statements_go_on_while_rows_are_dealt_out(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        joined(tmp_path, members)
        wanted = expected(0, 1)
        connection = pg.connect(members[1].uri)
        # Planned, and begun, before.
        planned = connection.sql(QUERY)
        begun = pa.RecordBatchReader.from_stream(connection.sql("SELECT x FROM sales"))
        first = begun.read_next_batch()
        with ThreadPoolExecutor() as pool:
            moving = pool.submit(members[0].ask, "server.rebalance('sales')")
            while not moving.done():
                assert answer(members[1].uri) == wanted
            assert moving.result()["tiles_moved"] == 4
        rest = [batch["x"].to_pylist() for batch in begun]
        seen = sorted(first["x"].to_pylist() + [x for some in rest for x in some])
        assert seen == list(range(2 * PART_ROWS))
        assert planned.to_arrow().to_pydict() == wanted
        assert answer(members[2].uri) == wanted


def test_a_member_that_dies_while_it_takes_its_share_leaves_the_grid_as_it_was(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, 2) as members, ThreadPoolExecutor() as pool:
        for number, member in enumerate(members):
            told = member.ask(f"server.contribute('sales', large({number}), {number}, 2)")
            assert told is None
        third = joined(tmp_path, members)
        left = members[:2]
        before = answer(members[0].uri)
        rows = processes(members[0].uri)
        assert set(rows) == {member.pid for member in left}
        moving = pool.submit(members[0].ask, "server.rebalance('sales')")
        until(lambda: moving.done() or maps_tiles(third), bool)
        third.kill()
        # Where it had come to an end before, the parts that were there before are there for a while nevertheless.
        moved = moving.result()
        assert "error" in moved or moved["tiles_moved"] > 0
        until(lambda: [processes(member.uri) for member in left], lambda seen: seen == [rows, rows])
        for member in left:
            assert answer(member.uri) == before


def test_a_client_that_goes_away_leaves_it_to_its_end(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            told = member.ask(f"server.contribute('sales', large({number}), {number}, 2)")
            assert told is None
        third = joined(tmp_path, members)
        before = answer(members[0].uri)
        command = [str(COMMAND), "--server", members[0].uri, "rebalance", "sales"]
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(lambda: client.poll() is not None or maps_tiles(third), bool)
        client.kill()
        client.wait()
        until(lambda: [third.pid in processes(member.uri) for member in members], all)
        assert all(1 in generations([member]) for member in members)
        for member in members:
            assert answer(member.uri) == before


def test_a_statement_that_was_planned_long_before_reads_rows_where_they_are_now(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, 1) as members:
        members[0].contribute(0, 1)
        joined(tmp_path, members)
        assert members[0].ask("server.rebalance('sales')")["tiles_moved"] == BANDS // 2
        planned = pg.connect(members[0].uri).sql(QUERY)
        joined(tmp_path, members)
        assert members[0].ask("server.rebalance('sales')")["tiles_moved"] == BANDS // 3
        for member in members:
            assert member.ask("server.refresh()") is None
        leave(members, 1)
        assert 1 not in generations(members)
        assert planned.to_arrow().to_pydict() == expected(0)


def test_a_conflict_among_old_parts_stands_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "members"
    with cluster(tmp_path, 1) as members:
        members[0].contribute(0, 1)
        joined(tmp_path, members)
        assert members[0].ask("server.rebalance('sales')")["tiles_moved"] == BANDS // 2
        # It has not heard of the grid when it contributes what another member has, too.
        late = Member(tmp_path / "nobody")
        members.append(late)
        late.contribute(0, 1, shift=1000)
        write_list(path, members)
        assert late.ask(f"server.join({f'file:{path}'!r})") is None
        for member in members:
            assert member.ask("server.refresh()") is None
            assert len(member.ask("server.members")) == 3
            assert answer(member.uri) == expected(0)


def test_copies_are_made_of_the_new_parts(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2, replicas=2)
        until(lambda: copies(members), lambda seen: seen == [0, 1])
        third = joined(tmp_path, members)
        told = members[0].ask("server.rebalance('sales')")
        assert told["tiles_moved"] == 4
        # Four runs of row bands, each with one copy.
        until(lambda: new_copies(members), lambda seen: seen == [0, 1, 2, 3])
        for member in members:
            assert member.ask("server.refresh()") is None
        third.kill()
        assert answer(members[0].uri) == expected(0, 1)


def test_a_part_by_its_old_number_is_refused_until_all_are_withdrawn(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as members:
        members[0].contribute(0, 1)
        joined(tmp_path, members)
        assert members[0].ask("server.rebalance('sales')")["tiles_moved"] == BANDS // 2
        told = members[0].ask("server.contribute('sales', part(1), part=0, of=1)")
        assert told["error"] == "InvalidArgumentError"
        assert "rebalanced" in told["text"]
        assert "withdraw" in told["text"]
        for member in members:
            assert member.ask("server.withdraw('sales')") is True
        members[0].contribute(1, 2)
        members[1].contribute(0, 2)
        for member in members:
            assert member.ask("server.refresh()") is None
            assert answer(member.uri) == expected(0, 1)


def test_a_grid_with_a_part_that_is_gone_stays_as_it_is(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        for number, member in enumerate(members[:2]):
            member.contribute(number, 2)
        for member in members:
            assert member.ask("server.refresh()") is None
        members[1].kill()
        until(lambda: members[0].ask("server.members"), lambda seen: len(seen) == 2)
        told = members[0].ask("server.rebalance('sales')")
        assert told["error"] == "PartitionLostError"
        assert "table: sales, position: (" in told["text"]
        assert "hint: contribute the part again" in told["text"]
        assert generations([members[0], members[2]]) == {0}


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pg.Server() as server:
        with pytest.raises(pg.errors.InvalidArgumentError, match="no member of a cluster"):
            server.rebalance("sales")
        with pytest.raises(pg.errors.NotFoundError, match="no member of a cluster"):
            pg.connect(server.uri).rebalance("sales")
    with pg.Server({"own": rows_of(0)}, join=[]) as server:
        for name in ("nothing", "own"):
            with pytest.raises(pg.errors.NotFoundError, match=name):
                server.rebalance(name)
        with pytest.raises(pg.errors.InvalidArgumentError, match="name must be a text"):
            server.rebalance(3)  # type: ignore[arg-type]
        # Alone a member has its share already.
        server.contribute("alone", rows_of(0), part=0, of=1)
        told = server.rebalance("alone")
        assert told == {"bytes_moved": 0, "tiles_moved": 0, "tiles_kept": BANDS}
    tokens = tmp_path / "tokens.toml"
    made = write_tokens(tokens, reader={"scope": "read"})
    with (
        pg.Server(join=[], tokens=tokens) as server,
        pytest.raises(pg.errors.PermissionDeniedError),
    ):
        pg.connect(server.uri, token=made["reader"]).rebalance("sales")
