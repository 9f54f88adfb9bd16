"""SQL over the tiles of all ranks, under `mpirun` of Open MPI or MPICH; what it does stands in `mpi_program.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed: make test-peers")

PROGRAM = Path(__file__).with_name("mpi_program.py")
LOST = Path(__file__).with_name("mpi_lost_program.py")
BATCH = Path(__file__).resolve().parents[3] / "deploy" / "mpi.sbatch"
AS_ROOT = (
    "OMPI_ALLOW_RUN_AS_ROOT",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
)


def run(command: list[object], seconds: float, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with the MPI of this environment first."""
    environment = os.environ | dict.fromkeys(AS_ROOT, "1") | {"PARTGRID_MAX_THREADS": "2"} | more
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    # There may be fewer cores than ranks.
    environment["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    return subprocess.run(
        [str(word) for word in command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def on_ranks(ranks: int, *program: object, seconds: float = 300) -> Any:
    """Runs a program on so many ranks; an exception on one of them ends all."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    is_open_mpi = mpiexec.with_name("ompi_info").exists() or mpiexec.with_name("prterun").exists()
    more = ["--oversubscribe"] if is_open_mpi else []
    return run([mpiexec, "-n", ranks, *more, sys.executable, "-m", "mpi4py", *program], seconds)


def said(output: str) -> list[str]:
    return sorted(re.findall(r"^rank \d+ .*$", output, flags=re.MULTILINE))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_check_holds_on_every_rank(ranks: int) -> None:
    done = on_ranks(ranks, PROGRAM)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    checks = re.findall(r"^@check\ndef (\w+)", PROGRAM.read_text(), flags=re.MULTILINE)
    assert len(checks) >= 8
    wanted = sorted(f"rank {rank} {check}" for rank in range(ranks) for check in checks)
    assert said(done.stdout) == wanted


def test_a_rank_whose_server_is_lost_is_an_error_on_all_ranks_in_time() -> None:
    done = on_ranks(3, LOST, "stopped", seconds=60)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    [is_lost] = [line for line in said(done.stdout) if line.endswith("is lost")]
    assert is_lost == "rank 2 is lost"
    errors = [line for line in said(done.stdout) if line != is_lost]
    found = [re.fullmatch(r"rank (\d) (\w+) after ([\d.]+) s", line) for line in errors]
    told = [(each[1], each[2]) for each in found if each]
    assert [rank for rank, _ in told] == ["0", "1", "2"], errors
    assert len({kind for _, kind in told}) == 1, errors
    assert all(float(each[3]) < 10 for each in found if each), errors


def test_a_rank_that_is_killed_ends_the_program_in_time() -> None:
    began = time.monotonic()
    done = on_ranks(3, LOST, "killed", seconds=120)
    assert time.monotonic() - began < 60
    assert done.returncode != 0
    assert said(done.stdout) == ["rank 2 is lost"]


def test_the_batch_job_runs_with_mpiexec_in_place_of_srun() -> None:
    more = {"LAUNCH": "mpiexec", "PARTGRID_VENV": sys.prefix, "SLURM_NTASKS": "2"}
    done = run(["bash", BATCH], 60, **more)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2 ranks have 2000 rows on 1 hosts, and answer SQL"


def test_mpi_is_imported_only_when_it_is_used() -> None:
    code = "import sys, partgrid.engines.mpi; print(sorted({'mpi4py', 'numpy', 'pandas', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
