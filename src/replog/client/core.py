"""The client core: a pure actor that knows the cluster, sends requests to whoever must answer them, and repeats them.

It is told messages and the time, and fills its outbox. Everything a client waits for is an `Operation` or a
`Batch` in a `PartitionQueue`; both are *waiters*: they have deadlines, are woken by timers, and by news of the cluster.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Literal
from weakref import WeakValueDictionary

from replog.client.absent import Absent, TopicOp, forget_gone
from replog.client.batches import Batch
from replog.client.groups import Produces, numbers_of
from replog.client.operations import RETRIED, SAME_PLACE, Operation, PartitionOp
from replog.client.queues import PartitionQueue
from replog.client.timers import Timers
from replog.client.unanswered import Unanswered
from replog.client.view import NEWS, STALE, Place, View
from replog.client.writer import Writer
from replog.config import ClientConfig
from replog.errors import Code, ReplogError, Unavailable, rejection
from replog.messages import (
    AdminAnswer,
    ClusterView,
    Disconnected,
    Epochs,
    Fetched,
    ListedOffsets,
    Metadata,
    Produced,
    ProducedEntry,
    Published,
    Unreached,
    Unsent,
)
from replog.model import Address
from replog.ports import Ids, Outbox

__all__ = ["ClientCore"]

Waiter = Operation | PartitionQueue


class ClientCore:
    """Routing, retries and order for one client. Pure: no clock, no threads, no sockets; the driver moves its outbox.

    `bootstrap` are addresses to ask first; later any broker of the view is asked. An exception that leaves `receive` or
    `tick` may have left the core half-changed: the driver must call `crash` before it goes on.
    """

    def __init__(self, address: Address, *, config: ClientConfig, ids: Ids, bootstrap: Sequence[Address]) -> None:
        self.address = address
        self.config = config
        self.ids = ids
        self.bootstrap = list(bootstrap)
        self.outbox = Outbox()
        self.view = View()
        self.finished: deque[Batch] = deque()  # settled batches whose callbacks must run, outside every lock
        self.absent = Absent()
        self.unreached: dict[Address, str] = {}  # whom the driver did not reach when it last tried, and why: it says so here, for people
        self._writers: WeakValueDictionary[int, Writer] = WeakValueDictionary()
        self._numbers = self._metadata_failures = 0
        self._requests: dict[int, Operation | Batch] = {}  # what is under way, in the order of sending
        self._watch = Unanswered(config)
        self.moved = 0  # how many requests went to a new leader because the old one did not answer
        self._ops: dict[Operation, None] = {}
        self._ready: dict[PartitionQueue, None] = {}
        self._stalled: dict[Waiter, None] = {}  # waiters that only news of the cluster can help
        self._timers: Timers[Waiter] = Timers()
        self._down: dict[Address, int] = {}  # who was not reached or does not answer, and until when (ms) others are asked first
        self.breaks: Counter[Address] = Counter()  # how often the connection to each was lost
        self.given: Counter[Address] = Counter()  # bytes of batches that were ever sent to each
        self.answered_metadata = -1  # highest number of a Metadata that was answered
        self.metadata_address: Address = None  # who was asked for metadata and has not answered; None: nobody
        self._metadata_request = self._metadata_wanted = -1
        self._metadata_needed = False  # whether somebody waits for that answer: else it may be here, and nobody has read it
        self._metadata_at = 0  # when to ask, or to give up on `metadata_address`
        self._metadata_old_at = -1  # when to ask although nobody needs it (`age`): once, whatever comes of it; negative: never
        self.is_unheard = False  # whether batches were sent that nobody answers (acks=0)
        self._next_broker = ids.number()

    # --------------------------------------------------------------------------------------------- for the blocking side

    def submit(self, op: Operation, now_ms: int) -> Operation:
        """Start an operation. It is `done` at the latest when `tick` sees its deadline."""
        op.started_ms = now_ms
        self._ops[op] = None
        self._advance(op, now_ms)
        self.dispatch(now_ms)
        return op

    def forget(self, op: Operation) -> None:
        """Nobody waits for this operation any more."""
        self._ops.pop(op, None)
        self._stalled.pop(op, None)
        self.drop_request(op.request)
        self._timers.disarm(op)

    def open_writer(
        self, *, acks: int, idempotent: bool, compression: Literal["lz4"] | None, batch_bytes: int, linger_ms: int = 0
    ) -> Writer:
        """A new producer: its own id, its own order."""
        writer = Writer(self, acks=acks, idempotent=idempotent, compression=compression, batch_bytes=batch_bytes, linger_ms=linger_ms)
        self._numbers += 1
        self._writers[self._numbers] = writer
        return writer

    def kick(self, queue: PartitionQueue, now_ms: int) -> None:
        """A queue has something to send."""
        self._ready[queue] = None
        self.dispatch(now_ms)

    def watch_queue(self, queue: PartitionQueue, now_ms: int) -> None:
        """A queue has a new batch that may wait: its linger time and deadline are to be kept."""
        self._timers.arm(queue, queue.next_deadline(now_ms))

    def expire(self, op: Operation, now_ms: int) -> None:
        """Out of time: the operation fails with TimedOut, unless it is done."""
        if not op.done:
            op.expire(self, now_ms)
        self.forget(op)

    def crash(self, error: BaseException) -> None:
        """The core may be half-changed: whatever was under way has an unknown outcome. What it knows of the cluster is dropped too."""
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        unknown = f"the client was interrupted ({why}); whether this was carried out is unknown"
        for op in self._ops:
            op.fail(Unavailable(unknown))
        self._ops, self._requests, self._ready, self._stalled, self._timers, self._down = {}, {}, {}, {}, Timers(), {}
        for _, writer in sorted(self._writers.items()):
            writer.crash(Unavailable(unknown))
        self.outbox = Outbox()
        self.view, serial = View(), self.view.serial
        self.view.serial = serial + 1  # whoever remembers a route looks again
        self.metadata_address, self._metadata_at, self._metadata_failures, self.unreached = None, 0, 0, {}

    def after_fork(self) -> None:
        """In a forked child: the parent goes on under the producer ids and with the batches of before."""
        self.crash(Unavailable("forked"))
        self.finished.clear()  # callbacks on what the parent has sent are the parent's to call
        for _, writer in sorted(self._writers.items()):
            writer.renew(self.ids)

    @property
    def has_batches(self) -> bool:
        """Whether a producer has batches without an outcome, open ones included."""
        return any(queue.batches or queue.open is not None for writer in self._writers.values() for queue in writer.queues.values())

    # ------------------------------------------------------------------------------------------------------- the actor

    def receive(self, sender: Address, message: Any, now_ms: int) -> None:
        """A message from a broker, or a hint from the driver."""
        if self._down and not isinstance(message, Disconnected):
            self._down.pop(sender, None)
            self.unreached.pop(sender, None)
        if isinstance(message, Produced):
            for entry in message.entries:
                self._on_produced(entry, now_ms)
        elif isinstance(message, ClusterView):
            self._on_cluster_view(sender, message, now_ms)
        elif isinstance(message, Disconnected):
            self._on_disconnected(message.address, now_ms, message.only_reads)
        elif isinstance(message, Fetched | ListedOffsets | Epochs | AdminAnswer | Published):
            self._on_answer(message, now_ms)
        elif isinstance(message, Unreached):
            for op in map(self._requests.get, numbers_of(message.message)):
                if isinstance(op, Operation):
                    op.is_unreached = True
        elif isinstance(message, Unsent):
            self.unsent(message.message, rejection(Code.MESSAGE_TOO_LARGE, message.reason))
        self.dispatch(now_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Run what is due: repeat requests, give up on answers, send lingering batches."""
        while (waiter := self._timers.due(now_ms)) is not None:
            if isinstance(waiter, PartitionQueue):
                waiter.expire(now_ms)
                self._ready[waiter] = None
            elif waiter in self._ops:
                self._due(waiter, now_ms)
        if self._requests and self._watch.look_at <= now_ms:
            self._look_for_unanswered(now_ms)
        if 0 <= self._ask_at() <= now_ms:
            self._ask_metadata(now_ms)
        self.dispatch(now_ms)

    def deadline_ms(self) -> int | None:
        """When `tick` is needed next."""
        first = self._timers.deadline_ms()
        if self._requests and (first is None or first > self._watch.look_at):
            first = self._watch.look_at
        if (ask_at := self._ask_at()) >= 0 and (first is None or first > ask_at):
            first = ask_at
        return first

    # ------------------------------------------------------------------------------------------------------ operations

    def _advance(self, op: Operation, now_ms: int) -> None:
        """Send the operation's request if it is not under way and can be sent."""
        if op.done or op.address is not None or op not in self._ops:
            return self._settle(op)
        if now_ms >= op.deadline_ms:
            op.expire(self, now_ms)
            return self._settle(op)
        if now_ms >= op.retry_at:
            self._stalled.pop(op, None)
            address = op.target(self, now_ms)
            if op.done:
                return self._settle(op)
            if address is None:
                self._stalled[op] = None
            else:
                op.request = self._number(op)
                op.address, op.sent_ms, op.is_unreached = address, now_ms, False
                op.patience_at = now_ms + self.config.request_timeout_ms + op.wait_ms()
                self.outbox.messages.append((address, op.message(self)))
        next_ms = op.patience_at if op.address is not None else op.retry_at
        self._timers.arm(op, min(op.deadline_ms, next_ms) if next_ms > now_ms else op.deadline_ms)

    def _due(self, op: Operation, now_ms: int) -> None:
        if now_ms >= op.deadline_ms:
            op.expire(self, now_ms)
            self._settle(op)
        elif op.address is not None and now_ms >= op.patience_at:
            self._unanswered(op, now_ms)
        elif op.address is not None:  # sent again before its pause was over: the timer was that of the pause
            self._timers.arm(op, min(op.deadline_ms, op.patience_at))
        else:
            self._advance(op, now_ms)

    def _unanswered(self, op: Operation, now_ms: int) -> None:
        self.drop_request(op.request)
        op.uncertain |= not op.is_unreached
        self._again(op, now_ms, refresh=True)

    def _again(self, op: Operation, now_ms: int, *, refresh: bool) -> None:
        op.address = None
        op.failures += 1
        op.retry_at = now_ms + self.backoff_ms(op.failures)
        if refresh:
            self.refresh_for(op, now_ms)
        self._timers.arm(op, min(op.deadline_ms, op.retry_at))

    def _settle(self, op: Operation) -> None:
        if op.done:
            self.forget(op)

    def _on_answer(self, answer: Any, now_ms: int) -> None:
        op = self._requests.get(answer.request)
        if not isinstance(op, Operation):
            return
        self.drop_request(answer.request)
        op.address = None
        code = op.answered(self, answer, now_ms)
        if code == Code.NONE:
            return self._advance(op, now_ms)
        op.heard(code)
        if code in RETRIED or code == Code.CORRUPT_MESSAGE:
            self._again(op, now_ms, refresh=code not in SAME_PLACE)
        else:
            op.refuse(op.refused(code))
            self._settle(op)

    # ------------------------------------------------------------------------------------------------------- appending

    def dispatch(self, now_ms: int) -> None:
        """Send what is ready, with an entry per batch: as few messages as `Produces` makes of it."""
        while self._ready:
            ready, self._ready = self._ready, {}
            produces = Produces(self.config.request_timeout_ms)
            for queue in ready:
                if not queue.batches and queue.open is None:
                    queue.rest()
                    continue
                batches = queue.sendable(now_ms)
                place = self.locate(queue, queue.topic, queue.partition, now_ms) if batches else None
                if place is not None and place.leader is not None:
                    if queue.moves_to(place):
                        batches = queue.sendable(now_ms)
                    self._stalled.pop(queue, None)
                    for batch in batches:
                        if not batch.done and queue.prepare(batch, place.identity):
                            produces.add(batch, place, self._number(batch), now_ms)
                        else:  # it cannot be sent, and leaves its room to another one
                            self._ready[queue] = None
                elif batches:
                    self._stalled[queue] = None
                self._timers.arm(queue, queue.next_deadline(now_ms))
            self.outbox.messages += produces

    def _on_produced(self, entry: ProducedEntry, now_ms: int) -> None:
        batch = self._requests.get(entry.request)
        if not isinstance(batch, Batch):
            if batch is None and entry.error:  # under acks=0 that says: the wrong broker
                self.age(now_ms)
            return self._on_answer(entry, now_ms)
        self.drop_request(entry.request)
        queue: PartitionQueue = batch.queue
        if entry.error and entry.leader >= 0 and queue.identity is not None:
            self.view.hint(queue.identity, entry.leader, entry.leader_epoch)
        queue.on_produced(batch, entry, now_ms)
        self._ready[queue] = None

    def unsent(self, message: Any, error: ReplogError) -> None:
        """No frame carries it, now or ever: it was not sent, and trying again would not help."""
        for request in numbers_of(message):
            item = self._requests.get(request)
            if isinstance(item, Batch):
                item.queue.refuse(item, error)
                self._ready[item.queue] = None
            elif item is not None:
                item.fail(error)
                self._settle(item)

    @property
    def produce_patience_ms(self) -> int:
        """How long an append may go unanswered: the broker's own limit, and time for the answer to travel."""
        return self.config.request_timeout_ms + self.config.retry_backoff_ms_max

    # -------------------------------------------------------------------------------------------------------- routing

    def locate(self, waiter: PartitionOp | PartitionQueue, topic: str, partition: int, now_ms: int) -> Place | None:
        """Where a partition lives. None: not known yet (metadata is asked for), or the waiter has just failed: it does not exist."""
        place = self.view.place(topic, partition)
        if place is not None:
            waiter.floor = -1
            if place.leader is None:
                self.pause(waiter, now_ms)
            return place
        if waiter.floor < 0:
            waiter.floor = self.refresh(now_ms, waiter if waiter.is_new else None)
        elif self.answered_metadata >= waiter.floor:
            error = self.absent.why(self.view, topic, partition, now_ms, waiter.floor)
            if error is None:
                waiter.floor = -1
                self.pause(waiter, now_ms)
            else:
                waiter.refuse_all(error)
        return None

    def pause(self, waiter: Waiter, now_ms: int) -> None:
        """Nobody to send to: ask, and look again after a pause or when the view changes."""
        if waiter.retry_at <= now_ms:
            waiter.failures += 1
            waiter.retry_at = now_ms + self.backoff_ms(waiter.failures)
            self.refresh(now_ms)

    def any_broker(self, now_ms: int, preferred: Address = -1) -> Address | None:
        """Somebody to ask: `preferred` if it was reached lately, else another one each time. None: no address is known at all."""
        known: list[Address] = [b.broker_id for _, b in sorted(self.view.brokers.items()) if not b.fenced]
        known += [address for address in self.bootstrap if address not in known]
        choices = [address for address in known if self._down.get(address, now_ms) <= now_ms] or known
        if not choices:
            return None
        if preferred in choices:
            return preferred
        self._next_broker += 1
        return choices[self._next_broker % len(choices)]

    def refresh(self, now_ms: int, seeker: TopicOp | PartitionOp | PartitionQueue | None = None) -> int:
        """Ask for metadata, and for a topic. Returns the lowest number of a Metadata whose answer is newer than this moment."""
        floor = self.absent.seek(seeker, self._numbers + 1)
        was_wanted, self._metadata_wanted = self._metadata_wanted >= 0, max(self._metadata_wanted, floor)
        may_be_answered = self.metadata_address is not None and self._metadata_at > now_ms  # a question that was asked before it was needed
        if not (was_wanted or self._metadata_failures or may_be_answered):
            self._ask_metadata(now_ms)
        self._metadata_needed = True
        return floor

    def refresh_for(self, waiter: Waiter, now_ms: int) -> None:
        """Ask for metadata because this waiter's request went to the wrong place: news ends its pause."""
        self._stalled[waiter] = None
        self.refresh(now_ms)

    def age(self, at_ms: int) -> None:
        """The view may be wrong, and under acks=0 no request tells: ask then at the latest, but once per `retry_backoff_ms_max` at most."""
        if self.is_unheard:
            self._metadata_old_at = min(self._metadata_old_at, max(at_ms, self._metadata_at))

    def _ask_at(self) -> int:
        """When to ask for metadata, if nothing happens before; negative: never."""
        return self._metadata_at if self._metadata_wanted >= 0 else self._metadata_old_at

    def _ask_metadata(self, now_ms: int) -> None:
        if self.metadata_address is not None and self._metadata_needed:
            self._metadata_failures += 1
            self._down[self.metadata_address] = now_ms + self.config.unanswered_ms
        self._metadata_needed = self._metadata_wanted >= 0
        sought = self.absent.sought(self._numbers + 1, self._ops)
        self.metadata_address = self.any_broker(now_ms, self.absent.asked if sought else -1)
        self._metadata_at = now_ms + self.config.retry_backoff_ms_max
        self._metadata_old_at = now_ms + self.config.metadata_max_age_ms
        if self.metadata_address is not None:
            number = self._metadata_request = self._numbers = self._numbers + 1
            self.outbox.messages.append((self.metadata_address, Metadata(number, self.view.controller_epoch, self.view.version, sought)))

    def _on_cluster_view(self, sender: Address, view: ClusterView, now_ms: int) -> None:
        merged = self.view.merge(view)
        if merged != STALE:
            self.absent.told(sender, view)
            forget_gone(self._writers.values(), self.view)
        if view.request >= 0:
            self._metadata_answered(view.request, merged, now_ms)
        if merged == NEWS and self._requests and self._watch.questions:
            self._move_unanswered(now_ms)
        if merged == NEWS or view.request >= 0:
            self._wake(now_ms, moved=merged == NEWS)

    def _metadata_answered(self, request: int, merged: int, now_ms: int) -> None:
        if merged == STALE:
            if request == self._metadata_request and self.metadata_address is not None:
                self.metadata_address = None
                self._metadata_failures += 1
                self._metadata_at = now_ms + self.backoff_ms(self._metadata_failures)
            return
        self.answered_metadata = max(self.answered_metadata, request)
        self._metadata_failures = 0
        if request == self._metadata_request:
            self.metadata_address = None
        if self.answered_metadata >= self._metadata_wanted:
            self._metadata_wanted = -1
        elif self.metadata_address is None and self._metadata_wanted >= 0:
            self._ask_metadata(now_ms)

    def _wake(self, now_ms: int, *, moved: bool) -> None:
        """News: whoever waited for it looks again. A partition with a new leader need not sit out its pause."""
        stalled, self._stalled = self._stalled, {}
        for waiter in stalled:
            if isinstance(waiter, PartitionQueue):
                place = self.view.place(waiter.topic, waiter.partition)
                if moved and place is not None and place.leader is not None:
                    waiter.retry_at = now_ms
                self._ready[waiter] = None
                if waiter.has_batches and (waiter.retry_at > now_ms or place is None):
                    self._stalled[waiter] = None
            else:
                if moved:
                    waiter.retry_at = min(waiter.retry_at, now_ms)
                self._advance(waiter, now_ms)
                if not waiter.done and waiter.address is None and waiter in self._ops:
                    self._stalled[waiter] = None

    def _look_for_unanswered(self, now_ms: int) -> None:
        """The oldest requests have waited for long: send them to who leads now, or ask somebody else who does."""
        silent = self._move_unanswered(now_ms)
        if silent:
            until = self._watch.asked(now_ms, self.ids.jitter())
            self._down.update(dict.fromkeys(silent, until))
            self.refresh(now_ms)
        elif self._requests:
            self._watch.begin(next(iter(self._requests.values())).sent_ms)

    def _move_unanswered(self, now_ms: int) -> list[Address]:
        """Send what waits for long at a broker that no longer leads to the one that does. Returns who else is waited for that long."""
        moved, silent = self._watch.sort(self._requests.values(), self.view, now_ms)
        for item in moved:
            if isinstance(item, Batch):
                item.queue.take_back()  # with everything under way behind it
                self._ready[item.queue] = None
            else:
                self.drop_request(item.request)
                item.uncertain, item.address = item.uncertain or not item.is_unreached, None
                self._advance(item, now_ms)
        self.moved += len(moved)
        return silent

    def _on_disconnected(self, address: Address, now_ms: int, only_reads: bool) -> None:
        """Requests under way there may be lost; others are asked first for a while. Nothing but reads is asked again if only they are."""
        if not only_reads:
            self._down[address] = now_ms + self.config.retry_backoff_ms_max
            self.breaks[address] += 1
        for item in [one for one in self._requests.values() if one.address == address and only_reads <= one.is_read]:
            if isinstance(item, Operation):
                self._unanswered(item, now_ms)
            else:
                item.queue.lost(now_ms)
                self._ready[item.queue] = None
        if self.metadata_address is not None and self.metadata_address == address and not only_reads:
            self.metadata_address = None
            self._metadata_failures += 1
            self._metadata_at = now_ms + self.backoff_ms(self._metadata_failures)
        elif not only_reads:
            self.age(now_ms)

    def backoff_ms(self, failures: int) -> int:
        """The pause before another try: doubling, with a fifth of jitter either way."""
        base = self.config.retry_backoff_ms << min(max(failures - 1, 0), 20)
        return max(1, int(min(base, self.config.retry_backoff_ms_max) * (0.8 + 0.4 * self.ids.jitter())))

    def drop_request(self, request: int) -> None:
        """An answer to this request no longer means anything."""
        self._requests.pop(request, None)

    def _number(self, item: Operation | Batch) -> int:
        self._numbers += 1
        self._requests[self._numbers] = item
        return self._numbers
