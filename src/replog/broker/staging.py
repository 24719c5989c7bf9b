"""What writers have put aside with this broker, as the leader of partitions: which pieces of which attempt at which work."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

from attrs import define, field

from replog.config import BrokerConfig
from replog.errors import Code, LogDamaged, LogFull
from replog.messages import StagedAttempt
from replog.model import PartitionId
from replog.ports import Staging

__all__ = ["Piece", "Stages"]

_PIECE_BYTES: Final = 256
"""What a piece counts for beside its body: nobody may put aside millions of empty ones."""
_ATTEMPT_BYTES: Final = 4096
"""What an attempt counts for beside its pieces: it is a file."""


@define
class Piece:
    """One piece: where its body is, and what has to be known of it before it is read again."""

    stage: int
    place: int
    size: int
    records: int


@define
class _Attempt:
    stage: int
    pieces: dict[int, Piece] = field(factory=dict)

    @property
    def bytes(self) -> int:
        return _ATTEMPT_BYTES + sum(piece.size + _PIECE_BYTES for piece in self.pieces.values())


_Work = tuple[PartitionId, str]
"""The partition, and the key of the writer."""


class Stages:
    """By partition and writer, version, and attempt. Bounded in bytes; and in time, all attempts at one version together: a task that was
    done early is published with those that take long."""

    def __init__(self, staging: Staging, config: BrokerConfig) -> None:
        self._staging = staging
        self._config = config
        self._works: dict[_Work, dict[tuple[int, str], _Attempt]] = {}
        self._touched_ms: dict[_Work, dict[int, int]] = {}
        """Version -> when somebody last wanted something of it."""
        self._stage = 0
        self.bytes = 0
        """Put aside now."""

    def put(self, work: _Work, version: int, attempt: str, number: int, body: bytes, records: int, now_ms: int) -> int:
        """Take one piece, unless it is here already. Returns an error code.

        What is refused renews nothing: else work that is started again and again would keep, by its refusals alone, what its earlier
        runs have left, and with that the room that it is refused.
        """
        known = self._works.get(work, {}).get((version, attempt))
        if known is not None and number in known.pieces:
            self.touch(work, version, now_ms)
            return Code.NONE
        if self.bytes + self.asked(body) > self._config.stage_bytes_max:
            return Code.QUOTA_EXCEEDED  # until others have published, or expired
        stage = self._stage + 1 if known is None else known.stage
        try:
            place = self._staging.put(stage, body)
        except LogFull:
            return Code.LOG_DIRECTORY_FULL
        except LogDamaged:
            return Code.STORAGE_ERROR
        if known is None:
            self._stage = stage
            known = self._works.setdefault(work, {})[version, attempt] = _Attempt(stage)
            self._touched_ms.setdefault(work, {})[version] = now_ms
            self.bytes += _ATTEMPT_BYTES
        self.touch(work, version, now_ms)
        known.pieces[number] = Piece(stage, place, len(body), records)
        self.bytes += len(body) + _PIECE_BYTES
        return Code.NONE

    @staticmethod
    def asked(body: bytes) -> int:
        """How much room a piece has to find, in bytes: as if it were the first of another attempt."""
        return len(body) + _PIECE_BYTES + _ATTEMPT_BYTES

    def touch(self, work: _Work, version: int, now_ms: int) -> None:
        """Something is put aside for this version, or it is to be published: nothing of it has been left behind."""
        touched = self._touched_ms.get(work, {})
        if version in touched:
            touched[version] = now_ms

    def find(self, work: _Work, version: int, wanted: Sequence[StagedAttempt]) -> list[Piece] | None:
        """Every piece of these attempts, in order; None if one is missing."""
        attempts = self._works.get(work, {})
        found: list[Piece] = []
        for one in wanted:
            known = attempts.get((version, one.attempt))
            if known is None or len(known.pieces) != one.pieces or any(n not in known.pieces for n in range(one.pieces)):
                return None
            found += (known.pieces[n] for n in range(one.pieces))
        return found

    def read(self, piece: Piece) -> bytes:
        """The body of a piece. Raises LogCorrupt."""
        return self._staging.read(piece.stage, piece.place)

    def done(self, work: _Work, version: int) -> None:
        """This version is in the log: whatever is left of it, and of earlier ones, is a leftover."""
        self._drop(work, [key for key in self._works.get(work, {}) if key[0] <= version])

    def expire(self, now_ms: int, leads: Callable[[PartitionId], bool], wanted: Container[_Work] = ()) -> None:
        """Drop what nobody has touched for long, because its writer is gone, unless it is `wanted`: being published. And what is of
        partitions that are not led here any more.
        """
        before_ms = now_ms - self._config.stage_expiry_ms
        for work, attempts in list(self._works.items()):
            stays, is_due, touched = leads(work[0]), work not in wanted, self._touched_ms[work]
            self._drop(work, [key for key in attempts if (is_due and touched[key[0]] < before_ms) or not stays])

    def _drop(self, work: _Work, keys: Sequence[tuple[int, str]]) -> None:
        attempts = self._works.get(work)
        if attempts is None:
            return
        for key in keys:
            attempt = attempts.pop(key)
            self.bytes -= attempt.bytes
            self._staging.drop(attempt.stage)
        if not attempts:
            del self._works[work], self._touched_ms[work]
            return
        left, touched = {version for version, _ in attempts}, self._touched_ms[work]
        for version in touched.keys() - left:
            del touched[version]
