"""Grids whose tiles are in actors of Ray, SQL that runs in these actors, and partitions in Ray's object store for `grid.partitioned(dialect="xgboost_ray")`.

Comes in: where files are, references of objects, or tables. Goes out: grids, and references that every process of the Ray cluster can open. Never here: a Ray
that starts by itself, or rows on their way through the driver.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from partgrid import errors
from partgrid._refusals import refused
from partgrid.engines._ray_grid import Part, Parts, RayGrid, asked, get
from partgrid.engines._ray_members import Member, Members, members_of, running

__all__ = [
    "RayGrid",
    "explain",
    "from_dataset",
    "from_refs",
    "get",
    "node_address",
    "num_cpus",
    "put",
    "read_parquet",
    "sql",
]

Module = Any
Frame = Any
Table = Any
ObjectRef = Any
Path = str | os.PathLike[str]

# Seconds in which Ray must say where objects are.
FOUND_MS = 10_000


def read_parquet(  # noqa: PLR0913 - as `partgrid.read_parquet`
    source: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,  # noqa: ANN401 - tuples, or lists of them
    num_members: int | None = None,
    nodes: Sequence[str] | None = None,
    tile_rows: int | None = None,
    hive_partitioning: bool = True,
    schema_evolution: str = "strict",
    string_type: str | None = None,
    storage_options: dict[str, str] | None = None,
    timeout: float | None = None,
) -> RayGrid:
    """Loads Parquet files into actors of Ray, one on each node; each reads its share, and nothing comes through the driver.

    Row bands are shared out by their rows, in order; each actor reads all footers and then its own row groups. With `filters` whole files are shared out, and
    of URLs what the list names. The files are kept in mind: what an actor had that died is read again by a new one.

    Args:
        source: A file, folder, pattern or URL, or a list of these, as `partgrid.read_parquet` takes it. Every node must see the same files there.
        columns: The names of the columns to load, in this order; all by default.
        filters: Conditions on the rows, as `partgrid.read_parquet` takes them.
        num_members: How many actors have a share; by default one for each node. More than nodes are dealt out in turn.
        nodes: The ids of the nodes; by default all that are alive.
        tile_rows: About how many rows a tile holds; by default as `partgrid.read_parquet`, or fewer, so that every actor has some.
        hive_partitioning: Whether folder names such as `month=01` become columns.
        schema_evolution: Which differences between the columns of files are borne: `"strict"`, `"union"` or `"widen"`.
        string_type: `"string"`, `"large_string"` or `"string_view"` for all columns of text.
        storage_options: Settings for the stores of URLs.
        timeout: Seconds after which the load is given up; by default it may take as long as the actors live.

    Returns:
        The grid.

    Raises:
        InvalidArgumentError: Ray is not running, or an argument makes no sense.
        PathNotFoundError: An actor finds no such file.
        InvalidDataError: A file is damaged, or the files changed while they were read.
        ResourcesExhaustedError: The time is over, or the memory of a node.
        ImportError: Ray is missing.

    Examples:
        >>> import ray, partgrid as pg  # doctest: +SKIP
        >>> flights = pg.engines.ray.read_parquet("data/flights", num_members=3)  # doctest: +SKIP
        >>> flights.sql("SELECT count(*) AS n FROM self").to_pydict()  # doctest: +SKIP
        {'n': [336776]}
    """
    ray = running("partgrid.engines.ray.read_parquet")
    _check_count("num_members", num_members)
    wishes = {
        "columns": None if columns is None else list(columns),
        "filters": filters,
        "tile_rows": tile_rows,
        "hive_partitioning": hive_partitioning,
        "schema_evolution": schema_evolution,
        "string_type": string_type,
        "storage_options": storage_options,
    }
    arguments = (_everywhere(source), wishes, "")
    members = members_of(ray)
    chosen = members.recovering(lambda: members.on(nodes, num_members))
    grid = _made(members, [Part(member, "read", arguments) for member in chosen], timeout)
    for part in grid._open().all:
        # From now on the files must be these.
        part.arguments = (*arguments[:2], part.outline.mark if part.outline else "")
    return grid


def from_refs(
    refs: Sequence[ObjectRef],
    *,
    index: str | None = None,
    num_members: int | None = None,
    nodes: Sequence[str] | None = None,
    timeout: float = 600.0,
) -> RayGrid:
    """Makes a grid of objects in Ray's object store: the rows of the first, below them those of the second, and so on. Nothing comes through the driver.

    Each object is adopted by an actor on a node that has it, over the memory of the object store, without copying; the grid keeps it alive. What an actor had
    that died is adopted again by a new one.

    Args:
        refs: References to tables of pyarrow, frames of pandas or anything else that `partgrid.from_arrow` takes, with equal columns. Objects that are still
            made are waited for.
        index: What becomes of the labels of pandas frames, as `partgrid.from_pandas` takes it.
        num_members: How many actors there are; by default one for each node. More than nodes are dealt out in turn.
        nodes: The ids of the nodes; by default all that are alive.
        timeout: Seconds in which the objects must be there.

    Returns:
        The grid.

    Raises:
        InvalidArgumentError: Ray is not running, there are no references, or something else among them; or objects have other columns than the first.
        PartitionLostError: Ray has lost an object.
        ProtocolError: An object is nothing that a grid can be made of.
        InvalidDataError: The task failed that makes an object.
        ResourcesExhaustedError: The time is over.
        ImportError: Ray is missing.

    Examples:
        >>> import ray, partgrid as pg, pyarrow as pa  # doctest: +SKIP
        >>> pg.engines.ray.from_refs([ray.put(pa.table({"a": [1, 2]}))]).shape  # doctest: +SKIP
        (2, 1)
    """
    ray = running("partgrid.engines.ray.from_refs")
    given = _checked(ray, refs)
    _check_count("num_members", num_members)
    ends = time.monotonic() + timeout
    _, missing = ray.wait(given, num_returns=len(given), timeout=timeout, fetch_local=False)
    if missing:
        message = (
            f"{len(missing)} of {len(given)} objects were not there within {timeout:g} seconds"
        )
        raise errors.ResourcesExhaustedError(message, {}, None, True)
    members = members_of(ray)
    chosen = members.recovering(lambda: members.on(nodes, num_members))
    parts = [
        Part(member, "adopt", ([ref], index, timeout), ref)
        for ref, member in zip(given, _owners(ray, given, chosen), strict=True)
    ]
    return _made(members, parts, max(1.0, ends - time.monotonic()))


def from_dataset(
    dataset: Any,  # noqa: ANN401 - a ray.data.Dataset
    *,
    num_members: int | None = None,
    nodes: Sequence[str] | None = None,
    timeout: float = 600.0,
) -> RayGrid:
    """Runs a dataset of Ray Data and makes a grid of its blocks, where they are, without copying those that are Arrow tables.

    Args:
        dataset: A `ray.data.Dataset`.
        num_members: How many actors there are; see `from_refs`.
        nodes: The ids of the nodes; see `from_refs`.
        timeout: Seconds in which the blocks must be adopted.

    Returns:
        The grid.

    Raises:
        InvalidArgumentError: It is no such dataset, or has no block.
        PartgridError: As `from_refs`.
    """
    running("partgrid.engines.ray.from_dataset")
    blocks = getattr(dataset, "to_arrow_refs", None)
    if not callable(blocks):
        kind = type(dataset)
        message = f"dataset must be a ray.data.Dataset, got {kind.__module__}.{kind.__qualname__}"
        raise refused(errors.InvalidArgumentError, message, None)
    return from_refs(blocks(), num_members=num_members, nodes=nodes, timeout=timeout)


def sql(query: str, params: Any = None, *, timeout: float | None = None, **grids: RayGrid) -> Table:  # noqa: ANN401
    """Runs SQL over grids in actors of Ray; each actor reads its own tiles.

    An actor on the node of the driver plans the statement, if there is one. Actors that died are replaced before, and a statement during which one dies is
    begun again, three times at most: nothing of it was given to anybody.

    Args:
        query: One statement. It names the grids as the keyword arguments do.
        params: Values for its parameters: a list for `$1`, a dict for `$name`.
        timeout: Seconds that it may take.
        grids: The grids.

    Returns:
        A `pyarrow.Table`.

    Raises:
        QueryError: The SQL is wrong.
        InvalidArgumentError: There is no grid, or something else is given as one.
        PartitionLostError: What an actor had that died cannot be made again.
        WorkerLostError: Actors die again and again, or do not reach each other.
        ResourcesExhaustedError: The time is over, or the memory for queries.

    Examples:
        >>> import partgrid as pg
        >>> pg.engines.ray.sql("SELECT count(*) FROM a JOIN b USING (k)", a=a, b=b)  # doctest: +SKIP
    """
    return asked(query, params, grids, timeout, lambda result: result.to_arrow())


def explain(query: str, params: Any = None, *, analyze: bool = False, **grids: RayGrid) -> str:  # noqa: ANN401
    """The plan of a statement: its stages, and which tiles each actor reads.

    Args:
        query: One statement, as for `sql`.
        params: Values for its parameters.
        analyze: Whether to run it first, and show what each operator counted, for each actor.
        grids: The grids.

    Returns:
        The plan, one operator a line.

    Raises:
        PartgridError: As `sql`.
    """
    text: str = asked(query, params, grids, None, lambda result: result.explain(analyze=analyze))
    return text


def _made(members: Members, parts: list[Part], within: float | None) -> RayGrid:
    """The grid of parts, once they are there and fit each other."""
    made = Parts(f"ray_{secrets.token_hex(8)}", members, parts)
    try:
        members.recovering(lambda: made.make(within))
        made.refuse_odd()
    except BaseException:
        members.release(made.name)
        raise
    return RayGrid(made)


def _checked(ray: Module, refs: Any) -> list[ObjectRef]:  # noqa: ANN401 - whatever the caller gave
    hint = "refs=[ray.put(table), ...]"
    if isinstance(refs, (ray.ObjectRef, str, bytes, dict)) or not hasattr(refs, "__iter__"):
        message = f"refs must be a list of ray.ObjectRef, got {type(refs).__name__}"
        raise refused(errors.InvalidArgumentError, message, hint)
    given = list(refs)
    for number, ref in enumerate(given):
        if not isinstance(ref, ray.ObjectRef):
            message = f"refs[{number}] must be a ray.ObjectRef, got {type(ref).__name__}"
            raise refused(errors.InvalidArgumentError, message, hint)
    if not given:
        message = "a grid needs one object at least, got no references"
        raise refused(errors.InvalidArgumentError, message, hint)
    return given


def _owners(ray: Module, refs: list[ObjectRef], members: list[Member]) -> list[Member]:
    """For each object a member on a node that has it, that with the fewest bytes so far; any, if Ray does not know of a node."""
    places: dict[ObjectRef, dict[str, Any]] = {}
    with suppress(ray.exceptions.RayError, RuntimeError):
        places = ray.experimental.get_object_locations(list(set(refs)), timeout_ms=FOUND_MS)
    load = dict.fromkeys(members, 0)
    owners = []
    for ref in refs:
        place = places.get(ref, {})
        near = [member for member in members if member.node in place.get("node_ids", ())]
        owner = min(near or members, key=lambda member: load[member])
        load[owner] += max(1, place.get("object_size") or 0)
        owners.append(owner)
    return owners


def _everywhere(source: Any) -> Any:  # noqa: ANN401 - a path, or several
    """Paths as actors take them, whose folder is another one."""
    if isinstance(source, (str, os.PathLike)):
        text = os.fspath(source)
        return text if "://" in text else os.path.abspath(text)
    if isinstance(source, Sequence) and source:
        return [_everywhere(each) for each in source]
    message = f"source must be a path or a list of paths, got {source!r}"
    raise refused(errors.InvalidArgumentError, message, None)


def _check_count(name: str, count: int | None) -> None:
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        message = f"{name} must be a whole number from 1, got {count!r}"
        raise refused(errors.InvalidArgumentError, message, None)


def node_address() -> str:
    """The address under which Ray knows this node.

    Raises:
        InvalidArgumentError: Ray was not started.
        ImportError: Ray is missing.
    """
    return str(running('dialect="xgboost_ray"').util.get_node_ip_address())


def num_cpus() -> int:
    """The processors of the whole cluster: as many actors as can run at once when each has one."""
    return max(1, int(running('dialect="xgboost_ray"').cluster_resources().get("CPU", 1)))


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
    return [running('dialect="xgboost_ray"').put(_frame(table, nullable)) for table in tables]


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
