"""Every message of the protocol, one class each. Actors talk by nothing else.

Rules that all of them follow (design, section 7):

* Topic ids, never names: every partition entry carries a `PartitionId` (topic id, partition, creation number).
* A message carries whatever fences it: leader epoch, partition epoch, broker epoch, controller epoch, notice number.
* Errors are per partition and are numbers (`replog.errors.Code`); 0 is success.
* A response carries enough to be matched to its request, because a transport may drop, repeat and reorder.
* A receiver treats a message as read-only: the in-process transport shares it.
"""

from __future__ import annotations

from replog.messages.control import (
    Admin,
    AdminAnswer,
    AlterIsr,
    AlterIsrAnswer,
    AlterIsrEntry,
    AlterIsrResult,
    ClusterView,
    Disconnected,
    Heartbeat,
    LeaderAndIsr,
    LeaderAndIsrAnswer,
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

__all__ = [
    "Admin",
    "AdminAnswer",
    "AlterIsr",
    "AlterIsrAnswer",
    "AlterIsrEntry",
    "AlterIsrResult",
    "ClusterView",
    "Disconnected",
    "Epochs",
    "EpochsEntry",
    "EpochsResult",
    "Fetch",
    "FetchEntry",
    "Fetched",
    "FetchedEntry",
    "Flushed",
    "FlushedEntry",
    "Heartbeat",
    "LeaderAndIsr",
    "LeaderAndIsrAnswer",
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
    "Registered",
    "ReplicaState",
    "ReplicaStates",
    "ReplicaStatesAnswer",
    "ReplicasFailed",
    "StopEntry",
    "StopReplica",
    "StopReplicaAnswer",
    "TopicView",
    "UpdateMetadata",
]
