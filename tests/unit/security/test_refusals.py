"""What is refused again and again is written whole a few times, and then as a sum; what was passed on is always written."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from replog import messages as m
from replog.errors import Code
from replog.security.audit import PRINCIPALS_MAX, REFUSALS_MAX, REFUSALS_MS, Refusals
from replog.security.door import Door
from replog.security.identity import Identity
from replog.security.settings import Security
from replog.testing.clock import ManualClock

ADMIN = Identity("admin", "a")
PEER = ("peer", 1)
WHO = "principal=client/c address=127.0.0.1:1"

Lines = Callable[[], list[str]]


@pytest.fixture
def clock() -> ManualClock:
    """The time of the door."""
    return ManualClock(now_ms=1_000_000)


@pytest.fixture
def door(clock: ManualClock) -> Door:
    """Through which nobody but admins may change anything."""
    return Door(Security(secret={"client": b"s" * 32}), lambda _: None, Refusals(clock.now_ms))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """What has been written since the last call."""
    caplog.set_level(logging.INFO, "replog.audit")

    def since() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.name == "replog.audit"]
        caplog.clear()
        return found

    return since


def asks(door: Door, times: int, verb: str = "delete_topic", name: str = "c", address: str = "127.0.0.1:1") -> None:
    for number in range(times):
        passed, (answer,) = door.enter(Identity("client", name), address, PEER, m.Admin(number, verb, {"name": "t"}))
        assert (passed, answer.error) == (None, Code.CLUSTER_AUTHORIZATION_FAILED), "each is answered"


def test_the_first_are_written_whole_and_the_others_as_a_sum(door: Door, lines: Lines, clock: ManualClock) -> None:
    asks(door, REFUSALS_MAX + 3_000)
    asks(door, 5, "drain", address="127.0.0.1:2")
    assert lines() == [f"{WHO} action=delete_topic topic=t outcome=ClusterAuthorizationFailed"] * REFUSALS_MAX
    clock.advance(REFUSALS_MS - 1)
    door.refusals.tell(clock.now_ms())
    assert lines() == []
    clock.advance(1)
    door.refusals.tell(clock.now_ms())
    assert lines() == ['principal=client/c address=127.0.0.1:2 action="delete_topic,drain" outcome=refused more=3005 within_s=10']
    asks(door, 2)
    assert len(lines()) == 2, "it begins anew"


def test_who_is_refused_now_and_then_is_written_each_time(door: Door, lines: Lines, clock: ManualClock) -> None:
    asks(door, REFUSALS_MAX)
    clock.advance(REFUSALS_MS)
    asks(door, REFUSALS_MAX)
    clock.advance(REFUSALS_MS)
    door.refusals.tell(clock.now_ms())
    assert len(lines()) == 2 * REFUSALS_MAX
    assert door.refusals.next_ms is None


def test_a_sum_is_written_before_what_comes_after_it(door: Door, lines: Lines, clock: ManualClock) -> None:
    asks(door, REFUSALS_MAX + 1)
    clock.advance(REFUSALS_MS)
    asks(door, 1, name="d")
    *_, total, other = lines()
    assert total.endswith("outcome=refused more=1 within_s=10")
    assert other.startswith("principal=client/d ")


def test_principals_are_counted_apart(door: Door, lines: Lines) -> None:
    asks(door, REFUSALS_MAX + 50)
    asks(door, REFUSALS_MAX, name="d")
    assert sum(line.startswith("principal=client/d ") for line in lines()) == REFUSALS_MAX


def test_what_was_passed_on_is_always_written(door: Door, lines: Lines) -> None:
    asks(door, REFUSALS_MAX + 50)
    lines()
    for number in range(500):
        asked = m.Admin(number, "delete_topic", {"name": "t"})
        assert door.enter(ADMIN, "127.0.0.1:1", PEER, asked) == (asked, [])
        door.leave(ADMIN, PEER, m.AdminAnswer(number, Code.CLUSTER_AUTHORIZATION_FAILED if number % 2 else 0))
    assert len(lines()) == 500


def test_questions_are_not_written(door: Door, lines: Lines) -> None:
    denying = Door(Security(secret={"client": b"s" * 32}, authorizer=lambda *_: False), lambda _: None)
    for number in range(REFUSALS_MAX + 5):
        denying.enter(ADMIN, "127.0.0.1:1", PEER, m.Admin(number, "explain", {"name": "t"}))
    denying.close()
    assert lines() == []


def test_what_nobody_knows_how_to_do_has_no_name_in_a_sum(door: Door, lines: Lines) -> None:
    for number in range(REFUSALS_MAX + 1_000):
        asks(door, 1, f"made up {number}")
    door.close()
    assert lines()[-1] == f'{WHO} action="?" outcome=refused more=1000 within_s=10'


def test_no_sum_is_lost_when_it_closes(door: Door, lines: Lines) -> None:
    asks(door, REFUSALS_MAX + 7)
    door.close()
    door.close()
    assert [line for line in lines() if "more=" in line] == [f"{WHO} action=delete_topic outcome=refused more=7 within_s=10"]


def test_very_many_principals_take_no_more_memory_and_no_sum_is_lost(door: Door, lines: Lines) -> None:
    asks(door, REFUSALS_MAX + 9)
    for number in range(PRINCIPALS_MAX + 20):
        asks(door, 1, name=f"n{number}")
    assert len(door.refusals._refused) == PRINCIPALS_MAX
    assert [line for line in lines() if "more=" in line] == [f"{WHO} action=delete_topic outcome=refused more=9 within_s=10"]
