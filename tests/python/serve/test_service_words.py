"""What a service and its clients say to those who are wrong: what came, what was wanted, the remedy, and no more than may be told."""

from __future__ import annotations

import socketserver
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as fl
import pytest
import trustme

import partgrid as pg
from conftest import DATA
from services import (
    COMMAND,
    ENDLESS,
    Service,
    drained,
    free_ports,
    running,
    service,
    statement,
    until,
    write_tokens,
)


def said(*arguments: object, code: int = 1, **environment: str) -> str:
    """What the command says when it fails."""
    words = [str(COMMAND), *map(str, arguments)]
    env = {"PATH": "/usr/bin:/bin", "COLUMNS": "200", **environment}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.fixture
def tls(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Files of a certificate for 127.0.0.1, its key, and who vouches for it."""
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    made.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return tmp_path / "certificate.pem", tmp_path / "key.pem", tmp_path / "ca.pem"


def test_a_uri_with_a_user_is_refused_and_its_password_is_not_shown() -> None:
    for uri in ("grpc://me:secret@127.0.0.1:1", "grpc+tls://secret@h:1/x"):
        with pytest.raises(pg.errors.InvalidArgumentError, match="got one with a user") as caught:
            pg.connect(uri)
        assert "secret" not in str(caught.value)
        assert "token=" in str(caught.value)
    with pytest.raises(pg.errors.InvalidArgumentError, match="must read like"):
        pg.connect("grpc://127.0.0.1:1/path:2")


@pytest.mark.parametrize(
    ("option", "what"), [("ca", "a CA"), ("server_name", "a name of the server")]
)
def test_what_is_for_tls_is_refused_without_it(option: str, what: str) -> None:
    with pg.Server() as server:
        with pytest.raises(pg.errors.InvalidArgumentError, match=f"^{what} goes with grpc"):
            pg.connect(server.uri, **{option: "absent"})
        flag = "--" + option.replace("_", "-")
        assert f"{what} goes with grpc+tls://" in said("--server", server.uri, flag, "absent", "ls")


def test_who_comes_without_tls_or_certificate_is_told(tls: tuple[Path, Path, Path]) -> None:
    certificate, key, ca = tls
    with pg.Server(tls=(certificate, key)) as server:
        plain = server.uri.replace("grpc+tls", "grpc")
        told = f"it seems to speak TLS: a server with a certificate is at {server.uri}"
        assert told in said("--server", plain, "ls")
        empty = ca.with_name("empty.pem")
        empty.write_text("no certificate")
        for wrong in (empty, key):
            with pytest.raises(pg.errors.InvalidDataError, match="must hold a certificate in PEM"):
                pg.connect(server.uri, ca=wrong)
    with pg.Server(tls=(certificate, key, ca)) as server:
        with pytest.raises(pg.errors.StorageError, match="--client-certificate"):
            pg.connect(server.uri, ca=ca)
        assert pg.connect(server.uri, ca=ca, certificate=certificate, key=key).grids() == []


def refusal(uri: str, **how: object) -> str:
    """What is said where there is no connection to a server."""
    with pytest.raises(pg.errors.StorageError) as caught:
        pg.connect(uri, **how)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize("scheme", ["grpc", "grpc+tls"])
def test_where_nobody_listens_is_said_with_how_to_start_a_server(
    tls: tuple[Path, Path, Path], scheme: str
) -> None:
    uri = f"{scheme}://127.0.0.1:{free_ports(1)[0]}"
    begin = "partgrid serve --tls-certificate" if scheme == "grpc+tls" else "partgrid serve`"
    flags = ("--ca", tls[2]) if scheme == "grpc+tls" else ()
    how = {"ca": tls[2]} if flags else {}
    for text in (refusal(uri, **how), said("--server", uri, *flags, "ls")):
        assert f"no server answers at {uri}: " in text
        assert f"\nhint: nobody listens there: start a server with `{begin}" in text
        assert "trusted" not in text


def test_a_host_that_nobody_knows_is_said_to_be_none() -> None:
    asked = [sys.executable, "-c", "import socket; socket.getaddrinfo('partgrid.invalid', 1)"]
    try:
        found = subprocess.run(asked, capture_output=True, check=False, timeout=5).returncode == 0
    except subprocess.TimeoutExpired:
        pytest.skip("nobody here says within 5 s that a host is not known")
    if found:
        pytest.skip("the names here are those of hosts that are not there, too")
    for uri in ("grpc://partgrid.invalid:1", "grpc+tls://partgrid.invalid:1"):
        text = said("--server", uri, "ls")
        assert f"no server answers at {uri}: " in text
        assert "\nhint: no host of this name is known here" in text


@pytest.mark.parametrize("whose", ["ours", "ours, mutual", "pyarrow"])
def test_who_asks_without_tls_is_told_that_it_is_spoken_there(
    tls: tuple[Path, Path, Path], whose: str
) -> None:
    certificate, key, ca = tls
    if whose == "pyarrow":
        pair = certificate.read_bytes(), key.read_bytes()
        made = fl.FlightServerBase("grpc+tls://127.0.0.1:0", tls_certificates=[pair])
        port, close = made.port, made.shutdown
    else:
        mutual = pg.Server(tls=(certificate, key, ca)) if "mutual" in whose else None
        server = mutual or pg.Server(tls=(certificate, key))
        port, close = int(server.uri.rsplit(":", 1)[1]), server.stop
    try:
        address = f"127.0.0.1:{port}"
        told = f"it seems to speak TLS: a server with a certificate is at grpc+tls://{address}"
        # The connection breaks in several ways.
        for _ in range(5):
            assert refusal(f"grpc://{address}").endswith(f"\nhint: {told}")
        assert told in refusal(f"grpc://{address}", timeout=5)
    finally:
        close()


def test_who_asks_by_tls_is_told_that_it_is_not_spoken_there(tls: tuple[Path, Path, Path]) -> None:
    with pg.Server() as server:
        by_tls = server.uri.replace("grpc", "grpc+tls")
        told = f"it seems to speak without TLS: a server without a certificate is at {server.uri}"
        for _ in range(5):
            assert refusal(by_tls, ca=tls[2]).endswith(f"\nhint: {told}")
        assert told in said("--server", by_tls, "--ca", tls[2], "ls")


class Web(socketserver.BaseRequestHandler):
    """Understands nothing but HTTP/1.1."""

    def handle(self) -> None:
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def web_server() -> Iterator[str]:
    """The address of one that knows nothing of HTTP/2."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Web) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_a_web_server_is_not_taken_for_a_server_of_flight(tls: tuple[Path, Path, Path]) -> None:
    with web_server() as address:
        for _ in range(3):
            text = refusal(f"grpc://{address}")
            assert "\nhint: something else than a server of Flight may be there" in text
            assert "TLS" not in text
        assert "it seems to speak without TLS" in refusal(f"grpc+tls://{address}", ca=tls[2])


def test_a_server_that_shows_the_certificate_of_a_ca_is_told_apart(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, key = tmp_path / "ca.pem", tmp_path / "ca.key"
    authority.cert_pem.write_to_path(str(certificate))
    authority.private_key_pem.write_to_path(str(key))
    with pg.Server(tls=(certificate, key)) as server:
        text = refusal(server.uri, ca=certificate)
    assert "hint: the server shows the certificate of a CA as its own" in text


def test_the_port_of_the_page_is_said_to_be_none_of_flight() -> None:
    with pg.Server() as server:
        there = server.http_uri.rstrip("/").replace("http", "grpc")
        assert "hint: something else may be there" in said("--server", there, "ls")


def test_who_shows_no_good_token_is_told_how_to(tmp_path: Path) -> None:
    write_tokens(tmp_path / "tokens", reader={})
    with pg.Server(tokens=tmp_path / "tokens") as server:
        text = said("--server", server.uri, "ls")
        assert "--token-file, or the variable PARTGRID_TOKEN" in text.replace("`", "")
        text = said("--server", server.uri, "ls", PARTGRID_TOKEN="pgt_guessed")
        assert "the token is not one of this server\nhint: see that it is a token of this" in text
        assert "guessed" not in text


@pytest.mark.parametrize(
    ("token", "what", "remedy"),
    [
        ("pgt_secret\n", "character 11 of 11 is '\\n'", "token.strip() takes them away"),
        ("pgt_s\necret", "character 6 of 11 is '\\n'", "copy the token as a whole"),
        ("pgt_sécret", "character 6 of 10 is 'é'", "copy the token as a whole"),
    ],
)
def test_a_character_that_no_token_has_is_shown_and_nothing_else(
    token: str, what: str, remedy: str
) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError) as caught:
        pg.connect("grpc://127.0.0.1:1", token=token)
    told = str(caught.value)
    assert f"a token must be printable ASCII, {what}" in told
    assert remedy in told
    assert "cret" not in told


def test_a_scope_that_is_none_is_told_with_those_that_are(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, reader={"scope": "read"})
    with pg.Server(tokens=tokens) as server:
        tokens.write_text(tokens.read_text().replace('"read"', '"raed"'))
        wanted = 'the token `reader` must have the scope read, write or admin, got "raed"'
        with pytest.raises(pg.errors.InvalidDataError, match=wanted):
            server.reload()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"grids": [1]}, r'grids must be a dict, got \[1\]\nhint: .*Server\(\{"flights": grid\}\)'),
        ({"grids": {1: None}}, "grids must have texts as keys, got 1"),
        ({"settings": "limits.memory"}, "settings must be a dict, got 'limits.memory'"),
        ({"settings": {2: "x"}}, "settings must have texts as keys, got 2"),
        ({"address": 8815}, "address must be a text, got 8815"),
    ],
)
def test_an_argument_of_a_server_is_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match=text):
        pg.Server(**arguments)


def test_the_name_of_a_request_stands_before_the_place() -> None:
    with pg.Server({"t": pa.table({"a": [1]})}) as server:
        lines = said("--server", server.uri, "sql", "SELECT b FROM t").splitlines()
    assert lines[0].startswith("error: no column `b` (column: b) (request: ")
    assert [line.strip() for line in lines[1:4]] == ["line 1, column 8:", "SELECT b FROM t", "^"]


def test_where_the_server_runs_is_not_told_with_a_path_that_is_not_there(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens", writer={"scope": "write"})
    with pg.Server(tokens=tmp_path / "tokens", settings={"load.from": "."}) as server:
        connection = pg.connect(server.uri, token=tokens["writer"])
        with pytest.raises(pg.errors.NotFoundError) as caught:
            connection.load_parquet("absent-from-here/x.parquet", "t")
    assert str(Path.cwd()) not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["--set", "query_time=1"], {}, "did you mean `limits.query_time`?"),
        (["--set", "grid.a=b"], {}, "did you mean `grids.a`?"),
        ([], {"PARTGRID_LIMITS_QUERY_TIME": "1"}, "did you mean `PARTGRID_LIMITS__QUERY_TIME`?"),
        ([], {"PARTGRID_QUERY_TIME": "1"}, "did you mean `PARTGRID_LIMITS__QUERY_TIME`?"),
        (
            [],
            {"PARTGRID_QUERIES": "1"},
            "did you mean `PARTGRID_AUTH__QUERIES` or `PARTGRID_LIMITS__QUERIES`?",
        ),
        (["--set", "log.filter=inof"], {}, "did you mean `info`?"),
        (["--address", "example.com:1"], {}, "an IP address or localhost, and a port"),
    ],
)
def test_a_slip_in_a_setting_has_its_remedy(
    arguments: list[str], environment: dict[str, str], text: str
) -> None:
    assert text in said("config", *arguments, **environment)


def test_a_file_that_is_no_toml_is_named_before_the_line_is_shown(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[server]\nhttp = off\n")
    first, *shown = said("config", "--config", wrong).splitlines()
    assert first.endswith(f"(file: {wrong})")
    assert any("http = off" in line for line in shown)


def test_localhost_is_an_address() -> None:
    with pg.Server(address="localhost:0") as server:
        assert server.uri.startswith("grpc://127.0.0.1:")


def test_no_grid_is_named_twice_and_a_flag_replaces_a_setting(tmp_path: Path) -> None:
    airlines, other = DATA / "airlines.parquet", DATA / "flights" / "month=01"
    code, text = Service("--grid", f"a={airlines}", "--grid", f"A={other}").ended()
    assert (code, "--grid names `a` twice" in text) == (1, True)
    (tmp_path / "s.toml").write_text(f'[grids]\na = "{other}"\nb = "{airlines}"\n')
    with service("--config", tmp_path / "s.toml", "--grid", f"a={airlines}") as one:
        assert pg.connect(one.uri).grids() == ["a", "b"]
        assert pg.connect(one.uri).grid("a").shape == (16, 2)
        assert "".join(one.said).count("loaded a:") == 1


def test_a_token_has_no_empty_pattern() -> None:
    assert "at least one character" in said("token", "a", "--only", "")


def test_who_waits_for_a_query_hears_that_the_server_ended_it() -> None:
    server = pg.Server()
    with fl.connect(server.uri) as client:
        info = client.get_flight_info(statement(ENDLESS))
        reader = client.do_get(info.endpoints[0].ticket)
        until(lambda: running(server))
        server.stop(within=0.2)
        with pytest.raises(fl.FlightError, match="the query was cancelled: the server stops"):
            drained(reader)


def test_a_client_of_adbc_is_told_its_catalog_and_why_a_table_without_rows_is_not_made() -> None:
    with (
        pg.Server() as server,
        adbc.connect(server.uri, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        assert connection.adbc_current_catalog == "partgrid"
        assert connection.adbc_current_db_schema == "public"
        with pytest.raises(adbc_driver_manager.Error, match="CREATE TABLE … AS SELECT"):
            cursor.adbc_ingest("none", pa.table({"a": pa.array([], pa.int64())}), mode="create")


def test_an_upload_is_as_durable_as_it_was_asked_to_be(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2, 3]})
    with service("--catalog", tmp_path) as one:
        connection = pg.connect(one.uri)
        assert connection.upload(rows, "sure", ack="durable") == {"rows": 3, "durable": True}
        assert connection.upload(rows, "loose", ack="memory") == {"rows": 3, "durable": False}
        # Else the one of before would be back after a restart.
        connection.upload(rows, "was", ack="durable")
        connection.upload(rows[:1], "was", ack="memory", if_exists="replace")
        with pytest.raises(pg.errors.QueryError, match="exists already"):
            connection.upload(rows, "sure", ack="memory")
        assert connection.grid("was").shape == (1, 1)
        assert connection.grids() == ["loose", "sure", "was"]
    with service("--catalog", tmp_path) as one:
        assert pg.connect(one.uri).grids() == ["sure"]
    with pg.Server() as server:
        connection = pg.connect(server.uri)
        with pytest.raises(pg.errors.UnsupportedError, match="no catalog"):
            connection.upload(rows, "sure", ack="durable")
        with pytest.raises(pg.errors.InvalidArgumentError, match='"durable" or "memory"'):
            connection.upload(rows, "sure", ack="disk")
        assert connection.grids() == []
