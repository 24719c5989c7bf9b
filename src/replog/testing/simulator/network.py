"""The way between nodes: messages are late, lost, repeated and overtaken; links break one way or both."""

from __future__ import annotations

import random
from typing import Any, Final

from replog.messages import Fetched
from replog.model import Address
from replog.testing.simulator.plan import Shape

__all__ = ["Network", "node_of"]

_COPIES_MAX: Final = 3


def node_of(address: Address) -> Address:
    """Who carries an actor: the broker's id for its three actors, the client itself for a client."""
    if type(address) is tuple and address[0] != "client":
        return address[1]  # type: ignore[no-any-return]
    return address


class Network:
    """Decides the fate of each message. Faults nest: a link works again when every fault on it has ended."""

    def __init__(self, shape: Shape, chance: random.Random) -> None:
        self._shape = shape
        self._chance = chance
        self._cuts: dict[tuple[Address, Address], int] = {}
        self._isolated: dict[Address, int] = {}
        self._lagging: dict[Address, int] = {}
        self._slowed: dict[tuple[Address, Address], int] = {}
        self._resets: dict[Address, int] = {}
        self.calm = False
        """No faults any more: every message arrives, soon and once; unless somebody is isolated later."""
        self.lost = 0
        self.repeated = 0

    def cut(self, one: Address, other: Address, step: int, *, both: bool) -> None:
        """Cut (step 1) or mend (step -1) the link from `one` to `other`."""
        for link in ((one, other), (other, one)) if both else ((one, other),):
            self._cuts[link] = self._cuts.get(link, 0) + step

    def isolate(self, node: Address, step: int) -> None:
        """Cut all links of a node, or mend them."""
        self._isolated[node] = self._isolated.get(node, 0) + step

    def lag(self, node: Address, step: int) -> None:
        """Lose, or no longer lose, the fetch answers to a node."""
        self._lagging[node] = self._lagging.get(node, 0) + step

    def slow(self, one: Address, other: Address, step: int) -> None:
        """Make the link between two nodes slow (step 1), or as before."""
        for link in ((one, other), (other, one)):
            self._slowed[link] = self._slowed.get(link, 0) + step

    def reset(self, node: Address) -> None:
        """Break all connections of a node: what is on the way is lost."""
        self._resets[node] = self._resets.get(node, 0) + 1

    def link_life(self, sender: Address, to: Address) -> int:
        """Grows whenever the connection between two nodes breaks: what was sent under another life does not arrive."""
        if not self._resets:
            return 0
        one, other = node_of(sender), node_of(to)
        return 0 if one == other else self._resets.get(one, 0) + self._resets.get(other, 0)

    def heal(self) -> None:
        """End every fault."""
        self.calm = True
        self._slowed.clear()
        self._cuts.clear()
        self._isolated.clear()
        self._lagging.clear()

    def reaches(self, one: Address, other: Address) -> bool:
        """Whether a message could pass now."""
        if self._cuts and self._cuts.get((one, other)):
            return False
        return not (self._isolated and (self._isolated.get(one) or self._isolated.get(other)))

    def passages(self, one: Address, other: Address, message: Any) -> list[tuple[int, int]]:
        """For each copy of a message from one node to another that is not lost: after how many ms it arrives, and in which life of the
        connection it was sent."""
        if one == other:
            return [(0, 0)]
        life = self._resets.get(one, 0) + self._resets.get(other, 0) if self._resets else 0
        return [(delay, life) for delay in self._delays(one, other, message)]

    def _delays(self, one: Address, other: Address, message: Any) -> list[int]:
        chance, shape = self._chance, self._shape
        if self.calm:  # nothing gets lost, but at a broker that is kept apart all the same
            return [1 + _below(chance, 5)] if self.reaches(one, other) else []
        if not self.reaches(one, other) or (self._lagging.get(other) and isinstance(message, Fetched)) or chance.random() < shape.drop:
            self.lost += 1
            return []
        slowed = bool(self._slowed) and bool(self._slowed.get((one, other)))
        delays = [self._delay(slowed=slowed)]
        while len(delays) < _COPIES_MAX and chance.random() < shape.repeat:
            delays.append(self._delay(slowed=slowed))
            self.repeated += 1
        return delays

    def _delay(self, *, slowed: bool) -> int:
        chance, shape = self._chance, self._shape
        if slowed or chance.random() < shape.slow:
            return chance.randint(shape.delay_ms, shape.slow_ms)
        return 1 + _below(chance, shape.delay_ms)


def _below(chance: random.Random, bound: int) -> int:
    """What `chance.randrange(bound)` gives and takes, in a third of its time: one for each message."""
    bits = bound.bit_length()
    found = chance.getrandbits(bits)
    while found >= bound:
        found = chance.getrandbits(bits)
    return found
