"""What is said of a grid of which parts are missing, or contradict each other: to who asks for it, and on the status page as long as it is so."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest

import partgrid as pg
from clusters import Member, answer, cluster, expected, refresh, status_of, until, with_readers
from services import shown

HALF = "grid 'sales': 1 of the 2 parts is there; part 1 is missing"


def standing(member: Member) -> list[dict[str, Any]]:
    """What a member says is wrong as long as it is."""
    return [each for each in status_of(member)["errors"] if each["standing"]]


def asked(member: Member) -> str:
    """What a member says to whoever asks for the grid, which is not there."""
    with pytest.raises(pg.errors.QueryError) as caught:
        pg.connect(member.uri).sql("SELECT * FROM sales").to_arrow()
    with pytest.raises(pg.errors.NotFoundError) as again:
        pg.connect(member.uri).grid("sales")
    said, other = str(caught.value), str(again.value)
    assert said.partition(" (")[0] == other.partition(" (")[0]
    return said


def test_parts_that_are_missing_are_named_until_they_are_there(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        assert all("no table `sales`" in asked(member) for member in members)
        members[0].contribute(0, 2)
        refresh(members)
        for member in members:
            said = asked(member)
            assert HALF in said
            assert "part=1, of=2" in said.partition("\nhint: ")[2]
            [error] = standing(member)
            assert error["message"].startswith(HALF)
            assert (error["kind"], error["caller"]) == ("NotFound", "server")
            # A member looks every second, and it is the same thing that is wrong.
            time.sleep(2.5)
            assert standing(member) == [error]
        members[1].contribute(1, 2)
        refresh(members)
        assert [standing(member) for member in members] == [[], []]
        assert answer(members[0].uri) == expected(0, 1)
        # With its member the part goes; the grid keeps its name.
        members[1].kill()
        [error] = until(lambda: standing(members[0]), bool)
        assert error["message"].startswith(HALF)


def test_members_that_contradict_each_other_are_both_named(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        uris = [member.uri for member in members]
        members[0].contribute(0, 2)
        for part, of, wrong in ((0, 2, "two members have part 0"), (1, 3, "do not agree")):
            members[1].contribute(part, of)
            for member in members:
                assert member.ask("server.refresh()")["error"] == "InvalidArgumentError"
                said = asked(member)
                [error] = standing(member)
                assert error["kind"] == "InvalidArgument"
                for text in (said, error["message"]):
                    assert "grid 'sales': " in text
                    assert wrong in text
                    assert all(uri in text for uri in uris)
                    assert "\nhint: " in text
                if of == 2:
                    assert 'withdraw("sales") at its member' in said.partition("\nhint: ")[2]
            assert members[1].ask("server.withdraw('sales')") is True
        members[1].contribute(1, 2)
        refresh(members)
        assert [standing(member) for member in members] == [[], []]
        assert answer(members[1].uri) == expected(0, 1)


def test_who_has_withdrawn_a_grid_is_not_told_that_the_rest_of_it_is_not_whole(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        refresh(members)
        assert members[1].ask("server.withdraw('sales')") is True
        refresh(members)
        assert "no table `sales`" in asked(members[1])
        assert standing(members[1]) == []
        [error] = standing(members[0])
        assert error["message"].startswith(HALF)


def test_who_may_not_see_a_grid_is_not_told_of_it(tmp_path: Path) -> None:
    made, settings = with_readers(tmp_path)
    with cluster(tmp_path, 1, **settings) as [member]:
        member.contribute(0, 2)
        refresh([member])
        for who, sees in (("all", True), ("reader", True), ("other", False)):
            with fl.connect(member.uri) as client:
                [said] = client.do_action(fl.Action("Status", b""), shown(made[who]))
            told = json.loads(said.body.to_pybytes())["errors"]
            assert any(HALF in each["message"] for each in told) == sees
            with pytest.raises(pg.errors.PartgridError) as caught:
                pg.connect(member.uri, token=made[who]).sql("SELECT * FROM sales").to_arrow()
            assert (HALF in str(caught.value)) == sees
