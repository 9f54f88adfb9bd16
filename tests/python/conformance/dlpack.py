"""DLPack in Python (array API standard 2024.12), as rules that any producer can be held against.

Comes in: an array with `__dlpack__` in the memory of the CPU. Goes out: the names of the rules that it breaks, each with what was seen.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

RULES: dict[str, Callable[[Any], Iterator[str]]] = {}
LEGACY, VERSIONED = "dltensor", "dltensor_versioned"

capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]


def rule(name: str) -> Callable[[Any], Any]:
    """Adds a rule under a name."""

    def add(function: Any) -> Any:
        RULES[name] = function
        return function

    return add


def deviations(producer: Any) -> dict[str, str]:
    """The rules that a producer breaks, with the first thing that was seen of each."""
    broken = {}
    for name, check in RULES.items():
        try:
            seen = next(check(producer), None)
        except Exception as error:
            seen = f"raised {type(error).__name__}: {str(error).splitlines()[0]}"
        if seen is not None:
            broken[name] = seen
    return broken


class Asked:
    """Passes on what a producer gives for some arguments."""

    def __init__(self, producer: Any, **arguments: Any) -> None:
        self.producer, self.arguments = producer, arguments

    def __dlpack__(self, **_: Any) -> Any:
        return self.producer.__dlpack__(**self.arguments)

    def __dlpack_device__(self) -> Any:
        return self.producer.__dlpack_device__()


def plain(producer: Any) -> Any:
    """The producer's own view of its memory."""
    has_array = hasattr(producer, "__array__") or hasattr(producer, "__array_interface__")
    return np.asarray(producer) if has_array else np.from_dlpack(producer)


def name_of(capsule: Any) -> str:
    return capsule_name(capsule).decode()


def raises(kinds: tuple[type[Exception], ...], call: Callable[[], Any]) -> Iterator[str]:
    try:
        call()
    except kinds:
        return
    yield "nothing was raised"


@rule("device: a tuple of two integers, the CPU")
def device(producer: Any) -> Iterator[str]:
    found = producer.__dlpack_device__()
    if not isinstance(found, tuple) or tuple(map(int, found)) != (1, 0):
        yield repr(found)


@rule("a versioned capsule for a consumer of version 1")
def versioned(producer: Any) -> Iterator[str]:
    found = name_of(producer.__dlpack__(max_version=(1, 0)))
    if found != VERSIONED:
        yield found


@rule("a legacy capsule, or BufferError, for others")
def legacy(producer: Any) -> Iterator[str]:
    for arguments in ({}, {"max_version": None}, {"max_version": (0, 8)}):
        try:
            found = name_of(producer.__dlpack__(**arguments))
        except BufferError:
            continue
        if found != LEGACY:
            yield f"{found} for {arguments}"


@rule("version 2 gets version 1")
def later(producer: Any) -> Iterator[str]:
    found = name_of(producer.__dlpack__(max_version=(2, 0)))
    if found != VERSIONED:
        yield found


@rule("the values")
def values(producer: Any) -> Iterator[str]:
    found = np.from_dlpack(Asked(producer, max_version=(1, 0)))
    if not np.array_equal(found, plain(producer)):
        yield repr(found)


@rule("copy=True: memory of its own")
def copied(producer: Any) -> Iterator[str]:
    found = np.from_dlpack(Asked(producer, max_version=(1, 0), copy=True))
    if np.shares_memory(found, plain(producer)):
        yield "the same memory"


@rule("copy=False: the same memory")
def shared(producer: Any) -> Iterator[str]:
    found = np.from_dlpack(Asked(producer, max_version=(1, 0), copy=False))
    if not np.shares_memory(found, plain(producer)):
        yield "other memory"


@rule("read-only memory is marked so")
def read_only(producer: Any) -> Iterator[str]:
    found = np.from_dlpack(Asked(producer, max_version=(1, 0)))
    if found.flags.writeable and not plain(producer).flags.writeable:
        yield "it can be written"


@rule("dl_device: its own is given")
def own_device(producer: Any) -> Iterator[str]:
    own = producer.__dlpack_device__()
    found = name_of(producer.__dlpack__(max_version=(1, 0), dl_device=own))
    if found != VERSIONED:
        yield found


@rule("dl_device: a device that is not there is refused")
def other_device(producer: Any) -> Iterator[str]:
    wanted = {"max_version": (1, 0), "dl_device": (2, 99)}
    kinds = (BufferError, ValueError, NotImplementedError, RuntimeError)
    yield from raises(kinds, lambda: producer.__dlpack__(**wanted))


@rule("stream: None on the CPU, others are refused")
def stream(producer: Any) -> Iterator[str]:
    producer.__dlpack__(max_version=(1, 0), stream=None)
    kinds = (BufferError, ValueError, NotImplementedError, RuntimeError, AssertionError)
    yield from raises(kinds, lambda: producer.__dlpack__(max_version=(1, 0), stream=5))


@rule("unused capsules do no harm")
def unused(producer: Any) -> Iterator[str]:
    for _ in range(3):
        producer.__dlpack__(max_version=(1, 0))
    yield from values(producer)
