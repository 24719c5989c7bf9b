"""What the store does not give out now, nor takes anything for: nodes whose checksum does not match, nodes and levels that an access list
forbids. Nobody writes over what is refused, so it is there again, as it was, when the refusal ends.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from replog.errors import ReplogError, StoreCorrupt, UsageError
from replog.metadata import judgements, layout
from replog.metadata.memory import MemoryStore

__all__ = ["Refusals", "draw"]

_ROWS: Final = (layout.DELETE_TOPICS, *layout.WISHES, layout.DRAINING, layout.REMOVED)


class Refusals:
    """Nests, as all faults do. A path with a slash behind it stands for the list of what is below."""

    def __init__(self) -> None:
        self._refused: Counter[tuple[str, bool]] = Counter()
        """(path, whether its checksum does not match; else an access list forbids it)."""

    def add(self, refusal: tuple[str, bool], step: int) -> None:
        """Refuse a path (step 1), or no longer (-1)."""
        self._refused[refusal] += step
        if not self._refused[refusal]:
            del self._refused[refusal]

    def clear(self) -> None:
        """Everything is given out again."""
        self._refused.clear()

    def error(self, paths: Iterable[str]) -> ReplogError | None:
        """What the store says to somebody who reads or writes these; None if nothing is in the way."""
        if self._refused:
            for path in paths:
                if (path, True) in self._refused:
                    return StoreCorrupt(path, "the value does not match its checksum")
                if (path, False) in self._refused:
                    return UsageError("the access list of a node does not allow this")
        return None

    def check(self, verb: str, argument: Any) -> None:
        """Raise what the store says to this call; of transactions that are independent each is asked for by itself."""
        if not self._refused or verb == "commit_each":
            return
        match verb:
            case "read_each":
                paths: Sequence[str] = argument
            case "commit":
                paths = [op.path for op in argument]
            case "list":
                paths = (argument, f"{argument}/")
            case "watch":
                paths = (f"{argument}/",)
            case _:
                paths = (argument,)
        if (error := self.error(paths)) is not None:
            raise error


def _moves(store: MemoryStore) -> list[str]:
    """The topics of which moves are wished."""
    return [f"{layout.PARTITIONS_REASSIGNED}/{name}" for name in store.list(layout.PARTITIONS_REASSIGNED)]


def draw(chance: random.Random, store: MemoryStore) -> tuple[str, bool]:
    """Something that is there and may be refused; never the seat, without which there is no controller at all."""
    nodes = [f"{layout.TOPICS}/{name}" for name in store.list(layout.TOPICS)]
    states = [f"{topic}/{number}/{name}" for topic in nodes for number in store.list(topic) for name in store.list(f"{topic}/{number}")]
    admitted = [f"{judgements.ADMITTED}/{name}" for name in store.list(judgements.ADMITTED)]
    levels = [f"{level}/" for level in (judgements.ADMITTED, *_ROWS)]
    wishes = [f"{layout.DELETE_TOPICS}/{name}" for name in store.list(layout.DELETE_TOPICS)]
    wishes += [f"{row}/{name}" for row in _moves(store) for name in store.list(row)]
    registered = [f"{layout.BROKER_IDS}/{name}" for name in store.list(layout.BROKER_IDS)]
    found = chance.choice([kind for kind in (nodes, states, states, admitted, admitted, levels, wishes, registered) if kind])
    path = chance.choice(found)
    return path, not path.endswith("/") and chance.random() < 0.5
