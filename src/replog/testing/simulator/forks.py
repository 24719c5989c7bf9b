"""What an election that may lose records leaves of what was committed. This is the one place that forgives anything.

Once the store says of an election that it may have lost something, the ledger of the partition is what the elected leader holds of it at
that moment. Everything that is checked goes on from there. The rest is a fork: it is remembered, with whatever leaders of earlier epochs
commit who have not heard of the election yet. Only what is in a fork may be missing later, and only its readers may be told that
records are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import define

from replog.model import PartitionState
from replog.records import BatchReader, RecordBatch
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Entry, Ledger

if TYPE_CHECKING:
    from replog.partition.partition import Partition
    from replog.testing.simulator.invariants import Copies
    from replog.testing.simulator.world import World

__all__ = ["Fork", "able_to_lead", "gives_up", "holding_more", "into", "is_of_a_fork", "may_have_lost", "part", "take_up", "texts"]


@define(eq=False)
class Fork:
    """What was committed until an election, and what leaders of earlier epochs have committed since."""

    since: int
    """The epoch of the leader that was elected."""
    end: int
    """Where the ledger parted from this: everything below is in both."""
    start: int
    """Where the log of that leader started: what was said of writers below is forgotten, if it was said again in what is lost."""
    entries: list[Entry]
    """From `end` on."""
    into: int = 0
    """So many records of the first one's batch are below `end`: that is where the leader's log started."""

    @property
    def reach(self) -> int:
        """Offset after its last entry."""
        return self.end + len(self.entries)

    def is_unseen(self, offset: int) -> bool:
        """Whether nobody knows what was there: it was trimmed in the event in which it was committed, or a damaged disk hid it."""
        return self.end <= offset < self.reach and self.entries[offset - self.end] is NEVER_SEEN

    def grow(self, copy: Copy, watermark: int) -> None:
        """A leader of an earlier epoch has this copy, and has committed up to there."""
        if copy.first <= self.reach < watermark:
            self.entries += copy.entries[self.reach - copy.first : watermark - copy.first]


def may_have_lost(ledger: Ledger, before: PartitionState | None) -> bool:
    """Whether the store says of the leader that it has now, and had not before, that its election may have lost something."""
    state, loss = ledger.state, ledger.loss
    if state is None or before is None or loss is None or state.leader_epoch == before.leader_epoch:
        return False
    return (loss.leader, loss.leader_epoch) == (state.leader, state.leader_epoch)


def part(ledger: Ledger, copy: Copy, copies: Iterable[Copy]) -> Fork:
    """Leave in the ledger what the copy of the elected leader holds of it. What it holds beyond and was committed once, in a fork or as
    far as this leader knows, is committed again: it brings it back.
    """
    state, before = ledger.state, ledger.entries
    assert state is not None
    left = _left(ledger, copy, copy.high_watermark)
    end = _agreed(before, left, _held(copy, before))
    hidden = [NEVER_SEEN] * (ledger.reach - ledger.end)  # by a disk that does not give it back
    made = Fork(state.leader_epoch, end, copy.start, before[end:] + hidden, into(before, end))
    ledger.entries = left
    ledger.hidden = min(ledger.hidden, end)
    for one in copies:
        one.matched = min(one.matched, end)
    ledger.forks.append(made)
    return made


def take_up(ledger: Ledger, copy: Copy, partition: Partition) -> bool:
    """The first leader since such an election begins: until it heard of that it may have followed who led before, and have more of a fork,
    or less in front. Whether it has brought something back, or forgotten it.
    """
    if not ledger.forks or partition.leader_epoch < ledger.since or any(epoch >= ledger.since for epoch in ledger.leaders):
        return False
    left, last = _left(ledger, copy, partition.high_watermark), ledger.forks[-1]
    is_trimmed, last.start = copy.start > last.start, max(copy.start, last.start)
    if len(left) > ledger.end:
        ledger.entries = left
    return is_trimmed or ledger.entries is left


def gives_up(ledger: Ledger, copies: Mapping[int, Copy], copy: Copy, leader_epoch: int, offset: int) -> bool:
    """The elected leader is cut before it hears of its election, at an epoch before: whom it follows takes away what it would have brought
    back, but nothing that all lines since that epoch have in common. Whether the ledger has lost something with that.
    """
    state, common = ledger.state, min((fork.end for fork in ledger.forks if fork.since > leader_epoch), default=ledger.end)
    if state is None or copy.broker not in (*state.isr, *state.elr) or not 0 <= leader_epoch < ledger.since:
        return False
    if any(epoch >= ledger.since for epoch in ledger.leaders) or not common <= offset < ledger.end:
        return False
    last = ledger.forks[-1]
    if offset < last.end:
        last.end, last.entries = offset, ledger.entries[offset : last.end] + last.entries
        last.into = into(ledger.entries, offset)
    del ledger.entries[offset:]
    ledger.hidden = min(ledger.hidden, offset)
    ledger.given_up.append(offset)
    for one in copies.values():
        one.matched = min(one.matched, offset)
    return True


def _left(ledger: Ledger, copy: Copy, watermark: int) -> list[Entry]:
    """What a copy holds of all that was ever committed, here or in forks, or as far as it knows."""
    line = ledger.entries
    left = line[: _held(copy, line)]
    for fork in reversed(ledger.forks):
        line = line[: fork.end] + fork.entries
        again = _held(copy, line)
        if again > len(left):
            left = line[:again]
    left += [NEVER_SEEN] * (copy.first - len(left))
    return left + copy.entries[len(left) - copy.first : max(0, watermark - copy.first)]


def holding_more(ledger: Ledger, copies: Copies, before: PartitionState | None) -> tuple[int, ...]:
    """Who was asked how far it reaches, and has more of what is committed than the leader that was elected then."""
    loss = ledger.loss
    if loss is None or before is None or loss.kind != "last_known" or loss.leader not in copies:
        return ()
    asked = [one.broker for one in loss.candidates if one.broker in copies]
    held = {b: _held(copies[b], ledger.entries) for b in asked if not copies[b].suspect}
    return tuple(sorted(b for b, end in held.items() if end > held.get(loss.leader, end)))


def _held(copy: Copy, entries: list[Entry]) -> int:
    """How far a copy holds what was committed; not half a group: its leader will cut that before it leads."""
    at, high = copy.first, min(copy.end, len(entries))
    while at < high and (copy.entries[at - copy.first] == entries[at] or entries[at] is NEVER_SEEN):
        at += 1
    if copy.unreadable and copy.log is not None and at == copy.end:
        at = max(at, min(copy.log.end_offset, len(entries)))
    at = min(at, len(entries))
    while at > copy.first and entries[at - 1].is_open:
        at -= 1
    return at


def _agreed(before: list[Entry], left: list[Entry], held: int) -> int:
    """How far two lines are the same, `held` at most: below the start of a copy it holds whatever the line has that it goes on with, which
    may be an earlier one. What nobody has seen differs from nothing.
    """
    if before[:held] == left[:held]:
        return held
    pairs = zip(before[:held], left, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other and NEVER_SEEN not in (one, other)), held)


def is_of_a_fork(ledger: Ledger, copy: Copy, partition: Partition | None) -> bool:
    """Whether what the broker of a copy tells clients is of a leadership from before an election that may have lost something."""
    if not ledger.forks:
        return False
    leads = partition is not None and partition.leading is not None
    epoch = partition.leader_epoch if partition is not None and leads else -1 if copy.led is None else copy.led[1]
    return ledger.fork_of(epoch) is not None


def able_to_lead(world: World, ledger: Ledger, before: PartitionState | None) -> tuple[int, ...]:
    """Who was in sync or eligible, and could lead as far as the controller knows that has written the state of now."""
    state = ledger.state
    if state is None or before is None:
        return ()
    for node in world.nodes.values():
        term = None if node.controller is None else node.controller._term
        if term is not None and term.controller.controller_epoch == state.controller_epoch:
            cluster, partition = term.cluster, ledger.identity
            live, lossy = cluster.live(partition), cluster.lossy(partition)
            return tuple(b for b in (*before.isr, *before.elr) if b in live and b not in lossy)
    return ()


def into(entries: Sequence[Entry], at: int) -> int:
    """How many entries of the batch that one of them belongs to come before it."""
    crc = entries[at].header_crc if at < len(entries) else 0
    return next((n for n in range(at) if entries[at - 1 - n].header_crc != crc), at)


def texts(entries: Sequence[Entry], first: int, bodies: Mapping[int, bytes], skip: int = 0) -> dict[int, bytes | None]:
    """Offset -> the value there, of entries from offset `first` on, which has `skip` of its batch before it. `bodies` are the batches that
    were sent, by the checksum of their payload.
    """
    found: dict[int, bytes | None] = {}
    values: list[bytes | None] = []
    last, index = NEVER_SEEN, 0
    for offset, entry in enumerate(entries, first):
        if entry.header_crc != last.header_crc:
            body = bodies.get(entry.payload_crc)
            values, last = [] if body is None else BatchReader(RecordBatch(body)).values(), entry
            index = skip if offset == first else 0
        if index < len(values):
            found[offset] = values[index]
        index += 1
    return found
