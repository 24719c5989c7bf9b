"""Bugs of topics that are made because somebody seeks them."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from tests.simulation.mutants.entry import Mutant, Patch

from replog.broker.missing import MissingTopics
from replog.controller import admin
from replog.errors import Code

__all__ = ["MUTANTS"]


def makes_topics_beyond_the_limit(patch: Patch) -> None:
    """A controller makes every topic that is sought, however many there are."""
    create = admin.VERBS["create_missing_topic"]

    def mutant(controller: Any, event: Any) -> Any:
        config = controller.config
        controller.config = evolve(config, auto_create_topics_max=10_000)
        try:
            return create(controller, event)
        finally:
            controller.config = config

    patch.setitem(admin.VERBS, "create_missing_topic", mutant)


def refuses_what_is_on_its_way(patch: Patch) -> None:
    """Whoever seeks a topic while it is being made is told that there is none."""
    verdict = MissingTopics._verdict

    def mutant(self: MissingTopics, name: str, commands: Any, now_ms: int) -> Any:
        if name in self._asked:
            return name, Code.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic"
        return verdict(self, name, commands, now_ms)

    patch.setattr(MissingTopics, "_verdict", mutant)


_SEEK: dict[str, Any] = {"workloads": ("append", "seek"), "auto_create_topics_max": 10_000, "flush": "os", "racks": ()}
_FEW = {**_SEEK, "auto_create_topics_max": 2}

MUTANTS = (
    Mutant("X107", "topics that are sought are made beyond the limit", "own", makes_topics_beyond_the_limit, ("asked",), _FEW),
    Mutant("X108", "a topic that is on its way is refused", "own", refuses_what_is_on_its_way, ("sought",), _SEEK),
)
