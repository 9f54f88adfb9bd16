"""Columns of 16 bytes beside UUIDs and texts of them."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg

ONE, TWO = uuid.UUID(int=5), uuid.UUID("8d6b0fcc-35b5-4c3c-9a0b-1f2d3c4b5a69")
STORED = pa.array([ONE.bytes, TWO.bytes, None], pa.binary(16))
COLUMNS = [STORED, pa.ExtensionArray.from_storage(pa.uuid(), STORED)]


def found(text: str, column: Any, *arguments: Any) -> list[int]:
    table = pa.table({"n": [1, 2, 3], "u": column, "t": [str(ONE), str(TWO).upper(), None]})
    rows = pg.from_arrow(table).sql(f"SELECT n FROM self WHERE {text} ORDER BY n", *arguments)
    return list(rows.to_arrow()["n"].to_pylist())


@pytest.mark.parametrize("column", COLUMNS, ids=["bytes", "uuid"])
def test_uuids_are_compared_as_bytes(column: Any) -> None:
    assert found("u = $1", column, [TWO]) == [2]
    assert found("u = $1", column, [TWO.bytes]) == [2]
    assert found("u = $id", column, {"id": ONE}) == [1]
    assert found(f"u = '{TWO}'", column) == [2]
    assert found(f"'{TWO.hex.upper()}' <> u", column) == [1]
    assert found(f"u > '{ONE}'", column) == [2]
    assert found(f"u IN ('{ONE}', '{TWO}')", column) == [1, 2]
    assert found("u = t", column) == [1, 2]


def test_a_text_that_is_none_is_said() -> None:
    with pytest.raises(pg.errors.QueryError, match="the text 'x' is no UUID") as caught:
        found("u = 'x'", STORED)
    assert "hint: write '8d6b0fcc-" in str(caught.value)
