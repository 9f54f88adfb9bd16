"""Members that find each other by a name with several addresses (a headless service), which come and go, and cannot be looked up for a while.

Each member has files of hosts of its own (a namespace of mounts), which needs root on Linux.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.flight as fl
import pytest

import partgrid as pg
from certificates import Certificates
from clusters import LOST, QUERY, Child, expected, free_port, nothing_stays, until
from services import SPREAD, act

NAME = "members.partgrid.test"

MEMBER = """
import json, sys
import partgrid as pg
from clusters import part

address, port = sys.argv[1], sys.argv[2]
server = pg.Server(join=f"dns:{sys.argv[3]}:{port}", address=f"{address}:{port}", http=None, settings=json.loads(sys.argv[4]))
print(server.uri, flush=True)
"""

# Names are those of files, and of nobody who would have to be asked.
FILES = {"hosts": "", "nsswitch.conf": "hosts: files\n", "resolv.conf": "nameserver 127.0.0.1\n"}


def within(folder: Path) -> tuple[str, ...]:
    """What runs a program that sees these files in place of those of the system."""
    mounts = [f"mount --bind {folder / name} /etc/{name}" for name in FILES]
    return ("unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh")


def why_not() -> str | None:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "namespaces of mounts need root on Linux"
    if shutil.which("unshare") is None:
        return "there is no command unshare"
    if missing := [name for name in FILES if not Path("/etc", name).is_file()]:
        return f"there are no files in whose place others could be seen: {missing}"
    command = ["unshare", "--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return tried.stderr.strip() or "no namespaces of mounts" if tried.returncode else None


REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


class Named(Child):
    """A member at an address of loopback, which looks for others at the name. With TLS its certificate is for the name alone."""

    def __init__(self, folder: Path, number: int, port: int, is_tls: bool) -> None:
        self.address, self.ca = f"127.0.0.{number + 1}", folder / "ca.pem"
        files = {"tls.certificate": "own.pem", "tls.key": "own.key", "cluster.ca": self.ca.name}
        tls = {key: str(folder / name) for key, name in files.items() if is_tls}
        arguments = (self.address, str(port), NAME, json.dumps(SPREAD | tls))
        super().__init__(MEMBER, *arguments, within=within(folder))
        self.uri = self.line()

    def contribute(self, number: int, of: int) -> None:
        told = self.ask(f"server.contribute('sales', part({number}), part={number}, of={of})")
        assert told is None, told

    @property
    def connection(self) -> pg.Connection:
        if self.uri.startswith("grpc://"):
            return pg.connect(self.uri)
        return pg.connect(self.uri, ca=str(self.ca), server_name=NAME)

    def answer(self) -> object:
        return self.connection.sql(QUERY).to_arrow().to_pydict()


def status(member: Named) -> object:
    """What a member says that it does and has."""
    tls = {"tls_root_certs": member.ca.read_bytes(), "override_hostname": NAME}
    with fl.connect(member.uri, **(tls if "+tls" in member.uri else {})) as client:
        [said] = act(client, "Status")
    told: object = json.loads(said)
    return told


def point(folder: Path, members: list[Named], *others: str) -> None:
    """Has the name these addresses from now on. The file stays the same: others are mounted over it."""
    addresses = [*(member.address for member in members), *others]
    lines = [f"{address} {NAME}\n" for address in addresses]
    (folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *lines]))


def seen(member: Named) -> list[str]:
    uris: list[str] = member.ask("server.members")
    return sorted(uris)


def tried(member: Named) -> object:
    """What a member answers; nothing if it says that rows are lost, or that it does not know the grid yet."""
    try:
        return member.answer()
    except (*LOST, pg.errors.QueryError):
        return None


def see_each_other(members: list[Named]) -> None:
    """Waits until each sees these and nobody else, without being told to look."""
    uris = sorted(member.uri for member in members)
    for member in members:
        until(lambda member=member: seen(member), lambda found: found == uris, 30)


@contextmanager
def named(folder: Path, count: int, is_tls: bool = True) -> Iterator[list[Named]]:
    """Members at one port of as many addresses, which no name has yet."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    Certificates(folder).issue("own", NAME)
    port = free_port()
    members = [Named(folder, number, port, is_tls) for number in range(count)]
    try:
        yield members
    finally:
        for member in members:
            member.kill()


@pytest.mark.parametrize("is_tls", [True, False])
def test_all_addresses_of_a_name_are_members_as_they_come_and_go(
    tmp_path: Path, is_tls: bool
) -> None:
    with named(tmp_path, 3, is_tls) as members:
        one, two, three = members
        # Nobody else is there as long as the name is not.
        assert seen(one) == [one.uri]
        point(tmp_path, [one, two])
        see_each_other([one, two])
        for number, member in enumerate([one, two]):
            member.contribute(number, 2)
        until(lambda: one.ask("server.tables"), lambda tables: tables == ["sales"])
        assert one.answer() == expected(0, 1)
        # One comes, and an address at which nobody is.
        point(tmp_path, members, "127.0.0.77")
        see_each_other(members)
        until(lambda: three.ask("server.tables"), lambda tables: tables == ["sales"])
        for member in members:
            assert member.answer() == expected(0, 1)
        # And goes again.
        with nothing_stays([one, two], status):
            point(tmp_path, [one, two])
            see_each_other([one, two])
            assert one.answer() == two.answer() == expected(0, 1)


def test_a_name_that_cannot_be_looked_up_for_a_while_costs_no_member_but_who_is_lost(
    tmp_path: Path,
) -> None:
    with named(tmp_path, 3) as members:
        one, two, three = members
        point(tmp_path, members)
        see_each_other(members)
        for number, member in enumerate([one, two]):
            member.contribute(number, 2)
            assert one.ask("server.refresh()") is None
        point(tmp_path, [])
        for member in members:
            told = member.ask("server.refresh()")
            assert told["error"] == "StorageError", told
            assert NAME in told["text"]
        # Several looks later all are what they were.
        until_then = time.monotonic() + 3
        while time.monotonic() < until_then:
            assert one.answer() == expected(0, 1)
            time.sleep(0.2)
        assert [len(seen(member)) for member in members] == [3, 3, 3]
        # Who is lost is lost, also while nobody can look the name up.
        three.kill()
        see_each_other([one, two])
        assert one.answer() == expected(0, 1)
        two.kill()
        until(lambda: seen(one), lambda found: found == [one.uri], 30)
        with pytest.raises(LOST):
            one.answer()
        members[1] = two = Named(tmp_path, 1, int(one.uri.rsplit(":", 1)[1]), is_tls=True)
        two.contribute(1, 2)
        point(tmp_path, [one, two])
        see_each_other([one, two])
        # Each hears of the part with its next look, and has no rows of it before.
        for member in (one, two):
            until(lambda member=member: tried(member), lambda rows: rows == expected(0, 1))
