"""An answer that comes late and fits again: same session, same leader epoch, same offset, but about records that were cut since.

Chance alone meets this about once in 2,000 seeds, so it is also played by hand.
"""

from __future__ import annotations

from typing import Any

from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.log.memory import MemoryLogDirectory
from replog.messages import Fetch, Fetched, FetchedEntry, LeaderAndIsr, PartitionNotice, Registered
from replog.model import Assignment, PartitionId, PartitionState
from replog.ports import MemorySlice
from replog.records import Record, RecordBatch, encode_records
from replog.testing.clock import SeededIds

PID = PartitionId(bytes(16), 0, 0)
SESSION = 9


class Follower:
    """Broker 2, told by hand what its leaders answer."""

    def __init__(self) -> None:
        config = BrokerConfig()
        self.broker = Broker(2, MemoryLogDirectory(limits=config, directory_id="d" * 32), config=config, ids=SeededIds(1))
        self.broker.receive(None, Registered(2, 2), 0)
        self.fetch: Fetch | None = None

    def follow(self, leader: int, epoch: int) -> None:
        state = PartitionState(leader=leader, leader_epoch=epoch, isr=(1, 2, 3), partition_epoch=epoch)
        notice = PartitionNotice(PID, "t", state, Assignment((1, 2, 3)), TopicConfig(min_isr=2))
        self._hear(1, LeaderAndIsr(1, 1, 2, epoch, epoch == 1, 1_000, [notice], as_of=epoch))

    def answer(self, leader: int, **told: Any) -> Fetched:
        """Answer its last fetch."""
        assert self.fetch is not None
        asked = self.fetch.entries[0]
        entry = FetchedEntry(PID, asked.leader_epoch, asked.offset, high_watermark=0, start_offset=0, **told)
        message = Fetched(self.fetch.request, SESSION, self.fetch.session_epoch, 0, [entry])
        self._hear(leader, message)
        return message

    def again(self, leader: int, message: Fetched) -> None:
        self._hear(leader, message)

    @property
    def end(self) -> int:
        return self.broker.partitions[PID].log.end_offset

    def _hear(self, sender: int, message: Any) -> None:
        self.broker.receive(sender, message, 1)
        self.broker.tick(1, 1)
        sent, self.broker.outbox.messages = self.broker.outbox.messages, []
        self.fetch = next((m for _, m in sent if isinstance(m, Fetch) and m.entries), self.fetch)


def batches(base: int, epoch: int, count: int) -> list[MemorySlice]:
    made = []
    for offset in range(base, base + count):
        batch = RecordBatch(encode_records([Record(f"{epoch} {offset}")], now_ms=0))
        batch.stamp(PID, offset, epoch)
        made.append(MemorySlice(offset, offset + 1, batch.front + bytes(batch.body)))
    return made


def test_a_late_divergence_does_not_cut_what_was_fetched_since() -> None:
    follower = Follower()
    follower.follow(leader=1, epoch=1)
    follower.answer(1, slices=batches(0, 1, 2), end_offset=2)
    assert follower.end == 2
    follower.follow(leader=3, epoch=2)
    parted = follower.answer(3, diverging_epoch=1, diverging_end=1, end_offset=2)
    assert follower.end == 1
    follower.answer(3, slices=batches(1, 2, 1), end_offset=2)
    assert follower.end == 2
    follower.again(3, parted)
    assert follower.end == 2
    assert follower.broker.partitions[PID].log.epochs.latest == (2, 1)
