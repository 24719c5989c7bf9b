"""What can change in the cluster as the controller knows it, one value each, and what the values are about.

`Cluster.apply` takes them; a `Step` carries those that its transaction stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import Factory, field, frozen

from replog.config import TopicConfig
from replog.features import FIRST, Levels
from replog.metadata.judgements import LossRecord
from replog.metadata.layout import ClusterIdentity
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.ports import LossReport

__all__ = [
    "Admitted",
    "AdmittedGone",
    "Broker",
    "BrokerAdmitted",
    "BrokerGone",
    "BrokerSet",
    "Change",
    "DeletionGone",
    "DeletionSet",
    "DrainingGone",
    "DrainingSet",
    "Due",
    "HiddenSet",
    "IdentitySet",
    "LossNoted",
    "MoveWishGone",
    "MoveWished",
    "NodeStuck",
    "NodesFreed",
    "Parked",
    "ProposalRefused",
    "RejectionNoted",
    "RemovedGone",
    "RemovedSet",
    "ReplicaBroken",
    "RoomSet",
    "Settled",
    "SilenceSet",
    "StateGone",
    "StateSet",
    "Stranger",
    "Topic",
    "TopicGone",
    "TopicSet",
    "Unreadable",
    "WishNoted",
    "WishesHidden",
]


@frozen
class Admitted:
    """The last incarnation of a broker that was let in: its losses have been dealt with (stored by the controller)."""

    broker_epoch: int
    incarnation: str
    directory_id: str
    version: int
    is_early: bool = False
    """What it leads by what is stored may be what an earlier life led: no life leads an epoch in which another may have written (P-44)."""


@frozen
class Broker:
    """A registered broker. `info.fenced` until its epoch is the admitted one."""

    info: BrokerInfo
    loss: LossReport = field(factory=LossReport)
    incarnation: str = ""
    supports: Levels = FIRST
    """Feature levels, as its registration says."""
    lossy: frozenset[PartitionId] = field(default=Factory(lambda self: frozenset(self.loss.lossy), takes_self=True), eq=False, repr=False)
    """Those of `loss`: they may be very many, and each partition is looked up."""

    def has_begun_anew(self, partition: PartitionId, admitted: Admitted | None) -> bool:
        """Whether this life found an empty folder, or one of another life, or damage in this log: what it lacks may be anything, not just
        what was not flushed."""
        loss = self.loss
        if not loss.lives or loss.kind == "replaced" or (loss.kind == "corrupt" and partition in self.lossy):
            return True
        return admitted is not None and self.is_of_another(admitted)

    def is_of_another(self, admitted: Admitted) -> bool:
        """Whether this life does not go on from the one that was let in last: in another folder, or in an image of a life before that one,
        which knows nothing of what came since (KIP-966)."""
        if admitted.incarnation == self.incarnation:
            return False
        return admitted.directory_id != self.info.directory_id or admitted.incarnation not in self.loss.lives

    def has_lost(self, admitted: Admitted | None, *, is_named: bool) -> bool:
        """Whether this life, after the one that was let in last, has lost records of a partition that its report names, or does not."""
        if admitted is not None and admitted.incarnation == self.incarnation:
            return False  # the same process lost its session, not its data
        if admitted is not None and self.is_of_another(admitted):
            return True
        loss, is_reported = self.loss, self.loss.kind == "replaced" or is_named
        if admitted is None:
            return is_reported
        # Whatever was found counts only if this life goes on from the one that was let in, be it over others that nobody came to let in.
        is_over = loss.since in loss.lives and loss.lives.index(admitted.incarnation) <= loss.lives.index(loss.since)
        return is_reported and not is_over


@frozen
class Topic:
    """A topic as stored; `version` is that of its node."""

    topic: str
    topic_id: bytes
    config: TopicConfig
    """min_isr is resolved."""
    assignments: Mapping[int, Assignment]
    next_creation: int = 0
    version: int = 0
    former: tuple[int, ...] = ()
    """Brokers that may hold copies of partitions that were removed, or moved elsewhere."""
    created: int | None = field(default=None, eq=False, repr=False)
    """The creation number of its node; None: it is about to be made."""

    def identity(self, partition: int) -> PartitionId:
        """The identity of one of its partitions."""
        return PartitionId(self.topic_id, partition, self.assignments[partition].creation)

    def identities(self) -> Iterator[PartitionId]:
        """All of its partitions, in order."""
        return (self.identity(partition) for partition in sorted(self.assignments))


@frozen
class BrokerSet:
    """A broker registered, or registered anew."""

    broker: Broker


@frozen
class BrokerGone:
    """A broker's registration is gone."""

    broker_id: int


@frozen
class BrokerAdmitted:
    """A broker's incarnation was let in."""

    broker_id: int
    admitted: Admitted


@frozen
class AdmittedGone:
    """There is no record any more of which life of a broker was let in."""

    broker_id: int


@frozen
class TopicSet:
    """A topic exists."""

    topic: Topic


@frozen
class TopicGone:
    """A topic's node is gone from the store."""

    topic_id: bytes


@frozen
class StateSet:
    """A partition's state, as stored."""

    partition: PartitionId
    state: PartitionState


@frozen
class StateGone:
    """A partition's state node is gone."""

    partition: PartitionId


@frozen
class DeletionSet:
    """A topic is to be deleted: the wish is stored (at this version; `created`: its node's creation number, if known)."""

    topic: str
    topic_id: bytes
    version: int
    created: int | None = None


@frozen
class DeletionGone:
    """A deletion wish is gone."""

    topic_id: bytes


@frozen
class RemovedSet:
    """Brokers that still hold copies of a deleted topic."""

    topic_id: bytes
    brokers: tuple[int, ...]
    version: int


@frozen
class RemovedGone:
    """No broker holds copies of that deleted topic any more."""

    topic_id: bytes


@frozen
class LossNoted:
    """A decision that may lose records was recorded (at this version), or that is forgotten (-1)."""

    path: str
    version: int
    record: LossRecord | None = None


@frozen
class RejectionNoted:
    """A wish was put away with its error (at this version), or that is forgotten (-1)."""

    path: str
    version: int


@frozen
class WishNoted:
    """A wish is stored (at this version), or gone (-1)."""

    path: str
    version: int


@frozen
class MoveWished:
    """Somebody wishes a partition elsewhere (None: to cancel that), as stored at this version."""

    partition: PartitionId
    path: str
    version: int
    target: tuple[int, ...] | None
    created: int | None = None
    """The creation number of its node; None: this controller has just made it, and has not looked yet."""


@frozen
class MoveWishGone:
    """That wish is no longer stored."""

    partition: PartitionId


@frozen
class NodeStuck:
    """A node under `/admin` cannot be removed, because somebody has written below it: what is wished there is let be."""

    path: str
    version: int
    created: int
    partition: PartitionId | None = None
    """What it is about, if it is a wish about a partition that there is."""


@frozen
class Stranger:
    """Something is below a node that is to be removed; None: it is there no more, or has to be looked for again."""

    path: str
    node: str | None


@frozen
class Unreadable:
    """What is at a path (at this version) cannot be read, or is about something else: it counts as absent, and is written over. -1: no
    more."""

    path: str
    version: int


@frozen
class HiddenSet:
    """What cannot be read of that which says what a broker has lost, which partitions that is about, and which copies are wanted."""

    topics: frozenset[str] = frozenset()
    """Names of topics that are not known here, because they or a state of them could not be read, or they may be half deleted."""
    admissions: frozenset[int] = frozenset()
    """Brokers of which the store does not say which incarnation was let in last."""
    others: bool = False
    """Whether the level of those records may not be listed: whoever is not known may have one."""
    garbled: frozenset[int] = frozenset()
    """Brokers whose record was given out, and is damaged: it is written over."""
    removals: bool = False
    """Whether the store does not say of every deleted topic who may hold copies of it."""

    @property
    def hides_copies(self) -> bool:
        """Whether there may be copies that are wanted, or that are to go, and nobody can say which."""
        return bool(self.topics) or self.removals

    @property
    def hides_admissions(self) -> bool:
        """Whether such a record may be there, and is not known."""
        return self.others or bool(self.admissions)


@frozen
class WishesHidden:
    """Where wishes of a row may be, and could not be read.

    As a change it is about wishes to move partitions.
    """

    nodes: frozenset[str] = frozenset()
    levels: tuple[str, ...] = ()
    """Each with a slash behind it: whatever is below."""

    def hides(self, path: str) -> bool:
        """Whether what is at a path could not be read: it may be there, or be another one by now."""
        return path in self.nodes or path.startswith(self.levels)


@frozen
class NodesFreed:
    """It is time to try again what could not be removed, or stored, and to look again at what could not be read."""


@frozen
class ReplicaBroken:
    """The disk under one replica failed; it counts as dead for that partition until its broker comes back with another epoch.

    Epoch -1: it is so no more, because the copy was put away and made anew.
    """

    partition: PartitionId
    broker_id: int
    broker_epoch: int


@frozen
class RoomSet:
    """Whether a broker has room for its copy. Without it counts as dead for that partition, but nothing that it held is lost."""

    partition: PartitionId
    broker_id: int
    broker_epoch: int
    has_room: bool


@frozen
class DrainingSet:
    """A broker's life is to end: the record of it is stored (at this version). It says nothing about a later life."""

    broker_id: int
    broker_epoch: int
    version: int


@frozen
class DrainingGone:
    """The record that a broker's life is to end is gone."""

    broker_id: int


@frozen
class SilenceSet:
    """Whether a broker owes answers to notices. One that is silent leads nothing and joins no ISR, although its session lives."""

    broker_id: int
    broker_epoch: int
    is_overdue: bool
    is_silent: bool


@frozen
class ProposalRefused:
    """A leader is told that its proposal was not stored: it never will be, whatever becomes of the reason."""

    partition: PartitionId
    partition_epoch: int
    proposal: int


@frozen
class IdentitySet:
    """The record of the cluster (at this version), with its feature level; None: there is none that can be read."""

    identity: ClusterIdentity | None
    version: int = -1


@frozen
class Due:
    """These partitions have to be decided again."""

    partitions: tuple[PartitionId, ...]


@frozen
class Settled:
    """These partitions have been decided."""

    partitions: tuple[PartitionId, ...]


@frozen
class Parked:
    """The state of these partitions cannot be stored now: they are decided again at the next `reconcile`, or when they are due anew."""

    partitions: tuple[PartitionId, ...]
    is_refused: bool = False
    """The store refuses what is to be written, as opposed to: what is there cannot be read."""


@frozen
class MovesHeld:
    """What is wished of these partitions cannot be stored now: they have no turn until the next `reconcile`, or another wish."""

    partitions: tuple[PartitionId, ...]


Change = (
    BrokerSet
    | BrokerGone
    | BrokerAdmitted
    | AdmittedGone
    | TopicSet
    | TopicGone
    | StateSet
    | StateGone
    | DeletionSet
    | DeletionGone
    | RemovedSet
    | RemovedGone
    | LossNoted
    | RejectionNoted
    | MoveWished
    | MoveWishGone
    | WishNoted
    | NodeStuck
    | Stranger
    | Unreadable
    | HiddenSet
    | NodesFreed
    | ReplicaBroken
    | RoomSet
    | DrainingSet
    | DrainingGone
    | SilenceSet
    | ProposalRefused
    | IdentitySet
    | Due
    | Settled
    | Parked
    | MovesHeld
    | WishesHidden
)
