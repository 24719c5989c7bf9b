"""What a follower owes its leader under flush="ack": it is said until this leader says that it counts, and no more often than it takes."""

from __future__ import annotations

from typing import Any

import pytest

from replog.broker.broker import Broker
from replog.broker.due import NEVER
from replog.broker.durability import FlushReports
from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLog, MemoryLogDirectory
from replog.messages import Fetch, Fetched, FetchedEntry, Flushed, LeaderAndIsr, PartitionNotice, Registered, StopEntry, StopReplica
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.ports import FlushDone, FlushToken, MemorySlice, Outbox
from replog.records import RecordBatch, encode_records
from replog.testing.clock import SeededIds

P = PartitionId(bytes(16), 0, 0)
ACK = TopicConfig(min_isr=1, flush="ack")
CONFIG = BrokerConfig(fetch_wait_ms=250, heartbeat_ms=60_000)


def follower(isr: tuple[int, ...]) -> Partition:
    """It led epoch 0 and committed three records; now broker 2 leads epoch 1."""
    partition = Partition(P, "t", MemoryLog(P), broker_id=1, limits=BrokerConfig(), brokers={n: BrokerInfo(n, n) for n in (1, 2)})
    partition.become(PartitionNotice(P, "t", PartitionState(1, 0, (1,)), Assignment((1, 2)), ACK), 0)
    partition.append(RecordBatch(encode_records(["a", "b", "c"], now_ms=0)), -1, 0)
    token = partition.log.flush()
    assert token is not None
    partition.flushed(token.run(), 0)
    assert partition.high_watermark == 3
    state = PartitionState(2, 1, isr, partition_epoch=1)
    partition.become(PartitionNotice(P, "t", state, Assignment((1, 2)), ACK), 0)
    return partition


@pytest.mark.parametrize(
    ("isr", "theirs", "said"),
    [((1, 2), 1, True), ((1, 2), 3, False), ((2,), 3, True)],
    ids=["the leader does not know what was committed", "it knows", "it knows, and this copy is to join"],
)
def test_it_is_said_until_this_leader_counts_it(isr: tuple[int, ...], theirs: int, said: bool) -> None:
    """A leader that took over from one that lives may know a lower high watermark than its followers (L3)."""
    outbox = Outbox()
    partition, reports = follower(isr), FlushReports(1, outbox, CONFIG)
    reports.owe(partition)
    reports.send(0, 1)
    assert outbox.messages == [], "the leader has not compared the logs yet"
    partition.take(FetchedEntry(P, 1, 3, high_watermark=theirs, start_offset=0, end_offset=3))
    reports.owe(partition)
    reports.send(0, 1)
    assert [(to, m.entries[0].flushed_end) for to, m in outbox.messages if isinstance(m, Flushed)] == ([(2, 3)] if said else [])
    assert reports.again.next_ms == (500 if said else NEVER)


class Follower:
    """Broker 1, which follows so many partitions from broker 2 (later perhaps from broker 3), and what it says of its disk."""

    def __init__(self, partitions: int) -> None:
        self.broker = Broker(1, MemoryLogDirectory(), config=CONFIG, ids=SeededIds(1))
        self.identities = [P._replace(partition=number) for number in range(partitions)]
        self.notices = 0
        self.leader = 2
        self.session = 0
        self.request: Fetch | None = None
        self.said: list[tuple[int, list[tuple[int, int]]]] = []
        """(to, [(partition, flushed end)]) of each message, since it was looked at last."""
        self.tell("membership", Registered(1, 1), 0)
        self.follow(2, 0, 0)

    def follow(self, leader: int, epoch: int, now_ms: int, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        """The controller's notice. The new leader answers with what is there."""
        state = PartitionState(leader, epoch, isr, partition_epoch=self.notices)
        notices = [PartitionNotice(one, "t", state, Assignment((1, 2, 3)), ACK) for one in self.identities]
        self.session += leader != self.leader
        self.leader = leader
        self.tell("controller", LeaderAndIsr(4, 1, 1, self.notices, self.notices == 0, 1_000, notices, as_of=self.notices), now_ms)
        self.notices += 1

    def tell(self, sender: Any, message: Any, now_ms: int) -> None:
        self.broker.receive(sender, message, now_ms)
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        self.broker.tick(now_ms, now_ms)
        for to, message in self.broker.outbox.messages:
            if isinstance(message, Fetch) and to == self.leader and not message.catch_up:
                self.request = message
            elif isinstance(message, Flushed):
                self.said.append((to, [(entry.partition.partition, entry.flushed_end) for entry in message.entries]))
        self.broker.outbox.messages.clear()

    def fetched(self, now_ms: int, *, high_watermark: int, records: int = 0) -> None:
        """The leader's answer about every partition."""
        assert self.request is not None
        entries = [self._entry(one, high_watermark, records) for one in self.identities]
        self.tell(self.leader, Fetched(self.request.request, 9 + self.session, self.request.session_epoch, 0, entries), now_ms)

    def _entry(self, identity: PartitionId, high_watermark: int, records: int) -> FetchedEntry:
        partition = self.broker.partitions[identity]
        end = partition.log.end_offset
        slices = []
        for base in range(end, end + records):
            batch = RecordBatch(encode_records(["x"], now_ms=0))
            batch.stamp(identity, base, partition.leader_epoch)
            slices.append(MemorySlice(base, base + 1, batch.to_bytes()))
        return FetchedEntry(identity, partition.leader_epoch, end, 0, high_watermark, 0, end + records, slices=slices)

    def flushes(self) -> list[FlushToken]:
        tokens, self.broker.outbox.flushes = self.broker.outbox.flushes, []
        return tokens

    def heard(self) -> list[tuple[int, list[tuple[int, int]]]]:
        said, self.said = self.said, []
        return said


def flushed_follower(partitions: int = 1) -> Follower:
    """One record of each partition is on its disk, and at 10 ms its leader was told."""
    one = Follower(partitions)
    one.fetched(0, high_watermark=0, records=1)
    for token in one.flushes():
        one.broker.receive("disk", FlushDone(token.run()), 10)
    assert one.heard() == []
    one.tick(10)
    return one


def test_many_flushes_of_one_poll_share_one_message() -> None:
    assert flushed_follower(100).heard() == [(2, [(number, 1) for number in range(100)])]


def test_a_flush_reports_its_own_partition_only() -> None:
    """It reported every one whose leader had not confirmed it yet: N flushes in N polls made N * N / 2 entries."""
    one = Follower(100)
    one.fetched(0, high_watermark=0, records=1)
    for token in one.flushes():
        one.tell("disk", FlushDone(token.run()), 10)
    assert one.heard() == [(2, [(number, 1)]) for number in range(100)]
    one.fetched(11, high_watermark=0, records=1)  # an answer makes no end another one
    one.fetched(12, high_watermark=0)
    assert one.heard() == []
    for token in one.flushes():
        one.tell("disk", FlushDone(token.run()), 13)
    assert one.heard() == [(2, [(number, 2)]) for number in range(100)]


def test_what_is_lost_is_said_again_until_the_leader_confirms_it() -> None:
    """No more is appended, the leader has no news to tell, and yet an append waits for the end that it has not heard of."""
    one = flushed_follower(2)
    one.heard()
    deadlines = []
    for at_ms in (510, 1_010, 1_510):
        while (deadline_ms := one.broker.deadline_ms()) is not None and deadline_ms < at_ms:
            one.tick(deadline_ms)
        deadlines.append(deadline_ms)
        one.tick(at_ms - 1)
        assert one.heard() == []
        one.tick(at_ms)
        assert one.heard() == [(2, [(0, 1), (1, 1)])]
    assert deadlines == [510, 1_010, 1_510]
    one.fetched(1_600, high_watermark=1)
    for now_ms in range(1_700, 10_000, 100):
        one.tick(now_ms)
    assert one.heard() == []
    assert one.broker._flush_reports.again.next_ms == NEVER


def test_a_new_leader_hears_of_what_the_old_one_was_told() -> None:
    """At once, when it has accepted the log: the same end means nothing to it before."""
    one = flushed_follower(2)
    one.heard()
    one.follow(3, 1, 20)
    one.tick(30)
    assert one.heard() == []
    one.fetched(40, high_watermark=0)
    assert one.heard() == [(3, [(0, 1), (1, 1)])]


def test_the_same_leader_hears_of_it_again_in_each_of_its_epochs() -> None:
    """It may have been started again meanwhile."""
    one = flushed_follower(2)
    one.heard()
    one.follow(2, 1, 20)
    one.fetched(40, high_watermark=0)
    assert one.heard() == [(2, [(0, 1), (1, 1)])]


def test_who_was_put_out_says_where_it_is_although_all_that_was_confirmed() -> None:
    one = flushed_follower(1)
    one.fetched(11, high_watermark=1)
    one.heard()
    one.follow(2, 0, 20, isr=(2, 3))
    assert one.heard() == [(2, [(0, 1)])]
    one.tick(519)
    assert one.heard() == []
    one.tick(520)
    assert one.heard() == [(2, [(0, 1)])]
    one.follow(2, 0, 600)
    one.tick(2_000)
    assert one.heard() == []


def test_nothing_is_said_of_what_is_no_longer_followed() -> None:
    one = flushed_follower(2)
    one.heard()
    one.tell("controller", StopReplica(4, 1, 1, one.notices, [StopEntry(P, 0, False)], as_of=one.notices), 20)
    one.tick(510)
    assert one.heard() == [(2, [(1, 1)])]
    one.broker._fail(one.broker.partitions[one.identities[1]], "a read failed")
    one.tick(1_010)
    assert one.heard() == []
    assert one.broker._flush_reports.again.next_ms == NEVER


def test_a_copy_that_comes_back_is_another_one() -> None:
    """Whatever was said of the earlier one, its leader hears of it at once, and again."""
    one = flushed_follower(1)
    one.heard()
    one.tell("controller", StopReplica(4, 1, 1, one.notices, [StopEntry(P, 0, False)], as_of=one.notices), 20)
    one.notices += 1
    one.follow(2, 0, 30)
    one.fetched(40, high_watermark=0)
    assert one.heard() == [(2, [(0, 1)])]
    one.tick(540)
    assert one.heard() == [(2, [(0, 1)])]
