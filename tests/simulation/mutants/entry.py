"""What a mutant is: a bug with its number, and by which engines it is caught."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import field, frozen

__all__ = ["Equivalent", "Mutant", "Patch", "Pending"]

Patch = pytest.MonkeyPatch


@frozen
class Mutant:
    """A bug that can be switched on. It is caught by every engine for which it names something."""

    number: str
    """M.. of the catalogue of seeded bugs, P-.. of a scenario, S.. of the audit; X.. is one of our own."""
    title: str
    source: str
    """Where the bug comes from: a KIP, a ticket, a paper."""
    patch: Callable[[Patch], None]
    """Switches it on, as long as the MonkeyPatch lasts."""
    invariants: tuple[str, ...] = ()
    """Simulator: those that may speak first in a run of `draw(seed, **directed)`. Empty: not an engine for this one."""
    directed: Mapping[str, Any] = field(factory=dict)
    """Arguments of `draw` that bring about what the bug needs; empty: plans as they come."""
    scenarios: tuple[str, ...] = ()
    """Scenario files, as in "P-01", whose transcript changes."""
    tests: tuple[str, ...] = ()
    """Tests that fail, as "tests/unit/log/test_log.py::test_x"."""

    explored: bool = False
    """Exhaustive search of the real code finds it, in `tests/simulation/test_exploration.py`."""

    @property
    def name(self) -> str:
        """Of the patch, and of the stored plan."""
        return self.patch.__name__

    @property
    def engines(self) -> tuple[str, ...]:
        """Who catches it."""
        states = any("/crash_states/" in node for node in self.tests)
        units = any("/crash_states/" not in node for node in self.tests)
        names = ("simulator", "exploration", "crash states", "scenario", "unit")
        evidence = (self.invariants, self.explored, states, self.scenarios, units)
        return tuple(name for name, seen in zip(names, evidence, strict=True) if seen)


@frozen
class Pending:
    """A bug of something that does not exist yet."""

    number: str
    title: str
    feature: str
    """What it waits for."""


@frozen
class Equivalent:
    """A bug that changes nothing that can be seen from outside, because a second defence stands behind the first."""

    mutant: Mutant
    """Caught by a check of the one step; never by what happens."""
    proof: str
