"""Run seeds that nobody has run, for some minutes, and count them in the ledger; stop where something breaks.

The seeds are handed out in batches of consecutive ones. Only this process writes the ledger, one line per finished batch, so
that it is whole at any moment. A worker that finds a violation keeps the failing plan, makes it small and does no more.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Thread
from typing import Any, Final

import attrs
from attrs import define, frozen

from replog.testing.simulator import tally
from replog.testing.simulator.corpus import Failure, replay_command, write
from replog.testing.simulator.directions import draw_directed
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.minimise import RUNS_MAX, Fails, minimise
from replog.testing.simulator.minimise import fails as usual_fails
from replog.testing.simulator.plan import Plan
from replog.testing.simulator.plan_check import check_least, check_plan
from replog.testing.simulator.running import Outcome, run

__all__ = ["BATCH", "Result", "batch", "explain", "soak", "violation_of"]

BATCH: Final = 100
"""Seeds per line of the ledger."""
NICENESS: Final = 10
"""Others come first on this machine."""
GARBAGE: Final = 50_000
"""So many new objects are looked through for cycles at once: 700 cost a run a fourteenth of its time."""


@frozen
class Result:
    """What a worker tells about one batch."""

    batch: tally.Batch
    report: tuple[str, ...] = ()
    """Lines about the violation that ended it; none if it found nothing."""


def violation_of(plan: Plan, *, events_max: int | None = None, tail: int = 40) -> Outcome | Violation:
    """Run a plan; an exception that escapes is told as a violation, without an outcome. Raises UsageError for a plan that cannot be run."""
    check_plan(plan)
    try:
        return run(plan.seed, plan=plan, events_max=events_max, tail=tail)
    except Exception as problem:
        violation = Violation(f"raised-{type(problem).__name__}", str(problem))
        violation.__cause__ = problem
        return violation


def batch(first: int, count: int, out: Path, stopped: Callable[[], bool] = lambda: False, *, direction: str = "") -> Result:
    """Run up to `count` seeds from `first` on, until one fails or it is stopped between two of them."""
    done = tally.Batch(tally.code_version(), tally.simulator_version(), first, direction=direction)
    for seed in range(first, first + count):
        if stopped():
            break
        before = time.process_time()
        plan = draw_directed(seed, direction)
        found = violation_of(plan, tail=0)
        done.cpu_ms += round(1_000 * (time.process_time() - before))
        if isinstance(found, Violation):
            done.count += 1
            done.violated[str(seed)] = found.invariant
        else:
            done.take(found)
        violation = found if isinstance(found, Violation) else found.violation
        if violation is not None:
            return Result(done, tuple(explain(plan, violation, out)))
    return Result(done)


def explain(plan: Plan, violation: Violation, out: Path, *, fails: Fails | None = None, runs_max: int = RUNS_MAX) -> list[str]:
    """Keep a failing plan in the folder `out`, make it small, keep that instead, and say all that is needed to look into it.

    The plan is kept as it is first, so that whoever interrupts this still has it. With `runs_max` 0 it stays as it is. `fails` runs
    a plan with workloads of one's own; there is no command that replays that, so only the file is told.
    """
    seed = plan.seed
    file = write(Failure(plan, violation.invariant), out, seed=seed)
    versions = f"protocol code {tally.code_version()}, simulator {tally.simulator_version()}"
    lines = [f"seed {seed} violated {violation}", *violation.origin, versions]
    small = plan
    if runs_max:
        try:
            found = minimise(plan, fails=fails or usual_fails, runs_max=runs_max)
        except ValueError:  # it did not fail again
            lines.append("it did not fail a second time: the run does not depend on its seed alone")
        else:
            small, violation = found.plan, found.violation
            write(Failure(small, violation.invariant), out, seed=seed)
            lines.append(f"minimised from {len(plan.faults)} to {len(small.faults)} faults in {found.runs} runs; it violates {violation}")
    where = f"replay: {replay_command(file)}" if fails is None else f"kept: {file}"
    return [*lines, *str(small).splitlines(), where]


# ------------------------------------------------------------------------------------------------------------ processes

_stop: Event | None = None


def _begin(stop: Event) -> None:
    """A worker is new: it is told when to stop, and does not outlive the process that started it."""
    global _stop
    _stop = stop
    Thread(target=_end_with, args=[multiprocessing.parent_process()], daemon=True).start()
    os.setpgid(0, 0)  # whoever signals the whole group, a terminal or `timeout`, means the process that started this one
    gc.freeze()
    gc.set_threshold(GARBAGE, *gc.get_threshold()[1:])
    if hasattr(os, "nice"):
        os.nice(NICENESS)


def _end_with(parent: Any) -> None:
    """Nobody else writes down what is run here; and a worker without work would wait for some for ever."""
    parent.join()
    os._exit(1)


def _work(first: int, count: int, out: Path, direction: str) -> Result:
    assert _stop is not None
    return batch(first, count, out, _stop.is_set, direction=direction)


@define
class _Soak:
    """The seeds that come next, and what is under way."""

    stop: Event
    ledger: Path
    out: Path
    next_seed: int
    size: int
    direction: str
    say: Callable[[str], None]
    running: dict[Future[Result], tuple[ProcessPoolExecutor, int]] = attrs.field(factory=dict)
    """Batches that are not written down yet: whose worker runs each, and its first seed."""
    lost: list[str] = attrs.field(factory=list)
    """What will not be written down, and why, in lines."""
    done: tally.Batch = attrs.field(factory=lambda: tally.Batch("", "", 0))

    def go_on(self, pools: Sequence[ProcessPoolExecutor], end_s: float) -> None:
        """Run batches until the time is over or one is lost, and write down what was begun."""
        for pool in pools:
            self.start(pool)
        while self.running and not self.lost and (left_s := end_s - time.monotonic()) > 0:
            for pool in self.collect(left_s):
                self.start(pool)
        self.finish()

    def finish(self) -> None:
        """The workers end after the runs under way; write down what they have run."""
        self.stop.set()
        while self.running:
            self.collect(None)

    def start(self, pool: ProcessPoolExecutor) -> None:
        first, self.next_seed = self.next_seed, self.next_seed + self.size
        try:
            future = pool.submit(_work, first, self.size, self.out, self.direction)
        except BrokenProcessPool:  # between two batches
            self.lose(first, "their process died")
        else:
            self.running[future] = pool, first

    def collect(self, timeout_s: float | None) -> list[ProcessPoolExecutor]:
        """Wait for a batch and write it down; the workers that are free for another one."""
        finished, _ = wait(self.running, timeout_s, return_when=FIRST_COMPLETED)
        free = []
        for future in sorted(finished, key=lambda one: self.running[one][1]):
            pool, first = self.running[future]
            problem = future.exception()
            if problem is not None:
                self.lose(first, "their process died" if isinstance(problem, BrokenProcessPool) else repr(problem))
            elif self.write_down(future.result()):
                free.append(pool)
            del self.running[future]  # not before: an interrupt may come meanwhile, and what is written twice counts once
        return free

    def write_down(self, result: Result) -> bool:
        """Whether the worker goes on after that."""
        tally.append(self.ledger, result.batch)
        self.done.join(result.batch)
        last = result.batch.end - 1
        self.say(f"seeds {result.batch.first} to {last}: {result.batch.events:,} events, {len(result.batch.violated)} violations")
        for line in result.report:
            self.say(line)
        return not result.report

    def lose(self, first: int, why: str) -> None:
        self.lost.append(f"seeds {first} to {first + self.size - 1} are not written down: {why}")

    def give_up(self, workers: Iterable[BaseProcess]) -> None:
        """Wait for nothing any more."""
        for _, first in self.running.values():
            self.lose(first, "interrupted a second time")
        for worker in workers:
            worker.kill()


def soak(
    minutes: float,
    *,
    jobs: int = 2,
    first: int | None = None,
    ledger: Path,
    out: Path,
    size: int = BATCH,
    direction: str = "",
    say: Callable[[str], None],
) -> int:
    """Run unused seeds for some minutes in `jobs` processes, in general or of one series; how many runs violated something.

    It begins after the highest seed of the ledger, or at `first`. An interrupt ends it early: what was run is written down. A second
    one ends it at once, and a process that dies costs what it had under way: ChildProcessError names those seeds, when all else is
    written down. The processes end with this one, however it ends. Raises UsageError without jobs or for a seed below 0, and
    FileNotFoundError without a folder for the ledger.
    """
    began = tally.next_seed(tally.read(ledger)) if first is None else first
    check_least("the first seed", began, 0)
    check_least("jobs", jobs, 1)
    if not ledger.parent.is_dir():
        raise FileNotFoundError(f"no folder {ledger.parent} for the ledger")
    context: Any = multiprocessing.get_context("spawn")
    stop = context.Event()
    end_s = time.monotonic() + 60 * minutes
    others = set(multiprocessing.active_children())
    work = _Soak(stop, ledger, out, began, size, direction, say)
    with ExitStack() as stack:  # a worker that dies takes its pool with it, with all who work there: each has one of its own
        make = partial(ProcessPoolExecutor, 1, mp_context=context, initializer=_begin, initargs=(stop,))
        pools = [stack.enter_context(make()) for _ in range(jobs)]
        stack.callback(stop.set)  # else a failure here would wait for whole batches
        try:
            try:
                work.go_on(pools, end_s)
            except KeyboardInterrupt:
                say("interrupted: waiting for the runs under way")
                work.finish()
        except KeyboardInterrupt:
            work.give_up(set(multiprocessing.active_children()) - others)
    done = work.done
    say(f"{done.count} seeds, {done.faults:,} faults, {done.virtual_ms / 3_600_000:.2f} virtual hours, {len(done.violated)} violations")
    if work.lost:
        raise ChildProcessError("\n".join(work.lost))
    return len(done.violated)
