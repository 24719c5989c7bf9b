"""One line for each wish that would change the cluster: who, from where, what, and what became of it. To the logger `replog.audit`.

Whoever may connect can ask in vain as often as it likes. Of one principal the first refusals are written whole, and of more one line
that says how many there were: nobody fills a disk with what it may not do. What was passed on is always written.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import define, field

from replog.errors import error_name
from replog.security.roles import WISHES

__all__ = ["PRINCIPALS_MAX", "REFUSALS_MAX", "REFUSALS_MS", "Refusals", "audit"]

_log = logging.getLogger("replog.audit")

REFUSALS_MS: Final = 10_000
REFUSALS_MAX: Final = 10
"""Refusals of one principal that are written whole in that time."""
PRINCIPALS_MAX: Final = 1_000
"""Principals of which refusals are counted; beyond them the sum of the one that was refused first is written before its time."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/@\[\]-]{1,300}")
_LONGEST: Final = 300


def audit(
    principal: object, address: str, action: str, topics: str, more: Mapping[str, str], code: int | None, *, refused: int = 0
) -> None:
    """`more`: further fields of this action. `code`: 0 it was done, None: nobody knows. `refused`: so many parts of it were not."""
    outcome = "unknown" if code is None else error_name(code) if code else "partly" if refused else "ok"
    fields = {"principal": principal, "address": address, "action": action, "topic": topics, **more, "outcome": outcome}
    _write(fields | ({"refused": refused} if refused else {}))


@define
class _Refused:
    """Of one principal, since a moment."""

    since_ms: int
    whole: int = 0
    more: int = 0
    address: str = ""
    """Where the last one came from that was not written."""
    actions: set[str] = field(factory=set)
    """What those wanted that were not written."""


class Refusals:
    """How often each principal was refused of late, of a bounded number of them; `now_ms` never goes back."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._refused: dict[str, _Refused] = {}  # who was refused first is first

    def is_written(self, principal: str, address: str, action: str) -> bool:
        """Count one more; whether a line is to be written of it alone."""
        now_ms = self._now_ms()
        self.tell(now_ms)
        one = self._refused.get(principal)
        if one is None:
            if len(self._refused) >= PRINCIPALS_MAX:
                self._end(next(iter(self._refused)))
            one = self._refused[principal] = _Refused(now_ms)
        if one.whole < REFUSALS_MAX:
            one.whole += 1
            return True
        one.more += 1
        one.address = address
        one.actions.add(action if action in WISHES else "?")
        return False

    @property
    def next_ms(self) -> int | None:
        """When `tell` has something to do; None: never."""
        return next((one.since_ms + REFUSALS_MS for one in self._refused.values()), None)

    def tell(self, now_ms: int) -> None:
        """Write the sums whose time has come."""
        while (due_ms := self.next_ms) is not None and due_ms <= now_ms:
            self._end(next(iter(self._refused)))

    def close(self) -> None:
        """Write all that is known."""
        while self._refused:
            self._end(next(iter(self._refused)))

    def _end(self, principal: str) -> None:
        one = self._refused.pop(principal)
        if one.more:
            actions = ",".join(sorted(one.actions))
            fields = {"principal": principal, "address": one.address, "action": actions, "outcome": "refused", "more": one.more}
            _write({**fields, "within_s": REFUSALS_MS // 1_000})


def _write(fields: Mapping[str, Any]) -> None:
    line = " ".join(f"{key}={_shown(str(value))}" for key, value in fields.items())
    _log.info(line.replace("%", "%%"), dict(fields))


def _shown(text: str) -> str:
    """As it is; in quotes if it holds what could be taken for something else, such as the end of the line, and where it is cut off."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
