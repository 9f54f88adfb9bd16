"""What a member is started with, and reads again at SIGHUP: what a start refuses, the word to read again refuses as well."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg
from clusters import Member, cluster, write_list
from services import COMMAND, free_ports, service, until, write_tokens
from test_cluster_tls import Authority, with_tokens

# What vouches for nobody, and how that is said.
NO_CERTIFICATES = {
    "": "got none",
    "nonsense": "got none",
    "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n": "which cannot be read",
    "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n": "none of them is one of X.509",
}


def refused(folder: Path, *flags: object) -> str:
    """What the command says that does not start with these flags, and has loaded nothing by then: there is no such grid either."""
    command = [str(COMMAND), "serve", "--address", "127.0.0.1:0", "--http", "off"]
    command += ["--grid", f"t={folder / 'unread.parquet'}", *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, (flags, done.stderr)
    assert "unread" not in done.stderr, (flags, done.stderr)
    return done.stderr


@pytest.mark.parametrize(
    ("join", "remedy"),
    [
        ("", "such as db1:8815,db2:8815"),
        (" ", "such as db1:8815,db2:8815"),
        ("127.0.0.1:99999", "hint: a port is a number from 1 to 65535"),
        ("127.0.0.1:0", "hint: a port is a number from 1 to 65535"),
        ("dns:db:65536", "hint: a port is a number from 1 to 65535"),
        ("dns::8815", "dns:db.example:8815"),
        ("file:", "such as file:/etc/partgrid/members"),
        ("db1:8815,,db2:8815", 'got "db1:8815,,db2:8815"'),
    ],
)
def test_members_that_are_not_written_as_they_should_be_are_refused_with_an_example(
    tmp_path: Path, join: str, remedy: str
) -> None:
    said = refused(tmp_path, "--join", join)
    assert remedy in said
    assert "cluster.join" in said
    assert "--join" in said


def test_what_a_member_shows_must_be_a_file_with_a_token(tmp_path: Path) -> None:
    tokens, several = tmp_path / "tokens.toml", tmp_path / "several"
    command = [str(COMMAND), "token", "all", "--scope", "admin", "--add-to", str(tokens)]
    token = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    several.write_text(f"{token}\n{token}\n")
    for value, words in (
        (tokens, ["got a file of tokens", f"file: {tokens}", "hint: `partgrid token NAME"]),
        (several, ["one token in one line, got 2 lines", f"file: {several}"]),
        (f"file:{several}", ["without `file:`", "setting: cluster.token"]),
        (tmp_path / "absent", ["cannot be read", f"file: {tmp_path / 'absent'}"]),
        (token, ["got the token itself", "hint: write it to a file"]),
    ):
        said = refused(tmp_path, "--join", "alone", "--set", f"cluster.token={value}")
        for word in ["cluster.token", *words]:
            assert word in said, (word, said)
        assert token not in said


def test_a_member_that_asks_for_tokens_and_shows_none_is_told_at_its_start(tmp_path: Path) -> None:
    tokens, token, members = tmp_path / "tokens.toml", tmp_path / "token", tmp_path / "members"
    token.write_text(write_tokens(tokens, all={"scope": "admin"})["all"])
    address = f"127.0.0.1:{free_ports(1)[0]}"

    def said(*flags: object) -> str:
        with service("--address", address, "--http", "127.0.0.1:0", *flags, ports=False) as one:
            one.kill(signal.SIGTERM)
            return one.ended()[1]

    warning = "warning: this member asks for tokens and shows the others none"
    shown = ["--set", f"cluster.token={token}"]
    for join in (f"file:{members}", "127.0.0.1:1", "dns:localhost:1"):
        flags = ["--tokens", tokens, "--join", join]
        assert warning in said(*flags)
        assert "say the file of the token with cluster.token" in said(*flags)
        assert warning not in said(*flags, *shown)
        assert warning not in said("--join", join)
    # One that is alone shows nobody anything.
    for join in ("alone", address):
        assert warning not in said("--tokens", tokens, "--join", join)


def test_a_file_of_tokens_that_is_none_is_said_with_its_line_and_an_example(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, all={"scope": "admin"})
    entry = tokens.read_text()
    for text, line in (("error: redirected\n", 1), (f"{entry}and more\n", 5)):
        tokens.write_text(text)
        said = refused(tmp_path, "--tokens", tokens)
        assert f"in line {line}: the file is TOML" in said
        assert f"(file: {tokens})\nhint: " in said
        assert '\n[[token]]\nname = "analyst"\n' in said


@pytest.mark.parametrize("text", NO_CERTIFICATES)
def test_whom_members_trust_is_looked_at_before_anything_is_loaded(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "ca.pem"
    flags = ["--join", "alone", "--set", f"cluster.ca={path}"]
    where = f"(file: {path}, setting: cluster.ca)"
    absent = refused(tmp_path, *flags)
    assert "cannot be read" in absent
    assert where in absent
    path.write_text(text)
    said = refused(tmp_path, *flags)
    assert NO_CERTIFICATES[text] in said
    assert where in said
    with pytest.raises(pg.errors.InvalidDataError, match=r"cluster\.ca"):
        pg.Server(join=[], settings={"cluster.ca": str(path)})


def test_whom_members_trust_is_read_again_and_stays_where_that_fails(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    tokens, _ = with_tokens(tmp_path)
    path, listed = tmp_path / "trusted.pem", tmp_path / "members"
    good = Path(ours.ca).read_text()
    path.write_text(good)
    settings = {**tokens, **ours.certificate("127.0.0.1"), "cluster.ca": str(path)}

    def sees(other: Member) -> bool:
        write_list(listed, members)
        members[0].ask("server.refresh()")
        return other.uri in members[0].ask("server.members")

    with cluster(tmp_path, 2, **settings) as members:
        # What is there is not believed before it is read, and not if it is none.
        for text, error in (("nonsense", "InvalidDataError"), (None, "PathNotFoundError")):
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
            told = members[0].ask("server.reload()")
            assert told["error"] == error, told
            assert f"(file: {path}, setting: cluster.ca)" in told["text"]
            # It is reached by a connection of its own.
            members.append(Member(listed, **{**settings, "cluster.ca": ours.ca}))
            assert sees(members[-1])
        path.write_text(good + Path(theirs.ca).read_text())
        stranger = Member(listed, **{**settings, **theirs.certificate("127.0.0.1")})
        members.append(stranger)
        assert not sees(stranger)
        assert members[0].ask("server.reload()") is None
        assert sees(stranger)


def test_tokens_that_a_start_refuses_are_not_taken_later(tmp_path: Path) -> None:
    tokens, token = tmp_path / "tokens.toml", tmp_path / "token"
    made = write_tokens(tokens, all={"scope": "admin"}, reader={})
    token.write_text(made["all"])
    settings = {"cluster.token": str(token)}

    def grids(shown: str) -> list[str]:
        return pg.connect(server.uri, token=shown).grids()

    def is_refused(match: str) -> None:
        with pytest.raises(pg.errors.InvalidArgumentError, match=f"{match}(?s:.*)hint: "):
            server.reload()

    with pg.Server(
        {"t": pa.table({"a": [1]})}, join=[], tokens=tokens, settings=settings
    ) as server:
        token.write_text(made["reader"])
        is_refused("the token `reader` has `read`")
        token.write_text(made["all"])
        known: dict[str, Any] = {"token": made["all"]}
        new = write_tokens(tokens, all={**known, "scope": "write"}, new={})["new"]
        is_refused("the token `all` has `write`")
        write_tokens(tokens, all={**known, "scope": "admin", "grids": ["a*"]}, new={"token": new})
        is_refused("the token `all` has `admin` for some grids")
        # Nobody came in and nobody had to go.
        assert grids(made["reader"]) == ["t"]
        with pytest.raises(pg.errors.PermissionDeniedError):
            grids(new)
        # One file that cannot be read does not let the other one through.
        tokens.write_text("nonsense")
        token.write_text(made["reader"])
        is_refused("the token `reader` has `read`")
        write_tokens(tokens, all={**known, "scope": "admin"}, new={"token": new})
        token.write_text(made["all"])
        server.reload()
        assert grids(new) == ["t"]
        with pytest.raises(pg.errors.PermissionDeniedError):
            grids(made["reader"])


def test_members_go_on_with_the_token_of_before_where_the_new_one_is_refused(
    tmp_path: Path,
) -> None:
    tokens, token = tmp_path / "tokens.toml", tmp_path / "token"
    made = write_tokens(tokens, all={"scope": "admin"}, few={"scope": "write"})
    token.write_text(made["all"])
    settings = {"auth.tokens": str(tokens), "cluster.token": str(token)}
    with cluster(tmp_path, 2, **settings) as members:
        token.write_text(made["few"])
        for member in members:
            told = member.ask("server.reload()")
            assert told["error"] == "InvalidArgumentError", told
            assert "the token `few` has `write`" in told["text"]
        for member in members:
            assert member.ask("server.refresh()") is None
            assert len(member.ask("server.members")) == 2


def test_the_command_says_what_it_did_not_take_at_a_signal(tmp_path: Path) -> None:
    tokens, token = tmp_path / "tokens.toml", tmp_path / "token"
    made = write_tokens(tokens, all={"scope": "admin"}, few={"scope": "write"})
    token.write_text(made["all"])
    ca = Path(Authority(tmp_path, "ours").ca)
    flags = ["--join", "alone", "--tokens", tokens, "--set", f"cluster.token={token}"]
    with service(*flags, "--set", f"cluster.ca={ca}") as one:

        def says(text: str) -> None:
            one.kill(signal.SIGHUP)
            until(lambda: text in "".join(one.said))

        token.write_text(made["few"])
        says(
            "what cannot be used stays as it was: members must show a token with the scope `admin`"
        )
        token.write_text(made["all"])
        ca.write_text("nonsense")
        says(f"got none (file: {ca}, setting: cluster.ca)")
        assert "were read again" not in "".join(one.said)
        Authority(tmp_path, "ours")
        says("certificates and tokens were read again")
