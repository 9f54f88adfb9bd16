"""Tables with very many columns: `SELECT *` with conditions, orders and limits is that of tables with few."""

from __future__ import annotations

import pyarrow as pa
import pytest

import partgrid as pg
from partgrid.errors import QueryError

COLUMNS = 400


@pytest.fixture(name="session", scope="module")
def _session() -> pg.Session:
    columns = {f"c{place}": [3, 1, None, 2] for place in range(COLUMNS)} | {"Mixed": [1, 2, 3, 4]}
    session = pg.Session()
    session.register("wide", pg.from_arrow(pa.table(columns)))
    session.register(
        "few", pg.from_arrow(pa.table({"c1": columns["c1"], "Mixed": columns["Mixed"]}))
    )
    return session


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {}",
        "FROM {}",
        "SELECT * FROM {} WHERE c1 > 1",
        "SELECT * FROM {} WHERE c1 IN (SELECT max(c1) FROM few)",
        "SELECT * FROM {} ORDER BY c1",
        "SELECT * FROM {} ORDER BY c1 DESC NULLS LAST, {}.c1 LIMIT 2",
        'SELECT * FROM {} WHERE c1 > 0 ORDER BY "Mixed" DESC LIMIT 2 OFFSET 1',
        "SELECT * FROM {} ORDER BY c1 + 1",
        "SELECT * FROM {} LIMIT 3",
        "SELECT * FROM {} OFFSET 2",
        "SELECT DISTINCT * FROM {} ORDER BY c1",
        "SELECT * FROM {} AS a ORDER BY a.c1",
        "SELECT * FROM (SELECT * FROM {} WHERE c1 > 1) AS a ORDER BY c1",
        "WITH a AS (SELECT * FROM {}) SELECT * FROM a ORDER BY c1 LIMIT 2",
        "SELECT *, c1 + 1 AS more FROM {} ORDER BY more",
    ],
)
def test_all_columns(session: pg.Session, query: str) -> None:
    table = session.sql(query.replace("{}", "wide")).to_arrow()
    few = session.sql(query.replace("{}", "few")).to_arrow()
    more = [name for name in few.column_names if name == "more"]
    assert table.column_names == [f"c{place}" for place in range(COLUMNS)] + ["Mixed"] + more
    assert table.select(few.column_names).to_pylist() == few.to_pylist()
    assert table["c399"].to_pylist() == few["c1"].to_pylist()


def test_the_schema_and_a_view(session: pg.Session) -> None:
    assert session.sql("SELECT * FROM wide").schema.names[-2:] == ["c399", "Mixed"]
    session.sql("CREATE OR REPLACE VIEW v AS SELECT * FROM wide WHERE c1 = 2")
    assert session.sql('SELECT c7, "Mixed" FROM v').to_arrow().to_pylist() == [
        {"c7": 2, "Mixed": 4}
    ]
    assert session.sql("SELECT * FROM v").to_arrow().num_columns == COLUMNS + 1
    told = session.sql("DESCRIBE SELECT * FROM wide").to_arrow()
    assert told.num_rows == COLUMNS + 1


def test_what_is_wrong_is_said_as_ever(session: pg.Session) -> None:
    with pytest.raises(QueryError, match="no column `d1`") as told:
        session.sql("SELECT * FROM wide WHERE d1 = 1")
    assert "__all" not in str(told.value)
    with pytest.raises(QueryError, match="no column `__all_columns`"):
        session.sql("SELECT * FROM wide ORDER BY __all_columns")
