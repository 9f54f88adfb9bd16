"""The status page of a member of a cluster in Chromium: who there is, and which tiles are where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import partgrid as pg
from browser import Browser
from clusters import BANDS, PART_ROWS, Member, part, until, write_list
from services import SPREAD

MEMBERS = """[...document.querySelectorAll('#members tr')].map((row) =>
    [...row.children].map((cell) => cell.innerText.replaceAll('\\u00a0', ' ').trim()))"""
LEGEND = "[...document.querySelectorAll('#grids .legend li')].map((each) => each.innerText.replaceAll('\\u00a0', ' '))"
LOOKS = "[...document.querySelectorAll('#grids .drawing .tile')].map((tile) => tile.classList[1])"


@pytest.mark.parametrize("near", [SPREAD, {}], ids=["spread", "default"])
def test_all_members_are_listed_and_tiles_are_drawn_by_where_they_are(
    browser: Browser, tmp_path: Path, near: dict[str, object]
) -> None:
    path = tmp_path / "members"
    with pg.Server(join=f"file:{path}", settings=near) as server:
        other = Member(path, **{"cluster.near": near.get("cluster.near")})
        try:
            path.write_text(f"{server.uri}\n{other.uri}\n")
            server.contribute("sales", part(0), part=0, of=2)
            other.contribute(1, 2)
            server.refresh()
            rows = pg.connect(server.uri).sql("SELECT count(DISTINCT x) AS n FROM sales").to_arrow()
            assert rows.to_pydict() == {"n": [2 * PART_ROWS]}
            browser.open(server.http_uri)
            browser.until("document.querySelectorAll('#members tr').length === 2")
            browser.until(
                f"document.querySelectorAll('#grids .drawing .tile').length === {2 * BANDS}"
            )
            seen = {row[1].removesuffix(" this server"): row for row in browser.value(MEMBERS)}
            assert seen.keys() == {server.uri, other.uri}
            assert [row[0] for row in seen.values()] == ["serving", "serving"]
            assert seen[server.uri][1].endswith(" this server")
            assert seen[other.uri][3] == str(other.pid)
            # Those of each are at one place, which is another one.
            looks = browser.value(LOOKS)
            assert len({*looks[:BANDS]}) == len({*looks[BANDS:]}) == 1
            assert looks[0] != looks[BANDS]
            places = browser.value(LEGEND)
            assert len(places) == 2, places
            assert all(f"{BANDS} tiles" in place for place in places), places
            assert sum(str(other.pid) in place for place in places) == 1, places
            # It goes, and the page says so.
            other.kill()
            write_list(path, [])
            until(lambda: server.members, lambda members: members == [server.uri])
            browser.until("document.querySelectorAll('#members tr').length === 1")
            said = json.dumps(other.uri.removeprefix("grpc://"))
            browser.until(f"document.getElementById('news').innerText.includes({said})")
            # Before the server goes.
            browser.open("about:blank")
        finally:
            other.kill()
