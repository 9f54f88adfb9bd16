"""Copies of parts in other members: they stand for those of a member that is lost, are made anew elsewhere, and go when nobody needs them."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from clusters import (
    PART_ROWS,
    QUERY,
    Member,
    answer,
    cluster,
    copies,
    expected,
    held,
    ids,
    maps_tiles,
    processes,
    until,
    write_list,
)

SERVING = "SELECT DISTINCT process FROM tiles('sales')"


def contributed(members: list[Member], replicas: int = 2) -> None:
    """One part for each of the members; waits for the copies, and until all know the grid."""
    of = len(members)
    for number, member in enumerate(members):
        member.contribute(number, of, replicas)
    wanted = sorted(list(range(of)) * (min(replicas, of) - 1))
    until(lambda: copies(members), lambda seen: seen == wanted)
    for member in members:
        assert member.ask("server.refresh()") is None


def test_copies_stand_for_a_member_that_was_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, 3, **{"cluster.fetch": False}) as members:
        contributed(members)
        wanted = expected(0, 1, 2)
        assert answer(members[1].uri) == wanted
        members[0].kill()
        # The next statement, whatever the member that is asked has heard by then.
        assert answer(members[1].uri) == wanted
        assert answer(members[2].uri) == wanted


def test_a_grid_that_a_member_dropped_stays_away_there_until_a_part_is_contributed_anew(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, 3) as members:
        contributed(members, replicas=3)
        dropping = members[2]
        pg.connect(dropping.uri).sql("DROP TABLE sales").to_arrow()
        assert dropping.ask("server.tables") == []
        # Others go on to have the grid, and its part that this member has.
        wanted = expected(0, 1, 2)
        assert answer(members[1].uri) == wanted
        # The part of one who is gone is served by another one, which does not bring the grid back.
        members[0].kill()
        until(
            lambda: pg.connect(members[1].uri).sql(SERVING).to_arrow().column(0).to_pylist(),
            lambda seen: members[0].pid not in seen,
        )
        assert answer(members[1].uri) == wanted
        assert dropping.ask("server.refresh()") is None
        assert dropping.ask("server.tables") == []
        members[1].contribute(1, 3, replicas=3)
        until(lambda: dropping.ask("server.tables"), lambda seen: seen == ["sales"])
        assert answer(dropping.uri) == wanted


def test_a_statement_that_was_planned_before_the_kill_begins_anew(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        contributed(members)
        planned = pg.connect(members[1].uri).sql(
            "SELECT a.g, count(*) AS n FROM sales AS a JOIN sales AS b ON a.x = b.x GROUP BY a.g ORDER BY a.g"
        )
        members[0].kill()
        wanted = expected(0, 1, 2)
        assert planned.to_arrow().to_pydict() == {"g": wanted["g"], "n": wanted["n"]}


def test_without_copies_a_lost_part_stays_an_error(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        contributed(members, replicas=1)
        planned = pg.connect(members[1].uri).sql("SELECT sum(x) AS x FROM sales")
        members[0].kill()
        with pytest.raises((pg.errors.WorkerLostError, pg.errors.PartitionLostError)):
            planned.to_arrow()


def test_tiles_say_who_serves_and_copies_have_the_same_cuts_and_statistics(tmp_path: Path) -> None:
    wide = tmp_path / "wide.parquet"
    rows = range(1000)
    table = pa.table(
        {
            "i": pa.array([None if row % 3 == 0 else row for row in rows], pa.int64()),
            "t": pa.array([f"text {row}" for row in rows]),
            "l": pa.array([[row, None] for row in rows], pa.list_(pa.int32())),
            "b": pa.array([row % 2 == 0 for row in rows]),
        }
    )
    pq.write_table(table, wide)
    about = "SELECT row_band, column_band, rows, statistics FROM tiles('wide') ORDER BY row_band, column_band"
    with cluster(tmp_path, 2) as members:
        grid = f"pg.read_parquet({str(wide)!r}, tile_rows=300, tile_columns=2)"
        assert members[0].ask(f"server.contribute('wide', {grid}, 0, 1, replicas=2)") is None
        until(lambda: copies(members, "wide"), lambda seen: seen == [0])
        assert members[1].ask("server.refresh()") is None
        connection = pg.connect(members[1].uri)
        before = connection.sql(about).to_arrow()
        assert before.num_rows > 4
        members[0].kill()
        whose = "SELECT DISTINCT process FROM tiles('wide')"
        until(
            lambda: connection.sql(whose).to_arrow().to_pydict(),
            lambda seen: seen == {"process": [members[1].pid]},
        )
        assert connection.sql(about).to_arrow().equals(before)
        assert connection.grid("wide").to_arrow().to_pydict() == table.to_pydict()


def test_one_more_copy_is_made_after_each_death(tmp_path: Path) -> None:
    with cluster(tmp_path, 4) as members:
        members[0].contribute(0, 1, replicas=2)
        [holder] = until(
            lambda: [member for member in members if copies([member])],
            lambda seen: len(seen) == 1,
        )
        members[0].kill()
        left = members[1:]
        until(lambda: copies(left), lambda seen: seen == [0, 0])
        assert copies([holder]) == [0]
        holder.kill()
        left.remove(holder)
        until(lambda: copies(left), lambda seen: seen == [0, 0])
        for member in left:
            assert member.ask("server.refresh()") is None
            assert answer(member.uri) == expected(0)


def test_the_original_serves_where_it_is_there(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        contributed(members, replicas=3)
        all_of_them = {member.pid: PART_ROWS for member in members}
        for member in members:
            assert processes(member.uri) == all_of_them
        # As many as there are, not more.
        assert [len(held(member)) for member in members] == [3, 3, 3]
        members[2].kill()
        seen = until(
            lambda: processes(members[0].uri), lambda seen: members[2].pid not in seen, within=30
        )
        assert sum(seen.values()) == 3 * PART_ROWS


def test_a_member_that_hangs_is_stood_for_until_it_goes_on(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        contributed(members)
        wanted = expected(0, 1, 2)
        members[0].stop()
        try:
            assert answer(members[1].uri) == wanted
            until(lambda: processes(members[1].uri), lambda seen: members[0].pid not in seen)
            until(lambda: copies(members[1:]), lambda seen: seen.count(0) == 2)
        finally:
            members[0].go_on()
        # Its originals are as good as before, and the copy that was made meanwhile is one too many.
        until(lambda: processes(members[1].uri), lambda seen: members[0].pid in seen)
        until(lambda: copies(members), lambda seen: seen == [0, 1, 2])
        assert answer(members[1].uri) == wanted


def test_statements_are_answered_while_the_list_of_members_changes(tmp_path: Path) -> None:
    """Each goes by the members of one moment, whoever comes and goes meanwhile."""
    with cluster(tmp_path, 3) as members:
        contributed(members, replicas=3)
        path, over = tmp_path / "members", threading.Event()
        late = Member(path)
        members.append(late)
        lists = [members[:3], members[:2], members, [members[0], members[2]], [members[0], late]]

        def rewrite() -> set[int]:
            """Writes one list after the other; gives how many members were seen."""
            seen = set()
            for turn in itertools.count():
                write_list(path, lists[turn % len(lists)])
                assert members[0].ask("server.refresh()") is None
                seen.add(len(members[0].ask("server.members")))
                if over.wait(0.05):
                    return seen
            raise AssertionError

        connection, wanted = pg.connect(members[0].uri), expected(0, 1, 2)
        with ThreadPoolExecutor(1) as threads:
            rewriting = threads.submit(rewrite)
            try:
                for _ in range(200):
                    assert connection.sql(QUERY).to_arrow().to_pydict() == wanted
            finally:
                over.set()
            assert rewriting.result(30) >= {2, 3}


def test_copies_go_with_what_was_withdrawn(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        contributed(members)
        assert members[0].ask("server.withdraw('sales')") is True
        until(lambda: copies(members[1:]), lambda seen: 0 not in seen)
        assert all(is_copy for _, _, is_copy in held(members[0]))
        for member in members[1:]:
            member.ask("server.withdraw('sales')")
        members[0].ask("server.withdraw('sales')")
        until(lambda: [held(member) for member in members], lambda seen: seen == [[], [], []])


def test_a_copy_that_is_under_way_when_its_grid_is_withdrawn_does_not_come(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        contributing = "server.contribute('sales', large(0), 0, 1, replicas=2)"
        assert members[0].ask(contributing) is None
        until(lambda: maps_tiles(members[1]), bool)
        assert members[1].ask("server.withdraw('sales')") is True
        # Neither what was under way, nor another one with the next look.
        stop = time.monotonic() + 4
        while time.monotonic() < stop:
            assert held(members[1]) == []
            time.sleep(0.1)
        # Whoever takes part again takes copies again.
        members[1].contribute(1, 2)
        members[0].contribute(0, 2, replicas=2)
        until(lambda: copies(members), lambda seen: seen == [0])


def test_members_agree_on_copies_by_whatever_addresses_they_know_each_other(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, 4) as members:
        # Each knows itself by its address, and the others by a name.
        write_list(tmp_path / "members", members, host="localhost")
        for member in members:
            assert member.ask("server.refresh()") is None
            uris = member.ask("server.members")
            assert sum("localhost" in uri for uri in uris) == 3
        contributed(members)
        # No more of them come later.
        time.sleep(3)
        assert copies(members) == [0, 1, 2, 3]
        members[0].kill()
        assert answer(members[1].uri) == expected(0, 1, 2, 3)


def test_copies_of_what_was_replaced_are_made_anew(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        members[0].contribute(0, 1, replicas=2)
        until(lambda: copies(members), lambda seen: seen == [0])
        members[0].contribute(0, 1, replicas=2, shift=1000)
        assert members[1].ask("server.refresh()") is None
        assert answer(members[1].uri) == expected(0, shift=1000)
        until(lambda: ids(members[0]) == ids(members[1]), bool)
        members[0].kill()
        assert answer(members[1].uri) == expected(0, shift=1000)


def test_a_new_original_takes_the_place_of_copies(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        contributed(members)
        members[0].kill()
        assert answer(members[1].uri) == expected(0, 1, 2)
        path = tmp_path / "members"
        members[0] = Member(path)
        write_list(path, members)
        members[0].contribute(0, 3, replicas=2)
        until(lambda: processes(members[1].uri).get(members[0].pid), lambda seen: seen == PART_ROWS)
        until(lambda: copies(members), lambda seen: seen == [0, 1, 2])
        assert answer(members[1].uri) == expected(0, 1, 2)


def test_a_grid_of_which_nobody_has_a_part_is_forgotten(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        for number, member in enumerate(members[:2]):
            member.contribute(number, 2)
        assert members[2].ask("server.refresh()") is None
        assert "sales" in members[2].ask("server.tables")
        # Some parts are missing: it stays, and says so.
        assert members[0].ask("server.withdraw('sales')") is True
        assert members[2].ask("server.refresh()") is None
        assert "sales" in members[2].ask("server.tables")
        assert members[1].ask("server.withdraw('sales')") is True
        assert members[2].ask("server.refresh()") is None
        assert "sales" not in members[2].ask("server.tables")
        # Its name is free again.
        assert members[2].ask("server.register('sales', pa.table({'a': [1]}))") is None


def test_a_grid_whose_members_do_not_answer_is_not_forgotten(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        members[0].contribute(0, 1)
        assert members[1].ask("server.refresh()") is None
        members[0].kill()
        until(lambda: members[1].ask("server.members"), lambda seen: len(seen) == 1)
        assert members[1].ask("server.refresh()") is None
        assert "sales" in members[1].ask("server.tables")
        # A member can say that it is to go.
        assert members[1].ask("server.withdraw('sales')") is True
        assert "sales" not in members[1].ask("server.tables")


def test_a_grid_that_was_withdrawn_stays_away_until_something_of_it_is_contributed_anew(
    tmp_path: Path,
) -> None:
    """Also from a member that has no part of it, while others have all."""
    with cluster(tmp_path, 3) as members:
        for number, member in enumerate(members[:2]):
            member.contribute(number, 2)
        for member in members:
            assert member.ask("server.refresh()") is None
        assert members[2].ask("server.withdraw('sales')") is True
        assert members[2].ask("server.withdraw('sales')") is False
        for _ in range(2):
            assert members[2].ask("server.refresh()") is None
            assert "sales" not in members[2].ask("server.tables")
        # Nor does it stand in the way of a table of that name; the others have it as before.
        assert members[2].ask("server.register('sales', pa.table({'a': [1]}))") is None
        assert members[2].ask("server.refresh()") is None
        assert members[2].ask("server.deregister('sales')") is True
        assert answer(members[0].uri) == expected(0, 1)
        members[1].contribute(1, 2, shift=5)
        for member in members:
            assert member.ask("server.refresh()") is None
        assert "sales" in members[2].ask("server.tables")
        assert answer(members[2].uri) == answer(members[0].uri)


def test_what_cannot_work_is_refused_at_once() -> None:
    data = pa.table({"a": [1]})
    with pg.Server(join=[]) as server:
        for wrong, text in [
            (0, "replicas must be 1 to 16, got 0"),
            (17, "replicas must be 1 to 16, got 17"),
            (-1, "replicas must be at least 1, got -1"),
            (True, "replicas must be a whole number, got True"),
            ("2", "replicas must be a whole number, got '2'"),
        ]:
            with pytest.raises(pg.errors.InvalidArgumentError) as raised:
                server.contribute("a", data, part=0, of=1, replicas=wrong)  # type: ignore[arg-type]
            assert text in str(raised.value)
        # More than there are members is no error: some may come.
        server.contribute("a", data, part=0, of=1, replicas=16)
        server.refresh()
        assert server.tables == ["a"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux")
def test_memory_of_copies_goes_with_the_grid(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        contributed(members)
        assert all(map(maps_tiles, members))
        for member in members:
            assert member.ask("server.withdraw('sales')") is True
        # Each had the rows of the other.
        until(lambda: [maps_tiles(member) for member in members], lambda maps: not any(maps))
