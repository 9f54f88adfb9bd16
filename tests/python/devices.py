"""A device whose memory faults when anybody but its driver touches it, and what tests want of it."""

from __future__ import annotations

import ctypes
import mmap
import threading

PROT_NONE, PROT_BOTH = 0, 3
_libc = ctypes.CDLL(None, use_errno=True)


def has_cuda() -> bool:
    """Whether the library of the driver of CUDA can be loaded."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class Faulting:
    """A driver. Its handles are addresses of pages that may not be read or written: whoever reads them on the host is ended by the system at once."""

    def __init__(self) -> None:
        self.buffers: dict[int, mmap.mmap] = {}
        self.read_bytes = 0
        self.waited: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def _open(self, pages: mmap.mmap, handle: int, rights: int) -> None:
        assert _libc.mprotect(ctypes.c_void_p(handle), ctypes.c_size_t(len(pages)), rights) == 0, (
            ctypes.get_errno()
        )

    def read(self, _ordinal: int, handle: int, start: int, nbytes: int) -> bytes:
        pages = self.buffers[handle]
        with self._lock:
            self._open(pages, handle, PROT_BOTH)
            data = bytes(pages[start : start + nbytes])
            self._open(pages, handle, PROT_NONE)
        self.read_bytes += nbytes
        return data

    def write(self, _ordinal: int, data: bytes) -> tuple[int, Pages]:
        pages = mmap.mmap(-1, max(len(data), 1))
        pages[: len(data)] = data
        handle = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        self._open(pages, handle, PROT_NONE)
        self.buffers[handle] = pages
        return handle, Pages(self, handle)

    def wait(self, ordinal: int, event: int) -> None:
        self.waited.append((ordinal, event))


class Pages:
    """Frees a buffer with itself."""

    def __init__(self, driver: Faulting, handle: int) -> None:
        self.driver, self.handle = driver, handle

    def __del__(self) -> None:
        del self.driver.buffers[self.handle]
