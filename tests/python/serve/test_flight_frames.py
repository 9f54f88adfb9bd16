"""Frames of other libraries over a server, through ADBC: DuckDB reads its answers as they come, Polars by connection and by URI, ibis by its SQL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
import trustme

import partgrid as pg
from services import running, until

COUNT = "SELECT origin, count(*) AS n FROM flights GROUP BY origin ORDER BY origin"


COUNTED = {"origin": ["EWR", "JFK", "LGA"], "n": [120835, 111279, 104662]}


@pytest.fixture(scope="module")
def server(flights: pg.Grid) -> Iterator[pg.Server]:
    with pg.Server({"flights": flights}) as server:
        yield server


def test_duckdb_queries_an_answer_as_it_comes(cursor: Any) -> None:
    cursor.execute("SELECT carrier, dep_delay FROM flights WHERE month = 7")
    reader = cursor.fetch_record_batch()
    assert reader.schema.names == ["carrier", "dep_delay"]
    found = duckdb.sql("SELECT count(*), sum(dep_delay) FROM reader").fetchall()
    cursor.execute("SELECT count(*), sum(dep_delay) FROM flights WHERE month = 7")
    assert found == cursor.fetchall()
    assert found[0][0] == 29425


def test_duckdb_joins_an_answer_with_tables_of_its_own(cursor: Any) -> None:
    own = duckdb.connect()
    own.execute(
        "CREATE TABLE names AS SELECT * FROM (VALUES ('JFK', 'Kennedy')) AS v(origin, name)"
    )
    cursor.execute(COUNT)
    own.register("remote", cursor.fetch_record_batch())
    assert own.sql("SELECT name, n FROM remote JOIN names USING (origin)").fetchall() == [
        ("Kennedy", 111279)
    ]
    cursor.execute(COUNT)
    answer = cursor.fetch_record_batch()
    assert answer.schema.names == ["origin", "n"]
    own.execute("CREATE TABLE local AS FROM answer")
    assert own.sql("SELECT sum(n) FROM local").fetchall() == [(336776,)]


def test_a_reader_that_duckdb_does_not_finish_ends_its_query(
    server: pg.Server, cursor: Any
) -> None:
    cursor.execute("SELECT value AS n FROM generate_series(1, 100000000)")
    reader = cursor.fetch_record_batch()
    assert reader.schema.names == ["n"]
    assert duckdb.sql("SELECT n FROM reader LIMIT 3").fetchall() == [(1,), (2,), (3,)]
    reader.close()
    until(lambda: not running(server))
    cursor.execute("SELECT 1")
    assert cursor.fetchall() == [(1,)]


def test_what_duckdb_gives_becomes_a_grid(server: pg.Server, cursor: Any, name: str) -> None:
    rows = duckdb.sql("SELECT range AS n, 'row ' || range AS t FROM range(100000)")
    assert cursor.adbc_ingest(name, rows.to_arrow_reader(1000), mode="create") == 100_000
    assert server.grid(name).shape == (100_000, 2)
    cursor.execute(f"SELECT sum(n), max(t) FROM {name}")
    assert cursor.fetchall() == [(99_999 * 50_000, "row 99999")]


def test_polars_reads_through_a_connection_and_through_a_cursor(
    connection: Any, cursor: Any
) -> None:
    for by in (connection, cursor):
        assert pl.read_database(COUNT, by).to_dict(as_series=False) == COUNTED
    late = "SELECT count(*) AS n FROM flights WHERE dep_delay > ?"
    found = pl.read_database(late, connection, execute_options={"parameters": (60,)})
    assert found.to_dict(as_series=False) == {"n": [26581]}
    parts = pl.read_database(
        "SELECT month FROM flights", connection, iter_batches=True, batch_size=10_000
    )
    assert sum(part.height for part in parts) == 336_776


def test_polars_reads_by_uri_from_a_server_with_a_certificate(
    flights: pg.Grid, tmp_path: Path
) -> None:
    # The URI names the driver, which then takes TLS for granted and asks the system whom to trust.
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    made = authority.issue_cert("127.0.0.1")
    made.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    made.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    tls = (tmp_path / "certificate.pem", tmp_path / "key.pem")
    code = (
        "import sys, polars as pl\n"
        "found = pl.read_database_uri(sys.argv[1], sys.argv[2], engine='adbc')\n"
        "print(found.to_dict(as_series=False))"
    )
    with pg.Server({"flights": flights}, tls=tls) as server:
        uri = "flightsql://" + server.uri.split("://")[1]
        child = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, COUNT, uri],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "SSL_CERT_FILE": str(tmp_path / "ca.pem")},
        )
    assert (child.returncode, child.stdout) == (0, f"{COUNTED}\n"), child.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*infer_string")
def test_ibis_works_on_answers_and_compiles_for_the_server(cursor: Any) -> None:
    ibis = pytest.importorskip("ibis")
    cursor.execute(COUNT)
    table = ibis.memtable(cursor.fetch_arrow_table())
    assert table.filter(table.n > 105_000).n.sum().execute() == 120835 + 111279
    own = duckdb.connect()
    cursor.execute(COUNT)
    own.register("remote", cursor.fetch_record_batch())
    assert ibis.duckdb.from_connection(own).table("remote").n.sum().execute() == 336_776
    remote = ibis.table({"origin": "string", "month": "int64"}, name="flights")
    query = remote.filter(remote.month == 7).group_by("origin").agg(n=lambda part: part.count())
    cursor.execute(str(ibis.to_sql(query.order_by("origin"), dialect="datafusion")))
    found: pa.Table = cursor.fetch_arrow_table()
    cursor.execute(COUNT.replace("GROUP", "WHERE month = 7 GROUP"))
    assert found == cursor.fetch_arrow_table()
