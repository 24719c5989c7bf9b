"""When work was asked for: by the clock of its leader, whatever times its records have; and what a hostile client can say of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.test_publishing import Desk, results
from tests.unit.test_marks import forged

from replog.broker.seldom import TELL_MS
from replog.config import BrokerConfig
from replog.errors import Code
from replog.log.memory import MemoryLogDirectory
from replog.marks import ATTEMPTS_MAX, MADE_AHEAD_MS_MAX, WriterMark, framing, mark_of, writer_id
from replog.messages import Produce, ProduceEntry
from replog.model import ACKS_ALL
from replog.records import encode_records
from replog.testing.log_samples import stored_batches

NOW, EXPIRY = 1_000_000_000, 10_000
REFUSED = [(Code.INVALID_TIMESTAMP, -1, -1)]


def desk_of(**config: Any) -> Desk:
    desk = Desk(writer_expiry_ms=EXPIRY, **config)
    desk.now_ms = NOW
    desk.tick()
    return desk


def events(desk: Desk, name: str) -> list[dict[str, Any]]:
    return [event.fields for event in desk.broker.outbox.events if event.name == name]


def old_rows(desk: Desk, version: int, *, at_ms: int, made_ms: int = NOW) -> Produce:
    """Work of now with rows of another time."""
    mark = framing(WriterMark("w", version, made_ms=made_ms))
    return Produce(ACKS_ALL, 1_000, [ProduceEntry(7, desk.identity, encode_records(["old"], now_ms=at_ms, **mark))])


@pytest.mark.parametrize(
    ("made_ms", "taken"),
    [
        (NOW, True),
        (NOW - EXPIRY, True),
        (NOW - EXPIRY - 1, False),
        (0, False),
        (NOW + MADE_AHEAD_MS_MAX, True),
        (NOW + MADE_AHEAD_MS_MAX + 1, False),
        (2**53, False),
    ],
)
def test_what_was_asked_for_too_long_ago_or_too_far_ahead_is_refused(made_ms: int, taken: bool) -> None:
    desk = desk_of()
    assert results(desk.tell(desk.once(3, made_ms=made_ms))) == ([(0, 0, -1)] if taken else REFUSED)
    desk.put(1, version=4)
    desk.receive(desk.publish(("a", 1), version=4, made_ms=made_ms))
    said = desk.published(desk.tick()) + desk.ticks()[1]
    assert results(said) == ([(0, 1, 3)] if taken else REFUSED)
    assert desk.partition.log.end_offset == (3 if taken else 0)
    late = made_ms < NOW and not taken
    desk.now_ms += TELL_MS
    desk.tick()
    assert [(one["made_ms"], one.get("more")) for one in events(desk, "mark_too_old")] == [(made_ms, None), (made_ms, 1)] * late


@pytest.mark.parametrize("at_ms", [5, NOW - 10 * EXPIRY, NOW + 10**12])
def test_versions_are_remembered_by_when_they_were_asked_for_not_by_the_times_of_rows(at_ms: int) -> None:
    desk = desk_of()
    log = desk.partition.log
    desk.tell(old_rows(desk, 3, at_ms=at_ms))
    log.retained_start(NOW + EXPIRY, 1)
    assert results(desk.tell(old_rows(desk, 3, at_ms=at_ms))) == [(0, 0, -1)]
    assert log.end_offset == 1
    log.retained_start(NOW + EXPIRY + 1, 1)
    assert log.producers.writer(writer_id("w")) is None


def test_what_is_done_is_answered_however_old_the_question() -> None:
    desk = desk_of()
    asked = desk.once(3)
    desk.tell(asked)
    desk.now_ms += EXPIRY + 1
    desk.tick()
    assert results(desk.tell(asked)) == [(0, 0, -1)]
    assert results(desk.tell(desk.once(2, made_ms=5))) == [(0, -1, -1)]
    desk.partition.log.retained_start(desk.now_ms, 1)
    assert results(desk.tell(asked)) == REFUSED, "nobody knows any more whether it was stored: so it is not stored now"


def test_hours_without_a_call_are_no_jump_of_the_clock() -> None:
    """An embedded broker hears what time it is when a call is dealt with, and that may be the first one for long."""
    desk = desk_of()
    desk.now_ms += 2 * MADE_AHEAD_MS_MAX
    assert results(desk.tell(desk.once(3))) == [(0, 0, -1)]
    desk.put(1, version=4)
    desk.now_ms += 2 * MADE_AHEAD_MS_MAX
    desk.receive(desk.once(5, "v"), desk.publish(("a", 1), version=4))
    assert Code.INVALID_TIMESTAMP not in [code for code, _, _ in results(desk.tick() + desk.ticks()[1])]
    desk.now_ms += EXPIRY + 1
    assert results(desk.tell(desk.once(6, made_ms=NOW))) == REFUSED


def test_work_is_known_until_its_own_time_is_up_although_later_work_was_asked_for_by_a_slower_clock() -> None:
    desk = desk_of()
    asked = desk.once(7)
    desk.tell(asked)
    desk.tell(desk.once(8, made_ms=NOW - EXPIRY))
    desk.now_ms += EXPIRY
    desk.tick()
    desk.partition.log.retained_start(desk.now_ms, 2)
    assert results(desk.tell(asked)) == [(0, 0, -1)]
    assert desk.partition.log.end_offset == 2


@pytest.mark.parametrize("made_ms", [-1, -(2**63), 2**53 + 1, 2**63 - 1])
def test_a_publication_with_a_time_that_is_none_is_refused_also_where_versions_are_kept_for_ever(made_ms: int) -> None:
    desk = Desk(writer_expiry_ms=2**62)
    desk.put(1)
    assert results(desk.tell(desk.publish(("a", 1), made_ms=made_ms))) == [(Code.INVALID_REQUEST, -1, -1)]
    desk.tell(desk.publish(("a", 1)))
    desk.ticks()
    assert desk.partition.log.end_offset == 2


def test_the_time_of_a_group_is_that_of_its_publication() -> None:
    desk = desk_of()
    desk.put(3)
    desk.now_ms += 77
    desk.tell(desk.publish(("a", 3)))
    desk.now_ms += 1_000
    desk.tell(desk.publish(("a", 3)))
    desk.ticks()
    assert [mark_of(one).made_ms for one in stored_batches(desk.partition.log)] == [NOW + 77] * 3  # type: ignore[union-attr]


def test_the_limit_of_writers_is_told_of_and_producers_do_not_count() -> None:
    config = BrokerConfig(producers_max=3)
    desk = Desk(MemoryLogDirectory(limits=config, directory_id="d" * 32), producers_max=3)
    for number in range(3):
        desk.tell(desk.once(1, f"w{number}"))
    for number in range(20):
        desk.tell(desk.append(producer_id=number, producer_epoch=0, base_sequence=0))
    desk.now_ms += 1_000
    desk.tick()
    assert events(desk, "writers_forgotten") == []
    assert results(desk.tell(desk.once(1, "w0"))) == [(0, 0, -1)]
    for number in range(4, 9):
        desk.tell(desk.once(1, f"w{number}"))
    for _ in range(3):
        desk.now_ms += 1_000
        desk.tick()
    assert [(one["count"], one["limit"]) for one in events(desk, "writers_forgotten")] == [(5, 3)]
    desk.put(1, writer="w9")
    desk.receive(desk.publish(("a", 1), writer="w9"))
    desk.ticks()
    desk.now_ms += TELL_MS
    desk.tick()
    assert [one["count"] for one in events(desk, "writers_forgotten")] == [5, 1]


@pytest.mark.parametrize(
    "changes",
    [
        forged("x" * 256),
        forged("é" * 200),
        forged("x" * 65_000),
        forged("w", made_ms=-1),
        forged("w", made_ms=2**62),
        forged("w", group_offset=1),
    ],
)
def test_a_mark_that_no_client_makes_costs_nothing(changes: dict[str, Any]) -> None:
    """It is not stored, so that nobody has to say it again one day."""
    desk = Desk()
    produce = Produce(ACKS_ALL, 1_000, [ProduceEntry(7, desk.identity, encode_records(["x"], now_ms=5, **changes))])
    code = Code.MESSAGE_TOO_LARGE if len(changes["extension"]) > 10_000 else Code.INVALID_RECORD
    assert results(desk.tell(produce)) == [(code, -1, -1)]
    assert desk.partition.log.end_offset == 0
    assert results(desk.tell(desk.append("x"))) == [(0, 0, -1)]


@pytest.mark.parametrize(
    "attempts",
    [
        [],
        [("a", 1), ("a", 1)],
        [("a", 0)],
        [("a", -1)],
        [("a", 2**60)],
        [("", 1)],
        [("x" * 256, 1)],
        [(f"{n}", 1) for n in range(ATTEMPTS_MAX + 1)],
        [(f"{n:0250}", 1) for n in range(4_000)],
    ],
)
def test_a_publication_that_no_client_asks_for_is_refused(attempts: list[tuple[str, int]]) -> None:
    desk = Desk()
    desk.put(1)
    assert results(desk.tell(desk.publish(*attempts))) == [(Code.INVALID_REQUEST, -1, -1)]
    assert desk.ticks() == (0, [])
