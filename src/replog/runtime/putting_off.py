"""An end that a signal handler wants in the middle of a call of its own thread: it comes when that call has left the lock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from replog.errors import UsageError

__all__ = ["is_inside", "put_off"]

_log = logging.getLogger("replog")


def is_inside(lock: Any) -> bool:
    """Whether this very thread holds this lock: a call of it is under way, and a signal handler, say, came in between."""
    return bool(lock._is_owned())


def put_off(end: Callable[[], None], name: str) -> None:
    """Have a thread do `end`, for which this one would have to leave its lock. The interpreter waits for it before it exits.

    UsageError if no thread can be had: then nothing has changed.
    """

    def work() -> None:
        try:
            end()
        except Exception:  # nobody is there who could hear it
            _log.exception("%s: what a signal handler wanted has failed", name)

    try:
        threading.Thread(target=work, name=name, daemon=False).start()
    except RuntimeError as problem:
        raise UsageError(
            f"{name}: a signal handler came into another call of this thread, and no thread can be had that waits for its end ({problem}); "
            "raise SystemExit in the handler, or set an Event, and do it afterwards"
        ) from problem
