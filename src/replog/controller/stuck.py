"""Nodes under `/admin` that cannot be removed, because somebody has written below them.

What is wished there is let be until the next `reconcile`, so that it holds up no other wish, and people are told once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from replog.controller import reassign
from replog.controller.changes import NodeStuck
from replog.controller.cluster import Cluster
from replog.controller.decision import Step
from replog.controller.reading import Reader, Script
from replog.errors import StoreCorrupt
from replog.metadata import judgements, layout
from replog.model import PartitionId
from replog.ports import Delete
from replog.ports import Event as Told

__all__ = ["let_be"]

_ROWS: Final = tuple(f"{row}/" for row in (*layout.WISHES, layout.DELETE_TOPICS, layout.REJECTED, judgements.LOSSES))
"""Where whoever decides asks whether a node can be removed."""


def let_be(reader: Reader, cluster: Cluster, refused: Sequence[Delete]) -> Script:
    """Those of the nodes, of which a removal was refused, that have something below them: one step that notes it, or none."""
    found: list[NodeStuck] = []
    told: list[Told] = []
    for op in refused:
        if not op.path.startswith(_ROWS) or len(below := (yield "list", op.path)) == 0:
            continue
        (value,) = yield from reader.read_each([op.path])
        if value is None or cluster.is_stuck(op.path, value.version, value.created):
            continue
        found.append(NodeStuck(op.path, value.version, value.created, _named(cluster, op.path)))
        before = cluster.stuck_before.get(op.path)
        if before is None or before.created != value.created:
            told.append(Told("wish_stuck", {"path": op.path, "below": ", ".join(below[:10])}))
    return [Step(changes=tuple(found), told=tuple(told))] if found else []


def _named(cluster: Cluster, path: str) -> PartitionId | None:
    try:
        return reassign.named_at(cluster, path)
    except StoreCorrupt:
        return None
