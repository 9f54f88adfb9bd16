"""What a server does and has, so that tests can wait until it is at rest, and has no more than before."""

from __future__ import annotations

import os
import time
from pathlib import Path

from services import Service, running, status, until


def seconds_of(one: Service) -> float:
    """Time for which the server has computed."""
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


class Had:
    """What a server has of the system, once nothing moves any more."""

    def __init__(self, one: Service) -> None:
        folder = Path(f"/proc/{one.process.pid}")
        links = [os.readlink(path) for path in (folder / "fd").iterdir() if path.is_symlink()]
        self.descriptors = len(links)
        self.sockets = sum(link.startswith("socket:") for link in links)
        self.segments = sum("memfd:" in link for link in links)
        self.threads = len(list((folder / "task").iterdir()))


def steady(one: Service) -> Had:
    """What a server has, once that stays as it is for a while."""
    last: dict[str, int] = {}

    def is_steady() -> Had | None:
        nonlocal last
        try:
            now = Had(one)
        except OSError:
            return None
        before, last = last, vars(now)
        if before == last:
            return now
        time.sleep(0.5)
        return None

    had = until(is_steady, 60)
    assert isinstance(had, Had)
    return had


def settled(one: Service, before: Had, *, threads: bool = True) -> None:
    """Waits until the server has no more than before. Threads that had work go when they had none for ten seconds."""

    def is_settled() -> bool:
        try:
            now = Had(one)
        except OSError:
            return False
        return (
            now.descriptors <= before.descriptors
            and now.sockets <= before.sockets
            and now.segments <= before.segments
            and (now.threads <= before.threads or not threads)
        )

    until(is_settled, 30)
