"""Clocks of processes, which jump when a test says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Adds the seconds in a file to what the clock says.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, now);
    FILE *file = id == SHIFTED ? fopen(getenv("CLOCK_SHIFT"), "r") : NULL;
    long shift = 0;
    if (file && fscanf(file, "%ld", &shift) == 1) now->tv_sec += shift;
    if (file) fclose(file);
    return code;
}
"""
DAY = 86_400

needs_clocks = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="the clock of a process is replaced by a library in C, on Linux",
)


class Clock:
    """A clock of a process, as far as it asks the C library: that of the wall, or the one that only measures."""

    def __init__(self, folder: Path, shifted: str = "CLOCK_REALTIME") -> None:
        source, self.library = folder / "clock.c", folder / "clock.so"
        self.file = folder / "shift"
        source.write_text(CLOCK)
        command = ["cc", "-shared", "-fPIC", f"-DSHIFTED={shifted}", "-o", str(self.library)]
        subprocess.run([*command, str(source), "-ldl"], check=True)
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Says another time from now on: so many seconds later than it is."""
        new = self.file.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self.file)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_SHIFT": str(self.file)}
