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
from partgrid.engines._dask_cluster import MISSED_FOR, Cluster

# Libraries that are imported only where their frames come in or go out.
Client = Any
Frame = Any
Future = Any
Schema = Any


def tables_of(
    cluster: Cluster, client: Client, frame: Frame, index: str | None, until: float
) -> tuple[list[Future], list[int], Schema]:
    """A future of a table for each partition, their lengths and their columns. Dask computes them now.

    Raises:
        InvalidArgumentError: It is no frame of Dask, has row labels that `index` says nothing of, or columns of different types.
        PartgridError: What a worker raised, or that Dask did not get there; see `await_all`.
    """
    worker = needed("partgrid.engines._dask_worker", "persist")
    handle = needed("partgrid.engines._dask_handle", "persist")
    values = _futures(client, frame)
    tables = client.map(worker.table_of, values, range(len(values)), index=index)
    outlines = client.map(worker.outline, values, tables)
    await_all(cluster, tables + outlines, until)
    told = list(handle.values_of(client, [outline.key for outline in outlines]).values())
    lengths = [rows for rows, _, _ in told]
    if index is None:
        _check_labels(lengths, [first for _, first, _ in told])
    schema = _native._from_parts([[each.empty_table()] for _, _, each in told]).schema
    if any(not each.equals(schema) for _, _, each in told):
        tables = client.map(worker.conform, tables, schema=schema)
        await_all(cluster, tables, until)
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


def await_all(cluster: Cluster, futures: list[Future], until: float) -> None:
    """Waits until Dask has computed partitions, and raises what it raised.

    Raises:
        PartitionLostError: Data is lost that Dask cannot compute anew.
        WorkerLostError: There has been no worker for a while.
        ResourcesExhaustedError: The time is over.
    """
    manned = looked = time.monotonic()
    pause = 0.002
    while True:
        for number, future in enumerate(futures):
            if future.status in ("error", "cancelled"):
                raise _failed(future, number)
        if all(future.status == "finished" for future in futures):
            return
        now = time.monotonic()
        if now >= until:
            message = "Dask took longer than `timeout` to compute the partitions"
            hint = "timeout=None waits as long as it takes"
            raise refused(errors.ResourcesExhaustedError, message, hint)
        if now > looked + 1:
            looked = now
            manned = now if cluster.state([])[1] else manned
        if now > manned + MISSED_FOR:
            message = f"Dask has had no worker for {MISSED_FOR:.0f} seconds"
            raise errors.WorkerLostError(message, retryable=True)
        # The scheduler tells the futures by itself.
        time.sleep(pause)
        pause = min(0.1, pause * 1.5)


def _failed(future: Future, number: int) -> BaseException:
    """What is to be raised for a future that came to nothing."""
    if future.status == "cancelled":
        message = (
            f"Dask lost the data of partition {number} and cannot compute it anew: {future.key}"
        )
        hint = "what was scattered is in one worker only; partitions that tasks make are made again"
        return refused(errors.PartitionLostError, message, hint)
    error = future.exception()
    assert isinstance(error, BaseException)
    if type(error).__name__ in ("KilledWorker", "NoValidWorkerError"):
        return errors.WorkerLostError(f"partition {number}: {error}", retryable=True)
    return error
