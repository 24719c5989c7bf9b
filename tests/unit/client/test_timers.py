"""One timer per waiter, the earliest; what is stale wakes nobody, and is not kept."""

from __future__ import annotations

from attrs import define

from replog.client.timers import Timers


@define(eq=False)
class Waiter:
    """Somebody to be woken."""

    name: str
    timer_ms: int | None = None


def woken(timers: Timers[Waiter], now_ms: int) -> str:
    names = ""
    while (waiter := timers.due(now_ms)) is not None:
        assert waiter.timer_ms is None
        names += waiter.name
    return names


def test_the_earliest_timer_counts() -> None:
    timers: Timers[Waiter] = Timers()
    a, b, c = Waiter("a"), Waiter("b"), Waiter("c")
    assert timers.deadline_ms() is None
    timers.arm(a, 50)
    timers.arm(b, 40)
    timers.arm(a, 60)
    timers.arm(c, 70)
    timers.arm(c, 30)
    timers.arm(b, None)
    assert timers.deadline_ms() == 30
    assert woken(timers, 29) == ""
    assert woken(timers, 50) == "cba"
    assert timers.deadline_ms() is None
    assert woken(timers, 1_000) == ""


def test_who_is_disarmed_is_not_woken() -> None:
    timers: Timers[Waiter] = Timers()
    a, b = Waiter("a"), Waiter("b")
    timers.arm(a, 10)
    timers.arm(b, 20)
    timers.disarm(a)
    timers.disarm(a)
    assert timers.deadline_ms() == 20
    assert woken(timers, 15) == ""
    timers.arm(a, 30)
    assert woken(timers, 30) == "ba"


def test_stale_timers_are_not_kept() -> None:
    timers: Timers[Waiter] = Timers()
    keeper = Waiter("k")
    timers.arm(keeper, 1)
    for n in range(10_000):
        waiter = Waiter("w")
        timers.arm(waiter, 1_000 + n)
        timers.disarm(waiter)
    assert len(timers) < 200
    assert woken(timers, 20_000) == "k"
