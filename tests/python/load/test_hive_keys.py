"""Folder names as columns: keys that only look like numbers, and keys that some files have in them, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg


def written(folder: Path, files: dict[str, dict[str, Any]]) -> Path:
    for name, columns in files.items():
        path = folder / name / "f.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), path)
    return folder


def test_keys_that_are_one_number_stay_texts(tmp_path: Path) -> None:
    folder = written(tmp_path, {"zip=01234": {"x": ["a"]}, "zip=1234": {"x": ["b"]}})
    text = "SELECT zip, count(*) AS n FROM self GROUP BY zip ORDER BY zip"
    assert pg.read_parquet(folder).sql(text).to_arrow().to_pylist() == [
        {"zip": "01234", "n": 1},
        {"zip": "1234", "n": 1},
    ]


def test_keys_with_zeros_are_numbers_where_none_are_the_same(tmp_path: Path) -> None:
    folder = written(tmp_path, {f"month={month:02}": {"x": [month]} for month in (1, 2, 11)})
    found = pg.read_parquet(folder, filters=[("month", "<", 3)]).to_arrow()
    assert sorted(found["month"].to_pylist()) == [1, 2]


def test_texts_come_back_as_they_were_written(tmp_path: Path) -> None:
    grid = pg.from_arrow(pa.table({"k": ["007", "7"], "x": [1, 2]}))
    grid.write_parquet(tmp_path / "o", partition_by="k")
    found = pg.read_parquet(tmp_path / "o").to_arrow().sort_by("x")
    assert found.select(["k", "x"]).to_pylist() == [{"k": "007", "x": 1}, {"k": "7", "x": 2}]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", [pa.int64(), pa.int16(), pa.uint32(), pa.float64()], ids=str)
def test_a_key_that_some_files_have_in_them(tmp_path: Path, lazy: bool, kind: pa.DataType) -> None:
    files: dict[str, dict[str, Any]] = {
        "k=1": {"x": [1]},
        "k=3": {"x": [2, 3], "k": pa.array([3, 3], kind)},
        "k=4": {"x": [4]},
    }
    grid = pg.read_parquet(written(tmp_path, files), schema_evolution="union", lazy=lazy)
    text = "SELECT k, x FROM self WHERE k {} ORDER BY x"
    assert grid.sql(text.format("> 0")).to_arrow().to_pylist() == [
        {"k": 1, "x": 1},
        {"k": 3, "x": 2},
        {"k": 3, "x": 3},
        {"k": 4, "x": 4},
    ]
    assert grid.sql(text.format("= 4")).to_arrow().to_pylist() == [{"k": 4, "x": 4}]
    assert grid.sql(text.format("IS NULL")).to_arrow().num_rows == 0
    filtered = pg.read_parquet(tmp_path, schema_evolution="union", filters=[("k", "in", [1, 3])])
    assert sorted(filtered.to_arrow()["x"].to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_a_key_that_some_files_have_as_text(tmp_path: Path, kind: pa.DataType) -> None:
    files: dict[str, dict[str, Any]] = {
        "k=1": {"x": [1]},
        "k=3": {"x": [2], "k": pa.array(["3"], pa.string()).cast(kind)},
    }
    grid = pg.read_parquet(written(tmp_path, files), schema_evolution="union")
    text = "SELECT x, CAST(k AS VARCHAR) AS k FROM self WHERE k = '1' OR k = '3' ORDER BY x"
    assert grid.sql(text).to_arrow().to_pylist() == [{"x": 1, "k": "1"}, {"x": 2, "k": "3"}]


def test_a_folder_that_is_no_value_of_the_column_is_said(tmp_path: Path) -> None:
    files: dict[str, dict[str, Any]] = {"k=a": {"x": [1]}, "k=3": {"x": [2], "k": [3]}}
    with pytest.raises(pg.errors.InvalidDataError, match="the folder says `a`, which is no Int64"):
        pg.read_parquet(written(tmp_path, files), schema_evolution="union")
