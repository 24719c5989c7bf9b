"""Where logs start: retention alone moves that, and leaves what the topic says."""

from __future__ import annotations

from typing import NamedTuple

from replog.partition.partition import Partition
from replog.records import BatchHeader
from replog.testing.simulator.invariants.base import Asked, Invariant
from replog.testing.simulator.ledger import Copy, Ledger

__all__ = ["StartsAreEarned"]


class _Batch(NamedTuple):
    """What retention looks at."""

    base_offset: int
    length: int
    newest_ms: int


class _Seen:
    """What is known of the batches of one partition, whoever had them."""

    def __init__(self) -> None:
        self.batches: dict[int, _Batch] = {}
        """By the checksum of the header, which stands for the whole batch."""
        self.oldest_ms: int | None = None
        """Of the batches that were asked for: none that was stored unseen is older."""
        self.record_bytes = 0
        """Nor has it more bytes for each of its records."""

    def asked(self, asked: Asked) -> None:
        self.oldest_ms = asked.newest_ms if self.oldest_ms is None else min(self.oldest_ms, asked.newest_ms)
        self.record_bytes = max(self.record_bytes, -(-asked.length // asked.count))

    def below(self, offset: int, ledger: Ledger, copy: Copy) -> _Batch:
        """The batch in front of an offset: as the copy had it, else as it was committed, else what it may have been."""
        at = offset - 1
        entry = None
        if copy.first <= at < copy.end:
            entry = copy.entries[at - copy.first]
        elif at < ledger.end:
            entry = ledger.entries[at]
        found = None if entry is None else self.batches.get(entry.header_crc)
        # No batch is stored that nobody asked for (S17): where none was, nothing unseen is old.
        unseen_ms = copy.wall_ms if self.oldest_ms is None else self.oldest_ms
        return found or _Batch(at, self.record_bytes, unseen_ms)

    def kept(self, start: int, copy: Copy) -> int:
        """Bytes of a copy from its start on, at most: what nobody could read there may be anything that was asked for."""
        unread = 0 if copy.log is None else max(0, copy.log.end_offset - max(copy.end, start))
        return copy.bytes_from(start) + unread * self.record_bytes


class StartsAreEarned(Invariant):
    """A log starts no later than some copy may start by the retention of its topic: at offset 0 if there is none.

    Every copy takes retention by itself, leaders and followers. Segments go from the oldest on: each because that many bytes are
    left without it, or because its newest record is too old by the clock of the broker. Or a copy follows a leader that
    has done so. What else moves a start hides committed records from everybody who compares logs from there on.
    """

    name = "S23"
    source = "Kafka UnifiedLog, deleteRetentionSizeBreachedSegments, deleteRetentionMsBreachedSegments; KAFKA-9491"
    protocol = ("I10",)

    def __init__(self) -> None:
        self._seen: dict[Ledger, _Seen] = {}

    def asked(self, asked: Asked) -> None:
        """What a batch is that is stored and removed again before anybody looks."""
        self._of(asked.ledger).asked(asked)

    def batch(self, ledger: Ledger, copy: Copy, header: BatchHeader) -> None:
        """How old it is, and how large."""
        self._of(ledger).batches[header.header_crc] = _Batch(header.base_offset, header.length, header.max_timestamp_ms)

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """A start may have moved: what was in front of it says whether it was allowed to."""
        if copy.start > ledger.removed:
            self._check(ledger, copy)
            ledger.removed = copy.start

    def _check(self, ledger: Ledger, copy: Copy) -> None:
        limit, age_ms, at, seen = ledger.retention_bytes, ledger.retention_ms, copy.start, self._of(ledger)
        here = f"broker {copy.broker} starts at {at}"
        if limit is None and age_ms is None:
            self.fail(ledger, f"{here}, and nothing was ever to be removed")
        kept = seen.kept(at, copy)
        while at > ledger.removed and (limit is None or kept < limit):
            batch = seen.below(at, ledger, copy)
            if age_ms is None or batch.newest_ms >= copy.wall_ms - age_ms:
                removed = f"the batch at {batch.base_offset}, of {batch.newest_ms}"
                rules = f"{limit} bytes and {age_ms} ms are to be kept, nothing below {ledger.removed}"
                self.fail(ledger, f"{here} at {copy.wall_ms}, without {removed}, and {kept} bytes behind it; {rules}")
            kept += batch.length
            at = batch.base_offset

    def _of(self, ledger: Ledger) -> _Seen:
        seen = self._seen.get(ledger)
        if seen is None:
            seen = self._seen[ledger] = _Seen()
        return seen
