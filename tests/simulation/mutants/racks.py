"""Bugs that only show where brokers stand in racks: where new copies go, and what those copies tell who reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.simulation.mutants.entry import Mutant, Patch

from replog.controller import drafts, partitions
from replog.partition.partition import Partition

__all__ = ["MUTANTS"]


def forgets_racks(patch: Patch) -> None:
    """New partitions go round robin over the brokers, wherever these stand."""
    spread = drafts.spread

    def mutant(brokers: Mapping[int, str | None], *args: Any, **given: Any) -> Any:
        return spread(dict.fromkeys(brokers), *args, **given)

    patch.setattr(drafts, "spread", mutant)
    patch.setattr(partitions, "spread", mutant)


def shows_all_that_a_copy_has(patch: Patch) -> None:
    """A reader of a copy that does not lead is given all of its log, committed or not."""
    read_committed = Partition.read_committed

    def mutant(self: Partition, offset: int, max_bytes: int) -> Any:
        slices, limit = read_committed(self, offset, max_bytes)
        if self.following is not None and offset < self.log.end_offset:
            slices = self.log.read(offset, self.log.end_offset, max_bytes)
        return slices, limit

    patch.setattr(Partition, "read_committed", mutant)


_RACKS: dict[str, Any] = {"brokers": 4, "replicas": 2, "min_isr": 1, "racks": ("a", "a", "b", "b"), "workloads": ("append", "topics")}
_NEAR: dict[str, Any] = {"racks": ("a", "b", "c"), "workloads": ("append", "burst", "follow")}

MUTANTS = (
    Mutant("X105", "new partitions are put anywhere, whatever the racks", "KIP-36", forgets_racks, ("racks",), _RACKS),
    Mutant("X106", "a copy shows readers what is not committed", "KIP-392", shows_all_that_a_copy_has, ("S13",), _NEAR),
)
