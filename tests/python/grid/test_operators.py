"""Storages and arrays as operands, as numpy has them, and grids as arrays of numpy."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg

PLAIN = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]
OF_BITS = [operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor]


def storage(values: Any) -> pg.storage.Storage:
    array = np.asarray(values)
    made = pg.storage.empty(array.shape, array.dtype)
    np.asarray(made)[...] = array
    return made


def column(values: Any) -> pg.Array:
    return pg.from_numpy(np.asarray(values)).tile(0).column("column_0")


@pytest.mark.parametrize("make", [storage, column])
@pytest.mark.parametrize("do", PLAIN + OF_BITS, ids=lambda do: do.__name__)
def test_operators_are_those_of_numpy(
    make: Callable[[Any], Any], do: Callable[[Any, Any], Any]
) -> None:
    left, right = np.array([7, 5, 3]), np.array([2, 5, 1])
    ours, theirs = make(left), make(right)
    for found in (do(ours, theirs), do(ours, right), do(left, theirs)):
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, do(left, right))
    np.testing.assert_array_equal(do(ours, 2), do(left, 2))
    np.testing.assert_array_equal(do(2, theirs), do(2, right))


@pytest.mark.parametrize("make", [storage, column])
def test_operators_of_one(make: Callable[[Any], Any]) -> None:
    ours = make(np.array([7, -5, 3]))
    np.testing.assert_array_equal(-ours, [-7, 5, -3])
    np.testing.assert_array_equal(abs(ours), [7, 5, 3])
    np.testing.assert_array_equal(~ours, [-8, 4, -4])
    np.testing.assert_array_equal(ours @ ours, 83)
    assert len({ours, ours}) == 1
    with pytest.raises(ValueError, match="ambiguous"):
        bool(ours)
    with pytest.raises(TypeError):
        int(ours)


def test_numbers_are_numbers_not_texts() -> None:
    one = pg.storage.full((), 49, "u1")
    assert (int(one), float(one), complex(one), bool(one)) == (49, 49.0, 49 + 0j, True)
    for several in (pg.storage.full((2,), 49, "u1"), column(np.array([49, 50], "u1"))):
        with pytest.raises(TypeError):
            float(several)


def test_storages_are_changed_in_place() -> None:
    made = same = storage([1.0, 2.0])
    made += 1
    made *= np.array([1, 2])
    assert made is same
    assert np.asarray(same).tolist() == [2.0, 6.0]
    made **= 2
    assert np.asarray(same).tolist() == [4.0, 36.0]

    class First:
        """What numpy lets go first."""

        __array_priority__ = 100.0

        def __radd__(self, _other: object) -> np.ndarray:
            return np.array([7.0, 8.0])

    made += First()
    assert made is same
    assert np.asarray(same).tolist() == [7.0, 8.0]
    assert [part.tolist() for part in divmod(made, 3)] == [[2.0, 2.0], [1.0, 2.0]]
    assert [part.tolist() for part in divmod(30, made)] == [[4.0, 3.0], [2.0, 6.0]]
    assert (+made).tolist() == [7.0, 8.0]
    pg.from_storage(made)
    with pytest.raises(ValueError, match="read-only"):
        made += 1
    array = column([1, 2])
    with pytest.raises(ValueError, match="read-only"):
        array += 1


def test_arrays_are_indexed_as_far_as_memoryview_and_then_as_numpy() -> None:
    numbers = column([1.5, 2.5, 3.5])
    assert (numbers[0], numbers[1:].tolist(), list(numbers)) == (1.5, [2.5, 3.5], [1.5, 2.5, 3.5])
    assert numbers[[0, 2]].tolist() == [1.5, 3.5]
    halves = column(np.array([1, 2], "f2"))
    assert (halves[1], list(halves)) == (2.0, [1.0, 2.0])
    memory = pg.storage.empty((2, 3), layout=(1, 0))
    memory[:] = np.arange(6.0).reshape(2, 3)
    table = pg.from_storage(memory).tile(0).array()
    assert table[0].tolist() == [0.0, 1.0, 2.0]
    assert table[:, 1].tolist() == [1.0, 4.0]
    assert [row.tolist() for row in table] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    with pytest.raises(IndexError):
        numbers[3]


def test_a_grid_is_an_array_of_rows_and_columns() -> None:
    grid = pg.from_arrow(pa.table({"a": [1, 2], "b": [0.5, 1.5]}))
    np.testing.assert_array_equal(np.asarray(grid), [[1.0, 0.5], [2.0, 1.5]])
    assert np.asarray(grid, dtype="f4").dtype == np.float32
    assert np.sum(grid) == 5.0
    with pytest.raises(pg.errors.UnsupportedError, match="column: t"):
        np.asarray(pg.from_arrow(pa.table({"t": ["x"]})))
    with pytest.raises(ValueError, match="copy"):
        np.asarray(grid, copy=False)
    for other in (grid.tile(0), grid.sql("SELECT 1")):
        with pytest.raises(TypeError, match=r"is no array\nhint: numpy\.asarray"):
            np.asarray(other)


def test_hints_of_buffers_are_remedies() -> None:
    memory = pg.storage.zeros((4, 3), layout=(1, 0))
    with pytest.raises(BufferError, match=r"hint: copy it: numpy\.ascontiguousarray\(array\)"):
        hashlib.sha256(memory)
    assert hashlib.sha256(np.ascontiguousarray(memory)).digest()


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: pg.from_numpy(np.array(["a"], np.dtypes.StringDType())), r"array\.astype\('U'\)"),
        (lambda: pg.from_numpy(np.array(5)), r"array\.reshape\(1\)"),
        (lambda: pg.from_numpy(np.arange(3))[::2], "FROM self WHERE"),
        (lambda: pg.from_numpy(np.arange(3))[[0, 1]], "FROM self WHERE"),
        (lambda: pg.from_numpy(np.arange(3))[1], r"grid\[3:4\] is the row 3"),
    ],
)
def test_hints_are_for_what_was_wanted(make: Callable[[], Any], hint: str) -> None:
    with pytest.raises((pg.errors.PartgridError, TypeError), match=f"hint: .*{hint}"):
        make()
    assert 5 not in pg.from_numpy(np.arange(3))  # type: ignore[operator]
