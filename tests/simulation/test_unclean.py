"""Runs whose elections may lose something: where asked for, in every way, hard enough to lose something, kept in files as all others."""

from __future__ import annotations

from collections import Counter

import pytest

from replog.errors import UsageError
from replog.testing.simulator.corpus import Failure, from_json, to_json
from replog.testing.simulator.directions import DIRECTIONS, draw_directed
from replog.testing.simulator.plan import UNCLEAN, draw
from replog.testing.simulator.plan_check import check_plan
from replog.testing.simulator.running import run

pytestmark = pytest.mark.simulation

PLANS = [draw_directed(seed, "unclean") for seed in range(120)]
SMALL = {
    "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "clients": 2, "files": False, "flush": "os", "lag_ms": 500,
    "session_ms": 1_500, "think_ms": 60, "retention_bytes": 0, "retention_ms": 0,
}  # fmt: skip


def test_a_series_of_its_own_allows_them_in_each_way_and_no_other() -> None:
    assert Counter(plan.shape.unclean for plan in PLANS) == dict.fromkeys(UNCLEAN[1:], len(PLANS) // 3)
    assert {draw_directed(seed, name).shape.unclean for seed in range(40) for name in ("", *DIRECTIONS) if name != "unclean"} == {""}


def test_topics_allow_them_or_a_person_asks() -> None:
    for plan in PLANS:
        shape = plan.shape
        assert shape.topic_config().unclean_leader_election is (shape.unclean in ("topic", "both"))
        assert ("decide" in shape.workloads) is (shape.unclean in ("asked", "both"))
        assert bool(shape.unclean) or not any(fault.kind == "strand" for fault in plan.faults)
    assert any(fault.kind == "strand" for plan in PLANS for fault in plan.faults)


def test_what_is_given_is_not_drawn() -> None:
    assert draw(1, unclean="asked", workloads=("append",)).shape.workloads == ("append",)


def test_it_changes_nothing_else_of_a_plan() -> None:
    """Of those that would not lose anything by themselves: no other draw is moved."""
    for plan in PLANS[:60]:
        if plan.shape.unclean == "topic" and plan.shape.min_isr > 1 and plan.shape.flush == "ack":
            faults = [fault for fault in plan.faults if fault.kind != "strand"]
            assert list(draw(plan.seed).faults) == faults


def test_it_is_kept_in_files_and_names_are_checked() -> None:
    plan = draw(1, unclean="both")
    assert from_json(to_json(Failure(plan))).plan == plan
    assert from_json('{"seed": 1, "shape": {}, "faults": [], "safety_ms": 5}').plan.shape.unclean == ""
    with pytest.raises(UsageError, match="'topics'; is 'topic' meant"):
        check_plan(draw(1, unclean="topics"))


def test_they_happen_and_lose_something_and_everything_else_holds() -> None:
    hits: Counter[str] = Counter()
    for seed in range(1, 9):
        plan = draw(seed, unclean=("topic", "asked")[seed % 2], workloads=("append", "follow", "read", "decide"), **SMALL)
        outcome = run(seed, plan=plan, tail=0)
        assert outcome.violation is None, f"{seed}: {outcome.violation}"
        hits.update(outcome.marks.keys())
    assert hits["an unclean election"] >= 4
    assert hits["an election loses what was committed"] >= 4
    assert hits["the recovering state ends"] >= 4
    assert hits["a reader is told that its records are gone"] >= 2
    assert hits["an unclean election is asked for and done"] >= 1
    assert hits["an unclean election is not needed"] >= 1
