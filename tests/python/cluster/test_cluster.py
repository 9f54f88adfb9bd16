"""Members of a cluster in processes of their own: SQL where the tiles are, through Python and the command."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from clusters import LOST, nothing_stays, status_of
from conftest import DATA
from members import ALL, QUERY, Member, cluster
from resting import all_steady
from services import COMMAND, Service, free_ports, http_answer, until, write_tokens


@pytest.mark.parametrize("threads", [1, 2])
def test_any_member_answers_over_the_tiles_of_all(tmp_path: Path, threads: int) -> None:
    expected = pg.from_arrow(ALL).sql(QUERY.replace("sales", "self")).to_arrow()
    with cluster(tmp_path, **{"cluster.fetch": False, "server.threads": threads}) as members:
        for member in members:
            assert len(member.ask("server.members")) == 3
            answer = pg.connect(member.uri).sql(QUERY).to_arrow()
            assert answer.to_pylist() == expected.to_pylist()


def test_a_grid_of_all_is_a_grid_for_clients(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        grid = pg.connect(members[1].uri).grid("sales")
        assert grid.shape == (3000, 3)
        assert grid.to_arrow().column("x").to_pylist() == list(range(3000))


def test_explain_names_members_and_tiles(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        plan = pg.connect(members[0].uri).sql(QUERY).explain()
        assert "SpreadExec: members=3" in plan
        assert plan.count("GridScanExec") == 3


def test_a_text_that_is_no_number_is_shown_in_the_statement(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        words = "pa.table({'w': ['1', 'two']})"
        assert members[1].ask(f"server.contribute('words', {words}, part=0, of=1)") is None
        for member in members:
            assert member.ask("server.refresh()") is None
        connection = pg.connect(members[0].uri)
        text = "SELECT sum(CAST(w AS BIGINT)) AS n FROM words"
        assert "SpreadExec" in connection.sql(text).explain()
        with pytest.raises(pg.errors.QueryError) as caught:
            connection.sql(text).to_arrow()
        lines = str(caught.value).splitlines()
        assert "the text 'two' is no Int64 (column: w)" in lines[0]
        assert lines[1] == "line 1, column 12:"
        assert lines[2].strip() == text


def test_the_status_lists_the_members(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        with fl.connect(members[0].uri) as client:
            [status] = client.do_action(fl.Action("Status", b""))
        words = [str(COMMAND), "--server", members[0].uri, "ps"]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert listed.endswith("\n3 members\n")
        for member in members:
            [line] = [line for line in listed.splitlines() if line.startswith(member.uri)]
            assert str(member.process.pid) in line.split()
            row = re.split(" {2,}", line)
            assert row[3].startswith("serving")
            # Its queries, parts, grids, memory of queries, and all its memory.
            assert len(row[4:]) == 5
        told = json.loads(status.body.to_pybytes())["members"]
        assert told[0]["uri"] == members[0].uri
        assert {each["uri"]: each["pid"] for each in told} == {
            member.uri: member.process.pid for member in members
        }


def told_by(member: Member) -> list[dict[str, Any]]:
    """What a member says of all of them."""
    told: list[dict[str, Any]] = status_of(member)["members"]
    return told


def test_each_member_knows_what_the_others_have(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        for member in members:
            until(lambda member=member: all(each["grid_bytes"] for each in told_by(member)))
            told = told_by(member)
            assert len(told) == 3
            for each in told:
                assert (each["queries"], each["parts"]) == (0, 0)
                # Its own thousand rows of three columns, and not those of others.
                assert 24_000 <= each["grid_bytes"] < 48_000
                assert each["resident_bytes"] > 1_000_000


def test_a_lost_member_is_an_error_and_a_new_one_with_its_part_mends_the_grid(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path) as members:
        connection = pg.connect(members[0].uri)
        before = connection.sql(QUERY).to_arrow()
        with nothing_stays(members[:2]):
            members[2].kill()
            began = time.monotonic()
            with pytest.raises(LOST) as caught:
                connection.sql(QUERY).to_arrow()
            assert time.monotonic() - began < 10
            said = str(caught.value)
            assert "member: grpc://" in said
            assert "http://" not in said
            assert "\nhint: " in said
            assert said.count("position: ") <= 1
            members[2] = Member(2, 3, tmp_path / "members")
            path = tmp_path / "members"
            path.write_text("\n".join(member.uri for member in members))
            for member in members:
                member.ask("server.refresh()")
            assert connection.sql(QUERY).to_arrow().equals(before)


def test_a_member_that_hangs_does_not_hang_statements(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        connection = pg.connect(members[0].uri)
        expected = connection.sql(QUERY).to_arrow()

        def hang() -> None:
            members[1].stop()
            began = time.monotonic()
            try:
                # It is an error soon, or what the member had lent before answers.
                is_as_before(connection, expected)
                # Ten seconds at most, and what a busy machine adds.
                assert time.monotonic() - began < 15
            finally:
                members[1].go_on()
            # And then it is a member as before.
            until(lambda: is_as_before(connection, expected), 30)

        # The first hang opens the connections that stay.
        hang()
        # A member that is slow to come back may begin to lend the one tile that it has, which it does until it ends.
        with nothing_stays(members, segments=False, sharing=False):
            hang()
        assert all(had.segments <= 1 for had in all_steady(members))


def is_as_before(connection: pg.Connection, expected: pa.Table) -> bool:
    """Whether the answer is the same; else rows must be lost."""
    try:
        rows = connection.sql(QUERY).to_arrow()
    except LOST:
        return False
    assert rows == expected
    return True


def test_a_grid_without_all_its_parts_is_no_grid(tmp_path: Path) -> None:
    with cluster(tmp_path, of=2) as members:
        assert (
            members[0].ask("server.contribute('half', pa.table({'a': [1]}), part=0, of=2)") is None
        )
        members[0].ask("server.refresh()")
        with pytest.raises(pg.errors.QueryError, match="half"):
            pg.connect(members[0].uri).sql("SELECT * FROM half").to_arrow()
        members[1].ask("server.contribute('half', pa.table({'a': [2]}), part=1, of=2)")
        members[0].ask("server.refresh()")
        connection = pg.connect(members[0].uri)
        assert connection.sql("SELECT a FROM half ORDER BY a").to_arrow().to_pydict() == {
            "a": [1, 2]
        }
        assert members[0].ask("server.withdraw('half')") is True
        assert members[0].ask("server.withdraw('half')") is False
        with pytest.raises(pg.errors.QueryError, match="half"):
            pg.connect(members[0].uri).sql("SELECT * FROM half").to_arrow()


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with cluster(tmp_path, of=2) as members:
        members[0].ask("server.contribute('odd', pa.table({'a': [1]}), part=0, of=2)")
        members[1].ask("server.contribute('odd', pa.table({'b': [1]}), part=1, of=2)")
        told = members[0].ask("server.refresh()")
        assert told["error"] == "InvalidArgumentError"
        assert "odd" in told["text"]
        assert "columns" in told["text"]


def test_what_one_member_has_for_itself_is_read_there(tmp_path: Path) -> None:
    """A table, files that are read when they are needed, and tiles of a server that is no member."""
    lazy = tmp_path / "lazy.parquet"
    pq.write_table(pa.table({"g": list(range(7)), "b": [f"file {g}" for g in range(7)]}), lazy)
    own = {"g": list(range(7)), "a": [f"name {g}" for g in range(7)]}
    query = """
        SELECT a, b, c, count(*) AS n FROM sales AS s JOIN own AS o ON o.g = s.g JOIN lazy AS l ON l.g = s.g JOIN served AS v ON v.g = s.g
        GROUP BY a, b, c ORDER BY a
    """
    with (
        pg.Server({"served": pa.table({"g": list(range(7)), "c": list(range(7))})}) as other,
        cluster(tmp_path, **{"cluster.fetch": False}) as members,
    ):
        members[0].ask(f"server.register('own', pa.table({own!r}))")
        members[0].ask(f"server.register('lazy', pg.read_parquet({str(lazy)!r}, lazy=True))")
        members[0].ask(f"server.register('served', pg.connect({other.uri!r}).grid('served'))")
        rows = pg.connect(members[0].uri).sql(query).to_arrow().to_pylist()
    assert rows == [
        {"a": f"name {g}", "b": f"file {g}", "c": g, "n": ALL["g"].to_pylist().count(g)}
        for g in range(7)
    ]


def test_a_part_that_two_members_have_is_refused(tmp_path: Path) -> None:
    with cluster(tmp_path, of=2) as members:
        for member in members:
            member.ask("server.contribute('twice', pa.table({'a': [1]}), part=0, of=1)")
        told = members[0].ask("server.refresh()")
        assert told["error"] == "InvalidArgumentError"
        assert members[0].uri in told["text"]
        assert members[1].uri in told["text"]
        # Others come up nevertheless.
        assert "sales" in members[0].ask("server.tables")
        members[1].ask("server.withdraw('twice')")
        assert members[0].ask("server.refresh()") is None
        assert "twice" in members[0].ask("server.tables")


def test_a_grid_of_all_takes_no_name_from_another(tmp_path: Path) -> None:
    with cluster(tmp_path, of=1) as members:
        members[0].ask("server.register('mine', pa.table({'a': [42]}))")
        members[0].ask("server.contribute('mine', pa.table({'a': [1]}), part=0, of=1)")
        told = members[0].ask("server.refresh()")
        assert "mine" in told["text"]
        answer = pg.connect(members[0].uri).sql("SELECT a FROM mine").to_arrow()
        assert answer.to_pydict() == {"a": [42]}


def test_servers_of_the_command_share_a_grid(tmp_path: Path) -> None:
    path = tmp_path / "members"
    months = [DATA / "flights" / f"month=0{month}" for month in (1, 2)]
    services = [
        Service("--join", f"file:{path}", "--part", f"{part}/2", "--grid", f"flights={month}")
        for part, month in enumerate(months)
    ]
    try:
        path.write_text("\n".join(service.ready().uri for service in services))
        connection = pg.connect(services[0].uri)
        query = "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier ORDER BY carrier"
        expected = pg.sql(
            query,
            flights=pg.read_parquet([str(month) for month in months], hive_partitioning=False),
        )
        until(lambda: "flights" in connection.grids())
        assert connection.sql(query).to_arrow().equals(expected.to_arrow())
    finally:
        for service in services:
            service.kill()


def test_servers_of_the_command_meet_by_a_list_of_their_addresses(tmp_path: Path) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    for part in range(3):
        pq.write_table(ALL.slice(1000 * part, 1000), tmp_path / f"{part}.parquet")

    def started(part: int) -> Service:
        grid = f"sales={tmp_path / f'{part}.parquet'}"
        own = ["--address", addresses[part], "--http", "127.0.0.1:0", "--join", ",".join(addresses)]
        return Service(*own, "--part", f"{part}/3", "--grid", grid, ports=False).ready()

    def counted(service: Service) -> bytes:
        return http_answer(service.http_uri, "/readyz")[2]

    services: list[Service] = []
    try:
        services.append(started(0))
        services.append(started(1))
        # One that is listed and does not answer counts as none.
        for service in services:
            until(lambda service=service: counted(service) == b"ready\nmembers: 2\naway: 1\n")
        services.append(started(2))
        expected = pg.from_arrow(ALL).sql(QUERY.replace("sales", "self")).to_arrow()
        for service in services:
            until(lambda service=service: counted(service) == b"ready\nmembers: 3\naway: 0\n")
            connection = pg.connect(service.uri)
            until(lambda connection=connection: "sales" in connection.grids())
            assert connection.sql(QUERY).to_arrow() == expected
        services[1].kill()
        until(lambda: counted(services[0]) == b"ready\nmembers: 2\naway: 1\n")
    finally:
        for service in services:
            service.kill()


def test_a_list_of_members_that_is_not_there_is_said(tmp_path: Path) -> None:
    service = Service("--join", f"file:{tmp_path / 'nosuch'}", PARTGRID_LOG__FILTER="warn")
    try:
        text = "".join(service.ready().said)
        assert "the list of members is not there" in text
        assert str(tmp_path / "nosuch") in text
    finally:
        service.kill()


@pytest.mark.parametrize("how", ["is a folder", "is gone", "is empty"])
def test_while_the_list_of_members_cannot_be_read_only_who_is_lost_goes(
    tmp_path: Path, how: str
) -> None:
    with cluster(tmp_path) as members:
        path = tmp_path / "members"
        text = path.read_text()
        path.unlink()
        why = "is gone, or names nobody any more"
        if how == "is a folder":
            path.mkdir()
            why = "cannot be read"
        elif how == "is empty":
            path.write_text("# Nobody.\n")
        for member in members:
            told = member.ask("server.refresh()")
            assert told["error"] == "StorageError", told
            assert f"the list of members {why}" in told["text"]
            assert len(member.ask("server.members")) == 3
            rows = pg.connect(member.uri).sql("SELECT count(DISTINCT x) AS n FROM sales").to_arrow()
            assert rows.to_pydict() == {"n": [3000]}
        members[2].kill()
        for member in members[:2]:
            until(lambda member=member: len(member.ask("server.members")) == 2)
        if how == "is a folder":
            path.rmdir()
        path.write_text(text)
        for member in members[:2]:
            assert member.ask("server.refresh()") is None


def test_what_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="HOST:PORT(?s:.*)hint: .*dns:nonsense:"
    ):
        pg.Server(join=["nonsense"])
    with pytest.raises(pg.errors.InvalidArgumentError, match="join must be"):
        pg.Server(join=3)  # type: ignore[arg-type]
    with (
        pg.Server() as server,
        pytest.raises(pg.errors.InvalidArgumentError, match="no member of a cluster"),
    ):
        server.contribute("a", pa.table({"a": [1]}), part=0, of=1)
    with pytest.raises(pg.errors.InvalidArgumentError, match="server.advertised"):
        pg.Server(join=[], address="0.0.0.0:0", insecure=True)
    with pytest.raises(pg.errors.InvalidArgumentError, match="0/3"):
        pg.Server(join=[], settings={"cluster.part": "3/3"})
    with pytest.raises(pg.errors.InvalidArgumentError, match="member of a cluster"):
        pg.Server(settings={"cluster.part": "0/3"})
    with pg.Server(join=[]) as server:
        with pytest.raises(pg.errors.InvalidArgumentError, match="part 1 of 1"):
            server.contribute("a", pa.table({"a": [1]}), part=1, of=1)
        with pytest.raises(pg.errors.InvalidArgumentError, match="1 to 200 bytes"):
            server.contribute("", pa.table({"a": [1]}), part=0, of=1)
        wrong: list[tuple[Any, Any, str]] = [
            (-1, 3, r"part must be at least 0, got -1\nhint: the numbers of 3 parts are 0 to 2"),
            (2**70, 3, f"part must be at most .*, got {2**70}"),
            (1.5, 3, "part must be a whole number, got 1.5"),
            (3, 3, "must be 0 to 2, since there are 3, got part 3 of 3"),
            (0, 0, "may have 1 to 100000 parts, got part 0 of 0"),
            (0, -1, "of must be at least 1, got -1"),
            (0, 100_001, "may have 1 to 100000 parts, got part 0 of 100001"),
        ]
        for part, of, text in wrong:
            with pytest.raises(ValueError, match=text) as caught:
                server.contribute("a", pa.table({"a": [1]}), part=part, of=of)
            assert isinstance(caught.value, pg.errors.InvalidArgumentError)


def test_parts_of_other_columns_are_told_by_the_first_that_differs() -> None:
    kept = pa.table({"k": [1], "v": [1.5]})
    for other, text in (
        (pa.table({"k": [1], "v": ["x"]}), "is `v` Float64 in part 0, and `v` Utf8 in part 1"),
        (kept.select(["k"]), "is `v` Float64 in part 0, and none in part 1"),
    ):
        with pg.Server(join=[]) as server:
            server.contribute("a", kept, part=0, of=2)
            server.contribute("a", other, part=1, of=2)
            with pytest.raises(pg.errors.InvalidArgumentError, match=f"column 1 {text}"):
                server.refresh()


def test_members_need_tokens_for_all(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    made = write_tokens(tokens, all={"scope": "admin"}, reader={"scope": "read"})
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(made["all"] + "\n")
    bad.write_text(made["reader"] + "\n")
    path = tmp_path / "members"
    settings = {"auth.tokens": str(tokens)}
    first = Member(0, 2, path, **settings, **{"cluster.token": str(good)})
    second = Member(1, 2, path, **settings, **{"cluster.token": str(good)})
    # Its own server does not know the token, and cannot tell what it is good for.
    others = tmp_path / "others.toml"
    write_tokens(others, all={"scope": "admin", "token": made["all"]})
    third = Member(0, 1, path, **{"auth.tokens": str(others), "cluster.token": str(bad)})
    try:
        path.write_text(f"{first.uri}\n{second.uri}\n")
        first.ask("server.refresh()")
        assert len(first.ask("server.members")) == 2
        connection = pg.connect(first.uri, token=made["all"])
        assert connection.sql(
            "SELECT count(DISTINCT x) AS n FROM sales"
        ).to_arrow().to_pydict() == {"n": [2000]}
        # One whose token may only read is not answered.
        third.ask("server.refresh()")
        assert third.ask("server.members") == [third.uri]
    finally:
        for member in (first, second, third):
            member.kill()


@pytest.mark.parametrize(
    ("what", "has"),
    [
        ({"scope": "write"}, "the token `few` has `write`\n"),
        ({"scope": "admin", "grids": ["a*"]}, "the token `few` has `admin` for some grids\n"),
    ],
)
def test_a_member_does_not_start_with_a_token_that_its_own_server_would_refuse(
    tmp_path: Path, what: dict[str, Any], has: str
) -> None:
    tokens, token = tmp_path / "tokens.toml", tmp_path / "token"
    token.write_text(write_tokens(tokens, few=dict(what), all={"scope": "admin"})["few"])
    settings = {"cluster.token": str(token)}
    with pytest.raises(pg.errors.InvalidArgumentError, match=f"{has}hint: `partgrid token"):
        pg.Server(join=[], tokens=tokens, settings=settings)


def test_a_line_of_the_list_that_is_no_address_is_told_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_text("# all\n\n127.0.0.1:7001\nno address\n")
    with pg.Server(join=f"file:{path}") as server:
        alone = "this member is alone until the list can be read"
        said = rf'got "no address"; {alone} \(file: {path}, line: 4\)'
        with pytest.raises(pg.errors.InvalidArgumentError, match=said):
            server.refresh()


def test_the_token_of_the_members_changes_while_they_run(tmp_path: Path) -> None:
    tokens, token = tmp_path / "tokens.toml", tmp_path / "token"
    made = write_tokens(tokens, old={"scope": "admin"}, new={"scope": "admin"})
    token.write_text(made["old"] + "\n")
    settings = {"auth.tokens": str(tokens), "cluster.token": str(token)}
    with cluster(tmp_path, of=2, **settings) as members:
        connection = pg.connect(members[0].uri, token=made["new"])
        text = "SELECT count(DISTINCT x) AS n FROM sales"
        assert connection.sql(text).to_arrow().to_pydict() == {"n": [2000]}
        token.write_text(made["new"])
        for member in members:
            assert member.ask("server.reload()") is None
        write_tokens(tokens, new={"scope": "admin", "token": made["new"]})
        for member in members:
            assert member.ask("server.reload()") is None
        for member in members:
            assert member.ask("server.refresh()") is None
            assert len(member.ask("server.members")) == 2
        assert connection.sql(text).to_arrow().to_pydict() == {"n": [2000]}
        # A file that is gone changes nothing.
        token.unlink()
        assert members[0].ask("server.reload()")["error"] == "PathNotFoundError"
        assert connection.sql(text).to_arrow().to_pydict() == {"n": [2000]}


def test_readiness_says_how_many_members_there_are(tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.touch()
    with pg.Server(join=f"file:{path}") as server:
        assert http_answer(server.http_uri, "/readyz")[2] == b"ready\nmembers: 1\naway: 0\n"
        # Nobody is at that port.
        path.write_text(f"{server.uri}\n127.0.0.1:1\n")
        server.refresh()
        answer = http_answer(server.http_uri, "/readyz")
        assert (answer[0], answer[2]) == (200, b"ready\nmembers: 1\naway: 1\n")
