"""The draft of the Partitioned Protocol (2022-01-27), as rules that any producer can be held against.

Comes in: an object with `__partitioned__`. Goes out: the names of the rules that it breaks, each with what was seen. Rules marked "beyond" are not in the
draft; its real consumers need them.
"""

from __future__ import annotations

import inspect
import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

Dictionary = dict[str, Any]
RULES: dict[str, Callable[[Any, Dictionary], Iterator[str]]] = {}


def rule(name: str) -> Callable[[Any], Any]:
    """Adds a rule under a name."""

    def add(function: Any) -> Any:
        RULES[name] = function
        return function

    return add


def deviations(producer: Any) -> dict[str, str]:
    """The rules that a producer breaks, with the first thing that was seen of each."""
    found = inspect.getattr_static(type(producer), "__partitioned__", None)
    if inspect.isfunction(found):
        return {"property": "it is a method"}
    description = producer.__partitioned__
    if type(description) is not dict:
        return {"plain dict": f"it is a {type(description).__name__}"}
    broken = {}
    for name, check in RULES.items():
        try:
            seen = next(check(producer, description), None)
        except Exception as error:
            seen = f"raised {type(error).__name__}: {error}"
        if seen is not None:
            broken[name] = seen
    return broken


def is_numbers(value: Any, length: int) -> bool:
    """A tuple of so many plain integers of at least 0."""
    return (
        type(value) is tuple
        and len(value) == length
        and all(type(each) is int and each >= 0 for each in value)
    )


def wanted_handles(description: Dictionary) -> list[tuple[Any, Any]]:
    """Positions and handles that this process can open."""
    local = description.get("locals", description["partitions"])
    return [(position, description["partitions"][position]["data"]) for position in local]


@rule("fields")
def _fields(_: Any, description: Dictionary) -> Iterator[str]:
    for name in ("shape", "partition_tiling", "partitions", "get"):
        if name not in description:
            yield f"no {name}"


@rule("shape and partition_tiling")
def _shape(_: Any, description: Dictionary) -> Iterator[str]:
    for name in ("shape", "partition_tiling"):
        if not is_numbers(description[name], len(description["shape"])):
            yield f"{name} is {description[name]!r}"


@rule("all positions")
def _positions(_: Any, description: Dictionary) -> Iterator[str]:
    wanted = set(itertools.product(*map(range, description["partition_tiling"])))
    if set(description["partitions"]) != wanted:
        yield f"{len(description['partitions'])} of {len(wanted)} positions"


@rule("fields of a partition")
def _entry(_: Any, description: Dictionary) -> Iterator[str]:
    dimensions = len(description["shape"])
    for position, entry in description["partitions"].items():
        for name in ("start", "shape", "data", "location"):
            if name not in entry:
                yield f"no {name} at {position}"
        for name in ("start", "shape"):
            if not is_numbers(entry[name], dimensions):
                yield f"{name} at {position} is {entry[name]!r}"


@rule("cover")
def _cover(_: Any, description: Dictionary) -> Iterator[str]:
    for dimension, extent in enumerate(description["shape"]):
        spans = {}
        for position, entry in description["partitions"].items():
            span = (entry["start"][dimension], entry["shape"][dimension])
            if spans.setdefault(position[dimension], span) != span:
                yield f"{position} is no part of a grid in dimension {dimension}"
        end = 0
        for _number, (start, length) in sorted(spans.items()):
            if start != end:
                yield f"a part starts at {start} in dimension {dimension}, the one before ends at {end}"
            end = start + length
        if end != extent:
            yield f"the parts end at {end} in dimension {dimension} of {extent}"


@rule("location")
def _location(_: Any, description: Dictionary) -> Iterator[str]:
    for position, entry in description["partitions"].items():
        places = entry["location"]
        fits = isinstance(places, list) and all(
            type(place) is tuple
            and len(place) in (2, 3)
            and [type(part) for part in place] == [str, int, str][: len(place)]
            for place in places
        )
        if not fits:
            yield f"{places!r} at {position}"


@rule("locals")
def _locals(_: Any, description: Dictionary) -> Iterator[str]:
    for position in description.get("locals", []):
        if position not in description["partitions"]:
            yield f"{position} is no position"
    if "locals" not in description:
        for position, entry in description["partitions"].items():
            if entry["data"] is None:
                yield f"no data at {position}, and no locals"


@rule("get of one handle")
def _get_one(_: Any, description: Dictionary) -> Iterator[str]:
    for position, handle in wanted_handles(description):
        shape = tuple(description["get"](handle).shape)
        if shape != description["partitions"][position]["shape"]:
            yield f"{shape} at {position}"


@rule("get of a sequence")
def _get_many(_: Any, description: Dictionary) -> Iterator[str]:
    wanted = wanted_handles(description)
    for kind in (list, tuple):
        answer = description["get"](kind(handle for _, handle in wanted))
        shapes = [tuple(each.shape) for each in answer]
        if shapes != [description["partitions"][position]["shape"] for position, _ in wanted]:
            yield f"{shapes} for a {kind.__name__}"


@rule("one type of data")
def _one_type(_: Any, description: Dictionary) -> Iterator[str]:
    kinds = {type(description["get"](handle)) for _, handle in wanted_handles(description)}
    if len(kinds) > 1:
        yield f"{sorted(kind.__name__ for kind in kinds)}"


@rule("pickles with the standard library")
def _pickles(_: Any, description: Dictionary) -> Iterator[str]:
    again = pickle.loads(pickle.dumps(description))
    if again["shape"] != description["shape"]:
        yield "another shape"


@rule("beyond: fresh at each access")
def _fresh(producer: Any, description: Dictionary) -> Iterator[str]:
    again = producer.__partitioned__
    if again is description or again["partitions"] is description["partitions"]:
        yield "the same dictionary again"


@rule("beyond: handles keep their identity")
def _identity(producer: Any, description: Dictionary) -> Iterator[str]:
    again = producer.__partitioned__["partitions"]
    for position, entry in description["partitions"].items():
        if again[position]["data"] is not entry["data"]:
            yield f"another handle at {position}"


@rule("beyond: no __iter__")
def _no_iter(producer: Any, _: Dictionary) -> Iterator[str]:
    if getattr(producer, "__iter__", None) is not None:
        yield "it can be iterated, which xgboost_ray takes for data that is not distributed"
