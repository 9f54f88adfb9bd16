"""Skips, by name and with the reason, what wants a GPU of NVIDIA where there is none."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))


def missing() -> str | None:
    """Why no GPU can be used; `None` when one can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "the driver of CUDA (libcuda.so.1) is not on this machine"
    if code := driver.cuInit(0):
        return f"the driver of CUDA does not start: error {code}"
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    return None if count.value else "the driver of CUDA finds no GPU"


MISSING = missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all tests of this folder but those of machines without a GPU."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        without = item.get_closest_marker("without_gpu") is not None
        if MISSING is not None and not without:
            item.add_marker(pytest.mark.skip(reason=MISSING))
        if MISSING is None and without:
            item.add_marker(pytest.mark.skip(reason="there is a GPU on this machine"))


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line("markers", "without_gpu: of machines without a GPU")
