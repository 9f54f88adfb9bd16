"""Files over HTTP whose pages wait until a test lets them go: loads that are under way for as long as it takes to look at them.

Comes in: how many files. Goes out: their URLs; each holds `ROWS` rows that no other has. Footers come at once.
"""

from __future__ import annotations

import http.server
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 20_000
# More than whoever waits for a load has patience, and less than the client's own limit.
_LONGEST_SECONDS = 25


def _file(number: int) -> bytes:
    """A file of one row group, and of the same length as the others."""
    values = np.random.default_rng(number).integers(0, 2**62, ROWS)
    table = pa.table({"id": np.arange(number * ROWS, (number + 1) * ROWS), "n": values})
    written = io.BytesIO()
    pq.write_table(table, written, use_dictionary=False, compression="none")
    return written.getvalue()


class HeldFiles:
    """The files; those that a load must read, in order."""

    def __init__(self, address: str, count: int) -> None:
        self.place = f"{address}/data"
        self.contents = [_file(number) for number in range(count)]
        self.urls = [f"{self.place}/{number}.parquet" for number in range(count)]
        self.gates = [threading.Event() for _ in range(count)]
        self.pages_asked = 0

    @property
    def rows(self) -> int:
        """The rows of all of them."""
        return ROWS * len(self.urls)

    def let_go(self, *numbers: int) -> None:
        """Sends the pages of these files, of all without any."""
        for number in numbers or range(len(self.gates)):
            self.gates[number].set()


@contextmanager
def held_files(count: int = 4) -> Iterator[HeldFiles]:
    """So many files on a free port, until the end."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def answer(self, *, with_body: bool) -> None:
            found = re.fullmatch(r"/data/(\d+)\.parquet", self.path)
            number = int(found.group(1)) if found else count
            content = files.contents[number] if number < count else b""
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            start, stop = 0, len(content)
            if asked:
                start, stop = int(asked.group(1)), min(int(asked.group(2)) + 1, stop)
            # A footer is at the end.
            if with_body and content and stop < len(content):
                files.pages_asked += 1
                files.gates[number].wait(_LONGEST_SECONDS)
            self.send_response(404 if not content else 206 if asked else 200)
            self.send_header("Content-Length", str(stop - start))
            self.send_header("Accept-Ranges", "bytes")
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
            # Whoever ended the load has gone.
            with suppress(OSError):
                self.end_headers()
                if with_body:
                    self.wfile.write(content[start:stop])

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that went away is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    files = HeldFiles(f"http://127.0.0.1:{server.server_port}", count)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield files
    finally:
        files.let_go()
        server.shutdown()
        server.server_close()
