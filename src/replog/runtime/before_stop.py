"""What comes before a clean stop, while the brokers go on as ever: their logs are flushed, and what they lead is moved.

In the stop itself one log waits for the other, with the lock held, and the session of a broker that says nothing runs out: 10,000 logs
took a minute. Here an interrupt ends nothing but the wait for a flush, and one that fails is heard of like any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from replog.errors import ReplogError
from replog.log.memory import MemoryLogDirectory
from replog.runtime.embedded_broker import DISK_S, EmbeddedBroker
from replog.runtime.pump import Pump

__all__ = ["BeforeStop"]

_ROUNDS: Final = 3
"""What is appended during one is flushed in the next, which is shorter; what is left is flushed by the stop."""


class BeforeStop:
    """Of the brokers of one pump."""

    def __init__(
        self,
        pump: Pump,
        wait: Callable[[Callable[[], bool], float], object],
        spread: Callable[[Sequence[int]], AbstractContextManager[object]],
        living: Callable[[int], EmbeddedBroker | None],
    ) -> None:
        """`wait` waits until something is so, at most so many seconds, and has actors run meanwhile; `spread` has several threads take
        the flushes of these brokers as long as it is entered; `living`: the life of a broker that runs now, if there is hope for it.
        """
        self._pump = pump
        self._wait = wait
        self._spread = spread
        self._living = living

    def _runs(self, life: EmbeddedBroker) -> bool:
        return self._living(life.broker_id) is life

    def prepare(self, life: EmbeddedBroker, leave_s: float) -> None:
        """Have this broker flush its logs, and the controller move what it leads; wait until that is done, or takes longer than `leave_s`
        (0: nothing is moved).

        It flushes first, which may take long: an interrupt of that changes nothing, while who has left stays so. What came meanwhile is
        flushed then. Raises a mistake of ours that came up; UsageError as `Pump.wait`.
        """
        mistakes = [self.flush([life])]
        if leave_s and self._runs(life):  # the next life in its place is not told to leave
            with self._pump.lock:
                life.leave()
            self._wait(lambda: life.may_leave or not self._runs(life), leave_s)
            if not life.left_to_flush:  # else its disk hangs
                mistakes.append(self.flush([life]))
        for mistake in mistakes:
            if mistake is not None:
                raise mistake

    def flush(self, lives: Sequence[EmbeddedBroker]) -> Exception | None:
        """Have these brokers flush what their disks do not have, and wait for that; not for a disk that ends nothing within DISK_S. Those
        that have no disk, or do not run, are left alone.

        Returns a mistake of ours that came up meanwhile: the rest of the end is to come all the same.
        """
        lives = [life for life in lives if self._runs(life) and not isinstance(life.directory, MemoryLogDirectory)]

        def left() -> int:
            return sum(life.left_to_flush for life in lives if self._runs(life))

        try:
            with self._spread([life.broker_id for life in lives]):
                for _ in range(_ROUNDS):
                    self._ask(lives)
                    if not left() or not self._wait_for_none(left):
                        break
        except ReplogError:  # inside a run, where a signal handler may be, nothing moves: the stop flushes what it finds
            return None
        except Exception as problem:
            return problem
        return None

    def _ask(self, lives: Sequence[EmbeddedBroker]) -> None:
        with self._pump.lock:
            for life in lives:
                life.flush_all()
            self._pump.run()

    def _wait_for_none(self, left: Callable[[], int]) -> bool:
        """False: for DISK_S it did not get less."""
        least, since_s = left(), time.monotonic()

        def is_none_left() -> bool:
            nonlocal least, since_s
            now = left()
            if now < least:
                least, since_s = now, time.monotonic()
            return not now

        while not is_none_left() and (rest_s := since_s + DISK_S - time.monotonic()) > 0:
            self._wait(is_none_left, rest_s)
        return not least
