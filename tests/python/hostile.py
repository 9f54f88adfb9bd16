"""Requests of somebody who means harm: how they are made, what may be said to them, and that the server is unharmed.

`PARTGRID_HOSTILE_REQUESTS` says how many are sent to each method.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pyarrow as pa
import pyarrow.flight as fl

import partgrid as pg
from services import Service, asked, forget_peak, peak_bytes, service, status, varint

REQUESTS = int(os.environ.get("PARTGRID_HOSTILE_REQUESTS", "2000"))


PREFIX = "/arrow.flight.protocol.FlightService/"


ANSWERS = 10


# What the server may say; anything else would be a fault of its own.
TYPED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
}


GROWTH = 150_000_000


# What may come on top for a moment: the memory of a query, and copies of the largest messages that are sent.
PEAK = 500_000_000


@contextmanager
def victim(*more: str) -> Iterator[Service]:
    """A server with a grid `t`."""
    limits = ["query_time=2", "upload=64MB", "memory=4GB", "query_memory=100MB"]
    words = [word for each in limits for word in ("--set", f"limits.{each}")]
    # To write where a panic was takes memory once: symbols of the whole library.
    with service(*words, *more, RUST_BACKTRACE="0") as one:
        pg.connect(one.uri).upload(pa.table({"a": [1, 2, 3]}), "t")
        yield one


@contextmanager
def unharmed(one: Service) -> Iterator[grpc.Channel]:
    """A channel to it; afterwards it answers, its memory is as before, and was not much more meanwhile."""
    before = status(one)["memory"]["resident_bytes"]
    forget_peak(one)
    with grpc.insecure_channel(one.uri.removeprefix("grpc://")) as channel:
        yield channel
    assert one.process.poll() is None, "".join(one.said)
    # The decoder of Arrow panics at some messages, and is held.
    assert [line for line in one.said if "panicked" in line and "arrow" not in line] == []
    with fl.connect(one.uri) as client:
        assert asked(client, "SELECT sum(a) AS s FROM t")["s"].to_pylist() == [6]
    assert pg.connect(one.uri).grids() == ["t"]
    assert status(one)["memory"]["resident_bytes"] - before < GROWTH
    assert peak_bytes(one) - before < PEAK


def send(channel: grpc.Channel, method: str, *messages: bytes) -> grpc.RpcError | None:
    """What the server says to the messages; nothing if it takes them."""
    call = channel.stream_stream(PREFIX + method)(iter(messages), timeout=ANSWERS)
    try:
        list(call)
    except grpc.RpcError as error:
        answer = error
    else:
        return None
    assert answer.code() in TYPED, (answer.code(), answer.details(), messages)
    return answer


def harmed(source: random.Random, message: bytes) -> bytes:
    """The message, cut, changed, longer, or of lengths that lie."""
    out = bytearray(message)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(out) + 1)
        match source.randrange(7):
            case 0:
                del out[at:]
            case 1 if out:
                out[at % len(out)] ^= 1 << source.randrange(8)
            case 2 if out:
                out[at % len(out)] = source.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 3:
                out[at:at] = source.randbytes(source.randint(1, 20))
            case 4:
                out[at:at] = varint(source.choice([2**31 - 1, 2**32, 2**63, 2**64 - 1]))
            case 5:
                out[at : at + source.randint(1, 16)] = b""
            case 6:
                out[at:at] = out[: source.randint(0, 50)]
    return bytes(out)
