"""A dataframe as a grid of Arrow tiles.

Says where every tile lives, hands tiles to other libraries without copying, and runs SQL where they are. Importing starts no thread and loads no other library.
"""

from partgrid import errors
from partgrid._native import (
    DistArray,
    Grid,
    Handle,
    LoadJob,
    LoadProgress,
    Result,
    Section,
    SectionBuffer,
    Session,
    Tile,
    __version__,
    from_arrow,
    get,
    load_parquet,
    read_parquet,
    sql,
)
from partgrid.errors import PartgridError

__all__ = [
    "DistArray",
    "Grid",
    "Handle",
    "LoadJob",
    "LoadProgress",
    "PartgridError",
    "Result",
    "Section",
    "SectionBuffer",
    "Session",
    "Tile",
    "__version__",
    "errors",
    "from_arrow",
    "get",
    "load_parquet",
    "read_parquet",
    "sql",
]
