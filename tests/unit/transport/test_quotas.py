"""What a client has used of its limit, by given times; and how often that is told."""

from __future__ import annotations

import pytest

from replog.transport.tcp.quotas import DEBT_MS_MAX, Budget
from replog.transport.tcp.telling import Seldom

RATE = 1_000
"""Bytes per second: a byte is a millisecond."""


def budget(*, burst_ms: int = 100, names_max: int = 100) -> Budget:
    return Budget(lambda name: 0 if name == "free" else RATE, burst_ms, names_max=names_max)


@pytest.mark.parametrize(
    ("burst_ms", "charges"),
    [
        (0, [(0, 10, 10)]),
        (100, [(0, 100, 0), (0, 1, 1)]),
        (100, [(0, 250, 150), (0, 0, 150), (50, 0, 150), (150, 0, 150), (151, 0, 151)]),
        (100, [(0, 250, 150), (149, 10, 160)]),
        (100, [(0, 250, 150), (150, 10, 160), (160, 0, 160), (200, 50, 210)]),
        (100, [(0, 250, 150), (250, 100, 250), (250, 1, 251)]),
        (100, [(0, 250, 150), (10_000, 100, 10_000), (10_000, 100, 10_100)]),
        (100, [(0, 60, 0), (20, 60, 20), (30, 20, 40)]),
    ],
    ids=["no burst", "the burst", "debt", "more debt", "paid in part", "all credit again", "no more credit than that", "little by little"],
)
def test_until_when_somebody_is_silent(burst_ms: int, charges: list[tuple[int, int, int]]) -> None:
    found = budget(burst_ms=burst_ms)
    at = 5_000
    assert [found.charge("a", size, at + now) - at for now, size, _ in charges] == [until for _, _, until in charges]


def test_less_than_a_millisecond_of_debt_is_a_millisecond() -> None:
    found = Budget(lambda _: 1_000_000, 0)
    assert found.charge("a", 1, 7) == 8


def test_who_owes_for_long_is_charged_for_no_more() -> None:
    found = budget(burst_ms=0)
    assert found.charge("a", DEBT_MS_MAX - 1, 0) == DEBT_MS_MAX - 1
    assert found.charge("a", 500, 0) == DEBT_MS_MAX + 499  # one charge may be for whatever it is
    assert found.charge("a", 500, 499) == DEBT_MS_MAX + 499
    assert found.charge("a", 500, 500) == DEBT_MS_MAX + 999


def test_each_name_has_its_own() -> None:
    found = budget()
    assert found.charge("a", 500, 0) == 400
    assert found.charge("b", 50, 0) == 0
    assert found.charge("a", 0, 0) == 400


def test_who_has_no_limit_is_neither_silent_nor_remembered() -> None:
    found = budget()
    assert found.charge("free", 10**12, 3) == 3
    assert len(found) == 0


def test_a_question_is_not_remembered() -> None:
    found = budget()
    assert found.charge("a", 0, 3) == 3
    assert len(found) == 0


def test_who_owes_nothing_is_forgotten_first() -> None:
    found = budget(names_max=3)
    for name, size in (("a", 150), ("b", 90), ("c", 80)):
        found.charge(name, size, 0)
    found.charge("d", 110, 0)
    assert len(found) == 2
    assert [found.charge(name, 0, 0) for name in "abcd"] == [50, 0, 0, 10]


def test_if_all_owe_the_one_that_owes_least_is_forgotten() -> None:
    found = budget(names_max=3)
    for name, size in (("a", 150), ("b", 130), ("c", 200), ("d", 210)):
        found.charge(name, size, 0)
    assert len(found) == 3
    assert [found.charge(name, 0, 0) for name in "abcd"] == [50, 0, 100, 110]


def test_so_many_names_are_remembered_and_no_more() -> None:
    found = budget(names_max=10)
    for number in range(1_000):
        found.charge(str(number), 1_000, number)
        assert len(found) <= 10


def test_the_same_is_told_once_a_minute() -> None:
    seldom = Seldom()
    told = [seldom.tell("a", at) for at in (5, 6, 60_004, 60_005, 60_006)]
    assert told == [0, None, None, 2, None]
    assert seldom.tell("b", 60_006) == 0


def test_the_time_of_the_first_is_any() -> None:
    assert Seldom().tell("a", 0) == 0


def test_of_many_subjects_the_one_told_of_first_is_forgotten_once_its_minute_is_over() -> None:
    seldom = Seldom()
    assert [seldom.tell(str(number), number) for number in range(1_000)] == [0] * 1_000
    assert [seldom.tell(f"more {number}", 1_000, "more") for number in range(50)] == [0] + [None] * 49
    assert [seldom.tell("other", 1_000, "other"), seldom.tell("0", 59_999), seldom.tell("more 1", 59_999, "more")] == [0, None, None]
    assert seldom.tell("more 1", 60_000, "more") == 0  # in the place of "0"
    assert seldom.tell("0", 60_000) == 0  # with those that have none
    assert seldom.tell("more 2", 61_000, "more") == 0  # in the place of "1"
    assert len(seldom._told) == 1_000


def test_those_that_find_no_place_are_told_once_a_minute_with_how_many_they_were() -> None:
    seldom = Seldom()
    for at_ms in range(0, 180_000, 1_000):
        assert seldom.tell("0", at_ms) == (None if at_ms % 60_000 else 59 if at_ms else 0)
        for number in range(1, 1_000):
            seldom.tell(str(number), at_ms)
        told = [seldom.tell(f"more {number}", at_ms) for number in range(10)]
        assert told == ([None] * 10 if at_ms % 60_000 else [599 if at_ms else 0] + [None] * 9)
