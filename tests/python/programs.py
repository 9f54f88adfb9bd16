"""SPMD programs of threads, with a communicator that pickles and copies everything, as MPI would."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Comm:
    """One rank of a program of threads."""

    def __init__(self, rank: int, shared: Shared) -> None:
        self.rank, self.shared = rank, shared

    def Get_rank(self) -> int:  # noqa: N802 - as mpi4py has it
        return self.rank

    def Get_size(self) -> int:  # noqa: N802
        return self.shared.size

    def allgather(self, said: Any) -> list[Any]:
        shared = self.shared
        shared.said[self.rank] = pickle.dumps(said)
        shared.barrier.wait(timeout=20)
        heard = [pickle.loads(each) for each in shared.said]
        shared.barrier.wait(timeout=20)
        return heard

    def Isend(self, message: Any, dest: int, tag: int) -> Request:  # noqa: N802
        self.shared.post(self.rank, dest, tag).put(bytes(memoryview(message)))
        return Request()

    def Recv(self, message: Any, source: int, tag: int) -> None:  # noqa: N802
        memoryview(message)[:] = self.shared.post(source, self.rank, tag).get(timeout=20)


class Request:
    def Wait(self) -> None:  # noqa: N802
        """Sent already."""


class Shared:
    def __init__(self, size: int) -> None:
        self.size = size
        self.said = [b""] * size
        self.barrier = threading.Barrier(size)
        self.lock = threading.Lock()
        self.posts: dict[tuple[int, int, int], queue.Queue[bytes]] = {}

    def post(self, source: int, dest: int, tag: int) -> queue.Queue[bytes]:
        with self.lock:
            return self.posts.setdefault((source, dest, tag), queue.Queue())


def on_ranks(size: int, program: Callable[[Comm], Any]) -> list[Any]:
    """What the program returned on each rank, or what it raised."""
    shared = Shared(size)

    def run(rank: int) -> Any:
        try:
            return program(Comm(rank, shared))
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))
