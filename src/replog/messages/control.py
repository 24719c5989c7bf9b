"""The control path: views of the cluster, commands, proposals, wishes."""

from __future__ import annotations

from typing import Any

from attrs import define, field, frozen

from replog.config import TopicConfig
from replog.features import FEATURE_LEVEL_MIN
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState

__all__ = [
    "Admin",
    "AdminAnswer",
    "AlterIsr",
    "AlterIsrAnswer",
    "AlterIsrEntry",
    "AlterIsrResult",
    "ClusterView",
    "ControlledShutdown",
    "ControlledShutdownAnswer",
    "Disconnected",
    "FlushAll",
    "Heartbeat",
    "LeaderAndIsr",
    "LeaderAndIsrAnswer",
    "Leave",
    "Metadata",
    "PartitionNotice",
    "PartitionView",
    "Registered",
    "ReplicaState",
    "ReplicaStates",
    "ReplicaStatesAnswer",
    "ReplicasFailed",
    "StopEntry",
    "StopReplica",
    "StopReplicaAnswer",
    "TopicView",
    "Unreached",
    "Unsent",
    "UpdateMetadata",
]

# ------------------------------------------------------------------------------------------------------------ metadata


@frozen
class PartitionView:
    """One partition as clients and other brokers need it."""

    partition: int
    creation: int
    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    recovering: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@frozen
class TopicView:
    topic: str
    topic_id: bytes
    config: TopicConfig
    partitions: tuple[PartitionView, ...]
    """The changed ones in a delta, all of them in a full view."""
    end: int = -1
    """Every partition of the topic has a number below this: known ones from here on were removed. -1: not said."""


@define
class ClusterView:
    """The cluster, or what changed in it (design, section 6, "Routing"). `version` orders views of one controller epoch."""

    controller_epoch: int
    version: int
    since: int
    """The delta starts after this version; -1: complete, anything not named does not exist (but see `hidden`)."""
    controller: int
    brokers: list[BrokerInfo]
    topics: list[TopicView]
    removed_topics: list[bytes] = field(factory=list)
    removed_brokers: list[int] = field(factory=list)
    cluster_id: str = ""
    request: int = -1
    """Of the Metadata it answers; -1 when pushed."""
    missing: list[tuple[str, int, str]] = field(factory=list)
    """What becomes of topics that were sought and are not there: (topic, code, why). LEADER_NOT_AVAILABLE: it is being made, ask again.
    One that is not named is not made."""
    hidden: list[str] = field(factory=list)
    """Of a complete view: names of topics that are there, and that the controller could not read. They are as they were."""


@define
class Metadata:
    """Ask any broker for what changed since a version (-1: everything)."""

    request: int
    controller_epoch: int
    since: int
    sought: list[str] = field(factory=list)
    """Topics that somebody wants to write or read: they are made if the brokers' configuration says so (`auto_create_topics`)."""


@define
class UpdateMetadata:
    """The controller's delta to every broker, after each commit."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    view: ClusterView


# ------------------------------------------------------------------------------------------------------------ commands


@define
class PartitionNotice:
    """One partition as the store now has it: what a replica needs to lead or follow it."""

    partition: PartitionId
    topic: str
    state: PartitionState
    assignment: Assignment
    config: TopicConfig
    """min_isr is resolved (never None)."""


@define
class LeaderAndIsr:
    """Become leader or follower (V3 C). Refused below the highest controller epoch or for an earlier broker epoch.

    `complete` (V3's isInit): the list names every partition of this broker; what it does not name is kept, not served, and
    reported (PROTOCOL S19). Absence from any message never means deletion. `is_partial`: the controller could not read all topics, so
    what it does not name goes on as it was, and is reported all the same. A notice is sent again with other states: `as_of` counts what
    the controller had to say of this broker's copies when this one was made, so that one that is late takes back nothing that is newer.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    notice: int
    complete: bool
    ack_timeout_ms: int
    entries: list[PartitionNotice]
    is_partial: bool = False
    as_of: int = field(kw_only=True)


@define
class LeaderAndIsrAnswer:
    broker_id: int
    broker_epoch: int
    controller_epoch: int
    notice: int
    error: int
    errors: list[tuple[PartitionId, int]] = field(factory=list)
    """Partitions that failed, with why."""
    strays: list[PartitionId] = field(factory=list)
    """To a complete notice: local logs it did not name. They are kept until the store shows that they are gone."""


@define
class StopEntry:
    partition: PartitionId
    leader_epoch: int
    """Of the state that ended this replica (KIP-570); an older one than the replica's is ignored, equal is accepted; -2: topic deletion."""
    delete: bool


@define
class StopReplica:
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    notice: int
    entries: list[StopEntry]
    as_of: int = field(kw_only=True)
    """As that of a LeaderAndIsr."""


@define
class StopReplicaAnswer:
    broker_id: int
    broker_epoch: int
    controller_epoch: int
    notice: int
    error: int
    errors: list[tuple[PartitionId, int]] = field(factory=list)


@define
class Heartbeat:
    """Broker to controller, every heartbeat_ms: which notices it has applied. A gap makes the controller send again."""

    broker_id: int
    broker_epoch: int
    controller_epoch: int
    notice: int
    """Highest number such that it and all before it were applied; -1 before the first complete one."""


@define
class ControlledShutdown:
    """A broker is about to leave: move what it leads, and take it out of the ISRs (PROTOCOL 4.9)."""

    broker_id: int
    broker_epoch: int


@define
class ControlledShutdownAnswer:
    """Everything that could be moved has been, and the store says so: the broker may leave once it has applied `notice`."""

    broker_id: int
    broker_epoch: int
    controller_epoch: int
    error: int
    notice: int = -1
    """Settled at the first request: later notices do not put the end off (KAFKA-14292)."""
    remaining: list[PartitionId] = field(factory=list)
    """Some of the partitions that nobody else can lead: they are without a leader when it leaves, and it stays eligible."""
    remaining_total: int = 0


# --------------------------------------------------------------------------------------------------------- proposals


@define
class AlterIsrEntry:
    partition: PartitionId
    leader_epoch: int
    partition_epoch: int
    """As the leader last saw it: the compare-and-set token (KIP-497)."""
    isr: list[tuple[int, int]]
    """(broker id, broker epoch); epoch -1: a member no fetch came from yet (KIP-903)."""
    recovering: bool = False
    proposal: int = -1
    """The leader's number for this wish: grows with each, stays the same when it is sent again. Refused once is refused for good."""


@define
class AlterIsr:
    """A leader's wish to change ISRs. The controller decides, stores, and answers after the commit (KIP-497, PROTOCOL 4.3)."""

    request: int
    broker_id: int
    broker_epoch: int
    entries: list[AlterIsrEntry]
    controller_epoch: int = -1
    """Of the controller it is meant for. Any other answers NOT_CONTROLLER: it does not know what this one has refused."""


@define
class AlterIsrResult:
    partition: PartitionId
    error: int
    state: PartitionState | None = None
    """As stored now, when the partition is known."""


@define
class AlterIsrAnswer:
    request: int
    error: int
    """About the whole request: STALE_BROKER_EPOCH, NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED."""
    entries: list[AlterIsrResult]


@define
class ReplicasFailed:
    """A broker's disk failed for these partitions: hand their leadership over (empty: the whole directory)."""

    broker_id: int
    broker_epoch: int
    reason: str
    partitions: list[PartitionId]


@define
class ReplicaStates:
    """The controller asks replicas how far their copies reach, to choose among a last-known set (KIP-966)."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    request: int
    partitions: list[PartitionId]


@define
class ReplicaState:
    """One copy: last epoch and end, -1 and 0 when it is missing."""

    partition: PartitionId
    last_epoch: int
    end_offset: int
    high_watermark: int = -1


@define
class ReplicaStatesAnswer:
    """What a broker says to that: of those asked about, nothing of a copy that has failed (it is reported, with ReplicasFailed)."""

    broker_id: int
    broker_epoch: int
    request: int
    replicas: list[ReplicaState]


# ------------------------------------------------------------------------------------- within one process, never sent


@define
class Registered:
    """Membership tells the broker and the controller of its own process: registered under this broker epoch (-1: no longer)."""

    broker_id: int
    broker_epoch: int
    cluster_id: str = ""
    feature_level: int = FEATURE_LEVEL_MIN
    """Of the cluster: what may be written. Said again, under the same broker epoch, when it has been raised."""


@define
class Leave:
    """The driver tells the broker of its own process: ask the controller to be let go."""


@define
class FlushAll:
    """The driver tells the broker of its own process: a clean stop is near, so have every log flushed that is not, many at once."""


@define
class Disconnected:
    """A driver's hint: nobody is reached at `address` now; requests under way there may be lost. Never the only way to find out."""

    address: Any
    only_reads: bool = False
    """Only the connection that records are read over has ended: what else was asked there is not in doubt."""


@define
class Unreached:
    """A transport tells who said it: nobody was reached at `to`, and not a byte of `message` was sent, nor will be. `Disconnected`, which
    leaves in doubt whatever else was asked there, follows. Of `DOUBTED` messages only."""

    to: Any
    message: Any


@define
class Unsent:
    """A transport tells who said it: no frame is large enough for `message`, so it was not sent, and never can be."""

    to: Any
    message: Any
    reason: str
    """For people: its size, and what is allowed."""


# --------------------------------------------------------------------------------------------------------------- admin


@define
class Admin:
    """A wish of a person or program. Any broker forwards it to the controller. `verb`: "create_topic", "delete_topic", ..."""

    request: int
    verb: str
    arguments: dict[str, Any]
    """Plain values only: str, int, bool, None, lists and dicts of them."""
    origin: Any = None
    """Set by a broker that forwards: its own number for the client; comes back in the answer."""


@define
class AdminAnswer:
    request: int
    error: int
    message: str = ""
    result: dict[str, Any] = field(factory=dict)
    origin: Any = None
