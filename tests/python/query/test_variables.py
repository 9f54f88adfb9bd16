"""Tables of a statement that are variables of the caller, and the folder of the user in paths."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import partgrid as pg

of_module = pa.table({"a": [10, 20]})
both = pa.table({"a": [1]})
number_of_module = 5


def answer(result: pg.Result) -> list[dict[str, Any]]:
    return result.to_arrow().to_pylist()


def test_a_table_is_a_variable_of_the_function_then_of_the_module() -> None:
    both = pa.table({"a": [2]})
    of_function = pg.from_arrow(pa.table({"a": [3, 4]}))
    assert answer(pg.sql("SELECT sum(a) AS s FROM of_function")) == [{"s": 7}]
    assert answer(pg.sql("SELECT sum(a) AS s FROM of_module")) == [{"s": 30}]
    assert answer(pg.sql("SELECT a FROM both")) == [{"a": 2}]
    joined = pg.sql("SELECT count(*) AS n FROM of_function, of_module, both")
    assert answer(joined) == [{"n": 4}]
    assert both.num_rows == of_function.shape[0] - 1


@pytest.mark.parametrize(
    "make", [pa.table, pl.DataFrame, pd.DataFrame, lambda data: pg.from_arrow(pa.table(data))]
)
def test_it_is_of_any_library(make: Callable[[Any], Any]) -> None:
    df = make({"a": [1, 2, 3]})
    assert answer(pg.sql("SELECT sum(a) AS s FROM df WHERE a > $1", [1])) == [{"s": 5}]
    assert len(df) == 3


def test_a_result_is_one_as_well() -> None:
    first = pg.sql("SELECT a * 2 AS b FROM of_module")
    second = pg.sql("SELECT sum(b) AS s FROM first")
    assert answer(second) == [{"s": 60}]
    assert first.schema.names == ["b"]


def test_what_is_passed_by_name_comes_first() -> None:
    assert answer(pg.sql("SELECT a FROM both", both=pa.table({"a": [7]}))) == [{"a": 7}]
    mixed = pg.sql("SELECT t.a AS t, b.a AS b FROM t, both b", t=pa.table({"a": [8]}))
    assert answer(mixed) == [{"t": 8, "b": 1}]


def test_names_of_the_statement_come_first() -> None:
    text = "WITH both AS (SELECT 9 AS a) SELECT a FROM both"
    assert answer(pg.sql(text)) == [{"a": 9}]


def test_a_grid_is_asked_with_variables_beside_it() -> None:
    other = pa.table({"a": [10], "name": ["ten"]})
    grid = pg.from_arrow(of_module)
    joined = grid.sql("SELECT name FROM self JOIN other USING (a)")
    assert answer(joined) == [{"name": "ten"}]
    assert other.num_rows == 1


def test_names_fold_as_in_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "Sales", pa.table({"a": [1]}))
    assert answer(pg.sql("SELECT a FROM Sales")) == [{"a": 1}]
    assert answer(pg.sql('SELECT a FROM "Sales"')) == [{"a": 1}]
    monkeypatch.setitem(globals(), "SALES", of_module)
    assert answer(pg.sql('SELECT a FROM "Sales"')) == [{"a": 1}]
    with pytest.raises(pg.errors.QueryError, match="no table `sales`"):
        pg.sql("SELECT a FROM sales")


def test_variables_of_a_caller_further_out_are_not_looked_at() -> None:
    hidden = pa.table({"a": [1]})

    def inner() -> pg.Result:
        return pg.sql("SELECT a FROM hidden")

    with pytest.raises(pg.errors.QueryError, match="no table `hidden`"):
        inner()
    assert hidden.num_rows == 1


def test_what_is_no_table_is_told_with_its_remedy() -> None:
    rows = [{"a": 1}]
    lazy = pl.LazyFrame({"a": [1]})
    for name, hint in {
        "rows": "the variable rows is no table but list: pyarrow.table",
        "lazy": "the variable lazy is no table but LazyFrame: a LazyFrame has no rows yet",
        "number_of_module": "the variable number_of_module is no table but int",
        "answer": "the variable answer is no table but function",
    }.items():
        with pytest.raises(pg.errors.QueryError, match=f"no table `{name}`") as told:
            pg.sql(f"SELECT * FROM {name}")
        assert told.value.context["table"] == name
        assert hint in told.value.hint
    # A value of the function hides no table of the module.
    of_module = "no table"
    assert answer(pg.sql("SELECT count(*) AS n FROM of_module")) == [{"n": 2}]
    assert of_module
    assert rows
    assert lazy.collect().height == 1


def test_errors_of_columns_and_of_unknown_tables_stay_what_they_are() -> None:
    with pytest.raises(pg.errors.QueryError, match="no column `b`"):
        pg.sql("SELECT b FROM of_module")
    with pytest.raises(pg.errors.QueryError, match="no table `nowhere`"):
        pg.sql("SELECT a FROM of_module, nowhere")
    with pytest.raises(pg.errors.QueryError):
        pg.sql("SELECT of_module.a FROM both")


def test_a_session_reads_no_variables() -> None:
    with pytest.raises(pg.errors.QueryError, match="no table `of_module`"):
        pg.Session().sql("SELECT a FROM of_module")


def test_labels_of_rows_go_by_their_names() -> None:
    df = pd.DataFrame({"v": [1.0, 5.0, 6.0]})
    some = df[df["v"] > 4]
    counted = df.set_index(pd.RangeIndex(3, name="k"))
    levels = pd.MultiIndex.from_tuples([(1, 2), (3, 4), (5, 6)], names=["k", None])
    both_named = df.set_index(pd.MultiIndex.from_product([[1], [2, 3, 4]], names=["k", "l"]))
    for frame, columns in [
        (df, ["v"]),
        (some, ["v"]),
        (df.sort_values("v", ascending=False), ["v"]),
        (counted, ["v", "k"]),
        (df.set_index(levels), ["v", "k"]),
        (both_named, ["v", "k", "l"]),
    ]:
        assert sorted(pg.sql("SELECT * FROM frame").schema.names) == sorted(columns)
        assert sorted(pg.sql("SELECT * FROM t", t=frame).schema.names) == sorted(columns)
        session = pg.Session()
        session.register("t", frame)
        assert answer(session.sql("SELECT sum(v) AS s FROM t")) == [{"s": frame["v"].sum()}]
    assert len(some) == 2
    bare = pd.DataFrame(index=pd.RangeIndex(3))
    assert answer(pg.sql("SELECT count(*) AS n FROM bare")) == [{"n": 3}]
    twice = df.set_index(pd.Index([7, 8, 9], name="v"))
    with pytest.raises(pg.errors.InvalidArgumentError, match="row labels are called 'v', as is"):
        pg.sql("SELECT * FROM twice")
    assert len(bare) == len(twice)


class Frame:
    """A table of somebody else."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def test_nothing_keeps_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "passing", Frame(of_module))
    assert answer(pg.sql("SELECT count(*) AS n FROM passing")) == [{"n": 2}]
    watched = weakref.ref(globals()["passing"])
    monkeypatch.undo()
    gc.collect()
    assert watched() is None


def test_texts_that_are_run_have_variables_of_their_own() -> None:
    text = "found = pg.sql('SELECT a FROM t').to_arrow().to_pylist()"
    outer = {"pg": pg, "t": pa.table({"a": [5]})}
    exec(text, outer)
    assert outer["found"] == [{"a": 5}]
    inner = {"t": both}
    exec(text, outer, inner)
    assert inner["found"] == [{"a": 1}]


def test_the_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    grid = pg.from_arrow(of_module)
    assert grid.write_parquet("~/data/written") == 1
    assert pg.sql("SELECT a FROM of_module").write_parquet("~/data/answer") == 1
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["answer", "written"]
    for source in ["~/data/written", Path("~/data/answer"), ["~/data/written/*.parquet"]]:
        assert pg.read_parquet(source).to_arrow() == of_module
    with pytest.raises(pg.errors.NotFoundError, match="~someone"):
        pg.read_parquet("~someone/data")
    spilling = pg.Session(spill_to="~/spilled")
    assert answer(spilling.sql("SELECT 1 AS a")) == [{"a": 1}]
    assert (tmp_path / "spilled").is_dir()
