"""Run the lanes of `make test` in order and say how long each took.

A lane is a name, the commands it runs and the folders it needs: a lane whose folders hold no tests yet does not appear.
Every lane runs even if an earlier one failed, so that one run shows everything that is red.

A test that drives real processes has deadlines, and the machine may stand still for longer than any of them. So a few tests that
failed in such a lane are run once more, one after the other with nothing beside them; the summary names each that needed it. Lanes whose
time is virtual have no second look: there, a failure is a fault.

    python -m tools.lanes              all lanes but those that need a browser
    python -m tools.lanes scenarios    only the lanes named
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tools import memory_disk

TESTS_FAILED = 1
"""Exit status of pytest when it ran to its end and tests failed."""
AGAIN_MAX = 4
"""More tests than this that fail in one lane are no standstill of the machine."""
ROOT = Path(__file__).resolve().parent.parent
PYTEST = ("pytest", "-q")
_OPTIONS = ("-p", "no:benchmark", "-o", "addopts=--strict-markers --strict-config --import-mode=importlib -ra")
PARALLEL = ("-n", "2", *_OPTIONS)
WAITING = ("-n", "3", *_OPTIONS)
"""For tests that wait for other processes more than they work: two of them leave two fifths of two cores unused."""


class Lane(NamedTuple):
    """One line of the summary."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    """Arguments after `python -m`."""
    tests: tuple[str, ...] = ()
    """Test folders and files, relative to the root, appended to the last command; those without tests are left out."""
    processes: bool = False
    """Whether its tests wait for real processes, so that those that failed are looked at twice."""
    asked: bool = False
    """Whether it runs only when it is named: it needs what is not on every machine."""
    ahead: tuple[str, ...] = ()
    """As a command: what the lane needs and one processor takes a minute for. It begins when the first lane does."""
    on_disk: bool = False
    """Whether its temporary files lie on a disk even where there is room for them in memory (`memory_disk`)."""


LANES = (
    Lane("lint and types", (("ruff", "check", "."), ("mypy",))),
    Lane(
        "unit, contracts, doctests",
        ((*PYTEST, *PARALLEL, "--doctest-modules", "src"),),
        ("tests/test_tidy.py", "tests/unit", "tests/contracts", "tests/fuzz", "tests/typing"),
    ),
    Lane("scenarios", ((*PYTEST, *PARALLEL),), ("tests/scenarios",)),
    Lane("simulation", ((*PYTEST, *PARALLEL),), ("tests/simulation",)),
    Lane(
        "processes and ZooKeeper",
        ((*PYTEST, *WAITING, "--ignore=tests/integration/spark"),),
        ("tests/integration", "tests/chaos"),
        True,
        on_disk=True,
    ),
    # Each process has a Java of its own; some tests take as long as fifty others: they come first, and one test is given out at a time.
    Lane("Spark", ((*PYTEST, *PARALLEL, "--maxschedchunk=1"),), ("tests/integration/spark",), True, ahead=("tools.spark_classes",)),
    Lane("browser", (PYTEST,), ("tests/browser",), True, True),
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


def status_of(command: list[str], place: memory_disk.Place | None = None) -> int:
    """Run a command to its end; its exit status."""
    variables, held = ({}, ()) if place is None else ({"TMPDIR": str(place.folder)}, (place.held,))
    return subprocess.run(command, cwd=ROOT, check=False, env=environment() | variables, pass_fds=held).returncode


def environment() -> dict[str, str]:
    """Bytecode is kept, whatever the caller's environment says: tests start hundreds of processes, each of which would spend a second or
    more on compiling what it imports."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(lane: Lane) -> tuple[bool, list[str]]:
    """Run all commands of a lane: (whether each succeeded, tests that did so only when they were run again)."""
    place = None if lane.on_disk else memory_disk.place()
    if place is None:
        return run_in(lane, None)
    passed = False
    try:
        passed, again = run_in(lane, place)
        return passed, again
    finally:
        os.close(place.held)
        if passed:
            shutil.rmtree(place.folder, ignore_errors=True)
        else:
            print(f"== {lane.name}: what its tests have left is in {place.folder} until lanes are run again", flush=True)


def run_in(lane: Lane, place: memory_disk.Place | None) -> tuple[bool, list[str]]:
    """As `run`, with temporary files there."""
    *first, last = commands_of(lane)
    statuses = [status_of(command, place) for command in first]
    if not lane.processes:
        statuses.append(status_of(last, place))
        return not any(statuses), []
    with tempfile.TemporaryDirectory() as cache:
        remember = ["-o", f"cache_dir={cache}"]
        status = status_of(last + remember, place)
        failed = failed_tests(Path(cache)) if status == TESTS_FAILED else []
        if 1 <= len(failed) <= AGAIN_MAX:
            print(f"== {lane.name}: again, alone: {', '.join(failed)}", flush=True)
            status = status_of([sys.executable, "-m", *PYTEST, *remember, *failed], place)
    passed = not any(statuses) and status == 0
    return passed, failed if passed else []


def failed_tests(cache: Path) -> list[str]:
    """Which tests the run that kept its cache there saw fail; none if a file could not even be read as tests."""
    kept = cache / "v" / "cache" / "lastfailed"
    names = sorted(json.loads(kept.read_text())) if kept.exists() else []
    return names if all("::" in name for name in names) else []


def main(names: list[str]) -> int:
    """Run the lanes named (if none is, all that need not be asked for) and print the summary; the exit status is 1 if any failed."""
    # A shell ignores Ctrl-C for what it starts in the background, and children inherit that; tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    known = [lane.name for lane in LANES]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no lane {unknown[0]!r}; lanes are: {', '.join(known)}")
    memory_disk.forget_dead()
    results = []
    chosen = [lane for lane in LANES if (lane.name in names if names else not lane.asked) and commands_of(lane)]
    ahead = {lane.name: [sys.executable, "-m", *lane.ahead] for lane in chosen if lane.ahead}
    begun = {name: subprocess.Popen(command, cwd=ROOT, env=environment()) for name, command in ahead.items()}
    for lane in chosen:
        print(f"\n== {lane.name}", flush=True)
        started = time.perf_counter()
        is_ready = lane.name not in begun or begun[lane.name].wait() == 0
        passed, again = run(lane)
        passed = passed and is_ready
        seconds = time.perf_counter() - started
        results.append((lane.name, passed, seconds, again))
        print(f"== {lane.name}: {'passed' if passed else 'FAILED'} in {seconds:.1f} s", flush=True)
    print("\nlane                         time  result")
    for name, passed, seconds, again in results:
        print(f"{name:<26} {seconds:5.1f} s  {'passed' if passed else 'FAILED'}")
        for test in again:
            print(f"{'':<26} at its second run: {test}")
    print(f"{'all':<26} {sum(seconds for _, _, seconds, _ in results):5.1f} s", flush=True)
    return 0 if all(passed for _, passed, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
