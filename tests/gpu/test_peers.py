"""Libraries that compute on GPUs of NVIDIA take columns and tiles where they are, and give theirs. Each is skipped by name where it is not installed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import partgrid as pg

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64"]


def column_of(values: np.ndarray) -> pg.DeviceColumn:
    column = pg.from_numpy(values).to("kDLCUDA:0").tile(0).column("column_0")
    assert isinstance(column, pg.DeviceColumn)
    return column


@pytest.mark.parametrize("dtype", DTYPES)
def test_cupy_computes_where_the_column_is(dtype: str) -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    column = column_of(np.arange(100).astype(dtype))
    array = cupy.asarray(column)
    assert (array.data.ptr, str(array.dtype)) == (column.address, dtype)
    assert float(array.astype("float64").sum()) == 4950.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_computes_where_the_column_is(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this torch was built without CUDA")
    column = column_of(np.arange(100).astype(dtype))
    tensor = torch.from_dlpack(column)
    assert (tensor.data_ptr(), str(tensor.device)) == (column.address, "cuda:0")
    assert float(tensor.double().sum()) == 4950.0
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert float(torch.from_dlpack(column).double().sum()) == 4950.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_cupy_and_torch_write_to_storages_where_they_are(dtype: str) -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    storage = pg.storage.full((5, 4, 3), 2, dtype, backend="gt:gpu")
    array = pg.storage.as_cupy(storage)
    assert (array.data.ptr, array.shape, array.strides) == (
        storage.address,
        storage.shape,
        storage.strides,
    )
    assert float(array.astype("float64").sum()) == 120.0
    array[1, 2, :] = 7
    again = cupy.from_dlpack(storage)
    assert (again.data.ptr, float(again.astype("float64").sum())) == (storage.address, 135.0)


def test_torch_reads_and_writes_storages_where_they_are() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this torch was built without CUDA")
    storage = pg.storage.full((5, 4), 1.5, "float32", device="gpu")
    tensor = torch.from_dlpack(storage)
    assert (tensor.data_ptr(), str(tensor.device)) == (storage.address, "cuda:0")
    tensor[2] += 1
    assert float(torch.as_tensor(storage, device="cuda").sum()) == 34.0


def test_pylibcudf_takes_tiles_and_columns_and_gives_tables() -> None:
    pylibcudf = pytest.importorskip("pylibcudf", reason="pylibcudf is not installed")
    ours = pa.table({"n": pa.array([1, None, 3], pa.int64()), "t": ["a", "bc", None]})
    tile = pg.from_arrow(ours).to("kDLCUDA:0").tile(0)
    theirs = pylibcudf.Table.from_arrow(tile)
    assert (theirs.num_columns(), theirs.num_rows()) == (2, 3)
    column = pylibcudf.Column.from_arrow(tile.column("n"))
    assert (column.size(), column.null_count()) == (3, 1)
    # Its tables have had no names.
    for names in (None, ["n", "t"]):
        back = pg.from_arrow(theirs, names)
        assert back.tile(0).location[0][2] == "kDLCUDA:0"
        found = back.to("kDLCPU").to_arrow()
        assert len(set(found.column_names)) == 2
        assert names in (None, found.column_names)
        assert [each.to_pylist() for each in found.columns] == list(ours.to_pydict().values())
