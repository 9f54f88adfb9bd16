"""Statements whose rows are gone since they were planned, while their grid has others by now: they are planned once more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import partgrid as pg
from clusters import (
    LOST,
    PART_ROWS,
    QUERY,
    Member,
    answer,
    cluster,
    copies,
    expected,
    ids,
    refresh,
    until,
    write_list,
)

SUM = "SELECT sum(x) AS x FROM sales WHERE g < $1"


@contextmanager
def two_parts(folder: Path) -> Iterator[list[Member]]:
    """Two members, each with its part of one grid."""
    with cluster(folder, 2) as members:
        for number, member in enumerate(members):
            member.contribute(number, 2)
        refresh(members)
        yield members


def test_a_part_that_was_contributed_anew_is_read_by_statements_of_before(tmp_path: Path) -> None:
    with two_parts(tmp_path) as members:
        connection = pg.connect(members[1].uri)
        planned = [connection.sql(QUERY) for _ in range(2)]
        valued = [connection.sql(SUM, [7]) for _ in range(2)]
        # Both ways: before this member has looked, and after.
        for shift, is_looked_at in [(1000, False), (2000, True)]:
            members[0].contribute(0, 2, shift=shift)
            if is_looked_at:
                refresh(members)
            wanted = {**expected(0, 1), "x": both(shift)}
            assert planned.pop().to_arrow().to_pydict() == wanted
            assert valued.pop().to_arrow().to_pydict() == {"x": [sum(wanted["x"])]}
            assert answer(members[1].uri) == wanted


def test_a_statement_over_a_copy_that_went_reads_the_original_that_came(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        for number, member in enumerate(members):
            member.contribute(number, 3, replicas=2)
        until(lambda: copies(members), lambda seen: seen == [0, 1, 2])
        refresh(members)
        [holder] = [member for member in members[1:] if 0 in copies([member])]
        [asked] = [member for member in members[1:] if member is not holder]
        members[0].kill()
        wanted = expected(0, 1, 2)
        assert answer(asked.uri) == wanted
        planned = pg.connect(asked.uri).sql(QUERY)
        old = ids(holder)
        path = tmp_path / "members"
        members[0] = Member(path)
        write_list(path, members)
        members[0].contribute(0, 3, replicas=2)
        # The copy of the one that is gone is no use to anybody any more.
        until(lambda: set(old) <= set(ids(holder)), lambda has_all: not has_all)
        assert planned.to_arrow().to_pydict() == wanted


def test_other_columns_are_no_answer_to_a_statement_that_was_planned(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as members:
        members[0].contribute(0, 1)
        refresh(members)
        connection = pg.connect(members[1].uri)
        planned = [connection.sql(text) for text in ("SELECT * FROM sales", "SELECT g FROM sales")]
        wider = "pg.from_arrow(part(0).to_arrow().append_column('y', pa.array(range(600))))"
        assert members[0].ask(f"server.contribute('sales', {wider}, 0, 1)") is None
        with pytest.raises(LOST, match="ask the statement again"):
            planned[0].to_arrow()
        # Of columns that are there as before it has the rows.
        assert planned[1].to_arrow().num_rows == 600


def test_a_member_that_was_started_again_elsewhere_is_found_by_the_statement_that_misses_it(
    tmp_path: Path,
) -> None:
    with two_parts(tmp_path) as members:
        planned = pg.connect(members[0].uri).sql(QUERY)
        members[1].kill()
        path = tmp_path / "members"
        members[1] = Member(path)
        write_list(path, members)
        members[1].contribute(1, 2)
        assert planned.to_arrow().to_pydict() == expected(0, 1)


def test_who_lost_rows_after_the_first_ones_reads_what_there_is_when_it_asks_again(
    tmp_path: Path,
) -> None:
    with two_parts(tmp_path) as members:
        connection = pg.connect(members[0].uri)
        for shift in range(1, 6):
            members[1].contribute(1, 2, shift=shift)
            # Rows of its own part come first, before anything is missed.
            answers = (asked(connection, "SELECT x FROM sales") for _ in range(2))
            rows = next(rows for rows in answers if rows is not None)
            assert rows.num_rows == 2 * PART_ROWS
            assert max(rows["x"].to_pylist()) == 2 * PART_ROWS - 1 + shift


def asked(connection: pg.Connection, text: str) -> pa.Table | None:
    """The answer, or nothing where rows were lost."""
    try:
        return connection.sql(text).to_arrow()
    except LOST:
        return None


def both(shift: int) -> list[int]:
    """The sums of `QUERY` where the first part has other rows."""
    first, second = expected(0, shift=shift)["x"], expected(1)["x"]
    return [one + other for one, other in zip(first, second, strict=True)]
