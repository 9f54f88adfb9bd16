"""HeAT under `mpirun` on 1 to 4 ranks; what it does stands in `heat_program.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("heat", reason="HeAT is not installed: make test-peers")

PROGRAM = Path(__file__).with_name("heat_program.py")
AS_ROOT = (
    "OMPI_ALLOW_RUN_AS_ROOT",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_check_holds_on_every_rank(ranks: int) -> None:
    mpirun = Path(sys.executable).with_name("mpirun")
    command = [mpirun, "-n", str(ranks), "--oversubscribe", sys.executable, PROGRAM]
    environment = os.environ | dict.fromkeys(AS_ROOT, "1") | {"OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{mpirun.parent}:{environment['PATH']}"
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    checks = re.findall(r"^@check\ndef (\w+)", PROGRAM.read_text(), flags=re.MULTILINE)
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    assert len(checks) >= 18
    assert said == sorted(f"rank {rank} {check}" for rank in range(ranks) for check in checks)
