"""Work that is run again: groups of batches are whole, versions grow, and what is called done is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replog.marks import version_of
from replog.messages import FetchedEntry, ListedOffset, ProducedEntry, Published
from replog.model import Address
from replog.partition.partition import Partition
from replog.records import BatchHeader
from replog.testing.simulator.invariants.base import Asked, Claim, Copies, Headers, Invariant
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Entry, Ledger

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node

__all__ = ["DoneIsCommitted", "GroupsAreWhole", "VersionsGrow"]

_Work = tuple[int, int]
"""What stands for the writer, and the version."""


def _inside(entries: Sequence[Entry], offset: int) -> bool:
    """Whether an offset is between the batches of a group: not if nothing is known of what is below it."""
    return 0 < offset <= len(entries) and entries[offset - 1].is_open


class GroupsAreWhole(Invariant):
    """The high watermark is never inside a group, on any copy nor in any answer; and nothing lies between the batches of a group.

    A log may start inside of one, because retention removes whole segments; its high watermark may then be there too.
    """

    name = "S25"
    source = "design, section 8: readers see a group whole or not at all"
    protocol = ("I17",)

    def batch(self, ledger: Ledger, copy: Copy, header: BatchHeader) -> None:
        """A group goes on where it was, and begins at its beginning."""
        last = copy.entries[-1] if copy.entries else None
        if last is None:
            return
        where = f"broker {copy.broker} has at {header.base_offset}"
        if last.is_open:
            goes_on = header.extension_bytes and copy.into == last.into + 1
            if not goes_on or (header.producer_id, version_of(header)) != (last.producer_id, last.version):
                self.fail(ledger, f"{where} other records, between the batches of a group")
        elif copy.into > 0:
            self.fail(ledger, f"{where} a batch that begins {copy.into} records into its group, of which nothing is before it")

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """The high watermark of a copy."""
        watermark = partition.high_watermark
        if watermark > copy.start and _inside(copy.entries, watermark - copy.first):
            self.fail(ledger, f"broker {copy.broker} has its HW at {watermark}, inside a group")

    def shown(self, reader: Address, ledger: Ledger, partition: Partition | None, entry: FetchedEntry, found: Sequence[Headers]) -> None:
        """The high watermark that a reader is told."""
        self._tell(reader, ledger, partition, entry.high_watermark)

    def listed(self, reader: Address, ledger: Ledger, partition: Partition | None, entry: ListedOffset) -> None:
        """The same as the latest offset."""
        if entry.timestamp_ms < 0 and entry.offset != entry.start_offset:
            self._tell(reader, ledger, partition, entry.offset)

    def _tell(self, reader: Address, ledger: Ledger, partition: Partition | None, watermark: int) -> None:
        start = 0 if partition is None else partition.log.start_offset
        if watermark > start and _inside(ledger.entries, watermark):
            self.fail(ledger, f"client {reader} is told HW {watermark}, inside a group")


class VersionsGrow(Invariant):
    """Of each writer a version is committed once, and later ones after it: in full, however often its work was run.

    What retention removes is said again before, so that nothing is ever forgotten; what is said again is the last.
    """

    name = "S17"
    source = "design, section 8; ECOSYSTEM 2.3, P-104"
    protocol = ("I19",)

    def __init__(self) -> None:
        self._seen: dict[Ledger, int] = {}
        self._last: dict[Ledger, dict[int, int]] = {}
        """Writer -> its last version."""
        self._back: dict[Ledger, int] = {}
        """Where that ends which the last unclean election has left, or brought back."""

    def parted(self, ledger: Ledger) -> None:
        """Of each writer the last version is the last that the leader still has."""
        fork = ledger.forks[-1]
        self._seen[ledger] = end = min(fork.end, self._seen.get(ledger, 0))
        versions = self._last[ledger] = {}
        self._back[ledger] = ledger.end
        forgotten = _forgotten(ledger)
        for offset, entry in enumerate(ledger.entries[:end]):
            if entry.into >= 0 and (offset >= fork.start or (forgotten is not None and entry.producer_id not in forgotten)):
                versions[entry.producer_id] = max(entry.version, versions.get(entry.producer_id, -1))

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Look at what has been committed since the last time."""
        versions = self._last.setdefault(ledger, {})
        begin = ledger.forks[-1].start if ledger.forks else 0  # what is in front of its log an elected leader has forgotten
        for offset in range(max(self._seen.get(ledger, 0), begin), ledger.end):
            entry = ledger.entries[offset]
            if entry.into < 0:
                continue
            last = versions.get(entry.producer_id, -1)
            if entry.is_control:
                is_back = last < 0 and self._is_back(ledger, entry, offset)
                if entry.version != last and not is_back and NEVER_SEEN not in ledger.entries[:offset]:
                    self.fail(ledger, f"version {entry.version} of a writer is said again at {offset}, its last one is {last}")
            elif entry.into == 0 and entry.version <= last:
                self.fail(ledger, f"version {entry.version} of a writer is at {offset}, after version {last}")
            versions[entry.producer_id] = max(last, entry.version)
        self._seen[ledger] = ledger.end

    def _is_back(self, ledger: Ledger, entry: Entry, offset: int) -> bool:
        """Whether an unclean election has brought it back, said again of work that is in some line, in front of the leader's log."""
        if offset >= self._back.get(ledger, 0):
            return False
        work = entry.producer_id, entry.version
        lines = (ledger.entries[:offset], *(fork.entries for fork in ledger.forks))
        return any((one.producer_id, one.version) == work and not one.is_control for line in lines for one in line)


def _forgotten(ledger: Ledger) -> set[int] | None:
    """Writers of whom elections have lost something: a leader knows nothing of them if it is in front of its log. None: it may be any."""
    if ledger.given_up or any(NEVER_SEEN in line for line in (ledger.entries, *(fork.entries for fork in ledger.forks))):
        return None
    return {entry.producer_id for fork in ledger.forks for entry in fork.entries if entry.into >= 0}


class DoneIsCommitted(Invariant):
    """A writer that is told that its work is done finds it committed, in full, where it is told; or a later version of it.

    Which of several attempts it is nobody promises. Without a place, which is -1, it is told of work that is there in any case: its
    beginning was trimmed, or it was said again since, or a disk does not give back the beginning.
    """

    name = "S12"
    source = "design, section 8: a version is answered with the first one's offsets once committed; P-103"
    protocol = ("I18",)

    def __init__(self) -> None:
        self._seen: dict[Ledger, int] = {}
        self._places: dict[Ledger, dict[_Work, tuple[int, int]]] = {}
        """Work -> where it begins, and where what is committed of it ends."""
        self._unsure: set[tuple[Ledger, int]] = set()
        """Writers whose last work was said again: that may be all that a leader remembers."""
        self._damaged: set[tuple[Ledger, int]] = set()
        """Copies whose disk may not give back where work begins: of a log, by a broker."""
        self._reads_fail = False
        """Whether who speaks now may have been unable to read where work begins, for a disk that failed."""

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """Whether a disk misbehaves: until all of the copy has been read again."""
        (self._damaged.add if copy.suspect else self._damaged.discard)((ledger, copy.broker))

    def said(self, node: Node, to: Address, message: Any) -> None:
        """Who speaks. What could not be read when it was asked for may be told when reads do not fail any more."""
        self._reads_fail = node.reads_fail

    def parted(self, ledger: Ledger) -> None:
        """Work that is gone may be done again, elsewhere. It went in whole groups."""
        end = ledger.forks[-1].end
        self._places[ledger] = {work: place for work, place in self._places.get(ledger, {}).items() if place[1] <= end}
        self._seen[ledger] = min(end, self._seen.get(ledger, 0))
        self._note(ledger)

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """Note where work is."""
        self._note(ledger)

    def _note(self, ledger: Ledger) -> None:
        places = self._places.setdefault(ledger, {})
        for offset in range(self._seen.get(ledger, 0), ledger.end):
            entry = ledger.entries[offset]
            if entry.is_control:
                self._unsure.add((ledger, entry.producer_id))
            elif entry.into >= 0:
                work = entry.producer_id, entry.version
                base, _ = places.get(work, (offset - entry.into, 0))
                places[work] = (base if entry.into else offset), offset + 1  # again, where nobody remembers the first one: S17 judges that
        self._seen[ledger] = ledger.end

    def produced(self, ledger: Ledger, partition: Partition | None, entry: ProducedEntry, asked: Asked) -> None:
        """One batch, or what was stored under its version."""
        if asked.version >= 0:
            self._done(ledger, partition, (asked.producer_id, asked.version), entry.base_offset, None)

    def published(self, ledger: Ledger, partition: Partition | None, answer: Published, claim: Claim) -> None:
        """A group; or, already when it is put aside, what is there of it."""
        self._done(ledger, partition, (claim.producer_id, claim.version), answer.base_offset, answer.end_offset)

    def _done(self, ledger: Ledger, partition: Partition | None, work: _Work, base: int, end: int | None) -> None:
        if ledger.end < ledger.reach or NEVER_SEEN in ledger.entries:
            return  # a damaged disk, or retention, has hidden what it is
        places = self._places.get(ledger, {})
        known = places.get(work)
        told = f"version {work[1]} of a writer is called done at [{base}, {'?' if end is None else end})"
        start = 0 if partition is None else partition.log.start_offset
        if base < 0:
            later = any(writer == work[0] and version > work[1] for writer, version in places)
            if not later and (known is None or (known[0] >= start and not self._is_hidden(ledger, partition, work[0]))):
                self.fail(ledger, f"{told}, where nothing of it has gone")
            return
        if known is None:
            self.fail(ledger, f"{told}, of which nothing is committed")
        watermark = ledger.reach if partition is None else partition.high_watermark
        if ledger.entries[known[1] - 1].is_open or known[1] > watermark:
            self.fail(ledger, f"{told}, committed are {known} below HW {watermark}")
        if base != known[0] or end not in (None, known[1]):
            self.fail(ledger, f"{told}, it is at {known}")

    def _is_hidden(self, ledger: Ledger, partition: Partition | None, writer: int) -> bool:
        """Whether a leader that has some work may not know where that begins."""
        damaged = any(one is ledger and (partition is None or broker == partition.broker_id) for one, broker in self._damaged)
        return damaged or self._reads_fail or (ledger, writer) in self._unsure
