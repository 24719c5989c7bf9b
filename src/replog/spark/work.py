"""One attempt's requests for work that is stored once: batches that bear the mark of their writer, pieces put aside, publications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal

from replog.client.client import Client
from replog.client.once import AppendOnceOp, PublishOp, StageOp
from replog.client.refusals import batch_too_large
from replog.errors import Code, UnknownStage, rejection
from replog.marks import MARK_BYTES_MAX, WriterMark, framing
from replog.messages import Published
from replog.records import FRONT_BYTES, Framing
from replog.spark.appending import Worth
from replog.spark.cells import Cells, body_of
from replog.spark.delivery import Attempt, Place
from replog.spark.outstanding import Outstanding

__all__ = ["Work", "key_of_all", "key_of_slice"]

_PIECE_MS: Final = 100
"""How much longer a publication may take for each of its pieces: at 1 MiB a piece, 10 MiB/s."""


def key_of_slice(attempt: Attempt) -> str:
    """Who writes what one task writes by itself."""
    return f"{attempt.writer}/{attempt.slice}"


def key_of_all(writer: str) -> str:
    """Who writes what all tasks of a job write together. No slice is called that."""
    return f"{writer}/all"


class Work:
    """A version of a writer's work. Requests go out side by side; each says later what came of it, or `finish` does."""

    def __init__(self, client: Client, key: str, version: int, *, compression: Literal["lz4"] | None = None) -> None:
        """Raises UsageError for a key or a version that cannot be one."""
        client._check_open()
        self._client = client
        self._key = key
        self._version = version
        framing(WriterMark(key, version, made_ms=self._wall_ms()))  # refuses names and versions before anything is sent
        self._compression = compression
        self._worth = Worth()
        self._outstanding = Outstanding(client)
        self.finish = self._outstanding.finish
        self.give_up = self._outstanding.give_up

    def append(self, place: Place, several: Sequence[Cells]) -> None:
        """All that this version has for a partition, as one batch."""
        mark = WriterMark(self._key, self._version, made_ms=self._wall_ms())
        body = self._body(place, several, 0, framing(mark))
        self._outstanding.start(_AppendOp(*place, body, self._deadline_ms()), len(body), lambda base: None)

    def stage(self, place: Place, attempt: str, number: int, several: Sequence[Cells], done: Callable[[Place], None]) -> None:
        """Put one piece aside; `done` is called if the version turns out to be in the partition already."""
        body = self._body(place, several, MARK_BYTES_MAX, {})
        work = {"writer": self._key, "version": self._version}
        op = StageOp(*place, self._deadline_ms(), attempt=attempt, number=number, body=body, **work)  # type: ignore[arg-type]
        self._outstanding.start(op, len(body), partial(self._staged, place, done))

    def publish(self, place: Place, attempts: Sequence[tuple[str, int]]) -> None:
        """(attempt, pieces) of each: in this order, seen whole or not at all."""
        deadline_ms = self._deadline_ms() + _PIECE_MS * sum(pieces for _, pieces in attempts)
        work = {"writer": self._key, "version": self._version, "made_ms": self._wall_ms()}
        op = _PublishOp(*place, deadline_ms, **work, attempts=attempts)  # type: ignore[arg-type]
        self._outstanding.start(op, sum(len(name) for name, _ in attempts), lambda published: None)

    def _staged(self, place: Place, done: Callable[[Place], None], said: Published) -> None:
        if said.end_offset >= 0:
            done(place)

    def _body(self, place: Place, several: Sequence[Cells], mark_bytes: int, bears: Framing) -> bytes:
        tried = self._compression is not None and self._worth.wanted()
        how: Framing = {**bears, "compression": self._compression if tried else None}
        body = body_of(several, now_ms=self._client._driver.wall_ms(), **how)
        if tried:
            self._worth.told(body)
        length, limit = FRONT_BYTES + len(body) + mark_bytes, self._client._core.view.batch_limit(place[0])
        if length > limit:
            raise batch_too_large(length, sum(one.records for one in several), limit, *place)
        return body

    def _wall_ms(self) -> int:
        now: int = self._client._driver.wall_ms()
        return now

    def _deadline_ms(self) -> int:
        timeout_ms: int = self._client._core.config.delivery_timeout_ms
        return self._client._driver.now_ms() + timeout_ms


class _InTurn:
    """A partition takes one publication at a time, and nothing else meanwhile: other tasks' are done soon, so the pauses stay short."""

    failures: int

    def answered(self, core: Any, answer: Any, now_ms: int) -> int:
        """As it is."""
        code: int = super().answered(core, answer, now_ms)  # type: ignore[misc]
        if code == Code.QUOTA_EXCEEDED:
            self.failures = min(self.failures, 1)
        return code


class _AppendOp(_InTurn, AppendOnceOp):
    pass


class _PublishOp(_InTurn, PublishOp):
    """The same, with what a job can do about it when pieces are gone."""

    def refused(self, code: int) -> Any:
        """The error."""
        if code != Code.UNKNOWN_STAGE:
            return super().refused(code)
        text = (
            f"{self.topic}-{self.partition}: what was put aside there is gone: the partition has another leader since, or stage_expiry_ms "
            "has passed. Nothing of it was published there; what other partitions have stays. When it is run again, a task, a micro-batch, "
            "or a job with the same txnAppId and txnVersion writes what is missing"
        )
        error = rejection(code, text, topic=self.topic, partition=self.partition)
        assert isinstance(error, UnknownStage)
        return error
