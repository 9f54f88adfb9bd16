"""The examples of the README and of the docstrings run as they stand."""

from __future__ import annotations

import doctest
import operator
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import partgrid as pg
from conftest import DATA, ROOT

README = (ROOT / "README.md").read_text()
DOCUMENTED = [name for name in pg.__all__ if name not in {"errors", "__version__"}]
DOCUMENTED += [f"distarray.{name}" for name in pg.distarray.__all__]
DOCUMENTED += [f"storage.{name}" for name in pg.storage.__all__]
DOCUMENTED += [f"buffer.{name}" for name in ("ExtendedBuffer", "get_buffer", "supports")]


def blocks(language: str) -> list[str]:
    """The code blocks of one language in the README."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_example_of_the_readme_runs(number: int) -> None:
    code = blocks("python")[number]
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("name", ["sql", "sharing", "serving", "cluster"])
def test_the_examples_of_a_page_run_one_after_the_other(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    assert code.count("assert") >= 3
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_the_sql_example_of_the_readme_runs(flights: pg.Grid) -> None:
    [query] = blocks("sql")
    airlines = pg.read_parquet(DATA / "airlines.parquet")
    table = pg.sql(query, flights=flights, airlines=airlines).to_arrow()
    assert table["name"].to_pylist()[0] == "United Air Lines Inc."


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("partgrid ")]
    assert len(commands) == 6
    (tmp_path / "data").symlink_to(DATA)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command in commands:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            # A shell ends at once.
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert len(pg.read_parquet(tmp_path / "july.parquet")) == 29425


def test_the_demo_runs_in_under_a_screenful() -> None:
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "copied     0 bytes" in done.stdout
    assert len(done.stdout.splitlines()) < 45


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_is_documented_and_its_examples_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    documented: Any = operator.attrgetter(name)(pg)
    texts = {name: documented.__doc__}
    if isinstance(documented, type):
        for attribute, value in vars(documented).items():
            if not attribute.startswith("_"):
                texts[f"{name}.{attribute}"] = value.__doc__
    for owner, text in texts.items():
        assert text, f"{owner} has no documentation"
        parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
        runner.run(parser.get_doctest(text, {}, owner, None, None))
        assert runner.summarize(verbose=False).failed == 0
