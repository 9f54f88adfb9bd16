"""What members of a cluster send each other, counted at the interfaces of network namespaces, and a network that is slow or cut. Needs root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clusters import Child, nothing_stays, until, works

MEMBER = """
import json, os, sys
import numpy as np, pyarrow as pa
import partgrid as pg

part, members, address = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ["PARTGRID_HOST"] = address
settings = {"cluster.fetch": False, "limits.silence": 1.5, "limits.query_time": 600}
server = pg.Server(join="file:" + members, http=address + ":7001", address=address + ":7000", insecure=True, settings=settings)
# 64 MiB in each process.
ids = np.arange(4 * 1024 * 1024, dtype=np.int64) + part
table = pa.table({"g": ids % 100, "x": ids * 7 % 1000})
server.contribute("facts", pg.from_arrow(table), part=part, of=3)
print("here", flush=True)
"""

SQL = "SELECT g, sum(x) AS x, count(*) AS n FROM facts GROUP BY g ORDER BY g"
# Pairs of rows of all members, which a join looks at one by one, for hours; with as many shares as it has threads in each.
PAIRS = "SELECT a.x, count(*) AS n FROM facts a JOIN facts b ON a.x <> b.x AND a.g < -b.g WHERE a.g < 5 AND b.g < 5 GROUP BY a.x"
ASK = f"pg.connect(server.uri, insecure=True).sql({SQL!r}).to_arrow().to_pydict()"


def why_not() -> str | None:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "namespaces of networks need root on Linux"
    if shutil.which("ip") is None:
        return "there is no command ip"
    name = f"pgtry{os.getpid()}"
    tried = subprocess.run(
        ["ip", "netns", "add", name], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        return f"this kernel gives no namespaces: {tried.stderr.strip()}"
    run("netns", "del", name)
    return None


def run(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Network:
    """A bridge, and three namespaces on it; nothing of it is reachable from elsewhere."""

    def __init__(self) -> None:
        self.name = f"pg{os.getpid() % 10_000}"
        run("netns", "add", self.bridge)
        self._in(self.bridge, "link", "add", "bridge", "type", "bridge")
        self._in(self.bridge, "link", "set", "bridge", "up")
        for number in range(3):
            space, there = self.space(number), f"veth{number}"
            run("netns", "add", space)
            self._in(
                self.bridge,
                "link",
                "add",
                there,
                "type",
                "veth",
                "peer",
                "name",
                "eth",
                "netns",
                space,
            )
            self._in(self.bridge, "link", "set", there, "master", "bridge", "up")
            self._in(space, "address", "add", f"{self.address(number)}/24", "dev", "eth")
            self._in(space, "link", "set", "lo", "up")
            self._in(space, "link", "set", "eth", "up")

    @property
    def bridge(self) -> str:
        return f"{self.name}b"

    def space(self, number: int) -> str:
        return f"{self.name}n{number}"

    @staticmethod
    def address(number: int) -> str:
        # Of the addresses for documentation.
        return f"192.0.2.{number + 1}"

    @staticmethod
    def _in(space: str, *arguments: str) -> None:
        run("-n", space, *arguments)

    def sent(self, number: int) -> int:
        """Bytes that went through the interface of a namespace, both ways."""
        command = ["ip", "-n", self.space(number), "-s", "-j", "link", "show", "eth"]
        told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        stats = told[0]["stats64"]
        return stats["rx"]["bytes"] + stats["tx"]["bytes"]

    def slow(self, number: int, rate: str) -> None:
        command = f"tc qdisc add dev eth root tbf rate {rate} burst 32kbit latency 400ms"
        subprocess.run(
            ["ip", "netns", "exec", self.space(number), *command.split()],
            check=True,
            capture_output=True,
        )

    def cut(self, number: int, *, whole: bool) -> None:
        self._in(self.bridge, "link", "set", f"veth{number}", "up" if whole else "down")

    def close(self) -> None:
        for space in (*(self.space(number) for number in range(3)), self.bridge):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


class Member(Child):
    def __init__(self, network: Network, number: int, members: Path) -> None:
        super().__init__(
            MEMBER,
            str(number),
            str(members),
            network.address(number),
            within=("ip", "netns", "exec", network.space(number)),
        )
        self.space, self.address = network.space(number), network.address(number)


@contextmanager
def members(folder: Path) -> Iterator[tuple[Network, list[Member]]]:
    network = Network()
    started: list[Member] = []
    try:
        path = folder / "members"
        path.write_text("\n".join(f"{network.address(number)}:7000" for number in range(3)))
        started = [Member(network, number, path) for number in range(3)]
        for member in started:
            assert member.line() == "here"
        for member in started:
            assert member.ask("server.refresh()") is None
            assert member.ask("len(server.members)") == 3
        yield network, started
    finally:
        for member in started:
            member.process.kill()
            member.process.wait()
        network.close()


REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


def test_groups_cross_the_network_and_tiles_do_not(tmp_path: Path) -> None:
    with members(tmp_path) as (network, started):
        before = [network.sent(number) for number in range(3)]
        told = started[0].ask(ASK)
        assert isinstance(told, dict)
        assert sum(told["n"]) == 3 * 4 * 1024 * 1024
        grown = [network.sent(number) - then for number, then in enumerate(before)]
        # 64 MiB of tiles are in each process.
        assert max(grown) < 1024 * 1024, grown


def test_a_slow_network_is_enough_for_groups(tmp_path: Path) -> None:
    with members(tmp_path) as (network, started):
        expected = started[0].ask(ASK)
        for number in range(3):
            network.slow(number, "1mbit")
        began = time.monotonic()
        assert started[0].ask(ASK) == expected
        assert time.monotonic() - began < 30


def status_in(member: Member) -> Any:
    """What a member says that it does and has, asked within its namespace."""
    program = "import sys, urllib.request as web; print(web.urlopen(sys.argv[1]).read().decode())"
    within = ["ip", "netns", "exec", member.space, sys.executable, "-IS", "-c", program]
    uri = f"http://{member.address}:7001/api/status"
    return json.loads(subprocess.run([*within, uri], check=True, capture_output=True).stdout)


def is_lost(told: Any) -> bool:
    return told.get("error") in ("WorkerLostError", "PartitionLostError")


@contextmanager
def a_client_of(member: Member) -> Iterator[Child]:
    """A process in the namespace of a member."""
    program = "import json, sys\nimport partgrid as pg\n"
    client = Child(program, within=("ip", "netns", "exec", member.space))
    try:
        yield client
    finally:
        client.kill()


def test_a_cut_link_is_an_error_within_seconds_and_heals(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads, members(tmp_path) as (network, started):
        one = started[0]
        expected = one.ask(ASK)
        pairs = f"pg.connect('grpc://{one.address}:7000', insecure=True).sql({PAIRS!r})"
        with nothing_stays(started, status_in):
            with a_client_of(one) as client:
                client.begin(f"{pairs}.to_arrow().num_rows")
                until(lambda: works(started), all)
                network.cut(2, whole=False)
                began = time.monotonic()
                told = json.loads(threads.submit(client.line).result(60))
                assert is_lost(told), told
                assert time.monotonic() - began < 20
            # Nobody goes on, on either side.
            until(lambda: works(started), lambda working: not any(working), 30)
            told = one.ask(ASK)
            assert is_lost(told), told
            assert time.monotonic() - began < 60
            network.cut(2, whole=True)
            until(lambda: one.ask(ASK), lambda told: told == expected)
