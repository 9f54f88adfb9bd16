"""A cluster whose files and catalog are in an object store, behind a proxy that injects faults: slow, refusing, failing.

With `PARTGRID_STORE_FAULTS=all` it fails in every way at every request.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

import partgrid as pg
from clusters import nothing_stays, status_of
from stores import KEYS, Proxy, Request, fault_proxy, reset, s3_client, s3_server, send
from test_cluster_catalog import QUERY, Member, expected, files

BUCKET = "cluster"

# What a catalog asks of a store: the method, and a part of the path or query.
REQUESTS = {
    "tile PUT": ("PUT", "/catalog/tiles/"),
    "manifest PUT": ("PUT", "/catalog/grids/"),
    "list": ("GET", "prefix=failing/catalog/grids"),
    "tile GET": ("GET", "/catalog/tiles/"),
}


def prepared(address: str) -> str:
    """A store with the bucket."""
    s3_client(address).create_bucket(Bucket=BUCKET)
    return address


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with s3_server() as address:
        yield prepared(address)


@contextmanager
def reached(proxy: Proxy, key: str, **more: str) -> Iterator[None]:
    """An environment in which the store is behind the proxy, and a process is known there by a key of its own."""
    known = dict(os.environ)
    os.environ.update({f"AWS_{name.upper()}": value for name, value in KEYS.items()})
    os.environ.update(AWS_ACCESS_KEY_ID=key, AWS_ENDPOINT=proxy.address, AWS_ALLOW_HTTP="true")
    os.environ.update({f"AWS_{name.upper()}": value for name, value in more.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(known)


def started(proxy: Proxy, folder: Path, name: str, number: int, **more: str) -> Member:
    """A member whose catalog is the bucket, below a name."""
    places = f"s3://{BUCKET}/{name}/data"
    wishes: dict[str, Any] = {
        "catalog": f"s3://{BUCKET}/{name}/catalog",
        "join": f"file:{folder / 'members'}",
        "settings": {"cluster.shared": places, "load.from": places},
    }
    with reached(proxy, f"member{number}", **more):
        return Member(**wishes)


def met(folder: Path, members: list[Member]) -> None:
    """Writes the list of members, which know each other then, and no others."""
    (folder / "members").write_text("\n".join(member.uri for member in members))
    for member in members:
        assert member.ask("server.refresh()") is None
        assert len(member.ask("server.members")) == len(members)


@contextmanager
def cluster(
    proxy: Proxy, folder: Path, name: str, of: int = 3, **more: str
) -> Iterator[list[Member]]:
    """Members whose catalog is the bucket, below a name; `more` are options of their store."""
    members: list[Member] = []
    try:
        for number in range(of):
            members.append(started(proxy, folder, name, number, **more))
        met(folder, members)
        yield members
    finally:
        for member in members:
            member.kill()


def sent(address: str, folder: Path, name: str, count: int = 6) -> Any:
    """Puts files into the bucket; gives their rows."""
    table = files(folder, count)
    client = s3_client(address)
    for path in (folder / "data").rglob("*.parquet"):
        key = f"{name}/data/{path.relative_to(folder / 'data')}"
        client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    return table


def load(member: Member, name: str) -> int:
    connection = pg.connect(member.uri)
    told = connection.load_parquet(f"s3://{BUCKET}/{name}/data/sales", "sales", tile_rows=500)
    return int(told["rows"])


def answers(members: list[Member], table: Any) -> None:
    for member in members:
        member.ask("server.refresh()")
        answer = pg.connect(member.uri).sql(QUERY).to_arrow()
        assert answer.to_pylist() == expected(table)


def test_files_and_catalog_in_a_store(store: str, tmp_path: Path) -> None:
    table = sent(store, tmp_path, "plain")
    with fault_proxy(store) as proxy, cluster(proxy, tmp_path, "plain") as members:
        assert load(members[1], "plain") == 12_000
        answers(members, table)
        members[1].kill()
        answers([members[0], members[2]], table)


def test_lazy_grids_in_a_store_are_read_by_all(store: str, tmp_path: Path) -> None:
    table = sent(store, tmp_path, "lazy")
    with fault_proxy(store) as proxy, cluster(proxy, tmp_path, "lazy") as members:
        source = f"s3://{BUCKET}/lazy/data/sales"
        lazy = f"server.register('sales', pg.read_parquet({source!r}, tile_rows=500, lazy=True))"
        assert members[0].ask(lazy) is None
        connection = pg.connect(members[0].uri)
        assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
        read = proxy.read_bytes()
        assert read > 0
        # Each member has what it has read.
        assert connection.sql(QUERY).to_arrow().to_pylist() == expected(table)
        assert proxy.read_bytes() == read


def test_a_tile_that_several_threads_read_at_once_is_read_once(store: str) -> None:
    tables = [
        pa.table({"x": range(first, first + 300_000)}) for first in range(0, 900_000, 300_000)
    ]
    catalog = f"s3://{BUCKET}/threads/catalog"
    with fault_proxy(store) as proxy, reached(proxy, "alone"):
        with pg.Server(catalog=catalog, http=None) as server:
            grid = pg.from_arrow(pa.concat_tables(tables))
            assert grid.tiling == (3, 1)
            pg.connect(server.uri).upload(grid, "few")
        proxy.requests.clear()
        with pg.Server(catalog=catalog, http=None, settings={"server.threads": 8}) as server:
            answer = pg.connect(server.uri).sql("SELECT sum(x % 10) AS x FROM few").to_arrow()
            assert answer.to_pydict() == {"x": [900_000 * 45 // 10]}
        asked = [each.path for each in proxy.requests if "/catalog/tiles/" in each.path]
        assert len(asked) == len(set(asked)) == 3


def test_a_slow_store_is_only_slow(store: str, tmp_path: Path) -> None:
    table = sent(store, tmp_path, "slow")
    with fault_proxy(store) as proxy, cluster(proxy, tmp_path, "slow") as members:

        def slow(_: int, *__: object) -> bool:
            time.sleep(0.2)
            return False

        proxy.fault = slow
        began = time.monotonic()
        assert load(members[0], "slow") == 12_000
        answers(members, table)
        # Each request of each member waits by itself: it took all of them together, and no more.
        assert time.monotonic() - began < 60


def test_a_manifest_that_the_store_refuses_is_an_error_and_no_grid(
    store: str, tmp_path: Path
) -> None:
    table = sent(store, tmp_path, "refused")
    with fault_proxy(store) as proxy, cluster(proxy, tmp_path, "refused") as members:

        def refuses(_: int, request: Any, handler: Any, __: object) -> bool:
            if request.method == "PUT" and "/catalog/grids/" in request.path:
                send(handler, 412, [], b"<Error><Code>PreconditionFailed</Code></Error>")
                return True
            return False

        proxy.fault = refuses
        began = time.monotonic()
        with pytest.raises(pg.errors.StorageError, match="refused"):
            load(members[0], "refused")
        assert time.monotonic() - began < 60
        for member in members:
            member.ask("server.refresh()")
            assert member.ask("server.tables") == []
        proxy.fault = None
        assert load(members[0], "refused") == 12_000
        answers(members, table)


def test_a_put_whose_answer_was_lost_is_done_once(store: str, tmp_path: Path) -> None:
    table = sent(store, tmp_path, "lost")
    with fault_proxy(store) as proxy, cluster(proxy, tmp_path, "lost") as members:
        lost = []

        def loses(_: int, request: Any, handler: Any, forward: Any) -> bool:
            if request.method == "PUT" and "/catalog/grids/" in request.path and not lost:
                lost.append(forward())
                reset(handler)
                return True
            return False

        proxy.fault = loses
        assert load(members[0], "lost") == 12_000
        assert len(lost) == 1
        answers(members, table)
        listed = s3_client(store).list_objects_v2(Bucket=BUCKET, Prefix="lost/catalog/grids/")
        assert len(listed["Contents"]) == 1


def test_a_store_that_may_not_be_written_is_an_error_and_no_grid(
    store: str, tmp_path: Path
) -> None:
    table = sent(store, tmp_path, "denied")
    with fault_proxy(store) as proxy, cluster(proxy, tmp_path, "denied") as members:

        def denies(_: int, request: Any, handler: Any, __: object) -> bool:
            if request.method == "PUT" and "/catalog/tiles/" in request.path:
                send(handler, 403, [], b"<Error><Code>AccessDenied</Code></Error>")
                return True
            return False

        proxy.fault = denies
        with pytest.raises(pg.errors.PermissionDeniedError, match="the catalog cannot write"):
            load(members[0], "denied")
        proxy.fault = None
        assert load(members[2], "denied") == 12_000
        answers(members, table)


def test_two_loads_of_one_name_at_once(store: str, tmp_path: Path) -> None:
    table = sent(store, tmp_path, "twice")
    with fault_proxy(store) as proxy, cluster(proxy, tmp_path, "twice") as members:
        with ThreadPoolExecutor() as threads:
            jobs = [threads.submit(load, member, "twice") for member in members[:2]]
        told = [job.exception() for job in jobs]
        assert [error for error in told if error is None] == [None], told
        [error] = [error for error in told if error is not None]
        assert isinstance(error, (pg.errors.StorageError, pg.errors.QueryError)), error
        answers(members, table)


class Failing:
    """A store that fails in one way at some requests, until it is over."""

    def __init__(self, way: str, what: str) -> None:
        self.way, self.what = way, what
        self.asked = 0
        self.over = threading.Event()

    def is_meant(self, request: Request, query: str) -> bool:
        method, part = REQUESTS[self.what]
        return request.method == method and part in unquote(request.path + query)

    def __call__(self, _: int, request: Request, handler: Any, forward: Any) -> bool:
        if self.over.is_set() or not self.is_meant(request, handler.path):
            return False
        self.asked += 1
        if self.way == "500":
            send(handler, 500, [], b"<Error><Code>InternalError</Code></Error>")
        elif self.way == "reset":
            reset(handler)
        else:
            if self.what == "tile GET":
                status, headers, content = forward()
                send(handler, status, headers, content[: len(content) // 2])
                handler.wfile.flush()
            self.over.wait(120)
            handler.close_connection = True
        return True


@pytest.fixture(scope="module")
def failing(
    store: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Proxy, list[Member], Any]]:
    """A cluster for all ways to fail, each with a grid of its own, whose stores wait for four seconds at most."""
    folder = tmp_path_factory.mktemp("failing")
    table = sent(store, folder, "failing")
    with fault_proxy(store) as proxy, cluster(proxy, folder, "failing", timeout="4s") as members:
        # They have by now what they keep.
        source = f"s3://{BUCKET}/failing/data/sales"
        pg.connect(members[0].uri).load_parquet(source, "sales", tile_rows=500)
        answers(members, table)
        yield proxy, members, table


WAYS = [(what, way) for what in REQUESTS for way in ("500", "reset", "stall")]
if os.environ.get("PARTGRID_STORE_FAULTS") != "all":
    WAYS = [("tile PUT", "reset"), ("manifest PUT", "stall"), ("list", "500"), ("tile GET", "500")]


@pytest.mark.parametrize(("what", "way"), WAYS)
def test_a_catalog_that_fails_is_an_error_in_time_and_nothing_is_half_done(
    failing: tuple[Proxy, list[Member], Any], what: str, way: str
) -> None:
    proxy, members, table = failing

    def status(member: Member) -> object:
        # Whoever asks a store keeps connections for the next time, and looks every few seconds.
        proxy.drop()
        return status_of(member)

    proxy.drop()
    with nothing_stays(members, status):
        fails_and_is_whole_again(proxy, members, table, (what, way))


def fails_and_is_whole_again(
    proxy: Proxy, members: list[Member], table: Any, kind: tuple[str, str]
) -> None:
    what, way = kind
    name = f"{what} {way}".replace(" ", "_").lower()
    connection = pg.connect(members[0].uri)
    query = QUERY.replace("sales", name)

    def load() -> Any:
        source = f"s3://{BUCKET}/failing/data/sales"
        return connection.load_parquet(source, name, tile_rows=500)

    if what in {"list", "tile GET"}:
        # One member writes all tiles; others read their own on first use.
        batches = table.to_batches(max_chunksize=500)
        connection.upload(pg.from_arrow(pa.Table.from_batches(batches)), name)
    fault = Failing(way, what)
    proxy.fault = fault
    try:
        began = time.monotonic()
        if what == "list":
            told = members[1].ask("server.refresh()")
            assert told["error"] == "StorageError", told
            # What was known is.
            assert connection.sql(query).to_arrow().to_pylist() == expected(table)
        else:
            with pytest.raises(pg.errors.StorageError, match=r"the catalog cannot (write|read)"):
                connection.sql(query).to_arrow() if what == "tile GET" else load()
        assert time.monotonic() - began < 60
        assert fault.asked > 0
    finally:
        fault.over.set()
        proxy.fault = None
    if "PUT" in what:
        for member in members:
            assert member.ask("server.refresh()") is None
            assert name not in member.ask("server.tables")
        assert load()["rows"] == 12_000
    for member in members:
        assert member.ask("server.refresh()") is None
        rows = pg.connect(member.uri).sql(query).to_arrow()
        assert rows.to_pylist() == expected(table)
