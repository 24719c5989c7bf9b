"""What a view changes is found by comparing it with what was known: elections, and who left and joined ISRs."""

from __future__ import annotations

from replog.config import TopicConfig
from replog.messages import ClusterView, PartitionView, TopicView
from replog.metrics.changes import changes_of

TOPIC = b"t" * 16


def partition(number: int, leader: int | None, epoch: int, isr: tuple[int, ...], creation: int = 0) -> PartitionView:
    return PartitionView(number, creation, leader, epoch, isr, (), (1, 2, 3), 0)


def topic(*partitions: PartitionView) -> TopicView:
    return TopicView("orders", TOPIC, TopicConfig(), partitions)


def view(*partitions: PartitionView) -> ClusterView:
    return ClusterView(1, 2, 1, 1, [], [topic(*partitions)])


def test_leaders_and_members_that_changed() -> None:
    known = {TOPIC: topic(partition(0, 1, 0, (1, 2, 3)), partition(1, 2, 0, (2, 3)), partition(2, 3, 0, (3, 1)))}
    found = changes_of(known, view(partition(0, 2, 1, (2, 3)), partition(1, 2, 0, (2, 3, 1)), partition(2, 3, 0, (3, 1))))
    assert [(e["partition"], e["before"], e["leader"], e["leader_epoch"]) for e in found.elections] == [(0, 1, 2, 1)]
    assert [(c["partition"], c["left"], c["joined"]) for c in found.isrs] == [(0, [1], []), (1, [], [1])]
    assert (found.shrinks, found.expands) == (1, 1)


def test_a_lost_leader_is_no_election() -> None:
    found = changes_of({TOPIC: topic(partition(0, 1, 0, (1,)))}, view(partition(0, None, 1, ())))
    assert (found.elections, found.shrinks) == ([], 1)


def test_what_is_new_or_made_again_has_not_changed() -> None:
    assert changes_of({}, view(partition(0, 1, 5, (1,)))).elections == []
    known = {TOPIC: topic(partition(0, 1, 0, (1, 2, 3)))}
    found = changes_of(known, view(partition(0, 2, 7, (2,), creation=1), partition(1, 2, 3, (2,))))
    assert (found.elections, found.isrs) == ([], [])


def test_a_view_with_gaps_is_compared_by_number() -> None:
    known = {TOPIC: topic(partition(3, 1, 0, (1, 2)), partition(7, 1, 0, (1, 2)))}
    assert [e["partition"] for e in changes_of(known, view(partition(7, 2, 1, (1, 2)))).elections] == [7]
    assert [e["partition"] for e in changes_of(known, view(partition(0, 2, 1, (1, 2)))).elections] == []
