"""The engines that catch mutants: each says what it saw, or that it saw nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.simulation.mutants.entry import Mutant

from replog.testing.scenario.files import check_file
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.minimise import fails
from replog.testing.simulator.plan import Plan, draw

__all__ = ["breaks", "fails_test", "scenario_differs", "search"]

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = ROOT / "tests" / "scenarios"


def breaks(mutant: Mutant, plan: Plan) -> Violation | None:
    """What a run of this plan violates while the bug is on."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        return fails(plan)


def search(mutant: Mutant, seeds: Iterable[int]) -> tuple[int, Violation] | None:
    """The first seed whose run breaks one of the mutant's invariants, and nothing without the bug; None if none of them does."""
    return next(catches(mutant, seeds), None)


def catches(mutant: Mutant, seeds: Iterable[int]) -> Iterator[tuple[int, Violation]]:
    """All such seeds, and what each breaks."""
    for seed in seeds:
        plan = draw(seed, **mutant.directed)
        violation = breaks(mutant, plan)
        if violation is not None and violation.invariant in mutant.invariants and fails(plan) is None:
            yield seed, violation


def scenario_differs(mutant: Mutant, number: str) -> str:
    """How a scenario's transcript changes while the bug is on; empty if it does not."""
    (path,) = SCENARIOS.glob(f"{number}-*.txt")
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        try:
            return check_file(path)
        except Exception as problem:  # the play itself broke down, which nobody overlooks
            return f"{type(problem).__name__}: {problem}"


def fails_test(mutant: Mutant, node: str) -> bool:
    """Whether a test fails while the bug is on. It is collected first: what it imports must not be the patched functions."""
    assert _pytest("--collect-only", node) == pytest.ExitCode.OK, f"no such test: {node}"
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        return _pytest(node) == pytest.ExitCode.TESTS_FAILED


def _pytest(*arguments: str) -> int:
    """Run pytest inside this process, from the root of the project."""
    return pytest.main(["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *arguments])
