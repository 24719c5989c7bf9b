"""What the checks remember: the ledger of what was ever committed, and a mirror of every copy, live or not."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from traceback import format_exception
from typing import TYPE_CHECKING, Final, NamedTuple

from replog.errors import LogCorrupt, LogDamaged
from replog.marks import version_of
from replog.metadata.judgements import LossRecord
from replog.model import Assignment, PartitionId, PartitionState
from replog.ports import Log
from replog.records import CONTROL_BIT, GROUP_OPEN_BIT, HEAD_BYTES, HEADER_BYTES, BadBatch, BatchHeader, RecordBatch, read_header

if TYPE_CHECKING:
    from replog.testing.simulator.forks import Fork

__all__ = ["NEVER_SEEN", "Copy", "Entry", "Ledger", "Violation", "header_at"]

_FRAMES_TOLD: Final = 12
"""Of the code that raised an exception, the innermost ones."""
_RECORDS_MAX: Final = 10_000
"""More than any batch of a run has."""


class Violation(AssertionError):
    """An invariant does not hold. `invariant` is its short name, as in S1."""

    def __init__(self, invariant: str, why: str) -> None:
        super().__init__(f"{invariant}: {why}")
        self.invariant = invariant

    @property
    def origin(self) -> list[str]:
        """Where the exception was raised that it stands for, in lines: a "crash" is one of some code. None for other violations."""
        cause = self.__cause__
        return [] if cause is None else "".join(format_exception(cause, limit=-_FRAMES_TOLD)).splitlines()


class Entry(NamedTuple):
    """One offset of a log: equal entries stand for equal bytes, because the header's crc binds them to their place."""

    leader_epoch: int
    header_crc: int
    payload_crc: int
    producer_id: int
    producer_epoch: int
    sequence: int
    into: int = -1
    """Of a record that a writer has marked: how many of its group come before it; else -1."""
    version: int = -1
    """Of the work that such a record belongs to."""
    is_open: bool = False
    """Whether more batches of its group follow."""
    is_control: bool = False
    """Whether no client sent it: a leader has said again what a writer had done (design, section 8)."""


NEVER_SEEN: Final = Entry(-1, -1, -1, -1, -1, -1)
"""Stands for an entry that was gone before anybody could look."""


class Ledger:
    """One partition: its entries below the highest high watermark that any leader ever had, and its state in the store.

    It begins at offset 0 and keeps what retention has removed from the copies.
    """

    def __init__(self, identity: PartitionId) -> None:
        self.identity = identity
        self.topic = ""
        self.entries: list[Entry] = []
        self.state: PartitionState | None = None
        self.replicas: tuple[int, ...] = ()
        self.sent_away: set[int] = set()
        """Brokers that were none of them since they were in the ISR last: what tells them to drop their copy may arrive late."""
        self.assignment: Assignment | None = None
        self.assigned_before: Assignment | None = None
        """Until the last change of the state."""
        self.min_isr = 1
        self.min_isrs: dict[int, int] = {}
        """Partition epoch -> the min ISR of that state: a leader reckons with that of the newest state that it has heard of."""
        self.hidden = 0
        """As far as was committed by a leader whose disk did not give back what: filled in from the first copy that can be read."""
        self.durable = False
        """flush="ack": what counts is on disk."""
        self.retention_bytes: int | None = None
        """What retention by size leaves at least; None: there is no such retention."""
        self.retention_ms: int | None = None
        """Retention by age; None: there is none."""
        self.removed = 0
        """Everything below may be gone: the latest start that retention has allowed a copy (S23)."""
        self.loss: LossRecord | None = None
        """What the store says of the last election that may have lost something, if the present state is recovering from one."""
        self.is_unclean_allowed = False
        """Whether the topic allows unclean elections, or a person has asked for one of this partition and had no answer yet."""
        self.able: tuple[int, ...] = ()
        """Who was complete before the last change of the state, and could lead as far as its controller knew."""
        self.longer: tuple[int, ...] = ()
        """Who was asked before the last election that may have lost something, and holds more than the leader."""
        self.forks: list[Fork] = []
        """What elections that may have lost something have taken out of here, in their order."""
        self.given_up: list[int] = []
        """Each time a leader was cut after such an election and before it heard of it: where."""
        self.closed = False
        """The store has no such partition any more: it was deleted."""
        self.sequences: dict[tuple[int, int], int] = {}
        """(producer, its epoch) -> the sequence that comes next."""
        self.leaders: dict[int, tuple[int, int]] = {}
        """Leader epoch -> (broker, life) that led it."""

    @property
    def end(self) -> int:
        """Offset after the last committed record that is known."""
        return len(self.entries)

    @property
    def reach(self) -> int:
        """Offset after the last committed record."""
        return max(len(self.entries), self.hidden)

    @property
    def since(self) -> int:
        """The leader epoch of the last election that may have lost something: nobody of an earlier one speaks of this ledger; else -1."""
        return self.forks[-1].since if self.forks else -1

    def fork_of(self, leader_epoch: int) -> Fork | None:
        """Where what this epoch commits belongs, if not here."""
        return next((fork for fork in self.forks if leader_epoch < fork.since), None)


@lru_cache(maxsize=4096)
def _mirrored(front: bytes) -> tuple[BatchHeader, int, list[Entry]]:
    """Header of the batch that begins so, how far into its group it begins (-1 if no writer has marked it), its entries.

    Remembered, because every copy of a log holds the same batches. Raises BadBatch.
    """
    header = read_header(front)
    into = int.from_bytes(front[HEADER_BYTES : HEADER_BYTES + 8], "little") if header.extension_bytes else -1
    return header, into, _entries(header, into)


def _entries(header: BatchHeader, into: int) -> list[Entry]:
    """What stands for the records of a batch; `into` is -1 for one that no writer has marked. Raises BadBatch."""
    if header.count > _RECORDS_MAX:  # its checksum does not cover that
        raise BadBatch(f"a batch of {header.count} records; no run makes more than {_RECORDS_MAX}: a bit of it was turned over")
    what = header.leader_epoch, header.header_crc, header.payload_crc, header.producer_id, header.producer_epoch
    first = header.base_sequence
    if into < 0:
        return [Entry(*what, first + n if first >= 0 else -1) for n in range(header.count)]
    mark = version_of(header), bool(header.attributes & GROUP_OPEN_BIT), bool(header.attributes & CONTROL_BIT)
    return [Entry(*what, first + n, into + n, *mark) for n in range(header.count)]


def header_at(view: memoryview, at: int) -> BatchHeader:
    """As `read_header`, for batches that are looked at again and again."""
    return _mirrored(bytes(view[at : at + HEAD_BYTES]))[0]


def _nothing(copy: Copy, header: BatchHeader) -> None:
    """Nobody looks."""


class Copy:
    """The mirror of one broker's log of one partition. It stays when the process ends, and follows what the disk then has.

    `entries` begin at offset `first`. What retention removes from the log stays in the mirror as long as the log lives:
    `start` is where the log itself begins.
    """

    __slots__ = (
        "agreed",
        "broker",
        "damaged",
        "durable",
        "entries",
        "epochs",
        "first",
        "generation",
        "high_watermark",
        "into",
        "key",
        "leader_epoch",
        "led",
        "life",
        "log",
        "lossy",
        "matched",
        "partition_epoch",
        "sizes",
        "start",
        "suspect",
        "unreadable",
        "wall_ms",
    )

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.log: Log | None = None
        self.generation = 0
        self.first = 0
        self.start = 0
        self.entries: list[Entry] = []
        self.epochs: list[tuple[int, int]] = []
        """(leader epoch, first offset of it here), as the batches say."""
        self.sizes: list[tuple[int, int]] = []
        """(first offset, bytes to its end) of each batch."""
        self.matched = 0
        """So many first entries are known to equal the ledger's."""
        self.durable = 0
        """Everything below was flushed at some time, and has not been taken away since."""
        self.life = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.high_watermark = 0
        self.agreed = -1
        """The newest leader epoch in which it has led, or its leader has accepted it as a beginning of its own log."""
        self.led: tuple[int, int] | None = None
        """(life, leader epoch) of the last leadership seen here."""
        self.lossy = False
        """Lost what was committed, by a fault that may do so, and has not been let in since."""
        self.damaged = False
        """As `lossy`, until it is in the ISR again: so long it counts among the losses that acks=all survives."""
        self.suspect = False
        """Its disk was made to misbehave: what it holds may differ from what was written, until all of it has been read again."""
        self.unreadable = False
        """The log itself has said that it cannot be read on from the end of the mirror."""
        self.wall_ms = 0
        """What the clock of its broker said when it was looked at last."""
        self.key: object = None
        self.into = -1
        """How far into its group the batch begins that is taken in now; -1 if no writer has marked it."""

    @property
    def end(self) -> int:
        """Offset after the last mirrored entry."""
        return self.first + len(self.entries)

    def follow(self, log: Log | None, batch: Callable[[Copy, BatchHeader], None] = _nothing) -> int | None:
        """Bring the mirror up to what the log has now. Only what is new is read, unless records were taken away.

        `batch` is told of each batch before it is taken in. Returns where the log parts from what it had before, if
        records are gone from its end.
        """
        if log is None:
            self._begin(None, 0)
            self.durable = 0
            return None
        first, entries = self.first, self.entries
        generation = getattr(log, "generation", 0)
        again = log is not self.log or generation != self.generation
        if again or self.end < log.start_offset:  # or: what could not be read is gone
            self._begin(log, generation)
        self.start = log.start_offset
        if self.end < log.end_offset:
            self._read(log, batch)
        parted = self._parted(first, entries) if again else None
        flushed = min(log.flushed_end, self.end)
        if parted is not None and parted < self.durable:
            self.durable = parted
        if flushed > self.durable:
            self.durable = flushed
        return parted

    def _begin(self, log: Log | None, generation: int) -> None:
        self.log, self.generation = log, generation
        self.first = self.start = 0 if log is None else log.start_offset
        self.entries, self.epochs, self.sizes, self.matched, self.unreadable = [], [], [], 0, False

    def _read(self, log: Log, batch: Callable[[Copy, BatchHeader], None]) -> None:
        try:
            while self.end < log.end_offset:
                # What could not be read the last time is tried by a single batch: behind it there may be thousands of segments, each look.
                slices = log.read(self.end, log.end_offset, 1 if self.unreadable else 1 << 24)
                if not slices and self.suspect:
                    self.unreadable = True
                    return
                if not slices:
                    raise Violation("S16", f"broker {self.broker}: nothing to read at {self.end}, the log ends at {log.end_offset}")
                for piece in slices:
                    try:
                        self.take(piece.view(), batch)
                    finally:
                        piece.release()
                self.unreadable = False
        except (LogCorrupt, LogDamaged, BadBatch, OSError) as problem:
            if not self.suspect and isinstance(problem, LogCorrupt | BadBatch):
                raise Violation("S16", f"broker {self.broker} cannot read its copy at {self.end}: {problem}") from problem
            self.unreadable = True

    def take(self, view: memoryview, batch: Callable[[Copy, BatchHeader], None] = _nothing) -> None:
        """Mirror stored batches, which go on where the mirror ends. Raises BadBatch for what is none."""
        at = 0
        while at < len(view):
            header, into, entries = _mirrored(bytes(view[at : at + HEAD_BYTES]))
            if not self.entries and header.base_offset < self.first < header.end_offset:
                self.first = header.base_offset  # the log starts within this batch
            if self.suspect:
                RecordBatch.parse(view, at)
                if header.base_offset != self.end:
                    raise BadBatch(f"a batch at {header.base_offset} where {self.end} is expected")
            self.into = into
            batch(self, header)
            if header.base_offset != self.end:  # S16 has said so; without it a mirror would be of nothing
                raise Violation("S16", f"broker {self.broker}: a batch at {header.base_offset} where {self.end} is expected")
            if not self.epochs or self.epochs[-1][0] != header.leader_epoch:
                self.epochs.append((header.leader_epoch, header.base_offset))
            self.sizes.append((header.base_offset, header.length + (self.sizes[-1][1] if self.sizes else 0)))
            self.entries += entries
            at += header.length

    def bytes_from(self, offset: int) -> int:
        """Bytes of the batches that begin at `offset` or above."""
        at = bisect_left(self.sizes, (offset, 0))
        return self.sizes[-1][1] - (self.sizes[at - 1][1] if at else 0) if self.sizes else 0

    def _parted(self, first: int, entries: list[Entry]) -> int | None:
        """Where what the mirror has now parts from `entries`, which began at `first`: None if nothing is gone from their end."""
        end = first + len(entries)
        low, high = max(first, self.first), min(end, self.end)
        if self.unreadable or (low >= high and self.first >= end):
            return None
        at = low
        if low >= high or entries[low - first : high - first] == self.entries[low - self.first : high - self.first]:
            at = max(low, high)
        else:
            while entries[at - first] == self.entries[at - self.first]:
                at += 1
        return at if at < end else None

    def mismatch(self, ledger: Ledger, below: int) -> str | None:
        """Why this copy does not hold the ledger's entries below an offset; None if it does. Remembers how far it looked.

        What retention has removed is not missed, nor what it was: a follower trims what it had otherwise together with its leader.
        What a damaged disk does not give back is not held against anybody; nor what was gone before anybody could look.
        """
        at = max(self.matched, self.first, self.start)
        if at >= below:
            return None
        mine, theirs, first = self.entries, ledger.entries, self.first
        stop = min(below, first + len(mine))
        if mine[at - first : stop - first] == theirs[at:stop]:
            at = max(at, stop)
        else:
            while at < stop and (mine[at - first] == theirs[at] or theirs[at] is NEVER_SEEN):
                at += 1
        if at < min(below, first + len(mine)):
            self.matched = at
            epochs = f"epoch {mine[at - first].leader_epoch}, committed is {theirs[at].leader_epoch}"
            return f"broker {self.broker} has other bytes at committed offset {at}: {epochs}"
        self.matched = at
        if at < below and not self.unreadable:
            return f"broker {self.broker} ends at {first + len(mine)} and lacks committed offset {at}"
        return None
