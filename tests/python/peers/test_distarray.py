"""The real distarray 0.6.0 as a second opinion, over MPI on 2 to 8 ranks; what is done stands in `distarray_program.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distarray", reason="distarray is not installed: make test-peers")

import partgrid as pg
from peers.old_distarray import validator

HERE = Path(__file__).parent
PROGRAM, DEVIATIONS = HERE / "distarray_program.py", HERE / "distarray_deviations.py"
CHECKS = [PROGRAM, HERE / "distarray_moves.py", HERE / "distarray_refusals.py"]
DOCUMENT = HERE.parents[2] / "docs" / "distarray.md"


def on_ranks(ranks: int, program: Path) -> str:
    """What all ranks of a program print. One that waits for ever ends the test."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-n", str(ranks), sys.executable, program]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_every_check_holds_on_every_rank(ranks: int) -> None:
    checks = re.findall(r"@check\ndef (\w+)", "".join(each.read_text() for each in CHECKS))
    deviations = re.findall(
        r"^def (\w+)\(comm: MPI.Comm\) -> None", DEVIATIONS.read_text(), re.MULTILINE
    )
    assert len(checks) >= 15
    assert len(deviations) >= 14
    said = on_ranks(ranks, PROGRAM).splitlines()
    every = [f"rank {rank} {name}" for rank in range(ranks) for name in checks + deviations]
    assert sorted(line for line in said if line.startswith("rank ")) == sorted(every)


def test_the_example_of_the_document_runs(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(# mpiexec.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    program = tmp_path / "program.py"
    program.write_text(code)
    for ranks in (2, 4):
        # Lines of several ranks may run into each other.
        said = re.findall(r"rank \d: \[.*?\]", on_ranks(ranks, program))
        assert sorted(said) == sorted(
            f"rank {rank}: {[*range(rank, 12, ranks)]}" for rank in range(ranks)
        )


BLOCK = {
    "dist_type": "b",
    "size": 10,
    "proc_grid_size": 3,
    "proc_grid_rank": 1,
    "start": 3,
    "stop": 6,
}
CYCLIC = {"dist_type": "c", "size": 9, "proc_grid_size": 3, "proc_grid_rank": 1, "start": 1}
LISTED = {
    "dist_type": "u",
    "size": 9,
    "proc_grid_size": 3,
    "proc_grid_rank": 1,
    "indices": np.array([3, 1, 4]),
}


def section(dimension: Any, version: Any = "0.10.0", length: int = 3) -> dict[str, Any]:
    return {"__version__": version, "buffer": np.zeros(length), "dim_data": (dimension,)}


def without(dimension: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in dimension.items() if name != key}


@pytest.mark.parametrize(
    "valid", [BLOCK, CYCLIC, LISTED, BLOCK | {"padding": (1, 0), "periodic": True}], ids=str
)
def test_both_validators_find_nothing(valid: dict[str, Any]) -> None:
    assert validator.validate(section(valid)) == (True, "")
    assert pg.distarray.validate(section(valid)) == []


# Rule, and a section that breaks it. Each would be read wrongly, or not at all.
ACCEPTED = [
    ("T3", section(BLOCK, version="0.10")),
    ("D3", section(CYCLIC | {"size": -1}, length=0)),
    ("D3", section(without(CYCLIC, "size"))),
    ("D3", section(LISTED | {"size": "9"})),
    ("D3", section(CYCLIC | {"size": True})),
    ("D4", section(BLOCK | {"proc_grid_rank": -1})),
    ("D5", section(BLOCK | {"stop": True, "start": False}, length=1)),
    ("D6", section(BLOCK, length=4)),
    ("D6", section(CYCLIC | {"block_size": 2, "start": 2, "size": 7}, length=3)),
    ("D7", section(BLOCK | {"padding": (-1, 0)})),
    ("D8", section(BLOCK | {"padding": (2, 2)})),
    ("D9", section(BLOCK | {"periodic": 1})),
    ("D11", section(LISTED | {"indices": np.array([0.5, 1.5, 2.5])})),
    ("D11", section(LISTED | {"indices": np.array([[3, 1, 4]])})),
    ("D11", section(LISTED | {"indices": np.array([3, 1, 3])})),
]


@pytest.mark.parametrize(("rule", "invalid"), ACCEPTED)
def test_the_validator_of_distarray_accepts_what_is_invalid(rule: str, invalid: Any) -> None:
    assert validator.validate(invalid) == (True, "")
    assert rule in {each.rule for each in pg.distarray.validate(invalid)}


@pytest.mark.parametrize(
    ("valid", "says"),
    [
        (section(BLOCK, version="0.10.7"), "not supported by this checker"),
        (section(BLOCK, version="0.9.0"), "not supported by this checker"),
        (
            section(CYCLIC | {"size": 1, "block_size": 2}, length=0),
            "proc_grid_rank * block_size != start",
        ),
    ],
)
def test_the_validator_of_distarray_refuses_what_is_valid(valid: Any, says: str) -> None:
    is_valid, message = validator.validate(valid)
    assert (is_valid, says in message) == (False, True), message
    assert pg.distarray.validate(valid) == []


@pytest.mark.parametrize(("rule", "key"), [("D1", "dist_type"), ("D3", "size")])
def test_the_validator_of_distarray_raises_where_a_key_is_missing(rule: str, key: str) -> None:
    invalid = section(without(BLOCK, key))
    with pytest.raises(KeyError, match=key):
        validator.validate(invalid)
    assert rule in {each.rule for each in pg.distarray.validate(invalid)}
