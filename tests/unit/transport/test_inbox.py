"""In which order what has arrived is delivered, and how much of what clients ask one turn takes."""

from __future__ import annotations

from typing import Any

import pytest

from replog import messages as m
from replog.model import PartitionId
from replog.transport.tcp.inbox import Inbox
from replog.transport.tcp.turns import DELIVER_REQUESTS_MAX, may_take_long
from replog.transport.tcp.whereabouts import Whereabouts, nobody

PARTITION = PartitionId(bytes(16), 0, 0)


def test_of_what_clients_ask_so_much_is_delivered_at_a_time_and_in_order() -> None:
    inbox, heard = Inbox(Whereabouts(nobody)), list[Any]()
    inbox.receivers[1] = lambda sender, message: heard.append(message)
    asked = [*range(2 * DELIVER_REQUESTS_MAX + 1)]
    inbox.clients.extend((1, ("peer", 1), number) for number in asked)
    inbox.brokers.extend((1, 2, "of a broker") for _ in range(100))
    assert inbox.deliver() == 100 + DELIVER_REQUESTS_MAX
    assert inbox.deliver() == DELIVER_REQUESTS_MAX
    inbox.brokers.append((1, 2, "of a broker"))
    assert (inbox.deliver(), [*inbox.brokers, *inbox.clients]) == (2, [])
    assert heard[:100] == ["of a broker"] * 100
    assert heard[-2:] == ["of a broker", asked[-1]], "brokers come first"
    assert [message for message in heard if message != "of a broker"] == asked


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
