"""A consumer of DLPack that knows both structs, old and new: Apache TVM FFI reads columns and dense tiles where they lie."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tvm_ffi

import partgrid as pg

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64"]


def column_of(values: np.ndarray) -> pg.Array:
    return pg.from_numpy(values).tile(0).column("column_0")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_versioned_capsule_is_read_where_it_lies(dtype: str) -> None:
    column = column_of(np.arange(10).astype(dtype))
    tensor = tvm_ffi.from_dlpack(column.__dlpack__(max_version=(1, 1)))
    assert (str(tensor.dtype), tuple(tensor.shape)) == (dtype, (10,))
    assert tensor.data_ptr() == column.address
    assert np.from_dlpack(tensor).tolist() == list(range(10))


def test_a_dense_tile_keeps_its_strides() -> None:
    values = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    array = pg.from_numpy(values).tile(0).array()
    tensor = tvm_ffi.from_dlpack(array.__dlpack__(max_version=(1, 0)))
    assert (tuple(tensor.shape), tuple(tensor.strides)) == ((4, 3), (1, 4))
    assert tensor.data_ptr() == values.ctypes.data
    assert np.array_equal(np.from_dlpack(tensor), values)
    with pytest.raises(RuntimeError, match="not contiguous"):
        tvm_ffi.from_dlpack(array.__dlpack__(max_version=(1, 0)), require_contiguous=True)


def test_who_asks_for_the_old_struct_gets_a_copy_or_the_remedy() -> None:
    column = column_of(np.arange(10.0))
    with pytest.raises(BufferError, match=r"read-only.*\nhint: pass copy=True"):
        tvm_ffi.from_dlpack(column)
    tensor = tvm_ffi.from_dlpack(column.__dlpack__(copy=True))
    assert tensor.data_ptr() != column.address
    np.from_dlpack(tensor)[0] = 7.0
    assert np.asarray(column)[0] == 0.0


def test_a_tensor_comes_back_over_the_same_memory() -> None:
    values = np.arange(10.0)
    grid = pg.from_dlpack(tvm_ffi.from_dlpack(values))
    assert grid.tile(0).column("column_0").address == values.ctypes.data


def test_a_tensor_keeps_the_memory_as_long_as_it_lives() -> None:
    class Owned(np.ndarray):
        """An array that weak references can watch."""

    values: Any = np.arange(1000.0).view(Owned)
    alive = weakref.ref(values)
    capsule = column_of(values).__dlpack__(max_version=(1, 0))
    tensor = tvm_ffi.from_dlpack(capsule)
    del values, capsule
    gc.collect()
    assert alive() is not None
    assert np.from_dlpack(tensor).sum() == 499_500
    del tensor
    gc.collect()
    assert alive() is None
