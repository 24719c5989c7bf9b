"""Nodes under `/admin` that cannot be removed, because somebody has written below them.

What is wished there is let be until the next `reconcile`, so that it holds up no other wish, and people are told once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from replog.controller import reassign
from replog.controller.changes import NodeStuck
from replog.controller.clearing import strangers
from replog.controller.cluster import Cluster
from replog.controller.decision import Step
from replog.controller.reading import REFUSED, Reader, Script
from replog.errors import StoreCorrupt
from replog.metadata import judgements, layout
from replog.model import PartitionId
from replog.ports import Delete
from replog.ports import Event as Told

__all__ = ["let_be"]

_ROWS: Final = tuple(f"{row}/" for row in (*layout.WISHES, layout.DELETE_TOPICS, layout.REJECTED, judgements.LOSSES))
"""Where whoever decides asks whether a node can be removed."""


def let_be(reader: Reader, cluster: Cluster, refused: Sequence[Delete], beside: Sequence[Delete]) -> Script:
    """Those of the nodes, of which a removal was refused, that have something below them: steps that note it, or none.

    What is below the nodes of topics is noted, too, because it goes with them. If there are any, those that were to be removed in the same
    transactions (`beside`) are looked at too, and not one after the other.
    """
    steps: list[Step] = yield from _found(reader, cluster, refused)
    if steps:
        steps += yield from _found(reader, cluster, [op for op in beside if op not in refused])
    return [*steps, *(yield from strangers(reader, refused, beside))]


def _found(reader: Reader, cluster: Cluster, removals: Sequence[Delete]) -> Script:
    found: list[NodeStuck] = []
    told: list[Told] = []
    asked = [op for op in removals if op.path.startswith(_ROWS)]
    values = (yield from reader.read_each([op.path for op in asked])) if asked else ()
    for op, value in zip(asked, values, strict=True):
        if value is None or value is REFUSED or op.version not in (None, value.version) or op.created not in (None, value.created):
            continue  # it is gone, or another, or cannot be read: that is why
        below: list[str] = yield "list", op.path
        if not below or cluster.is_stuck(op.path, value.version, value.created):
            continue
        found.append(NodeStuck(op.path, value.version, value.created, _named(cluster, op.path)))
        before = cluster.stuck_before.get(op.path) or cluster.stuck.get(op.path)
        if before is None or before.created != value.created:
            told.append(Told("wish_stuck", {"path": op.path, "below": ", ".join(below[:10])}))
    return [Step(changes=tuple(found), told=tuple(told))] if found else []


def _named(cluster: Cluster, path: str) -> PartitionId | None:
    try:
        return reassign.named_at(cluster, path)
    except StoreCorrupt:
        return None
