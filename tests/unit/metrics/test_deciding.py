"""Queues of a controller that are timed are the same queues, and remember no more events than wait."""

from __future__ import annotations

from replog.controller.events import AdminAsked, BalanceDue, BrokersSeen, DeletionsSeen, Recheck, WishesSeen
from replog.controller.queues import Queued, Queues
from replog.messages import Admin
from replog.metadata.layout import PARTITIONS_REASSIGNED
from replog.metrics.deciding import TimedQueues
from replog.metrics.histogram import Histogram

ASKED = AdminAsked(1, Admin(0, "drain", {}))


def counted(times: dict[str, Histogram]) -> dict[str, int]:
    """How many of each kind were timed."""
    return {kind: each.observed().count for kind, each in times.items()}


def first(timed: TimedQueues) -> Queued:
    """The event whose turn it is."""
    queued = timed.next()
    assert queued is not None
    return queued


def test_what_waits_already_goes_on_waiting_and_is_timed() -> None:
    queues, times = Queues(), dict[str, Histogram]()
    queues.ask(ASKED)
    queues.ask(Recheck())
    timed = TimedQueues(queues, times)
    timed.ask(Recheck())
    timed.ask(BrokersSeen(()))
    assert [type(event).__name__ for event in timed.waiting()] == ["Recheck", "BrokersSeen", "AdminAsked"]
    while (queued := timed.next()) is not None:
        timed.done(queued)
    assert counted(times) == {"recheck": 1, "brokers_seen": 1, "admin_asked": 1}
    timed.ask(Recheck())
    timed.done(first(timed))
    assert counted(times)["recheck"] == 2


def test_an_event_that_is_tried_again_is_counted_once() -> None:
    times: dict[str, Histogram] = {}
    timed = TimedQueues(Queues(), times)
    timed.ask(ASKED)
    for tries in range(3):
        first(timed).tries = tries
    assert counted(times) == {}
    timed.done(first(timed), stored=False)
    assert counted(times) == {"admin_asked": 1}


def test_deletions_that_are_seen_again_count_from_the_first_look() -> None:
    times: dict[str, Histogram] = {}
    timed = TimedQueues(Queues(), times)
    timed.ask(DeletionsSeen(()))
    (began,) = timed._since.values()
    timed.ask(DeletionsSeen(()))
    assert list(timed._since.values()) == [began]


def test_looks_that_were_replaced_are_forgotten() -> None:
    timed = TimedQueues(Queues(), {})
    timed.ask(BalanceDue())
    for _ in range(1_000):
        timed.ask(WishesSeen(PARTITIONS_REASSIGNED, ()))
    assert len(list(timed.waiting())) == 2
    assert len(timed._since) < 100
