"""The stub of the extension, as type checkers shall read it.

Comes in: what `maturin generate-stubs` writes. Goes out: the same, in which operators in place give the object itself, as Python sees to, and the type of
capsules is known to older versions of Python, too. PyO3 writes the value of the function in Rust, none, and a third argument of `**=` that Python never
passes, and a type that the standard library has since 3.13. Never here: anything else, which is that of the `///`
in `python/src`.

    python tests/stub.py FOLDER/partgrid/_native.pyi    # changes the file
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

IN_PLACE = re.compile(
    r"^(    def __i\w+__\(self, other: object)(?:, modulo: object)?(, /\) -> )None: \.\.\.$", re.M
)
NEW_TYPE = "from types import CapsuleType\n"
OF_ANY_VERSION = """
if sys.version_info >= (3, 13):
    from types import CapsuleType
else:
    from typing_extensions import CapsuleType
"""
FIRST_IMPORT = re.compile(r"^from typing import ([^\n(]*)$", re.M)


def corrected(stub: str) -> str:
    """The stub with operators in place that give the object itself, and capsules of any version."""
    stub = with_capsules(stub)
    stub, changed = IN_PLACE.subn(r"\1\2Self: ...", stub)
    if not changed:
        return stub
    # That of `**` takes a third argument.
    stub = re.sub(r"^(    def __ipow__.*)$", r"\1  # type: ignore[misc]", stub, flags=re.M)

    def with_self(found: re.Match[str]) -> str:
        names = sorted({*found[1].split(", "), "Self"})
        return f"from typing import {', '.join(names)}"

    stub, imported = FIRST_IMPORT.subn(with_self, stub, count=1)
    if not imported:
        raise SystemExit("the stub imports nothing of typing, where Self is from")
    return stub


def with_capsules(stub: str) -> str:
    """The stub with the type of capsules from where a version of Python has it."""
    if NEW_TYPE not in stub:
        return stub
    stub = stub.replace(NEW_TYPE, "")
    *_, last = re.finditer(r"^(?:from|import) .*\n", stub, re.M)
    stub = stub[: last.end()] + OF_ANY_VERSION + stub[last.end() :]
    return stub.replace("\nfrom ", "\nimport sys\nfrom ", 1)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(corrected(path.read_text()))
