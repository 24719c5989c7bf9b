"""What writers have put aside with this broker, as the leader of partitions: which pieces of which attempt at which work."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

from attrs import define, field

from replog.broker.share import share_of
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
_PIECE_MEMORY: Final = 320
_ATTEMPT_MEMORY: Final = 2_048
"""What a broker keeps in mind of each, in bytes: of an attempt if it is alone in its work, and all names are as long as they may be."""
_MEMORY_MAX: Final = 512 << 20
"""All of that together takes no more, or no more than a 1,024th of what may be put aside. Where `stage_bytes_max` would let more of them
in, each counts for so much more."""


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
    highest: int = -1
    """Number of a piece: with as many pieces as that and one more, none is missing."""
    owed: dict[str, int] = field(factory=dict)
    """Principal -> how many bytes of it count for that one: who may write the same topic may add to what somebody else began."""


_Work = tuple[PartitionId, str]
"""The partition, and the key of the writer."""


class Stages:
    """By partition and writer, version, and attempt. Bounded in bytes, for all and for each principal; and in time, all attempts at one
    version together: a task that was done early is published with those that take long."""

    def __init__(self, staging: Staging, config: BrokerConfig) -> None:
        self._staging = staging
        self._config = config
        limit = config.stage_bytes_max
        memory = max(_MEMORY_MAX, limit >> 10)
        self._piece_bytes = max(_PIECE_BYTES, _PIECE_MEMORY * limit // memory)
        self._attempt_bytes = max(_ATTEMPT_BYTES, _ATTEMPT_MEMORY * limit // memory)
        self._works: dict[_Work, dict[tuple[int, str], _Attempt]] = {}
        self._touched_ms: dict[_Work, dict[int, int]] = {}
        """Version -> when somebody last wanted something of it."""
        self._stage = 0
        self.bytes = 0
        """Put aside now."""
        self._of: dict[str, int] = {}
        """The same of each principal; "" is nobody, who has no share of its own, and all the room."""

    def put(
        self, work: _Work, version: int, attempt: str, number: int, body: bytes, records: int, now_ms: int, principal: str = ""
    ) -> int:
        """Take one piece of a principal, unless it is here already. Returns an error code.

        What is refused renews nothing: else work that is started again and again would keep, by its refusals alone, what its earlier
        runs have left, and with that the room that it is refused.
        """
        known = self._works.get(work, {}).get((version, attempt))
        if known is not None and number in known.pieces:
            self.touch(work, version, now_ms)
            return Code.NONE
        if not self._has_room(self.asked(body), principal):
            return Code.QUOTA_EXCEEDED  # until something was published, or has expired
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
            self._count(known, principal, self._attempt_bytes)
        self.touch(work, version, now_ms)
        known.highest = max(known.highest, number)
        known.pieces[number] = Piece(stage, place, len(body), records)
        self._count(known, principal, len(body) + self._piece_bytes)
        return Code.NONE

    def asked(self, body: bytes) -> int:
        """How much room a piece has to find, in bytes: as if it were the first of another attempt."""
        return len(body) + self._piece_bytes + self._attempt_bytes

    def _has_room(self, asked: int, principal: str) -> bool:
        limit = self._config.stage_bytes_max
        return self.bytes + asked <= limit and (not principal or self._of.get(principal, 0) + asked <= share_of(limit))

    def _count(self, attempt: _Attempt, principal: str, size: int) -> None:
        attempt.owed[principal] = attempt.owed.get(principal, 0) + size
        self._of[principal] = self._of.get(principal, 0) + size
        self.bytes += size

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
            if known is None or len(known.pieces) != one.pieces or known.highest != one.pieces - 1:
                return None  # before any is collected: whoever asks for what is not there may ask again and again
        for one in wanted:
            pieces = attempts[version, one.attempt].pieces
            found += (pieces[n] for n in range(one.pieces))
        return found

    def read(self, piece: Piece) -> bytes:
        """The body of a piece. Raises LogCorrupt; LogFull if it cannot be read for now."""
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
            self._staging.drop(attempt.stage)
            for principal, size in attempt.owed.items():
                self.bytes -= size
                self._of[principal] -= size
                if not self._of[principal]:
                    del self._of[principal]
        if not attempts:
            del self._works[work], self._touched_ms[work]
            return
        left, touched = {version for version, _ in attempts}, self._touched_ms[work]
        for version in touched.keys() - left:
            del touched[version]
