"""The engines that catch mutants: each says what it saw, or that it saw nothing.

A patch that has the signature or the names of earlier code breaks down wherever it is called. That is none of the known bugs, and no
catch: the exceptions that tell of it are raised on. In the simulator they make a "crash", which no mutant is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.simulation.mutants.entry import Mutant

from replog.testing.scenario.files import check_file
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.minimise import fails
from replog.testing.simulator.plan import Plan, draw

__all__ = ["breaks", "catches", "fails_test", "misfit", "scenario_differs", "search"]

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = ROOT / "tests" / "scenarios"
MISFITS = (TypeError, AttributeError, NameError)
"""What is raised where a patch no longer fits the code."""


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
    """How a scenario's transcript changes while the bug is on; empty if it does not. Raises what a patch raises that does not fit."""
    (path,) = SCENARIOS.glob(f"{number}-*.txt")
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        try:
            return check_file(path)
        except Exception as problem:  # the play itself broke down, which nobody overlooks
            if misfit(problem) is not None:
                raise
            return f"{type(problem).__name__}: {problem}"


def fails_test(mutant: Mutant, node: str) -> bool:
    """Whether a test fails while the bug is on. What would only be heard of as garbage is collected is no failure here.

    Raises what a patch raises that does not fit.
    """
    with pytest.MonkeyPatch.context() as patch:
        bug = _Bug(mutant, patch)
        code = _pytest(node, plugins=[bug])
    if bug.unfit is not None:
        raise bug.unfit
    assert code in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}, f"no such test: {node}"
    for problem in bug.raised:
        if misfit(problem) is not None:
            raise problem
    return code == pytest.ExitCode.TESTS_FAILED


def misfit(problem: BaseException) -> BaseException | None:
    """The exception that tells of a patch which does not fit: this one, or one that it was raised for; None if there is none."""
    waiting: list[BaseException | None] = [problem]
    seen: list[int] = []
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, MISFITS):
            return one
        seen.append(id(one))
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return None


class _Bug:
    """A plugin of pytest that puts a bug on and keeps what tests and their fixtures have raised."""

    def __init__(self, mutant: Mutant, patch: pytest.MonkeyPatch) -> None:
        self.mutant, self.patch = mutant, patch
        self.unfit: Exception | None = None
        """What the patch raised where it was put on."""
        self.raised: list[BaseException] = []

    def pytest_collection_finish(self) -> None:
        """Called when all is collected: not before, because what a test imports must not be the patched functions."""
        try:
            self.mutant.patch(self.patch)
        except Exception as problem:
            self.unfit = problem
            raise

    def pytest_exception_interact(self, call: pytest.CallInfo[object]) -> None:
        """Called for each failure."""
        if call.excinfo is not None:
            self.raised.append(call.excinfo.value)


def _pytest(*arguments: str, plugins: Sequence[object] = ()) -> int:
    """Run pytest inside this process, from the root of the project."""
    leave = [word for plugin in ("cacheprovider", "unraisableexception") for word in ("-p", f"no:{plugin}")]  # the latter collects garbage
    fixed = ["-q", "--no-header", "--tb=no", *leave, f"--rootdir={ROOT}"]
    return pytest.main([*fixed, *arguments], plugins=plugins)
