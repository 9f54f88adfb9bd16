"""Connections of somebody who means harm below the requests, with frames of HTTP/2 by hand: the server hangs up or refuses, and the next client is served."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from itertools import islice

import pytest

from frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WORDS,
    frame,
    packed,
)
from hostile import unharmed, victim
from services import Service

PROTOCOL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 1, 6, 7, 8, 11


@pytest.fixture(scope="module")
def one() -> Iterator[Service]:
    with victim() as one:
        yield one


@pytest.fixture
def stranger(one: Service) -> Iterator[socket.socket]:
    """A connection that has said that it speaks HTTP/2; the server is unharmed while it is open."""
    host, port = one.uri.removeprefix("grpc://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection, unharmed(one):
        connection.sendall(PREFACE + frame(SETTINGS))
        yield connection


def sent(connection: socket.socket, frames: Iterable[bytes]) -> int:
    """Sends until the server hangs up or takes no more; gives how many frames were sent."""
    count = 0
    try:
        for each in frames:
            connection.sendall(each)
            count += 1
    except OSError:
        pass
    return count


def answers(connection: socket.socket, wanted: int) -> Iterator[tuple[int, int, bytes]]:
    """Kind, flags and body of the frames that come, up to the first of a kind, or to the end of the connection."""
    stream = connection.makefile("rb")
    while True:
        try:
            head = stream.read(9)
        except OSError:
            return
        if len(head) < 9:
            return
        kind, flags = head[3], head[4]
        yield kind, flags, stream.read(int.from_bytes(head[:3], "big"))
        if kind == wanted:
            return


def code_of(connection: socket.socket, wanted: int) -> int | None:
    """The code of the first frame of a kind; none when the server hangs up before."""
    for kind, _, body in answers(connection, wanted):
        if kind == wanted:
            return int.from_bytes(body[-4:] if kind == RST_STREAM else body[4:8], "big")
    return None


def test_who_opens_streams_only_to_reset_them_is_hung_up_on(stranger: socket.socket) -> None:
    block, reset = packed(WORDS), CANCEL.to_bytes(4, "big")
    both = (
        frame(HEADERS, block, END_HEADERS, each) + frame(RST_STREAM, reset, 0, each)
        for each in range(1, 100_000, 2)
    )
    assert sent(stranger, both) < 10_000
    # Where frames were on their way, the end of the connection comes before what is said of it.
    assert code_of(stranger, GOAWAY) in (ENHANCE_YOUR_CALM, None)


def test_a_connection_has_128_streams(stranger: socket.socket) -> None:
    block = packed(WORDS)
    assert (
        sent(stranger, (frame(HEADERS, block, END_HEADERS, 2 * n + 1) for n in range(200))) == 200
    )
    came = answers(stranger, GOAWAY)
    refused = (body for kind, _, body in came if kind == RST_STREAM)
    assert [*islice(refused, 72)] == [REFUSED_STREAM.to_bytes(4, "big")] * 72
    # No more of them come.
    stranger.settimeout(1)
    assert [*refused] == []


def test_headers_without_end_are_hung_up_on(stranger: socket.socket) -> None:
    assert sent(stranger, [frame(HEADERS, packed(WORDS), 0, 1)]) == 1
    more = frame(CONTINUATION, packed({"x": "y" * 16_000}), 0, 1)
    assert sent(stranger, (more for _ in range(10_000))) < 5_000
    assert code_of(stranger, GOAWAY) in (ENHANCE_YOUR_CALM, None)


@pytest.mark.parametrize("words", [1, 6, 300])
def test_headers_over_16_kib_are_refused(stranger: socket.socket, words: int) -> None:
    block = packed({**WORDS, **{f"x{each}": "y" * (18_000 // words) for each in range(words)}})
    first, rest = block[:16_000], block[16_000:]
    frames = [frame(HEADERS, first, 0, 1), frame(CONTINUATION, rest, END_HEADERS, 1)]
    assert sent(stranger, frames) == 2
    assert code_of(stranger, RST_STREAM) == PROTOCOL_ERROR


def test_answers_that_nobody_reads_take_no_memory(stranger: socket.socket) -> None:
    # Without a bound these would be 340 MB.
    stranger.settimeout(1)
    assert sent(stranger, (frame(PING, bytes(8)) * 1000 for _ in range(20_000))) < 20_000


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (b"\xff" * 9 + bytes(1000), FRAME_SIZE_ERROR),
        (frame(HEADERS, b"\x80" + b"\xff" * 50, END_HEADERS, 1), PROTOCOL_ERROR),
        (frame(HEADERS, packed(WORDS), END_HEADERS, 2), PROTOCOL_ERROR),
        (frame(DATA, b"x" * 10, 0, 1), PROTOCOL_ERROR),
    ],
    ids=["no frame", "no headers", "a stream of the server", "data without headers"],
)
def test_what_makes_no_sense_is_hung_up_on(
    stranger: socket.socket, wrong: bytes, code: int
) -> None:
    assert sent(stranger, [wrong]) == 1
    assert code_of(stranger, GOAWAY) == code
