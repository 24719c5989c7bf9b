"""One producer's order in one partition: a queue, at most five batches under way, and nothing ever overtakes.

A leader that has not stored a batch of this producer's yet is sent the oldest one alone (`window.py`).

A batch leaves the queue when it is settled: stored, refused for good, or given up. Until then it keeps its place. On any
doubt (not the leader, connection lost, no answer, out of order) everything under way goes back and is sent again from
the head with the same sequences; the broker answers a repetition with the first copy's offset (KIP-98, P-100, P-101).

When a batch that was sent leaves the queue without being stored for certain, its sequence is a gap. The queue then
*drains*: batches already sent settle under the old epoch, unsent ones wait; afterwards the producer epoch is raised and
sequences start at 0 (KIP-360). A batch that was sent is never sent under another epoch unless it is certain that no
broker has it. Epochs are counted per partition, as the broker keeps them.

Under acks=0 nobody answers, so nothing is sent again and no order is restored: what arrives at a leader is in the order of sending
as far as the network keeps it, and what does not arrive is missing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from replog.client.batches import Batch
from replog.client.columns import full_at
from replog.client.refusals import GO_BACK, NOT_STORED, SAME_LEADER, batch_refused, batch_too_large
from replog.client.unreached import whom_not_reached
from replog.client.window import Window
from replog.errors import Code, ReplogError, TimedOut, Unavailable, error_name, rejection
from replog.messages import ProducedEntry
from replog.model import ACKS_ALL, PartitionId
from replog.records import FRONT_BYTES

if TYPE_CHECKING:
    from replog.client.view import Place
    from replog.client.writer import Writer

__all__ = ["PartitionQueue"]

SEQUENCES: Final = 2**31
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"


class PartitionQueue:
    """The batches of one producer for one partition, in order: what is under way first, then what waits, then the open one."""

    __slots__ = (
        "batches",
        "core",
        "draining",
        "eager_max",
        "epoch",
        "failures",
        "floor",
        "full_at",
        "gap",
        "identity",
        "next_sequence",
        "open",
        "ordinal",
        "partition",
        "retry_at",
        "timer_ms",
        "topic",
        "window",
        "writer",
    )

    def __init__(self, writer: Writer, topic: str, partition: int) -> None:
        self.writer = writer
        self.core = writer.core
        self.topic = topic
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None
        self.identity: PartitionId | None = None
        self.epoch = writer.first_epoch
        self.next_sequence = 0
        self.ordinal = 0
        """How many batches were given a sequence."""
        self.window = Window()
        self.draining = ""
        self.gap = -1
        """While draining: the ordinal of the first batch that left without being stored for certain. It says nothing of those before it."""
        self.failures = 0
        self.retry_at = 0
        self.floor = -1
        """Number of the Metadata whose answer decides whether the partition exists; -1: it is not in doubt."""
        self.timer_ms: int | None = None
        self.full_at: int = full_at(writer.batch_bytes, self.core.view.batch_limit(topic))
        """The `size` up to which a producer fills the open batch; it says so anew when the view is another one."""
        self.eager_max = writer.eager_max(topic)
        """While fewer batches have no outcome, what a producer without `linger_ms` has gathered goes at once; likewise."""

    @property
    def is_new(self) -> bool:
        """Whether no log was written to under this name: then a topic that does not exist may be made for it."""
        return self.identity is None

    @property
    def has_batches(self) -> bool:
        """Whether anything in it has no outcome yet."""
        return bool(self.batches) or self.open is not None

    def is_eager(self, batch: Batch) -> bool:
        """Whether what is open goes at once, and waits for no company: while there is room, from half full on in any case. Company would
        spare little of what that costs, and gathering all of it before anything is under way would leave brokers and disks idle."""
        return len(self.batches) < (self.eager_max if 2 * batch.size < self.full_at else self.writer.max_in_flight)

    # ------------------------------------------------------------------------------------------------- filling

    def begin(self, now_ms: int, wall_ms: int, timeout_ms: int) -> Batch:
        """A new open batch; the one before is sealed."""
        self.seal()
        self.open = Batch(self, now_ms, wall_ms, self.writer.linger_ms, timeout_ms)
        return self.open

    def seal(self) -> None:
        """Put the open batch, if any, at the end of the queue. For a moment it is in both places: `crash` finds it at any time."""
        batch = self.open
        if batch is not None and batch.values:
            batch.seal()
            self.batches.append(batch)
        self.open = None

    # ------------------------------------------------------------------------------------------------- sending

    def sendable(self, now_ms: int) -> list[Batch]:
        """The batches to send now, in order. Seals the open one when it is due and there is room for it."""
        if now_ms < self.retry_at:
            return []
        place = self.core.view.place(self.topic, self.partition)
        if self.writer.idempotent and place is not None and not self._is_open(place, now_ms):
            return self._sendable_alone(place, now_ms)
        # Answers come in any order, but a broker remembers only the last batches of a writer (KIP-98): the window begins at the
        # oldest unsettled one, or its repetition could no longer be told from a gap.
        oldest = self.ordinal
        for batch in self.batches:
            if batch.sequence >= 0:
                oldest = batch.ordinal
                break
        room = self.writer.max_in_flight - (self.ordinal - oldest)
        found: list[Batch] = []
        for batch in self.batches:
            if batch.sequence >= 0 or batch.flying is not None:
                if batch.flying is None:
                    found.append(batch)
                room -= not self.writer.idempotent
            elif self.draining:
                continue
            elif room > 0:
                found.append(batch)
                room -= 1
            else:
                return found
        if room > 0 and not self.draining:
            found += self._seal_due(now_ms)
        return found

    def _seal_due(self, now_ms: int) -> list[Batch]:
        """The open batch, sealed, if it lingers no longer. One that has just been begun waits for its first record."""
        batch = self.open
        if batch is None or not batch.values or batch.linger_at > now_ms:
            return []
        self.seal()
        return [batch]

    def _is_open(self, place: Place, now_ms: int) -> bool:
        idle = not self.batches or self.batches[0].sequence < 0
        return self.window.is_open(place, self.core.breaks.get(place.leader, 0), now_ms, idle=idle)

    def _sendable_alone(self, place: Place, now_ms: int) -> list[Batch]:
        """The oldest batch, unless it is under way there. Under way elsewhere: what must not overtake it, for `moves_to` to see."""
        flying = self.batches[0].flying if self.batches else None
        if flying is not None and flying.leader == place.leader:
            return []
        waiting = next((batch for batch in self.batches if batch.flying is None), None)
        return [waiting] if waiting is not None else self._seal_due(now_ms)

    def prepare(self, batch: Batch, identity: PartitionId) -> bool:
        """Give a batch its numbers and make its body. False: it could not be encoded, and has failed."""
        writer = self.writer
        self.identity = identity
        fresh = batch.sequence < 0
        epoch, sequence = (self.epoch, self.next_sequence) if fresh else (batch.epoch, batch.sequence)
        try:
            if writer.idempotent:
                batch.encode(compression=writer.compression, producer_id=writer.producer_id, epoch=epoch, sequence=sequence)
            else:
                batch.encode(compression=writer.compression, producer_id=-1, epoch=-1, sequence=-1)
        except (ReplogError, ValueError) as error:
            batch.epoch = batch.sequence = -1
            self.settle(batch, error=error)
            return False
        limit = self.core.view.batch_limit(self.topic)
        length = FRONT_BYTES + len(batch.body or b"")
        if fresh and not batch.uncertain and length > limit:  # without sequences it is fresh each time, but may be stored
            batch.epoch = batch.sequence = -1
            self.settle(batch, error=batch_too_large(length, batch.count, limit, self.topic, self.partition))
            return False
        if fresh and writer.idempotent:
            batch.ordinal = self.ordinal
            self.ordinal += 1
            self.next_sequence = (sequence + batch.count) % SEQUENCES
        batch.led = batch is self.batches[0]
        return True

    def moves_to(self, place: Place) -> bool:
        """Something is about to be sent there: whether what was sent elsewhere has changed what that may be."""
        relocated = self._relocate(place.identity)
        return self._leave_others(place) or relocated

    def _relocate(self, identity: PartitionId) -> bool:
        """The topic was deleted and created again: another log. What was sent to the old one has an unknown outcome."""
        if self.identity is None or identity == self.identity:
            return False
        for batch in [b for b in self.batches if b.sent_ms >= 0]:
            self.settle(
                batch,
                error=rejection(
                    Code.UNKNOWN_TOPIC_ID,
                    "the topic was deleted while the append was under way",
                    topic=self.topic,
                    partition=self.partition,
                ),
            )
        self.identity = identity
        self.epoch += 1
        self.next_sequence = 0
        self.draining = ""
        return True

    # ------------------------------------------------------------------------------------------------- answers

    def on_produced(self, batch: Batch, entry: ProducedEntry, now_ms: int) -> None:
        """The broker's verdict on one batch under way."""
        code, place = entry.error, batch.flying
        batch.flying = None
        batch.last_code = code
        if code == Code.NONE:
            self.failures = 0
            if place is not None:
                self.window.stored(place, self.core.breaks.get(place.leader, 0), now_ms)
            if self.draining and batch.ordinal > self.gap:
                self.draining = UNKNOWN  # stored in spite of the gap: what is behind it may be, too
            self.settle(batch, base_offset=entry.base_offset)
        elif code == Code.OUT_OF_ORDER_SEQUENCE and self.writer.idempotent:
            self._on_out_of_order(batch, now_ms)
        elif code in (Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.REQUEST_TIMED_OUT) and not self.writer.idempotent:
            # The leader has it: another copy would be stored beside it.
            self.settle(batch, error=self._rejection(code))
        elif code in GO_BACK:
            if code not in NOT_STORED:
                batch.doubt()
            self.go_back(now_ms, refresh=code not in SAME_LEADER)
        elif batch.uncertain:
            self._unknown(batch, f"{error_name(code)} was the answer to a repetition")
        else:
            self._gap(batch, REFUSED)
            self.settle(batch, error=batch_refused(code, batch.count, self.topic, self.partition))

    def refuse(self, batch: Batch, error: ReplogError) -> None:
        """It was not even sent, and never can be."""
        self._gap(batch, REFUSED)
        self.settle(batch, error=error)

    def _on_out_of_order(self, batch: Batch, now_ms: int) -> None:
        """The broker misses something before this batch, and has therefore not stored it.

        Usually its predecessor is still on the way or lost: all go back. While draining after a refusal it is what was expected:
        the batch may start again in the next epoch. After an unknown outcome it may not: a late copy of the
        predecessor could still let a late copy of this one in.

        When everything before it was acknowledged, the broker lacks records that another one had (acks=1 and a failover, or an unclean
        election). What certainly nobody stored gets new numbers. A batch that an earlier leader may have does not: when that one
        leads again, with its log, a second copy under other numbers would be stored beside the first. Under acks=1 an old leader may
        come back like that at any time, and waiting decides nothing: the outcome is unknown. Under acks=all it may not: who is
        elected cleanly has everything acknowledged, and an old leader has cut what the new one did not have before it is
        in sync. So whoever lacks acknowledged records was deposed and does not know it yet, or was elected uncleanly. In the first
        case the true leader is found soon and has the batch, or takes it; in the second another unclean election may
        bring the copy back. Either way the batch goes on under its old numbers, until its time is up.
        """
        first = next((b for b in self.batches if b.sequence >= 0), None)
        waits = self.writer.acks == ACKS_ALL
        is_behind = self.draining and batch.ordinal > self.gap
        if is_behind and self.draining == REFUSED and (waits or not batch.at_large):
            self._unsend(batch)
        elif is_behind and batch is first:
            self._unknown(batch, "an earlier one was given up or refused")
        elif batch.led and not batch.uncertain:
            self._gap(batch, REFUSED)
            self._unsend(batch)
        elif batch.led and not waits:
            self._unknown(batch, "its leader lacks records before it that an earlier one may have")
        else:
            self.go_back(now_ms, refresh=batch.led)

    def _unknown(self, batch: Batch, why: str) -> None:
        """Nobody can say whether it is stored, nor will: it is told so, and not sent again."""
        self._gap(batch, UNKNOWN)
        text = f"an append to {self.topic}-{self.partition}: {why}; whether it was stored is unknown"
        self.settle(batch, error=Unavailable(text))

    def _unsend(self, batch: Batch) -> None:
        """No broker has it, nor what was sent behind it: they may get new numbers."""
        for other in self.batches:
            if other is batch or (other.ordinal > batch.ordinal and other.sequence >= 0):
                self._ground(other)
                other.sequence = other.epoch = -1
                other.sent_ms = -1
                other.uncertain = other.at_large = other.led = False
        self._restart_when_drained()

    def _ground(self, batch: Batch) -> bool:
        """An answer to it counts no more. Whether it was under way."""
        if batch.flying is None:
            return False
        self.core.drop_request(batch.request)
        batch.flying = None
        return True

    def _gap(self, batch: Batch, why: str) -> None:
        if self.writer.idempotent:
            self.gap = min(self.gap, batch.ordinal) if self.draining else batch.ordinal
            self.draining = UNKNOWN if self.draining == UNKNOWN else why

    def _restart_when_drained(self) -> None:
        if self.draining and all(b.sequence < 0 for b in self.batches):
            self.draining = ""
            self.epoch += 1
            self.next_sequence = 0

    def go_back(self, now_ms: int, *, refresh: bool) -> None:
        """Everything under way is to be sent again, from the head, after a pause."""
        self.take_back()
        self.failures += 1
        self.retry_at = now_ms + self.core.backoff_ms(self.failures)
        if refresh:
            self.core.refresh_for(self, now_ms)

    def take_back(self) -> None:
        """Everything under way is to be sent again, from the head. Answers count no more: a deposed leader may say what is no longer so."""
        self.window.close()
        for batch in self.batches:
            if self._ground(batch):
                batch.doubt()

    def _leave_others(self, place: Place) -> bool:
        """What is about to be sent to `place` must not overtake what another leader has: that is taken back. Whether there was any.

        A broker that has not heard of the producer, and may have forgotten it, takes any batch for the first, and then none before it.
        """
        flying = self.batches[0].flying if self.batches else None
        if flying is None or flying.leader == place.leader:
            return False
        self.take_back()
        return True

    def lost(self, now_ms: int) -> None:
        """The broker is gone, or did not answer in time: whatever is under way may or may not be stored."""
        self.go_back(now_ms, refresh=True)

    def rest(self) -> None:
        """Everything in it has its outcome. If it will be filled no more, nothing wakes it: a timer would keep its whole producer."""
        if self.writer.is_retired:
            self.core._timers.disarm(self)

    def settle(self, batch: Batch, *, base_offset: int | None = None, error: BaseException | None = None) -> None:
        """The outcome of a batch; it leaves the queue, last of all: what an interruption leaves half done `crash` finds there."""
        if batch.done:
            return
        self._ground(batch)
        if batch is self.open:
            batch.seal()
        batch.base_offset = base_offset
        self._ended(batch, error)
        self.writer.buffered -= batch.size
        if self.batches and self.batches[0] is batch:
            self.batches.popleft()
        elif batch is self.open:
            self.open = None
        else:
            self.batches.remove(batch)
        if self.draining:
            self._restart_when_drained()

    def _ended(self, batch: Batch, error: BaseException | None) -> None:
        """The outcome is known: what of it is for others is told. Doing it again does what was left out."""
        batch.error = error
        batch.done = True
        batch.drop_records()
        if error is not None:
            self.writer.failed[batch] = None
        if batch.callbacks:
            self.core.finished.append(batch)

    # ------------------------------------------------------------------------------------------------- time

    def expire(self, now_ms: int) -> None:
        """Give up what is past its delivery timeout, and treat unanswered batches as lost."""
        patience = self.core.produce_patience_ms
        if any(b.flying is not None and now_ms - b.sent_ms >= patience for b in self.batches):
            self.lost(now_ms)
        late = [b for b in self.batches if b.deadline_ms <= now_ms]
        if self.open is not None and self.open.deadline_ms <= now_ms:
            late.append(self.open)
        for batch in late:
            self._give_up(batch, now_ms)

    def _give_up(self, batch: Batch, now_ms: int) -> None:
        waited = f"waited {(now_ms - batch.opened_ms) / 1000:g} s for {self.waiting_for(batch)}"
        last = f"; the last answer was {error_name(batch.last_code)}" if batch.last_code else whom_not_reached(self.core.unreached)
        sent = batch.sent_ms >= 0
        unknown = sent and (batch.uncertain or batch.flying is not None)
        if sent:
            # A copy in the network could still arrive: nothing behind it may assume that it never will.
            self._gap(batch, UNKNOWN)
        error: ReplogError
        if unknown or batch.last_code not in SAME_LEADER:
            error = TimedOut(waited + last + ("; whether it was stored is unknown" if sent else "; it was never sent"))
        else:
            error = rejection(batch.last_code, f"{error_name(batch.last_code)}, {waited}", topic=self.topic, partition=self.partition)
        self.settle(batch, error=error)

    def waiting_for(self, batch: Batch) -> str:
        """What a batch waits for, for people."""
        place = self.core.view.place(self.topic, self.partition)
        if place is None:
            return f"news of {self.topic}-{self.partition}"
        if place.leader is None:
            return f"{self.topic}-{self.partition} to have a leader"
        if batch.sent_ms < 0:
            return f"earlier appends to {self.topic}-{self.partition}, led by broker {place.leader}"
        return f"an answer of broker {place.leader}, leader of {self.topic}-{self.partition}, to an append"

    def next_deadline(self, now_ms: int) -> int | None:
        """When `expire` or `sendable` will have something to do that they have not now."""
        if not self.batches and self.open is None:
            return None
        patience = self.core.produce_patience_ms
        times: list[int] = []
        for batch in self.batches:
            times.append(batch.deadline_ms)
            if batch.flying is not None:
                times.append(batch.sent_ms + patience)
        if self.open is not None:
            times.append(self.open.deadline_ms)
            if self.open.linger_at > now_ms:
                times.append(self.open.linger_at)
        if self.retry_at > now_ms:
            times.append(self.retry_at)
        return min(times)

    def refuse_all(self, error: ReplogError) -> None:
        """The partition does not exist, or who asks may not see it: nothing in the queue is sent again. What was sent may be stored."""
        for batch in [*self.batches, *([self.open] if self.open is not None else [])]:
            if batch.uncertain or batch.flying is not None:
                self._unknown(batch, f"{type(error).__name__}: {error}")
            else:
                self.settle(batch, error=error)
        self.writer.forget(self)

    def crash(self, error: BaseException) -> None:
        """Give everything up at once, whatever state an interruption left, and start afresh under the next epoch."""
        batches = [*self.batches, *([self.open] if self.open is not None else [])]
        self.batches, self.open = deque(), None
        self.epoch += 1
        self.next_sequence = self.failures = self.retry_at = 0
        self.draining, self.timer_ms, self.floor = "", None, -1
        for batch in batches:
            if not batch.done:
                if not batch.count:
                    batch.seal()  # a batch with a body has been counted, and no longer has its values
                batch.base_offset = batch.flying = None
            self._ended(batch, batch.error if batch.done else error)

    def _rejection(self, code: int) -> ReplogError:
        return rejection(code, topic=self.topic, partition=self.partition)
