"""Bugs of moving partitions: what is dropped too early, what is forgotten, and what is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.broker.throttle import Throttle
from replog.controller import moves, reassign, removal, rows
from replog.controller.changes import Topic
from replog.controller.cluster import Cluster
from replog.partition.partition import Partition
from replog.ports import Slice
from replog.testing.simulator.limits import Limits

__all__ = ["MUTANTS"]


def drops_old_replicas_first(patch: Patch) -> None:
    """A move is complete as soon as it has begun."""
    patch.setattr(moves, "is_complete", lambda assignment, state, **given: True)


def takes_one_for_all(patch: Patch) -> None:
    """A move is complete once anybody of its target is in sync."""
    patch.setattr(moves, "is_complete", lambda assignment, state, **given: any(r in state.isr for r in moves.target_of(assignment)))


def forgets_what_moves(patch: Patch) -> None:
    """Only the controller that has begun a move knows of it."""
    set_topic = Cluster._set_topic

    def mutant(self: Cluster, topic: Topic) -> None:
        is_known, moving = topic.topic_id in self.topics, dict(self.moving)
        set_topic(self, topic)
        if not is_known:
            self.moving = moving

    patch.setattr(Cluster, "_set_topic", mutant)


def leaves_strays(patch: Patch) -> None:
    """Whoever holds a copy no more is not told of it."""

    def nobody(before: Any, after: Any) -> tuple[int, ...]:
        return ()

    patch.setattr(moves, "left", nobody)


def keeps_the_epoch(patch: Patch) -> None:
    """A replica that was not in sync leaves, and the leader epoch stays."""
    led = moves._led

    def mutant(before: Any, after: Any, live: Any, *, leaves: bool) -> Any:
        return led(before, after, live, leaves=leaves and not set(before.isr) <= set(after.isr))

    patch.setattr(moves, "_led", mutant)


def charges_too_much(patch: Patch) -> None:
    """What a move brings is paid for thirty times."""
    pause = Throttle.pause_until_ms

    def mutant(self: Throttle, partition: Partition, fetched: Sequence[Slice], now_ms: int) -> int:
        rate = self._bytes_per_s
        self._bytes_per_s = rate // 30
        try:
            return pause(self, partition, fetched, now_ms)
        finally:
            self._bytes_per_s = rate

    patch.setattr(Throttle, "pause_until_ms", mutant)


_MOVES = {"workloads": ("append", "follow", "reassign"), "brokers": 5, "replicas": 3, "min_isr": 2}
_SLOW_MOVES = {"workloads": ("append", "reassign"), "brokers": 3, "replicas": 2, "limits": Limits(reassignment_bytes_per_s=2_000)}

def outlives_its_topic(patch: Patch) -> None:
    """A wish is about whatever topic has the name in its path."""
    for module in (reassign, rows, removal):
        patch.setattr(module, "of_another", lambda cluster, wish: None)


MUTANTS = (
    Mutant(
        "M30", "a reassignment drops old replicas before the new ones are in the ISR", "V3 F", drops_old_replicas_first,
        (*SAFETY, "S24", "S15"), {"only": ("kill", "isolate", "pause"), **_MOVES}, scenarios=("P-83", "P-84", "P-85"),
        tests=("tests/unit/controller/test_moves.py::test_a_move_is_complete_when_all_of_its_target_is_in_sync",),
    ),
    Mutant(
        "P-85", "an old replica is removed before the target is complete", "KAFKA-15665", takes_one_for_all,
        (*SAFETY, "S24"), {"only": ("kill", "isolate", "pause"), **_MOVES}, scenarios=("P-84", "P-85"),
        tests=("tests/unit/controller/test_reassign.py::test_p85_an_old_replica_stays_while_one_that_is_kept_is_away",),
    ),
    Mutant(
        "P-83", "a reassignment does not survive its controller", "V3 F; DESIGN 6", forgets_what_moves,
        ("L6",), {"only": ("unseat", "kill", "isolate"), **_MOVES}, scenarios=("P-83",),
    ),
    Mutant(
        "P-87", "a reassignment leaves strays", "KAFKA-13972", leaves_strays,
        ("L7", "asked"), {"only": ("isolate", "pause", "cut"), **_MOVES}, scenarios=("P-87", "P-88"),
        tests=("tests/unit/controller/test_reassign.py::test_p87a_a_cancelled_move_goes_back_in_the_order_of_before",),
    ),
    Mutant(
        "X41", "a replica leaves and comes back within one leader epoch", "PROTOCOL 4.7", keeps_the_epoch,
        SAFETY, {"only": ("flush", "slow_store"), **_MOVES, "partitions": 1, "drop": 0.2, "slow": 0.05, "think_ms": 250},
        tests=("tests/unit/controller/test_moves.py::test_the_end_of_a_move",),
    ),
    Mutant(
        "X118", "a wish moves the next topic of its name", "own", outlives_its_topic,
        tests=("tests/unit/controller/test_next_topic.py::test_a_wish_that_names_no_topic_is_about_the_one_that_was_there",),
    ),
    Mutant(
        "X128", "a move is held back for longer than its limit says", "KIP-73", charges_too_much,
        ("L2", "L3", "L6", "L8"), {"only": ("kill", "pause"), **_SLOW_MOVES},
        tests=("tests/unit/broker/test_throttle.py::test_bytes_that_have_come_are_paid_for_by_all_that_joins",),
    ),
)
