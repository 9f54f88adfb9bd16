"""The status page of a real server in Chromium: what it comes with, tiles, queries and loads that are under way, and their ends."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from browser import Browser
from conftest import DATA
from held import ROWS, held_files
from services import drained, statement, status

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SCREENS = {"light": (1280, 900), "dark": (1280, 900), "phone": (360, 740), "narrow": (320, 640)}
TILES = 256


@pytest.fixture(scope="module")
def server() -> Iterator[pg.Server]:
    """The flights, and a grid of more bytes than are on the way to a reader that waits: one tile, many times."""
    batch = pa.record_batch({"n": np.random.default_rng(1).integers(0, 2**62, 1 << 17)})
    large = pg.from_arrow(pa.Table.from_batches([batch] * TILES))
    with pg.Server({"flights": pg.read_parquet(DATA / "flights"), "large": large}) as server:
        yield server


@pytest.fixture
def slow_query(server: pg.Server) -> Iterator[str]:
    """A query of that server that runs for about a minute, unless somebody ends it."""
    text = "SELECT count(*) FROM flights AS a, flights AS b WHERE a.dep_time < b.dep_time + b.arr_delay"
    result = pg.connect(server.uri).sql(text)

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


def row_with(text: str, kind: str) -> str:
    """An expression: the row of a query or a job that shows a text."""
    has = f"row.innerText.includes({json.dumps(text)})"
    return f"[...document.querySelectorAll('#{kind} tr')].find((row) => {has})"


def test_the_page_has_a_policy_that_lets_nothing_else_in(server: pg.Server) -> None:
    files = {"/": "html", "/style.css": "css", "/page.js": "javascript", "/tiles.js": "javascript"}
    for path, kind in files.items():
        with urlopen(server.http_uri.rstrip("/") + path) as answer:
            assert kind in answer.headers["Content-Type"]
            if path == "/":
                assert answer.headers["Content-Security-Policy"] == POLICY


def test_tiles_are_drawn_and_everything_comes_from_the_server(
    browser: Browser, server: pg.Server
) -> None:
    grids = status(server)["grids"]
    browser.open(server.http_uri)
    browser.until("document.querySelectorAll('.drawing').length === 2")
    browser.until("document.querySelectorAll('.drawing .tile').length > 12")
    assert browser.value("document.querySelectorAll('#grids > li').length") == len(grids)
    drawn = browser.value(
        "document.querySelectorAll('#grids li:first-child .drawing .tile').length"
    )
    assert 0 < drawn <= grids[0]["tiles"]
    assert browser.text("#members").startswith("serving")
    here = server.http_uri.rstrip("/")
    assert all(url.startswith((here, "data:")) for url in browser.asked)


def test_tiles_of_a_server_are_coloured_by_size(browser: Browser, server: pg.Server) -> None:
    browser.open(server.http_uri)
    browser.until("document.querySelectorAll('#grids li:first-child .drawing .tile').length === 12")
    looks = """[...document.querySelectorAll('#grids li:first-child .drawing .tile')]
        .map((tile) => tile.classList[1])"""
    assert set(browser.value(looks)) == {"place-0"}
    browser.value("document.getElementById('colour').focus()")
    browser.press("ArrowDown")
    seen = browser.value(looks)
    with urlopen(f"{server.http_uri.rstrip('/')}/api/grids/flights") as answer:
        sizes = [tile["bytes"] for tile in json.load(answer)["tiles"]]
    least, most = min(sizes), max(sizes)
    steps = [min(4, int(5 * (size - least) / (most - least))) for size in sizes]
    assert seen == [f"step-{step}" for step in steps]


def test_a_running_query_is_cancelled_from_the_page(
    browser: Browser, server: pg.Server, slow_query: str
) -> None:
    browser.open(server.http_uri)
    row = row_with(slow_query, "queries")
    browser.until(f"{row}?.querySelector('button').checkVisibility()")
    before = json.dumps(browser.value(f"{row}.innerText"))
    browser.until(f"{row}.innerText !== {before}")
    browser.value(f"{row}.querySelector('button').focus()")
    browser.press("Enter")
    browser.until(f"!{row} || {row}.querySelector('.state').innerText === 'cancelled'")


def test_the_bar_of_a_query_moves_as_its_rows_are_read(browser: Browser, server: pg.Server) -> None:
    text = "SELECT n FROM large WHERE n > 0"
    row = row_with(text, "queries")
    with fl.connect(server.uri) as client:
        info = client.get_flight_info(statement(text))
        reader = client.do_get(info.endpoints[0].ticket)
        rows = reader.read_chunk().data.num_rows
        browser.open(server.http_uri)
        browser.until(f"{row}?.querySelector('progress').value > 0")
        before = browser.value(f"{row}.querySelector('progress').value")
        # What is left is more than fits between a server and a client that waits (above 32 MiB): the query goes on.
        while rows < TILES / 2 * (1 << 17):
            rows += reader.read_chunk().data.num_rows
        browser.until(f"{row}.querySelector('progress').value > {before}")
        now = browser.value(f"{row}.querySelector('progress').value")
        assert before < now < 1
        assert f" of {TILES} tiles, " in browser.value(f"{row}.innerText").replace("\xa0", " ")
        drained(reader)
    browser.until(f"{row}.querySelector('.state').innerText === 'done'")
    assert f"{TILES} of {TILES} tiles" in browser.value(f"{row}.innerText")


@contextmanager
def half_loaded() -> Iterator[tuple[pg.Server, Any]]:
    """A server that loads, with two of four files read, and what waits for the load."""
    with (
        held_files() as files,
        pg.Server(settings={"load.from": files.place}) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        load = pg.connect(server.uri).load_parquet
        waiting = threads.submit(load, files.urls, "taxi", progress=False)
        try:
            files.let_go(0, 1)
            yield server, waiting
        finally:
            files.let_go()


def test_a_load_is_watched_and_cancelled_from_the_page(browser: Browser, tmp_path: Path) -> None:
    with half_loaded() as (server, waiting):
        browser.open(server.http_uri)
        row = row_with("load taxi", "jobs")
        browser.until(f"Math.abs({row}?.querySelector('progress').value - 0.5) < 0.01")
        assert f"{2 * ROWS:,}" in browser.value(f"{row}.innerText")
        folder = Path(os.environ.get("PARTGRID_SCREENSHOTS", tmp_path))
        for screen in ("light", "phone"):
            browser.look(*SCREENS[screen])
            # A row takes clicks once it has been where it is for a moment.
            browser.wait(0.4)
            browser.screenshot(folder / f"status-load-{screen}.png")
        browser.click("#jobs button")
        with pytest.raises(pg.errors.CancelledError):
            waiting.result(20)
        browser.until(f"{row}.querySelector('.state').innerText === 'cancelled'")
        browser.until("document.getElementById('news').innerText.includes('cancelled')")
        # It has the focus, and stays where it is, without effect.
        disabled = "document.querySelector('#jobs button').getAttribute('aria-disabled')"
        assert browser.value(disabled) == "true"
        assert browser.text("#grids-empty") == "No grids."
        # Before the server goes.
        browser.open("about:blank")


@pytest.mark.parametrize("screen", SCREENS)
def test_the_page_fits_every_screen(
    browser: Browser, server: pg.Server, tmp_path: Path, screen: str
) -> None:
    width, height = SCREENS[screen]
    browser.look(width, height, dark=screen == "dark", calm=screen == "narrow")
    browser.open(server.http_uri)
    browser.until("document.querySelectorAll('.drawing .tile').length > 0")
    browser.wait(0.3)
    assert browser.value("document.documentElement.scrollWidth") == width
    folder = Path(os.environ.get("PARTGRID_SCREENSHOTS", tmp_path))
    browser.screenshot(folder / f"status-{screen}.png")
