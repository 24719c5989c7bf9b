"""The events of a controller are timed from when they are asked for until they are done, each once."""

from __future__ import annotations

from replog.controller.events import AdminAsked, BalanceDue, BrokersSeen, DeletionsSeen, Recheck, WishesSeen
from replog.controller.queues import Queued, Queues
from replog.messages import Admin
from replog.metadata.layout import PARTITIONS_REASSIGNED
from replog.metrics.deciding import EventTimes
from replog.metrics.histogram import Histogram

ASKED = AdminAsked(1, Admin(0, "drain", {}))


def counted(times: dict[str, Histogram]) -> dict[str, int]:
    """How many of each kind were timed."""
    return {kind: each.observed().count for kind, each in times.items()}


def timed() -> tuple[Queues, dict[str, Histogram]]:
    times: dict[str, Histogram] = {}
    return Queues(observer=EventTimes(times)), times


def first(queues: Queues) -> Queued:
    """The event whose turn it is."""
    queued = queues.next()
    assert queued is not None
    return queued


def test_every_kind_is_timed_and_what_is_merged_counts_once() -> None:
    queues, times = timed()
    for event in (ASKED, Recheck(), Recheck(), BrokersSeen(())):
        queues.ask(event)
    while queues:
        queues.done(first(queues))
    assert counted(times) == {"recheck": 1, "brokers_seen": 1, "admin_asked": 1}
    queues.ask(Recheck())
    queues.done(first(queues))
    assert counted(times)["recheck"] == 2


def test_an_event_that_is_tried_again_is_counted_once() -> None:
    queues, times = timed()
    queues.ask(ASKED)
    for tries in range(3):
        first(queues).tries = tries
    assert counted(times) == {}
    queues.done(first(queues), stored=False)
    assert counted(times) == {"admin_asked": 1}


def test_deletions_that_are_seen_again_count_from_the_first_look() -> None:
    queues, _ = timed()
    queues.ask(DeletionsSeen(()))
    began = first(queues).since
    queues.ask(DeletionsSeen(()))
    assert first(queues).since == began > 0


def test_looks_that_were_replaced_are_never_done() -> None:
    queues, times = timed()
    queues.ask(BalanceDue())
    for _ in range(1_000):
        queues.ask(WishesSeen(PARTITIONS_REASSIGNED, ()))
    assert len(queues) == 2
    while queues:
        queues.done(first(queues))
    assert sum(counted(times).values()) == 2
