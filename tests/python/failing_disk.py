"""A disk that fails at the calls that a test names: a library in C (failing_disk.c) that is put before that of the system."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# As failing_disk.c has it.
HEAD = struct.Struct("=qqqq")
BYTES = HEAD.size + 4064

# Said instead of an error: the process ends.
DEATH = 0

NEVER = (1 << 62) - 1

ON_LINUX = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="calls of a process are replaced by a library in C, on Linux",
)


class FailingDisk:
    """What fails of the calls that change a folder. It is to be made before the process, which has it by its environment."""

    def __init__(self, work: Path, folder: Path) -> None:
        self.library, file = work / "failing_disk.so", work / "faults"
        command = ["cc", "-std=c11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC"]
        source = HERE / "failing_disk.c"
        subprocess.run([*command, "-o", self.library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(self.library), "PARTGRID_FAULTS": str(file)}
        named = str(folder).encode()
        file.write_bytes(HEAD.pack(0, 0, 0, 0) + named.ljust(BYTES - HEAD.size, b"\0"))
        with file.open("r+b") as opened:
            self.map = mmap.mmap(opened.fileno(), BYTES)

    def fail(self, first: int, error: int, last: int | None = None) -> None:
        """Has the calls of these numbers fail, counted from now on; only one, if no last one is named."""
        self.heal()
        until = first if last is None else last
        HEAD.pack_into(self.map, 0, first, until, error, 0)

    def heal(self) -> None:
        """Nothing fails any more."""
        HEAD.pack_into(self.map, 0, 0, 0, 0, 0)

    @property
    def has_failed(self) -> bool:
        """Whether a call failed since it was last told something."""
        first, _, _, seen = HEAD.unpack_from(self.map, 0)
        return bool(0 < first <= seen)
