"""Fuzzing beyond `make test`, from the root of a clone:

    python -m tests.fuzz count frame --million 10     mutants by the million; what was counted goes into tests/fuzz/ledger.jsonl
    python -m tests.fuzz count all --million 1        of every target
    python -m tests.fuzz tally                        what the ledger holds for the code as it is
    python -m tests.fuzz atheris --minutes 10         guided by coverage, all targets in turn (`make fuzz MINUTES=10`)
    python -m tests.fuzz one frame FILE               one input, as a finding is looked at
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz import counting
from tests.fuzz.targets import TARGETS

ROUND = 250_000
"""Mutants between two lines of the ledger."""


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    long = commands.add_parser("count")
    long.add_argument("target", choices=["all", *TARGETS])
    long.add_argument("--million", type=float, default=1.0)
    covered = commands.add_parser("atheris")
    covered.add_argument("--minutes", type=float, default=10.0)
    covered.add_argument("--target", choices=list(TARGETS), action="append")
    covered.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "replog-fuzz")
    single = commands.add_parser("one")
    single.add_argument("target", choices=list(TARGETS))
    single.add_argument("file", type=Path)
    commands.add_parser("tally")
    asked = parser.parse_args()
    if asked.command == "count":
        return _count(list(TARGETS) if asked.target == "all" else [asked.target], int(asked.million * 1_000_000))
    if asked.command == "tally":
        return _tally()
    if asked.command == "one":
        TARGETS[asked.target].run(asked.file.read_bytes())
        return 0
    from tests.fuzz import guided  # only this needs atheris

    return guided.run(asked.target or list(TARGETS), asked.minutes, asked.cache)


def _count(names: list[str], executions: int) -> int:
    for name in names:
        left = executions
        while left > 0:
            try:
                one = counting.count(name, min(left, ROUND), seed=counting.next_seed())
            except counting.Finding as found:
                print(found, flush=True)
                return 1
            counting.append(one)
            left -= one.executions
            grown = one.memory_bytes / (1 << 20)
            print(f"{name}: {one.executions:,} at {one.per_second:,.0f} a second, grown by {grown:.1f} MiB", flush=True)
    return _tally()


def _tally() -> int:
    sums = counting.tally()
    for name in TARGETS:
        found = sums.get(name, {"executions": 0, "cpu_ms": 0})
        print(f"{name:<12}{found['executions']:>14,} executions  {found['executions'] * 1_000 / max(found['cpu_ms'], 1):>10,.0f} a second")
    print(f"{'in all':<12}{sum(found['executions'] for found in sums.values()):>14,} executions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
