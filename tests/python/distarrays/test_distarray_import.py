"""`from_distarray` and `partgrid.distarray.validate`: sections of anybody, of all distributions and both versions."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg
from conftest import DATA

EXAMPLES = sorted((DATA / "protocol").glob("*.json"))


def of_json(value: Any) -> Any:
    """What the JSON form stands for; see data/README.md."""
    if isinstance(value, list):
        return tuple(of_json(each) for each in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"list"}:
        return [of_json(each) for each in value["list"]]
    if {"shape", "format"} <= set(value) <= {"shape", "format", "values"}:
        elements = np.array(value.get("values", np.zeros(value["shape"])), value["format"])
        return elements.reshape(value["shape"])
    return {key: of_json(each) for key, each in value.items()}


def section(dims: list[dict[str, Any]], buffer: Any, version: str = "0.10.0") -> dict[str, Any]:
    return {"__version__": version, "buffer": buffer, "dim_data": tuple(dims)}


def block(size: int, ranks: int, rank: int, start: int, stop: int, **more: Any) -> dict[str, Any]:
    place = {"proc_grid_size": ranks, "proc_grid_rank": rank}
    return {"dist_type": "b", "size": size, **place, "start": start, "stop": stop, **more}


def cyclic(size: int, ranks: int, rank: int, block_size: int = 1) -> dict[str, Any]:
    place = {"proc_grid_size": ranks, "proc_grid_rank": rank}
    more = {"block_size": block_size} if block_size > 1 else {}
    return {"dist_type": "c", "size": size, **place, "start": rank * block_size, **more}


def unstructured(size: int, ranks: int, rank: int, indices: Any) -> dict[str, Any]:
    place = {"proc_grid_size": ranks, "proc_grid_rank": rank}
    return {"dist_type": "u", "size": size, **place, "indices": np.asarray(indices, np.int64)}


def dealt(size: int, ranks: int, rank: int, block_size: int) -> list[int]:
    return [index for index in range(size) if index // block_size % ranks == rank]


class Producer:
    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given

    def __distarray__(self) -> dict[str, Any]:
        return self.given


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_printed_examples_are_read_or_found_wrong(path: Path) -> None:
    example = json.loads(path.read_text())
    sections = [of_json(each) for each in example]
    errors = [
        each for each in pg.distarray.validate(sections, strict=False) if each.severity == "error"
    ]
    if errors:
        with pytest.raises(pg.errors.ProtocolError) as caught:
            pg.from_distarray(sections)
        assert caught.value.context["rule"] == errors[0].rule
        return
    sizes = [dim["size"] if dim else None for dim in sections[0]["dim_data"]]
    if len(sizes) > 2:
        with pytest.raises(pg.errors.UnsupportedError, match="2 dimensions"):
            pg.from_distarray(sections)
        return
    labels = [dim.get("indices") for each in sections for dim in each["dim_data"]]
    if any(each is not None and np.max(each) >= max(sizes) for each in labels):
        with pytest.raises(pg.errors.UnsupportedError, match="must be 0 to"):
            pg.from_distarray(sections)
        return
    grid = pg.from_distarray(sections)
    assert grid.shape == (sizes[0], sizes[1] if len(sizes) == 2 else 1)


def test_there_are_fifteen_examples() -> None:
    assert len(EXAMPLES) == 15


def test_blocks_of_one_dimension_share_their_memory() -> None:
    parts = [np.arange(3.0), np.arange(3.0, 3.0), np.arange(3.0, 7.0)]
    cuts = [0, 3, 3, 7]
    sections = [
        Producer(section([block(7, 3, rank, cuts[rank], cuts[rank + 1])], part))
        for rank, part in enumerate(parts)
    ]
    grid = pg.from_distarray(sections, names=["x"])
    assert (grid.shape, grid.cuts) == ((7, 1), ((0, 3, 3, 7), (0, 1)))
    assert grid.to_numpy().ravel().tolist() == list(range(7))
    assert np.shares_memory(np.asarray(grid.tile(2).column("x")), parts[2])


def test_blocks_of_two_dimensions_become_tiles() -> None:
    whole = np.arange(35.0).reshape(5, 7)
    rows, columns = [0, 2, 5], [0, 3, 7]
    sections = [
        section(
            [block(5, 2, r, *rows[r : r + 2]), block(7, 2, c, *columns[c : c + 2])],
            np.asfortranarray(whole[rows[r] : rows[r + 1], columns[c] : columns[c + 1]]),
        )
        for r in range(2)
        for c in range(2)
    ]
    grid = pg.from_distarray(sections)
    assert (grid.tiling, grid.cuts) == ((2, 2), ((0, 2, 5), (0, 3, 7)))
    np.testing.assert_array_equal(grid.to_numpy(), whole)
    assert np.shares_memory(np.asarray(grid.tile(1, 1).column("column_4")), sections[3]["buffer"])


@pytest.mark.parametrize("block_size", [1, 2, 3, 7])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_cyclic_rows_come_in_their_order(ranks: int, block_size: int) -> None:
    whole = np.arange(11, dtype=np.int32) * 10
    sections = [
        section([cyclic(11, ranks, rank, block_size)], whole[dealt(11, ranks, rank, block_size)])
        for rank in range(ranks)
    ]
    assert pg.from_distarray(sections).to_numpy().ravel().tolist() == whole.tolist()


def test_unstructured_rows_and_cyclic_columns() -> None:
    whole = np.arange(20).reshape(4, 5)
    rows = [[3, 0], [2, 1]]
    sections = [
        section(
            [unstructured(4, 2, r, rows[r]), cyclic(5, 2, c)],
            whole[np.ix_(rows[r], dealt(5, 2, c, 1))],
        )
        for r in range(2)
        for c in range(2)
    ]
    np.testing.assert_array_equal(pg.from_distarray(sections).to_numpy(), whole)


def test_halos_are_never_taken_for_data() -> None:
    # 0.10: 0:6 and 4:10 of 10, one element of padding at the border on each side; what is in the halos is stale.
    left = np.array([0, 1, 2, 3, 4, -1.0])
    right = np.array([-1.0, 5, 6, 7, 8, 9])
    newer = [
        section([block(10, 2, 0, 0, 6, padding=(0, 1))], left),
        section([block(10, 2, 1, 4, 10, padding=(1, 0))], right),
    ]
    older = [
        section([block(10, 2, 0, 0, 5, padding=(0, 1))], left, "0.9.0"),
        section([block(10, 2, 1, 5, 10, padding=(1, 0))], right, "0.9.0"),
    ]
    for sections in (newer, older):
        assert pg.distarray.validate(sections) == []
        grid = pg.from_distarray(sections)
        assert grid.to_numpy().ravel().tolist() == list(range(10))
        assert np.shares_memory(np.asarray(grid.tile(0).column("column_0")), left)


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part[::1],
        lambda part: np.repeat(part, 2)[::2],
        lambda part: part[::-1].copy()[::-1],
        lambda part: part.astype(">f8"),
        lambda part: np.lib.stride_tricks.as_strided(part, writeable=False),
        memoryview,
        lambda part: __import__("array").array("d", part.tolist()),
    ],
    ids=["plain", "strided", "backwards", "big-endian", "read-only", "memoryview", "array.array"],
)
def test_buffers_of_any_kind(change: Any) -> None:
    sections = [
        section([block(6, 2, rank, rank * 3, rank * 3 + 3)], change(np.arange(3.0) + rank * 3))
        for rank in range(2)
    ]
    assert pg.from_distarray(sections).to_numpy().ravel().tolist() == list(range(6))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_arrays_without_elements(shape: tuple[int, ...]) -> None:
    dims = [block(size, 1, 0, 0, size) for size in shape]
    grid = pg.from_distarray([section(dims, np.zeros(shape, np.int16))])
    assert grid.shape == (shape[0], shape[1] if len(shape) == 2 else 1)


def test_no_dimension_is_one_value() -> None:
    grid = pg.from_distarray([section([], np.array(3.5))])
    assert grid.to_arrow().to_pydict() == {"column_0": [3.5]}


def test_an_undistributed_dimension_of_the_older_version_and_an_empty_dictionary() -> None:
    whole = np.arange(6.0).reshape(2, 3)
    older = [
        section([{"dist_type": "n", "size": 2}, cyclic(3, 2, c)], whole[:, c::2], "0.9.0")
        for c in range(2)
    ]
    newer = [section([{}, {}], whole)]
    for sections in (older, newer):
        np.testing.assert_array_equal(pg.from_distarray(sections).to_numpy(), whole)


def test_what_partgrid_exports_comes_back() -> None:
    table = pa.table({"a": range(10)})
    grid = pg.from_arrow(pa.Table.from_batches(table.to_batches(max_chunksize=3)))
    sections = grid.distarray("a").sections
    assert pg.distarray.validate(sections) == []
    again = pg.from_distarray(sections, names=["a"])
    assert again.cuts == grid.cuts
    assert again.to_arrow().to_pydict() == table.to_pydict()
    ours, theirs = (np.asarray(each.tile(1).column("a")) for each in (again, grid))
    assert np.shares_memory(ours, theirs)


WRONG: list[tuple[Any, str, dict[str, str]]] = [
    ([section([block(4, 2, 0, 0, 2)], np.zeros(2))], "X1", {}),
    ([section([block(4, 1, 0, 0, 5)], np.zeros(5))], "D5", {"rank": "0", "dimension": "0"}),
    ([section([block(4, 1, 0, 0, 4)], np.zeros(3))], "D6", {"rank": "0"}),
    ([section([{"dist_type": "q", "size": 4}], np.zeros(4))], "D1", {"key": "dist_type"}),
    ([{"__version__": "1.0.0"}], "T2", {}),
    ([5], "T1", {"rank": "0"}),
]


@pytest.mark.parametrize(("sections", "rule", "context"), WRONG, ids=[each[1] for each in WRONG])
def test_broken_sections_name_rule_rank_dimension_and_key(
    sections: Any, rule: str, context: dict[str, str]
) -> None:
    with pytest.raises(pg.errors.ProtocolError) as caught:
        pg.from_distarray(sections)
    found = [each.rule for each in pg.distarray.validate(sections)]
    assert rule in found
    assert caught.value.context["rule"] == found[0]
    if found[0] == rule:
        assert context.items() <= caught.value.context.items()


def test_wrong_arguments() -> None:
    good = [section([block(4, 1, 0, 0, 4)], np.zeros(4))]
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="one name for each of 1 columns, got 2"
    ):
        pg.from_distarray(good, names=["a", "b"])
    with pytest.raises(pg.errors.InvalidArgumentError, match="list of the sections"):
        pg.from_distarray(5)
    with pytest.raises(pg.errors.UnsupportedError):
        pg.from_distarray([section([{}], np.zeros(2, complex))])


class Raising:
    def __distarray__(self) -> dict[str, Any]:
        raise RuntimeError("no such luck")


class Sly(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no item")


def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "given",
    [None, 5, "text", b"bytes", [], (), {}, [[]], endless(), Raising(), [Raising()], Sly(), object],
    ids=lambda given: type(given).__name__,
)
def test_the_validator_never_raises(given: Any) -> None:
    findings = pg.distarray.validate(given)
    assert all(isinstance(each, pg.distarray.Finding) for each in findings)
    if not isinstance(given, (list, tuple)) or given:
        assert findings


JUNK: list[Any] = [
    None,
    True,
    -1,
    3,
    2**70,
    0.5,
    "b",
    "c",
    "u",
    (),
    (1, 1),
    [1],
    np.arange(3),
    np.int64(2),
]


def test_random_sections_never_make_the_validator_raise() -> None:
    rng = random.Random(7)
    keys = ["dist_type", "size", "proc_grid_size", "proc_grid_rank", "start", "stop", "padding"]
    keys += ["periodic", "block_size", "indices", "one_to_one", "more"]
    valid = 0
    for _ in range(50_000):
        size, ranks, rank = rng.randrange(6), rng.randrange(1, 4), 0
        start = [
            block(size, 1, 0, 0, size),
            cyclic(size, ranks, rank),
            unstructured(3, 1, 0, [0, 2, 1]),
        ]
        dim: dict[str, Any] = rng.choice(start)
        for _ in range(rng.randrange(3)):
            if rng.random() < 0.3:
                dim.pop(rng.choice(keys), None)
            else:
                dim[rng.choice(keys)] = rng.choice(JUNK)
        given = section([dim] * rng.randrange(3), np.zeros([rng.randrange(5)] * rng.randrange(3)))
        if rng.random() < 0.1:
            given[rng.choice(["__version__", "buffer", "dim_data", "else"])] = rng.choice(JUNK)
        sections = [given] * rng.randrange(1, 3)
        found = pg.distarray.validate(sections if rng.random() < 0.5 else given)
        if not any(each.severity == "error" for each in found):
            valid += 1
        if rng.random() < 0.05:
            with contextlib.suppress(pg.PartgridError):
                pg.from_distarray([given])
    assert valid > 100
