"""What a log remembers of its writers, so that a batch sent twice is stored once (KIP-98, KIP-360; PROTOCOL 4.12).

The table is a function of the log: it is recorded with each append, checked by nobody here (a follower stores what its
leader accepted, KAFKA-6003), cut back with the log, and rebuilt from batch headers when the log is loaded.

Writers that mark their batches with a version (`replog.marks`) have a table of their own, of the same length: of them the last batch of
each piece of work counts, and no number of ordinary producers makes a log forget one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from replog.config import BrokerConfig
from replog.marks import made_ms_of, version_of
from replog.ports import Writer
from replog.records import CONTROL_BIT, GROUP_OPEN_BIT, BatchHeader, RecordBatch

__all__ = ["BATCHES_KEPT", "MARKED", "Cut", "Producer", "ProducerTable"]

BATCHES_KEPT: Final = 5
"""Batches remembered per producer: as many as a client may have in flight (KIP-98)."""
EVICTED_KEPT: Final = 1_000
"""How many of those that had to go are kept for a truncation: what is cut made no room for anybody."""
MARKED: Final = -1
"""In place of the epoch of a writer that marks its batches: what is kept of each is (version, end offset, ...)."""
_WRAP: Final = 0x7FFF_FFFF
_as_writer: Final[Callable[[tuple[int, ...]], Writer]] = partial(tuple.__new__, Writer)  # once per append and copy: a third of the time


class Producer:
    """One producer: its epoch, and its last batches of that epoch, oldest first."""

    __slots__ = ("is_whole", "producer_epoch", "producer_id", "recent")

    def __init__(self, producer_id: int, producer_epoch: int, recent: Iterable[Writer] = (), *, is_whole: bool = False) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.recent: Sequence[Writer] = tuple(recent)
        self.is_whole = is_whole
        """Of a writer: there was never more than `recent`, so that nothing is in front of it."""

    def __repr__(self) -> str:
        return f"Producer({self.producer_id}, epoch {self.producer_epoch}, {list(self.recent)})"


class Cut:
    """Who has lost batches by a truncation, each with what is left."""

    __slots__ = ("producers", "writers")

    def __init__(self, producers: dict[int, Producer], writers: dict[int, Producer]) -> None:
        self.producers = producers
        self.writers = writers
        """Those that mark their batches."""

    def __bool__(self) -> bool:
        return bool(self.producers or self.writers)

    @property
    def unknown(self) -> set[int]:
        """Writers of whom nothing is left, and who have done more: their last work may be anywhere in front."""
        return {key for key, one in self.writers.items() if not one.recent and not one.is_whole}

    def holds(self, header: BatchHeader) -> bool:
        """Whether a batch is of one of them."""
        return header.producer_id in (self.writers if header.extension_bytes else self.producers)


class ProducerTable:
    """Producer id -> Producer, in the order of their last appends: the one silent for longest comes first and goes first."""

    __slots__ = ("_evicted", "_looked", "_producers", "_writers", "forgetful", "limit", "writers_forgotten")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Most producers remembered, and most writers that mark their batches."""
        self._producers: dict[int, Producer] | None = None  # most logs never see a producer id
        self._writers: dict[int, Producer] | None = None
        self._evicted: deque[tuple[int, Producer]] | None = None
        """(where the batch begins that it made room for, who went), in the order of going."""
        self._looked: tuple[int, int] | None = None
        """(wall clock, end of the log) of a look for silent producers; of this life, so that a restart begins the time anew."""
        self.forgetful = False
        self.writers_forgotten = 0

    def __len__(self) -> int:
        return len(self._producers or ()) + len(self._writers or ())

    def get(self, producer_id: int) -> Producer | None:
        """What is known of a producer; None if it is unknown, or was forgotten."""
        return self._producers.get(producer_id) if self._producers else None

    def writer(self, writer_id: int) -> Producer | None:
        """What is known of a writer that marks its batches; None if it is unknown, or was forgotten."""
        return self._writers.get(writer_id) if self._writers else None

    def record(self, batch: RecordBatch | BatchHeader) -> None:
        """A stored batch of a producer (its id is not negative). Raises BadBatch for a mark that is none."""
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
            self._evict(producers, batch.base_offset)
            self.forgetful = True

    def _record_version(self, batch: RecordBatch | BatchHeader) -> None:
        """The last batch of a marked piece of work: the version instead of sequences, where it ends, and the time of the mark."""
        writers = self._writers
        if writers is None:
            writers = self._writers = {}
        made_ms, known = made_ms_of(batch), writers.pop(batch.producer_id, None)
        version = version_of(batch)
        end = batch.base_offset if batch.attributes & CONTROL_BIT else batch.base_offset + batch.count  # the work itself is elsewhere
        recent = () if known is None else known.recent
        if recent:  # it stands for the versions before it as well, whatever the clock did meanwhile: none is forgotten before its time
            made_ms = max(made_ms, recent[-1].timestamp_ms)
        written = _as_writer((version, end, batch.base_offset, batch.payload_crc, made_ms))
        is_whole = known is None or (known.is_whole and len(recent) < BATCHES_KEPT)
        writers[batch.producer_id] = Producer(batch.producer_id, MARKED, (*recent[1 - BATCHES_KEPT :], written), is_whole=is_whole)
        if len(writers) > self.limit:
            self._evict(writers, batch.base_offset)
            self.writers_forgotten += 1

    def _evict(self, table: dict[int, Producer], offset: int) -> None:
        """The one silent for longest makes room for the batch at `offset`."""
        if self._evicted is None:
            self._evicted = deque(maxlen=EVICTED_KEPT)
        self._evicted.append((offset, table.pop(next(iter(table)))))

    def truncate(self, offset: int) -> Cut:
        """Forget batches at and above `offset`, and remember again who went for them. Returns those that lost one: what they did before
        must be looked up again."""
        if self._looked is not None:
            self._looked = self._looked[0], min(self._looked[1], offset)
        back: dict[str, dict[int, Producer]] = {_PRODUCERS: {}, _WRITERS: {}}
        while self._evicted and self._evicted[-1][0] >= offset:
            _, producer = self._evicted.pop()
            back[_WRITERS if producer.producer_epoch == MARKED else _PRODUCERS][producer.producer_id] = producer
        for which, gone in back.items():
            if gone:  # what whoever came back has done since is cut as well
                setattr(self, which, _ordered(getattr(self, which), gone))
        return Cut(_cut(self._producers, offset), _cut(self._writers, offset))

    def restore(self, cut: Cut, scanned_from: int, headers: Iterable[BatchHeader], below: ProducerTable | None = None) -> None:
        """Put back those that `truncate` cut, given the headers of the log from `scanned_from` to its end; `below`: the table as it was at
        `scanned_from`.

        Without that, what they still know of batches below `scanned_from` is kept; everything else comes from the headers. Whoever
        appears in neither is forgotten.
        """
        again = ProducerTable(self.limit)
        for was, left, known in (
            (cut.producers, _PRODUCERS, below._producers if below else None),
            (cut.writers, _WRITERS, below._writers if below else None),
        ):
            for key, producer in was.items():
                older = known.get(key) if known is not None else None
                recent = [writer for writer in (older or producer).recent if writer.base_offset < scanned_from]
                if recent:
                    again._put(left, Producer(key, (older or producer).producer_epoch, recent))
        for header in headers:
            if cut.holds(header):
                again.record(header)
        for key, writer in (again._writers or {}).items():
            writer.is_whole = cut.writers[key].is_whole
        if scanned_from > 0 and any(key not in (again._producers or {}) for key in cut.producers):
            self.forgetful = True
        # Their place among the others is where their last remaining batch is. Some had gone before, and have only been met on the way.
        self._producers = _ordered(self._producers, again._producers, self.limit)
        self._writers = _ordered(self._writers, again._writers, self.limit)

    def marked_outside(self, start: int, limit: int) -> list[Producer]:
        """Writers that mark their batches, of whom there is something below `start`, and nothing from there to `limit`."""

        def is_outside(one: Producer) -> bool:
            recent = one.recent
            if recent[0].base_offset >= limit and not one.is_whole:  # what it did before is not known any more: it may be anywhere in front
                return True
            if recent[0].base_offset >= start or start <= recent[-1].base_offset < limit:  # of thousands most are like that
                return False
            return not any(start <= written.base_offset < limit for written in recent)

        return [one for one in (self._writers or {}).values() if is_outside(one)]

    def expire(self, wall_ms: int, end_offset: int, limits: BrokerConfig) -> None:
        """Forget producers that were silent for `producer_expiry_ms` (after twice that at the latest), and writers whose last mark is older
        than `writer_expiry_ms`. `end_offset`: of the log now.

        The time of a producer's records does not count: one that sends old ones is as lively as any other.
        """
        looked_ms, end = self._looked or (wall_ms, end_offset)
        if wall_ms - looked_ms >= limits.producer_expiry_ms and _forget(self._producers, lambda last: last.base_offset < end):
            self.forgetful = True
        if self._looked is None or not 0 <= wall_ms - looked_ms < limits.producer_expiry_ms:
            self._looked = wall_ms, end_offset
        _forget(self._writers, lambda last: last.timestamp_ms < wall_ms - limits.writer_expiry_ms)

    def clear(self) -> None:
        """Forget every producer and writer: the log starts anew."""
        self._producers = self._writers = self._evicted = self._looked = None

    def snapshot(self) -> list[Any]:
        """The tables as plain values, for `load`; who has gone is the last of them, if anybody has."""

        def plain(one: Producer) -> list[Any]:
            return [one.producer_id, one.producer_epoch, one.is_whole, one.recent]

        tables = [self.forgetful, list(map(plain, self.producers())), list(map(plain, self.writers()))]
        return [*tables, [[offset, *plain(gone)] for offset, gone in self._evicted]] if self._evicted else tables

    def load(self, snapshot: Sequence[Any]) -> None:
        """Become what `snapshot` described."""
        self.clear()
        self.forgetful = bool(snapshot[0])
        for which, table in ((_PRODUCERS, snapshot[1]), (_WRITERS, snapshot[2])):
            for plain in table:
                self._put(which, _producer(*plain))
        if len(snapshot) > 3:
            self._evicted = deque(((offset, _producer(*plain)) for offset, *plain in snapshot[3]), maxlen=EVICTED_KEPT)

    def producers(self, among: Container[int] | None = None) -> list[Producer]:
        """All producers (or those `among`), the one silent for longest first."""
        return [one for one in (self._producers or {}).values() if among is None or one.producer_id in among]

    def writers(self) -> list[Producer]:
        """All writers that mark their batches, the one silent for longest first."""
        return list((self._writers or {}).values())

    def _put(self, which: str, producer: Producer) -> None:
        table: dict[int, Producer] | None = getattr(self, which)
        if table is None:
            table = {}
            setattr(self, which, table)
        table[producer.producer_id] = producer


def _producer(producer_id: int, producer_epoch: int, is_whole: object, recent: Iterable[Sequence[Any]]) -> Producer:
    """From plain values."""
    return Producer(producer_id, producer_epoch, [Writer(*writer) for writer in recent], is_whole=bool(is_whole))


_PRODUCERS: Final = "_producers"
_WRITERS: Final = "_writers"


def _cut(table: dict[int, Producer] | None, offset: int) -> dict[int, Producer]:
    """Take out of a table whoever has a batch at or above `offset`; each with what it has below."""
    cut = {key: one for key, one in (table or {}).items() if one.recent[-1].base_offset >= offset}
    for key, producer in cut.items():
        assert table is not None
        del table[key]
        producer.recent = tuple(writer for writer in producer.recent if writer.base_offset < offset)
    return cut


def _ordered(
    left: Mapping[int, Producer] | None, again: Mapping[int, Producer] | None, limit: int | None = None
) -> dict[int, Producer] | None:
    """Both, in the order of their last batches; the last `limit` of them."""
    found = {**(left or {}), **(again or {})}
    ordered = sorted(found.items(), key=lambda item: item[1].recent[-1].base_offset)
    return dict(ordered if limit is None else ordered[-limit:]) or None


def _forget(table: dict[int, Producer] | None, is_old: Callable[[Writer], bool]) -> bool:
    """Forget whose last batch is too old; whether there was anybody."""
    old = [key for key, one in (table or {}).items() if is_old(one.recent[-1])]
    for key in old:
        assert table is not None
        del table[key]
    return bool(old)
