"""What the tests of peers need before they start: `make test-peers` runs seldom, and its environments lack most of what there is here."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from conftest import TESTS

NEEDED = TESTS / "peers" / "requirements"

# `None` in place of a module is how Python is told that there is none.
LOADS = """
import sys

for missing in sys.argv[1:]:
    sys.modules[missing] = None
import conftest
"""


def names(file: Path) -> set[str]:
    """The distributions that a file of requirements asks for."""
    found = (re.match(r"[\w.-]+", line) for line in file.read_text().splitlines())
    return {name[0].lower() for name in found if name}


def test_fixtures_load_with_what_every_peer_has() -> None:
    """All of pytest reads `conftest.py`, so it may import only what each environment has."""
    files = [file for file in NEEDED.glob("*.txt") if not file.name.endswith(".no-deps.txt")]
    # Where numpy is not asked for, pandas brings it.
    everywhere = {"numpy"} | set.intersection(*map(names, files))
    ours = names(TESTS / "requirements.txt")
    missing = {
        module
        for module, distributions in packages_distributions().items()
        if ours.intersection(map(str.lower, distributions)) - everywhere
    }
    assert "pyarrow" in missing
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *missing],
        cwd=TESTS,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
