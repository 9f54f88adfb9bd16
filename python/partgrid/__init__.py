"""A dataframe as a grid of Arrow tiles.

Says where every tile lives, hands tiles to other libraries without copying, and runs SQL where they are. Importing starts no thread and loads no other library.
"""

from partgrid import _cpu, errors

_cpu.check()

from partgrid import distarray, engines  # noqa: E402
from partgrid._frames import from_pandas  # noqa: E402
from partgrid._native import (  # noqa: E402 - the processor is looked at first
    Array,
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
    Session,
    Tile,
    __version__,
    from_arrow,
    from_distarray,
    from_dlpack,
    from_numpy,
    from_partitioned,
    load_parquet,
    read_parquet,
    sql,
)
from partgrid._polars import from_polars  # noqa: E402
from partgrid.engines.dask import from_dask  # noqa: E402
from partgrid.engines.modin import from_modin  # noqa: E402
from partgrid.errors import PartgridError  # noqa: E402

get = Get("pandas")
"""Turns handles of `__partitioned__` into `pandas.DataFrame` objects; see `Get`."""

__all__ = [
    "Array",
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
    "Session",
    "Tile",
    "__version__",
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
    "get",
    "load_parquet",
    "read_parquet",
    "sql",
]
