"""What queries spill has a limit: of a session, and of a server for all who ask."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import partgrid as pg
from services import running, service, status, until, write_tokens

SORT = "SELECT value, value * 7919 % 1000003 AS k FROM generate_series(1, {}) ORDER BY k, value"


FULL = "the files that queries spill to may have 1.0 MB together, there is no room for "


def test_a_session_spills_no_more_than_it_may(flights: pg.Grid, tmp_path: Path) -> None:
    query = "SELECT tailnum, dep_delay FROM f ORDER BY tailnum, dep_delay, arr_delay, dest"
    answers = []
    for limit in ("1MB", "1GB"):
        session = pg.Session(threads=2, memory_limit="25MB", spill_to=tmp_path, spill_limit=limit)
        session.register("f", flights)
        try:
            answers.append(pa.Table.from_batches(session.sql(query).stream()))
        except pg.errors.ResourcesExhaustedError as error:
            said = str(error)
        assert session.sql("SELECT count(*) AS n FROM f").to_arrow()["n"].to_pylist() == [336776]
        until(lambda session=session: session.memory_bytes == 0)
    assert FULL in said
    assert "\nhint: raise spill_limit or memory_limit, " in said
    free = pg.Session(threads=2)
    free.register("f", flights)
    assert answers == [free.sql(query).to_arrow()]


def test_a_limit_must_be_a_size() -> None:
    for wrong, text in ((0, "at least 1, got 0"), ("1 XB", "must read like 512MB")):
        with pytest.raises(pg.errors.InvalidArgumentError, match=f"spill_limit .*{text}"):
            pg.Session(spill_limit=wrong)


def test_a_server_spills_no_more_than_it_may_whoever_asks(tmp_path: Path) -> None:
    tokens = write_tokens(
        tmp_path / "t",
        all={"scope": "admin"},
        few={"scope": "write", "grids": ["few_*"]},
    )
    admin = tokens["all"]
    words = ["--tokens", tmp_path / "t"]
    for each in ("limits.query_memory=48MB", "limits.spill=1MB"):
        words += ["--set", each]
    with service(*words) as one:
        for token in tokens.values():
            connection = pg.connect(one.uri, token=token)
            with pytest.raises(pg.errors.ResourcesExhaustedError, match=FULL) as caught:
                connection.sql(SORT.format(4_000_000)).to_arrow()
            said = "hint: ask the administrator to raise limits.spill, raise memory_limit, or ask for fewer"
            assert said in str(caught.value)
            with pytest.raises(pg.errors.ResourcesExhaustedError, match=FULL):
                connection.sql(f"CREATE TABLE few_never AS {SORT.format(4_000_000)}")
            assert connection.sql("SELECT 1 AS a").to_arrow()["a"].to_pylist() == [1]
            assert connection.grids() == []
        memory = until(
            lambda: (found := status(one, admin)["memory"])["spilled_bytes"] == 0 and found
        )
        assert memory["spill_limit_bytes"] == 1_000_000


def test_what_somebody_spills_counts_for_all_until_it_is_read(tmp_path: Path) -> None:
    tokens = write_tokens(
        tmp_path / "t",
        all={"scope": "admin"},
        few={"scope": "read", "grids": ["few_*"]},
    )
    admin = tokens["all"]
    words = ["--tokens", tmp_path / "t", "--set", "limits.query_memory=48MB"]
    with service(*words) as one:
        assert status(one, admin)["memory"]["spill_limit_bytes"] == 4 << 30
        connection = pg.connect(one.uri, token=tokens["few"])
        rows = connection.sql(SORT.format(4_000_000)).stream()
        next(rows)
        # Most of it waits in files: the reader has a few megabytes on the way.
        assert status(one, admin)["memory"]["spilled_bytes"] > 1_000_000
        rows.close()
        until(lambda: not running(one, admin))
        until(lambda: status(one, admin)["memory"]["spilled_bytes"] == 0)
