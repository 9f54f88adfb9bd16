"""Frames of HTTP/2 by hand, and a client that begins requests which it does not end."""

from __future__ import annotations

import socket
import struct
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0,
    1,
    3,
    4,
    6,
    7,
    8,
    9,
)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PREFIX = "/arrow.flight.protocol.FlightService/"
WORDS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/arrow.flight.protocol.FlightService/ListFlights",
    ":authority": "partgrid",
    "content-type": "application/grpc",
    "te": "trailers",
}

# What a frame of data has, and a connection before the server says more.
PIECE, WINDOW = 16_384, 65_535


def frame(kind: int, body: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def packed(words: dict[str, str]) -> bytes:
    """Headers as HPACK has them, each written out."""
    out = b""
    for name, value in words.items():
        out += b"\0" + number(len(name)) + name.encode() + number(len(value)) + value.encode()
    return out


def number(value: int) -> bytes:
    """A length of HPACK, in seven bits and more bytes."""
    if value < 127:
        return bytes([value])
    out, value = b"\x7f", value - 127
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


class Unfinished:
    """A client whose requests have messages of which the end never comes. It answers pings, and keeps to the window of its connection."""

    def __init__(self, uri: str, token: str | None = None) -> None:
        host, port = uri.rsplit("/", 1)[1].split(":")
        self.connection = socket.create_connection((host, int(port)), timeout=10)
        self.words = dict(WORDS) if token is None else {**WORDS, "authorization": f"Bearer {token}"}
        self.window, self.heard, self.streams = WINDOW, b"", 0
        # Streams that the server has ended.
        self.ended: set[int] = set()
        self.connection.sendall(PREFACE + frame(SETTINGS))

    def __enter__(self) -> Unfinished:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def begin(self, method: str, claimed: int, count: int) -> int:
        """Begins a request whose message says that it has so many bytes, and sends some of them, unless the server ends it before; gives the stream."""
        stream, self.streams = 2 * self.streams + 1, self.streams + 1
        path = method if method.startswith("/") else PREFIX + method
        self._send(frame(HEADERS, packed({**self.words, ":path": path}), END_HEADERS, stream))
        left = memoryview(b"\0" + struct.pack(">I", claimed) + bytes(count))
        while left and stream not in self.ended:
            piece = bytes(left[:PIECE])
            if self.window < len(piece):
                assert self.listen(10), "the server takes no more"
                continue
            self._send(frame(DATA, piece, 0, stream))
            self.window -= len(piece)
            left = left[PIECE:]
            self.listen(0)
        return stream

    def hears_end(self, streams: set[int], seconds: float = 10) -> bool:
        """Whether the server ends all these within a time."""
        stop = time.monotonic() + seconds
        while not streams <= self.ended and time.monotonic() < stop:
            self.listen(0.1)
        return streams <= self.ended

    def listen(self, seconds: float) -> bool:
        """Whether the server says something within a time."""
        self.connection.settimeout(seconds)
        try:
            more = self.connection.recv(65_536)
        except (TimeoutError, BlockingIOError):
            return False
        assert more, "the server hung up"
        self.heard += more
        while len(self.heard) >= 9:
            length = int.from_bytes(self.heard[:3], "big")
            if len(self.heard) < 9 + length:
                break
            kind, flags = self.heard[3], self.heard[4]
            stream = int.from_bytes(self.heard[5:9], "big")
            self._hear(kind, flags, stream, self.heard[9 : 9 + length])
            self.heard = self.heard[9 + length :]
        return True

    def _hear(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self.ended.add(stream)
        elif kind == WINDOW_UPDATE and stream == 0:
            self.window += int.from_bytes(body, "big")
        elif kind in (SETTINGS, PING) and not flags & ACK:
            self._send(frame(kind, body if kind == PING else b"", ACK))

    def _send(self, frames: bytes) -> None:
        self.connection.settimeout(10)
        self.connection.sendall(frames)
