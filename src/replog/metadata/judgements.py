"""What the controller has judged, as stored: which life of a broker is let in, and what an election may have lost.

The rest of the layout, and the rules for values, are in `layout`.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from replog.errors import StoreCorrupt
from replog.metadata.values import NUMBER_MAX, Fields, encode

__all__ = [
    "ADMITTED",
    "LOSSES",
    "Admission",
    "Candidate",
    "LossRecord",
    "admitted_broker",
    "admitted_path",
    "decode_admission",
    "decode_loss",
    "encode_admission",
    "encode_loss",
    "loss_path",
]

ADMITTED: Final = "/brokers/admitted"
LOSSES: Final = "/admin/losses"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def admitted_path(broker_id: int) -> str:
    """The last life of a broker whose losses have been dealt with."""
    assert 0 <= broker_id <= NUMBER_MAX, f"broker id {broker_id}"
    return f"{ADMITTED}/{broker_id}"


def admitted_broker(path: str) -> int:
    """The broker that an `admitted_path` is about. Raises StoreCorrupt if its name is not the number of one."""
    name = path.removeprefix(f"{ADMITTED}/")
    if not _NUMBER.fullmatch(name) or int(name) > NUMBER_MAX:
        raise StoreCorrupt(path, f"{name!r} is not the number of a broker, from 0 to {NUMBER_MAX}")
    return int(name)


def loss_path(topic_id: bytes, partition: int) -> str:
    """The last election of a partition that may have lost committed records."""
    return f"{LOSSES}/{topic_id.hex()}/{partition}"


@frozen
class Admission:
    """A life of a broker that may lead and be in sync."""

    broker_epoch: int
    incarnation: str
    directory_id: str
    is_early: bool = False
    """Let in although there is something of which nobody could see whether an earlier life leads it."""


@frozen
class Candidate:
    """A replica that was considered, and how far it reaches (-1: nobody could be asked)."""

    broker: int
    last_epoch: int
    end_offset: int


@frozen
class LossRecord:
    """Who was elected although committed records may be missing there, and who else was considered."""

    topic: str
    kind: str
    leader: int
    leader_epoch: int
    candidates: tuple[Candidate, ...]
    missing: tuple[int, ...]
    """Replicas that may hold more and were not there."""


def encode_admission(admission: Admission) -> bytes:
    """The value at `admitted_path`."""
    return encode({
        "broker_epoch": admission.broker_epoch,
        "incarnation": admission.incarnation,
        "directory_id": admission.directory_id,
        **({"early": True} if admission.is_early else {}),
    })


def decode_admission(path: str, value: bytes) -> Admission:
    """Reads `encode_admission`; raises StoreCorrupt naming `path` if the value is not one."""
    fields = Fields.of(path, value)
    is_early = fields.flag("early", missing=False)
    return Admission(fields.number("broker_epoch", wide=True), fields.text("incarnation"), fields.text("directory_id"), is_early)


def encode_loss(loss: LossRecord) -> bytes:
    """The value at `loss_path`."""
    return encode({
        "topic": loss.topic,
        "kind": loss.kind,
        "leader": loss.leader,
        "leader_epoch": loss.leader_epoch,
        "candidates": [{"broker": c.broker, "last_epoch": c.last_epoch, "end_offset": c.end_offset} for c in loss.candidates],
        "missing": loss.missing,
    })


def decode_loss(path: str, value: bytes) -> LossRecord:
    """Reads `encode_loss`; raises StoreCorrupt naming `path` if the value is not one."""
    fields = Fields.of(path, value)
    candidates = []
    for item in fields.items("candidates"):
        part = Fields(path, item if isinstance(item, dict) else {}, "candidates.")
        reach = part.number("last_epoch", low=-1), part.number("end_offset", low=-1, wide=True)
        candidates.append(Candidate(part.number("broker"), *reach))
    return LossRecord(
        fields.text("topic"),
        fields.text("kind"),
        fields.number("leader"),
        fields.number("leader_epoch"),
        tuple(candidates),
        fields.numbers("missing"),
    )
