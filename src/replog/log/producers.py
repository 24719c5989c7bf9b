"""What a log remembers of its writers, so that a batch sent twice is stored once (KIP-98, KIP-360; PROTOCOL 4.12).

The table is a function of the log: it is recorded with each append, checked by nobody here (a follower stores what its
leader accepted, KAFKA-6003), cut back with the log, and rebuilt from batch headers when the log is loaded.

Writers that mark their batches with a version (`replog.marks`) are in the same table: what counts of them is the last batch of each
piece of work.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any, Final

from replog.marks import version_of
from replog.ports import Writer
from replog.records import CONTROL_BIT, GROUP_OPEN_BIT, BatchHeader, RecordBatch

__all__ = ["BATCHES_KEPT", "MARKED", "Producer", "ProducerTable"]

BATCHES_KEPT: Final = 5
"""Batches remembered per producer: as many as a client may have in flight (KIP-98)."""
MARKED: Final = -1
"""In place of the epoch of a writer that marks its batches: what is kept of each is (version, end offset, ...)."""
_WRAP: Final = 0x7FFF_FFFF
_as_writer: Final[Callable[[tuple[int, ...]], Writer]] = partial(tuple.__new__, Writer)  # once per append and copy: a third of the time


class Producer:
    """One producer: its epoch, and its last batches of that epoch, oldest first."""

    __slots__ = ("producer_epoch", "producer_id", "recent")

    def __init__(self, producer_id: int, producer_epoch: int, recent: Iterable[Writer] = ()) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.recent: Sequence[Writer] = tuple(recent)

    def __repr__(self) -> str:
        return f"Producer({self.producer_id}, epoch {self.producer_epoch}, {list(self.recent)})"


class ProducerTable:
    """Producer id -> Producer, in the order of their last appends: the one silent for longest comes first and goes first."""

    __slots__ = ("_producers", "forgetful", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Most producers remembered."""
        self._producers: dict[int, Producer] | None = None  # most logs never see a producer id
        self.forgetful = False

    def __len__(self) -> int:
        return len(self._producers) if self._producers else 0

    def get(self, producer_id: int) -> Producer | None:
        """What is known of a producer; None if it is unknown, or was forgotten."""
        return self._producers.get(producer_id) if self._producers else None

    def record(self, batch: RecordBatch | BatchHeader) -> None:
        """A stored batch of a producer (its id is not negative)."""
        if batch.extension_bytes:
            if not batch.attributes & GROUP_OPEN_BIT:
                self._record_version(batch)
            return
        producers = self._producers
        if producers is None:
            producers = self._producers = {}
        producer_id = batch.producer_id
        producer = producers.get(producer_id)
        if producer is None or producer.producer_epoch != batch.producer_epoch or len(producers) > 1:
            producers.pop(producer_id, None)  # to put it last
            if producer is None or producer.producer_epoch != batch.producer_epoch:
                producer = Producer(producer_id, batch.producer_epoch)
            producers[producer_id] = producer
        first = batch.base_sequence
        last = (first + batch.count - 1) & _WRAP
        writer = _as_writer((first, last, batch.base_offset, batch.payload_crc, batch.max_timestamp_ms))
        producer.recent = (*producer.recent[1 - BATCHES_KEPT :], writer)
        if len(producers) > self.limit:
            del producers[next(iter(producers))]
            self.forgetful = True

    def _record_version(self, batch: RecordBatch | BatchHeader) -> None:
        """The last batch of a marked piece of work: the version instead of sequences, and where it ends."""
        if self._producers is None:
            self._producers = {}
        known = self._producers.pop(batch.producer_id, None)
        recent = known.recent if known is not None and known.producer_epoch == MARKED else ()
        version = version_of(batch)
        end = batch.base_offset if batch.attributes & CONTROL_BIT else batch.base_offset + batch.count  # the work itself is elsewhere
        written = _as_writer((version, end, batch.base_offset, batch.payload_crc, batch.max_timestamp_ms))
        self._producers[batch.producer_id] = Producer(batch.producer_id, MARKED, (*recent[1 - BATCHES_KEPT :], written))
        if len(self._producers) > self.limit:
            del self._producers[next(iter(self._producers))]
            self.forgetful = True

    def truncate(self, offset: int) -> dict[int, Producer]:
        """Forget batches at and above `offset`. Returns the producers that lost one: what they did before must be looked up again."""
        if not self._producers:
            return {}
        cut = {key: one for key, one in self._producers.items() if one.recent[-1].base_offset >= offset}
        for key, producer in cut.items():
            del self._producers[key]
            producer.recent = tuple(writer for writer in producer.recent if writer.base_offset < offset)
        return cut

    def restore(self, cut: dict[int, Producer], scanned_from: int, headers: Iterable[BatchHeader]) -> None:
        """Put back producers that `truncate` cut, given the headers of the log from `scanned_from` to its end.

        What they still know of batches below `scanned_from` is kept; everything else comes from the headers. Whoever
        appears in neither is forgotten.
        """
        again = ProducerTable(self.limit)
        for key, producer in cut.items():
            older = [writer for writer in producer.recent if writer.base_offset < scanned_from]
            if older:
                again._put(Producer(key, producer.producer_epoch, older))
        for header in headers:
            if header.producer_id in cut:
                again.record(header)
        found = {**(self._producers or {}), **(again._producers or {})}
        if scanned_from > 0 and any(key not in found for key in cut):
            self.forgetful = True
        # Their place among the others is where their last remaining batch is.
        self._producers = dict(sorted(found.items(), key=lambda item: item[1].recent[-1].base_offset))

    def marked_outside(self, start: int, limit: int) -> list[Producer]:
        """Writers that mark their batches, of whom there is something below `start`, and nothing from there to `limit`."""

        def is_outside(one: Producer) -> bool:
            places = [written.base_offset for written in one.recent]
            return places[0] < start and not any(start <= place < limit for place in places)

        return [one for one in (self._producers or {}).values() if one.producer_epoch == MARKED and is_outside(one)]

    def expire(self, before_ms: int, marked_before_ms: int) -> None:
        """Forget producers whose last batch is older than `before_ms` (wall clock), and writers that mark theirs after another time."""

        def is_old(one: Producer) -> bool:
            return one.recent[-1].timestamp_ms < (marked_before_ms if one.producer_epoch == MARKED else before_ms)

        old = [key for key, one in (self._producers or {}).items() if is_old(one)]
        for key in old:
            assert self._producers is not None
            del self._producers[key]
            self.forgetful = True

    def clear(self) -> None:
        """Forget every producer: the log starts anew."""
        self._producers = None

    def snapshot(self) -> list[Any]:
        """The table as plain values, for `load`."""
        return [self.forgetful, [[p.producer_id, p.producer_epoch, [list(w) for w in p.recent]] for p in (self._producers or {}).values()]]

    def load(self, snapshot: Sequence[Any]) -> None:
        """Become what `snapshot` described."""
        self.clear()
        self.forgetful, producers = bool(snapshot[0]), snapshot[1]
        for producer_id, producer_epoch, recent in producers:
            self._put(Producer(producer_id, producer_epoch, [Writer(*writer) for writer in recent]))

    def producers(self, among: Container[int] | None = None) -> list[Producer]:
        """All producers (or those `among`), the one silent for longest first."""
        return [one for one in (self._producers or {}).values() if among is None or one.producer_id in among]

    def _put(self, producer: Producer) -> None:
        if self._producers is None:
            self._producers = {}
        self._producers[producer.producer_id] = producer
