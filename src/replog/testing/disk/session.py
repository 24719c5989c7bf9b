"""Runs the steps of a workload on a real log directory, and keeps the ledger of what was asked and what was answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import evolve

from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.log.files import Fs
from replog.log.log import FileLog
from replog.model import PartitionId
from replog.ports import LogStart
from replog.records import Record, RecordBatch, encode_records
from replog.testing.disk.ledger import Content, Ledger, LogLedger, Stored
from replog.testing.disk.workloads import Workload

__all__ = ["FOLDER", "LIMITS", "Session", "batch_of_length"]

FOLDER: Final = "/d"
LIMITS: Final = BrokerConfig(index_interval_bytes=400)
_TOPIC_ID: Final = bytes(range(16))
_AT_MS: Final = 1_000
_RETENTION_MS: Final = 10_000


def batch_of_length(length: int, text: str, *, producer: tuple[int, int, int] = (-1, -1, -1)) -> RecordBatch:
    """A batch of one record that takes `length` stored bytes; `text` tells it from others."""
    producer_id, producer_epoch, sequence = producer
    value = text
    for _ in range(4):  # the length of the length itself may change
        batch = RecordBatch(
            encode_records(
                [Record(value, timestamp_ms=_AT_MS)],
                now_ms=_AT_MS,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=sequence,
            )
        )
        if batch.length == length:
            return batch
        value = (value + "." * max(0, length - batch.length))[: len(value) + length - batch.length]
    raise ValueError(f"no batch takes {length} bytes")


class Session:
    """One directory, and up to two logs in it."""

    def __init__(self, fs: Fs, workload: Workload, flush: str) -> None:
        self.fs = fs
        self.ledger = Ledger()
        self.config = TopicConfig(flush=flush, segment_bytes=workload.segment_bytes, retention_ms=_RETENTION_MS)  # type: ignore[arg-type]
        self.directory = FileLogDirectory(FOLDER, fs=fs, limits=LIMITS)
        self.directory.registered(1)
        self.chosen = PartitionId(_TOPIC_ID, 0, 0)
        self._epoch = 1
        self._sequence = 0
        self._written: dict[tuple[PartitionId, int], str] = {}
        self.do("create")
        for step in workload.prepared:
            self.do(step)

    @property
    def log(self) -> FileLog:
        """The log that is chosen."""
        found = self.directory.get(self.chosen)
        assert found is not None, f"no log {self.chosen!r}"
        return found

    @property
    def book(self) -> LogLedger:
        """Its ledger."""
        return self.ledger.logs[self.chosen]

    def do(self, step: str) -> None:
        """One step, in the words of `workloads`."""
        word, *arguments = step.split()
        getattr(self, f"_do_{word}")([int(argument) for argument in arguments])

    # ------------------------------------------------------------------------------------------------ putting records in

    def _batches(self, lengths: Sequence[int], *, again: bool = False) -> list[RecordBatch]:
        made, offset = [], self.book.now.end
        for length in lengths:
            key = (self.chosen, offset)
            if not again or key not in self._written:
                self._sequence += 1
                self._written[key] = f"{offset} for the {self._sequence}. time "
            batch = batch_of_length(length, self._written[key], producer=(7, 0, offset))
            batch.stamp(self.chosen, offset, self._epoch)
            made.append(batch)
            offset = batch.end_offset
        return made

    def _do_append(self, lengths: list[int], *, again: bool = False) -> None:
        for length in lengths:
            (batch,) = self._batches([length], again=again)
            self.book.appends(_stored(batch))
            self.log.append(batch)
            self._acknowledge()

    def _do_again(self, lengths: list[int]) -> None:
        self._do_append(lengths, again=True)

    def _do_many(self, lengths: list[int]) -> None:
        batches = self._batches(lengths)
        for batch in batches:  # any number of them may be there when it is interrupted
            self.book.appends(_stored(batch))
        self.log.append_many(batches)
        self._acknowledge()

    def _acknowledge(self) -> None:
        if self.config.flush == "ack":
            self._do_flush([])
        self.book.counts(self.log.end_offset)

    def _do_flush(self, _: list[int]) -> None:
        token = self.log.flush()
        if token is not None:
            self.log.flushed(token.run())
        self.book.flushed(self.log.flushed_end)
        self.directory.record_flushes()

    def _do_epoch(self, _: list[int]) -> None:
        self._epoch += 1
        self.log.enter_epoch(self._epoch)

    # -------------------------------------------------------------------------------------------------- taking them away

    def _do_truncate(self, arguments: list[int]) -> None:
        self.book.truncates(arguments[0])
        self.log.truncate_to(arguments[0])
        self.book.flushed(self.log.flushed_end)
        self._epoch += 1

    def _do_trim(self, arguments: list[int]) -> None:
        self.book.trims(arguments[0])
        self.log.trim_to(arguments[0])
        self.book.flushed(self.log.flushed_end)

    def _do_reset(self, arguments: list[int]) -> None:
        self.book.resets(arguments[0])
        self.log.reset_to(arguments[0])
        self.book.flushed(self.log.flushed_end)
        self._epoch += 1

    def _do_retain(self, _: list[int]) -> None:
        self.book.trims(self.log.end_offset)
        self.log.retain(_AT_MS + 2 * _RETENTION_MS, self.log.end_offset)
        self.book.flushed(self.log.flushed_end)

    # ------------------------------------------------------------------------------------------------- the directory itself

    def _do_log(self, arguments: list[int]) -> None:
        self.chosen = PartitionId(_TOPIC_ID, arguments[0], 0)

    def _do_create(self, _: list[int]) -> None:
        book = self.ledger.logs.setdefault(self.chosen, LogLedger(self.chosen, self.config.flush))
        if not book.may_exist:
            book.contents.append(Content(0, ()))
        book.may_exist = True
        self.directory.create([LogStart(self.chosen, "t", self.config)])
        book.must_exist = True

    def _do_alter(self, arguments: list[int]) -> None:
        self.config = evolve(self.config, flush="ack" if arguments[0] else "os")
        self._do_create([])
        if self.config.flush == "ack":
            self._acknowledge()
        self.book.counts(self.log.end_offset)

    def _do_delete(self, _: list[int]) -> None:
        self.book.must_exist = False
        self.book.promised, self.book.flushed_end, self.book.counted_end = {}, 0, 0
        self.directory.quarantine(self.chosen, 5)
        self.book.may_exist = False

    def _do_purge(self, _: list[int]) -> None:
        self.directory.purge(self.chosen)

    def _do_checkpoint(self, _: list[int]) -> None:
        for identity in self.directory.identities():
            log = self.directory.get(identity)
            assert log is not None
            self.directory.high_watermarks[identity] = log.end_offset
        self.directory.checkpoint()

    def _do_close(self, _: list[int]) -> None:
        self.ledger.may_be_clean = True
        self.directory.close(clean=True)
        self.ledger.must_be_clean = True
        for identity, book in self.ledger.logs.items():
            log = self.directory.get(identity)
            if log is not None:
                book.flushed(log.flushed_end)

    def _do_open(self, _: list[int]) -> None:
        self.ledger.must_be_clean = False
        self.directory = FileLogDirectory(FOLDER, fs=self.fs, limits=LIMITS)
        self.ledger.may_be_clean = False
        self.directory.registered(1)


def _stored(batch: RecordBatch) -> Stored:
    return Stored(batch.base_offset, batch.end_offset, batch.to_bytes())
