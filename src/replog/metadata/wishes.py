"""Values of wishes about partitions: what an administrator, or a tool that only knows the store, writes under `/admin`.

::

    /admin/partitions_reassigned/[topic]/[partition]      {"replicas": [broker ids]}, or null to cancel
    /admin/partitions_add/[topic]/[partition]             {"replicas": [broker ids]}, or null: the controller chooses
    /admin/partitions_remove/[topic]/[partition]          {"creation": number}, or null: whichever there is
    /admin/elect/[topic]/[partition]                      {"unclean": true or false}, or {"unclean": false, "to": broker id}

Like every value of the store each is a JSON object with a field `version`; the parts above are its other fields.
"""

from __future__ import annotations

from replog.errors import StoreCorrupt
from replog.metadata.values import Fields, encode

__all__ = [
    "decode_elect",
    "decode_partition_remove",
    "decode_replicas",
    "encode_elect",
    "encode_partition_remove",
    "encode_replicas",
]


def encode_replicas(replicas: tuple[int, ...] | None) -> bytes:
    """The value of a wish to move or to add a partition."""
    return encode({"replicas": replicas})


def decode_replicas(path: str, value: bytes) -> tuple[int, ...] | None:
    """Reads `encode_replicas`; like every decoder here, raises StoreCorrupt naming `path` if the value is not one."""
    fields = Fields.of(path, value)
    return None if fields.plain().get("replicas", 0) is None else fields.numbers("replicas")


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
