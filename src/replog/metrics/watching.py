"""Counts and times what goes into an actor and what comes out of it, from beside it: the actor neither knows nor changes.

What a watch looks at is messages, store calls, flushes and events, never records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

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
from replog.ports import Actor, Conflict, FlushToken, Outbox, SessionChanged, StoreResult
from replog.records import FRONT_BYTES

if TYPE_CHECKING:  # a client's pump comes by here too, and needs no broker
    from replog.broker.broker import Broker
    from replog.partition.partition import Partition

__all__ = ["SAMPLED", "BrokerWatch", "StoreWatch"]

_BEGUN_MAX: Final = 65_536
"""So many requests of one kind may wait for their answer; of the oldest beyond that no time is told: nobody answers it."""

SAMPLED: Final = 16
"""After so many appends one fetch of a follower is timed."""

Begun = dict[tuple[Address, int], float]
"""(who asks, number of the request) -> when it came."""


class BrokerWatch:
    """Beside a broker: requests, records, bytes, flushes, and what the controller tells of elections and ISRs.

    A pump hands messages of the types in `hears` (of other brokers: in `hears_brokers`) to these functions instead of to the actor, which
    they call; those in `tells` hear what it has said, those in `hands_on` what a transport has taken for a client; `look` gets the rest of
    its outbox. Nothing is called for other messages. What each acknowledgement needs, fetches of followers and their answers, is in there
    only while one of them is timed.
    """

    def __init__(self, broker: Broker, meter: Meter) -> None:
        self._broker = broker
        self._receive = broker.receive
        self._partitions = broker.partitions
        self._meter = meter
        self._produced: Begun = {}
        self._fetches: Begun = {}
        self._staged: Begun = {}
        self._tails: dict[tuple[Address, bool], tuple[int, float]] = {}
        """(follower, whether it catches up) -> (number of its fetch, when it came): of those that are timed now."""
        self._group_ends: dict[PartitionId, int] = {}
        """Where the last group ends that was counted: one that is published again is no news."""
        self._joining: set[PartitionId] = set()
        """Partitions that are moved to this broker."""
        requests = meter.requests
        self._fetch_consumer, self._fetch_follower = requests["fetch_consumer"], requests["fetch_follower"]
        self.hears: dict[type, Callable[[Address, Any, int], None]] = {
            Produce: self._append(broker._handlers[Produce]),
            Fetch: self._fetch,
            UpdateMetadata: self._update,
            AlterIsrAnswer: self._refusals,
            LeaderAndIsr: self._moves,
            Stage: self._stage,
        }
        self.hears_brokers: dict[type, Callable[[Address, Any, int], None]] = {}
        self.tells: dict[type, Callable[[Address, Any], object]] = {Produced: self._acknowledged(requests["produce"])}
        self.hands_on: dict[type, Callable[[Any], object]] = {Fetched: self._sent}
        published: Begun = {}
        self.hears[Publish] = partial(self._ask, published)
        self.tells[Published] = partial(self._answer_publish, published)
        for kind, asked, answer in (
            ("admin", Admin, AdminAnswer),
            ("list_offsets", ListOffsets, ListedOffsets),
            ("metadata", Metadata, ClusterView),
            ("offsets_for_leader_epoch", OffsetsForLeaderEpoch, Epochs),
        ):
            begun: Begun = {}
            self.hears[asked] = partial(self._ask, begun)
            self.tells[answer] = partial(_ended, begun, requests[kind])

    def flush(self, token: FlushToken) -> FlushToken:
        """Run it, on whichever thread, and count its time. The token stays as it is: the log knows its own by what they run."""
        began = perf_counter()
        try:
            return token.run()
        finally:
            self._meter.flushes.observe(perf_counter() - began)

    def look(self, outbox: Outbox) -> None:
        """What the broker tells: called before it is told."""
        for event in outbox.events:
            self._meter.event(event)

    def _ask(self, begun: Begun, sender: Address, message: Any, now_ms: int) -> None:
        _began(begun, sender, message.request)
        self._receive(sender, message, now_ms)

    # ---------------------------------------------------------------------------------------------------------- appends

    def _append(self, receive: Callable[[Address, Any, int], None]) -> Callable[[Address, Produce, int], None]:
        """What an append goes through. A function that has everything at hand: this is paid for with every acknowledgement.

        What the logs have grown by is what was appended: not what was refused, and no batch that came twice.
        """
        produced, partitions, traffic_of, of, now_and_then = (
            self._produced, self._partitions, self._meter.traffic, self._meter.of, self._now_and_then,
        )  # fmt: skip

        def produce(sender: Address, message: Produce, now_ms: int) -> None:
            entries = message.entries
            if len(entries) != 1:
                self._produce_several(sender, message, now_ms)
                return
            entry = entries[0]
            request = entry.request
            if message.acks:
                produced[sender, request] = perf_counter()
            if not request % SAMPLED:
                now_and_then()
            partition = partitions.get(entry.partition)
            if partition is None:
                receive(sender, message, now_ms)
                return
            log = partition.log
            end = log.end_offset
            receive(sender, message, now_ms)
            if log.end_offset != end:
                traffic = traffic_of.get(partition.topic) or of(partition.topic)
                traffic.records_in += log.end_offset - end
                traffic.bytes_in += FRONT_BYTES + len(entry.body)

        return produce

    def _produce_several(self, sender: Address, message: Produce, now_ms: int) -> None:
        self._now_and_then()
        began = perf_counter()
        before: dict[Partition, tuple[int, int]] = {}
        for entry in message.entries:
            if message.acks:
                self._produced[sender, entry.request] = began
            partition = self._partitions.get(entry.partition)
            if partition is not None:
                end, size = before.get(partition) or (partition.log.end_offset, 0)
                before[partition] = end, size + FRONT_BYTES + len(entry.body)
        self._receive(sender, message, now_ms)
        for partition, (end, size) in before.items():
            if partition.log.end_offset != end:
                traffic = self._meter.of(partition.topic)
                traffic.records_in += partition.log.end_offset - end
                traffic.bytes_in += size

    def _now_and_then(self) -> None:
        _forget(self._produced)
        self.hears_brokers[Fetch] = self._fetch_of_follower

    def _acknowledged(self, times: Histogram) -> Callable[[Address, Produced], None]:
        """Counts the times of appends as `Histogram.observe` does, again with everything at hand."""
        pop, counts, edges = self._produced.pop, times.counts, times.edges

        def answer(to: Address, message: Produced) -> None:
            for entry in message.entries:
                began = pop((to, entry.request), None)
                if began is not None:
                    seconds = perf_counter() - began
                    counts[bisect_left(edges, seconds)] += 1
                    times.sum += seconds

        return answer

    def _stage(self, sender: Address, message: Stage, now_ms: int) -> None:
        entry = message.entry
        _began(self._staged, sender, entry.request)
        partition = self._partitions.get(entry.partition)
        if partition is not None and partition.leading is not None:
            self._meter.of(partition.topic).bytes_in += len(entry.body)
        self._receive(sender, message, now_ms)

    def _answer_publish(self, begun: Begun, to: Address, message: Published) -> None:
        """The answer to a Stage, too; and to an append of work that was done before, with another number of records."""
        requests = self._meter.requests
        if _ended(self._produced, requests["produce"], to, message):
            return
        if not _ended(self._staged, requests["stage"], to, message):
            _ended(begun, requests["publish"], to, message)
        partition = self._partitions.get(message.partition)
        if message.error or message.base_offset < 0 or partition is None:
            return
        if message.end_offset > self._group_ends.get(message.partition, 0):
            self._group_ends[message.partition] = message.end_offset
            self._meter.of(partition.topic).records_in += message.end_offset - message.base_offset

    # ---------------------------------------------------------------------------------------------------------- fetches

    def _fetch(self, sender: Address, message: Fetch, now_ms: int) -> None:
        """Of a reader."""
        _began(self._fetches, sender, message.request)
        self.tells[Fetched] = self._answer_fetch
        self._receive(sender, message, now_ms)

    def _fetch_of_follower(self, sender: Address, message: Fetch, now_ms: int) -> None:
        """The one that is timed after so many appends."""
        del self.hears_brokers[Fetch]
        self._tails[sender, message.catch_up] = (message.request, perf_counter())
        self.tells[Fetched] = self._answer_fetch
        self._receive(sender, message, now_ms)

    def _answer_fetch(self, to: Address, message: Fetched) -> None:
        if type(to) is int:
            tail = self._tails.get((to, message.catch_up))
            if tail is not None and tail[0] <= message.request:
                del self._tails[to, message.catch_up]
                if tail[0] == message.request:
                    self._fetch_follower.observe(perf_counter() - tail[1])
        else:
            _ended(self._fetches, self._fetch_consumer, to, message)
            if type(to) is not tuple:  # others are sent it by a transport, which may leave its records out
                self._sent(message)
        if not self._tails and not self._fetches:
            del self.tells[Fetched]

    def _sent(self, message: Fetched) -> None:
        for entry in message.entries:
            if entry.slices and (partition := self._partitions.get(entry.partition)) is not None:
                self._meter.of(partition.topic).bytes_out += sum(piece.length for piece in entry.slices)

    def _fetched(self, sender: Address, message: Fetched, now_ms: int) -> None:
        """Records of a leader, while partitions are moved here: the bytes of these count."""
        for entry in message.entries:
            if entry.slices and entry.partition in self._joining:
                self._meter.reassignment_bytes += sum(piece.length for piece in entry.slices)
        self._receive(sender, message, now_ms)

    # --------------------------------------------------------------------------------------------------- the controller

    def _moves(self, sender: Address, message: LeaderAndIsr, now_ms: int) -> None:
        here, joining = self._broker.broker_id, self._joining
        for entry in message.entries:
            if here in entry.assignment.adding:
                joining.add(entry.partition)
                self.hears_brokers[Fetched] = self._fetched
            elif joining:
                joining.discard(entry.partition)
        if not joining:
            self.hears_brokers.pop(Fetched, None)
        self._receive(sender, message, now_ms)

    def _refusals(self, sender: Address, message: AlterIsrAnswer, now_ms: int) -> None:
        self._meter.isr_refused += sum(entry.error != 0 for entry in message.entries)
        self._receive(sender, message, now_ms)

    def _update(self, sender: Address, message: UpdateMetadata, now_ms: int) -> None:
        """What differs from what this broker knew has changed, once it knows that."""
        routing, view, meter = self._broker.routing, message.view, self._meter
        newest = view.controller_epoch, view.version
        found = changes_of(routing.topics, view) if newest > (routing.controller_epoch, routing.version) else None
        gone = [routing.topics[topic_id].topic for topic_id in view.removed_topics if topic_id in routing.topics]
        self._receive(sender, message, now_ms)
        if found is None or (routing.controller_epoch, routing.version) != newest:
            return
        if view.removed_topics or view.since < 0:
            self._forget_topics(gone if view.since >= 0 else list(meter.traffic))
        meter.change("election", found.elections)
        meter.change("isr", found.isrs)
        if message.controller_id == meter.broker_id:
            meter.isr_shrinks += found.shrinks
            meter.isr_expands += found.expands
            if found.elections:
                meter.elections.observe(meter.decided_s, len(found.elections))

    def _forget_topics(self, perhaps: Iterable[str]) -> None:
        """Of what is no more nothing is counted any longer. `perhaps`: names that may have gone."""
        for name in perhaps:
            if name and name not in self._broker.routing.names:
                self._meter.traffic.pop(name, None)
        self._joining = {identity for identity in self._joining if identity in self._partitions}
        for identity in [identity for identity in self._group_ends if identity not in self._partitions]:
            del self._group_ends[identity]


class StoreWatch:
    """In the place of an actor that uses the metadata store, a controller or a membership: it hands everything on."""

    def __init__(self, actor: Actor, meter: Meter, *, counts_sessions: bool = False) -> None:
        """`counts_sessions`: of the actors that hear of the same session one counts."""
        self.outbox: Outbox = actor.outbox
        self.deadline_ms = actor.deadline_ms
        self._actor = actor
        self._meter = meter
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
        self._actor.receive(sender, message, now_ms)
        self._said(self.outbox)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Hand it on, and look at what is said after."""
        if not self._calls:
            self._since = perf_counter()
        self._actor.tick(now_ms, wall_ms)
        self._said(self.outbox)

    def _said(self, outbox: Outbox) -> None:
        for call in outbox.calls:
            self._calls[call.call] = perf_counter() if call.verb in ("commit", "commit_each") else None
        for event in outbox.events:
            self._meter.event(event)
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


def _began(begun: Begun, sender: Address, request: int) -> None:
    begun[sender, request] = perf_counter()
    if len(begun) > _BEGUN_MAX:
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


