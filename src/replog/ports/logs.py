"""The log port: one copy of one partition, and the directory that holds a broker's copies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from errno import EMFILE, ENFILE
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from attrs import define, frozen

from replog.config import BrokerConfig, TopicConfig
from replog.errors import UsageError
from replog.model import PartitionId
from replog.records import RecordBatch
from replog.slices import MemorySlice

if TYPE_CHECKING:
    from replog.log.log import FileLog, Fs

__all__ = [
    "NO_DESCRIPTORS",
    "EpochEnd",
    "EpochStart",
    "EpochTable",
    "FlushToken",
    "Location",
    "Log",
    "LogDirectory",
    "LogStart",
    "LossKind",
    "LossReport",
    "MemorySlice",
    "ProducerState",
    "ProducerTable",
    "Slice",
    "Staging",
    "Writer",
]

NO_DESCRIPTORS: Final = frozenset({EMFILE, ENFILE})
"""Error numbers of a file that could not be opened for now: no fsync says so."""


class Location(Protocol):
    """A path-like object, `pathlib.Path` for one."""

    def __fspath__(self) -> str: ...


class EpochStart(NamedTuple):
    """An entry of the leader epoch table: `epoch` begins at `start`."""

    epoch: int
    start: int


class EpochEnd(NamedTuple):
    """Where an epoch ends in a log: the answer to "where do we part?" (KIP-101, KIP-279)."""

    epoch: int
    end: int


class Slice(Protocol):
    """Whole stored batches, contiguous: a region of a file, or a view of memory. It pins its segment until released."""

    base_offset: int
    """Offset of the first batch."""
    end_offset: int
    """Offset after the last batch (exclusive)."""
    length: int
    """Bytes."""

    @property
    def batches(self) -> Sequence[RecordBatch] | None:
        """The batches themselves, where they were made or verified in this process and never left it: nobody need check their bytes
        again. None: what `view()` gives must be parsed."""

    def view(self) -> memoryview:
        """The bytes. Read at most once from the file; the same view afterwards."""

    def release(self) -> None:
        """Unpin; the slice must not be used afterwards. Idempotent."""


@define
class FlushToken:
    """A flush to be done elsewhere: the driver calls `run()` (which may block), then hands the token to `Log.flushed`.

    `run` never raises for an I/O error; it sets `error`.
    """

    identity: PartitionId
    generation: int
    """truncate_to and reset_to raise the log's generation; a token of an older one moves nothing."""
    end: int
    run_: Callable[[], OSError | None]
    """Returns or raises the error, if there is one."""
    error: OSError | None = None
    share: float = 0.0
    """Of the files that may be open at once: those that it keeps open until the log has heard of it."""

    @property
    def failed(self) -> bool:
        """An fsync has failed, which is final. Where a file could not even be opened for one, nothing is lost: flush again later."""
        return self.error is not None and self.error.errno not in NO_DESCRIPTORS

    def run(self) -> FlushToken:
        """Make everything below `end` durable (fsync). Blocks."""
        try:
            self.error = self.run_()
        except OSError as error:
            self.error = error  # no signal comes between: the system says once that an fsync has failed
            error.__traceback__ = None  # a circle, by way of this frame
        return self


class Writer(NamedTuple):
    """What the log remembers of one recent batch of a producer (KIP-98: the last five)."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    payload_crc: int
    timestamp_ms: int
    """Of its newest record; of marked work, the time of the mark."""


class ProducerState(Protocol):
    """One producer as the log knows it."""

    producer_id: int
    producer_epoch: int
    recent: Sequence[Writer]
    """At most five, oldest first."""


class ProducerTable(Protocol):
    """Writers' last batches: a function of the log, rebuilt when it is loaded, truncated with it (KIP-98)."""

    forgetful: bool
    """A producer may have been dropped (too many, or expired): not to know one no longer proves that it never wrote."""

    writers_forgotten: int
    """So many writers that mark their batches were dropped because there were too many, since somebody has set this to 0."""

    def get(self, producer_id: int) -> ProducerState | None: ...
    def writer(self, writer_id: int) -> ProducerState | None:
        """What is known of a writer that marks its batches."""

    def marked_outside(self, start: int, limit: int) -> Sequence[ProducerState]: ...
    def __len__(self) -> int: ...


class EpochTable(Protocol):
    """Leader epoch -> start offset, strictly increasing in both (KIP-101)."""

    @property
    def latest(self) -> EpochStart | None:
        """The newest entry; None while the log never had one."""

    def entries(self) -> tuple[EpochStart, ...]: ...

    def end_offset_for(self, epoch: int, end_offset: int) -> EpochEnd | None:
        """Where `epoch` ends in a log that ends at `end_offset`; None if that cannot be known (PROTOCOL 4.1)."""

    def epoch_at(self, offset: int) -> int | None:
        """The epoch in force at `offset`; None below the first entry."""


class Log(ABC):
    """One copy of one partition: batches with dense offsets, an epoch table and a writer table that follow from them.

    Single-threaded: its owner calls it, nobody else (one that was opened alone has its callers take turns). Every error is one of LogFull
    (nothing done, heals by itself), LogDamaged (final for this log until it is reopened), LogCorrupt and LogClosed; and UsageError for a
    batch that is not the next one and for an epoch that cannot be, of a log that was opened alone for any wrong argument.
    """

    identity: PartitionId
    start_offset: int
    """First offset still kept."""
    end_offset: int
    """LEO: the offset the next record gets (exclusive end)."""
    flushed_end: int
    """Everything below is known to be on disk."""
    epochs: EpochTable
    last_epoch: int
    """The epoch of the newest entry of `epochs`, at hand for every append and fetch; -1 without one. A log of which everything was trimmed
    keeps that of its last record, in its next life too: two logs are compared by it (KIP-101)."""
    producers: ProducerTable
    config: TopicConfig
    """May be replaced at any time; takes effect at the next append or `retain`."""

    @classmethod
    def open(
        cls, path: str | Location, *, config: TopicConfig | None = None, fs: Fs | None = None, limits: BrokerConfig | None = None
    ) -> FileLog:
        """A log of its own under the folder `path`, created if missing: a `FileLog` ready for `append_records` and `read`.

        Raises what `FileLog.open` raises, and UsageError if it is asked of a kind of log that has no files. `fs`: the system's, by default.
        """
        from replog.log.log import FileLog  # the port knows its default backend only when asked

        if cls is not Log:
            raise UsageError(f"{cls.__name__} has no files to open: Log.open makes a FileLog")
        return FileLog.open(path, config=config, fs=fs, limits=limits)

    @abstractmethod
    def append(self, batch: RecordBatch) -> None:
        """Store one batch that is stamped for this log, at `end_offset`, with an epoch not below the latest. All or nothing.

        Raises UsageError for any other batch, naming what is due: nobody could read it.
        """

    @abstractmethod
    def append_many(self, batches: Sequence[RecordBatch]) -> None:
        """Store contiguous stamped batches with one write. All or nothing per batch: after an error a prefix may be stored; but nothing
        after a UsageError, for batches that are not the next ones of this log."""

    @abstractmethod
    def enter_epoch(self, epoch: int) -> None:
        """Begin `epoch` at `end_offset`: a leader does so when elected, before its first append (KAFKA-7415). UsageError for one below the
        latest, or that no batch can bear (above 2**31 - 1).

        Kept in memory until the first batch of that epoch makes it a function of the log: a restarted leader must not
        lead the same epoch again, so nobody can ask for an epoch that left no record.
        """

    @abstractmethod
    def read(self, offset: int, limit: int, max_bytes: int) -> list[Slice]:
        """Whole batches from the one that holds `offset`, ending at or below `limit`, at most `max_bytes` (one batch always fits).

        Empty when `offset >= limit`. Raises LogCorrupt rather than begin with bytes whose header does not belong here; in front of such it
        may end early. What else is in the batches is for the reader to verify. Raises LogFull if its file cannot be opened for now, for
        want of descriptors: nothing is wrong with it. So does everything here that reads.
        """

    @abstractmethod
    def group_floor(self, offset: int) -> int:
        """`offset`, or, if it is inside a group of batches that readers see whole or not at all, where that begins.

        `offset` is between two batches of this log, or at one of its ends. Raises LogCorrupt, or LogFull.
        """

    @abstractmethod
    def truncate_to(self, offset: int) -> None:
        """Drop everything at and above `offset`; a batch that straddles it goes whole. Newest segment first (P-14)."""

    @abstractmethod
    def trim_to(self, offset: int) -> int:
        """Move `start_offset` up to `offset` and remove whole segments below; returns the new start."""

    is_trimming = False
    """Whether what is below `start_offset` still takes space: one call of `trim_to` or `retain` removes only so much that whoever serves
    others meanwhile is not held up; the next one goes on."""

    @abstractmethod
    def reset_to(self, offset: int) -> None:
        """Drop everything and start again, empty, at `offset`."""

    @abstractmethod
    def retained_start(self, wall_ms: int, limit: int) -> int:
        """What `retain` would move the start to now. Forgets producers and writers that have been silent for too long."""

    @abstractmethod
    def retain(self, wall_ms: int, limit: int) -> int:
        """Apply retention by age and size: whole segments, never at or above `limit` (the high watermark); returns the new start."""

    @abstractmethod
    def flush(self) -> FlushToken | None:
        """A token that makes what is appended now durable; None if it is already."""

    @abstractmethod
    def flushed(self, token: FlushToken) -> None:
        """Take the result of a token. Raises LogDamaged if it failed: final, never retried (fsync marks pages clean). Raises LogFull if it
        was not done for want of descriptors: nothing has changed, and another `flush` does it later."""

    @abstractmethod
    def forget_tail(self) -> None:
        """The last append need not be kept in memory any longer (it is only kept for readers that follow closely)."""

    @abstractmethod
    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(base offset, max timestamp) of the first batch whose newest record is at or after `timestamp_ms`; None if none is.

        A log decodes no payload: which record of the batch is so young is for the reader to find.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files. Idempotent. What was appended stays readable by the next open."""

    @property
    @abstractmethod
    def size_bytes(self) -> int: ...


LossKind = Literal["none", "process", "power", "corrupt", "replaced"]


@frozen
class LossReport:
    """What opening a data directory found out about its last life (design, section 5, "Loss is judged")."""

    kind: LossKind = "none"
    """"none": stopped cleanly (or new); "process": killed, same boot, nothing lost; "power": another boot, unsynced data
    may be gone; "corrupt": bytes below the recovery point are bad; "replaced": the directory is new to its broker."""
    lossy: tuple[PartitionId, ...] = ()
    """Logs that may have lost acknowledged records; empty with kind "replaced" means every one: the store says no more where there are too
    many to be named (`metadata/loss_reports.py`)."""
    lives: tuple[str, ...] = ()
    """Lives that this one goes on from, newest first, the last one included: since each of them nothing was lost but `lossy`. Who was let
    in last must be among them: else the directory was put back to what it was before, whatever it says itself."""
    since: str = ""
    """The one of them that has reported `lossy` first: if it was let in, or one after it, that is over. "": this life is the first."""


class LogStart(NamedTuple):
    """What a directory needs to know to make a log."""

    identity: PartitionId
    topic: str
    config: TopicConfig


class Staging(ABC):
    """Batch bodies that are put aside, piece by piece under the number of a stage, and read again if they are published.

    Nothing of it outlives the life of its directory, and nothing is flushed: a stage is never the only copy of anything.
    """

    @abstractmethod
    def put(self, stage: int, body: bytes) -> int:
        """Add a piece to a stage, which is begun with its first; returns its number, from 0. Raises LogFull, or LogDamaged; then it is
        not there."""

    @abstractmethod
    def read(self, stage: int, number: int) -> bytes:
        """One piece. Raises LogCorrupt; LogFull if it cannot be read for now."""

    @abstractmethod
    def drop(self, stage: int) -> None:
        """Forget a stage. Idempotent."""


class LogDirectory(ABC):
    """A broker's data: its logs, who it is, and how it stopped. One process at a time."""

    directory_id: str
    """Made once, when the directory is; 32 hex digits."""
    incarnation: str
    """Of this life: no other has the same, and the next one names it in `loss.lives`."""
    loss: LossReport
    high_watermarks: dict[PartitionId, int]
    """As of the last checkpoint; the owner keeps it current and calls `checkpoint`. Advisory: clamp to [start, end]. In the next life
    none is above where its log was cut since that checkpoint."""
    staging: Staging

    @abstractmethod
    def identities(self) -> list[PartitionId]:
        """Every log here that is not quarantined, sorted."""

    @abstractmethod
    def topic_of(self, identity: PartitionId) -> str: ...

    @abstractmethod
    def get(self, identity: PartitionId) -> Log | None: ...

    @abstractmethod
    def create(self, starts: Iterable[LogStart]) -> list[Log]:
        """Make these logs, or give them another configuration; their topic ids are durable before this returns (KIP-516). One write for all
        of them. Raises LogFull, and nothing has changed; LogDamaged; LogClosed.

        So is the configuration, except for a `flush` of "ack" that a log did not have before: that holds at once, and is recorded only when
        all that the log holds now has been flushed; until then a power cut makes the log lossy. See `record_flushes`.
        """

    @abstractmethod
    def record_flushes(self) -> None:
        """Record `flush` "ack" of those logs of which it can be recorded by now. One write for all of them; nothing to do: none.
        Raises LogFull, and the next call tries again; LogDamaged; LogClosed.
        """

    @abstractmethod
    def quarantine_each(self, identities: Iterable[PartitionId], wall_ms: int) -> None:
        """Take these logs out of service without deleting them. Idempotent; survives a restart. One write for all of them."""

    def quarantine(self, identity: PartitionId, wall_ms: int) -> None:
        """Take one log out of service."""
        self.quarantine_each([identity], wall_ms)

    @abstractmethod
    def quarantined(self) -> dict[PartitionId, int]:
        """Quarantined logs and when (wall clock, ms) each was."""

    @abstractmethod
    def purge_each(self, identities: Iterable[PartitionId]) -> None:
        """Delete these quarantined logs for good. One write for all of them."""

    def purge(self, identity: PartitionId) -> None:
        """Delete one quarantined log for good."""
        self.purge_each([identity])

    @abstractmethod
    def registered(self, broker_epoch: int) -> None:
        """A controller has let this life in, under this broker epoch, and has dealt with what `loss` reports: it is not reported again, nor
        are the lives before this one named. A clean stop marker may carry the epoch, for people; what
        counts is `loss.lives`. Raises LogFull, LogDamaged or LogClosed."""

    @abstractmethod
    def checkpoint(self) -> None:
        """Write the high watermarks."""

    def close_unused(self) -> None:  # noqa: B027 - a directory without files holds none
        """Give back what is held beyond `open_files_max` for slices that have been released since. Called by the clock."""

    @abstractmethod
    def close(self, *, clean: bool) -> None:
        """Close every log; with `clean`, flush everything first and leave the marker. Unlocks the directory."""
