"""Bars for loads and queries: where they are shown, and how they look.

Comes in: a `LoadProgress` or `QueryProgress` now and then. Goes out: one line on standard error or in a notebook cell,
rewritten in place. Never here: counting.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from partgrid import _native

if TYPE_CHECKING:
    from partgrid import LoadProgress, QueryProgress

# A load that ends sooner shows nothing.
_QUIET_SECONDS = 0.5
_INTERVAL_SECONDS = 0.1
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_KILO = 1000
_MINUTE = 60


class _Screen(Protocol):
    def write(self, line: str) -> None: ...
    def close(self) -> None: ...


def bar(wanted: bool | None) -> Bar | None:
    """A bar if one is wanted, or if nothing is said and a person sees it.

    Args:
        wanted: `True` for a bar in any case, `None` for one in a terminal or a notebook unless
            `PARTGRID_PROGRESS` is `0`, `false`, `no` or `off`.

    Returns:
        The bar, or `None`.
    """
    if wanted is None and os.environ.get("PARTGRID_PROGRESS", "").strip().lower() in {
        "0",
        "false",
        "off",
        "no",
    }:
        return None
    notebook = _notebook()
    if notebook is not None:
        return Bar(notebook)
    if wanted or (sys.stderr is not None and sys.stderr.isatty()):
        return Bar(_Terminal())
    return None


class Bar:
    """One line that says how far a load or a query is."""

    def __init__(self, screen: _Screen) -> None:
        self._screen = screen
        self._begun = time.monotonic()
        self._next = self._begun + _QUIET_SECONDS
        self._shown = False

    def show(self, progress: LoadProgress | QueryProgress) -> None:
        """Rewrites the line, unless it was written a moment ago."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _INTERVAL_SECONDS
        self._shown = True
        width = shutil.get_terminal_size().columns
        if isinstance(progress, _native.LoadProgress):
            self._screen.write(line(progress, width))
        else:
            self._screen.write(query_line(progress, now - self._begun, width))

    def close(self) -> None:
        """Ends the line, if there is one."""
        if self._shown:
            self._screen.close()


def line(progress: LoadProgress, width: int) -> str:
    """How far a load is, in `width` letters.

    Args:
        progress: A moment of the load.
        width: The width of the terminal.

    Returns:
        Percent, a bar, tiles, bytes, time passed and left, rate.
    """
    if not progress.total_bytes:
        return f"loading: {progress.files}/{progress.total_files or '?'} files"[: width - 1]
    if progress.arranging:
        rows = f"{progress.arranged_rows:,}/{progress.rows_to_arrange:,} rows [{_clock(progress.elapsed)}]"
        return f"loading: arranging, {rows}"[: width - 1]
    part = min(progress.bytes / progress.total_bytes, 1.0)
    left = "?" if progress.remaining is None else _clock(progress.remaining)
    head = f"loading: {part:4.0%}|"
    tail = (
        f"| {progress.tiles}/{progress.total_tiles} tiles, {_size(progress.bytes)}/{_size(progress.total_bytes)} "
        f"[{_clock(progress.elapsed)}<{left}, {_size(progress.rate)}/s]"
    )
    room = max(width - 1 - len(head) - len(tail), 0)
    return (head + _blocks(part, room) + tail)[: width - 1]


def query_line(progress: QueryProgress, elapsed: float, width: int) -> str:
    """How far a query is, in `width` letters.

    Args:
        progress: A moment of the query.
        elapsed: Seconds since it began.
        width: The width of the terminal.

    Returns:
        Percent of the rows that scans read, a bar, tiles and rows, time passed.
    """
    if not progress.total_rows:
        return f"query: [{_clock(elapsed)}]"[: width - 1]
    part = min(progress.rows / progress.total_rows, 1.0)
    head = f"query: {part:4.0%}|"
    tail = (
        f"| {progress.tiles:,}/{progress.total_tiles:,} tiles, {progress.rows:,}/{progress.total_rows:,} rows "
        f"[{_clock(elapsed)}]"
    )
    room = max(width - 1 - len(head) - len(tail), 0)
    return (head + _blocks(part, room) + tail)[: width - 1]


def _blocks(part: float, room: int) -> str:
    eighths = round(part * room * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if full < room else "")).ljust(room)


def _size(count: float) -> str:
    for unit in _UNITS:
        if count < _KILO or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KILO
    raise AssertionError


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), _MINUTE)
    hours, minutes = divmod(minutes, _MINUTE)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


class _Terminal:
    def write(self, line: str) -> None:
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")
        sys.stderr.flush()


class _Notebook:
    """A cell's output, rewritten through IPython."""

    def __init__(self, display: Any) -> None:  # noqa: ANN401 - IPython has no types of its own here
        self._display = display
        self._handle: Any = None

    def write(self, line: str) -> None:
        bundle = {"text/plain": line}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def close(self) -> None:
        """The last line stays."""


def _notebook() -> _Notebook | None:
    """The notebook that this process is the kernel of, if IPython is loaded already."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    shell = ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return _Notebook(ipython.display.display)
