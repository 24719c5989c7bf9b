"""Every limit and every timeout, with its unit in its name. Nothing else in the library holds a magic number.

Defaults follow PROTOCOL's list (Kafka's own where it has one): lag 30 s, fetch wait 500 ms, session 9 s,
heartbeat 2 s, checkpoint 5 s, unclean election off, min_isr 2 at replication factor 3.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

import attrs
from attrs import field, frozen
from attrs import validators as v

from replog.errors import UsageError

__all__ = [
    "BATCH_BYTES_MAX",
    "BATCH_HEADERS_MAX",
    "BATCH_RECORDS_MAX",
    "FRAME_BYTES_MAX",
    "HEADER_COST",
    "MAX_TOPIC_NAME",
    "MOVE_WISHES_MAX",
    "RECORD_HEADERS_MAX",
    "SCATTERED_KEYS_MAX",
    "WISH_ITEMS_MAX",
    "BrokerConfig",
    "ClientConfig",
    "TopicConfig",
    "check_partition_number",
    "check_rack",
    "check_topic_name",
    "default_min_isr",
]

KIB: Final = 1024
MIB: Final = 1024 * KIB

FRAME_BYTES_MAX: Final = 64 * MIB
"""Largest message between processes, all of its frame: a larger one is neither sent nor accepted."""
WISH_ITEMS_MAX: Final = 250_000
"""Items of lists and dicts in one request of a client; each takes a broker a hundred times its bytes."""
MOVE_WISHES_MAX: Final = 1_000
"""Partitions that one request may wish to be moved, whatever a controller decides in one slice; clients send half of it at a time."""
SCATTERED_KEYS_MAX: Final = 1_000
"""Whole numbers that are keys of one dict in a message, if they do not follow one another: Python looks them up by their value, so that
some can be chosen that are all in each other's way."""
BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - 1 * MIB
"""No configuration may allow a larger batch or answer: the rest of the frame is for what is said beside the records."""
BATCH_RECORDS_MAX: Final = 1 << 20
"""Records in one batch, whoever wrote it, and in one answer that a client unpacks beyond its first batch: each takes 150 bytes once it is
made, and compressed it may have been a 255th of a byte. What is in a log already is shown where it lies, whatever its number."""
RECORD_HEADERS_MAX: Final = 10_000
"""Headers of one record, whoever wrote it. What is in a log already is shown where it lies, whatever its number."""
BATCH_HEADERS_MAX: Final = 1 << 20
"""The same for all records of a batch together: each takes 200 bytes once it is made, and it may have been a 127th of a byte."""
HEADER_COST: Final = 64
"""Bytes that a header counts for besides its name and value, where records are measured: so a batch of at most BATCH_BYTES_MAX that was
filled by measure has no more than BATCH_HEADERS_MAX."""
MAX_TOPIC_NAME: Final = 249
_TOPIC_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")

Flush = Literal["os", "interval", "ack"]


def check_topic_name(name: object) -> str:
    """The name if a topic may have it, else UsageError: 1 to 249 characters of [A-Za-z0-9._-], not "." or "..".

    Of a subclass (a member of a StrEnum) it is what it is as a str: messages carry str and int alone.
    """
    if not isinstance(name, str):
        raise UsageError(f"a topic name is a str, not {name!r}")
    if not 1 <= len(name) <= MAX_TOPIC_NAME:
        shown = f"{name[:40]!r}{'...' if len(name) > 40 else ''}"
        raise UsageError(f"topic name {shown} has {len(name)} characters; allowed are 1 to {MAX_TOPIC_NAME}")
    if name in (".", ".."):
        raise UsageError(f"topic name {name!r} is not allowed: it names a folder")
    if not _TOPIC_CHARACTERS.issuperset(name):
        bad = next(c for c in name if c not in _TOPIC_CHARACTERS)
        raise UsageError(f"topic name {name!r} has {bad!r}; allowed are letters, digits and . _ - (ASCII)")
    return str.__str__(name)


def check_partition_number(partition: object) -> int:
    """The number if a partition may have it, as an int and no subclass of it, else UsageError."""
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise UsageError(f"a partition is an int, not {partition!r}")
    if not 0 <= partition < 2**31:
        raise UsageError(f"partition {partition} is out of range; partitions are numbered from 0 to {2**31 - 1}")
    return int.__int__(partition)


def check_rack(rack: object) -> str | None:
    """The rack if a broker may stand there, else UsageError: None, or a str that UTF-8 can encode, as every message that names it.

    Nor may it hold what cannot be seen: to a terminal that shows it, an escape or the end of a line means something else.
    """
    if rack is None:
        return None
    if not isinstance(rack, str):
        raise UsageError(f"a rack is a str, or None, not {rack!r:.120}")
    try:
        rack.encode()
    except UnicodeEncodeError:
        raise UsageError(f"rack {rack!r:.120} cannot be written in UTF-8") from None
    if not rack.isprintable():
        unseen = next(one for one in rack if not one.isprintable())
        raise UsageError(f"rack {rack!r:.120} holds {unseen!r}; allowed are characters that can be printed, and spaces")
    return rack


def default_min_isr(replication_factor: int) -> int:
    """min_isr where the topic does not say: 1 for one or two replicas, 2 for three, a majority above that."""
    return 1 if replication_factor < 3 else replication_factor // 2 + 1


def _whole(low: int, high: int) -> Any:
    """An int (never a bool) from low to high inclusive."""

    def check(_instance: object, attribute: Any, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"{attribute.name} is an int, not {value!r}")
        if not low <= value <= high:
            raise UsageError(f"{attribute.name} is {value}; allowed are {low} to {high}")

    return check


def _one_of(*allowed: object) -> Any:
    def check(_instance: object, attribute: Any, value: object) -> None:
        if value not in allowed:
            raise UsageError(f"{attribute.name} is {value!r}; allowed are {', '.join(map(repr, allowed))}")

    return check


def _share(_instance: object, attribute: Any, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise UsageError(f"{attribute.name} is {value!r}; allowed are 0 to 1")


def _flag(_instance: object, attribute: Any, value: object) -> None:
    if not isinstance(value, bool):
        raise UsageError(f"{attribute.name} is True or False, not {value!r}")


def _known(cls: type, values: Mapping[str, Any], aliases: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`values` with aliases resolved; an unknown key is a UsageError that names the nearest known one."""
    if not isinstance(values, Mapping):
        raise UsageError(f"a configuration is a mapping of keys to values, not {values!r:.120}")
    names = [a.name for a in attrs.fields(cls)]
    known: dict[str, Any] = {}
    given: dict[str, str] = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise UsageError(f"a configuration key is a str, not {key!r:.120}")
        name = (aliases or {}).get(key, key)
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(names))}"
            raise UsageError(f"unknown configuration key {key!r}{hint}")
        if name in known:
            raise UsageError(f"configuration key {name!r} is given twice: as {given[name]!r} and as {key!r}, which are two names of it")
        known[name], given[name] = value, key
    return known


_MAX64: Final = 2**63 - 1

_TOPIC_ALIASES: Final = {
    "min_insync_replicas": "min_isr",
    "unclean_leader_election_enable": "unclean_leader_election",
    "max_message_bytes": "max_batch_bytes",
}


@frozen
class TopicConfig:
    """What a topic's partitions keep, and how safely. Stored with the topic; brokers never guess it."""

    min_isr: int | None = field(default=None, validator=v.optional(_whole(1, 64)))
    """Smallest ISR that commits anything; None means `default_min_isr(replication factor)`, resolved at creation."""
    flush: Flush = field(default="os", validator=_one_of("os", "interval", "ack"))
    """"os": the page cache; "interval": fsync every flush_interval_ms; "ack": an append counts once it is flushed."""
    flush_interval_ms: int = field(default=1_000, validator=_whole(1, _MAX64))
    segment_bytes: int = field(default=256 * MIB, validator=_whole(256, 2**31 - 1))
    """A segment that would grow past this is rolled first."""
    segment_ms: int = field(default=7 * 24 * 3_600_000, validator=_whole(1, _MAX64))
    """A segment whose first batch is older than this is rolled at the next append."""
    retention_ms: int | None = field(default=None, validator=v.optional(_whole(1, _MAX64)))
    """Segments whose newest record is older than this are removed; None keeps everything."""
    retention_bytes: int | None = field(default=None, validator=v.optional(_whole(1, _MAX64)))
    """Oldest segments are removed while the log is larger than this; None keeps everything."""
    max_batch_bytes: int = field(default=8 * MIB, validator=_whole(256, BATCH_BYTES_MAX))
    """Largest batch, header included."""
    unclean_leader_election: bool = field(default=False, validator=_flag)
    """Allow the controller to elect a replica that may miss committed records (KIP-106; off by default)."""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """From plain keys; Kafka's names are accepted as aliases. Raises UsageError on an unknown key or a bad value."""
        return cls(**_known(cls, values, _TOPIC_ALIASES))

    @classmethod
    def named(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The same values, each under the name of its key here. Raises UsageError on an unknown key or one that is given twice."""
        return _known(cls, values, _TOPIC_ALIASES)

    @classmethod
    def kept(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The same values, for what is stored already: a batch size of a time when more was allowed counts as the most that is now."""

        def at_most(key: str, value: Any) -> Any:
            is_limit = _TOPIC_ALIASES.get(key, key) == "max_batch_bytes" and type(value) is int
            return min(value, BATCH_BYTES_MAX) if is_limit else value

        return {key: at_most(key, value) for key, value in values.items()}

    def to_mapping(self) -> dict[str, Any]:
        """The keys that differ from the defaults, as plain values: what the store keeps."""
        return {a.name: getattr(self, a.name) for a in attrs.fields(type(self)) if getattr(self, a.name) != a.default}


@frozen
class BrokerConfig:
    """Limits and timeouts of one broker, its controller and its log directory."""

    replica_lag_ms_max: int = field(default=30_000, validator=_whole(1, _MAX64))
    """A follower that was not caught up for this long leaves the ISR (checked every half of it)."""
    fetch_wait_ms: int = field(default=500, validator=_whole(1, 60_000))
    """How long a leader may hold a follower's fetch when nothing is new."""
    fetch_bytes_max: int = field(default=8 * MIB, validator=_whole(4 * KIB, BATCH_BYTES_MAX))
    """Bytes in one fetch answer (one larger batch still goes through alone)."""
    fetch_partition_bytes_max: int = field(default=1 * MIB, validator=_whole(1 * KIB, BATCH_BYTES_MAX))
    fetch_timeout_ms: int = field(default=10_000, validator=_whole(1, _MAX64))
    """A follower opens a new session when an answer takes longer than this."""
    retry_backoff_ms: int = field(default=50, validator=_whole(1, 60_000))
    """First pause before anything is tried again; doubles up to retry_backoff_ms_max."""
    retry_backoff_ms_max: int = field(default=2_000, validator=_whole(1, 600_000))
    proposal_timeout_ms: int = field(default=3_000, validator=_whole(1, _MAX64))
    """An ISR proposal without an answer is sent again, unchanged, after this."""
    ack_timeout_ms: int = field(default=3_000, validator=_whole(1, _MAX64))
    """A notice is sent again, in its newest form, after this long without an acknowledgement of it or of one before it."""
    session_ms: int = field(default=9_000, validator=_whole(100, 86_400_000))
    """Others take a broker for dead after this long without a sign of life; at most a day."""
    heartbeat_ms: int = field(default=2_000, validator=_whole(10, _MAX64))
    leader_imbalance_check_ms: int = field(default=300_000, validator=_whole(0, _MAX64))
    """How often the controller gives leaderships back to preferred leaders that are in sync; 0: only when asked."""
    leader_imbalance_max: float = field(default=0.1, validator=_share)
    """... of brokers that lead less than all but this share of what they are preferred for."""
    shutdown_timeout_ms: int = field(default=10_000, validator=_whole(0, _MAX64))
    """A broker that is stopped waits so long for the controller to move what it leads; 0: it does not ask."""
    reconcile_ms: int = field(default=30_000, validator=_whole(10, _MAX64))
    """How often the controller scans the store for changes whose watch was lost."""
    slice_partitions_max: int = field(default=1_000, validator=_whole(1, 100_000))
    """A decision or a publish handles at most this many partitions before the next event gets its turn; fetches of clients that
    waited are answered for so many at a time."""
    checkpoint_interval_ms: int = field(default=5_000, validator=_whole(1, _MAX64))
    retention_check_ms: int = field(default=300_000, validator=_whole(1, _MAX64))
    deletion_delay_ms: int = field(default=60_000, validator=_whole(0, _MAX64))
    """Quarantined data is deleted after this."""
    rejected_wish_ms: int = field(default=24 * 3_600_000, validator=_whole(1, _MAX64))
    open_files_max: int = field(default=512, validator=_whole(8, 1_000_000))
    """Segment files held open at once by a log directory, and those that waiting answers need. A broker process takes no more than half of
    the descriptors that connections leave (`ulimit -n`, `connections_max`), and says so."""
    index_interval_bytes: int = field(default=16 * KIB, validator=_whole(1, 2**31 - 1))
    """At most one index entry per this many bytes of log."""
    producers_max: int = field(default=10_000, validator=_whole(1, 10_000_000))
    """Producers remembered per partition, and writers whose work has versions; of each the one silent for longest is forgotten first."""
    producer_expiry_ms: int = field(default=24 * 3_600_000, validator=_whole(1, _MAX64))
    writer_expiry_ms: int = field(default=7 * 24 * 3_600_000, validator=_whole(1, _MAX64))
    """A version of a writer (`append_once`, `publish`) is remembered so long after the call; repeated later it is stored twice."""
    stage_bytes_max: int = field(default=8 << 30, validator=_whole(0, _MAX64))
    """Most that is put aside on this broker to be published later, all of it together; on disk, below the data folder. Where clients prove
    who they are, one principal may have half of it. Small pieces count for so much that the broker keeps at most 512 MiB in mind."""
    stage_expiry_ms: int = field(default=3_600_000, validator=_whole(1, _MAX64))
    """What was put aside is dropped when nothing of its version was staged, or asked to be published, for so long."""
    publish_slice_bytes: int = field(default=4 * MIB, validator=_whole(1, 2**31 - 1))
    """Of publications, all of them together, so much is appended before whatever else has come gets its turn; one batch always is."""
    waiting_appends_max: int = field(default=100_000, validator=_whole(1, 10_000_000))
    waiting_fetches_max: int = field(default=100_000, validator=_whole(1, 10_000_000))
    fetch_sessions_max: int = field(default=1_000, validator=_whole(1, 1_000_000))
    batch_records_max: int = field(default=1_000_000, validator=_whole(1, BATCH_RECORDS_MAX))
    outstanding_messages_max: int = field(default=1_000_000, validator=_whole(100, 100_000_000))
    """The in-process driver raises, naming the loop, when one pump passes more messages than this."""
    connections_max: int = field(default=10_000, validator=_whole(8, 1_000_000))
    """Connections that a broker has open, accepted and dialed; clients may have all but an eighth of them. Never more than three quarters
    of the descriptors that the process may have (`ulimit -n`)."""
    connections_per_address_max: int = field(default=0, validator=_whole(0, 1_000_000))
    """... of which so many may come from one address (IPv6: from one /64); 0: as many as there are. Brokers of one host share theirs."""
    handshake_timeout_ms: int = field(default=5_000, validator=_whole(100, 600_000))
    """Whoever connects must have said, and proven, who it is by then."""
    reassignments_max: int = field(default=50, validator=_whole(1, 100_000))
    """Partitions that move at a time; more wait for their turn."""
    reassignment_bytes_per_s: int = field(default=0, validator=_whole(0, _MAX64))
    """A broker fetches copies that reassignments add to it no faster than this, all of them together; 0: as fast as it can."""
    topic_partitions_max: int = field(default=100_000, validator=_whole(1, 10_000_000))
    topic_bytes_max: int = field(default=600_000, validator=_whole(256, 2**31 - 1))
    """Largest entry of one topic in the metadata store, about 42 bytes per partition of three replicas. A node of ZooKeeper, and the
    transaction that writes it, must stay below the servers' jute.maxbuffer (1 MiB), also while partitions are reassigned."""
    auto_create_topics: bool = field(default=False, validator=_flag)
    """Make a topic that a producer or a reader asks for and that does not exist, as the next four keys say. Every broker needs it: the
    one that is asked passes the wish on, the controller makes the topic as its own configuration says."""
    auto_create_partitions: int = field(default=1, validator=_whole(1, 500))
    """At most so many that one transaction makes them all: nobody sees half of the topic."""
    auto_create_replication_factor: int = field(default=0, validator=_whole(0, 64))
    """0: min(3, live brokers), as `create_topic` has it."""
    auto_create_min_isr: int = field(default=0, validator=_whole(0, 64))
    """0: `default_min_isr(replication factor)`."""
    auto_create_topics_max: int = field(default=10_000, validator=_whole(1, 10_000_000))
    """Once the cluster has this many topics, more are made by `create_topic` only."""
    self_checks: bool = field(default=False, validator=_flag)
    """Check invariants while running, of whatever a message was about; a broker in which one does not hold stops (InvariantViolated)."""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """From plain keys. Raises UsageError on an unknown key or a bad value."""
        return cls(**_known(cls, values))


@frozen
class ClientConfig:
    """Limits and timeouts of one client."""

    request_timeout_ms: int = field(default=30_000, validator=_whole(1, _MAX64))
    """How long a broker may wait for the in-sync replicas before it answers RequestTimedOut."""
    unanswered_ms: int = field(default=3_000, validator=_whole(100, 600_000))
    """When a broker has not answered for this long, others are asked whether it still leads; what it has goes to the new leader if not.
    For so long at most, too, the first polls of a consumer, and each seek, wait to be told where "latest" or a time is."""
    delivery_timeout_ms: int = field(default=120_000, validator=_whole(1, _MAX64))
    """How long a batch is tried before its deliveries fail with TimedOut."""
    retry_backoff_ms: int = field(default=20, validator=_whole(1, 60_000))
    retry_backoff_ms_max: int = field(default=1_000, validator=_whole(1, 600_000))
    metadata_max_age_ms: int = field(default=300_000, validator=_whole(1_000, _MAX64))
    """How long after its last question a client asks for metadata again although nothing has failed (Kafka's `metadata.max.age.ms`)."""
    max_in_flight: int = field(default=5, validator=_whole(1, 5))
    """Batches under way per partition; a broker remembers the last five of each writer (KIP-98)."""
    batch_bytes: int = field(default=256 * KIB, validator=_whole(64, BATCH_BYTES_MAX))
    linger_ms: int = field(default=0, validator=_whole(0, 60_000))
    buffer_bytes: int = field(default=32 * MIB, validator=_whole(1 * KIB, 2**40))
    max_block_ms: int = field(default=60_000, validator=_whole(0, _MAX64))
    fetch_bytes: int = field(default=1 * MIB, validator=_whole(1 * KIB, BATCH_BYTES_MAX))
    fetch_wait_ms: int = field(default=500, validator=_whole(0, 60_000))
    max_record_bytes: int = field(default=8 * MIB - 64 * KIB, validator=_whole(1, BATCH_BYTES_MAX))
    """Largest record (key, value and headers together, and 64 bytes for each header)."""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """From plain keys. Raises UsageError on an unknown key or a bad value."""
        return cls(**_known(cls, values))
