"""What is made of files, made anew when one of them has changed: nothing has to be restarted for a secret, a certificate or a rule.

What cannot be used changes nothing: what was made before stays, it is logged once, and it is tried again once a second, because why may be
gone and the files as they are.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from math import inf
from typing import Final, Generic, TypeVar

from replog.errors import UsageError

__all__ = ["LOOK_S", "Watched"]

_log = logging.getLogger("replog")

T = TypeVar("T")

LOOK_S: Final = 1.0
"""What could not be used is tried again after so long."""


class Watched(Generic[T]):
    """`make()` of these files, of which `what` are the words for the log. Its UsageError is raised at first."""

    def __init__(
        self, paths: Iterable[str], make: Callable[[], T], what: str, *, look_s: float = LOOK_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._paths = list(paths)
        self._make = make
        self._what = what
        self._now_s = now_s
        self._look_every_s = look_s
        """The files are not looked at more often."""
        self._looks = self._look()
        self._made = make()
        self._look_s, self._again_s = now_s() + look_s, inf
        self._told: object = None
        """What was logged last of files that cannot be used, and how they looked."""
        self.times = 1
        """How often something was made."""

    def now(self) -> T:
        """What the files say."""
        now_s = self._now_s()
        if now_s >= self._look_s:
            self._look_s = now_s + self._look_every_s
            looks = self._look()
            if looks != self._looks or now_s >= self._again_s:
                self._make_anew(looks, now_s)
        return self._made

    def _make_anew(self, looks: list[object], now_s: float) -> None:
        self._looks = looks
        try:
            self._made = self._make()
        except UsageError as problem:
            self._again_s = now_s + LOOK_S
            if self._told != (looks, str(problem)):
                _log.warning("%s that have changed are not used, those of before are: %s", self._what, problem)
            self._told = looks, str(problem)
            return
        self._again_s, self._told = inf, None
        self.times += 1

    def _look(self) -> list[object]:
        looks: list[object] = []
        for path in self._paths:
            try:
                found = os.stat(path)
                looks.append((found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode, found.st_uid))
            except OSError as problem:
                looks.append(problem.errno)
        return looks
