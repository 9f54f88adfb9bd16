"""Plans of distributed arrays carried out among the ranks of an MPI program.

Comes in: a plan, or an array whose communication padding is stale, and a communicator of mpi4py. Goes out: messages below 2 GiB, one at a time each way.
What is wrong on one rank is raised on all of them. Never here: which element goes where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partgrid import _native, errors
from partgrid._refusals import refused
from partgrid.engines.mpi import Comm, agree

if TYPE_CHECKING:
    from collections.abc import Iterable

# A `numpy.ndarray`, or another object with the buffer interface.
Buffer = Any
# Has `_transfers(from_rank, to_rank)`.
Plan = Any

TAG = 1717
NEEDED = ("Get_rank", "Get_size", "allgather", "Isend", "Recv")


def execute(plan: _native.Plan, comm: Comm) -> _native.DistArray:
    """Carries out a plan: each rank sends what it owns, and gets what it has to hold. Every rank must call it.

    Args:
        plan: The plan, the same on all ranks.
        comm: The communicator.

    Returns:
        The array of the destination, with the section of this rank.

    Raises:
        InvalidArgumentError: The communicator lacks a method; plans differ, or there are fewer ranks than sections.
        NotLocalError: The section of a rank is not there.
    """
    check(comm, *NEEDED)
    rank, error, source, target = comm.Get_rank(), None, None, None
    try:
        source = _own(plan.source, comm)
        plan.source._check(rank, writable=False)
        _fits(plan.to.num_ranks, comm)
        target = plan._target(rank)
    except BaseException as raised:  # it is raised again, on all ranks
        error = raised
    agree(comm, error, f"plan {plan._digest}, {plan.source.dtype}")
    _carry(plan, comm, source, target)
    return plan._arrived(rank, target)


def exchange(sections: _native.DistArray | Iterable[object], comm: Comm) -> None:
    """Fills the communication padding of the section of each rank. Every rank must call it.

    Args:
        sections: The array, or its sections.
        comm: The communicator.

    Raises:
        InvalidArgumentError: The communicator lacks a method; arrays differ, there are fewer ranks than sections, or a buffer is read-only.
        NotLocalError: The section of a rank is not there.
    """
    check(comm, *NEEDED)
    error, own, plan, wish = None, None, None, ""
    try:
        array = (
            _native.from_sections(sections)
            if not isinstance(sections, _native.DistArray)
            else sections
        )
        wish = f"halos of {hash(array.distribution)}, {array.dtype}"
        plan = _native._HaloPlan(array)
        own = _own(array, comm)
        array._check(comm.Get_rank(), writable=True)
    except BaseException as raised:  # it is raised again, on all ranks
        error = raised
    agree(comm, error, wish)
    _carry(plan, comm, own, own)


def check(comm: Comm, *needed: str) -> None:
    """Refuses what is no communicator.

    Args:
        comm: What was passed for one.
        needed: The names of the methods that it must have.

    Raises:
        InvalidArgumentError: It lacks a method.
    """
    missing = [name for name in needed if not callable(getattr(comm, name, None))]
    if missing:
        message = f"comm must have {', '.join(needed)}, got {comm!r} without {', '.join(missing)}"
        hint = "pass a communicator of mpi4py, such as MPI.COMM_WORLD"
        raise refused(errors.InvalidArgumentError, message, hint)


def _carry(plan: Plan, comm: Comm, source: Buffer, target: Buffer) -> None:
    """In round `n` each rank sends to the `n`-th after it, and gets from the `n`-th before it."""
    rank, size = comm.Get_rank(), comm.Get_size()
    for transfer in plan._transfers(rank, rank):
        transfer.carry(source, target)
    for distance in range(1, size):
        after, before = (rank + distance) % size, (rank - distance) % size
        outgoing = iter(plan._transfers(rank, after))
        incoming = iter(plan._transfers(before, rank))
        while True:
            sent, got = next(outgoing, None), next(incoming, None)
            if sent is None and got is None:
                break
            request = None
            if sent is not None:
                # Kept until it has left.
                message = sent.pack(source)
                request = comm.Isend(message, dest=after, tag=TAG)
            if got is not None:
                arrived = bytearray(got.nbytes)
                comm.Recv(arrived, source=before, tag=TAG)
                got.unpack(arrived, target)
            if request is not None:
                request.Wait()


def _own(array: _native.DistArray, comm: Comm) -> Buffer:
    """The buffer of this rank; nothing where there are fewer sections than ranks."""
    _fits(len(array), comm)
    rank = comm.Get_rank()
    if rank >= len(array):
        return None
    buffer = array[rank].buffer
    if "O" in array.dtype and getattr(getattr(buffer, "dtype", None), "hasobject", True):
        message = "elements must be values, the buffer has references to Python objects"
        hint = "comm.allgather of mpi4py sends objects"
        raise refused(errors.UnsupportedError, message, hint)
    return buffer


def _fits(num_sections: int, comm: Comm) -> None:
    if num_sections > comm.Get_size():
        message = (
            f"there must be a rank for each of the {num_sections} sections, got {comm.Get_size()}"
        )
        hint = "start the program with more ranks, or plan for fewer sections"
        raise refused(errors.InvalidArgumentError, message, hint)
