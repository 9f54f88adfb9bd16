"""A cluster whose files and catalog are in an object store, behind a proxy that injects faults: slow, refusing, failing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import partgrid as pg
from stores import KEYS, Proxy, fault_proxy, s3_client, s3_server, send
from test_cluster_catalog import QUERY, Member, expected, files

BUCKET = "cluster"


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with s3_server() as address:
        s3_client(address).create_bucket(Bucket=BUCKET)
        yield address


@contextmanager
def cluster(proxy: Proxy, folder: Path, name: str, of: int = 3) -> Iterator[list[Member]]:
    """Members whose catalog is the bucket, below a name."""
    known = dict(os.environ)
    os.environ.update({f"AWS_{key.upper()}": value for key, value in KEYS.items()})
    os.environ.update(AWS_ENDPOINT=proxy.address, AWS_ALLOW_HTTP="true")
    places = f"s3://{BUCKET}/{name}/data"
    settings = {"cluster.shared": places, "load.from": places}
    members: list[Member] = []
    try:
        for _ in range(of):
            wishes: dict[str, Any] = {
                "catalog": f"s3://{BUCKET}/{name}/catalog",
                "join": f"file:{folder / 'members'}",
                "settings": settings,
            }
            members.append(Member(**wishes))
    finally:
        os.environ.clear()
        os.environ.update(known)
    (folder / "members").write_text("\n".join(member.uri for member in members))
    try:
        for member in members:
            assert member.ask("server.refresh()") is None
        yield members
    finally:
        for member in members:
            member.kill()


def sent(address: str, folder: Path, name: str) -> Any:
    """Puts files into the bucket; gives their rows."""
    table = files(folder)
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


def test_a_slow_store_is_only_slow(store: str, tmp_path: Path) -> None:
    table = sent(store, tmp_path, "slow")
    with fault_proxy(store) as proxy, cluster(proxy, tmp_path, "slow") as members:

        def slow(_: int, *__: object) -> bool:
            time.sleep(0.2)
            return False

        proxy.fault = slow
        assert load(members[0], "slow") == 12_000
        answers(members, table)


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
                handler.connection.close()
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
