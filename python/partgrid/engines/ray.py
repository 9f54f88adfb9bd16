"""Partitions in Ray's object store, for `grid.partitioned(dialect="xgboost_ray")`.

Comes in: tables. Goes out: references that every process of the Ray cluster can open, and the address of the node that has them. Never here: a Ray that starts
by itself.
"""

from __future__ import annotations

from typing import Any

from partgrid import errors
from partgrid._refusals import needed, refused

Module = Any
Frame = Any
Table = Any
ObjectRef = Any


def node_address() -> str:
    """The address under which Ray knows this node.

    Raises:
        InvalidArgumentError: Ray was not started.
        ImportError: Ray is missing.
    """
    return str(_ray().util.get_node_ip_address())


def num_cpus() -> int:
    """The processors of the whole cluster: as many actors as can run at once when each has one."""
    return max(1, int(_ray().cluster_resources().get("CPU", 1)))


def put(tables: list[Table]) -> list[ObjectRef]:
    """Copies tables into the object store of this node, as pandas frames that xgboost and LightGBM take: LightGBM refuses Arrow-backed columns.

    A column of numbers or booleans is numpy's when no table has a null in it, else of the nullable type of pandas, in all frames alike. Dictionaries become
    categories. All others stay Arrow-backed.

    Args:
        tables: The partitions.

    Returns:
        A reference for each. The objects stay as long as these live.
    """
    nullable = {
        name for table in tables for name in table.column_names if table[name].null_count > 0
    }
    return [_ray().put(_frame(table, nullable)) for table in tables]


def _frame(table: Table, nullable: set[str]) -> Frame:
    import pandas as pd  # noqa: PLC0415 - only when a frame is wanted
    import pyarrow as pa  # noqa: PLC0415

    of_pandas = {
        kind(): getattr(pd, f"{name}Dtype")()
        for kind, name in (
            (pa.bool_, "Boolean"),
            (pa.float32, "Float32"),
            (pa.float64, "Float64"),
            *((getattr(pa, f"int{bits}"), f"Int{bits}") for bits in (8, 16, 32, 64)),
            *((getattr(pa, f"uint{bits}"), f"UInt{bits}") for bits in (8, 16, 32, 64)),
        )
    }

    def series(name: str) -> Any:  # noqa: ANN401 - a pandas.Series
        kind = table.schema.field(name).type
        if pa.types.is_dictionary(kind):
            return table[name].to_pandas()
        if kind not in of_pandas:
            return table[name].to_pandas(types_mapper=pd.ArrowDtype)
        mapper = of_pandas.get if name in nullable else None
        return table[name].to_pandas(types_mapper=mapper)

    columns = {name: series(name) for name in table.column_names}
    return pd.DataFrame(columns, index=range(table.num_rows))


def get(references: Any) -> Any:  # noqa: ANN401 - one reference, or many
    """The frame of a reference, or a list of the frames of a list or tuple: the `get` of `grid.partitioned(dialect="xgboost_ray")`.

    Ray brings an object from another node when it is asked for there.

    Args:
        references: What stands under `data`, or a list or a tuple of it.
    """
    if isinstance(references, (list, tuple)):
        return type(references)(_ray().get(list(references)))
    return _ray().get(references)


def _ray() -> Module:
    ray = needed("ray", 'dialect="xgboost_ray"')
    if not ray.is_initialized():
        message = "Ray is not running in this process"
        raise refused(errors.InvalidArgumentError, message, "call ray.init() first")
    return ray
