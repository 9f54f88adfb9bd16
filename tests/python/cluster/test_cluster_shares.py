"""Which member reads and writes what of a store: each its own share, once; when members come and go, only the shares that change hands are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import partgrid as pg
from stores import Proxy, Request, fault_proxy, s3_server
from test_cluster_catalog import Member, in_memory
from test_cluster_stores import BUCKET, answers, cluster, met, prepared, sent, started

# Files, and row groups of them, each of which becomes a tile.
FILES, TILES = 12, 48

TILE_FILES = "/catalog/tiles/"


@pytest.fixture(scope="module")
def proxy() -> Any:
    with s3_server() as address, fault_proxy(prepared(address)) as proxy:
        yield proxy


class Seen:
    """Who asked the store for what: each member has a key of its own."""

    def __init__(self, proxy: Proxy) -> None:
        self.all: list[tuple[str, Request]] = []
        proxy.fault = self.note

    def note(self, _: int, request: Request, handler: Any, __: Any) -> bool:
        [who] = re.findall(r"Credential=(\w+)/", handler.headers["Authorization"])
        self.all.append((who, request))
        return False

    def by(self, method: str, part: str) -> dict[str, list[Request]]:
        """The requests of each member of a method, in whose paths there is a part."""
        found: dict[str, list[Request]] = {}
        for who, request in self.all:
            if request.method == method and part in request.path:
                found.setdefault(who, []).append(request)
        return found

    def tiles(self, method: str) -> dict[str, set[str]]:
        """The files of tiles of each member, none of which is of several, or asked for twice."""
        found = self.by(method, TILE_FILES)
        paths = [request.path for each in found.values() for request in each]
        assert len(paths) == len(set(paths)), sorted(paths)
        return {who: {request.path for request in each} for who, each in found.items()}


def load(member: Member, name: str) -> None:
    source = f"s3://{BUCKET}/{name}/data/sales"
    told = pg.connect(member.uri).load_parquet(source, "sales", tile_rows=500)
    assert told["rows"] == FILES * 2000


def test_each_reads_and_writes_its_own_share_and_only_what_changes_hands_moves(
    proxy: Proxy, tmp_path: Path
) -> None:
    table = sent(proxy.address, tmp_path, "shares", count=FILES)
    with cluster(proxy, tmp_path, "shares") as members:
        seen = Seen(proxy)
        load(members[1], "shares")
        written = seen.tiles("PUT")
        assert sorted(written) == ["member0", "member1", "member2"]
        assert sum(map(len, written.values())) == TILES
        assert {who: len(each) for who, each in seen.by("PUT", "/grids/").items()} == {"member1": 1}
        # Each reads the pages of its own tiles, which nobody else reads, and the footer of a file once at most.
        read = seen.by("GET", "/data/")
        pages = {who: [each for each in of if each.range[0] > 0] for who, of in read.items()}
        every = [(page.path, page.range) for of in pages.values() for page in of]
        assert len(set(every)) == len(every) == TILES
        assert {who: len(of) for who, of in pages.items()} == {
            who: len(of) for who, of in written.items()
        }
        for who, of in read.items():
            footers = [each.path for each in of if each.range[0] == 0]
            assert len(set(footers)) == len(footers) <= FILES, who
        # On first use each reads what it has written, and nothing later.
        seen.all.clear()
        answers(members, table)
        assert seen.tiles("GET") == written
        seen.all.clear()
        answers(members, table)
        assert seen.tiles("GET") == {}

        # One comes: it reads its share, and nobody else anything.
        members.append(started(proxy, tmp_path, "shares", 3))
        met(tmp_path, members)
        seen.all.clear()
        answers(members, table)
        moved = seen.tiles("GET")
        assert list(moved) == ["member3"]
        # A fourth of them; placement is like chance.
        assert 0 < len(moved["member3"]) == in_memory(members[3]) < TILES * 0.6
        assert moved["member3"] < set.union(*written.values())

        # One goes: what it had the others read, and nothing else.
        members.pop(1).kill()
        met(tmp_path, members)
        seen.all.clear()
        answers(members, table)
        left = seen.tiles("GET")
        assert set.union(*left.values()) == written["member1"] - moved["member3"]
        assert "member1" not in left
