"""Values of wishes about partitions: what an administrator, or a tool that only knows the store, writes under `/admin`.

::

    /admin/partitions_reassigned/[topic]/[partition]      {"replicas": [broker ids]}, or null to cancel; and "topic_id" if it names one
    /admin/partitions_add/[topic]/[partition]             {"replicas": [broker ids]}, or null: the controller chooses
    /admin/partitions_remove/[topic]/[partition]          {"creation": number}, or null: whichever there is
    /admin/elect/[topic]/[partition]                      {"unclean": true or false}, or {"unclean": false, "to": broker id}

A wish that names a topic by its id is about no other of that name. One that names none is about the topic that was there when its node was
made.

Like every value of the store each is a JSON object with a field `version`; the parts above are its other fields.
"""

from __future__ import annotations

from typing import Final

from replog.errors import StoreCorrupt
from replog.metadata.values import Fields, encode

__all__ = [
    "decode_elect",
    "decode_partition_remove",
    "decode_replicas",
    "decode_topic_meant",
    "encode_elect",
    "encode_partition_remove",
    "encode_replicas",
]


_TOPIC_ID_BYTES: Final = 16


def encode_replicas(replicas: tuple[int, ...] | None, topic_id: bytes | None = None) -> bytes:
    """The value of a wish to move (this topic's) or to add a partition."""
    return encode({"replicas": replicas, **({} if topic_id is None else {"topic_id": topic_id.hex()})})


def decode_replicas(path: str, value: bytes) -> tuple[int, ...] | None:
    """Reads `encode_replicas`; like every decoder here, raises StoreCorrupt naming `path` if the value is not one."""
    fields = Fields.of(path, value)
    _topic_id(fields)
    return None if fields.plain().get("replicas", 0) is None else fields.numbers("replicas")


def decode_topic_meant(path: str, value: bytes) -> bytes | None:
    """The id of the topic that `encode_replicas` has named, if it did."""
    return _topic_id(Fields.of(path, value))


def _topic_id(fields: Fields) -> bytes | None:
    return fields.hexadecimal("topic_id", _TOPIC_ID_BYTES) if "topic_id" in fields.names() else None


def encode_partition_remove(creation: int | None) -> bytes:
    """The value of a wish to remove a partition."""
    return encode({"creation": creation})


def decode_partition_remove(path: str, value: bytes) -> int | None:
    """Reads `encode_partition_remove`."""
    fields = Fields.of(path, value)
    return None if fields.plain().get("creation", 0) is None else fields.number("creation")


def encode_elect(*, unclean: bool = False, to: int | None = None) -> bytes:
    """The value of a wish to elect a leader: broker `to`, or (None) the preferred one."""
    return encode({"unclean": unclean, **({} if to is None else {"to": to})})


def decode_elect(path: str, value: bytes) -> tuple[bool, int | None]:
    """Reads `encode_elect`: whether the election may be unclean, and who is to be elected."""
    fields = Fields.of(path, value)
    unclean, to = fields.flag("unclean"), fields.number("to") if fields.plain().get("to") is not None else None
    if unclean and to is not None:
        raise StoreCorrupt(path, f"unclean is true and to is {to}: an unclean election takes whoever is live")
    return unclean, to
