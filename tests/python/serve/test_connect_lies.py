"""A server of somebody who means harm: what it says to a client is an error or rows, never a crash, a wait without end, or code that runs.

`PARTGRID_HOSTILE_REQUESTS` says how many lies there are.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from hostile import PREFIX, REQUESTS, harmed
from services import command, parsed, proto
from type_samples import samples


class Liar(grpc.GenericRpcHandler):
    """Hands requests on to a server, and changes what comes back."""

    def __init__(self, uri: str) -> None:
        self.channel = grpc.insecure_channel(uri.removeprefix("grpc://"))
        self.change: Callable[[str, bytes], bytes] = lambda _, message: message

    def service(self, details: Any) -> Any:
        method = details.method.removeprefix(PREFIX)

        def answer(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            call = self.channel.stream_stream(PREFIX + method)
            try:
                for message in call(requests, timeout=10):
                    yield self.change(method, message)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())

        return grpc.stream_stream_rpc_method_handler(answer)


class Harm:
    """Harms the next answer of a method, or one of the next."""

    def __init__(self, seed: str) -> None:
        self.source = random.Random(seed)
        self.method: str | None = None

    def __call__(self, method: str, message: bytes) -> bytes:
        if method != self.method or self.source.random() < 0.3:
            return message
        self.method = None
        return harmed(self.source, message)


@contextmanager
def lying(uri: str) -> Iterator[tuple[str, Liar]]:
    """The URI of a server that lies, and who does it."""
    liar = Liar(uri)
    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((liar,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"grpc://127.0.0.1:{port}", liar
        finally:
            server.stop(None).wait()
            liar.channel.close()


@pytest.fixture(scope="module")
def server() -> Iterator[pg.Server]:
    kinds = {name: values for name, values in samples().items() if name != "run_end_encoded"}
    with pg.Server({"types": pa.table(kinds), "t": pa.table({"a": [1, 2, 3]})}) as server:
        yield server


# What a client asks, and the methods that answer it.
QUESTIONS: dict[str, tuple[list[str], Callable[[pg.Connection], Any]]] = {
    "names": (["ListFlights"], lambda asked: asked.grids()),
    "a grid": (["GetFlightInfo"], lambda asked: repr(asked.grid("types"))),
    "rows of all types": (
        ["GetFlightInfo", "DoGet"],
        lambda asked: asked.sql("SELECT * FROM types").to_arrow(),
    ),
    "numbers": (["DoGet"], lambda asked: asked.sql("SELECT a FROM t").to_pandas()),
    "a plan": (["DoAction"], lambda asked: asked.sql("SELECT 1").explain()),
    "an upload": (
        ["DoAction", "DoPut"],
        lambda asked: asked.upload(pa.table({"a": [1]}), "u", if_exists="replace"),
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_a_server_says_is_an_answer_or_an_error(server: pg.Server, question: str) -> None:
    methods, ask = QUESTIONS[question]
    harm = Harm(question)
    with lying(server.uri) as (uri, liar):
        connection = pg.connect(uri)
        liar.change = harm
        refused: list[pg.errors.PartgridError] = []
        for number in range(REQUESTS // 3):
            harm.method = methods[number % len(methods)]
            try:
                ask(connection)
            except pg.errors.PartgridError as error:
                refused.append(error)
        assert len(refused) > REQUESTS // 30
        # What a server does wrong is no fault of this library.
        faults = (pg.errors.InternalError, pg.errors.QueryError)
        assert [error for error in refused if isinstance(error, faults)] == []
        harm.method = None
        ask(connection)


@pytest.mark.parametrize(
    "said",
    [pa.schema([("a", pa.string())]), pa.schema([("a", pa.int64()), ("b", pa.int64())])],
    ids=["another type", "more columns"],
)
def test_rows_of_other_columns_than_were_said_are_an_error(
    server: pg.Server, said: pa.Schema
) -> None:
    def change(method: str, message: bytes) -> bytes:
        if method != "GetFlightInfo":
            return message
        fields = {**parsed(message), 1: [said.serialize().to_pybytes()]}
        pairs = ((number, each) for number, values in fields.items() for each in values)
        return proto(*pairs)

    with lying(server.uri) as (uri, liar):
        liar.change = change
        result = pg.connect(uri).sql("SELECT a FROM t")
        assert result.columns == said.names
        for read in (result.to_arrow, result.to_polars, result.to_grid, result.show):
            with pytest.raises(pg.errors.InvalidDataError, match="other columns than the server"):
                read()


def test_types_that_come_with_code_run_none(tmp_path: Path) -> None:
    """What an Arrow type of Python would unpickle (CVE-2023-47248) stays what it is: metadata."""
    trace = tmp_path / "ran"

    class Runs:
        def __reduce__(self) -> Any:
            return open, (str(trace), "w")

    metadata = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(Runs(), protocol=0).decode(),
    }
    schema = pa.schema([pa.field("a", pa.int64(), metadata=metadata)])
    table = pa.Table.from_arrays([pa.array([1, 2])], schema=schema)
    with pg.Server({"t": table}) as server, fl.connect(server.uri) as client:
        connection = pg.connect(server.uri)
        ingest = command("CommandStatementIngest", (1, proto((1, 1), (2, 3))), (2, "sent"))
        writer, reader = client.do_put(ingest, schema)
        writer.write_table(table)
        writer.done_writing()
        reader.read()
        writer.close()
        connection.upload(table, "uploaded")
        for name in ("t", "sent", "uploaded"):
            found = connection.sql(f"SELECT * FROM {name}")
            assert found.to_arrow().schema.field("a").type == pa.int64()
            assert found.to_pandas()["a"].tolist() == [1, 2]
            assert found.to_polars().height == 2
            assert connection.grid(name).to_arrow()["a"].to_pylist() == [1, 2]
    assert not trace.exists()
    pickle.loads(pickle.dumps(Runs())).close()
    assert trace.exists()
