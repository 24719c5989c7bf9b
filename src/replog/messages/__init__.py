"""Every message of the protocol, one class each. Actors talk by nothing else.

Rules that all of them follow (design, section 7):

* Topic ids, never names: every partition entry carries a `PartitionId` (topic id, partition, creation number).
* A message carries whatever fences it: leader epoch, partition epoch, broker epoch, controller epoch, notice number.
* Errors are per partition and are numbers (`replog.errors.Code`); 0 is success.
* A response carries enough to be matched to its request, because a transport may drop, repeat and reorder.
* A receiver treats a message as read-only: the in-process transport shares it.
"""

from __future__ import annotations

from typing import Final

from replog.messages.control import (
    Admin,
    AdminAnswer,
    AlterIsr,
    AlterIsrAnswer,
    AlterIsrEntry,
    AlterIsrResult,
    ClusterView,
    ControlledShutdown,
    ControlledShutdownAnswer,
    Disconnected,
    FlushAll,
    Heartbeat,
    LeaderAndIsr,
    LeaderAndIsrAnswer,
    Leave,
    Metadata,
    PartitionNotice,
    PartitionView,
    Registered,
    ReplicasFailed,
    ReplicaState,
    ReplicaStates,
    ReplicaStatesAnswer,
    StopEntry,
    StopReplica,
    StopReplicaAnswer,
    TopicView,
    Unreached,
    Unsent,
    UpdateMetadata,
)
from replog.messages.data import (
    Epochs,
    EpochsEntry,
    EpochsResult,
    Fetch,
    Fetched,
    FetchedEntry,
    FetchEntry,
    Flushed,
    FlushedEntry,
    ListedOffset,
    ListedOffsets,
    ListOffsets,
    ListOffsetsEntry,
    OffsetsForLeaderEpoch,
    Produce,
    Produced,
    ProducedEntry,
    ProduceEntry,
)
from replog.messages.staging import Publish, Published, Stage, StagedAttempt
from replog.messages.transport import BROKER, CLIENT, Handshake, HandshakeAnswer, Role

__all__ = [
    "BROKER",
    "CLIENT",
    "DOUBTED",
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
    "Epochs",
    "EpochsEntry",
    "EpochsResult",
    "Fetch",
    "FetchEntry",
    "Fetched",
    "FetchedEntry",
    "FlushAll",
    "Flushed",
    "FlushedEntry",
    "Handshake",
    "HandshakeAnswer",
    "Heartbeat",
    "LeaderAndIsr",
    "LeaderAndIsrAnswer",
    "Leave",
    "ListOffsets",
    "ListOffsetsEntry",
    "ListedOffset",
    "ListedOffsets",
    "Metadata",
    "OffsetsForLeaderEpoch",
    "PartitionNotice",
    "PartitionView",
    "Produce",
    "ProduceEntry",
    "Produced",
    "ProducedEntry",
    "Publish",
    "Published",
    "Registered",
    "ReplicaState",
    "ReplicaStates",
    "ReplicaStatesAnswer",
    "ReplicasFailed",
    "Role",
    "Stage",
    "StagedAttempt",
    "StopEntry",
    "StopReplica",
    "StopReplicaAnswer",
    "TopicView",
    "Unreached",
    "Unsent",
    "UpdateMetadata",
]

DOUBTED: Final = frozenset({Admin, Produce, Publish, Stage})
"""Requests that change something. An asker that hears no answer counts them as perhaps carried out, unless it is told that they are
`Unreached`."""
