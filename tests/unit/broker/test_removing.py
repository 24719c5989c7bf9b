"""Files go in turns, and others are served meanwhile: what waits is not looked at in each of them, and a follower is no exception."""

from __future__ import annotations

from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.messages import LeaderAndIsr, PartitionNotice, Produce, Produced, ProduceEntry, Registered
from replog.model import ACKS_ALL, Assignment, PartitionId, PartitionState
from replog.ports import LogStart
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
        self.broker.receive(("controller", 1), LeaderAndIsr(1, 1, 5, 0, True, 600_000, notices, as_of=0), 0)
        self.broker.tick(0, 0)

    def log(self, number: int) -> FileLog:
        log = self.directory.get(self.identities[number])
        assert isinstance(log, FileLog)
        return log

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
