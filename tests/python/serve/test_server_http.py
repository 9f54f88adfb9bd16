"""The HTTP port and TLS: what is open, what is not, and who is believed."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from certificates import Certificates
from services import asked, http_answer, service, shown, until, write_tokens

OPEN = ["/", "/style.css", "/page.js", "/tiles.js", "/healthz", "/readyz"]
GUARDED = ["/api/status", "/api/grids/t", "/metrics"]
GRIDS = {"t": pa.table({"a": [1, 2]})}
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture(scope="module")
def open_server() -> Iterator[pg.Server]:
    with pg.Server(GRIDS) as server:
        yield server


def test_without_a_token_only_the_files_of_the_page_are_open(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "t", a={})
    with pg.Server(GRIDS, tokens=tmp_path / "t") as server:
        for path in OPEN:
            assert http_answer(server.http_uri, path)[0] == 200, path
        for path in GUARDED:
            for token in (None, "wrong"):
                code, headers, body = http_answer(server.http_uri, path, token)
                assert code == 401
                assert headers["www-authenticate"] == "Bearer"
                assert b"token" in body
            assert http_answer(server.http_uri, path, tokens["a"])[0] == 200
        # Who has a name of its own for the server shows a token all the same.
        assert http_answer(server.http_uri, "/api/status", tokens["a"], Host="x.org")[0] == 200
        assert http_answer(server.http_uri, "/../../etc/passwd", tokens["a"])[0] == 404
        assert http_answer(server.http_uri, "/api/grids/%2e%2e%2f", tokens["a"])[0] == 404


def test_a_page_of_another_site_gets_nothing(open_server: pg.Server) -> None:
    uri = open_server.http_uri
    port = uri.rsplit(":", 1)[1]
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.x"):
        for path in OPEN + GUARDED:
            assert http_answer(uri, path, Host=host)[0] == 403, (host, path)
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert http_answer(uri, "/api/status", Host=host)[0] == 200, host
    assert http_answer(uri, "/api/queries/0/cancel", method="POST")[0] == 403
    page = {"X-Partgrid": "page"}
    assert http_answer(uri, "/api/queries/0/cancel", method="POST", **page)[0] == 404
    for path in ("/", "/api/status", "/nothing", "/metrics"):
        code, headers, _ = http_answer(uri, path, Origin="http://evil.example")
        assert code in (200, 404)
        assert HEADERS.items() <= headers.items()
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        assert "set-cookie" not in headers
    assert http_answer(uri, "/api/status")[1]["cache-control"] == "no-store"


def test_each_answer_has_the_name_of_its_request(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "t", a={"scope": "admin"})
    header = "x-request-id"
    with pg.Server(GRIDS, tokens=tmp_path / "t") as server:
        uri, token = server.http_uri, tokens["a"]
        for path in (*OPEN, *GUARDED, "/nothing", "/api/grids/nothing"):
            for shown_token in (None, token):
                said = {header: "from-client:1_2.3"}
                answer = http_answer(uri, path, shown_token, **said)
                assert answer[1][header] == said[header], path
        # Where the client names none, or none that is safe to log, it is a random one.
        names = [http_answer(uri, "/healthz")[1][header] for _ in range(2)]
        for odd in ("x" * 65, "two words", "ä", "a;b", ""):
            names.append(http_answer(uri, "/healthz", **{header: odd})[1][header])
        assert len(set(names)) == len(names)
        assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)
    with pg.Server(GRIDS) as server:
        said = {header: "a-stranger", "Host": "evil.example"}
        code, headers, _ = http_answer(server.http_uri, "/", **said)
        assert (code, headers[header]) == (403, "a-stranger")


def test_metrics_are_what_prometheus_reads(open_server: pg.Server) -> None:
    code, headers, body = http_answer(open_server.http_uri, "/metrics")
    assert code == 200
    assert "openmetrics-text" in headers["content-type"]
    text = body.decode()
    assert "# TYPE partgrid_queries_running gauge" in text
    assert "partgrid_grids 1\n" in text
    assert "partgrid_incoming_memory_bytes 0\n" in text
    assert "partgrid_spilled_bytes 0\n" in text
    assert "partgrid_spill_limit_bytes 4294967296\n" in text
    assert text.endswith("# EOF\n")
    assert '"t"' not in text


def test_clients_that_know_the_certificate_come_in(certificates: Certificates) -> None:
    files = certificates.issue("server")
    roots = certificates.roots
    tokens = write_tokens(certificates.folder / "t", a={})
    with pg.Server(GRIDS, tls=files, tokens=certificates.folder / "t") as server:
        assert server.uri.startswith("grpc+tls://127.0.0.1:")
        connection = pg.connect(server.uri, token=tokens["a"], ca=roots)
        assert connection.sql("SELECT sum(a) AS s FROM t").to_arrow()["s"].to_pylist() == [3]
        assert connection.grid("t").to_arrow() == GRIDS["t"]
        with fl.connect(server.uri, tls_root_certs=roots.read_bytes()) as client:
            assert asked(client, "SELECT * FROM t", tokens["a"]) == GRIDS["t"]
        options = {
            "adbc.flight.sql.client_option.tls_root_certs": roots.read_text(),
            "adbc.flight.sql.authorization_header": f"Bearer {tokens['a']}",
        }
        with (
            adbc.connect(server.uri, db_kwargs=options, autocommit=True) as database,
            database.cursor() as cursor,
        ):
            cursor.execute("SELECT * FROM t")
            assert cursor.fetch_arrow_table() == GRIDS["t"]
        assert server.http_uri.startswith("https://")
        context = ssl.create_default_context(cafile=str(roots))
        with urllib.request.urlopen(server.http_uri + "/healthz", context=context) as answer:
            assert answer.read() == b"ok\n"


def test_tls_may_be_said_beside_a_uri_that_leaves_it_open(certificates: Certificates) -> None:
    ca = certificates.roots
    with pg.Server(GRIDS, tls=certificates.issue("server")) as server:
        place = server.uri.removeprefix("grpc+tls://")
        for uri in (place, f"grpc://{place}", server.uri):
            connection = pg.connect(uri, tls=True, ca=ca)
            assert connection.grids() == ["t"]
            # It can be handed on without what was said beside it.
            assert connection.uri == server.uri
        with pytest.raises(pg.errors.InvalidArgumentError, match="tls=True contradicts grpc.tcp"):
            pg.connect(f"grpc+tcp://{place}", tls=True, ca=ca)
        with pytest.raises(pg.errors.InvalidArgumentError, match="tls=False contradicts grpc.tls"):
            pg.connect(server.uri, tls=False)
        for uri in (place, f"grpc://{place}"):
            with pytest.raises(pg.errors.InvalidArgumentError, match="a CA goes with grpc.tls"):
                pg.connect(uri, tls=False, ca=ca)
        with pytest.raises(pg.errors.InvalidArgumentError, match="must read like grpc"):
            pg.connect(place, ca=ca)
        with pytest.raises(pg.errors.InvalidArgumentError, match="tls"):
            pg.connect(place, tls="yes", ca=ca)  # type: ignore[arg-type]
        page = server.http_uri.replace("https://", "grpc+tls://")
        with pytest.raises(pg.errors.StorageError, match="hint: .* that of the status page"):
            pg.connect(page, ca=ca)
        with pytest.raises(pg.errors.InvalidArgumentError, match="hint: .*the status page is"):
            pg.connect(server.http_uri)
    with pg.Server(GRIDS) as server:
        place = server.uri.removeprefix("grpc://")
        for uri in (place, server.uri, f"grpc+tcp://{place}"):
            assert pg.connect(uri, tls=False).grids() == ["t"]
    # A token goes to another host over TLS only, and by TLS it may.
    with pytest.raises(pg.errors.InvalidArgumentError, match="over TLS"):
        pg.connect("partgrid.invalid:1", tls=False, token="secret")
    with pytest.raises(pg.errors.StorageError):
        pg.connect("partgrid.invalid:1", tls=True, token="secret", ca=ca)


REMEDIES = {
    "ca": "name its CA with ca=",
    "name": "server_name= (`--server-name`)",
    "expired": "to be renewed",
    "early": "the clocks of both hosts",
    "plain": "a server with a certificate is at grpc+tls://",
    "none": "name its CA with ca=",
}


@pytest.mark.parametrize("wrong", REMEDIES)
def test_servers_that_are_not_what_they_say_are_not_believed(
    certificates: Certificates, wrong: str
) -> None:
    hosts = ("db.example",) if wrong == "name" else ()
    # They are good for two days.
    days = {"expired": -0.5, "early": 3}.get(wrong, 1)
    files = certificates.issue("server", *hosts, days=days)
    roots = certificates.strangers if wrong == "ca" else certificates.roots
    with pg.Server(GRIDS, tls=files) as server:
        uri = server.uri.replace("grpc+tls", "grpc") if wrong == "plain" else server.uri
        ca = None if wrong in ("none", "plain") else roots
        with pytest.raises(pg.errors.PartgridError) as caught:
            pg.connect(uri, ca=ca).grids()
        assert REMEDIES[wrong] in str(caught.value)
        trusted = {} if ca is None else {"tls_root_certs": ca.read_bytes()}
        with (
            fl.connect(uri, **trusted) as client,
            pytest.raises((fl.FlightError, pa.ArrowException)),
        ):
            list(client.list_flights(options=shown(None)))
        if wrong == "name":
            named = pg.connect(uri, ca=roots, server_name="db.example")
            assert named.grids() == ["t"]


def test_what_is_no_greeting_is_hung_up_on(certificates: Certificates) -> None:
    with pg.Server(GRIDS, tls=certificates.issue("server")) as server:
        for uri in (server.uri, server.http_uri):
            host, port = uri.rsplit("/", 1)[1].split(":")
            with socket.create_connection((host, int(port)), timeout=15) as plain:
                plain.sendall(b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
                said = b""
                while part := plain.recv(1000):
                    said += part
            assert b"HTTP" not in said
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(certificates.roots)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection((host, int(port)), timeout=15) as raw,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(raw, server_hostname="127.0.0.1")
        assert pg.connect(server.uri, ca=certificates.roots).grids() == ["t"]


def test_clients_show_certificates_where_the_server_asks_for_them(
    certificates: Certificates,
) -> None:
    files = (*certificates.issue("server"), str(certificates.roots))
    with pg.Server(GRIDS, tls=files) as server:
        own = certificates.issue("client", "me@example")
        known = {"certificate": own[0], "key": own[1]}
        connection = pg.connect(server.uri, ca=certificates.roots, **known)
        assert connection.grids() == ["t"]
        strangers = certificates.issue("stranger", "me@example", ca=certificates.other)
        late = certificates.issue("late", "me@example", days=-0.5)
        for shows in ({}, *({"certificate": a, "key": b} for a, b in (strangers, late))):
            with pytest.raises(pg.errors.PartgridError):
                pg.connect(server.uri, ca=certificates.roots, **shows).grids()
        context = ssl.create_default_context(cafile=str(certificates.roots))
        with pytest.raises(OSError, match="(?i)certificate|reset|EOF"):
            urllib.request.urlopen(server.http_uri + "/healthz", context=context).read()
        context.load_cert_chain(*own)
        assert urllib.request.urlopen(server.http_uri + "/healthz", context=context).status == 200
        with pytest.raises(pg.errors.InvalidArgumentError, match="certificate and key go together"):
            pg.connect(server.uri, certificate=own[0])


def test_certificates_are_read_again(certificates: Certificates) -> None:
    files = certificates.issue("server")
    with pg.Server(GRIDS, tls=files) as server:
        before = pg.connect(server.uri, ca=certificates.roots)
        certificates.issue("server", ca=certificates.other)
        server.reload()
        assert before.grids() == ["t"]
        assert pg.connect(server.uri, ca=certificates.strangers).grids() == ["t"]
        with pytest.raises(pg.errors.StorageError):
            pg.connect(server.uri, ca=certificates.roots)
        Path(files[0]).write_text("nonsense")
        with pytest.raises(pg.errors.InvalidDataError, match="server.pem"):
            server.reload()
        Path(files[1]).unlink()
        with pytest.raises((pg.errors.NotFoundError, pg.errors.InvalidDataError)):
            server.reload()
        assert pg.connect(server.uri, ca=certificates.strangers).grids() == ["t"]


def test_the_command_reads_certificates_again_at_a_signal(certificates: Certificates) -> None:
    certificate, key = certificates.issue("server")
    with service("--tls-certificate", certificate, "--tls-key", key) as one:
        before = pg.connect(one.uri, ca=certificates.roots)
        certificates.issue("server", ca=certificates.other)
        one.kill(signal.SIGHUP)
        until(lambda: "certificates and tokens were read again" in "".join(one.said))
        assert pg.connect(one.uri, ca=certificates.strangers).grids() == []
        with pytest.raises(pg.errors.StorageError):
            pg.connect(one.uri, ca=certificates.roots)
        # A connection that is open stays, and so does what was good.
        assert before.grids() == []
        Path(key).write_text("nonsense")
        one.kill(signal.SIGHUP)
        until(lambda: "what cannot be used stays as it was" in "".join(one.said))
        context = ssl.create_default_context(cafile=str(certificates.strangers))
        with urllib.request.urlopen(one.http_uri + "/readyz", context=context) as answer:
            assert answer.read() == b"ready\n"
        assert pg.connect(one.uri, ca=certificates.strangers).grids() == []


def test_those_who_vouch_for_clients_are_read_again(certificates: Certificates) -> None:
    roots = certificates.folder / "clients.pem"
    certificates.ca.cert_pem.write_to_path(str(roots))
    server_files = certificates.issue("server")
    shows = {
        who: dict(zip(("certificate", "key"), certificates.issue(who, "me@x", ca=ca), strict=True))
        for who, ca in (("before", certificates.ca), ("after", certificates.other))
    }
    with pg.Server(GRIDS, tls=(*server_files, str(roots))) as server:

        def grids(who: str) -> list[str]:
            return pg.connect(server.uri, ca=certificates.roots, **shows[who]).grids()

        open_connection = pg.connect(server.uri, ca=certificates.roots, **shows["before"])
        assert open_connection.grids() == ["t"]
        with pytest.raises(pg.errors.PartgridError):
            grids("after")
        certificates.other.cert_pem.write_to_path(str(roots))
        server.reload()
        assert grids("after") == ["t"]
        with pytest.raises(pg.errors.PartgridError):
            grids("before")
        # A connection that is open stays.
        assert open_connection.grids() == ["t"]


def test_files_that_are_no_certificates_are_named(certificates: Certificates) -> None:
    certificate, key = certificates.issue("server")
    other = certificates.issue("other")[1]
    empty = certificates.folder / "empty.pem"
    empty.write_text("")
    for files in (
        (certificate, other),
        (key, certificate),
        (str(empty), key),
        (certificate, str(empty)),
        (certificate, key, str(empty)),
        (certificate, "absent.key"),
    ):
        with pytest.raises(pg.errors.PartgridError, match=r"\.(pem|key)"):
            pg.Server(tls=files)
