"""Every error of the library: one tree, one table.

The tree has three branches, because a caller has three things to do::

    ReplogError
    ├── UsageError      you are wrong: fix the call (nothing was sent, nothing was changed)
    ├── Rejected        the cluster refused: `code` says why, `retriable` whether trying again can help
    └── Unavailable     the outcome is unknown: it may or may not have happened
        └── TimedOut    ... because time ran out (also a TimeoutError)

Leaves of `Rejected` carry Kafka's names and numbers (Kafka protocol guide, "Error codes"); those that Kafka has no
number for are counted from 1001. The wire carries the number alone; names may change, numbers never do: a test holds the table.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from replog.errors.codes import Code

__all__ = [
    "CODES",
    "NONE",
    "BrokerIdNotRegistered",
    "ClusterAuthorizationFailed",
    "Code",
    "CorruptMessage",
    "DuplicateBrokerRegistration",
    "ElectionNotNeeded",
    "EligibleLeadersNotAvailable",
    "FeatureUpdateFailed",
    "FencedLeaderEpoch",
    "FetchSessionIdNotFound",
    "InconsistentClusterId",
    "InconsistentTopicId",
    "IneligibleReplica",
    "InvalidConfig",
    "InvalidFetchSessionEpoch",
    "InvalidPartitions",
    "InvalidProducerEpoch",
    "InvalidRecord",
    "InvalidReplicaAssignment",
    "InvalidReplicationFactor",
    "InvalidRequest",
    "InvalidRequiredAcks",
    "InvalidTimestamp",
    "InvalidTopic",
    "InvalidUpdateVersion",
    "InvariantViolated",
    "LeaderNotAvailable",
    "LogClosed",
    "LogCorrupt",
    "LogDamaged",
    "LogDirectoryFull",
    "LogFull",
    "LogTruncated",
    "MessageTooLarge",
    "NewLeaderElected",
    "NoReassignmentInProgress",
    "NotController",
    "NotEnoughReplicas",
    "NotEnoughReplicasAfterAppend",
    "NotLeaderOrFollower",
    "OffsetNotAvailable",
    "OffsetOutOfRange",
    "OperationNotAttempted",
    "OutOfOrderSequence",
    "PolicyViolation",
    "PreferredLeaderNotAvailable",
    "QuotaExceeded",
    "ReassignmentInProgress",
    "Rejected",
    "ReplicaNotAvailable",
    "ReplogError",
    "RequestTimedOut",
    "StaleBrokerEpoch",
    "StaleControllerEpoch",
    "StorageError",
    "StoreCorrupt",
    "StoreFull",
    "TimedOut",
    "TopicAlreadyExists",
    "TopicAuthorizationFailed",
    "Unavailable",
    "UndecodableBatch",
    "UnknownLeaderEpoch",
    "UnknownServerError",
    "UnknownStage",
    "UnknownTopicId",
    "UnknownTopicOrPartition",
    "UsageError",
    "error_name",
    "rejection",
]


NONE: Final = 0
"""The code of success."""

CODES: Final[dict[int, type[Rejected]]] = {}
"""Code -> class of every refusal."""


class ReplogError(Exception):
    """The root of all errors of replog. They can be pickled and copied: what one says goes along, but for traceback, cause and context."""

    def __reduce__(self) -> tuple[object, ...]:
        # Without the constructor: of some it takes other arguments than the text that comes of them.
        return type(self).__new__, (type(self),), {"args": self.args, **vars(self)}


class UsageError(ReplogError):
    """The call is wrong: a bad argument, a closed object, a directory that is in use. Nothing was changed."""


class Unavailable(ReplogError):
    """The outcome is unknown: nobody answered, or only a repetition was refused. The operation may or may not have happened."""


class TimedOut(Unavailable, TimeoutError):
    """The outcome is unknown because the time given ran out; the message names what was waited for."""


class LogCorrupt(ReplogError):
    """Stored bytes below the recovery point do not match their checksum, or do not belong to this log."""


class LogDamaged(ReplogError):
    """A write or a flush failed with an I/O error; the log (write) or its whole directory (flush) takes no more appends."""


class LogTruncated(ReplogError):
    """The records just before a reader's position are no longer part of the log, whether it has read them or not: an unclean election
    removed them (KIP-320).

    `topic`, `partition` and `offset` name the position, `divergent_offset` the first offset that may have changed.
    """

    def __init__(self, topic: str, partition: int, offset: int, divergent_offset: int) -> None:
        super().__init__(
            f"{topic}-{partition} was truncated: the reader is at offset {offset}, but records from offset {divergent_offset} on "
            f"are gone or were replaced; seek to {divergent_offset} to go on"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.divergent_offset = divergent_offset


class LogFull(ReplogError):
    """No space is left for an append, or no file descriptor, also to read. Nothing was changed; it works again once there is some."""


class InvariantViolated(ReplogError):
    """A broker found its own state to be impossible, and stopped before it acted on it (`BrokerConfig.self_checks`).

    Nothing that is stored was touched. `invariant` is its number in the table of `replog.partition.self_checks`, `partition` which
    one it is about.
    """

    def __init__(self, invariant: str, partition: str, why: str) -> None:
        super().__init__(f"{partition}: invariant {invariant} does not hold: {why}")
        self.invariant = invariant
        self.partition = partition


class StoreCorrupt(ReplogError):
    """A stored value, or the whole store, cannot be understood: it is damaged, or was written by a newer version."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class StoreFull(ReplogError):
    """No space is left for a commit to the metadata store. Nothing of it was applied; commits work again once space returns."""


class LogClosed(UsageError):
    """The log, or the directory it lives in, is closed (or was opened by the parent of this forked process)."""


class Rejected(ReplogError):
    """The cluster refused a request and says so with a code. Nothing was stored, unless the leaf says otherwise.

    `topic`, `partition`, `broker` and `epoch` name what the refusal is about, where they are known.
    """

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool = False) -> None:
        super().__init_subclass__()
        if code is None:  # a refinement of a leaf keeps its code
            return
        assert code not in CODES, f"{cls.__name__} and {CODES[code].__name__} share code {code}"
        cls.code = code
        cls.retriable = retriable
        CODES[code] = cls

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        partition: int | None = None,
        broker: int | None = None,
        epoch: int | None = None,
    ) -> None:
        place = "" if topic is None else topic if partition is None else f"{topic}-{partition}"
        text = message or (self.__doc__ or "").strip().split("\n")[0]
        super().__init__(f"{place}: {text}" if place and place not in text else text)
        self.topic = topic
        self.partition = partition
        self.broker = broker
        self.epoch = epoch


# Numbers are Kafka's and are format: they never change. The first line of each docstring is the default message.


class UnknownServerError(Rejected, code=-1):
    """The broker failed in a way it has no code for."""


class OffsetOutOfRange(Rejected, code=1):
    """The offset lies outside what the partition holds."""


class CorruptMessage(Rejected, code=2, retriable=True):
    """The batch does not match its checksum, or is malformed."""


class UndecodableBatch(CorruptMessage):
    """An intact batch whose records cannot be decoded: whoever made it sealed what is none. Neither another try nor another copy helps.

    `base_offset` is that of the batch, `next_offset` the one behind it: whoever goes on there leaves the batch out.
    """

    retriable = False

    def __init__(self, topic: str, partition: int, base_offset: int, next_offset: int, why: str) -> None:
        super().__init__(
            f"{topic}-{partition}: the batch of offsets {base_offset} to {next_offset - 1} is stored as it was sent, and cannot be decoded "
            f"({why}); go on at offset {next_offset} to leave it out",
            topic=topic,
            partition=partition,
        )
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.why = why


class UnknownTopicOrPartition(Rejected, code=3, retriable=True):
    """The topic or partition does not exist."""


class LeaderNotAvailable(Rejected, code=5, retriable=True):
    """The partition has no leader now."""


class NotLeaderOrFollower(Rejected, code=6, retriable=True):
    """The broker does not lead this partition (or holds no copy of it)."""


class RequestTimedOut(Rejected, code=7, retriable=True):
    """The broker gave up waiting; the append may still commit."""


class ReplicaNotAvailable(Rejected, code=9, retriable=True):
    """The broker holds no copy that can be read."""


class MessageTooLarge(Rejected, code=10):
    """The batch is larger than the topic allows."""


class StaleControllerEpoch(Rejected, code=11):
    """The command comes from a controller that has been replaced."""


class InvalidTopic(Rejected, code=17):
    """The topic name is not allowed."""


class NotEnoughReplicas(Rejected, code=19, retriable=True):
    """Fewer replicas are in sync than min_isr; nothing was appended."""


class NotEnoughReplicasAfterAppend(Rejected, code=20, retriable=True):
    """Appended, but fewer replicas are in sync than min_isr; it may still commit."""


class InvalidRequiredAcks(Rejected, code=21):
    """acks must be 0, 1 or all."""


class TopicAuthorizationFailed(Rejected, code=29):
    """Not allowed on this topic."""


class ClusterAuthorizationFailed(Rejected, code=31):
    """Not allowed for this role."""


class InvalidTimestamp(Rejected, code=32):
    """By the leader's clock the mark of a writer is too old, or of the future; or a batch's times run backwards. Nothing was stored."""


class TopicAlreadyExists(Rejected, code=36):
    """A topic of that name exists."""


class InvalidPartitions(Rejected, code=37):
    """The number of partitions is not allowed."""


class InvalidReplicationFactor(Rejected, code=38):
    """The replication factor is not allowed, or more than the live brokers."""


class InvalidReplicaAssignment(Rejected, code=39):
    """The replica assignment is not allowed."""


class InvalidConfig(Rejected, code=40):
    """A configuration key or value is not allowed."""


class NotController(Rejected, code=41, retriable=True):
    """The broker is not the controller."""


class InvalidRequest(Rejected, code=42):
    """The request is malformed or not allowed here."""


class PolicyViolation(Rejected, code=44):
    """The configuration of the brokers does not allow it."""


class OutOfOrderSequence(Rejected, code=45):
    """The producer's sequence leaves a gap."""


class InvalidProducerEpoch(Rejected, code=47):
    """The producer was replaced by a newer one with its id."""


class OperationNotAttempted(Rejected, code=55, retriable=True):
    """Not attempted, because another part of the request failed."""


class StorageError(Rejected, code=56, retriable=True):
    """The broker's disk failed."""


class ReassignmentInProgress(Rejected, code=60):
    """The partition is being reassigned."""


class FetchSessionIdNotFound(Rejected, code=70, retriable=True):
    """The fetch session is unknown; open a new one."""


class InvalidFetchSessionEpoch(Rejected, code=71, retriable=True):
    """The fetch session is at another epoch; open a new one."""


class FencedLeaderEpoch(Rejected, code=74, retriable=True):
    """The leader epoch of the request is older than the replica's."""


class UnknownLeaderEpoch(Rejected, code=75, retriable=True):
    """The leader epoch of the request is newer than the replica's."""


class StaleBrokerEpoch(Rejected, code=77):
    """The broker epoch belongs to an earlier life of that broker."""


class OffsetNotAvailable(Rejected, code=78, retriable=True):
    """A new leader does not yet know what is committed."""


class PreferredLeaderNotAvailable(Rejected, code=80, retriable=True):
    """The preferred leader cannot lead now."""


class EligibleLeadersNotAvailable(Rejected, code=83, retriable=True):
    """No replica may be elected without losing records."""


class ElectionNotNeeded(Rejected, code=84):
    """The partition already has that leader."""


class NoReassignmentInProgress(Rejected, code=85):
    """The partition is not being reassigned."""


class InvalidRecord(Rejected, code=87):
    """A record is malformed or too large."""


class QuotaExceeded(Rejected, code=89, retriable=True):
    """The client is over its quota."""


class InvalidUpdateVersion(Rejected, code=95, retriable=True):
    """The partition epoch of the proposal is not the stored one (KIP-497: INVALID_ISR_VERSION)."""


class FeatureUpdateFailed(Rejected, code=96):
    """The cluster cannot have that feature level: some broker does not support it, or it is at a higher one (KIP-584)."""


class UnknownTopicId(Rejected, code=100, retriable=True):
    """No topic has this id."""


class DuplicateBrokerRegistration(Rejected, code=101):
    """A live broker with another directory holds this broker id."""


class BrokerIdNotRegistered(Rejected, code=102, retriable=True):
    """The broker is not registered."""


class InconsistentTopicId(Rejected, code=103, retriable=True):
    """The topic of that name has another id, or the partition another creation number."""


class InconsistentClusterId(Rejected, code=104):
    """The other side belongs to another cluster."""


class IneligibleReplica(Rejected, code=107, retriable=True):
    """A proposed replica is fenced, draining, unregistered or of an earlier life."""


class NewLeaderElected(Rejected, code=108, retriable=True):
    """Applied, and leadership moved to another replica."""


class LogDirectoryFull(Rejected, code=1001, retriable=True):
    """The broker's disk is full; nothing was stored."""


class UnknownStage(Rejected, code=1002):
    """What is to be published is not with the leader, or not whole: it has expired, or was with an earlier leader. Stage it again."""


def error_name(code: int) -> str:
    """The name of a code, for people: `error_name(6) == "NotLeaderOrFollower"`."""
    if code == NONE:
        return "None"
    return CODES[code].__name__ if code in CODES else f"code {code}"


def rejection(code: int, message: str = "", **where: Any) -> Rejected:
    """The exception for a wire code; an unknown code becomes UnknownServerError naming it."""
    kind = CODES.get(code)
    if kind is None:
        return UnknownServerError(message or f"unknown error code {code}", **where)
    return kind(message, **where)
