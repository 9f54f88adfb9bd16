"""`partgrid --server`: the verbs that ask a server."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import partgrid as pg
from conftest import DATA
from served import CALLERS
from services import COMMAND, ENDLESS, running, status, until, write_tokens

QUERY = "SELECT origin, count(*) AS n FROM flights WHERE month = 2 GROUP BY origin ORDER BY origin"
ANSWER = ["origin,n", "EWR,9107", "JFK,8421", "LGA,7423"]


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    """The flights, a view, and a table of an odd name; loads from the data."""
    grids = {"flights": flights, 'Old "data"': pa.table({"a": [1, 2]})}
    with pg.Server(grids, settings={"load.from": str(DATA)}) as server:
        pg.connect(server.uri).sql("CREATE VIEW few AS SELECT * FROM flights LIMIT 3")
        yield server


def run(
    server: pg.Server, *arguments: str, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command against a server."""
    done = subprocess.run(
        [str(COMMAND), "--server", server.uri, *arguments],
        capture_output=True,
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        timeout=120,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def test_sql_runs_there(server: pg.Server, tmp_path: Path) -> None:
    assert run(server, "sql", QUERY, "--format", "csv").stdout.splitlines() == ANSWER
    out = tmp_path / "answer.parquet"
    run(server, "sql", QUERY, "--output", str(out))
    assert pg.read_parquet(out).to_arrow()["n"].to_pylist() == [9107, 8421, 7423]
    assert "no column `nope`" in run(server, "sql", "SELECT nope FROM flights", code=1).stderr


def test_a_query_ends_at_its_timeout_there(server: pg.Server) -> None:
    done = run(server, "sql", ENDLESS, "--timeout", "0.3", code=1)
    assert "0.3" in done.stderr
    until(lambda: not running(server))
    for wrong in (["--timeout=0"], ["--timeout=-1"], ["--timeout=nan"], ["--timeout", "-1"]):
        done = run(server, "sql", "SELECT 1", *wrong, code=2)
        assert "--timeout" in done.stderr
        assert "must be seconds, more than 0" in done.stderr
    heavy = "SELECT array_length(array_agg(value)) AS n FROM generate_series(1, 3000000)"
    assert "memory" in run(server, "sql", heavy, "--memory-limit", "1MB", code=1).stderr


def test_ls_and_show_say_what_there_is(server: pg.Server) -> None:
    lines = run(server, "ls").stdout.splitlines()
    assert lines[0].split() == ["name", "rows", "columns", "tiles", "bytes", "where", "durable"]
    assert lines[1].split()[:2] == ["Old", '"data"']
    assert lines[2].split()[:4] == ["flights", "336,776", "19", "12"]
    assert lines[2].split()[-2:] == ["memory", "no"]
    assert lines[3].split() == ["few", "view"]
    assert lines[4].startswith("2 grids, 1 view, ")
    shown = run(server, "show", "flights").stdout
    assert "336,776 rows" in shown
    assert "time_hour" in shown
    assert "nope" in run(server, "show", "nope", code=1).stderr


def test_rm_drops_grids_and_views(server: pg.Server) -> None:
    asked = pg.connect(server.uri)
    asked.sql('CREATE TABLE "gone ""away" AS SELECT 1 AS a')
    asked.sql("CREATE VIEW short AS SELECT 1 AS a")
    done = run(server, "rm", 'gone "away', "short")
    assert done.stdout.splitlines() == ['dropped gone "away', "dropped short"]
    assert run(server, "rm", "--if-exists", "short").stdout == ""
    assert "no grid or view" in run(server, "rm", "short", code=1).stderr


def test_load_runs_there_and_says_how_far_it_is(server: pg.Server) -> None:
    source = str(DATA / "flights")
    arguments = ["--columns", "month,distance", "--sort-by", "distance:desc"]
    done = run(server, "load", source, "--name", "sorted", *arguments)
    assert done.stderr.startswith("336,776 rows loaded as sorted in ")
    grid = server.grid("sorted")
    assert grid.columns == ["month", "distance"]
    assert grid.to_arrow()["distance"][0].as_py() == 4983
    assert "exists already" in run(server, "load", source, "--name", "sorted", code=1).stderr
    wanted = ["--name", "sorted", "--replace", "--lazy", "--no-hive", "--json"]
    done = run(server, "load", f"{source}/month=02", *wanted)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["started", "finished"]
    assert (events[0]["name"], events[-1]["rows"]) == ("sorted", 24951)
    # What a server does not say is not said to be 0.
    assert not {"files", "total_files", "tile_bytes", "spilled_tiles"} & events[-1].keys()
    assert "month" not in server.grid("sorted").columns
    refused = run(server, "load", "/etc", "--name", "stolen", "--json", code=1)
    last = json.loads(refused.stdout.splitlines()[-1])
    assert (last["event"], last["kind"]) == ("failed", "PermissionDenied")
    wrong = run(server, "load", source, "--name", "x", "--sort-by", "distance:down", code=1)
    assert "--sort-by must say" in wrong.stderr
    server.deregister("sorted")


def test_ps_lists_and_ends_what_runs(server: pg.Server) -> None:
    assert "0 queries and 0 loads running" in run(server, "ps").stdout
    asking = subprocess.Popen(
        [str(COMMAND), "--server", server.uri, "sql", ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: running(server))
    lines = run(server, "ps").stdout.splitlines()
    assert lines[0].split() == ["id", "caller", "state", "time", "rows", "progress", "what"]
    assert "generate_series" in lines[1]
    assert lines[-1] == "1 query and 0 loads running"
    query = lines[1].split()[0]
    ended = run(server, "ps", "--cancel", query).stdout
    assert ended.startswith(f"cancelled {query}: ")
    assert "generate_series" in ended
    _, said = asking.communicate(timeout=20)
    assert asking.returncode == 1
    assert "cancelled" in said
    assert "cancelled" in run(server, "ps", "--all").stdout
    unknown = run(server, "ps", "--cancel", "qfffff", code=1).stderr
    assert "no such query" in unknown
    assert "hint: `ps` lists what runs" in unknown
    assert "q1f" in run(server, "ps", "--cancel", "7", code=2).stderr


def test_ctrl_c_ends_the_query_there(server: pg.Server) -> None:
    asking = subprocess.Popen([str(COMMAND), "--server", server.uri, "sql", ENDLESS])
    until(lambda: running(server))
    asking.send_signal(signal.SIGINT)
    assert asking.wait(20) != 0
    until(lambda: not running(server))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["copy", "a", "b"],
            "--server goes with sql, load, show, ls, rm, rebalance, ps, not with copy",
        ),
        (["sql", "SELECT 1", "--grid", "a=b"], "does not go with --server"),
        (["sql", "SELECT 1", "--threads", "2"], "does not go with --server"),
        (["load", "a"], "say --name"),
        (["load", "a", "--name", "b", "--out", "c"], "--out"),
        (["show", "a", "--no-hive"], "does not go with --server"),
    ],
)
def test_what_does_not_go_together_is_said(
    server: pg.Server, arguments: list[str], text: str
) -> None:
    assert text in run(server, *arguments, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["ls"], "say --server URI"),
        (["rm", "a"], "say --server URI"),
        (["ps", "--all"], "goes with --server only"),
        (["load", "a", "--out", "b", "--name", "c"], "goes with --server only"),
        (["load", "a"], "say --out FOLDER"),
        (["ls", "--token-file", "a"], "--token-file goes with --server"),
        (["--server", "grpc://h:1", "ls", "--client-key", "a"], "go together"),
    ],
)
def test_what_needs_a_server_is_said(arguments: list[str], text: str) -> None:
    done = subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.toml", **CALLERS)
    (tmp_path / "reader").write_text(tokens["reader"] + "\n")
    (tmp_path / "two").write_text("a b")
    with pg.Server({"t": pa.table({"a": [1]})}, tokens=tmp_path / "tokens.toml") as server:
        count = ["sql", "SELECT count(*) AS n FROM t", "--format", "csv"]
        assert "token" in run(server, *count, code=1).stderr
        from_file = run(server, "--token-file", str(tmp_path / "reader"), *count)
        assert from_file.stdout.splitlines() == ["n", "1"]
        after = [*count, "--token-file", str(tmp_path / "reader")]
        assert run(server, *after).stdout.splitlines() == ["n", "1"]
        assert run(server, *count, PARTGRID_TOKEN=tokens["reader"]).stdout == "n\n1\n"
        refused = run(server, "rm", "t", code=1, PARTGRID_TOKEN=tokens["reader"]).stderr
        assert "write" in refused
        (tmp_path / "torn").write_bytes(b"\xff\n")
        torn = run(server, "--token-file", str(tmp_path / "torn"), *count, code=1).stderr
        assert "must be UTF-8" in torn
        assert "torn" in torn
        torn = run(server, *count, code=1, PARTGRID_TOKEN="\udcff").stderr
        assert "PARTGRID_TOKEN must be UTF-8" in torn
        alone = run(server, "--token-file", str(tmp_path / "two"), *count, code=1).stderr
        assert "hold the token alone" in alone
        absent = run(server, "--token-file", str(tmp_path / "absent"), *count, code=1).stderr
        assert "hint: --token-file names a file that holds the token alone" in absent
        # Who shows one is not told to show one.
        assert "hint: show a token" in run(server, *count, code=1).stderr
        wrong = run(server, *count, code=1, PARTGRID_TOKEN="pgt_wrong").stderr
        assert "hint: see that it is a token of this server" in wrong
        assert "show a token" not in wrong
        assert tokens["reader"] not in refused + alone


def test_a_finished_load_cannot_be_ended(server: pg.Server) -> None:
    source = str(DATA / "airlines.parquet")
    run(server, "load", source, "--name", "small")
    lines = run(server, "ps", "--all").stdout.splitlines()
    loads = [line.split()[0] for line in lines if "load small" in line]
    assert "has ended already: done" in run(server, "ps", "--cancel", loads[0], code=1).stderr
    # It is told to who came too late, and no error of the server.
    assert not [each for each in status(server)["errors"] if "has ended" in each["message"]]
    server.deregister("small")


def test_nobody_there_is_said() -> None:
    command = [str(COMMAND), "--server", "grpc://127.0.0.1:1", "ls"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "no server answers at" in done.stderr) == (1, True)


def test_a_token_goes_to_another_host_over_tls_only() -> None:
    def ask(*arguments: str) -> str:
        command = [str(COMMAND), "--server", "grpc://partgrid.invalid:1", "ls", *arguments]
        environment = {**os.environ, "PARTGRID_TOKEN": "secret"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 1
        assert "secret" not in done.stderr
        return done.stderr

    refused = ask()
    assert "a token must go to another host over TLS, got grpc://partgrid.invalid:1" in refused
    assert "--insecure-token" in refused
    assert "over TLS" not in ask("--insecure-token")


def test_escape_sequences_of_a_server_do_not_reach_the_terminal(tmp_path: Path) -> None:
    steering = "\x1b[2J\x9b\u202etxt"
    escaped = "\\x1b[2J\\x9b\\u{202e}txt"
    grids = {"t": pa.table({steering: [steering], "id": [1]})}
    with pg.Server(grids, settings={"load.from": str(tmp_path)}) as server:
        pg.connect(server.uri).sql(f"CREATE VIEW \"v\u202e\" AS SELECT '{steering}' AS a")
        shown = [
            run(server, "sql", "SELECT * FROM t"),
            run(server, "sql", f'SELECT "{steering}?" FROM t', code=1),
            run(server, "show", "t"),
            run(server, "ls"),
            run(server, "rm", "v\u202e"),
            run(server, "ps", "--all"),
            run(server, "load", f"{tmp_path}/{steering}", "--name", "x", code=1),
        ]
        said = "".join(done.stdout + done.stderr for done in shown)
        assert not {"\x1b", "\x9b", "\u202e"} & set(said)
        assert escaped in shown[0].stdout
        assert escaped in shown[1].stderr
        # Programs read what is there.
        exact = run(server, "sql", "SELECT * FROM t", "--format", "csv").stdout
        assert exact.splitlines()[1] == f"{steering},1"
        exact = run(server, "sql", "SELECT * FROM t", "--format", "json").stdout
        assert json.loads(exact) == {steering: steering, "id": 1}


@pytest.mark.parametrize("far", [False, True], ids=["here", "there"])
def test_ctrl_c_leaves_nothing_of_an_output(server: pg.Server, tmp_path: Path, far: bool) -> None:
    where = ["--server", server.uri] if far else []
    rows = "SELECT value FROM generate_series(1, 9000000000000000)"
    out = tmp_path / "rows.csv"
    command = [str(COMMAND), *where, "sql", rows, "--output", str(out)]
    asking = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until(lambda: [part for part in tmp_path.iterdir() if part.stat().st_size > 0])
    asking.send_signal(signal.SIGINT)
    _, said = asking.communicate(timeout=20)
    assert (asking.returncode, said) == (130, "error: interrupted\n")
    assert list(tmp_path.iterdir()) == []
    until(lambda: not running(server))


def test_what_lists_and_completes_does_not_wait_behind_queries() -> None:
    settings = {"limits.queries": 1, "limits.waiting": 0}
    with pg.Server({"t": pa.table({"a": [1]})}, settings=settings) as server:
        pg.connect(server.uri).sql("CREATE VIEW v AS SELECT a FROM t")
        result = pg.connect(server.uri).sql(ENDLESS)

        def ask() -> None:
            with pytest.raises(pg.PartgridError):
                result.to_arrow()

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: running(server))
        assert "1 query" in run(server, "ps").stdout
        assert "v" in run(server, "ls").stdout
        assert run(server, "rm", "v").stdout == "dropped v\n"
        result.cancel()
        asking.join()


def test_the_shell_works_on_a_server(server: pg.Server, tmp_path: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.environ["PARTGRID_HISTORY"] = str(tmp_path / "history")
        os.execv(COMMAND, ["partgrid", "--server", server.uri, "sql"])

    def read(text: str, seconds: float = 20) -> str:
        seen, end = "", time.monotonic() + seconds
        while text not in seen:
            ready, _, _ = select.select([terminal], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} did not come: {seen!r}"
            seen += os.read(terminal, 65536).decode(errors="replace")
        return seen

    def ask(line: str, text: str) -> str:
        os.write(terminal, line.encode())
        return read(text)

    read("partgrid> ")
    ask("SELECT dep_del\t", "dep_delay")
    assert "rows)" in ask("FROM flights WHERE month = 13;\r", "(0 rows)")
    ask("CREATE VIEW brand_new AS SELECT 1 AS shiny;\r", "partgrid> ")
    ask("SELECT shi\t", "shiny")
    ask(" FROM brand_new;\r", "(1 row)")
    ask(".tables\r", "brand_new")
    ask(".metrics\r", "EXPLAIN ANALYZE")
    os.write(terminal, f"{ENDLESS};\r".encode())
    until(lambda: running(server))
    ask("\x03", "cancelled")
    until(lambda: not running(server))
    ask("SELECT 40 + 2 AS n;\r", "42")
    os.write(terminal, b"\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pg.connect(server.uri).sql("DROP VIEW brand_new")


def test_statements_are_piped_to_a_server(server: pg.Server) -> None:
    done = subprocess.run(
        [str(COMMAND), "--server", server.uri, "sql"],
        input="SELECT 1 AS one;\nSELECT count(*) AS n FROM flights;\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "336776" in done.stdout
