"""What grids in actors of Ray refuse, and in which words; the example of their page."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: make test-peers")

import pyarrow as pa
import ray

import partgrid as pg
from conftest import DATA
from partgrid.engines import ray as engine
from peers.ray_grids import (
    SLOW,
    WHOLE,
    cluster,
    facts,
    failing,
    folder,
    places,
    slow,
)

__all__ = ["cluster", "facts", "folder"]


# What is refused.


def test_wrong_references_are_refused() -> None:
    ref = ray.put(WHOLE)
    table: Any = WHOLE
    for given, text in (
        ([], "at least"),
        (ref, "refs must be a list of ray.ObjectRef, got ObjectRef"),
        (3, "refs must be a list of ray.ObjectRef, got int"),
        ([ref, table], r"refs\[1\] must be a ray.ObjectRef, got Table\nhint: refs=\[ray.put"),
    ):
        with pytest.raises(pg.errors.InvalidArgumentError, match=text):
            engine.from_refs(given)
    with pytest.raises(
        pg.errors.ProtocolError, match=r"actor 0 \(.* pid \d+\): refs\[1\]: .*got int"
    ):
        engine.from_refs([ref, ray.put(3)])
    with pytest.raises(
        pg.errors.InvalidDataError, match=r"refs\[0\]: .*failed: ValueError.*no such rows"
    ):
        engine.from_refs([failing.remote()])
    began = time.monotonic()
    with pytest.raises(
        pg.errors.ResourcesExhaustedError, match="1 of 2 objects were not there within 1 seconds"
    ):
        engine.from_refs([ref, slow.remote()], timeout=1)
    assert time.monotonic() - began < 15
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="must be a ray.data.Dataset, got builtins.list"
    ):
        engine.from_dataset([ref])


def test_objects_of_other_columns_are_refused() -> None:
    one, other = pa.table({"a": [1], "b": ["x"]}), pa.table({"a": [1.5], "b": ["x"]})
    text = "part 0 has a: int64, b: string, part 1 has a: double, b: string\nhint"
    with pytest.raises(pg.errors.InvalidArgumentError, match=text):
        engine.from_refs([ray.put(one), ray.put(other)], num_members=2)
    noted = pa.table(
        one.columns,
        schema=pa.schema([("a", pa.int64()), pa.field("b", pa.string(), metadata={"unit": "m"})]),
    )
    with pytest.raises(pg.errors.InvalidArgumentError, match="b: string .*unit"):
        engine.from_refs([ray.put(one), ray.put(noted)])


def test_wrong_files_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        pg.errors.PathNotFoundError, match=r"actor \d .*no such file.*nowhere"
    ) as caught:
        engine.read_parquet(tmp_path / "nowhere", num_members=2)
    assert caught.value.context["file"].endswith("nowhere")
    with pytest.raises(pg.errors.NotFoundError, match="did you mean `text`"):
        engine.read_parquet(folder, columns=["texd"], num_members=2)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 this is none PAR1")
    with pytest.raises(pg.errors.InvalidDataError, match="bad.parquet"):
        engine.read_parquet(tmp_path, num_members=2)
    with pytest.raises(pg.errors.InvalidArgumentError, match="unknown operator"):
        engine.read_parquet(folder, filters=[("id", "=>", 1)])
    for source in ([], 3, None):
        with pytest.raises(pg.errors.InvalidArgumentError, match="source must be a path or a list"):
            engine.read_parquet(source)  # type: ignore[arg-type]


def test_wrong_numbers_and_nodes_are_refused(folder: Path) -> None:
    for count in (0, -1, 1.5, True, "3"):
        with pytest.raises(
            pg.errors.InvalidArgumentError, match="num_members must be a whole number from 1"
        ):
            engine.read_parquet(folder, num_members=count)  # type: ignore[arg-type]
    for nodes in ([], ["nobody"], "nobody"):
        with pytest.raises(
            pg.errors.InvalidArgumentError, match="nodes must be ids of nodes that are alive"
        ):
            engine.read_parquet(folder, nodes=nodes)
    [node] = [each["NodeID"] for each in ray.nodes()]
    with engine.read_parquet(folder, nodes=[node], num_members=2) as grid:
        assert len(set(places(grid))) == 2


def test_wrong_statements_are_refused(facts: engine.RayGrid) -> None:
    for query, text in (
        ("SELECT nothing FROM facts", "nothing"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELEC 1", "SELEC"),
    ):
        with pytest.raises(pg.errors.QueryError, match=text):
            engine.sql(query, facts=facts)
    with pytest.raises(pg.errors.InvalidArgumentError, match="needs a grid of Ray at least"):
        engine.sql("SELECT 1")
    grid: Any = pg.from_arrow(WHOLE)
    with pytest.raises(
        pg.errors.InvalidArgumentError, match=r"g must be a RayGrid, got .*Grid\nhint: .*from_refs"
    ):
        engine.sql("SELECT 1 FROM g", g=grid)
    with pytest.raises(pg.errors.ResourcesExhaustedError):
        engine.sql(SLOW, timeout=0.05, a=facts, b=facts, c=facts)
    with pytest.raises(
        pg.errors.InvalidArgumentError, match="data must be 'pandas' or 'pyarrow', got 'polars'"
    ):
        facts.partitioned("polars")
    with pytest.raises(
        pg.errors.UnsupportedError, match=r"does not pickle\nhint: pass grid.__partitioned__"
    ):
        pickle.dumps(facts)


def test_the_example_of_the_page_runs() -> None:
    """It starts a Ray of its own."""
    page = (DATA.parent / "docs" / "ray.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    assert code.count("assert") >= 3
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as own:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=DATA.parent,
            env=os.environ | {"RAY_TMPDIR": own},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
