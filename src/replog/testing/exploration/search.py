"""Breadth-first search of everything that can be reached: nothing is left to chance, and a counterexample is a shortest one.

Of each state only its fingerprint is kept, and five bytes that say how it was found; the states themselves live for two
levels. A trace is rebuilt by taking the recorded steps again.

The default fingerprint is the hash, which for tuples of ints has 64 bits and no seed: among ten million states two share theirs with
a chance of 1 in 350,000. Strings and bytes hash differently from run to run, before Python 3.12 None does as well: states that hold
them want a function of their own. One that is exact may give numbers of any size.

>>> def steps(state):                      # two counters, each may be raised; the second not beyond the first
...     first, second = state
...     return [("first", (first + 1, second)), ("second", (first, second + 1))]
>>> found = explore((0, 0), steps, lambda state: "the second is ahead" if state[1] > state[0] + 1 else None)
>>> print(found.violation)
the second is ahead, after 2 steps
   1  second
   2  second
   in (0, 2)
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from attrs import frozen

__all__ = ["Result", "Violation", "explore"]

S = TypeVar("S", bound=Hashable)
A = TypeVar("A")


@frozen
class Violation(Generic[S, A]):
    """A state that should not be, and a shortest way there."""

    why: str
    steps: tuple[tuple[A, S], ...]
    """(action, the state after it), from the initial state on."""
    initial: S
    action_text: Callable[[A], str] = str
    state_text: Callable[[S], str] = str

    @property
    def state(self) -> S:
        """The state that is wrong."""
        return self.steps[-1][1] if self.steps else self.initial

    def __str__(self) -> str:
        lines = [f"{self.why}, after {len(self.steps)} steps"]
        lines += [f"{number:4}  {self.action_text(action)}" for number, (action, _) in enumerate(self.steps, 1)]
        return "\n".join([*lines, f"   in {self.state_text(self.state)}"])


@frozen
class Result(Generic[S, A]):
    """What a search has seen."""

    states: int
    """Distinct states; canonical ones, if the search was given a canonical form."""
    transitions: int
    depth: int
    """Steps to the farthest state seen."""
    exhausted: bool
    """Nothing else can be reached: no bound was met and nothing was wrong."""
    violation: Violation[S, A] | None = None
    levels: tuple[int, ...] = ()
    """How many states are so many steps away."""


def explore(
    initial: S,
    successors: Callable[[S], Iterable[tuple[A, S]]],
    check: Callable[[S], str | None],
    *,
    fingerprint: Callable[[S], int] = hash,
    canonical: Callable[[S], S] | None = None,
    states_max: int | None = None,
    depth_max: int | None = None,
    progress: Callable[[int, int, int], None] | None = None,
    action_text: Callable[[A], str] = str,
    state_text: Callable[[S], str] = str,
) -> Result[S, A]:
    """Visit every state, nearest first, until one is wrong or none is left.

    `successors` must give the same steps in the same order each time, at most 256. `check` tells what is wrong with a state.
    `fingerprint` stands for the state: see the module. `canonical` maps states that differ by names alone to one of them.
    The search ends before it goes beyond `depth_max`, and at the first level that reaches `states_max`. After each level
    `progress` is called with (depth, states so far, states of the level).
    """
    level = [initial if canonical is None else canonical(initial)]
    seen = {fingerprint(level[0])}
    parents, ordinals = array("I", [0]), bytearray(1)
    levels, base, transitions, depth = [1], 0, 0, 0

    def result(exhausted: bool, why: str | None = None, at: int = 0) -> Result[S, A]:
        steps = _retrace(initial, successors, canonical, _path(parents, ordinals, at))
        violation = None if why is None else Violation(why, steps, initial, action_text, state_text)
        return Result(len(seen), transitions, depth, exhausted, violation, tuple(levels))

    if (why := check(level[0])) is not None:
        return result(False, why)
    while level:
        if (states_max is not None and len(seen) >= states_max) or (depth_max is not None and depth >= depth_max):
            return result(False)
        following: list[S] = []
        for parent, state in enumerate(level, base):
            ordinal = -1
            for ordinal, (_, after) in enumerate(successors(state)):
                if canonical is not None:
                    after = canonical(after)
                mark = fingerprint(after)
                if mark in seen:
                    continue
                seen.add(mark)
                parents.append(parent)
                ordinals.append(ordinal)
                following.append(after)
                if (why := check(after)) is not None:
                    depth, levels = depth + 1, [*levels, len(following)]
                    return result(False, why, len(parents) - 1)
            transitions += ordinal + 1
        base += len(level)
        level = following
        if level:
            depth += 1
            levels.append(len(level))
            if progress is not None:
                progress(depth, len(seen), len(level))
    return result(True)


def _path(parents: array[int], ordinals: bytearray, at: int) -> list[int]:
    """Which successor to take, step by step, to come to the state that was found as number `at`."""
    path = []
    while at:
        path.append(ordinals[at])
        at = parents[at]
    return path[::-1]


def _retrace(
    initial: S, successors: Callable[[S], Iterable[tuple[A, S]]], canonical: Callable[[S], S] | None, path: list[int]
) -> tuple[tuple[A, S], ...]:
    """Take these steps again. With a canonical form, names stay what they were: each step is looked for by where it leads."""
    steps: list[tuple[A, S]] = []
    state = initial
    if canonical is None:
        for ordinal in path:
            steps.append(list(successors(state))[ordinal])
            state = steps[-1][1]
        return tuple(steps)
    form = canonical(initial)
    for ordinal in path:
        form = canonical(list(successors(form))[ordinal][1])
        steps.append(next(step for step in successors(state) if canonical(step[1]) == form))
        state = steps[-1][1]
    return tuple(steps)
