"""`partgrid token --add-to`: the file of tokens grows by one entry, or stays as it was."""

from __future__ import annotations

import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg
from services import COMMAND


def made(*arguments: Any, code: int = 0) -> subprocess.CompletedProcess[str]:
    words = [str(COMMAND), "token", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_a_token_that_is_added_opens_a_server_as_far_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    first = made("analyst", "--only", "t*", "--queries", 4, "--add-to", path)
    assert first.stderr == f"added the token `analyst` to {path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second = made("boss", "--scope", "admin", "--add-to", path)
    assert path.read_text().count("[[token]]") == 2
    assert "queries = 4" in path.read_text()
    grids = {"t": pa.table({"a": [1]}), "other": pa.table({"a": [1]})}
    with pg.Server(grids, tokens=path) as server:
        for done, names in ((first, ["t"]), (second, ["other", "t"])):
            token = done.stdout.strip()
            assert token not in path.read_text()
            assert pg.connect(server.uri, token=token).grids() == names
        # Read again, it lets more in.
        third = made("late", "--add-to", path).stdout.strip()
        server.reload()
        assert pg.connect(server.uri, token=third).grids() == ["other", "t"]
    assert [each.name for each in tmp_path.iterdir()] == ["tokens.toml"]


@pytest.mark.parametrize(
    ("before", "arguments", "code", "text"),
    [
        (None, ["a", "--scope", "everything"], 2, "invalid value 'everything'"),
        (None, ["", "--scope", "read"], 1, "1 to 100 bytes"),
        ("error: what was redirected\n", ["a"], 1, "not of the form that is wanted in line 1"),
    ],
)
def test_what_is_wrong_leaves_the_file_as_it_was(
    tmp_path: Path, before: str | None, arguments: list[str], code: int, text: str
) -> None:
    path = tmp_path / "tokens.toml"
    if before is None:
        made("known", "--add-to", path)
    else:
        path.write_text(before)
    before = path.read_text()
    done = made(*arguments, "--add-to", path, code=code)
    assert text in done.stderr
    assert done.stdout == ""
    assert path.read_text() == before


def test_a_name_that_is_there_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    made("known", "--add-to", path)
    before = path.read_text()
    done = made("known", "--scope", "admin", "--add-to", path, code=1)
    assert "has a token of the name `known` already" in done.stderr
    assert f"file: {path}" in done.stderr
    assert "hint: choose another name" in done.stderr
    assert (done.stdout, path.read_text()) == ("", before)


def test_of_many_that_add_at_once_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda name: made(name, "--add-to", path).stdout, "abcdefgh"))
    assert len(set(tokens)) == 8
    assert path.read_text().count("[[token]]") == 8


def test_without_a_file_the_entry_is_said_as_before(tmp_path: Path) -> None:
    done = made("analyst", "--valid-days", 90)
    assert done.stdout.startswith("pgt_")
    lines = done.stderr.splitlines()
    assert lines[0] == "[[token]]"
    assert 'name = "analyst"' in lines
    path = tmp_path / "tokens.toml"
    path.write_text(done.stderr)
    with pg.Server(tokens=path) as server:
        assert pg.connect(server.uri, token=done.stdout.strip()).grids() == []
