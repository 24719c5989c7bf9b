"""Run the lanes of `make test` in order and say how long each took.

A lane is a name, the commands it runs and the folders it needs: a lane whose folders hold no tests yet does not appear.
Every lane runs even if an earlier one failed, so that one run shows everything that is red.

    python tools/lanes.py              all lanes
    python tools/lanes.py scenarios    only the lanes named
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PYTEST = ("pytest", "-q")
PARALLEL = ("-n", "2", "-p", "no:benchmark", "-o", "addopts=--strict-markers --strict-config --import-mode=importlib -ra")


class Lane(NamedTuple):
    """One line of the summary."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    """Arguments after `python -m`."""
    tests: tuple[str, ...] = ()
    """Test folders and files, relative to the root, appended to the last command; those without tests are left out."""


LANES = (
    Lane("lint and types", (("ruff", "check", "."), ("mypy",))),
    Lane(
        "unit, contracts, doctests",
        ((*PYTEST, *PARALLEL, "--doctest-modules", "src"),),
        ("tests/test_tidy.py", "tests/unit", "tests/contracts", "tests/typing"),
    ),
    Lane("scenarios", ((*PYTEST, *PARALLEL),), ("tests/scenarios",)),
    Lane("simulation", ((*PYTEST, *PARALLEL),), ("tests/simulation",)),
    Lane("processes and ZooKeeper", ((*PYTEST, *PARALLEL, "--ignore=tests/integration/spark"),), ("tests/integration",)),
    Lane("Spark", (PYTEST,), ("tests/integration/spark",)),  # one after the other: each pytest process starts a Java of its own
)


def holds_tests(path: Path) -> bool:
    """Whether pytest would find a test file there."""
    return path.is_file() or any(path.rglob("test_*.py"))


def commands_of(lane: Lane, root: Path = ROOT) -> list[list[str]]:
    """The commands to run; none if the lane needs tests and there are none yet."""
    present = [test for test in lane.tests if holds_tests(root / test)]
    if lane.tests and not present:
        return []
    commands = [[sys.executable, "-m", *command] for command in lane.commands]
    commands[-1] += present
    return commands


def run(lane: Lane) -> tuple[bool, float]:
    """Run all commands of a lane: (whether each succeeded, seconds)."""
    started = time.perf_counter()
    statuses = [subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands_of(lane)]
    return not any(statuses), time.perf_counter() - started


def main(names: list[str]) -> int:
    """Run the lanes named (all if none is) and print the summary; the exit status is 1 if any failed."""
    known = [lane.name for lane in LANES]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no lane {unknown[0]!r}; lanes are: {', '.join(known)}")
    results = []
    for lane in LANES:
        if (names and lane.name not in names) or not commands_of(lane):
            continue
        print(f"\n== {lane.name}", flush=True)
        passed, seconds = run(lane)
        results.append((lane.name, passed, seconds))
        print(f"== {lane.name}: {'passed' if passed else 'FAILED'} in {seconds:.1f} s", flush=True)
    print("\nlane                         time  result")
    for name, passed, seconds in results:
        print(f"{name:<26} {seconds:5.1f} s  {'passed' if passed else 'FAILED'}")
    print(f"{'all':<26} {sum(seconds for _, _, seconds in results):5.1f} s", flush=True)
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
