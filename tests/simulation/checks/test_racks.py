"""Racks: drawn in a share of the runs, new partitions are spread over them, and readers may be served by a copy in theirs."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from replog.errors import UsageError
from replog.testing.simulator.corpus import Failure, from_json, to_json
from replog.testing.simulator.plan import draw
from replog.testing.simulator.plan_check import check_plan
from replog.testing.simulator.racks import Placements, Staying, is_balanced, rack_of
from replog.testing.simulator.running import run

pytestmark = pytest.mark.simulation

CONTROLLER = ("controller", 2)
ALL: Staying = frozenset({(1, 10), (2, 11), (3, 12), (4, 13)})


def test_a_share_of_the_runs_has_some() -> None:
    shapes = [draw(seed).shape for seed in range(300)]
    drawn = [shape for shape in shapes if shape.racks]
    assert 0.15 < len(drawn) / len(shapes) < 0.35
    assert all(len(shape.racks) == shape.brokers > 1 for shape in drawn)
    assert {rack for shape in drawn for rack in shape.racks} == {"a", "b", "c"}


def test_they_are_kept_in_files_and_not_there_in_old_ones() -> None:
    plan = draw(1, racks=("a", "b"))
    assert from_json(to_json(Failure(plan))).plan == plan
    assert from_json('{"seed": 1, "shape": {}, "faults": [], "safety_ms": 5}').plan.shape.racks == ()
    with pytest.raises(UsageError, match="rack"):
        check_plan(evolve(plan, shape=evolve(plan.shape, racks=("a\n",))))


def test_those_beyond_the_last_stand_where_the_first_ones_do() -> None:
    assert [rack_of("ab", number) for number in (1, 2, 3, 4)] == ["a", "b", "a", "b"]
    assert rack_of((), 1) is None


@pytest.mark.parametrize(
    ("replicas", "balanced"),
    [((1, 3), True), ((1, 4), True), ((1, 2), False), ((1, 2, 3), True), ((1, 2, 5), False), ((1, 2, 3, 4), True), ((1, 2, 5, 3), False)],
)
def test_a_balanced_placement(replicas: tuple[int, ...], balanced: bool) -> None:
    assert is_balanced("aabba", replicas, (1, 2, 3, 4, 5)) == balanced


def judged(replicas: list[int], *, then: Staying = ALL, now: Staying | None = ALL, racks: str = "aabb", wish: str = "wish") -> str:
    staying = [now, then]
    placements = Placements(racks, lambda _: staying.pop(), lambda _: None, {})
    placements.heard("wish", CONTROLLER)
    return placements.judged([replicas], [wish])


def test_no_rack_has_two_copies_while_another_has_none() -> None:
    assert judged([1, 2]) == "copies on [1, 2], racks are a+a+b+b, and there were brokers [3, 4] all the time"
    assert judged([1, 3]) == judged([1, 2, 3]) == ""


@pytest.mark.parametrize(
    "given",
    [
        {"then": frozenset({(1, 10), (2, 11)})},  # they came when it had decided
        {"now": frozenset({(1, 10), (2, 11)})},  # they went, maybe before it decided
        {"now": frozenset({(1, 10), (2, 11), (3, 14), (4, 15)})},  # they went and came back
        {"now": None},  # nobody knows what it had
        {"racks": "aaaa"},
        {"wish": "another"},
    ],
    ids=str,
)
def test_nothing_is_said_of_racks_whose_brokers_may_not_have_been_there(given: dict[str, Any]) -> None:
    assert judged([1, 2], **given) == ""


def test_nobody_stands_anywhere() -> None:
    placements = Placements.none()
    placements.heard("wish", CONTROLLER)
    assert placements.judged([[1, 2]], ["wish"]) == ""


def test_copies_in_the_rack_are_read_and_balanced_placements_asked_for() -> None:
    plan = draw(
        8, only=("kill", "isolate"), brokers=4, racks=("a", "b", "c", "a"), retention_ms=0, retention_bytes=0, clients=3,
        workloads=("append", "read", "follow", "reassign", "reshape"),
    )  # fmt: skip
    found = run(8, plan=plan)
    assert found.violation is None
    for mark in ("a copy in the rack is read", "a balanced placement is asked for", "a new partition is spread over racks"):
        assert found.marks[mark] > 0
