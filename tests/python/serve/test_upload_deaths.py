"""Uploads of clients that go away: given up in bounded time with all that came of them, unless somebody goes on with them before that."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from conftest import TESTS
from services import (
    Service,
    act,
    ours,
    parsed,
    service,
    shown,
    status,
    until,
    varint,
    write_tokens,
)

BATCH = pa.record_batch({"a": np.arange(100_000)})


BYTES = 800_000


def client_of(one: Service) -> fl.FlightClient:
    """A client with a connection of its own."""
    return fl.connect(one.uri, generic_options=[("grpc.use_local_subchannel_pool", 1)])


def begun(
    client: fl.FlightClient, bands: int = 2, token: str | None = None, name: str = "few_half"
) -> bytes:
    """An upload of so many tiles."""
    cuts = b"".join(varint(band * BATCH.num_rows) for band in range(bands + 1))
    schema = BATCH.schema.serialize().to_pybytes()
    body = ours("BeginUpload", (1, name), (2, schema), (3, cuts), (4, b"\0\1"))
    action = fl.Action("BeginUpload", body)
    [answer] = client.do_action(action, shown(token))
    return bytes(parsed(answer.body.to_pybytes())[1][0])


def place(upload: bytes, band: int) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(ours("UploadCommand", (1, upload), (2, band), (3, 0)))


def put(client: fl.FlightClient, upload: bytes, band: int, token: str | None = None) -> None:
    """Sends a tile."""
    writer, reader = client.do_put(place(upload, band), BATCH.schema, shown(token))
    try:
        writer.write_batch(BATCH)
        writer.done_writing()
        reader.read()
    finally:
        writer.close()


def commit(client: fl.FlightClient, upload: bytes) -> None:
    act(client, "CommitUpload", ours("Upload", (1, upload)))


def incoming(one: Service, token: str | None = None) -> int:
    """Bytes that clients sent and that are no grid yet."""
    return int(status(one, token)["memory"]["incoming_bytes"])


def num_files(catalog: Path) -> int:
    """How many tiles are kept, or being written."""
    return len(list((catalog / "tiles").glob("*")))


SENDING = """
import sys
sys.path[:0] = {folders!r}
import pyarrow.flight as fl
from test_upload_deaths import BATCH, begun, place, put
from services import shown

client = fl.connect({uri!r})
upload = begun(client, 3, {token!r})
put(client, upload, 0, {token!r})
# Half a tile.
writer, reader = client.do_put(place(upload, 1), BATCH.schema, shown({token!r}))
writer.write_batch(BATCH.slice(0, 50_000))
print(upload.hex(), flush=True)
sys.stdin.read()
"""


COMMITTING = """
import sys
import numpy as np, pyarrow as pa, partgrid as pg

connection = pg.connect({uri!r})
batches = [pa.record_batch({{"a": np.arange(1_000_000)}})] * 20
print("begins", flush=True)
connection.upload(pg.from_arrow(pa.Table.from_batches(batches)), "few_half")
print("has committed", flush=True)
sys.stdin.read()
"""


@contextmanager
def sender(code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A client in a process of its own, and what it says first."""
    words = [sys.executable, "-c", code]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield child, child.stdout.readline().strip()
    finally:
        child.kill()
        child.communicate()


def test_of_an_upload_whose_client_is_killed_nothing_stays(tmp_path: Path) -> None:
    tokens = write_tokens(
        tmp_path / "t", few={"scope": "write", "memory": "1900kB"}, all={"scope": "admin"}
    )
    few, admin = tokens["few"], tokens["all"]
    catalog = tmp_path / "catalog"
    words = ["--tokens", tmp_path / "t", "--catalog", catalog, "--set", "limits.silence=3"]
    with service(*words) as one:
        connection = pg.connect(one.uri, token=few)
        code = SENDING.format(
            folders=[str(Path(__file__).parent), str(TESTS)], uri=one.uri, token=few
        )
        with sender(code) as (child, upload):
            until(lambda: incoming(one, admin) >= 1.5 * BYTES)
            # It counts for its caller, also what is under way.
            with pytest.raises(pg.errors.ResourcesExhaustedError, match="1900000 bytes at once"):
                connection.upload(pa.table(BATCH.to_pydict()), "few_other")
            child.kill()
            child.wait()
        until(lambda: incoming(one, admin) == 0)
        assert connection.upload(pa.table(BATCH.to_pydict()), "few_other")["rows"] == 100_000
        assert connection.grids() == ["few_other"]
        with client_of(one) as client, pytest.raises(pa.ArrowKeyError, match="no such upload"):
            put(client, bytes.fromhex(upload), 2, few)
        until(lambda: num_files(catalog) == 1)


def test_of_a_client_that_is_killed_while_its_grid_is_kept_all_or_nothing_stays(
    tmp_path: Path,
) -> None:
    with service("--catalog", tmp_path, "--set", "limits.silence=3") as one:
        with sender(COMMITTING.format(uri=one.uri)) as (child, said):
            assert said == "begins"
            until(lambda: num_files(tmp_path), 60)
            child.kill()
            child.wait()
        connection = pg.connect(one.uri)
        until(lambda: incoming(one) == 0)

        def is_over() -> bool:
            """Whether there is the whole grid, or no file of it."""
            return num_files(tmp_path) == (20 if connection.grids() else 0)

        until(is_over)
        if connection.grids():
            assert connection.grid("few_half").shape == (20_000_000, 1)
        assert connection.upload(pa.table({"a": [1]}), "next")["durable"]


def test_an_upload_goes_on_over_another_connection() -> None:
    with service() as one:
        with client_of(one) as client:
            upload = begun(client)
            put(client, upload, 0)
        # Its connection has ended; there are ten seconds to come back.
        with client_of(one) as client:
            assert incoming(one) == BYTES
            put(client, upload, 1)
            commit(client, upload)
        assert incoming(one) == 0
        rows = pg.connect(one.uri).grid("few_half").to_arrow()
        assert rows == pa.Table.from_batches([BATCH, BATCH])


def test_an_upload_stays_as_long_as_one_of_its_connections_does() -> None:
    pause = threading.Event()
    with service("--set", "limits.silence=1.5") as one, client_of(one) as second:
        with client_of(one) as first:
            upload = begun(first)
            put(first, upload, 0)
            put(second, upload, 1)
        # Far longer than one may stay away.
        assert not pause.wait(3)
        assert incoming(one) == 2 * BYTES
        commit(second, upload)
        with client_of(one) as third:
            upload = begun(third, 1, name="few_next")
            put(third, upload, 0)
            assert incoming(one) == BYTES
        # This one knows nothing of it.
        until(lambda: incoming(one) == 0)
        with pytest.raises(pa.ArrowKeyError, match="no such upload"):
            commit(second, upload)


def test_an_upload_that_is_given_up_lets_go_of_its_rows_at_once() -> None:
    with service() as one, client_of(one) as client:
        upload = begun(client)
        put(client, upload, 0)
        # A tile that comes again takes the place of the one before.
        put(client, upload, 0)
        assert incoming(one) == BYTES
        act(client, "AbortUpload", ours("Upload", (1, upload)))
        assert incoming(one) == 0
