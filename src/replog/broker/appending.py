"""Appends of producers, as their leader: a batch is judged, appended, and acknowledged once it counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from replog.broker.publishing import Publishing
from replog.broker.seldom import TELL_MS, Seldom
from replog.broker.sessions import Sessions
from replog.broker.upkeep import Upkeep
from replog.broker.waiting import WaitingAppend, WaitingAppends, answer, published
from replog.config import BrokerConfig
from replog.errors import Code, LogCorrupt, LogDamaged, LogFull
from replog.marks import check_mark, made_too_far
from replog.messages import Produce, Produced, ProducedEntry, ProduceEntry
from replog.model import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Address, PartitionId
from replog.partition.partition import Partition
from replog.ports import Outbox, Staging
from replog.records import BadBatch, RecordBatch

__all__ = ["Appending"]

_ELSEWHERE: Final = frozenset(
    {
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
        Code.STORAGE_ERROR,
    }
)
"""Refusals that say that a client asks the wrong broker: news of the cluster, also for one that waits for no answer (acks=0)."""


class Appending:
    """The way of records into the partitions that a broker leads."""

    def __init__(
        self,
        outbox: Outbox,
        partitions: Mapping[PartitionId, Partition],
        staging: Staging,
        config: BrokerConfig,
        *,
        waiting: WaitingAppends,
        upkeep: Upkeep,
        sessions: Sessions,
        unknown: Callable[[PartitionId], int],
        moved: Callable[[Partition, int, int], None],
        failed: Callable[[Partition, str], None],
        event: Callable[..., None],
    ) -> None:
        self._outbox = outbox
        self._partitions = partitions
        self._config = config
        self._waiting = waiting
        self._upkeep = upkeep
        self._sessions = sessions
        self._unknown = unknown
        self._moved = moved
        self._failed = failed
        self._event = event
        self._seldom = Seldom(event)
        self.publishing = Publishing(
            outbox, partitions, staging, config, unknown=unknown, appended=self.grown, acknowledge=self._published, failed=failed,
            too_far=self._too_far, full=self._full,
        )  # fmt: skip
        self._forgetting: dict[PartitionId, Partition] = {}
        """Led here, and have forgotten writers of which `tell_due` has yet to tell."""
        self._forgetting_told_ms: dict[PartitionId, int] = {}

    def on_produce(self, sender: Address, message: Produce, now_ms: int) -> None:
        """Append each entry; answer what is decided, let the rest wait. Under acks=0 only who asks the wrong broker is told so."""
        acks = message.acks
        done: list[ProducedEntry] = []
        for entry in message.entries:
            answered = self._append(sender, entry, acks, message.timeout_ms, now_ms)
            if answered is not None and (acks != ACKS_NONE or answered.error in _ELSEWHERE):
                done.append(answered)
        if done:
            self._outbox.messages.append((sender, Produced(done)))

    def _append(self, sender: Address, entry: ProduceEntry, acks: int, timeout_ms: int, now_ms: int) -> ProducedEntry | None:
        partition = self._partitions.get(entry.partition)
        if partition is None:
            return ProducedEntry(entry.request, self._unknown(entry.partition))
        if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            return ProducedEntry(entry.request, Code.INVALID_REQUIRED_ACKS)
        if partition.leading is None:
            return answer(partition, entry.request, Code.STORAGE_ERROR if partition.failed else Code.NOT_LEADER_OR_FOLLOWER)
        before = partition.high_watermark
        try:
            batch = RecordBatch(entry.body)
            batch.check_body(length_max=partition.config.max_batch_bytes, records_max=self._config.batch_records_max)
            mark = check_mark(batch) if batch.extension_bytes else None
            if mark is not None and not partition.knows(batch) and self._too_far(partition, mark.key, mark.made_ms, now_ms):
                return ProducedEntry(entry.request, Code.INVALID_TIMESTAMP)
            error, base, end = partition.append(batch, acks, now_ms)
        except BadBatch as problem:
            return ProducedEntry(entry.request, problem.code)
        except LogFull as problem:
            self.tell_full(partition, problem, now_ms)
            return ProducedEntry(entry.request, Code.LOG_DIRECTORY_FULL)
        except (LogDamaged, LogCorrupt) as problem:
            self._failed(partition, str(problem))
            return ProducedEntry(entry.request, Code.STORAGE_ERROR)
        if error:
            return answer(partition, entry.request, error)
        self.grown(partition, before, now_ms)
        if mark is not None and partition.log.producers.writers_forgotten:
            self._forgetting[partition.identity] = partition
        append = WaitingAppend(sender, entry.request, acks, base, end, now_ms + timeout_ms)
        if base >= 0 and end - base != batch.count and acks != ACKS_NONE:
            append.is_publication = True  # an attempt with another number of records did this work: that has to be said
            self._published(partition, append)
            return None
        counts = self._counts(partition, append)
        if acks == ACKS_NONE or (not counts and self._waiting.park(partition, append)):
            return None
        return answer(partition, entry.request, Code.NONE if counts else Code.REQUEST_TIMED_OUT, base)

    def tell_full(self, partition: Partition, problem: LogFull, now_ms: int) -> None:
        """Something found no room in this log, whoever wanted it."""
        self._seldom.tell("log_full", now_ms, partition, problem=str(problem))

    def unreadable(self, partition: Partition, problem: LogFull) -> None:
        """This copy cannot be read for now, and nothing is wrong with it."""
        self.tell_full(partition, problem, self._upkeep.told_ms)

    def _full(self, partition: Partition, problem: LogFull, now_ms: int) -> None:
        """A group waits for room, and everything else in its partition for the group: retention need not wait as well."""
        self.tell_full(partition, problem, now_ms)
        self._upkeep.retain_soon()

    def _too_far(self, partition: Partition, writer: str, made_ms: int, now_ms: int) -> bool:
        """Whether new work of a writer cannot be stored, because by this broker's clock it was asked for too long ago, or too far ahead."""
        wall_ms = self._upkeep.wall_at(now_ms)
        if not made_too_far(made_ms, wall_ms, self._config.writer_expiry_ms):
            return False
        if made_ms < wall_ms:
            self._seldom.tell("mark_too_old", now_ms, partition, writer=writer, made_ms=made_ms, wall_ms=wall_ms)
        return True

    def tell_due(self, now_ms: int) -> None:
        """Now and then: what is told in sums, and of which logs led here writers were forgotten since, because there were too many."""
        self._seldom.run(now_ms)
        told_ms = self._forgetting_told_ms
        if not self._forgetting:
            return
        for identity in [one for one, at_ms in told_ms.items() if now_ms >= at_ms + TELL_MS]:
            del told_ms[identity]
        for identity, partition in list(self._forgetting.items()):
            if identity not in told_ms:
                table = partition.log.producers
                self._event("writers_forgotten", partition=repr(partition), count=table.writers_forgotten, limit=self._config.producers_max)
                table.writers_forgotten = 0
                told_ms[identity] = now_ms
                del self._forgetting[identity]

    def grown(self, partition: Partition, before: int, now_ms: int) -> None:
        """A log that is led here has grown; its high watermark was at `before`."""
        self._upkeep.appended(partition)
        self._sessions.appended(partition)
        if partition.high_watermark != before:
            self._moved(partition, before, now_ms)

    def _counts(self, partition: Partition, append: WaitingAppend) -> bool:
        """Whether it is as safe as was asked for. A duplicate waits like its original (P-103)."""
        if append.acks == ACKS_ALL:
            return partition.high_watermark >= append.end_offset
        return partition.config.flush != "ack" or partition.log.flushed_end >= append.end_offset

    def _published(self, partition: Partition, append: WaitingAppend) -> None:
        """A group is in the log: its writer is answered once it counts."""
        if partition.log.producers.writers_forgotten:
            self._forgetting[partition.identity] = partition
        counts = self._counts(partition, append)
        if counts or not self._waiting.park(partition, append):
            said = published(partition, append, Code.NONE if counts else Code.REQUEST_TIMED_OUT)
            self._outbox.messages.append((append.client, said))
