"""Who delivers what was made ready at an unlucky moment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from replog.metadata import watches as module
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


class Interrupt:
    """A KeyboardInterrupt where signals come: when the n-th call into the interpreter that `watches.py` makes has returned."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: Any, event: str, arg: object) -> None:
        if event == "c_return" and frame.f_code.co_filename == module.__file__:
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def during(self, work: Callable[[], None]) -> bool:
        """Whether it came."""
        profile = sys.getprofile()
        sys.setprofile(self)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(profile)
        return False


@pytest.mark.parametrize("interrupted", ["fire", "deliver"])
def test_an_interrupt_loses_no_watch_and_stops_none_that_follows(interrupted: str) -> None:
    """Wherever it comes."""
    for at in range(1, 100):
        watches, told = Watches(), list[tuple[str, str]]()
        watches.arm("one", "/a", lambda path, told=told: told.append(("one", path)))  # type: ignore[misc]
        watches.arm("two", "/a", lambda path, told=told: told.append(("two", path)))  # type: ignore[misc]
        interrupt = Interrupt(at)
        if interrupted == "fire":
            came = interrupt.during(lambda: watches.fire(["/a"]))  # noqa: B023
        else:
            watches.fire(["/a"])
            came = interrupt.during(watches.deliver)
        watches.fire_all()
        watches.deliver()
        assert set(told) == {("one", "/a"), ("two", "/a")}, f"interrupted at {at}"
        watches.arm("one", "/b", lambda path, told=told: told.append(("one", path)))  # type: ignore[misc]
        watches.fire(["/b"])
        watches.deliver()
        assert told[-1] == ("one", "/b"), f"interrupted at {at}"
        if not came:
            assert at > 3
            return
    raise AssertionError("it never went through")
