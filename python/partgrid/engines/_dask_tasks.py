"""Tasks of Dask: those over partitions run where these are, and every wait for them ends.

Comes in: futures of partitions, and what is to be made of them. Goes out: futures of that. Never here: partitions, nor a choice of where Dask computes these.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from partgrid import errors
from partgrid._refusals import refused
from partgrid.engines._dask_cluster import MISSED_FOR, Cluster

# Of a library that is imported only where it is used.
Future = Any


def beside(
    cluster: Cluster,
    until: float,
    step: Callable[..., Any],
    values: list[Future],
    *others: Sequence[Any],
    **more: Any,  # noqa: ANN401
) -> list[Future]:
    """What is made of partitions, each in a worker that has the partition.

    A task that may run anywhere is given to workers that have less to do, and takes its partition along. These may not, until they are done; from then on
    they may, so that Dask computes anew what is lost with a worker.

    Args:
        cluster: Where the partitions are.
        until: When the time is over.
        step: The task.
        values: The partitions: the first argument of each task.
        others: Further arguments, one for each partition.
        more: What is the same for all.

    Raises:
        PartgridError: As `await_all`.
    """
    await_all(cluster, values, until)
    client = cluster.client
    arguments = list(zip(values, *others, strict=True))
    made: dict[int, Future] = {}
    for place, numbers in _places(cluster, values).items():
        workers = [place] if place else None
        columns = zip(*(arguments[number] for number in numbers), strict=True)
        made |= zip(numbers, client.map(step, *columns, workers=workers, **more), strict=True)
    futures = [made[number] for number in range(len(values))]
    await_all(cluster, futures, until, pinned=True)
    stuck = cluster.unpin([future.key for future in futures])
    for number, future in enumerate(futures):
        if future.key in stuck:
            # Under another key: the scheduler would go on waiting as long as somebody wants this one.
            futures[number] = client.submit(step, *arguments[number], pure=False, **more)
    await_all(cluster, futures, until)
    return futures


def _places(cluster: Cluster, values: list[Future]) -> dict[str, list[int]]:
    """The numbers of partitions by a worker that has them; those that were just lost are at no place."""
    held, workers = cluster.state([value.key for value in values])
    taken: Counter[str] = Counter()
    places: dict[str, list[int]] = {}
    for number, value in enumerate(values):
        holders = workers.intersection(held[value.key])
        place = min(holders, key=lambda each: (taken[each], each), default="")
        taken[place] += 1
        places.setdefault(place, []).append(number)
    return places


def await_all(
    cluster: Cluster, futures: list[Future], until: float, *, pinned: bool = False
) -> None:
    """Waits until Dask has computed partitions, and raises what it raised.

    Args:
        cluster: Where it computes them.
        futures: The partitions.
        until: When the time is over.
        pinned: Whether each may run in one worker only. If one of them waits for a worker that is gone, this waits no longer.

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
            if pinned and cluster.stuck([each.key for each in futures]):
                return
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
