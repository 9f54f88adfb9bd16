"""The Arrow PyCapsule interface, as rules that any producer can be held against.

Comes in: an object with some of the methods. Goes out: the names of the rules that it breaks, each with what was seen. Source: "The Arrow PyCapsule
Interface" and "The Arrow C Device data interface" of the Arrow documents.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

RULES: dict[str, tuple[str, Callable[[Any], Iterator[str]]]] = {}

# Method, names of its capsules.
STREAM, ARRAY, SCHEMA = "__arrow_c_stream__", "__arrow_c_array__", "__arrow_c_schema__"
DEVICE_ARRAY, DEVICE_STREAM = "__arrow_c_device_array__", "__arrow_c_device_stream__"

capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def rule(name: str, method: str) -> Callable[[Any], Any]:
    """Adds a rule of producers that have a method."""

    def add(function: Any) -> Any:
        RULES[name] = (method, function)
        return function

    return add


def deviations(producer: Any) -> dict[str, str]:
    """The rules that a producer breaks, with the first thing that was seen of each. Rules of methods that it has not do not count."""
    broken = {}
    for name, (method, check) in RULES.items():
        if not hasattr(producer, method):
            continue
        try:
            seen = next(check(producer), None)
        except Exception as error:
            seen = f"raised {type(error).__name__}: {error}"
        if seen is not None:
            broken[name] = seen
    return broken


def name_of(capsule: Any) -> str:
    if type(capsule).__name__ != "PyCapsule":
        return f"a {type(capsule).__name__}"
    return capsule_name(capsule).decode()


def names_differ(found: Any, wanted: list[str]) -> Iterator[str]:
    found = list(found) if isinstance(found, tuple) else [found]
    names = [name_of(each) for each in found]
    if names != wanted:
        yield f"{names} in the place of {wanted}"


def read(producer: Any) -> pa.Table:
    return pa.table(producer) if hasattr(producer, STREAM) else pa.table(pa.record_batch(producer))


@rule("stream: one capsule", STREAM)
def stream_name(producer: Any) -> Iterator[str]:
    yield from names_differ(producer.__arrow_c_stream__(), ["arrow_array_stream"])


@rule("stream: None for no wish", STREAM)
def stream_none(producer: Any) -> Iterator[str]:
    yield from names_differ(producer.__arrow_c_stream__(None), ["arrow_array_stream"])


@rule("stream: can be asked for twice", STREAM)
def stream_twice(producer: Any) -> Iterator[str]:
    first, second = (pa.RecordBatchReader.from_stream(producer).read_all() for _ in range(2))
    if not first.equals(second):
        yield f"{first.num_rows} rows, then {second.num_rows}"


@rule("stream: its schema is that of its batches", STREAM)
def stream_schema(producer: Any) -> Iterator[str]:
    reader = pa.RecordBatchReader.from_stream(producer)
    for batch in reader:
        batch.validate(full=True)
        if not batch.schema.equals(reader.schema):
            yield f"{batch.schema} in a stream of {reader.schema}"


@rule("stream: a wish for its own schema changes nothing", STREAM)
def stream_same_schema(producer: Any) -> Iterator[str]:
    reader = pa.RecordBatchReader.from_stream(producer)
    plain = reader.read_all()
    asked = producer.__arrow_c_stream__(reader.schema.__arrow_c_schema__())
    if not pa.RecordBatchReader._import_from_c_capsule(asked).read_all().equals(plain):
        yield "other values"


@rule("stream: an unread capsule is released with it", STREAM)
def stream_dropped(producer: Any) -> Iterator[str]:
    for _ in range(3):
        producer.__arrow_c_stream__()
    if read(producer).num_rows < 0:
        yield "no rows"


@rule("array: two capsules", ARRAY)
def array_names(producer: Any) -> Iterator[str]:
    yield from names_differ(producer.__arrow_c_array__(), ["arrow_schema", "arrow_array"])


@rule("array: can be asked for twice", ARRAY)
def array_twice(producer: Any) -> Iterator[str]:
    first, second = (
        pa.RecordBatch._import_from_c_capsule(*producer.__arrow_c_array__()) for _ in range(2)
    )
    first.validate(full=True)
    if not first.equals(second):
        yield "other values"


@rule("device array: two capsules", DEVICE_ARRAY)
def device_names(producer: Any) -> Iterator[str]:
    found = producer.__arrow_c_device_array__()
    yield from names_differ(found, ["arrow_schema", "arrow_device_array"])


@rule("device array: unknown keywords are refused unless they are None", DEVICE_ARRAY)
def device_keywords(producer: Any) -> Iterator[str]:
    producer.__arrow_c_device_array__(None, later=None)
    try:
        producer.__arrow_c_device_array__(None, later=1)
    except NotImplementedError:
        return
    yield "a keyword of the future was ignored"


@rule("device stream: one capsule", DEVICE_STREAM)
def device_stream_name(producer: Any) -> Iterator[str]:
    yield from names_differ(producer.__arrow_c_device_stream__(), ["arrow_device_array_stream"])


@rule("schema: one capsule", SCHEMA)
def schema_name(producer: Any) -> Iterator[str]:
    yield from names_differ(producer.__arrow_c_schema__(), ["arrow_schema"])


@rule("schema: that of the data", SCHEMA)
def schema_same(producer: Any) -> Iterator[str]:
    schema = pa.schema(producer)
    if hasattr(producer, STREAM) or hasattr(producer, ARRAY):
        found = read(producer).schema
        if not found.equals(schema):
            yield f"{schema}, the data has {found}"
