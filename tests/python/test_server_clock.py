"""A server whose clock jumps by a day: tokens go by the clock, times that things may take do not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import partgrid as pg
from services import ENDLESS, service, write_tokens

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
    FILE *file = id == CLOCK_REALTIME ? fopen(getenv("CLOCK_SHIFT"), "r") : NULL;
    long shift = 0;
    if (file && fscanf(file, "%ld", &shift) == 1) now->tv_sec += shift;
    if (file) fclose(file);
    return code;
}
"""
DAY = 86_400

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="the clock of a process is replaced by a library in C, on Linux",
)


class Clock:
    """The clock of a process, as far as it asks the C library."""

    def __init__(self, folder: Path) -> None:
        source, self.library = folder / "clock.c", folder / "clock.so"
        self.file = folder / "shift"
        source.write_text(CLOCK)
        built = ["cc", "-shared", "-fPIC", "-o", str(self.library), str(source), "-ldl"]
        subprocess.run(built, check=True)
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Says another time from now on: so many seconds later than it is."""
        new = self.file.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self.file)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_SHIFT": str(self.file)}


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


def test_a_token_is_good_until_its_end_by_the_clock(tmp_path: Path, clock: Clock) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds")
    path = tmp_path / "tokens.toml"
    tokens = write_tokens(path, soon={"expires": soon}, always={})
    with service("--tokens", path, **clock.environment) as one:
        connection = pg.connect(one.uri, token=tokens["soon"])
        assert connection.grids() == []
        for shift in (DAY, -DAY, DAY):
            clock.jump(shift)
            assert pg.connect(one.uri, token=tokens["always"]).grids() == []
            if shift < 0:
                assert connection.grids() == []
                continue
            with pytest.raises(pg.errors.PermissionDeniedError, match="expired"):
                connection.grids()


@pytest.mark.parametrize("shift", [DAY, -DAY])
def test_what_a_query_may_take_does_not_go_by_the_clock(clock: Clock, shift: int) -> None:
    with service("--set", "limits.query_time=1", **clock.environment) as one:
        connection = pg.connect(one.uri)
        kept = connection.sql("SELECT 1 AS one")
        stream = connection.sql(ENDLESS).stream()
        begun = time.monotonic()
        clock.jump(shift)
        with pytest.raises(pg.errors.ResourcesExhaustedError, match="1 second"):
            list(stream)
        assert 0.5 < time.monotonic() - begun < 5
        # What was kept for the client is neither gone nor kept for another day.
        assert kept.to_arrow()["one"].to_pylist() == [1]
        assert connection.sql("SELECT 2 AS two").to_arrow()["two"].to_pylist() == [2]
