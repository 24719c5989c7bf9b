"""Work that is run again is stored once: the operations behind `append_once`, `stage` and `publish` (design, section 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replog.client.operations import PartitionOp
from replog.client.refusals import GO_BACK, NOT_STORED
from replog.errors import Code
from replog.messages import Produce, ProducedEntry, ProduceEntry, Publish, Published, Stage, StagedAttempt
from replog.model import ACKS_ALL
from replog.records import RecordBatch
from replog.security.roles import WRITE

if TYPE_CHECKING:
    from replog.client.core import ClientCore

__all__ = ["AppendOnceOp", "PublishOp", "StageOp"]


class _OnceOp(PartitionOp):
    """What a leader does once, however often it is asked."""

    changes = True
    in_doubt_after = GO_BACK - NOT_STORED
    action = WRITE


class AppendOnceOp(_OnceOp):
    """One batch that bears the mark of its writer. Result: the first offset of what is stored under its version, and the one behind it;
    (-1, -1) if that is gone. However often it is sent, it is stored once, so that no answer leaves doubt for long."""

    def __init__(self, topic: str, partition: int, body: bytes, deadline_ms: int) -> None:
        super().__init__("an append", topic, partition, deadline_ms)
        self._body = body

    def message(self, core: ClientCore) -> Produce:
        """To be acknowledged by all in-sync replicas."""
        assert self.place is not None
        return Produce(ACKS_ALL, core.config.request_timeout_ms, [ProduceEntry(self.request, self.place.identity, self._body)])

    def answered(self, core: ClientCore, answer: Any, now_ms: int) -> int:
        """The offsets, or why there are none. A Published: the work was done with another number of records."""
        if not isinstance(answer, ProducedEntry | Published):
            return Code.UNKNOWN_SERVER_ERROR
        if answer.error == Code.NONE:
            base = answer.base_offset
            end = answer.end_offset if isinstance(answer, Published) else base + RecordBatch(self._body).count
            self.finish((base, end) if base >= 0 else (-1, -1))
        return answer.error


class _PublishedOp(_OnceOp):
    """What is answered by a Published. Result: that."""

    def answered(self, core: ClientCore, answer: Any, now_ms: int) -> int:
        """Done, or why not."""
        if not isinstance(answer, Published):
            return Code.UNKNOWN_SERVER_ERROR
        if answer.error == Code.NONE:
            self.finish(answer)
        return answer.error


class StageOp(_PublishedOp):
    """Put one piece aside with the leader."""

    def __init__(
        self,
        topic: str,
        partition: int,
        deadline_ms: int,
        *,
        writer: str,
        version: int,
        attempt: str,
        number: int,
        body: bytes,
    ) -> None:
        super().__init__(f"a stage of version {version} of writer {writer!r}", topic, partition, deadline_ms)
        self._piece = (writer, version, attempt, number)
        self._body = body
        self._no_room = ""
        """What the last answer said of the leader's room, if that was the reason."""

    def answered(self, core: ClientCore, answer: Any, now_ms: int) -> int:
        """Done, or why not."""
        code = super().answered(core, answer, now_ms)
        self._no_room = ""
        if code == Code.QUOTA_EXCEEDED and answer.end_offset >= 0:
            leader = self.place.leader if self.place is not None else None
            limit = f"stage_bytes_max of broker {leader} is {answer.end_offset} (one principal may have half of it)"
            self._no_room = f": {limit}, and what is put aside there leaves no room for {answer.base_offset} bytes more"
        return code

    def last_answer(self) -> str:
        """With the limit, where that was the reason: it is the broker's, and not known here otherwise."""
        return super().last_answer() + self._no_room

    def message(self, core: ClientCore) -> Stage:
        """The piece; the same again is no other one."""
        assert self.place is not None
        return Stage(*self._piece, ProduceEntry(self.request, self.place.identity, self._body))


class PublishOp(_PublishedOp):
    """Have the leader append everything that was put aside, or find that it is there."""

    certain = frozenset({Code.UNKNOWN_STAGE})
    """It has looked for the version in its log before it looked for the pieces."""

    def __init__(
        self,
        topic: str,
        partition: int,
        deadline_ms: int,
        *,
        writer: str,
        version: int,
        made_ms: int,
        attempts: Sequence[tuple[str, int]],
    ) -> None:
        super().__init__(f"the publication of version {version} of writer {writer!r}", topic, partition, deadline_ms)
        self._work = (writer, version)
        self._made_ms = made_ms
        self._attempts = [StagedAttempt(attempt, pieces) for attempt, pieces in attempts]

    def message(self, core: ClientCore) -> Publish:
        """All of it."""
        assert self.place is not None
        return Publish(self.request, self.place.identity, *self._work, core.config.request_timeout_ms, self._attempts, self._made_ms)
