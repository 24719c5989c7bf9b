"""What calls give back: receipts of appends, and descriptions of topics and clusters that print as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs
from attrs import field, frozen

from replog.records import RecordBatch

__all__ = [
    "BrokerDescription",
    "ClusterDescription",
    "ControllerDescription",
    "FeatureLevels",
    "Fetch",
    "PartitionDescription",
    "Receipt",
    "RecordMetadata",
    "TopicDescription",
]


class Receipt(NamedTuple):
    """Where one batch went. The offsets are None under acks=0: nobody answered."""

    topic: str
    partition: int
    base_offset: int | None
    last_offset: int | None
    """Inclusive."""


class RecordMetadata(NamedTuple):
    """Where one record went. `offset` is None under acks=0."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int


@frozen
class PartitionDescription:
    """One partition as the cluster reports it; the offsets are None while no leader answers for them."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    start_offset: int | None
    high_watermark: int | None
    end_offset: int | None
    adding: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment adds, ..."""
    removing: tuple[int, ...] = ()
    """... and those that leave with its end."""

    @property
    def placed(self) -> tuple[str, ...]:
        """The replicas for people: "4+" joins, "1-" leaves."""
        return tuple(f"{r}{'+' if r in self.adding else '-' if r in self.removing else ''}" for r in self.replicas)


@frozen
class TopicDescription:
    """A topic and its partitions. `str()` gives a table, `to_dict()` plain values."""

    topic: str
    topic_id: str
    """32 hexadecimal digits."""
    config: dict[str, Any]
    """The keys that differ from the defaults."""
    partitions: tuple[PartitionDescription, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return attrs.asdict(self, value_serializer=_plain)

    def __str__(self) -> str:
        head = ("partition", "leader", "epoch", "replicas", "ISR", "ELR", "start", "HW", "LEO")
        rows = [
            (
                *(p.partition, _shown(p.leader), p.leader_epoch, ",".join(p.placed), _set(p.isr), _set(p.elr)),
                *(_shown(p.start_offset), _shown(p.high_watermark), _shown(p.end_offset)),
            )
            for p in self.partitions
        ]
        config = "".join(f", {key}={value}" for key, value in sorted(self.config.items()))
        count = len(self.partitions)
        return f"{self.topic} ({count} partition{'' if count == 1 else 's'}{config})\n{_table(head, rows)}"


@frozen
class BrokerDescription:
    """One registered broker."""

    broker_id: int
    broker_epoch: int
    endpoints: tuple[str, ...]
    rack: str | None
    fenced: bool
    draining: bool
    overdue: bool = False
    """It has not acknowledged in time what the controller told it."""

    @property
    def state(self) -> str:
        """ "fenced" (leads nothing), "overdue" (has not acknowledged what it was told), "draining" (about to leave) or "serving"."""
        return "fenced" if self.fenced else "overdue" if self.overdue else "draining" if self.draining else "serving"


@frozen
class ClusterDescription:
    """The brokers, the controller and the topics. `str()` gives a table, `to_dict()` plain values."""

    cluster_id: str
    controller_id: int
    controller_epoch: int
    brokers: tuple[BrokerDescription, ...]
    topics: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return attrs.asdict(self, value_serializer=_plain)

    def __str__(self) -> str:
        head = ("broker", "epoch", "state", "rack", "endpoints")
        rows = [(b.broker_id, b.broker_epoch, b.state, _shown(b.rack), ", ".join(b.endpoints) or "-") for b in self.brokers]
        name, topics = self.cluster_id or "?", len(self.topics)
        title = (
            f"cluster {name}: controller {self.controller_id}, epoch {self.controller_epoch}, {topics} topic{'' if topics == 1 else 's'}"
        )
        return f"{title}\n{_table(head, rows)}"


@frozen
class ControllerDescription:
    """The controller that has answered, and how much was waiting there. None: a broker of an older version, which does not say so."""

    broker_id: int
    controller_epoch: int
    since_ms: int | None
    """When it took office, in ms since 1970 by the clock of its machine."""
    queued_events: int | None
    """Events that waited there or were under way when the question came, without the question."""
    due_partitions: int | None
    """Partitions that were to be looked at then; one of the events stands for them, or none yet."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return attrs.asdict(self)


@frozen
class FeatureLevels:
    """The feature level of a cluster, and the lowest and highest level that each registered broker supports (KIP-584)."""

    cluster_id: str
    level: int
    brokers: dict[int, tuple[int, int]]
    controller: ControllerDescription | None = field(default=None, eq=False)
    """Who says so; None: a broker of an older version, which does not name itself. Not compared: it changes from question to question."""

    @property
    def highest(self) -> int:
        """The highest level that every broker supports; `level` if there is no higher one."""
        return max(self.level, min((high for _, high in self.brokers.values()), default=self.level))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        brokers = [{"broker": broker, "low": low, "high": high} for broker, (low, high) in self.brokers.items()]
        controller = None if self.controller is None else self.controller.to_dict()
        levels = {"cluster_id": self.cluster_id, "level": self.level, "highest": self.highest, "brokers": brokers}
        return {**levels, "controller": controller}

    def __str__(self) -> str:
        rows = [(broker, low, high) for broker, (low, high) in self.brokers.items()]
        return f"cluster {self.cluster_id}: feature level {self.level}\n{_table(('broker', 'lowest', 'highest'), rows)}"


class Fetch(NamedTuple):
    """What one fetch brought, and where the next one goes on."""

    batches: list[RecordBatch]
    """Verified and committed, not decoded (`unpacking`); without control batches. The first may begin below what was asked for."""
    next_offset: int
    """After the last batch seen, control batches included."""
    known_epoch: int
    """Leader epoch under which the position was last known to be on the leader's history."""
    high_watermark: int
    epochs: Sequence[tuple[int, int]]
    """Each leader epoch of what was read before `next_offset`, and where it began: what the fetch was given, and what it has brought."""


def _plain(_instance: object, _attribute: object, value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _set(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
