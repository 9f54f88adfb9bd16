"""A client that is killed in the middle of a call, whichever it is: the next one is served, and nothing is left of it.

Each client is a process of its own. It makes a call that lasts, or one that does not again and again, until it is killed.
`PARTGRID_CLIENT_KILLS` says how many are killed in each call (20 for a release).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from conftest import DATA, TESTS
from resting import Had, at_rest, settled, steady
from services import Service, asked, running, service, status, until

KILLS = int(os.environ.get("PARTGRID_CLIENT_KILLS", "1"))


ROWS = 8_000_000


BEGINNING = """
import sys
sys.path.insert(0, {folder!r})
import grpc
import pyarrow as pa
import pyarrow.flight as fl
from services import (
    ENDLESS, act, asked, command, flight_sql, inner, ours, parsed, proto, query_request, statement, varint
)

uri = {uri!r}
client = fl.connect(uri)
channel = grpc.insecure_channel(uri.removeprefix("grpc://"))
prefix = "/arrow.flight.protocol.FlightService/"
batch = pa.record_batch({{"a": list(range(100_000))}})
MANY_ROWS = "SELECT value, value * 2 AS twice FROM generate_series(1, 100000000)"


def amid():
    # The client is in the middle of its call, or makes the next one.
    print("amid", flush=True)


def rest():
    amid()
    sys.stdin.read()


def ticket(text):
    return client.get_flight_info(statement(text)).endpoints[0].ticket


def half(descriptor):
    # Some rows, of which nobody says that they are all.
    writer, reader = client.do_put(descriptor, batch.schema)
    writer.write_batch(batch)
    rest()


def again(call):
    while True:
        call()
        amid()
"""


POLLING = """
poll = channel.unary_unary(prefix + "PollFlightInfo")
said = parsed(poll(query_request(ENDLESS), timeout=60, metadata=[("x-partgrid-timeout", "8")]))
while True:
    amid()
    said = parsed(poll(said[2][0], timeout=60))
"""


UPDATING = """
writer, reader = client.do_put(command("CommandStatementUpdate", (1, ENDLESS)), pa.schema([]))
writer.done_writing()
reader.read()
"""


BINDING = """
body = flight_sql("ActionCreatePreparedStatementRequest", (1, "SELECT a FROM t WHERE a = $1"))
[prepared] = act(client, "CreatePreparedStatement", body)
half(command("CommandPreparedStatementQuery", (1, inner(prepared)[1][0])))
"""


UPLOADING = """
cuts = b"".join(map(varint, (0, batch.num_rows, 2 * batch.num_rows)))
schema = batch.schema.serialize().to_pybytes()
body = ours("BeginUpload", (1, "half"), (2, schema), (3, cuts), (4, b"\\0\\1"))
[begun] = act(client, "BeginUpload", body)
upload = parsed(begun)[1][0]


def place(band):
    return fl.FlightDescriptor.for_command(ours("UploadCommand", (1, upload), (2, band), (3, 0)))


writer, reader = client.do_put(place(0), batch.schema)
writer.write_batch(batch)
writer.done_writing()
reader.read()
writer.close()
half(place(1))
"""


LOADING = """
body = ours("LoadRequest", (1, "loaded"), (2, {source!r}))
# The first one has the number 0, which is not written.
job = parsed(act(client, "Load", body)[0]).get(1, [0])[0]
again(lambda: act(client, "JobProgress", ours("JobName", (1, job))))
"""


PREPARING = """
numbers = iter(range(1 << 30))


def prepare():
    text = f"SELECT a + {next(numbers)} AS a FROM t WHERE a = $1 AND a IN (SELECT max(a) FROM t)"
    act(client, "CreatePreparedStatement", flight_sql("ActionCreatePreparedStatementRequest", (1, text)))


again(prepare)
"""


EXCHANGING = """
exchanges = channel.stream_stream(prefix + "DoExchange")


def exchange():
    try:
        list(exchanges(iter([b""]), timeout=60))
    except grpc.RpcError:
        "The server has none."


again(exchange)
"""


def runs(one: Service) -> bool:
    """Whether the server works for the client."""
    return bool(running(one))


def comes(one: Service) -> bool:
    """Whether rows of the client have come."""
    return bool(status(one)["memory"]["incoming_bytes"] >= 800_000)


def comes_twice(one: Service) -> bool:
    return bool(status(one)["memory"]["incoming_bytes"] >= 1_600_000)


# What the client does, how often it says at most that it is amid it, and what the server shows then.
CALLS: dict[str, tuple[str, int, Callable[[Service], bool] | None]] = {
    "GetFlightInfo": ("again(lambda: ticket('SELECT sum(a) FROM t'))", 20, None),
    "GetFlightInfo, a statement that makes a table": (
        "client.get_flight_info(statement(f'CREATE TABLE never AS {ENDLESS}'))",
        0,
        runs,
    ),
    "GetFlightInfo, an answer in parts": (
        "parts = fl.FlightCallOptions(headers=[(b'x-partgrid-endpoints', b'parts')])\n"
        "client.get_flight_info(statement(ENDLESS), parts)",
        0,
        runs,
    ),
    "PollFlightInfo": (POLLING, 1, runs),
    "GetSchema": ("again(lambda: client.get_schema(statement('SELECT * FROM t')))", 20, None),
    "ListFlights": ("again(lambda: list(client.list_flights()))", 20, None),
    "ListActions": ("again(lambda: client.list_actions())", 20, None),
    "Handshake": (
        "shake = channel.stream_stream(prefix + 'Handshake')\n"
        "again(lambda: list(shake(iter([b'']), timeout=60)))",
        20,
        None,
    ),
    "DoGet, no rows yet": ("client.do_get(ticket(ENDLESS)).read_all()", 0, runs),
    "DoGet, rows that nobody reads": (
        "reader = client.do_get(ticket(MANY_ROWS))\nreader.read_chunk()\nrest()",
        1,
        runs,
    ),
    "DoGet, tiles that nobody reads": (
        "info = client.get_flight_info(fl.FlightDescriptor.for_path('t'))\n"
        "reader = client.do_get(info.endpoints[0].ticket)\nreader.read_chunk()\nrest()",
        1,
        None,
    ),
    "DoGet, metadata": (
        "again(lambda: asked(client, command('CommandGetTables', (5, True))))",
        20,
        None,
    ),
    "DoPut, rows of a table": (
        "half(command('CommandStatementIngest', (1, proto((1, 1), (2, 1))), (2, 'half')))",
        1,
        comes,
    ),
    "DoPut, a tile": (UPLOADING, 1, comes_twice),
    "DoPut, values of parameters": (BINDING, 1, None),
    "DoPut, a statement": (UPDATING, 0, runs),
    "DoExchange": (EXCHANGING, 20, None),
    "DoAction, Prepare": (PREPARING, 20, None),
    "DoAction, Status": ("again(lambda: act(client, 'Status'))", 20, None),
    "DoAction, Explain with a run": (
        "body = ours('ExplainRequest', (1, ticket(ENDLESS).ticket), (2, True))\n"
        "act(client, 'Explain', body)",
        0,
        runs,
    ),
}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Service, Had]]:
    """A server with a grid, and what it has when nobody is there; also at the end."""
    words = ["limits.silence=3", "limits.query_time=600", "limits.query_memory=256MB"]
    words.append(f"load.from={DATA}")
    with service(*(word for each in words for word in ("--set", each))) as one:
        connection = pg.connect(one.uri)
        connection.upload(pa.table({"a": np.arange(ROWS)}), "t")
        # Whoever lists grids may map them: from then on the server listens for that, too.
        assert connection.grids() == ["t"]
        del connection
        before = steady(one)
        yield one, before
        at_rest(one)
        settled(one, before)


@contextmanager
def client_of(one: Service, code: str) -> Iterator[subprocess.Popen[str]]:
    """A client that does this until it is killed."""
    beginning = BEGINNING.format(folder=str(TESTS), uri=one.uri)
    words = [sys.executable, "-c", beginning + code]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def amid(child: subprocess.Popen[str], times: int) -> None:
    """Waits until the client has said so often that it is in the middle of its call."""
    assert child.stdout is not None
    for _ in range(times):
        assert child.stdout.readline() == "amid\n"


def is_served(one: Service) -> None:
    """The next client gets what it asks for."""
    with fl.connect(one.uri) as client:
        assert asked(client, "SELECT count(*) AS n FROM t")["n"].to_pylist() == [ROWS]


@pytest.mark.parametrize("call", CALLS)
def test_of_a_client_that_dies_in_a_call_nothing_is_left(
    served: tuple[Service, Had], call: str
) -> None:
    one, before = served
    code, times, shows = CALLS[call]
    source = random.Random(call)
    for _ in range(KILLS):
        with client_of(one, code) as child:
            amid(child, min(times, source.randint(1, 20)))
            if shows is not None:
                until(lambda: shows(one), 60)
            assert child.poll() is None
            child.kill()
            child.wait()
            if call != "PollFlightInfo":
                # Polled queries go on for their time; all others end within a second, on a machine that has time for it.
                until(lambda: not running(one))
            is_served(one)
        at_rest(one)
    settled(one, before, threads=False)
    connection = pg.connect(one.uri)
    assert {"half", "never"}.isdisjoint(connection.grids())


def test_a_load_goes_on_without_the_client_that_began_it(served: tuple[Service, Had]) -> None:
    one, before = served
    source = str(DATA / "flights")
    with client_of(one, LOADING.format(source=source)) as child:
        amid(child, 1)
        child.kill()
        child.wait()
        is_served(one)
    until(lambda: status(one)["jobs"][0]["state"] == "done", 60)
    at_rest(one)
    connection = pg.connect(one.uri)
    [found] = connection.sql("SELECT count(*) AS n FROM loaded").to_arrow()["n"].to_pylist()
    assert found == 336_776
    connection.sql("DROP TABLE loaded")
    del connection
    settled(one, before, threads=False)
