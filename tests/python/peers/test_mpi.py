"""SQL over the tiles of all ranks, under `mpirun` of Open MPI or MPICH; what it does stands in `mpi_program.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed: make test-peers")

PROGRAM = Path(__file__).with_name("mpi_program.py")
AS_ROOT = (
    "OMPI_ALLOW_RUN_AS_ROOT",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_check_holds_on_every_rank(ranks: int) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    is_open_mpi = mpiexec.with_name("ompi_info").exists() or mpiexec.with_name("prterun").exists()
    more = ["--oversubscribe"] if is_open_mpi else []
    command = [mpiexec, "-n", str(ranks), *more, sys.executable, PROGRAM]
    environment = os.environ | dict.fromkeys(AS_ROOT, "1") | {"PARTGRID_MAX_THREADS": "2"}
    environment["PATH"] = f"{mpiexec.parent}:{environment['PATH']}"
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    checks = re.findall(r"^@check\ndef (\w+)", PROGRAM.read_text(), flags=re.MULTILINE)
    said = sorted(re.findall(r"rank \d+ \w+", done.stdout))
    assert len(checks) >= 8
    assert said == sorted(f"rank {rank} {check}" for rank in range(ranks) for check in checks)
