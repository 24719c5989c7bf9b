"""What the controller decides about, one value each, in two classes: urgent events run before background ones.

Failures, elections and proposals are urgent. Creations and deletions wait for them, between slices.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from attrs import field, frozen

from replog.controller.changes import Broker, Topic, WishesHidden
from replog.messages import Admin, AlterIsr, ControlledShutdown
from replog.metadata.layout import REJECTED
from replog.model import Address, PartitionId, PartitionState

__all__ = [
    "AdminAsked",
    "BalanceDue",
    "BrokerAcknowledged",
    "BrokersSeen",
    "CopiesGone",
    "DeletionsSeen",
    "DrainingEnded",
    "Event",
    "FinishDeletion",
    "IsrProposed",
    "LastKnownAnswered",
    "LaterStateClaimed",
    "MovesDue",
    "Recheck",
    "RejectionsSeen",
    "ReplicasLost",
    "ReplicasServed",
    "RoomChanged",
    "ShutdownAsked",
    "SilenceChanged",
    "TopicsSeen",
    "Wish",
    "WishesSeen",
    "is_urgent",
]


@frozen
class BrokersSeen:
    """All registrations, as the store lists them now."""

    brokers: tuple[Broker, ...]


@frozen
class TopicsSeen:
    """Topics whose node is in the store and that the cluster did not know: made by a tool, or left by an earlier controller."""

    topics: tuple[Topic, ...] = ()
    states: tuple[tuple[PartitionId, PartitionState], ...] = ()
    """What the store already says about their partitions."""
    gone: tuple[bytes, ...] = ()
    """Ids of topics whose node has disappeared."""

    def without(self, left_out: Collection[bytes]) -> TopicsSeen:
        """The same without topics of these ids, which are not known to be whole."""
        topics = tuple(topic for topic in self.topics if topic.topic_id not in left_out)
        states = tuple((partition, state) for partition, state in self.states if partition.topic_id not in left_out)
        return TopicsSeen(topics, states, self.gone)


@frozen
class Recheck:
    """Decide the partitions that are due again, one slice of them."""


@frozen
class IsrProposed:
    """A leader wishes to change ISRs."""

    sender: Address
    proposal: AlterIsr


@frozen
class LaterStateClaimed:
    """A leader has proposed a change of a later state than the one that is known; decided once the store has been read again."""

    broker_id: int
    partition: PartitionId
    leader_epoch: int
    partition_epoch: int


@frozen
class RoomChanged:
    """A broker has no room to make copies of some partitions (its disk is full), or has made them at last."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[tuple[PartitionId, bool], ...]
    """(partition, whether the broker has a copy of it now)."""


@frozen
class ReplicasLost:
    """A broker's disk failed for these partitions (empty: all of its partitions)."""

    broker_id: int
    broker_epoch: int
    reason: str
    partitions: tuple[PartitionId, ...] = ()


@frozen
class ReplicasServed:
    """A broker has applied a notice of copies whose disk has failed, as far as the controller knows: those were put away since."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionId, ...]


@frozen
class LastKnownAnswered:
    """Every replica of a last-known set has said how far it reaches, and of the others who were asked those who answer."""

    partition: PartitionId
    leader_epoch: int
    """Of the state they were asked about."""
    answers: tuple[tuple[int, int, int], ...]
    """(broker, last epoch, end offset)."""
    asked: tuple[int, ...]
    """Everybody who was."""


@frozen
class BrokerAcknowledged:
    """A broker has applied the complete notice of its epoch."""

    broker_id: int
    broker_epoch: int
    strays: tuple[PartitionId, ...] = ()
    """Logs it holds that the notice did not name."""
    removals: tuple[bytes, ...] = ()
    """Deleted topics it was still listed for when the notice was made."""


@frozen
class ShutdownAsked:
    """A broker wants to leave."""

    sender: Address
    message: ControlledShutdown


@frozen
class BalanceDue:
    """It is time to give leaderships back to preferred leaders."""

    rest: tuple[PartitionId, ...] | None = None
    """What earlier slices have left; None: look at all of them."""


@frozen
class SilenceChanged:
    """A broker owes answers to notices, or no longer does."""

    broker_id: int
    broker_epoch: int
    is_overdue: bool
    is_silent: bool


@frozen
class DrainingEnded:
    """The life of a broker that was draining is over: the record of it can go."""

    broker_id: int


@frozen
class CopiesGone:
    """A broker has put its copies of a deleted topic out of service."""

    broker_id: int
    topic_id: bytes


@frozen
class AdminAsked:
    """A wish of a person or program. `token` becomes the id of a topic, so that deciding twice makes one topic."""

    sender: Address
    request: Admin
    token: bytes = field(default=b"", repr=False)
    progress: Any = None
    """How far a verb is that goes on from slice to slice, where the store does not say so; None at first."""
    events_ahead: int = 0
    """Events that waited or were under way when it was asked."""
    partitions_ahead: int = 0
    """Partitions that were due then: one event stands for as many as one decision takes."""


@frozen
class Wish:
    """What somebody has written at an admin path, and at which version."""

    path: str
    value: bytes
    version: int
    created: int | None = None
    """Which node it is: one that is removed and written anew begins at the same version. None: whichever there is."""


@frozen
class DeletionsSeen:
    """What the store holds where deletions are wished for."""

    wishes: tuple[Wish, ...]


@frozen
class WishesSeen:
    """The wishes in one row of the store (`layout`), sorted by path."""

    row: str
    wishes: tuple[Wish, ...]
    is_rest: bool = False
    """What an earlier slice of the same look has left."""
    hidden: WishesHidden = field(factory=WishesHidden)


@frozen
class MovesDue:
    """Go on with the wishes to move partitions: one slice of what can be done now."""


@frozen
class RejectionsSeen:
    """What is kept of rejected wishes: (path, time of day of the rejection, version); without a time if it cannot be read."""

    wishes: tuple[tuple[str, int | None, int], ...]
    row: str = REJECTED


@frozen
class FinishDeletion:
    """The next slice of a deletion whose wish is in the store."""

    topic_id: bytes


Event = (
    BrokersSeen
    | TopicsSeen
    | DeletionsSeen
    | Recheck
    | IsrProposed
    | LaterStateClaimed
    | ReplicasLost
    | ReplicasServed
    | RoomChanged
    | LastKnownAnswered
    | BrokerAcknowledged
    | CopiesGone
    | AdminAsked
    | FinishDeletion
    | WishesSeen
    | RejectionsSeen
    | MovesDue
    | ShutdownAsked
    | SilenceChanged
    | BalanceDue
    | DrainingEnded
)

_BACKGROUND = (
    TopicsSeen,
    DeletionsSeen,
    RejectionsSeen,
    CopiesGone,
    AdminAsked,
    FinishDeletion,
    WishesSeen,
    MovesDue,
    DrainingEnded,
    BalanceDue,
)


def is_urgent(event: Event) -> bool:
    """Whether the event runs before anything that can wait."""
    return not isinstance(event, _BACKGROUND)
