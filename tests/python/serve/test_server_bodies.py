"""What a server reads of requests: nothing of strangers, commands up to 1 MiB, rows within its limits, nothing that does not move on."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from frames import PREFIX, Unfinished
from services import (
    Service,
    command,
    forget_peak,
    ours,
    peak_bytes,
    proto,
    service,
    shown,
    status,
    until,
    write_tokens,
)

METHODS = [
    "Handshake",
    "ListFlights",
    "GetFlightInfo",
    "PollFlightInfo",
    "GetSchema",
    "DoGet",
    "DoPut",
    "DoExchange",
    "DoAction",
    "ListActions",
]


# By which members send each other parts of plans.
PARTS = [f"/worker.WorkerService/{name}" for name in ("CoordinatorChannel", "ExecuteTask")]


# A message of 12 MB with six million empty fields; read, these take ten times as much.
LARGE = b"\x1a\x00" * 6_000_000


# What the messages of this file may cost: no more than a few copies of them where they come together.
GROWTH = 60_000_000


Tokens = dict[str, str]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    path = tmp_path_factory.mktemp("bodies") / "tokens.toml"
    few: dict[str, Any] = {"scope": "write", "memory": "20MB"}
    made = write_tokens(path, admin={"scope": "admin"}, reader={}, few=few)
    return {"file": str(path), **made}


@pytest.fixture(scope="module")
def one(tokens: Tokens) -> Iterator[Service]:
    with service("--tokens", tokens["file"], "--set", "limits.memory=64MB") as one:
        pg.connect(one.uri, token=tokens["admin"]).upload(pa.table({"a": [1, 2, 3]}), "t")
        yield one


@pytest.fixture(scope="module")
def impatient(tokens: Tokens) -> Iterator[Service]:
    with service("--tokens", tokens["file"], "--set", "limits.silence=3") as one:
        yield one


@pytest.fixture
def grown(one: Service, tokens: Tokens) -> Iterator[None]:
    """Afterwards the server has never had much more memory, and answers."""
    before = status(one, tokens["admin"])["memory"]["resident_bytes"]
    forget_peak(one)
    yield
    assert peak_bytes(one) - before < GROWTH
    assert pg.connect(one.uri, token=tokens["reader"]).grids() == ["t"]
    until(lambda: incoming(one, tokens) == 0)


def incoming(one: Service, tokens: Tokens) -> int:
    return int(status(one, tokens["admin"])["memory"]["incoming_bytes"])


def errors(one: Service, tokens: Tokens) -> list[str]:
    return [each["message"] for each in status(one, tokens["admin"])["errors"]]


def said(one: Service, method: str, message: bytes, token: str | None = None) -> grpc.RpcError:
    """What the server says to a message, which it does not take."""
    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    with grpc.insecure_channel(one.uri.removeprefix("grpc://")) as channel:
        call = channel.stream_stream(PREFIX + method)(
            iter([message]), metadata=metadata, timeout=20
        )
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
    return caught.value


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize("method", METHODS)
def test_of_strangers_nothing_is_read(one: Service, method: str) -> None:
    assert said(one, method, LARGE).code() == grpc.StatusCode.UNAUTHENTICATED
    assert said(one, method, LARGE, "wrong").code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.usefixtures("grown")
def test_strangers_are_told_so_before_they_have_sent_their_requests(one: Service) -> None:
    with Unfinished(one.uri) as stranger:
        streams = {stranger.begin(method, 15_000_000, 3_900_000) for method in METHODS * 6}
        assert stranger.hears_end(streams)


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize("method", sorted({*METHODS} - {"Handshake", "DoPut", "DoExchange"}))
def test_a_command_has_at_most_one_mebibyte(one: Service, tokens: Tokens, method: str) -> None:
    for token in (tokens["reader"], tokens["admin"]):
        error = said(one, method, LARGE, token)
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "may have 1048576 bytes, got a request of 12000000" in error.details()
        assert "by DoPut" in error.details()


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize(
    "name", ["CancelFlightInfo", "RenewFlightEndpoint", "SetSessionOptions", "Status", "nothing"]
)
@pytest.mark.parametrize("count", [525_000, 2_000_000])
def test_a_body_of_an_action_has_at_most_one_mebibyte(
    one: Service, tokens: Tokens, name: str, count: int
) -> None:
    action = proto((1, name), (2, proto((1, b"\x1a\x00" * count))))
    for token in (tokens["reader"], tokens["admin"]):
        error = said(one, "DoAction", action, token)
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "may have 1048576 bytes, got" in error.details()


@pytest.mark.usefixtures("grown")
def test_what_stands_before_rows_has_at_most_one_mebibyte(one: Service, tokens: Tokens) -> None:
    error = said(one, "DoPut", proto((1, LARGE)), tokens["reader"])
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "a descriptor may have 1048576 bytes, got 12000000" in error.details()
    # Also where it comes in parts, behind something else.
    parts = proto((3, b"x"), *[(1, b"\x1a\x00" * 100_000)] * 6)
    assert said(one, "DoPut", parts, tokens["reader"]).code() == error.code()


def test_only_members_deal_out_more(tmp_path: Path, tokens: Tokens) -> None:
    members = tmp_path / "members"
    members.write_text("")
    dealt = proto((1, "TakeTiles"), (2, proto((1, 0), (2, bytes(3_000_000)))))
    cancel = proto((1, "CancelFlightInfo"), (2, proto((1, b"\x1a\x00" * 1_500_000))))
    with service("--tokens", tokens["file"], "--join", f"file:{members}") as member:
        taken = said(member, "DoAction", dealt, tokens["admin"])
        assert taken.code() == grpc.StatusCode.INVALID_ARGUMENT, taken.details()
        refused = [
            said(member, "DoAction", dealt, tokens["reader"]),
            said(member, "DoAction", cancel, tokens["admin"]),
        ]
        for error in refused:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "may have 1048576 bytes, got" in error.details()
        with Unfinished(member.uri) as stranger:
            streams = {stranger.begin(path, 15_000_000, 1_000_000) for path in PARTS}
            assert stranger.hears_end(streams)


@pytest.mark.parametrize("method", ["GetFlightInfo", "DoAction", "DoGet", "ListFlights", "DoPut"])
def test_a_request_of_which_the_rest_does_not_come_is_ended(
    impatient: Service, tokens: Tokens, method: str
) -> None:
    with Unfinished(impatient.uri, tokens["reader"]) as client:
        client.words["x-request-id"] = method
        # One with some bytes, and one with none but the length.
        streams = {client.begin(method, 1_000_000, count) for count in (500_000, 0)}
        assert client.hears_end(streams, 30)

    def texts_of() -> list[str]:
        told = status(impatient, tokens["admin"])["errors"]
        return [each["message"] for each in told if each["request"] == method]

    until(lambda: len(texts_of()) >= 2)
    texts = texts_of()
    assert len(texts) == 2
    assert all("within limits.silence, which is 3 seconds" in text for text in texts)


def test_between_messages_of_rows_a_client_may_rest(impatient: Service, tokens: Tokens) -> None:
    made = command("CommandStatementIngest", (1, proto((1, 1), (2, 1))), (2, "rested"))
    batch = pa.record_batch({"a": list(range(1000))})
    with fl.connect(impatient.uri) as client:
        writer, reader = client.do_put(made, batch.schema, shown(tokens["admin"]))
        for _ in range(2):
            writer.write_batch(batch)
            time.sleep(4)
        writer.done_writing()
        assert reader.read() is not None
        writer.close()
    connection = pg.connect(impatient.uri, token=tokens["admin"])
    assert connection.sql("SELECT count(*) AS n FROM rested").to_arrow()["n"].to_pylist() == [2000]


def test_what_one_token_sends_is_within_its_memory(one: Service, tokens: Tokens) -> None:
    with Unfinished(one.uri, tokens["few"]) as client:
        for _ in range(12):
            client.begin("DoPut", 15_000_000, 3_900_000)
            assert incoming(one, tokens) <= 20_000_000
        said = "`few` may use 20000000 bytes at once"
        until(lambda: any(said in text for text in errors(one, tokens)))
        # Others are not bounded by it.
        connection = pg.connect(one.uri, token=tokens["admin"])
        assert connection.upload(pa.table({"a": [1]}), "other")["rows"] == 1
        connection.sql("DROP TABLE other").to_arrow()
    until(lambda: incoming(one, tokens) == 0)


def test_what_all_send_together_is_within_the_memory_of_the_server(
    one: Service, tokens: Tokens
) -> None:
    def is_told() -> bool:
        text = "what clients are sending may have 64000000 bytes together"
        return any(text in told for told in errors(one, tokens))

    with (
        Unfinished(one.uri, tokens["admin"]) as first,
        Unfinished(one.uri, tokens["admin"]) as last,
    ):
        for number in range(40):
            (first, last)[number % 2].begin("DoPut", 15_000_000, 3_900_000)
            assert incoming(one, tokens) <= 64_000_000
            if is_told():
                break
        until(is_told)
        # What is small is taken all the same.
        with fl.connect(one.uri) as client:
            list(client.do_action(fl.Action("Status", b""), shown(tokens["admin"])))
            commit = fl.Action("CommitUpload", ours("Upload", (1, bytes(16))))
            with pytest.raises(pa.ArrowKeyError):
                list(client.do_action(commit, shown(tokens["admin"])))
    until(lambda: incoming(one, tokens) == 0)


@pytest.mark.usefixtures("grown")
def test_the_page_reads_no_bodies(one: Service, tokens: Tokens) -> None:
    host, port = one.http_uri.removeprefix("http://").split(":")
    path = "/api/queries/1/cancel"
    for head in ("", f"Authorization: Bearer {tokens['reader']}\r\nX-Partgrid: page\r\n"):
        with socket.create_connection((host, int(port)), timeout=20) as client:
            words = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000000\r\n{head}\r\n"
            client.sendall(words.encode())
            try:
                for _ in range(300):
                    client.sendall(bytes(1_000_000))
            except OSError:
                """It has hung up."""
            code = heard(client)
            assert code in (b"401", b"404", b"")


def heard(client: socket.socket) -> bytes:
    """The code of an answer, if it came before the end of the connection."""
    try:
        return client.recv(1000).partition(b" ")[2][:3]
    except OSError:
        return b""
