"""Requests to the HTTP port that no library makes: each gets its answer, or the connection ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest

import partgrid as pg
from services import Service, service, status

HOST = b"Host: localhost\r\nConnection: close\r\n"
CANCEL = b"POST /api/queries/1/cancel HTTP/1.1\r\nX-Partgrid: page\r\n" + HOST


@pytest.fixture(scope="module")
def one() -> Iterator[Service]:
    with service() as one:
        pg.connect(one.uri).upload(pa.table({"a": [1]}), "t")
        before = status(one)["memory"]["resident_bytes"]
        yield one
        assert [line for line in one.said if "panicked" in line] == []
        assert status(one)["memory"]["resident_bytes"] - before < 50_000_000
        assert pg.connect(one.uri).grids() == ["t"]


def answer(one: Service, *parts: bytes) -> bytes:
    """All that comes for bytes, until the server hangs up."""
    host, port = one.http_uri.removeprefix("http://").split(":")
    came = b""
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            while part := connection.recv(65536):
                came += part
        except ConnectionError:
            """Where bytes were on their way, the end of the connection comes before what is said of it."""
    return came


def get(path: bytes, *headers: bytes) -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"".join(headers) + b"\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (get(b"/api/status"), 200),
        (get(b"/../../../etc/passwd"), 404),
        (get(b"/%2e%2e/%2e%2e/etc/passwd"), 404),
        (get(b"/api/grids/..%2f..%2fetc"), 404),
        (get(b"/api/grids/%00"), 404),
        (get(b"/api/grids/%ff%fe"), 400),
        (get(b"/api/grids/\xff\xfe"), 400),
        (b"\xff" * 1000 + b"\r\n\r\n", 400),
        (b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"TRACE / HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (CANCEL + b"Content-Length: -5\r\n\r\n", 400),
        (CANCEL + b"Content-Length: 99999999999999\r\n\r\n", 404),
        # A name of somebody else, wherever it stands.
        (get(b"http://evil.example/api/status"), 403),
        (get(b"/api/status", b"Host: evil.example\r\n"), 403),
        (b"GET /api/status HTTP/1.1\r\nHost: evil\xe9\r\nConnection: close\r\n\r\n", 403),
        (b"CONNECT evil.example:80 HTTP/1.1\r\n" + HOST + b"\r\n", 403),
        (get(b"http://127.0.0.1/api/status"), 200),
    ],
    ids=lambda value: repr(value[:50]) if isinstance(value, bytes) else str(value),
)
def test_what_is_odd_gets_its_answer(one: Service, request_bytes: bytes, code: int) -> None:
    assert answer(one, request_bytes).split(b" ")[:2] == [b"HTTP/1.1", str(code).encode()]


@pytest.mark.parametrize(
    "long",
    [
        get(b"/" + b"a" * 1_000_000),
        get(b"/", b"X: " + b"y" * 1_000_000 + b"\r\n"),
        get(b"/", *(b"X%d: y\r\n" % number for number in range(10_000))),
    ],
    ids=["path", "header", "headers"],
)
def test_what_is_too_long_is_refused(one: Service, long: bytes) -> None:
    came = answer(one, long)
    assert came[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 414", b"")
    assert b"<html" not in came


def test_a_body_that_nobody_wants_is_not_read_to_its_end(one: Service) -> None:
    # Two gigabytes, if they were taken.
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    came = answer(one, CANCEL + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 2000)
    assert came[:12] in (b"HTTP/1.1 404", b"")


def test_a_request_within_another_is_not_answered(one: Service) -> None:
    hidden = get(b"/api/status")
    lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    came = answer(one, CANCEL.replace(b"Connection: close\r\n", b"") + lengths + hidden)
    assert came[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 403")
    assert came.count(b"HTTP/1.1 ") == 1
