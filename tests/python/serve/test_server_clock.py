"""A server whose clocks jump: tokens go by that of the wall, what things may take and how long they are kept by the other one."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from clocks import DAY, Clock, needs_clocks
from services import (
    ENDLESS,
    act,
    asked,
    command,
    flight_sql,
    inner,
    ours,
    parsed,
    service,
    statement,
    write_tokens,
)

ONE = "SELECT 1 AS one"

pytestmark = needs_clocks


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


def test_a_token_is_good_until_its_end_by_the_clock(tmp_path: Path, clock: Clock) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds")
    path = tmp_path / "tokens.toml"
    tokens = write_tokens(path, soon={"expires": soon}, always={})
    with service("--tokens", path, **clock.environment) as one:
        connection = pg.connect(one.uri, token=tokens["soon"])
        assert connection.grids() == []
        for shift in (DAY, -DAY, DAY):
            clock.jump(shift)
            assert pg.connect(one.uri, token=tokens["always"]).grids() == []
            if shift < 0:
                assert connection.grids() == []
                continue
            with pytest.raises(pg.errors.PermissionDeniedError, match="expired"):
                connection.grids()


@pytest.mark.parametrize("shift", [DAY, -DAY])
def test_what_a_query_may_take_does_not_go_by_the_clock(clock: Clock, shift: int) -> None:
    with service("--set", "limits.query_time=1", **clock.environment) as one:
        connection = pg.connect(one.uri)
        kept = connection.sql("SELECT 1 AS one")
        begun = time.monotonic()
        stream = connection.sql(ENDLESS).stream()
        clock.jump(shift)
        with pytest.raises(pg.errors.ResourcesExhaustedError, match="1 second"):
            list(stream)
        assert 0.5 < time.monotonic() - begun < 20
        # What was kept for the client is neither gone nor kept for another day.
        assert kept.to_arrow()["one"].to_pylist() == [1]
        assert connection.sql("SELECT 2 AS two").to_arrow()["two"].to_pylist() == [2]


def test_what_nobody_asks_for_is_gone_after_a_while(tmp_path: Path) -> None:
    clock = Clock(tmp_path, "CLOCK_MONOTONIC")
    schema = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    begin = ours("BeginUpload", (1, "half"), (2, schema), (3, b"\0\3"), (4, b"\0\1"))
    prepare = flight_sql("ActionCreatePreparedStatementRequest", (1, ONE))
    with service(**clock.environment) as one:
        with fl.connect(one.uri) as client:
            [ticket] = [end.ticket for end in client.get_flight_info(statement(ONE)).endpoints]
            [upload] = act(client, "BeginUpload", begin)
            [prepared] = act(client, "CreatePreparedStatement", prepare)
        for minutes in (0, 4, 8):
            # Whoever asks keeps it.
            clock.jump(60 * minutes)
            with fl.connect(one.uri) as client:
                assert client.do_get(ticket).read_all()["one"].to_pylist() == [1]
        clock.jump(60 * 14)
        with fl.connect(one.uri) as client:
            with pytest.raises(pa.ArrowKeyError, match="no such ticket"):
                client.do_get(ticket).read_all()
            with pytest.raises(pa.ArrowKeyError, match="no such upload"):
                act(client, "CommitUpload", ours("Upload", (1, parsed(upload)[1][0])))
            handle = inner(prepared)[1][0]
            again = command("CommandPreparedStatementQuery", (1, handle))
            assert asked(client, again)["one"].to_pylist() == [1]
        clock.jump(60 * 90)
        with (
            fl.connect(one.uri) as client,
            pytest.raises(pa.ArrowKeyError, match="no such prepared statement"),
        ):
            asked(client, again)
