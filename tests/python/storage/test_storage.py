"""Storages: layout and alignment by address arithmetic, every interface, lifetimes, refusals, threads, grids of them."""

from __future__ import annotations

import concurrent.futures
import copy
import ctypes
import gc
import hashlib
import itertools
import os
import pickle
import random
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import nanoarrow as na
import numpy as np
import pytest
import tvm_ffi

import partgrid as pg
from conftest import DATA
from devices import has_cuda

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "bool", "complex64", "complex128"]
CPU_BACKENDS = ["numpy", "debug", "gt:cpu_kfirst", "gt:cpu_ifirst"]
CPU_BACKENDS += ["dace:cpu", "dace:cpu_kfirst", "dace:cpu_KJI"]
GPU_BACKENDS = ["gt:gpu", "dace:gpu", "dace:gpu_IJK"]


def address_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def element_address(storage: pg.storage.Storage, index: tuple[int, ...]) -> int:
    """By nothing but what the array interface says."""
    interface = storage.__array_interface__
    steps = zip(index, interface["strides"], strict=True)
    return int(interface["data"][0]) + sum(at * stride for at, stride in steps)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# Making them


def test_the_defaults_are_those_of_the_specification() -> None:
    storage = pg.storage.zeros((2, 3))
    assert (storage.shape, storage.strides, storage.dtype) == ((2, 3), (24, 8), np.float64)
    assert (storage.layout, storage.dims, storage.device) == ((0, 1), None, None)
    assert (storage.aligned_index, storage.alignment_size) == ((0, 0), 1)
    assert (storage.ndim, storage.size, storage.itemsize, storage.nbytes) == (2, 6, 8, 48)
    assert not storage.is_frozen
    assert len(storage) == 2
    assert repr(storage) == "Storage (2, 3) of float64, layout (0, 1)"


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_function_holds_what_its_name_says(dtype: str) -> None:
    shape = (3, 4, 5)
    options: dict[str, Any] = {"layout": (2, 0, 1), "alignment_size": 64}
    made = {
        0: pg.storage.zeros(shape, dtype, **options),
        1: pg.storage.ones(shape, dtype, **options),
        7: pg.storage.full(shape, 7, dtype, **options),
    }
    for value, storage in made.items():
        assert (np.asarray(storage) == np.dtype(dtype).type(value)).all()
        for other in (
            pg.storage.zeros_like(storage),
            pg.storage.ones_like(storage),
            pg.storage.full_like(storage, 7),
            pg.storage.empty_like(storage),
        ):
            assert (other.shape, other.dtype, other.strides) == (shape, dtype, storage.strides)
            assert other.alignment_size == 64
            assert other.address != storage.address
    assert pg.storage.empty(shape, dtype, **options).strides == made[0].strides


NUMPY_TYPES = [np.float32, np.dtype("int16"), "<f4", "i8", float, int, bool, complex, None]
NUMPY_TYPES += [np.longdouble, ">f8", "M8[ns]", "U5", "S3", [("a", "i4"), ("b", "f8")]]


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_what_numpy_takes_as_a_type_is_taken(dtype: Any) -> None:
    storage = pg.storage.zeros((3, 2), dtype, layout=(1, 0))
    assert storage.dtype == np.dtype(dtype)
    view = np.asarray(storage)
    assert (view.dtype, view.shape, view.strides) == (storage.dtype, (3, 2), storage.strides)
    assert address_of(view) == storage.address
    assert (view == np.zeros((3, 2), dtype)).all()
    view[1, 1] = np.ones((), dtype)
    assert np.asarray(storage)[1, 1] == np.ones((), dtype)
    again = pg.storage.ones_like(storage)
    assert again.dtype == storage.dtype
    assert (np.asarray(again) == np.ones((3, 2), dtype)).all()


def test_values_are_cast_as_the_types_of_numpy_cast() -> None:
    assert np.asarray(pg.storage.full((2,), 3.7, int)).tolist() == [3, 3]
    assert np.asarray(pg.storage.full((2,), np.float32(0.1)))[0] == np.float64(np.float32(0.1))
    assert np.asarray(pg.storage.full((2,), 1 + 2j, complex))[1] == 1 + 2j
    assert np.signbit(np.asarray(pg.storage.full((2,), -0.0))).all()
    with pytest.raises(OverflowError):
        pg.storage.full((2,), 300, "uint8")
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="fill_value must be a number, got '7'"
    ):
        pg.storage.full((2,), "7")
    with pytest.raises(pg.errors.InvalidArgumentError, match="fill_value must be one number"):
        pg.storage.full((2,), np.ones(3))


def test_everything_like_another_storage_can_be_overridden_but_its_shape() -> None:
    storage = pg.storage.zeros(
        (4, 5), "int32", layout=(1, 0), alignment_size=64, aligned_index=(1, 2), dims="KI"
    )
    same = pg.storage.ones_like(storage)
    for name in ("shape", "layout", "alignment_size", "aligned_index", "dims", "device", "dtype"):
        assert getattr(same, name) == getattr(storage, name), name
    other = pg.storage.empty_like(
        storage, "float64", layout=(0, 1), alignment_size=8, aligned_index=(0, 0), dims="IJ"
    )
    assert (other.dtype, other.layout, other.alignment_size) == (np.float64, (0, 1), 8)
    assert (other.aligned_index, other.dims, other.shape) == ((0, 0), ("I", "J"), (4, 5))
    preset = pg.storage.empty_like(storage, backend="gt:cpu_kfirst")
    assert (preset.layout, preset.alignment_size) == ((1, 0), 1)
    assert (preset.aligned_index, preset.dims) == ((1, 2), ("K", "I"))
    with pytest.raises(TypeError, match="shape"):
        pg.storage.empty_like(storage, shape=(2, 2))  # type: ignore[call-arg]


def test_arrays_of_others_give_their_layout_and_their_labels() -> None:
    array = np.asfortranarray(np.ones((3, 4, 5), np.float32))
    made = pg.storage.zeros_like(array)
    assert (made.shape, made.dtype, made.layout) == ((3, 4, 5), np.float32, (2, 1, 0))
    assert (made.dims, made.alignment_size) == (None, 1)

    class Labelled:
        def __init__(self, dims: Any) -> None:
            self.__gt_dims__ = dims
            self.__array_interface__ = array.__array_interface__

    for dims in (("K", "J", "I"), ["K", "J", "I"], "KJI", lambda: ("K", "J", "I")):
        assert pg.storage.empty_like(Labelled(dims)).dims == ("K", "J", "I")
        assert pg.storage.get_dims(Labelled(dims)) == ("K", "J", "I")
    assert pg.storage.empty_like(array[::-1, :, 2]).layout == (1, 0)
    assert pg.storage.empty_like(memoryview(array)).dtype == np.float32
    assert pg.storage.empty_like(pg.from_numpy(array[:, 0, 0]).tile(0).array()).shape == (3, 1)
    with pytest.raises(pg.errors.ProtocolError, match="got list"):
        pg.storage.empty_like([1, 2])


def test_random_storages_are_aligned_ordered_and_never_overlap() -> None:
    generator = random.Random(5)
    kept = []
    for number in range(1500):
        count = generator.randrange(5)
        shape = tuple(generator.randint(1, 9) for _ in range(count))
        dtype = np.dtype(generator.choice(DTYPES))
        layout = generator.sample(range(count), count)
        index = tuple(generator.randrange(extent) for extent in shape)
        items = generator.choice([1, 2, 3, 7, 8, 32, 64])
        divisors = [size for size in (1, 2, 4, 8) if dtype.itemsize % size == 0]
        alignment = generator.choice([*divisors, items * dtype.itemsize])
        storage = pg.storage.empty(
            shape, dtype, layout=layout, aligned_index=index, alignment_size=alignment
        )
        assert element_address(storage, index) % alignment == 0
        assert storage.address % dtype.alignment == 0
        order = sorted(range(count), key=lambda dimension: layout[dimension])
        strides = storage.strides
        for outer, inner in itertools.pairwise(order):
            assert strides[outer] >= strides[inner] * shape[inner]
        if order:
            assert strides[order[-1]] == dtype.itemsize
        if order and alignment % dtype.itemsize == 0:
            for _ in range(5):
                other = [generator.randrange(extent) for extent in shape]
                other[order[-1]] = index[order[-1]]
                assert element_address(storage, tuple(other)) % alignment == 0
        if number % 5 == 0 and dtype.itemsize == 8:
            storage[...] = np.arange(storage.size).reshape(shape) + number
            kept.append((number, storage))
    assert len(kept) > 40
    for number, storage in kept:
        expected = (np.arange(storage.size).reshape(storage.shape) + number).astype(storage.dtype)
        assert np.array_equal(np.asarray(storage), expected)


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_a_backend_gives_the_layout_of_the_meaning_of_dimensions(backend: str) -> None:
    largest = {"numpy": "IJK", "debug": "IJK", "gt:cpu_kfirst": "IJK", "dace:cpu_kfirst": "IJK"}
    largest |= {"gt:cpu_ifirst": "KJI", "dace:cpu_KJI": "KJI", "dace:cpu": "KIJ"}
    for labels in itertools.permutations("IJK0"):
        storage = pg.storage.empty((5, 6, 7, 8), backend=backend, dims=labels)
        strides = dict(zip(labels, storage.strides, strict=True))
        assert sorted(strides, key=lambda label: -strides[label]) == ["0", *largest[backend]]
    # Without labels the dimensions are I, J, K, 0.
    assumed = pg.storage.empty((5, 6, 7, 8), backend=backend)
    labelled = pg.storage.empty((5, 6, 7, 8), backend=backend, dims="IJK0")
    assert assumed.strides == labelled.strides
    assert assumed.dims is None


# Refusals


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"backend": "numpy", "layout": (0, 1)}, "backend decides layout"),
    ({"backend": "numpy", "alignment_size": 8}, "backend decides alignment_size"),
    ({"backend": "numpy", "device": "gpu"}, "backend decides device"),
    ({"backend": "cuda"}, 'backend must be one of GT4Py, got "cuda"'),
    ({"backend": 3}, "backend must be a text, got 3"),
    ({"device": "cpu"}, 'device must be "gpu" or None, got "cpu"'),
    ({"device": 0}, "device must be a text, got 0"),
    ({"dims": ("I", "I")}, "dims must not repeat a label"),
    ({"dims": ("I", "X")}, 'out of "I", "J", "K" and decimal numbers, got "X"'),
    ({"dims": ("I",)}, "dims must have one entry for each of the 2 dimensions, got 1"),
    ({"dims": (0, 1)}, "dims must be a sequence of labels, got (0, 1)"),
    ({"layout": (0, 0)}, "layout must have each number below 2 once"),
    ({"layout": (1, 2)}, "layout must have each number below 2 once"),
    ({"layout": 1}, "layout must be a sequence of whole numbers, got 1"),
    ({"layout": (0, -1)}, "layout must have no negative number, got (0, -1)"),
    ({"aligned_index": (4, 0)}, "aligned_index must be an element of the storage"),
    ({"aligned_index": (0, 0, 0)}, "aligned_index must have one entry"),
    ({"aligned_index": (0, -1)}, "aligned_index must have no negative number"),
    ({"aligned_index": (0, 0.5)}, "aligned_index must be a sequence of whole numbers"),
    ({"alignment_size": 0}, "alignment_size must be at least 1"),
    ({"alignment_size": -8}, "alignment_size must be at least 1, got -8"),
    ({"alignment_size": 12}, "hint: alignment_size=16"),
    ({"alignment_size": "64"}, "alignment_size must be a whole number, got '64'"),
    ({"alignment_size": True}, "alignment_size must be a whole number, got True"),
]


@pytest.mark.parametrize(("options", "text"), REFUSALS)
def test_wrong_parameters_are_refused_by_name(options: dict[str, Any], text: str) -> None:
    for make in (
        lambda: pg.storage.empty((4, 3), **options),
        lambda: pg.storage.full_like(pg.storage.zeros((4, 3)), 1.0, **options),
    ):
        with pytest.raises(pg.errors.InvalidArgumentError) as caught:
            make()
        assert text in str(caught.value)


def test_none_counts_as_not_given() -> None:
    none: dict[str, Any] = dict.fromkeys(["layout", "alignment_size", "device", "dims"])
    made = pg.storage.zeros((2, 3), None, backend="gt:cpu_ifirst", aligned_index=None, **none)
    assert made.layout == (1, 0)
    assert pg.storage.zeros((2, 3), backend=None, layout=(1, 0)).layout == (1, 0)


@pytest.mark.parametrize("shape", [5, "34", None, (2, -1), (2, 1.5), ("a",), {2, 3}, (True, 2)])
def test_wrong_shapes_are_refused(shape: Any) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match="shape must"):
        pg.storage.zeros(shape)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), [2, 2], np.array([2, 3]), (np.int8(4),)])
def test_shapes_of_any_kind_are_taken(shape: Any) -> None:
    storage = pg.storage.ones(shape, alignment_size=64)
    view = np.asarray(storage)
    assert view.shape == storage.shape == tuple(int(extent) for extent in shape)
    assert storage.size == view.size
    assert view.sum() == view.size


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 40, 1 << 40), (1 << 45,), (0, 1 << 62, 4)])
@pytest.mark.parametrize("name", ["empty", "zeros", "ones"])
def test_huge_storages_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(MemoryError) as caught:
        getattr(pg.storage, name)(shape)
    assert isinstance(caught.value, pg.errors.ResourcesExhaustedError)


def test_types_without_values_in_memory_are_refused() -> None:
    with pytest.raises(pg.errors.UnsupportedError, match="references to objects of Python"):
        pg.storage.zeros((2,), object)
    with pytest.raises(pg.errors.UnsupportedError, match="hint: give its dimensions in shape"):
        pg.storage.zeros((2,), ("f8", (2,)))
    with pytest.raises(pg.errors.InvalidArgumentError, match="at least one byte"):
        pg.storage.zeros((2,), "V0")
    with pytest.raises(TypeError, match="nonsense"):
        pg.storage.zeros((2,), "nonsense")


@pytest.mark.skipif(has_cuda(), reason="there is a driver of CUDA on this machine")
@pytest.mark.parametrize("options", [{"device": "gpu"}, *({"backend": b} for b in GPU_BACKENDS)])
def test_a_gpu_that_is_not_reached_is_a_clear_error(options: dict[str, str]) -> None:
    with pytest.raises(RuntimeError, match="this process reaches none") as caught:
        pg.storage.zeros((4, 3, 2), **options)  # type: ignore[arg-type]
    assert isinstance(caught.value, pg.errors.UnsupportedError)
    assert "gt:cpu_ifirst" in (caught.value.hint or "")


# Interfaces


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_way_out_is_the_same_writable_memory(dtype: str) -> None:
    storage = pg.storage.zeros((4, 3), dtype, layout=(1, 0), alignment_size=64)
    views = [
        np.asarray(storage),
        np.asarray(memoryview(storage)),
        np.from_dlpack(storage),
        np.array(storage, copy=False),
        storage.__array__(),
        pg.storage.as_numpy(storage),
        np.from_dlpack(tvm_ffi.from_dlpack(storage)),
    ]
    for number, view in enumerate(views):
        assert address_of(view) == storage.address
        assert (view.dtype, view.shape, view.strides) == (dtype, (4, 3), storage.strides)
        view[number % 4, 2] = 1
        assert all(bool(other[number % 4, 2]) for other in views)
    interface = storage.__array_interface__
    assert (interface["version"], interface["data"]) == (3, (storage.address, False))
    assert np.dtype(interface["typestr"]) == dtype
    view = memoryview(storage)
    assert (view.ndim, view.shape, view.readonly) == (2, (4, 3), False)
    assert view.itemsize == storage.itemsize
    # numpy has no type of the name that PEP 3118 has for complex numbers.
    assert view.format == np.asarray(storage).data.format


def test_only_the_array_interface_of_the_memory_is_there() -> None:
    storage = pg.storage.zeros((2,))
    assert not hasattr(storage, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="the memory is on kDLCPU, not CUDA's"):
        _ = storage.__cuda_array_interface__
    assert storage.__dlpack_device__() == (1, 0)


def test_types_that_buffers_lack_go_through_the_array_interface() -> None:
    storage = pg.storage.zeros((3,), "M8[ns]")
    with pytest.raises(BufferError, match=r"no format for <M8\[ns\]"):
        memoryview(storage)
    with pytest.raises(BufferError, match="DLPack has numbers and truth values"):
        storage.__dlpack__()
    view = np.asarray(storage)
    assert address_of(view) == storage.address
    view[0] = np.datetime64("2026-11-21")
    assert storage[0] == np.datetime64("2026-11-21")


def test_consumers_of_buffers_obey_their_flags() -> None:
    in_c = pg.storage.ones((3, 8))
    assert memoryview(in_c).c_contiguous
    assert bytes(in_c) == np.ones(24).tobytes()
    gaps = pg.storage.ones((3, 5), alignment_size=64)
    assert gaps.strides == (64, 8)
    assert not memoryview(gaps).contiguous
    assert bytes(memoryview(gaps)) == np.ones(15).tobytes()
    with pytest.raises(BufferError, match="strides, which this consumer does not take"):
        hashlib.sha256(gaps)
    assert np.frombuffer(in_c).sum() == 24.0
    target = (ctypes.c_double * 24).from_buffer(in_c)
    target[3] = 7.0
    assert in_c[0, 3] == 7.0
    assert na.c_buffer(in_c) is not None


def test_dlpack_takes_every_wish_or_says_why_not() -> None:
    storage = pg.storage.zeros((4, 3), layout=(1, 0))
    for options in ({}, {"max_version": (0, 8)}, {"max_version": (1, 0)}, {"copy": False}):
        capsule = storage.__dlpack__(**options)  # type: ignore[arg-type]
        versioned = options.get("max_version") == (1, 0)
        assert ("dltensor_versioned" in repr(capsule)) == versioned
        tensor = np.from_dlpack(tvm_ffi.from_dlpack(capsule))
        assert (address_of(tensor), tensor.strides) == (storage.address, storage.strides)
    copied = np.from_dlpack(storage, copy=True)
    copied[0, 0] = 5.0
    assert storage[0, 0] == 0.0
    assert np.from_dlpack(storage).flags.writeable
    with pytest.raises(BufferError, match=r"dl_device must be \(1, 0\)"):
        storage.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream must be None"):
        storage.__dlpack__(stream=1)


def test_an_array_in_another_type_is_a_copy() -> None:
    storage = pg.storage.ones((2, 2))
    assert storage.__array__(np.float32).dtype == np.float32
    assert not np.shares_memory(storage.__array__(copy=True), np.asarray(storage))
    with pytest.raises(ValueError, match="cannot become float32 without a copy"):
        storage.__array__(np.float32, copy=False)


def test_labels_are_an_attribute_and_a_method() -> None:
    storage = pg.storage.zeros((2, 3, 4, 5), dims=("K", "0", "I", "J"), aligned_index=(1, 2, 3, 4))
    assert storage.__gt_dims__ == ("K", "0", "I", "J") == storage.__gt_dims__()
    assert isinstance(storage.__gt_dims__, tuple)
    assert [str(label) for label in storage.__gt_dims__] == list(storage.dims or ())
    assert storage.__gt_origin__ == storage.default_origin == (3, 4, 1, 0)
    assert pg.storage.get_dims(storage) == pg.storage.get_dims(storage, "IJK") == storage.dims
    plain = pg.storage.zeros((2, 3), aligned_index=(1, 1))
    assert not hasattr(plain, "__gt_dims__")
    assert plain.default_origin == (1, 1)
    assert pg.storage.get_dims(plain, ("I", "K")) == ("I", "K")
    with pytest.raises(pg.errors.InvalidArgumentError, match="neither the storage nor"):
        pg.storage.get_dims(plain)
    with pytest.raises(pg.errors.InvalidArgumentError, match=r"gtscript\.Field or labels, got 3"):
        pg.storage.get_dims(plain, 3)


def test_as_numpy_takes_every_interface_and_refuses_the_rest() -> None:
    storage = pg.storage.ones((3,))

    class OnlyDlpack:
        def __dlpack__(self, **options: Any) -> Any:
            return storage.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return storage.__dlpack_device__()

    class OnlyCuda:
        __cuda_array_interface__ = storage.__array_interface__

    # numpy.asarray makes an array of one object of it.
    assert np.asarray(OnlyDlpack()).dtype == object
    assert address_of(pg.storage.as_numpy(OnlyDlpack())) == storage.address
    assert pg.storage.as_numpy(memoryview(b"ab")).tolist() == [97, 98]
    with pytest.raises(pg.errors.ProtocolError, match="memory of a GPU\nhint: as_cupy"):
        pg.storage.as_numpy(OnlyCuda())
    with pytest.raises(pg.errors.ProtocolError, match="got object"):
        pg.storage.as_numpy(object())


def test_as_cupy_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = pg.storage.ones((3,))
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match="as_cupy needs cupy\nhint: pip install cupy"):
        pg.storage.as_cupy(storage)


def test_indexing_is_that_of_numpy() -> None:
    storage = pg.storage.zeros((3, 4))
    storage[1, 2] = 5.0
    storage[0] = np.arange(4)
    assert storage[1, 2] == 5.0
    assert storage[:, 2].tolist() == [2.0, 5.0, 0.0]
    assert np.shares_memory(storage[1:], np.asarray(storage))
    assert [row.sum() for row in storage] == [6.0, 5.0, 0.0]
    with pytest.raises(IndexError):
        storage[7]
    with pytest.raises(TypeError, match="no length"):
        len(pg.storage.zeros(()))


def test_pickles_and_copies_have_the_values_and_the_layout() -> None:
    storage = pg.storage.zeros(
        (3, 5), "float32", dims="KI", layout=(1, 0), alignment_size=64, aligned_index=(1, 2)
    )
    storage[...] = np.arange(15).reshape(3, 5)
    for other in (pickle.loads(pickle.dumps(storage)), copy.copy(storage), copy.deepcopy(storage)):
        assert repr(other) == repr(storage)
        assert other.address != storage.address
        assert np.array_equal(np.asarray(other), np.asarray(storage))
        assert element_address(other, (1, 2)) % 64 == 0


def test_numpy_is_not_needed_for_numbers() -> None:
    code = """
import sys
sys.modules["numpy"] = None
import partgrid as pg
storage = pg.storage.full((2, 3), 1.5, backend="gt:cpu_ifirst", dims="IJ")
assert memoryview(storage).tolist() == [[1.5] * 3] * 2
assert memoryview(pg.storage.ones((2,), "int32")).tolist() == [1, 1]
grid = pg.from_storage(pg.storage.ones((2, 2), float, layout=(1, 0)))
assert grid.shape == (2, 2)
for needs in (lambda: storage.dtype, lambda: storage[0], lambda: pg.storage.as_numpy(storage)):
    try:
        needs()
    except ImportError as error:
        assert "hint: pip install numpy" in str(error), error
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Memory


@pytest.mark.parametrize("shape", [(10, 3), (300_000,)])
def test_the_memory_lives_as_long_as_a_view_of_it(shape: tuple[int, ...]) -> None:
    ways = [np.asarray, memoryview, np.from_dlpack, tvm_ffi.from_dlpack, pg.storage.as_numpy]
    for way in ways:
        storage = pg.storage.full(shape, 3.25)
        gone = weakref.ref(storage)
        view = way(storage)
        del storage
        gc.collect()
        others = [pg.storage.full(shape, 9.0) for _ in range(20)]
        assert (pg.storage.as_numpy(view) == 3.25).all()
        assert len(others) == 20
        del view
        gc.collect()
        assert gone() is None


def test_an_unused_capsule_frees_its_storage() -> None:
    storage = pg.storage.zeros((4,))
    for version in (None, (1, 0)):
        capsule = storage.__dlpack__(max_version=version)
        with pytest.raises(pg.errors.InvalidArgumentError, match="1 of its views can"):
            pg.from_storage(storage)
        del capsule
    assert pg.from_storage(storage).shape == (4, 1)


def test_zeros_are_pages_that_come_when_they_are_touched() -> None:
    before = resident_bytes()
    storage = pg.storage.zeros((1 << 27,), alignment_size=64)
    assert storage.nbytes == 1 << 30
    assert resident_bytes() - before < 64 << 20
    storage[:: 1 << 20] = 1.0
    assert np.asarray(storage)[: 1 << 22].sum() == 4.0
    del storage
    assert resident_bytes() - before < 128 << 20


def test_memory_is_given_back() -> None:
    for make in (pg.storage.empty, pg.storage.zeros, pg.storage.ones):
        first = resident_bytes()
        for _ in range(200):
            made = make((1 << 20,))
            made[0] = 1.0
            del made
        assert resident_bytes() - first < 256 << 20


def test_many_threads_make_and_use_storages() -> None:
    def work(number: int) -> bool:
        generator = random.Random(number)
        kept = []
        for step in range(100):
            shape = (generator.randint(1, 300), generator.randint(1, 300))
            storage = pg.storage.full(shape, number * 1000 + step, alignment_size=64)
            kept.append((storage, number * 1000 + step))
            del kept[: len(kept) - 20]
        return all((np.asarray(storage) == value).all() for storage, value in kept)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


# Storages and grids


def test_a_storage_becomes_a_dense_tile_without_copying() -> None:
    storage = pg.storage.empty((6, 3), layout=(1, 0), alignment_size=64)
    storage[...] = np.arange(18.0).reshape(6, 3)
    expected = np.asarray(storage).copy()
    grid = pg.from_storage(storage, names=["a", "b", "c"])
    array = grid.tile(0).array()
    assert (array.address, array.strides) == (storage.address, storage.strides)
    assert np.array_equal(grid.to_numpy(), expected)
    assert address_of(grid.to_numpy(copy=False)) == storage.address
    assert grid.sql("SELECT sum(b) AS b FROM self").to_arrow()["b"].to_pylist() == [
        expected[:, 1].sum()
    ]
    for number, name in enumerate("abc"):
        column = grid.tile(0).column(name)
        assert column.address == storage.address + number * 64
    section = grid.distarray(["a", "b", "c"])
    assert section is not None


def test_a_frozen_storage_is_read_only_in_every_interface() -> None:
    storage = pg.storage.ones((4, 2), layout=(1, 0), dims="IJ")
    earlier = storage.__array_interface__
    assert earlier["data"][1] is False
    grid = pg.from_storage(storage)
    assert storage.is_frozen
    assert repr(storage).endswith(", frozen")
    assert storage.__array_interface__["data"] == (storage.address, True)
    for view in (np.asarray(storage), np.from_dlpack(storage), pg.storage.as_numpy(storage)):
        assert not view.flags.writeable
        assert address_of(view) == storage.address
    assert memoryview(storage).readonly
    with pytest.raises(ValueError, match="read-only"):
        storage[0, 0] = 2.0
    with pytest.raises(TypeError, match="not writable"):
        (ctypes.c_double * 8).from_buffer(storage)
    # A library of its own, since the argument types of that of ctypes belong to all.
    get_buffer = ctypes.PyDLL(None).PyObject_GetBuffer
    get_buffer.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    for flags in (0x1, 0x19, 0x1D):
        with pytest.raises(BufferError, match="belongs to a grid, which never changes"):
            get_buffer(storage, ctypes.create_string_buffer(80), flags)
    with pytest.raises(BufferError, match="pass copy=True"):
        storage.__dlpack__()
    writable = np.from_dlpack(storage, copy=True)
    assert (writable.flags.writeable, writable.strides) == (True, storage.strides)
    other = pg.storage.empty_like(storage)
    assert (other.is_frozen, other.dims) == (False, ("I", "J"))
    assert not pickle.loads(pickle.dumps(storage)).is_frozen
    del grid
    gc.collect()
    assert storage.is_frozen


def test_a_storage_that_somebody_can_write_is_refused() -> None:
    for way in (np.asarray, memoryview, np.from_dlpack, tvm_ffi.from_dlpack):
        storage = pg.storage.zeros((4, 2), layout=(1, 0))
        view = way(storage)
        part = pg.storage.as_numpy(view)[1:]
        with pytest.raises(pg.errors.InvalidArgumentError, match="1 of its views can") as caught:
            pg.from_storage(storage)
        assert "delete the arrays and memoryviews" in (caught.value.hint or "")
        assert not storage.is_frozen
        part[0, 0] = 3.0
        del view, part
        gc.collect()
        assert pg.from_storage(storage).to_numpy()[1, 0] == 3.0


def test_the_grid_keeps_the_memory() -> None:
    storage = pg.storage.full((1000, 2), 4.5, layout=(1, 0))
    grid = pg.from_storage(storage)
    del storage
    gc.collect()
    others = [pg.storage.zeros((1000, 2)) for _ in range(50)]
    table = grid.to_arrow()
    del grid
    gc.collect()
    assert table.column(1).to_pylist() == [4.5] * 1000
    assert len(others) == 50


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1, 4)])
def test_storages_of_no_or_one_row_become_grids(shape: tuple[int, ...]) -> None:
    storage = pg.storage.full(shape, 2.0, layout=tuple(reversed(range(len(shape)))))
    grid = pg.from_storage(storage)
    assert grid.shape == (shape[0], [*shape, 1][1])
    assert (grid.to_numpy() == 2.0).all()


def test_what_is_no_columns_is_refused() -> None:
    refused = pg.errors.InvalidArgumentError
    with pytest.raises(refused, match=r"hint: make it with layout=\(1, 0\)"):
        pg.from_storage(pg.storage.zeros((4, 3)))
    with pytest.raises(refused, match="one or two dimensions becomes columns, got 3"):
        pg.from_storage(pg.storage.zeros((4, 3, 2)))
    for dtype in (bool, complex, "M8[s]", ">f8"):
        with pytest.raises(pg.errors.UnsupportedError, match="float16 to float64, got"):
            pg.from_storage(pg.storage.zeros((4,), dtype))
    with pytest.raises(pg.errors.ProtocolError, match=r"Storage was expected, got ndarray"):
        pg.from_storage(np.zeros(4))
    storage = pg.storage.zeros((4, 2), layout=(1, 0))
    for names in (["a"], ["a", "a"], "ab"):
        with pytest.raises(refused):
            pg.from_storage(storage, names=names)  # type: ignore[arg-type]
    assert not storage.is_frozen
    storage[0, 0] = 1.0


@pytest.mark.parametrize("dtype", DTYPES[:11])
def test_a_dense_tile_is_a_storage_over_the_same_memory(dtype: str) -> None:
    values = np.asfortranarray(np.arange(30).reshape(10, 3).astype(dtype))
    tile = pg.from_numpy(values)[2:7].tile(0)
    storage = tile.storage(dims=("K", "I"))
    assert storage.address == address_of(values[2:]) == tile.array().address
    assert (storage.shape, storage.strides, storage.layout) == ((5, 3), values.strides, (1, 0))
    assert (storage.dtype, storage.dims, storage.is_frozen) == (dtype, ("K", "I"), True)
    assert np.array_equal(np.asarray(storage), values[2:7])
    assert not np.asarray(storage).flags.writeable
    like = pg.storage.empty_like(storage)
    like[...] = 1
    assert not like.is_frozen
    again = pg.from_storage(storage, names=["x", "y", "z"])
    assert again.tile(0).array().address == storage.address


def test_a_dense_band_of_a_load_is_a_storage_and_others_are_refused() -> None:
    names = ["hour", "minute"]
    grid = pg.read_parquet(DATA / "flights", columns=names, dense=names)
    storage = grid.tile(3).storage()
    assert storage.alignment_size == 64
    assert storage.address % 64 == 0 == storage.strides[1] % 64
    assert np.asarray(storage)[:, 0].tolist() == grid.tile(3).to_arrow()["hour"].to_pylist()
    with pytest.raises(pg.errors.UnsupportedError, match="dense="):
        pg.read_parquet(DATA / "flights", columns=names).tile(0).storage()
    with pytest.raises(pg.errors.InvalidArgumentError, match="one entry for each of the 2"):
        grid.tile(0).storage(dims="IJK")
