"""Partitions of Dask as tables that its workers keep: one type in the whole frame, row labels as the caller says.

Comes in: frames and futures of Dask. Goes out: a future of a table for each partition, with what is known of all. Never here: rows; what comes to this process
of a partition is its length and its columns.
"""

from __future__ import annotations

import time
from itertools import accumulate
from typing import Any

from partgrid import _native, errors
from partgrid._frames import without_labels
from partgrid._refusals import needed, placed, refused, wrong_frame
from partgrid.engines._dask_cluster import Cluster
from partgrid.engines._dask_tasks import beside

# Libraries that are imported only where their frames come in or go out.
Client = Any
Frame = Any
Future = Any
Schema = Any


def tables_of(
    cluster: Cluster, client: Client, frame: Frame, index: str | None, until: float
) -> tuple[list[Future], list[int], Schema]:
    """A future of a table for each partition, their lengths and their columns. Dask computes the partitions now; the tables are made where these are.

    Raises:
        InvalidArgumentError: It is no frame of Dask, has row labels that `index` says nothing of, or columns of different types.
        PartgridError: What a worker raised, or that Dask did not get there; see `await_all`.
    """
    worker = needed("partgrid.engines._dask_worker", "persist")
    values = _futures(client, frame)
    numbers = range(len(values))
    tables = beside(cluster, until, worker.table_of, values, numbers, index=index)
    told = _told(client, beside(cluster, until, worker.outline, tables))
    lengths = [rows for rows, _ in told]
    if index is None:
        _check_labels(lengths, _told(client, beside(cluster, until, worker.first_label, values)))
    schema = _native._from_parts([[each.empty_table()] for _, each in told]).schema
    if any(not each.equals(schema) for _, each in told):
        tables = beside(cluster, until, worker.conform, tables, schema=schema)
    return tables, lengths, schema


def client_of(client: Client) -> Client:
    """The client that is meant.

    Raises:
        InvalidArgumentError: There is none, or it is something else.
        UnsupportedError: It is asynchronous.
    """
    distributed = needed("distributed", "persist")
    if client is None:
        try:
            client = distributed.default_client()
        except ValueError as error:
            message = "there is no client of distributed"
            hint = "client = distributed.Client(…); from_dask(frame) works without one"
            raise refused(errors.InvalidArgumentError, message, hint) from error
    if not isinstance(client, distributed.Client):
        message = f"client must be a distributed.Client, got {type(client).__name__}"
        raise refused(errors.InvalidArgumentError, message, None)
    if client.asynchronous:
        message = "the client must not be asynchronous"
        hint = "distributed.Client(…, asynchronous=False)"
        raise refused(errors.UnsupportedError, message, hint)
    return client


def until_of(timeout: float | None) -> float:
    """When so many seconds are over.

    Raises:
        InvalidArgumentError: It is no number of seconds.
    """
    if timeout is None:
        return float("inf")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        message = f"timeout must be seconds, more than 0, or None, got {timeout!r}"
        raise refused(errors.InvalidArgumentError, message, None)
    return time.monotonic() + timeout


def _futures(client: Client, frame: Frame) -> list[Future]:
    """A future for each partition."""
    wanted = "dask.dataframe.DataFrame, dask.dataframe.Series or list of futures of frames"
    frames = needed("dask.dataframe", "persist")
    future = needed("distributed", "persist").Future
    delayed = needed("dask.delayed", "persist").Delayed
    if isinstance(frame, (frames.DataFrame, frames.Series)):
        return list(client.compute(frame.to_delayed()))
    if not isinstance(frame, (list, tuple)):
        raise wrong_frame(wanted, frame)
    if not frame:
        message = "a grid needs at least one partition, got an empty list"
        raise refused(errors.InvalidArgumentError, message, None)
    for each in frame:
        if not isinstance(each, (future, delayed)):
            raise wrong_frame(wanted, each)
        if isinstance(each, future) and each.client is not client:
            message = f"all futures must be of one client, got one of {each.client!r}"
            raise refused(errors.InvalidArgumentError, message, "client= says whose they are")
    return [each if isinstance(each, future) else client.compute(each) for each in frame]


def _told(client: Client, futures: list[Future]) -> list[Any]:
    """What small results say, for each future."""
    handle = needed("partgrid.engines._dask_handle", "persist")
    found = handle.values_of(client, list({future.key: None for future in futures}))
    return [found[future.key] for future in futures]


def _check_labels(lengths: list[int], firsts: list[int | None]) -> None:
    """Refuses numbers that do not go on from one partition to the next."""
    pd = needed("pandas", "persist")
    starts = list(accumulate(lengths, initial=0))
    for number, (length, first) in enumerate(zip(lengths, firsts, strict=True)):
        if first is None:
            continue
        try:
            without_labels(pd.RangeIndex(first, first + length), None, starts[number])
        except errors.PartgridError as error:
            raise placed(error, f"partition {number}") from error
