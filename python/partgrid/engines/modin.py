"""Modin: the cells of its frames as tiles, tiles as its cells.

Comes in: a frame of `modin.pandas`, or a grid. Goes out: the other. Never here: a choice of engine; Modin works with the one that it has.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from partgrid import errors
from partgrid._frames import (
    check_index,
    check_names,
    from_pandas,
    label_names,
    pandas_to_arrow,
    without_labels,
)
from partgrid._native import _from_parts
from partgrid._refusals import needed, placed, refused, wrong_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from partgrid._native import Grid

# Libraries that are imported only where their frames come in or go out.
Frame = Any
Table = Any


def from_modin(frame: Frame, *, index: str | None = None) -> Grid:
    """Makes a grid of a frame of Modin: one tile for each of its partitions, which lie in rows and columns as tiles do.

    The partitions are brought into this process: on Ray of the same machine over the memory that its object store shares, on Dask as a copy. What pandas
    keeps in one piece for each column is not copied again. Columns of Python objects have no type in a partition of nulls only: they get that of the
    partitions above and below, and decimals the width of the widest.

    Args:
        frame: A `modin.pandas.DataFrame`, or a `Series` for a grid of one column.
        index: What becomes of row labels: `"keep"` makes columns of them, `"drop"` leaves them away. By default they must be 0, 1, 2 and so on.

    Returns:
        A grid in the memory of this process.

    Raises:
        InvalidArgumentError: It is no such frame, there are row labels and `index` does not say what becomes of them, or a label of a column is no text or
            repeats.
        UnsupportedError: Modin runs on another engine than Ray and Dask, or a column holds what Arrow cannot keep.

    Examples:
        >>> import partgrid as pg
        >>> import modin.pandas as mpd  # doctest: +SKIP
        >>> pg.from_modin(mpd.DataFrame({"a": range(4)})).shape  # doctest: +SKIP
        (4, 1)
    """
    check_index(index)
    modin = needed("modin.pandas", "from_modin")
    if isinstance(frame, modin.Series):
        frame = frame.to_frame("column_0" if frame.name is None else frame.name)
    if not isinstance(frame, modin.DataFrame):
        raise wrong_frame("modin.pandas.DataFrame or modin.pandas.Series", frame)
    if 0 in frame.shape:
        # Modin has no partitions where there are no values.
        return from_pandas(frame.modin.to_pandas(), index=index)
    names, labels = list(frame.columns), []
    check_names(names)
    if without_labels(frame.index, index):
        labels = label_names(frame.index, frame.columns)
        check_names([*labels, *names])
    gather, _ = _engine(frame.get_backend(), "from_modin")
    partitions = needed("modin.distributed.dataframe.pandas", "from_modin")
    rows = partitions.unwrap_partitions(frame, axis=None)
    cells = iter(gather([cell for row in rows for cell in row]))
    tables = [
        [
            _table((row_band, column_band), next(cells), labels if column_band == 0 else [])
            for column_band, _ in enumerate(row)
        ]
        for row_band, row in enumerate(rows)
    ]
    return _from_parts(tables)


def _table(position: tuple[int, int], cell: Frame, labels: list[str]) -> Table:
    try:
        if labels:
            cell = cell.reset_index(names=labels)
        return pandas_to_arrow(cell, "drop")
    except errors.PartgridError as error:
        raise placed(error, f"partition {position}") from error


def to_modin(grid: Grid) -> Frame:
    """Makes a frame of Modin of a grid; see `Grid.to_modin`.

    Args:
        grid: The grid.

    Returns:
        The `modin.pandas.DataFrame`.

    Raises:
        UnsupportedError: Modin runs on another engine than Ray and Dask.
    """
    modin, pd = needed("modin.pandas", "to_modin"), needed("pandas", "to_modin")
    if 0 in grid.shape:
        return modin.DataFrame(grid.to_pandas())
    # Modin starts its engine for its first frame.
    modin.DataFrame({"a": [0]})
    _, put = _engine(needed("modin.config", "to_modin").Engine.get(), "to_modin")
    partitions = needed("modin.distributed.dataframe.pandas", "to_modin")
    rows, columns = grid.cuts
    # Modin takes no cells without rows or columns.
    row_bands = [(number, band) for number, band in enumerate(pairwise(rows)) if band[0] < band[1]]
    widths = [(number, end - start) for number, (start, end) in enumerate(pairwise(columns))]
    widths = [(number, width) for number, width in widths if width > 0]
    cells = []
    for row_band, (start, end) in row_bands:
        tiles = [grid.tile(row_band, column_band) for column_band, _ in widths]
        labels = pd.RangeIndex(start, end)
        cells.append([put(tile.to_pandas().set_axis(labels)) for tile in tiles])
    return partitions.from_partitions(
        cells,
        axis=None,
        index=pd.RangeIndex(len(grid)),
        columns=pd.Index(grid.columns),
        row_lengths=[end - start for _, (start, end) in row_bands],
        column_widths=[width for _, width in widths],
    )


def _engine(
    engine: str, wanted_by: str
) -> tuple[Callable[[list[Any]], list[Any]], Callable[[Frame], Any]]:
    """How an engine of Modin brings partitions here, and how it takes a frame."""
    if engine == "Ray":
        ray = needed("ray", wanted_by)
        return ray.get, ray.put
    if engine == "Dask":
        client = needed("distributed", wanted_by).default_client()
        return client.gather, lambda frame: client.scatter(frame, hash=False)
    message = f"{wanted_by} works with the engines Ray and Dask of Modin, got {engine}"
    hint = "set MODIN_ENGINE=ray; from_pandas(frame.modin.to_pandas()) takes any"
    raise refused(errors.UnsupportedError, message, hint)
