"""Members that speak TLS: whom they trust, what they show, how they are found; and who is no member."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest
import trustme

import partgrid as pg
from clusters import (
    PART_ROWS,
    QUERY,
    Member,
    cluster,
    expected,
    free_port,
    until,
    write_list,
)
from services import (
    COMMAND,
    Service,
    free_ports,
    http_answer,
    lines_of,
    parsed,
    proto,
    service,
    shown,
    write_tokens,
)


class Authority:
    """One who vouches, and the files of those for whom it does."""

    def __init__(self, folder: Path, name: str) -> None:
        self.made, self.folder, self.name = trustme.CA(), folder, name
        self.ca = str(folder / f"{name}.ca")
        self.made.cert_pem.write_to_path(self.ca)

    def certificate(self, *names: str) -> dict[str, object]:
        """Settings of a server with a certificate for these names."""
        issued = self.made.issue_cert(*names)
        files = self.folder / f"{self.name}.{names[0]}.pem", self.folder / f"{self.name}.key"
        files[0].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(files[1]))
        return {"tls.certificate": str(files[0]), "tls.key": str(files[1])}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


def with_tokens(folder: Path) -> tuple[dict[str, object], str]:
    """Settings of members with tokens, and the token for all."""
    made = write_tokens(folder / "tokens.toml", all={"scope": "admin"})
    (folder / "token").write_text(made["all"])
    known = {"auth.tokens": str(folder / "tokens.toml"), "cluster.token": str(folder / "token")}
    return {**known}, made["all"]


def asked(member: Member, **how: Any) -> Any:
    return pg.connect(member.uri, **how).sql(QUERY).to_arrow().to_pydict()


@pytest.mark.parametrize("mutual", [False, True])
def test_members_speak_tls_with_each_other(
    tmp_path: Path, authority: Authority, mutual: bool
) -> None:
    tokens, token = with_tokens(tmp_path)
    own = authority.certificate("127.0.0.1")
    settings = {**tokens, **own, "cluster.ca": authority.ca}
    how: dict[str, Any] = {"token": token, "ca": authority.ca}
    if mutual:
        settings["tls.client_ca"] = authority.ca
        how |= {"certificate": own["tls.certificate"], "key": own["tls.key"]}
    with cluster(tmp_path, 3, **settings) as members:
        for number, member in enumerate(members):
            assert member.uri.startswith("grpc+tls://")
            member.contribute(number, 3)
        for member in members:
            assert member.ask("server.refresh()") is None
            assert asked(member, **how) == expected(0, 1, 2)
        grid = pg.connect(members[0].uri, **how).grid("sales")
        assert grid.to_arrow().num_rows == 3 * PART_ROWS


@pytest.mark.parametrize("what", ["is vouched for by others", "trusts others"])
def test_who_is_of_another_authority_is_no_member(
    tmp_path: Path, authority: Authority, what: str
) -> None:
    tokens, token = with_tokens(tmp_path)
    other = Authority(tmp_path, "theirs")
    own = authority.certificate("127.0.0.1")
    good = {**tokens, **own, "cluster.ca": authority.ca, "tls.client_ca": authority.ca}
    changed = other.certificate("127.0.0.1") if "vouched" in what else {"cluster.ca": other.ca}
    with cluster(tmp_path, 2, **good) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        stranger = Member(tmp_path / "members", **{**good, **changed})
        members.append(stranger)
        write_list(tmp_path / "members", members)
        for member in members:
            member.ask("server.refresh()")
        assert stranger.ask("server.members") == [stranger.uri]
        if "vouched" in what:
            assert len(members[0].ask("server.members")) == 2
            how: dict[str, Any] = {"token": token, "ca": authority.ca}
            how |= {"certificate": own["tls.certificate"], "key": own["tls.key"]}
            assert asked(members[0], **how) == expected(0, 1)


def test_a_certificate_that_others_will_not_believe_is_said_at_the_start(tmp_path: Path) -> None:
    def issued(*names: str) -> dict[str, object]:
        return Authority(tmp_path, names[0]).certificate(*names)

    def said(join: str, **settings: object) -> str:
        pairs = (("--set", f"{key}={value}") for key, value in settings.items())
        with service("--join", join, *(word for pair in pairs for word in pair)) as one:
            one.kill(signal.SIGTERM)
            return one.ended()[1]

    named = issued("db.example", "192.0.2.1")
    told = said("alone", **named)
    assert "warning: members that know this one as 127.0.0.1 refuse it" in told
    assert "which is for db.example, 192.0.2.1; put 127.0.0.1 into it (subjectAltName)" in told
    advertised = {"server.advertised": "grpc+tls://db.example:8815"}
    for join, settings in (
        ("alone", {**named, **advertised}),
        ("alone", issued("127.0.0.1")),
        # What DNS gives are addresses: the certificate is for the name.
        ("dns:localhost:1", issued("localhost")),
    ):
        assert "members that know this one" not in said(join, **settings)
    assert "members that know this one as localhost refuse it" in said("dns:localhost:1", **named)


def test_members_of_a_name_are_believed_by_that_name(tmp_path: Path, authority: Authority) -> None:
    """What DNS gives are addresses, which no certificate has."""
    port = free_port()
    tokens, token = with_tokens(tmp_path)
    tls = {**tokens, **authority.certificate("localhost"), "cluster.ca": authority.ca}
    named = {**tls, "cluster.join": f"dns:localhost:{port}"}
    listed = tmp_path / "members"
    first = Member(listed, **tls, **{"server.address": f"127.0.0.1:{port}"})
    second = Member(listed, **tls)
    try:
        first.contribute(0, 1)
        # By its address it is not believed.
        listed.write_text(f"127.0.0.1:{port}\n")
        second.ask("server.refresh()")
        assert second.ask("server.members") == [second.uri]
        flags = (f"{key}={value}" for key, value in named.items())
        with service(*(word for flag in flags for word in ("--set", flag))) as third:
            how = {"token": token, "ca": authority.ca, "server_name": "localhost"}
            connection = pg.connect(third.uri, **how)
            until(connection.grids, lambda seen: seen == ["sales"])
            # The other one is asked for its tiles by the same name.
            assert connection.grid("sales").to_arrow().num_rows == PART_ROWS
    finally:
        first.kill()
        second.kill()


def said(one: Service) -> str:
    """What a service has said so far."""
    return "".join(one.said)


@contextmanager
def worker_that_says(text: str) -> Iterator[str]:
    """What answers the question who is there so; its address."""

    def info(_: bytes, __: Any) -> bytes:
        return proto((1, text))

    methods = {"GetWorkerInfo": grpc.unary_unary_rpc_method_handler(info)}
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        handler = grpc.method_handlers_generic_handler("worker.WorkerService", methods)
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


@pytest.mark.parametrize("scheme", ["grpc", "grpc+tls"])
def test_a_member_that_is_listed_with_the_wrong_scheme_is_told_so(
    tmp_path: Path, authority: Authority, scheme: str
) -> None:
    tls = authority.certificate("127.0.0.1") | {"cluster.ca": authority.ca}
    flags = [word for key, value in tls.items() for word in ("--set", f"{key}={value}")]
    speaks = flags if scheme == "grpc" else []
    address = f"127.0.0.1:{free_ports(1)[0]}"
    path = tmp_path / "members"
    path.write_text(f"{scheme}://{address}\n")
    with service("--join", f"file:{path}", *flags) as one:
        # It is there later, as members are that start one after the other.
        until(partial(said, one), lambda text: "does not take part" in text)
        there = ["--address", address, "--http", "127.0.0.1:0"]
        with service(*there, "--join", "alone", *speaks, ports=False) as other:
            until(partial(said, one), lambda text: f"is at {other.uri}" in text)
            [row] = [
                line for line in lines_of(one.uri, "--ca", authority.ca, "ps") if address in line
            ]
            assert "away" in row
            assert f"it seems to speak {'TLS' if speaks else 'without TLS'}" in row
            # Once is enough.
            assert said(one).count("it seems to speak") == 1


def introduction(uri: str) -> str:
    """What a member says of itself."""
    with grpc.insecure_channel(uri.removeprefix("grpc://")) as channel:
        call = channel.unary_unary("/worker.WorkerService/GetWorkerInfo")
        version: bytes = parsed(call(b"", timeout=10))[1][0]
        return version.decode()


@pytest.mark.parametrize("what", ["another version", "nothing known", "an empty text"])
def test_who_is_of_another_version_or_says_what_no_member_says_counts_as_none(
    tmp_path: Path, what: str
) -> None:
    path = tmp_path / "members"
    path.touch()
    rows = pa.table({"x": [1, 2, 3]})
    with pg.Server(join=f"file:{path}") as server:
        server.contribute("sales", rows, part=0, of=1)
        version, _, rest = introduction(server.uri).partition(" ")
        text = {
            "another version": f"{version}0 {rest}",
            "nothing known": f"{version} and more",
            "an empty text": "",
        }[what]
        with worker_that_says(text) as address:
            path.write_text(f"{server.uri}\n{address}\n")
            server.refresh()
            assert server.members == [server.uri]
            answer = http_answer(server.http_uri, "/readyz")
            assert answer[2] == b"ready\nmembers: 1\naway: 1\n"
            told = pg.connect(server.uri).sql("SELECT sum(x) AS x FROM sales").to_arrow()
            assert told.to_pydict() == {"x": [6]}
            with service("--join", f"file:{path}", PARTGRID_LOG__FILTER="warn") as one:
                why = "of version" if what != "nothing known" else "what no member says"
                until(partial(said, one), lambda text: why in text)


def test_a_token_of_members_is_in_no_log(tmp_path: Path) -> None:
    tokens, token = with_tokens(tmp_path)
    path = tmp_path / "members"
    flags = [word for key, value in tokens.items() for word in ("--set", f"{key}={value}")]
    flags += ["--join", f"file:{path}"]
    log = {"PARTGRID_LOG__FILTER": "info,partgrid=trace"}
    with service(*flags, **log) as first, service(*flags, **log) as second:
        path.write_text(f"{first.uri}\n{second.uri}\n")
        for each in (first, second):
            until(partial(said, each), lambda text: "are others than" in text)
            with fl.connect(each.uri) as client:
                assert list(client.do_action(fl.Action("Parts", b""), shown(token)))
        # A call that is refused is said, without what was shown.
        wrong = f"{token}x"
        with (
            fl.connect(first.uri) as client,
            pytest.raises(fl.FlightUnauthenticatedError),
        ):
            list(client.do_action(fl.Action("Parts", b""), shown(wrong)))
        for each in (first, second):
            each.process.terminate()
            _, text = each.ended(40)
            assert token not in text


def test_what_is_for_members_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    """Files that are not there would be said later."""
    absent = f"flights={tmp_path / 'absent.parquet'}"
    wide = ["--address", "0.0.0.0:0", "--http", "off", "--insecure"]
    cases = [
        (["--part", "0/3"], "only a member of a cluster has parts"),
        (["--set", "cluster.replicas=2"], "cluster.replicas"),
        (["--join", "alone", "--set", "cluster.replicas=99"], "must be 1 to 16, got 99"),
        (["--join", "alone", "--catalog", "shared://mnt/x"], "shared:///mnt/catalog"),
        (["--set", "cluster.shared=/data"], "cluster.shared"),
        ([*wide, "--join", "alone"], "server.advertised"),
        (["--join", "alone", "--part", "3/3"], "0/3"),
    ]
    for flags, why in cases:
        command = [str(COMMAND), "serve", "--grid", absent, *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode != 0, flags
        assert why in done.stderr, (flags, done.stderr)
        assert "absent" not in done.stderr, (flags, done.stderr)


def test_a_part_of_nothing_is_refused() -> None:
    alone = ["--join", "alone", "--part", "0/2", "--address", "127.0.0.1:0", "--http", "off"]
    command = [str(COMMAND), "serve", *alone]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "part 0 of 2" in done.stderr
    assert "--grid NAME=PATH" in done.stderr.partition("hint: ")[2]
    with pytest.raises(pg.errors.InvalidArgumentError, match="got none"):
        pg.Server(join=[], settings={"cluster.part": "0/2"})
