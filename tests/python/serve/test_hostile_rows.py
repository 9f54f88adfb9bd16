"""Rows of somebody who means harm: broken messages of Arrow, lengths that lie, bombs.

`PARTGRID_HOSTILE_REQUESTS` says how many are sent: a fifth as many as requests without rows.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

import partgrid as pg
from hostile import REQUESTS, harmed, send, unharmed, victim
from services import Service, flight_sql, ours, proto
from type_samples import others, samples

TIMES = max(REQUESTS // 5, 1)


@pytest.fixture(scope="module")
def one() -> Iterator[Service]:
    with victim() as one:
        yield one


@pytest.fixture
def channel(one: Service) -> Iterator[grpc.Channel]:
    with unharmed(one) as channel:
        yield channel


def messages_of(table: pa.Table, **options: Any) -> list[tuple[bytes, bytes]]:
    """Headers and bodies of the IPC messages of a table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return [
        (each.metadata.to_pybytes(), each.body.to_pybytes() if each.body else b"")
        for each in reader
    ]


def put(channel: grpc.Channel, messages: list[tuple[bytes, bytes]]) -> grpc.RpcError | None:
    ingest = flight_sql("CommandStatementIngest", (1, proto((1, 1), (2, 3))), (2, "t_put"))
    head = [(1, proto((1, 2), (2, ingest)))]
    sent = []
    for header, body in messages:
        sent.append(proto(*head, (2, header), (1000, body)))
        head = []
    error = send(channel, "DoPut", *sent)
    if error is None:
        drop = flight_sql("CommandStatementUpdate", (1, "DROP TABLE t_put"))
        assert send(channel, "DoPut", proto((1, proto((1, 2), (2, drop))))) is None
    return error


@pytest.mark.parametrize("packed", [None, "lz4", "zstd"])
def test_broken_rows_are_refused_or_whole(channel: grpc.Channel, packed: str | None) -> None:
    source = random.Random(f"rows {packed}")
    kinds = list((samples() | others()).items())
    refused = 0
    for _ in range(TIMES):
        name, values = source.choice(kinds)
        messages = messages_of(pa.table({name: values}), compression=packed)
        at = source.randrange(len(messages))
        header, body = messages[at]
        if body and source.random() < 0.3:
            body = harmed(source, body)
        else:
            header = harmed(source, header)
        messages[at] = header, body
        refused += put(channel, messages) is not None
    assert refused > TIMES // 4


def deep(levels: int) -> pa.DataType:
    kind: pa.DataType = pa.int64()
    for _ in range(levels):
        kind = pa.list_(kind)
    return kind


def lists(levels: int) -> list[tuple[bytes, bytes]]:
    """A schema of one list of lists, as many deep, by hand: writers of Arrow end at that.

    Each field is a table of Flatbuffers that names the one below it.
    """
    # A vtable for fields: name (none), nullable (none), type of type (12: List), type, dictionary (none), children.
    made = b""
    at = 0
    below = None
    for _ in range(levels):
        # From the back: a table can only name what comes after it.
        vtable = struct.pack("<8H", 16, 20, 0, 0, 4, 8, 0, 12)
        empty = struct.pack("<2Hi", 4, 4, 4)
        children = struct.pack("<I", 0) if below is None else struct.pack("<2I", 1, 0)
        size = len(vtable) + 20 + len(empty) + len(children)
        start = len(vtable)
        kind_at, children_at = start + 20 + 4, start + 20 + len(empty)
        if below is not None:
            children = struct.pack("<2I", 1, size - children_at - 4 + below)
        table = struct.pack("<iB3xIIi", start, 12, kind_at - start - 8, children_at - start - 12, 0)
        made = vtable + table + empty + children + made
        below = start
        at += size
    schema = struct.pack("<4H", 8, 8, 0, 4) + struct.pack("<iI", 8, 4) + struct.pack("<2I", 1, 0)
    head = struct.pack("<I6HihBBI", 16, 12, 12, 4, 6, 8, 0, 12, 4, 1, 0, 12)
    body = schema[:-4] + struct.pack("<I", 4 + (below or 0)) + made
    return [(head + body, b"")]


def with_rows(number: int) -> list[tuple[bytes, bytes]]:
    """A batch that says it has so many rows, with bytes for three."""
    messages = messages_of(pa.table({"a": [1, 2, 3]}))
    three, many = struct.pack("<q", 3), struct.pack("<q", number)
    return [messages[0], *((header.replace(three, many), body) for header, body in messages[1:])]


def bomb(packed: str) -> list[tuple[bytes, bytes]]:
    """A packed buffer that says it is 1 TiB."""
    messages = messages_of(pa.table({"a": list(range(10_000))}), compression=packed)
    size = struct.pack("<q", 80_000)
    return [(header, body.replace(size, struct.pack("<q", 2**40))) for header, body in messages]


def big_endian() -> list[tuple[bytes, bytes]]:
    """A schema without fields whose numbers are big-endian; writers of Arrow make none on this machine."""
    message = struct.pack("<I6HihBBI", 16, 12, 12, 4, 6, 8, 0, 12, 4, 1, 0, 12)
    schema = struct.pack("<4HihHI", 8, 12, 4, 8, 8, 1, 0, 4)
    return [(message + schema + bytes(8), b"")]


def many_fields(number: int) -> list[tuple[bytes, bytes]]:
    """A schema of so many columns, each of a letter: 12 MB as a message for a quarter of a million."""
    fields = [pa.field("", pa.null())] * number
    return [(pa.schema(fields).serialize().to_pybytes()[8:], b"")]


def dictionary_of(number: int) -> list[tuple[bytes, bytes]]:
    """A dictionary whose batch says that it has so many values."""
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["x", "yy"]))
    messages = messages_of(pa.table({"a": values}))
    two, many = struct.pack("<q", 2), struct.pack("<q", number)
    return [messages[0], *((header.replace(two, many), body) for header, body in messages[1:])]


def union_of(ids: list[int]) -> list[tuple[bytes, bytes]]:
    """Rows of a union whose children have ids that no child has."""
    children = [pa.array([1, 2, 3]), pa.array(["x", "y", "z"])]
    values = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), children)
    messages = messages_of(pa.table({"a": values}))
    good = struct.pack("<3b", 0, 1, 0)
    wrong = struct.pack("<3b", *ids)
    return [messages[0], *((header, body.replace(good, wrong, 1)) for header, body in messages[1:])]


ABUSES: dict[str, tuple[Callable[[], list[tuple[bytes, bytes]]], str]] = {
    "more fields than there may be": (
        lambda: messages_of(pa.table({f"c{number}": [1] for number in range(10_001)})),
        "10000 fields",
    ),
    "columns by the hundred thousand": (
        lambda: many_fields(200_000),
        "10000 fields|smaller messages",
    ),
    "a million columns": (lambda: many_fields(1_000_000), "10000 fields|smaller messages"),
    "a dictionary of 2^31 values": (
        lambda: dictionary_of(2**31),
        "broken|rows|offset|buffer|values",
    ),
    "a union of a negative id": (lambda: union_of([0, -1, 0]), "union|type id|type_id|broken"),
    "a union of an id that no child has": (
        lambda: union_of([0, 99, 0]),
        "union|type id|type_id|broken",
    ),
    "a list of lists, ten thousand deep": (lambda: lists(10_000), "nested 64 deep|depth limit"),
    "nested a hundred deep": (
        lambda: [(pa.schema([("a", deep(100))]).serialize().to_pybytes()[8:], b"")],
        "nested 64 deep|depth limit",
    ),
    "big-endian numbers": (big_endian, "little-endian"),
    "rows without bytes": (lambda: with_rows(1_000_000_000), "broken|rows|offset|buffer"),
    "more rows than there are": (lambda: with_rows(2**62), "rows"),
    "negative rows": (lambda: with_rows(-5), "rows"),
    "a bomb of zstd": (lambda: bomb("zstd"), "unpack"),
    "a bomb of lz4": (lambda: bomb("lz4"), "unpack"),
    "two schemas": (lambda: messages_of(pa.table({"a": [1]}))[:1] * 2, "second one"),
    "rows before the schema": (
        lambda: messages_of(pa.table({"a": [1]}))[1:],
        "must begin with a schema",
    ),
    "no schema": (lambda: [(b"", b"")] * 100, "schema"),
    "a name twice": (
        lambda: messages_of(pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"])),
        "a",
    ),
    "a message over the limit": (lambda: [(bytes(20_000_000), b"")], "smaller messages"),
}


@pytest.mark.parametrize("abuse", ABUSES)
def test_rows_that_would_do_harm_are_refused(channel: grpc.Channel, abuse: str) -> None:
    make, text = ABUSES[abuse]
    error = put(channel, make())
    assert error is not None
    assert any(part in error.details() for part in text.split("|")), error.details()


def test_many_small_lies_do_not_add_up(channel: grpc.Channel, one: Service) -> None:
    nothing = pa.table({"a": pa.nulls(1)})
    messages = messages_of(nothing)
    put(channel, [messages[0], *messages[1:2] * 5000])
    for _ in range(TIMES):
        body = ours("BeginUpload", (1, "u"), (2, messages[0][0]), (3, b"\0\1"), (4, b"\0\1"))
        send(channel, "DoAction", proto((1, "BeginUpload"), (2, body)))
    assert pg.connect(one.uri).grids() == ["t"]
