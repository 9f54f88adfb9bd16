"""Structs of Arrow and DLPack in ctypes, in capsules that count how often they are released; what a consumer does with them."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pyarrow as pa

import partgrid as pg

Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
CPU, CUDA = 1, 2


class Schema(ctypes.Structure):
    """`ArrowSchema`."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class Array(ctypes.Structure):
    """`ArrowArray`."""

    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.c_void_p),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class Stream(ctypes.Structure):
    """`ArrowArrayStream`."""

    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class DeviceArray(ctypes.Structure):
    """`ArrowDeviceArray`."""

    _fields_ = (
        ("array", Array),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    )


class DeviceStream(ctypes.Structure):
    """`ArrowDeviceArrayStream`."""

    _fields_ = (
        ("device_type", ctypes.c_int32),
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = (
        ("tensor", Tensor),
        ("manager_ctx", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
    )


class Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


NAMES: dict[type[ctypes.Structure], bytes] = {
    Schema: b"arrow_schema",
    Array: b"arrow_array",
    Stream: b"arrow_array_stream",
    DeviceArray: b"arrow_device_array",
    DeviceStream: b"arrow_device_array_stream",
    Managed: b"dltensor",
    Versioned: b"dltensor_versioned",
}
BATCH = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, "z"]})
# Callbacks that C code may still call.
KEPT: list[Any] = []


class Counted:
    """A struct in a capsule, and how often it was released."""

    def __init__(self, struct: ctypes.Structure, name: bytes | None = None) -> None:
        self.count = 0
        self.struct = struct
        holder = struct.array if isinstance(struct, DeviceArray) else struct
        theirs = Release(holder.release) if holder.release else None

        def release(address: int) -> None:
            self.count += 1
            if theirs is not None:
                theirs(address)

        ours = Release(release)
        holder.release = ctypes.cast(ours, ctypes.c_void_p).value
        name = name or NAMES[type(struct)]
        address = ctypes.addressof(struct)

        def destroy(capsule: int) -> None:
            # A consumer of DLPack has renamed the capsule, one of Arrow has left an empty struct behind.
            if is_valid(capsule, name) and holder.release:
                Release(holder.release)(address)

        destructor = Destroy(destroy)
        KEPT.extend([struct, ours, theirs, destructor, name])
        self.capsule: Any = new_capsule(address, name, destructor)


def new_capsule(address: int, name: bytes, destructor: Any) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, name, ctypes.cast(destructor, ctypes.c_void_p))


def is_valid(capsule: int, name: bytes) -> bool:
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return bool(valid(capsule, name))


def schema_struct(batch: pa.RecordBatch = BATCH) -> Schema:
    struct = Schema()
    batch.schema._export_to_c(ctypes.addressof(struct))
    return struct


def array_struct(batch: pa.RecordBatch = BATCH) -> Array:
    struct = Array()
    batch._export_to_c(ctypes.addressof(struct))
    return struct


def stream_struct() -> Stream:
    struct = Stream()
    reader = pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH, BATCH])
    reader._export_to_c(ctypes.addressof(struct))
    return struct


def device_struct(device: int = CPU, event: int | None = None) -> DeviceArray:
    return DeviceArray(array_struct(), -1, device, event, (ctypes.c_int64 * 3)())


def device_stream_struct(device: int = CPU) -> ctypes.Structure:
    # pyarrow makes none.
    table = pa.Table.from_batches([BATCH, BATCH])
    struct = taken(pg.from_arrow(table).__arrow_c_device_stream__(), DeviceStream)
    struct.device_type = device
    return struct


def tensor_of(device: int = CPU, ndim: int = 1, code: int = 2) -> Tensor:
    values, shape = np.arange(6.0), (ctypes.c_int64 * 3)(6, 1, 1)
    KEPT.extend([values, shape])
    place = ctypes.addressof(shape)
    return Tensor(values.ctypes.data, device, 0, ndim, code, 64, 1, place, None, 0)


class Producer:
    """An object with one method that returns what it was given."""

    given: Any


def produce(method: str, given: Any) -> Any:
    source = type("Made", (Producer,), {method: lambda self, **_: self.given})()
    source.given = given
    return source


def no_format() -> Schema:
    struct = schema_struct()
    struct.format = b"?"
    KEPT.append(struct.format)
    return struct


def too_long() -> Array:
    struct = array_struct()
    struct.n_children = 1
    return struct


def released(*counted: Counted) -> list[int]:
    """The counts after all that holds the structs is gone."""
    for each in counted:
        del each.capsule
    gc.collect()
    return [each.count for each in counted]


def taken(capsule: Any, kind: type[ctypes.Structure]) -> ctypes.Structure:
    """What a consumer does: the struct is moved out of the capsule."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    inside = kind.from_address(pointer(capsule, NAMES[kind]))
    if kind is Versioned:
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        rename(capsule, b"used_dltensor_versioned")
        return inside
    moved = kind.from_buffer_copy(inside)
    (inside.array if kind is DeviceArray else inside).release = None
    return moved


def release(struct: Any) -> None:
    holder = struct.array if isinstance(struct, DeviceArray) else struct
    Release(holder.release)(ctypes.addressof(struct))
    if not isinstance(struct, Versioned):
        assert not holder.release, "the callback says that it was called"
