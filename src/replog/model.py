"""The nouns that every layer shares: which partition, in what state, held by whom."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Final, NamedTuple

from attrs import field, frozen

__all__ = [
    "ACKS_ALL",
    "ACKS_LEADER",
    "ACKS_NONE",
    "Address",
    "Assignment",
    "BrokerInfo",
    "PartitionId",
    "PartitionState",
    "TopicPartition",
    "numbers_from",
    "why_not_highest",
]

ACKS_NONE: Final = 0
"""Nobody answers: fire and forget."""
ACKS_LEADER: Final = 1
"""The leader answers once it has appended; a failover may lose the record."""
ACKS_ALL: Final = -1
"""The leader answers once the high watermark has passed the batch."""

Address = Hashable
"""Where an actor is reached: a broker by its id (int), the controller on broker n by `("controller", n)`, a client by any
other hashable its driver chooses. Actors compare and return addresses, and never take one apart."""


def numbers_from(epoch: int) -> int:
    """Where requests that are numbered under this epoch begin: an answer to one of another epoch has another number.

    The epoch is of a broker or a controller, not negative; there is room for 2**32 requests.
    """
    return epoch % 2**31 << 32


def why_not_highest(topic: str, numbers: Sequence[int], there: Collection[int]) -> str:
    """Why these partitions, in falling order, cannot be removed from a topic that has those `there`; "": they can. The highest go first,
    so that what is left is numbered without a hole, and never all of them."""
    if len(numbers) >= len(there):
        return f"topic {topic!r} has {len(there)} partitions; the last one goes only with its topic"
    for number, next_ in zip(numbers, sorted(there, reverse=True), strict=False):
        if number != next_:
            return f"the highest partition of {topic!r} goes first: that is {next_} here, not {number}"
    return ""


class TopicPartition(NamedTuple):
    """A partition as people name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionId(NamedTuple):
    """The identity of one log, in every message and in the checksum of every stored batch (KIP-516; design, section 7).

    A topic that is deleted and created again has another `topic_id`; a partition number that is removed and added
    again has another `creation`. Old data can therefore never come back under a new name.
    """

    topic_id: bytes
    """16 bytes."""
    partition: int
    creation: int

    def __repr__(self) -> str:
        return f"{self.topic_id.hex()[:8]}-{self.partition}.{self.creation}"


@frozen
class Assignment:
    """Which brokers should hold a copy (AR), in order of preference: the first is the preferred leader."""

    replicas: tuple[int, ...]
    creation: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    original: tuple[int, ...] = ()
    """Replicas and their order before a reassignment began; empty when none runs."""


@frozen
class PartitionState:
    """Who leads a partition and who may: the value at `.../leaderAndISR`, written by the controller alone."""

    leader: int | None
    leader_epoch: int
    """Grows with each leadership; -1 before the first."""
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966): left while |ISR| < min_isr, hence still complete."""
    last_known: tuple[int, ...] = ()
    """The last set that held everything committed; asked when ISR and ELR are empty (KIP-966, unclean recovery)."""
    recovering: bool = False
    """Set by an unclean election until the leader has recovered (KIP-704); meanwhile the ISR may not grow."""
    controller_epoch: int = 0
    partition_epoch: int = 0
    """The version of this value in the store: grows by one with each stored change, the token of every proposal."""
    min_isr: int = 0
    """Fewest in-sync replicas that commit anything, as this state, its ELR and its leader reckon. A topic's new min_isr counts for a
    partition from the state on that says so (KAFKA-16540). 0: as the topic says."""
    anew: tuple[int, ...] = field(default=(), metadata={"unsent": True})
    """Those of the last-known set that have come back, since they were complete, with an empty folder, an older one, or damage. Only the
    controller asks: no message has it."""


@frozen
class BrokerInfo:
    """One registered broker, as others know it."""

    broker_id: int
    broker_epoch: int
    """Creation number of its registration: grows with each incarnation (KIP-380)."""
    endpoints: tuple[str, ...] = ()
    rack: str | None = None
    directory_id: str = ""
    fenced: bool = field(default=False, kw_only=True)
    """A fenced broker leads nothing and joins no ISR (KIP-841)."""
    draining: bool = field(default=False, kw_only=True)
    """In controlled shutdown."""
    overdue: bool = field(default=False, kw_only=True)
    """It has not acknowledged in time what the controller told it: it may act on an older state of its partitions."""
