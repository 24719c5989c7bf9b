"""Every mutant is caught: by its stored plan, by scenarios, by tests; and the commonest bugs by fresh random search.

What is stored was found once by `python -m tests.simulation.mutants --regenerate NAME`. A change of the code makes another run of
each plan, so a plan may catch its mutant no longer; then it is searched for, which takes longer, until the same command has
found it anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.simulation.mutants.catalogue import EQUIVALENT, MUTANTS, PENDING, by_name
from tests.simulation.mutants.engines import breaks, fails_test, misfit, scenario_differs, search
from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.measure import Measured, measure
from tests.simulation.mutants.measured import COMMON, MEASURED, read_measured, write_measured, wrong_with
from tests.simulation.mutants.plans import find, path_of, replay, stored
from tests.simulation.test_exploration import CASES

from replog.partition.partition import Partition
from replog.testing.simulator.running import run
from replog.testing.simulator.versions import code_version

pytestmark = pytest.mark.simulation

SIMULATED = [mutant for mutant in MUTANTS if mutant.invariants and (path_of(mutant).exists() or not mutant.explored)]
"""Those with a stored plan. A rare one that exhaustive search finds may do without."""
SCENARIOS = [(mutant, number) for mutant in MUTANTS for number in mutant.scenarios]
TESTS = [(mutant, node) for mutant in (*MUTANTS, *(one.mutant for one in EQUIVALENT)) for node in mutant.tests]
STARRED = (
    1, 2, 3, 4, 6, 8, 10, 20, 21, 22, 23, 24, 25, 27, 28, 35, 38, 40, 43, 44, 51, 60, 61, 62, 65, 68, 80, 83, 100, 101, 103,
)
"""Scenarios whose guard, taken away, must make them fail."""
FAULTS_MAX = 5


def name_of(mutant: Mutant) -> str:
    return mutant.name


@pytest.mark.parametrize("mutant", SIMULATED, ids=name_of)
def test_it_is_caught_and_nothing_else_is(mutant: Mutant) -> None:
    """By its stored plan; or, if the code has moved on since that was stored, by a search."""
    found = replay(mutant, stored(mutant).plan) or search(mutant, range(1, 61))
    assert found is not None, f"python -m tests.simulation.mutants --regenerate {mutant.name}: it is caught by nothing"


@pytest.mark.parametrize(("number", "cap"), [("M01", 60), ("M02", 10), ("M03", 60), ("M10", 10)])
def test_fresh_search_catches_it(number: str, cap: int) -> None:
    found = search(by_name(number), range(1, cap + 1))
    assert found is not None, f"{number} is not noticed in {cap} seeds"


@pytest.mark.parametrize(("mutant", "number"), SCENARIOS, ids=lambda value: value.name if isinstance(value, Mutant) else value)
def test_its_scenario_changes(mutant: Mutant, number: str) -> None:
    assert scenario_differs(mutant, number), f"{number} does not notice {mutant.name}"


@pytest.mark.parametrize(("mutant", "node"), TESTS, ids=lambda value: value.name if isinstance(value, Mutant) else "")
def test_its_test_fails(mutant: Mutant, node: str) -> None:
    assert fails_test(mutant, node), f"{node} does not notice {mutant.name}"


def test_a_scenario_is_seen_not_to_change() -> None:
    """The engine itself: a bug that touches nothing of a play leaves its transcript as it is."""
    assert scenario_differs(by_name("M28a"), "P-01") == ""
    assert not fails_test(by_name("M28a"), "tests/simulation/mutants/test_steps.py::test_a_failed_flush_is_not_repeated")


def has_another_signature(patch: Patch) -> None:
    """As if `append` had got arguments since the patch was written."""
    patch.setattr(Partition, "append", lambda self: None)


def uses_another_name(patch: Patch) -> None:
    """As if something that `append` uses had been renamed since the patch was written."""

    def mutant(self: Any, *_: object) -> Any:
        return self.no_such_name

    patch.setattr(Partition, "append", mutant)


@pytest.mark.parametrize(("fitted", "raised"), [(has_another_signature, TypeError), (uses_another_name, AttributeError)])
def test_a_patch_that_does_not_fit_is_no_catch(fitted: Any, raised: type[Exception]) -> None:
    """The play, the test and the run break down all the same: nobody could tell it from a bug that is seen."""
    unfit = evolve(by_name("M10"), number="M00", patch=fitted)
    with pytest.raises(raised):
        scenario_differs(unfit, "P-01")
    with pytest.raises(raised):
        fails_test(unfit, "tests/simulation/mutants/test_steps.py::test_other_records_under_a_used_sequence_are_refused")
    violation = breaks(unfit, stored(by_name("M10")).plan)
    assert violation is not None
    assert (violation.invariant, type(misfit(violation))) == ("crash", raised)
    assert search(unfit, range(1, 4)) is None


def test_an_exception_that_stands_for_one_of_a_patch_is_known() -> None:
    def raised(outer: Exception, inner: Exception) -> BaseException | None:
        try:
            try:
                raise inner
            finally:
                raise outer
        except Exception as problem:
            return misfit(problem)

    assert isinstance(raised(ValueError(), NameError()), NameError)
    assert isinstance(raised(ExceptionGroup("two", [KeyError(), ValueError(), AttributeError()]), KeyError()), AttributeError)
    assert raised(ValueError(), KeyError()) is None


def test_no_mutant_is_allowed_to_crash() -> None:
    """A patch that does not fit would pass as caught."""
    assert [one.number for one in MUTANTS if any(name == "crash" or name.startswith("raised") for name in one.invariants)] == []


def test_every_bug_of_the_catalogue_is_there() -> None:
    numbers = {re.sub(r"[a-z]$", "", one.number) for one in (*MUTANTS, *PENDING)}
    assert {f"M{n:02}" for n in range(1, 31)} <= numbers
    assert {"S35", "S36"} <= numbers
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)
    assert len({one.number for one in MUTANTS}) == len(MUTANTS)


def test_every_bug_is_caught_by_something() -> None:
    assert [one.number for one in MUTANTS if not one.engines] == []
    kept = {path.stem for path in path_of(MUTANTS[0]).parent.glob("*.json")}
    assert kept == {one.name for one in SIMULATED}


def test_what_exploration_finds_is_tested_there() -> None:
    tested = {case[0].__name__ for case in CASES}
    found = [one.name for one in MUTANTS if one.explored]
    assert len(found) >= 15
    assert [name for name in found if name not in tested] == []


def test_every_starred_scenario_has_a_mutant_that_it_notices() -> None:
    seen = {number.rstrip("b") for _, number in SCENARIOS} | {one.number for one in PENDING}
    seen |= {one.source for one in MUTANTS if one.tests}  # P-51 is told where files are tested
    assert [f"P-{n:02}" for n in STARRED if f"P-{n:02}" not in seen] == []


def test_stored_plans_are_small() -> None:
    large = {one.name: len(stored(one).plan.faults) for one in SIMULATED if len(stored(one).plan.faults) > FAULTS_MAX}
    assert large == {}


def test_every_bug_of_the_catalogue_has_a_plan_or_is_searched_for_in_every_order() -> None:
    """What only a told situation shows is listed here; the rest is found without being told."""
    single = (*range(61, 69), 71, *range(74, 80), 81, 83, 99, *range(118, 121), 122, *range(124, 128))
    told = {"M28a", "P-93", "X12", "X20", *(f"X{n}" for n in single)}
    assert {one.number for one in MUTANTS if not one.explored and not path_of(one).exists()} == told


def test_proofs_are_written() -> None:
    assert [one.mutant.number for one in EQUIVALENT if len(one.proof) < 200 or not one.mutant.tests] == []


def test_searches_are_counted_and_a_plan_is_found() -> None:
    """What the command does, on the easiest of all."""
    measured = measure(by_name("M10"), starts=3, cap=20)
    assert measured.median is not None
    assert 1 <= measured.median <= 20
    assert [name for name, _ in measured.invariants] == ["S13"]
    assert measure(by_name("M28a"), starts=1, cap=0).median is None
    found = find(by_name("M10"), range(1, 20), runs_max=10, tries=1)
    assert found is not None
    assert len(found.plan.faults) < found.faults_before
    assert replay(by_name("M10"), found.plan, variants=1) is not None


def measured_of(mutant: Mutant, *schedules: int | None) -> tuple[Measured, list[str]]:
    return Measured(mutant, schedules, (("S1", len(schedules)),), cap=9_000), ["P-01"]


def test_a_measurement_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    fine = [measured_of(one, 1, 200, 5_000) if one.invariants else measured_of(one) for one in MUTANTS]
    write_measured(path, fine)
    assert wrong_with(read_measured(path)) == []
    write_measured(path, [measured_of(by_name("M01"), 1, 201, 300), measured_of(by_name("M05"), 5_001, 1, 1)])
    write_measured(path, [measured_of(by_name("M08"), 1, None, 1), measured_of(by_name("S36"), 3)])
    assert wrong_with(read_measured(path)) == [
        "M01 took 201 schedules in the median, more than 200",
        "M05 took 5001 schedules, more than 5000",
        "M08 was not caught in 9000 schedules",
        "S36 was searched for 1 times, not 3",
    ]
    rows = read_measured(path)
    del rows["M30"], rows["X12"]  # X12 is not searched for
    assert wrong_with(rows)[3] == "M30 was not measured"
    assert COMMON == ("M01", "M02", "M03", "M04", "M06", "M07", "M10", "M11", "M12", "M13")


def test_random_search_catches_every_bug_soon_enough() -> None:
    """As it was measured; what that asks of the machine is hours."""
    assert wrong_with(read_measured(MEASURED)) == []


def test_a_measurement_keeps_what_was_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    write_measured(path, [measured_of(by_name("M10"), 1, 2, 3)])
    write_measured(path, [measured_of(by_name("M02"), 4, None, 6), measured_of(by_name("X12"))])
    rows = read_measured(path)
    assert [*rows] == ["M02", "M10", "X12"]
    row = rows["M02"]
    assert (row["name"], row["engine"], row["also"]) == ("acknowledges_at_append", "simulator", ["P-01"])
    assert (row["schedules"], row["cap"], row["code"]) == ([4, None, 6], 9_000, code_version())
    assert "schedules" not in rows["X12"]
    assert [path.name for path in tmp_path.iterdir()] == ["measured.json"]
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="does not hold rows"):
        write_measured(path, [])
    assert path.read_text(encoding="utf-8") == "[]"


def test_patches_are_taken_back() -> None:
    """A run after a mutant is as one before it."""
    plan = stored(by_name("M10")).plan
    before = run(plan.seed, plan=plan).trace_hash
    first, second = breaks(by_name("M10"), plan), breaks(by_name("M10"), plan)
    assert str(first) == str(second) != "None"
    assert run(plan.seed, plan=plan).trace_hash == before
