"""An S3 server and a proxy that injects faults, for the tests of stores. Both live on loopback, on free ports, and end with the fixture."""

from __future__ import annotations

import http.client
import http.server
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import boto3

KEYS = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}
_START_SECONDS = 60


@contextmanager
def s3_server(**environment: str) -> Iterator[str]:
    """The address of an S3 server (moto) in a process of its own, which may have more in its environment."""
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    try:
        assert server.stderr is not None
        stop = time.monotonic() + _START_SECONDS
        address = None
        while address is None and time.monotonic() < stop:
            line = server.stderr.readline()
            assert line or server.poll() is None, "the S3 server did not start"
            found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", line)
            address = found.group(1) if found else None
        assert address is not None, "the S3 server did not say where it runs"
        threading.Thread(target=server.stderr.read, daemon=True).start()
        yield address
    finally:
        server.kill()
        server.wait()


def s3_client(address: str) -> Any:
    """A client of that server, to fill its buckets with."""
    return boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id=KEYS["access_key_id"],
        aws_secret_access_key=KEYS["secret_access_key"],
        region_name=KEYS["region"],
    )


@dataclass
class Request:
    """What a client asked for."""

    method: str
    path: str
    range: tuple[int, int] | None


@dataclass
class Proxy:
    """A proxy before a server. `fault` sees each request with its number and may answer itself, by returning true."""

    address: str
    requests: list[Request] = field(default_factory=list)
    connections: set[socket.socket] = field(default_factory=set)
    fault: (
        Callable[
            [
                int,
                Request,
                http.server.BaseHTTPRequestHandler,
                Callable[[], tuple[int, list[tuple[str, str]], bytes]],
            ],
            bool,
        ]
        | None
    ) = None

    def drop(self) -> None:
        """Ends all connections of clients, which keep some for later."""
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def read_bytes(self, suffix: str = ".parquet") -> int:
        """The bytes of all range reads."""
        ranges = [
            request.range
            for request in self.requests
            if request.path.endswith(suffix) and request.range
        ]
        return sum(stop - start + 1 for start, stop in ranges)


@contextmanager
def fault_proxy(upstream: str) -> Iterator[Proxy]:
    """A proxy before `upstream`."""
    host = upstream.removeprefix("http://")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            proxy.connections.add(self.connection)

        def finish(self) -> None:
            proxy.connections.discard(self.connection)
            super().finish()

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length) if length else None
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            asked = (int(found.group(1)), int(found.group(2))) if found else None
            request = Request(self.command, self.path.split("?")[0], asked)
            proxy.requests.append(request)

            def forward() -> tuple[int, list[tuple[str, str]], bytes]:
                connection = http.client.HTTPConnection(host)
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() != "connection"
                }
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                content = response.read()
                kept = [
                    (name, value)
                    for name, value in response.getheaders()
                    if name.lower() not in {"connection", "transfer-encoding"}
                ]
                connection.close()
                return response.status, kept, content

            if proxy.fault is not None and proxy.fault(len(proxy.requests), request, self, forward):
                return
            send(self, *forward())

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that went away is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    proxy = Proxy(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


def reset(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Ends the connection as one does who has crashed."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.rfile.close()
    handler.wfile.close()
    handler.connection.close()
    handler.close_connection = True


def send(
    handler: http.server.BaseHTTPRequestHandler,
    status: int,
    headers: list[tuple[str, str]],
    content: bytes,
) -> None:
    """Sends an answer as it came."""
    handler.send_response(status)
    names = {name.lower() for name, _ in headers}
    for name, value in headers:
        handler.send_header(name, value)
    if "content-length" not in names:
        handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)
