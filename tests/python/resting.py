"""What a server does and has, so that tests can wait until it is at rest, and has no more than before."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from services import Service, running, status, until


class OfProcess(Protocol):
    """Whoever runs in a process of its own."""

    process: subprocess.Popen[str]


def seconds_of(one: OfProcess) -> float:
    """Time for which it has computed."""
    fields = Path(f"/proc/{one.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_at_rest(one: Service) -> bool:
    """Whether the server does nothing for anybody, and holds nothing that somebody was sending."""
    memory = status(one)["memory"]
    if running(one) or memory["query_bytes"] > 0 or memory["incoming_bytes"] > 0:
        return False
    before = seconds_of(one)
    time.sleep(0.3)
    return seconds_of(one) - before < 0.1


def at_rest(one: Service) -> None:
    until(lambda: is_at_rest(one), 30)


# The thread that waits for those who map memory, and those that answer one each.
SHARERS = {"partgrid-share", "partgrid-lease"}

# Of connections, as the kernel lists them.
ESTABLISHED, GONE = "01", "socket:[0]"


class Had:
    """What a server has of the system, once nothing moves any more."""

    def __init__(self, one: OfProcess) -> None:
        folder = Path(f"/proc/{one.process.pid}")
        links = []
        for path in (folder / "fd").iterdir():
            # Some are closed before they are looked at.
            with suppress(FileNotFoundError):
                links.append(os.readlink(path))
        self.descriptors = len(links)
        self.sockets = sum(link.startswith("socket:") for link in links)
        self.links = num_links(folder, links)
        self.segments = sum("memfd:" in link for link in links)
        unix = (folder / "net" / "unix").read_text().splitlines()[1:]
        local = {f"socket:[{line.split()[6]}]" for line in unix}
        # The sockets and the threads by which it shares memory, from the first time on.
        self.sharing = sum(link in local for link in links)
        names = [thread_name(task) for task in (folder / "task").iterdir()]
        self.sharers = sum(name in SHARERS for name in names)
        self.threads = len(names)

    def is_within(
        self,
        before: Had,
        *,
        threads: bool = True,
        segments: bool = True,
        sharing: bool = True,
        links: int = 0,
    ) -> bool:
        """Whether it has no more than before. Without `segments` more may be shared, each of which is a descriptor; without `sharing` it may have begun to.

        Servers that talk to each other make connections when they first need them: so many ends of these there may be.
        """
        new = max(0, min(self.links, links) - before.links)
        now, then = (each.counts(sharing) for each in (self, before))
        return (
            now[0] <= then[0] + new
            and now[1] <= then[1] + new
            and (self.segments <= before.segments or not segments)
            and (now[2] <= then[2] or not threads)
        )

    def counts(self, sharing: bool) -> tuple[int, int, int]:
        """Descriptors but for segments, sockets, threads; without `sharing` those that it shares memory by are left out."""
        sockets, threads = (0, 0) if sharing else (self.sharing, self.sharers)
        descriptors = self.descriptors - self.segments - sockets
        return descriptors, self.sockets - sockets, self.threads - threads


def thread_name(task: Path) -> str:
    """Of a thread, which may end before it is looked at."""
    with suppress(OSError):
        return (task / "comm").read_text().strip()
    return ""


def num_links(folder: Path, descriptors: Sequence[str]) -> int:
    """How many ends of connections a process has whose other ends are in processes that live, and not in this one."""
    own = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            own.add(os.readlink(path))
    ends: dict[tuple[str, str], str] = {}
    for line in (folder / "net" / "tcp").read_text().splitlines()[1:]:
        here, there, state, *rest = line.split()[1:]
        if state == ESTABLISHED:
            ends[here, there] = f"socket:[{rest[5]}]"
    others = {socket: ends.get((there, here)) for (here, there), socket in ends.items()}
    there = [others[each] for each in descriptors if each in others]
    return sum(each not in {None, GONE, *own} for each in there)


def all_steady(ones: Sequence[OfProcess]) -> list[Had]:
    """What servers have, once that stays as it is for a while."""
    last: list[dict[str, int]] = []

    def are_steady() -> list[Had] | None:
        nonlocal last
        try:
            now = [Had(one) for one in ones]
        except OSError:
            return None
        before, last = last, [vars(each) for each in now]
        if before == last:
            return now
        time.sleep(0.5)
        return None

    had: list[Had] = until(are_steady, 60)
    return had


def steady(one: OfProcess) -> Had:
    """The same of one server."""
    [had] = all_steady([one])
    return had


def settled(one: OfProcess, before: Had, *, threads: bool = True) -> None:
    """Waits until the server has no more than before. Threads that had work go when they had none for ten seconds."""

    def is_settled() -> bool:
        try:
            return Had(one).is_within(before, threads=threads)
        except OSError:
            return False

    until(is_settled, 30)
