"""What is done before a clean stop, and when it is given up: of lives that only count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from replog.errors import ReplogError, UsageError
from replog.log.memory import MemoryLogDirectory
from replog.runtime import before_stop
from replog.runtime.before_stop import BeforeStop
from replog.runtime.pump import Pump


class Life:
    """A broker with logs to flush: so many at first, and then as many as came meanwhile, round by round."""

    def __init__(self, broker_id: int, *found: int) -> None:
        self.broker_id = broker_id
        self.directory: Any = object()
        self.found = list(found)
        self.left_to_flush = 0
        self.said: list[str] = []
        self.may_leave = False

    def flush_all(self) -> None:
        self.said.append("flush")
        self.left_to_flush = self.found.pop(0) if self.found else 0

    def leave(self) -> None:
        self.said.append("leave")


class Stop:
    """A `BeforeStop` whose time is what it waits for: in each wait so many logs of every life are flushed."""

    def __init__(self, *lives: Life, flushed: int = 1_000, seconds: float = 1.0) -> None:
        self.lives = {life.broker_id: life for life in lives}
        self.flushed = flushed
        self.seconds = seconds
        """How long a wait takes that gets nowhere."""
        self.now = 0.0
        self.raises: BaseException | None = None
        self.spread: list[list[int]] = []
        self.before = BeforeStop(
            Pump(messages_max=100),
            self.wait,
            self.spread_over,
            self.lives.get,  # type: ignore[arg-type]
        )

    def spread_over(self, brokers: Sequence[int]) -> AbstractContextManager[None]:
        self.spread.append(list(brokers))
        return nullcontext()

    def wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        if self.raises is not None:
            raise self.raises
        for life in self.lives.values():
            if "leave" in life.said:
                life.may_leave = True
            life.left_to_flush = max(0, life.left_to_flush - self.flushed)
        self.now += min(timeout_s, self.seconds)
        return done()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Stop], Stop]:
    def of(stop: Stop) -> Stop:
        monkeypatch.setattr(before_stop.time, "monotonic", lambda: stop.now)
        return stop

    return of


Clock = Callable[[Stop], Stop]


def test_nothing_to_flush_is_no_wait(clock: Clock) -> None:
    one = Life(1)
    stop = clock(Stop(one))
    assert stop.before.flush([one]) is None  # type: ignore[list-item]
    assert (one.said, stop.now, stop.spread) == (["flush"], 0.0, [[1]])


@pytest.mark.parametrize(("found", "rounds"), [((5,), 2), ((5, 3), 3), ((5, 3, 2), 3), ((5, 3, 2, 1, 1), 3)])
def test_what_came_meanwhile_is_flushed_in_the_next_round_but_not_for_ever(clock: Clock, found: tuple[int, ...], rounds: int) -> None:
    one, other = Life(1, *found), Life(2)
    stop = clock(Stop(one, other))
    assert stop.before.flush([one, other]) is None  # type: ignore[list-item]
    assert one.said == other.said == ["flush"] * rounds
    assert one.left_to_flush == 0


def test_a_disk_that_ends_nothing_is_given_up_after_its_time_and_is_not_asked_again(clock: Clock) -> None:
    one = Life(1, 5, 5)
    stop = clock(Stop(one, flushed=0))
    assert stop.before.flush([one]) is None  # type: ignore[list-item]
    assert (one.said, stop.now) == (["flush"], before_stop.DISK_S)


def test_one_that_ends_something_now_and_then_is_waited_for(clock: Clock) -> None:
    one = Life(1, 5)
    stop = clock(Stop(one, flushed=1, seconds=before_stop.DISK_S - 1))
    assert stop.before.flush([one]) is None  # type: ignore[list-item]
    assert (one.left_to_flush, stop.now) == (0, 5 * (before_stop.DISK_S - 1))


def test_the_time_of_a_disk_begins_with_what_it_has_ended_last(clock: Clock) -> None:
    hangs, well = Life(1, 5), Life(2, 1)
    stop = clock(Stop(hangs, well, seconds=7.0))
    waits = stop.wait

    def hanging(done: Callable[[], bool], timeout_s: float) -> bool:
        left = hangs.left_to_flush
        waits(lambda: True, timeout_s)
        hangs.left_to_flush = left
        return done()

    stop.before._wait = hanging
    assert stop.before.flush([hangs, well]) is None  # type: ignore[list-item]
    assert stop.now == 7.0 + before_stop.DISK_S


def test_who_does_not_run_any_more_or_has_no_disk_is_not_waited_for(clock: Clock) -> None:
    gone, memory, ended = Life(1, 5), Life(2, 5), Life(3, 5)
    memory.directory = MemoryLogDirectory()
    stop = clock(Stop(memory, ended, flushed=0))
    waits = stop.wait

    def ending(done: Callable[[], bool], timeout_s: float) -> bool:
        waits(done, timeout_s)
        stop.lives[3] = Life(3)
        return done()

    stop.before._wait = ending
    assert stop.before.flush([gone, memory, ended]) is None  # type: ignore[list-item]
    assert (gone.said, memory.said) == ([], [])
    assert stop.now == 1.0


@pytest.mark.parametrize(("raised", "told"), [(UsageError("inside"), False), (ReplogError("wrong"), False), (TypeError("ours"), True)])
def test_what_comes_up_meanwhile_does_not_keep_the_stop_from_coming(clock: Clock, raised: Exception, told: bool) -> None:
    one = Life(1, 5)
    stop = clock(Stop(one))
    stop.raises = raised
    assert stop.before.flush([one]) is (raised if told else None)  # type: ignore[list-item]


def test_an_interrupt_does(clock: Clock) -> None:
    one = Life(1, 5)
    stop = clock(Stop(one))
    stop.raises = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        stop.before.flush([one])  # type: ignore[list-item]


def test_it_is_flushed_before_it_leaves_and_after_that(clock: Clock) -> None:
    one = Life(1, 5, 0, 3)
    stop = clock(Stop(one))
    stop.before.prepare(one, 10.0)  # type: ignore[arg-type]
    assert one.said == ["flush", "flush", "leave", "flush", "flush"]


def test_without_time_for_that_it_is_only_flushed(clock: Clock) -> None:
    one = Life(1, 5)
    stop = clock(Stop(one))
    stop.before.prepare(one, 0)  # type: ignore[arg-type]
    assert one.said == ["flush", "flush"]


def test_a_disk_that_hangs_is_not_waited_for_twice(clock: Clock) -> None:
    one = Life(1, 5)
    stop = clock(Stop(one, flushed=0))
    stop.before.prepare(one, 10.0)  # type: ignore[arg-type]
    assert one.said == ["flush", "leave"]
    assert stop.now == before_stop.DISK_S + 1.0


def test_a_mistake_is_raised_once_it_has_left(clock: Clock) -> None:
    one = Life(1, 5)
    stop = clock(Stop(one))
    waits, mistakes = stop.wait, [TypeError("ours")]

    def once(done: Callable[[], bool], timeout_s: float) -> bool:
        if mistakes:
            one.left_to_flush = 0
            raise mistakes.pop()
        return waits(done, timeout_s)

    stop.before._wait = once
    with pytest.raises(TypeError, match="ours"):
        stop.before.prepare(one, 10.0)  # type: ignore[arg-type]
    assert one.said == ["flush", "leave", "flush"]
    assert one.may_leave


def test_who_is_gone_is_not_told_to_leave(clock: Clock) -> None:
    """Another life may be in its place."""
    one = Life(1)
    stop = clock(Stop())
    stop.before.prepare(one, 10.0)  # type: ignore[arg-type]
    assert (one.said, stop.now) == ([], 0.0)


def test_who_goes_meanwhile_is_not_waited_for_to_leave(clock: Clock) -> None:
    one = Life(1)
    stop = clock(Stop(one))
    waits = stop.wait

    def ending(done: Callable[[], bool], timeout_s: float) -> bool:
        waits(lambda: True, timeout_s)
        one.may_leave = False
        stop.lives[1] = Life(1)
        assert done()
        return True

    stop.before._wait = ending
    stop.before.prepare(one, 10.0)  # type: ignore[arg-type]
    assert one.said == ["flush", "leave"]
