"""Before a clean stop a broker has every log flushed, many at once; its driver counts what is left (`Upkeep.on_flush_all`)."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from attrs import evolve

from replog.broker import upkeep
from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLog, MemoryLogDirectory
from replog.messages import FlushAll, LeaderAndIsr, PartitionNotice, Produce, ProduceEntry, Registered, StopEntry, StopReplica
from replog.model import Assignment, PartitionId, PartitionState
from replog.ports import FlushDone, FlushToken
from replog.records import encode_records
from replog.testing.clock import SeededIds

AT_ONCE = upkeep._FLUSHES_MAX


class Desk:
    """A broker that leads `count` partitions alone, with a record in each; nothing of it was flushed."""

    def __init__(self, count: int, *, flush: str = "os", written: int | None = None) -> None:
        config = BrokerConfig()
        self.directory = MemoryLogDirectory(limits=config, directory_id="d" * 32)
        self.broker = Broker(1, self.directory, config=config, ids=SeededIds(1))
        topic = TopicConfig(min_isr=1, flush=flush)
        notices = [
            PartitionNotice(PartitionId(bytes(16), n, 0), "t", PartitionState(1, 0, (1,)), Assignment((1,)), topic) for n in range(count)
        ]
        self.tell(Registered(1, 1))
        self.tell(LeaderAndIsr(1, 1, 1, 0, True, 1_000, notices, as_of=0))
        for n in range(count if written is None else written):
            self.append(n)

    def append(self, n: int) -> list[FlushToken]:
        return self.tell(Produce(-1, 1_000, [ProduceEntry(1, PartitionId(bytes(16), n, 0), encode_records(["x"], now_ms=0))]))

    def tell(self, message: Any) -> list[FlushToken]:
        """Hand a message over; the flushes that are asked for."""
        self.broker.receive("driver", message, 1)
        self.broker.tick(1, 1)
        tokens, self.broker.outbox.flushes = self.broker.outbox.flushes, []
        return tokens

    def fail(self, token: FlushToken, number: int) -> list[FlushToken]:
        token.error = OSError(number, "fsync failed")
        return self.tell(FlushDone(token))

    @property
    def left(self) -> int:
        return self.broker.upkeep.left_to_flush

    def unflushed(self) -> list[PartitionId]:
        return [one for one, copy in self.broker.partitions.items() if copy.log.flushed_end < copy.log.end_offset]


@pytest.mark.parametrize("flush", ["os", "interval"])
def test_every_log_is_flushed_and_none_twice(flush: str) -> None:
    desk = Desk(5, flush=flush)
    tokens = desk.tell(FlushAll())
    assert sorted(token.identity for token in tokens) == sorted(desk.unflushed())
    assert desk.left == 5
    for done, token in enumerate(tokens, start=1):
        assert desk.tell(FlushDone(token.run())) == []
        assert desk.left == 5 - done
    assert desk.unflushed() == []
    assert desk.tell(FlushAll()) == []
    assert desk.left == 0


def test_what_is_on_the_disk_is_left_alone() -> None:
    desk = Desk(AT_ONCE + 5, written=AT_ONCE)
    assert len(desk.tell(FlushAll())) == AT_ONCE
    assert desk.left == AT_ONCE


def test_only_so_many_are_under_way_and_each_end_begins_the_next() -> None:
    count = 3 * AT_ONCE + 5
    desk = Desk(count)
    under_way = desk.tell(FlushAll())
    assert (len(under_way), desk.left) == (AT_ONCE, count)
    seen = set()
    while under_way:
        token = under_way.pop()
        seen.add(token.identity)
        under_way += desk.tell(FlushDone(token.run()))
        assert len(under_way) == min(AT_ONCE, count - len(seen))
        assert desk.left == count - len(seen)
    assert len(seen) == count
    assert desk.unflushed() == []


def test_files_that_are_kept_open_bound_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of what may be open: a log with many segments keeps all open that were not flushed."""
    flush = MemoryLog.flush

    def many(log: MemoryLog) -> FlushToken | None:
        token = flush(log)
        return None if token is None else evolve(token, share=25 / 512)

    monkeypatch.setattr(MemoryLog, "flush", many)
    desk = Desk(7)
    under_way = desk.tell(FlushAll())
    assert (len(under_way), desk.left) == (3, 7)
    for left in (6, 5, 4, 3, 2, 1, 0):
        under_way += desk.tell(FlushDone(under_way.pop().run()))
        assert (len(under_way), desk.left) == (min(3, left), left)


def test_asked_twice_nothing_is_flushed_twice_at_once() -> None:
    desk = Desk(3)
    tokens = desk.tell(FlushAll())
    assert desk.tell(FlushAll()) == []
    assert desk.left == 3
    for token in tokens:
        assert desk.tell(FlushDone(token.run())) == []
    assert desk.left == 0


def test_one_that_is_under_way_already_is_waited_for_and_what_came_behind_it_is_flushed_next() -> None:
    desk = Desk(2, flush="ack", written=0)
    (token,) = desk.append(0)
    assert desk.append(0) == []
    assert desk.tell(FlushAll()) == []
    assert desk.left == 1
    (following,) = desk.tell(FlushDone(token.run()))
    assert desk.left == 0
    assert desk.tell(FlushDone(following.run())) == []
    assert desk.unflushed() == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_one_that_cannot_be_flushed_now_keeps_nobody_waiting(number: int) -> None:
    """For want of descriptors: nothing is lost, and it is tried again later, as ever."""
    desk = Desk(2)
    first, second = desk.tell(FlushAll())
    desk.fail(first, number)
    desk.tell(FlushDone(second.run()))
    assert desk.left == 0
    assert desk.unflushed() == [first.identity]
    assert len(desk.tell(FlushAll())) == 1


def test_a_flush_that_fails_ends_it_for_the_whole_directory() -> None:
    desk = Desk(AT_ONCE + 3)
    tokens = desk.tell(FlushAll())
    assert desk.fail(tokens[0], errno.EIO) == []
    assert all(partition.failed for partition in desk.broker.partitions.values())
    assert desk.left == AT_ONCE - 1  # what is under way
    for token in tokens[1:]:
        assert desk.tell(FlushDone(token.run())) == []
    assert desk.left == 0
    assert desk.tell(FlushAll()) == []
    assert desk.left == 0


def test_one_that_fails_when_it_is_its_turn_does_not_end_the_rest() -> None:
    desk = Desk(AT_ONCE + 3)
    tokens = desk.tell(FlushAll())
    waiting = [copy for one, copy in desk.broker.partitions.items() if one not in {token.identity for token in tokens}]
    waiting[0].log.fail("a read failed")  # type: ignore[attr-defined]
    under_way = tokens
    ended = 0
    while under_way:
        under_way += desk.tell(FlushDone(under_way.pop().run()))
        ended += 1
    assert ended == AT_ONCE + 2
    assert desk.left == 0


@pytest.mark.parametrize("deleted", [False, True])
def test_the_others_are_flushed_if_the_first_is_not_served_any_more_in_the_same_turn(deleted: bool) -> None:
    desk = Desk(5)
    first = next(iter(desk.broker.partitions))
    desk.broker.receive("driver", FlushAll(), 1)
    tokens = desk.tell(StopReplica(1, 1, 1, 1, [StopEntry(first, 1, deleted)], as_of=1))
    assert (len(tokens), desk.left) == (4, 4)


def test_a_copy_that_is_not_served_any_more_is_not_waited_for() -> None:
    desk = Desk(AT_ONCE + 1)
    tokens = desk.tell(FlushAll())
    (last,) = set(desk.broker.partitions) - {token.identity for token in tokens}
    desk.tell(StopReplica(1, 1, 1, 1, [StopEntry(last, 1, False)], as_of=1))
    assert desk.left == AT_ONCE
    for token in tokens:
        assert desk.tell(FlushDone(token.run())) == []
    assert desk.left == 0
