"""Counts and times what goes into an actor and what comes out of it, from beside it: the actor neither knows nor changes.

A watch takes the actor's place at the pump. What it looks at is messages, store calls, flushes and events, never records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Final

from replog.broker.broker import Broker
from replog.messages import (
    Admin,
    AdminAnswer,
    AlterIsrAnswer,
    ClusterView,
    Epochs,
    Fetch,
    Fetched,
    LeaderAndIsr,
    ListedOffsets,
    ListOffsets,
    Metadata,
    OffsetsForLeaderEpoch,
    Produce,
    Produced,
    Publish,
    Published,
    Stage,
    UpdateMetadata,
)
from replog.metrics.changes import changes_of
from replog.metrics.histogram import Histogram
from replog.metrics.meter import Meter
from replog.model import Address, PartitionId
from replog.partition.partition import Partition
from replog.ports import Actor, Conflict, FlushToken, Outbox, SessionChanged, StoreResult
from replog.records import FRONT_BYTES

__all__ = ["BrokerWatch", "StoreWatch"]

_BEGUN_MAX: Final = 65_536
"""So many requests of one kind may wait for their answer; of the oldest beyond that no time is told: nobody answers it."""

Begun = dict[tuple[Address, int], float]
"""(who asks, number of the request) -> when it came."""


class _Watch:
    """An actor in the place of another."""

    def __init__(self, actor: Actor, meter: Meter) -> None:
        self.outbox: Outbox = actor.outbox
        self.deadline_ms = actor.deadline_ms
        self._receive = actor.receive
        self._tick = actor.tick
        self._meter = meter

    def _events(self) -> None:
        for event in self.outbox.events:
            self._meter.event(event)


class BrokerWatch(_Watch):
    """Beside a broker: requests, records, bytes, flushes, and what the controller tells of elections and ISRs."""

    def __init__(self, broker: Broker, meter: Meter) -> None:
        super().__init__(broker, meter)
        self._broker = broker
        self._partitions = broker.partitions
        self._produced: Begun = {}
        self._fetches: Begun = {}
        self._tails: dict[tuple[Address, bool], tuple[int, float]] = {}
        """(follower, whether it catches up) -> (number of its fetch, when it came): each fetch takes the place of the one before."""
        self._group_ends: dict[PartitionId, int] = {}
        """Where the last group ends that was counted: one that is published again is no news."""
        self._joining: set[PartitionId] = set()
        """Partitions that are moved to this broker."""
        requests = meter.requests
        self._fetch_consumer, self._fetch_follower = requests["fetch_consumer"], requests["fetch_follower"]
        self._produce_times = requests["produce"]
        self._hears: dict[type, Callable[[Address, Any], object]] = {Fetch: self._fetch, Fetched: self._fetched}
        self._hears |= {AlterIsrAnswer: self._refusals, LeaderAndIsr: self._moves, Stage: self._stage}
        self._tells: dict[type, Callable[[Address, Any], object]] = {Fetched: self._answer_fetch, Produced: self._answer_produce}
        self._staged: Begun = {}
        published: Begun = {}
        self._hears[Publish] = partial(_began, published)
        self._tells[Published] = partial(self._answer_publish, published)
        for kind, asked, answer in (
            ("admin", Admin, AdminAnswer),
            ("list_offsets", ListOffsets, ListedOffsets),
            ("metadata", Metadata, ClusterView),
            ("offsets_for_leader_epoch", OffsetsForLeaderEpoch, Epochs),
        ):
            begun: Begun = {}
            self._hears[asked] = partial(_began, begun)
            self._tells[answer] = partial(_ended, begun, requests[kind])

    # ----------------------------------------------------------------------------------------------------- in its place

    def receive(self, sender: Address, message: Any, now_ms: int) -> None:
        """Hand the message on; look at it before, and at what is said after."""
        kind = type(message)
        if kind is Produce:
            self._produce(sender, message, now_ms)
        elif kind is UpdateMetadata:
            self._update(sender, message, now_ms)
        else:
            hear = self._hears.get(kind)
            if hear is not None:
                hear(sender, message)
            self._receive(sender, message, now_ms)
        outbox = self.outbox
        if outbox.messages or outbox.flushes or outbox.events:
            self._said(outbox)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Hand it on, and look at what is said after."""
        self._tick(now_ms, wall_ms)
        outbox = self.outbox
        if outbox.messages or outbox.flushes or outbox.events:
            self._said(outbox)

    def _said(self, outbox: Outbox) -> None:
        """The pump takes what is there after every call, so nothing is looked at twice."""
        tells = self._tells
        for to, message in outbox.messages:
            tell = tells.get(type(message))
            if tell is not None:
                tell(to, message)
        for token in outbox.flushes:
            _time_flush(token, self._meter.flushes)
        if outbox.events:
            self._events()

    # ---------------------------------------------------------------------------------------------------------- appends

    def _produce(self, sender: Address, message: Produce, now_ms: int) -> None:
        """What the logs have grown by is what was appended: not what was refused, and no batch that came twice."""
        meter, before = self._meter, dict[Partition, tuple[int, int]]()
        now, answered, partitions, begun = perf_counter(), message.acks != 0, self._partitions, self._produced
        for entry in message.entries:
            if answered:
                begun[sender, entry.request] = now
            partition = partitions.get(entry.partition)
            if partition is not None and partition.leading is not None:
                end, size = before.get(partition) or (partition.log.end_offset, 0)
                before[partition] = end, size + FRONT_BYTES + len(entry.body)
        _forget(begun)
        self._receive(sender, message, now_ms)
        for partition, (end, size) in before.items():
            grown = partition.log.end_offset - end
            if grown > 0:
                meter.add(meter.records_in, partition.topic, grown)
                meter.add(meter.bytes_in, partition.topic, size)

    def _answer_produce(self, to: Address, message: Produced) -> None:
        now, begun, times = perf_counter(), self._produced, self._produce_times
        for entry in message.entries:
            began = begun.pop((to, entry.request), None)
            if began is not None:
                times.observe(now - began)

    def _stage(self, sender: Address, message: Stage) -> None:
        entry = message.entry
        self._staged[sender, entry.request] = perf_counter()
        _forget(self._staged)
        partition = self._partitions.get(entry.partition)
        if partition is not None and partition.leading is not None:
            self._meter.add(self._meter.bytes_in, partition.topic, len(entry.body))

    def _answer_publish(self, begun: Begun, to: Address, message: Published) -> None:
        """The answer to a Stage, too."""
        requests = self._meter.requests
        if not _ended(self._staged, requests["stage"], to, message):
            _ended(begun, requests["publish"], to, message)
        partition = self._partitions.get(message.partition)
        if message.error or message.base_offset < 0 or partition is None:
            return
        if message.end_offset > self._group_ends.get(message.partition, 0):
            self._group_ends[message.partition] = message.end_offset
            self._meter.add(self._meter.records_in, partition.topic, message.end_offset - message.base_offset)

    # ---------------------------------------------------------------------------------------------------------- fetches

    def _fetch(self, sender: Address, message: Fetch) -> None:
        if message.replica >= 0:
            self._tails[sender, message.catch_up] = (message.request, perf_counter())
        else:
            _began(self._fetches, sender, message)

    def _answer_fetch(self, to: Address, message: Fetched) -> None:
        tail = self._tails.get((to, message.catch_up))
        if tail is not None:
            if tail[0] == message.request:
                self._fetch_follower.observe(perf_counter() - tail[1])
            return
        _ended(self._fetches, self._fetch_consumer, to, message)
        for entry in message.entries:
            if entry.slices and (partition := self._partitions.get(entry.partition)) is not None:
                self._meter.add(self._meter.bytes_out, partition.topic, sum(piece.length for piece in entry.slices))

    def _fetched(self, sender: Address, message: Fetched) -> None:
        """Records of a leader: of partitions that are moved here their bytes count."""
        if self._joining:
            for entry in message.entries:
                if entry.slices and entry.partition in self._joining:
                    self._meter.reassignment_bytes += sum(piece.length for piece in entry.slices)

    # --------------------------------------------------------------------------------------------------- the controller

    def _moves(self, sender: Address, message: LeaderAndIsr) -> None:
        here, joining = self._broker.broker_id, self._joining
        for entry in message.entries:
            if here in entry.assignment.adding:
                joining.add(entry.partition)
            elif joining:
                joining.discard(entry.partition)

    def _refusals(self, sender: Address, message: AlterIsrAnswer) -> None:
        self._meter.isr_refused += sum(entry.error != 0 for entry in message.entries)

    def _update(self, sender: Address, message: UpdateMetadata, now_ms: int) -> None:
        """What differs from what this broker knew has changed, once it knows that."""
        routing, view, meter = self._broker.routing, message.view, self._meter
        newest = view.controller_epoch, view.version
        found = changes_of(routing.topics, view) if newest > (routing.controller_epoch, routing.version) else None
        self._receive(sender, message, now_ms)
        if found is None or (routing.controller_epoch, routing.version) != newest:
            return
        meter.change("election", found.elections)
        meter.change("isr", found.isrs)
        if message.controller_id == meter.broker_id:
            meter.isr_shrinks += found.shrinks
            meter.isr_expands += found.expands
            if found.elections:
                meter.elections.observe(meter.decided_s, len(found.elections))


class StoreWatch(_Watch):
    """Beside an actor that uses the metadata store: a controller, or a membership."""

    def __init__(self, actor: Actor, meter: Meter, *, counts_sessions: bool = False) -> None:
        """`counts_sessions`: of the actors that hear of the same session one counts."""
        super().__init__(actor, meter)
        self._counts_sessions = counts_sessions
        self._has_been_connected = False
        self._calls: dict[int, float | None] = {}
        """Number of a call under way -> when a commit began; None of others."""
        self._since = 0.0
        """When what the actor does now began: it was idle before."""

    def receive(self, sender: Address, message: Any, now_ms: int) -> None:
        """Hand the message on; look at it before, and at what is said after."""
        if not self._calls:
            self._since = perf_counter()
        kind = type(message)
        if kind is StoreResult:
            self._result(message)
        elif kind is SessionChanged and self._counts_sessions:
            self._has_been_connected |= message.state == "connected"
            if self._has_been_connected:  # before the first session an actor is told that there is none
                self._meter.session_events[message.state] += 1
        self._receive(sender, message, now_ms)
        self._said(self.outbox)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Hand it on, and look at what is said after."""
        if not self._calls:
            self._since = perf_counter()
        self._tick(now_ms, wall_ms)
        self._said(self.outbox)

    def _said(self, outbox: Outbox) -> None:
        for call in outbox.calls:
            self._calls[call.call] = perf_counter() if call.verb in ("commit", "commit_each") else None
        if outbox.events:
            self._events()
        here = self._meter.broker_id
        if any(to == here and type(message) is UpdateMetadata for to, message in outbox.messages):
            self._meter.decided_s = perf_counter() - self._since

    def _result(self, result: StoreResult) -> None:
        began = self._calls.pop(result.call, None)
        if began is not None:
            meter = self._meter
            meter.commits.observe(perf_counter() - began)
            each = result.value if isinstance(result.value, list) else ()
            meter.conflicts += isinstance(result.error, Conflict) + sum(isinstance(one, Conflict) for one in each)


def _began(begun: Begun, sender: Address, message: Any) -> None:
    begun[sender, message.request] = perf_counter()
    _forget(begun)


def _forget(begun: Begun) -> None:
    while len(begun) > _BEGUN_MAX:
        del begun[next(iter(begun))]


def _ended(begun: Begun, times: Histogram, to: Address, message: Any) -> bool:
    """An answer: count its time; whether it was awaited."""
    began = begun.pop((to, message.request), None)
    if began is not None:
        times.observe(perf_counter() - began)
    return began is not None


def _time_flush(token: FlushToken, times: Histogram) -> None:
    """Whoever runs it, and wherever, its time is counted."""
    run = token.run_

    def timed() -> OSError | None:
        began = perf_counter()
        try:
            return run()
        finally:
            times.observe(perf_counter() - began)

    token.run_ = timed
