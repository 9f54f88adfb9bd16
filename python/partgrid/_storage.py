"""What storages need of Python: labels in both forms, arrays of other libraries, and pickled storages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from partgrid._native import Storage, empty
from partgrid.errors import ProtocolError

# A `numpy.ndarray` or a `cupy.ndarray`.
Array = Any


class DimsTuple(tuple[str, ...]):
    """Labels of dimensions: GT4Py reads `__gt_dims__` as a tuple, its specification calls it."""

    __slots__ = ()

    def __call__(self) -> tuple[str, ...]:
        """The labels."""
        return tuple(self)


def dims_of(array: object) -> tuple[str, ...] | None:
    """The labels that an object gives its dimensions in `__gt_dims__`, as an attribute or as a method."""
    dims = getattr(array, "__gt_dims__", None)
    # A tuple of ours may be called, and needs not be.
    if callable(dims) and not isinstance(dims, tuple):
        dims = dims()
    return None if dims is None else tuple(str(dim) for dim in dims)


def as_numpy(storage: object) -> Array:
    """The array over the memory of a storage, or of any object with an interface for memory of the host.

    Args:
        storage: An object that `numpy.asarray` takes, or one with `__dlpack__`.

    Returns:
        A `numpy.ndarray`. It shares the memory wherever numpy does.

    Raises:
        ProtocolError: The object has none of the interfaces, or only that of memory of a GPU.
        ImportError: numpy is not installed.

    Examples:
        >>> import partgrid as pg
        >>> pg.storage.as_numpy(pg.storage.ones((2, 2)))
        array([[1., 1.],
               [1., 1.]])
    """
    np = _imported("numpy", "as_numpy", "numpy")
    interfaces = ("__array_interface__", "__array_struct__", "__array__")
    if any(hasattr(storage, name) for name in interfaces) or _is_buffer(storage):
        return np.asarray(storage)
    if hasattr(storage, "__dlpack__"):
        return np.from_dlpack(storage)
    text = f"an object with a buffer, __array_interface__, __array__ or __dlpack__ was expected, got {type(storage).__qualname__}"
    hint = "numpy.asarray makes an array of lists"
    if hasattr(storage, "__cuda_array_interface__"):
        text, hint = (
            "memory of the host was expected, got memory of a GPU",
            "as_cupy(...).get() copies it",
        )
    raise ProtocolError(f"{text}\nhint: {hint}", None, hint)


def as_cupy(storage: object) -> Array:
    """The array over the memory of a storage on a GPU: `cupy.asarray`. Memory of the host is copied to the GPU.

    Args:
        storage: An object that `cupy.asarray` takes.

    Returns:
        A `cupy.ndarray`.

    Raises:
        ImportError: cupy is not installed.
    """
    package = "cupy-cuda12x, or the package for the CUDA that is installed"
    return _imported("cupy", "as_cupy", package).asarray(storage)


def restored(values: Array, parameters: dict[str, Any]) -> Storage:
    """A storage that was pickled."""
    made = empty(values.shape, values.dtype, **parameters)
    made[...] = values
    return made


def _imported(module: str, wanted_by: str, package: str) -> Any:  # noqa: ANN401 - a module without types
    """The module, or an error that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        text = f"{wanted_by} needs {module}\nhint: pip install {package}"
        raise ImportError(text) from error


def _is_buffer(candidate: object) -> bool:
    """Whether the object has the buffer interface."""
    try:
        memoryview(candidate).release()  # type: ignore[arg-type]
    except (TypeError, BufferError):
        return False
    return True
