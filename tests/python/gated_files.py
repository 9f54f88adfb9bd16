"""A file over HTTP that comes when the test lets it: whoever loads or reads it waits as long."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Nobody waits longer, also where a test has failed.
MOST_SECONDS = 25


class Gated:
    """What is known of the file's server."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.place = self.url = ""
        self.asked = 0

    def close(self) -> None:
        """From now on nothing comes, and requests are counted anew."""
        self.gate.clear()
        self.asked = 0


@contextmanager
def gated(path: Path) -> Iterator[Gated]:
    """Serves the file; the gate is open."""
    content, files = path.read_bytes(), Gated()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def do_HEAD(self) -> None:
            self.answer(200, b"", len(content))

        def do_GET(self) -> None:
            found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if found is None:
                self.answer(200, content, len(content))
                return
            first, last = found.groups()
            begin = int(first) if first else len(content) - int(last)
            end = min(int(last) + 1, len(content)) if first and last else len(content)
            self.answer(206, content[begin:end], end - begin, f"bytes {begin}-{end - 1}")

        def answer(self, code: int, body: bytes, length: int, place: str = "") -> None:
            files.asked += 1
            files.gate.wait(MOST_SECONDS)
            self.send_response(code)
            self.send_header("Content-Length", str(length))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Last-Modified", "Wed, 25 Nov 2026 12:00:00 GMT")
            if place:
                self.send_header("Content-Range", f"{place}/{len(content)}")
            self.end_headers()
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that went away is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    files.place = f"http://127.0.0.1:{server.server_port}"
    files.url = f"{files.place}/{path.name}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield files
    finally:
        files.gate.set()
        server.shutdown()
        server.server_close()
