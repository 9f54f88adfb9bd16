"""The `partgrid` command: `partgrid …` or `python -m partgrid …`."""

from __future__ import annotations

import signal
import sys

from partgrid._native import run_command


def main() -> int:
    """Runs the command with the process's arguments and returns its exit code."""
    # The command is a program of its own: let Ctrl-C and a closed pipe end it as they end others.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["partgrid", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
