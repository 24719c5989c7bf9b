"""How a registration says what a broker's last life may have lost, however many copies that are.

Up to LISTED_MAX copies are listed one by one. Of more it is said that every copy is lossy, which is safe, and is understood by versions
that know no more. Beside that, as `exact`, stands what it really is: the kind, and for each topic id and creation number the partitions,
as in "0-99,105". That has a bound, too: a node of ZooKeeper, with the transaction around it, is below 1 MiB. Beyond the bound every copy
counts as lossy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Final, get_args

from replog.errors import StoreCorrupt
from replog.metadata.values import NUMBER_MAX, Fields
from replog.model import PartitionId
from replog.ports import LossKind, LossReport

__all__ = ["COPIES_MAX", "EXACT_BYTES_MAX", "LISTED_MAX", "loss_fields", "loss_in"]

LISTED_MAX: Final = 5_000
"""Copies that are listed one by one, some 45 bytes each."""
EXACT_BYTES_MAX: Final = 600_000
"""What the partitions of more copies may take."""
COPIES_MAX: Final = 200_000
"""Most copies that are named: whoever reads them, with every look at the brokers, keeps them one by one."""
_TOPIC_ID_BYTES: Final = 16
_RANGES: Final = re.compile(r"[0-9]{1,10}(-[0-9]{1,10})?(,[0-9]{1,10}(-[0-9]{1,10})?)*", re.ASCII)


def loss_fields(loss: LossReport) -> dict[str, Any]:
    """What a registration has in its field `loss`."""
    lives = ({"lives": list(loss.lives)} if loss.lives else {}) | ({"since": loss.since} if loss.since else {})
    if len(loss.lossy) <= LISTED_MAX:
        listed = [[lost.topic_id.hex(), lost.partition, lost.creation] for lost in loss.lossy]
        return {"kind": loss.kind, "lossy": listed, **lives}
    packed = list(_packed(loss.lossy)) if len(loss.lossy) <= COPIES_MAX else None
    fits = packed is not None and sum(64 + len(ranges) for _, _, ranges in packed) <= EXACT_BYTES_MAX
    exact = {"exact": {"kind": loss.kind, "lossy": packed}} if fits else {}
    return {"kind": "replaced", "lossy": [], **lives, **exact}


def loss_in(path: str, fields: Fields) -> LossReport:
    """Reads `loss_fields`; raises StoreCorrupt naming `path`."""
    lossy = tuple(_lost(path, lost) for lost in fields.items("lossy"))
    kind = _kind(path, fields, "loss.kind")
    if "exact" in fields.names():
        exact = fields.part("exact")
        kind, lossy = _kind(path, exact, "loss.exact.kind"), _unpacked(path, exact.items("lossy"))
    since = fields.text("since") if "since" in fields.names() else ""
    return LossReport(kind, lossy, _lives(path, fields), since)


def _lives(path: str, fields: Fields) -> tuple[str, ...]:
    said = fields.items("lives") if "lives" in fields.names() else []
    if not all(isinstance(life, str) for life in said):
        raise StoreCorrupt(path, f"loss.lives is {said!r:.100}, not a list of texts")
    return tuple(said)


def _kind(path: str, fields: Fields, name: str) -> LossKind:
    said = fields.text("kind")
    for kind in get_args(LossKind):
        if kind == said:
            return kind  # type: ignore[no-any-return]
    raise StoreCorrupt(path, f"{name} is {said!r}; known are {', '.join(get_args(LossKind))}")


def _identity(path: str, item: list[Any], within: str) -> PartitionId:
    fields = Fields(path, dict(zip(("topic_id", "partition", "creation"), item, strict=True)), within)
    return PartitionId(fields.hexadecimal("topic_id", _TOPIC_ID_BYTES), fields.number("partition"), fields.number("creation"))


def _lost(path: str, item: object) -> PartitionId:
    if not isinstance(item, list) or len(item) != 3:
        raise StoreCorrupt(path, f"loss.lossy has {item!r}, not a list of topic id, partition and creation number")
    return _identity(path, item, "loss.lossy: ")


def _packed(lossy: Iterable[PartitionId]) -> Iterator[tuple[str, int, str]]:
    """(topic id, creation number, partitions) of these copies, in order."""
    found: dict[tuple[bytes, int], list[int]] = {}
    for lost in lossy:
        found.setdefault((lost.topic_id, lost.creation), []).append(lost.partition)
    for topic_id, creation in sorted(found):
        runs: list[list[int]] = []
        for partition in sorted(set(found[topic_id, creation])):
            if runs and partition == runs[-1][1] + 1:
                runs[-1][1] = partition
            else:
                runs.append([partition, partition])
        yield topic_id.hex(), creation, ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _unpacked(path: str, items: list[Any]) -> tuple[PartitionId, ...]:
    """Reads `_packed`, with no more effort than COPIES_MAX copies are worth."""
    found: list[PartitionId] = []
    total = 0
    for item in items:
        if not isinstance(item, list) or len(item) != 3 or not isinstance(item[2], str) or not _RANGES.fullmatch(item[2]):
            raise StoreCorrupt(path, f"loss.exact.lossy has {item!r:.100}, not a list of topic id, creation number and partitions")
        one = _identity(path, [item[0], 0, item[1]], "loss.exact.lossy: ")
        for run in item[2].split(","):
            first, _, last = run.partition("-")
            low, high = int(first), int(last or first)
            total += high - low + 1
            if not low <= high <= NUMBER_MAX or total > COPIES_MAX:
                raise StoreCorrupt(path, f"loss.exact.lossy has partitions {run}, or more than {COPIES_MAX} copies")
            found.extend(map(PartitionId, repeat(one.topic_id), range(low, high + 1), repeat(one.creation)))
    return tuple(dict.fromkeys(sorted(found)))
