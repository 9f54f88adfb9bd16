"""Folders of catalogs, files of tokens and of settings that somebody has tampered with: an error that names the file, and nothing outside is touched.

`PARTGRID_HOSTILE_FILES` says how many changed files are tried of each kind.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import partgrid as pg
from conftest import TESTS
from forged import checksum, forged
from hostile import harmed
from served import numbers
from services import write_tokens

FILES = int(os.environ.get("PARTGRID_HOSTILE_FILES", "150"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with a grid of two tiles."""
    folder = tmp_path_factory.mktemp("made") / "catalog"
    with pg.Server(catalog=folder) as server:
        parts = [numbers(seed, 50).to_batches()[0] for seed in (1, 2)]
        pg.connect(server.uri).upload(pg.from_arrow(pa.Table.from_batches(parts)), "g")
    return folder


@pytest.fixture
def catalog(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, beside a file that must stay."""
    outside = tmp_path / "outside.arrow"
    shutil.copytree(made, tmp_path / "catalog")
    shutil.copy(next(made.glob("tiles/*.arrow")), outside)
    before = outside.read_bytes()
    yield tmp_path / "catalog"
    assert outside.read_bytes() == before


def manifest_of(catalog: Path) -> Path:
    [path] = catalog.glob("grids/g/*.json")
    return path


def opened(catalog: Path) -> str:
    """What is said of a catalog, or that all of it is there."""
    try:
        with pg.Server(catalog=catalog) as server:
            for name in server.tables:
                rows = server.grid(name).to_arrow()
                assert rows.num_rows == 100
                pg.connect(server.uri).upload(numbers(3, 100), name, if_exists="replace")
    except pg.errors.InternalError as error:
        raise AssertionError(f"a fault: {error}") from error
    except pg.errors.PartgridError as error:
        return str(error)
    return ""


def test_the_checksum_is_that_of_manifests(made: Path) -> None:
    said, text = manifest_of(made).read_text().split("\n", 1)
    assert said == f"partgrid manifest {checksum(text.encode())}"


def test_bytes_that_changed_are_seen(catalog: Path) -> None:
    source = random.Random("bytes")
    path = manifest_of(catalog)
    whole = path.read_bytes()
    for _ in range(FILES // 5):
        content = harmed(source, whole)
        path.write_bytes(content)
        said = opened(catalog)
        assert content == whole or path.name in said, (content, said)
        # Nothing was removed while the manifest could not be read.
        assert len(list(catalog.glob("tiles/*.arrow"))) == 2 or content == whole
        if content == whole:
            return


NUMBERS = [0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 1.5, "1", None, [], {}]
TEXTS = [
    "",
    "..",
    "../outside.arrow",
    "/etc/passwd",
    "tiles/../../outside.arrow",
    "a\0b",
    "é" * 999,
]


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values of a JSON text."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from fields(child, (*path, key))


def test_fields_that_lie_are_seen(made: Path, tmp_path: Path) -> None:
    source = random.Random("fields")
    known = json.loads(manifest_of(made).read_text().split("\n", 1)[1])
    outside = tmp_path / "outside.arrow"
    outside.write_bytes(b"precious")
    refused = 0
    for number in range(FILES):
        catalog = tmp_path / str(number)
        shutil.copytree(made, catalog)
        told = json.loads(json.dumps(known))
        for _ in range(source.randint(1, 2)):
            *above, key = source.choice(list(fields(told)))
            holder = told
            for each in above:
                holder = holder[each]
            match source.randrange(4):
                case 0 if isinstance(holder, list):
                    holder.append(holder[key])
                case 1:
                    del holder[key]
                case 2:
                    holder[key] = source.choice(NUMBERS)
                case _:
                    holder[key] = source.choice(TEXTS)
        manifest_of(catalog).write_bytes(forged(json.dumps(told)))
        try:
            refused += opened(catalog) != ""
        except AssertionError as error:
            raise AssertionError(f"{told}: {error}") from error
        shutil.rmtree(catalog)
    assert refused > FILES // 2
    assert outside.read_bytes() == b"precious"


def told_otherwise(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Changes what a manifest says, with a checksum that fits."""

    def harm(catalog: Path) -> None:
        path = manifest_of(catalog)
        told = json.loads(path.read_text().split("\n", 1)[1])
        change(told["contents"])
        path.write_bytes(forged(json.dumps(told)))

    return harm


def linked(what: str) -> Callable[[Path], None]:
    """Puts a link that leads out in the place of a file; the file behind it is the very same."""

    def harm(catalog: Path) -> None:
        path = manifest_of(catalog) if what == "manifest" else next(catalog.glob("tiles/*.arrow"))
        moved = catalog.parent / "moved"
        shutil.copy(path, moved)
        path.unlink()
        path.symlink_to(moved)

    return harm


HARMS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a path that leads out": (
        told_otherwise(lambda told: told["tiles"][0].update(path="tiles/../../outside.arrow")),
        "path of something else",
    ),
    "a path that is absolute": (
        told_otherwise(lambda told: told["tiles"][0].update(path="/etc/passwd")),
        "path of something else",
    ),
    "more cuts than tiles": (
        told_otherwise(
            lambda told: told.update(row_cuts=list(range(100_001)), column_cuts=[0, 1] * 9)
        ),
        "another number of tiles",
    ),
    "rows past counting": (
        told_otherwise(lambda told: told["row_cuts"].__setitem__(-1, 2**60)),
        "more rows than there can be",
    ),
    "bytes past counting": (
        told_otherwise(
            lambda told: [tile.update(memory_bytes=2**64 - 1) for tile in told["tiles"]]
        ),
        "more bytes than there can be",
    ),
    "tiles swapped": (
        told_otherwise(lambda told: told["tiles"][0].update(checksum=told["tiles"][1]["checksum"])),
        "damaged",
    ),
    "a link for a tile": (linked("tile"), "tile"),
    "a link for a manifest": (linked("manifest"), "cannot read"),
    "a folder for a manifest": (
        lambda catalog: (manifest_of(catalog).unlink(), (catalog / "grids/g/1.json").mkdir())[1],
        "",
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_was_forged_is_refused(catalog: Path, harm: str) -> None:
    make, text = HARMS[harm]
    make(catalog)
    said = opened(catalog)
    assert text in said
    if text:
        assert said, harm


def asked_to_serve(setting: str, path: Path, content: bytes) -> str:
    """What a server says of a file of settings or tokens; nothing when it starts."""
    path.write_bytes(content)
    wanted: dict[str, Any] = {setting: path, "http": None}
    try:
        with pg.Server(**wanted):
            return ""
    except pg.errors.InternalError as error:
        raise AssertionError(f"a fault: {error}") from error
    except pg.errors.PartgridError as error:
        return str(error)


def test_files_of_tokens_that_changed_tell_no_hash(tmp_path: Path) -> None:
    source = random.Random("tokens")
    path = tmp_path / "tokens.toml"
    write_tokens(
        path,
        a={"grids": ["x*"], "queries": 3, "memory": "1GB"},
        b={"expires": "2030-01-01T00:00:00Z"},
    )
    whole = path.read_bytes()
    hashes = [line.split('"')[1] for line in whole.decode().splitlines() if "sha256" in line]
    refused = 0
    for _ in range(FILES):
        said = asked_to_serve("tokens", path, harmed(source, whole))
        refused += said != ""
        assert not any(each[:16] in said for each in hashes), said
        assert said == "" or path.name in said or "at least one" in said, said
    assert refused > FILES // 2


def test_files_of_settings_that_changed_are_named(tmp_path: Path) -> None:
    source = random.Random("settings")
    path = tmp_path / "settings.toml"
    whole = b'[limits]\nquery_time = 5\nquery_memory = "64MB"\nqueries = 4\nanswer_rows = 7\n[log]\nformat = "json"\n'
    refused = 0
    for _ in range(FILES):
        said = asked_to_serve("config", path, harmed(source, whole))
        refused += said != ""
        assert said == "" or path.name in said or "must be" in said, said
    assert refused > FILES // 2


def test_a_checkpoint_that_changed_is_read_anew_or_refused(tmp_path: Path) -> None:
    """A process of its own: a death would be seen."""
    script = TESTS / "changed_checkpoints.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(FILES // 3)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "all rows are right" in done.stdout
