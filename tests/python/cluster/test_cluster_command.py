"""What `partgrid --server` says of the grids of all members: which are not whole, what is known of lost tiles, where a grid was dropped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest

import partgrid as pg
from clusters import BANDS, PART_ROWS, Member, cluster, refresh, status_of, until, with_readers
from services import lines_of, shown

HALF = "grid 'sales': 1 of the 2 parts is there; part 1 is missing"


def nulls(member: Member) -> dict[str, str]:
    """How many nulls each column of the grid has, as `show` says it."""
    lines = lines_of(member.uri, "show", "sales")
    lines = lines[next(at for at, line in enumerate(lines) if line.startswith("column")) + 1 :]
    rows = [re.split(" {2,}", line) for line in lines if line and not line.startswith("nulls of")]
    return {row[0]: row[-1].strip() for row in rows}


def test_ls_says_which_grids_are_not_whole(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        members[0].contribute(0, 2)
        refresh(members)
        for member in members:
            lines = lines_of(member.uri, "ls")
            assert lines[-2].startswith("0 grids, 0 views, ")
            assert lines[-1] == f"not there yet: {HALF}"
            [line] = [line for line in lines_of(member.uri, "ps") if HALF in line]
            assert line.startswith("wrong since ")
        members[1].contribute(1, 2)
        refresh(members)
        for member in members:
            assert lines_of(member.uri, "ls")[-1].startswith("1 grid, 0 views, ")
            assert status_of(member)["incomplete"] == []
        members[1].kill()
        until(lambda: lines_of(members[0].uri, "ls")[-1], lambda last: last == f"not whole: {HALF}")
        [lacking] = status_of(members[0])["incomplete"]
        assert (lacking["name"], lacking["is_there"], lacking["message"]) == ("sales", True, HALF)
        assert "part=1, of=2" in lacking["hint"]


def test_who_may_not_see_a_grid_does_not_hear_that_it_is_not_whole(tmp_path: Path) -> None:
    made, settings = with_readers(tmp_path)
    with cluster(tmp_path, 1, **settings) as [member]:
        member.contribute(0, 2)
        refresh([member])

        def told(who: str) -> Any:
            with fl.connect(member.uri) as client:
                [said] = client.do_action(fl.Action("Status", b""), shown(made[who]))
            return json.loads(said.body.to_pybytes())

        for who, sees in (("all", True), ("reader", True), ("other", False)):
            status = told(who)
            names = [each["name"] for each in status["incomplete"]]
            assert names == (["sales"] if sees else [])
            assert ("sales" in json.dumps(status)) == sees


def test_show_says_what_is_known_of_nulls_when_tiles_are_lost(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        refresh(members)
        in_part = PART_ROWS // 5
        assert nulls(members[0]) == {"g": "0", "x": "0", "who": str(2 * in_part)}
        members[1].kill()
        lost = f", {BANDS} of {2 * BANDS} tiles lost"
        until(
            lambda: lines_of(members[0].uri, "show", "sales")[0], lambda head: head.endswith(lost)
        )
        left = {"g": "at least 0", "x": "at least 0", "who": f"at least {in_part}"}
        assert nulls(members[0]) == left
        said = f"nulls of {BANDS} of {2 * BANDS} tiles are not counted"
        assert lines_of(members[0].uri, "show", "sales")[-1].startswith(said)


def test_tiles_of_others_are_listed_as_theirs_also_once_columns_of_them_were_kept(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        refresh(members)
        connection = pg.connect(members[0].uri)

        def said() -> list[Any]:
            """Of the status and the tiles: the tiles that are here, and the others; what `ls` says, and the bytes of grids."""
            status = status_of(members[0])
            [grid] = status["grids"]
            sql = "SELECT here, count(*) AS n FROM tiles('sales') GROUP BY here ORDER BY here DESC"
            listed = {each["locality"]: each["tiles"] for each in grid["localities"]}
            here = connection.sql(sql).to_arrow().to_pydict()
            [line] = [line for line in lines_of(members[0].uri, "ls") if line.startswith("sales")]
            return [listed, here, line, status["memory"]["grid_bytes"]]

        before = said()
        assert before[0] == {"memory": BANDS, "process": BANDS}
        assert before[1] == {"here": [True, False], "n": [BANDS, BANDS]}
        # All rows are wanted in one place, so that small tiles are fetched there and kept.
        text = "SELECT count(*) AS n FROM sales WHERE x NOT IN (SELECT x FROM sales WHERE x % 10 = 1 AND random() < 2)"
        assert connection.sql(text).to_arrow().to_pydict() == {"n": [2 * PART_ROWS * 9 // 10]}
        assert said() == before


def test_rm_says_that_a_grid_of_all_is_gone_from_one_member_alone(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        assert members[0].ask("server.register('own', part(0))") is None
        refresh(members)
        [grid] = [each for each in status_of(members[0])["grids"] if each["name"] == "sales"]
        assert grid["parts"] == 2
        assert lines_of(members[0].uri, "rm", "own") == ["dropped own"]
        [said] = lines_of(members[0].uri, "rm", "sales")
        assert said.startswith("dropped sales at this member alone: the others have it as before")
        assert 'withdraw("sales") there ends it for all' in said
        refresh(members)
        assert [member.ask("server.tables") for member in members] == [[], ["sales"]]
        with pytest.raises(pg.errors.QueryError, match="dropped or withdrawn at this") as caught:
            pg.connect(members[0].uri).sql("SELECT * FROM sales").to_arrow()
        assert "ask another member" in str(caught.value)
        for member in members:
            assert member.ask("server.withdraw('sales')") in (True, False)
        refresh(members)
        assert [member.ask("server.tables") for member in members] == [[], []]


def told_of_sales(member: Member) -> str:
    """What a member says to whoever asks for the grid that it has not."""
    with pytest.raises(pg.errors.QueryError) as caught:
        pg.connect(member.uri).sql("SELECT * FROM sales").to_arrow()
    return str(caught.value).partition("\n")[0].partition(" (")[0]


def test_who_asks_for_a_grid_that_was_dropped_or_withdrawn_is_told_so_at_once(
    tmp_path: Path,
) -> None:
    told = (
        "no table `sales`: it was dropped or withdrawn at this member, and members have parts of it"
    )
    with cluster(tmp_path, 2) as members:
        first, second = members
        for number, member in enumerate(members):
            member.contribute(number, 2)
        refresh(members)
        lines_of(first.uri, "rm", "sales")
        assert {told_of_sales(first) for _ in range(20)} == {told}
        with pytest.raises(pg.errors.NotFoundError, match="dropped or withdrawn at this member"):
            pg.connect(first.uri).grid("sales")
        # The other one has it as before, and takes it away by itself.
        assert second.ask("server.tables") == ["sales"]
        assert second.ask("server.withdraw('sales')") is True
        assert {told_of_sales(second) for _ in range(20)} == {told}
        refresh(members)
        assert [told_of_sales(member) for member in members] == [told, told]
        # Nobody has any part any more.
        assert first.ask("server.withdraw('sales')") is True
        refresh(members)
        assert [told_of_sales(member) for member in members] == ["no table `sales`"] * 2
