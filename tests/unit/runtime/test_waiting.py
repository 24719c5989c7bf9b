"""Threads that wait at one pump: each is woken by what it waits for, whoever brings it, and by nothing else."""

from __future__ import annotations

import gc
import threading
from _thread import RLock
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from weakref import ref

import pytest
from tests.threads import in_thread
from tests.unit.runtime.test_loop import Quiet

from replog.ports import Outbox
from replog.runtime import pump
from replog.runtime.changing import Changing
from replog.runtime.loop import Loop
from replog.runtime.pump import Pump
from replog.runtime.resting import Resting, Waiter
from replog.runtime.seat import Seat
from replog.testing.eventually import eventually

FAR_MS = 3_600_000


class Board:
    """Hears numbers. Its timer is due at `due`; when it has passed, `fired` is True."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.heard: list[int] = []
        self.due = FAR_MS
        self.fired = False

    def receive(self, sender: Any, message: int, now_ms: int) -> None:
        if message < 0:
            raise ValueError("a mistake")
        self.heard.append(message)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        self.fired |= now_ms >= self.due

    def deadline_ms(self) -> int:
        return self.due


class World:
    """One pump with an actor, at a time that stands still."""

    def __init__(self) -> None:
        self.now = 5
        self.pump = Pump(messages_max=100_000, now_ms=lambda: self.now)
        self.pump.after_run = self._count
        self.board = Board()
        self.pump.seat(Seat("board", self.board))
        self.runs = 0
        self.threads: list[Any] = []

    def _count(self) -> None:
        self.runs += 1

    def wait(self, *wanted: Callable[[], bool]) -> None:
        """A thread for each; returns when all of them rest."""
        self.threads = [in_thread(partial(self.pump.wait, done, None)) for done in wanted]
        eventually(lambda: len(self.pump._waiting) == len(wanted))

    def say(self, number: int) -> None:
        with self.pump.lock:
            self.pump.post("board", number)
            self.pump.run()

    def all_came(self) -> bool:
        """Whether every thread that waited has what it waited for."""
        for thread, _ in self.threads:
            thread.join(30)
        return [outcome for _, outcome in self.threads] == [[True]] * len(self.threads)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(pump, "_LOOK_MS", FAR_MS)  # so often somebody else looks up if whoever keeps the clock is lost: here never
    return World()


class Looking:
    """What a thread waits for, and whether that thread has looked for it lately."""

    def __init__(self) -> None:
        self.looks = 0
        self.outcome: list[bool] = []
        """Once there is something in it, that is what the thread gets, or what is raised."""
        self._thread: int | None = None

    def __call__(self) -> bool:
        self._thread = self._thread or threading.get_ident()
        self.looks += self._thread == threading.get_ident()
        if not self.outcome:
            return False
        if self.outcome[0]:
            return True
        raise LookupError("what was waited for is gone")


def test_nobody_is_woken_by_what_is_not_for_him(world: World) -> None:
    """Each that is woken runs: were the others woken by that, two would keep each other awake for ever."""
    world.wait(*[lambda: 99 in world.board.heard] * 4)
    for number in range(50):
        for speaker, _ in (in_thread(world.pump.run), in_thread(partial(world.say, number))):
            speaker.join()  # a moment in which others can run, had they been woken
    world.say(99)
    assert world.all_came()
    assert world.runs == 4 + 50 + 50 + 1 + 4


def test_threads_that_wait_for_each_others_work_all_get_it(world: World) -> None:
    count, rounds = 12, 40

    def has_heard(number: int) -> bool:
        return len(world.board.heard) >= number

    def work(own: int) -> bool:
        for number in range(own, rounds * count, count):
            world.pump.wait(partial(has_heard, number), None)
            world.say(number)
        return True

    world.threads = [in_thread(partial(work, own)) for own in range(count)]
    assert world.all_came()
    assert world.board.heard == list(range(rounds * count))


def test_a_timer_that_is_due_earlier_than_it_was_wakes_who_waits(world: World) -> None:
    world.wait(lambda: world.board.fired, lambda: world.board.fired)
    world.board.due = 25
    world.say(1)
    world.now = 30  # nobody but those who wait runs now
    assert world.all_came()


def test_a_timer_wakes_one_of_all_who_wait(world: World) -> None:
    """Each would run in turn, and with a timer for each of them that is quadratic."""
    waiting = [Looking() for _ in range(10)]
    world.board.due = world.now + 2  # and stays so, for time stands still: whoever keeps the clock looks up again and again
    world.wait(*waiting)
    before = [one.looks for one in waiting]
    eventually(lambda: max(one.looks for one in waiting) > 20)
    assert sorted(one.looks - was for one, was in zip(waiting, before, strict=True))[:-1] == [0] * 9
    world.board.due = FAR_MS
    for one in waiting:
        one.outcome.append(True)
    world.say(2)
    assert world.all_came()


@pytest.mark.parametrize("outcome", [True, False])
def test_whoever_kept_the_clock_leaves_it_to_another(outcome: bool, world: World) -> None:
    waiting = [Looking() for _ in range(3)]
    world.wait(*waiting)
    world.board.due = world.now + 2
    world.say(1)
    for there in (3, 2, 1):
        looked = [one.looks for one in waiting]
        eventually(lambda looked=looked: any(one.looks > was + 20 for one, was in zip(waiting, looked, strict=True)))
        (keeper,) = [one for one, was in zip(waiting, looked, strict=True) if one.looks > was + 20]
        keeper.outcome.append(outcome)
        eventually(lambda there=there: len(world.pump._waiting) == there - 1)
    for thread, _ in world.threads:
        thread.join(30)
    assert [type(found) for _, (found,) in world.threads] == [bool if outcome else LookupError] * 3


def test_a_signal_handler_in_a_wait_keeps_the_clock_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs it while its thread rests: whoever keeps the clock there cannot look before the handler is done."""
    rest, within = Resting.rest, Looking()
    looked = iter(range(20))

    def interrupted(self: Resting[Waiter], waiter: Waiter, timeout_s: float | None) -> None:
        if within.looks:
            rest(self, waiter, timeout_s)
            return
        self.present[waiter] = None
        world.pump.wait(lambda: within() or next(looked, None) is None, None)
        del self.present[waiter]

    monkeypatch.setattr(Resting, "rest", interrupted)
    world.board.due = world.now + 2
    world.threads = [in_thread(partial(world.pump.wait, lambda: within.looks > 5, None))]
    assert world.all_came()


def test_after_an_error_all_look_again(world: World) -> None:
    """What becomes of it may come about only afterwards."""
    over: list[int] = []
    world.wait(lambda: bool(over), lambda: bool(over))
    with world.pump.lock:
        world.pump.post("board", -1)
        with pytest.raises(ValueError, match="a mistake"):
            world.pump.run()
        over.append(1)
    assert world.all_came()


def test_after_a_repair_all_look_again(world: World) -> None:
    repaired: list[int] = []
    world.wait(lambda: bool(repaired), lambda: bool(repaired))
    world.pump.repair_first(lambda: repaired.append(1))
    world.pump.repair()
    assert world.all_came()


def test_who_waits_for_what_no_actor_brings_is_told_after_the_next_turn(world: World) -> None:
    """That a store refuses the session is found by a worker."""
    transport: Any = Quiet([])
    refused: list[int] = []
    loop = Loop(world.pump, transport, wait_ms_max=1, ticked=lambda: None)
    world.wait(lambda: bool(refused), lambda: bool(refused))
    refused.append(1)
    loop.turn()
    assert world.all_came()


def test_a_condition_that_fails_is_raised_where_it_is_waited_for(world: World) -> None:
    asked: list[int] = []

    def fail() -> bool:
        asked.append(1)
        if len(asked) > 1:
            raise LookupError("what was waited for is gone")
        return False

    world.wait(lambda: bool(world.board.heard), fail)
    world.say(1)
    (_, first), (failing, second) = world.threads
    failing.join(30)
    assert isinstance(second[0], LookupError)
    world.threads.pop()
    assert world.all_came()
    assert first == [True]


@pytest.mark.parametrize("more", [0, 1, 2])
def test_an_interrupt_that_comes_when_the_lock_was_just_let_go_of_is_heard_as_what_it_is(more: int) -> None:
    """Whoever rests within `with lock` gives back what he has not got, and hears of that in the place of the interrupt; however often he
    has taken it."""
    lock = RLock()
    waiter = Waiter(lambda: False, lock)
    let_go = waiter.condition._release_save  # type: ignore[attr-defined]

    def interrupted() -> None:
        let_go()
        raise KeyboardInterrupt

    waiter.condition._release_save = interrupted  # type: ignore[attr-defined]
    taken = ExitStack()
    for _ in range(more):
        taken.enter_context(lock)
    with pytest.raises(KeyboardInterrupt), taken, lock:
        Resting[Waiter](Changing()).rest(waiter, 1)
    assert not lock._is_owned()


def test_an_interrupt_before_a_rest_leaves_nobody_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is called up in its place sleeps on: the clock would be kept by nobody."""
    lock = RLock()
    resting = Resting[Waiter](Changing())

    def interrupted(waiter: Waiter) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Waiter, "taken", interrupted)
    with pytest.raises(KeyboardInterrupt), lock:
        resting.rest(Waiter(lambda: False, lock), 1)
    assert len(resting) == 0


def test_a_pump_holds_nothing_of_what_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    class Life:
        def is_over(self) -> bool:
            return False

    life = Life()
    seen = ref(life)
    now = [5]
    world.pump.now_ms = lambda: now[0]
    rest = Resting.rest

    def resting(all_of_them: Resting[Waiter], waiter: Waiter, timeout_s: float | None) -> None:
        rest(all_of_them, waiter, timeout_s)
        now[0] += 10

    monkeypatch.setattr(Resting, "rest", resting)
    assert not world.pump.wait(life.is_over, 0.01)
    assert now == [15]
    del life
    gc.collect()
    assert seen() is None
