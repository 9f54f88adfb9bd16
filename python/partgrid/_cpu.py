"""Sees that the processor has what the engine is compiled for, before the engine is loaded: afterwards it would end with an illegal instruction.

Comes in: what Linux says of the processor. Goes out: nothing, or an `ImportError` that says what is missing. Never here: other systems.
"""

from __future__ import annotations

import os
from pathlib import Path

# x86-64-v3, as Linux names its parts.
_NEEDED = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_CPUINFO = Path("/proc/cpuinfo")


def check(cpuinfo: Path = _CPUINFO) -> None:
    """Raises when the processor is too old.

    Args:
        cpuinfo: Where Linux describes the processors.

    Raises:
        ImportError: The processor lacks an instruction set; the text names it.
    """
    if os.uname().machine != "x86_64":
        return
    try:
        with cpuinfo.open() as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return
    missing = _NEEDED - set(flags.split())
    if flags and missing:
        text = f"partgrid needs a processor with AVX2 (x86-64-v3), this one lacks {', '.join(sorted(missing))}"
        raise ImportError(f"{text}\nhint: build partgrid from source without .cargo/config.toml")
