"""The command line of the exploration of the real code."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from time import perf_counter

from attrs import fields

from replog.errors import UsageError
from replog.testing.arguments import natural, positive
from replog.testing.exploration.real_budgets import CRASHES, Budgets
from replog.testing.exploration.real_cluster import RealCluster, State
from replog.testing.exploration.real_snapshot import Frozen
from replog.testing.exploration.real_steps import StepCheck
from replog.testing.exploration.real_text import show, text
from replog.testing.exploration.search import Result, explore

__all__ = ["explore_real", "main", "prepare"]

Say = Callable[[str], None]

_HELP = {
    "replicas": "brokers, each with a copy",
    "min_isr": "smallest ISR that commits",
    "records": "so many are ever appended",
    "epochs": "leader epochs",
    "crashes": "processes killed and sessions ended, together",
    "powers": "power failures, which take what was not flushed (min_isr - 1 of them may lose nothing)",
    "unknown": "ISR changes of which the controller does not hear whether they were stored",
    "copies": "messages that arrive and stay under way",
    "shrinks": "proposals of a smaller ISR",
}


def explore_real(
    cluster: RealCluster,
    *,
    states: int | None = None,
    depth: int | None = None,
    progress: Callable[[int, int, int], None] | None = None,
    steps: StepCheck | None = None,
) -> Result[State, Frozen]:
    """Every state of the cluster's space, nearest first, until one is wrong, none is left, or a bound is met.

    With `steps` it also ends at a step that the abstract model does not allow.
    """
    return explore(
        cluster.initial,
        cluster.successors if steps is None else steps.successors,
        cluster.wrong,
        fingerprint=cluster.fingerprint,
        states_max=states,
        depth_max=depth,
        progress=progress,
        action_text=text,
        state_text=lambda state: show(cluster.view(state)),
    )


def main(arguments: Sequence[str], say: Say = print) -> int:
    """Returns 1 if something was found to be wrong. UsageError as of `prepare`."""
    return prepare(arguments, say)()


def prepare(arguments: Sequence[str], say: Say) -> Callable[[], int]:
    """The search that is asked for, to be called. UsageError if that is of no cluster that can be, or begins with what cannot happen."""
    given = _parser().parse_args(arguments)
    plan = tuple(_crash(one) for one in _listed(given.plan))
    isr = tuple(_broker(one, f"isr has {one!r}; brokers have numbers, as in 1,2") for one in _listed(given.isr))
    cluster = RealCluster(Budgets(**{name: getattr(given, name) for name in _HELP}, isr=isr, plan=plan, piecemeal=given.piecemeal))
    cluster.begin(*_listed(given.begin))
    steps = None if given.compare is None else StepCheck(cluster, every=given.compare)
    return lambda: _search(cluster, given, say, steps)


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _crash(text: str) -> tuple[str, int]:
    what, _, broker = text.partition(":")
    return what, _broker(broker, f"plan has {text!r}; crashes are {', '.join(f'{one}:BROKER' for one in CRASHES)}")


def _broker(text: str, refusal: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(refusal) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m replog.testing.exploration real", description="What a tiny cluster of the real code can do, in every order."
    )
    defaults = {one.name: one.default for one in fields(Budgets)}
    for name, what in _HELP.items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=int, default=defaults[name], metavar="N", help=f"{what} (default {defaults[name]})")
    for option, metavar, what in (
        ("--isr", "IDS", "in sync at the beginning, the leader first, as 1,2 (default: all)"),
        ("--plan", "CRASHES", "these crashes, in this order, instead: kill:1,restart:2,expire:3"),
        ("--begin", "STEPS", 'begin after these steps, as "append 1, fetch 2 to 1", each the first that fits'),
    ):
        parser.add_argument(option, default="", metavar=metavar, help=what)
    parser.add_argument("--piecemeal", action="store_true", help="leaders answer with one batch at a time")
    parser.add_argument(
        "--compare",
        type=positive,
        default=None,
        nargs="?",
        const=1,
        metavar="N",
        help="compare every N-th step with the abstract model (default: each; without this option none)",
    )
    parser.add_argument(
        "--states", type=positive, default=100_000, metavar="N", help="stop after the level that reaches N (default 100000)"
    )
    parser.add_argument("--depth", type=natural, default=None, metavar="N", help="stop at so many steps")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each level")
    return parser


def _search(cluster: RealCluster, given: argparse.Namespace, say: Say, steps: StepCheck | None) -> int:
    def progress(depth: int, states: int, level: int) -> None:
        if given.verbose:
            say(f"  depth {depth:3}: {level:9,} states, {states:10,} in all, {perf_counter() - start:6.1f} s")

    say(str(cluster.budgets))
    start = perf_counter()
    result = explore_real(cluster, states=given.states, depth=given.depth, progress=progress, steps=steps)
    seconds = perf_counter() - start
    end = "all of them" if result.exhausted else "not all"
    say(f"{result.states:,} states ({end}), {result.transitions:,} transitions, depth {result.depth}")
    say(f"{1 if result.violation else 0} violations, {seconds:.1f} s, {result.states / max(seconds, 1e-9):,.0f} states/s")
    of = f"{len(cluster.brokers):,} states of brokers and {len(cluster.controllers):,} of the controller"
    if steps is not None:
        say(str(steps.compared))
    say(f"the real code ran {cluster.steps_run:,} times, for {of}")
    if result.violation is not None:
        say(str(result.violation))
    return 1 if result.violation is not None else 0
