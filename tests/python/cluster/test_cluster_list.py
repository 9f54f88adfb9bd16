"""A list of members that cannot be read: it is said as long as it is so, by all that shows what is wrong, and so is who the members are meanwhile."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from clusters import Member
from services import (
    Service,
    http_answer,
    lines_of,
    service,
    shown,
    status,
    until,
    write_tokens,
)

ALONE = "; this member is alone until the list can be read"
LINE = "a line of the list of members must be one HOST:PORT or the URI of a server"

# What is at the path of the list, and how that is told.
WRONG = {
    "not there": "the list of members is not there",
    "a line": LINE,
    "a folder": "the list of members cannot be read",
}


def harm(path: Path, how: str) -> None:
    """Leaves no list there that can be read."""
    path.unlink(missing_ok=True)
    if how == "a folder":
        path.mkdir()
    elif how == "a line":
        path.write_text("# All of us.\ndb1 8815\n")


def mend(path: Path, *uris: str) -> None:
    if path.is_dir():
        path.rmdir()
    path.write_text("\n".join(uris) + "\n")


def standing(server: Service) -> list[dict[str, Any]]:
    """What a server says is wrong as long as it is."""
    return [each for each in status(server)["errors"] if each["standing"]]


def ready(server: Service) -> bytes:
    return http_answer(server.http_uri, "/readyz")[2]


@pytest.mark.parametrize("how", WRONG)
def test_a_list_that_could_never_be_read_is_said_until_it_can_be(tmp_path: Path, how: str) -> None:
    path = tmp_path / "members"
    harm(path, how)
    with service("--join", f"file:{path}") as member:
        [error] = until(lambda: standing(member))
        assert error["message"].startswith(WRONG[how])
        assert ALONE in error["message"]
        assert str(path) in error["message"]
        if how == "a line":
            assert 'got "db1 8815"' in error["message"]
            assert "line: 2" in error["message"]
        assert ready(member) == b"ready\nmembers: 1\naway: 0\nlist: unread\n"
        [line] = [line for line in lines_of(member.uri, "ps") if line.startswith("wrong since ")]
        assert line.startswith(f"wrong since {error['time']}: {WRONG[how]}")
        assert ALONE in line
        # A member looks every second, and it is the same thing that is wrong.
        time.sleep(2.5)
        assert standing(member) == [error]
        mend(path, member.uri)
        until(lambda: not standing(member))
        assert ready(member) == b"ready\nmembers: 1\naway: 0\n"
        assert "wrong" not in "".join(lines_of(member.uri, "ps"))


@pytest.mark.parametrize("how", WRONG)
def test_a_list_that_can_be_read_no_more_is_said_and_the_members_stay(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "members"
    join = ("--join", f"file:{path}")
    with service(*join) as one, service(*join) as other:
        mend(path, one.uri, other.uri)
        for member in (one, other):
            until(lambda member=member: ready(member) == b"ready\nmembers: 2\naway: 0\n")
        harm(path, how)
        for member in (one, other):
            [error] = until(lambda member=member: standing(member))
            assert "those that it named last are members as long as they answer" in error["message"]
            assert "alone" not in error["message"].partition("\nhint: ")[0]
            assert ready(member) == b"ready\nmembers: 2\naway: 0\nlist: unread\n"
            assert lines_of(member.uri, "ps")[-1] == "2 members"
        mend(path, one.uri, other.uri)
        for member in (one, other):
            until(lambda member=member: not standing(member))
            assert ready(member) == b"ready\nmembers: 2\naway: 0\n"


def test_a_list_that_does_not_name_its_own_server_is_said_as_long_as_it_is_so(
    tmp_path: Path,
) -> None:
    path = tmp_path / "members"
    join = ("--join", f"file:{path}")
    with service(*join) as one, service(*join) as other:
        mend(path, one.uri, other.uri)
        for member in (one, other):
            until(lambda member=member: ready(member) == b"ready\nmembers: 2\naway: 0\n")
        mend(path, other.uri)
        [error] = until(lambda: standing(one))
        assert f"does not name this server, {one.uri}" in error["message"]
        assert "--join" in error["message"].partition("\nhint: ")[2]
        assert ready(one).endswith(b"list: without this server\n")
        [line] = [line for line in lines_of(one.uri, "ps") if line.startswith("wrong since ")]
        assert line.startswith(f"wrong since {error['time']}: the list of members does not name")
        until(lambda: ready(other) == b"ready\nmembers: 1\naway: 0\n")
        assert standing(other) == []
        time.sleep(2.5)
        assert standing(one) == [error]
        mend(path, one.uri, other.uri)
        until(lambda: not standing(one))
        assert ready(one) == b"ready\nmembers: 2\naway: 0\n"


def test_of_two_servers_of_one_process_one_is_a_member_and_says_so_of_the_other(
    tmp_path: Path,
) -> None:
    path = tmp_path / "members"
    join = f"file:{path}"
    with pg.Server(join=join) as one, pg.Server(join=join) as other:
        mend(path, one.uri, other.uri)
        for own, twin in ((one, other), (other, one)):
            own.refresh()
            assert own.members == [own.uri]
            [away] = status(own)["away"]
            assert away["uri"] == twin.uri
            said = f"{twin.uri} is a server of this same process; members are processes of their own; start each"
            assert away["reason"].startswith(said)
            assert any(said in line for line in lines_of(own.uri, "ps"))
        one.contribute("sales", pa.table({"x": [1]}), part=0, of=2)
        other.contribute("sales", pa.table({"x": [2]}), part=1, of=2)
        one.refresh()
        with pytest.raises(pg.errors.QueryError, match="1 of the 2 parts is there") as caught:
            pg.connect(one.uri).sql("SELECT * FROM sales").to_arrow()
        assert "is a server of this same process" in str(caught.value).partition("\nhint: ")[2]


def test_why_a_list_cannot_be_read_is_told_to_administrators(tmp_path: Path) -> None:
    made = write_tokens(tmp_path / "tokens.toml", all={"scope": "admin"}, reader={"scope": "read"})
    own = tmp_path / "own"
    own.write_text(made["all"])
    settings = {"auth.tokens": str(tmp_path / "tokens.toml"), "cluster.token": str(own)}
    path = tmp_path / "members"
    harm(path, "a line")
    member = Member(path, **settings)
    try:
        for who, sees in (("all", True), ("reader", False)):

            def told(who: str = who) -> list[str]:
                with fl.connect(member.uri) as client:
                    [said] = client.do_action(fl.Action("Status", b""), shown(made[who]))
                errors = json.loads(said.body.to_pybytes())["errors"]
                return [each["message"] for each in errors if each["standing"]]

            [message] = until(told)
            assert "list of members" in message
            assert ("db1 8815" in message and str(path) in message) == sees
            assert ("administrators are told why" in message) != sees
    finally:
        member.kill()


def test_what_a_member_has_is_there_while_it_cannot_read_its_list(tmp_path: Path) -> None:
    path = tmp_path / "members"
    harm(path, "a line")
    member = Member(path)
    try:
        member.contribute(0, 1)
        told = member.ask("server.refresh()")
        assert told["error"] == "InvalidArgumentError"
        assert LINE in told["text"]
        assert member.ask("server.tables") == ["sales"]
    finally:
        member.kill()
