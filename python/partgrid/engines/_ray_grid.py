"""Grids whose tiles are in actors of Ray.

Comes in: parts, each with what it is made of, so that it can be made again. Goes out: where the tiles are, SQL over them, references to them. Never here: rows,
unless they are asked for.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from partgrid import _native, errors
from partgrid._refusals import needed, refused
from partgrid.engines._ray_holder import Outline, Place, opened
from partgrid.engines._ray_members import Member, Members, running

if TYPE_CHECKING:
    from types import TracebackType

ObjectRef = Any
Table = Any
Frame = Any
Position = tuple[int, int]

# Seconds in which Ray must bring an object that it has.
BROUGHT = 600.0

# How many parts the driver fetches at once.
FETCHERS = 4

# What the frames are that references stand for.
KINDS = {"pandas": "pandas.DataFrame", "pyarrow": "pyarrow.Table"}


@dataclass(eq=False)
class Part:
    """Some of the rows: what an actor made of files, or of one object.

    Args:
        member: Whose it is.
        method: What makes it: `read` or `adopt`.
        arguments: What it is made of.
        given: The reference that it is made of, if it is made of one.
    """

    member: Member
    method: str
    arguments: tuple[Any, ...]
    given: ObjectRef = None
    outline: Outline | None = None
    # The life of the member in which it was made.
    life: int = 0
    # References to its tiles as frames, which are made when they are asked for.
    frames: dict[tuple[Position, str], ObjectRef] = field(default_factory=dict)


class Parts:
    """All parts of a grid, and the actors that have them.

    Args:
        name: What the grid is called among the actors.
        members: The actors.
        parts: The parts, in the order of their rows.
    """

    def __init__(self, name: str, members: Members, parts: list[Part]) -> None:
        self.name, self.members, self.all = name, members, parts
        self._making = threading.RLock()

    def make(self, within: float | None = None) -> None:
        """Has every part made that is not there: at first, and after its actor died.

        Args:
            within: Seconds to wait at most.
        """
        self.members.check()
        with self._making:
            self.members.mend()
            todo = {
                number: part.member.life
                for number, part in enumerate(self.all)
                if part.outline is None or part.life != part.member.life
            }
            if not todo:
                return
            outlines = self.members.settle([self._call(number) for number in todo], within)
            for (number, life), outline in zip(todo.items(), outlines, strict=True):
                part = self.all[number]
                part.outline, part.life = outline, life
                part.frames.clear()
            self.members.forget(self.name)

    def _call(self, number: int) -> tuple[Member, ObjectRef]:
        part = self.all[number]
        method = getattr(part.member.actor, part.method)
        return part.member, method.remote(self._place(number), *part.arguments)

    def _place(self, number: int) -> Place:
        return Place(self.name, number, len(self.all))

    def fetch(self, number: int) -> Table:
        """The rows of a part."""
        member = self.all[number].member
        own = connected(member, self.members, None).grid(self._place(number).own)
        return own.to_arrow()

    def outlines(self) -> list[Outline]:
        """What is known of each part."""
        return [part.outline for part in self.all if part.outline is not None]

    def refuse_odd(self) -> None:
        """Refuses parts that do not fit each other.

        Raises:
            InvalidArgumentError: Parts of other columns, types or column bands than the first.
        """
        first, *others = self.outlines()
        for number, other in enumerate(others, 1):
            if list(map(_field, other.schema)) != list(map(_field, first.schema)):
                have, want = _columns(other), _columns(first)
                message = f"all parts must have equal columns: part 0 has {want}, part {number} has {have}"
                hint = "cast them, or give those with equal columns only"
                raise refused(errors.InvalidArgumentError, message, hint)
            if other.cuts[1] != first.cuts[1]:
                message = f"all parts must have equal column bands: part 0 is cut at {first.cuts[1]}, part {number} at {other.cuts[1]}"
                raise refused(errors.InvalidArgumentError, message, None)
            if other.mark != first.mark:
                message = (
                    f"the files changed while they were read: part {number} saw others than part 0"
                )
                raise refused(errors.InvalidDataError, message, "read them again")

    def tiles(self) -> Iterator[tuple[Position, int, Position]]:
        """Every position of the grid, with the number of the part that has its tile, and the position there."""
        row_band = 0
        for number, outline in enumerate(self.outlines()):
            rows, columns = (len(cuts) - 1 for cuts in outline.cuts)
            for row in range(rows):
                for column in range(columns):
                    yield (row_band + row, column), number, (row, column)
            row_band += rows

    def frames(self, data: str) -> dict[Position, ObjectRef]:
        """References to all tiles as frames. Those that are not there are made, each copied once by its actor into the object store of its node."""
        self.make()
        if all(_stands_for(part, data) for part in self.all):
            return {position: self.all[number].given for position, number, _ in self.tiles()}
        with self._making:
            made = []
            for _, number, within in self.tiles():
                part = self.all[number]
                if (within, data) not in part.frames:
                    frame = part.member.actor.frame.options(num_returns=2)
                    made.append((part, within, frame.remote(self._place(number), within, data)))
            self.members.settle([(part.member, done) for part, _, (done, _) in made])
            for part, within, (_, frame) in made:
                part.frames[within, data] = frame
            return {
                position: self.all[number].frames[within, data]
                for position, number, within in self.tiles()
            }


def _columns(outline: Outline) -> str:
    return ", ".join(_field(each) for each in outline.schema)


def _field(field: Any) -> str:  # noqa: ANN401 - a pyarrow.Field
    """A column as parts must have it alike."""
    null = "" if field.nullable else " not null"
    more = f" {field.metadata}" if field.metadata else ""
    return f"{field.name}: {field.type}{null}{more}"


def _stands_for(part: Part, data: str) -> bool:
    """Whether the object of which a part was made is its only tile, as such a frame."""
    outline = part.outline
    if outline is None or part.given is None or outline.kind != KINDS[data]:
        return False
    return all(len(cuts) == 2 for cuts in outline.cuts)  # noqa: PLR2004 - where one tile begins and ends


class RayGrid:
    """A grid whose tiles are in actors of Ray; see `read_parquet` and `from_refs` of `partgrid.engines.ray`.

    The actors end when no grid has tiles in them any more. What an actor had that died is made again by a new one, from the files or the objects, with the next
    use of the grid. A grid stays with its driver: pass `grid.__partitioned__` to tasks.
    """

    __iter__ = None
    """Iterating would have to choose between rows, columns and tiles."""

    def __init__(self, parts: Parts) -> None:
        self._parts: Parts | None = parts
        outlines = parts.outlines()
        lengths = [end - start for each in outlines for start, end in pairwise(each.cuts[0])]
        self._cuts = (0, *accumulate(lengths)), tuple(outlines[0].cuts[1])
        self._schema = outlines[0].schema
        self._release = weakref.finalize(self, _release_later, parts.members, parts.name)
        # Actors of a driver that ends, end with it.
        self._release.atexit = False

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._schema.names)

    @property
    def schema(self) -> Any:  # noqa: ANN401 - a pyarrow.Schema
        """The schema as a `pyarrow.Schema`."""
        return self._schema

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._cuts[0][-1], self._cuts[1][-1]

    @property
    def cuts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The cut points of the rows and of the columns: they start at 0 and end with the shape."""
        return self._cuts

    @property
    def tiling(self) -> tuple[int, int]:
        """The number of tiles along rows and columns."""
        return len(self._cuts[0]) - 1, len(self._cuts[1]) - 1

    @property
    def nbytes(self) -> int:
        """The bytes of all tiles."""
        return sum(outline.nbytes for outline in self._open().outlines())

    def locations(self) -> list[list[tuple[str, int]]]:
        """Where each tile is, in row-major order: `[(IP, PID)]` of the node and the actor that has it. Actors that died are replaced before."""
        parts = self._open()
        parts.members.recovering(parts.make)
        members = [parts.all[number].member for _, number, _ in parts.tiles()]
        return [[(member.address, member.pid)] for member in members]

    @property
    def __partitioned__(self) -> dict[str, Any]:
        """The `__partitioned__` protocol (draft of 2022-01-27), exactly: a fresh plain dictionary at each access.

        `data` is a `ray.ObjectRef`, for which `ray.get` and `get` give a `pandas.DataFrame`; `location` is the address of the node and the process id of the
        actor that has the tile. Frames of pandas that were given to `from_refs` are what stands there. Of everything else each actor copies its tiles once, at
        the first access, into the object store of its node, where they stay as long as the grid or a reference. They outlive their actor.

        Pass the dictionary to tasks and actors as an argument. With `pickle` it comes to processes that Ray does not know of; but what was pickled so stays in
        the object store until the driver ends.

        Raises:
            PartitionLostError: A tile is gone, and cannot be made again.
        """
        return self._describe("pandas")

    def partitioned(self, data: str = "pandas") -> View:
        """The grid as an object with `__partitioned__` with other frames.

        Args:
            data: What references stand for: `"pandas"` or `"pyarrow"` (a `pyarrow.Table`).

        Raises:
            InvalidArgumentError: It is neither.
        """
        if data not in KINDS:
            message = f"data must be {' or '.join(map(repr, KINDS))}, got {data!r}"
            raise refused(errors.InvalidArgumentError, message, None)
        return View(self, data)

    def sql(self, query: str, params: Any = None, *, timeout: float | None = None) -> Table:  # noqa: ANN401
        """Runs SQL over this grid under the name `self`; see `partgrid.engines.ray.sql`.

        Args:
            query: One statement, for instance `SELECT carrier, count(*) FROM self GROUP BY carrier`.
            params: Values for its parameters: a list for `$1`, a dict for `$name`.
            timeout: Seconds that it may take.

        Returns:
            A `pyarrow.Table`.
        """
        return asked(query, params, {"self": self}, timeout, lambda result: result.to_arrow())

    def to_arrow(self) -> Table:
        """All rows as a `pyarrow.Table` in this process, one chunk for each row band; each part straight from its actor."""
        parts, pyarrow = self._open(), needed("pyarrow", "RayGrid.to_arrow")

        def fetched() -> Table:
            parts.make()
            with ThreadPoolExecutor(FETCHERS, "partgrid-fetch") as fetchers:
                return pyarrow.concat_tables(fetchers.map(parts.fetch, range(len(parts.all))))

        return parts.members.recovering(fetched)

    def to_pandas(self) -> Frame:
        """All rows as a `pandas.DataFrame` of Arrow-backed columns in this process."""
        return _native.from_arrow(self.to_arrow()).to_pandas()

    def close(self) -> None:
        """Lets the actors go of the tiles, and ends those that have nothing else. What references stand for stays as long as they do."""
        parts, self._parts = self._parts, None
        if parts is not None and self._release.detach() is not None:
            parts.members.release(parts.name)

    def __enter__(self) -> RayGrid:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        (rows, columns), (high, wide) = self.shape, self.tiling
        text = f"RayGrid of {rows:,} rows x {columns:,} columns in {high} x {wide} tiles"
        if self._parts is None:
            return f"{text}, closed"
        bands: dict[str, int] = {}
        for (_, column), number, _ in self._parts.tiles():
            member = str(self._parts.all[number].member)
            bands[member] = bands.get(member, 0) + (column == 0)
        places = [f"  {member}: {count} row bands" for member, count in bands.items()]
        names = [f"  {each.name}  {each.type}" for each in self._schema]
        return "\n".join([text, *places, *names])

    def __reduce__(self) -> NoReturn:
        message = "a RayGrid stays with its driver and does not pickle"
        hint = "pass grid.__partitioned__, whose references any process of Ray opens"
        raise refused(errors.UnsupportedError, message, hint)

    def _open(self) -> Parts:
        if self._parts is None:
            message = "the grid was closed"
            raise refused(errors.PartitionLostError, message, "make it again")
        return self._parts

    def _describe(self, data: str) -> dict[str, Any]:
        parts = self._open()

        def described() -> dict[str, Any]:
            frames = parts.frames(data)
            rows, columns = self._cuts
            partitions = {}
            for (row, column), number, _ in parts.tiles():
                start, member = (rows[row], columns[column]), parts.all[number].member
                partitions[row, column] = {
                    "start": start,
                    "shape": (rows[row + 1] - start[0], columns[column + 1] - start[1]),
                    "data": frames[row, column],
                    "location": [(member.address, member.pid)],
                }
            return {
                "shape": self.shape,
                "partition_tiling": self.tiling,
                "partitions": partitions,
                "get": Get(list(frames.values())),
            }

        found: dict[str, Any] = parts.members.recovering(described)
        return found


class View:
    """A grid of Ray as an object with `__partitioned__`, made by `RayGrid.partitioned`. It keeps the grid alive."""

    def __init__(self, grid: RayGrid, data: str) -> None:
        self._grid, self._data = grid, data

    @property
    def __partitioned__(self) -> dict[str, Any]:
        """The dictionary, fresh at each access; see `RayGrid.__partitioned__`."""
        return self._grid._describe(self._data)


class Get:
    """The `get` of `__partitioned__`: the frame of a reference, or a list of the frames of a list or tuple of them.

    Ray brings an object from another node when it is asked for there. What `pickle` makes of a reference says nothing of its owner, without whom no process
    finds the object; so this one, pickled with the dictionary, brings the owners.

    Args:
        references: The references of the dictionary, or what `ray.cloudpickle` made of them.
    """

    def __init__(self, references: list[ObjectRef] | bytes = b"") -> None:
        self._references = references

    def __call__(self, references: Any) -> Any:  # noqa: ANN401 - one reference, or many
        """The frame, or frames.

        Args:
            references: What stands under `data`, or a list or a tuple of it.

        Raises:
            PartitionLostError: Ray has no such object any more.
            InvalidArgumentError: Ray is not running in this process.
        """
        ray = running("get of a partition")
        if self._references and isinstance(self._references, bytes):
            # From now on this process knows the owners.
            self._references = ray.cloudpickle.loads(self._references)
        if isinstance(references, (list, tuple)):
            return type(references)(opened(list(references), BROUGHT, "a partition"))
        return opened(references, BROUGHT, "a partition")

    def __reduce__(self) -> tuple[type[Get], tuple[bytes]]:
        if not isinstance(self._references, bytes):
            ray = running("a reference of Ray")
            return Get, (ray.cloudpickle.dumps(self._references),)
        return Get, (self._references,)

    def __repr__(self) -> str:
        return "partgrid.engines.ray.get"


get = Get()
"""The frame of a reference of Ray, or a list of the frames of a list or tuple of references; see `Get`."""


def asked(
    query: str,
    params: Any,  # noqa: ANN401 - a list or a dict
    grids: dict[str, RayGrid],
    timeout: float | None,
    of: Callable[[_native.Result], Any],
) -> Any:  # noqa: ANN401 - what is asked of the result
    """What is made of the result of a statement over grids of Ray; asked again when an actor died meanwhile."""
    for name, grid in grids.items():
        if not isinstance(grid, RayGrid):
            message = (
                f"{name} must be a RayGrid, got {type(grid).__module__}.{type(grid).__qualname__}"
            )
            hint = "partgrid.engines.ray.from_refs([ray.put(table)]) makes one"
            raise refused(errors.InvalidArgumentError, message, hint)
    if not grids:
        message = "a statement needs a grid of Ray at least, got none"
        hint = "name it: sql('SELECT count(*) FROM g', g=grid)"
        raise refused(errors.InvalidArgumentError, message, hint)
    parts = {name: grid._open() for name, grid in grids.items()}
    members = next(iter(parts.values())).members

    def answer() -> Any:  # noqa: ANN401
        for each in parts.values():
            each.make()
        with members.named({name: each.name for name, each in parts.items()}) as member:
            return of(connected(member, members, timeout).sql(query, params))

    return members.recovering(answer)


def connected(member: Member, members: Members, timeout: float | None) -> _native.Connection:
    return _native.connect(member.uri, token=members.token, insecure=True, timeout=timeout)


def _release_later(members: Members, name: str) -> None:
    """Lets go of a grid that nobody has any more, on a thread of its own: whatever this one is about must not wait."""
    threading.Thread(target=members.release, args=(name,), daemon=True).start()
