"""Grids of SPMD programs: each rank of an MPI program has some of the tiles, and all know the whole outline.

Comes in: what a rank has, and a communicator of mpi4py. Goes out: the same grid on all ranks. What fails on one rank is raised on all of them, since ranks
that went on alone would wait for the others forever. Never here: rows on their way between ranks.
"""

from __future__ import annotations

import os
import re
from typing import Any

from partgrid import _native, errors
from partgrid._frames import from_pandas
from partgrid._refusals import needed, refused
from partgrid.engines._member import Host, new_token, serve

# An `mpi4py.MPI.Comm`.
Comm = Any
Array = Any

# So many characters of what was given are shown.
SHORT = 60

# What can be made again of its text alone.
PLAIN: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (ImportError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
}


def from_local(data: object, comm: Comm = None) -> _native.Grid:
    """Makes one grid of the rows of all ranks: those of rank 0, below them those of rank 1, and so on. Every rank must call it.

    Nothing is copied and no row is sent. Tiles of other ranks keep their outline and their location, and raise `NotLocalError` when they are opened.
    `grid.__partitioned__` has `locals`; `grid.partitioned(dialect="heat")` goes to `heat.from_partitioned`.

    Args:
        data: The rows of this rank: a `Grid`, a pandas frame (with row labels 0, 1, 2 and so on), a numpy array, a tensor, or anything that `from_arrow`
            takes. `None` for no rows. Or, on all ranks, the same array of a program with `__partitioned__`, such as HeAT's, or a grid of `from_partitioned`
            with `locals`: the grid then has its tiles where they are, and not one more row.
        comm: A communicator of mpi4py, or anything with `Get_rank`, `Get_size` and `allgather` that work alike; by default `mpi4py.MPI.COMM_WORLD`.

    Returns:
        The grid. It has `rank` and `num_ranks`, and on each rank the same shape, cuts and locations.

    Raises:
        InvalidArgumentError: Two ranks have other columns, types or cuts between columns; or no rank has data.
        PartgridError: What a rank raised when it made its part, with the number of that rank.
        ImportError: mpi4py is missing, and no `comm` was given.
    """
    comm = _communicator(comm)
    made, part, error = None, None, None
    try:
        made = None if data is None else _grid_of(data)
        part = _native._rank_part(made)
    except BaseException as raised:  # it is raised again, on all ranks
        error = raised
    agree(comm, error)
    parts = comm.allgather(part)
    try:
        grid = _native._from_ranks(parts, comm.Get_rank(), made, comm)
    except BaseException as raised:
        # What the parts say is the same everywhere, but not the memory of a rank.
        agree(comm, raised, alike=True)
        raise
    agree(comm, None, alike=True)
    return grid


def sql(
    query: str,
    comm: Comm = None,
    *,
    params: Any = None,  # noqa: ANN401 - a list or a dict
    root: int = 0,
    **grids: _native.Grid,
) -> Any:  # noqa: ANN401 - a table of pyarrow
    """Runs SQL over grids of all ranks; each rank reads its own tiles. Every rank must call it, with the same query, values and grids.

    The first call with a communicator starts a server in each rank, a member of a cluster (docs/cluster.md): it listens on this machine alone if all ranks
    are on it, else on its address in the network, for those who have a token that the ranks agree upon. It ends with the process. Between hosts the token and
    the rows go in clear text, without TLS: the network must be one in which nobody else reads along.

    Args:
        query: One statement. It names the grids as the keyword arguments do.
        comm: The communicator of the grids; by default `mpi4py.MPI.COMM_WORLD`.
        params: Values for its parameters, as in `Session.sql`: a list for `$1`, a dict for `$name`.
        root: The rank that gets the answer.
        grids: Grids of `from_local` with this communicator.

    Returns:
        A `pyarrow.Table` on the rank `root`, `None` on all others.

    Raises:
        QueryError: The SQL is wrong, or values and parameters do not fit.
        InvalidArgumentError: A grid is none of `from_local`, `comm` is no communicator, or ranks asked for different things.
        PartitionLostError: A rank does not answer, and its tiles are lost with it.
        WorkerLostError: A rank was lost while the statement ran.
    """
    comm = _communicator(comm)
    wish, error = "", None
    try:
        for name, grid in grids.items():
            if not isinstance(grid, _native.Grid) or grid.rank is None:
                message = f"{name} must be a grid of from_local, got {type(grid).__module__}.{type(grid).__qualname__}"
                raise refused(
                    errors.InvalidArgumentError,
                    message,
                    "make it with partgrid.engines.mpi.from_local",
                )
        wish = f"{query!r}{_shown(params)} over {', '.join(sorted(grids))} for rank {root}"
    except BaseException as raised:  # it is raised again, on all ranks
        error = raised
    agree(comm, error, wish)
    server, token = _member(comm)
    answer = None
    try:
        for name, grid in grids.items():
            server.contribute(name, _part(grid), part=comm.Get_rank(), of=comm.Get_size())
    except BaseException as raised:
        error = raised
    agree(comm, error)
    try:
        if comm.Get_rank() == root:
            server.refresh()
            connection = _native.connect(server.uri, token=token, insecure=True)
            answer = connection.sql(query, params).to_arrow()
    except BaseException as raised:
        error = raised
    agree(comm, error)
    return answer


def _shown(params: Any) -> str:  # noqa: ANN401 - a list or a dict
    """Values in words, by which ranks see that they have the same ones; addresses differ and say nothing."""
    return "" if params is None else " with " + re.sub(r" at 0x[0-9a-f]+", "", repr(params))


# The server of this process for a communicator, and the token of all of them.
_members: dict[tuple[int, int], tuple[_native.Server, str]] = {}


def _member(comm: Comm) -> tuple[_native.Server, str]:
    """The server of this rank, started with those of all others if there is none. Every rank must call it."""
    key = (os.getpid(), comm.py2f() if hasattr(comm, "py2f") else id(comm))
    if key in _members:
        return _members[key]
    own = Host.here()
    told = comm.allgather((own.name, own.address, new_token()))
    hosts, token = [Host(name, address) for name, address, _ in told], told[0][2]
    server, error = None, None
    try:
        server = serve(hosts, own, token)
    except BaseException as raised:  # it is raised again, on all ranks
        error = raised
    agree(comm, error)
    assert server is not None
    server.join(comm.allgather(server.uri))
    _members[key] = (server, token)
    return _members[key]


def _part(grid: _native.Grid) -> _native.Grid:
    """What this rank has of a grid of all ranks."""
    positions = grid.__partitioned__["locals"]
    bands = sorted({position[0] for position in positions})
    if not bands:
        pyarrow = needed("pyarrow", "sql over a rank without rows")
        return _native.from_arrow(pyarrow.schema(grid.schema).empty_table())
    cuts = grid.cuts[0]
    return grid[cuts[bands[0]] : cuts[bands[-1] + 1]]


def agree(comm: Comm, error: BaseException | None, wish: str = "", *, alike: bool = False) -> None:
    """Raises on all ranks what any of them has to raise: the error of the lowest of them, with its number. Every rank must call it.

    Args:
        comm: The communicator.
        error: What this rank has to raise, or `None`.
        wish: What this rank was asked for, in words. Ranks without errors that were asked for different things raise `InvalidArgumentError`.
        alike: Whether an error that is the same on all ranks is raised as it is, without a number.
    """
    heard = comm.allgather((None if error is None else _told(error), wish))
    if error is not None and not isinstance(error, Exception):
        # A wish to end this process, such as Ctrl-C, is no error to be put in other words.
        raise error
    if alike and error is not None and all(told == heard[0][0] for told, _ in heard):
        raise error
    for rank, (told, _) in enumerate(heard):
        if told is None:
            continue
        name, message, context, hint, retryable = told
        text = f"rank {rank}: {message}"
        if name in errors.__all__:
            raise getattr(errors, name)(text, context, hint, retryable) from error
        raise PLAIN[name](text) from error
    for rank, (_, other) in enumerate(heard):
        if other != heard[0][1]:
            message = f"all ranks must ask for the same: rank 0 for {heard[0][1]}, rank {rank} for {other}"
            raise errors.InvalidArgumentError(message)


def get(arrays: Array) -> Array:
    """The array of this rank, or a list of them: the `get` of `grid.partitioned(dialect="heat")`.

    Args:
        arrays: What stands under `data`, or a list or a tuple of it.

    Raises:
        NotLocalError: It is `None`, which stands for the tile of another rank.
    """
    if isinstance(arrays, (list, tuple)):
        return type(arrays)(get(each) for each in arrays)
    if arrays is None:
        message = "None stands for a partition of another rank; `location` says of which"
        hint = "get only what `locals` names"
        raise refused(errors.NotLocalError, message, hint)
    return arrays


def _told(error: BaseException) -> tuple[str, str, dict[str, str], str | None, bool]:
    """What other ranks need to raise the error: names and texts, since not every exception pickles."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as failed:
        text = f"(no text: its __str__ raised {type(failed).__name__})"
    if isinstance(error, errors.PartgridError) and name in errors.__all__:
        return name, text, error.context, error.hint, error.retryable
    if PLAIN.get(name) is type(error):
        return name, text, {}, None, False
    return "RuntimeError", f"{name}: {text}", {}, None, False


def _grid_of(data: Any) -> _native.Grid:  # noqa: ANN401 - whatever the rank has
    if isinstance(data, _native.Grid):
        return data
    if hasattr(data, "__partitioned__") or hasattr(data, "__partitioned_interface__"):
        return _native.from_partitioned(data)
    module = type(data).__module__.partition(".")[0]
    if module == "pandas":
        return from_pandas(data)
    if module == "numpy":
        return _native.from_numpy(data)
    arrow = ("__arrow_c_stream__", "__arrow_c_array__", "__arrow_c_device_array__")
    if hasattr(data, "__dlpack__") and not any(hasattr(data, name) for name in arrow):
        return _native.from_dlpack(data)
    return _native.from_arrow(data)


def _communicator(comm: Comm) -> Comm:
    """The communicator that was given, or that of all ranks."""
    if comm is None:
        return needed("mpi4py.MPI", "a call without comm").COMM_WORLD
    if all(callable(getattr(comm, name, None)) for name in ("Get_rank", "Get_size", "allgather")):
        return comm
    message = f"comm must have Get_rank, Get_size and allgather, got {_brief(comm)}"
    hint = "pass a communicator of mpi4py, such as MPI.COMM_WORLD"
    if isinstance(comm, (list, tuple, dict)):
        hint += "; values of parameters have a name of their own: sql(query, params=[…])"
    raise refused(errors.InvalidArgumentError, message, hint)


def _brief(value: object) -> str:
    """Values that are short as they are, others by their type: a grid has many lines."""
    text = repr(value)
    kind = type(value)
    is_short = len(text) <= SHORT and "\n" not in text
    return text if is_short else f"{kind.__module__}.{kind.__qualname__}"
