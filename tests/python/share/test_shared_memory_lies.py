"""Shared memory when a process lies: what is handed over is looked at before it is read."""

from __future__ import annotations

import contextlib
import decimal
import mmap
import os
import pickle
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg
from sharing import ON_LINUX, in_another, numbers

pytestmark = ON_LINUX

# Process, user and group at the other end of a socket.
CREDENTIALS = (socket.SOL_SOCKET, getattr(socket, "SO_PEERCRED", 0))


class Liar:
    """An owner that answers as it is told: a descriptor, and how long it is said to be."""

    def __init__(self, answer: Callable[[socket.socket], None], proof: int | None = None) -> None:
        self.name, self.secret = random.getrandbits(64), random.getrandbits(64)
        self.answer = answer
        self.proof = self.secret if proof is None else proof
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(f"\0partgrid-{self.name:016x}")
        self.socket.listen()

    def handle(self) -> pg.Handle:
        """A handle that leads here."""
        [(host, _)] = numbers(1).tile(0).location
        parts = (5, [0, 0], self.name << 64 | self.secret, host, os.getpid(), "kDLCPU")
        return pg.Handle._from_parts(parts)

    def serve(self, reader: int) -> None:
        """Answers a process. Others of this machine may look whose memory is shared: they are none of its readers."""
        connection, _ = self.socket.accept()
        while struct.unpack("3i", connection.getsockopt(*CREDENTIALS, 12))[0] != reader:
            connection.close()
            connection, _ = self.socket.accept()
        with contextlib.suppress(OSError), connection:
            assert connection.recv(100) == b"\x01PGSM\x01\x00"
            connection.send(b"\x01PGSM\x01\x00" + struct.pack("<Q", self.proof))
            if connection.recv(100):
                self.answer(connection)
                connection.recv(100)

    def opened(self) -> str:
        """What a process that opens the handle says of it."""
        code = (
            "import partgrid as pg\n"
            "try:\n    print(objects[0].tile().to_arrow().to_pydict())\n"
            "except pg.errors.PartgridError as error:\n    print(type(error).__name__, error)\n"
        )
        command = f"import pickle, sys\nobjects = pickle.load(sys.stdin.buffer)\n{code}"
        reader = subprocess.Popen([sys.executable, "-c", command], stdin=-1, stdout=-1, stderr=-1)
        reader.stdin.write(pickle.dumps((self.handle(),)))
        reader.stdin.close()
        self.serve(reader.pid)
        said, error = reader.stdout.read(), reader.stderr.read()
        assert reader.wait(30) == 0, (reader.returncode, error.decode())
        self.socket.close()
        return said.decode()


def granted(descriptors: list[int], num_bytes: int) -> Callable[[socket.socket], None]:
    """Hands these over as a tile at (0, 0)."""
    packet = b"\x03" + struct.pack("<QQIQQB", 1, num_bytes, 2, 0, 0, 0)

    def answer(connection: socket.socket) -> None:
        socket.send_fds(connection, [packet], descriptors)

    return answer


SEALS = 0x1 | 0x2 | 0x4 | 0x8


def memory(content: bytes, seals: int = SEALS, flags: int = 0, more: int = 0) -> int:
    """A memory file, sealed or not."""
    descriptor = os.memfd_create("liar", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    os.write(descriptor, content)
    if more:
        os.truncate(descriptor, more)
    if seals:
        import fcntl  # noqa: PLC0415

        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def ipc_file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


GOOD = ipc_file(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}))


def test_what_a_liar_hands_over_is_read_when_it_is_sealed() -> None:
    assert (
        "{'a': [1, 2, 3], 'b': ['x', 'y', 'z']}"
        in Liar(granted([memory(GOOD)], len(GOOD))).opened()
    )


@pytest.mark.parametrize("missing", [0x1, 0x2, 0x4, 0x8, SEALS])
def test_memory_that_could_change_is_refused(missing: int) -> None:
    descriptor = memory(GOOD, SEALS & ~missing)
    said = Liar(granted([descriptor], len(GOOD))).opened()
    assert said.startswith(
        "InvalidDataError a shared tile must be a memory file with the seals 0xf"
    )


def test_another_file_is_refused(tmp_path: Any) -> None:
    (tmp_path / "x").write_bytes(GOOD)
    named = f"/dev/shm/partgrid-test-{os.getpid()}"
    with open(named, "wb") as sink:
        sink.write(GOOD)
    try:
        descriptors = [
            os.open(tmp_path / "x", os.O_RDONLY),
            os.open(named, os.O_RDONLY),
            *os.pipe(),
        ]
    finally:
        os.unlink(named)
    for descriptor in descriptors:
        said = Liar(granted([descriptor], len(GOOD))).opened()
        assert said.startswith("InvalidDataError a shared tile must be a memory file"), said
        os.close(descriptor)


def test_lengths_that_do_not_fit_and_holes_are_refused() -> None:
    for num_bytes in (len(GOOD) - 1, len(GOOD) + 4096, 0, 1 << 62):
        said = Liar(granted([memory(GOOD)], num_bytes)).opened()
        assert said.startswith("InvalidDataError a shared tile must have the"), said
    assert "InvalidDataError" in Liar(granted([memory(b"")], 0)).opened()
    sparse = memory(GOOD, more=1 << 30)
    said = Liar(granted([sparse], 1 << 30)).opened()
    assert said.startswith("InvalidDataError a shared tile must be in memory as a whole"), said


@pytest.mark.parametrize("count", [0, 2, 3])
def test_a_tile_comes_with_one_descriptor(count: int) -> None:
    descriptors = [memory(GOOD) for _ in range(count)]
    said = Liar(granted(descriptors, len(GOOD))).opened()
    assert said.startswith("ProtocolError"), said


def test_torn_and_foreign_content_is_an_error_and_no_crash() -> None:
    for content in (b"x", b"x" * 10_000, GOOD[:-20], GOOD[:100] + GOOD[-100:], GOOD[64:]):
        said = Liar(granted([memory(content)], len(content))).opened()
        assert said.startswith("InvalidDataError a shared tile could not be read"), said
    compressed = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    table = pa.table({"a": [1] * 10_000})
    with pa.ipc.new_file(compressed, table.schema, options=options) as writer:
        writer.write_table(table)
    content = compressed.getvalue().to_pybytes()
    said = Liar(granted([memory(content)], len(content))).opened()
    assert "the buffers are compressed" in said


def test_flipped_bytes_of_a_footer_are_an_error_and_no_crash() -> None:
    chance = random.Random(1)
    code = (
        "import os, partgrid as pg\n"
        "os.dup2(os.open('/dev/null', os.O_WRONLY), 2)\n"
        "outcomes = set()\n"
        "for handle in objects[0]:\n"
        "    try:\n        handle.tile()\n        outcomes.add('opened')\n"
        "    except pg.errors.PartgridError as error:\n        outcomes.add(type(error).__name__)\n"
        "print(sorted(outcomes))\n"
    )
    liars = []
    for _ in range(150):
        content = bytearray(GOOD)
        for _ in range(chance.randint(1, 4)):
            # The footer is at the end; values are not looked at.
            content[-chance.randint(1, 400)] = chance.randrange(256)
        liars.append(Liar(granted([memory(bytes(content))], len(content))))
    command = f"import pickle, sys\nobjects = pickle.load(sys.stdin.buffer)\n{code}"
    reader = subprocess.Popen([sys.executable, "-c", command], stdin=-1, stdout=-1)
    reader.stdin.write(pickle.dumps(([liar.handle() for liar in liars],)))
    reader.stdin.close()
    for liar in liars:
        liar.serve(reader.pid)
        liar.socket.close()
    assert b"InvalidDataError" in reader.stdout.read()
    assert reader.wait(30) == 0


def test_memory_that_is_not_aligned_is_copied_and_right() -> None:
    values = [decimal.Decimal(number) for number in range(101)]
    for rows in range(1, 20):
        table = pa.table({"n": ["x" * rows] * 101, "d": pa.array(values, pa.decimal128(20, 0))})
        content = ipc_file(table)
        said = Liar(granted([memory(content)], len(content))).opened()
        assert said.strip() == str(table.to_pydict())


def test_who_does_not_know_the_secret_is_refused() -> None:
    said = Liar(granted([memory(GOOD)], len(GOOD)), proof=1).opened()
    assert said.startswith("ProtocolError")
    assert "not the process that gave the handle" in said


@pytest.mark.parametrize(
    "packet", [b"\x09", b"\x03", b"\x03" + b"\xff" * 60, b"\x05" * 30, b"x" * 70_000]
)
def test_answers_that_make_no_sense_are_refused(packet: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        connection.send(packet)

    assert Liar(answer).opened().startswith("ProtocolError")


def test_an_owner_that_hangs_up_is_lost() -> None:
    def hang_up(connection: socket.socket) -> None:
        connection.close()

    said = Liar(hang_up).opened()
    assert said.startswith("PartitionLostError"), said


def raw_reader() -> socket.socket:
    """A connection to this process, past the greeting."""
    [sent] = pickle.loads(pickle.dumps(numbers(1))).__partitioned__["partitions"].values()
    parts = sent["data"].__reduce__()[1][0]
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"\0partgrid-{parts[2] >> 64:016x}")
    connection.settimeout(30)
    return connection


def test_an_owner_hangs_up_on_requests_that_make_no_sense() -> None:
    for request in (b"\x02", b"\x02" + b"\xff" * 40, b"\x77", b"\x01PGSM\x01\x00", b"y" * 65_000):
        with raw_reader() as connection:
            connection.send(b"\x01PGSM\x01\x00")
            assert connection.recv(100)[:7] == b"\x01PGSM\x01\x00"
            connection.send(request)
            assert connection.recv(100) == b""
    with raw_reader() as connection:
        connection.send(b"\x01PGSM\x02\x00")
        assert b"one version of partgrid" in connection.recv(1000)
    with raw_reader() as connection:
        assert b"does not answer" in connection.recv(1000), "who says nothing is not waited for"
    assert numbers(1).tile(0).nbytes == 8, "and goes on"


def test_nobody_can_change_a_shared_tile() -> None:
    grid = numbers(1000).to_shared()
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:partgrid"):
                found.append(int(name))
    assert found
    for descriptor in found:
        for length in (0, 1 << 30):
            with pytest.raises(PermissionError):
                os.truncate(descriptor, length)
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, 100, mmap.MAP_SHARED, mmap.PROT_WRITE)
        with pytest.raises(OSError, match="Operation not permitted"):
            os.posix_fallocate(descriptor, 0, 1 << 30)
    with pytest.raises(ValueError, match="read-only"):
        grid.to_arrow()["a"].chunk(0).to_numpy()[0] = 1


def test_another_user_is_refused_on_both_sides() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    grid = numbers(3)
    code = (
        "import os, socket, partgrid as pg, pyarrow\n"
        "grid, name = objects\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try:\n    grid.to_arrow()\n"
        "except pg.errors.PermissionDeniedError as error:\n    print(error)\n"
        "connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "connection.connect(name)\n"
        "try:\n    connection.send(b'\\x01PGSM\\x01\\x00')\n    print(connection.recv(100))\n"
        "except OSError:\n    print(b'')\n"
        "print(pg.shared_memory())\n"
    )
    [part] = grid.__partitioned__["partitions"].values()
    name = f"\0partgrid-{part['data'].__reduce__()[1][0][2] >> 64:016x}"
    said, answer, listed = in_another(code, grid, name).splitlines()
    assert (
        said
        == "memory is shared by processes of one user, got user 0 at the other end and user 65534 here"
    )
    assert answer == "b''"
    assert listed == "[]"


def test_a_damaged_pickle_of_a_grid_is_an_error_and_no_panic() -> None:
    pickled = pickle.dumps(pg.from_arrow(pa.table({"a": [1, 2], "b": ["x", "y"]})))
    chance = random.Random(3)
    refused = 0
    for _ in range(400):
        damaged = bytearray(pickled)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            pickle.loads(bytes(damaged))
        except Exception:
            refused += 1
    assert refused > 100
