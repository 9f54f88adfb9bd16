"""A session and DuckDB over the same tables, and columns that both know."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa

import partgrid as pg
from answers_alike import rows


@dataclass
class Both:
    """A session, and DuckDB as its peer."""

    session: pg.Session
    peer: duckdb.DuckDBPyConnection

    @classmethod
    def over(cls, tables: dict[str, pa.Table], threads: int) -> Both:
        """Both over these tables, of several tiles."""
        both = cls(pg.Session(threads=threads), duckdb.connect())
        for name, table in tables.items():
            batches = table.to_batches(max_chunksize=7_000)
            grid = pg.from_arrow(pa.Table.from_batches(batches, table.schema))
            both.session.register(name, grid)
            both.peer.register(name, table)
        return both

    def agree_in_any_order(self, text: str) -> pg.Result:
        """Both have the same rows."""
        query = self.session.sql(text)
        found, wanted = query.to_arrow(), self.peer.sql(text).to_arrow_table()
        assert found.column_names == wanted.column_names
        assert rows(found, ordered=False) == rows(wanted, ordered=False)
        return query

    def agree(self, text: str, floats: tuple[str, ...] = (), rtol: float = 1e-9) -> pg.Result:
        """Both say the same, some columns of floats up to the order in which they are added."""
        query = self.session.sql(text)
        found = query.to_arrow()
        wanted = self.peer.sql(text).to_arrow_table()
        assert found.column_names == wanted.column_names
        for name in wanted.column_names:
            one, other = found[name].to_pylist(), wanted[name].to_pylist()
            if name in floats:
                np.testing.assert_allclose(
                    np.array(one, float), np.array(other, float), rtol=rtol, err_msg=name
                )
            else:
                assert one == other, name
        return query


def with_nulls(random: np.random.Generator, values: pa.Array) -> pa.Array:
    """The values, a fifth of which are null."""
    return pa.array(values.to_pylist(), values.type, mask=random.random(len(values)) < 0.2)


def columns(random: np.random.Generator, num_rows: int) -> dict[str, pa.Array]:
    """Whole numbers `i`, floats `x`, decimals `d`, texts `s` and days `m` with nulls, and truth values `b`."""
    numbers = random.integers(-1_000, 1_000, num_rows)
    begin = datetime.date(2013, 1, 1)
    decimals = [Decimal(int(number)) / 4 for number in numbers]
    values = {
        "i": pa.array(numbers),
        "x": pa.array(numbers / 8),
        "d": pa.array(decimals, pa.decimal128(12, 2)),
        "s": pa.array([f"{number:05}" for number in numbers]),
        "m": pa.array([begin + datetime.timedelta(int(number)) for number in numbers]),
    }
    some = {name: with_nulls(random, column) for name, column in values.items()}
    return {**some, "b": pa.array(numbers % 3 == 0)}
