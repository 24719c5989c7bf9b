"""Fuzzing beyond `make test`, from the root of a clone:

    python -m tests.fuzz count rest --jobs 2          what the ledger lacks of the mutants that are wanted of each target's code
    python -m tests.fuzz count frame --million 10     mutants of one target; what was counted goes into tests/fuzz/ledger.jsonl
    python -m tests.fuzz count all --million 1        of every target
    python -m tests.fuzz tally                        what the ledger holds for the code as it is
    python -m tests.fuzz atheris --minutes 10         guided by coverage, all targets in turn (`make fuzz MINUTES=10`)
    python -m tests.fuzz one frame FILE               one input, as a finding is looked at
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from tests.fuzz import counting
from tests.fuzz.targets import TARGETS

ROUND_CPU_S = 20
"""About so much is between two lines of the ledger."""
ROUND_MAX = 250_000
ROUND_MIN = 5_000


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    long = commands.add_parser("count")
    long.add_argument("target", choices=["all", "rest", *TARGETS])
    long.add_argument("--million", type=float, default=1.0)
    long.add_argument("--jobs", type=int, default=1)
    covered = commands.add_parser("atheris")
    covered.add_argument("--minutes", type=float, default=10.0)
    covered.add_argument("--jobs", type=int, default=1)
    covered.add_argument("--target", choices=list(TARGETS), action="append")
    covered.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "replog-fuzz")
    single = commands.add_parser("one")
    single.add_argument("target", choices=list(TARGETS))
    single.add_argument("file", type=Path)
    commands.add_parser("tally")
    asked = parser.parse_args()
    if asked.command == "count":
        wanted = dict.fromkeys(TARGETS if asked.target == "all" else [asked.target], int(asked.million * 1_000_000))
        return _count(rest() if asked.target == "rest" else wanted, asked.jobs)
    if asked.command == "tally":
        return _tally()
    if asked.command == "one":
        TARGETS[asked.target].run(asked.file.read_bytes())
        return 0
    from tests.fuzz import guided

    return guided.run(asked.target or list(TARGETS), asked.minutes, asked.cache, jobs=asked.jobs)


def rest(ledger: Path = counting.LEDGER) -> dict[str, int]:
    """Target -> mutants that are wanted of its code, and were not counted yet."""
    known = counting.tally(ledger)
    lacking = {name: int(target.million * 1_000_000) - known[name].executions for name, target in TARGETS.items()}
    return {name: count for name, count in lacking.items() if count > 0}


def rounds(wanted: Mapping[str, int], ledger: Path = counting.LEDGER) -> Iterator[tuple[str, int]]:
    """(target, mutants) of each line that the ledger is to get: a slow target's lines have fewer."""
    known = counting.rates(ledger)
    for name, left in wanted.items():
        size = max(ROUND_MIN, min(ROUND_MAX, int(known.get(name, 0.0) * ROUND_CPU_S)))
        yield from ((name, min(size, left - at)) for at in range(0, left, size))


def _count(wanted: Mapping[str, int], jobs: int) -> int:
    seeds = enumerate(rounds(wanted), counting.next_seed())
    findings: list[str] = []
    mistake: Exception | None = None
    # Each round in a process of its own: what one has grown by is not what the next one begins with.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1)
    try:
        running = {pool.submit(counting.count, name, executions, seed=seed): name for seed, (name, executions) in seeds}
        for done in as_completed(running):
            if done.cancelled():
                continue
            try:
                one = done.result()
            except counting.Finding as found:
                findings.append(str(found))
                print(found, flush=True)
                for other, name in running.items():
                    if name == running[done]:
                        other.cancel()  # it would find that again
                continue
            except Exception as problem:  # in how mutants are made: told now, and not after hours of other rounds
                if mistake is None:
                    mistake = problem
                    for other in running:
                        other.cancel()
                    print(f"{running[done]}: {problem!r}; this ends with the rounds under way", flush=True)
                continue
            counting.append(one)
            grown = one.memory_bytes / (1 << 20)
            print(f"{one.target}: {one.executions:,} at {one.per_second:,.0f} a second, grown by {grown:.1f} MiB", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    if mistake is not None:
        raise mistake
    _tally()
    return 1 if findings else 0


def _tally() -> int:
    sums = counting.tally()
    print(f"{'':<12}{'mutants':>14}{'of wanted':>14}{'a second':>11}{'guided':>14}{'minutes':>9}{'of other code':>16}{'in all':>16}")
    for name, one in sums.items():
        wanted = int(TARGETS[name].million * 1_000_000) if name in TARGETS else 0
        rate, minutes = one.executions * 1_000 / max(one.cpu_ms, 1), one.guided_ms / 60_000
        print(
            f"{name:<12}{one.executions:>14,}{wanted:>14,}{rate:>11,.0f}{one.guided:>14,}{minutes:>9,.1f}{one.of_other_code:>16,}{one.total:>16,}"
        )
    executions, total = sum(one.executions for one in sums.values()), sum(one.total for one in sums.values())
    print(f"{'in all':<12}{executions:>14,}{'':>64}{total:>16,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
