"""`python -m tests.simulation.mutants`: measures how soon each mutant is caught, and finds the plans that the tests replay.

    python -m tests.simulation.mutants                         the table, of all mutants
    python -m tests.simulation.mutants M01 drops_pending       of these
    python -m tests.simulation.mutants --regenerate all        find, minimise and store a plan for each
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.simulation.mutants.catalogue import EQUIVALENT, MUTANTS, PENDING, by_name
from tests.simulation.mutants.measure import Measured, row
from tests.simulation.mutants.measured import write_measured
from tests.simulation.mutants.plans import path_of, regenerate, stored

from replog.testing.arguments import positive

Result = TypeVar("Result")


def shown(measured: Measured, evidence: list[str], cap: int) -> str:
    """One line of the table."""
    mutant, middle = measured.mutant, measured.median
    if not mutant.invariants:
        caught = "-"
    else:
        taken = " ".join("-" if one is None else str(one) for one in measured.schedules)
        caught = f"{f'> {cap}' if middle is None else f'{middle:g}'} ({taken})"
    spoke = " ".join(f"{name}x{count}" for name, count in measured.invariants)
    plan = len(stored(mutant).plan.faults) if mutant.invariants and path_of(mutant).exists() else "-"
    return f"{mutant.number:<6}{mutant.name:<32}{caught:<34}{spoke:<18}{plan!s:<7}{', '.join(evidence)}"


def work(jobs: int, what: Callable[[str], Result], names: list[str], tell: Callable[[Result], None]) -> None:
    """Do something for each name, in so many processes at a low priority; results as they come, so that none waits for a long search."""
    if jobs == 1:
        for name in names:
            tell(what(name))
        return
    with multiprocessing.get_context("spawn").Pool(jobs, os.nice, (10,)) as pool:
        for result in pool.imap_unordered(what, names):
            tell(result)


def main(arguments: list[str]) -> int:
    """The command. Its exit status is 1 if a mutant is caught by nothing, 2 if there is no such mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="numbers or names of mutants; all if none is given")
    parser.add_argument("--regenerate", nargs="+", metavar="NAME", help="find, minimise and store plans: of these, or of all")
    parser.add_argument("--starts", type=positive, default=5, help="searches per mutant (default 5)")
    parser.add_argument("--cap", type=positive, default=300, help="schedules per search at most (default 300)")
    parser.add_argument("--runs", type=positive, default=400, help="runs of the minimiser per plan at most (default 400)")
    parser.add_argument("--jobs", type=positive, default=2, help="processes (default 2)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also put each row into this file")
    given = parser.parse_args(arguments)
    every = given.regenerate == ["all"]
    try:
        names = [by_name(name).name for name in ([] if every else given.regenerate or given.names)]
    except KeyError as unknown:
        print(f"no mutant has the name or number {unknown.args[0]!r}; they are in tests/simulation/mutants/catalogue.py", file=sys.stderr)
        return 2
    if given.regenerate:
        names = [one.name for one in MUTANTS if one.invariants] if every else names
        work(given.jobs, partial(regenerate, cap=given.cap, runs_max=given.runs), names, lambda line: print(line, flush=True))
        return 0
    names = names or [one.name for one in MUTANTS]
    print(f"{'':<6}{'bug':<32}{'schedules: median (each search)':<34}{'invariants':<18}{'faults':<7}also seen by")
    unseen: list[str] = []

    def tell(result: tuple[Measured, list[str]]) -> None:
        measured, evidence = result
        if measured.median is None and not evidence:
            unseen.append(measured.mutant.number)
        print(shown(measured, evidence, given.cap), flush=True)
        if given.write is not None:
            write_measured(given.write, [result])

    work(given.jobs, partial(row, starts=given.starts, cap=given.cap), names, tell)
    if not given.names:
        for equivalent in EQUIVALENT:
            print(f"{equivalent.mutant.number:<6}{equivalent.mutant.name:<32}changes nothing; a test of the one step sees it")
        for pending in PENDING:
            print(f"{pending.number:<6}{'(pending)':<32}waits for {pending.feature}: {pending.title}")
    print(f"not caught: {', '.join(unseen) or 'none'}")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
