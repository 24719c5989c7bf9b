"""What a frame begins with, which messages there are, and the bounds of every number in them."""

from __future__ import annotations

import typing
from struct import Struct
from typing import Any, Final

import attrs

from replog import messages as m
from replog.config import FRAME_BYTES_MAX
from replog.errors import ReplogError

__all__ = [
    "FRAME_BYTES_MAX",
    "FROM_CONTROLLER",
    "HEADER",
    "INT32_MAX",
    "INT64_MAX",
    "INT64_MIN",
    "ITEMS_MAX",
    "KEYS",
    "LENGTH",
    "LOCAL_MESSAGES",
    "MESSAGE_TYPES",
    "PLAIN",
    "PLAIN_DEPTH_MAX",
    "PROTOCOL_VERSION",
    "RANGES",
    "ROUTE_AT",
    "SINCE",
    "TO_CONTROLLER",
    "TYPE_NUMBERS",
    "UINT32_MAX",
    "UNSENT",
    "CodecError",
    "Part",
    "frame_length",
    "sent",
]

PROTOCOL_VERSION: Final = 1
SINCE: Final = "since"
"""Key of a field's metadata: the version of the protocol that brought it; without it the first. Such a field has a default, which is what
messages of earlier versions are read with, and comes after all that were there before: those versions leave out what they do not know."""
UNSENT: Final = "unsent"
"""Key of a field's metadata: no message has it, and whoever reads one gets its default."""
ITEMS_MAX: Final = 8_000_000
"""Most items that the lists and dicts of one message may have, all of them together, where nothing else is said: an item takes one
byte of a frame and a hundred of memory. A complete view of 500,000 partitions has so many."""
TO_CONTROLLER: Final = 1
"""Bit of a route: for the controller at the other end, not for the broker."""
FROM_CONTROLLER: Final = 2
"""Bit of a route: the controller at this end says it."""
PLAIN_DEPTH_MAX: Final = 8
"""How deep lists and dicts may nest where a field takes any plain value."""
KEYS: Final = frozenset({str, int})
"""Types of the keys of such a dict."""
PLAIN: Final = frozenset({str, int, bool, bytes, type(None)})
"""Types of its scalars."""

HEADER: Final = Struct("<IBBHII")
ROUTE_AT: Final = 5
"""Which byte of a frame says between which actors it goes."""
LENGTH: Final = Struct("<I")
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
INT32_MAX: Final = 2**31 - 1
UINT32_MAX: Final = 2**32 - 1

MESSAGE_TYPES: Final[dict[int, type[Any]]] = {
    1: m.Produce,
    2: m.Produced,
    3: m.Fetch,
    4: m.Fetched,
    5: m.Flushed,
    6: m.ListOffsets,
    7: m.ListedOffsets,
    8: m.OffsetsForLeaderEpoch,
    9: m.Epochs,
    10: m.Metadata,
    11: m.ClusterView,
    12: m.UpdateMetadata,
    13: m.LeaderAndIsr,
    14: m.LeaderAndIsrAnswer,
    15: m.StopReplica,
    16: m.StopReplicaAnswer,
    17: m.Heartbeat,
    18: m.AlterIsr,
    19: m.AlterIsrAnswer,
    20: m.ReplicasFailed,
    21: m.ReplicaStates,
    22: m.ReplicaStatesAnswer,
    23: m.Admin,
    24: m.AdminAnswer,
    25: m.Handshake,
    26: m.HandshakeAnswer,
    27: m.ControlledShutdown,
    28: m.ControlledShutdownAnswer,
    29: m.Stage,
    30: m.Publish,
    31: m.Published,
}
"""Type number -> message. Numbers are format: never changed, never used again."""

LOCAL_MESSAGES: Final = frozenset({m.Registered, m.Disconnected, m.Leave, m.FlushAll, m.Unreached, m.Unsent})
"""What a process tells its own actors: no frame carries these, so that nobody else can say them."""

TYPE_NUMBERS: Final = {message: number for number, message in MESSAGE_TYPES.items()}

RANGES: Final = {
    "leader_epoch": (-2, INT32_MAX),
    "last_epoch": (-1, INT32_MAX),
    "diverging_epoch": (-1, INT32_MAX),
    "epoch": (-1, INT32_MAX),
    "partition": (0, INT32_MAX),
    "creation": (0, UINT32_MAX),
}
"""Fields that are stored in 32 bits with every batch (`replog.records`): a larger one could not be acted on. Others have 64."""


class CodecError(ReplogError):
    """The bytes are not a frame of this protocol, or a message holds what no frame can carry."""


class Part(typing.Protocol):
    """What a frame needs of a `ports.Slice`."""

    length: int

    def view(self) -> memoryview: ...


def sent(kind: type[Any]) -> list[attrs.Attribute[Any]]:
    """The fields of a class that messages have, in their order."""
    return [a for a in attrs.fields(kind) if a.init and UNSENT not in a.metadata]


def frame_length(head: bytes | memoryview, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> int:
    """Bytes of the whole frame that begins with these (at least 4). Raises CodecError before anything is allocated for it."""
    if len(head) < LENGTH.size:
        raise CodecError(f"a frame begins with {LENGTH.size} bytes of length, {len(head)} are here")
    length = int(LENGTH.unpack_from(head)[0]) + LENGTH.size
    if not HEADER.size <= length <= frame_bytes_max:
        raise CodecError(f"a frame of {length} bytes; allowed are {HEADER.size} to {frame_bytes_max}")
    return length


