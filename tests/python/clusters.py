"""Members of a cluster in processes of their own, whose parts of grids the tests name, and what they say that they have."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

import partgrid as pg
from resting import Had, all_steady, seconds_of
from services import SPREAD, act, ours, parsed, write_tokens

T = TypeVar("T")

# What a statement says whose rows were with a member that is not there any more.
LOST = (pg.errors.WorkerLostError, pg.errors.PartitionLostError)

# Rows of a row band, and row bands of a part.
BAND_ROWS = 100
BANDS = 6
PART_ROWS = BAND_ROWS * BANDS

# Rows of a large part.
LARGE_ROWS = 2_000_000

# The end of a program that is asked: it answers each line with the value of that expression, or with the error.
ASKED = """
for line in sys.stdin:
    try:
        told = eval(line)
    except pg.errors.PartgridError as error:
        told = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(told, default=str), flush=True)
"""

MEMBER = """
import json, sys
import partgrid as pg, pyarrow as pa
from clusters import large, part

server = pg.Server(join="file:" + sys.argv[1], http=None, settings=json.loads(sys.argv[2]))
print(server.uri, flush=True)
"""

QUERY = "SELECT g, sum(x) AS x, count(*) AS n, count(DISTINCT who) AS who FROM sales GROUP BY g ORDER BY g"


def rows_of(number: int, shift: int = 0) -> pa.Table:
    """The rows of a part, in row bands; `shift` makes them others."""
    first = number * PART_ROWS
    rows = range(first, first + PART_ROWS)
    columns = {
        "g": [row % 7 for row in rows],
        "x": [row + shift for row in rows],
        "who": [f"part {number}" if row % 5 else None for row in rows],
    }
    batches = pa.table(columns).to_batches(max_chunksize=BAND_ROWS)
    return pa.Table.from_batches(batches)


def part(number: int, shift: int = 0) -> pg.Grid:
    """The same as a grid of six row bands."""
    return pg.from_arrow(rows_of(number, shift))


def large(number: int, shift: int = 0) -> pg.Grid:
    """The same columns in two hundred row bands of 10,000 rows: so many take a while to move."""
    first = number * LARGE_ROWS
    x = np.arange(first, first + LARGE_ROWS)
    table = pa.table({"g": x % 7, "x": x + shift, "who": np.full(len(x), number)})
    return pg.from_arrow(pa.Table.from_batches(table.to_batches(max_chunksize=10_000)))


def expected(*numbers: int, shift: int = 0) -> dict[str, list[Any]]:
    """What pandas answers to `QUERY` over these parts."""
    frame = pa.concat_tables([rows_of(number, shift) for number in numbers]).to_pandas()
    groups = frame.groupby("g")
    return {
        "g": sorted(groups.groups),
        "x": groups["x"].sum().tolist(),
        "n": groups.size().tolist(),
        "who": groups["who"].nunique().tolist(),
    }


def answer(uri: str) -> dict[str, list[Any]]:
    """What a member answers to it."""
    rows: dict[str, list[Any]] = pg.connect(uri).sql(QUERY).to_arrow().to_pydict()
    return rows


class Child:
    """A process that runs a program, and then says what it is asked (`ASKED`)."""

    def __init__(
        self,
        program: str,
        *arguments: str,
        within: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [*within, sys.executable, "-c", program + ASKED, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path_of_tests(), **(environment or {})},
        )

    def line(self) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the member ended"
        return line.strip()

    def begin(self, expression: str) -> None:
        """Says what to do, and waits for nothing."""
        assert self.process.stdin is not None
        print(expression, file=self.process.stdin, flush=True)

    def ask(self, expression: str) -> Any:
        self.begin(expression)
        return json.loads(self.line())

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class Member(Child):
    """A server in a child. It spreads all statements unless a test says otherwise; a setting that is `None` is left as it is without one."""

    def __init__(
        self, members: Path, environment: Mapping[str, str] | None = None, **settings: object
    ) -> None:
        said = {key: value for key, value in (SPREAD | settings).items() if value is not None}
        super().__init__(MEMBER, str(members), json.dumps(said), environment=environment)
        self.uri = self.line()

    def contribute(self, number: int, of: int, replicas: int = 1, shift: int = 0) -> None:
        told = self.ask(
            f"server.contribute('sales', part({number}, {shift}), part={number}, of={of}, replicas={replicas})"
        )
        assert told is None, told


def free_port() -> int:
    """A port of this host that nobody has, and that the system gives to nobody who asks for any."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(first // 2, first)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def path_of_tests() -> str:
    known = os.environ.get("PYTHONPATH")
    own = str(Path(__file__).parent)
    return own if not known else os.pathsep.join([own, known])


def write_list(path: Path, members: list[Member], host: str = "127.0.0.1") -> None:
    """Writes who there is, at a name of this host; whoever reads it meanwhile sees the old list or the new one."""
    fresh = path.with_suffix(".new")
    uris = (member.uri.replace("127.0.0.1", host) for member in members)
    fresh.write_text("\n".join(uris) + "\n")
    fresh.replace(path)


def refresh(members: list[Member]) -> None:
    """Each looks what the others have."""
    for member in members:
        assert member.ask("server.refresh()") is None


@contextmanager
def known_to_each_other(path: Path, members: list[Member]) -> Iterator[list[Member]]:
    """Members whose list is at `path`. Those that a test adds end with the others."""
    try:
        write_list(path, members)
        refresh(members)
        yield members
    finally:
        for member in members:
            member.kill()


@contextmanager
def cluster(folder: Path, count: int, **settings: object) -> Iterator[list[Member]]:
    """Members without parts, which know each other. Those that a test adds end with the others."""
    path = folder / "members"
    members = [Member(path, **settings) for _ in range(count)]
    with known_to_each_other(path, members):
        yield members


# Argument: which part of how many of each table, the file of members, the folder of the tables, rows of a tile, settings.
OF_FILES = """
import json, sys
from pathlib import Path
import partgrid as pg

part, of, members, tables, tile_rows = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), int(sys.argv[5])
server = pg.Server(join="file:" + members, http=None, settings=json.loads(sys.argv[6]))
for path in sorted(tables.glob("*.parquet")):
    grid = pg.read_parquet(path, tile_rows=tile_rows)
    rows = grid.shape[0]
    server.contribute(path.stem, grid[rows * part // of : rows * (part + 1) // of], part=part, of=of)
print(server.uri, flush=True)
sys.stdin.readline()
server.refresh()
print(*server.tables, flush=True)
sys.stdin.readline()
"""


@contextmanager
def members_of_files(
    tables: Path, folder: Path, of: int = 3, tile_rows: int = 50_000, **settings: object
) -> Iterator[pg.Connection]:
    """Members, each with its part of every table of a folder, and a connection to the first."""
    members = folder / "members"
    said = json.dumps(SPREAD | settings)
    arguments = [str(of), str(members), str(tables), str(tile_rows), said]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", OF_FILES, str(part), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in range(of)
    ]

    def line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    try:
        uris = [line(process) for process in started]
        members.write_text("\n".join(uris))
        assert started[0].stdin is not None
        print(file=started[0].stdin, flush=True)
        known = line(started[0]).split()
        assert len(known) == len(list(tables.glob("*.parquet")))
        yield pg.connect(uris[0])
    finally:
        for process in started:
            process.kill()
            process.wait()


def until(what: Callable[[], T], is_good: Callable[[T], bool], within: float = 60) -> T:
    """Asks again and again until the answer is good."""
    deadline = time.monotonic() + within
    while True:
        seen = what()
        if is_good(seen):
            return seen
        assert time.monotonic() < deadline, f"after {within} s still {seen}"
        time.sleep(0.05)


def told(member: Member, name: str) -> list[dict[int, list[Any]]]:
    """What a member tells the others of its parts."""
    with fl.connect(member.uri) as client:
        [said] = client.do_action(fl.Action("Parts", b""))
    parts = [parsed(each) for each in parsed(said.body.to_pybytes()).get(1, [])]
    return [each for each in parts if each[1][0] == name.encode()]


def leave(members: list[Member], generation: int, name: str = "sales") -> None:
    """Has members let go of the parts of a generation, as they do by themselves a minute after others serve."""
    for member in members:
        for part in told(member, name):
            if part.get(7, [0]) == [generation]:
                fields = ((number, value) for number, [value] in part.items())
                with fl.connect(member.uri) as client:
                    act(client, "LeaveTiles", ours("GridPart", *fields))


def held(member: Member, name: str = "sales") -> list[tuple[int, int, bool]]:
    """The parts that a member says it has: generation, number, and whether it is a copy."""
    return sorted(
        (each.get(7, [0])[0], each.get(2, [0])[0], bool(each.get(6, [0])[0]))
        for each in told(member, name)
    )


def ids(member: Member, name: str = "sales") -> list[bytes]:
    """The ids of the originals of its parts."""
    return sorted(each[4][0] for each in told(member, name))


def copies(members: list[Member], name: str = "sales") -> list[int]:
    """The numbers of the parts of which these members have copies."""
    parts = (each for member in members for each in held(member, name))
    return sorted(number for _, number, is_copy in parts if is_copy)


def status_of(member: Member) -> Any:
    """What a member says that it does and has."""
    with fl.connect(member.uri) as client:
        [said] = act(client, "Status")
    return json.loads(said)


def works(members: Sequence[Child]) -> list[bool]:
    """Which of them compute."""
    before = [seconds_of(member) for member in members]
    time.sleep(0.5)
    # Of a busy machine each may have little; one at rest looks at the others, which takes less.
    return [seconds_of(member) - then > 0.05 for member, then in zip(members, before, strict=True)]


def with_readers(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Tokens of somebody who may do all and of two who read, of whom one sees `sales`, and the settings of members that ask for them."""
    tokens, own = folder / "tokens.toml", folder / "own"
    made = write_tokens(
        tokens,
        all={"scope": "admin"},
        reader={"scope": "read", "grids": ["sal*"]},
        other={"scope": "read", "grids": ["t*"]},
    )
    own.write_text(made["all"])
    return made, {"auth.tokens": str(tokens), "cluster.token": str(own)}


def does_nothing(status: Any) -> bool:
    """Whether who says so runs nothing, holds no part of a statement of anybody, and has no memory for what runs."""
    runs = [each["sql"] for each in status["queries"] if each["state"] == "running"]
    memory = status["memory"]
    used = memory["query_bytes"], memory["incoming_bytes"]
    return not runs and not status["parts"] and used == (0, 0)


@contextmanager
def nothing_stays(
    members: Sequence[Child],
    status: Callable[[Any], Any] = status_of,
    *,
    segments: bool = True,
    sharing: bool = True,
) -> Iterator[None]:
    """Afterwards these members do nothing for anybody, and have no more of the system than before.

    Memory that they share is left out without `segments`, and what they share it by without `sharing`.
    """
    before = all_steady(members)
    # Two each way with each other member, of which one may be new; and with itself.
    links = 4 * len(members) + 2
    yield

    def stays() -> list[object]:
        """What is too much, member by member."""
        told = [status(member) for member in members]
        kinds = ("queries", "parts", "memory")
        busy = [[each[kind] for kind in kinds] for each in told if not does_nothing(each)]
        had = [(Had(member), then) for member, then in zip(members, before, strict=True)]
        more = [
            (now, then)
            for now, then in had
            if not now.is_within(then, segments=segments, sharing=sharing, links=links)
        ]
        return [*busy, *((vars(now), vars(then)) for now, then in more)]

    until(stays, lambda seen: not seen, 30)


def maps_tiles(member: Member) -> bool:
    """Whether a process has begun to take tiles of others on this host; of one that is gone nobody knows."""
    try:
        return "memfd:partgrid" in Path(f"/proc/{member.pid}/maps").read_text()
    except OSError:
        return False


def processes(uri: str) -> dict[int, int]:
    """The rows of the grid by the process that has them, as a member sees it."""
    sql = "SELECT process, sum(rows) AS rows FROM tiles('sales') GROUP BY process"
    told = pg.connect(uri).sql(sql).to_arrow().to_pylist()
    return {each["process"]: each["rows"] for each in told}
