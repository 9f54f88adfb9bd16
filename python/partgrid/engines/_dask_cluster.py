"""The members in the workers of Dask, as a client sees them.

Comes in: a client of `distributed`. Goes out: who the members are, calls that run in their workers, statements that they answer. Every wait ends. Never here:
rows of partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from partgrid import _native, errors
from partgrid._refusals import needed, refused
from partgrid.engines._member import new_token

if TYPE_CHECKING:
    from partgrid.engines._dask_adopt import Adoption

# Libraries that are imported only where they are used.
Client = Any
# What a call gave for each worker, or the error that it raised there.
Answers = dict[str, Any]

# How long a worker or the scheduler may take to answer.
ANSWERS_WITHIN = 30.0
# How often the scheduler is asked whether a worker that has not answered yet is still there.
LOOKS_EVERY = 0.5
# How long a worker that was asked for may be missing before it counts as lost.
MISSED_FOR = 30.0


class Cluster:
    """The members of one client's cluster. Made by `Cluster.of`, one for each client.

    Args:
        client: The client.
    """

    def __init__(self, client: Client) -> None:
        self.client = weakref.proxy(client)
        self.members: dict[str, dict[str, Any]] = {}

    @classmethod
    def of(cls, client: Client) -> Cluster:
        """That of a client, which makes all workers members if they are none yet."""
        with _making:
            if client not in _clusters:
                _register(client)
                _clusters[client] = cls(client)
            return _clusters[client]

    def state(self, keys: list[Any]) -> tuple[dict[Any, list[str]], set[str]]:
        """Which workers have which keys, and which workers there are."""

        async def asking() -> tuple[Any, Any]:
            scheduler = self.client.scheduler
            return await asyncio.gather(scheduler.who_has(keys=keys), scheduler.ncores())

        who_has, workers = self._bounded(asking, ANSWERS_WITHIN)
        return {key: list(who_has.get(key, ())) for key in keys}, set(workers)

    def stuck(self, keys: list[Any]) -> set[Any]:
        """Which tasks could run, and wait for a worker that may run them."""

        async def asking() -> Any:  # noqa: ANN401
            return await self.client.scheduler.get_task_status(keys=keys)

        states = self._bounded(asking, ANSWERS_WITHIN)
        return {key for key in keys if states[key] == "no-worker"}

    def unpin(self, keys: list[Any]) -> set[Any]:
        """Lets tasks run in any worker from now on. Those that are stuck stay so."""

        async def asking() -> None:
            scheduler = self.client.scheduler
            try:
                await scheduler.set_restrictions(worker=dict.fromkeys(keys))
            except KeyError:
                # It stops at the first that is gone, which is for whoever waits for it.
                for key in keys:
                    with contextlib.suppress(KeyError):
                        await scheduler.set_restrictions(worker={key: None})

        self._bounded(asking, ANSWERS_WITHIN)
        return self.stuck(keys)

    def _bounded(self, asking: Callable[[], Any], within: float) -> Any:  # noqa: ANN401
        try:
            return self.client.sync(lambda: asyncio.wait_for(asking(), within))
        except OSError as error:
            text = f"the scheduler of Dask does not answer: {error or type(error).__name__}"
            raise errors.WorkerLostError(text, retryable=True) from error
        except (ReferenceError, RuntimeError, ValueError) as error:
            if isinstance(error, errors.PartgridError):
                raise
            message = f"the client of Dask is closed: {error}"
            raise refused(errors.InvalidArgumentError, message, None) from error

    def ask(self, calls: dict[str, tuple[Any, ...]], within: float = ANSWERS_WITHIN) -> Answers:
        """Runs a function in each of some workers, all at once.

        Args:
            calls: The function and its arguments for each worker.
            within: Seconds that each may take.

        Returns:
            What each gave, or raised. One that is silent raised `TimeoutError`, one that is gone another `OSError`.
        """

        async def one(worker: str, call: tuple[Any, ...]) -> Any:  # noqa: ANN401
            try:
                running = self.client.run(*call, workers=[worker], on_error="return")
                return await asyncio.wait_for(self._unless_gone(worker, running), within)
            except Exception as error:
                return error

        async def all_of_them() -> Answers:
            answers = await asyncio.gather(*(one(*item) for item in calls.items()))
            return dict(zip(calls, answers, strict=True))

        return dict(self._bounded(all_of_them, within + ANSWERS_WITHIN))

    async def _unless_gone(self, worker: str, running: Any) -> Any:  # noqa: ANN401
        """What a call in a worker gives. The scheduler itself would go on trying to reach one that is gone."""
        task = asyncio.ensure_future(running)
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=LOOKS_EVERY)
                if done:
                    return task.result()[worker]
                if worker not in await self.client.scheduler.ncores():
                    return ConnectionError(f"the worker {worker} is gone")
        finally:
            task.cancel()

    def know(self, workers: set[str]) -> None:
        """Asks workers that are not known yet who they are, and forgets all others."""
        worker = needed("partgrid.engines._dask_worker", "persist")
        for gone in set(self.members) - workers:
            self.members.pop(gone, None)
        new = workers - set(self.members)
        for address, told in self.ask({address: (worker.tell,) for address in new}).items():
            if isinstance(told, dict):
                self.members[address] = told
            elif isinstance(told, errors.UnsupportedError):
                raise told

    def meet(self, name: str, places: set[str], until: float) -> bool:
        """Has all members look for a grid, until those who have parts of it see it.

        Args:
            name: The name of the grid.
            places: The workers that have parts.
            until: When the time is over; members that do not find each other for a while are an error before.

        Returns:
            Whether they see it; not if one of them is gone.

        Raises:
            WorkerLostError: A worker does not answer, or does not see the others.
            InvalidArgumentError: The parts do not fit each other.
        """
        worker = needed("partgrid.engines._dask_worker", "persist")
        members = dict(self.members)
        uris = sorted({told["uri"] for told in members.values()})
        call = (worker.meet, uris, name)
        until = min(until, time.monotonic() + MISSED_FOR)
        while True:
            answers = self.ask(dict.fromkeys(members, call))
            wanted = [answers.get(place) for place in places]
            for answer in wanted:
                if isinstance(answer, errors.PartgridError) and not answer.retryable:
                    raise answer
            if all(answer is True for answer in wanted):
                return True
            silent = any(isinstance(answer, TimeoutError) for answer in wanted)
            if not silent and any(isinstance(answer, Exception) for answer in wanted):
                return False
            if silent or time.monotonic() > until:
                message = f"members of the cluster do not find each other: {answers}"
                raise errors.WorkerLostError(message, retryable=True)
            time.sleep(0.1)

    def forget(self, name: str) -> None:
        """Takes a grid away from all members, without waiting for it. May be called from any thread at any time."""
        worker = needed("partgrid.engines._dask_worker", "persist")
        self._send(list(self.members), (worker.forget, name))

    def _send(self, workers: list[str], call: tuple[Any, ...]) -> None:
        """Runs a function in workers, without waiting for it."""

        async def sending() -> None:
            with contextlib.suppress(Exception):
                asked = self.client.run(*call, workers=workers, on_error="ignore")
                await asyncio.wait_for(asked, ANSWERS_WITHIN)

        with contextlib.suppress(ReferenceError, RuntimeError):
            if self.client.status == "running":
                self.client.loop.add_callback(sending)

    def answer(
        self,
        asked: tuple[str, Any],
        adoptions: dict[str, Adoption],
        until: float,
        end: Callable[[_native.Result], Any],
    ) -> Any:  # noqa: ANN401 - what `end` gives
        """Has the member answer a statement that has most of the rows.

        Args:
            asked: The statement, and values for its parameters.
            adoptions: The grid for each name in it.
            until: When the time is over.
            end: What becomes of the result.
        """
        worker = needed("partgrid.engines._dask_worker", "sql")
        rows: Counter[str] = Counter()
        for adoption in adoptions.values():
            rows.update(adoption.rows_at())
        at = max(sorted(rows), key=lambda place: rows[place])
        told = self.members[at]
        names = {alias: adoption.name for alias, adoption in adoptions.items()}
        left = until - time.monotonic()
        timeout = None if left == float("inf") else max(0.1, left)
        lease = secrets.token_hex(8)
        try:
            self._one(at, (worker.lend, lease, names))
            connection = _connected(told["uri"], told["token"], timeout)
            result = connection.sql(*asked)
        finally:
            # What is planned knows its tiles.
            self._send([at], (worker.give_back, lease))
        return end(result)

    def _one(self, at: str, call: tuple[Any, ...]) -> Any:  # noqa: ANN401
        answer = self.ask({at: call})[at]
        if isinstance(answer, errors.PartgridError):
            raise answer
        if isinstance(answer, Exception):
            message = f"the worker {at} does not answer: {answer or type(answer).__name__}"
            raise errors.WorkerLostError(message, retryable=True) from answer
        return answer


# By client; a client that is gone takes its cluster along.
_clusters: weakref.WeakKeyDictionary[Client, Cluster] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def _register(client: Client) -> None:
    """Makes all workers members that are or will be there; does nothing where another client did."""
    worker = needed("partgrid.engines._dask_worker", "persist")
    try:
        client.register_plugin(worker.Member(new_token()), name=worker.NAME)
    except Exception as error:
        # Workers that come later would end over a plugin that they cannot have.
        with contextlib.suppress(Exception):
            client.unregister_worker_plugin(worker.NAME)
        message = f"the workers cannot become members: {type(error).__name__}: {error}"
        hint = 'install partgrid where the workers run, of the same version as here; from_dask(frame, where="here") does without, and brings all rows here'
        raise refused(errors.UnsupportedError, message, hint) from error


def _connected(uri: str, token: str, timeout: float | None) -> _native.Connection:
    try:
        return _native.connect(uri, token=token, insecure=True, timeout=timeout)
    except errors.StorageError as error:
        message = f"the member at {uri} does not answer: {error}"
        hint = "this process must reach the ports of the workers"
        raise refused(errors.WorkerLostError, message, hint) from error
