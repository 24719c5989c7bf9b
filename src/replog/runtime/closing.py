"""What becomes of records that are on their way when their client is closed: they fail, and if nobody would hear of it, it is said.

It is said in the log, which everybody sees, and by a ResourceWarning that names the line, which Python hides, and tests and `-W` show.
Nothing is waited for: whoever closes wants it closed, and the brokers may be what is gone.
"""

from __future__ import annotations

import logging
import sys
import warnings
from typing import TYPE_CHECKING

from replog.client.delivery import run_callbacks
from replog.client.untold import Untold
from replog.errors import UsageError

if TYPE_CHECKING:
    from replog.client.core import ClientCore
    from replog.runtime.finishing import Finisher

__all__ = ["Closing"]

_log = logging.getLogger("replog.client")


class Closing:
    """The end of one client core."""

    def __init__(self, core: ClientCore, name: str) -> None:
        """Fail what has no outcome: nobody must wait for it, or think it stored. Called with the lock held; `name` is "Client", say."""
        self._core = core
        self._name = name
        self._untold = Untold.of(core)
        core.crash(UsageError(f"the {name.lower()} was closed"))

    def tell(self, finisher: Finisher | None = None, problem: BaseException | None = None) -> None:
        """Call those who are to be told, and say what nobody was told. Called last, without the lock: a signal handler may have closed.

        Where warnings are errors it raises one, but not over an exception that is under way (as where a `with` block is left by one), nor
        over a `problem` that is about to be raised.
        """
        run_callbacks(self._core)
        if finisher is not None:
            finisher.end()
        text = self._untold.told(self._name)
        if text:
            problem = problem or sys.exception()
            _log.warning(text)
            try:
                warnings.warn(text, ResourceWarning, stacklevel=_level_of_caller())
            except ResourceWarning:
                if problem is None:
                    raise


def _level_of_caller() -> int:
    """How far up whoever closes is, for `warnings.warn` of the function that asks: the first who is not of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("replog."):
        frame, level = frame.f_back, level + 1
    return level
