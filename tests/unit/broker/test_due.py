"""Partitions that are due by time: who is next is known at once, and nothing is kept of who is not."""

from __future__ import annotations

import random

from replog.broker.due import NEVER, Due
from replog.config import BrokerConfig
from replog.log.memory import MemoryLog
from replog.model import PartitionId
from replog.partition.partition import Partition


def copy(number: int) -> Partition:
    identity = PartitionId(bytes(16), number, 0)
    return Partition(identity, "t", MemoryLog(identity), broker_id=1, limits=BrokerConfig(), brokers={})


A, B, C = (copy(number) for number in range(3))


def test_each_is_taken_once_and_in_order() -> None:
    due = Due()
    assert due.next_ms == NEVER
    for partition, at_ms in ((B, 20), (A, 30), (C, 10)):
        due.put(partition, at_ms)
    assert due.next_ms == 10
    assert due.take(9) == []
    assert due.take(20) == [C, B]
    assert due.next_ms == 30
    assert due.take(100) == [A]
    assert due.next_ms == NEVER


def test_the_earlier_time_counts() -> None:
    due = Due()
    due.put(A, 20)
    due.put(A, 30)
    assert due.next_ms == 20
    due.put(A, 10)
    assert due.next_ms == 10
    assert due.take(100) == [A]


def test_what_is_dropped_is_neither_due_nor_kept() -> None:
    due = Due()
    due.put(A, 10)
    due.put(B, 20)
    due.drop(A.identity)
    due.drop(C.identity)
    assert due.next_ms == 20
    due.put(A, 40)
    assert due.take(30) == [B]
    due.drop(A.identity)
    assert due.next_ms == NEVER
    due.put(A, 5)
    for at_ms in range(100_000, 0, -1):
        due.put(B, at_ms + 10)
        due.put(C, at_ms + 10)
        due.drop(C.identity)
    assert len(due._heap) < 2_000
    assert due.next_ms == 5
    assert due.take(10) == [A]
    assert due.take(11) == [B]


def test_it_agrees_with_a_sorted_list() -> None:
    chance = random.Random(1)
    partitions = [copy(number) for number in range(20)]
    due, plain = Due(), {}
    for now_ms in range(5_000):
        partition = chance.choice(partitions)
        if chance.random() < 0.2:
            due.drop(partition.identity)
            plain.pop(partition.identity, None)
        else:
            at_ms = now_ms + chance.randrange(100)
            due.put(partition, at_ms)
            plain[partition.identity] = min(plain.get(partition.identity, at_ms), at_ms)
        assert due.next_ms == min(plain.values(), default=NEVER)
        if chance.random() < 0.02:
            until_ms = now_ms + chance.randrange(100)
            expected = sorted(at for at in plain.values() if at <= until_ms)
            assert [plain.pop(partition.identity) for partition in due.take(until_ms)] == expected
            assert due.next_ms == min(plain.values(), default=NEVER)
        if chance.random() < 0.1:
            expected = sorted((at_ms, identity) for identity, at_ms in plain.items() if at_ms <= now_ms)
            assert [one.identity for one in due.take(now_ms)] == [identity for _, identity in expected]
            for _, identity in expected:
                del plain[identity]
