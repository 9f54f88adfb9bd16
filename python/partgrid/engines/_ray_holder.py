"""What runs in an actor of Ray: it has tiles, and is a member of the cluster of its driver.

Comes in: where files are, or references of objects. Goes out: their outline; the rows stay. Never here: other actors, which the driver knows.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from partgrid import _native, errors
from partgrid._frames import from_pandas
from partgrid._refusals import needed, placed, refused
from partgrid.engines._member import Host, serve

ObjectRef = Any
# A path, or a list of them.
Source = Any
Wishes = dict[str, Any]

# How many row bands of files an actor reads at once.
READERS = 4

# What names of files of Parquet end with, where a folder is shared out file by file.
ENDINGS = (".parquet", ".parq", ".pq")


@dataclass(frozen=True)
class Place:
    """Which part of which grid.

    Args:
        grid: The name of the grid of all.
        number: The number of the part.
        of: How many parts there are.
    """

    grid: str
    number: int
    of: int

    @property
    def own(self) -> str:
        """What the part alone is called at its actor."""
        return f"{self.grid}_{self.number}"


@dataclass(frozen=True)
class Outline:
    """What the driver knows of a part.

    Args:
        schema: Its columns, as a `pyarrow.Schema`.
        cuts: The cut points of its rows and columns.
        nbytes: The bytes of its tiles.
        mark: What files said of themselves when the part was read.
        kind: The library and the class of the object that the part was made of.
    """

    schema: Any
    cuts: tuple[tuple[int, ...], tuple[int, ...]]
    nbytes: int
    mark: str
    kind: str


class Holder:
    """The actor. Its methods may run side by side."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._server: _native.Server | None = None
        self._parts: dict[Place, _native.Grid] = {}
        # Names in SQL, and the grids that they stand for.
        self._names: dict[str, str] = {}
        # Grids of which nothing is wanted any more, though it may still be read.
        self._released: set[str] = set()

    def where(self) -> tuple[str, str, int]:
        """The name of this machine, the address under which Ray knows it, and the id of this process."""
        ray = needed("ray", "an actor of partgrid")
        return socket.gethostname(), str(ray.util.get_node_ip_address()), os.getpid()

    def ping(self) -> None:
        """Says that it is there."""

    def start(self, hosts: list[tuple[str, str]], token: str) -> str:
        """Starts the server, in place of one that runs.

        Args:
            hosts: Names and addresses of all machines that must reach it.
            token: What members show each other.

        Returns:
            Its URI.
        """
        name, address, _ = self.where()
        with self._lock:
            if self._server is not None:
                self._server.stop(within=0)
            own = Host(name, address)
            self._server = serve([Host(*each) for each in hosts], own, token)
            self._names.clear()
            for place, part in self._parts.items():
                self._share_out(place, part)
            return self._server.uri

    def join(self, uris: list[str]) -> None:
        """Looks for these members from now on."""
        self._running().join(uris)

    def read(self, place: Place, source: Source, wishes: Wishes, mark: str) -> Outline:
        """Reads a share of files, and makes it a part of a grid.

        Args:
            place: Which part; each reads another share.
            source: What `read_parquet` takes.
            wishes: Its keyword arguments.
            mark: What the files said of themselves before, or nothing.

        Raises:
            PartitionLostError: The files are gone, or others than before.
        """
        try:
            whole = _look(source, place.of, wishes)
            seen = _mark_of(whole)
            if mark and mark != seen:
                message = "the files are others than those that were read first"
                hint = "read them again: partgrid.engines.ray.read_parquet"
                raise refused(errors.PartitionLostError, message, hint)
            is_filtered = wishes.get("filters") is not None
            part = _filtered(place, source, wishes) if is_filtered else _share(place, whole)
        except errors.NotFoundError as error:
            if not mark:
                raise
            message = f"the files cannot be read again: {error}"
            raise refused(errors.PartitionLostError, message, None) from error
        return self._contribute(place, part, seen, "")

    def adopt(
        self, place: Place, refs: list[ObjectRef], index: str | None, within: float
    ) -> Outline:
        """Makes the object of a reference a part of a grid, where Ray has it in shared memory, without copying.

        Args:
            place: Which part.
            refs: The reference, in a list, so that nobody but this actor fetches it.
            index: What becomes of the labels of pandas frames.
            within: Seconds to wait for it.

        Raises:
            PartitionLostError: Ray has no such object any more.
            ProtocolError: It is nothing that a grid can be made of.
        """
        which = f"refs[{place.number}]"
        data = opened(refs[0], within, which)
        try:
            part = _grid_of(data, index)
        except errors.PartgridError as error:
            raise placed(error, which) from error
        kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__qualname__}"
        return self._contribute(place, part, "", kind)

    def bind(self, names: dict[str, str]) -> list[str]:
        """Looks which grids have all their parts, and puts some under the names by which SQL knows them.

        Args:
            names: Names in SQL, and the grids of all.

        Returns:
            The URIs of the members as this one sees them.

        Raises:
            WorkerLostError: A grid does not have all its parts.
        """
        server = self._running()
        with self._lock:
            server.refresh()
            missing = sorted(set(names.values()) - set(server.tables))
            if missing:
                message = f"a member with parts of a grid does not answer: {missing[0]}"
                raise errors.WorkerLostError(message, {}, None, True)
            for name, grid in names.items():
                server.register(name, server.grid(grid))
                self._names[name] = grid
            return server.members

    def frame(self, place: Place, position: tuple[int, int], data: str) -> tuple[None, Any]:
        """A sign that it is done, and a tile as a frame, which Ray copies into its object store."""
        with self._lock:
            part = self._parts[place]
        handle = part.__partitioned__["partitions"][position]["data"]
        frame = _native.Get(data)(handle)
        if data == "pyarrow":
            frame = needed("pyarrow", "an actor of partgrid").Table.from_batches([frame])
        return None, frame

    def release(self, name: str) -> None:
        """Lets go of what it has of a grid."""
        with self._lock:
            self._released.add(name)
            gone = [place for place in self._parts if place.grid == name]
            bound = [known for known, grid in self._names.items() if grid == name]
            for place in gone:
                del self._parts[place]
            for known in bound:
                del self._names[known]
            if self._server is not None:
                self._server.withdraw(name)
                for known in (name, *bound, *(place.own for place in gone)):
                    self._server.deregister(known)

    def _running(self) -> _native.Server:
        if self._server is None:
            raise refused(errors.InternalError, "the server of this actor was not started", None)
        return self._server

    def _share_out(self, place: Place, part: _native.Grid) -> None:
        server = self._running()
        server.contribute(place.grid, part, part=place.number, of=place.of)
        server.register(place.own, part)

    def _contribute(self, place: Place, part: _native.Grid, mark: str, kind: str) -> Outline:
        with self._lock:
            if place.grid in self._released:
                raise refused(errors.CancelledError, "nobody wants the grid any more", None)
            self._share_out(place, part)
            self._parts[place] = part
        return Outline(part.schema, part.cuts, part.nbytes, mark, kind)


def opened(ref: ObjectRef, within: float, place: str) -> Any:  # noqa: ANN401 - whatever it refers to
    """The object of a reference.

    Args:
        ref: The reference, or a list of them.
        within: Seconds to wait for it.
        place: Which one it is, for the text of errors.

    Raises:
        PartitionLostError: Ray has no such object any more, or does not bring it in time.
        InvalidDataError: The task that should have made it failed.
    """
    ray = needed("ray", "a reference of Ray")
    lost: str | None = None
    try:
        return ray.get(ref, timeout=within)
    except ray.exceptions.GetTimeoutError as error:
        lost, cause = f"the object did not come within {within:g} seconds", error
    except ray.exceptions.RayTaskError as error:
        message = f"{place}: the task that makes the object failed: {error.cause!r}"
        raise refused(errors.InvalidDataError, message, None) from error
    except ray.exceptions.RayError as error:
        lost, cause = first_line(error), error
    raise refused(errors.PartitionLostError, f"{place}: {lost}", None) from cause


def first_line(error: Exception) -> str:
    """What happened to an object or an actor, in few words."""
    name, _, _ = type(error).__name__.partition("(")
    text = str(error).strip()
    return f"{name}: {text.splitlines()[0]}" if text else name


def _grid_of(data: Any, index: str | None) -> _native.Grid:  # noqa: ANN401 - whatever a reference refers to
    module = type(data).__module__.partition(".")[0]
    if module == "pandas":
        return from_pandas(data, index=index)
    if module == "numpy":
        return _native.from_numpy(data)
    return _native.from_arrow(data)


def _look(source: Source, of: int, wishes: Wishes) -> _native.Grid:
    """The whole grid of files, of which only the footers are read; with a row band for each part at least, if there are as many rows."""
    lazy = {name: value for name, value in wishes.items() if name != "filters"}
    whole = _native.read_parquet(source, lazy=True, progress=False, **lazy)
    if whole.tiling[0] < of and len(whole) > 0 and lazy.get("tile_rows") is None:
        lazy["tile_rows"] = -(-len(whole) // of)
        whole = _native.read_parquet(source, lazy=True, progress=False, **lazy)
    return whole


def _mark_of(whole: _native.Grid) -> str:
    """What the footers of files say: rows, bytes and statistics of every tile."""
    query = "SELECT first_row, \"rows\", bytes, statistics FROM tiles('whole') ORDER BY row_band"
    told = _native.sql(query, whole=whole).to_arrow().to_pylist()
    return hashlib.sha256(repr((str(whole.schema), told)).encode()).hexdigest()


def bands_of(number: int, of: int, cuts: tuple[int, ...]) -> range:
    """The row bands of one of several parts: those whose middle is in its share of the rows.

    Args:
        number: The number of the part.
        of: How many parts there are.
        cuts: The cut points of all rows.
    """
    rows = max(1, cuts[-1])
    owners = [min(of - 1, (start + end) * of // (2 * rows)) for start, end in pairwise(cuts)]
    mine = [band for band, owner in enumerate(owners) if owner == number]
    return range(mine[0], mine[-1] + 1) if mine else range(0)


def _share(place: Place, whole: _native.Grid) -> _native.Grid:
    """The row bands of a part, in memory."""
    pyarrow, cuts = needed("pyarrow", "an actor of partgrid"), whole.cuts[0]
    bands = bands_of(place.number, place.of, cuts)
    if not bands:
        return _native.from_arrow(whole.schema.empty_table())
    with ThreadPoolExecutor(READERS, "partgrid-read") as readers:
        tables = readers.map(lambda band: whole[cuts[band] : cuts[band + 1]].to_arrow(), bands)
        return _native.from_arrow(pyarrow.concat_tables(tables))


def _filtered(place: Place, source: Source, wishes: Wishes) -> _native.Grid:
    """The wanted rows of a share of the files."""
    files = _files(source)
    found, whole = _look(files, 1, wishes), _look(source, 1, wishes)
    if _mark_of(found) != _mark_of(whole):
        # The engine finds other files there, or in another order.
        files = [source]
    mine = [
        file for number, file in enumerate(files) if number * place.of // len(files) == place.number
    ]
    if not mine:
        return _native.from_arrow(whole.schema.empty_table())
    return _native.read_parquet(mine[0] if len(mine) == 1 else mine, progress=False, **wishes)


def _files(source: Source) -> list[Any]:
    """The files of a source, where they can be listed here; else what it is made of."""
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    files: dict[str, None] = {}
    for each in sources:
        folder = Path(each) if "://" not in str(each) else None
        if folder is None or not folder.is_dir():
            files[str(each)] = None
            continue
        inside = (path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
        files.update(dict.fromkeys(sorted(str(path) for path in inside if path.is_file())))
    return list(files) or sources
