"""What the user of a log directory knows of it at one moment, hence what may and what must be there after a crash.

*May*: every content that a log has had, or would have had when the operation in progress is done, up to any of its
batches. *Must*: every batch that was reported as flushed and that nobody has asked to take away since; and the log ends
no sooner than it said to be flushed, even where nothing is left below.
"""

from __future__ import annotations

from typing import NamedTuple

from attrs import define, field, frozen

from replog.model import PartitionId

__all__ = ["Content", "Known", "Ledger", "LogLedger", "Stored"]


class Stored(NamedTuple):
    """One batch, as bytes."""

    base: int
    end: int
    data: bytes


class Content(NamedTuple):
    """A log at one moment; what was trimmed of it since is still told."""

    start: int
    batches: tuple[Stored, ...]

    @property
    def end(self) -> int:
        """Where the next batch comes."""
        return self.batches[-1].end if self.batches else self.start


@frozen
class Known:
    """What must hold for one log now."""

    contents: tuple[Content, ...]
    end: int
    """Where the log ends when nothing is lost."""
    promised: tuple[Stored, ...]
    flushed_end: int
    """Whatever happens, it ends here at least."""
    counted_end: int
    """So much has counted, flushed or not: a log that ends below says so."""
    starts_max: int
    """Nobody has asked for anything at or above this to be trimmed."""
    may_exist: bool
    must_exist: bool


@define
class LogLedger:
    """The book of one log. Each entry is made before the operation starts, except that promises are made when it is done."""

    identity: PartitionId
    flush: str
    contents: list[Content] = field(factory=lambda: [Content(0, ())])
    promised: dict[int, Stored] = field(factory=dict)
    flushed_end: int = 0
    counted_end: int = 0
    starts_max: int = 0
    trimmed_to: int = 0
    may_exist: bool = False
    must_exist: bool = False

    @property
    def now(self) -> Content:
        """What the log holds when the operation in progress is done."""
        return self.contents[-1]

    def appends(self, *batches: Stored) -> None:
        """Batches are about to be appended."""
        self.contents.append(Content(self.now.start, (*self.now.batches, *batches)))

    def truncates(self, offset: int) -> None:
        """Everything from the batch that holds `offset` is about to go."""
        self.contents.append(Content(self.now.start, tuple(batch for batch in self.now.batches if batch.end <= offset)))
        self.flushed_end = min(self.flushed_end, self.now.end)
        self.counted_end = min(self.counted_end, self.now.end)
        self.promised = {base: batch for base, batch in self.promised.items() if batch.end <= offset}

    def trims(self, offset: int) -> None:
        """Everything below the batch that holds `offset` may go: how much of it is there after a crash does not matter."""
        start = next((batch.base for batch in self.now.batches if batch.end > offset), self.now.end)
        self.promised = {base: batch for base, batch in self.promised.items() if base >= start}
        self.starts_max = max(self.starts_max, start)
        self.trimmed_to = start

    def resets(self, offset: int) -> None:
        """Everything is about to go, and the log to begin at `offset`."""
        self.contents.append(Content(offset, ()))
        self.promised = {}
        self.flushed_end = self.counted_end = 0
        self.starts_max = max(self.starts_max, offset)
        self.trimmed_to = 0

    def flushed(self, end: int) -> None:
        """The log says that all below `end` is on the disk."""
        self.flushed_end = end
        self.promised = {batch.base: batch for batch in self.now.batches if batch.end <= end and batch.base >= self.trimmed_to}

    def counts(self, end: int) -> None:
        """Whoever has appended below `end` is answered."""
        self.counted_end = max(self.counted_end, end)

    def known(self) -> Known:
        """All of this, frozen."""
        return Known(
            tuple(dict.fromkeys(self.contents)),
            self.now.end,
            tuple(self.promised.values()),
            self.flushed_end,
            self.counted_end,
            self.starts_max,
            self.may_exist,
            self.must_exist,
        )


@define
class Ledger:
    """The books of all logs of one directory, and how its life goes."""

    logs: dict[PartitionId, LogLedger] = field(factory=dict)
    must_be_clean: bool = False
    """The directory was closed cleanly."""
    may_be_clean: bool = False
    """It was, or is about to be, or its next life has just begun."""

    def known(self) -> dict[PartitionId, Known]:
        """What must hold for each log now."""
        return {identity: log.known() for identity, log in self.logs.items()}
