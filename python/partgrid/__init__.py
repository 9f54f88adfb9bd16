"""A dataframe as a grid of Arrow tiles.

Says where every tile lives, hands tiles to other libraries without copying, and runs SQL where they are. Importing starts no thread and loads no other library.
"""

from partgrid import _cpu, errors

_cpu.check()

from partgrid._native import (  # noqa: E402 - the processor is looked at first
    Array,
    DistArray,
    Grid,
    Handle,
    LoadJob,
    LoadProgress,
    Result,
    Section,
    Session,
    Tile,
    __version__,
    from_arrow,
    from_dlpack,
    from_numpy,
    get,
    load_parquet,
    read_parquet,
    sql,
)
from partgrid.errors import PartgridError  # noqa: E402

__all__ = [
    "Array",
    "DistArray",
    "Grid",
    "Handle",
    "LoadJob",
    "LoadProgress",
    "PartgridError",
    "Result",
    "Section",
    "Session",
    "Tile",
    "__version__",
    "errors",
    "from_arrow",
    "from_dlpack",
    "from_numpy",
    "get",
    "load_parquet",
    "read_parquet",
    "sql",
]
