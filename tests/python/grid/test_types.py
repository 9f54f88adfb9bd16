"""Every type comes back as it went in, whole, sliced and empty, through each way in and out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from type_samples import ROWS, samples

SAMPLES = samples()
SLICES = {"whole": (0, ROWS), "sliced": (3, 4), "tail": (7, 3), "empty": (5, 0)}

# Types that pyarrow 26 does not write to Parquet, each with the reason that it gives.
NOT_IN_PARQUET = {
    "interval": "Unhandled type for Arrow to Parquet schema conversion: month_day_nano_interval",
    "sparse_union": "Unhandled type for Arrow to Parquet schema conversion: sparse_union",
    "dense_union": "Unhandled type for Arrow to Parquet schema conversion: dense_union",
    "run_end_encoded": "Unhandled type for Arrow to Parquet schema conversion: run_end_encoded",
}
# Parquet has no seconds: the writer stores milliseconds.
STORED_IN_MILLISECONDS = {
    "time32": pa.time32("ms"),
    "timestamp_utc": pa.timestamp("ms", tz="+00:00"),
    "timestamp_seconds_rome": pa.timestamp("ms", tz="Europe/Rome"),
}


@pytest.mark.parametrize("cut", SLICES, ids=str)
@pytest.mark.parametrize("name", SAMPLES, ids=str)
def test_a_column_survives_the_stream(name: str, cut: str) -> None:
    array = SAMPLES[name].slice(*SLICES[cut])
    table = pa.table({"before": range(len(array)), name: array})
    back = pg.from_arrow(table).to_arrow()
    back.validate(full=True)
    assert back.schema.equals(table.schema, check_metadata=True)
    assert back[name].to_pylist() == table[name].to_pylist()


@pytest.mark.parametrize("cut", SLICES, ids=str)
@pytest.mark.parametrize("name", SAMPLES, ids=str)
def test_a_column_survives_the_array(name: str, cut: str) -> None:
    batch = pa.record_batch({name: SAMPLES[name]}).slice(*SLICES[cut])
    grid = pg.from_arrow(batch)
    back = grid.tile(0).to_arrow()
    back.validate(full=True)
    assert back.schema.equals(batch.schema, check_metadata=True)
    assert back.column(0).to_pylist() == batch.column(0).to_pylist()


@pytest.mark.parametrize("name", SAMPLES, ids=str)
def test_a_slice_of_a_grid_is_the_slice_of_the_column(name: str) -> None:
    table = pa.table({name: SAMPLES[name]})
    back = pg.from_arrow(table)[2:9].to_arrow()
    assert back[name].to_pylist() == SAMPLES[name].to_pylist()[2:9]


@pytest.mark.parametrize("name", SAMPLES, ids=str)
def test_a_column_survives_sql(name: str) -> None:
    if name in {"sparse_union", "dense_union", "run_end_encoded"}:
        pytest.skip(f"SQL has no {name}")
    table = pa.table({"id": range(ROWS), "value": SAMPLES[name]})
    result = pg.from_arrow(table).sql("SELECT value FROM self WHERE id >= 4").to_arrow()
    assert result.schema.field("value").type == SAMPLES[name].type
    assert result["value"].to_pylist() == SAMPLES[name].to_pylist()[4:]


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - set(NOT_IN_PARQUET)), ids=str)
def test_a_column_survives_parquet(name: str, tmp_path: Path) -> None:
    field = pa.field(name, SAMPLES[name].type, metadata={"note": "kept"})
    schema = pa.schema([field], metadata={"made by": "a test"})
    table = pa.table([SAMPLES[name]], schema=schema)
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=4)
    back = pg.read_parquet(path).to_arrow()
    kind = STORED_IN_MILLISECONDS.get(name, SAMPLES[name].type)
    assert back.schema.field(0).type == kind
    assert (
        back[name].to_pylist()
        == (table[name] if kind == SAMPLES[name].type else table[name].cast(kind)).to_pylist()
    )
    assert back.schema.field(0).metadata[b"note"] == b"kept"
    assert back.schema.metadata[b"made by"] == b"a test"


@pytest.mark.parametrize("name", NOT_IN_PARQUET, ids=str)
def test_the_types_left_out_of_parquet_are_those_pyarrow_refuses(name: str, tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowNotImplementedError, match="Unhandled type"):
        pq.write_table(pa.table({name: SAMPLES[name]}), tmp_path / "a.parquet")


def test_nullability_and_metadata_survive() -> None:
    fields = [
        pa.field("a", pa.int64(), nullable=False, metadata={"unit": "metres"}),
        pa.field("b", pa.int64(), nullable=True),
    ]
    schema = pa.schema(fields, metadata={"source": "test"})
    table = pa.table([[1, 2], [3, None]], schema=schema)
    grid = pg.from_arrow(table)
    assert grid.schema.equals(schema, check_metadata=True)
    assert grid.to_arrow().schema.equals(schema, check_metadata=True)
    assert grid[["b", "a"]].schema.field("a").metadata == {b"unit": b"metres"}


def test_a_requested_schema_is_honoured() -> None:
    grid = pg.from_arrow(pa.table({"a": [1, 2], "b": ["x", "y"]}))
    wanted = pa.schema([("a", pa.int32()), ("b", pa.string_view())])
    assert pa.table(grid, schema=wanted).schema == wanted
    reader = pa.RecordBatchReader.from_stream(grid, schema=wanted)
    assert reader.read_all().to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    narrow = pg.from_arrow(pa.table({"a": [1, 2**40]}))
    with pytest.raises(Exception, match="2\\^?40|1099511627776|Can't cast"):
        pa.RecordBatchReader.from_stream(narrow, schema=pa.schema([("a", pa.int8())])).read_all()
    with pytest.raises(ValueError, match="must have the columns"):
        grid.__arrow_c_stream__(pa.schema([("other", pa.int32())]).__arrow_c_schema__())
