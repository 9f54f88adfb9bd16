"""PyTorch reads columns and dense tiles where they lie, and gives its tensors the same way."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import numpy as np
import torch

import partgrid as pg

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64"]


def column_of(values: np.ndarray) -> pg.Array:
    return pg.from_numpy(values).tile(0).column("column_0")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_column_is_a_tensor_of_the_same_type_over_the_same_memory(dtype: str) -> None:
    column = column_of(np.arange(10).astype(dtype))
    tensor = torch.from_dlpack(column)
    assert (tensor.dtype, tuple(tensor.shape)) == (getattr(torch, dtype), (10,))
    assert tensor.data_ptr() == column.address
    assert tensor.tolist() == list(range(10))


def test_a_dense_tile_is_a_matrix_with_its_strides() -> None:
    values = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    tensor = torch.from_dlpack(pg.from_numpy(values).tile(0).array())
    assert (tuple(tensor.shape), tensor.stride()) == ((4, 3), (1, 4))
    assert tensor.data_ptr() == values.ctypes.data
    assert torch.equal(tensor, torch.tensor(values))


def test_a_slice_begins_within_the_memory() -> None:
    values = np.arange(100, dtype=np.int32)
    grid = pg.from_numpy(values)[7:20]
    tensor = torch.from_dlpack(grid.tile(0).column("column_0"))
    assert tensor.data_ptr() == values.ctypes.data + 7 * 4
    assert tensor.tolist() == list(range(7, 20))


def test_copies_are_made_on_request_and_may_be_written() -> None:
    column = column_of(np.arange(10.0))
    for tensor in (
        torch.from_dlpack(column, copy=True),
        torch.from_dlpack(column.__dlpack__(copy=True)),
        torch.from_dlpack(column).clone(),
    ):
        assert tensor.data_ptr() != column.address
        tensor[0] = 7.0
    assert np.asarray(column)[0] == 0.0


def test_nulls_are_refused_or_filled() -> None:
    import pyarrow as pa  # noqa: PLC0415

    tile = pg.from_arrow(pa.table({"v": [1.5, None]})).tile(0)
    with pytest.raises(pg.errors.InvalidDataError, match="null"):
        tile.column("v")
    assert torch.from_dlpack(tile.column("v", fill_null=0.0)).tolist() == [1.5, 0.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_becomes_a_column_over_its_memory(dtype: str) -> None:
    tensor = torch.arange(10).to(getattr(torch, dtype))
    grid = pg.from_dlpack(tensor, names=["v"])
    assert grid.tile(0).column("v").address == tensor.data_ptr()
    assert grid.to_arrow()["v"].to_pylist() == list(range(10))


def test_matrices_are_shared_by_column_and_copied_by_row() -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    assert pg.from_dlpack(rows).tile(0).column("column_0").address != rows.data_ptr()
    by_column = rows.t().contiguous().t()
    grid = pg.from_dlpack(by_column)
    assert grid.tile(0).column("column_1").address == by_column.data_ptr() + 4 * 4
    for shared in (rows, by_column):
        assert pg.from_dlpack(shared).to_numpy().tolist() == rows.tolist()


def test_booleans_become_bits_and_odd_types_are_refused() -> None:
    flags = torch.tensor([True, False, True])
    assert pg.from_dlpack(flags).to_arrow()["column_0"].to_pylist() == [True, False, True]
    for odd in (torch.bfloat16, torch.complex64):
        with pytest.raises(pg.errors.UnsupportedError):
            pg.from_dlpack(torch.zeros(3, dtype=odd))
    with pytest.raises(BufferError, match="require gradient"):
        pg.from_dlpack(torch.zeros(3, requires_grad=True))


def test_memory_lives_as_long_as_somebody_uses_it() -> None:
    class Owned(np.ndarray):
        """An array that weak references can watch."""

    values: Any = np.arange(1000.0).view(Owned)
    alive = weakref.ref(values)
    tensor = torch.from_dlpack(column_of(values))
    del values
    gc.collect()
    assert alive() is not None
    assert tensor.sum() == 499_500
    del tensor
    gc.collect()
    assert alive() is None
    grid = pg.from_dlpack(torch.arange(1000.0))
    gc.collect()
    assert grid.to_numpy().sum() == 499_500


def test_torch_keeps_the_rules_of_dlpack() -> None:
    from conformance import dlpack  # noqa: PLC0415

    assert dlpack.deviations(torch.arange(3.0)) == {}
