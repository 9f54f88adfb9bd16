"""Holds the licence of each crate in Cargo.lock against those that deny.toml allows, and each source against crates.io, without tools or a network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


class Expression:
    """An SPDX expression, read from left to right: AND before OR, and `/` as crates of old write OR."""

    def __init__(self, text: str, allowed: set[str]) -> None:
        self.words = re.findall(r"[()]|[^\s()/]+|/", text)
        self.allowed = allowed

    def holds(self) -> bool:
        """Whether what it asks for is allowed."""
        held = self._both()
        while self.words and self.words[0] in ("OR", "/"):
            self.words.pop(0)
            held = self._both() or held
        return held

    def _both(self) -> bool:
        held = self._one()
        while self.words and self.words[0] == "AND":
            self.words.pop(0)
            held = self._one() and held
        return held

    def _one(self) -> bool:
        word = self.words.pop(0)
        if word == "(":
            held = self.holds()
            self.words.pop(0)
            return held
        if self.words and self.words[0] == "WITH":
            word = f"{word} WITH {self.words[1]}"
            del self.words[:2]
        return word in self.allowed


def crates() -> list[dict[str, Any]]:
    """What cargo knows of all crates of the lock file."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["packages"]
    return found


def main() -> int:
    """Names crates that are not allowed; 1 if there are any."""
    told = tomllib.loads((ROOT / "deny.toml").read_text())
    allowed = set(told["licenses"]["allow"])
    faults = []
    for crate in crates():
        name = f"{crate['name']} {crate['version']}"
        licence = crate["license"]
        if not licence or not Expression(licence, allowed).holds():
            faults.append(f"{name}: the licence {licence!r} is not in deny.toml")
        if crate["source"] not in (None, REGISTRY):
            faults.append(f"{name}: comes from {crate['source']}")
    print("\n".join(faults) or "all licences are allowed")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
