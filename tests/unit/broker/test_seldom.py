"""What a client can bring about with every message: told once, and then how often it was, for each partition and kind."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.test_marks_refused import EXPIRY, NOW, desk_of, events
from tests.unit.broker.test_publishing import Desk

from replog.broker.seldom import TELL_MS, Seldom
from replog.log.memory import MemoryLog
from replog.model import PartitionId


class Partition:
    """As much of one as an event names."""

    def __init__(self, number: int) -> None:
        self.identity = PartitionId(bytes(16), number, 0)

    def __repr__(self) -> str:
        return f"t-{self.identity.partition}"


class Teller:
    """A Seldom, and what it has told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.seldom = Seldom(lambda name, **fields: self.told.append((name, fields)))

    def tell(self, now_ms: int, name: str = "full", number: int = 0, **fields: Any) -> None:
        self.seldom.tell(name, now_ms, Partition(number), **fields)  # type: ignore[arg-type]

    def run(self, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """What is told then, and was before."""
        self.seldom.run(now_ms)
        told, self.told[:] = list(self.told), []
        return told


def test_the_first_is_told_and_of_more_the_last_with_their_number() -> None:
    one = Teller()
    for number in range(5):
        one.tell(number, why=number)
    assert one.run(TELL_MS - 1) == [("full", {"partition": "t-0", "why": 0})]
    assert one.run(TELL_MS) == [("full", {"partition": "t-0", "why": 4, "more": 4})]
    one.tell(TELL_MS + 1, why=5)
    assert one.run(2 * TELL_MS - 1) == []
    assert one.run(2 * TELL_MS) == [("full", {"partition": "t-0", "why": 5, "more": 1})]
    assert one.run(9 * TELL_MS) == []


def test_after_a_quiet_minute_the_next_is_told_at_once() -> None:
    one = Teller()
    one.tell(0, why=1)
    one.run(TELL_MS)
    one.tell(TELL_MS, why=2)
    assert one.run(TELL_MS) == [("full", {"partition": "t-0", "why": 2})]
    assert one.run(2 * TELL_MS) == []
    assert one.seldom._told == {}


def test_partitions_and_kinds_are_apart() -> None:
    one = Teller()
    for now_ms in (0, 5):
        for number in (0, 1):
            for name in ("full", "old"):
                one.tell(now_ms + number, name, number)
    places = [(name, {"partition": f"t-{number}"}) for number in (0, 1) for name in ("full", "old")]
    assert one.run(10) == places
    assert one.run(TELL_MS) == [(name, {**fields, "more": 1}) for name, fields in places[:2]]
    assert one.run(TELL_MS + 1) == [(name, {**fields, "more": 1}) for name, fields in places[2:]]


def flood(desk: Desk, kind: str, name: str) -> int:
    """Ten minutes of refused requests, and how many there were."""
    count = 0
    for second in range(600):
        writer = f"{kind}{second}"
        desk.put(1, version=4, writer=writer)
        for _ in range(3):
            if name == "mark_too_old" and kind == "append":
                desk.receive(desk.once(3, writer, made_ms=NOW - 2 * EXPIRY))
            elif kind == "append":
                desk.receive(desk.append("x"))
            else:
                desk.receive(desk.publish(("a", 1), version=4, writer=writer, made_ms=NOW - 2 * EXPIRY))
            count += 1
        desk.tick()
        desk.now_ms += 1_000
    desk.now_ms += TELL_MS
    desk.tick()
    return count


@pytest.mark.parametrize(("kind", "name"), [("append", "mark_too_old"), ("publish", "mark_too_old"), ("append", "log_full")])
def test_however_often_a_client_is_refused_a_minute_has_one_line_and_none_is_lost(kind: str, name: str) -> None:
    desk = desk_of()
    assert isinstance(desk.partition.log, MemoryLog)
    desk.partition.log.full = name == "log_full"
    count = flood(desk, kind, name)
    told = events(desk, name)
    assert 10 <= len(told) <= 11
    assert 1 + sum(one.get("more", 0) for one in told) == count
    assert "more" not in told[0]


def test_writers_that_are_forgotten_with_every_append_are_told_once_a_minute_and_counted() -> None:
    desk = desk_of(producers_max=3)
    for number in range(603):
        desk.tell(desk.once(1, f"w{number}", made_ms=desk.now_ms))
        desk.now_ms += 1_000
    desk.now_ms += TELL_MS
    desk.tick()
    told = events(desk, "writers_forgotten")
    assert 10 <= len(told) <= 12
    assert sum(one["count"] for one in told) == 600
