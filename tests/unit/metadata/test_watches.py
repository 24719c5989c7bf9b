"""Who delivers what was made ready at an unlucky moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from replog.metadata.watches import Watches


class LockWithGap:
    """Does something else once nothing was found ready, as soon as it is let go: as another thread may, at exactly that moment."""

    def __init__(self, watches: Watches, between: Callable[[], None]) -> None:
        self._lock, self._watches, self._between = threading.Lock(), watches, between

    def __enter__(self) -> None:
        self._lock.acquire()
        self._found_nothing = not self._watches._ready

    def __exit__(self, *_: Any) -> None:
        self._lock.release()
        if self._found_nothing and (between := self._between) is not _nothing:
            self._between = _nothing
            between()


def _nothing() -> None:
    pass


def test_what_becomes_ready_while_a_delivery_ends_is_delivered() -> None:
    watches = Watches()
    told: list[str] = []

    def another_thread() -> None:
        watches.tell("session", told.append, "second")
        watches.deliver()

    watches.tell("session", told.append, "first")

    def first_is_told(argument: str) -> None:
        told.append(argument)
        watches._lock = LockWithGap(watches, another_thread)  # type: ignore[assignment]

    watches.tell("session", first_is_told, "armed")
    watches.deliver()
    assert told == ["first", "armed", "second"]


def test_a_callback_that_raises_leaves_the_others_to_the_next_delivery() -> None:
    watches = Watches()
    told: list[str] = []
    watches.tell("session", lambda _: 1 / 0, "")
    watches.tell("session", told.append, "later")
    try:
        watches.deliver()
    except ZeroDivisionError:
        told.append("raised")
    watches.deliver()
    assert told == ["raised", "later"]
