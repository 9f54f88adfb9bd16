"""A program that asks for buffers with the flag for devices by ways that have only a plain struct, for any Python from 3.12 on, without other libraries.

Run under `PYTHONMALLOC=debug`, which ends the process when a byte behind a struct was written. With `overflow` as argument it writes one itself.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys

import partgrid as pg

FLAGS = [0, *inspect.BufferFlags, inspect.BufferFlags.FULL_RO | inspect.BufferFlags.FULL]


class Cards:
    """A device whose memory is a dict."""

    def __init__(self) -> None:
        self.buffers: dict[int, bytes] = {}

    def read(self, _ordinal: int, handle: int, start: int, nbytes: int) -> bytes:
        return self.buffers[handle][start : start + nbytes]

    def write(self, _ordinal: int, data: bytes) -> tuple[int, None]:
        self.buffers[len(self.buffers) + 1] = data
        return len(self.buffers), None

    def wait(self, _ordinal: int, _event: int) -> None:
        pass


def overflow() -> None:
    """What a producer does that takes any struct for an extended one."""
    block = ctypes.pythonapi.PyMem_Malloc
    block.restype, block.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free = ctypes.pythonapi.PyMem_Free
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    place = block(80)
    ctypes.memset(place + 80, 0, 24)
    free(place)


def ask(obj: object, flags: int) -> tuple[int, int]:
    """How many of the two ways gave a view and how many were refused."""
    given = refused = 0
    for way in (lambda: obj.__buffer__(flags), lambda: memoryview._from_flags(obj, flags)):
        try:
            way().release()
            given += 1
        except BufferError:
            refused += 1
    return given, refused


def main() -> None:
    """Prints what was given and refused of each kind of object."""
    if sys.argv[1:] == ["overflow"]:
        overflow()
    pg.register_copy_engine("kDLExtDev", Cards())
    flights = pg.read_parquet("data/flights", columns=["distance"])
    here = flights.tile(0)
    there = here.to("kDLExtDev:0")
    exporters = {
        "array": here.column("distance"),
        "storage": pg.storage.zeros((5, 3)),
        "device": there.column("distance"),
    }
    for name, obj in exporters.items():
        given = refused = 0
        for _ in range(100):
            for flags in FLAGS:
                # Python 3.13 knows of these two that they are no requests.
                if flags in (inspect.BufferFlags.READ, inspect.BufferFlags.WRITE):
                    continue
                some = ask(obj, int(flags) | pg.buffer.DEVICE)
                given, refused = given + some[0], refused + some[1]
        print(name, given > 0, refused > 0)

    class Through:
        """Passes the flags on to another object."""

        def __init__(self, inner: object) -> None:
            self.inner = inner

        def __buffer__(self, flags: int) -> memoryview:
            return self.inner.__buffer__(flags)

    with pg.buffer.get_buffer(Through(exporters["array"])) as buffer:
        print("through", buffer.device, buffer.nbytes == 8 * len(exporters["array"]))
    try:
        pg.buffer.get_buffer(Through(exporters["device"]))
    except BufferError as error:
        print("through", "kDLExtDev" in str(error))
    with pg.buffer.get_buffer(exporters["device"]) as buffer:
        print("extended", buffer.device_info)
    gc.collect()


main()
