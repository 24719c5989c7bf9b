"""The data path: produce, fetch, flushed ends, offsets."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from replog.model import PartitionId

__all__ = [
    "Epochs",
    "EpochsEntry",
    "EpochsResult",
    "Fetch",
    "FetchEntry",
    "Fetched",
    "FetchedEntry",
    "Flushed",
    "FlushedEntry",
    "ListOffsets",
    "ListOffsetsEntry",
    "ListedOffset",
    "ListedOffsets",
    "OffsetsForLeaderEpoch",
    "Produce",
    "ProduceEntry",
    "Produced",
    "ProducedEntry",
]

# ------------------------------------------------------------------------------------------------------------- produce


@define
class ProduceEntry:
    """One batch for one partition. Each entry is answered by itself, as soon as it is decided."""

    request: int
    """The client's number for this entry; comes back in the answer."""
    partition: PartitionId
    body: bytes
    """A batch body as `records.encode_records` makes it: brokers stamp it and never unpack it."""


@define
class Produce:
    """Append batches. `acks`: 0 nobody answers, 1 the leader has it, -1 everyone in the ISR has it (V3 G; KIP-98 for retries)."""

    acks: int
    timeout_ms: int
    """How long the leader may wait for the in-sync replicas."""
    entries: list[ProduceEntry]


@define
class ProducedEntry:
    request: int
    error: int = 0
    base_offset: int = -1
    """Of a duplicate: the offset of the original."""
    start_offset: int = -1
    leader: int = -1
    """A hint, with NOT_LEADER_OR_FOLLOWER: who leads, as far as this broker knows."""
    leader_epoch: int = -1


@define
class Produced:
    """Answers to the entries of one or more Produce messages. A marked batch whose work was done with another number of records is
    answered by a Published instead."""

    entries: list[ProducedEntry]


# --------------------------------------------------------------------------------------------------------------- fetch


@define
class FetchEntry:
    """One partition of a fetch. From a follower, `offset` acknowledges everything below it."""

    partition: PartitionId
    leader_epoch: int
    """The epoch the reader believes in (KIP-320); -1: a client that does not know."""
    offset: int
    last_epoch: int
    """Epoch of the reader's record before `offset`; -1 for an empty log or a client that does not check."""
    max_bytes: int
    flushes: bool = False
    """A follower under flush="ack", as far as it has heard: after a power cut it will answer for what it has said with Flushed, and for
    nothing else. So no fetch of it counts as stored, whatever the leader has heard of the topic."""


@define
class Fetch:
    """Read from a leader, or (clients) from an in-sync follower. Sessions are incremental (KIP-227).

    `session`, `session_epoch`: (0, -1) full, no session; (0, 0) full, open one; (id, n) what changed since epoch n-1;
    (id, -1) close it. Entries name the partitions that are new or changed, `forgotten` those to drop.
    """

    request: int
    replica: int
    """Broker id of a follower; -1 for a client."""
    broker_epoch: int
    """Of the follower (KIP-903); -1 for a client."""
    session: int
    session_epoch: int
    max_wait_ms: int
    """A minute at most counts; who has too many fetches waiting is answered at once."""
    min_bytes: int
    max_bytes: int
    entries: list[FetchEntry]
    forgotten: list[PartitionId] = field(factory=list)
    catch_up: bool = False
    """The follower's catch-up session: its megabytes must not delay the tail's acknowledgements."""
    verify: bool = False
    """The last answer was damaged: the leader is to check what it reads, and give its copy up if that is where the damage is."""


@define
class FetchedEntry:
    """One partition of the answer. `leader_epoch` and `offset` repeat the question: a follower that has moved on drops the entry."""

    partition: PartitionId
    leader_epoch: int
    offset: int
    error: int = 0
    high_watermark: int = -1
    start_offset: int = -1
    end_offset: int = -1
    """The answering replica's LEO: with OFFSET_OUT_OF_RANGE it decides what the follower does (PROTOCOL 4.1)."""
    diverging_epoch: int = -1
    """>= 0: the logs part; (epoch, end) as `end_offset_for` gave it; no data comes along."""
    diverging_end: int = -1
    slices: list[Any] = field(factory=list)
    """`ports.Slice` values: whole stored batches; bytes on the wire."""
    preferred_replica: int = -1


@define
class Fetched:
    """The answer to one Fetch; in a session it names only partitions with news."""

    request: int
    session: int
    session_epoch: int
    error: int
    entries: list[FetchedEntry]
    catch_up: bool = False
    """As in the Fetch: it travels apart from the answers that acknowledgements wait for."""


@define
class FlushedEntry:
    partition: PartitionId
    leader_epoch: int
    flushed_end: int


@define
class Flushed:
    """A follower's flushed ends, for partitions whose topic has flush="ack". Never parked, never answered."""

    replica: int
    broker_epoch: int
    entries: list[FlushedEntry]


# ------------------------------------------------------------------------------------------------------------- offsets


@define
class ListOffsetsEntry:
    partition: PartitionId
    leader_epoch: int
    at: int
    """-2 earliest, -1 latest (the high watermark), otherwise a timestamp in ms (V3 G; KIP-79): then the answer is the first batch that has
    a record at or after it, and the reader looks for the record."""


@define
class ListOffsets:
    """Answered entry by entry, in order, and all at one moment: two of one partition go together. Only one of them may be a timestamp
    (INVALID_REQUEST), and of more timestamps than `broker.offsets.TIMES_MAX` those behind them have to be asked for again
    (QUOTA_EXCEEDED)."""

    request: int
    entries: list[ListOffsetsEntry]


@define
class ListedOffset:
    partition: PartitionId
    error: int = 0
    offset: int = -1
    """-1 with error 0: nothing at or after that time. For a time, the base offset of the batch."""
    timestamp_ms: int = -1
    """For a time, the newest one in the batch."""
    leader_epoch: int = -1
    end_offset: int = -1
    """LEO of the leader, for people (describe)."""
    start_offset: int = -1


@define
class ListedOffsets:
    request: int
    entries: list[ListedOffset]


@define
class EpochsEntry:
    partition: PartitionId
    leader_epoch: int
    epoch: int


@define
class OffsetsForLeaderEpoch:
    """Where does this epoch end in your log? (KIP-320, for consumers that validate after a leader change.)"""

    request: int
    entries: list[EpochsEntry]


@define
class EpochsResult:
    partition: PartitionId
    error: int = 0
    epoch: int = -1
    end_offset: int = -1


@define
class Epochs:
    request: int
    entries: list[EpochsResult]
