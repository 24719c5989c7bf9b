"""Files go in turns, and others are served meanwhile: what waits is not looked at in each of them, and a follower is no exception."""

from __future__ import annotations

import pytest
from attrs import evolve

from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.messages import Fetch, Fetched, FetchedEntry, LeaderAndIsr, PartitionNotice, Produce, Produced, ProduceEntry, Registered
from replog.model import ACKS_ALL, Assignment, PartitionId, PartitionState
from replog.ports import LogStart, MemorySlice
from replog.records import Record, RecordBatch, encode_records
from replog.testing.clock import SeededIds
from replog.testing.disk.memory import MemoryFs
from replog.testing.log_samples import append, flush

CONFIG = BrokerConfig(retention_check_ms=1_000, heartbeat_ms=60_000, replica_lag_ms_max=600_000)
TOPIC = TopicConfig(min_isr=1, segment_bytes=500, retention_bytes=1)


class Copies:
    """Broker 1, with copies of so many segments each; 2 has the others, and leads them if `leader` says so."""

    def __init__(self, count: int, segments: int, *, leader: int, topic: TopicConfig = TOPIC) -> None:
        self.directory = FileLogDirectory("/d", fs=MemoryFs(), limits=CONFIG)
        self.broker = Broker(1, self.directory, config=CONFIG, ids=SeededIds(1))
        self.identities = [PartitionId(bytes(16), number, 0) for number in range(count)]
        for log in self.directory.create([LogStart(identity, "t", topic) for identity in self.identities]):
            for _ in range(2 * segments):
                append(log, 8)
            flush(log)
            self.directory.high_watermarks[log.identity] = log.end_offset
        assert self.segments == [segments] * count
        self.broker.receive("membership", Registered(1, 5), 0)
        state = PartitionState(leader=leader, leader_epoch=5, isr=(1, 2))
        notices = [PartitionNotice(identity, "t", state, Assignment((1, 2)), topic) for identity in self.identities]
        self.broker.receive(("controller", 1), LeaderAndIsr(1, 1, 5, 0, True, 600_000, notices), 0)
        self.broker.tick(0, 0)

    def log(self, number: int) -> FileLog:
        log = self.directory.get(self.identities[number])
        assert isinstance(log, FileLog)
        return log

    def fetches(self) -> list[Fetch]:
        """What it asks its leader since the last call."""
        found = [message for to, message in self.broker.outbox.messages if to == 2 and isinstance(message, Fetch)]
        self.broker.outbox.messages.clear()
        return found

    def answer(self, fetch: Fetch, now_ms: int, **entry: int) -> None:
        """As its leader, the same of each partition."""
        entries = [FetchedEntry(asked.partition, 5, asked.offset, **entry) for asked in fetch.entries]
        self.broker.receive(2, Fetched(fetch.request, 7, 0, Code.NONE, entries), now_ms)

    def one_more(self, identity: PartitionId, end: int) -> FetchedEntry:
        """One record more, and the leader's log begins with it."""
        batch = RecordBatch(encode_records([Record("m")], now_ms=0))
        batch.stamp(identity, end, 5)
        piece = MemorySlice(end, end + 1, batch.to_bytes())
        return FetchedEntry(identity, 5, end, start_offset=end, end_offset=end + 1, high_watermark=end, slices=[piece])

    def begun(self, start: int) -> int:
        """How many are empty there, and know of nothing that was in front of it."""
        logs = [self.log(number) for number in range(len(self.identities))]
        return sum(log.start_offset == log.end_offset == start and log.last_epoch < 0 for log in logs)

    @property
    def segments(self) -> list[int]:
        return [len(self.log(number)._segments) for number in range(len(self.identities))]


def test_what_waits_is_not_looked_at_whenever_retention_goes_on() -> None:
    """A hundred thousand appends may wait; and they are looked at in time also while it does."""
    copies = Copies(4, 70, leader=1)
    broker = copies.broker
    broker.tick(1_000, 0)
    body = RecordBatch(encode_records([Record("m")], now_ms=0)).body
    broker.receive("client", Produce(ACKS_ALL, 30, [ProduceEntry(1, copies.identities[0], body)]), 1_000)
    broker.tick(1_000, 0)
    answered = [now_ms for now_ms in range(1_010, 1_151, 10) if answers(broker, now_ms)]
    assert answered == [1_100]
    assert max(copies.segments) > 2, "it goes on"


def answers(broker: Broker, now_ms: int) -> int:
    """How many appends are answered with a tick at that time."""
    broker.outbox.messages.clear()
    broker.tick(now_ms, 0)
    return sum(isinstance(message, Produced) for _, message in broker.outbox.messages)


ALL = TopicConfig(min_isr=1, segment_bytes=500)
"""Everything is kept: only what the leader says removes something."""


@pytest.mark.parametrize("topic", [evolve(TOPIC, retention_bytes=1 << 30), ALL], ids=["limits", "none"])
def test_what_a_follower_trims_goes_in_retentions_turns(topic: TopicConfig) -> None:
    """Its leader names a thousand partitions in one answer when it comes back; what is left does not wait for its next check."""
    copies = Copies(6, 20, leader=2, topic=topic)
    (fetch,) = copies.fetches()
    copies.answer(fetch, 10, start_offset=204, end_offset=320, high_watermark=320)
    assert copies.segments == [20] * 6
    assert {copies.log(number).start_offset for number in range(6)} == {200}, "at once"
    turns = []
    for now_ms in range(10, 50):
        before = sum(copies.segments)
        copies.broker.tick(now_ms, 0)
        due = copies.broker.deadline_ms()
        assert due is not None
        assert due > now_ms
        turns.append(before - sum(copies.segments))
    assert sum(turns) == 6 * 12
    assert max(turns) == 16
    assert copies.segments == [8] * 6


@pytest.mark.parametrize("segments", [3, 60])
def test_a_follower_of_which_everything_is_trimmed_appends_once_that_is_gone(segments: int) -> None:
    """A restart must not bring back what the leader cannot vouch for, with records of the leader's behind it."""
    copies = Copies(4, segments, leader=2, topic=ALL)
    end = 16 * segments
    fetches = copies.fetches()
    turns, ends = [], []
    for now_ms in range(10, 5_000, 10):
        before = sum(copies.segments)
        for fetch in fetches:
            entries = [copies.one_more(asked.partition, end) for asked in fetch.entries if asked.offset == end]
            copies.broker.receive(2, Fetched(fetch.request, 7, 0, Code.NONE, entries), now_ms)
        logs = [copies.log(number) for number in range(4)]
        assert all(len(log._segments) == 1 for log in logs if log.end_offset > end)
        ends.append(sum(log.end_offset > end for log in logs))
        turns.append(before - sum(copies.segments))
        copies.broker.tick(now_ms, 0)
        turns.append(before - sum(copies.segments) - turns[-1])
        fetches = copies.fetches()
        if ends[-1] == 4:
            break
    assert ends[0] == (2 if segments == 3 else 0)
    assert max(turns) <= 16
    assert [(log.start_offset, log.end_offset) for log in logs] == [(end, end + 1)] * 4


@pytest.mark.parametrize(("segments", "removed"), [(20, 16), (3, 6)], ids=["large", "small"])
@pytest.mark.parametrize("parts", [False, True], ids=["out of range", "parts"])
def test_copies_that_begin_anew_do_so_in_turns(segments: int, removed: int, parts: bool) -> None:
    """Away for longer than retention: all of them at once held the broker up, and it lost its session again."""
    copies = Copies(8, segments, leader=2, topic=ALL)
    end = 16 * segments
    start = end if parts else end + 5
    turns, resets, asked = [], [], set()
    fetches = copies.fetches()
    for now_ms in range(10, 20_000, 10):
        before, begun = sum(copies.segments), copies.begun(start)
        for fetch in fetches:
            asked |= {(entry.partition, entry.offset) for entry in fetch.entries}
            again = [entry for entry in fetch.entries if entry.last_epoch >= 0]  # whoever knows nothing is in range
            refused = {"diverging_epoch": 0, "diverging_end": end} if parts else {"error": Code.OFFSET_OUT_OF_RANGE}
            copies.answer(evolve(fetch, entries=again), now_ms, start_offset=start, end_offset=start + 9, high_watermark=start, **refused)
        turns.append(before - sum(copies.segments))
        resets.append(copies.begun(start) - begun)
        copies.broker.tick(now_ms, 0)
        turns.append(before - sum(copies.segments) - turns[-1])
        fetches = copies.fetches()
        if copies.begun(start) == 8 and not fetches:
            break
    assert (sum(turns), max(turns)) == (8 * segments, removed if segments == 3 else 16)
    assert (sum(resets), max(resets)) == (8, 1 if segments == 20 else 2)
    assert {(identity, start) for identity in copies.identities} <= asked
    watermarks = [partition.high_watermark for partition in copies.broker.partitions.values()]
    assert watermarks == [start] * 8
