"""What clients are told, and what leaves a broker at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from replog.messages import FetchedEntry, ListedOffset, ProducedEntry
from replog.model import ACKS_ALL, ACKS_LEADER, Address, PartitionId
from replog.partition.following import parsed
from replog.partition.partition import Partition
from replog.records import BadBatch, BatchHeader
from replog.testing.simulator.invariants.base import Asked, Headers, Invariant
from replog.testing.simulator.ledger import NEVER_SEEN, Copy, Ledger

if TYPE_CHECKING:
    from replog.ports import Slice

__all__ = ["AcknowledgedIsCommitted", "BytesAreIntact", "ReadersNeverGoBack", "ReadersSeeCommitted"]

_PAYLOADS_CHECKED: Final = 8
"""One slice in so many is verified in full; all others by their headers, which are bound to the crc of the payload."""


class AcknowledgedIsCommitted(Invariant):
    """acks=all is answered with success only below the high watermark, and for the very records that were sent.

    acks=1 under flush="ack" is answered once the leader has flushed them.
    """

    name = "S12"
    source = "Kafka acks=all; KIP-98 for repetitions; P-103"
    protocol = ("I18",)

    def produced(self, ledger: Ledger, partition: Partition | None, entry: ProducedEntry, asked: Asked) -> None:
        """One answer of success."""
        base, end = entry.base_offset, entry.base_offset + asked.count
        if asked.acks == ACKS_LEADER:
            if ledger.durable and partition is not None and end > partition.log.flushed_end:
                self.fail(ledger, f"broker {partition.broker_id} confirms [{base}, {end}), it has flushed {partition.log.flushed_end}")
            return
        if asked.acks != ACKS_ALL or asked.version >= 0:
            return  # of marked work another attempt may be there
        watermark = ledger.reach if partition is None else partition.high_watermark
        if base < 0 or end > watermark or end > ledger.reach:
            self.fail(ledger, f"[{base}, {end}) is confirmed with HW {watermark}, committed is {ledger.reach}")
        for n, found in enumerate(ledger.entries[base:end]):
            sequence = asked.sequence + n if asked.sequence >= 0 else -1
            mine = (asked.producer_id, asked.producer_epoch, sequence, asked.payload_crc)
            known = found is not NEVER_SEEN  # else it was trimmed in the event in which it was committed
            if known and (found.producer_id, found.producer_epoch, found.sequence, found.payload_crc) != mine:
                self.fail(ledger, f"other records are confirmed at {base + n} than were sent")


def _follow_each_other(piece: Slice, headers: Sequence[BatchHeader]) -> bool:
    """Whether the batches fill what the slice claims. The number of records is covered by the checksum of the payload alone."""
    expected = piece.base_offset
    for header in headers:
        if header.base_offset != expected:
            return False
        expected = header.end_offset
    return expected == piece.end_offset


class ReadersSeeCommitted(Invariant):
    """No answer to a client holds a record, or names an offset, at or above the high watermark."""

    name = "S13"
    source = "Kafka read rule; KAFKA-9807, P-108"
    protocol = ("I17", "I16")

    def shown(self, reader: Address, ledger: Ledger, partition: Partition | None, entry: FetchedEntry, found: Sequence[Headers]) -> None:
        """Look at every batch."""
        if entry.high_watermark > ledger.reach:
            self.fail(ledger, f"client {reader} is told HW {entry.high_watermark}, committed is {ledger.reach}")
        for piece, headers in zip(entry.slices, found, strict=True):
            if piece.end_offset > ledger.reach or (partition is not None and piece.end_offset > partition.high_watermark):
                self.fail(ledger, f"client {reader} is shown [{piece.base_offset}, {piece.end_offset}), committed is {ledger.reach}")
            if isinstance(headers, str) or not _follow_each_other(piece, headers):
                continue  # whoever reads this finds out; whether it may happen at all is S18
            for header in headers:
                known = ledger.entries[header.base_offset] if header.base_offset < ledger.end else NEVER_SEEN
                # One that nobody has seen was trimmed in the event in which it was committed.
                if header.end_offset > ledger.reach or (known is not NEVER_SEEN and known.header_crc != header.header_crc):
                    self.fail(ledger, f"client {reader} is shown uncommitted offset {header.base_offset}")

    def listed(self, reader: Address, ledger: Ledger, partition: Partition | None, entry: ListedOffset) -> None:
        """Earliest, latest or by time: never beyond what is committed."""
        if entry.offset > ledger.reach:
            self.fail(ledger, f"client {reader} is told offset {entry.offset}, committed is {ledger.reach}")


class ReadersNeverGoBack(Invariant):
    """The high watermark that leaders show to one reader never goes back.

    A paused leader or a follower may be old. A new leader counts once it knows what earlier ones had committed: when its
    high watermark has reached the start of its epoch (KIP-207).
    """

    name = "S8"
    source = "KIP-207, KIP-320; KAFKA-2334"
    protocol = ("I11", "I16")

    def __init__(self) -> None:
        self._shown: dict[tuple[Address, PartitionId, int], int] = {}
        """(reader, partition, since which election that may have lost something) -> what it was shown."""

    def shown(self, reader: Address, ledger: Ledger, partition: Partition | None, entry: FetchedEntry, found: Sequence[Headers]) -> None:
        """In an answer to a fetch."""
        self._tell(reader, ledger, partition, entry.high_watermark)

    def listed(self, reader: Address, ledger: Ledger, partition: Partition | None, entry: ListedOffset) -> None:
        """As the latest offset: the one without a time that is not the start."""
        if entry.timestamp_ms < 0 and entry.offset != entry.start_offset:
            self._tell(reader, ledger, partition, entry.offset)

    def _tell(self, reader: Address, ledger: Ledger, partition: Partition | None, high_watermark: int) -> None:
        leading = None if partition is None else partition.leading
        state = ledger.state
        if leading is None or state is None or high_watermark < leading.epoch_start:
            return
        if state.leader != leading.leader_id or state.leader_epoch != leading.leader_epoch:
            return
        known = self._shown.get((reader, ledger.identity, ledger.since), -1)
        if high_watermark < known:
            self.fail(ledger, f"leader {leading.leader_id} shows client {reader} HW {high_watermark}, it was shown {known} before")
        self._shown[reader, ledger.identity, ledger.since] = high_watermark


class BytesAreIntact(Invariant):
    """No batch leaves a broker whose checksums do not match, or that belongs elsewhere.

    What a damaged disk gives back is for the reader to find (it never reaches a log or a program: S9, L5), and to report.
    """

    name = "S18"
    source = "RELIABILITY 5.2; FAST'17; R13"
    protocol = ("I21",)

    def __init__(self) -> None:
        self._slices = 0

    def shipped(self, ledger: Ledger, copy: Copy, piece: Slice, headers: Headers) -> None:
        """All headers, and the payloads of a share."""
        if copy.suspect:
            return
        where = f"broker {copy.broker} sends [{piece.base_offset}, {piece.end_offset})"
        if isinstance(headers, str):
            self.fail(ledger, f"{where}: {headers}")
        expected = piece.base_offset
        for header in headers:
            if header.base_offset != expected or header.identity != ledger.identity:
                self.fail(ledger, f"{where}: {header.identity!r} at {header.base_offset}, where {expected} is expected")
            expected = header.end_offset
        if expected != piece.end_offset:
            self.fail(ledger, f"{where}: it ends at {expected}")
        self._slices += 1
        if self._slices % _PAYLOADS_CHECKED == 0:
            try:
                for _ in parsed(piece.view(), ledger.identity):
                    pass
            except BadBatch as problem:
                self.fail(ledger, f"{where}: {problem}")
