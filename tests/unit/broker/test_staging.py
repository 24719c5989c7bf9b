"""What is put aside: how much of it, for how long, and that nothing of it stays behind."""

from __future__ import annotations

from typing import Any

import pytest

from replog.broker.staging import Stages
from replog.config import BrokerConfig
from replog.errors import Code, LogDamaged, LogFull
from replog.log.staging import MemoryStaging
from replog.messages import StagedAttempt
from replog.model import PartitionId

P, Q = (PartitionId(bytes(16), n, 0) for n in (0, 1))
W = (P, "w")
PIECE, ATTEMPT = 256, 4096


class Kept(MemoryStaging):
    """Fails when it is told to."""

    error: type[Exception] | None = None

    def put(self, stage: int, body: bytes) -> int:
        if self.error is not None:
            raise self.error("told to")
        return super().put(stage, body)


def stages(**config: Any) -> tuple[Stages, Kept]:
    """With so little room that each piece and attempt counts for what it takes on disk."""
    staging = Kept()
    return Stages(staging, BrokerConfig(**{"stage_bytes_max": 100 << 20, **config})), staging


def put(
    made: Stages, number: int = 0, *, work: Any = W, version: int = 1, attempt: str = "a", size: int = 100, now_ms: int = 0, who: str = ""
) -> int:
    return made.put(work, version, attempt, number, bytes(size), 3, now_ms, who)


def found(made: Stages, *wanted: tuple[str, int], work: Any = W, version: int = 1) -> int | None:
    """How many pieces."""
    pieces = made.find(work, version, [StagedAttempt(*one) for one in wanted])
    return None if pieces is None else len(pieces)


def leads(identity: PartitionId) -> bool:
    return identity == P


def counted(made: Stages) -> int:
    """What all of it should count for."""
    attempts = [attempt for work in made._works.values() for attempt in work.values()]
    return sum(ATTEMPT + sum(PIECE + piece.size for piece in attempt.pieces.values()) for attempt in attempts)


def test_works_versions_and_attempts_are_kept_apart() -> None:
    made, staging = stages()
    for number, (work, version, attempt) in enumerate(
        [(W, 1, "a"), (W, 1, "b"), (W, 2, "a"), ((P, "v"), 1, "a"), ((Q, "w"), 1, "a")], 1
    ):
        for at in range(number):
            assert put(made, at, work=work, version=version, attempt=attempt) == 0
    assert [found(made, ("a", 1)), found(made, ("b", 2)), found(made, ("a", 1), ("b", 2))] == [1, 2, 3]
    assert found(made, ("a", 3), version=2) == 3
    assert found(made, ("a", 4), work=(P, "v")) == 4
    assert found(made, ("a", 5), work=(Q, "w")) == 5
    assert found(made, ("a", 2)) is found(made, ("a", 1), ("c", 1)) is found(made, ("a", 1), work=(Q, "v")) is None
    assert made.bytes == counted(made) == 15 * (100 + PIECE) + 5 * ATTEMPT
    assert len(staging._stages) == 5


def test_a_piece_that_comes_again_counts_once() -> None:
    made, staging = stages()
    for _ in range(3):
        assert put(made, now_ms=50) == 0
        assert put(made, 1, size=7) == 0
    assert made.bytes == counted(made) == 107 + 2 * PIECE + ATTEMPT
    assert [len(pieces) for pieces in staging._stages.values()] == [2]


def test_the_limit_counts_bodies_pieces_and_attempts() -> None:
    limit = 3 * (1_000 + PIECE) + 2 * ATTEMPT
    made, staging = stages(stage_bytes_max=limit)
    assert put(made, size=1_000) == put(made, size=1_000, attempt="b") == 0
    assert put(made, 1, size=1_000) == Code.QUOTA_EXCEEDED, "as if it were another attempt: the last room is nobody's"
    assert put(made, size=1_000) == 0, "what is here already needs no room"
    assert put(made, work=(P, "another"), size=1_000) == Code.QUOTA_EXCEEDED
    assert (len(made._works), len(staging._stages)) == (1, 2)
    assert made.bytes == counted(made) <= limit
    made.done(W, 1)
    assert made.bytes == 0
    assert put(made, size=1_000) == 0


def test_nothing_at_all_is_a_limit_too() -> None:
    made, staging = stages(stage_bytes_max=0)
    assert put(made, size=0) == Code.QUOTA_EXCEEDED
    assert (made.bytes, made._works, staging._stages) == (0, {}, {})


def test_one_principal_has_half_of_the_room_whatever_it_calls_its_works() -> None:
    each = 100 + PIECE + ATTEMPT
    made, _ = stages(stage_bytes_max=9 * each)
    taken = [put(made, work=(P, f"a{n}"), attempt=f"{n}", who="client/a") for n in range(9)]
    assert taken == [0] * 4 + [Code.QUOTA_EXCEEDED] * 5
    assert put(made, work=(P, "a0"), attempt="0", who="client/a") == 0, "what is here already needs no room"
    taken = [put(made, work=(Q, f"b{n}"), who="client/b") for n in range(9)]
    assert taken == [0] * 4 + [Code.QUOTA_EXCEEDED] * 5
    assert put(made, work=(Q, "c"), who="client/c") == 0
    assert put(made, work=(Q, "d"), who="client/d") == Code.QUOTA_EXCEEDED, "all of it is taken"
    assert made.bytes == counted(made) == 9 * each
    made.done((P, "a2"), 1)
    assert put(made, work=(P, "a9"), who="client/a") == 0
    made.expire(0, leads)
    assert put(made, work=(Q, "b9"), who="client/b") == 0, "what has gone is not held against it"
    for work in list(made._works):
        made.done(work, 1)
    assert (made.bytes, made._of, made._works) == (0, {}, {})


def test_each_piece_counts_for_whom_it_comes_from() -> None:
    """Who may write the same topic may add to an attempt of somebody else."""
    each = 10_000 + PIECE
    made, _ = stages(stage_bytes_max=2 * (ATTEMPT + 3 * each))
    assert put(made, 0, size=10_000, who="client/a") == 0
    assert [put(made, n, size=10_000, who="client/b") for n in range(1, 5)] == [0] * 3 + [Code.QUOTA_EXCEEDED]
    assert (made._of, made.bytes) == ({"client/a": ATTEMPT + each, "client/b": 3 * each}, counted(made))
    assert put(made, 4, size=10_000, who="client/a") == 0
    made.done(W, 1)
    assert (made._of, made.bytes) == ({}, 0)


def test_who_is_nobody_has_all_the_room() -> None:
    """Where nobody proves who it is there is nobody to share with: every task of a job may come from somewhere else."""
    each = 100 + PIECE + ATTEMPT
    made, _ = stages(stage_bytes_max=5 * each)
    assert [put(made, attempt=f"{n}") for n in range(6)] == [0] * 5 + [Code.QUOTA_EXCEEDED]


@pytest.mark.parametrize("limit", [1 << 20, 400 << 20, 512 << 20, 1 << 30, BrokerConfig().stage_bytes_max, 1 << 39, 1 << 43])
def test_what_a_broker_keeps_in_mind_is_bounded_as_well(limit: int) -> None:
    """Neither pieces nor attempts without a byte take more than half a GiB of memory, or a thousandth of what may be put aside."""
    made, _ = stages(stage_bytes_max=limit)
    first = made.asked(b"")
    assert put(made, size=0) == put(made, 1, size=0) == 0
    piece = made.bytes - first
    memory = max(512 << 20, limit >> 10)
    assert limit // piece * 320 <= memory
    assert limit // first * (320 + 2048) <= memory
    assert (piece, first) == (PIECE, PIECE + ATTEMPT) or limit > 400 << 20
    assert 3 * piece <= 1 << 20, "pieces of the usual size, 1 MiB, have three quarters of the room at least"


@pytest.mark.parametrize(("error", "code"), [(LogFull, Code.LOG_DIRECTORY_FULL), (LogDamaged, Code.STORAGE_ERROR)])
@pytest.mark.parametrize("before", range(3))
def test_a_piece_that_cannot_be_kept_counts_for_nothing(error: type[Exception], code: int, before: int) -> None:
    made, staging = stages()
    for number in range(before):
        put(made, number)
    taken = made.bytes
    staging.error = error
    assert put(made, before) == code
    assert put(made, work=(P, "v")) == code
    assert made.bytes == taken == counted(made)
    assert len(made._works) == (before > 0)
    staging.error = None
    assert put(made, before) == 0
    assert found(made, ("a", before + 1)) == before + 1


@pytest.mark.parametrize(("version", "left"), [(0, [1, 1, 2, 3]), (1, [2, 3]), (2, [3]), (3, []), (9, [])])
def test_what_is_done_goes_with_all_that_came_before(version: int, left: list[int]) -> None:
    made, staging = stages()
    for attempt, of in (("a", 1), ("b", 1), ("a", 2), ("c", 3)):
        put(made, version=of, attempt=attempt)
    put(made, work=(P, "v"))
    made.done(W, version)
    made.done((Q, "nobody"), version)
    assert sorted(of for of, _ in made._works.get(W, {})) == left
    assert made.bytes == counted(made)
    assert len(staging._stages) == len(left) + 1
    assert found(made, ("a", 1), work=(P, "v")) == 1


@pytest.mark.parametrize(("now_ms", "left"), [(1_000, "abc"), (1_001, "bc"), (1_500, "bc"), (1_501, "c"), (1_900, "c"), (1_901, "")])
def test_what_nobody_touches_expires(now_ms: int, left: str) -> None:
    made, staging = stages(stage_expiry_ms=1_000)
    put(made, attempt="a", version=1)
    put(made, attempt="b", version=2)
    put(made, attempt="b", version=2, now_ms=500)  # again
    put(made, attempt="c", version=3)
    put(made, 1, attempt="c", version=3, now_ms=900)  # another
    put(made, attempt="d", work=(Q, "w"), now_ms=5_000)
    made.expire(now_ms, leads)
    assert [attempt for attempt in "abcd" if any(attempt == one for work in made._works.values() for _, one in work)] == list(left)
    assert len(staging._stages) == len(left)
    assert made._touched_ms.keys() == made._works.keys()
    assert [sorted(versions) for versions in made._touched_ms.values()] == [sorted({v for v, _ in work}) for work in made._works.values()]
    assert made.bytes == counted(made)
    if not left:
        assert (made.bytes, made._works) == (0, {})


@pytest.mark.parametrize("how", ["another piece", "the same again", "another attempt", "publish"])
def test_an_early_attempt_lives_as_long_as_anything_of_its_version_does(how: str) -> None:
    """A task that was done at once waits for those that take hours."""
    made, _ = stages(stage_expiry_ms=1_000)
    assert put(made, attempt="early") == 0
    assert put(made, attempt="old", version=0) == 0
    for now_ms in range(900, 9_000, 900):
        if how in ("another piece", "the same again"):
            put(made, how == "another piece", attempt="early", now_ms=now_ms)
        elif how == "another attempt":
            put(made, attempt="late", now_ms=now_ms)
        else:
            made.touch(W, 1, now_ms)
        made.expire(now_ms + 200, leads)
        assert found(made, ("early", 1 + (how == "another piece")))
    assert found(made, ("old", 1), version=0) is None
    made.expire(now_ms + 1_001, leads)
    assert (made.bytes, made._works, made._touched_ms) == (0, {}, {})


@pytest.mark.parametrize("how", ["no room", "a full disk"])
def test_work_that_is_refused_again_and_again_gets_the_room_of_its_leftovers_back(how: str) -> None:
    """Each run of a job begins anew, under other names of attempts; there is room for what one of them leaves."""
    made, staging = stages(stage_expiry_ms=1_000, stage_bytes_max=50_000)
    taken = []
    for run in range(20):
        made.expire(run * 600, leads)
        staging.error = LogFull if how == "a full disk" and staging._stages else None
        taken.append(put(made, attempt=f"run {run}", size=30_000 if how == "no room" else 100, now_ms=run * 600) == 0)
        assert made.bytes == counted(made)
    assert taken == [True, False] * 10


def test_what_was_never_put_aside_is_not_kept_in_mind() -> None:
    made, staging = stages()
    staging.error = LogFull
    put(made)
    made.touch(W, 5, 1)
    assert (made._works, made._touched_ms) == ({}, {})
    staging.error = None
    put(made)
    made.touch(W, 5, 1)
    assert made._touched_ms == {W: {1: 0}}


def test_ten_thousand_stages() -> None:
    made, staging = stages()
    for number in range(10_000):
        assert put(made, work=(P, f"writer {number % 100}"), version=1 + number // 5_000, attempt=f"{number}", now_ms=number) == 0
    assert made.bytes == counted(made) == 10_000 * (100 + PIECE + ATTEMPT)
    made.done((P, "writer 7"), 2)
    made.expire(3_600_000 + 5_000, leads)
    assert len(staging._stages) == 4_950
    made.expire(3_600_000 + 10_000, leads)
    assert (made.bytes, made._works, staging._stages) == (0, {}, {})
