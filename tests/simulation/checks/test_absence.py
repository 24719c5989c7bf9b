"""Brokers that stay out of the recovery: who may, and that the others must keep their promises meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import booted

from replog.controller import controller as controller_module
from replog.controller import election
from replog.errors import UsageError
from replog.partition.leading import Leading
from replog.testing.simulator import Fault, Outcome, Plan, Shape, absence, draw, run
from replog.testing.simulator.absence import may_stay_out
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation

QUIET = Plan(3, Shape(absent=1), (), 2_000)


def test_a_share_of_the_plans_has_absent_brokers_and_no_other_field_depends_on_it() -> None:
    shapes = [draw(seed).shape for seed in range(1, 301)]
    possible = [shape for shape in shapes if shape.replicas > shape.min_isr]
    absent = [shape for shape in possible if shape.absent]
    assert 0.2 < len(absent) / len(possible) < 0.6
    assert all(shape.absent <= max(1, shape.min_isr - 1) for shape in absent)
    assert not [shape for shape in shapes if shape.absent > shape.replicas - shape.min_isr]
    for seed in range(1, 20):
        drawn = draw(seed)
        assert draw(seed, absent=0) == evolve(drawn, shape=evolve(drawn.shape, absent=0))


@pytest.mark.parametrize("absent", [-1, 2])
def test_more_than_a_cluster_can_do_without_is_refused(absent: int) -> None:
    with pytest.raises(UsageError, match=f"absent is {absent}, replicas is 3, min_isr is 2"):
        draw(1, brokers=3, replicas=3, min_isr=2, absent=absent)


def test_who_may_stay_out() -> None:
    world = booted(flush="os")
    one = frozenset({1})
    assert may_stay_out(world, one, healed=False)
    assert may_stay_out(world, one, healed=True)
    assert not may_stay_out(world, frozenset({1, 2}), healed=True), "one replica is less than min_isr"
    world.nodes[2].end("power")
    assert not may_stay_out(world, one, healed=False), "two losses are more than min_isr - 1"
    assert may_stay_out(world, frozenset({2}), healed=False)


def test_the_only_one_that_may_lead_does_not_stay_out() -> None:
    """Whose disk has failed is in neither ISR nor ELR, also when it is back and has lost nothing."""
    world = booted(flush="os")
    ledger = next(iter(world.checks.ledgers.values()))
    assert ledger.state is not None
    ledger.state = evolve(ledger.state, isr=(1,), elr=(2,), leader=1)
    assert may_stay_out(world, frozenset({1}), healed=False)
    ledger.state = evolve(ledger.state, elr=())
    assert not may_stay_out(world, frozenset({1}), healed=False)


def test_nor_does_the_only_one_whose_copy_has_not_failed() -> None:
    """The leader's disk has failed, and the controller has yet to hear of it: then it elects the one that is left."""
    world = booted(flush="os")
    ledger = next(iter(world.checks.ledgers.values()))
    assert ledger.state is not None
    ledger.state = evolve(ledger.state, isr=(2,), elr=(1,), leader=2)
    assert may_stay_out(world, frozenset({1}), healed=False)
    broker = world.nodes[2].broker
    assert broker is not None
    broker.partitions[ledger.identity].fail("its disk has failed")
    assert not may_stay_out(world, frozenset({1}), healed=False)


def test_where_nobody_may_be_missed_everybody_recovers_first() -> None:
    world = booted(flush="os")
    ledger = next(iter(world.checks.ledgers.values()))
    ledger.min_isr = 1
    assert not may_stay_out(world, frozenset({1}), healed=False)
    assert may_stay_out(world, frozenset({1}), healed=True)
    ledger.state = None
    assert not may_stay_out(world, frozenset({1}), healed=True)


def test_an_absent_broker_does_not_start() -> None:
    world = World(QUIET)
    world.absent = frozenset({1})
    for node in world.nodes.values():
        node.start()
    assert [node.alive for node in world.nodes.values()] == [False, True, True]


STAY, GO, CUT = "brokers stay out of the recovery", "brokers go away once all have recovered", "brokers are cut off"


def outcome(mark: str, **shape: Any) -> Outcome:
    """Of the first seed that has brokers absent in this way."""
    for seed in range(1, 20):
        found = run(seed, plan=evolve(QUIET, seed=seed, shape=evolve(QUIET.shape, **shape)))
        if mark in found.marks:
            return found
    raise AssertionError(f"never: {mark}")


@pytest.mark.parametrize(("shape", "mark"), [({}, STAY), ({"min_isr": 1}, GO), ({}, CUT), ({"min_isr": 1}, CUT)])
def test_a_run_goes_on_without_them_and_with_them_again(shape: dict[str, int], mark: str) -> None:
    found = outcome(mark, **shape)
    assert found.violation is None
    assert found.marks[mark] == 1
    assert found.marks["the ISR shrinks"] >= 1
    assert found.marks["the ISR grows"] >= 1


def test_nobody_is_cut_off_who_leads_or_is_the_controller() -> None:
    """As long as the store hears of them, nobody takes that from them."""
    world = booted(drop=0.0, repeat=0.0, slow=0.0, delay_ms=3, unsure=0.0, flush="os")
    (ledger,) = world.checks.ledgers.values()
    controller = world.nemesis.target("controller")
    assert controller is not None
    assert ledger.state is not None
    others = set(world.nodes) - {controller.broker_id, ledger.state.leader}
    absence._go_while_all_is_well(world, sorted(world.nodes, key=lambda broker: broker in others), 1, cut_off=True)
    assert len(world.absent) == 1
    assert world.absent <= others


@pytest.mark.parametrize("min_isr", [1, 2])
def test_l8_a_leader_that_waits_for_ever_for_who_is_cut_off(min_isr: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders never shrink an ISR: nobody would notice if everybody came back at once."""
    monkeypatch.setattr(Leading, "_lags", lambda self, replica, now_ms: False)
    found = outcome(CUT, min_isr=min_isr)
    assert found.violation is not None
    assert found.violation.invariant == "L8"


@pytest.mark.parametrize(("min_isr", "mark"), [(2, STAY), (1, GO)])
def test_l8_a_controller_that_keeps_the_dead_in_the_isr(min_isr: int, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leading, "_lags", lambda self, replica, now_ms: False)
    choose = election.choose
    everybody = range(100)
    monkeypatch.setattr(controller_module, "choose", lambda state, **given: choose(state, **{**given, "live": everybody}))
    found = outcome(mark, min_isr=min_isr)
    assert found.violation is not None
    assert found.violation.invariant == "L8"


def test_the_absent_are_back_when_everything_is_read() -> None:
    plan = evolve(QUIET, faults=(Fault(300, "kill", "1", 9_000), Fault(500, "pause", "2", 9_000)))
    assert run(3, plan=plan).violation is None
