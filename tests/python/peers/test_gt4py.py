"""GT4Py runs stencils on our storages where they lie: with numpy and, where a C++ compiler is, with the compiled backends of GridTools.

Warnings that a layout is not that of the backend are errors here.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import sys
import warnings
from typing import Any

import numpy as np
import pytest

# Compiled stencils are kept beside the environment.
os.environ.setdefault("GT_CACHE_ROOT", sys.prefix)
pytest.importorskip("gt4py", reason="gt4py is not installed")

from gt4py.cartesian import gtscript
from gt4py.cartesian.gtscript import IJK, Field, K

import partgrid as pg
from peers.gt4py_stencils import components, laplacian, planes_and_columns, single, tridiagonal

COMPILER = os.environ.get("CXX", "g++")
HAS_COMPILER = shutil.which(COMPILER) is not None
compiled = pytest.mark.skipif(not HAS_COMPILER, reason=f"{COMPILER} is not installed")
BACKENDS = [
    "numpy",
    pytest.param("gt:cpu_kfirst", marks=compiled),
    pytest.param("gt:cpu_ifirst", marks=compiled),
]
ORDERS = ["".join(order) for order in itertools.permutations("IJK")]
EXTENTS = {"I": 9, "J": 8, "K": 7, "0": 2, "1": 3}
random = np.random.default_rng(7)


STENCILS: dict[tuple[str, str], Any] = {}


def call(definition: Any, backend: str, **arguments: Any) -> None:
    """Runs a stencil; a layout that the backend does not like is an error, whatever was called before."""
    key = (definition.__name__, backend)
    if key not in STENCILS:
        STENCILS[key] = gtscript.stencil(backend=backend, definition=definition)
    stencil = STENCILS[key]
    # The layout is looked at only when shapes and origins are new.
    stencil.clean_call_args_cache()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The layout of the field")
        stencil(**arguments)


def field(labels: str, backend: str, dtype: Any = np.float64, **options: Any) -> pg.storage.Storage:
    """A storage of random numbers."""
    shape = [EXTENTS[label] for label in labels]
    storage = pg.storage.zeros(shape, dtype, backend=backend, dims=tuple(labels), **options)
    storage[...] = random.random(shape)
    return storage


def canonical(storage: pg.storage.Storage) -> np.ndarray:
    """The values with the dimensions in the order of stencils."""
    labels = pg.storage.get_dims(storage)
    order = sorted(range(len(labels)), key=lambda place: "IJK01".index(labels[place]))
    return np.asarray(storage).transpose(order)


@pytest.mark.parametrize("labels", ORDERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_laplacian_in_every_order_of_the_labels(backend: str, labels: str) -> None:
    origin = tuple(0 if label == "K" else 1 for label in labels)
    inp = field(labels, backend, aligned_index=origin)
    out = field(labels, backend, aligned_index=origin)
    before = canonical(out).copy()
    call(laplacian, backend, inp=inp, out=out)
    a, b = canonical(inp), canonical(out)
    expected = a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4.0 * a[1:-1, 1:-1]
    np.testing.assert_allclose(b[1:-1, 1:-1], expected, rtol=1e-12, atol=1e-12)
    # Nothing is written outside the domain that the origin opens.
    before[1:-1, 1:-1] = b[1:-1, 1:-1]
    assert np.array_equal(b, before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_orders_may_differ_between_fields(backend: str) -> None:
    inp = field("KIJ", backend, aligned_index=(0, 1, 1))
    out = field("JKI", backend, aligned_index=(1, 0, 1))
    call(laplacian, backend, inp=inp, out=out)
    a = canonical(inp)
    expected = a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4.0 * a[1:-1, 1:-1]
    np.testing.assert_allclose(canonical(out)[1:-1, 1:-1], expected, rtol=1e-12, atol=1e-12)


@compiled
@pytest.mark.parametrize("backend", ["gt:cpu_kfirst", "gt:cpu_ifirst"])
def test_a_layout_that_is_not_that_of_the_backend_is_noticed(backend: str) -> None:
    other = {"gt:cpu_kfirst": "gt:cpu_ifirst", "gt:cpu_ifirst": "gt:cpu_kfirst"}[backend]
    inp = field("IJK", other, aligned_index=(1, 1, 0))
    out = field("IJK", backend, aligned_index=(1, 1, 0))
    with pytest.raises(UserWarning, match="The layout of the field 'inp' is not recommended"):
        call(laplacian, backend, inp=inp, out=out)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_vertical_solver(backend: str) -> None:
    below, middle, above, right, out = (field("IJK", backend) for _ in range(5))
    middle[...] = np.asarray(middle) + 4.0
    systems = [canonical(each).copy() for each in (below, middle, above, right)]
    call(tridiagonal, backend, below=below, middle=middle, above=above, right=right, out=out)
    levels = EXTENTS["K"]
    for i, j in itertools.product(range(EXTENTS["I"]), range(EXTENTS["J"])):
        b, m, a, r = (each[i, j] for each in systems)
        matrix = np.diag(m) + np.diag(b[1:], -1) + np.diag(a[: levels - 1], 1)
        np.testing.assert_allclose(canonical(out)[i, j], np.linalg.solve(matrix, r), rtol=1e-9)


@pytest.mark.parametrize("plane", ["IJ", "JI"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_planes_and_columns(backend: str, plane: str) -> None:
    surface, profile, out = field(plane, backend), field("K", backend), field("IJK", backend)
    call(planes_and_columns, backend, surface=surface, profile=profile, out=out)
    expected = canonical(surface)[:, :, None] + 10.0 * canonical(profile)
    np.testing.assert_allclose(canonical(out), expected)


@pytest.mark.parametrize("orders", [("IJK0", "IJK01"), ("0KJI", "1K0JI"), ("I0JK", "IJ1K0")])
@pytest.mark.parametrize("backend", BACKENDS)
def test_dimensions_of_data(backend: str, orders: tuple[str, str]) -> None:
    vector, matrix = field(orders[0], backend), field(orders[1], backend)
    out = field(orders[0], backend)
    assert len(vector.default_origin) == 4
    call(components, backend, vector=vector, matrix=matrix, out=out)
    v, m, o = canonical(vector), canonical(matrix), canonical(out)
    np.testing.assert_allclose(o[..., 0], v[..., 1] + m[..., 0, 2])
    np.testing.assert_allclose(o[..., 1], v[..., 0] - m[..., 1, 0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_origin_that_is_given_goes_before_that_of_the_storage(backend: str) -> None:
    inp = field("IJK", backend, aligned_index=(3, 3, 0))
    out = field("IJK", backend, aligned_index=(3, 3, 0))
    assert out.default_origin == out.__gt_origin__ == (3, 3, 0)
    out[...] = 0.0
    call(laplacian, backend, inp=inp, out=out)
    written = np.argwhere(np.asarray(out) != 0.0)
    assert written.min(axis=0).tolist() == [3, 3, 0]
    call(laplacian, backend, inp=inp, out=out, origin=(1, 2, 0))
    written = np.argwhere(np.asarray(out) != 0.0)
    assert written.min(axis=0).tolist() == [1, 2, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_labels_the_order_of_the_annotation_is_taken(backend: str) -> None:
    profile = pg.storage.full((EXTENTS["K"],), 2.0, backend=backend)
    surface = pg.storage.ones((EXTENTS["I"], EXTENTS["J"]), backend=backend)
    out = pg.storage.zeros((EXTENTS["I"], EXTENTS["J"], EXTENTS["K"]), backend=backend)
    call(planes_and_columns, backend, surface=surface, profile=profile, out=out)
    assert (np.asarray(out) == 21.0).all()
    annotation = Field[IJK, (np.float64, (2, 3))]
    assert pg.storage.get_dims(out, annotation) == ("I", "J", "K", "0", "1")
    assert pg.storage.get_dims(profile, Field[K, np.float64]) == ("K",)
    assert pg.storage.zeros((2, 3), dims=(gtscript.K, gtscript.I)).dims == ("K", "I")


@pytest.mark.parametrize("alignment", [4, 32, 64, 512])
@pytest.mark.parametrize("backend", BACKENDS)
def test_any_alignment_and_another_type(backend: str, alignment: int) -> None:
    model = field("IJK", backend, np.float32)
    inp = pg.storage.full_like(model, 1.25, alignment_size=alignment, aligned_index=(2, 1, 3))
    out = pg.storage.empty_like(inp)
    call(single, backend, inp=inp, out=out, origin=(0, 0, 0))
    assert (np.asarray(out) == 2.5).all()
    with pytest.raises(TypeError, match="float64"):
        call(single, backend, inp=field("IJK", backend), out=out, origin=(0, 0, 0))


def test_a_dense_band_is_an_input_of_the_numpy_backend() -> None:
    values = pg.storage.empty((EXTENTS["I"], EXTENTS["J"]), layout=(1, 0), dims="IJ")
    values[...] = random.random(values.shape)
    grid = pg.from_storage(values)
    band = grid.tile(0).storage(dims="IJ")
    assert band.address == values.address
    profile, out = field("K", "numpy"), field("IJK", "numpy")
    # Its layout is that of columns, not that of the backend.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gtscript.stencil(backend="numpy", definition=planes_and_columns)(band, profile, out)
    expected = np.asarray(band)[:, :, None] + 10.0 * np.asarray(profile)
    np.testing.assert_allclose(np.asarray(out), expected)


@compiled
def test_compiled_backends_want_memory_that_they_could_write() -> None:
    surface = field("IJ", "gt:cpu_kfirst")
    profile, out = field("K", "gt:cpu_kfirst"), field("IJK", "gt:cpu_kfirst")
    frozen = pg.from_storage(pg.storage.zeros(surface.shape, layout=(1, 0))).tile(0)
    stencil = gtscript.stencil(backend="gt:cpu_kfirst", definition=planes_and_columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((ValueError, BufferError), match="read-only"):
            stencil(frozen.storage(dims="IJ"), profile, out)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stencil_keeps_no_storage(backend: str) -> None:
    surface, profile, out = field("IJ", backend), field("K", backend), field("IJK", backend)
    call(planes_and_columns, backend, surface=surface, profile=profile, out=out)
    gc.collect()
    made = pg.storage.zeros((3, 2), layout=(1, 0))
    np.asarray(made)[...] = 1.0
    # Nobody can write to them any more: they may become part of a grid.
    assert pg.from_storage(profile, ["level"]).shape == (EXTENTS["K"], 1)
    assert pg.from_storage(made).shape == (3, 2)
