"""What lies in buffers beside the rows of a table leaves the server in no answer: values below nulls, rows that a condition left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

import partgrid as pg
from hostile import PREFIX
from services import proto, query_request, tickets, write_tokens

ROWS = 40
SECRET = "SECRET that nobody else may read"
TEXTS = [SECRET if row % 2 else "what all may read, to its end" for row in range(ROWS)]
COLUMNS: dict[str, Any] = {
    "text": pa.array(TEXTS),
    "large": pa.array(TEXTS, pa.large_string()),
    "bytes": pa.array(TEXTS, pa.binary()),
    "fixed": pa.array([text.ljust(32).encode() for text in TEXTS], pa.binary(32)),
    "view": pa.array(TEXTS, pa.string_view()),
    "number": pa.array([int.from_bytes(text[:6].encode(), "little") for text in TEXTS]),
    "list": pa.array([[text] for text in TEXTS]),
    "list_view": pa.array([[text] for text in TEXTS], pa.list_view(pa.string())),
    "struct": pa.array([{"x": text} for text in TEXTS]),
    "structs": pa.array([{"x": {"y": [text]}} for text in TEXTS]),
}
# Tables that an administrator makes of it for others.
PARTS = {
    "rows": 'SELECT id, "{0}" AS x FROM whole WHERE id % 2 = 0',
    "masked": 'SELECT id, CASE WHEN id % 2 = 0 THEN "{0}" END AS x FROM whole',
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[pg.Server, str]]:
    """A server with the whole table, parts of it, and a token that opens the parts alone."""
    path = tmp_path_factory.mktemp("rows") / "tokens.toml"
    tokens = write_tokens(path, admin={"scope": "admin"}, few={"grids": ["open_*"]})
    with pg.Server({"whole": pa.table({"id": range(ROWS), **COLUMNS})}, tokens=path) as server:
        admin = pg.connect(server.uri, token=tokens["admin"])
        for column in COLUMNS:
            for name, part in PARTS.items():
                admin.sql(f"CREATE TABLE open_{name}_{column} AS {part.format(column)}")
        yield server, tokens["few"]


@pytest.mark.parametrize("way", ["sql", "tiles"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_table_made_of_a_part_of_another_has_nothing_of_the_rest(
    server: tuple[pg.Server, str], column: str, part: str, way: str
) -> None:
    one, token = server
    name = f"open_{part}_{column}"
    request = query_request(f"SELECT * FROM {name}") if way == "sql" else proto((1, 1), (3, name))
    shown = [("authorization", f"Bearer {token}")]
    with grpc.insecure_channel(one.uri.removeprefix("grpc://")) as channel:
        info = channel.unary_unary(PREFIX + "GetFlightInfo")(request, metadata=shown, timeout=10)
        get = channel.unary_stream(PREFIX + "DoGet")
        sent = b"".join(
            message
            for ticket in tickets(info)
            for message in get(ticket, metadata=shown, timeout=10)
        )
    assert b"SECRET" not in sent
    assert b"what a" in sent
    # The rows are those of the part, and as before.
    found = pg.connect(one.uri, token=token).sql(f"SELECT id, x FROM {name} ORDER BY id").to_arrow()
    values = COLUMNS[column].to_pylist()
    kept = {row: value for row, value in enumerate(values) if row % 2 == 0}
    rows = range(0, ROWS, 2) if part == "rows" else range(ROWS)
    assert found.to_pylist() == [{"id": row, "x": kept.get(row)} for row in rows]
    assert found.schema.field("x").type == COLUMNS[column].type
