"""Bugs about what the store does not give out: who is let in meanwhile, and what becomes of what a controller could not read."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from attrs import evolve
from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.broker.broker import Broker
from replog.controller import admitting as admitting_module
from replog.controller.term import Term
from replog.messages import LeaderAndIsr

__all__ = ["MUTANTS"]

_TESTS = "tests/unit/controller/test_hidden_losses.py::"


def lets_in_who_may_have_lost_it(patch: Patch) -> None:
    """A broker that has lost records is let in, although nobody can see what they were of; then it reports that no more."""
    patch.setattr(admitting_module, "is_kept_out", lambda _cluster, _broker_id: False)


def forgets_who_came_early(patch: Patch) -> None:
    """Of a broker that was let in early nothing is stored that says so: it goes on in the epoch of its earlier life."""
    patch.setattr(admitting_module, "_is_early", lambda _cluster, _broker_id: False)


def puts_away_what_was_not_read(patch: Patch) -> None:
    """A broker puts out of service what the controller could not read; whoever led it cannot go on in that epoch."""
    on_leader_and_isr = Broker.on_leader_and_isr

    def mutant(self: Broker, sender: Any, message: LeaderAndIsr, now_ms: int) -> None:
        on_leader_and_isr(self, sender, evolve(message, is_partial=False), now_ms)

    patch.setattr(Broker, "on_leader_and_isr", mutant)


def decides_before_deletions(patch: Patch) -> None:
    """A topic that is seen again is decided before anybody looks whether it is to be deleted: it is made whole first."""

    def mutant(self: Term) -> Generator[Any, Any, None]:
        self._half_deleted = False
        yield from ()

    patch.setattr(Term, "_deletions", mutant)


MUTANTS = (
    Mutant(
        "X69", "who may have lost what cannot be read is let in", "own", lets_in_who_may_have_lost_it,
        SAFETY, {"only": ("refuse", "kill", "expire", "unseat", "power", "wipe")},
        tests=(f"{_TESTS}test_who_lost_records_of_a_topic_that_is_not_known_waits_until_it_is",),
    ),
    Mutant(
        "X70", "a life that came early leads the epoch of another", "P-44", forgets_who_came_early,
        ("S5", *SAFETY), {"only": ("refuse", "kill", "expire", "unseat")},
        tests=(f"{_TESTS}test_no_life_leads_what_an_earlier_one_led_and_nobody_could_see",),
    ),
    Mutant(
        "X71", "what a controller could not read is put away", "own", puts_away_what_was_not_read,
        tests=("tests/unit/broker/test_partial_notice.py::test_a_leader_goes_on_although_a_partial_notice_does_not_name_its_copy",),
    ),
    Mutant(
        "X72", "a topic is decided before its deletion is seen", "own", decides_before_deletions,
        (*SAFETY, "S15"), {"only": ("refuse", "kill", "expire", "unseat"), "workloads": ("append", "topics")},
        tests=(f"{_TESTS}test_a_topic_of_which_a_state_was_refused_is_deleted_and_not_made_whole",),
    ),
)  # fmt: skip
