"""What is shown of members that are listed and away, and of tiles that are lost with them."""

from __future__ import annotations

import re
from pathlib import Path

import partgrid as pg
from clusters import free_port, held, status_of
from members import Member, cluster
from services import http_answer, lines_of, status, until


def lost_bands(member: Member) -> list[bool]:
    """Which row bands nobody has any more, as a member sees it."""
    sql = "SELECT lost FROM tiles('sales') ORDER BY row_band"
    return pg.connect(member.uri).sql(sql).to_arrow()["lost"].to_pylist()


def test_a_member_that_is_lost_is_away_and_its_tiles_are_lost(tmp_path: Path) -> None:
    with cluster(tmp_path, of=2) as members:
        asked, other = members
        assert lost_bands(asked) == [False, False]
        assert status_of(asked)["away"] == []
        assert lines_of(asked.uri, "ps")[-1] == "2 members"
        assert "lost" not in "".join(lines_of(asked.uri, "ls"))
        other.kill()
        until(lambda: lost_bands(asked) == [False, True], 30)
        status = status_of(asked)
        assert [each["uri"] for each in status["members"]] == [asked.uri]
        [away] = status["away"]
        assert away["uri"] == other.uri
        assert "does not answer" in away["reason"]
        [grid] = [each for each in status["grids"] if each["name"] == "sales"]
        assert {each["locality"]: each["tiles"] for each in grid["localities"]}["lost"] == 1
        lines = lines_of(asked.uri, "ps")
        assert lines[-1] == "1 member, 1 away"
        [row] = [re.split(" {2,}", line) for line in lines if line.startswith(other.uri)]
        assert row[3] == "away"
        assert "does not answer" in row[-1]
        # One of the tiles is of the member that is there.
        [line] = [line for line in lines_of(asked.uri, "ls") if line.startswith("sales")]
        assert "1 of 2 tiles lost" in line
        shown = lines_of(asked.uri, "show", "sales")
        assert shown[0].endswith(", 1 of 2 tiles lost"), shown
        assert any(f"pid {other.pid}: 1 tile, lost" in line for line in shown), shown
        # Somebody has the part again, wherever.
        members[1] = Member(1, 2, tmp_path / "members")
        (tmp_path / "members").write_text(f"{asked.uri}\n{members[1].uri}\n")
        until(lambda: lost_bands(asked) == [False, False], 30)
        assert status_of(asked)["away"] == []


def test_tiles_of_which_others_have_copies_are_not_lost(tmp_path: Path) -> None:
    with cluster(tmp_path, of=2) as members:
        asked, other = members
        words = "pa.table({'a': [1, 2]})"
        command = f"server.contribute('twice', {words}, part=0, of=1, replicas=2)"
        assert other.ask(command) is None
        sql = "SELECT process, lost FROM tiles('twice')"

        def served_by(member: Member) -> bool:
            try:
                told = pg.connect(asked.uri).sql(sql).to_arrow().to_pylist()
            except pg.PartgridError:
                # It is not known there yet.
                return False
            return told == [{"process": member.pid, "lost": False}]

        until(lambda: served_by(other), 30)
        # Its copy is there.
        until(lambda: len(held(asked, "twice")) == 1, 30)
        other.kill()
        until(lambda: served_by(asked), 30)
        until(lambda: lost_bands(asked) == [False, True], 30)
        assert served_by(asked)


def test_the_own_address_is_never_away_wherever_it_leads(tmp_path: Path) -> None:
    path, address = tmp_path / "members", f"127.0.0.1:{free_port()}"
    # Nobody answers at either port.
    own, other = "grpc://127.0.0.1:1", "grpc://127.0.0.1:9"
    settings = {"server.advertised": own}
    with pg.Server(join=f"file:{path}", address=address, settings=settings) as server:
        for listed, away in (([own, other], [other]), (["grpc://127.0.0.1:1/"], []), ([own], [])):
            path.write_text("\n".join(listed) + "\n")
            server.refresh()
            counted = f"ready\nmembers: 1\naway: {len(away)}\n".encode()
            assert http_answer(server.http_uri, "/readyz")[2] == counted
            assert [each["uri"] for each in status(server)["away"]] == away
            told = lines_of(f"grpc://{address}", "ps")
            assert any("1 member, 1 away" in line for line in told) == bool(away), told
