"""Loads from object stores: what is found, what is read, what happens when the store or the network fails."""

from __future__ import annotations

import contextlib
import functools
import http.server
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from stores import KEYS, Proxy, Request, fault_proxy, reset, s3_client, s3_server, send

BUCKET = "flights"
ROWS = 20_000
GROUP_ROWS = 4_000
ERROR_SECONDS = 60
DEAD_SECONDS = 10


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(scope="module")
def bucket(server: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    client = s3_client(server)
    client.create_bucket(Bucket=BUCKET)
    folder = tmp_path_factory.mktemp("bucket")
    for name, start in [
        ("year=2012/b.parquet", 0),
        ("year=2013/a.parquet", ROWS),
        ("year=2013/b c.parquet", 2 * ROWS),
    ]:
        put(client, folder, f"data/{name}", table(start))
    client.put_object(Bucket=BUCKET, Key="data/_SUCCESS", Body=b"")
    client.put_object(Bucket=BUCKET, Key="data/notes.txt", Body=b"no data")
    client.put_object(Bucket=BUCKET, Key="empty/", Body=b"")
    return client


@pytest.fixture
def proxy(server: str, bucket: Any) -> Iterator[Proxy]:  # noqa: ARG001
    with fault_proxy(server) as proxy:
        yield proxy


def table(start: int) -> pa.Table:
    numbers = pa.array(range(start, start + ROWS))
    columns = {
        f"c{column}": pa.array([row * column % 1009 for row in range(ROWS)]) for column in range(15)
    }
    return pa.table({"id": numbers, **columns})


def put(client: Any, folder: Path, key: str, content: pa.Table) -> None:
    path = folder / "file.parquet"
    pq.write_table(content, path, row_group_size=GROUP_ROWS, use_dictionary=False)
    client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())


def options(endpoint: str, **more: str) -> dict[str, str]:
    return {**KEYS, "endpoint": endpoint, **more}


def load(
    endpoint: str, path: str = "data/", more: dict[str, str] | None = None, **wishes: Any
) -> pg.Grid:
    return pg.read_parquet(
        f"s3://{BUCKET}/{path}", storage_options=options(endpoint, **(more or {})), **wishes
    )


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("data", 3),
        ("data/", 3),
        ("data/year=2013", 2),
        ("data/year=2013/a.parquet", 1),
        ("data/year=2013/b c.parquet", 1),
        ("data/year=*/b*", 2),
        ("data/**/a.parquet", 1),
        ("data/year=201?", 3),
        ("", 3),
    ],
)
@pytest.mark.usefixtures("bucket")
def test_objects_folders_and_patterns_are_found(server: str, path: str, files: int) -> None:
    grid = load(server, path)
    assert grid.shape == (files * ROWS, 17)
    assert grid.columns[-1] == "year"


@pytest.mark.usefixtures("bucket")
def test_values_are_those_of_the_files_in_name_order(server: str) -> None:
    found = load(server, tile_rows=7_000).to_arrow()
    assert found["id"].to_pylist() == list(range(3 * ROWS))
    assert found["c7"].to_pylist() == table(0)["c7"].to_pylist() * 3
    assert found["year"].unique().to_pylist() == [2012, 2013]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("nothing/", pg.errors.PathNotFoundError),
        ("empty/", pg.errors.PathNotFoundError),
        ("data/x*", pg.errors.PathNotFoundError),
    ],
)
@pytest.mark.usefixtures("bucket")
def test_what_is_not_there_is_named(server: str, path: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"s3://{BUCKET}/{path}".replace("*", r"\*")):
        load(server, path)


def test_keys_are_read_and_written_as_they_stand(server: str, tmp_path: Path) -> None:
    client, rows = s3_client(server), [{"n": 1, "k": "ü~#"}]
    client.create_bucket(Bucket="names")
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    names = ["städte", "50%", "50%25", "a~b", "x#1", "o'{k}", 'q"q', "a+b c"]
    for name in names:
        key = f"there/{name}/k=%C3%BC~#/a.parquet"
        client.put_object(Bucket="names", Key=key, Body=(tmp_path / "a.parquet").read_bytes())
        for path in (f"there/{name}", key, f"there/{name}/k=*/*.parquet"):
            grid = pg.read_parquet(f"s3://names/{path}", storage_options=options(server))
            assert grid.to_arrow().to_pylist() == rows
        with pytest.raises(pg.errors.InvalidArgumentError, match="holds 1 data files"):
            grid.write_parquet(f"s3://names/there/{name}", storage_options=options(server))
        grid.write_parquet(f"s3://names/written/{name}", storage_options=options(server))
    found = client.list_objects_v2(Bucket="names", Prefix="written/")["Contents"]
    written = {f"written/{name}/part-00000.parquet" for name in names}
    assert {item["Key"] for item in found} == written


def test_the_command_has_settings_for_the_side_that_is_a_store(server: str, tmp_path: Path) -> None:
    s3_client(server).create_bucket(Bucket="copies")
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
    settings = [f"--storage-option={key}={value}" for key, value in options(server).items()]

    def copy(source: object, target: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "partgrid", "copy", str(source), str(target), *settings]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    there = "s3://copies/a"
    for source, target in [
        (tmp_path / "a.parquet", there),
        (there, tmp_path / "back"),
        (there, "s3://copies/b"),
    ]:
        done = copy(source, target)
        assert done.returncode == 0, done.stderr
    assert pg.read_parquet(tmp_path / "back").to_arrow()["n"].to_pylist() == [1, 2]
    refused = copy(tmp_path / "back", tmp_path / "again")
    assert refused.returncode == 1
    assert "this is a local path" in refused.stderr
    assert "hint: leave --storage-option out" in refused.stderr
    assert not (tmp_path / "again").exists()


@pytest.mark.usefixtures("bucket")
def test_a_missing_bucket_is_named(server: str) -> None:
    with pytest.raises(pg.PartgridError, match="nobody"):
        pg.read_parquet("s3://nobody/x/", storage_options=options(server))


def test_two_columns_of_sixteen_cost_little_more_than_their_bytes(proxy: Proxy) -> None:
    path = "data/year=2012/b.parquet"
    load(proxy.address, path, columns=["c3", "c11"])
    with pq.ParquetFile(pa.BufferReader(_content(proxy, path))) as file:
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        wanted = sum(
            group.column(4).total_compressed_size + group.column(12).total_compressed_size
            for group in groups
        )
    footer = 64 * 1024
    assert proxy.read_bytes() <= 1.1 * wanted + footer


def _content(proxy: Proxy, path: str) -> bytes:
    client = boto3.client(
        "s3",
        endpoint_url=proxy.address,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        region_name="us-east-1",
    )
    before = len(proxy.requests)
    content: bytes = client.get_object(Bucket=BUCKET, Key=path)["Body"].read()
    del proxy.requests[before:]
    return content


def is_page(request: Request) -> bool:
    return request.method == "GET" and request.range is not None


def cut_off(handler: Any, forward: Any) -> None:
    """Answers with half of the body, and closes the connection."""
    status, headers, content = forward()
    headers = [pair for pair in headers if pair[0].lower() != "content-length"]
    handler.close_connection = True
    with contextlib.suppress(OSError):
        send(
            handler,
            status,
            [*headers, ("Content-Length", str(len(content)))],
            content[: len(content) // 2],
        )
        handler.connection.shutdown(socket.SHUT_RDWR)


def test_passing_faults_are_healed(proxy: Proxy) -> None:
    failed: set[str] = set()

    def fault(number: int, request: Request, handler: Any, forward: Any) -> bool:
        kinds = {2: "500", 4: "503", 6: "reset", 8: "cut"}
        kind = kinds.get(number)
        if kind is None or (kind == "cut" and not is_page(request)):
            return False
        failed.add(kind)
        if kind == "reset":
            reset(handler)
        elif kind == "cut":
            cut_off(handler, forward)
        else:
            send(handler, int(kind), [], b"later")
        return True

    proxy.fault = fault
    assert load(proxy.address).to_arrow()["id"].to_pylist() == list(range(3 * ROWS))
    assert failed >= {"500", "503", "reset"}


def _always(status: int) -> Any:
    def fault(_number: int, request: Request, handler: Any, _forward: Any) -> bool:
        if is_page(request):
            send(handler, status, [], b"<Error><Code>Broken</Code></Error>")
        return is_page(request)

    return fault


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, pg.errors.StorageError),
        (503, pg.errors.StorageError),
        (403, pg.errors.PermissionDeniedError),
        (404, pg.errors.PathNotFoundError),
        (412, pg.errors.InvalidDataError),
    ],
)
def test_faults_that_stay_are_errors_in_time(
    proxy: Proxy, status: int, error: type[Exception]
) -> None:
    proxy.fault = _always(status)
    start = time.monotonic()
    # One that is busy for ever is given up as one that is broken is, after as many tries.
    more = {"max_retries": "2"} if status == 503 else None
    with pytest.raises(error, match="year=2012/b.parquet") as raised:
        load(proxy.address, more=more)
    assert time.monotonic() - start < ERROR_SECONDS
    if status == 403:
        for part in ("bucket: flights", "region: us-east-1", "anonymous", "requester_pays"):
            assert part in str(raised.value)


def test_bodies_that_are_always_cut_off_are_an_error_in_time(proxy: Proxy) -> None:
    def fault(_number: int, request: Request, handler: Any, forward: Any) -> bool:
        if is_page(request):
            cut_off(handler, forward)
        return is_page(request)

    proxy.fault = fault
    start = time.monotonic()
    with pytest.raises(pg.errors.StorageError, match="year=2012/b.parquet"):
        load(proxy.address, more={"max_retries": "2"})
    assert time.monotonic() - start < ERROR_SECONDS
    # What was missing of them was asked for before, and came no better.
    ends = [(request.path, request.range[1]) for request in proxy.requests if request.range]
    assert len(set(ends)) < len(ends)


def test_a_body_that_is_short_but_says_so_is_an_error(proxy: Proxy) -> None:
    def fault(_number: int, request: Request, handler: Any, forward: Any) -> bool:
        if not is_page(request):
            return False
        status, headers, content = forward()
        headers = [pair for pair in headers if pair[0].lower() != "content-length"]
        send(handler, status, headers, content[:-10])
        return True

    proxy.fault = fault
    with pytest.raises(pg.PartgridError, match="year=2012/b.parquet"):
        load(proxy.address)


@pytest.mark.parametrize("said", ["option", "environment"])
def test_a_body_that_stalls_is_an_error_in_time(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    def fault(_number: int, request: Request, handler: Any, forward: Any) -> bool:
        if not is_page(request):
            return False
        status, headers, content = forward()
        with contextlib.suppress(OSError):
            headers = [pair for pair in headers if pair[0].lower() != "content-length"]
            send(
                handler,
                status,
                [*headers, ("Content-Length", str(len(content)))],
                content[: len(content) // 2],
            )
            time.sleep(ERROR_SECONDS)
        return True

    proxy.fault = fault
    more = {"retry_timeout": "3s"}
    if said == "option":
        more["timeout"] = "2s"
    else:
        monkeypatch.setenv("AWS_TIMEOUT", "2s")
    start = time.monotonic()
    with pytest.raises(pg.errors.StorageError):
        load(proxy.address, more=more)
    assert time.monotonic() - start < ERROR_SECONDS / 2


def test_an_object_that_is_replaced_is_noticed(proxy: Proxy, bucket: Any, tmp_path: Path) -> None:
    put(bucket, tmp_path, "replaced/a.parquet", table(0))
    seen = []

    def fault(_number: int, request: Request, _handler: Any, _forward: Any) -> bool:
        seen.append(request)
        if sum(map(is_page, seen)) == 2:
            # The footer is read, the pages are not.
            put(bucket, tmp_path, "replaced/a.parquet", table(7))
        return False

    proxy.fault = fault
    with pytest.raises(pg.errors.InvalidDataError, match="changed while it was read"):
        load(proxy.address, "replaced/a.parquet")


def test_a_dead_endpoint_is_an_error_within_ten_seconds() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(pg.errors.StorageError, match=f"s3://{BUCKET}/data/") as raised:
            load(address)
    assert time.monotonic() - start < DEAD_SECONDS
    assert "endpoint" in str(raised.value)


def test_a_deadline_ends_a_load(proxy: Proxy) -> None:
    def fault(*_: object) -> bool:
        time.sleep(1)
        return False

    proxy.fault = fault
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="deadline"):
        load(proxy.address, deadline=0.3)


def test_credentials_come_from_environment_and_profiles(
    server: str,
    bucket: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = f"s3://{BUCKET}/data/year=2012/"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    config, credentials = tmp_path / "config", tmp_path / "credentials"
    config.write_text(f"[profile other]\nregion = eu-central-1\nendpoint_url = {server}\n")
    credentials.write_text(
        "[other]\naws_access_key_id = testing\naws_secret_access_key = testing\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    assert len(pg.read_parquet(source, storage_options={"profile": "other"})) == ROWS
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert len(pg.read_parquet(source)) == ROWS
    with pytest.raises(pg.errors.NotFoundError, match="`nobody`"):
        pg.read_parquet(source, storage_options={"profile": "nobody"})
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server)
    monkeypatch.delenv("AWS_PROFILE")
    assert len(pg.read_parquet(source)) == ROWS
    bucket.put_object_acl(Bucket=BUCKET, Key="data/year=2012/b.parquet", ACL="public-read")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "not used")
    assert len(pg.read_parquet(f"{source}b.parquet", storage_options={"anonymous": "true"})) == ROWS


@pytest.mark.usefixtures("bucket")
def test_wrong_storage_options_are_refused(server: str) -> None:
    for key, value in [("nonsense", "1"), ("max_retries", "many"), ("retry_timeout", "soon")]:
        with pytest.raises(pg.errors.InvalidArgumentError, match=key):
            load(server, more={key: value})


@pytest.mark.usefixtures("bucket")
def test_a_store_of_obstore_is_taken(server: str) -> None:
    store = pytest.importorskip("obstore.store").S3Store(
        BUCKET,
        endpoint=server,
        client_options={"allow_http": True},
        access_key_id="testing",
        secret_access_key="testing",
        region="us-east-1",
    )
    assert pg.read_parquet("data/year=2013", store=store).shape == (2 * ROWS, 17)


def test_a_server_without_byte_ranges_is_named_as_such(tmp_path: Path) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(pg.errors.UnsupportedError, match="hint: .*download the file first"):
            pg.read_parquet(f"http://127.0.0.1:{server.server_port}/a.parquet")
        server.shutdown()


def test_files_come_over_http(server: str, bucket: Any) -> None:
    bucket.put_object_acl(Bucket=BUCKET, Key="data/year=2012/b.parquet", ACL="public-read")
    assert len(pg.read_parquet(f"{server}/{BUCKET}/data/year=2012/b.parquet")) == ROWS
    with pytest.raises(pg.errors.PathNotFoundError):
        pg.read_parquet(f"{server}/{BUCKET}/data/none.parquet")


@pytest.mark.usefixtures("bucket")
def test_a_grid_is_written_to_a_store_in_parts_and_read_back(server: str) -> None:
    # Larger than one part of an upload.
    numbers = pa.array(np.random.default_rng(3).integers(0, 2**62, 2_500_000))
    grid = pg.from_arrow(pa.table({"n": numbers, "k": pa.array([1, 2] * 1_250_000)}))
    url = f"s3://{BUCKET}/written"
    assert grid.write_parquet(url, storage_options=options(server), compression="none") == 1
    assert load(server, "written").to_arrow() == grid.to_arrow()
    with pytest.raises(pg.errors.InvalidArgumentError, match="data files already"):
        grid.write_parquet(url, storage_options=options(server))
    small = grid[:1000]
    assert (
        small.write_parquet(
            url, storage_options=options(server), overwrite=True, partition_by=["k"]
        )
        == 2
    )
    again = load(server, "written")
    assert again.columns == ["n", "k"]
    assert sorted(again.to_arrow()["n"].to_pylist()) == sorted(small.to_arrow()["n"].to_pylist())


def test_a_failed_write_leaves_nothing_in_the_store(proxy: Proxy, bucket: Any) -> None:
    def fault(_number: int, request: Request, handler: Any, _forward: Any) -> bool:
        last = request.method == "PUT" and "2/part" in request.path
        if last:
            send(handler, 403, [], b"")
        return last

    proxy.fault = fault
    grid = pg.from_arrow(pa.table({"n": pa.array(range(10)), "k": pa.array([1, 2] * 5)}))
    with pytest.raises(pg.errors.PermissionDeniedError, match="requester_pays"):
        grid.write_parquet(
            f"s3://{BUCKET}/failed", storage_options=options(proxy.address), partition_by=["k"]
        )
    assert "Contents" not in bucket.list_objects_v2(Bucket=BUCKET, Prefix="failed")
