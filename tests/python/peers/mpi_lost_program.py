"""A rank that is lost after a first statement: run by `test_mpi.py` under `mpirun`. The argument says how it is lost."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
import pyarrow as pa
from mpi4py import MPI

import partgrid as pg
from partgrid.engines import mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()
QUERY = "SELECT sum(x) AS x FROM facts WHERE x >= 0"
LOST = (pg.errors.WorkerLostError, pg.errors.PartitionLostError)


def say(what: object) -> None:
    # In one piece, since all ranks write to one place.
    os.write(1, f"\nrank {RANK} {what}\n".encode())


facts = mpi.from_local(pa.table({"x": np.arange(1000) + 1000 * RANK}), COMM)
answer = mpi.sql(QUERY, COMM, facts=facts)
assert RANK != 0 or answer.to_pydict() == {"x": [sum(range(1000 * SIZE))]}
COMM.Barrier()
[[server, _]] = mpi._members.values()
if RANK == SIZE - 1:
    say("is lost")
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    server.stop(within=0)
if sys.argv[1] == "killed":
    # Nobody comes here but those who wait for it in vain.
    COMM.Barrier()
    say("goes on")
COMM.Barrier()
began = time.monotonic()
try:
    mpi.sql(QUERY, COMM, facts=facts)
    say("has an answer")
except LOST as error:
    say(f"{type(error).__name__} after {time.monotonic() - began:.1f} s")
# What needs nobody else goes on.
answer = mpi.sql("SELECT 1 + 1 AS two", COMM)
assert RANK != 0 or answer.to_pydict() == {"two": [2]}
COMM.Barrier()
