"""Servers and what tests need to talk to them: a process of the command, tokens, certificates, the messages of Flight SQL by hand."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

COMMAND = Path(sys.executable).parent / "partgrid"

# Runs for hours unless somebody ends it.
ENDLESS = "SELECT count(*) AS n FROM generate_series(1, 9000000000000000) WHERE value < 0"


# Members of one host run statements over little data alone (`cluster.near`).
# Tests have little data, and most of those of clusters are about statements that are spread.
SPREAD: dict[str, object] = {"cluster.near": 0}


class Fixed(int):
    """A whole number that is sent in eight bytes."""


def varint(number: int) -> bytes:
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def proto(*fields: tuple[int, Any]) -> bytes:
    """A protobuf message of numbered fields."""
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, Fixed):
            out += varint(number << 3 | 1) + struct.pack("<q", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else bytes(value)
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def parsed(message: bytes) -> dict[int, list[Any]]:
    """The fields of a protobuf message by number."""
    found: dict[int, list[Any]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            value: Any = number()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or number()
            value = message[at : at + size]
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def flight_sql(name: str, *fields: tuple[int, Any]) -> bytes:
    """A message of Flight SQL, with the name of its type."""
    return proto((1, f"type.googleapis.com/arrow.flight.protocol.sql.{name}"), (2, proto(*fields)))


def ours(name: str, *fields: tuple[int, Any]) -> bytes:
    """A message of partgrid within Flight."""
    return proto((1, f"type.googleapis.com/partgrid.{name}"), (2, proto(*fields)))


def inner(any_message: bytes) -> dict[int, list[Any]]:
    """The fields of a message that has the name of its type."""
    return parsed(parsed(any_message).get(2, [b""])[0])


def command(name: str, *fields: tuple[int, Any]) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(flight_sql(name, *fields))


def statement(text: str) -> fl.FlightDescriptor:
    return command("CommandStatementQuery", (1, text))


def shown(token: str | None) -> fl.FlightCallOptions:
    """Options of a call that shows a token."""
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return fl.FlightCallOptions(headers=headers, timeout=30)


def asked(client: fl.FlightClient, descriptor: Any, token: str | None = None) -> pa.Table:
    """All rows that a descriptor or a text of SQL gives."""
    if isinstance(descriptor, str):
        descriptor = statement(descriptor)
    info = client.get_flight_info(descriptor, shown(token))
    tables = [client.do_get(each.ticket, shown(token)).read_all() for each in info.endpoints]
    return pa.concat_tables(tables)


def query_request(text: str) -> bytes:
    """The body of GetFlightInfo for a text of SQL."""
    return proto((1, 2), (2, flight_sql("CommandStatementQuery", (1, text))))


def tickets(info: bytes) -> list[bytes]:
    """The tickets of a FlightInfo."""
    return [parsed(endpoint)[1][0] for endpoint in parsed(info)[3]]


def rows_of(messages: Iterable[bytes]) -> pa.Table:
    """The rows in the messages of DoGet."""
    stream = b""
    for message in map(parsed, messages):
        header = message[2][0]
        header += bytes(-len(header) % 8)
        stream += struct.pack("<Ii", 0xFFFFFFFF, len(header)) + header
        stream += b"".join(message.get(1000, []))
    return pa.ipc.open_stream(stream).read_all()


def act(client: fl.FlightClient, name: str, body: bytes = b"") -> list[bytes]:
    """The bodies of what an action gives."""
    return [each.body.to_pybytes() for each in client.do_action(fl.Action(name, body))]


def drained(reader: fl.FlightStreamReader) -> int:
    """The number of rows that come. `read_all` of pyarrow would take the gRPC status CANCELLED for Ctrl-C."""
    rows = 0
    for chunk in reader:
        rows += chunk.data.num_rows
    return rows


def refused(uri: str) -> bool:
    """Whether nobody can come in any more."""
    host, port = uri.rsplit("/", 1)[1].rsplit(":", 1)
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Waits until a condition holds; gives what it gave. Less than the thirty seconds after which a server takes a client for silent."""
    stop = time.monotonic() + seconds
    while True:
        held = condition()
        if held:
            return held
        assert time.monotonic() < stop, "what was waited for did not come"
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Ports of loopback at which nobody listens, and which the system gives to nobody who asks for any."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: set[int] = set()
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, max(first, 20_000))
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return list(found)


def http_answer(
    uri: str, path: str, token: str | None = None, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer of the HTTP port."""
    connection = http.client.HTTPConnection(uri.removeprefix("http://").rstrip("/"), timeout=20)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


def status(server: Any, token: str | None = None) -> Any:
    code, _, body = http_answer(server.http_uri, "/api/status", token)
    assert code == 200, body
    return json.loads(body)


def metrics(server: Any, token: str | None = None) -> dict[str, float]:
    """The numbers of /metrics by name, with labels in the order of their names."""
    code, _, body = http_answer(server.http_uri, "/metrics", token)
    assert code == 200, body
    found = {}
    for line in body.decode().splitlines():
        if line.startswith("#"):
            continue
        name, value = line.rsplit(" ", 1)
        if "{" in name:
            name, labels = name.rstrip("}").split("{")
            name = f"{name}{{{','.join(sorted(labels.split(',')))}}}"
        found[name] = float(value)
    return found


def running(server: Any, token: str | None = None) -> list[dict[str, Any]]:
    """The queries that run at this moment."""
    return [each for each in status(server, token)["queries"] if each["state"] == "running"]


def write_tokens(path: Path, **callers: dict[str, Any]) -> dict[str, str]:
    """Writes a file of tokens; gives them by caller. A caller has `scope`, and may have `grids` and `expires`."""
    made, text = {}, ""
    for name, what in callers.items():
        made[name] = what.pop("token", f"pgt_{name}_{os.urandom(16).hex()}")
        digest = hashlib.sha256(made[name].encode()).hexdigest()
        lines = {"name": name, "sha256": digest, "scope": "read", **what}
        pairs = (f"{key} = {json.dumps(value)}" for key, value in lines.items())
        text += "[[token]]\n" + "\n".join(pairs) + "\n"
    path.write_text(text)
    return made


class Service:
    """`partgrid serve` in a process of its own."""

    def __init__(self, *arguments: Any, ports: bool = True, **environment: str) -> None:
        free = ["--address", "127.0.0.1:0", "--http", "127.0.0.1:0"] if ports else []
        words = [str(argument) for argument in arguments]
        if any(word == "--join" or word.startswith("cluster.join=") for word in words):
            # What a test says itself comes after it.
            spread = (("--set", f"{key}={value}") for key, value in SPREAD.items())
            words = [*(word for pair in spread for word in pair), *words]
        self.process = subprocess.Popen(
            [str(COMMAND), "serve", *free, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.said: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def _found(self, pattern: str) -> str | None:
        found = re.search(pattern, "".join(self.said))
        return found.group(1) if found else None

    def ready(self) -> Service:
        until(lambda: self._found(r"(status page at)") or self.process.poll() is not None, 60)
        assert self.process.poll() is None, "".join(self.said)
        return self

    @property
    def uri(self) -> str:
        return self._found(r'serving Flight SQL at ([^\s"]+)') or ""

    @property
    def http_uri(self) -> str:
        return (self._found(r'status page at ([^\s"]+)') or "").rstrip("/")

    def ended(self, seconds: float = 20) -> tuple[int, str]:
        """The code with which it ended, and what it said."""
        code = self.process.wait(seconds)
        self.reader.join(5)
        return code, "".join(self.said)

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)


def forget_peak(one: Service) -> None:
    """The most memory that it ever had is what it has now."""
    Path(f"/proc/{one.process.pid}/clear_refs").write_text("5")


def peak_bytes(one: Service) -> int:
    """The most memory that it had since then."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{one.process.pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) * 1024


def lines_of(uri: str, *words: str) -> list[str]:
    """What the command says of a server, line by line."""
    command = [str(COMMAND), "--server", uri, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@contextmanager
def service(*arguments: Any, **settings: Any) -> Iterator[Service]:
    """A service that is ready, and gone afterwards."""
    one = Service(*arguments, **settings)
    try:
        yield one.ready()
    finally:
        one.process.kill()
        one.process.wait()


def config(*arguments: Any, **environment: str) -> dict[str, tuple[str, str]]:
    """Value and origin of each setting, as `partgrid config` shows them."""
    done = configured(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    lines = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()[1:]]
    # A setting without a value leaves its column empty.
    return {line[0]: (line[1], line[2]) if len(line) > 3 else ("", line[1]) for line in lines}


def configured(*arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [str(COMMAND), "config", *map(str, arguments)]
    env = {**os.environ, "COLUMNS": "400", **environment}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env)
