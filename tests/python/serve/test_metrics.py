"""What Prometheus is told: times, errors, connections, refusals, bytes, loads."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from services import ENDLESS, http_answer, metrics, until, write_tokens

NUMBERS = pa.table({"n": list(range(1000))})


def count(server: Any, name: str, **more: str) -> float:
    return metrics(server)[labelled(name, **more)]


def labelled(name: str, **labels: str) -> str:
    pairs = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{pairs}}}" if pairs else name


def test_what_has_not_happened_yet_is_there_as_zero() -> None:
    with pg.Server() as server:
        found = metrics(server)
    for state in ("done", "failed", "cancelled"):
        assert found[labelled("partgrid_loads_total", state=state)] == 0
        assert found[labelled("partgrid_query_duration_seconds_count", state=state)] == 0
    for reason in ("missing", "expired", "unknown"):
        assert found[labelled("partgrid_refused_logins_total", reason=reason)] == 0
    for name in (
        "uploaded_bytes_total",
        "loads_running",
        "parts_held",
        "do_get_duration_seconds_count",
    ):
        assert found[f"partgrid_{name}"] == 0


def test_queries_and_answers_are_timed() -> None:
    with pg.Server({"t": NUMBERS}, settings={"limits.query_time": 0.5}) as server:
        connection = pg.connect(server.uri)
        for _ in range(3):
            assert connection.sql("SELECT sum(n) AS s FROM t").to_arrow().num_rows == 1
        times = "partgrid_query_duration_seconds"
        until(lambda: count(server, f"{times}_count", state="done") >= 3)
        found = metrics(server)
        assert 0 < found[labelled(f"{times}_sum", state="done")] < 30
        ends = {
            float(name.split('le="')[1].split('"')[0]): value
            for name, value in found.items()
            if name.startswith(f"{times}_bucket") and 'state="done"' in name
        }
        assert {0.001, 120.0, float("inf")} <= ends.keys()
        assert [ends[end] for end in sorted(ends)] == sorted(ends.values())
        assert ends[float("inf")] == found[labelled(f"{times}_count", state="done")]
        assert found["partgrid_do_get_duration_seconds_count"] >= 3
        assert found["partgrid_do_get_duration_seconds_sum"] > 0
        with pytest.raises(pg.errors.ResourcesExhaustedError):
            connection.sql(ENDLESS).to_arrow()
        until(lambda: count(server, f"{times}_count", state="failed") == 1)
        assert count(server, f"{times}_sum", state="failed") >= 0.4


def test_errors_are_counted_by_kind() -> None:
    with pg.Server({"t": NUMBERS}) as server:
        connection = pg.connect(server.uri)
        connection.sql("SELECT n FROM t").to_arrow()
        kinds = [name for name in metrics(server) if name.startswith("partgrid_errors_total")]
        assert kinds == []
        for turn in range(1, 3):
            with pytest.raises(pg.errors.QueryError):
                connection.sql("SELECT absent FROM t").to_arrow()
            assert count(server, "partgrid_errors_total", kind="query") >= turn
        assert "absent" not in http_answer(server.http_uri, "/metrics")[2].decode()


def test_refused_logins_are_counted_by_reason(tmp_path: Path) -> None:
    late = {"scope": "read", "expires": "2020-01-01T00:00:00Z"}
    tokens = write_tokens(tmp_path / "t", good={"scope": "admin"}, late=late)
    with pg.Server(tokens=tmp_path / "t") as server:

        def refused(reason: str) -> float:
            found = metrics(server, tokens["good"])
            return found[labelled("partgrid_refused_logins_total", reason=reason)]

        for reason, token in (("missing", None), ("unknown", "wrong"), ("expired", tokens["late"])):
            assert refused(reason) == 0
            assert http_answer(server.http_uri, "/api/status", token)[0] == 401
            assert refused(reason) == 1
            with pytest.raises(pg.errors.PartgridError):
                pg.connect(server.uri, token=token).grids()
            assert refused(reason) >= 2


def test_connections_are_counted_while_they_are_open() -> None:
    with pg.Server({"t": NUMBERS}) as server:

        def connections(port: str) -> float:
            return count(server, "partgrid_connections", port=port)

        assert connections("flight") == 0
        # That of whoever asks.
        assert connections("http") >= 1
        host, port = server.uri.removeprefix("grpc://").split(":")
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            until(lambda: connections("flight") == 3)
        until(lambda: connections("flight") == 0)


def test_bytes_that_clients_send_are_counted() -> None:
    with pg.Server() as server:
        connection = pg.connect(server.uri)
        connection.upload(NUMBERS, "t")
        once = count(server, "partgrid_uploaded_bytes_total")
        assert 8000 <= once < 16_000
        connection.upload(NUMBERS, "u")
        assert count(server, "partgrid_uploaded_bytes_total") == 2 * once


def test_loads_are_counted_by_how_they_end(tmp_path: Path) -> None:
    pq.write_table(NUMBERS, tmp_path / "rows.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with pg.Server(settings={"load.from": str(tmp_path)}) as server:
        connection = pg.connect(server.uri)
        connection.load_parquet(tmp_path / "rows.parquet", "t", progress=False)
        with pytest.raises(pg.errors.PartgridError):
            connection.load_parquet(tmp_path / "broken.parquet", "u", progress=False)
        until(lambda: count(server, "partgrid_loads_total", state="failed") == 1)
        assert count(server, "partgrid_loads_total", state="done") == 1
        assert count(server, "partgrid_loads_running") == 0
