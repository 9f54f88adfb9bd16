"""Loads that a server does for its clients."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import partgrid as pg
from conftest import DATA
from services import write_tokens

LINKS: dict[str, Path] = {}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pg.Server]:
    """Loads from below the flights, and from a folder with links."""
    folder = tmp_path_factory.mktemp("links")
    (folder / "inside").symlink_to(folder)
    (folder / "airlines.parquet").symlink_to(DATA / "airlines.parquet")
    places = f"{DATA / 'flights'}, {folder}"
    with pg.Server(settings={"load.from": places}) as server:
        LINKS[server.uri] = folder
        yield server


def test_files_become_a_grid_of_the_server(server: pg.Server) -> None:
    connection = pg.connect(server.uri)
    done = connection.load_parquet(DATA / "flights", "flights", columns=["month", "distance"])
    assert done == {"rows": 336776}
    assert server.grid("flights").columns == ["month", "distance"]
    with pytest.raises(pg.errors.QueryError, match="exists already"):
        connection.load_parquet(DATA / "flights", "flights")
    assert connection.load_parquet(
        str(DATA / "flights" / "month=07" / "*.parquet"),
        "flights",
        if_exists="replace",
        tile_rows=10_000,
    ) == {"rows": 29425}
    assert len(server.grid("flights").tiles) == 4
    with urlopen(server.http_uri + "/api/status") as answer:
        jobs = json.load(answer)["jobs"]
    assert [job["state"] for job in jobs] == ["done", "done"]
    assert jobs[0]["name"] == "flights"


def test_a_load_sorts_and_takes_columns_of_folders_or_not(server: pg.Server) -> None:
    connection = pg.connect(server.uri)
    connection.load_parquet(DATA / "flights", "sorted", sort_by=[("distance", "desc"), "origin"])
    wanted = "SELECT max(distance) AS d FROM self"
    grid = server.grid("sorted")
    assert "month" in grid.columns
    first = grid.to_arrow()["distance"][0].as_py()
    assert first == grid.sql(wanted).to_arrow()["d"][0].as_py()
    source = str(DATA / "flights" / "month=02")
    connection.load_parquet(source, "plain", hive_partitioning=False, schema_evolution="widen")
    assert "month" not in server.grid("plain").columns
    with pytest.raises(pg.errors.InvalidArgumentError, match="schema_evolution"):
        connection.load_parquet(source, "wrong", schema_evolution="none")
    with pytest.raises(pg.errors.NotFoundError, match="nope"):
        connection.load_parquet(source, "wrong", sort_by="nope")


@pytest.mark.parametrize(
    "path",
    [
        DATA / "airlines.parquet",
        f"{DATA}/flights/../airlines.parquet",
        f"file://{DATA}/flights/../airlines.parquet",
        f"{DATA}/flight*",
        f"{DATA}/flights*/airlines.parquet",
        f"{DATA}/flights/month=01/../../airlines.parquet",
        f"{DATA}/flights//.././airlines.parquet",
        f"{DATA}/flights/../flights_of_others/data.parquet",
        f"{DATA}/flights\0/../airlines.parquet",
        f"file://{DATA}/flights/%2e%2e/airlines.parquet",
        f"file://{DATA}/flights/%2E%2E%2Fairlines.parquet",
        f"file://localhost{DATA}/airlines.parquet",
        f"FILE://{DATA}/airlines.parquet",
        "\\\\host\\share\\data.parquet",
        "~/data.parquet",
        "/etc",
        "/proc/self/environ",
        "",
        "shared:///etc",
        "s3://bucket/data",
        "http://127.0.0.1:1/data.parquet",
        "http://169.254.169.254/latest/meta-data",
    ],
    ids=repr,
)
def test_nothing_is_loaded_from_elsewhere(server: pg.Server, path: str | Path) -> None:
    with pytest.raises(pg.errors.PermissionDeniedError) as caught:
        pg.connect(server.uri).load_parquet(path, "stolen")
    said = str(caught.value)
    assert "not below a place that may be loaded from" in said
    assert f"allowed: {DATA / 'flights'}, {LINKS[server.uri]}" in said
    assert "hint: the setting load.from of the server" in said
    assert "stolen" not in server.tables


def test_what_may_be_loaded_is_told_to_administrators_alone(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "t", writer={"scope": "write"}, all={"scope": "admin"})
    with pg.Server(tokens=tmp_path / "t", settings={"load.from": str(tmp_path)}) as server:
        for name, is_told in (("writer", False), ("all", True)):
            with pytest.raises(pg.errors.PermissionDeniedError, match=r"load\.from") as caught:
                pg.connect(server.uri, token=tokens[name]).load_parquet("/etc", "stolen")
            assert (str(tmp_path) in str(caught.value)) is is_told


@pytest.mark.parametrize("path", ["%2e%2e/airlines.parquet", "[.][.]/airlines.parquet"])
def test_what_only_reads_like_the_folder_above_is_none(server: pg.Server, path: str) -> None:
    with pytest.raises(pg.errors.NotFoundError):
        pg.connect(server.uri).load_parquet(f"{DATA}/flights/{path}", "stolen")
    assert "stolen" not in server.tables


def test_a_link_that_leads_out_is_not_followed(server: pg.Server) -> None:
    folder = LINKS[server.uri]
    with pytest.raises(pg.errors.PermissionDeniedError, match="not below a place"):
        pg.connect(server.uri).load_parquet(folder / "airlines.parquet", "stolen")
    assert "stolen" not in server.tables


def test_a_server_that_allows_nothing_loads_nothing() -> None:
    with pg.Server() as server, pytest.raises(pg.errors.PermissionDeniedError, match=r"load\.from"):
        pg.connect(server.uri).load_parquet(DATA / "flights", "flights")


def test_a_load_that_fails_says_why(server: pg.Server) -> None:
    with pytest.raises(pg.errors.NotFoundError, match="missing.parquet"):
        pg.connect(server.uri).load_parquet(DATA / "flights" / "missing.parquet", "none")


@pytest.mark.parametrize(
    ("wishes", "hint"),
    [
        ({}, "ask the administrator to raise limits.memory, load fewer columns"),
        (
            {"columns": ["month"], "sort_by": "month"},
            "in memory: ask the administrator to raise limits.memory, or load fewer columns",
        ),
    ],
)
def test_a_load_without_memory_is_told_who_can_give_it_more(
    wishes: dict[str, Any], hint: str
) -> None:
    settings = {"limits.memory": "8MB", "load.from": str(DATA)}
    with pg.Server(http=None, settings=settings) as server:
        with pytest.raises(pg.errors.ResourcesExhaustedError, match="more memory") as caught:
            pg.connect(server.uri).load_parquet(DATA / "flights", "large", **wishes)
        assert hint in str(caught.value.hint)


class Refusing(BaseHTTPRequestHandler):
    """Answers with the number that is the name of the file."""

    def do_HEAD(self) -> None:
        self.send_response(int(self.path.strip("/").split(".")[0]))
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()

    def log_message(self, *_: Any) -> None:
        """Nobody wants to know."""


@pytest.fixture
def website() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def failed(load: Callable[[], object]) -> pg.errors.PartgridError:
    with pytest.raises(pg.errors.PartgridError) as caught:
        load()
    return caught.value


def test_a_load_fails_there_as_it_does_here(tmp_path: Path, website: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("this is no file of Parquet at all")
    whole = (DATA / "airlines.parquet").read_bytes()
    (tmp_path / "torn.parquet").write_bytes(whole[:-100] + b"\0" * 96 + b"PAR1")
    shutil.copy(DATA / "airlines.parquet", tmp_path / "secret.parquet")
    errors, columns = pg.errors, {"columns": ["nope"]}
    wanted: list[tuple[str, dict[str, Any], type[Exception]]] = [
        (f"{tmp_path}/missing.parquet", {}, errors.PathNotFoundError),
        (f"{tmp_path}/missing/deep/*.parquet", {}, errors.PathNotFoundError),
        (f"{tmp_path}/empty", {}, errors.PathNotFoundError),
        (f"{tmp_path}/text.parquet", {}, errors.InvalidDataError),
        (f"{tmp_path}/torn.parquet", {}, errors.InvalidDataError),
        (f"{tmp_path}/secret.parquet", columns, errors.NotFoundError),
        (f"{website}/404.parquet", {}, errors.PathNotFoundError),
        (f"{website}/403.parquet", {}, errors.PermissionDeniedError),
    ]
    with pg.Server(http=None, settings={"load.from": f"{tmp_path}, {website}/"}) as server:
        connection = pg.connect(server.uri)

        def check(path: str, wishes: dict[str, Any], wanted: type[Exception]) -> None:
            here = failed(lambda: pg.read_parquet(path, **wishes))
            there = failed(lambda: connection.load_parquet(path, "none", **wishes))
            assert (type(here), type(there)) == (wanted, wanted), path
            assert here.retryable == there.retryable

        for path, wishes, error in wanted:
            check(path, wishes, error)
        if os.geteuid() != 0:
            (tmp_path / "secret.parquet").chmod(0)
            check(f"{tmp_path}/secret.parquet", {}, errors.PermissionDeniedError)


def test_who_is_told_no_path_knows_which_of_the_named_files_is_missing(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "t", writer={"scope": "write"})
    with pg.Server(tokens=tmp_path / "t", settings={"load.from": str(tmp_path)}) as server:
        connection = pg.connect(server.uri, token=tokens["writer"])
        with pytest.raises(FileNotFoundError, match="no such file or folder") as caught:
            connection.load_parquet(tmp_path / "missing.parquet", "none")
        assert isinstance(caught.value, pg.errors.PathNotFoundError)
        [told] = re.findall(r"file: ([^)]*)", str(caught.value))
        assert told == str(tmp_path / "missing.parquet")


def test_a_file_that_is_gone_when_it_is_read_is_one_there_too(tmp_path: Path) -> None:
    shutil.copy(DATA / "airlines.parquet", tmp_path / "a.parquet")
    with pg.Server(settings={"load.from": str(tmp_path)}) as server:
        connection = pg.connect(server.uri)
        connection.load_parquet(tmp_path / "a.parquet", "a", lazy=True)
        (tmp_path / "a.parquet").unlink()
        with pytest.raises(pg.errors.PathNotFoundError):
            connection.sql("SELECT * FROM a").to_arrow()
        with pytest.raises(pg.errors.NotFoundError) as caught:
            connection.grid("nosuch")
        assert type(caught.value) is pg.errors.NotFoundError


def test_files_below_what_was_named_are_told(tmp_path: Path) -> None:
    """Others of the server are not."""
    token = write_tokens(tmp_path / "t", writer={"scope": "write"})["writer"]
    folder = tmp_path / "loads"
    folder.mkdir()
    (folder / "broken.parquet").write_bytes(b"no Parquet at all")
    with pg.Server(tokens=tmp_path / "t", settings={"load.from": str(tmp_path)}) as server:
        connection = pg.connect(server.uri, token=token)
        with pytest.raises(pg.errors.InvalidDataError, match=r"file: .*/broken\.parquet"):
            connection.load_parquet(folder, "x")
        with pytest.raises(pg.errors.NotFoundError, match=f"{tmp_path}/absent"):
            connection.load_parquet(tmp_path / "absent", "x")
