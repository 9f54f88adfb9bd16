"""The Distributed Array Protocol, versions 0.9 and 0.10: distributions, arrays of anybody, redistribution, validation.

`Grid.distarray` makes an array of columns, `partgrid.from_distarray` a grid of sections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from partgrid import _native
from partgrid._native import (
    DistArray,
    Distribution,
    Finding,
    Map,
    Plan,
    Section,
    block,
    cyclic,
    from_sections,
    unstructured,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

# An `mpi4py.MPI.Comm`.
Comm = Any

__all__ = [
    "DistArray",
    "Distribution",
    "Finding",
    "Map",
    "Plan",
    "Section",
    "block",
    "cyclic",
    "exchange_halos",
    "from_local",
    "from_sections",
    "unstructured",
    "validate",
]


def from_local(section: object, comm: Comm) -> DistArray:
    """Makes an array of the sections that the ranks of an MPI program have. Every rank must call it. Nothing is copied, and no element is sent.

    Args:
        section: The section of this rank: an object with `__distarray__`, or its dictionary. `None` on ranks behind the last section.
        comm: A communicator of mpi4py, or anything with `Get_rank`, `Get_size` and `allgather` that work alike.

    Returns:
        The array, on all ranks alike; `local` is the section of this rank.

    Raises:
        ProtocolError: A rule of the protocol is broken, on one rank or between them; on all ranks alike.
        PartgridError: What a rank raised when it was asked for its section, with the number of that rank.
    """
    import numpy as np  # noqa: PLC0415 - only needed here

    from partgrid import _messages, _sections  # noqa: PLC0415 - import this package
    from partgrid.engines.mpi import agree  # noqa: PLC0415 - imports this package

    _messages.check(comm, "Get_rank", "Get_size", "allgather")
    own, said, error = None, None, None
    array: DistArray | None = None
    try:
        if section is not None:
            given = section.__distarray__() if hasattr(section, "__distarray__") else section
            own = _sections.alike(given, np)
            said = _sections.told(own, np)
    except BaseException as raised:  # it is raised again, on all ranks
        error = raised
    agree(comm, error)
    heard = comm.allgather(said)
    while heard and heard[-1] is None:
        heard.pop()
    rank = comm.Get_rank()
    try:
        others = [_sections.stand_in(each, np) for each in heard]
        sections = [own if number == rank else each for number, each in enumerate(others)]
        array = _native._dist_array(sections, rank)
    except BaseException as raised:  # it is raised again, on all ranks
        error = raised
    agree(comm, error, alike=True)
    return cast("DistArray", array)


def exchange_halos(sections: DistArray | Iterable[object], comm: Comm = None) -> None:
    """Makes the communication padding of an array fresh: every element of it becomes what its owner has. Buffers are written in place.

    Nobody else may use them meanwhile.

    Args:
        sections: The sections of all ranks, rank 0 first, or an array of them. With `comm`: an array of `from_local` or of `Plan.execute(comm)`.
        comm: A communicator, for sections that are on the ranks of a program; every rank must call it.

    Raises:
        ProtocolError: A rule of the protocol is broken.
        InvalidArgumentError: A buffer is read-only, or shares memory with that of another rank.
        NotLocalError: A section is in another process, and there is no `comm`.

    Examples:
        >>> import numpy as np, partgrid as pg
        >>> array = pg.from_numpy(np.arange(6)).distarray("column_0", distribution=pg.distarray.block(6, 2, padding=1))
        >>> halves = [np.asarray(section.buffer) for section in array.sections]
        >>> [half.tolist() for half in halves]
        [[0, 1, 2, 3], [2, 3, 4, 5]]
        >>> halves[1][1] = 30
        >>> pg.distarray.exchange_halos(array)
        >>> halves[0].tolist()
        [0, 1, 2, 30]
    """
    if comm is not None:
        from partgrid import _messages  # noqa: PLC0415 - imports this package

        _messages.exchange(sections, comm)
        return
    _native._fill_halos(sections if isinstance(sections, DistArray) else from_sections(sections))
