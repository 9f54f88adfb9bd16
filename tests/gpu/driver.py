"""What tests need of the driver of CUDA besides what partgrid uses: streams, events, kernels, pointers, plain copies."""

from __future__ import annotations

import ctypes
from typing import Any

# Waits for so many cycles, then writes a number into every element.
PTX = b"""
.version VERSION
.target TARGET
.address_size 64
.visible .entry late(.param .u64 out, .param .u64 value, .param .u64 count, .param .u64 cycles)
{
    .reg .u64 %place, %value, %left, %cycles, %begin, %now;
    .reg .pred %more;
    ld.param.u64 %place, [out];
    ld.param.u64 %value, [value];
    ld.param.u64 %left, [count];
    ld.param.u64 %cycles, [cycles];
    cvta.to.global.u64 %place, %place;
    mov.u64 %begin, %clock64;
WAIT:
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %more, %now, %cycles;
    @%more bra WAIT;
FILL:
    st.global.u64 [%place], %value;
    add.u64 %place, %place, 8;
    sub.u64 %left, %left, 1;
    setp.gt.u64 %more, %left, 0;
    @%more bra FILL;
    ret;
}
\0"""
# What drivers of CUDA 13 still compile for, and what GPUs before that want.
TARGETS = [(b"6.3", b"sm_75"), (b"6.0", b"sm_50")]


class Driver:
    """The driver, with the primary context of a GPU current on this thread until the end of a `with` block."""

    def __init__(self, ordinal: int = 0) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.ordinal = ordinal
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name} failed with error {code}"

    def made(self, name: str, *arguments: Any) -> int:
        """Of functions that put a handle into their first argument."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def __enter__(self) -> Driver:
        self.before = ctypes.c_void_p(self.current())
        self.context = self.made("cuDevicePrimaryCtxRetain", self.ordinal)
        self.call("cuCtxSetCurrent", ctypes.c_void_p(self.context))
        return self

    def __exit__(self, *_: object) -> None:
        self.call("cuCtxSetCurrent", self.before)
        self.call("cuDevicePrimaryCtxRelease_v2", self.ordinal)

    def current(self) -> int:
        return self.made("cuCtxGetCurrent")

    def stream(self) -> int:
        """A stream that does not wait for the legacy one."""
        return self.made("cuStreamCreate", ctypes.c_uint(1))

    def event(self, stream: int) -> ctypes.c_void_p:
        """Recorded in a stream. Its address is what a `sync_event` leads by."""
        event = ctypes.c_void_p(self.made("cuEventCreate", ctypes.c_uint(2)))
        self.call("cuEventRecord", event, ctypes.c_void_p(stream))
        return event

    def is_done(self, event: ctypes.c_void_p) -> bool:
        return self.library.cuEventQuery(event) == 0

    def module(self) -> int:
        """The kernel for the first target that the GPU and its driver take."""
        module, codes = ctypes.c_void_p(), []
        for version, target in TARGETS:
            image = PTX.replace(b"VERSION", version).replace(b"TARGET", target)
            codes.append(self.library.cuModuleLoadData(ctypes.byref(module), image))
            if codes[-1] == 0:
                return module.value or 0
        raise AssertionError(f"cuModuleLoadData failed with errors {codes}")

    def write_late(self, place: int, value: int, count: int, stream: int) -> None:
        """Writes numbers in a stream, some tenths of a second from now."""
        module = ctypes.c_void_p(self.module())
        kernel = ctypes.c_void_p(self.made("cuModuleGetFunction", module, b"late"))
        values = [ctypes.c_uint64(each) for each in (place, value, count, 500_000_000)]
        pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(each) for each in values))
        grid = [ctypes.c_uint(1)] * 6
        self.call(
            "cuLaunchKernel",
            kernel,
            *grid,
            ctypes.c_uint(0),
            ctypes.c_void_p(stream),
            pointers,
            None,
        )

    def is_on_device(self, place: int) -> bool:
        kind = ctypes.c_uint()
        self.call(
            "cuPointerGetAttribute", ctypes.byref(kind), ctypes.c_int(2), ctypes.c_uint64(place)
        )
        return kind.value == 2

    def allocate(self, nbytes: int) -> int:
        return self.made("cuMemAlloc_v2", ctypes.c_size_t(nbytes))

    def free(self, place: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(place))

    def to_device(self, place: int, address: int, nbytes: int) -> None:
        self.call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(place),
            ctypes.c_void_p(address),
            ctypes.c_size_t(nbytes),
        )
        self.call("cuStreamSynchronize", None)

    def to_host(self, address: int, place: int, nbytes: int) -> None:
        self.call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(address),
            ctypes.c_uint64(place),
            ctypes.c_size_t(nbytes),
        )
