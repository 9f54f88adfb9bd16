"""Grids written as Parquet files: what is there afterwards, and what is never taken away."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from conftest import DATA
from type_samples import others, samples

SAMPLES = samples() | others()
# What Parquet has not: runs come back as their values, the others are refused.
RUNS = {"run_end_encoded", "run_end_int16"}
REFUSED = {"interval", "sparse_union", "dense_union"}


def test_a_grid_is_written_and_read_back(tmp_path: Path, flights: pg.Grid) -> None:
    assert flights.write_parquet(tmp_path / "out") == 12
    assert sorted(path.name for path in (tmp_path / "out").iterdir())[:2] == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    again = pg.read_parquet(tmp_path / "out")
    assert again.to_arrow() == flights.to_arrow()
    with pytest.raises(pg.errors.InvalidArgumentError, match="12 data files already"):
        flights.write_parquet(tmp_path / "out")
    small = flights[:100]
    assert small.write_parquet(tmp_path / "out", overwrite=True, compression="snappy") == 1
    assert pg.read_parquet(tmp_path / "out").to_arrow() == small.to_arrow()
    codec = (
        pq.ParquetFile(tmp_path / "out" / "part-00000.parquet")
        .metadata.row_group(0)
        .column(0)
        .compression
    )
    assert codec == "SNAPPY"
    assert len(list((tmp_path / "out").iterdir())) == 1


@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_that_parquet_has_comes_back(tmp_path: Path, name: str) -> None:
    table = pa.table({"a": SAMPLES[name]})
    if name in REFUSED:
        with pytest.raises(
            pg.errors.UnsupportedError, match="Parquet has no (intervals|unions).*column: a"
        ):
            pg.from_arrow(table).write_parquet(tmp_path / "out")
        return
    pg.from_arrow(table).write_parquet(tmp_path / "out")
    found = pg.read_parquet(tmp_path / "out").to_arrow()
    kind = table.schema.field("a").type
    assert found.schema.field("a").type == (kind.value_type if name in RUNS else kind)
    assert found["a"].to_pylist() == table["a"].to_pylist()


def test_rows_are_written_into_folders_of_their_values(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": pa.array(["a/b", None, "c d", "a/b", "%", ""]),
            "n": pa.array([1, 2, 2, 1, 1, 1]),
            "v": pa.array(range(6)),
        }
    )
    grid = pg.from_arrow(table)
    assert grid.write_parquet(tmp_path, partition_by=["n", "k"]) == 5
    found = pg.read_parquet(tmp_path).to_arrow().sort_by("v").select(["k", "n", "v"])
    assert found.to_pydict() == table.to_pydict()
    for wish, error in [
        (["none"], pg.errors.NotFoundError),
        (["k", "n", "v"], pg.errors.InvalidArgumentError),
    ]:
        with pytest.raises(error):
            grid.write_parquet(tmp_path / "x", partition_by=wish)
    assert not (tmp_path / "x").exists() or not list((tmp_path / "x").iterdir())
    with pytest.raises(pg.errors.InvalidArgumentError, match="compression"):
        grid.write_parquet(tmp_path / "x", compression="zip")


def test_each_tile_can_have_a_file(tmp_path: Path) -> None:
    grid = pg.read_parquet(DATA / "flights", tile_columns=10)
    assert grid.write_parquet(tmp_path, file_per_tile=True) == 24
    assert pq.read_schema(tmp_path / "part-00003-001.parquet").names == grid.columns[10:]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    grid = pg.from_arrow(pa.table({"u": union}))
    with pytest.raises(pg.errors.UnsupportedError):
        grid.write_parquet(tmp_path / "out")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(pg.errors.InvalidArgumentError, match="this is none"):
        pg.from_arrow(pa.table({"a": [1]})).write_parquet(tmp_path / "file")


def test_overwriting_takes_nothing_away_that_was_not_written_here(
    tmp_path: Path, flights: pg.Grid
) -> None:
    below = tmp_path / "deep" / "other.parquet"
    below.parent.mkdir()
    pq.write_table(pa.table({"a": [1]}), below)
    with pytest.raises(pg.errors.InvalidArgumentError, match=r"other\.parquet"):
        flights[:10].write_parquet(tmp_path, overwrite=True)
    assert below.exists()
    assert len(list(tmp_path.iterdir())) == 1


def test_rows_without_columns_are_not_written(tmp_path: Path) -> None:
    grid = pg.from_arrow(pa.table({"a": [1, 2]}).select([]))
    with pytest.raises(pg.errors.UnsupportedError, match="2 rows without a column"):
        grid.write_parquet(tmp_path / "out")
    assert not (tmp_path / "out").exists()
