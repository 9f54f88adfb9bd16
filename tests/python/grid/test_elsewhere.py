"""Names of other libraries: what is said of them, and that what is said is there."""

from __future__ import annotations

import re
import traceback

import pyarrow as pa
import pytest

import partgrid as pg
from partgrid import _elsewhere

KNOWN = [
    (pg.Result, _elsewhere._RESULT),
    (pg.Grid, _elsewhere._GRID),
    (pg.Session, _elsewhere._SESSION),
    (pg.Connection, _elsewhere._CONNECTION),
    (pg, _elsewhere._MODULE),
]
# What hints call that is no method of the class itself.
OTHERS = {
    "pyarrow.csv.write_csv",
    "pyarrow.csv.read_csv",
    "pyarrow.json.read_json",
    "pyarrow.table",
}


def grid() -> pg.Grid:
    return pg.from_arrow(pa.table({"a": [1, 2, 3]}))


@pytest.mark.parametrize(("owner", "known"), KNOWN, ids=lambda part: getattr(part, "__name__", ""))
def test_hints_name_what_is_there_for_names_that_are_not(
    owner: object, known: dict[str, str]
) -> None:
    for name, hint in known.items():
        assert name not in dir(owner), name
        for called in re.findall(r"([\w.]+)\(", hint):
            parts = called.removeprefix("….").split(".")
            if called in OTHERS:
                continue
            places = (pg,) if parts[0] == "pg" else (owner, pg.Grid, pg.Result, pg, pa.Table)
            last = parts[-1]
            assert any(hasattr(place, last) for place in places), (name, hint)


def test_a_name_of_others_has_a_hint_and_one_of_nobody_has_none() -> None:
    result, session = pg.sql("SELECT 1 AS a"), pg.Session()
    for owner, name, hint in [
        (result, "fetchall", r"to_arrow\(\)\.to_pylist\(\)"),
        (grid(), "head", r"grid\[:5\]"),
        (session, "unregister", r"deregister\(name\)"),
        (pg, "scan_parquet", r"lazy=True"),
    ]:
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'\nhint: .*{hint}"):
            getattr(owner, name)
        with pytest.raises(AttributeError, match=r"no attribute 'nobody_has_this'$"):
            owner.nobody_has_this  # noqa: B018
    assert grid()[:2].to_arrow()["a"].to_pylist() == [1, 2]


def test_names_alike_are_still_found() -> None:
    with pytest.raises(AttributeError) as raised:
        pg.sql("SELECT 1").to_arow  # noqa: B018
    error = raised.value
    told = "".join(traceback.format_exception_only(error))
    assert "'partgrid.Result' object has no attribute 'to_arow'" in told
    assert (error.name, type(error.obj)) == ("to_arow", pg.Result)
