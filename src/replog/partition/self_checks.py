"""Invariants that a running broker checks of itself, where `BrokerConfig.self_checks` asks for it (PROTOCOL 9.2, those marked r).

A broker that finds its own state to be impossible says so and stops, as any exception that leaves it would: it is then one
broker less, and not a broker that spreads what it no longer understands. Nothing that is stored is touched.

====  ==================================================================
I8    a leader is in its ISR, and the ISR is among the replicas
I10   log start <= high watermark <= log end; flushed end <= log end
I11   the high watermark of a leadership never goes back
I12   the epoch table grows strictly, within the log
I13   leader epoch and partition epoch never go back
I17   no client is given anything at or above the high watermark
====  ==================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from itertools import pairwise
from typing import Any, NoReturn

from replog.errors import InvariantViolated
from replog.messages import Fetched
from replog.model import PartitionId
from replog.partition.leading import Leading
from replog.partition.partition import Partition
from replog.ports import Event, FlushDone, Outbox

__all__ = ["SelfChecks"]


class SelfChecks:
    """The checks of one broker. Its work follows the partitions that messages are about, and one more each time, in turn."""

    def __init__(
        self, broker_id: int, partitions: Mapping[PartitionId, Partition], outbox: Outbox, handlers: MutableMapping[type, Any]
    ) -> None:
        """Wraps each of `handlers` (message type -> handler), to learn which partitions a message was about."""
        self._broker_id = broker_id
        self._partitions = partitions
        self._outbox = outbox
        self._touched: dict[PartitionId, None] = {}
        self._turn: list[PartitionId] = []
        self._seen: dict[PartitionId, tuple[Partition, int, int, Leading | None, int]] = {}
        """What each partition was at its last check: leader epoch, partition epoch, leadership, high watermark."""
        for kind, handler in list(handlers.items()):
            handlers[kind] = self._noting(handler)

    def _noting(self, handler: Any) -> Any:
        def noted(sender: Any, message: Any, now_ms: int) -> None:
            handler(sender, message, now_ms)
            self._touched.update(dict.fromkeys(_named(message)))

        return noted

    def run(self) -> None:
        """The end of a tick, before what the broker says leaves. Raises InvariantViolated, and says so in an event."""
        touched, self._touched = self._touched, {}
        if not self._turn:
            self._turn = list(self._partitions)
            self._seen = {identity: seen for identity, seen in self._seen.items() if identity in self._partitions}
        if self._turn:
            touched[self._turn.pop()] = None
        for identity in touched:
            partition = self._partitions.get(identity)
            if partition is not None and partition.failed is None:
                self.check(partition)
        for _, message in self._outbox.messages:
            if type(message) is Fetched and message.session == 0:  # a client's: followers have sessions
                self._check_shown(message)

    def check(self, partition: Partition) -> None:
        """One copy: by itself, and against its last check."""
        log, leading, watermark = partition.log, partition.leading, partition.high_watermark
        if not log.start_offset <= watermark <= log.end_offset or log.flushed_end > log.end_offset:
            self._fail("I10", partition, f"start {log.start_offset}, HW {watermark}, flushed {log.flushed_end}, end {log.end_offset}")
        if leading is not None:
            isr, replicas = leading.isr.isr, leading.assignment.replicas
            if self._broker_id not in isr or not set(isr) <= set(replicas):
                self._fail("I8", partition, f"leader {self._broker_id}, ISR {isr}, replicas {replicas}")
        entries = log.epochs.entries()
        strict = all(a.epoch < b.epoch and a.start < b.start for a, b in pairwise(entries))
        if not strict or (entries and (entries[-1].start > log.end_offset or entries[-1].epoch != log.last_epoch)):
            self._fail("I12", partition, f"epoch table {entries}, last epoch {log.last_epoch}, end {log.end_offset}")
        now = (partition, partition.leader_epoch, partition.partition_epoch, leading, watermark)
        before = self._seen.get(partition.identity, now)
        self._seen[partition.identity] = now
        if before[0] is not partition:  # taken away and given again meanwhile
            return
        if before[1] > now[1] or before[2] > now[2]:
            self._fail("I13", partition, f"epochs (leader, partition) go from {before[1:3]} to {now[1:3]}")
        if leading is not None and before[3] is leading and before[4] > watermark:
            self._fail("I11", partition, f"the high watermark goes from {before[4]} to {watermark}")

    def _check_shown(self, message: Fetched) -> None:
        for entry in message.entries:
            partition = self._partitions.get(entry.partition)
            if partition is not None and not entry.error:
                end = max((piece.end_offset for piece in entry.slices), default=0)
                if max(end, entry.high_watermark) > partition.high_watermark:
                    told = f"a client is told HW {entry.high_watermark} and given records up to {end}"
                    self._fail("I17", partition, f"{told}, the high watermark is {partition.high_watermark}")

    def _fail(self, invariant: str, partition: Partition, why: str) -> NoReturn:
        name = f"{partition.topic}-{partition.identity.partition}"
        fields = {"broker": self._broker_id, "invariant": invariant, "partition": name, "why": why}
        self._outbox.events.append(Event("invariant_violated", fields))
        raise InvariantViolated(invariant, name, f"broker {self._broker_id}: {why}")


def _named(message: Any) -> Iterable[PartitionId]:
    """The partitions that a message is about."""
    if isinstance(message, FlushDone):
        return (message.token.identity,)
    return [entry.partition for entry in getattr(message, "entries", ())]
