"""One pyarrow array for every type whose round trip must change nothing."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa

ROWS = 10


def _some(value: Any) -> list[Any]:
    """Ten values, every third one null."""
    return [None if row % 3 == 1 else value(row) for row in range(ROWS)]


def samples() -> dict[str, pa.Array]:
    """The arrays by name."""
    integers = {
        name: pa.array(_some(int), type=getattr(pa, name)())
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    }
    text = _some(lambda row: f"text {row}, longer than a view holds inline")
    point = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])
    points = _some(lambda row: {"x": row, "y": None if row % 2 else str(row)})
    return integers | {
        "float16": pa.array(_some(float), type=pa.float16()),
        "float32": pa.array(_some(float), type=pa.float32()),
        "float64": pa.array(_some(float), type=pa.float64()),
        "boolean": pa.array(_some(lambda row: row % 2 == 0)),
        "null": pa.nulls(ROWS),
        "string": pa.array(text),
        "large_string": pa.array(text, type=pa.large_string()),
        "string_view": pa.array(text, type=pa.string_view()),
        "binary": pa.array(_some(lambda row: bytes([row])), type=pa.binary()),
        "large_binary": pa.array(_some(lambda row: bytes([row])), type=pa.large_binary()),
        "binary_view": pa.array(_some(lambda row: bytes([row] * 20)), type=pa.binary_view()),
        "fixed_binary": pa.array(_some(lambda row: bytes([row] * 3)), type=pa.binary(3)),
        "decimal128": pa.array(_some(decimal.Decimal), type=pa.decimal128(20, 2)),
        "decimal256": pa.array(_some(decimal.Decimal), type=pa.decimal256(50, 3)),
        "date32": pa.array(_some(int), type=pa.date32()),
        "date64": pa.array(_some(lambda row: row * 86_400_000), type=pa.date64()),
        "time32": pa.array(_some(int), type=pa.time32("s")),
        "time64": pa.array(_some(int), type=pa.time64("us")),
        "timestamp": pa.array(_some(int), type=pa.timestamp("ns")),
        "timestamp_rome": pa.array(_some(int), type=pa.timestamp("ms", tz="Europe/Rome")),
        "timestamp_seconds_rome": pa.array(_some(int), type=pa.timestamp("s", tz="Europe/Rome")),
        "timestamp_utc": pa.array(_some(int), type=pa.timestamp("s", tz="+00:00")),
        "duration": pa.array(_some(int), type=pa.duration("us")),
        "interval": pa.array(_some(lambda row: (row, 2, 3)), type=pa.month_day_nano_interval()),
        "dictionary": pa.array(_some(lambda row: "xy"[row % 2])).dictionary_encode(),
        "dictionary_int8": pa.DictionaryArray.from_arrays(
            pa.array(_some(lambda row: row % 2), type=pa.int8()), ["x", "y"], ordered=True
        ),
        "list": pa.array(_some(lambda row: [row, None]), type=pa.list_(pa.int64())),
        "large_list": pa.array(_some(lambda row: [row]), type=pa.large_list(pa.int64())),
        "fixed_size_list": pa.array(_some(lambda row: [row, 1]), type=pa.list_(pa.int32(), 2)),
        "list_of_list": pa.array(
            _some(lambda row: [[row], []]), type=pa.list_(pa.list_(pa.int8()))
        ),
        "list_of_struct": pa.array(_some(lambda row: [{"x": row, "y": "z"}]), type=pa.list_(point)),
        "struct": pa.array(points, type=point),
        "struct_of_struct": pa.array(_some(lambda row: {"p": {"x": row, "y": "q"}})),
        "fixed_list_of_struct": pa.array(
            _some(lambda row: [{"x": row, "y": "a"}, {"x": 1, "y": None}]), type=pa.list_(point, 2)
        ),
        "struct_of_list": pa.array(_some(lambda row: {"items": [row, row + 1]})),
        "map": pa.array(
            _some(lambda row: [(str(row), row)]), type=pa.map_(pa.string(), pa.int32())
        ),
        "sparse_union": pa.UnionArray.from_sparse(
            pa.array([row % 2 for row in range(ROWS)], type=pa.int8()),
            [pa.array([str(row) for row in range(ROWS)]), pa.array(range(ROWS))],
        ),
        "dense_union": pa.UnionArray.from_dense(
            pa.array([row % 2 for row in range(ROWS)], type=pa.int8()),
            pa.array([row // 2 for row in range(ROWS)], type=pa.int32()),
            [pa.array([str(row) for row in range(ROWS)]), pa.array(range(ROWS))],
        ),
        "run_end_encoded": pa.RunEndEncodedArray.from_arrays(
            pa.array([4, ROWS], type=pa.int32()), pa.array(["a", None])
        ),
    }


def others() -> dict[str, pa.Array]:
    """More arrays by name, so that all types that pyarrow makes are there, with the units that `samples` leaves out and types within extension types."""
    words = pa.array(["xy"[row % 2] for row in range(ROWS)])
    plain = {
        "decimal32": pa.array(_some(decimal.Decimal), type=pa.decimal32(7, 2)),
        "decimal64": pa.array(_some(decimal.Decimal), type=pa.decimal64(15, 2)),
        "time32_ms": pa.array(_some(int), type=pa.time32("ms")),
        "time64_ns": pa.array(_some(int), type=pa.time64("ns")),
        "timestamp_us": pa.array(_some(int), type=pa.timestamp("us")),
        "duration_s": pa.array(_some(int), type=pa.duration("s")),
        "duration_ns": pa.array(_some(int), type=pa.duration("ns")),
        "list_view": pa.array(_some(lambda row: [row, None]), type=pa.list_view(pa.int64())),
        "large_list_view": pa.array(
            _some(lambda row: [str(row)]), type=pa.large_list_view(pa.string())
        ),
        "list_of_dictionary": pa.ListArray.from_arrays(
            pa.array(range(ROWS + 1), type=pa.int32()), words.dictionary_encode()
        ),
        "dictionary_large": pa.DictionaryArray.from_arrays(
            pa.array(_some(lambda row: row % 2), type=pa.int64()),
            pa.array(["x", "y"], type=pa.large_string()),
        ),
        "run_end_int16": pa.RunEndEncodedArray.from_arrays(
            pa.array([4, ROWS], type=pa.int16()), pa.array([1.5, None])
        ),
    }
    within = {
        "uuid": (pa.uuid(), pa.array(_some(lambda row: bytes([row] * 16)), type=pa.binary(16))),
        "json": (pa.json_(), pa.array(_some(lambda row: f'{{"a": {row}}}'))),
        "bool8": (pa.bool8(), pa.array(_some(lambda row: row % 2), type=pa.int8())),
        "opaque": (
            pa.opaque(pa.int64(), "thing", "partgrid"),
            pa.array(_some(int), type=pa.int64()),
        ),
        "tensor": (
            pa.fixed_shape_tensor(pa.int32(), (2,)),
            pa.array(_some(lambda row: [row, 1]), type=pa.list_(pa.int32(), 2)),
        ),
    }
    extended = {
        name: pa.ExtensionArray.from_storage(kind, storage)
        for name, (kind, storage) in within.items()
    }
    return plain | extended


def of_two_tiles(letters: str = "ab") -> pa.Table:
    """A dictionary of 100 values in each of two chunks, with keys that count 128."""
    keys = pa.array([row % 100 for row in range(150)], pa.int8())
    parts = [
        pa.table(
            {
                "id": range(base, base + 150),
                "c": pa.DictionaryArray.from_arrays(keys, [f"{x}{n}" for n in range(100)]),
            }
        )
        for base, x in zip((0, 150), letters, strict=True)
    ]
    return pa.concat_tables(parts)


def nested(num_rows: int) -> pa.Table:
    """Lists with long offsets, and structs with lists."""
    numbers = range(num_rows)
    lists = [
        None if x % 5 == 4 else [x, None] if x % 5 == 3 else [x % 4] * (x % 3) for x in numbers
    ]
    structs = [{"a": x % 4 or None, "l": ["t"] * (x % 2)} for x in numbers]
    kind = pa.struct([("a", pa.int64()), ("l", pa.large_list(pa.string()))])
    columns = {
        "k": pa.array([x % 3 for x in numbers]),
        "x": pa.array(numbers),
        "l": pa.array(lists, pa.large_list(pa.int64())),
        "s": pa.array(structs, kind),
    }
    return pa.table(columns)
