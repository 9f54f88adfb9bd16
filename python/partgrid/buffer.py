"""The extended buffer protocol: memory of devices under the buffer interface of Python.

`get_buffer` asks any object for its memory, wherever that is, and says where. `supports` asks what an object could be asked for.
Extensions in C import the capsule `partgrid.buffer.C_API`. docs/devices.md has the structs and the rules, which are those of the draft
"Extended buffer protocol PEP draft for device memory support".
"""

from __future__ import annotations

from typing import Final

from partgrid._native import (
    BUFFER_COOKIE,
    BUFFER_DEVICE,
    BUFFER_DEVICE_NAME,
    BUFFER_INFO_BYTES,
    BUFFER_INFO_VERSION,
    BUFFER_STRUCT_BYTES,
    ExtendedBuffer,
    _buffer_interface,
    get_buffer,
    supports,
)

DEVICE: Final = BUFFER_DEVICE
"""The request flag of consumers that know devices: `PyBUF_DEVICE` of the draft, which gives it no number."""

COOKIE: Final = BUFFER_COOKIE
"""What such a consumer puts into `internal` of its struct before it asks. Without it the flag counts as not passed."""

DEVICE_NAME: Final = BUFFER_DEVICE_NAME
"""The name by which partgrid describes a device; `device_info` is then a struct of `INFO_SIZE` bytes."""

STRUCT_SIZE: Final = BUFFER_STRUCT_BYTES
"""The bytes of the extended struct."""

INFO_SIZE: Final = BUFFER_INFO_BYTES
"""The bytes of the struct that describes a device."""

INFO_VERSION: Final = BUFFER_INFO_VERSION
"""The version of that struct."""

C_API: Final = _buffer_interface()
"""The capsule for extensions in C."""

__all__ = [
    "COOKIE",
    "C_API",
    "DEVICE",
    "DEVICE_NAME",
    "INFO_SIZE",
    "INFO_VERSION",
    "STRUCT_SIZE",
    "ExtendedBuffer",
    "get_buffer",
    "supports",
]
