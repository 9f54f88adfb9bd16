"""What filters leave unread: pages by the page index, rows by the filter's own columns, row groups by bloom filters. Always the rows that pyarrow finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import partgrid as pg
from stores import KEYS, Proxy, fault_proxy, s3_client, s3_server

ROWS = 60_000
BUCKET = "pages"


def table(seed: int) -> pa.Table:
    """Columns of many kinds; `sorted` rises, `near` nearly, `mixed` not at all."""
    generator = np.random.default_rng(seed)
    numbers = np.arange(ROWS)
    nulls = generator.random(ROWS) < 0.1
    return pa.table(
        {
            "sorted": numbers,
            "near": pa.array(numbers // 7 + generator.integers(0, 50, ROWS), pa.int32()),
            "mixed": pa.array(generator.integers(0, 1000, ROWS), mask=nulls),
            "text": [f"text {number // 100:05}" for number in numbers],
            "word": pa.array(generator.choice(["a", "b", "c"], ROWS)).dictionary_encode(),
            "float": generator.random(ROWS),
            "list": pa.array(
                [
                    [number, None][: number % 3] if number % 5 else None
                    for number in numbers.tolist()
                ]
            ),
            "nested": pa.array([{"x": number, "y": str(number)} for number in numbers.tolist()]),
            "bool": numbers % 3 == 0,
        }
    )


LAYOUTS: dict[str, dict[str, Any]] = {
    "pages": {"row_group_size": 20_000, "data_page_size": 8_000},
    "version 2": {"row_group_size": 60_000, "data_page_size": 4_000, "data_page_version": "2.0"},
    "plain": {"use_dictionary": False, "compression": "none", "data_page_size": 16_000},
    "without index": {"row_group_size": 15_000, "write_page_index": False},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = {}
    for name, layout in LAYOUTS.items():
        paths[name] = folder / f"{name}.parquet"
        options = {"write_page_index": True, "write_page_checksum": True, **layout}
        pq.write_table(table(1), paths[name], **options)
    return paths


OPERATORS = {
    "=": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
    "in": lambda column, value: column.isin(value),
}


def random_condition(source: random.Random) -> tuple[Any, ...]:
    column = source.choice(["sorted", "near", "mixed", "text", "word", "float"])
    operator = source.choice([*OPERATORS, "is null", "is not null"])
    if operator.startswith("is"):
        return column, operator

    def value() -> Any:
        if column == "text":
            return f"text {source.randrange(700):05}"
        if column == "word":
            return source.choice("abc")
        if column == "float":
            return source.random()
        return source.randrange({"sorted": ROWS, "near": ROWS // 7, "mixed": 1000}[column])

    if operator == "in":
        return column, operator, [value() for _ in range(source.randrange(1, 5))]
    return column, operator, value()


def as_expression(groups: list[list[tuple[Any, ...]]]) -> pc.Expression:
    def one(condition: tuple[Any, ...]) -> pc.Expression:
        column, operator, *value = condition
        if operator == "is null":
            return pc.field(column).is_null()
        if operator == "is not null":
            return pc.field(column).is_valid()
        return OPERATORS[operator](pc.field(column), value[0])

    whole = None
    for group in groups:
        every = one(group[0])
        for condition in group[1:]:
            every = every & one(condition)
        whole = every if whole is None else whole | every
    return whole


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(25))
def test_rows_are_those_that_pyarrow_finds(files: dict[str, Path], layout: str, seed: int) -> None:
    source = random.Random(seed)
    groups = [
        [random_condition(source) for _ in range(source.randrange(1, 4))]
        for _ in range(source.randrange(1, 3))
    ]
    wishes: dict[str, Any] = source.choice(
        [{}, {"tile_rows": 4_321}, {"tile_columns": 2}, {"columns": ["list", "sorted", "nested"]}]
    )
    found = pg.read_parquet(files[layout], filters=groups, **wishes).to_arrow()
    wanted = ds.dataset(files[layout]).to_table(
        filter=as_expression(groups), columns=wishes.get("columns")
    )
    assert found.num_rows == wanted.num_rows, groups
    assert found.combine_chunks().to_pylist() == wanted.combine_chunks().to_pylist(), groups


def test_rows_without_columns_are_counted(files: dict[str, Path]) -> None:
    grid = pg.read_parquet(files["pages"], columns=[], filters=[("sorted", "<", 1_234)])
    assert grid.shape == (1_234, 0)


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[str]:
    with s3_server() as address:
        client = s3_client(address)
        client.create_bucket(Bucket=BUCKET)
        for path in files.values():
            client.put_object(Bucket=BUCKET, Key=path.name, Body=path.read_bytes())
        yield address


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    with fault_proxy(server) as proxy:
        yield proxy


def loaded(proxy: Proxy, name: str, **wishes: Any) -> tuple[pa.Table, int]:
    """The rows, and the bytes of pages that were fetched for them."""
    url = f"s3://{BUCKET}/{name}.parquet"
    storage_options = {**KEYS, "endpoint": proxy.address}
    pg.read_parquet(url, storage_options=storage_options, columns=[])
    proxy.requests.clear()
    grid = pg.read_parquet(url, storage_options=storage_options, **wishes)
    return grid.to_arrow(), proxy.read_bytes()


@pytest.mark.parametrize(("name", "part"), [("plain", 0.05), ("version 2", 0.8), ("pages", 0.3)])
def test_only_pages_with_wanted_rows_are_fetched(proxy: Proxy, name: str, part: float) -> None:
    """And dictionaries, which here are most of what is left."""
    wishes: dict[str, Any] = {"columns": ["sorted", "float", "nested"]}
    _, everything = loaded(proxy, name, **wishes)
    few, some = loaded(proxy, name, filters=[("sorted", "in", [30_000, 30_001])], **wishes)
    assert few["sorted"].to_pylist() == [30_000, 30_001]
    assert some < everything * part
    none, nothing = loaded(proxy, name, filters=[("sorted", ">", ROWS)], **wishes)
    assert (none.num_rows, nothing) == (0, 0)


def test_without_an_index_other_columns_wait_for_the_filter(proxy: Proxy) -> None:
    """No row has both values, which only the values themselves can tell."""
    filters = [("mixed", "=", 500), ("mixed", "!=", 500)]
    rows, read = loaded(proxy, "without index", filters=filters)
    _, everything = loaded(proxy, "without index")
    _, looked_at = loaded(proxy, "without index", columns=["mixed"])
    assert rows.num_rows == 0
    assert read <= looked_at * 1.1 < everything / 3


def test_bloom_filters_leave_row_groups_out(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    connection = duckdb.connect()
    # Statistics exclude nothing: every row group spans all values.
    connection.sql(
        f"""
        COPY (SELECT (i * 7919 % 20000)::BIGINT * 2 AS n, (i * 7919 % 20000)::INTEGER * 2 AS m,
                     'text ' || (i * 7919 % 20000) * 2 AS t, i
              FROM range(20000) AS r(i))
        TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, DICTIONARY_SIZE_LIMIT 100000)
        """
    )
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups >= 9

    def candidates(*conditions: tuple[Any, ...]) -> tuple[int, int]:
        job = pg.load_parquet(path, filters=list(conditions))
        return len(job.result()), job.progress().total_rows

    for column, present, absent in [
        ("n", 19_998, 19_999),
        ("m", 19_998, 19_999),
        ("t", "text 19998", "text 19999"),
    ]:
        # One value in some hundred seems to be there though it is not.
        for condition in [
            (column, "=", absent),
            (column, "in", [absent, "text 7" if column == "t" else 7]),
        ]:
            rows, seen = candidates(condition)
            assert rows == 0
            assert seen <= 2 * 2048
        rows, seen = candidates((column, "=", present))
        assert rows == 1
        assert seen <= 3 * 2048
        rows, seen = candidates((column, "in", [absent, present]), ("i", ">=", 0))
        assert rows == 1
        assert seen <= 3 * 2048
        assert candidates((column, "!=", absent)) == (20_000, 20_000)


def test_turned_bytes_of_the_indexes_are_survived(tmp_path: Path) -> None:
    """Behind the pages and before the footer lie the page indexes, whose checks are the reader's."""
    path = tmp_path / "a.parquet"
    small = table(2).slice(0, 12_000).select(["sorted", "mixed", "text"])
    pq.write_table(
        small, path, data_page_size=2_000, write_page_index=True, write_page_checksum=True
    )
    good = path.read_bytes()
    column = pq.read_metadata(path).row_group(0).column(2)
    start = column.data_page_offset + column.total_compressed_size
    stop = len(good) - int.from_bytes(good[-8:-4], "little") - 8
    assert stop - start > 200
    source = random.Random(5)
    outcomes = set()
    for _ in range(400):
        turned = bytearray(good)
        turned[source.randrange(start, stop)] = source.randrange(256)
        path.write_bytes(turned)
        try:
            rows = pg.read_parquet(path, filters=[("sorted", ">=", 6_000), ("mixed", "<", 100)])
            outcomes.add(type(len(rows)))
        except pg.errors.InvalidDataError as error:
            outcomes.add(type(error))
    assert int in outcomes
