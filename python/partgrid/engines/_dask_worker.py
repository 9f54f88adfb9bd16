"""What runs in the workers of Dask: the member of each, and the tasks that make tables of partitions.

Comes in: partitions that Dask keeps in a worker. Goes out: the same as parts of grids of all workers, over the same memory. Never here: a partition on its way
to another process. Imported only where Dask is used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import threading
from collections import deque
from typing import Any

import distributed
from distributed.comm import get_address_host

from partgrid import _native, errors
from partgrid._frames import pandas_to_arrow
from partgrid._refusals import placed, refused
from partgrid.engines._member import listen

# Libraries that are imported only where their frames are.
Table = Any
Schema = Any
Worker = Any

# The name of the plugin: there is one in each worker, whoever registered it.
NAME = "partgrid"
# How long a query of the members may take at most; whoever asks says less.
LONGEST_QUERY = 86_400
# The part of a worker's memory that queries may use: Dask begins to spill at 0.6 of it.
OF_MEMORY = 0.25
# How long a name may be lent for one statement to be planned.
LENT_FOR = 30.0
# How long a statement waits until names that others have are free; less than a client waits.
WAITS_FOR = 20.0


class Member(distributed.WorkerPlugin):  # type: ignore[misc]
    """Makes a worker a member of a cluster: starts a server with the worker, and ends it with the worker.

    What the server has of a grid is taken away as soon as Dask lets go of one of its partitions here.

    Args:
        token: What members show each other.
    """

    name = NAME
    idempotent = True

    def __init__(self, token: str) -> None:
        self.token = token
        self.hosted: Hosted | None = None
        self.refusal: Exception | None = None
        self.grids_of: dict[Any, set[str]] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    async def setup(self, worker: Worker) -> None:
        """Starts the server. What stands in the way is told to whoever asks: a worker whose plugin fails would end."""
        self.loop = asyncio.get_running_loop()
        try:
            address, settings = _address(worker), _settings(worker)
            cluster = worker.scheduler.address
            self.hosted = await asyncio.to_thread(_host, cluster, address, self.token, settings)
        except Exception as error:
            self.refusal = error

    async def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - as Dask calls it
        """Ends the server."""
        hosted, self.hosted = self.hosted, None
        if hosted is not None:
            await asyncio.to_thread(hosted.leave)

    def transition(self, key: Any, start: str, finish: str, **more: Any) -> None:  # noqa: ANN401, ARG002
        """Takes grids away one of whose partitions Dask no longer keeps here."""
        if start == "memory" and key in self.grids_of and self.loop is not None:
            for name in self.grids_of.pop(key):
                self.loop.call_soon(self.withdraw, name)

    def withdraw(self, name: str) -> None:
        """Takes away what this process has of a grid."""
        if self.hosted is None:
            return
        self.hosted.server.withdraw(name)
        for key in [key for key, names in self.grids_of.items() if name in names]:
            self.grids_of[key].discard(name)
            if not self.grids_of[key]:
                del self.grids_of[key]


class Hosted:
    """The server of a process, for all workers of one cluster in it.

    Args:
        cluster: The address of the scheduler.
        server: The server.
    """

    def __init__(self, cluster: str, server: _native.Server) -> None:
        self.cluster, self.server = cluster, server
        self.num_workers = 0
        self.lending = asyncio.Lock()
        self.lent: tuple[str, list[str]] | None = None
        # Leases that ended, some before they began: whoever asked did not wait.
        self.over: deque[str] = deque(maxlen=1000)

    def leave(self) -> None:
        """Ends the server when its last worker leaves."""
        with _hosting:
            self.num_workers -= 1
            if self.num_workers > 0:
                return
            _hosted.pop((os.getpid(), self.cluster), None)
        self.server.stop(within=0)

    def give_back(self, lease: str) -> None:
        """Takes lent names away, or sees to it that they are not lent any more."""
        if self.lent is None or self.lent[0] != lease:
            self.over.append(lease)
            return
        for alias in self.lent[1]:
            self.server.deregister(alias)
        self.lent = None
        self.lending.release()


# By process and scheduler: threads of one process may be several workers, and tests have several clusters.
_hosted: dict[tuple[int, str], Hosted] = {}
_hosting = threading.Lock()


def _host(cluster: str, address: str, token: str, settings: dict[str, float | str]) -> Hosted:
    place = (os.getpid(), cluster)
    with _hosting:
        if place not in _hosted:
            _hosted[place] = Hosted(cluster, listen(address, token, settings))
        _hosted[place].num_workers += 1
        return _hosted[place]


def _address(worker: Worker) -> str:
    """Where the server of a worker listens: where the worker does.

    Raises:
        UnsupportedError: The workers speak TLS to each other, which would be undone.
    """
    protocol, host = worker.address.partition("://")[0], _ip(worker)
    if protocol == "inproc" or ipaddress.ip_address(host).is_loopback:
        return "127.0.0.1"
    if protocol in ("tls", "wss"):
        message = (
            f"the workers of Dask must speak tcp:// or be on one machine, got {worker.address}"
        )
        hint = "members of partgrid have no certificates of Dask, and would send rows without TLS"
        raise refused(errors.UnsupportedError, message, hint)
    return host


def _ip(worker: Worker) -> str:
    """The address of a worker's machine, as Dask knows it."""
    host = str(get_address_host(worker.address))
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return socket.gethostbyname(host)


def _settings(worker: Worker) -> dict[str, float | str]:
    settings: dict[str, float | str] = {"limits.query_time": LONGEST_QUERY}
    limit = worker.memory_manager.memory_limit
    if limit:
        room = int(limit * OF_MEMORY)
        settings |= {"limits.memory": room, "limits.query_memory": room}
    return settings


def _member(worker: Worker) -> tuple[Member, Hosted]:
    member = worker.plugins.get(NAME)
    if member is None or (member.hosted is None and member.refusal is None):
        message = f"the worker {worker.address} has no member of partgrid"
        raise errors.WorkerLostError(message, retryable=True)
    if member.hosted is None:
        raise member.refusal
    return member, member.hosted


async def tell(dask_worker: Worker) -> dict[str, Any]:
    """Where the member of a worker is, its token and its process."""
    member, hosted = _member(dask_worker)
    return {
        "uri": hosted.server.uri,
        "token": member.token,
        "host": _ip(dask_worker),
        "pid": os.getpid(),
    }


async def adopt(
    name: str, parts: list[tuple[int, list[Any]]], of: int, dask_worker: Worker
) -> dict[str, Any]:
    """Makes partitions that are here parts of a grid of all workers, without copying.

    Args:
        name: The name of the grid.
        parts: The number of each part, and the keys of its partitions.
        of: How many parts there are.
        dask_worker: The worker.

    Returns:
        What `tell` says, and `missing`: the keys of partitions that are not here; if there are any, nothing is adopted.
    """
    member, hosted = _member(dask_worker)
    data = dask_worker.data
    missing = [key for _, keys in parts for key in keys if key not in data]
    if not missing:
        # A partition that was spilled is read here, on the thread where Dask does it.
        cells = {number: [[data[key]] for key in keys] for number, keys in parts}
        for key in (key for _, keys in parts for key in keys):
            member.grids_of.setdefault(key, set()).add(name)

        def contribute() -> None:
            for number, tables in cells.items():
                hosted.server.contribute(name, _native._from_parts(tables), part=number, of=of)

        await asyncio.to_thread(contribute)
    return {**await tell(dask_worker), "missing": missing}


async def meet(uris: list[str], name: str, dask_worker: Worker) -> bool:
    """Tells the member who the others are, and has it look for all parts of a grid.

    Args:
        uris: Where all members are.
        name: The name of the grid.
        dask_worker: The worker.

    Returns:
        Whether the grid is there.
    """
    _, hosted = _member(dask_worker)
    server = hosted.server

    def look() -> bool:
        server.join(uris)
        try:
            server.refresh()
        except errors.PartgridError:
            # It may be about another grid.
            if name not in server.tables:
                raise
        return name in server.tables

    return await asyncio.to_thread(look)


async def forget(name: str, dask_worker: Worker) -> None:
    """Takes a grid away that all have parts of."""
    member, hosted = _member(dask_worker)
    member.withdraw(name)
    if name in hosted.server.tables:
        await asyncio.to_thread(hosted.server.deregister, name)


async def lend(lease: str, names: dict[str, str], dask_worker: Worker) -> None:
    """Puts grids of all under the names of a statement, until `give_back`; others wait meanwhile.

    Args:
        lease: What `give_back` will name.
        names: The name of the grid of all for each name in the statement.
        dask_worker: The worker.

    Raises:
        PartitionLostError: The grid of all is not there any more.
        ResourcesExhaustedError: The turn of this statement did not come.
    """
    _, hosted = _member(dask_worker)
    try:
        await asyncio.wait_for(hosted.lending.acquire(), WAITS_FOR)
    except TimeoutError as error:
        message = f"other statements were planned for {WAITS_FOR:.0f} seconds"
        raise errors.ResourcesExhaustedError(message, retryable=True) from error
    if lease in hosted.over:
        hosted.lending.release()
        return
    hosted.lent = (lease, [])
    try:
        for alias, name in names.items():
            hosted.server.register(alias, hosted.server.grid(name))
            hosted.lent[1].append(alias)
    except (errors.QueryError, errors.NotFoundError) as error:
        hosted.give_back(lease)
        message = f"the parts of the grid are not with the members any more: {error}"
        raise errors.PartitionLostError(message, retryable=True) from error
    except BaseException:
        hosted.give_back(lease)
        raise
    # Whoever asked may be gone.
    asyncio.get_running_loop().call_later(LENT_FOR, hosted.give_back, lease)


async def give_back(lease: str, dask_worker: Worker) -> None:
    """Ends what `lend` began."""
    _, hosted = _member(dask_worker)
    hosted.give_back(lease)


def table_of(value: Any, number: int, index: str | None) -> Table:  # noqa: ANN401
    """A task: the table of a partition, over the same memory where that can be.

    Args:
        value: A frame or series of pandas, or what `from_arrow` and `from_numpy` take.
        number: The number of the partition, for messages.
        index: What becomes of row labels, as in `from_dask`. By default they must be any range, and whoever has the others looks how it goes on.
    """
    try:
        module = type(value).__module__.partition(".")[0]
        if module == "pandas":
            return pandas_to_arrow(value, "range" if index is None else index)
        if module == "numpy":
            return _native.from_numpy(value).to_arrow()
        return _native.from_arrow(value).to_arrow()
    except errors.PartgridError as error:
        raise placed(error, f"partition {number}") from error


def first_label(value: Any) -> int | None:  # noqa: ANN401
    """A task: the first row label of a partition, if labels are numbers without a gap."""
    labels: Any = getattr(value, "index", None)
    is_counted = type(labels).__name__ == "RangeIndex" and len(labels) > 0 and labels.step == 1
    return labels.start if is_counted else None


def outline(table: Table) -> tuple[int, Schema]:
    """A task: the number of rows and the columns of a table."""
    return table.num_rows, table.schema


def conform(table: Table, schema: Schema) -> Table:
    """A task: a table with the types of all others."""
    import pyarrow as pa  # noqa: PLC0415

    grid = _native._from_parts([[schema.empty_table()], [table]])
    made = grid.to_arrow()
    batches = [batch for batch in made.to_batches() if batch.num_rows > 0]
    return pa.Table.from_batches(batches[:1] or made.to_batches()[:1], made.schema)
