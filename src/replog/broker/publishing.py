"""Work that was put aside becomes a group of batches in the log: readers see all of it or nothing (design, section 8).

A group of any size goes in slices, one a turn, so that nothing else waits for it; appends to its partition do, because nothing may
come in between. Whoever stops leading stops publishing: the next leader cuts what has not come whole, and has nothing put aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from attrs import define, field

from replog.broker.staging import Piece, Stages
from replog.broker.waiting import WaitingAppend
from replog.config import BrokerConfig
from replog.errors import Code, LogCorrupt, LogDamaged, LogFull, UsageError
from replog.marks import MARK_BYTES_MAX, PIECES_MAX, WriterMark, check_attempt, check_attempts, check_writer, framing, marked, writer_id
from replog.messages import Publish, Published, Stage
from replog.model import ACKS_ALL, Address, PartitionId
from replog.partition.partition import Partition
from replog.ports import Outbox, Staging
from replog.records import BadBatch, RecordBatch

__all__ = ["Publishing"]

_LOOK_AGAIN_MS: Final = 100
"""Whether followers keep up is looked at whenever one has acknowledged, and after so long: a laggard holds a group for some time only."""
_FULL_RETRY_MS: Final = 1_000
"""A group that a full disk has interrupted goes on so much later: it cannot be taken back."""
_SLICE_COST_MIN: Final = 64 << 10
"""A slice counts for so many bytes at least: it takes a few calls of the system, and a file perhaps, whatever its size."""
_WAITING_MAX: Final = 1_000
"""So many requests wait for one group. One more is answered REQUEST_TIMED_OUT, as beyond `waiting_appends_max`: what it asks for may be
done all the same, and when it asks again, it is told."""


@define
class _Publication:
    """A group on its way into the log of one leadership."""

    leader_epoch: int
    work: tuple[PartitionId, str]
    version: int
    made_ms: int
    pieces: list[Piece]
    waiting: list[WaitingAppend] = field(factory=list)
    ends: list[int] = field(init=False)
    """How far into the group each piece reaches."""
    next: int = 0
    group_offset: int = 0
    base_offset: int = -1
    not_before_ms: int = 0
    is_held: bool = False
    """Its next slice waits for followers."""

    def __attrs_post_init__(self) -> None:
        self.ends = list(accumulate(piece.records for piece in self.pieces))


class Publishing:
    """Stages and publications of one broker."""

    def __init__(
        self,
        outbox: Outbox,
        partitions: Mapping[PartitionId, Partition],
        staging: Staging,
        config: BrokerConfig,
        *,
        unknown: Callable[[PartitionId], int],
        appended: Callable[[Partition, int, int], None],
        acknowledge: Callable[[Partition, WaitingAppend], None],
        failed: Callable[[Partition, str], None],
        too_far: Callable[[Partition, str, int, int], bool],
        full: Callable[[Partition, LogFull, int], None],
    ) -> None:
        self._outbox = outbox
        self._partitions = partitions
        self._config = config
        self._unknown = unknown
        self._appended = appended
        self._acknowledge = acknowledge
        self._failed = failed
        self._too_far = too_far
        self._full = full
        self.stages = Stages(staging, config)
        self._under_way: dict[PartitionId, _Publication] = {}
        self._expire_ms = 0
        self._left = 0  # bytes that this turn may yet publish
        self.due_ms: int | None = None
        """When the next slice is; None if nothing is being published."""

    # ------------------------------------------------------------------------------------------------------- requests

    def on_stage(self, sender: Address, message: Stage, now_ms: int) -> None:
        """Put a piece aside, as the leader."""
        entry = message.entry
        answer = Published(entry.request, entry.partition)
        partition, answer.error = self._led(entry.partition)
        if partition is not None:
            self._stage(partition, message, answer, now_ms)
        self._outbox.messages.append((sender, answer))

    def _stage(self, partition: Partition, message: Stage, answer: Published, now_ms: int) -> None:
        entry = message.entry
        try:
            check_writer(message.writer, message.version)
            check_attempt(message.attempt)
            if not 0 <= message.number < PIECES_MAX:
                raise BadBatch(f"piece {message.number} of attempt {message.attempt!r:.40}", Code.INVALID_RECORD)
            batch = RecordBatch(entry.body)
            length_max = partition.config.max_batch_bytes - MARK_BYTES_MAX
            batch.check_body(length_max=length_max, records_max=self._config.batch_records_max)
            if batch.extension_bytes or batch.producer_id >= 0:
                raise BadBatch("a staged piece has no producer, and no mark of its own", Code.INVALID_RECORD)
        except BadBatch as problem:
            answer.error = problem.code
            return
        except UsageError:
            answer.error = Code.INVALID_REQUEST
            return
        known = partition.published(writer_id(message.writer), message.version)
        if known is not None and known.end_offset <= partition.high_watermark:  # else it may yet be lost, and be wanted again
            answer.base_offset, answer.end_offset = known.base_offset, known.end_offset
            return
        work = (entry.partition, message.writer)
        answer.error = self.stages.put(
            work, message.version, message.attempt, message.number, entry.body, batch.count, now_ms, message.principal
        )
        if answer.error == Code.QUOTA_EXCEEDED:
            answer.base_offset, answer.end_offset = self.stages.asked(entry.body), self._config.stage_bytes_max

    def on_publish(self, sender: Address, message: Publish, now_ms: int) -> None:
        """Begin a group, or wait for it."""
        partition, error = self._led(message.partition)
        if partition is not None:
            error = self._publish(partition, sender, message, now_ms)
        if error:
            self._outbox.messages.append((sender, Published(message.request, message.partition, error)))

    def _publish(self, partition: Partition, sender: Address, message: Publish, now_ms: int) -> int:
        try:
            framing(WriterMark(message.writer, message.version, made_ms=message.made_ms))
            check_attempts([(one.attempt, one.pieces) for one in message.attempts])
        except UsageError:
            return Code.INVALID_REQUEST
        work, version = (message.partition, message.writer), message.version
        self.stages.touch(work, version, now_ms)  # whatever comes of it now, they are wanted
        waits = WaitingAppend(sender, message.request, ACKS_ALL, -1, -1, now_ms + message.timeout_ms, is_publication=True)
        assert partition.leading is not None
        if not partition.leading.has_enough_replicas:
            return Code.NOT_ENOUGH_REPLICAS
        known = partition.published(writer_id(message.writer), version)
        if known is not None:
            waits.base_offset, waits.end_offset = known.base_offset, known.end_offset
            self.stages.done(work, version)
            self._acknowledge(partition, waits)
            return Code.NONE
        under_way = self._under_way.get(message.partition)
        if under_way is not None and under_way.leader_epoch == partition.leader_epoch:
            if (under_way.work, under_way.version) != (work, version):
                return Code.QUOTA_EXCEEDED  # one at a time
            if len(under_way.waiting) >= _WAITING_MAX:
                return Code.REQUEST_TIMED_OUT
            under_way.waiting.append(waits)
            return Code.NONE
        if under_way is not None:
            self._refuse(message.partition, under_way, Code.NOT_LEADER_OR_FOLLOWER)  # of an earlier leadership
            del self._under_way[message.partition]
        if self._too_far(partition, message.writer, message.made_ms, now_ms):
            return Code.INVALID_TIMESTAMP
        pieces = self.stages.find(work, version, message.attempts)
        if not pieces:
            return Code.UNKNOWN_STAGE
        self._under_way[message.partition] = _Publication(partition.leader_epoch, work, version, message.made_ms, pieces, [waits])
        self.due_ms = now_ms
        return Code.NONE

    def _led(self, identity: PartitionId) -> tuple[Partition | None, int]:
        partition = self._partitions.get(identity)
        if partition is None:
            return None, self._unknown(identity)
        if partition.leading is None:
            return None, Code.STORAGE_ERROR if partition.failed else Code.NOT_LEADER_OR_FOLLOWER
        return partition, Code.NONE

    # ----------------------------------------------------------------------------------------------------------- turns

    def run(self, now_ms: int) -> None:
        """A slice of each group that is under way, in turn, but of all together no more than one: what others ask is heard in between."""
        self._left = self._config.publish_slice_bytes
        for identity, publication in list(self._under_way.items()):
            if self._left <= 0:
                break  # it is due at once
            partition = self._partitions.get(identity)
            if partition is None or partition.leading is None or partition.leader_epoch != publication.leader_epoch:
                del self._under_way[identity]
                self._refuse(identity, publication, Code.NOT_LEADER_OR_FOLLOWER)
            elif now_ms >= publication.not_before_ms:
                self._go_on(partition, publication, now_ms)
                if identity in self._under_way:  # next time the others come first
                    self._under_way[identity] = self._under_way.pop(identity)
        self.due_ms = min((one.not_before_ms for one in self._under_way.values()), default=None)

    def expire(self, now_ms: int) -> None:
        """Now and then, drop what is of no use any more."""
        if now_ms >= self._expire_ms:
            self._expire_ms = now_ms + max(1, self._config.stage_expiry_ms // 10)
            wanted = {publication.work for publication in self._under_way.values()}
            self.stages.expire(now_ms, lambda identity: self._led(identity)[0] is not None, wanted)
        for identity, publication in self._under_way.items():
            late = [one for one in publication.waiting if one.deadline_ms <= now_ms]
            if late:
                publication.waiting = [one for one in publication.waiting if one.deadline_ms > now_ms]
            self._outbox.messages += [(one.client, Published(one.request, identity, Code.REQUEST_TIMED_OUT)) for one in late]

    def look_again(self, identity: PartitionId, now_ms: int) -> None:
        """What a publication waits for may have changed: a follower has come further, or others count now."""
        publication = self._under_way.get(identity)
        if publication is not None and publication.is_held:
            publication.not_before_ms = self.due_ms = now_ms

    def _go_on(self, partition: Partition, publication: _Publication, now_ms: int) -> None:
        assert partition.leading is not None
        publication.is_held = not partition.leading.followers_keep_up(now_ms)
        if publication.is_held:
            publication.not_before_ms = now_ms + _LOOK_AGAIN_MS
            return
        log, before = partition.log, partition.high_watermark
        end = log.end_offset
        if publication.group_offset == 0:  # nothing of it is there: others may have come before it, also the writer itself
            known = partition.published(writer_id(publication.work[1]), publication.version)
            if known is not None:
                return self._finish(partition, publication, known.base_offset, known.end_offset)
            publication.base_offset = end
        try:
            batches = list(self._slice(publication))
            self._left -= max(_SLICE_COST_MIN, sum(batch.length for batch in batches))
            partition.publish(batches, now_ms)
        except LogFull as problem:
            publication.not_before_ms = now_ms + _FULL_RETRY_MS
            self._full(partition, problem, now_ms)
        except (LogDamaged, LogCorrupt, BadBatch) as problem:
            return self._give_up(partition, publication, problem)
        publication.group_offset += log.end_offset - end
        while publication.next < len(publication.pieces) and publication.ends[publication.next] <= publication.group_offset:
            publication.next += 1
        self._appended(partition, before, now_ms)
        if publication.next == len(publication.pieces):
            self._finish(partition, publication, publication.base_offset, log.end_offset)

    def _finish(self, partition: Partition, publication: _Publication, base: int, end: int) -> None:
        """This version, or a later one, is in the log: whoever waits is answered once it counts."""
        del self._under_way[partition.identity]
        self.stages.done(publication.work, publication.version)
        for waits in publication.waiting:
            waits.base_offset, waits.end_offset = base, end
            self._acknowledge(partition, waits)

    def _give_up(self, partition: Partition, publication: _Publication, problem: Exception) -> None:
        """What was put aside, or the log, cannot be read or written. What is there of the group, only another leader can take back.

        A write that failed and was not taken back may have stored the group, whole even: nobody may be told that nothing was published.
        """
        del self._under_way[partition.identity]
        self.stages.done(publication.work, publication.version)  # else the same pieces would be taken for those that are here
        is_open = partition.leading is not None and partition.leading.group_open  # also by a log that stored part of the first slice
        failed = is_open or isinstance(problem, LogDamaged)
        self._refuse(partition.identity, publication, Code.STORAGE_ERROR if failed else Code.UNKNOWN_STAGE)
        if failed:
            self._failed(partition, str(problem))

    def _slice(self, publication: _Publication) -> Iterator[RecordBatch]:
        """The next batches: at least one."""
        size, group_offset, key = 0, publication.group_offset, publication.work[1]
        for at in range(publication.next, len(publication.pieces)):
            piece = publication.pieces[at]
            size += piece.size
            if size > self._config.publish_slice_bytes and at > publication.next:
                return
            mark = WriterMark(key, publication.version, group_offset, made_ms=publication.made_ms)
            yield RecordBatch(marked(self.stages.read(piece), mark, is_last=at == len(publication.pieces) - 1))
            group_offset += piece.records

    def _refuse(self, identity: PartitionId, publication: _Publication, error: int) -> None:
        for waits in publication.waiting:
            self._outbox.messages.append((waits.client, Published(waits.request, identity, error)))
