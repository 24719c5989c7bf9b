"""What waits for its turn: urgent before background, and what is asked twice in vain only once."""

from __future__ import annotations

from replog.controller.events import (
    CopiesGone,
    DeletionsSeen,
    FinishDeletion,
    Recheck,
    RejectionsSeen,
    ReplicasLost,
    Wish,
    WishesSeen,
)
from replog.controller.queues import Queued, Queues, row_of

ROW, OTHER = "/admin/partitions_add", "/admin/partitions_remove"
A, B = Wish("/admin/partitions_add/t/1", b"a", 0), Wish("/admin/partitions_add/t/2", b"b", 0)


def waiting(queues: Queues) -> list[object]:
    return list(queues.waiting())


def test_urgent_events_go_first_each_class_in_the_order_of_asking():
    queues = Queues()
    gone, lost = [CopiesGone(1, b"a"), CopiesGone(2, b"a")], [ReplicasLost(1, 5, "x"), ReplicasLost(2, 6, "x")]
    for event in (gone[0], lost[0], gone[1], lost[1]):
        queues.ask(event)
    taken = []
    while (queued := queues.next()) is not None:
        taken.append(queued.event)
        queues.done(queued)
    assert taken == [*lost, *gone]


def test_a_recheck_waits_once_and_may_be_asked_for_again_once_it_is_decided():
    queues = Queues()
    queues.ask(Recheck())
    queues.ask(Recheck())
    assert waiting(queues) == [Recheck()]
    queued = queues.next()
    assert queued is not None
    queues.done(queued)
    queues.ask(Recheck())
    assert waiting(queues) == [Recheck()]


def test_the_end_of_a_deletion_waits_once_per_topic():
    queues = Queues()
    for topic in (b"a", b"b", b"a"):
        queues.ask(FinishDeletion(topic))
    assert waiting(queues) == [FinishDeletion(b"a"), FinishDeletion(b"b")]


def test_a_new_look_at_a_row_replaces_the_one_that_waits_and_no_other():
    queues = Queues()
    queues.ask(WishesSeen(ROW, (A,)))
    queues.ask(WishesSeen(OTHER, (A,)))
    queues.ask(WishesSeen(ROW, (A, B)))
    assert waiting(queues) == [WishesSeen(OTHER, (A,)), WishesSeen(ROW, (A, B))]


def test_what_a_look_has_left_is_dropped_if_a_later_look_waits():
    queues = Queues()
    queues.ask(WishesSeen(ROW, (A, B)))
    queues.ask(WishesSeen(ROW, (B,), is_rest=True))
    assert waiting(queues) == [WishesSeen(ROW, (A, B))]
    alone = Queues()
    alone.ask(WishesSeen(OTHER, (A,)))
    alone.ask(WishesSeen(ROW, (B,), is_rest=True))
    assert waiting(alone) == [WishesSeen(OTHER, (A,)), WishesSeen(ROW, (B,), is_rest=True)]


def test_a_look_that_was_replaced_while_it_was_decided_ends_quietly():
    queues = Queues()
    queues.ask(WishesSeen(ROW, (A,)))
    in_progress = queues.next()
    assert in_progress is not None
    queues.ask(WishesSeen(ROW, (B,)))
    queues.done(in_progress)
    assert waiting(queues) == [WishesSeen(ROW, (B,))]


def test_what_is_seen_in_vain_is_counted_per_row_until_something_of_it_is_stored_or_all_is_forgiven():
    queues = Queues()
    for event in (WishesSeen(ROW, (A,)), WishesSeen(OTHER, (B,))):
        queues.ask(event)
    row = queues.next()
    assert row is not None
    assert [queues.in_vain(row_of(row.event)) for _ in range(3)] == [1, 2, 3]
    queues.done(row, stored=False)
    other = queues.next()
    assert other is not None
    assert (queues.tries(row), queues.tries(other)) == (3, 0)
    queues.done(other)
    assert queues.tries(row) == 3, "another row does not make this one better"
    queues.done(row)
    assert queues.tries(row) == 0
    for seen in (WishesSeen(ROW, ()), DeletionsSeen(()), RejectionsSeen(())):
        assert row_of(seen) != ""
        queues.in_vain(row_of(seen))
        assert queues.tries(Queued(seen)) == 1
    queues.forgive()
    assert queues.tries(row) == 0
    assert queues.tries(Queued(CopiesGone(1, b"a"), tries=4)) == 4


def test_a_row_of_deletions_keeps_its_place() -> None:
    """Each deletion that ends has the row looked at again: what waits there must not wait for all that come meanwhile."""
    queues = Queues()
    queues.ask(DeletionsSeen(()))
    queues.ask(FinishDeletion(b"a"))
    queues.ask(again := DeletionsSeen(()))
    assert [one.event for one in queues.background] == [again, FinishDeletion(b"a")]
    assert queues.background[0].event is again
