"""Grids whose tiles are in the workers of Dask.

Comes in: frames and futures of Dask. Goes out: a grid of them where they are, with SQL over it. Never here: rows that leave their worker, unless `to_arrow` or
`get` asks for them.
"""

from __future__ import annotations

import time
import weakref
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from partgrid import _native, errors
from partgrid._frames import check_index
from partgrid._refusals import needed, refused
from partgrid.engines._dask_adopt import Adoption
from partgrid.engines._dask_cluster import Cluster
from partgrid.engines._dask_load import client_of, tables_of, until_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Libraries that are imported only where their frames come in or go out.
Client = Any
Frame = Any
Future = Any
Schema = Any
Table = Any

# How often a statement is begun again whose partitions were lost while it ran.
ATTEMPTS = 3


def persist(
    frame: Frame,
    *,
    index: str | None = None,
    client: Client = None,
    timeout: float | None = 600,
) -> DaskGrid:
    """Makes a grid of the partitions of a frame where Dask keeps them: no row leaves its worker.

    Dask computes the partitions on its workers if it has not yet, and keeps them as long as the grid lives. Each worker becomes a member of a cluster
    (docs/cluster.md) that reads its own partitions. partgrid must be installed where the workers run.

    Args:
        frame: A `dask.dataframe.DataFrame` or `Series`; or a list of futures or delayed values of frames: of pandas, of pyarrow, or anything that `from_arrow`
            takes.
        index: What becomes of row labels: `"keep"` makes columns of them, `"drop"` leaves them away. By default they must be numbers without a gap, which run
            through the whole frame or begin with 0 in each partition.
        client: The client of `distributed`; by default the current one.
        timeout: Seconds that Dask may take to compute the partitions, and each time to compute lost ones anew; `None` for as long as it takes.

    Returns:
        The grid, one row band for each partition.

    Raises:
        InvalidArgumentError: It is no such frame, there is no client, there are row labels and `index` does not say what becomes of them, or partitions have
            columns of different types.
        UnsupportedError: A column holds what Arrow cannot keep, the client is asynchronous, or workers on several machines speak TLS.
        PartitionLostError: Data is lost that Dask cannot compute anew.
        WorkerLostError: A worker does not answer, or there is none.
        ResourcesExhaustedError: Dask takes longer than `timeout`.
    """
    check_index(index)
    until = until_of(timeout)
    client = client_of(client)
    cluster = Cluster.of(client)
    tables, lengths, schema = tables_of(cluster, client, frame, index, until)
    return DaskGrid(client, tables, lengths, schema, timeout)


class DaskGrid:
    """A dataframe whose tiles are in the workers of Dask: one row band for each partition. Made by `persist`.

    It knows where its partitions are, runs SQL there, and looks again before each answer: partitions that Dask moved, or computed anew after a worker was
    lost, are adopted where they are now. Dask keeps the partitions until `close`, or until nobody holds the grid or a handle of `__partitioned__`.

    Examples:
        >>> import partgrid as pg
        >>> grid = pg.engines.dask.persist(frame)  # doctest: +SKIP
        >>> grid.sql("SELECT g, sum(x) AS x FROM self GROUP BY g").to_pandas()  # doctest: +SKIP
    """

    def __init__(
        self,
        client: Client,
        tables: list[Future],
        lengths: list[int],
        schema: Schema,
        timeout: float | None,
    ) -> None:
        handle = needed("partgrid.engines._dask_handle", "persist")
        address = client.scheduler.address
        self._client = client
        self._handles = [handle.PartitionFuture(each.key, client, address) for each in tables]
        self._rows = tuple(accumulate(lengths, initial=0))
        self._schema = schema
        self._timeout = timeout
        self._adoption = Adoption(Cluster.of(client), self._rows)
        # Must not hold the handles, by which Dask knows that somebody wants the partitions.
        self._end = weakref.finalize(self, self._adoption.end)
        # Dask lets go of everything when the process ends.
        self._end.atexit = False
        self._settle()

    @property
    def schema(self) -> Schema:
        """The columns as a `pyarrow.Schema`."""
        return self._schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._schema.names)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._rows[-1], len(self._schema)

    def __len__(self) -> int:
        return self._rows[-1]

    @property
    def cuts(self) -> tuple[tuple[int, ...], tuple[int, int]]:
        """The cut points of the rows and of the columns: they start at 0 and end with the shape."""
        return self._rows, (0, len(self._schema))

    @property
    def tiling(self) -> tuple[int, int]:
        """The number of tiles along rows and columns."""
        return len(self._handles), 1

    def locations(self) -> list[list[tuple[str, int]]]:
        """Where each tile is at this moment, in row-major order: `(IP, PID)` of every worker that has it, first of the one that reads it for SQL."""
        self._settle()
        return self._adoption.locations

    @property
    def __partitioned__(self) -> dict[str, Any]:
        """The `__partitioned__` protocol (draft of 2022-01-27), to the letter: a fresh plain dictionary at each access.

        `data` is a `distributed.Future` that pickles with the standard library. `get` takes one, a list or a tuple, in any process that reaches the scheduler,
        and brings `pandas.DataFrame` objects there. `location` is a list of `(IP, PID)` of the workers that have the partition. There is no `locals`.
        """
        dask = needed("partgrid.engines.dask", "__partitioned__")
        width = len(self._schema)
        entries = zip(pairwise(self._rows), self._handles, self.locations(), strict=True)
        partitions = {
            (row_band, 0): {
                "start": (start, 0),
                "shape": (end - start, width),
                "data": handle,
                "location": location,
            }
            for row_band, ((start, end), handle, location) in enumerate(entries)
        }
        return {
            "shape": self.shape,
            "partition_tiling": self.tiling,
            "partitions": partitions,
            "get": dask.get,
        }

    def sql(self, query: str, params: Any = None, *, timeout: float | None = 600) -> Table:  # noqa: ANN401
        """Runs SQL over this grid under the name `self`; see `partgrid.engines.dask.sql`."""
        return sql(query, params, timeout=timeout, **{"self": self})

    def to_arrow(self) -> Table:
        """The grid as a `pyarrow.Table` in this process, one chunk for each row band: every row is copied here.

        Raises:
            PartitionLostError: Data is lost that Dask cannot compute anew.
        """
        handle = needed("partgrid.engines._dask_handle", "to_arrow")
        self._settle()
        tables = handle.tables_of(self._handles)
        return _native._from_parts([[table] for table in tables]).to_arrow()

    def to_dask(self) -> Frame:
        """The grid as a `dask.dataframe.DataFrame`: one partition for each row band, of Arrow-backed columns, with row numbers as labels.

        Nothing moves: the partitions are made of the tables where these are, over the same memory where pandas can.
        """
        dask = needed("partgrid.engines.dask", "to_dask")
        self._settle()
        return dask.frame_of_futures(self._handles, self._rows, self._schema)

    def close(self) -> None:
        """Lets go of the partitions: the members have them no more, nor has Dask, unless somebody else holds their futures."""
        self._end()
        self._handles = []

    def __enter__(self) -> DaskGrid:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:  # noqa: ANN401
        message = "a DaskGrid stays with its client, and is not pickled"
        hint = "pickle grid.__partitioned__; persist(futures) makes a grid in another client"
        raise refused(errors.UnsupportedError, message, hint)

    def __repr__(self) -> str:
        rows, columns = self.shape
        if not self._end.alive:
            return f"DaskGrid of {rows:,} rows x {columns} columns, closed"
        lines = [f"DaskGrid of {rows:,} rows x {columns} columns in {len(self._handles)} row bands"]
        lines += self._adoption.described()
        lines += [f"  {field.name}: {field.type}" for field in self._schema]
        return "\n".join(lines)

    def _settle(self, until: float = float("inf"), *, again: bool = False) -> None:
        """Has the members adopt the partitions where they are now; see `Adoption.settle`."""
        if not self._end.alive:
            message = "the grid is closed"
            raise refused(errors.InvalidArgumentError, message, "make it again with persist")
        if self._client.status != "running":
            message = f"the client of the grid is {self._client.status}"
            hint = "make the grid again with another client"
            raise refused(errors.InvalidArgumentError, message, hint)
        self._adoption.settle(self._handles, min(until, until_of(self._timeout)), again=again)


def sql(query: str, params: Any = None, *, timeout: float | None = 600, **grids: DaskGrid) -> Table:  # noqa: ANN401
    """Runs SQL over grids of `persist`; each worker reads its own partitions, and only the answer comes here.

    A worker that has most of the rows is asked; this process must reach the port of its member. Partitions that are lost meanwhile are computed anew by Dask
    where it can, and the statement is begun again.

    Args:
        query: One statement. It names the grids as the keyword arguments do.
        params: Values for its parameters, as in `Session.sql`: a list for `$1`, a dict for `$name`.
        timeout: Seconds until there must be an answer; `None` for as long as it takes.
        grids: Grids of `persist` with one client.

    Returns:
        A `pyarrow.Table`.

    Raises:
        QueryError: The SQL is wrong, or values and parameters do not fit.
        InvalidArgumentError: A grid is none of `persist`, or of another client, or closed.
        PartitionLostError: Data is lost that Dask cannot compute anew.
        WorkerLostError: A worker does not answer.
        ResourcesExhaustedError: The time is over, or a worker has no room.
    """
    return _answered(query, params, timeout, grids, lambda result: result.to_arrow())


def explain(
    query: str,
    params: Any = None,  # noqa: ANN401 - a list or a dict
    *,
    analyze: bool = False,
    timeout: float | None = 600,
    **grids: DaskGrid,
) -> str:
    """The plan of a statement of `sql`: its stages, and for each worker the partitions that it reads.

    Args:
        query: One statement.
        params: As in `sql`.
        analyze: Whether to run it first, drop its rows, and show what was counted.
        timeout: As in `sql`.
        grids: As in `sql`.
    """
    told = _answered(query, params, timeout, grids, lambda result: result.explain(analyze=analyze))
    return str(told)


def _answered(
    query: str,
    params: Any,  # noqa: ANN401 - a list or a dict
    timeout: float | None,
    grids: dict[str, DaskGrid],
    end: Callable[[_native.Result], Any],
) -> Any:  # noqa: ANN401
    until = until_of(timeout)
    cluster = _cluster_of(grids)
    for attempt in range(ATTEMPTS):
        for grid in grids.values():
            grid._settle(until, again=attempt > 0)
        adoptions = {name: grid._adoption for name, grid in grids.items()}
        try:
            return cluster.answer((query, params), adoptions, until, end)
        except (errors.WorkerLostError, errors.PartitionLostError, errors.StorageError):
            # Of a statement that failed nobody has seen a row.
            if attempt + 1 == ATTEMPTS or time.monotonic() >= until:
                raise
    raise AssertionError


def _cluster_of(grids: dict[str, DaskGrid]) -> Cluster:
    if not grids:
        message = "sql needs at least one grid of persist"
        raise refused(errors.InvalidArgumentError, message, 'sql("SELECT …", name=grid)')
    for name, grid in grids.items():
        if not isinstance(grid, DaskGrid):
            message = f"{name} must be a grid of persist, got {type(grid).__module__}.{type(grid).__qualname__}"
            hint = "make it with partgrid.engines.dask.persist"
            raise refused(errors.InvalidArgumentError, message, hint)
    first = next(iter(grids.values()))
    for name, grid in grids.items():
        if grid._client is not first._client:
            message = f"all grids must be of one client, got {name} of {grid._client!r}"
            raise refused(errors.InvalidArgumentError, message, None)
    return Cluster.of(first._client)
