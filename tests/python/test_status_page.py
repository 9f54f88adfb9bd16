"""The status page in Chromium: tiles, progress, cancelling, keyboard, screens, and a server that refuses or is away.

What a real server does only for a moment is pretended.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

import partgrid as pg
from browser import Browser, chromium
from conftest import DATA
from pretended import HOSTILE, Pretended

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SERVERS: dict[str, pg.Server] = {}
SCREENS = {"light": (1280, 900), "dark": (1280, 900), "phone": (360, 740), "narrow": (320, 640)}


@pytest.fixture(scope="module")
def http_uri() -> Iterator[str]:
    """The page of a server that has the flights."""
    with pg.Server({"flights": pg.read_parquet(DATA / "flights")}) as server:
        SERVERS[server.http_uri] = server
        yield server.http_uri


@pytest.fixture
def slow_query(http_uri: str) -> Iterator[str]:
    """A query of that server that runs for about a minute, unless somebody ends it."""
    text = "SELECT count(*) FROM flights AS a, flights AS b WHERE a.dep_time < b.dep_time + b.arr_delay"
    connection = pg.connect(SERVERS[http_uri].uri)
    result = connection.sql(text)

    def run() -> None:
        with contextlib.suppress(pg.PartgridError):
            result.to_arrow()

    running = threading.Thread(target=run)
    running.start()
    yield text
    with contextlib.suppress(pg.PartgridError):
        result.cancel()
    running.join(30)
    assert not running.is_alive()


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("Chromium is missing (Debian: apt-get install chromium)")
    with Browser(program) as browser:
        yield browser


@pytest.fixture
def browser(chrome: Browser) -> Iterator[Browser]:
    """A browser whose page has complained of nothing when the test is over."""
    chrome.look(1280, 900)
    chrome.call("Page.navigate", url="about:blank")
    chrome.complaints.clear()
    chrome.asked.clear()
    yield chrome
    chrome.pretend("", None)
    # A failed request is a line in the console of its own, whatever the page does about it.
    assert [text for text in chrome.complaints if "Failed to load resource" not in text] == []


@pytest.fixture
def pretended(browser: Browser, http_uri: str) -> Pretended:
    return Pretended(browser, http_uri)


def text(browser: Browser, selector: str) -> str:
    return browser.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")


def visible(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})?.checkVisibility()"


def test_the_page_has_a_policy_that_lets_nothing_else_in(http_uri: str) -> None:
    files = {"/": "html", "/style.css": "css", "/page.js": "javascript", "/tiles.js": "javascript"}
    for path, kind in files.items():
        with urlopen(http_uri.rstrip("/") + path) as answer:
            assert kind in answer.headers["Content-Type"]
            if path == "/":
                assert answer.headers["Content-Security-Policy"] == POLICY


def test_tiles_are_drawn_and_everything_comes_from_the_server(
    browser: Browser, http_uri: str
) -> None:
    with urlopen(http_uri.rstrip("/") + "/api/status") as answer:
        grids = json.load(answer)["grids"]
    assert grids, "the server of this test has a grid"
    browser.open(http_uri)
    browser.until("document.querySelectorAll('.drawing .tile').length > 0")
    first = browser.until("document.querySelectorAll('#grids > li').length")
    assert first == len(grids)
    drawn = browser.value(
        "document.querySelectorAll('#grids li:first-child .drawing .tile').length"
    )
    assert 0 < drawn <= grids[0]["tiles"]
    assert all(url.startswith((http_uri.rstrip("/"), "data:")) for url in browser.asked)


def test_a_running_query_is_cancelled_from_the_page(
    browser: Browser, http_uri: str, slow_query: str
) -> None:
    browser.open(http_uri)
    has = f"row.innerText.includes({json.dumps(slow_query)})"
    row = f"[...document.querySelectorAll('#queries tr')].find((row) => {has})"
    browser.until(f"{row}?.querySelector('button').checkVisibility()")
    before = json.dumps(browser.value(f"{row}.innerText"))
    browser.until(f"{row}.innerText !== {before}")
    browser.value(f"{row}.querySelector('button').focus()")
    browser.press("Enter")
    browser.until(f"!{row} || {row}.querySelector('.state').innerText === 'cancelled'")


@pytest.mark.parametrize("screen", SCREENS)
def test_the_page_fits_every_screen(
    browser: Browser, http_uri: str, tmp_path: Path, screen: str
) -> None:
    width, height = SCREENS[screen]
    browser.look(width, height, dark=screen == "dark", calm=screen == "narrow")
    browser.open(http_uri)
    browser.until("document.querySelectorAll('.drawing .tile').length > 0")
    browser.wait(0.3)
    assert browser.value("document.documentElement.scrollWidth") == width
    folder = Path(os.environ.get("PARTGRID_SCREENSHOTS", tmp_path))
    browser.screenshot(folder / f"status-{screen}.png")


def test_progress_moves_and_what_did_not_change_stays(
    browser: Browser, pretended: Pretended
) -> None:
    query = pretended.query("q1", "SELECT 1")
    pretended.grid("steady", 3, 2)
    browser.until("document.querySelector('#queries progress')?.value === 0.25")
    browser.until("document.querySelectorAll('.drawing .tile').length === 6")
    browser.value("document.querySelectorAll('.drawing .tile')[0].focus()")
    browser.press("ArrowDown")
    browser.press("End")
    browser.value("getSelection().selectAllChildren(document.querySelector('#queries code')); 0")
    browser.value("window.nodes = [...document.querySelectorAll('#queries *, .drawing *')]; 0")
    query.update(progress=0.75, tiles_done=9)
    browser.until("document.querySelector('#queries progress').value === 0.75")
    assert "9 of 12 tiles, 75 %" in text(browser, "#queries")
    assert browser.value("nodes.every((node) => node.isConnected)")
    assert browser.value("getSelection().toString()") == "SELECT 1"
    assert browser.value("document.activeElement.ariaLabel").startswith("Tile (1, 1): 100 rows")


def test_sorting_has_a_bar_of_its_own_and_what_has_no_measure_has_none(
    browser: Browser, pretended: Pretended
) -> None:
    pretended.job("taxi")
    job = pretended.jobs[-1]
    job.update(bytes=1000, arranged_rows=1500, rows_to_arrange=2000, progress=0.75)
    browser.until("document.querySelector('#jobs progress')?.value === 0.75")
    assert "sorting: 1,500 of 2,000 rows, 75 %" in text(browser, "#jobs")
    job.update(arranged_rows=2000, progress=None, remaining_seconds=0.0)
    browser.until("document.querySelector('#jobs progress').matches(':indeterminate')")
    assert "1.0 kB of 1.0 kB, all read, being finished" in text(browser, "#jobs")


def test_a_place_looks_the_same_in_every_grid(browser: Browser, pretended: Pretended) -> None:
    for name, locality in (("first", "memory"), ("second", "file"), ("third", "memory")):
        pretended.grid(name, 2, 1)
        for tile in pretended.details[f"grids/{name}"]["tiles"]:
            tile["locality"] = locality
    browser.until("document.querySelectorAll('.drawing .tile').length === 6")
    looks = "[...document.querySelectorAll('.drawing')].map((each) => each.querySelector('.tile').classList[1])"
    first, second, third = browser.value(looks)
    assert first == third != second
    signs = "[...document.querySelectorAll('.legend')].map((each) => each.querySelector('svg text').textContent)"
    assert browser.value(signs) == ["A", "B", "A"]


def test_a_catalog_that_is_not_as_it_should_be_is_said_above_all(
    browser: Browser, pretended: Pretended
) -> None:
    pretended.catalog = {"durable": True, "damaged": 0}
    browser.until("document.getElementById('server-facts').innerText")
    assert not browser.value(visible("#notice"))
    pretended.catalog = {"durable": False, "damaged": 1}
    browser.until(visible("#notice"))
    said = text(browser, "#notice-text")
    assert "The catalog cannot be written" in said
    assert "1 table of the catalog is damaged" in said
    browser.until("document.getElementById('news').innerText.includes('cannot be written')")
    pretended.catalog = {"durable": True, "damaged": 0}
    browser.until("document.getElementById('news').innerText.includes('can be written again')")
    assert not browser.value(visible("#notice"))


def test_what_is_wrong_as_long_as_it_is_comes_first(browser: Browser, pretended: Pretended) -> None:
    error = {"request": "", "caller": "server", "kind": "InvalidData"}
    times = [("standing", "2026-11-22T09:00:01Z"), ("old", "2026-11-22T09:00:02Z")]
    times.append(("new", "2026-11-22T09:00:03Z"))
    pretended.errors = [
        {**error, "message": name, "time": time, "standing": name == "standing"}
        for name, time in times
    ]
    browser.until("document.querySelectorAll('#errors tr').length === 3")
    said = "[...document.querySelectorAll('#errors .message')].map((each) => each.innerText).join()"
    assert browser.value(said) == "standing,new,old"


def test_members_are_listed_as_they_come_and_go(browser: Browser, pretended: Pretended) -> None:
    cells = """[...document.querySelectorAll('#members tr')].map((row) =>
        [...row.children].map((cell) => cell.innerText.trim()))"""
    browser.until(visible("#members-empty"))
    for pid in (1, 2, 3):
        pretended.member(pid)
    browser.until("document.querySelectorAll('#members tr').length === 3")
    assert browser.value(cells) == [
        ["serving", "grpc://10.0.0.1:8815 this server", "10.0.0.1", "1", "0.1.0"],
        ["serving", "grpc://10.0.0.2:8815", "10.0.0.2", "2", "0.1.0"],
        ["serving", "grpc://10.0.0.3:8815", "10.0.0.3", "3", "0.1.0"],
    ]
    assert text(browser, "#members-count") == "3"
    assert not browser.value(visible("#members-empty"))
    # One has gone, and another stops.
    pretended.members.pop(1)
    pretended.members[1].update(state="stopping", uri=HOSTILE)
    browser.until("document.querySelectorAll('#members tr').length === 2")
    assert [row[0] for row in browser.value(cells)] == ["serving", "stopping"]
    assert browser.value("document.querySelectorAll('#members script, #members img').length") == 0
    news = text(browser, "#news")
    assert "10.0.0.2:8815" in news
    assert "went" in news


def test_memory_that_is_spilled_or_comes_in_is_shown(
    browser: Browser, pretended: Pretended
) -> None:
    browser.until("document.getElementById('memory-spilled').innerText")
    assert text(browser, "#memory-spilled") == "1.0 MB of 1.0 MB"
    assert text(browser, "#memory-incoming") == "1.0 MB"
    assert pretended.errors == []


def test_words_stay_whole_and_a_mark_stands_below_what_it_marks(
    browser: Browser, pretended: Pretended
) -> None:
    pretended.query("q1", "SELECT 1 " * 40)
    pretended.queries[-1]["caller"] = "anonymous"
    error = {"time": "2026-11-22T09:00:03Z", "request": "r", "caller": "anonymous", "kind": "Query"}
    pretended.errors = [{**error, "message": "no column `b`\nline 1:\n  iiii b\n       ^"}]
    browser.until("document.querySelectorAll('#errors tr').length === 1")
    lines = "(each) => each.getClientRects().length"
    caller = (
        "[...document.querySelectorAll('#queries [data-part=caller], #errors [data-part=caller]')]"
    )
    assert browser.value(f"{caller}.map({lines})") == [1, 1]
    family = "getComputedStyle(document.querySelector('#errors .message')).fontFamily"
    assert "monospace" in browser.value(family)


def test_running_queries_keep_their_places_above_those_that_ended(
    browser: Browser, pretended: Pretended
) -> None:
    for name in ("10", "a", "9", "8"):
        pretended.query(name, name)
    pretended.queries[-1].update(state="done", can_cancel=False)
    order = "[...document.querySelectorAll('#queries code')].map((code) => code.innerText).join()"
    browser.until(f"{order} === '9,a,10,8'")
    # As the second click of two, on the row that came to the place of the first.
    browser.value("""new MutationObserver(() => document.querySelector('#queries button')
        .dispatchEvent(new MouseEvent('click', { detail: 2 })))
        .observe(document.getElementById('queries'), { childList: true }); 0""")
    browser.click("#queries button")
    browser.until(f"{order} === 'a,10,9,8'")
    browser.wait(0.7)
    browser.click("#queries button")
    browser.until(f"{order} === '10,a,9,8'")
    assert [path for path, _ in pretended.posts] == ["queries/9/cancel", "queries/a/cancel"]


def test_enter_cancels_a_query_and_a_click_cancels_a_job(
    browser: Browser, pretended: Pretended
) -> None:
    pretended.query("q 1", "SELECT 1")
    pretended.job("taxi")
    browser.until(visible("#jobs button"))
    browser.value("document.querySelector('#queries button').focus()")
    browser.press("Enter")
    browser.until("document.querySelector('#queries .state').innerText === 'cancelled'")
    browser.press("Enter")
    browser.click("#jobs button")
    browser.until("document.querySelector('#jobs .state').innerText === 'cancelled'")
    browser.until("document.getElementById('news').innerText.includes('Job')")
    assert [path for path, _ in pretended.posts] == ["queries/q 1/cancel", "jobs/taxi/cancel"]
    assert all(headers["X-Partgrid"] == "page" for _, headers in pretended.posts)


def test_the_server_says_why_it_does_not_cancel(browser: Browser, pretended: Pretended) -> None:
    pretended.scope = "read"
    pretended.query("q1", "SELECT 1")
    browser.until(visible("#queries button"))
    browser.click("#queries button")
    browser.until("document.querySelector('#queries .bad').innerText")
    assert text(browser, "#queries .bad") == "Not cancelled: this needs the scope `write`"


def test_names_and_sql_of_others_are_text(browser: Browser, pretended: Pretended) -> None:
    pretended.query("q1", f"SELECT '{HOSTILE}'" + "x" * 500)
    pretended.job(HOSTILE)
    pretended.grid(HOSTILE, 2, 2)
    error = {"time": "2026-11-22T09:00:03Z", "request": "r", "caller": HOSTILE, "kind": "Query"}
    pretended.errors = [{**error, "message": HOSTILE}] * 2
    browser.until("document.querySelectorAll('.drawing .tile').length === 4")
    browser.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    browser.until("document.querySelectorAll('#errors tr').length === 2")
    assert browser.value("document.querySelectorAll('main script, img').length") == 0
    assert "\u202e" not in browser.value("document.body.innerText")
    assert HOSTILE.replace("\u202e", "\ufffd") in text(browser, "#grids h3")


def test_a_token_is_asked_for_sent_and_kept_in_the_tab_only(
    browser: Browser, pretended: Pretended
) -> None:
    pretended.token = "secret"
    browser.until(visible("#entry"))
    browser.until("document.activeElement.id === 'token'")
    browser.type("wrong")
    browser.press("Enter")
    browser.until("document.getElementById('entry-error').innerText")
    assert "this token is not known" in text(browser, "#entry-error")
    browser.type("secret")
    browser.press("Enter")
    browser.until(visible("#status"))
    kept = "JSON.stringify([Object.values(sessionStorage), localStorage.length, document.cookie])"
    assert json.loads(browser.value(kept)) == [["secret"], 0, ""]
    browser.click("#forget")
    browser.until(visible("#entry"))
    assert browser.value("sessionStorage.length") == 0


def test_a_server_that_was_away_is_found_again(browser: Browser, pretended: Pretended) -> None:
    browser.until(visible("#status"))
    pretended.away = True
    browser.until(visible("#notice"))
    assert "The server is away" in text(browser, "#notice")
    pretended.away = False
    browser.until(f"!{visible('#notice')}")
    assert "The server is back" in text(browser, "#news")


def test_ten_thousand_tiles_are_drawn_at_once(browser: Browser, pretended: Pretended) -> None:
    pretended.grid("huge", 100, 100)
    browser.until("document.querySelectorAll('.drawing .tile').length > 100")
    again = """(() => {
        const [start, select] = [performance.now(), document.getElementById('colour')];
        select.value = select.value === 'size' ? 'location' : 'size';
        select.dispatchEvent(new Event('change'));
        document.body.getBoundingClientRect();
        return performance.now() - start;
    })()"""
    # Some 20 ms; the page must not hang, and the machine may be busy with something else.
    assert min(browser.value(again) for _ in range(5)) < 5000
    browser.value("document.querySelector('[data-part=listing]').open = true")
    browser.until("document.querySelectorAll('#grids tbody tr').length === 200")


def test_tab_reaches_everything_that_can_be_done(browser: Browser, pretended: Pretended) -> None:
    pretended.query("q1", "SELECT 1")
    pretended.job("taxi")
    pretended.grid("steady", 3, 2)
    browser.until("document.querySelectorAll('.drawing .tile').length === 6")
    can = "a, button, select, summary, [role=gridcell][tabindex='0']"
    reachable = (
        f"""[...document.querySelectorAll("{can}")].filter((each) => each.checkVisibility())"""
    )
    browser.value(f"window.left = new Set({reachable}); 0")
    assert browser.value("left.size") >= 7
    for _ in range(20):
        browser.press("Tab")
        browser.value("left.delete(document.activeElement)")
    assert browser.value("left.size") == 0
