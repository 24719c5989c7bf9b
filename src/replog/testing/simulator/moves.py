"""Wishes to move partitions, compared with what the store then has: nobody is moved anywhere that nobody asked for, and nothing is
dropped on the way.

What is wished is what stands at the wish's path; whoever writes it must have been asked. From then on each change of an assignment is a
step of that wish, or the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from replog.messages import Admin
from replog.metadata import layout
from replog.metadata.wishes import decode_replicas
from replog.model import Assignment
from replog.ports import Create, Delete, Put

__all__ = ["Moves"]

_NONE: Final = ()
"""No wish."""


class Moves:
    """What stands at the paths of wishes. `under_way` gives the requests of a verb that may still be fulfilled."""

    def __init__(self, under_way: Callable[[str], list[Admin]]) -> None:
        self._under_way = under_way
        self._wished: dict[tuple[str, int], tuple[int, ...] | None] = {}

    def applied(self, op: Any) -> str:
        """The store has another wish, or one less; what is wrong with that, if anything."""
        place = layout.place_of(op.path).topic_partition
        key = (place.topic, place.partition)
        if isinstance(op, Delete):
            self._wished.pop(key, None)
        elif isinstance(op, Create | Put):
            target = decode_replicas(op.path, op.value)
            if not any(target == wanted for wish in self._under_way("reassign") for wanted in _of(wish, key)):
                return f"{place} is wished on {target}, and nobody has asked for that who has not been answered"
            self._wished[key] = target
        return ""

    def judged(self, topic: str, before: Mapping[int, Assignment], after: Mapping[int, Assignment]) -> str:
        """What is wrong with a change of these assignments, of partitions that stay; empty: nothing."""
        for number, now in after.items():
            then = before.get(number)
            if then is None or then == now or then.creation != now.creation:
                continue
            wished = self._wished.get((topic, number), _NONE)
            why = _step(then, now, wished) if now.original else _end(then, now, wished)
            if why:
                return f"{topic}-{number} goes from {then} to {now}, wished is {wished}: {why}"
        return ""


def _of(wish: Admin, key: tuple[str, int]) -> Iterator[tuple[int, ...] | None]:
    """Where a request wishes a partition."""
    for topic, partition, target in wish.arguments["partitions"]:
        if (topic, partition) == key:
            yield None if target is None else tuple(target)


def _step(then: Assignment, now: Assignment, wished: tuple[int, ...] | None) -> str:
    """A move begins, or goes elsewhere: to what is wished, or back, with everybody who was there, and the first original."""
    target = tuple(r for r in now.replicas if r not in now.removing)
    original = then.original or then.replicas
    if target != (original if wished is None and then.original else wished):
        return "another target"
    if not set(then.replicas) <= set(now.replicas) or set(now.replicas) != {*then.replicas, *target}:
        return "others were replicas"
    if now.original != original or set(now.adding) != set(target) - set(original):
        return "the replicas from before were others"
    return ""


def _end(then: Assignment, now: Assignment, wished: tuple[int, ...] | None) -> str:
    """A move ends: where it was on the way to or is wished, or where it came from if that is wished."""
    if now.adding or now.removing:
        return "it rests, and has replicas that come or go"
    if wished is None:
        return "" if now.replicas == (then.original or then.replicas) else "this is not where it came from"
    there = wished or tuple(r for r in then.replicas if r not in then.removing)
    return "" if now.replicas == there else "this is not its target"
