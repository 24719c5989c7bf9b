"""Wing and Gong's search, with Lowe's memory: is there one order of calls that explains every answer?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from attrs import frozen

from replog.testing.history.events import NEVER

__all__ = ["STEPS_MAX", "Stuck", "Timed", "explain"]

STEPS_MAX: Final = 2_000_000
"""Steps after which a search is given up."""


class Timed(Protocol):
    """A call with the ranks of its ends; `completed` is NEVER if its outcome is not known."""

    invoked: int
    completed: int


_FIRST_STEPS: Final = 400_000

_Call = TypeVar("_Call", bound=Timed)
_State = TypeVar("_State", bound=Hashable)


@frozen
class Stuck(Generic[_Call]):
    """No order explains the answers: after the best attempt this call's answer fits nothing. None: the search was given up."""

    call: _Call | None
    explained: int


class _Entry(Generic[_Call]):
    """An end of a call, in a list in order of rank from which explained calls are lifted out."""

    __slots__ = ("back", "call", "end", "forth", "number")

    def __init__(self, call: _Call | None, number: int) -> None:
        self.call = call
        self.number = number
        self.end: _Entry[_Call] | None = None
        """Of a beginning: its end."""
        self.forth: _Entry[_Call] | None = None
        self.back: _Entry[_Call] | None = None

    def lift(self) -> None:
        """Take out a beginning and its end."""
        for entry in (self, self.end):
            if entry is not None:
                assert entry.back is not None
                entry.back.forth = entry.forth
                if entry.forth is not None:
                    entry.forth.back = entry.back

    def unlift(self) -> None:
        """Put them back, in the reverse order."""
        for entry in (self.end, self):
            if entry is not None:
                assert entry.back is not None
                entry.back.forth = entry
                if entry.forth is not None:
                    entry.forth.back = entry


def explain(
    calls: Sequence[_Call],
    initial: _State,
    step: Callable[[_State, _Call], _State | None],
    alike: Callable[[_Call], Hashable],
    steps_max: int = STEPS_MAX,
) -> Stuck[_Call] | None:
    """None if there is an order in which every call with a known outcome happens between its ends and answers as it did.

    `step` is the state after a call, None if its answer does not fit the state. A call whose outcome is not known happens at any
    time after its beginning or never; `step` answers None for one that would have no effect. Of those that are `alike` it does not
    matter which one happens, so that the one that began first stands for all.

    Calls of unknown outcome are used sparingly: at first only one of them between any two others, then more.
    """
    steps = 0
    run_max = 1
    while True:
        # A short search that allows enough in a row beats a long one that does not.
        budget = min(steps_max - steps, _FIRST_STEPS * run_max)
        search = _Search(calls, initial, step, alike, run_max, budget)
        stuck = search.run()
        steps += search.steps
        if stuck is None or (stuck.call is not None and not search.held_back) or steps >= steps_max:
            return stuck
        run_max *= 2


class _Search(Generic[_State, _Call]):
    """One search with at most `run_max` calls of unknown outcome in a row."""

    def __init__(
        self,
        calls: Sequence[_Call],
        initial: _State,
        step: Callable[[_State, _Call], _State | None],
        alike: Callable[[_Call], Hashable],
        run_max: int,
        steps_max: int,
    ) -> None:
        self._head = _linked(calls)
        self._unknown = [(number, call, alike(call)) for number, call in enumerate(calls) if call.completed == NEVER]
        self._unknown.sort(key=lambda item: item[1].invoked)
        self._missing = len(calls) - len(self._unknown)
        self._step = step
        self._run_max = run_max
        self._steps_max = steps_max
        self.steps = 0
        self.held_back = False
        """An unknown call was left out only for being one too many in a row."""
        self._state = initial
        self._done = 0
        self._run = 0
        self._seen = {(0, 0, initial)}
        self._path: list[tuple[_Entry[_Call] | int, _State, int]] = []
        """What was chosen (a number: of those of unknown outcome), and the state and the run before."""

    def run(self) -> Stuck[_Call] | None:
        """As `explain`."""
        best: tuple[int, _Call | None] = (-1, None)
        start: _Entry[_Call] | int | None = None  # what to try next: from the first call, from a call, from an unknown one
        while self._missing:
            if self._choose(start):
                start = None
            elif self.steps >= self._steps_max:
                return Stuck(None, best[0])
            else:
                if len(self._path) > best[0]:
                    best = len(self._path), self._due().call
                if not self._path:
                    return Stuck(best[1], best[0])
                start = self._back()
        return None

    def _due(self) -> _Entry[_Call]:
        """The first end in the list: its call has to come next but for those under way beside it."""
        entry = self._head.forth
        while entry is not None and entry.number >= 0:
            entry = entry.forth
        assert entry is not None
        return entry

    def _choose(self, start: _Entry[_Call] | int | None) -> bool:
        """Let one more call happen, the next that can; False if none can."""
        if not isinstance(start, int):
            entry = self._head.forth if start is None else start
            while entry is not None and entry.number >= 0:
                call = entry.call
                assert call is not None
                if self._happens(call, entry.number, 0, entry):
                    entry.lift()
                    self._missing -= 1
                    return True
                entry = entry.forth
            start = 0
        due = self._due().call
        assert due is not None
        tried: set[Hashable] = set()
        for index, (number, call, kind) in enumerate(self._unknown):
            if call.invoked > due.completed or self.steps >= self._steps_max:
                break
            if kind in tried or self._done >> number & 1:
                continue
            tried.add(kind)
            if index < start:
                continue
            if self._run >= self._run_max:
                self.held_back = True
                break
            if self._happens(call, number, self._run + 1, index):
                return True
        return False

    def _happens(self, call: _Call, number: int, run: int, choice: _Entry[_Call] | int) -> bool:
        self.steps += 1
        after = self._step(self._state, call)
        if after is None:
            return False
        done = self._done | 1 << number
        if (done, run, after) in self._seen:
            return False
        self._seen.add((done, run, after))
        self._path.append((choice, self._state, self._run))
        self._state, self._done, self._run = after, done, run
        return True

    def _back(self) -> _Entry[_Call] | int:
        """Undo the last choice; what to try in its place."""
        choice, self._state, self._run = self._path.pop()
        if isinstance(choice, int):
            self._done &= ~(1 << self._unknown[choice][0])
            return choice + 1
        self._done &= ~(1 << choice.number)
        self._missing += 1
        choice.unlift()
        assert choice.forth is not None
        return choice.forth


def _linked(calls: Sequence[_Call]) -> _Entry[_Call]:
    """The ends of all calls of known outcome."""
    ends: list[tuple[int, int, _Entry[_Call]]] = []
    for number, call in enumerate(calls):
        if call.completed != NEVER:
            entry = _Entry(call, number)
            entry.end = _Entry(call, -1)
            ends += [(call.invoked, 0, entry), (call.completed, 1, entry.end)]
    ends.sort(key=lambda end: end[:2])
    head: _Entry[_Call] = _Entry(None, -1)
    last = head
    for _, _, entry in ends:
        last.forth, entry.back = entry, last
        last = entry
    return head
