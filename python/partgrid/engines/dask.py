"""Dask: its partitions as row bands of a grid, row bands as its partitions; in this process, or where its workers have them.

Comes in: a `dask.dataframe` collection, or a grid. Goes out: the other. Never here: a scheduler of our own; dask computes with the one it has.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, overload

from partgrid import errors
from partgrid._frames import check_index, pandas_to_arrow
from partgrid._native import _from_parts, from_arrow
from partgrid._refusals import needed, placed, refused, wrong_frame
from partgrid.engines._dask_grid import DaskGrid, explain, persist, sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from partgrid._native import Grid

__all__ = ["DaskGrid", "explain", "from_dask", "get", "persist", "sql", "to_dask"]

# Libraries that are imported only where their frames come in or go out.
Frame = Any
Table = Any


@overload
def from_dask(frame: Frame, *, index: str | None = ..., where: None = ...) -> Grid | DaskGrid: ...


@overload
def from_dask(frame: Frame, *, index: str | None = ..., where: Literal["here"]) -> Grid: ...


@overload
def from_dask(frame: Frame, *, index: str | None = ..., where: Literal["workers"]) -> DaskGrid: ...


def from_dask(
    frame: Frame, *, index: str | None = None, where: str | None = None
) -> Grid | DaskGrid:
    """Computes a frame of dask and makes a grid of it where dask computes: one row band for each partition, without copying what pandas keeps in one piece.

    Dask computes with its own scheduler. With threads the partitions are taken where they are; processes send theirs to this process. Where dask would compute
    with a `distributed` client, they stay in its workers, unless `where` says otherwise. Columns of Python objects have no type in a partition of nulls only:
    they get that of the other partitions, and decimals the width of the widest.

    Args:
        frame: A `dask.dataframe.DataFrame`, or a `Series` for a grid of one column.
        index: What becomes of row labels: `"keep"` makes columns of them, `"drop"` leaves them away. By default they must be numbers without a gap, which run
            through the whole frame or begin with 0 in each partition.
        where: `"workers"` leaves the partitions in the workers of the current `distributed` client: see `partgrid.engines.dask.persist`. `"here"` brings all
            rows into this process. By default it is `"workers"` where dask would compute with such a client now (one is current, it is not asynchronous, and
            dask's option `scheduler` names no other), and `"here"` everywhere else.

    Returns:
        A grid in the memory of this process, or a `DaskGrid` of partitions in workers.

    Raises:
        InvalidArgumentError: It is no such frame, there are row labels and `index` does not say what becomes of them, or partitions have columns of different
            types.
        UnsupportedError: A column holds what Arrow cannot keep, or partgrid is missing in the workers.
        WorkerLostError and others: As `persist`, for partitions in workers.

    Examples:
        >>> import pandas as pd, partgrid as pg
        >>> import dask.dataframe as dd  # doctest: +SKIP
        >>> pg.from_dask(dd.from_pandas(pd.DataFrame({"a": range(4)}), npartitions=2)).cuts  # doctest: +SKIP
        ((0, 2, 4), (0, 1))
    """
    check_index(index)
    if where not in (None, "here", "workers"):
        message = f'where must be "here" or "workers", got {where!r}'
        raise refused(errors.InvalidArgumentError, message, None)
    if where == "workers":
        return persist(frame, index=index)
    dask, frames = needed("dask", "from_dask"), needed("dask.dataframe", "from_dask")
    if where is None and (client := _client(dask)) is not None:
        return persist(frame, index=index, client=client)
    if not isinstance(frame, (frames.DataFrame, frames.Series)):
        raise wrong_frame("dask.dataframe.DataFrame or dask.dataframe.Series", frame)
    cells: list[list[Table]] = []
    first = 0
    for number, part in enumerate(dask.compute(*frame.to_delayed())):
        cells.append([_table(number, part, index, first)])
        first += len(part)
    return _from_parts(cells)


def _table(number: int, part: Frame, index: str | None, first: int) -> Table:
    try:
        return pandas_to_arrow(part, index, first)
    except errors.PartgridError as error:
        raise placed(error, f"partition {number}") from error


def to_dask(grid: Grid) -> Frame:
    """Makes a frame of dask of a grid; see `Grid.to_dask`.

    Args:
        grid: The grid.

    Returns:
        The `dask.dataframe.DataFrame`.
    """
    dask, frames = needed("dask", "to_dask"), needed("dask.dataframe", "to_dask")
    bands = _row_bands(grid)
    whole = all(len(band.grid) > 0 for band in bands)
    divisions = (*(band.start for band in bands), len(grid) - 1) if whole else None
    meta = _numbered(grid.schema.empty_table(), 0)
    client = _client(dask)
    # Dask would change the type of Arrow's large texts.
    with dask.config.set({"dataframe.convert-string": False}):
        if client is None:
            return frames.from_map(frame_of, bands, meta=meta, divisions=divisions, label="grid")
        futures = client.scatter(bands, hash=False)
        parts = [dask.delayed(frame_of)(future) for future in futures]
        return frames.from_delayed(parts, meta=meta, divisions=divisions, verify_meta=False)


def _row_bands(grid: Grid) -> list[RowBand]:
    partitions = grid.__partitioned__["partitions"]
    bands = []
    for row_band, (start, end) in enumerate(pairwise(grid.cuts[0])):
        handle = partitions[row_band, 0]["data"]
        bands.append(RowBand(grid[start:end], start, repr(handle)))
    return bands


def _client(dask: Any) -> Any:  # noqa: ANN401
    """The client of `distributed` that would compute now, if one would; an asynchronous one gets the data with the graph."""
    try:
        owner = getattr(dask.base.get_scheduler(), "__self__", None)
    except RuntimeError:
        return None
    return owner if hasattr(owner, "scatter") else None


class RowBand:
    """One row band of a grid: in this process the tiles themselves, in another what was sent there as Arrow IPC.

    Args:
        grid: The rows.
        start: The number of the first row in the whole grid.
        name: What no other row band is called.
    """

    def __init__(self, grid: Grid, start: int, name: str) -> None:
        self.grid = grid
        self.start = start
        self.name = name

    def __dask_tokenize__(self) -> str:
        """The name stands for the data, which never changes."""
        return self.name

    def __reduce__(self) -> tuple[Callable[..., RowBand], tuple[Any, int, str]]:
        pa = needed("pyarrow", "to_dask")
        batches = pa.RecordBatchReader.from_stream(self.grid)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return _received, (sink.getvalue(), self.start, self.name)


def _received(stream: Any, start: int, name: str) -> RowBand:  # noqa: ANN401
    pa = needed("pyarrow", "to_dask")
    return RowBand(from_arrow(pa.ipc.open_stream(stream)), start, name)


def get(handles: Any) -> Any:  # noqa: ANN401 - one handle, or many
    """The frame of a handle, or a list of the frames of a list or tuple: the `get` of `__partitioned__` of a `DaskGrid`.

    It works in any process that reaches the scheduler, and brings the rows there. Where there is no client for that scheduler, one is made, which stays.

    Args:
        handles: What stands under `data`, or a list or a tuple of it.

    Returns:
        A `pandas.DataFrame` of Arrow-backed columns for each.

    Raises:
        ProtocolError: It is no handle.
        PartitionLostError: Dask has the partition no more, and cannot compute it anew.
        NotLocalError: The scheduler is in another process and has no address.
        WorkerLostError: The scheduler does not answer.
    """
    handle = needed("partgrid.engines._dask_handle", "get")
    if isinstance(handles, (list, tuple)):
        return type(handles)(handle.frames_of(list(handles)))
    return handle.frames_of([handles])[0]


def frame_of_futures(futures: list[Any], rows: tuple[int, ...], schema: Any) -> Frame:  # noqa: ANN401
    """A frame of dask over tables in its workers.

    Args:
        futures: The tables.
        rows: The cut points of the rows.
        schema: The columns.
    """
    dask, frames = needed("dask", "to_dask"), needed("dask.dataframe", "to_dask")
    whole = all(start < end for start, end in pairwise(rows))
    divisions = (*rows[:-1], rows[-1] - 1) if whole else None
    meta = _numbered(schema.empty_table(), 0)
    made = [
        dask.delayed(_numbered)(future, start)
        for future, start in zip(futures, rows[:-1], strict=True)
    ]
    # Dask would change the type of Arrow's large texts.
    with dask.config.set({"dataframe.convert-string": False}):
        return frames.from_delayed(made, meta=meta, divisions=divisions, verify_meta=False)


def frame_of(band: RowBand, columns: list[str] | None = None) -> Frame:
    """The rows as a `pandas.DataFrame`, of all columns or those that dask asks for."""
    grid = band.grid if columns is None else band.grid[list(columns)]
    return _numbered(grid.to_arrow(), band.start)


def _numbered(table: Table, start: int) -> Frame:
    pd = needed("pandas", "to_dask")
    frame = table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
    frame.index = pd.RangeIndex(start, start + table.num_rows)
    return frame
