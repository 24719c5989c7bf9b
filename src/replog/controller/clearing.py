"""What somebody has written below a topic's node, or a state's: it goes first, a slice at a time, when that is to be removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from replog.controller.changes import Stranger
from replog.controller.cluster import Cluster
from replog.controller.decision import Piece, Step
from replog.metadata import layout
from replog.ports import Delete
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.reading import Reader, Script

__all__ = ["clearing", "strangers"]

_LOOKS_MAX: Final = 100
"""So many nodes are looked below at a time: each is a question to the store, and nothing else happens meanwhile."""


def strangers(reader: Reader, refused: Sequence[Delete], beside: Sequence[Delete]) -> Script:
    """What is below nodes of topics of which a removal was refused, and those `beside` them: one step that notes it, or none."""
    if not any(_is_of_topic(op) for op in refused):
        return []
    asked = list(dict.fromkeys(op for op in (*refused, *beside) if _is_of_topic(op)))[:_LOOKS_MAX]
    values = yield from reader.read_each([op.path for op in asked])
    found: list[Stranger] = []
    for op, value in zip(asked, values, strict=True):
        if value is not None and len(found) < _LOOKS_MAX:
            found += yield from _below(reader, op.path)
    return [Step(changes=tuple(found))] if found else []


def _is_of_topic(op: Delete) -> bool:
    return op.path.startswith(f"{layout.TOPICS}/")


def _below(reader: Reader, node: str) -> Script:
    """Nodes below a node, each after all that is below it: not many, but at least one if there is any."""
    found: list[Stranger] = []
    todo = [(f"{node}/{name}", False) for name in reversed((yield from reader.names(node, nested=True)))]
    looks = 1
    while todo and (looks < _LOOKS_MAX or not found):
        path, is_last = todo.pop()
        if is_last:
            found.append(Stranger(path, node))
            continue
        names = yield from reader.names(path, nested=True)
        looks += 1
        todo += [(path, True), *((f"{path}/{name}", False) for name in reversed(names))]
    return found


def clearing(cluster: Cluster, nodes: Iterable[str], count: int) -> list[Piece]:
    """What removes the first `count` of the nodes that are known to be below these."""
    if not cluster.below:
        return []
    wanted = set(nodes)
    paths = [path for path, node in cluster.below.items() if node in wanted][:count]
    return [Piece((Delete(path),), (Stranger(path, None),), (Told("stranger_removed", {"path": path}),)) for path in paths]
