"""How often it is told that a stranger was turned away: anybody can connect, and each time would be a line in somebody's log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["TELL_MS", "TOLD_MAX", "Strangers"]

TELL_MS: Final = 60_000
"""Of one address each event is told so often."""
TOLD_MAX: Final = 1_000
"""Addresses and events that are remembered; the one that was told of longest ago is forgotten first."""
_TURNED_AWAY: Final = {"authentication_failed": "from", "peer_refused": "from", "connection_refused": "from", "peer_disconnected": "at"}
"""The events that a stranger can bring about, and which field says where it is. Whoever has a `peer` is no stranger."""


class Strangers:
    """Hands events on to `on_event`. Those of strangers once a minute for each address, with `more`: how many came since the last one."""

    def __init__(self, on_event: Callable[[str, dict[str, Any]], None], *, now_ms: Callable[[], int]) -> None:
        self._on_event = on_event
        self._now_ms = now_ms
        self._told: dict[tuple[str, str], tuple[int, int]] = {}
        """Event and address -> when it was told last, and how many came since."""

    def __call__(self, name: str, fields: dict[str, Any]) -> None:
        """An event of a transport."""
        where = _TURNED_AWAY.get(name)
        if where is None or fields.get("peer") is not None:
            self._on_event(name, fields)
            return
        key, now_ms = (name, fields[where].rpartition(":")[0]), self._now_ms()
        last_ms, more = self._told.get(key, (now_ms - TELL_MS, 0))
        if now_ms - last_ms < TELL_MS:
            self._told[key] = last_ms, more + 1
            return
        self._told.pop(key, None)
        self._told[key] = now_ms, 0
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._on_event(name, {**fields, "more": more})
