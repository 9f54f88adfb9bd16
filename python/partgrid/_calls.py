"""Calls of code that is not ours and may never return.

Comes in: something to call, its argument, seconds. Goes out: what it returned or raised, or `Late`. Never here: a thread that the end of the program would
wait for.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Late(Exception):  # noqa: N818 - no error of anybody
    """Time was up. The call goes on alone."""


def call_within(called: Callable[[Any], Any], argument: Any, seconds: float) -> Any:  # noqa: ANN401
    """Calls `called(argument)` on a thread of its own and waits so many seconds."""
    done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((called(argument), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=run, name="partgrid-get", daemon=True).start()
    try:
        result, error = done.get(timeout=max(seconds, 0.0))
    except queue.Empty:
        raise Late from None
    if error is not None:
        raise error
    return result
