"""Turns of the loop: what a decision of many slices keeps waiting."""

from __future__ import annotations

from typing import Any

import pytest
from tests.calling import called

from replog.ports import Outbox, StoreCall, StoreResult
from replog.runtime.loop import Loop
from replog.runtime.pump import Pump
from replog.runtime.seat import Seat


class Quiet:
    """A transport on which nothing comes in. Says what had been done each time that it was to send."""

    closed = False
    has_asked = False

    def __init__(self, done: list[int]) -> None:
        self._done = done
        self.sent: list[int] = []
        self.woken = 0

    def wait(self, timeout_s: float) -> list[Any]:
        return []

    def handle(self, ready: list[Any], now_ms: int) -> int:
        return 0

    def flush(self) -> None:
        self.sent.append(len(self._done))

    def wake(self) -> None:
        self.woken += 1

    def next_poll_ms(self) -> int | None:
        return None


class Slices:
    """Stores slice after slice: the next once the last is stored."""

    def __init__(self, done: list[int]) -> None:
        self.outbox = Outbox()
        self._done = done

    def receive(self, sender: Any, message: StoreResult, now_ms: int) -> None:
        self._done.append(message.call)
        self.outbox.calls.append(StoreCall(message.call + 1, "commit_each", []))

    def tick(self, now_ms: int, wall_ms: int) -> None:
        pass

    def deadline_ms(self) -> int | None:
        return None


@pytest.mark.parametrize("turns", [1, 2, 20])
def test_each_slice_of_a_long_decision_is_a_turn_of_its_own(turns: int) -> None:
    """However quick the store is: what was said is sent, and the session kept alive, before the next slice is decided."""
    done: list[int] = []
    ticks: list[int] = []
    pump = Pump(messages_max=1_000, now_ms=lambda: 5)
    transport: Any = Quiet(done)
    loop = Loop(pump, transport, wait_ms_max=1, ticked=lambda: ticks.append(len(done)))

    def at_once(address: Any, call: StoreCall) -> None:
        loop.post(address, StoreResult(call.call))

    pump.seat(Seat("controller", Slices(done), calls=at_once))
    loop.post("controller", StoreResult(0))
    for _ in range(turns):
        loop.turn()
    assert done == list(range(turns))
    assert transport.sent == list(range(1, turns + 1))
    assert ticks == list(range(turns))
    assert transport.woken == turns + 1  # each result has the next turn come at once


@pytest.mark.parametrize(("problem", "is_told"), [(KeyboardInterrupt(), True), (ValueError(), False)])
@pytest.mark.parametrize("where", ["handle", "ticked", "run"])
def test_who_changes_under_the_lock_hears_of_an_interrupt_in_a_turn(where: str, problem: BaseException, is_told: bool) -> None:
    def fail(*_: Any) -> Any:
        raise problem

    done: list[int] = []
    told: list[BaseException] = []
    pump = Pump(messages_max=1_000, now_ms=lambda: 5)
    pump.changing.interrupted = told.append
    transport: Any = Quiet(done)
    loop = Loop(pump, transport, wait_ms_max=1, ticked=fail if where == "ticked" else None)
    if where == "run":
        pump.run_locked = fail  # type: ignore[method-assign]
    elif where == "handle":
        transport.handle = fail
    with pytest.raises(type(problem)):
        loop.turn()
    assert told == [problem] * is_told
    assert pump.lock.acquire(blocking=False)


def test_a_turn_in_which_nobody_waits_calls_nobody_up() -> None:
    done: list[int] = []
    pump = Pump(messages_max=1_000, now_ms=lambda: 5)
    transport: Any = Quiet(done)
    loop = Loop(pump, transport, wait_ms_max=1)
    pump.seat(Seat("controller", Slices(done), calls=lambda *_: None))
    pump.post("controller", StoreResult(0))
    names = called(loop.turn)
    assert done == [0]
    assert not [name for name in names if name.startswith(("Resting.", "Changing.", "Pump._call_up"))]
