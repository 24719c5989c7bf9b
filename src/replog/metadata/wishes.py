"""Values of wishes about partitions: what an administrator, or a tool that only knows the store, writes under `/admin`.

::

    /admin/partitions_reassigned/[topic]/[partition]      {"replicas": [broker ids]}, or null to cancel
    /admin/partitions_add/[topic]/[partition]             {"replicas": [broker ids]}, or null: the controller chooses
    /admin/partitions_remove/[topic]/[partition]          {"creation": number}, or null: whichever there is
    /admin/elect/[topic]/[partition]                      {"unclean": true or false}, or {"unclean": false, "to": broker id}

Each may say in "topic_id" (hexadecimal) which topic it is about, and is about no other of that name then; one that does not is about the
topic that was there when its node was made. A wish to move or to elect may also say in "creation" which partition of its number it means.

Like every value of the store each is a JSON object with a field `version`; the parts above are its other fields.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from replog.errors import StoreCorrupt
from replog.metadata.values import Fields, encode
from replog.model import PartitionId

__all__ = [
    "Meant",
    "decode_elect",
    "decode_meant",
    "decode_partition_remove",
    "decode_replicas",
    "encode_elect",
    "encode_partition_remove",
    "encode_replicas",
]


_TOPIC_ID_BYTES: Final = 16


@frozen
class Meant:
    """What a wish is about, beside what its path says: None where it does not say that."""

    topic_id: bytes | None = None
    creation: int | None = None
    """The creation number of the partition."""

    @classmethod
    def of(cls, partition: PartitionId) -> Meant:
        """Just this partition."""
        return cls(partition.topic_id, partition.creation)

    def fields(self) -> dict[str, str | int]:
        """As they are stored."""
        said = {"topic_id": None if self.topic_id is None else self.topic_id.hex(), "creation": self.creation}
        return {name: value for name, value in said.items() if value is not None}


def decode_meant(path: str, value: bytes) -> Meant:
    """What any of these wishes says of that; like every decoder here, raises StoreCorrupt naming `path` if the value is no wish."""
    return _meant(Fields.of(path, value))


def _meant(fields: Fields) -> Meant:
    topic_id = None if fields.plain().get("topic_id") is None else fields.hexadecimal("topic_id", _TOPIC_ID_BYTES)
    return Meant(topic_id, None if fields.plain().get("creation") is None else fields.number("creation"))


def encode_replicas(replicas: tuple[int, ...] | None, meant: Meant | None = None) -> bytes:
    """The value of a wish to move or to add a partition."""
    return encode({"replicas": replicas, **(meant or Meant()).fields()})


def decode_replicas(path: str, value: bytes) -> tuple[int, ...] | None:
    """Reads `encode_replicas`. Raises StoreCorrupt."""
    fields = Fields.of(path, value)
    _meant(fields)
    return None if fields.plain().get("replicas", 0) is None else fields.numbers("replicas")


def encode_partition_remove(meant: Meant | None = None) -> bytes:
    """The value of a wish to remove a partition."""
    return encode({"creation": None, **(meant or Meant()).fields()})


def decode_partition_remove(path: str, value: bytes) -> int | None:
    """Reads `encode_partition_remove`: the creation number of what goes; None: whichever there is. Raises StoreCorrupt."""
    fields = Fields.of(path, value)
    meant = _meant(fields)
    return fields.number("creation") if "creation" not in fields.names() else meant.creation


def encode_elect(*, unclean: bool = False, to: int | None = None) -> bytes:
    """The value of a wish to elect a leader: broker `to`, or (None) the preferred one."""
    return encode({"unclean": unclean, **({} if to is None else {"to": to})})


def decode_elect(path: str, value: bytes) -> tuple[bool, int | None]:
    """Reads `encode_elect`: whether the election may be unclean, and who is to be elected. Raises StoreCorrupt."""
    fields = Fields.of(path, value)
    _meant(fields)
    unclean, to = fields.flag("unclean"), fields.number("to") if fields.plain().get("to") is not None else None
    if unclean and to is not None:
        raise StoreCorrupt(path, f"unclean is true and to is {to}: an unclean election takes whoever is live")
    return unclean, to
