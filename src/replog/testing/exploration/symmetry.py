"""Replicas have no names that matter: of all states that differ by a renaming of the replicas, one is kept.

Sound because nothing in the rules prefers one replica to another: whatever a state can do, its renaming can do. The form is the
renaming that sorts the replicas by what can be said of each without names; only replicas of which the same can be said
are tried in each order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations

from replog.testing.exploration.logs import Table
from replog.testing.exploration.state import Layout, State

__all__ = ["Symmetry"]


class Symmetry:
    """Canonical forms of the states of one world."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._n = layout.n
        self._orders = list(permutations(range(layout.n)))
        """order[k] is the replica that comes to stand at place k."""
        self._renamings = {order: _Renaming(layout, order) for order in self._orders}
        self._without_names = ~layout.rest_mask
        self._marks_at = layout.replica_bits
        self._store_marks: Table[int, tuple[int, ...]] = Table(self._mark_store)
        self._command_marks: Table[int, tuple[int, ...]] = Table(self._mark_commands)
        self.canonical: Callable[[State], State] = self._of_three() if layout.n == 3 else self._of_any
        """The form that all renamings of a state share."""

    def _mark_store(self, store: int) -> tuple[int, ...]:
        """What the store says of each replica: is it in the ISR, does it lead?"""
        isr, leader = self._layout.store[store][:2]
        return tuple(((isr >> r & 1) << 1 | (leader == r)) << self._marks_at for r in range(self._n))

    def _mark_commands(self, commands: int) -> tuple[int, ...]:
        """What the commands say of each replica: in which epochs it led, and in whose ISR it was."""
        marks = [0] * self._n
        for leader, isr in self._layout.commands[commands]:
            for r in range(self._n):
                marks[r] = marks[r] << 2 | (isr >> r & 1) << 1 | (leader == r)
        return tuple(mark << self._marks_at + 2 for mark in marks)

    def _of_any(self, state: State) -> State:
        n = self._n
        store_marks, command_marks = self._store_marks[state[n]], self._command_marks[state[n + 1]]
        keys = [state[r] & self._without_names | store_marks[r] | command_marks[r] for r in range(n)]
        order = tuple(sorted(range(n), key=keys.__getitem__))
        if all(keys[a] != keys[b] for a, b in pairwise(order)):
            return self._renamings[order].apply(state)
        best = [keys[r] for r in order]
        return min(self._renamings[other].apply(state) for other in self._orders if [keys[r] for r in other] == best)

    def _of_three(self) -> Callable[[State], State]:
        """The same for three replicas, where a search spends its time: by comparisons instead of sorting."""
        store_marks, command_marks, keep = self._store_marks, self._command_marks, self._without_names
        bac, acb, bca, cab, cba = (self._renamings[order].apply for order in ((1, 0, 2), (0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0)))
        of_any = self._of_any

        def canonical(state: State) -> State:
            a, b, c, store, commands = state
            a1, b1, c1 = store_marks[store]
            a2, b2, c2 = command_marks[commands]
            a = a & keep | a1 | a2
            b = b & keep | b1 | b2
            c = c & keep | c1 | c2
            if a < b:
                if b < c:
                    return state
                if a < c < b:
                    return acb(state)
                if c < a:
                    return cab(state)
            elif b < a:
                if a < c:
                    return bac(state)
                if c < b:
                    return cba(state)
                if b < c < a:
                    return bca(state)
            return of_any(state)

        return canonical

    def all_forms(self, state: State) -> list[State]:
        """Every renaming of this state, itself among them."""
        return [self._renamings[order].apply(state) for order in self._orders]


class _Renaming:
    """One way to rename the replicas, applied to each kind of number."""

    def __init__(self, layout: Layout, order: tuple[int, ...]) -> None:
        self._layout = layout
        n = layout.n
        places = [order.index(r) for r in range(n)]
        self._order = order
        self._places = [*places, n]
        self._sets = [sum(1 << places[r] for r in range(n) if mask >> r & 1) for mask in range(1 << n)]
        self._rests: Table[int, int] = Table(self._rest)
        self._rest_mask = layout.rest_mask
        self._stores: Table[int, int] = Table(self._store)
        self._commands: Table[int, int] = Table(self._command)

    def apply(self, state: State) -> State:
        """The state with its replicas in this order, and called by their new places."""
        mask, rests = self._rest_mask, self._rests
        replicas = [state[r] for r in self._order]
        moved = [replica - rest + rests[rest] if (rest := replica & mask) else replica for replica in replicas]
        return (*moved, self._stores[state[-2]], self._commands[state[-1]])

    def _rest(self, rest: int) -> int:
        layout = self._layout
        n, sets, bits = layout.n, self._sets, layout.position_bits
        isr, proposed, seen = rest & layout.everyone, rest >> n & layout.everyone, rest >> 2 * n
        moved = sum((seen >> r * bits & layout.position_mask) << self._places[r] * bits for r in range(n)) if bits else 0
        return moved << 2 * n | sets[proposed] << n | sets[isr]

    def _store(self, store: int) -> int:
        isr, leader, *others = self._layout.store[store]
        return self._layout.make_store(self._sets[isr], self._places[leader], *others)

    def _command(self, commands: int) -> int:
        layout = self._layout
        return layout.make_commands([(self._places[by] if by >= 0 else -1, self._sets[isr]) for by, isr in layout.commands[commands]])
