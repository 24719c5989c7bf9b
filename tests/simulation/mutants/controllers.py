"""Bugs of the controller: who is elected, what is stored, and who hears of it."""

from __future__ import annotations

import hashlib
from typing import Any

import attrs
from tests.simulation.mutants.entry import Equivalent, Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.controller import admin as admin_module
from replog.controller import controller as controller_module
from replog.controller import writing as writing_module
from replog.controller.changes import Topic
from replog.controller.cluster import Cluster
from replog.controller.controller import Controller
from replog.controller.election import Choice
from replog.controller.publishing import Publisher
from replog.metadata import layout
from replog.model import PartitionId
from replog.ports import Check, Put

__all__ = ["EQUIVALENT", "MUTANTS"]


def elects_uncleanly(patch: Patch) -> None:
    """Whoever lives may lead, without anybody having allowed it."""
    choose = controller_module.choose
    patch.setattr(controller_module, "choose", lambda state, **given: choose(state, **{**given, "unclean": True}))


def _any_version(path: str, value: bytes, version: int | None = None) -> Put:
    return Put(path, value)


def writes_without_version(patch: Patch) -> None:
    """The controller overwrites a partition's state whatever its version is."""
    patch.setattr(controller_module, "Put", _any_version)


def writes_after_its_term(patch: Patch) -> None:
    """A transaction compares neither the controller epoch nor the version: what an old controller decided is stored."""
    writes_without_version(patch)
    patch.setattr(writing_module, "Put", _any_version)
    init = Controller.__init__

    def mutant(self: Controller, **given: Any) -> None:
        init(self, **given)
        self.guard = Check(layout.CONTROLLER_EPOCH, None)

    patch.setattr(Controller, "__init__", mutant)


def forgets_creations(patch: Patch) -> None:
    """A partition that was removed and added again has the identity that it had before."""
    topic_of = Cluster.topic_of

    def mutant(self: Cluster, partition: PartitionId) -> Topic | None:
        topic = self.topics.get(partition.topic_id)
        if topic is None or partition.partition not in topic.assignments:
            return topic_of(self, partition)
        return topic

    patch.setattr(Topic, "identity", lambda self, partition: PartitionId(self.topic_id, partition, 0))
    patch.setattr(Cluster, "topic_of", mutant)


def initialises_leaderless(patch: Patch) -> None:
    """A partition without a leader is initialised again: all live replicas become the ISR."""
    choose = Controller.choose

    def mutant(self: Controller, partition: Any) -> Choice:
        state = self.cluster.states.get(partition)
        live = self.cluster.live(partition)
        if state is None or state.leader is not None or not live or self.cluster.topic_of(partition) is None:
            return choose(self, partition)
        isr = tuple(r for r in self.cluster.replicas(partition) if r in live)
        led = attrs.evolve(state, leader=isr[0], leader_epoch=state.leader_epoch + 1, isr=isr, elr=(), last_known=())
        return Choice(led)

    patch.setattr(Controller, "choose", mutant)


def tells_nobody_again(patch: Patch) -> None:
    """A new controller takes it that brokers which were let in have heard everything from the last one."""
    announce = Publisher._announce

    def mutant(self: Publisher, broker_id: int, now_ms: int) -> None:
        info = self._cluster.brokers[broker_id].info
        if info.fenced:
            announce(self, broker_id, now_ms)
            return
        notice = self.outboxes.announce(broker_id, [], (), now_ms)
        box = self.outboxes.get(broker_id, info.broker_epoch)
        assert box is not None
        box.answered(notice.notice)

    patch.setattr(Publisher, "_announce", mutant)


def names_topics_by_name(patch: Patch) -> None:
    """A topic has no id of its own: one that is made again under a name is the same as before."""
    asked = admin_module.admin_asked

    def mutant(controller: Controller, event: Any) -> Any:
        name = str(event.request.arguments.get("name"))
        return asked(controller, attrs.evolve(event, token=hashlib.sha256(name.encode()).digest()[:16]))

    patch.setattr(admin_module, "admin_asked", mutant)


RESHAPED: dict[str, Any] = {
    "workloads": ("append", "reshape"), "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "think_ms": 250, "absent": 0,
}
MUTANTS = (
    Mutant(
        "M11", "anybody alive may be elected", "V3 A.3.2, KIP-106", elects_uncleanly,
        (*SAFETY, "S15"), scenarios=("P-45",), explored=True,
    ),
    Mutant(
        "M14", "what an old controller decided is stored", "KAFKA-6082", writes_after_its_term,
        (*SAFETY, "S6", "S14", "S15"), {"only": ("unseat", "slow_store", "kill", "expire")}, scenarios=("P-61",),
        tests=("tests/unit/controller/test_seat.py::test_a_write_that_was_under_way_when_another_was_elected_is_rejected_as_a_whole",),
    ),
    Mutant(
        "S35", "a partition without a leader is initialised again", "V3 D.6", initialises_leaderless,
        (*SAFETY, "S15"), {"only": ("kill", "power", "wipe", "expire")}, scenarios=("P-45",),
    ),
    Mutant(
        "S36", "a partition removed and added again is the old one", "V3 H", forgets_creations,
        (*SAFETY, "S6", "asked"), {"only": ("kill", "isolate", "pause"), **RESHAPED}, scenarios=("P-80b",),
        tests=("tests/unit/controller/test_guards.py::test_a_proposal_names_the_partition_by_id_number_and_creation",),
    ),
    Mutant(
        "P-65", "a new controller tells only those that come", "V3 D", tells_nobody_again,
        ("L1", "L2", "L3", "L4"), scenarios=("P-65",),
    ),
    Mutant(
        "M22", "a topic made again under a name is the old one", "V3 discussion 5, KIP-516", names_topics_by_name,
        (*SAFETY, "asked"),
        {"only": ("kill", "isolate", "pause"), "workloads": ("append", "topics"), "brokers": 3, "replicas": 3, "min_isr": 2},
        scenarios=("P-80",),
    ),
)

EQUIVALENT = (
    Equivalent(
        Mutant(
            "M07b", "the controller writes states without comparing versions", "V3 discussion 3", writes_without_version,
            tests=(
                "tests/unit/controller/test_guards.py::"
                "test_a_state_that_somebody_else_changed_is_read_again_and_decided_again",
            ),
        ),
        "States are written by controllers alone. Of two controllers, each transaction of the older one fails at the guard (the version "
        "of the controller epoch) once the younger one has been elected, and the younger one reads every state after that; so no write "
        "of either falls between a read of the other and what it writes on that basis. Within one term one script runs at a time, and "
        "after an unknown outcome every state concerned is read again before anything is written, which by the contract of the store "
        "settles what became of the write. So the version a controller knows is always the stored one, unless a person writes with a "
        "tool of the store: that is what the test does. Guard and version together, without which an old controller is obeyed, are M14.",
    ),
)
