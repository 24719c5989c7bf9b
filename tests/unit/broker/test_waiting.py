"""Appends that wait, and what ends their waiting."""

from __future__ import annotations

import pytest
from tests.unit.partition.copies import batch, fetch, leading, log_of, notice

from replog.broker.waiting import WaitingAppend, WaitingAppends
from replog.errors import Code
from replog.messages import Produced
from replog.model import ACKS_ALL, ACKS_LEADER
from replog.partition.partition import Partition
from replog.ports import FlushToken, Outbox


def waiting(partition: Partition, *ends: int, limit: int = 10, acks: int = ACKS_ALL, client: object = "c") -> WaitingAppends:
    made = WaitingAppends(Outbox(), limit)
    for end in ends:
        assert made.park(partition, WaitingAppend(client, end, acks, end - 1, end, 1_000 * end))  # type: ignore[arg-type]
    return made


def answers(made: WaitingAppends) -> list[tuple[object, int, int, int]]:
    """(client, request, error, base offset) of every answer since the last call."""
    found = [
        (to, entry.request, entry.error, entry.base_offset)
        for to, message in made._outbox.messages
        if isinstance(message, Produced)
        for entry in message.entries
    ]
    made._outbox.messages.clear()
    return found


def acknowledged(partition: Partition, end: int) -> None:
    for replica in (2, 3):
        fetch(partition, replica, end, 1)


def three() -> Partition:
    return leading(log_of(("a", 1), ("b", 1), ("c", 1)))


def test_the_high_watermark_answers_in_order_as_far_as_it_reaches() -> None:
    partition = three()
    made = waiting(partition, 1, 2, 3)
    made.wake(partition)
    assert answers(made) == []
    acknowledged(partition, 2)
    made.wake(partition)
    assert answers(made) == [("c", 1, 0, 0), ("c", 2, 0, 1)]
    assert made.count == 1


def test_one_message_per_client() -> None:
    partition = three()
    made = waiting(partition, 1, 2)
    made.park(partition, WaitingAppend("d", 3, ACKS_ALL, 2, 3, 9))
    acknowledged(partition, 3)
    made.wake(partition)
    assert [to for to, _ in made._outbox.messages] == ["c", "d"]


def test_acks_one_under_flush_ack_waits_for_the_leaders_own_flush() -> None:
    partition = leading(log_of(("a", 1), ("b", 1)), flush="ack")
    made = waiting(partition, 2, acks=ACKS_LEADER)
    made.wake(partition)
    assert answers(made) == []
    token = partition.log.flush()
    assert isinstance(token, FlushToken)
    partition.flushed(token.run(), 0)
    made.wake(partition)
    assert answers(made) == [("c", 2, 0, 1)]


def test_below_min_isr_it_says_that_the_record_was_appended() -> None:
    partition = leading(log_of(("a", 1)), (1, 2), min_isr=2)
    made = waiting(partition, 1)
    partition.become(notice(1, 5, (1,), partition_epoch=1, min_isr=2), 0)
    made.wake(partition)
    assert answers(made) == [("c", 1, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]
    assert made.count == 0


def test_who_leads_no_more_names_the_leader() -> None:
    partition = three()
    made = waiting(partition, 1)
    partition.become(notice(3, 6, (1, 3), partition_epoch=1), 0)
    made.wake(partition)
    ((_, message),) = made._outbox.messages
    (entry,) = message.entries
    assert (entry.error, entry.leader, entry.leader_epoch) == (Code.NOT_LEADER_OR_FOLLOWER, 3, 6)


def test_a_failed_copy_says_so() -> None:
    partition = three()
    made = waiting(partition, 1)
    partition.fail("broken")
    made.wake(partition)
    assert answers(made) == [("c", 1, Code.STORAGE_ERROR, -1)]


@pytest.mark.parametrize(("now_ms", "late"), [(999, []), (1_000, [1]), (2_500, [1, 2]), (9_000, [1, 2, 3])])
def test_time_ends_it_too_and_the_record_may_still_commit(now_ms: int, late: list[int]) -> None:
    partition = three()
    made = waiting(partition, 1, 2, 3)
    made.expire(now_ms)
    assert answers(made) == [("c", request, Code.REQUEST_TIMED_OUT, -1) for request in late]
    acknowledged(partition, 3)
    made.wake(partition)
    assert [request for _, request, error, _ in answers(made) if error == 0] == [n for n in (1, 2, 3) if n not in late]


def test_no_more_than_the_limit() -> None:
    partition = three()
    made = waiting(partition, 1, limit=2)
    assert made.park(partition, WaitingAppend("d", 2, ACKS_ALL, 1, 2, 9))
    assert not made.park(partition, WaitingAppend("e", 3, ACKS_ALL, 2, 3, 9))
    acknowledged(partition, 3)
    made.wake(partition)
    assert made.count == 0
    assert made.park(partition, WaitingAppend("c", 4, ACKS_ALL, 2, 3, 9))


def test_the_only_place_can_be_had() -> None:
    partition = three()
    made = waiting(partition, 1, limit=1)
    assert not made.park(partition, WaitingAppend("d", 2, ACKS_ALL, 1, 2, 9))
    acknowledged(partition, 1)
    made.wake(partition)
    assert answers(made) == [("c", 1, 0, 0)]
    assert made.park(partition, WaitingAppend("d", 2, ACKS_ALL, 1, 2, 9))


def test_nothing_waits_for_a_partition_that_nobody_appended_to() -> None:
    partition = three()
    partition.append(batch("d", 0, 0), ACKS_LEADER, 0)
    made = waiting(partition)
    made.wake(partition)
    made.expire(10_000)
    assert answers(made) == []


def test_one_client_has_half_of_the_places_and_has_them_again_when_it_is_answered() -> None:
    partition = three()
    made = waiting(partition, 1, 2, limit=5)
    assert not made.park(partition, WaitingAppend("c", 3, ACKS_ALL, 2, 3, 9))
    assert made.park(partition, WaitingAppend("d", 3, ACKS_ALL, 2, 3, 9))
    acknowledged(partition, 1)
    made.wake(partition)
    assert answers(made) == [("c", 1, 0, 0)]
    assert made.park(partition, WaitingAppend("c", 4, ACKS_ALL, 2, 3, 9))
    acknowledged(partition, 3)
    made.wake(partition)
    assert (made.count, made._of_client) == (0, {}), "nothing is kept of clients that do not wait"
