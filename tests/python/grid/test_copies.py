"""How many bytes each way in and out copies, for each type: those of the result that lie outside the memory of the source.

`ARROW` and `NUMBERS` are the one table of it; docs/interop.md must say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import arro3.core
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import partgrid as pg
from conftest import ROOT

ROWS = 203
SLICE = slice(5, 105)
SLICED_ROWS = 100
Span = tuple[int, int]


def text(row: int) -> str:
    """Too long to lie in a view."""
    return f"the text of row {row}"


TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int8": (pa.int8(), lambda row: row % 100),
    "int64": (pa.int64(), int),
    "uint16": (pa.uint16(), int),
    "float16": (pa.float16(), np.float16),
    "float64": (pa.float64(), float),
    "bool": (pa.bool_(), lambda row: row % 2 == 0),
    "utf8": (pa.utf8(), text),
    "large_utf8": (pa.large_utf8(), text),
    "string_view": (pa.string_view(), text),
    "binary": (pa.binary(), lambda row: text(row).encode()),
    "large_binary": (pa.large_binary(), lambda row: text(row).encode()),
    "binary_view": (pa.binary_view(), lambda row: text(row).encode()),
    "fixed_size_binary": (pa.binary(4), lambda row: b"%04d" % row),
    "date32": (pa.date32(), int),
    "date64": (pa.date64(), lambda row: row * 86_400_000),
    "time32": (pa.time32("s"), int),
    "time64[us]": (pa.time64("us"), int),
    "time64[ns]": (pa.time64("ns"), int),
    "timestamp[s]": (pa.timestamp("s"), int),
    "timestamp[us, zone]": (pa.timestamp("us", "Europe/Rome"), int),
    "duration": (pa.duration("ns"), int),
    "decimal128": (pa.decimal128(10, 2), Decimal),
    "dictionary": (pa.dictionary(pa.int32(), pa.utf8()), lambda row: text(row % 5)),
    "list": (pa.list_(pa.int32()), lambda row: [row, row]),
    "large_list": (pa.large_list(pa.int32()), lambda row: [row, row]),
    "fixed_size_list": (pa.list_(pa.int32(), 2), lambda row: [row, row]),
    "struct": (pa.struct([("x", pa.int32()), ("y", pa.utf8())]), lambda row: {"x": row, "y": "y"}),
    "map": (pa.map_(pa.utf8(), pa.int32()), lambda row: [(text(row), row)]),
    "null": (pa.null(), lambda _: None),
}
# Rebuilt from row 0 when they are slices.
REBUILT = {"list", "large_list", "map"}
# Types that polars keeps in another form.
BY_POLARS = (
    "utf8",
    "large_utf8",
    "binary",
    "large_binary",
    "fixed_size_binary",
    "time32",
    "time64[us]",
    "timestamp[s]",
    "dictionary",
    "list",
    "struct",
    "map",
)


@dataclass(frozen=True)
class Way:
    """A way in and out again, or out alone: what a column becomes, and of which types the values are copied."""

    name: str
    column: Callable[[pa.Table], pa.Array]
    copied: tuple[str, ...] = ()


def grid_of(table: pa.Table) -> pg.Grid:
    return pg.from_arrow(table)


def first(table: Any) -> pa.Array:
    """The one chunk of the one column."""
    [chunk] = pa.table(table).column(0).chunks
    return chunk


def got(kind: str) -> Callable[[pa.Table], pa.Array]:
    def get(table: pa.Table) -> Any:
        described = grid_of(table).partitioned(kind).__partitioned__
        found = described["get"](described["partitions"][(0, 0)]["data"])
        return (
            pa.array(found["v"].array)
            if kind == "pandas"
            else of_polars(found)
            if kind == "polars"
            else first(found)
        )

    return get


def of_polars(frame: pl.DataFrame) -> pa.Array:
    return frame["v"].to_arrow(compat_level=pl.CompatLevel.newest())


def device_array(table: pa.Table) -> pa.Array:
    capsules = grid_of(table).tile(0).__arrow_c_device_array__()
    return pa.RecordBatch._import_from_c_device_capsule(*capsules).column(0)


def backed(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=pd.ArrowDtype)


ARROW = [
    Way("`from_arrow` of a pyarrow table", lambda table: first(pg.from_arrow(table))),
    Way(
        "`from_arrow` of a pyarrow batch",
        lambda table: first(pg.from_arrow(table.to_batches()[0])),
    ),
    Way(
        "`from_arrow` of arro3",
        lambda table: first(pg.from_arrow(arro3.core.Table.from_arrow(table))),
    ),
    Way(
        "`from_arrow` of nanoarrow",
        lambda table: first(pg.from_arrow(nanoarrow.ArrayStream(table))),
    ),
    Way(
        "`from_pandas` of Arrow-backed columns", lambda table: first(pg.from_pandas(backed(table)))
    ),
    Way("`grid.to_arrow`", lambda table: first(grid_of(table).to_arrow())),
    Way("`grid.to_pandas`", lambda table: pa.array(grid_of(table).to_pandas()["v"].array)),
    Way("`grid.to_polars`", lambda table: of_polars(grid_of(table).to_polars()), BY_POLARS),
    Way("`__arrow_c_stream__`, read by pyarrow", lambda table: first(grid_of(table))),
    Way(
        "`__arrow_c_stream__`, read by arro3",
        lambda table: first(arro3.core.Table.from_arrow(grid_of(table))),
    ),
    Way(
        "`__arrow_c_stream__`, read by nanoarrow",
        lambda table: first(nanoarrow.ArrayStream(grid_of(table))),
    ),
    Way(
        "`__arrow_c_stream__`, read by polars",
        lambda table: of_polars(pl.DataFrame(grid_of(table))),
        BY_POLARS,
    ),
    Way("`__arrow_c_array__` of a tile", lambda table: pa.record_batch(grid_of(table).tile(0))[0]),
    Way("`__arrow_c_device_array__` of a tile", device_array),
    Way('`Get("pandas")`', got("pandas")),
    Way('`Get("polars")`', got("polars"), BY_POLARS),
    Way('`Get("pyarrow")`', got("pyarrow")),
    Way('`Get("arro3")`', got("arro3")),
    Way('`Get("tile")`', got("tile")),
]


@pytest.mark.parametrize("sliced", [False, True], ids=["whole", "slice"])
@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("kind", list(TYPES))
@pytest.mark.parametrize("way", ARROW, ids=[way.name.replace("`", "") for way in ARROW])
def test_bytes_copied_of_arrow(way: Way, kind: str, nulls: bool, sliced: bool) -> None:
    dtype, value = TYPES[kind]
    values = [None if nulls and row % 3 == 0 else value(row) for row in range(ROWS)]
    column = pa.array(values, dtype)
    if sliced:
        column = column[SLICE]
    result = way.column(pa.table({"v": column}))
    # Polars has no days in 64 bits, and makes lists of structs of maps.
    assert result.to_pylist() == column.to_pylist() or kind in ("date64", "map")
    copied = outside(buffers(result), buffers(column))
    if kind in way.copied or (sliced and kind in REBUILT):
        assert copied > 0, "nothing is copied any more: mend the table"
    elif sliced and nulls and kind not in ("bool", "null"):
        # Arrow's C structs have one offset for values and validity.
        assert 0 < copied <= bitmap_bytes(column)
    else:
        assert copied == 0


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"v": range(ROWS)}),
        pl.DataFrame({"v": [None, *range(ROWS)]}),
        pl.DataFrame({"v": [text(row) for row in range(ROWS)]}),
        pl.DataFrame({"v": [[row] for row in range(ROWS)]}),
        pl.DataFrame({"v": [row % 2 == 0 for row in range(ROWS)]}),
        pl.DataFrame(
            {
                "v": pl.Series([text(row % 5) for row in range(ROWS)]).cast(
                    pl.Enum([text(row) for row in range(5)])
                )
            }
        ),
    ],
    ids=["ints", "nulls", "texts", "lists", "bools", "enum"],
)
def test_bytes_copied_of_polars(frame: pl.DataFrame) -> None:
    theirs = of_polars(frame)
    ours = first(pg.from_polars(frame))
    # Dictionaries are made by polars each time.
    skip = buffers(ours.dictionary) if isinstance(ours, pa.DictionaryArray) else []
    assert outside(set(buffers(ours)) - set(skip), buffers(theirs)) == 0


NOTHING, VALUES = "nothing", "the values"


def columns_of(
    make: Callable[[Any], pg.Grid], source: Any, values: np.ndarray
) -> tuple[list[Span], list[Span]]:
    """What a grid of the source lies in, and what the source lies in."""
    table = make(source).to_arrow()
    return [
        span for name in table.column_names for span in buffers(first(table.select([name])))
    ], bounds(values)


def read_by(read: Callable[[pg.Grid], Any], count: int = 1) -> tuple[list[Span], list[Span]]:
    """What a reader of a grid of `count` dense tiles gets, and where the tiles lie."""
    values = np.asfortranarray(np.arange(ROWS * 2.0).reshape(-1, 2))
    dense = pg.from_numpy(values)
    if count == 1:
        return bounds(read(dense)), bounds(values)
    table = pa.concat_tables([dense.to_arrow()] * count)
    return bounds(read(pg.from_arrow(table))), bounds(values)


F_ORDER = np.asfortranarray(np.arange(ROWS * 2.0).reshape(-1, 2))
C_ORDER = np.arange(ROWS * 2.0).reshape(-1, 2)
TIMES = np.arange(ROWS).astype("datetime64[us]")
BOOLS = np.arange(ROWS) % 2 == 0
DAYS = np.arange(ROWS).astype("datetime64[D]")
WORDS = np.array([text(row) for row in range(ROWS)])


def pandas_of(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"v": values}, copy=False)


def of_chunks(make: Callable[[Any], pg.Grid]) -> tuple[list[Span], list[Span]]:
    """What a grid of a polars frame of two chunks lies in, and the chunks."""
    frame = pl.DataFrame({"v": range(ROWS)})
    frame = frame.vstack(pl.DataFrame({"v": range(ROWS)}))
    chunks = [span for each in frame["v"].get_chunks() for span in buffers(each.to_arrow())]
    table = make(frame).to_arrow()
    return [span for chunk in table["v"].chunks for span in buffers(chunk)], chunks


NUMBERS: list[tuple[str, str, Callable[[], tuple[list[Span], list[Span]]]]] = [
    (
        "`from_numpy`, one dimension",
        NOTHING,
        lambda: columns_of(pg.from_numpy, F_ORDER[:, 0], F_ORDER),
    ),
    (
        "`from_numpy`, a slice of it",
        NOTHING,
        lambda: columns_of(pg.from_numpy, F_ORDER[5:99, 0], F_ORDER),
    ),
    ("`from_numpy`, Fortran order", NOTHING, lambda: columns_of(pg.from_numpy, F_ORDER, F_ORDER)),
    ("`from_numpy`, C order", VALUES, lambda: columns_of(pg.from_numpy, C_ORDER, C_ORDER)),
    (
        "`from_numpy`, every other row",
        VALUES,
        lambda: columns_of(pg.from_numpy, F_ORDER[::2, 0], F_ORDER),
    ),
    ("`from_numpy`, `datetime64[us]`", NOTHING, lambda: columns_of(pg.from_numpy, TIMES, TIMES)),
    ("`from_numpy`, days", VALUES, lambda: columns_of(pg.from_numpy, DAYS, DAYS)),
    ("`from_numpy`, booleans", VALUES, lambda: columns_of(pg.from_numpy, BOOLS, BOOLS)),
    ("`from_numpy`, texts", VALUES, lambda: columns_of(pg.from_numpy, WORDS, WORDS)),
    (
        "`from_dlpack`, one dimension",
        NOTHING,
        lambda: columns_of(pg.from_dlpack, F_ORDER[:, 0], F_ORDER),
    ),
    ("`from_dlpack`, Fortran order", NOTHING, lambda: columns_of(pg.from_dlpack, F_ORDER, F_ORDER)),
    ("`from_dlpack`, C order", VALUES, lambda: columns_of(pg.from_dlpack, C_ORDER, C_ORDER)),
    ("`from_dlpack`, booleans", VALUES, lambda: columns_of(pg.from_dlpack, BOOLS, BOOLS)),
    (
        "`from_pandas`, numbers of numpy",
        NOTHING,
        lambda: columns_of(pg.from_pandas, pandas_of(F_ORDER[:, 0]), F_ORDER),
    ),
    (
        "`from_pandas`, times of numpy",
        NOTHING,
        lambda: columns_of(pg.from_pandas, pandas_of(TIMES), TIMES),
    ),
    (
        "`from_pandas`, booleans of numpy",
        VALUES,
        lambda: columns_of(pg.from_pandas, pandas_of(BOOLS), BOOLS),
    ),
    ("`from_polars`, several chunks", NOTHING, lambda: of_chunks(pg.from_polars)),
    ("`from_arrow` of polars, several chunks", VALUES, lambda: of_chunks(pg.from_arrow)),
    (
        "`tile.column(...)`, by the buffer interface",
        NOTHING,
        lambda: read_by(lambda grid: np.asarray(memoryview(grid.tile(0).column("column_1")))),
    ),
    (
        "`tile.column(...)`, `numpy.asarray`",
        NOTHING,
        lambda: read_by(lambda grid: np.asarray(grid.tile(0).column("column_1"))),
    ),
    (
        "`tile.column(...)`, DLPack",
        NOTHING,
        lambda: read_by(lambda grid: np.from_dlpack(grid.tile(0).column("column_1"))),
    ),
    (
        "`tile.array()` of a dense tile, DLPack",
        NOTHING,
        lambda: read_by(lambda grid: np.from_dlpack(grid.tile(0).array())),
    ),
    (
        "`tile.column(...)`, DLPack with `copy=True`",
        VALUES,
        lambda: read_by(lambda grid: np.from_dlpack(grid.tile(0).column("column_1"), copy=True)),
    ),
    ("`grid.to_numpy()` of one dense tile", NOTHING, lambda: read_by(lambda grid: grid.to_numpy())),
    ("`grid.to_numpy(copy=True)`", VALUES, lambda: read_by(lambda grid: grid.to_numpy(copy=True))),
    (
        "`grid.to_numpy()` of several tiles",
        VALUES,
        lambda: read_by(lambda grid: grid.to_numpy(), 2),
    ),
    (
        '`Get("numpy")` of a dense tile',
        NOTHING,
        lambda: read_by(
            lambda grid: pg.Get("numpy")(grid.__partitioned__["partitions"][(0, 0)]["data"])
        ),
    ),
]


@pytest.mark.parametrize(
    ("name", "said", "measured"), NUMBERS, ids=[name.replace("`", "") for name, *_ in NUMBERS]
)
def test_bytes_copied_of_numbers(
    name: str, said: str, measured: Callable[[], tuple[list[Span], list[Span]]]
) -> None:
    del name
    result, source = measured()
    copied = outside(result, source)
    if said == NOTHING:
        assert copied == 0
    else:
        assert copied == sum(stop - start for start, stop in set(result))


def table_of_docs() -> str:
    """The table as docs/interop.md has it."""
    lines = ["| way | copied |", "| --- | --- |"]
    for way in ARROW:
        types = ", ".join(f"`{kind}`" for kind in way.copied)
        lines.append(f"| {way.name} | {f'by polars: {types}' if types else NOTHING} |")
    lines += [f"| {name} | {said} |" for name, said, _ in NUMBERS]
    return "\n".join(lines)


def test_the_documents_say_what_is_measured() -> None:
    said = (ROOT / "docs" / "interop.md").read_text()
    assert table_of_docs() in said, f"put this into docs/interop.md:\n{table_of_docs()}"


def buffers(array: pa.Array) -> list[Span]:
    """Where the buffers of an array lie, with those of its children and its dictionary."""
    spans = [(each.address, each.address + each.size) for each in array.buffers() if each]
    if isinstance(array, pa.DictionaryArray):
        spans += buffers(array.dictionary)
    return spans


def bounds(array: np.ndarray) -> list[Span]:
    return [np.lib.array_utils.byte_bounds(array)]


def outside(result: Iterable[Span], source: Iterable[Span]) -> int:
    """The bytes of `result` that lie in none of `source`."""
    count = 0
    for start, stop in set(result):
        count += stop - start
        at = start
        for left, right in sorted(source):
            covered = min(right, stop) - max(left, at)
            if covered > 0:
                count -= covered
                at = min(right, stop)
    return count


def bitmap_bytes(array: pa.Array) -> int:
    """What the validity of an array and its children takes."""
    children = []
    if pa.types.is_struct(array.type):
        children = array.flatten()
    elif pa.types.is_fixed_size_list(array.type):
        children = [array.values[: len(array) * array.type.list_size]]
    return -(-len(array) // 8) + sum(bitmap_bytes(child) for child in children)
