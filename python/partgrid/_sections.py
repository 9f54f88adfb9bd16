"""What the ranks of a program tell each other of their sections of a distributed array.

Comes in: whatever a rank has for its section. Goes out: everything but the elements, as objects that pickle, and on the other ranks a stand-in of which the
engine says the same. Never here: elements on their way between ranks, judgement of a section.
"""

from __future__ import annotations

import pickle
from typing import Any

# A section, a part of it, or whatever stands there instead.
Value = Any
# The module numpy, imported only for those who have arrays.
Numpy = Any

# What pickles and means the same everywhere; of subclasses, such as those of enum, the value is told.
PLAIN = (bool, int, float, str)


def alike(section: Value, np: Numpy) -> Value:
    """The section with a format of its elements that is written alike on all ranks: what ctypes calls `<d` is `d` for numpy."""
    if not isinstance(section, dict) or "buffer" not in section:
        return section
    view = _view(section["buffer"], np)
    if view is None or memoryview(view).format == memoryview(section["buffer"]).format:
        return section
    return {**section, "buffer": view}


def told(value: Value, np: Numpy, key: Value = None) -> Value:
    """What other ranks need to know of a section. Only `indices` are told in full; what would not pickle is told by name."""
    if value is None or isinstance(value, PLAIN):
        return next((plain(value) for plain in PLAIN if isinstance(value, plain)), None)
    if isinstance(value, dict):
        return {told(each, np): told(value[each], np, each) for each in value}
    if isinstance(value, (list, tuple)):
        kind = list if isinstance(value, list) else tuple
        return kind(told(each, np) for each in value)
    class_ = type(value)
    if hasattr(class_, "__index__") and not hasattr(class_, "__len__"):
        return _Object(class_.__name__, int(value.__index__()))
    view = _view(value, np)
    if view is None:
        return _Object(class_.__name__, None)
    return np.array(view) if key == "indices" else _Buffer(view.dtype, view.shape)


def stand_in(heard: Value, np: Numpy) -> Value:
    """A section as another rank told of it: its buffer has the shape, over one element."""
    if isinstance(heard, dict):
        return {stand_in(key, np): stand_in(value, np) for key, value in heard.items()}
    if isinstance(heard, (list, tuple)):
        return type(heard)(stand_in(each, np) for each in heard)
    if isinstance(heard, _Buffer):
        return np.broadcast_to(np.zeros((), heard.dtype), heard.shape)
    if isinstance(heard, _Object):
        index = heard.index
        return type(heard.name, (), {} if index is None else {"__index__": lambda _: index})()
    return heard


def _view(buffer: Value, np: Numpy) -> Value:
    """The memory of a buffer as numpy sees it, with the type that another rank makes of its text; nothing where numpy sees none."""
    try:
        view = np.asarray(memoryview(buffer))
    except Exception:
        return None
    plain = not view.dtype.fields
    return view.view(np.dtype(view.dtype.str) if plain else pickle.loads(pickle.dumps(view.dtype)))


class _Buffer:
    """A buffer without its elements."""

    def __init__(self, dtype: Value, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape


class _Object:
    """An object that the protocol does not have: the name of its class, and the integer that it stands for, if any."""

    def __init__(self, name: str, index: int | None) -> None:
        self.name, self.index = name, index
