"""Who may do what: tokens, scopes, names of grids, what SQL of clients must not reach, the HTTP port, secrets."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from served import guarded, tokens_of
from services import (
    COMMAND,
    asked,
    command,
    http_answer,
    service,
    shown,
    status,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("security")


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, str]:
    return tokens_of(folder)


@pytest.fixture(scope="module")
def server(folder: Path, tokens: dict[str, str]) -> Iterator[pg.Server]:
    with guarded(folder, tokens) as server:
        yield server


def update(client: fl.FlightClient, text: str, token: str) -> None:
    descriptor = command("CommandStatementUpdate", (1, text))
    writer, _ = client.do_put(descriptor, pa.schema([]), shown(token))
    writer.done_writing()
    writer.close()


@pytest.mark.parametrize("caller", ["reader", "writer", "admin"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM '../../etc/passwd.csv'",
        "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
        "SELECT * FROM 's3://bucket/x.parquet'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('x.parquet')",
        "COPY secret TO '/tmp/stolen.csv'",
        "COPY (SELECT 1) TO '/tmp/stolen.parquet'",
        "EXPLAIN ANALYZE COPY secret TO '/tmp/stolen.csv'",
        "CREATE EXTERNAL TABLE e STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE EXTERNAL TABLE e STORED AS PARQUET LOCATION 'file:///etc'",
        "INSERT INTO secret VALUES ('x')",
        "UPDATE secret SET hidden = 'x'",
        "DELETE FROM secret",
        "TRUNCATE TABLE secret",
        "SET datafusion.execution.batch_size = 1",
        "RESET datafusion.execution.batch_size",
        "SHOW ALL",
        "SHOW datafusion.execution.batch_size",
        "SHOW VARIABLES",
        "SELECT * FROM information_schema.df_settings",
        'SELECT * FROM information_schema."df_settings"',
        "SELECT * FROM information_schema.`df_settings`",
        "SELECT * FROM partgrid.information_schema.DF_SETTINGS",
        "TABLE information_schema.df_settings",
        "CREATE VIEW v AS SELECT * FROM information_schema.df_settings",
        "SELECT (SELECT count(*) FROM information_schema.df_settings)",
        "EXPLAIN ANALYZE SELECT * FROM information_schema.df_settings",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "DEALLOCATE p",
        "CREATE FUNCTION f() RETURNS INT RETURN 1",
        "CREATE SCHEMA s",
        "CREATE DATABASE d",
        "SELECT 1; DROP TABLE secret",
        "USE other",
        "ATTACH DATABASE '/etc/passwd' AS a",
        "LOAD 'x'",
        "CALL f()",
    ],
)
def test_statements_of_clients_reach_nothing_else(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str], caller: str, text: str
) -> None:
    with pytest.raises((pa.ArrowException, fl.FlightError, NotImplementedError)) as caught:
        asked(client, text, tokens[caller])
    assert "INTERNAL" not in str(caught.value)
    with pytest.raises((pa.ArrowException, fl.FlightError, NotImplementedError)):
        update(client, text, tokens[caller])
    assert server.tables == ["lost", "open_1", "open_v", "secret"]


def test_errors_tell_places_of_the_host_to_administrators_only(
    server: pg.Server, client: fl.FlightClient, tokens: dict[str, str], folder: Path
) -> None:
    shutil.rmtree(folder / "lazy.parquet")
    texts = {}
    for caller in ("reader", "admin"):
        with pytest.raises((pa.ArrowException, fl.FlightError, KeyError)) as caught:
            asked(client, "SELECT * FROM lost", tokens[caller])
        texts[caller] = str(caught.value)
    assert str(folder) not in texts["reader"]
    assert str(folder) in texts["admin"]
    assert str(folder) not in json.dumps(status(server, tokens["reader"]))
    plan = asked(client, "EXPLAIN SELECT * FROM lost", tokens["reader"])
    assert str(folder) not in str(plan.to_pydict())


def test_secrets_are_nowhere(server: pg.Server, tokens: dict[str, str], folder: Path) -> None:
    connection = pg.connect(server.uri, token=tokens["reader"])
    result = connection.sql("SELECT 1 AS a")
    assert tokens["reader"] not in repr(connection) + repr(server) + repr(result)
    with pytest.raises(pg.errors.QueryError) as caught:
        connection.sql("SELECT nope")
    assert tokens["reader"] not in str(caught.value)
    with pytest.raises(pg.errors.InvalidArgumentError) as wrong:
        pg.connect(server.uri, token="geheim\n")
    assert "geheim" not in str(wrong.value)
    words = [str(COMMAND), "config", "--tokens", str(folder / "tokens.toml")]
    shown_settings = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "sha256" not in shown_settings
    assert "pgt_" not in shown_settings
    with service("--tokens", folder / "tokens.toml", RUST_LOG="trace") as one:
        good = pg.connect(one.uri, token=tokens["reader"])
        good.sql("SELECT 1 AS a").to_arrow()
        with pytest.raises(pg.errors.PermissionDeniedError):
            pg.connect(one.uri, token="pgt_guessed").grids()
        http_answer(one.http_uri, "/api/status", tokens["reader"])
        said = "".join(one.said)
    assert tokens["reader"] not in said
    assert "pgt_guessed" not in said


def test_the_command_makes_tokens_that_work(tmp_path: Path) -> None:
    def make(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(COMMAND), "token", *words], capture_output=True, text=True, check=False
        )

    one = make("a", "--scope", "write", "--only", "x_*", "--valid-days", "1")
    token = one.stdout.strip()
    assert token.startswith("pgt_")
    assert len(token) > 40
    assert token not in one.stderr
    (tmp_path / "t").write_text(one.stderr + make("b").stderr)
    with pg.Server(tokens=tmp_path / "t") as server:
        connection = pg.connect(server.uri, token=token)
        assert connection.upload(pa.table({"a": [1]}), "x_1")["rows"] == 1
        with pytest.raises(pg.errors.PermissionDeniedError):
            connection.upload(pa.table({"a": [1]}), "y")
    for words in (["a", "--scope", "all"], ["a", "--valid-days", "0"], [""], ["x" * 101]):
        assert make(*words).returncode != 0
    (tmp_path / "t").write_text(one.stderr * 2)
    with pytest.raises(pg.errors.InvalidDataError, match="two tokens have the name `a`"):
        pg.Server(tokens=tmp_path / "t")
