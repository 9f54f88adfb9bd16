"""A consumer of the extended buffer protocol in ctypes, and memory of the host and of a device to ask for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import partgrid as pg

FULL_RO, SIMPLE, WRITABLE, ND, STRIDES, C_CONTIGUOUS = 0x11C, 0, 1, 8, 0x18, 0x38
F_CONTIGUOUS, ANY_CONTIGUOUS, FORMAT = 0x58, 0x98, 4
CANARY = 0xA5
VALUES = [float(number) for number in range(1000)]


class Plain(ctypes.Structure):
    """`Py_buffer`."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


class Extended(ctypes.Structure):
    """The same, and what the draft puts behind it."""

    _fields_ = (
        ("base", Plain),
        ("flags", ctypes.c_int),
        ("ext_flags", ctypes.c_int),
        ("device", ctypes.c_char_p),
        ("device_info", ctypes.c_void_p),
    )


class Info(ctypes.Structure):
    """What `device_info` leads to."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int64),
        ("sync_event", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 4),
    )


class Watched(ctypes.Structure):
    """A struct, and bytes that nobody may touch."""

    _fields_ = (("extended", Extended), ("canary", ctypes.c_ubyte * 64))


# Not `ctypes.pythonapi`, whose functions have one signature for all who use them.
PYTHON = ctypes.PyDLL(None)
get_buffer = PYTHON.PyObject_GetBuffer
get_buffer.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
release_buffer = PYTHON.PyBuffer_Release
release_buffer.argtypes, release_buffer.restype = [ctypes.c_void_p], None


class Consumer:
    """Asks with the struct that the draft describes, the handshake as told."""

    def __init__(self, *, flag: bool = True, cookie: bool = True) -> None:
        self.watched = Watched()
        ctypes.memset(ctypes.addressof(self.watched.canary), CANARY, 64)
        self.flag = pg.buffer.DEVICE if flag else 0
        self.cookie = cookie

    @property
    def extended(self) -> Extended:
        return self.watched.extended

    def ask(self, obj: Any, flags: int = FULL_RO) -> Extended:
        ctypes.memset(ctypes.addressof(self.extended), 0, ctypes.sizeof(Extended))
        if self.cookie:
            self.extended.base.internal = pg.buffer.COOKIE
        get_buffer(obj, ctypes.addressof(self.watched), flags | self.flag)
        return self.extended

    def release(self) -> None:
        release_buffer(ctypes.addressof(self.watched))

    def is_untouched(self) -> bool:
        """Whether nobody wrote behind the plain struct."""
        behind = bytes(self.watched)[ctypes.sizeof(Plain) :]
        return behind == bytes(24) + bytes([CANARY] * 64)

    def is_within(self) -> bool:
        """Whether nobody wrote behind the extended struct."""
        return bytes(self.watched.canary) == bytes([CANARY] * 64)


def grid() -> pg.Grid:
    return pg.from_arrow(pa.table({"x": VALUES, "n": pa.array([None, *range(999)], pa.int32())}))


def on_device() -> Any:
    return grid().to("kDLExtDev:3").tile(0).column("x")


def on_host() -> Any:
    return grid().tile(0).column("x")


def storage() -> Any:
    made = pg.storage.empty((1000,), "float64")
    np.asarray(made)[:] = VALUES
    return made


HOSTS: dict[str, Callable[[], Any]] = {"array": on_host, "storage": storage}
