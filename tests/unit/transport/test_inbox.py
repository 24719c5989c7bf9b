"""In which order what has arrived is delivered, and how much of what clients ask one turn takes."""

from __future__ import annotations

from typing import Any

import pytest

from replog import messages as m
from replog.model import Address, PartitionId
from replog.testing.clock import ManualClock
from replog.transport.tcp.inbox import Inbox
from replog.transport.tcp.turns import DELIVER_MS_MAX, may_take_long
from replog.transport.tcp.whereabouts import Whereabouts, nobody

PARTITION = PartitionId(bytes(16), 0, 0)


class Slow:
    """A receiver that takes its time over each message."""

    def __init__(self, takes_ms: int) -> None:
        self.clock = ManualClock()
        self.inbox = Inbox(Whereabouts(nobody))
        self.inbox.receivers[1] = self.receive
        self.heard: list[Any] = []
        self._takes_ms = takes_ms

    def receive(self, sender: Address, message: Any) -> None:
        self.heard.append(message)
        self.clock.advance(self._takes_ms)

    def turn(self) -> list[Any]:
        before = len(self.heard)
        assert self.inbox.deliver(self.clock.now_ms) == len(self.heard) - before
        return self.heard[before:]


def test_what_clients_ask_is_handed_over_until_it_has_taken_long_and_the_rest_in_order_later() -> None:
    slow = Slow(DELIVER_MS_MAX // 2)
    slow.inbox.clients.extend((1, ("peer", 1), number) for number in range(5))
    for turn in ([0, 1], [2, 3], [4], []):
        slow.inbox.brokers.append((1, 2, "of a broker"))
        assert slow.turn() == ["of a broker", *turn]
        assert bool(slow.inbox) is (4 not in slow.heard)


def test_brokers_are_heard_however_long_that_takes() -> None:
    slow = Slow(DELIVER_MS_MAX)
    slow.inbox.brokers.extend((1, 2, number) for number in range(5))
    slow.inbox.clients.extend((1, ("peer", 1), number) for number in (10, 11))
    assert slow.turn() == [0, 1, 2, 3, 4, 10]
    assert slow.turn() == [11]


def asks(partitions: int) -> list[Any]:
    listed = m.ListOffsets(1, [m.ListOffsetsEntry(PARTITION, 0, -1)] * partitions)
    return [listed, m.OffsetsForLeaderEpoch(1, [m.EpochsEntry(PARTITION, 0, 0)] * partitions)]


def fetch(*, verify: bool) -> m.Fetch:
    return m.Fetch(1, -1, -1, 0, -1, 0, 1, 1 << 20, [m.FetchEntry(PARTITION, 0, 0, -1, 1 << 20)], verify=verify)


@pytest.mark.parametrize(
    ("message", "is_long"),
    [
        (fetch(verify=False), False), (fetch(verify=True), True),
        *((question, False) for question in asks(16)), *((question, True) for question in asks(17)),
        (m.Admin(1, "topics", {}), True), (m.Metadata(1, -1, -1), True), (m.Produce(1, 1_000, []), False),
    ],
    ids=["a fetch", "a fetch with checks", "few offsets", "few epochs", "offsets", "epochs", "a wish", "a view", "an append"],
)  # fmt: skip
def test_which_requests_may_take_long(message: Any, is_long: bool) -> None:
    assert may_take_long(message) is is_long
