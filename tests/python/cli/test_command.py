"""The `partgrid` command that the wheel brings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from conftest import DATA
from services import until

COMMAND = Path(sys.executable).parent / "partgrid"
QUERY = "SELECT origin, count(*) AS n FROM f WHERE month = 2 GROUP BY origin ORDER BY origin"
ANSWER = [("EWR", 9107), ("JFK", 8421), ("LGA", 7423)]
GRID = f"f={DATA / 'flights'}"


def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Runs the command."""
    return subprocess.run([str(COMMAND), *arguments], capture_output=True, check=False)


def test_it_says_its_version_and_helps() -> None:
    assert run("--version").stdout.decode().strip() == f"partgrid {pg.__version__}"
    text = run("--help").stdout.decode()
    assert "partgrid sql" in text
    assert "exit code" in text.lower()
    module = [sys.executable, "-m", "partgrid", "--version"]
    assert subprocess.run(module, capture_output=True, check=True).stdout == run("--version").stdout


def test_show_draws_the_grid() -> None:
    done = run("show", str(DATA / "flights"))
    text = done.stdout.decode()
    assert done.returncode == 0
    assert "336,776 rows" in text
    assert "time_hour" in text


def test_sql_prints_the_answer_in_every_format() -> None:
    def ask(form: str) -> bytes:
        done = run("sql", QUERY, "--grid", GRID, "--format", form)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert ask("csv").decode().splitlines() == ["origin,n", "EWR,9107", "JFK,8421", "LGA,7423"]
    objects = [json.loads(line) for line in ask("json").decode().splitlines()]
    assert [(row["origin"], row["n"]) for row in objects] == ANSWER
    assert pa.ipc.open_stream(ask("arrow")).read_all()["n"].to_pylist() == [9107, 8421, 7423]
    assert pq.read_table(pa.BufferReader(ask("parquet")))["n"].to_pylist() == [9107, 8421, 7423]
    assert "9107" in ask("table").decode()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["sql", "SELECT nope FROM f", "--grid", GRID], 1, "no column `nope`"),
        (["sql", "SELECT 1", "--grid", "f=absent"], 1, "absent"),
        (["sql", "SELECT 1", "--grid", "absent"], 2, "NAME=PATH"),
        (["show"], 2, "Usage"),
        (["unknown"], 2, "unrecognized"),
    ],
)
def test_failures_go_to_stderr_with_a_code(arguments: list[str], code: int, text: str) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert text in done.stderr.decode()
    assert done.stdout == b""


def test_load_writes_the_tiles_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(
        "load",
        str(DATA / "flights"),
        "--out",
        str(out),
        "--tile-rows",
        "10000",
        "--partition-by",
        "origin",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert done.stderr.decode().startswith("336,776 rows, ")
    assert b"\r" not in done.stderr, "no bar where standard error is no terminal"
    back = pg.read_parquet(out).sql(
        "SELECT origin, count(*) AS n FROM self WHERE month = 2 GROUP BY 1 ORDER BY 1"
    )
    assert back.to_arrow().to_pylist() == [{"origin": origin, "n": n} for origin, n in ANSWER]


def test_load_prints_events_as_lines_of_json(tmp_path: Path) -> None:
    done = run("load", str(DATA / "flights"), "--out", str(tmp_path / "out"), "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events if event["event"] != "progress"] == [
        "started",
        "loaded",
        "finished",
    ]
    assert events[-1]["rows"] == 336_776
    assert events[-1]["files_written"] == 12
    assert done.stderr == b""
    failed = run("load", "none", "--out", str(tmp_path / "x"), "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout.splitlines()[-1])["kind"] == "NotFound"


def test_copy_keeps_every_row_and_refuses_a_folder_with_data(tmp_path: Path) -> None:
    source, target = DATA / "airlines.parquet", tmp_path / "airlines"
    assert run("copy", str(source), str(target), "--quiet", "--compression", "snappy").stderr == b""
    assert pg.read_parquet(target).to_arrow() == pg.read_parquet(source).to_arrow()
    again = run("copy", str(source), str(target))
    assert again.returncode == 1
    assert b"1 data files already" in again.stderr
    assert run("copy", str(source), str(target), "--overwrite").returncode == 0
    assert run("copy", str(source), str(target), "--compression", "zip").returncode == 2
    assert run("copy", str(source), str(target), "--storage-option", "x").returncode == 2


def test_a_load_goes_on_when_nobody_reads_its_events(tmp_path: Path) -> None:
    arguments = [
        str(COMMAND),
        "load",
        str(DATA / "flights"),
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 0
    assert len(list((tmp_path / "out").iterdir())) == 12
    arguments[2] = "none"
    failing = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert failing.stdout is not None
    failing.stdout.close()
    assert failing.wait() == 1


def test_the_destination_is_looked_at_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "out" / "mine.parquet")
    for verb in (["load", "--out"], ["copy"]):
        source, options = str(DATA / "flights"), ["--json"]
        done = run(verb[0], source, *verb[1:], str(tmp_path / "out"), *options)
        events = [json.loads(line)["event"] for line in done.stdout.decode().splitlines()]
        assert (done.returncode == 0, events) == (False, ["started", "failed"])
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine.parquet"]


@pytest.mark.parametrize("verb", ["load", "copy"])
def test_ctrl_c_leaves_nothing_of_files_that_are_written(tmp_path: Path, verb: str) -> None:
    out = tmp_path / "out"
    where = ["--out", str(out)] if verb == "load" else [str(out)]
    # A thousand files, each flushed to the disk.
    command = [str(COMMAND), verb, str(DATA / "flights"), *where, "--tile-rows", "300", "--json"]
    writing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: list(tmp_path.rglob("part-*")), 30)
    writing.send_signal(signal.SIGINT)
    told, said = writing.communicate(timeout=20)
    assert (writing.returncode, said) == (130, "error: interrupted\n")
    last = json.loads(told.splitlines()[-1])
    assert (last["event"], last["kind"]) == ("failed", "Cancelled")
    assert list(tmp_path.iterdir()) == []


def test_several_statements_are_answered_one_after_the_other(tmp_path: Path) -> None:
    file = tmp_path / "two.sql"
    file.write_text("SELECT 1 AS a; -- one\nSELECT ';' AS b;\n/* done */\n")
    done = run("sql", "-f", str(file), "--format", "csv")
    assert (done.returncode, done.stdout) == (0, b"a\n1\nb\n;\n")
    done = run("sql", "SELECT 1 AS a; SELECT nope; SELECT 2 AS b", "--format", "json")
    assert (done.returncode, done.stdout) == (1, b'{"a":1}\n')
    assert b"no column `nope`" in done.stderr
    done = run("sql", "SELECT 1; SELECT 2", "--output", str(tmp_path / "x.csv"))
    assert done.returncode == 1
    assert b"a file holds the answer of one statement, got 2 statements" in done.stderr
    done = run("sql", "--format", "csv")
    assert done.returncode == 2
    assert b"partgrid sql - --format csv" in done.stderr


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    command = [str(COMMAND), "sql", "SELECT 1 AS a", "--format", "csv", "--output", "-"]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    assert done.stdout == b"a\n1\n"
    assert not list(tmp_path.iterdir())
