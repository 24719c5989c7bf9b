"""What a decision is made of: steps that are stored one by one, and what follows once they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from replog.controller.changes import Change, TopicSet
from replog.controller.events import AdminAsked, Event
from replog.errors import Code
from replog.messages import AdminAnswer, StopEntry
from replog.metadata import layout
from replog.model import Address, PartitionId
from replog.ports import Create, Delete, MetadataStore, Op
from replog.ports import Event as Told

__all__ = ["BYTES_MAX", "OPS_MAX", "Ask", "Decision", "Piece", "Step", "answered", "fitting_beside", "pack", "weight"]

OPS_MAX = MetadataStore.commit_ops_max - 1
"""Operations of a step besides its guard."""
BYTES_MAX = 700_000
"""Most that a step of several pieces weighs: ZooKeeper takes no request of a MiB (`jute.maxbuffer`). The rest is room for its chroot,
which is before every path there and is not known here."""


@frozen
class Step:
    """One transaction and what it means. Nothing of it is applied, noticed or answered unless it was committed."""

    ops: tuple[Op, ...] = ()
    """Begins with the guard: a Check on the version of the controller epoch. Empty: something observed, nothing to store."""
    changes: tuple[Change, ...] = ()
    stops: tuple[tuple[int, StopEntry], ...] = ()
    """(broker, copy to take out of service)."""
    told: tuple[Told, ...] = ()
    pieces: tuple[Piece, ...] = field(default=(), eq=False, repr=False)
    """What it is made of, if it can be taken apart."""

    def as_stored(self, numbers: Sequence[int]) -> Step:
        """Once the store has taken it, with the numbers that it answered: a topic that was made knows its node."""
        if not any(isinstance(change, TopicSet) and change.topic.created is None for change in self.changes):
            return self
        made = {op.path: number for op, number in zip(self.ops, numbers, strict=False) if isinstance(op, Create)}
        return evolve(self, changes=tuple(_as_stored(change, made) for change in self.changes))

    def apart(self) -> tuple[Step, ...]:
        """Its pieces as steps of their own, in order: what cannot be stored then stops nothing else."""
        return (self,) if len(self.pieces) < 2 else tuple(_step(self.ops[0], [piece]) for piece in self.pieces)


@frozen
class Ask:
    """Ask these replicas how far they reach, to choose among a last-known set."""

    partition: PartitionId
    leader_epoch: int
    replicas: tuple[int, ...]
    awaited: tuple[int, ...] = ()
    """Those of them without whom nothing is decided, however long they say nothing; (): all."""


@frozen
class Decision:
    """Steps, then (once every one of them is applied) answers, questions, and events that go on from there."""

    steps: tuple[Step, ...] = ()
    answers: tuple[tuple[Address, Any], ...] = ()
    asks: tuple[Ask, ...] = ()
    after: tuple[Event, ...] = ()
    later: tuple[Event, ...] = ()
    """To be decided again with the next `reconcile`, or once a partition that was parked is so no more."""
    doubt: tuple[PartitionId, ...] = ()
    """A leader knows newer states of these than this controller: it must look again, at its own epoch too (P-66)."""
    as_controller: bool = False
    """Its answers are from memory, and count only if this was the controller when it was asked: a successor may know better (P-61)."""


@frozen
class Piece:
    """Operations that belong into one transaction, with what they change."""

    ops: tuple[Op, ...]
    changes: tuple[Change, ...]
    told: tuple[Told, ...] = ()
    stops: tuple[tuple[int, StopEntry], ...] = ()


def _as_stored(change: Change, made: Mapping[str, int]) -> Change:
    if not isinstance(change, TopicSet) or change.topic.created is not None:
        return change
    return TopicSet(evolve(change.topic, created=made.get(layout.topic_path(change.topic.topic))))


def answered(event: AdminAsked, result: dict[str, Any]) -> Decision:
    """A request that is granted, or was before, with nothing to store: its answer."""
    request = event.request
    return Decision(answers=((event.sender, AdminAnswer(request.request, Code.NONE, result=result, origin=request.origin)),))


def weight(ops: Iterable[Op]) -> int:
    """Bytes of these operations in a request of ZooKeeper, rather more: each with a parent that is made, or goes, with it.

    A node that is created has its access list beside it.
    """
    return sum(2 * len(op.path.encode()) + (50 if isinstance(op, Delete) else 200 + len(getattr(op, "value", b""))) for op in ops)


def fitting_beside(ops: Sequence[Op], pieces: Iterable[Piece]) -> list[Piece]:
    """The first of these pieces, as many as one transaction takes together with these operations."""
    taken: list[Piece] = []
    size, room = OPS_MAX - len(ops), BYTES_MAX - weight(ops)
    for piece in pieces:
        size -= len(piece.ops)
        room -= weight(piece.ops)
        if size < 0 or room < 0:
            break
        taken.append(piece)
    return taken


def pack(guard: Op, pieces: Iterable[Piece], ops_max: int = OPS_MAX) -> tuple[Step, ...]:
    """Pieces in as few steps as their number of operations, and their bytes, allow."""
    steps: list[Step] = []
    batch: list[Piece] = []
    size = room = 0
    for piece in pieces:
        length = weight(piece.ops)
        if batch and (size + len(piece.ops) > ops_max or length > room):
            steps.append(_step(guard, batch))
            batch = []
        if not batch:
            size, room = 0, BYTES_MAX
        batch.append(piece)
        size += len(piece.ops)
        room -= length
    if batch:
        steps.append(_step(guard, batch))
    return tuple(steps)


def _step(guard: Op, pieces: Sequence[Piece]) -> Step:
    """Without a guard where there is nothing to store."""
    ops = tuple(op for piece in pieces for op in piece.ops)
    return Step(
        ops=(guard, *ops) if ops else (),
        changes=tuple(change for piece in pieces for change in piece.changes),
        stops=tuple(stop for piece in pieces for stop in piece.stops),
        told=tuple(told for piece in pieces for told in piece.told),
        pieces=tuple(pieces),
    )
