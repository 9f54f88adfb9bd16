"""Frames and programs of engines that work with many processes, as grids and back.

One module for each engine, which is loaded when it is first named, and imports the engine only when one of its functions is called. Never here: starting an
engine, or data that moves without being asked for.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from partgrid.engines import dask, modin, mpi, ray

__all__ = ["dask", "modin", "mpi", "ray"]


# Type checkers see what there is above, and that nothing else is there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> "ModuleType":
        if name not in __all__:
            text = f"module {__name__!r} has no attribute {name!r}; the engines are {', '.join(__all__)}"
            raise AttributeError(text, name=name)
        return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return list(__all__)
