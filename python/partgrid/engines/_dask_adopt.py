"""Which worker reads which partition of a grid, kept to what Dask says of them.

Comes in: the futures of a grid, and what the scheduler says of where they are. Goes out: a grid of all members under a name, whose parts are where the
partitions are. Never here: the partitions themselves, nor futures that would keep them.
"""

from __future__ import annotations

import threading
import time
import uuid
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from partgrid import errors
from partgrid._refusals import needed, refused
from partgrid.engines._dask_cluster import MISSED_FOR
from partgrid.engines._dask_tasks import await_all

if TYPE_CHECKING:
    from partgrid.engines._dask_cluster import Cluster

Future = Any


class Adoption:
    """The partitions of one grid as parts of a grid of all members.

    Args:
        cluster: The members.
        rows: The cut points of the rows.
    """

    def __init__(self, cluster: Cluster, rows: tuple[int, ...]) -> None:
        self.cluster = cluster
        self.lengths = [end - start for start, end in pairwise(rows)]
        # The name among the members; another one each time that partitions are elsewhere.
        self.name = ""
        # The worker that reads each partition, all that have it, and all workers there were.
        self.at: list[str] = []
        self.holders: list[list[str]] = []
        self.workers: set[str] = set()
        self.turn = threading.RLock()

    def settle(self, futures: list[Future], until: float, *, again: bool = False) -> None:
        """Looks where the partitions are, and has the members adopt them if they are not where they were.

        Args:
            futures: The partitions.
            until: When the time is over.
            again: Whether to adopt them in any case.

        Raises:
            PartitionLostError: Data is lost that Dask cannot compute anew.
            WorkerLostError: A worker does not answer.
            ResourcesExhaustedError: The time is over.
        """
        keys = [future.key for future in futures]
        with self.turn:
            missed = time.monotonic() + MISSED_FOR
            while True:
                began = time.monotonic()
                await_all(self.cluster, futures, until)
                if time.monotonic() > began + 0.5:
                    # Dask was at work on them.
                    missed = time.monotonic() + MISSED_FOR
                held, workers = self.cluster.state(keys)
                holders = [sorted(set(held[key]) & workers) for key in keys]
                if all(holders) and self._follow(keys, holders, workers, again, until):
                    return
                if time.monotonic() > missed:
                    raise self._missing(keys, holders)
                time.sleep(0.1)

    def _missing(self, keys: list[Any], holders: list[list[str]]) -> errors.PartgridError:
        gone = [key for key, places in zip(keys, holders, strict=True) if not places]
        if gone:
            message = f"no worker has partitions that Dask holds to be computed: {gone[0]}"
            return refused(errors.PartitionLostError, message, None)
        message = f"workers do not have the partitions that Dask says they have, for {MISSED_FOR:.0f} seconds"
        return errors.WorkerLostError(message, retryable=True)

    def _follow(
        self,
        keys: list[Any],
        holders: list[list[str]],
        workers: set[str],
        again: bool,
        until: float,
    ) -> bool:
        """Whether the members have the partitions where they are now."""
        at = self._chosen(holders)
        is_new = again or at != self.at
        if is_new or workers != self.workers:
            self.cluster.know(workers)
        if is_new and not self._adopt(keys, at, until):
            return False
        is_met = is_new or workers == self.workers
        if not is_met and not self.cluster.meet(self.name, set(at), until):
            return False
        self.workers = workers
        self.holders = [
            sorted(places, key=lambda place: (place != reader, place))
            for places, reader in zip(holders, at, strict=True)
        ]
        return True

    def _chosen(self, holders: list[list[str]]) -> list[str]:
        """Who reads each partition: who did so before, else who has the fewest rows to read yet."""
        before = self.at or [""] * len(holders)
        rows: dict[str, int] = {}
        chosen = []
        for places, last, length in zip(holders, before, self.lengths, strict=True):
            place = (
                last if last in places else min(places, key=lambda each: (rows.get(each, 0), each))
            )
            rows[place] = rows.get(place, 0) + length
            chosen.append(place)
        return chosen

    def _adopt(self, keys: list[Any], at: list[str], until: float) -> bool:
        """Makes neighbours in one worker a part of a new grid of all; says whether all were there."""
        worker = needed("partgrid.engines._dask_worker", "persist")
        name, before = f"dask-{uuid.uuid4().hex}", self.name
        runs = [
            (place, [key for _, key in run])
            for place, run in groupby(zip(at, keys, strict=True), key=lambda each: each[0])
        ]
        parts: dict[str, list[tuple[int, list[Any]]]] = {}
        for number, (place, of_run) in enumerate(runs):
            parts.setdefault(place, []).append((number, of_run))
        calls = {place: (worker.adopt, name, own, len(runs)) for place, own in parts.items()}
        answers = self.cluster.ask(calls)
        try:
            there = self._all_there(answers) and self.cluster.meet(name, set(parts), until)
        except BaseException:
            self.cluster.forget(name)
            raise
        if there:
            self.name, self.at = name, at
        if not there or before:
            self.cluster.forget(before if there else name)
        return there

    def _all_there(self, answers: dict[str, Any]) -> bool:
        for place, told in answers.items():
            if isinstance(told, TimeoutError):
                message = f"the worker {place} does not answer"
                raise errors.WorkerLostError(message, retryable=True) from told
            if isinstance(told, errors.PartgridError) and not told.retryable:
                raise told
            if isinstance(told, Exception) or told["missing"]:
                return False
            self.cluster.members[place] = told
        return True

    @property
    def locations(self) -> list[list[tuple[str, int]]]:
        """`(IP, PID)` of all workers that have each partition, first of the one that reads it."""
        with self.turn:
            known = self.cluster.members
            return [
                [(known[at]["host"], known[at]["pid"]) for at in places if at in known]
                for places in self.holders
            ]

    def rows_at(self) -> dict[str, int]:
        """How many rows each worker reads."""
        rows: dict[str, int] = {}
        for place, length in zip(self.at, self.lengths, strict=True):
            rows[place] = rows.get(place, 0) + length
        return rows

    def described(self) -> list[str]:
        """A line for each worker that reads something."""
        with self.turn:
            known = self.cluster.members
            return [
                f"  {place}  pid {known.get(place, {}).get('pid', '?')}  "
                f"{self.at.count(place)} row bands  {rows:,} rows"
                for place, rows in sorted(self.rows_at().items())
            ]

    def end(self) -> None:
        """Takes the grid away from the members, without waiting."""
        if self.name:
            self.cluster.forget(self.name)
