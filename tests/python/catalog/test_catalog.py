"""Grids that outlive the process: what was acknowledged is there after any death, bit for bit; what is damaged is named.

`PARTGRID_CATALOG_KILLS` says how often a server is killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import partgrid as pg
from conftest import DATA
from served import ingest, numbers, run
from services import Service, asked, service, until, write_tokens
from stores import KEYS, s3_client, s3_server
from type_samples import samples


def held(server: Any) -> dict[str, pa.Table]:
    connection = pg.connect(server.uri)
    return {name: connection.grid(name).to_arrow() for name in connection.grids()}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A catalog with a grid of two tiles, and one that was dropped."""
    folder = tmp_path / "catalog"
    with service("--catalog", folder) as one:
        connection = pg.connect(one.uri)
        parts = [numbers(seed).to_batches()[0] for seed in (1, 2)]
        connection.upload(pg.from_arrow(pa.Table.from_batches(parts)), "g")
        connection.upload(numbers(3), "dropped")
        connection.sql("DROP TABLE dropped").to_arrow()
    return folder


def test_grids_come_back_as_they_were(kept: Path) -> None:
    with service("--catalog", kept) as one:
        assert list(held(one)) == ["g"]
        found = pg.connect(one.uri).grid("g")
        assert found.cuts == ((0, 1000, 2000), (0, 2))
        assert found.to_arrow() == pa.concat_tables([numbers(1), numbers(2)])
        with fl.connect(one.uri) as client:
            ingest(client, "g", numbers(4), 2)
            run(client, "CREATE TABLE more AS SELECT sum(n % 1000) AS s FROM g")
            assert asked(client, "SELECT count(*) AS n FROM g")["n"].to_pylist() == [3000]
    with service("--catalog", kept) as one:
        assert held(one)["g"] == pa.concat_tables([numbers(1), numbers(2), numbers(4)])
        assert sorted(held(one)) == ["g", "more"]


def test_every_type_is_kept(tmp_path: Path) -> None:
    table = pa.table(samples()).replace_schema_metadata({"of": "the schema"})
    with service("--catalog", tmp_path) as one, fl.connect(one.uri) as client:
        ingest(client, "types", table, 3)
    with service("--catalog", tmp_path) as one, fl.connect(one.uri) as client:
        found = asked(client, fl.FlightDescriptor.for_path("types"))
    found.validate(full=True)
    assert found.schema.equals(table.schema, check_metadata=True)
    for name in table.column_names:
        assert found[name].to_pylist() == table[name].to_pylist(), name


def test_a_folder_is_of_one_server_until_that_stops(kept: Path) -> None:
    with pg.Server(catalog=kept) as server:
        with pytest.raises(pg.errors.ResourcesExhaustedError, match="another process has the"):
            pg.Server(catalog=kept)
        code, said = Service("--catalog", kept).ended()
        assert (code, "another process has the catalog" in said) == (1, True)
        assert server.tables == ["g"]
    # The server that was stopped is still known here by its name.
    with pg.Server(catalog=f"file://{kept}") as again:
        assert again.tables == ["g"]
        assert again.grid("g").to_arrow() == pa.concat_tables([numbers(1), numbers(2)])


def test_a_table_that_a_grid_of_the_start_hides_is_named(kept: Path, tmp_path: Path) -> None:
    pg.from_arrow(numbers(9)).write_parquet(tmp_path / "other")
    with service("--catalog", kept, "--grid", f"g={tmp_path / 'other'}") as one:
        until(lambda: any(line.startswith("warning: ") for line in one.said))
        [line] = [line for line in one.said if line.startswith("warning: ")]
        assert 'the grid "g" that the server was started with hides the table "g" of' in line
        assert f"{kept}, which stays there unseen: give the grid another name" in line
        assert pg.connect(one.uri).grid("g").shape[0] == 1000
    # It was there all the time.
    with service("--catalog", kept) as one:
        assert pg.connect(one.uri).grid("g").shape[0] == 2000
        assert "warning" not in "".join(one.said)


def test_a_folder_of_something_else_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"precious")
    for is_told in (True, False):
        with service("--catalog", tmp_path) as one:
            said = "".join(one.said)
            assert ("has files of others and was no catalog" in said) is is_told, said
            assert (str(tmp_path) in said) is is_told


@pytest.mark.parametrize("harm", ["cut", "bit", "gone", "empty", "longer"])
@pytest.mark.parametrize("what", ["tile", "manifest"])
def test_what_is_damaged_is_named(kept: Path, what: str, harm: str) -> None:
    [path] = kept.glob("grids/g/*.json")
    if what == "tile":
        manifest = json.loads(path.read_text().split("\n", 1)[1])
        path = kept / manifest["contents"]["tiles"][0]["path"]
    content = path.read_bytes()
    changed = {
        "cut": content[: len(content) // 2],
        "bit": content[:-200] + bytes([content[-200] ^ 4]) + content[-199:],
        "empty": b"",
        "longer": content + b"\0",
    }
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(changed[harm])
    if (what, harm) == ("manifest", "gone"):
        # Nothing tells that there was one; its tiles are of no use.
        with pg.Server(catalog=kept) as server:
            assert server.tables == []
        return
    if (what, harm) == ("tile", "bit"):
        # Seen when it is read.
        with pg.Server(catalog=kept) as server:
            with pytest.raises(pg.errors.InvalidDataError, match="damaged") as caught:
                server.grid("g").to_arrow()
            connection = pg.connect(server.uri)
            with pytest.raises(pg.errors.InvalidDataError, match="damaged"):
                connection.sql("SELECT sum(n) FROM g").to_arrow()
            assert "hint: the administrator can put the file back as it was" in str(caught.value)
    else:
        with pytest.raises(pg.errors.InvalidDataError, match="manifest|tile") as caught:
            pg.Server(catalog=kept)
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    "path",
    ["tiles/photo.jpg", "tiles/of/mine.arrow", "grids/x/1.json", "a/.writing-x", ".writing-me"],
)
def test_files_of_others_stay(tmp_path: Path, path: str) -> None:
    other = tmp_path / path
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_bytes(b"precious")
    try:
        with pg.Server(catalog=tmp_path) as server:
            pg.connect(server.uri).upload(numbers(1), "g")
    except pg.errors.PartgridError as error:
        # A folder that has something else may be refused.
        refusal = str(error)
        assert str(tmp_path) in refusal
    assert other.read_bytes() == b"precious"


@pytest.mark.parametrize(
    "name", ["a b", "..", ".", "a/b", "%2e%2e", "имя", "名" * 28, "x" * 200, "CON", "A"]
)
def test_any_name_is_kept(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "catalog"
    for _ in range(2):
        with service("--catalog", folder) as one:
            connection = pg.connect(one.uri)
            if name not in connection.grids():
                connection.upload(numbers(7, 10), name)
                connection.upload(numbers(8, 10), "a")
            assert sorted(connection.grids()) == sorted({name, "a"})
            assert connection.grid(name).to_arrow() == numbers(7, 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["catalog"]


def test_a_name_that_no_folder_can_have_is_refused(tmp_path: Path) -> None:
    with pg.Server(catalog=tmp_path) as server:
        connection = pg.connect(server.uri)
        with pytest.raises(pg.errors.InvalidArgumentError, match="too long for a catalog"):
            connection.upload(numbers(1), "é" * 100)
        assert server.tables == []


def test_a_server_that_is_out_of_space_keeps_what_it_had(tmp_path: Path) -> None:
    folder = tmp_path / "catalog"
    with pg.Server(catalog=folder) as server:
        connection = pg.connect(server.uri)
        connection.upload(numbers(1), "g")
        (folder / "tiles").rename(folder / "away")
        (folder / "tiles").write_text("in the way")
        with pytest.raises(pg.errors.PartgridError):
            connection.upload(numbers(2), "g", if_exists="replace")
        with pytest.raises(pg.errors.PartgridError):
            connection.sql("CREATE TABLE more AS SELECT 1 AS a")
        (folder / "tiles").unlink()
        (folder / "away").rename(folder / "tiles")
        assert connection.sql("SELECT * FROM g").to_arrow() == numbers(1)
        assert server.tables == ["g"]
        assert connection.upload(numbers(3), "g", if_exists="replace")["durable"]
        assert connection.sql("SELECT * FROM g").to_arrow() == numbers(3)


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    """The environment for a bucket."""
    with s3_server() as address:
        s3_client(address).create_bucket(Bucket="grids")
        yield {
            "AWS_ENDPOINT": address,
            "AWS_ALLOW_HTTP": "true",
            **{f"AWS_{name.upper()}": value for name, value in KEYS.items()},
        }


def test_a_catalog_may_be_in_an_object_store(bucket: dict[str, str]) -> None:
    url = "s3://grids/of/mine"
    with service("--catalog", url, **bucket) as one, fl.connect(one.uri) as client:
        connection = pg.connect(one.uri)
        assert connection.upload(numbers(1), "g") == {"rows": 1000, "durable": True}
        ingest(client, "g", numbers(2), 2)
        connection.upload(numbers(3), "h")
        run(client, "DROP TABLE h")
        one.kill()
    with service("--catalog", url, **bucket) as one, service("--catalog", url, **bucket) as two:
        assert held(one) == {"g": pa.concat_tables([numbers(1), numbers(2)])}
        pg.connect(two.uri).upload(numbers(4), "g", if_exists="replace")
        pg.connect(one.uri).upload(numbers(5), "other")
    with service("--catalog", url, **bucket) as one:
        assert held(one) == {"g": numbers(4), "other": numbers(5)}
    objects = s3_client(bucket["AWS_ENDPOINT"]).list_objects_v2(Bucket="grids")["Contents"]
    assert all(each["Key"].startswith("of/mine/") for each in objects)
    wrong = {**bucket, "AWS_ENDPOINT": "http://127.0.0.1:1"}
    code, said = Service("--catalog", url, **wrong).ended(60)
    assert (code, "of/mine" in said) == (1, True)


def test_where_objects_are_is_for_administrators(bucket: dict[str, str], tmp_path: Path) -> None:
    url = "s3://grids/of/others"
    tokens = write_tokens(tmp_path / "t", admin={"scope": "admin"}, reader={"scope": "read"})
    with service("--catalog", url, "--tokens", tmp_path / "t", **bucket) as one:
        pg.connect(one.uri, token=tokens["admin"]).upload(numbers(1), "g")
    store = s3_client(bucket["AWS_ENDPOINT"])
    for key in [each["Key"] for each in store.list_objects_v2(Bucket="grids")["Contents"]]:
        if key.startswith("of/others/tiles/"):
            size = store.head_object(Bucket="grids", Key=key)["ContentLength"]
            tile = key, bytes(size)
    store.put_object(Bucket="grids", Key=tile[0], Body=tile[1])
    with service("--catalog", url, "--tokens", tmp_path / "t", **bucket) as one:
        said = []
        for gone in (False, True):
            if gone:
                store.delete_object(Bucket="grids", Key=tile[0])
            for caller in ("reader", "admin"):
                with pytest.raises(pg.errors.PartgridError) as caught:
                    pg.connect(one.uri, token=tokens[caller]).sql("SELECT * FROM g").to_arrow()
                said.append(str(caught.value))
        for text in (said[0], said[2]):
            assert "others" not in text
            assert bucket["AWS_ENDPOINT"] not in text
        assert "of/others/tiles" in said[1]
        assert "of/others/tiles" in said[3]


def test_a_name_that_was_taken_away_is_gone_after_a_restart(tmp_path: Path) -> None:
    with pg.Server(catalog=tmp_path) as server:
        connection = pg.connect(server.uri)
        for name in ("viewed", "taken"):
            assert connection.upload(numbers(1), name)["durable"]
        connection.sql("CREATE OR REPLACE VIEW viewed AS SELECT 1 AS a")
        assert server.deregister("taken")
        assert not server.deregister("taken")
        assert server.tables == ["viewed"]
    with pg.Server(catalog=tmp_path) as server:
        assert server.tables == []


def test_the_order_of_a_load_is_known_after_a_restart(tmp_path: Path) -> None:
    settings = {"load.from": str(DATA)}
    asked = "EXPLAIN SELECT carrier, count(*) FROM sorted GROUP BY carrier ORDER BY carrier"
    with pg.Server(catalog=tmp_path / "c", settings=settings) as server:
        connection = pg.connect(server.uri)
        connection.load_parquet(DATA / "flights", "sorted", sort_by="carrier")
        before = repr(connection.sql(asked))
        assert "SortExec" not in before
    with pg.Server(catalog=tmp_path / "c") as server:
        connection = pg.connect(server.uri)
        after = repr(connection.sql(asked))
        assert "SortExec" not in after
        rows = connection.grid("sorted").to_arrow()["carrier"].to_pylist()
        assert rows == sorted(rows)


def test_files_of_dropped_grids_go_while_the_server_runs(tmp_path: Path) -> None:
    def files() -> int:
        return len([path for path in tmp_path.rglob("*") if path.suffix in (".arrow", ".json")])

    with pg.Server(catalog=tmp_path) as server:
        connection = pg.connect(server.uri)
        connection.upload(numbers(0), "kept")
        before = files()
        for turn in range(5):
            connection.upload(numbers(turn), "passing", if_exists="replace")
        # A tile and a manifest: those before are gone.
        until(lambda: files() == before + 2)
        reading = connection.sql("SELECT n FROM passing")
        batches = reading.stream()
        first = next(iter(batches)).num_rows
        connection.sql("DROP TABLE passing")
        assert first + sum(batch.num_rows for batch in batches) == 1000
        del batches
        reading.cancel()
        # The manifest that says that it was dropped stays.
        until(lambda: files() == before + 1)
        with pytest.raises(pg.errors.QueryError):
            connection.sql("SELECT n FROM passing")
        assert connection.grid("kept").to_arrow().equals(numbers(0))
    with pg.Server(catalog=tmp_path) as server:
        assert server.tables == ["kept"]
        assert server.grid("kept").to_arrow().equals(numbers(0))
