"""Partitions in the workers of Dask as what stands under `data` of `__partitioned__`.

Comes in: keys of a scheduler. Goes out: futures that pickle with the address of the scheduler, and their frames in any process that reaches it. Imported only
where Dask is used.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import distributed

from partgrid import _native, errors
from partgrid._refusals import refused

# Libraries that are imported only where their frames go out.
Client = Any
Frame = Any
Table = Any

# How long a scheduler may take to answer.
ANSWERS_WITHIN = 30.0
# How long a partition may take that Dask computes anew.
COMPUTES_WITHIN = 600.0
# How many partitions are on their way at once: all of them pass through the scheduler.
AT_ONCE = 8


class PartitionFuture(distributed.Future):  # type: ignore[misc]
    """A future of a table in a worker that can be pickled, and be given to `get` in any process that reaches the scheduler.

    Args:
        key: The key of the table.
        client: The client that waits for it, if there is one in this process.
        scheduler: The address of the scheduler.
    """

    def __init__(self, key: Any, client: Client, scheduler: str) -> None:  # noqa: ANN401
        self.scheduler = scheduler
        super().__init__(key, client)

    def __reduce__(self) -> tuple[type[PartitionFuture], tuple[Any, None, str]]:
        return PartitionFuture, (self.key, None, self.scheduler)


def frames_of(handles: list[Any]) -> list[Frame]:
    """The frames of many handles, in their order; see `tables_of`."""
    return [_native.from_arrow(table).to_pandas() for table in tables_of(handles)]


def tables_of(handles: list[Any]) -> list[Table]:
    """The tables of many handles, in their order.

    Raises:
        ProtocolError: One is no handle of `__partitioned__`.
        PartitionLostError: Dask has a partition no more, and does not compute it anew.
        WorkerLostError: The scheduler does not answer.
    """
    for handle in handles:
        if not isinstance(handle, PartitionFuture):
            message = (
                f"get takes what stands under `data`, or a list of it, got {type(handle).__name__}"
            )
            raise refused(errors.ProtocolError, message, None)
    tables: dict[tuple[str, Any], Table] = {}
    for scheduler in dict.fromkeys(handle.scheduler for handle in handles):
        keys = list({handle.key: None for handle in handles if handle.scheduler == scheduler})
        found = values_of(client_of(scheduler), keys)
        tables |= {(scheduler, key): table for key, table in found.items()}
    return [tables[handle.scheduler, handle.key] for handle in handles]


def values_of(client: Client, keys: list[Any]) -> dict[Any, Any]:
    """What the workers have under keys, in their order, brought here a few at a time.

    Raises:
        PartitionLostError: Dask has some of it no more, and does not compute it anew.
        WorkerLostError: The scheduler does not answer.
    """
    found: dict[Any, Any] = {}
    for first in range(0, len(keys), AT_ONCE):
        found |= client.sync(_gathered, client, keys[first : first + AT_ONCE])
    return {key: found[key] for key in keys}


async def _gathered(client: Client, keys: list[Any]) -> dict[Any, Any]:
    until = time.monotonic() + COMPUTES_WITHIN
    while True:
        try:
            answer = await asyncio.wait_for(client.scheduler.gather(keys=keys), COMPUTES_WITHIN)
            if answer["status"] == "OK":
                return dict(answer["data"])
            asking = client.scheduler.get_task_status(keys=answer["keys"])
            states = await asyncio.wait_for(asking, ANSWERS_WITHIN)
        except OSError as error:
            message = f"the scheduler of Dask does not answer: {client.scheduler.address}"
            raise errors.WorkerLostError(message, retryable=True) from error
        lost = [key for key, state in states.items() if state in (None, "forgotten", "erred")]
        if lost or time.monotonic() > until:
            message = f"Dask has partitions no more: {', '.join(map(str, lost or keys))}"
            hint = "the grid was closed, or data was lost that Dask cannot compute anew"
            raise refused(errors.PartitionLostError, message, hint)
        await asyncio.sleep(0.1)


# Clients of this process that were made for handles, by the address of their scheduler.
_clients: dict[str, Client] = {}


def client_of(scheduler: str) -> Client:
    """A client of this process for a scheduler: one that is there, or a new one, which stays.

    Raises:
        NotLocalError: The scheduler has no address that other processes could reach.
        WorkerLostError: The scheduler does not answer.
    """
    there = [*distributed.Client._instances, *_clients.values()]
    for client in there:
        is_open = client.status == "running" and not client.asynchronous
        if is_open and client.scheduler.address == scheduler:
            return client
    if scheduler.startswith("inproc://"):
        message = f"the scheduler is in another process, which cannot be reached: {scheduler}"
        hint = "start it with LocalCluster(processes=True)"
        raise refused(errors.NotLocalError, message, hint)
    try:
        client = distributed.Client(scheduler, set_as_default=False, timeout=ANSWERS_WITHIN)
    except OSError as error:
        message = f"the scheduler of Dask does not answer: {scheduler}"
        raise errors.WorkerLostError(message, retryable=True) from error
    _clients[scheduler] = client
    return client
