"""What a client may rely on when it asks something: what was committed by then, unless an election since may have lost it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replog.errors import LogTruncated
from replog.messages import ListedOffset
from replog.model import PartitionId
from replog.testing.simulator.clients import TOPIC
from replog.testing.simulator.ledger import Ledger, Violation

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["Forgiven", "Known", "is_lost", "is_passed_over", "told_lost"]


class Known:
    """What was the case when a question began: how far a partition was committed, and which leader epoch was stored."""

    def __init__(self, world: World, partition: int) -> None:
        self._end = world.checks.committed(partition, TOPIC)
        self._ledgers = _ledgers(world, partition)
        self._given_up = [len(one.given_up) for one in self._ledgers]
        self.epoch = max((one.state.leader_epoch for one in self._ledgers if one.state is not None), default=-1)

    @property
    def end(self) -> int:
        """How far it was committed, and still is."""
        given_up = [end for one, seen in zip(self._ledgers, self._given_up, strict=True) for end in one.given_up[seen:]]
        return min([self._end, *given_up, *(fork.end for one in self._ledgers for fork in one.forks if fork.since > self.epoch)])

    def binds(self, listed: ListedOffset) -> bool:
        """Whether who answered must have known all of it: a deposed leader need not."""
        return listed.leader_epoch >= self.epoch

    def holds_in(self, leader_epoch: int) -> bool:
        """Whether the answer of this leadership is about what is committed now: no election before or after it has lost anything else."""
        return all(one.since <= min(leader_epoch, self.epoch) for one in self._ledgers)


def is_lost(world: World, partition: int, offset: int, epoch: int = -1) -> bool:
    """Whether an election after a leader epoch may have taken away what was in front of an offset."""
    return any(fork.since > epoch and fork.end < offset for one in _ledgers(world, partition) for fork in one.forks)


def is_passed_over(world: World, partition: int, offset: int, epoch: int, confirmed: int) -> bool:
    """Whether a reader that was placed at an offset under one leader epoch, and goes on there since a later one confirmed it, passes over
    records: the log was shorter meanwhile, and what is below the offset now was appended by later leaders. Not if yet another log has
    become the partition's since, of which the one that confirmed it knew nothing.
    """
    return any(
        offset <= len(one.entries) and epoch < one.entries[offset - 1].leader_epoch <= confirmed
        for one in _ledgers(world, partition)
        if offset > 0 and all(fork.since <= confirmed for fork in one.forks)
    )


def told_lost(world: World, error: LogTruncated, known_epoch: int, epochs: Sequence[tuple[int, int]], who: str) -> int:
    """A reader is told that records are gone which it has read: where it may go on. Raises Violation if none are, or more, or fewer.

    `epochs` is where each leader epoch began of what it has read: where the first one did, it began to read; without any, it has read
    nothing, and what was in front of its position is gone. What changed in front of that is nothing to it, and nobody can name it.
    """
    begun = epochs[0][1] if epochs else error.offset
    partition, told = error.partition, error.divergent_offset
    if not is_lost(world, partition, error.offset, known_epoch):
        raise Violation("S8", f"{who} at {error.offset} of partition {partition} is told: {error}") from error
    kept = min((fork.end for one in _ledgers(world, partition) for fork in one.forks if fork.since > known_epoch), default=0)
    if told < min(kept, error.offset):
        raise Violation("S8", f"{who} at {error.offset} of partition {partition} is sent back to {told}, nothing is lost below {kept}")
    for ledger in _ledgers(world, partition):
        changed = _changed(world, ledger, known_epoch, begun)
        if changed is not None and changed < told:
            raise Violation("S8", f"{who} may go on from {told} of partition {partition}, which has other records from {changed} on")
    world.marks.hit("a reader is told that its records are gone")
    return told


def _changed(world: World, ledger: Ledger, known_epoch: int, begun: int) -> int | None:
    """The first offset from `begun` on at which the leader of now holds another record than was committed in an epoch; None if nobody can
    say.
    """
    leader = None if ledger.state is None else ledger.state.leader
    copy = None if leader is None else world.checks.copy(ledger.identity, leader)
    if copy is None or copy.agreed < ledger.since:
        return None
    limit = copy.end
    found: int | None = None
    for fork in ledger.forks:
        if fork.since > known_epoch:
            for at in range(max(fork.end, copy.start, begun), min(limit, fork.reach)):  # nobody can go on below
                if copy.entries[at - copy.first] != fork.entries[at - fork.end]:
                    found = at
                    break
            limit = min(limit, fork.end)
    return found


class Forgiven:
    """What elections that may lose something have taken out of one log: it is gone through once, however much is asked for."""

    def __init__(self, world: World, identity: PartitionId) -> None:
        self._forks = world.checks.ledger(identity).forks
        self._lost, self._left = world.checks.lost(identity), world.checks.left(identity)

    def has(self, offset: int, value: bytes) -> bool:
        """Whether what was acknowledged there is among it."""
        if any(fork.is_unseen(offset) for fork in self._forks):
            return self._left.get(offset) != value
        return any(found.get(offset) == value for found in self._lost)


def _ledgers(world: World, partition: int) -> list[Ledger]:
    return [one for one in world.checks.ledgers.values() if one.topic == TOPIC and one.identity.partition == partition]
