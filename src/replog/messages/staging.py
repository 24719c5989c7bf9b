"""Work that is put aside with the leader, and shown to readers all at once or not at all (design, section 8)."""

from __future__ import annotations

from attrs import define, field

from replog.messages.data import ProduceEntry
from replog.model import PartitionId

__all__ = ["Publish", "Published", "Stage", "StagedAttempt"]


@define
class Stage:
    """Put aside one more piece of what may be published as this version of a writer's work. Nothing is replicated, and it expires."""

    writer: str
    """Key of the writer (`replog.marks`)."""
    version: int
    attempt: str
    """Which attempt at a part of that work: of several attempts, those that succeeded are published, the others are dropped."""
    number: int
    """Of this piece within its attempt, from 0; the same number again is the same piece."""
    entry: ProduceEntry
    principal: str = field(default="", init=False)
    """Who has proven to say it, "" where nobody is asked to. The broker's own process adds that: it is not on the wire."""


@define
class StagedAttempt:
    """One attempt that is to be published."""

    attempt: str
    pieces: int
    """So many it consists of."""


@define
class Publish:
    """Append everything of these attempts, in this order, as one group; done already, if this version or a later one was published."""

    request: int
    partition: PartitionId
    writer: str
    version: int
    timeout_ms: int
    """How long the leader may wait for the in-sync replicas."""
    attempts: list[StagedAttempt]
    made_ms: int
    """When the client has asked for it (wall clock): `replog.marks.WriterMark`."""


@define
class Published:
    """The answer to Stage and Publish. With offsets, and without an error: the work is in the log, committed, in
    [base_offset, end_offset). With QUOTA_EXCEEDED, to a Stage: so many bytes were asked for, and so many may be put aside in all
    (`stage_bytes_max`), half of that by one principal."""

    request: int
    partition: PartitionId
    error: int = 0
    base_offset: int = -1
    """-1 also where the log does not say any more: what lay there is gone."""
    end_offset: int = -1
