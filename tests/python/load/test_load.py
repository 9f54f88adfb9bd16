"""Loading Parquet files, compared with pyarrow and DuckDB."""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from conftest import DATA


def test_the_flights_are_those_that_pyarrow_reads(flights: pg.Grid) -> None:
    theirs = ds.dataset(DATA / "flights", partitioning="hive").to_table()
    ours = flights.to_arrow()
    assert ours.column_names == theirs.column_names
    assert ours.drop_columns(["month"]).equals(theirs.drop_columns(["month"]), check_metadata=True)
    assert ours["month"].cast(pa.int32()).equals(theirs["month"])


def test_the_flights_are_those_that_duckdb_reads(flights: pg.Grid, flights_glob: str) -> None:
    query = "SELECT CAST(month AS BIGINT) AS month, count(*), sum(distance), count(dep_delay), min(tailnum) FROM {} GROUP BY 1"
    theirs = duckdb.sql(query.format(f"'{flights_glob}'") + " ORDER BY 1").fetchall()
    ours = flights.sql(query.format("self") + " ORDER BY 1").to_arrow()
    assert [tuple(row.values()) for row in ours.to_pylist()] == theirs


@pytest.mark.parametrize("name", ["airlines", "airports", "planes", "weather"])
def test_the_small_files_are_those_that_pyarrow_reads(name: str) -> None:
    path = DATA / f"{name}.parquet"
    assert pg.read_parquet(path).to_arrow().equals(pq.read_table(path), check_metadata=True)


def test_sources_may_be_paths_strings_globs_and_lists(flights_glob: str) -> None:
    assert pg.read_parquet(flights_glob).shape == (336776, 19)
    months = [DATA / "flights" / f"month=0{month}" for month in (1, 2)]
    assert len(pg.read_parquet(months)) == 27004 + 24951
    assert pg.read_parquet(months).columns[-1] == "month"
    assert pg.read_parquet(str(months[0]), hive_partitioning=False).shape == (27004, 18)


def test_columns_and_tile_rows_are_obeyed() -> None:
    grid = pg.read_parquet(DATA / "flights", columns=["month", "dest"], tile_rows=8192)
    assert grid.columns == ["month", "dest"]
    assert grid.tiling == (48, 1)
    assert pc.count_distinct(grid.to_arrow()["dest"]).as_py() == 105


def test_nothing_there_is_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or folder") as caught:
        pg.read_parquet(tmp_path / "absent.parquet")
    assert isinstance(caught.value, pg.errors.PathNotFoundError)
    assert caught.value.context["file"].endswith("absent.parquet")
    with pytest.raises(FileNotFoundError, match="holds no file"):
        pg.read_parquet(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    whole = (DATA / "airlines.parquet").read_bytes()
    for name, content in {
        "truncated.parquet": whole[:-20],
        "text.parquet": b"month,day\n1,2\n" * 10,
        "empty.parquet": b"",
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        text = "truncated or no Parquet(?s:.*)hint: it may not have come whole"
        with pytest.raises(pg.errors.InvalidDataError, match=text) as caught:
            pg.read_parquet(path)
        assert caught.value.context["file"] == str(path)


def test_a_flipped_bit_in_a_page_is_refused(tmp_path: Path) -> None:
    whole = bytearray((DATA / "airlines.parquet").read_bytes())
    whole[60] ^= 1
    path = tmp_path / "flipped.parquet"
    path.write_bytes(whole)
    with pytest.raises(pg.errors.InvalidDataError, match="CRC"):
        pg.read_parquet(path)


def test_a_later_file_with_other_columns_is_refused_with_every_difference(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1.5], "b": ["x"], "c": [True]}), tmp_path / "2.parquet")
    with pytest.raises(pg.errors.InvalidDataError) as caught:
        pg.read_parquet(tmp_path)
    text = str(caught.value)
    assert "2.parquet: column `a` is column 0 and Float64, expected Int64" in text
    assert "2.parquet: column `c` is column 2 (Boolean), not expected" in text
    assert caught.value.context["file"] == str(tmp_path / "2.parquet")


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        pg.read_parquet(DATA / "airlines.parquet", tile_rows=0)
    with pytest.raises(KeyError, match="did you mean `carrier`"):
        pg.read_parquet(DATA / "airlines.parquet", columns=["carier"])
    with pytest.raises(NotImplementedError, match="scheme `ftp`"):
        pg.read_parquet("ftp://bucket/flights")
    with pytest.raises(ValueError, match="a path, a URL, or a list of these, got 5"):
        pg.read_parquet(5)  # type: ignore[arg-type]


def test_the_folder_above_a_link_is_that_above_its_target(tmp_path: Path) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "l").symlink_to(tmp_path / "real" / "sub")
    for folder, value in [(tmp_path, 2), (tmp_path / "real", 1)]:
        pq.write_table(pa.table({"x": [value]}), folder / "f.parquet")
    for source in ("l/../f.parquet", "l/../*.parquet", "./real/sub/../f.parquet"):
        assert pg.read_parquet(f"{tmp_path}/{source}").to_arrow()["x"].to_pylist() == [1]
    assert pg.read_parquet(f"{tmp_path}/real/../f.parquet").to_arrow()["x"].to_pylist() == [2]


def test_the_home_folder_can_be_written_as_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pg.from_arrow(pa.table({"x": [1]})).write_parquet("~/out") == 1
    assert (tmp_path / "out").is_dir()
    assert len(pg.read_parquet("~/out/*.parquet")) == 1


def test_a_limit_below_all_tiles_is_refused_at_once(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        pg.read_parquet(DATA / "flights", memory_limit="10KB", spill_to=tmp_path)
    assert time.monotonic() - start < 30


def test_listed_files_come_in_name_order_and_once(tmp_path: Path) -> None:
    for name in ["b", "a"]:
        pq.write_table(pa.table({"name": [name]}), tmp_path / f"{name}.parquet")
    listed = [tmp_path / "b.parquet", tmp_path / "a.parquet", tmp_path / "b.parquet"]
    assert pg.read_parquet(listed).to_arrow()["name"].to_pylist() == ["a", "b"]


def test_a_name_that_no_file_can_have_is_too_long() -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match="the name is too long"):
        pg.read_parquet("a" * 300)
