"""The command line of the abstract model: search a world to its end, or show what is wrong with rules that are broken."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from time import perf_counter

from attrs import evolve

from replog.testing.arguments import positive
from replog.testing.exploration.model import Model
from replog.testing.exploration.rules import BROKEN, SOUND, Bounds, Rules, RuleSet

__all__ = ["prepare"]

Say = Callable[[str], None]


def prepare(arguments: Sequence[str], say: Say) -> Callable[[], int]:
    """The search that is asked for, to be called: 1 if sound rules are broken, or broken ones are not found out.

    UsageError if it is of a world that is too large, or of none.
    """
    parser = argparse.ArgumentParser(
        prog="python -m replog.testing.exploration model", description="Every state that the published rules allow, nearest first."
    )
    parser.add_argument("--replicas", type=int, default=None, metavar="N", help="default 3")
    parser.add_argument("--records", type=int, default=None, metavar="N", help="so many are ever written (default 2)")
    parser.add_argument("--epochs", type=int, default=None, metavar="N", help="leader epochs (default 4)")
    parser.add_argument("--restarts", type=int, default=0, metavar="N", help="restarts that may lose the end of a log")
    parser.add_argument("--proposals", action="store_true", help="ISR changes are sent, stored and answered in steps of their own")
    parser.add_argument("--positions", action="store_true", help="leaders know followers by their fetches only")
    parser.add_argument("--rules", choices=sorted(SOUND), default="as-implemented")
    parser.add_argument("--states", type=positive, default=None, metavar="N", help="stop after the level that reaches N states")
    parser.add_argument("--no-symmetry", action="store_true", help="count states that differ by names alone")
    parser.add_argument("--broken", nargs="?", const="all", choices=["all", *BROKEN], help="broken rules, each in a small world")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each level and each trace")
    given = parser.parse_args(arguments)
    sizes = {name: size for name in ("replicas", "records", "epochs") if (size := getattr(given, name)) is not None}
    if given.broken is not None:
        chosen = BROKEN if given.broken == "all" else {given.broken: BROKEN[given.broken]}
        verbose = given.verbose or len(chosen) == 1
        broken = {name: evolve(rules, bounds=evolve(rules.bounds, **sizes)) for name, rules in chosen.items()}
        return lambda: max([_break(name, rules, say, verbose) for name, rules in broken.items()])
    bounds = Bounds(**sizes, restarts=given.restarts, proposals=given.proposals, positions=given.positions)
    rules, symmetry = SOUND[given.rules], not given.no_symmetry
    return lambda: _search(bounds, rules, say, states_max=given.states, symmetry=symmetry, verbose=given.verbose)


def _search(bounds: Bounds, rules: Rules, say: Say, *, states_max: int | None, symmetry: bool, verbose: bool) -> int:
    say(f"{bounds}{'' if symmetry else ', without symmetry'}")

    def progress(depth: int, states: int, level: int) -> None:
        say(f"  depth {depth:3}: {level:9,} states, {states:10,} in all, {perf_counter() - start:6.1f} s")

    start = perf_counter()
    result = Model(bounds, rules).explore(symmetry=symmetry, states_max=states_max, progress=progress if verbose else None)
    seconds = perf_counter() - start
    end = "all of them" if result.exhausted else "not all"
    say(f"{result.states:,} {'canonical ' if symmetry else ''}states ({end}), {result.transitions:,} transitions, depth {result.depth}")
    say(f"{1 if result.violation else 0} violations, {seconds:.1f} s, {result.states / max(seconds, 1e-9):,.0f} states/s")
    if result.violation is not None:
        say(str(result.violation))
    return 1 if result.violation is not None else 0


def _break(name: str, broken: RuleSet, say: Say, verbose: bool) -> int:
    start = perf_counter()
    result = Model(broken.bounds, broken.rules).explore(losses_only=True)
    seconds = perf_counter() - start
    found = f"records lost at depth {result.depth}" if result.violation else "NOTHING FOUND"
    say(f"{name} ({broken.source}): {found}, {result.states:,} states, {seconds:.1f} s; {broken.bounds}")
    if verbose and result.violation is not None:
        say(str(result.violation))
    return 0 if result.violation is not None else 1
