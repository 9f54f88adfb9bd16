"""A dataframe as a grid of Arrow tiles.

Says where every tile lives, hands tiles to other libraries without copying, and runs SQL where they are. Importing starts no thread and loads no other library.
"""

import atexit
import importlib
import os
from typing import TYPE_CHECKING

from partgrid import _cpu, errors

_cpu.check()

from partgrid import _elsewhere, buffer, distarray, storage  # noqa: E402
from partgrid._frames import from_pandas  # noqa: E402
from partgrid._native import (  # noqa: E402 - the processor is looked at first
    Array,
    Connection,
    DeviceColumn,
    DistArray,
    Get,
    Grid,
    Handle,
    LoadJob,
    LoadProgress,
    Partitioned,
    Prepared,
    QueryMetrics,
    QueryProgress,
    Result,
    ResultStream,
    Schema,
    Section,
    Server,
    Session,
    Tile,
    __version__,
    _end_calls,
    _forget_threads,
    _go_on,
    _stand_still,
    connect,
    from_arrow,
    from_distarray,
    from_dlpack,
    from_numpy,
    from_partitioned,
    from_storage,
    load_parquet,
    read_parquet,
    register_copy_engine,
    shared_memory,
    sql,
)
from partgrid._polars import from_polars  # noqa: E402
from partgrid.errors import PartgridError  # noqa: E402

if TYPE_CHECKING:
    from partgrid import engines
    from partgrid.engines.dask import from_dask
    from partgrid.engines.modin import from_modin

# Threads that run queries must not be in Python when it ends, stand still during a fork, and those of a parent are not in its children.
atexit.register(_end_calls)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_stand_still, after_in_parent=_go_on, after_in_child=_forget_threads)

_elsewhere.say_where(Result, Grid, Session, Connection)

get = Get("pandas")
"""Turns handles of `__partitioned__` into `pandas.DataFrame` objects; see `Get`."""

__all__ = [
    "Array",
    "Connection",
    "DeviceColumn",
    "DistArray",
    "Get",
    "Grid",
    "Handle",
    "LoadJob",
    "LoadProgress",
    "PartgridError",
    "Partitioned",
    "Prepared",
    "QueryMetrics",
    "QueryProgress",
    "Result",
    "ResultStream",
    "Schema",
    "Section",
    "Server",
    "Session",
    "Tile",
    "__version__",
    "buffer",
    "connect",
    "distarray",
    "engines",
    "errors",
    "from_arrow",
    "from_dask",
    "from_distarray",
    "from_dlpack",
    "from_modin",
    "from_numpy",
    "from_pandas",
    "from_partitioned",
    "from_polars",
    "from_storage",
    "get",
    "load_parquet",
    "read_parquet",
    "register_copy_engine",
    "shared_memory",
    "sql",
    "storage",
]

# What is loaded when it is first named: what engines need is more than half of the time that loading everything takes.
_LATER = {
    "engines": "partgrid.engines",
    "from_dask": "partgrid.engines.dask",
    "from_modin": "partgrid.engines.modin",
}


# Type checkers see what there is above, and that nothing else is there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise _elsewhere.not_in_module(__name__, name)
        module = importlib.import_module(_LATER[name])
        found = module if name == "engines" else getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
