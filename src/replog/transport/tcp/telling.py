"""What somebody outside can bring about any number of times is told once a minute, with how often it was kept back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from replog.transport.tcp.origin import origin_of

__all__ = ["COMINGS_MAX", "SUBJECTS_MAX", "TELL_MS", "Seldom", "Strangers", "quiet", "unheeded"]

TELL_MS: Final = 60_000
"""Of one subject it is told so often."""
COMINGS_MAX: Final = 100
"""Clients of one address that come, or go, of which each is told in that time: of more, once a minute how many there were."""
SUBJECTS_MAX: Final = 1_000
"""Subjects that are told within that time; further ones are one subject together."""
_TURNED_AWAY: Final = {"authentication_failed": "from", "peer_refused": "from", "connection_refused": "from", "peer_disconnected": "at"}
"""The events that a stranger can bring about, and which field says where it is. Whoever has a `peer` is no stranger."""
_COMINGS: Final = ("peer_connected", "peer_disconnected")


class Seldom:
    """When each subject was told of, and how much was not told since; of a bounded number of them.

    Beyond that the one that was told of longest ago is forgotten, but not within TELL_MS: until then newcomers share one place.
    """

    def __init__(self, at_once: int = 1) -> None:
        """`at_once`: so often a subject is told within TELL_MS."""
        self._at_once = at_once
        self._told: dict[str, tuple[int, int, int]] = {}
        """The one that was told of longest ago comes first."""
        self._others: dict[str, tuple[int, int, int]] = {}

    def tell(self, subject: str, now_ms: int, kind: str = "") -> int | None:
        """How often it was kept back since it was told last, if it is to be told now; None: it is kept back.

        `kind`: those that find no place of their own share one with others of this kind, of which there are few.
        """
        known = self._told
        if subject not in known and len(known) >= SUBJECTS_MAX:
            oldest = next(iter(known))
            if now_ms - known[oldest][0] < TELL_MS:
                subject, known = kind, self._others
            else:
                del known[oldest]
        first, told, more = known.get(subject, (now_ms - TELL_MS, 0, 0))
        if now_ms - first < TELL_MS:
            is_told = told < self._at_once
            known[subject] = first, told + is_told, more + (not is_told)
            return 0 if is_told else None
        known.pop(subject, None)
        known[subject] = now_ms, 1, 0
        return more


class Strangers:
    """Hands events on to `on_event`. Those of strangers once a minute for each origin, with `more`: how many came since the last one. That
    clients come and go likewise, once there are very many of them: whoever connects again and again must not fill a disk with that."""

    def __init__(self, on_event: Callable[[str, dict[str, Any]], None], *, now_ms: Callable[[], int]) -> None:
        self._on_event = on_event
        self._now_ms = now_ms
        self._seldom, self._comings = Seldom(), Seldom(COMINGS_MAX)

    def __call__(self, name: str, fields: dict[str, Any]) -> None:
        """An event of a transport."""
        where, seldom = _TURNED_AWAY.get(name), self._seldom
        if type(fields.get("peer")) is tuple and name in _COMINGS:
            where, seldom = "at", self._comings
        elif where is None or fields.get("peer") is not None:
            self._on_event(name, fields)
            return
        more = seldom.tell(f"{name} {origin_of(fields[where])}", self._now_ms(), name)
        if more is not None:
            self._on_event(name, {**fields, "more": more} if more or seldom is self._seldom else fields)


def quiet(name: str, fields: dict[str, Any]) -> None:
    """Nobody wants to know."""


def unheeded(broker_id: Any, request: str, ms: int) -> None:
    """Nobody counts."""
