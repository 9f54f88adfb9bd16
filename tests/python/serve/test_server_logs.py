"""What a server writes into its log, and the traces that it sends to a collector."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow.flight as fl
import pytest

import partgrid as pg
from certificates import Certificates
from served import CALLERS
from services import Service, parsed, service, statement, until, write_tokens

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GRID = ("--grid", "t=data/airlines.parquet")
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(grpc.GenericRpcHandler):
    """A collector of OpenTelemetry: keeps the spans that it gets, and of whom they are."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.raw = b""

    def service(self, details: Any) -> Any:
        """Only traces come."""
        assert details.method == EXPORT
        return grpc.unary_unary_rpc_method_handler(self.take)

    def take(self, request: bytes, _context: Any) -> bytes:
        with self.lock:
            self.raw += request
            for each in parsed(request)[1]:
                of_resource = parsed(each)
                self.resources.append(attributes(parsed(of_resource[1][0]).get(1, [])))
                for scope in of_resource[2]:
                    for span in parsed(scope)[2]:
                        self.spans.append(span_of(parsed(span)))
        return b""

    def named(self, name: str) -> dict[str, Any] | None:
        """The last span of a name."""
        with self.lock:
            return next((span for span in reversed(self.spans) if span["name"] == name), None)


def attributes(pairs: list[bytes]) -> dict[str, Any]:
    """Attributes whose values are texts."""
    each = [parsed(pair) for pair in pairs]
    texts = {pair[1][0].decode(): parsed(pair[2][0]).get(1) for pair in each}
    return {name: text[0].decode() for name, text in texts.items() if text}


def span_of(fields: dict[int, list[Any]]) -> dict[str, Any]:
    return {
        "trace": fields[1][0].hex(),
        "span": fields[2][0].hex(),
        "parent": fields.get(4, [b""])[0].hex(),
        "name": fields[5][0].decode(),
        "status": parsed(fields[15][0]).get(3, [0])[0] if 15 in fields else 0,
        **attributes(fields.get(9, [])),
    }


@contextmanager
def collector(files: tuple[str, str] | None = None) -> Iterator[tuple[Collector, str]]:
    """A collector on a free port, with TLS where it has files of a certificate and its key, and its URL."""
    kept = Collector()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[kept])
    if files is None:
        scheme, port = "http", server.add_insecure_port("127.0.0.1:0")
    else:
        certificate, key = (Path(file).read_bytes() for file in files)
        shown = grpc.ssl_server_credentials([(key, certificate)])
        scheme, port = "https", server.add_secure_port("127.0.0.1:0", shown)
    server.start()
    try:
        yield kept, f"{scheme}://127.0.0.1:{port}"
    finally:
        server.stop(None)


def ask(uri: str, query: str, **headers: str) -> int:
    """Asks with headers; gives the number of rows."""
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    options = fl.FlightCallOptions(headers=pairs)
    with fl.connect(uri) as client:
        info = client.get_flight_info(statement(query), options)
        ticket = info.endpoints[0].ticket
        return int(client.do_get(ticket, options).read_all().num_rows)


def lines(one: Service) -> list[dict[str, Any]]:
    """The lines of the log that are JSON."""
    return [json.loads(line) for line in one.said if line.startswith("{")]


def test_a_log_of_json_has_an_object_in_each_line() -> None:
    filtered = ("--set", "log.format=json", "--set", "log.filter=partgrid=debug")
    with service(*GRID, *filtered) as one:
        assert ask(one.uri, "SELECT * FROM t", **{"x-request-id": "my-request"}) == 16
        with pytest.raises(pg.errors.QueryError):
            pg.connect(one.uri).sql("SELECT nope FROM t")
        found = until(lambda: [line for line in lines(one) if line["message"] == "failed"])
        (failed,) = found
        assert failed["level"] == "INFO"
        assert failed["kind"] == "Query"
        assert "nope" in failed["error"]
        assert failed["span"]["rpc.method"] == "GetFlightInfo"
        assert failed["timestamp"].endswith("Z")

        def answered() -> list[dict[str, Any]]:
            told = [line for line in lines(one) if line["message"] == "answered"]
            return [line for line in told if line["span"]["id"] == "my-request"]

        # A client may have all rows before the end of its request is said.
        until(lambda: len(answered()) == 2)
        mine = answered()
        assert [line["span"]["rpc.method"] for line in mine] == ["GetFlightInfo", "DoGet"]
        assert all(line["millis"] >= 0 for line in mine)


def test_the_error_of_a_load_names_the_request_under_which_the_log_has_it(tmp_path: Path) -> None:
    settings = ("--set", "log.format=json", "--set", f"load.from={tmp_path}")
    with service(*settings) as one:
        with pytest.raises(pg.errors.NotFoundError) as caught:
            pg.connect(one.uri).load_parquet(tmp_path / "missing.parquet", "none")
        found = re.search(r"request: ([0-9a-f]{32})", str(caught.value))
        assert found
        failed = until(lambda: [line for line in lines(one) if line["message"] == "a load failed"])
        assert [line["request"] for line in failed] == [found.group(1)]


def test_the_format_alone_logs_what_is_usual_and_text_is_the_default() -> None:
    with service(*GRID, PARTGRID_LOG__FORMAT="json") as one:
        assert any(line["message"] == "serving" for line in until(lambda: lines(one)))
    with service(*GRID, "--set", "log.filter=info") as one:
        assert until(lambda: [line for line in one.said if "INFO" in line and "serving" in line])
    with service(*GRID) as one:
        assert not [line for line in one.said if "INFO" in line]


@pytest.mark.parametrize("filtered", ["info", "off"])
def test_all_that_a_server_says_is_json_where_its_log_is(tmp_path: Path, filtered: str) -> None:
    tokens = tmp_path / "tokens.toml"
    shown = write_tokens(tokens, all={"scope": "admin"})
    good = tokens.read_text()
    settings = ("--set", "log.format=json", "--set", f"log.filter={filtered}", "--tokens", tokens)

    def says(message: str) -> dict[str, Any]:
        until(lambda: [line for line in one.said if message in line])
        (said,) = [line for line in lines(one) if message in line["message"]]
        return said

    with service(*GRID, *settings) as one:
        assert pg.connect(one.uri, token=shown["all"]).grids() == ["t"]
        tokens.write_text("nonsense")
        one.kill(signal.SIGHUP)
        kept = says("what cannot be used stays as it was")
        assert (kept["level"], str(tokens) in kept["error"]) == ("WARN", True)
        tokens.write_text(good)
        one.kill(signal.SIGHUP)
        says("certificates and tokens were read again")
        one.kill(signal.SIGTERM)
        code, said = one.ended()
        each = [json.loads(line) for line in said.splitlines()]
        messages = [record["message"] for record in each]
        for message in (
            "loaded t: 16 rows",
            f"serving Flight SQL at {one.uri}",
            f"status page at {one.http_uri}/",
            "stopping: what runs may finish",
        ):
            assert message in messages
        assert code == 0
        assert all(record["timestamp"].endswith("Z") and record["level"] for record in each)
        if filtered == "info":
            (serving,) = [record for record in each if record["message"] == "serving"]
            assert one.http_uri == f"http://{serving['http_address']}"


def test_why_a_server_does_not_start_is_json_where_its_log_is() -> None:
    one = Service("--grid", "t=/no/such.parquet", "--set", "log.format=json")
    code, said = one.ended()
    (record,) = [json.loads(line) for line in said.splitlines()]
    assert (code, record["level"]) == (1, "ERROR")
    assert "no such file or folder (file: /no/such.parquet)" in record["message"]


def test_lines_are_those_for_people_where_the_log_is_text() -> None:
    with service(*GRID, "--set", "log.filter=info") as one:
        assert ask(one.uri, "SELECT * FROM t") == 16
        one.kill(signal.SIGTERM)
        code, said = one.ended()
        assert code == 0
        begins = ("loaded t: 16 rows\n", f"serving Flight SQL at {one.uri}\n", "stopping: what ")
        assert all(f"\n{begin}" in f"\n{said}" for begin in begins)
        assert f" http_address={one.http_uri.removeprefix('http://')}" in said


def test_warnings_are_said_unless_the_log_is_off(tmp_path: Path) -> None:
    alone = ("--join", f"file:{tmp_path / 'nosuch'}")
    with service(*GRID, *alone) as one:
        (warning,) = until(lambda: [line for line in one.said if "WARN" in line])
        assert "the list of members is not there" in warning
    for quiet in ({"PARTGRID_LOG__FILTER": "off"}, {"PARTGRID_LOG": "error"}):
        with service(*GRID, *alone, **quiet) as one:
            assert ask(one.uri, "SELECT * FROM t") == 16
            assert not [line for line in one.said if "WARN" in line]


def test_requests_are_traces_and_go_on_with_those_of_clients() -> None:
    with collector() as (kept, url), service(*GRID, "--set", f"log.traces={url}") as one:
        follow = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        assert ask(one.uri, "SELECT name FROM t WHERE carrier = 'secret'", **follow) == 0
        got = until(lambda: kept.named("DoGet"), 30)
        info = until(lambda: kept.named("GetFlightInfo"))
        assert (got["trace"], got["parent"]) == (TRACE, SPAN)
        assert (info["trace"], info["parent"]) == (TRACE, SPAN)
        assert got["rpc.service"] == "arrow.flight.protocol.FlightService"
        query = until(lambda: kept.named("query"))
        assert (query["trace"], query["parent"]) == (TRACE, got["span"])
        plan = until(lambda: kept.named("plan"))
        assert (plan["trace"], plan["parent"]) == (TRACE, info["span"])
        assert {"service.name": "partgrid"}.items() <= kept.resources[0].items()
        with pytest.raises(pg.errors.QueryError):
            pg.connect(one.uri).sql("SELECT CAST('secret' AS INT) FROM t").to_arrow()
        with pytest.raises(pg.errors.QueryError):
            pg.connect(one.uri).sql("SELECT secret FROM t")
        assert ask(one.uri, "SELECT 1 AS a") == 1
        # What is not sent yet is sent when the server stops.
        one.kill(15)
        assert one.ended()[0] == 0
        failed = [span for span in kept.spans if span["status"] == 2]
        assert "GetFlightInfo" in [span["name"] for span in failed]
        assert b"secret" not in kept.raw
        last = kept.named("DoGet")
        assert last is not None
        assert last["trace"] != TRACE


def test_traces_go_by_tls_to_a_collector_that_the_system_trusts(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with collector(certificates.issue("collector")) as (kept, url):
        settings = (*GRID, "--set", f"log.traces={url}")
        with service(*settings, SSL_CERT_FILE=str(certificates.roots)) as one:
            assert ask(one.uri, "SELECT * FROM t") == 16
            until(lambda: kept.named("DoGet"), 30)
        kept.spans.clear()
        # Another who says that it is the collector hears nothing.
        with service(*settings, SSL_CERT_FILE=str(certificates.strangers)) as one:
            assert ask(one.uri, "SELECT * FROM t") == 16
            one.kill(15)
            assert one.ended()[0] == 0
        assert kept.spans == []


def test_a_collector_that_is_not_there_keeps_nobody_from_being_served() -> None:
    with service(*GRID, "--set", "log.traces=http://127.0.0.1:1") as one:
        assert ask(one.uri, "SELECT * FROM t") == 16
        one.kill(15)
        assert one.ended()[0] == 0


def test_no_secret_is_in_log_or_traces(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.toml", **CALLERS)
    with collector() as (kept, url):
        settings = ("--set", f"log.traces={url}", "--set", "log.filter=trace")
        with service(*GRID, "--tokens", tmp_path / "tokens.toml", *settings) as one:
            bearer = {"authorization": f"Bearer {tokens['reader']}"}
            assert ask(one.uri, "SELECT * FROM t", **bearer) == 16
            with pytest.raises(fl.FlightUnauthenticatedError):
                ask(one.uri, "SELECT 1", authorization="Bearer pgt_wrong")
            until(lambda: kept.named("DoGet"), 30)
            one.kill(15)
            _, said = one.ended()
        assert kept.named("DoGet")["caller"] == "reader"  # type: ignore[index]
        assert tokens["reader"] not in said + repr(kept.spans)
        assert "pgt_wrong" not in said + repr(kept.spans)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("log.format=xml", "text or json"),
        ("log.traces=127.0.0.1:4317", "a URL such as"),
        ("log.traces=grpc://127.0.0.1:4317", "a URL such as"),
        ("log.filter=a=b=c", "log.filter must read like"),
        ("log.filter=inof", "did you mean `info`?"),
        ("log.filter=info,partgird=debug", "did you mean `partgrid=debug`?"),
        ("log.filter=,,", "the levels are error, warn, info"),
        ("log.filter=bogus=", "behind = stands a level"),
    ],
)
def test_wrong_settings_of_the_log_are_refused(setting: str, text: str) -> None:
    one = Service("--set", setting)
    code, said = one.ended()
    assert (code, text in said) == (1, True), said


def test_a_server_in_a_program_leaves_its_log_alone() -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match="partgrid serve"):
        pg.Server(settings={"log.format": "json"})
