"""Tables of a catalog that are damaged: the start names the file and the remedies, or goes on without them, with their files as they are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from served import numbers
from services import COMMAND, Service, http_answer, metrics, service, status, until, write_tokens

SKIP = {"server.skip_damaged": True}

HARMS = ["manifest cut", "manifest of another", "tile gone", "tile cut"]


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A catalog with two tables of two tiles each."""
    folder = tmp_path / "catalog"
    with pg.Server(catalog=folder, http=None) as server:
        for name, seeds in (("whole", (1, 2)), ("harmed", (3, 4))):
            pg.connect(server.uri).upload(two_tiles(*seeds), name)
    return folder


def two_tiles(*seeds: int) -> pg.Grid:
    batches = [numbers(seed, 50).to_batches()[0] for seed in seeds]
    return pg.from_arrow(pa.Table.from_batches(batches))


def harm(catalog: Path, how: str) -> Callable[[], Any]:
    """Damages the table; gives what repairs it."""
    [manifest] = catalog.glob("grids/harmed/*.json")
    path = manifest
    if how.startswith("tile"):
        contents = json.loads(manifest.read_text().split("\n", 1)[1])["contents"]
        path = catalog / contents["tiles"][1]["path"]
    content = path.read_bytes()
    if how == "tile gone":
        path.unlink()
    elif how == "manifest of another":
        [other] = catalog.glob("grids/whole/*.json")
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes(content[: len(content) // 2])
    return lambda: path.write_bytes(content)


def files(catalog: Path) -> set[Path]:
    return {path for path in catalog.rglob("*") if path.suffix in (".arrow", ".json")}


def run(server: pg.Server, *words: str, code: int) -> subprocess.CompletedProcess[str]:
    """Runs the command against a server."""
    command = [str(COMMAND), "--server", server.uri, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def held(server: pg.Server) -> dict[str, pa.Table]:
    return {name: server.grid(name).to_arrow() for name in server.tables}


@pytest.mark.parametrize("how", HARMS)
def test_the_start_names_the_file_and_what_can_be_done(catalog: Path, how: str) -> None:
    repair = harm(catalog, how)
    [manifest] = catalog.glob("grids/harmed/*.json")
    before = files(catalog)
    for _ in range(2):
        with pytest.raises(pg.errors.InvalidDataError) as caught:
            pg.Server(catalog=catalog, http=None)
        said = str(caught.value)
        for words in ("harmed", str(manifest), "as it was", "server.skip_damaged", "away"):
            assert words in said, said
    assert files(catalog) == before
    repair()
    with pg.Server(catalog=catalog, http=None) as server:
        assert sorted(server.tables) == ["harmed", "whole"]


@pytest.mark.parametrize("how", HARMS)
def test_the_others_are_served_and_the_damage_is_said(catalog: Path, how: str) -> None:
    harm(catalog, how)
    with pg.Server(catalog=catalog, settings=SKIP) as server:
        assert held(server) == {"whole": two_tiles(1, 2).to_arrow()}
        code, _, body = http_answer(server.http_uri, "/readyz")
        assert (code, body) == (200, b"ready\ndurable: yes\ndamaged: 1\n")
        assert metrics(server)["partgrid_catalog_damaged_tables"] == 1
        assert "harmed" not in http_answer(server.http_uri, "/metrics")[2].decode()
        said = status(server)
        assert (said["server"]["durable"], said["server"]["damaged"]) == (True, 1)
        [error] = said["errors"]
        assert "harmed" in error["message"]
        assert str(catalog) in error["message"]
        # It stays there, whatever else goes wrong.
        for _ in range(60):
            with pytest.raises(pg.errors.QueryError):
                pg.connect(server.uri).sql("SELECT * FROM absent")
        assert sum("harmed" in each["message"] for each in status(server)["errors"]) == 1


def test_the_log_has_the_name_and_the_flag_is_a_setting_like_others(catalog: Path) -> None:
    harm(catalog, "manifest cut")
    code, said = Service("--catalog", catalog).ended(60)
    assert code == 1
    assert "server.skip_damaged" in said
    words = ["--set", "server.skip_damaged=true", "--set", "log.filter=error"]
    with service("--catalog", catalog, *words) as one:
        assert pg.connect(one.uri).grids() == ["whole"]
        until(lambda: "harmed" in "".join(one.said))


def upload(server: pg.Server, _folder: Path) -> None:
    pg.connect(server.uri).upload(numbers(5), "harmed")


def replace(server: pg.Server, _folder: Path) -> None:
    pg.connect(server.uri).upload(numbers(5), "harmed", if_exists="replace")


def hold(server: pg.Server, _folder: Path) -> None:
    pg.connect(server.uri).upload(numbers(5), "harmed", ack="memory")


def create(server: pg.Server, _folder: Path) -> None:
    pg.connect(server.uri).sql("CREATE OR REPLACE TABLE harmed AS SELECT 1 AS a").to_arrow()


def load(server: pg.Server, folder: Path) -> None:
    pq.write_table(numbers(5), folder / "rows.parquet")
    connection = pg.connect(server.uri)
    connection.load_parquet(folder / "rows.parquet", "harmed", if_exists="replace", progress=False)


def view(server: pg.Server, _folder: Path) -> None:
    pg.connect(server.uri).sql("CREATE OR REPLACE VIEW harmed AS SELECT 1 AS a").to_arrow()


def register(server: pg.Server, _folder: Path) -> None:
    server.register("harmed", numbers(5))


def select(server: pg.Server, _folder: Path) -> None:
    pg.connect(server.uri).sql("SELECT * FROM Harmed").to_arrow()


def drop(server: pg.Server, _folder: Path) -> None:
    pg.connect(server.uri).sql("DROP TABLE IF EXISTS harmed").to_arrow()


def ingest(server: pg.Server, _folder: Path) -> None:
    with adbc.connect(server.uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("harmed", numbers(5), mode="create_append")


WAYS = [upload, replace, hold, create, view, register, load, ingest, select, drop]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["{}", "shared://{}"])
def test_nobody_takes_the_name(
    catalog: Path, tmp_path: Path, place: str, way: Callable[..., None]
) -> None:
    repair = harm(catalog, "manifest cut")
    settings = {**SKIP, "load.from": str(tmp_path)}
    with pg.Server(catalog=place.format(catalog), settings=settings) as server:
        with pytest.raises((pg.errors.InvalidDataError, adbc.Error), match="damaged"):
            way(server, tmp_path)
        assert server.tables == ["whole"]
        assert status(server)["queries"] == []
        with pytest.raises(pg.errors.InvalidDataError, match="damaged, and left out"):
            pg.connect(server.uri).sql("DROP TABLE harmed").to_arrow()
    repair()
    with pg.Server(catalog=place.format(catalog), http=None) as server:
        assert held(server) == {
            "whole": two_tiles(1, 2).to_arrow(),
            "harmed": two_tiles(3, 4).to_arrow(),
        }


def test_no_grid_of_the_start_has_the_name(catalog: Path) -> None:
    harm(catalog, "manifest cut")
    with pytest.raises(pg.errors.InvalidDataError, match="has a table of this name"):
        pg.Server({"harmed": numbers(5)}, catalog=catalog, http=None, settings=SKIP)


def test_who_may_not_see_it_hears_nothing_of_it(catalog: Path, tmp_path: Path) -> None:
    harm(catalog, "manifest cut")
    tokens = write_tokens(tmp_path / "t", few={"scope": "read", "grids": ["whole"]})
    with pg.Server(catalog=catalog, tokens=tmp_path / "t", settings=SKIP) as server:
        connection = pg.connect(server.uri, token=tokens["few"])
        with pytest.raises(pg.errors.QueryError, match="no table `harmed`"):
            connection.sql("SELECT * FROM harmed").to_arrow()


def test_the_command_drops_no_damaged_table(catalog: Path) -> None:
    harm(catalog, "manifest cut")
    with pg.Server(catalog=catalog, settings=SKIP) as server:
        for words in (["rm", "harmed"], ["rm", "--if-exists", "harmed"]):
            done = run(server, *words, code=1)
            assert "damaged, and left out" in done.stderr
            assert done.stdout == ""
        # A name that differs in case is another one.
        assert "no grid or view" in run(server, "rm", "Whole", code=1).stderr
        assert server.tables == ["whole"]


def test_the_remedy_of_a_shared_catalog_says_what_comes_back(catalog: Path) -> None:
    place = f"shared://{catalog}"
    with pg.Server(catalog=place) as server:
        pg.connect(server.uri).upload(two_tiles(5, 6), "harmed", if_exists="replace")
        newest = max(catalog.glob("grids/harmed/*.json"))
        assert newest.name == f"{2:020}.json"
        with pg.Server(catalog=place) as other:
            assert other.grid("harmed").to_arrow() == two_tiles(5, 6).to_arrow()
            (newest.parent / f"{3:020}.json").write_text("torn")
            with pytest.raises(pg.errors.InvalidDataError, match="harmed") as caught:
                other.refresh()
            assert "the table is what it was before" in str(caught.value)
            assert "gives the table up" not in str(caught.value)
            assert metrics(other)["partgrid_catalog_damaged_tables"] == 1
            # What it was before is served meanwhile, and is the table again.
            assert other.grid("harmed").to_arrow() == two_tiles(5, 6).to_arrow()
            (newest.parent / f"{3:020}.json").unlink()
            other.refresh()
            assert metrics(other)["partgrid_catalog_damaged_tables"] == 0
            assert status(other)["errors"] == []
            connection = pg.connect(other.uri)
            assert connection.upload(numbers(5), "harmed", if_exists="replace")["durable"]


@pytest.mark.parametrize("how", HARMS)
def test_its_files_stay_whatever_becomes_of_the_others(catalog: Path, how: str) -> None:
    others = {path for path in files(catalog) if "/grids/whole/" in str(path)}
    [manifest] = others
    for tile in json.loads(manifest.read_text().split("\n", 1)[1])["contents"]["tiles"]:
        others.add(catalog / tile["path"])
    repair = harm(catalog, how)
    kept = files(catalog) - others
    assert len(kept) == (2 if how == "tile gone" else 3)
    for turn in range(2):
        with pg.Server(catalog=catalog, http=None, settings=SKIP) as server:
            connection = pg.connect(server.uri)
            connection.upload(two_tiles(5, turn), "whole", if_exists="replace")
            connection.upload(two_tiles(6, turn), "more", if_exists="replace")
            connection.sql("DROP TABLE more").to_arrow()
        assert kept <= files(catalog), turn
    repair()
    with pg.Server(catalog=catalog, http=None) as server:
        assert held(server) == {
            "whole": two_tiles(5, 1).to_arrow(),
            "harmed": two_tiles(3, 4).to_arrow(),
        }


def test_files_of_others_that_were_written_since_go_as_ever(catalog: Path) -> None:
    harm(catalog, "manifest cut")
    with pg.Server(catalog=catalog, http=None, settings=SKIP) as server:
        connection = pg.connect(server.uri)
        connection.upload(two_tiles(5, 6), "passing")
        before = len(files(catalog))
        for turn in range(3):
            connection.upload(two_tiles(turn, 7), "passing", if_exists="replace")
        until(lambda: len(files(catalog)) == before)


def test_those_who_are_no_administrators_read_no_paths(catalog: Path, tmp_path: Path) -> None:
    harm(catalog, "tile cut")
    callers: dict[str, dict[str, Any]] = {
        "reader": {"scope": "read"},
        "few": {"scope": "read", "grids": ["whole"]},
    }
    tokens = write_tokens(tmp_path / "t", **callers)
    with pg.Server(catalog=catalog, tokens=tmp_path / "t", settings=SKIP) as server:
        [error] = status(server, tokens["reader"])["errors"]
        assert "harmed" in error["message"]
        assert str(catalog) not in error["message"]
        assert ".json" not in error["message"]
        assert status(server, tokens["few"])["errors"] == []


@pytest.mark.parametrize("how", HARMS)
def test_a_shared_catalog_has_it_again_once_it_is_whole(catalog: Path, how: str) -> None:
    repair = harm(catalog, how)
    with pg.Server(catalog=f"shared://{catalog}") as server:
        assert server.tables == ["whole"]
        assert metrics(server)["partgrid_catalog_damaged_tables"] == 1
        # It is not there by itself: what is missing is looked for each time.
        with pytest.raises(pg.errors.InvalidDataError, match="harmed"):
            server.refresh()
        assert server.tables == ["whole"]
        repair()
        server.refresh()
        assert server.grid("harmed").to_arrow() == two_tiles(3, 4).to_arrow()
        assert metrics(server)["partgrid_catalog_damaged_tables"] == 0
        assert status(server)["errors"] == []
        connection = pg.connect(server.uri)
        assert connection.upload(numbers(5), "harmed", if_exists="replace")["durable"]


def test_what_a_reader_finds_damaged_is_in_the_log(catalog: Path) -> None:
    with service("--catalog", catalog) as one:
        harm(catalog, "tile cut")
        with pytest.raises(pg.errors.InvalidDataError, match="damaged"):
            pg.connect(one.uri).sql("SELECT sum(n) FROM harmed").to_arrow()
        log = until(lambda: [line for line in one.said if "cannot be read" in line])
    assert "WARN" in log[0]
    assert ".arrow" in log[0]
