"""The status page of a member of a cluster in Chromium: who there is, what each does, and which tiles are where."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import partgrid as pg
from browser import Browser
from clusters import BANDS, PART_ROWS, Member, large, part, until
from services import COMMAND, SPREAD, status
from test_cluster_cut import PAIRS

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
            browser.until("document.querySelectorAll('#members .state.away').length === 1")
            [row] = [row for row in browser.value(MEMBERS) if row[0] == "away"]
            assert row[1].startswith(other.uri)
            assert "does not answer" in row[1]
            # And so it does of its tiles; they are drawn anew seconds later.
            browser.until(f"({LOOKS}).filter((look) => look === 'lost').length === {BANDS}")
            assert "lost" not in browser.value(LOOKS)[:BANDS]
            assert f"{BANDS} of {2 * BANDS} tiles lost" in browser.text("#grids summary .facts")
            said = json.dumps(other.uri.removeprefix("grpc://"))
            browser.until(f"document.getElementById('news').innerText.includes({said})")
            # Who is in the list no more is not away.
            path.write_text(f"{server.uri}\n")
            until(lambda: server.members, lambda members: members == [server.uri])
            browser.until("document.querySelectorAll('#members tr').length === 1")
            said = json.dumps(other.uri.removeprefix("grpc://"))
            browser.until(f"document.getElementById('news').innerText.includes({said})")
            # Before the server goes.
            browser.open("about:blank")
        finally:
            other.kill()


def test_grids_that_are_not_whole_are_said_among_the_grids(browser: Browser) -> None:
    lacking = "document.getElementById('grids-incomplete').innerText"
    half = "grid 'sales': 1 of the 2 parts is there; part 1 is missing"
    with pg.Server(join=[]) as server:
        server.contribute("sales", part(0), part=0, of=2)
        server.refresh()
        browser.open(server.http_uri)
        browser.until(f"{lacking} === {json.dumps(f'Not there yet: {half}')}")
        browser.until("document.querySelectorAll('#errors tr').length === 1")
        server.contribute("sales", part(1), part=1, of=2)
        browser.until("document.querySelectorAll('#grids > li').length === 1")
        browser.until(f"{lacking} === ''")
        # Before the server goes.
        browser.open("about:blank")


def page_of(browser: Browser) -> dict[str, list[str]]:
    """What the page says of what each member does and has."""
    return {row[1].removesuffix(" this server"): row[5:] for row in browser.value(MEMBERS)}


def ps_of(server: pg.Server) -> dict[str, list[str]]:
    """What the command says of it."""
    asked = [str(COMMAND), "--server", server.uri, "ps"]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [re.split(" {2,}", line.strip()) for line in lines if line.startswith("grpc://")]
    return {row[0]: row[4:] for row in rows}


def test_what_one_member_does_is_seen_at_another(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "members"
    settings = {**SPREAD, "server.threads": 1}
    with (
        pg.Server(join=f"file:{path}", settings=settings) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        other = Member(path, **settings)
        try:
            path.write_text(f"{server.uri}\n{other.uri}\n")
            server.contribute("big", large(0), part=0, of=2)
            assert other.ask("server.contribute('big', large(1), part=1, of=2)") is None
            server.refresh()
            assert other.ask("server.refresh()") is None
            browser.open(server.http_uri)
            # It goes on for hours, and has parts in both.
            result = pg.connect(other.uri).sql(PAIRS)
            running = threads.submit(result.to_arrow)
            seen = until(
                lambda: page_of(browser),
                lambda seen: (
                    len(seen) == 2
                    and seen[other.uri][0] == "1"
                    and all(row[1] not in ("0", "not known") for row in seen.values())
                ),
            )
            assert seen[server.uri][0] == "0"
            told = {each["uri"]: each for each in status(server)["members"]}
            assert [told[uri]["queries"] for uri in (server.uri, other.uri)] == [0, 1]
            assert min(each["parts"] for each in told.values()) > 0
            for each in told.values():
                # Two millions of rows of three columns.
                assert 40_000_000 < each["grid_bytes"] < 60_000_000
                assert each["resident_bytes"] > each["grid_bytes"]
            listed = ps_of(server)
            assert [listed[uri][0] for uri in (server.uri, other.uri)] == ["0", "1"]
            assert all(row[1] != "0" and row[2].endswith(" MB") for row in listed.values())
            result.cancel()
            with pytest.raises(pg.errors.CancelledError):
                running.result(60)
            idle = {server.uri: ["0", "0"], other.uri: ["0", "0"]}
            until(
                lambda: {uri: row[:2] for uri, row in page_of(browser).items()},
                lambda seen: seen == idle,
            )
            assert {uri: row[:2] for uri, row in ps_of(server).items()} == idle
            # Before the server goes.
            browser.call("Page.navigate", url="about:blank")
        finally:
            other.kill()
