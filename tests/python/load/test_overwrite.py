"""Files that replace others: all at once, or none; nothing is left of calls that failed or were killed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg


def numbers(first: int, count: int, tiles: int = 4) -> pg.Grid:
    table = pa.table({"n": range(first, first + count), "k": [str(i % 3) for i in range(count)]})
    return pg.from_arrow(
        pa.Table.from_batches(table.to_batches(max_chunksize=max(count // tiles, 1)))
    )


def content(folder: Path) -> list[int]:
    found: list[int] = pg.read_parquet(folder).to_arrow()["n"].to_pylist()
    return found


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_values_that_read_like_other_things_keep_their_rows(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": ["__HIVE_DEFAULT_PARTITION__", None, "", "_x", ".", "..", "%5F", " a "],
            "v": list(range(8)),
        }
    )
    assert pg.from_arrow(table).write_parquet(tmp_path / "out", partition_by=["k"]) == 8
    found = pg.read_parquet(tmp_path / "out").to_arrow().sort_by("v").select(["k", "v"])
    assert found.to_pydict() == table.to_pydict()


@pytest.mark.parametrize("name", [".k", "_k", "k=1", "a/b", "%2E"])
def test_names_that_folders_would_hide_are_read_back(tmp_path: Path, name: str) -> None:
    table = pa.table({name: ["a", "b"], "v": [1, 2]})
    pg.from_arrow(table).write_parquet(tmp_path / "out", partition_by=[name])
    found = pg.read_parquet(tmp_path / "out").to_arrow().sort_by("v").select([name, "v"])
    assert found.to_pydict() == table.to_pydict()


@pytest.mark.parametrize(
    ("table", "keys", "text"),
    [
        (pa.table({"k": ["a"], "v": [1]}), ["k", "k"], "names the column twice"),
        (pa.table({"k": pa.array([], pa.string()), "v": []}), ["k"], "without rows"),
        (pa.table({"k": pa.array([2**63], pa.uint64()), "v": [1]}), ["k"], "9223372036854775808"),
        (pa.table({"k": [1.5], "v": [1]}), ["k"], "integers, dates and texts"),
        (pa.table({"k": ["a"]}), ["k"], "must leave a column"),
    ],
)
def test_what_folders_cannot_keep_is_refused(
    tmp_path: Path, table: pa.Table, keys: list[str], text: str
) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match=text):
        pg.from_arrow(table).write_parquet(tmp_path / "x" / "out", partition_by=keys)
    assert names(tmp_path) == []


def test_the_old_files_stay_when_a_new_one_cannot_take_its_place(tmp_path: Path) -> None:
    out = tmp_path / "out"
    numbers(0, 100).write_parquet(out)
    (out / "part-00002.parquet").unlink()
    (out / "part-00002.parquet").mkdir()
    (out / "part-00002.parquet" / "note").write_text("mine")
    before, found = names(out), content(out)
    with pytest.raises(pg.errors.StorageError, match=r"part-00002\.parquet"):
        numbers(1000, 100).write_parquet(out, overwrite=True)
    assert (names(out), content(out)) == (before, found)
    assert names(tmp_path) == ["out", *(f"out/{name}" for name in before)]


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    numbers(0, 100).write_parquet(out, partition_by=["k"])
    (out / "_SUCCESS").write_text("done")
    numbers(1000, 10, tiles=1).write_parquet(out, overwrite=True)
    assert names(out) == ["_SUCCESS", "part-00000.parquet"]
    assert content(out) == list(range(1000, 1010))
    assert names(tmp_path) == ["out", "out/_SUCCESS", "out/part-00000.parquet"]


def test_a_folder_of_files_of_ours_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    out = tmp_path / "out"
    numbers(0, 100).write_parquet(out, partition_by=["k"])
    out.chmod(0o750)
    (tmp_path / "link").symlink_to(out)
    numbers(7, 1).write_parquet(tmp_path / "link", overwrite=True)
    assert (content(out), names(tmp_path)) == ([7], ["link", "out", "out/part-00000.parquet"])
    assert out.stat().st_mode & 0o777 == 0o750
    file = out / "part-00000.parquet"
    mask = os.umask(0)
    os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_failed_write_takes_away_the_folders_that_it_made(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"n": [number], "k": ["a"]}), source / f"{number}.parquet")
    lazy = pg.read_parquet(source, lazy=True)
    (source / "1.parquet").unlink()
    with pytest.raises(pg.errors.PathNotFoundError):
        lazy.write_parquet(tmp_path / "x" / "y", partition_by=["k"])
    assert names(tmp_path) == ["in", "in/0.parquet"]


def test_more_files_are_written_than_may_be_open_at_once(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        assert numbers(0, 300, tiles=300).write_parquet(tmp_path / "out") == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


KILLED = """
import sys, pyarrow as pa, partgrid as pg
table = pa.table({"n": range(1000, 1400)})
grid = pg.from_arrow(pa.Table.from_batches(table.to_batches(max_chunksize=1)))
print("go", flush=True)
grid.write_parquet(sys.argv[1], overwrite=True)
"""


def test_killed_while_it_replaces_a_folder_old_or_new_is_there_and_the_rest_goes(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    numbers(0, 400, tiles=40).write_parquet(out)
    old, new = list(range(400)), list(range(1000, 1400))
    for attempt in range(12):
        command = [sys.executable, "-c", KILLED, str(out)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(0.01 + attempt * 0.03)
            child.send_signal(signal.SIGKILL)
        assert content(out) in (old, new)
    left = [path for path in tmp_path.iterdir() if path.name.startswith(".partgrid-")]
    for path in left:
        os.utime(path, (0, 0))
    numbers(5, 1).write_parquet(out, overwrite=True)
    assert names(tmp_path) == ["out", "out/part-00000.parquet"]
