"""Evening out: items that each sit on some nodes are shifted between nodes until no node has two more than another that it can reach.

Both questions of a balanced placement are of this kind: which brokers hold a partition (items with several nodes, limited by racks), and
which of these leads it (one node). Least majorized bases of matroids: a load is as even as can be when no chain of shifts leads from a
node to one with two less (A. Frank, K. Murota, "Decreasing minimization on M-convex sets"), and costs least when no cycle of shifts saves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from itertools import combinations, pairwise
from typing import Final

__all__ = ["Evening"]

_Arc = tuple[int, int]
_FAR: Final = 1 << 30
"""The price of what cannot be done."""
_LOOKS_MAX: Final = 8
"""Looks at all arcs after which prices that still fall are taken for a sign that something can be saved."""


class Evening:
    """Items on nodes 0 to n-1. What is undone or done twice costs nothing: the price of a placement is how many are not at home."""

    def __init__(
        self, nodes: int, chosen: Sequence[set[int]], homes: Sequence[Collection[int]], instead: Callable[[int, int], Set[int]]
    ) -> None:
        """`chosen`: where each item sits, changed in place. `instead(item, a)`: where it may sit instead of on a, as it sits now."""
        self._nodes, self._chosen, self._homes, self._instead = range(nodes), chosen, homes, instead
        self.load = [0] * nodes
        self.shifts = 0
        """How many there were, those that were taken back included."""
        self._able: list[list[tuple[list[int], list[int], list[int]]]] = [[([], [], []) for _ in self._nodes] for _ in self._nodes]
        """[a][b]: items that may go from a to b and come nearer home, neither, leave home. Some may not any more: see `_price`."""
        for item, nodes_of in enumerate(chosen):
            for node in nodes_of:
                self.load[node] += 1
            self._note(item)

    def run(self) -> None:
        """Even out, then save what can be saved."""
        self._even_out()
        while any([self._swap(a, b) for a, b in combinations(self._nodes, 2)]) or any(list(map(self._cancel, self._saving()))):
            pass

    # ------------------------------------------------------------------------------------------------------- evenness

    def _even_out(self) -> None:
        """From the most to the least loaded. What those that cannot give any more reach stays as it is, so nobody is asked twice."""
        able = set(self._nodes)
        while able:
            full = max(able, key=lambda node: (self.load[node], -node))
            if not self._give(full):
                able.remove(full)

    def _give(self, full: int) -> bool:
        """Shift from `full` to the least loaded that a chain of shifts reaches, the shortest chain first."""
        came: dict[int, int] = {full: full}
        ring = [full]
        while ring:
            found: list[int] = []
            for node in ring:
                for other in self._nodes:
                    if other not in came and self._price(node, other) is not None:
                        came[other] = node
                        found.append(other)
            empty = min(found, key=lambda node: self.load[node], default=full)
            gap = self.load[full] - self.load[empty]
            if gap > 1:
                chain = [empty]
                while chain[-1] != full:
                    chain.append(came[chain[-1]])
                arcs = list(pairwise(reversed(chain)))
                done = 0
                while done < gap // 2 and self._all(arcs):
                    done += 1
                return done > 0
            ring = found
        return False

    # ------------------------------------------------------------------------------------------------------- movement

    def _swap(self, a: int, b: int) -> bool:
        """Save what two nodes can between them."""
        swapped = False
        while self._worth(a, b) + self._worth(b, a) < 0 and self._cancel(((a, b), (b, a))):
            swapped = True
        return swapped

    def _saving(self) -> list[list[_Arc]]:
        """Cycles of shifts after which more are at home, each of the fewest shifts through one of its nodes; none if there are none.

        A chain from a node to one that has one less is a cycle as well: they swap who has one more.
        """
        price = [[self._worth(a, b) for b in self._nodes] for a in self._nodes]
        if _is_cheapest(price):
            return []
        best, back = price, [[[a] * len(price) for a in self._nodes]]
        while len(back) <= len(price) and all(best[node][node] >= 0 for node in self._nodes):
            best, via = _one_more(best, price)
            back.append(via)
        found = []
        for node in self._nodes:
            if best[node][node] < 0:
                cycle = [node]
                for via in reversed(back):
                    cycle.append(via[node][cycle[-1]])
                found.append(list(pairwise(reversed(cycle))))
        return found

    def _worth(self, a: int, b: int) -> int:
        """What it costs to go from a to b."""
        price = self._price(a, b)
        if self.load[b] == self.load[a] + 1:  # free: the chain that comes back from b to a has changed who has one more
            return 0 if price is None else min(price, 0)
        return _FAR if price is None else price

    def _cancel(self, cycle: Sequence[_Arc]) -> bool:
        """Go round it if that saves, as it was when it was found; another one may have used up what it needs."""
        if sum(self._worth(a, b) for a, b in cycle) >= 0:
            return False
        free = [self.load[b] == self.load[a] + 1 and (self._price(a, b) or 0) >= 0 for a, b in cycle]
        return self._all([arc for arc, is_free in zip(cycle, free, strict=True) if not is_free])

    # --------------------------------------------------------------------------------------------------------- shifts

    def _all(self, arcs: Sequence[_Arc]) -> bool:
        """One shift along each arc, or none at all."""
        done: list[tuple[int, int, int]] = []
        for a, b in arcs:
            price = self._price(a, b)
            if price is None:
                break
            item = self._able[a][b][price + 1][-1]
            self._shift(item, a, b)
            done.append((item, a, b))
        else:
            return True
        for item, a, b in reversed(done):
            self._shift(item, b, a)
        return False

    def _price(self, a: int, b: int) -> int | None:
        """What the cheapest shift from a to b costs: -1, 0 or 1; None if there is none. It is the last of its list."""
        for price, items in enumerate(self._able[a][b], -1):
            while items:
                chosen = self._chosen[items[-1]]
                if a in chosen and b not in chosen and b in self._instead(items[-1], a):
                    return price
                items.pop()
        return None

    def _shift(self, item: int, a: int, b: int) -> None:
        self._chosen[item].remove(a)
        self._chosen[item].add(b)
        self.load[a] -= 1
        self.load[b] += 1
        self.shifts += 1
        self._note(item)

    def _note(self, item: int) -> None:
        """Every shift that an item can make now."""
        chosen, homes = self._chosen[item], self._homes[item]
        for a in chosen:
            able, nearer = self._able[a], 1 - (a not in homes)
            for b in self._instead(item, a):
                if b not in chosen:
                    able[b][nearer + (b not in homes)].append(item)


def _is_cheapest(price: Sequence[Sequence[int]]) -> bool:
    """Whether it is certain that no cycle costs less than nothing (Bellman and Ford, from everywhere at once)."""
    arcs = [(a, b, one) for a, row in enumerate(price) for b, one in enumerate(row) if one < _FAR]
    cost = [0] * len(price)
    for _ in range(_LOOKS_MAX):
        falls = False
        for a, b, one in arcs:
            if cost[a] + one < cost[b]:
                cost[b], falls = cost[a] + one, True
        if not falls:
            return True
    return False


def _one_more(best: Sequence[Sequence[int]], price: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """The cheapest walks of one arc more than those of `best`: (what they cost, the last but one node of each)."""
    size = len(price)
    arcs = [[(b, one) for b, one in enumerate(row) if one < _FAR] for row in price]
    longer, via = [[_FAR] * size for _ in range(size)], [[0] * size for _ in range(size)]
    for costs, row, last in zip(best, longer, via, strict=True):
        for middle, so_far in enumerate(costs):
            if so_far < _FAR:
                for b, more in arcs[middle]:
                    if so_far + more < row[b]:
                        row[b], last[b] = so_far + more, middle
    return longer, via
