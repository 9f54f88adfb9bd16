"""Wrong arguments: an error of ours that names the argument, what it must be and what came, never the words of a binding."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from conftest import DATA

FLIGHTS = DATA / "flights"
FOREIGN = re.compile(r"PyO3|Rust|variant|extract|'\w+' object|cannot be (cast|converted)")

WISHES: list[tuple[dict[str, Any], str]] = [
    (
        {"columns": "carrier"},
        "columns must be a list of names, got 'carrier'\nhint: columns=[\"carrier\"]",
    ),
    ({"columns": 5}, "columns must be a list of names, got 5"),
    ({"columns": ["day", 5]}, "columns must be a list of names, got ['day', 5]"),
    ({"columns": {"day"}}, "columns must be a list of names, got {'day'}"),
    (
        {"tile_rows": 2**70},
        "tile_rows must be at most 9223372036854775807, got 1180591620717411303424",
    ),
    ({"tile_rows": -(2**70)}, "tile_rows must be at least 1, got -1180591620717411303424"),
    ({"tile_rows": True}, "tile_rows must be a whole number, got True"),
    ({"tile_rows": 1e6}, "tile_rows must be a whole number, got 1000000.0"),
    ({"tile_columns": -1}, "tile_columns must be at least 1, got -1"),
    (
        {"tile_columns": False},
        "tile_columns must be a number of columns or a list of lists of names, got False",
    ),
    ({"tile_columns": ["day"]}, "got ['day']\nhint: tile_columns=[[\"day\"]]"),
    ({"tile_columns": "day"}, "got 'day'\nhint: tile_columns=[[\"day\"]]"),
    (
        {"dense": "hour"},
        "dense must be a list of names or a list of such lists, got 'hour'\nhint: dense=[\"hour\"]",
    ),
    ({"dense": 5}, "dense must be a list of names or a list of such lists, got 5"),
    (
        {"sort_by": 5},
        'sort_by must be a name, a name with its direction as ("day", "descending"), or a list',
    ),
    (
        {"sort_by": [("day", True)]},
        'got [(\'day\', True)]\nhint: directions are "asc", "ascending", "desc"',
    ),
    (
        {"sort_by": ("day", "down")},
        'sort_by must say "asc", "ascending", "desc" or "descending" behind a name',
    ),
    ({"partition_by": 5}, "partition_by must be a name or a list of names, got 5"),
    (
        {"partition_by": "day", "num_partitions": "x"},
        "num_partitions must be a whole number, got 'x'",
    ),
    ({"memory_limit": -1}, "memory_limit must be at least 1, got -1"),
    (
        {"memory_limit": 1.5},
        'memory_limit must be bytes as a whole number, or a text such as "512MB", got 1.5',
    ),
    (
        {"memory_limit": True},
        'memory_limit must be bytes as a whole number, or a text such as "512MB", got True',
    ),
    ({"memory_limit": "x"}, "memory_limit must read like 512MB, 1.5GiB or 1000000, got 'x'"),
    ({"memory_limit": "0"}, "memory_limit must be at least one byte, got '0'"),
    ({"deadline": "x"}, "deadline must be seconds from now, got 'x'"),
    ({"deadline": True}, "deadline must be seconds from now, got True"),
    ({"deadline": -1}, "deadline must be seconds from now, got -1"),
    ({"deadline": float("nan")}, "deadline must be seconds from now, got nan"),
    ({"store": "x"}, "store must be a store built with obstore, got 'x'\nhint: a URL goes before"),
    ({"storage_options": 5}, "storage_options must be a dict of texts, got a value of type int"),
    (
        {"storage_options": {"timeout": 30}},
        'got a value of type int for "timeout"\nhint: write numbers',
    ),
    ({"spill_to": 5}, "spill_to must be a path, got 5"),
    ({"resume": 5}, "resume must be a path, got 5"),
    ({"string_type": 5}, "string_type must be a text, got 5"),
    ({"schema_evolution": 5}, 'schema_evolution must be "strict", "union" or "widen", got 5'),
    ({"hive_partitioning": "yes"}, "hive_partitioning must be True or False, got 'yes'"),
    ({"lazy": None}, "lazy must be True or False, got None"),
    (
        {"filters": 5},
        "filters must be a list of tuples (column, operator, value), or a list of such lists, got 5",
    ),
    ({"filters": "day = 1"}, "or a list of such lists, got 'day = 1'"),
    ({"columns": [5] * 1000}, "got [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5,…"),
]


@pytest.mark.parametrize(("wishes", "text"), WISHES)
def test_wrong_arguments_of_loads_are_named(wishes: dict[str, Any], text: str) -> None:
    for load in [pg.read_parquet, pg.load_parquet]:
        with pytest.raises(pg.errors.InvalidArgumentError) as caught:
            load(FLIGHTS, **wishes)
        assert text in str(caught.value)
        assert not FOREIGN.search(str(caught.value))


def test_wrong_arguments_of_all_functions_are_named(tmp_path: Path) -> None:
    grid = pg.from_arrow(pa.table({"k": ["a", "b"], "v": [1, 2]}))
    session = pg.Session()
    answer = grid.sql("SELECT 1 AS one")
    column, storage = grid.tile(0).column("v"), pg.storage.zeros((2,))
    job = pg.load_parquet(DATA / "airlines.parquet")
    calls = [
        (lambda: pg.read_parquet(5), "source must be a path, a URL, or a list of these, got 5"),  # type: ignore[arg-type]
        (
            lambda: pg.read_parquet(["a", 5]),
            "source must be a path, a URL, or a list of these, got ['a', 5]",
        ),  # type: ignore[list-item]
        (lambda: pg.read_parquet(FLIGHTS, progress=5), "progress must be True or False, got 5"),  # type: ignore[arg-type]
        (lambda: grid.tile(-1), "row_band must be at least 0, got -1"),
        (lambda: grid.tile(0, -1), "column_band must be at least 0, got -1"),
        (lambda: grid.tile(2**70), "row_band must be at most 9223372036854775807"),
        (lambda: grid.tile("x"), "row_band must be a whole number, got 'x'"),  # type: ignore[arg-type]
        (
            lambda: grid.distarray(5),
            "columns must be the name of a column, or a list of names, got 5",
        ),  # type: ignore[arg-type]
        (lambda: grid.sql(5), "query must be a text, got 5"),  # type: ignore[arg-type]
        (lambda: pg.sql(5), "query must be a text, got 5"),  # type: ignore[arg-type]
        (lambda: session.sql(5), "query must be a text, got 5"),  # type: ignore[arg-type]
        (lambda: session.register(5, grid), "name must be a text, got 5"),  # type: ignore[arg-type]
        (lambda: session.deregister(5), "name must be a text, got 5"),  # type: ignore[arg-type]
        (lambda: grid.tile(0).column(0), "name must be a text, got 0"),  # type: ignore[arg-type]
        (lambda: pg.Get(5), "data must be a text, got 5"),  # type: ignore[arg-type]
        (
            lambda: column.__dlpack__(max_version=1),
            "max_version must be two whole numbers, got 1\nhint: max_version=(1, 0)",
        ),  # type: ignore[arg-type]
        (
            lambda: storage.__dlpack__(dl_device="cpu"),
            "dl_device must be two whole numbers, got 'cpu'",
        ),  # type: ignore[arg-type]
        (lambda: column.__dlpack__(copy=5), "copy must be True or False, got 5"),  # type: ignore[arg-type]
        (
            lambda: pg.storage.zeros((2**70,)),
            "shape must be within the addresses of a process, got (1180591620717411303424,)",
        ),
        (lambda: pg.storage.zeros((1.5,)), "shape must be a sequence of whole numbers, got (1.5,)"),  # type: ignore[arg-type]
        (lambda: answer.show(-1), "rows must be at least 0, got -1"),
        (lambda: job.wait("x"), "timeout must be seconds from now, got 'x'"),  # type: ignore[arg-type]
        (lambda: job.result(-1), "timeout must be seconds from now, got -1"),
        (lambda: pg.Session(threads=0), "threads must be at least 1, got 0"),
        (lambda: pg.Session(threads=-1), "threads must be at least 1, got -1"),
        (lambda: pg.Session(threads=10**9), "threads must be at most 1024, got 1000000000"),
        (lambda: pg.Session(threads=2**70), "threads must be at most"),
        (lambda: pg.Session(threads=1.5), "threads must be a whole number, got 1.5"),  # type: ignore[arg-type]
        (lambda: pg.Session(memory_limit=0), "memory_limit must be at least 1, got 0"),
        (lambda: pg.Session(memory_limit="1 XB"), "memory_limit must read like 512MB"),
        (lambda: grid.write_parquet(5), "url must be a path or a URL, got 5"),  # type: ignore[arg-type]
        (
            lambda: grid.write_parquet(tmp_path, partition_by=5),
            "partition_by must be a name or a list of names",
        ),  # type: ignore[arg-type]
        (
            lambda: grid.write_parquet(tmp_path, compression=5),
            "compression must be the name of a codec",
        ),  # type: ignore[arg-type]
        (
            lambda: grid.write_parquet(tmp_path, overwrite="x"),
            "overwrite must be True or False, got 'x'",
        ),  # type: ignore[arg-type]
        (
            lambda: grid.write_parquet(tmp_path, file_per_tile=1),
            "file_per_tile must be True or False, got 1",
        ),  # type: ignore[arg-type]
        (
            lambda: grid.write_parquet(tmp_path, storage_options=[1]),
            "storage_options must be a dict",
        ),  # type: ignore[arg-type]
    ]
    for call, text in calls:
        with pytest.raises(pg.errors.InvalidArgumentError) as caught:
            call()
        assert text in str(caught.value)
        assert not FOREIGN.search(str(caught.value))
    with pytest.raises(
        pg.errors.ProtocolError, match="data must be a grid, or an object with __arrow_c_stream__"
    ):
        session.register("t", 5)  # type: ignore[arg-type]


class Given:
    """An object whose Arrow method gives whatever it was made with."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.given


@pytest.mark.parametrize("given", [5, None, (1,), (1, 2, 3)])
def test_what_an_object_gives_for_an_array_is_told(given: Any) -> None:
    text = "__arrow_c_array__ must return two capsules, schema and array, got "
    with pytest.raises(pg.errors.ProtocolError) as caught:
        pg.from_arrow(Given(given))
    assert text + repr(given) in str(caught.value)


def test_versions_and_devices_are_any_two_numbers() -> None:
    column = pg.from_arrow(pa.table({"v": [1, 2]})).tile(0).column("v")
    for pair in [(1, 0), [1, 0], np.array([1, 0])]:
        assert "dltensor" in repr(column.__dlpack__(max_version=pair, dl_device=pair))


MASKED = np.ma.array([1, -999, 3], mask=[0, 1, 0])


def test_arrays_with_masks_are_refused() -> None:
    block = {"dist_type": "b", "size": 3, "proc_grid_size": 1, "proc_grid_rank": 0}
    section = {
        "__version__": "0.10.0",
        "buffer": MASKED,
        "dim_data": ({**block, "start": 0, "stop": 3},),
    }
    for call in [
        lambda: pg.from_numpy(MASKED),
        lambda: pg.from_dlpack(MASKED),
        lambda: pg.from_distarray([section]),
    ]:
        with pytest.raises(pg.errors.ProtocolError, match="an array without a mask was expected"):
            call()
    # What the hint says.
    values = pg.from_arrow(pa.table({"a": pa.array(MASKED)})).to_arrow()["a"]
    assert values.to_pylist() == [1, None, 3]
    assert pg.from_numpy(MASKED.filled(0)).to_arrow()["column_0"].to_pylist() == [1, 0, 3]


def test_what_stands_for_no_value_is_null() -> None:
    missing = [pd.NA, pd.NaT, np.ma.masked, MASKED[1], None]
    for value in missing:
        assert pg.sql("SELECT $1 IS NULL AS n", [value]).to_arrow()["n"].to_pylist() == [True]


def test_secrets_are_not_shown() -> None:
    for options in [[("secret_access_key", "hidden")], {"secret_access_key": b"hidden"}]:
        with pytest.raises(pg.errors.InvalidArgumentError) as caught:
            pg.read_parquet("s3://bucket/x", storage_options=options)  # type: ignore[arg-type]
        assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("wishes", "columns"),
    [
        ({"columns": np.array(["day", "hour"])}, ["day", "hour"]),
        ({"columns": pd.Index(["day", "hour"])}, ["day", "hour"]),
        ({"columns": ("day", "hour"), "tile_rows": np.int64(50_000)}, ["day", "hour"]),
        ({"columns": ["day"], "memory_limit": "1GB", "deadline": float("inf")}, ["day"]),
        ({"columns": ["day"], "deadline": 600}, ["day"]),
        (
            {"columns": ["day", "hour"], "sort_by": [("day", "desc"), ("hour", "asc")]},
            ["day", "hour"],
        ),
    ],
)
def test_what_stands_for_a_value_is_taken(wishes: dict[str, Any], columns: list[str]) -> None:
    assert pg.read_parquet(FLIGHTS, **wishes).columns == columns


def test_directions_have_short_names() -> None:
    for direction, long in [("asc", "ascending"), ("desc", "descending")]:
        short = pg.read_parquet(FLIGHTS, columns=["day"], sort_by=("day", direction))
        assert short.sorted_by == [("day", long)]
        named = pg.read_parquet(FLIGHTS, columns=["day"], sort_by=("day", long))
        assert short.to_arrow() == named.to_arrow()


def test_waiting_without_end_is_waiting_for_the_result() -> None:
    job = pg.load_parquet(DATA / "airlines.parquet", deadline=float("inf"))
    assert job.wait(float("inf"))
    assert len(job.result(float("inf"))) == 16


def test_a_session_takes_its_limit_as_a_text() -> None:
    session = pg.Session(memory_limit="512MB", threads=2)
    session.register("f", pg.read_parquet(FLIGHTS))
    assert session.sql("SELECT count(*) AS n FROM f").to_arrow()["n"].to_pylist() == [336_776]
    small = pg.Session(memory_limit="1kB")
    small.register("f", pg.read_parquet(FLIGHTS))
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        small.sql("SELECT tailnum, count(*) FROM f GROUP BY 1").to_arrow()


def test_grids_are_written_by_one_name_and_with_any_spelling_of_a_codec(tmp_path: Path) -> None:
    grid = pg.from_arrow(pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]}))
    assert grid.write_parquet(tmp_path / "k", partition_by="k") == 2
    assert {path.name for path in (tmp_path / "k").iterdir()} == {"k=a", "k=b"}
    for number, (name, codec) in enumerate(
        [("SNAPPY", "SNAPPY"), ("Zstd", "ZSTD"), (None, "UNCOMPRESSED"), ("none", "UNCOMPRESSED")]
    ):
        grid.write_parquet(tmp_path / str(number), compression=name)
        file = pq.ParquetFile(tmp_path / str(number) / "part-00000.parquet")
        assert file.metadata.row_group(0).column(0).compression == codec


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: pg.from_partitioned({}, names="a"),
            r"names must be a list of names, got 'a'\nhint: names=\[\"a\"\]",
        ),
        (lambda: pg.from_partitioned({}, timeout="x"), "timeout must be seconds from now, got 'x'"),
        (lambda: pg.from_partitioned({}, timeout=-1), "timeout must be seconds from now, got -1"),
        (lambda: pg.from_numpy(np.zeros(2), names="a"), "names must be a list of names"),
        (lambda: pg.from_dlpack(np.zeros(2), names=5), "names must be a list of names, got 5"),
        (
            lambda: pg.from_numpy(np.zeros(2)).to_numpy("column_0"),
            "columns must be a list of names",
        ),
        (
            lambda: pg.from_numpy(np.zeros(2)).to_numpy(fill_null=10**60),
            "fill_null must be a number of at most 128 bits",
        ),
        (
            lambda: pg.from_numpy(np.zeros(2)).to_numpy(fill_null="0"),
            "fill_null must be an int or a float, got '0'",
        ),
        (lambda: pg.from_pandas(pd.DataFrame(), index="range"), "index must be"),
    ],
)
def test_arguments_of_interchange_are_named_too(call: Callable[[], object], text: str) -> None:
    with pytest.raises(pg.errors.InvalidArgumentError, match=text):
        call()
