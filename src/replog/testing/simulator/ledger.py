"""What the checks remember: the ledger of what was ever committed, and a mirror of every copy, live or not."""

from __future__ import annotations

from typing import NamedTuple

from replog.model import PartitionId, PartitionState
from replog.ports import Log
from replog.records import read_header

__all__ = ["Copy", "Entry", "Ledger", "Violation"]


class Violation(AssertionError):
    """An invariant does not hold. `invariant` is its short name, as in S1."""

    def __init__(self, invariant: str, why: str) -> None:
        super().__init__(f"{invariant}: {why}")
        self.invariant = invariant


class Entry(NamedTuple):
    """One offset of a log: equal entries stand for equal bytes, because the header's crc binds them to their place."""

    leader_epoch: int
    header_crc: int
    payload_crc: int
    producer_id: int
    producer_epoch: int
    sequence: int


class Ledger:
    """One partition: its entries below the highest high watermark that any leader ever had, and its state in the store."""

    def __init__(self, identity: PartitionId) -> None:
        self.identity = identity
        self.entries: list[Entry] = []
        self.state: PartitionState | None = None
        self.replicas: tuple[int, ...] = ()
        self.min_isr = 1
        self.sequences: dict[tuple[int, int], int] = {}
        """(producer, its epoch) -> the sequence that comes next."""
        self.leaders: dict[int, tuple[int, int]] = {}
        """Leader epoch -> (broker, life) that led it."""

    @property
    def end(self) -> int:
        """Offset after the last committed record."""
        return len(self.entries)


class Copy:
    """The mirror of one broker's log of one partition. It stays when the process ends, and follows what the disk then has."""

    __slots__ = (
        "broker",
        "damaged",
        "end",
        "entries",
        "generation",
        "high_watermark",
        "key",
        "leader_epoch",
        "led",
        "life",
        "log",
        "lossy",
        "matched",
        "partition_epoch",
    )

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.log: Log | None = None
        self.generation = 0
        self.end = 0
        self.entries: list[Entry] = []
        self.matched = 0
        """So many first entries are known to equal the ledger's."""
        self.life = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.high_watermark = 0
        self.led: tuple[int, int] | None = None
        """(life, leader epoch) of the last leadership seen here."""
        self.lossy = False
        """Lost what was committed, by a fault that may do so, and has not been let in since."""
        self.damaged = False
        """As `lossy`, until it is in the ISR again: so long it counts among the losses that acks=all survives."""
        self.key: object = None

    def follow(self, log: Log | None) -> None:
        """Bring the mirror up to what the log has now. Only what is new is read, unless records were taken away."""
        if log is None:
            self.log, self.entries, self.matched, self.end = None, [], 0, 0
            return
        generation = getattr(log, "generation", 0)
        if log is not self.log or generation != self.generation:
            self.log, self.generation = log, generation
            self.entries, self.matched, self.end = [], 0, 0
        if log.start_offset != 0:
            raise Violation("S16", f"broker {self.broker}: the log starts at {log.start_offset}, and nothing was trimmed")
        while self.end < log.end_offset:
            slices = log.read(self.end, log.end_offset, 1 << 24)
            if not slices:
                raise Violation("S16", f"broker {self.broker}: nothing to read at {self.end}, the log ends at {log.end_offset}")
            for piece in slices:
                self.take(piece.view())
                piece.release()

    def take(self, view: memoryview) -> None:
        """Mirror stored batches, which must go on where the mirror ends."""
        at = 0
        while at < len(view):
            header = read_header(view, at)
            if header.base_offset != self.end:
                raise Violation("S16", f"broker {self.broker}: a batch at {header.base_offset} where {self.end} is expected")
            if self.entries and header.leader_epoch < self.entries[-1].leader_epoch:
                before = self.entries[-1].leader_epoch
                raise Violation("S10", f"broker {self.broker}: epoch {header.leader_epoch} at {self.end} follows {before}")
            for n in range(header.count):
                sequence = header.base_sequence + n if header.base_sequence >= 0 else -1
                crcs = header.header_crc, header.payload_crc
                self.entries.append(Entry(header.leader_epoch, *crcs, header.producer_id, header.producer_epoch, sequence))
            self.end = header.end_offset
            at += header.length

    def mismatch(self, ledger: Ledger, below: int) -> str | None:
        """Why this copy does not hold the ledger's entries below an offset; None if it does. Remembers how far it looked."""
        mine, theirs = self.entries, ledger.entries
        at = self.matched
        while at < below:
            if at >= len(mine):
                return f"broker {self.broker} ends at {len(mine)} and lacks committed offset {at}"
            if mine[at] != theirs[at]:
                epochs = f"epoch {mine[at].leader_epoch}, committed is {theirs[at].leader_epoch}"
                return f"broker {self.broker} has other bytes at committed offset {at}: {epochs}"
            at += 1
        self.matched = at
        return None
