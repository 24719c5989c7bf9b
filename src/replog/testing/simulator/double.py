"""Run the same seeds twice, in processes whose hashes of strings differ, and compare: a run depends on nothing but its plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Final

from replog.testing.simulator.plan_check import check_least
from replog.testing.simulator.running import Outcome

__all__ = ["compare", "describe", "double"]

HASH_SEEDS: Final = ("1", "2")


def describe(outcome: Outcome) -> dict[str, Any]:
    """All that a run decides, as plain values. Equal runs have equal descriptions on every machine."""
    return {
        "seed": outcome.plan.seed,
        "trace": outcome.trace_hash,
        "state": getattr(outcome, "state_hash", ""),
        "events": outcome.events,
        "time_ms": outcome.time_ms,
        "acknowledged": outcome.acknowledged,
        "busiest": outcome.busiest,
        "befallen": outcome.befallen,
        "marks": outcome.marks,
        "violation": None if outcome.violation is None else str(outcome.violation),
    }


def double(first: int, count: int) -> list[str]:
    """Run `count` seeds from `first` on under two values of PYTHONHASHSEED at the same time; a line for each that differs.

    Raises UsageError for a seed below 0.
    """
    check_least("the first seed", first, 0)
    command = [sys.executable, "-m", "replog.testing.simulator", str(first), "--runs", str(count), "--json", "--no-minimise"]
    processes = [
        subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": value}, stdout=subprocess.PIPE, text=True) for value in HASH_SEEDS
    ]
    told = [process.communicate()[0].splitlines() for process in processes]
    return compare([json.loads(line) for line in told[0]], [json.loads(line) for line in told[1]], first, count)


def compare(one: list[dict[str, Any]], other: list[dict[str, Any]], first: int, count: int) -> list[str]:
    """What two descriptions of the same seeds disagree about, in lines."""
    seeds = list(range(first, first + count))
    lines = [f"a process told of {len(told)} of {count} runs" for told in (one, other) if [run["seed"] for run in told] != seeds]
    for left, right in zip(one, other, strict=False):
        different = [f"{name} {left[name]} and {right[name]}" for name in left if left[name] != right[name]]
        if different:
            lines.append(f"seed {left['seed']}: {'; '.join(different)}")
    return lines
