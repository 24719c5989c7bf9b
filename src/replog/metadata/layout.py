"""Where things are in the metadata store, and what is written there: the only files that spell a path or a value are this one,
`judgements`, and `loss_reports` for a part of a registration.

::

    /cluster                                              ClusterIdentity
    /controller                                           ControllerSeat            ephemeral
    /controller_epoch                                     controller epoch
    /brokers/ids/[id]                                     Registration              ephemeral
    /brokers/draining/[id]                                broker epoch being drained
    /brokers/admitted/[id]                                the life of a broker that was let in     (judgements.py)
    /brokers/topics/[topic]                               TopicEntry
    /brokers/topics/[topic]/[partition]/leaderAndISR      PartitionState (its version is the partition epoch)
    /admin/partitions_reassigned/[topic]/[partition]      wish
    /admin/partitions_add/[topic]/[partition]             wish
    /admin/partitions_remove/[topic]/[partition]          wish
    /admin/elect/[topic]/[partition]                      wish
    /admin/delete_topics/[topic]                          wish: topic id
    /admin/removed/[topic id]                             brokers that still hold copies
    /admin/losses/[topic id]/[partition]                  what an election may have lost           (judgements.py)
    /admin/rejected/[path of a wish]                      Rejection

A value is a JSON object in UTF-8 with a field `version`, so that any client of the store can read it. Fields that are
not known are ignored, a version that is not known is refused. The numbers and names here are format: they never change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from attrs import field, frozen

from replog.config import check_partition_number, check_topic_name
from replog.errors import StoreCorrupt, UsageError
from replog.features import FEATURE_LEVEL_MIN, FIRST, Levels
from replog.metadata.loss_reports import loss_fields, loss_in
from replog.metadata.values import NUMBER_MAX, Fields, encode
from replog.model import Assignment, PartitionState, TopicPartition
from replog.ports import LossReport, Versioned

__all__ = [
    "BROKER_IDS",
    "CLUSTER",
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "DELETE_TOPICS",
    "DRAINING",
    "ELECT",
    "PARTITIONS_ADD",
    "PARTITIONS_REASSIGNED",
    "PARTITIONS_REMOVE",
    "REJECTED",
    "REMOVED",
    "TOPICS",
    "WISHES",
    "ClusterIdentity",
    "ControllerSeat",
    "Place",
    "Registration",
    "Rejection",
    "TopicEntry",
    "broker_path",
    "decode_cluster",
    "decode_controller",
    "decode_controller_epoch",
    "decode_delete_topic",
    "decode_draining",
    "decode_partition_state",
    "decode_registration",
    "decode_rejection",
    "decode_removed",
    "decode_topic",
    "delete_topic_path",
    "draining_path",
    "elect_path",
    "encode_cluster",
    "encode_controller",
    "encode_controller_epoch",
    "encode_delete_topic",
    "encode_draining",
    "encode_partition_state",
    "encode_registration",
    "encode_rejection",
    "encode_removed",
    "encode_topic",
    "partition_add_path",
    "partition_path",
    "partition_remove_path",
    "partition_state_path",
    "place_of",
    "reassigned_path",
    "rejected_path",
    "removed_path",
    "topic_path",
]

# ------------------------------------------------------------------------------------------------------------- paths

CLUSTER: Final = "/cluster"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
DRAINING: Final = "/brokers/draining"
TOPICS: Final = "/brokers/topics"
PARTITIONS_REASSIGNED: Final = "/admin/partitions_reassigned"
PARTITIONS_ADD: Final = "/admin/partitions_add"
PARTITIONS_REMOVE: Final = "/admin/partitions_remove"
DELETE_TOPICS: Final = "/admin/delete_topics"
ELECT: Final = "/admin/elect"
REMOVED: Final = "/admin/removed"
REJECTED: Final = "/admin/rejected"
_PER_BROKER: Final = (BROKER_IDS, DRAINING)
_PER_TOPIC: Final = (TOPICS, DELETE_TOPICS)
WISHES: Final = (PARTITIONS_REASSIGNED, PARTITIONS_ADD, PARTITIONS_REMOVE, ELECT)
"""Rows of wishes about partitions."""
_ROWS: Final = frozenset((CLUSTER, CONTROLLER, CONTROLLER_EPOCH, *_PER_BROKER, *_PER_TOPIC, *WISHES, REMOVED, REJECTED))
_STATE: Final = "leaderAndISR"
_TOPIC_ID_BYTES: Final = 16


def _broker(broker_id: int) -> int:
    assert 0 <= broker_id <= NUMBER_MAX, f"broker id {broker_id}"
    return broker_id


def broker_path(broker_id: int) -> str:
    """Where a broker registers."""
    return f"{BROKER_IDS}/{_broker(broker_id)}"


def draining_path(broker_id: int) -> str:
    """Marks a broker in controlled shutdown."""
    return f"{DRAINING}/{_broker(broker_id)}"


def topic_path(topic: str) -> str:
    """A topic; its children are its partitions."""
    return f"{TOPICS}/{check_topic_name(topic)}"


def partition_path(topic: str, partition: int) -> str:
    """The parent of a partition's state: it holds no value itself."""
    return f"{topic_path(topic)}/{check_partition_number(partition)}"


def partition_state_path(topic: str, partition: int) -> str:
    """Who leads a partition, and who may."""
    return f"{partition_path(topic, partition)}/{_STATE}"


def _wish(row: str, topic: str, partition: int) -> str:
    return f"{row}/{check_topic_name(topic)}/{check_partition_number(partition)}"


def reassigned_path(topic: str, partition: int) -> str:
    """The wish to move a partition."""
    return _wish(PARTITIONS_REASSIGNED, topic, partition)


def partition_add_path(topic: str, partition: int) -> str:
    """The wish to add a partition."""
    return _wish(PARTITIONS_ADD, topic, partition)


def partition_remove_path(topic: str, partition: int) -> str:
    """The wish to remove a partition."""
    return _wish(PARTITIONS_REMOVE, topic, partition)


def elect_path(topic: str, partition: int) -> str:
    """The wish to elect a leader."""
    return _wish(ELECT, topic, partition)


def delete_topic_path(topic: str) -> str:
    """The wish to delete a topic."""
    return f"{DELETE_TOPICS}/{check_topic_name(topic)}"


def removed_path(topic_id: bytes) -> str:
    """Brokers that still hold copies of what is deleted."""
    assert len(topic_id) == _TOPIC_ID_BYTES
    return f"{REMOVED}/{topic_id.hex()}"


def rejected_path(wish: str) -> str:
    """Where the wish at path `wish` goes when it is refused."""
    assert wish.startswith("/")
    assert not wish.startswith(REJECTED + "/"), "a refusal is not a wish"
    return REJECTED + wish


class Place(NamedTuple):
    """What a path of the layout is about.

    `row` is the constant that the path begins with; below a topic it is "partition" or "partition_state".
    """

    row: str
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    topic_id: bytes | None = None
    wish: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the path names."""
        assert self.topic is not None
        assert self.partition is not None
        return TopicPartition(self.topic, self.partition)


_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_TOPIC_ID: Final = re.compile(r"[0-9a-f]{32}")


def _number(path: str, name: str) -> int:
    if not _NUMBER.fullmatch(name) or int(name) > NUMBER_MAX:
        raise StoreCorrupt(path, f"{name!r} is not a number from 0 to {NUMBER_MAX}")
    return int(name)


def _topic(path: str, name: str) -> str:
    try:
        return check_topic_name(name)
    except UsageError as error:
        raise StoreCorrupt(path, str(error)) from error


def place_of(path: str) -> Place:
    """What `path` is about; a row itself, which people watch, is about nothing in particular.

    Raises StoreCorrupt if the layout has no such path.
    """
    if path in _ROWS:
        return Place(path)
    if path.startswith(REJECTED + "/"):
        return Place(REJECTED, wish=path.removeprefix(REJECTED))
    names = path.split("/")
    row, rest = "/".join(names[:3]), names[3:]
    if row in _PER_BROKER and len(rest) == 1:
        return Place(row, broker_id=_number(path, rest[0]))
    if row in _PER_TOPIC and len(rest) == 1:
        return Place(row, topic=_topic(path, rest[0]))
    if row in WISHES and len(rest) == 2:
        return Place(row, topic=_topic(path, rest[0]), partition=_number(path, rest[1]))
    if row == TOPICS and (len(rest) == 2 or (len(rest) == 3 and rest[2] == _STATE)):
        return Place("partition" if len(rest) == 2 else "partition_state", topic=_topic(path, rest[0]), partition=_number(path, rest[1]))
    if row == REMOVED and len(rest) == 1 and _TOPIC_ID.fullmatch(rest[0]):
        return Place(row, topic_id=bytes.fromhex(rest[0]))
    raise StoreCorrupt(path, "the layout of the store has no such path")


# ------------------------------------------------------------------------------------------------------------ values


@frozen
class ClusterIdentity:
    """Which cluster this store belongs to, and what its members may write."""

    cluster_id: str
    format: int = 1
    feature_level: int = FEATURE_LEVEL_MIN


@frozen
class ControllerSeat:
    """Who is the controller."""

    broker_id: int
    controller_epoch: int


@frozen
class Registration:
    """What a broker says about itself when it registers; its broker epoch is the creation number of the path."""

    endpoints: tuple[str, ...] = ()
    rack: str | None = None
    directory_id: str = ""
    loss: LossReport = field(factory=LossReport)
    incarnation: str = ""
    """Made anew by each process: tells a session that was lost from a life that ended (P-72)."""
    features: Levels = FIRST
    """Feature levels that the broker supports."""


@frozen
class TopicEntry:
    """A topic: its identity, what it keeps, and which brokers should hold which partition."""

    topic_id: bytes
    config: Mapping[str, Any]
    """Keys of `TopicConfig` that differ from the defaults."""
    partitions: Mapping[int, Assignment]
    next_creation: int = 0
    """Creation number of the next partition that is added."""
    former: tuple[int, ...] = ()
    """Brokers that may hold copies of partitions that were removed: they are to be asked when the topic goes."""


@frozen
class Rejection:
    """A wish that was refused: what it was, and why."""

    wish: bytes
    """The value of the wish, as it was found."""
    code: int
    message: str
    wall_ms: int


def encode_cluster(cluster: ClusterIdentity) -> bytes:
    """The value at CLUSTER."""
    return encode({"cluster_id": cluster.cluster_id, "format": cluster.format, "feature_level": cluster.feature_level})


def decode_cluster(path: str, value: bytes) -> ClusterIdentity:
    """Reads `encode_cluster`; like every decoder here, raises StoreCorrupt naming `path` if the value is not one."""
    fields = Fields.of(path, value)
    return ClusterIdentity(fields.text("cluster_id"), fields.number("format"), fields.number("feature_level"))


def encode_controller(seat: ControllerSeat) -> bytes:
    """The value at CONTROLLER."""
    return encode({"broker_id": seat.broker_id, "controller_epoch": seat.controller_epoch})


def decode_controller(path: str, value: bytes) -> ControllerSeat:
    """Reads `encode_controller`."""
    fields = Fields.of(path, value)
    return ControllerSeat(fields.number("broker_id"), fields.number("controller_epoch"))


def encode_controller_epoch(controller_epoch: int) -> bytes:
    """The value at CONTROLLER_EPOCH."""
    return encode({"controller_epoch": controller_epoch})


def decode_controller_epoch(path: str, value: bytes) -> int:
    """Reads `encode_controller_epoch`."""
    return Fields.of(path, value).number("controller_epoch")


def encode_registration(registration: Registration) -> bytes:
    """The value at `broker_path`."""
    return encode({
        "endpoints": registration.endpoints,
        "rack": registration.rack,
        "directory_id": registration.directory_id,
        "incarnation": registration.incarnation,
        "loss": loss_fields(registration.loss),
        "features": registration.features,
    })


def decode_registration(path: str, value: bytes) -> Registration:
    """Reads `encode_registration`."""
    fields = Fields.of(path, value)
    report = loss_in(path, fields.part("loss"))
    names = fields.texts("endpoints"), fields.text_or_none("rack"), fields.text("directory_id")
    return Registration(*names, report, fields.text("incarnation"), Levels(*fields.span("features", missing=FIRST)))


def encode_draining(broker_epoch: int) -> bytes:
    """The value at `draining_path`."""
    return encode({"broker_epoch": broker_epoch})


def decode_draining(path: str, value: bytes) -> int:
    """Reads `encode_draining`."""
    return Fields.of(path, value).number("broker_epoch", wide=True)


def encode_topic(topic: TopicEntry) -> bytes:
    """The value at `topic_path`."""
    partitions = {}
    for number in sorted(topic.partitions):
        assignment = topic.partitions[number]
        shape: dict[str, Any] = {"replicas": assignment.replicas, "creation": assignment.creation}
        for name in ("adding", "removing", "original"):
            if brokers := getattr(assignment, name):
                shape[name] = brokers
        partitions[str(number)] = shape
    return encode({
        "topic_id": topic.topic_id.hex(),
        "config": dict(topic.config),
        "partitions": partitions,
        "next_creation": topic.next_creation,
        **({"former": topic.former} if topic.former else {}),
    })


def decode_topic(path: str, value: bytes) -> TopicEntry:
    """Reads `encode_topic`. The configuration is not judged here: see `TopicConfig.from_mapping`."""
    fields = Fields.of(path, value)
    parts = fields.part("partitions")
    partitions = {}
    for name in parts.names():
        part = parts.part(name)
        partitions[_number(path, name)] = Assignment(
            replicas=part.numbers("replicas"),
            creation=part.number("creation"),
            adding=part.numbers("adding", missing=()),
            removing=part.numbers("removing", missing=()),
            original=part.numbers("original", missing=()),
        )
    ordered = {number: partitions[number] for number in sorted(partitions)}
    topic_id = fields.hexadecimal("topic_id", _TOPIC_ID_BYTES)
    former = fields.numbers("former", missing=())
    return TopicEntry(topic_id, fields.part("config").plain(), ordered, fields.number("next_creation"), former)


def encode_partition_state(state: PartitionState) -> bytes:
    """The value at `partition_state_path`, without the partition epoch: that is its version. No leader is -1 here."""
    return encode({
        "leader": -1 if state.leader is None else state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "elr": state.elr,
        "last_known": state.last_known,
        "recovering": state.recovering,
        "controller_epoch": state.controller_epoch,
        "min_isr": state.min_isr,
        **({"anew": state.anew} if state.anew else {}),
    })


def decode_partition_state(path: str, stored: Versioned) -> PartitionState:
    """Reads `encode_partition_state`; the version becomes the partition epoch."""
    fields = Fields.of(path, stored.value)
    leader = fields.number("leader", low=-1)
    return PartitionState(
        leader=None if leader == -1 else leader,
        leader_epoch=fields.number("leader_epoch", low=-1),
        isr=fields.numbers("isr"),
        elr=fields.numbers("elr"),
        last_known=fields.numbers("last_known"),
        recovering=fields.flag("recovering"),
        controller_epoch=fields.number("controller_epoch"),
        partition_epoch=stored.version,
        anew=fields.numbers("anew", missing=()),
        min_isr=fields.number("min_isr", missing=0),
    )


def encode_delete_topic(topic_id: bytes) -> bytes:
    """The value at `delete_topic_path`: which of the topics that had this name."""
    assert len(topic_id) == _TOPIC_ID_BYTES
    return encode({"topic_id": topic_id.hex()})


def decode_delete_topic(path: str, value: bytes) -> bytes:
    """Reads `encode_delete_topic`."""
    return Fields.of(path, value).hexadecimal("topic_id", _TOPIC_ID_BYTES)


def encode_removed(brokers: tuple[int, ...]) -> bytes:
    """The value at `removed_path`."""
    return encode({"brokers": brokers})


def decode_removed(path: str, value: bytes) -> tuple[int, ...]:
    """Reads `encode_removed`."""
    return Fields.of(path, value).numbers("brokers")


def encode_rejection(rejection: Rejection) -> bytes:
    """The value at `rejected_path`. The wish stays readable; bytes of it that are not UTF-8 are escaped."""
    wish = rejection.wish.decode("utf-8", "surrogateescape")
    return encode({"wish": wish, "code": rejection.code, "message": rejection.message, "wall_ms": rejection.wall_ms})


def decode_rejection(path: str, value: bytes) -> Rejection:
    """Reads `encode_rejection`."""
    fields = Fields.of(path, value)
    wish = fields.escaped("wish")
    return Rejection(wish, fields.number("code", low=-NUMBER_MAX), fields.text("message"), fields.number("wall_ms", wide=True))
