"""`partgrid sql` without a query: in a terminal, and with statements piped in."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from conftest import DATA

COMMAND = Path(sys.executable).parent / "partgrid"
GRIDS = ["--grid", f"f={DATA / 'flights'}", "--grid", f"airlines={DATA / 'airlines.parquet'}"]
ENDLESS = "SELECT count(*) FROM f a, f b WHERE a.dep_delay * b.arr_delay = 7.5;"
CTRL_C, CTRL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"


class Shell:
    """A shell in a terminal of 80 columns."""

    def __init__(self, history: Path) -> None:
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.environ["PARTGRID_HISTORY"] = str(history)
            os.execv(COMMAND, ["partgrid", "sql", *GRIDS])
        ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        self.read("partgrid> ")

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def read(self, until: str, timeout: float = 20) -> str:
        """What the screen gets until a text comes."""
        seen, end = "", time.monotonic() + timeout
        while until not in seen:
            ready, _, _ = select.select([self.terminal], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{until!r} did not come: {seen!r}"
            seen += os.read(self.terminal, 65536).decode(errors="replace")
        return seen

    def ask(self, line: str, until: str) -> str:
        self.type(line + "\r")
        return self.read(until)

    def end(self) -> int:
        self.type(CTRL_D)
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "history")
    yield shell
    try:
        os.kill(shell.child, signal.SIGKILL)
        os.waitpid(shell.child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_statements_have_several_lines_and_the_shell_goes_on_after_errors(shell: Shell) -> None:
    shell.type("SELECT origin, count(*) AS n FROM f\rWHERE month = 2\rGROUP BY origin;\r")
    assert "9107" in shell.read("(3 rows)")
    shell.ask("SELECT origi FROM f;", "did you mean `origin`?")
    shell.ask(".timing", "timing is on")
    assert "2" in shell.ask("SELECT 1 + 1 AS two;", " s)")
    assert "carrier" in shell.ask("\\d airlines", "Utf8")
    assert shell.end() == 0


def test_ctrl_c_cancels_the_statement_and_not_the_shell(shell: Shell) -> None:
    shell.ask(ENDLESS, "7.5;")
    time.sleep(0.7)
    sent = time.monotonic()
    shell.type(CTRL_C)
    shell.read("error: cancelled")
    # Ten times what it takes: only that it ends, long before the statement would.
    assert time.monotonic() - sent < 10
    assert "2" in shell.ask("SELECT 1 + 1 AS two;", "(1 row)")
    shell.type("SELECT 'half a line" + CTRL_C)
    assert "3" in shell.ask("SELECT 1 + 2 AS three;", "(1 row)")
    assert shell.end() == 0


def test_a_long_statement_shows_how_far_it_is_and_metrics_what_it_read(shell: Shell) -> None:
    shell.type(ENDLESS + "\r")
    assert " tiles, " in shell.read(" rows [")
    shell.type(CTRL_C)
    shell.read("error: cancelled")
    shell.ask(".metrics", "metrics are on")
    assert "memory: 1 of 1 tile read" in shell.ask("SELECT carrier FROM airlines;", " copied")
    shell.ask(".metrics off", "metrics are off")
    assert shell.end() == 0


def test_tab_completes_and_up_brings_back(shell: Shell, tmp_path: Path) -> None:
    shell.type("SELECT coun" + TAB + "(*) AS n FROM airl" + TAB + ";\r")
    assert "16" in shell.read("(1 row)")
    shell.type(UP + "\r")
    assert "16" in shell.read("(1 row)")
    assert shell.end() == 0
    kept = (tmp_path / "history").read_text().splitlines()
    assert kept == ["SELECT count (*) AS n FROM airlines;"]


def test_a_wide_table_obeys_the_terminal(shell: Shell) -> None:
    seen = shell.ask("SELECT * FROM f LIMIT 1;", "(1 row)")
    # What took long had a line of progress, which is wiped out before the table.
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    table = [line for line in seen.splitlines() if line.startswith(("┌", "│"))]
    assert len(table) == 3
    assert all(len(line) <= 80 for line in table)
    assert any("…" in line for line in table)


def test_statements_can_be_piped_in() -> None:
    def ask(text: str) -> subprocess.CompletedProcess[str]:
        command = [str(COMMAND), "sql", *GRIDS]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    done = ask(
        "CREATE VIEW v AS SELECT count(*) AS n FROM airlines;\nSELECT n, ';' AS s FROM v;\n-- end;\n"
    )
    assert done.returncode == 0, done.stderr
    assert "16" in done.stdout
    failed = ask("SELECT 1 AS one; SELECT nope; SELECT 3 AS three")
    assert failed.returncode == 1
    assert "one" in failed.stdout
    assert "three" not in failed.stdout
    assert "no column `nope`" in failed.stderr


def test_explain_shows_lines_and_options_go_with_a_query() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(COMMAND), "sql", *arguments, *GRIDS]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )

    plan = run("EXPLAIN SELECT carrier FROM airlines WHERE name > 'B'").stdout
    assert "\\n" not in plan
    assert "physical_plan\n  GridScanExec" in plan
    assert run("--format", "csv").returncode == 2
    over = run(ENDLESS, "--timeout", "0.5")
    assert over.returncode == 1
    assert "hint: raise --timeout" in over.stderr


def test_a_comment_may_have_several_lines(shell: Shell) -> None:
    shell.ask("/* first", "...> ")
    shell.ask("second */", "partgrid> ")
    assert "one" in shell.ask("SELECT 1 AS one;", "1 row")
