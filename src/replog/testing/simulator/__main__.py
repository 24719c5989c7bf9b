"""The command line of the simulator.

    python -m replog.testing.simulator SEED [--runs N]     run seeds; what fails is minimised and kept in a file
    python -m replog.testing.simulator --plan FILE         run the plan in a file ("-": standard input)
    python -m replog.testing.simulator soak --minutes N    run unused seeds and count them in the ledger
    python -m replog.testing.simulator double N            run N seeds twice and compare
    python -m replog.testing.simulator tally               what the ledger has counted
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs

from replog.errors import UsageError
from replog.testing.arguments import natural, positive
from replog.testing.simulator import corpus, tally
from replog.testing.simulator.directions import DIRECTIONS
from replog.testing.simulator.double import describe, double
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.minimise import RUNS_MAX
from replog.testing.simulator.plan import Plan, draw
from replog.testing.simulator.soak import explain, soak, violation_of

__all__ = ["main"]

LEDGER = Path("tests/simulation/ledger.jsonl")
CORPUS = Path("tests/simulation/corpus")
_say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if a run violated an invariant or two runs differ, and 2 if the command cannot be done."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = _COMMANDS.get(words[0]) if words else None
    try:
        return _run(words) if command is None else command(words[1:])
    except (OSError, ValueError, UsageError) as problem:
        print(problem, file=sys.stderr)
        return 2


def _run(words: list[str]) -> int:
    parser = _parser("", "Seeded runs of a whole cluster in virtual time. Other commands: soak, double, tally.")
    parser.add_argument("seed", type=int, nargs="?", help="the seed of the (first) run")
    parser.add_argument("--runs", type=positive, default=1, metavar="N", help="run N seeds, from SEED on")
    parser.add_argument("--events", type=natural, metavar="N", help="end the time of faults after N events")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the plan and the whole trace of each run")
    parser.add_argument("--plan", metavar="FILE", help='run the plan in a file, "-" for standard input, instead of a seed')
    small = "make a failing plan small (the rule for a seed, not for a file nor with --events)"
    parser.add_argument("--minimise", action=argparse.BooleanOptionalAction, help=small)
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where to write failure-SEED.json")
    parser.add_argument("--keep", metavar="STORY", help="add the plan of --plan to the corpus, with a sentence that says what was wrong")
    parser.add_argument("--corpus", type=Path, default=CORPUS, metavar="DIR", help=f"the corpus that --keep adds to ({CORPUS})")
    parser.add_argument("--json", action="store_true", help="print each outcome as one line of JSON and nothing else")
    given = parser.parse_args(words)
    if (given.seed is None) == (given.plan is None):
        parser.error("give either a seed or --plan")
    failure = None if given.plan is None else _failure(given.plan)
    if given.keep is not None:
        if failure is None:
            parser.error("--keep needs --plan")
        return _keep(failure, given.keep, given.corpus)
    if given.minimise is None:
        given.minimise = failure is None and given.events is None
    plans = _plans(given.seed, given.runs) if failure is None else iter([failure.plan])
    ran, broken = 0, 0
    for plan in plans:
        ran += 1
        broken += _run_one(plan, given)
    if ran > 1 and not given.json:
        print(f"{ran} runs, {broken} violated an invariant")
    return 1 if broken else 0


def _plans(seed: int, runs: int) -> Iterator[Plan]:
    return (draw(one) for one in range(seed, seed + runs))


def _run_one(plan: Plan, given: argparse.Namespace) -> bool:
    """Run a plan and tell about it; whether it violated something."""
    found = violation_of(plan, events_max=given.events, tail=1_000_000 if given.verbose else 40)
    violation = found if isinstance(found, Violation) else found.violation
    if given.json:
        print(json.dumps({"seed": plan.seed, "violation": str(found)} if isinstance(found, Violation) else describe(found)))
        return violation is not None
    if violation is not None or given.verbose:
        if given.verbose or not given.minimise:
            print(plan)
        print("the trace:" if given.verbose else "the end of the trace:")
        for line in () if isinstance(found, Violation) else found.tail:
            print(f"  {line}")
    if violation is not None:
        _tell(plan, violation, given)
    print(f"seed {plan.seed}: violated {violation}" if isinstance(found, Violation) else found.summary)
    return violation is not None


def _tell(plan: Plan, violation: Violation, given: argparse.Namespace) -> None:
    """Say how to look into a violation. What came from a file, or ended early, stays as it is."""
    print("\n".join([f"violated {violation}", *violation.origin]), flush=True)
    if given.minimise:
        print("\n".join(explain(plan, violation, given.out, runs_max=RUNS_MAX)))
    elif given.plan is not None:
        print(f"replay: {corpus.replay_command(given.plan)}")
    else:
        events = "" if given.events is None else f" --events {given.events}"
        print(f"replay: python -m replog.testing.simulator {plan.seed}{events}")


def _failure(file: str) -> corpus.Failure:
    return corpus.from_json(sys.stdin.read()) if file == "-" else corpus.load(Path(file))


def _keep(failure: corpus.Failure, story: str, folder: Path) -> int:
    """Add a failure to the corpus. A bare plan is run, to see what it violates."""
    invariant = failure.invariant
    if not invariant:
        found = violation_of(failure.plan)
        violation = found if isinstance(found, Violation) else found.violation
        invariant = "" if violation is None else violation.invariant
    print(f"kept: {corpus.add(attrs.evolve(failure, story=story, invariant=invariant), folder)}")
    return 0


def _soak(words: list[str]) -> int:
    parser = _parser("soak", "Run unused seeds for some minutes and count them in the ledger.")
    parser.add_argument("--minutes", type=minutes, required=True)
    parser.add_argument("--jobs", type=positive, default=2, help="processes (2)")
    parser.add_argument("--from", type=int, dest="first", metavar="SEED", help="begin there, not after the highest seed of the ledger")
    parser.add_argument("--direction", choices=sorted(DIRECTIONS), default="", help="only such faults: a series of its own")
    parser.add_argument("--ledger", type=Path, default=LEDGER, metavar="FILE", help=f"({LEDGER})")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where to write failure-SEED.json")
    given = parser.parse_args(words)
    before = signal.signal(signal.SIGTERM, _interrupt_once)
    try:
        broken = soak(
            given.minutes, jobs=given.jobs, first=given.first, ledger=given.ledger, out=given.out, direction=given.direction, say=_say
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    return 1 if broken else 0


def _interrupt_once(number: int, frame: object) -> None:
    """Whoever ends it so keeps what was run, too; `timeout` sends the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _double(words: list[str]) -> int:
    parser = _parser("double", "Run seeds twice under different PYTHONHASHSEED, and compare the runs and what they leave.")
    parser.add_argument("count", type=positive, help="how many seeds")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="SEED", help="the first of them (1)")
    given = parser.parse_args(words)
    different = 0
    for first in range(given.first, given.first + given.count, 50):
        for line in double(first, min(50, given.first + given.count - first)):
            different += 1
            _say(line)
    print(f"{given.count} seeds run twice, {different} differences")
    return 1 if different else 0


def _tally(words: list[str]) -> int:
    parser = _parser("tally", "What the ledger has counted for the present protocol code, against the bars, and for other code.")
    parser.add_argument("--ledger", type=Path, default=LEDGER, metavar="FILE", help=f"({LEDGER})")
    parser.add_argument("--fold", action="store_true", help="first join lines about consecutive seeds")
    parser.add_argument(
        "--corpus", type=Path, default=CORPUS, metavar="DIR", help=f"says which findings were wrong checks ({CORPUS})"
    )
    given = parser.parse_args(words)
    if not given.ledger.exists():
        raise FileNotFoundError(f"there is no ledger {given.ledger}")
    if given.fold:
        print(f"{tally.fold(given.ledger)} lines remain")
    batches, wrong_checks = tally.read(given.ledger), corpus.wrong_checks(given.corpus)
    print("\n".join(tally.totals(batches, tally.code_version(), wrong_checks=wrong_checks)))
    return 0


def minutes(text: str) -> float:
    """A time of 0 or more, and an end of it."""
    asked = float(text)
    if not 0 <= asked < math.inf:
        raise ValueError(f"{text} minutes")
    return asked


def _parser(command: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"python -m replog.testing.simulator {command}".rstrip(), description=about)


_COMMANDS = {"soak": _soak, "double": _double, "tally": _tally}


if __name__ == "__main__":
    sys.exit(main())
