"""Settings of a server: arguments, files, the environment, flags; what is refused."""

from __future__ import annotations

import re
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg
from certificates import Certificates
from conftest import DATA
from services import (
    ENDLESS,
    Service,
    config,
    configured,
    write_tokens,
)


@pytest.mark.parametrize("port", ["address", "http"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_strangers_are_let_in_only_when_it_is_said(tmp_path: Path, port: str, address: str) -> None:
    wanted: dict[str, Any] = {port: address}
    with pytest.raises(pg.errors.InvalidArgumentError, match="without TLS and tokens"):
        pg.Server(**wanted)
    write_tokens(tmp_path / "t", a={})
    with pytest.raises(pg.errors.InvalidArgumentError, match="without TLS\n"):
        pg.Server(tokens=tmp_path / "t", **wanted)
    with pg.Server(insecure=True, **wanted) as server:
        assert server.tables == []


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_strangers_are_let_in_where_there_are_tls_and_tokens(tmp_path: Path, address: str) -> None:
    certificates = Certificates(tmp_path)
    files = certificates.issue("server", "127.0.0.1", "::1")
    token = write_tokens(tmp_path / "t", a={})["a"]
    grids = {"t": pa.table({"a": [1, 2]})}
    with pg.Server(
        grids, address=address, http=address, tls=files, tokens=tmp_path / "t"
    ) as server:
        any_address, here = ("0.0.0.0", "127.0.0.1") if "." in address else ("[::]", "[::1]")
        assert server.uri.startswith(f"grpc+tls://{any_address}:")
        uri = server.uri.replace(any_address, here)
        assert pg.connect(uri, token=token, ca=certificates.roots).grids() == ["t"]
        with pytest.raises(pg.errors.PermissionDeniedError, match="a token is needed"):
            pg.connect(uri, ca=certificates.roots).grids()
        context = ssl.create_default_context(cafile=str(certificates.roots))
        page = server.http_uri.replace(any_address, here)
        with urllib.request.urlopen(page + "/healthz", context=context) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(page + "/api/status", context=context)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"settings": {"limits.qery_time": 1}}, "did you mean `limits.query_time`"),
        ({"settings": {"limits.query_time": 0}}, "more than 0"),
        ({"settings": {"limits.query_time": True}}, "limits.query_time must be a number"),
        ({"settings": {"limits.message": "huge"}}, "limits.message must be a size"),
        (
            {"settings": {"limits.query_memory": 0}},
            r"limits\.query_memory must be a size of at least one byte, such as 512MB .*, got \"0\"",
        ),
        ({"catalog": "shared://mnt/x"}, r"absolute path of a folder, got \"shared://mnt/x\""),
        ({"settings": {"limits.queries": 1.5}}, "limits.queries must be a whole number"),
        ({"settings": {"server.insecure": "maybe"}}, "true or false"),
        ({"settings": {"tls.certificate": "x"}}, "both tls.certificate and tls.key"),
        ({"settings": {"limits.queries": None}}, "a setting must be a text"),
        ({"address": "localhost"}, "server.address must be an IP address or localhost"),
        ({"tls": ("a",)}, "tls must be files"),
        ({"tls": "ab"}, "tls must be files"),
        ({"config": "absent.toml"}, "absent.toml"),
        ({"tokens": "absent.toml"}, "absent.toml"),
        ({"grids": {"a\0b": pa.table({"a": [1]})}}, "name of a grid"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pg.errors.PartgridError, match=message):
        pg.Server(**arguments)


def test_settings_of_a_file_hold_and_arguments_replace_them(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[server]\naddress = "127.0.0.2:0"\nhttp = "off"\n[limits]\nquery_time = 0.2\n'
        f'[grids]\nairlines = "{DATA / "airlines.parquet"}"\n'
    )
    with pg.Server(config=tmp_path / "s.toml") as server:
        assert server.uri.startswith("grpc://127.0.0.2:")
        assert server.http_uri is None
        assert server.tables == ["airlines"]
        with pytest.raises(pg.errors.ResourcesExhaustedError, match="timeout of 0.2 seconds"):
            pg.connect(server.uri).sql(ENDLESS).to_arrow()
    with pg.Server(config=tmp_path / "s.toml", address="127.0.0.1:0", http="127.0.0.2:0") as server:
        assert server.uri.startswith("grpc://127.0.0.1:")
        assert server.http_uri.startswith("http://127.0.0.2:")


def test_config_shows_where_each_setting_was_said(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[limits]\nqueries = 3\nwaiting = 4\nquery_time = 5\n[grids]\na = "x"\n')
    environment = {"PARTGRID_LIMITS__WAITING": "7", "PARTGRID_LIMITS__QUERY_TIME": "8"}
    found = config("--config", path, "--set", "limits.query_time=9", **environment)
    assert found["limits.queries"] == ("3", str(path))
    assert found["limits.waiting"] == ("7", "PARTGRID_LIMITS__WAITING")
    assert found["limits.query_time"][0].startswith("9")
    assert found["limits.query_time"][1] == "command line"
    assert found["grids.a"] == ("x", str(path))
    assert found["server.address"] == ("127.0.0.1:8815", "default")
    assert found["limits.answer"][1] == "default"
    assert found["limits.spill"] == ("4294967296", "default")
    assert found["log.filter"] == ("warn", "default")
    assert config("--set", "log.format=json")["log.filter"] == ("info", "default")
    named = config(PARTGRID_CONFIG=str(path))
    assert named["limits.queries"] == ("3", str(path))
    for wrong, text in (
        (["--set", "limits.nope=1"], "no setting `limits.nope`"),
        (["--set", "limits"], "KEY=VALUE"),
        (["--config", tmp_path / "absent"], "absent"),
    ):
        done = configured(*wrong)
        assert done.returncode != 0
        assert text in done.stderr
    done = configured(PARTGRID_LIMITS__NOPE="1")
    assert "PARTGRID_LIMITS__NOPE" in done.stderr


def test_the_command_says_why_it_does_not_serve(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for arguments, text in (
        (["--address", "0.0.0.0:0"], "without TLS and tokens"),
        (
            ["--tokens", tmp_path / "absent"],
            f"hint: `partgrid token NAME --add-to {tmp_path}/absent`",
        ),
        (["--tokens", "absent"], "--add-to absent` makes it; relative paths start at /"),
        (["--config", "absent"], "hint: a server can do without: `partgrid config --help` shows"),
        (["--grid", "a=absent.parquet"], "absent.parquet"),
        (["--catalog", "/proc/nowhere"], "catalog cannot be opened"),
        (["--catalog", file], f"hint: a catalog is kept in a folder, which .*{file} is a file"),
        (["--address", "127.0.0.1:8816"], "ports of their own, got 127.0.0.1:8816 and 127.0"),
        (["--address", "127.0.0.1:9", "--http", "127.0.0.1:9"], "hint: say another port for one"),
    ):
        code, said = Service(*arguments, ports="--address" not in arguments).ended()
        assert code == 1
        assert re.search(text, said), said


def test_what_stands_in_the_way_is_said_before_grids_are_loaded(tmp_path: Path) -> None:
    absent, free, off = tmp_path / "absent", "127.0.0.1:0", "off"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for flight, http, arguments, text in (
            (free, off, ("--tokens", absent), "the file of tokens cannot be read"),
            (
                free,
                off,
                ("--tls-certificate", absent, "--tls-key", absent),
                "certificate cannot be",
            ),
            (address, off, (), f"cannot listen at {address}"),
            (free, address, (), f"cannot listen at {address}"),
        ):
            # There is no such grid either.
            words = ("--address", flight, "--http", http, "--grid", "a=absent.parquet")
            code, said = Service(*words, *arguments, ports=False).ended()
            assert code == 1
            assert text in said
            assert "absent.parquet" not in said
