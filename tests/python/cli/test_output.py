"""`--output` and folders that are written: what is replaced, what is written into as it is, and what is left alone."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg
from services import COMMAND

QUERY = ("sql", "SELECT 1 AS a", "--format", "csv")
ANSWER = "a\n1\n"


def run(*arguments: Any, code: int = 0, **how: Any) -> str:
    """Runs the command; what it says on standard error."""
    words = [str(COMMAND), *map(str, arguments)]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False, timeout=60, **how)
    assert done.returncode == code, done.stderr
    return done.stderr


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("pipe")
    for name in (pipe, link):
        writing = subprocess.Popen([str(COMMAND), *QUERY, "--output", str(name)])
        command = ["cat", str(pipe)]
        read = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
        assert read.stdout == ANSWER
        assert writing.wait(20) == 0
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert link.is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def test_ctrl_c_ends_what_waits_for_the_reader_of_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    rows = "SELECT value FROM generate_series(1, 9000000000000000)"
    command = [str(COMMAND), "sql", rows, "--format", "csv", "--output", str(pipe)]
    writing = subprocess.Popen(command)
    try:
        # More than there is room for until somebody reads, which nobody does.
        ready, _, _ = select.select([reader], [], [], 30)
        assert ready
        writing.send_signal(signal.SIGINT)
        assert writing.wait(20) == -signal.SIGINT
    finally:
        writing.kill()
        writing.wait()
        os.close(reader)


def test_the_file_behind_a_link_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("before")
    link.symlink_to("file")
    # Of which the mask would take something away.
    for mode in (0o666, 0o640):
        file.chmod(mode)
        run(*QUERY, "--output", link, umask=0o077)
        assert link.readlink() == Path("file")
        assert file.read_text() == ANSWER
        assert stat.S_IMODE(file.stat().st_mode) == mode
    run(*QUERY, "--output", tmp_path / "new", umask=0o027)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_what_is_no_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "nowhere").symlink_to("absent")
    (tmp_path / "circle").symlink_to("circle")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        before = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
        for name, why in {
            "folder": "this is a folder",
            "nowhere": "a link that leads to nothing",
            "circle": "the result could not be written",
            "socket": "this is a socket",
        }.items():
            said = run(*QUERY, "--output", tmp_path / name, code=1)
            assert why in said
            assert f"(file: {tmp_path / name})" in said
            assert ("\nhint: " in said) == (name != "circle")
        assert {path.name: path.lstat().st_ino for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("mode", ["w", "a"])
def test_results_stand_between_what_others_write_to_standard_output(
    tmp_path: Path, mode: str
) -> None:
    path, link = tmp_path / "log", tmp_path / "link"
    path.write_text("before\n")
    link.symlink_to("/dev/stdout")
    was = path.stat().st_ino
    query = '"$0" sql "SELECT 1 AS a" --format csv --output'
    script = f"echo head; {query} /dev/stdout; echo between; {query} {link}; echo tail"
    with path.open(mode) as out:
        subprocess.run(["sh", "-c", script, str(COMMAND)], stdout=out, check=True, timeout=60)
    before = "before\n" if mode == "a" else ""
    assert path.read_text() == f"{before}head\n{ANSWER}between\n{ANSWER}tail\n"
    assert path.stat().st_ino == was
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "log"]
    with path.open("w") as err:
        command = [str(COMMAND), *QUERY, "--output", "/dev/stderr"]
        subprocess.run(command, stderr=err, check=True, timeout=60)
    assert path.read_text() == ANSWER


def test_other_files_that_are_open_are_named_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as out:
        there = out.fileno()
        said = run(*QUERY, "--output", f"/dev/fd/{there}", code=1, pass_fds=[there])
    assert "opened for the command" in said
    assert "hint: name the file itself" in said
    assert path.read_text() == ""
    # Pipes are read while they are written, also as the shell makes them.
    script = '"$0" sql "SELECT 1 AS a" --format csv --output >(cat)'
    command = ["bash", "-c", script, str(COMMAND)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stdout == ANSWER


@pytest.mark.parametrize("far", ["nowhere", "nowhere/"])
def test_files_are_not_written_to_a_link_that_leads_to_nothing(tmp_path: Path, far: str) -> None:
    grid = pg.from_arrow(pa.table({"a": [1, 2, 3]}))
    grid.write_parquet(tmp_path / "source")
    link = tmp_path / "nowhere"
    link.symlink_to("absent")
    out = f"{tmp_path}/{far}"
    with pytest.raises(pg.errors.NotFoundError, match="this is a link that leads to nothing"):
        grid.write_parquet(out)
    said = run("load", tmp_path / "source", "--out", out, code=1)
    assert "hint: make the folder that it is to lead to" in said
    assert link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["nowhere", "source"]
    # One that leads to a folder stays, and the files are in that.
    (tmp_path / "absent").mkdir()
    grid.write_parquet(out)
    assert link.is_symlink()
    assert pg.read_parquet(tmp_path / "absent").shape == (3, 1)
