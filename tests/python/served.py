"""Servers that several test files need, and rows for catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

import partgrid as pg
from services import command, proto, statement, write_tokens

CALLERS: dict[str, dict[str, Any]] = {
    "admin": {"scope": "admin"},
    "writer": {"scope": "write"},
    "reader": {"scope": "read"},
    "other": {"scope": "read"},
    "few": {"scope": "write", "grids": ["open_*", "mine"]},
}


def tokens_of(folder: Path, **more: dict[str, Any]) -> dict[str, str]:
    """Tokens by name, whose entries are in a file of the folder."""
    return write_tokens(folder / "tokens.toml", **CALLERS, **more)


@contextmanager
def guarded(folder: Path, tokens: dict[str, str]) -> Iterator[pg.Server]:
    """A server with tokens and a catalog: a grid that is secret, one that is open, a view of the secret one, and a lazy one."""
    lazy = folder / "lazy.parquet"
    pg.from_arrow(pa.table({"a": [1, 2, 3]})).write_parquet(lazy)
    grids: dict[str, Any] = {
        "secret": pa.table({"hidden": ["gold"]}),
        "open_1": pa.table({"a": [1, 2, 3]}),
        "lost": pg.read_parquet(lazy, lazy=True),
    }
    with pg.Server(grids, tokens=folder / "tokens.toml", catalog=folder / "catalog") as server:
        admin = pg.connect(server.uri, token=tokens["admin"])
        admin.sql("CREATE VIEW open_v AS SELECT * FROM secret")
        yield server


@contextmanager
def with_few(flights: pg.Grid) -> Iterator[pg.Server]:
    """A server with the flights, some small grids, one of an odd name, and a view."""
    grids: dict[str, Any] = {
        "flights": flights,
        "few_1": pa.table({"a": [1, 2]}),
        "few_2": pa.table({"b": ["x"], "c": [1.5]}),
        "100%": pa.table({"a": [1]}),
    }
    with pg.Server(grids) as server:
        pg.connect(server.uri).sql("CREATE VIEW few_v AS SELECT b FROM few_2").to_arrow()
        yield server


def numbers(seed: int, rows: int = 1000) -> pa.Table:
    """Rows that no other seed gives."""
    values = np.random.default_rng(seed).integers(0, 2**60, rows)
    return pa.table({"n": values, "t": [f"row {value}" for value in values[:rows]]})


def ingest(client: fl.FlightClient, name: str, rows: pa.Table, if_there: int) -> None:
    """Replaces (3) or appends (2) by DoPut."""
    made = command("CommandStatementIngest", (1, proto((1, 1), (2, if_there))), (2, name))
    writer, reader = client.do_put(made, rows.schema)
    writer.write_table(rows, max_chunksize=200)
    writer.done_writing()
    answer = reader.read()
    writer.close()
    assert answer is not None


def run(client: fl.FlightClient, text: str) -> None:
    """Has a statement take effect."""
    list(client.get_flight_info(statement(text)).endpoints)
