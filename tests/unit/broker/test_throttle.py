"""What reassignments may fetch per second: counted, never measured."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.unit.broker.test_fetching import Follower
from tests.unit.partition.copies import LIMITS, fetched, log_of, notice, partition_of

from replog.broker.fetching import Fetching
from replog.broker.throttle import Throttle
from replog.controller import moves
from replog.messages import Fetched, FetchedEntry
from replog.model import Assignment
from replog.partition.partition import Partition
from replog.ports import Slice
from replog.slices import MemorySlice
from replog.testing.clock import SeededIds

ADDED = Assignment((2, 1, 3), 0, (2,), (3,), (1, 3))


def of_bytes(count: int) -> list[Slice]:
    """What an answer brought."""
    return [MemorySlice(0, 1, bytes(count))]


def joining(broker_id: int = 2, isr: tuple[int, ...] = (1, 3), assignment: Assignment = ADDED) -> Partition:
    """A follower that a reassignment adds."""
    partition = partition_of(log_of(("a", 1)), broker_id=broker_id)
    told = notice(1, 5, isr)
    partition.become(evolve(told, assignment=assignment), 0)
    return partition


def test_bytes_that_have_come_are_paid_for_by_all_that_joins() -> None:
    throttle, first, second = Throttle(2, 1_000), joining(), joining()
    assert throttle.pause_until_ms(first, of_bytes(500), 100) == 600
    assert throttle.pause_until_ms(second, of_bytes(250), 200) == 850
    assert throttle.pause_until_ms(first, of_bytes(0), 300) == 850
    assert throttle.pause_until_ms(first, of_bytes(100), 5_000) == 5_100, "what was not used is not saved up"


@pytest.mark.parametrize(
    ("throttle", "partition"),
    [
        (Throttle(2, 0), joining()),
        (Throttle(2, 1), joining(isr=(1, 2, 3))),
        (Throttle(2, 1), joining(assignment=Assignment((4, 1, 2, 3), 0, (4,), (2, 3), (1, 2, 3)))),
        (Throttle(2, 1), joining(assignment=Assignment((2, 1, 3)))),
    ],
    ids=["no limit", "in sync", "an old replica that is to leave", "nothing moves"],
)
def test_nobody_else_waits(throttle: Throttle, partition: Partition) -> None:
    assert throttle.pause_until_ms(partition, of_bytes(10**6), 7) == 7


def test_who_was_to_join_until_a_later_wish_led_elsewhere_goes_on_paying() -> None:
    overridden = moves.started(moves.started(Assignment((1, 3)), (2, 1)), (4, 1))
    assert (overridden.adding, overridden.removing) == ((4,), (2, 3))
    assert Throttle(2, 1_000).pause_until_ms(joining(assignment=overridden), of_bytes(500), 100) == 600


def paying(entry: FetchedEntry, **limits: int) -> Follower:
    """A follower whose joining partition has got this at 1,000 ms, which is half of what may come in a second."""
    partition, follower = joining(), Follower()
    config = evolve(LIMITS, reassignment_bytes_per_s=sum(piece.length for piece in entry.slices) * 2, **limits)
    follower.fetching = Fetching(2, follower.outbox, config, SeededIds(1))
    follower.fetching.registered(2)
    follower.fetching.follow(partition)
    ((_, fetch),) = follower.poll(1_000)
    answer = Fetched(fetch.request, 9, 0, 0, [entry])
    fetcher = follower.fetching.session_of(answer, 1)
    assert fetcher is not None
    assert follower.fetching.answered(fetcher, answer, 1_000)
    follower.fetching.took(partition, entry, partition.take(entry), 1_000)
    return follower


def test_a_joining_partition_asks_again_when_it_has_paid() -> None:
    follower = paying(fetched(5, 1, ("x", 5), high_watermark=0, end_offset=2))
    asked = []
    for now_ms in (1_000, 1_499, 1_500):
        follower.fetching.send_due(now_ms)
        asked.append([e.offset for _, one in follower.poll(now_ms) for e in one.entries])
    assert asked == [[], [], [2]], "half a second for half of what it may fetch in one"


def test_a_session_is_not_opened_before_there_is_something_to_ask() -> None:
    far_behind = fetched(5, 1, ("x" * 1_000, 5), high_watermark=0, end_offset=100)  # it moves to the other session
    follower = paying(far_behind, fetch_partition_bytes_max=1_024)
    asked = []
    for now_ms in (1_000, 1_499, 1_500):
        follower.fetching.send_due(now_ms)
        assert follower.fetching.due_ms is not None
        assert follower.fetching.due_ms > now_ms, "it sleeps until then"
        asked.append([(one.session_epoch, one.catch_up, [e.offset for e in one.entries]) for _, one in follower.poll(now_ms)])
    assert asked == [[(-1, False, [])], [], [(0, True, [2])]], "the old one is closed, and the new one opened by what names the partition"
