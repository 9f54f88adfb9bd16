"""What one token may use: queries at once, memory, answers; others are not bounded by it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from services import COMMAND, ENDLESS, asked, running, shown, statement, until, write_tokens

EXHAUSTED = (MemoryError, fl.FlightError, pa.ArrowException)

CALLERS: dict[str, dict[str, Any]] = {
    "few": {"scope": "write", "queries": 2, "memory": "32MB", "answer": "1MB"},
    "free": {"scope": "admin"},
}


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    callers = {name: dict(what) for name, what in CALLERS.items()}
    return write_tokens(tmp_path / "tokens.toml", **callers)


@pytest.fixture
def server(tmp_path: Path, tokens: dict[str, str]) -> Iterator[pg.Server]:
    assert tokens
    with pg.Server(tokens=tmp_path / "tokens.toml") as server:
        yield server


def begun(client: fl.FlightClient, token: str) -> fl.FlightStreamReader:
    info = client.get_flight_info(statement(ENDLESS), shown(token))
    return client.do_get(info.endpoints[0].ticket, shown(token))


def test_one_more_query_than_a_token_may_have_is_refused(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str], tmp_path: Path
) -> None:
    few, free = tokens["few"], tokens["free"]
    readers = [begun(client, few) for _ in range(2)]
    until(lambda: len(running(server, free)) == 2)
    with pytest.raises(EXHAUSTED, match="may have 2 queries at once"):
        asked(client, "SELECT 1 AS a", few)
    with pytest.raises(EXHAUSTED, match="may have 2 queries at once"):
        asked(client, "CREATE TABLE made AS SELECT 1 AS a", few)
    assert asked(client, "SELECT 1 AS a", free)["a"].to_pylist() == [1]
    # What runs counts on when the tokens are read again.
    more = {"few": {**CALLERS["few"], "queries": 3, "token": few}}
    write_tokens(tmp_path / "tokens.toml", free={"scope": "admin", "token": free}, **more)
    server.reload()
    readers.append(begun(client, few))
    until(lambda: len(running(server, free)) == 3)
    with pytest.raises(EXHAUSTED, match="may have 3 queries at once"):
        asked(client, "SELECT 1 AS a", few)
    for reader in readers:
        reader.cancel()
    until(lambda: not running(server, free))
    assert asked(client, "SELECT 1 AS a", few)["a"].to_pylist() == [1]


def test_the_memory_of_a_token_is_that_of_all_its_queries_and_rows(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str]
) -> None:
    array = "SELECT array_agg(value) AS a FROM generate_series(1, 8000000)"
    with pytest.raises(EXHAUSTED, match="memory limit of the"):
        asked(client, f"SELECT array_length(a) FROM ({array})", tokens["few"])
    assert asked(client, f"SELECT array_length(a) AS n FROM ({array})", tokens["free"])[
        "n"
    ].to_pylist() == [8_000_000]
    rows = pa.table({"a": np.arange(6_000_000)})
    connection = pg.connect(server.uri, token=tokens["few"])
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="limit of the caller") as caught:
        connection.sql(f"SELECT array_length(a) FROM ({array})").to_arrow()
    assert "ask the administrator for more" in str(caught.value.hint)
    with pytest.raises(pg.errors.ResourcesExhaustedError, match="`few` may use 32000000 bytes"):
        connection.upload(rows, "large")
    assert connection.upload(rows.slice(0, 1_000_000), "small")["rows"] == 1_000_000
    # All of it was given back.
    assert connection.upload(rows.slice(0, 3_000_000), "medium")["rows"] == 3_000_000


def test_an_answer_to_a_token_has_only_so_many_bytes(
    client: fl.FlightClient, tokens: dict[str, str]
) -> None:
    text = "SELECT value FROM generate_series(1, 200000)"
    with pytest.raises(EXHAUSTED, match="more bytes than the 1000000") as caught:
        asked(client, text, tokens["few"])
    assert "`answer` of the token" in str(caught.value)
    assert asked(client, text, tokens["free"]).num_rows == 200_000


def test_settings_hold_for_tokens_that_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = write_tokens(path, plain={}, own={"answer": "8MB"}, admin={"scope": "admin"})
    settings = {"auth.answer": "1MB", "auth.queries": 1}
    text = "SELECT value FROM generate_series(1, 200000)"
    with pg.Server(tokens=path, settings=settings) as server, fl.connect(server.uri) as client:
        with pytest.raises(EXHAUSTED, match="more bytes than the 1000000"):
            asked(client, text, made["plain"])
        assert asked(client, text, made["own"]).num_rows == 200_000
        reader = begun(client, made["own"])
        until(lambda: running(server, made["admin"]))
        with pytest.raises(EXHAUSTED, match="may have 1 queries at once"):
            asked(client, "SELECT 1 AS a", made["own"])
        reader.cancel()
    with pytest.raises(pg.errors.InvalidArgumentError, match="for servers that ask for tokens"):
        pg.Server(settings=settings)


@pytest.mark.parametrize(
    "limit",
    [
        "queries = 0",
        "queries = -1",
        'queries = "2"',
        'memory = "huge"',
        "memory = 0",
        "answer = 1.5",
    ],
)
def test_wrong_limits_are_refused(tmp_path: Path, limit: str) -> None:
    path = tmp_path / "t"
    write_tokens(path, a={})
    path.write_text(path.read_text() + limit + "\n")
    with pytest.raises(pg.errors.InvalidDataError, match="the token `a` has as"):
        pg.Server(tokens=path)


def test_the_command_writes_limits(tmp_path: Path) -> None:
    words = ["token", "a", "--queries", "1", "--memory", "64MB", "--answer", "1MB"]
    done = subprocess.run([str(COMMAND), *words], capture_output=True, text=True, check=True)
    (tmp_path / "t").write_text(done.stderr)
    with pg.Server(tokens=tmp_path / "t") as server, fl.connect(server.uri) as client:
        token = done.stdout.strip()
        with pytest.raises(EXHAUSTED, match="more bytes than the 1000000"):
            asked(client, "SELECT value FROM generate_series(1, 200000)", token)
