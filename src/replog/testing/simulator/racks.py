"""Racks: where brokers and clients stand, and whether the copies of a partition are spread over them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

from attrs import define

from replog.client.core import ClientCore
from replog.client.fetching import FetchOp
from replog.errors import Code
from replog.messages import FetchedEntry
from replog.model import Address

__all__ = ["NearFetch", "Placements", "draw", "is_balanced", "rack_of"]

_SHARE: Final = 0.25
"""Share of runs with racks."""

Staying = frozenset[tuple[int, int]]
"""(broker, broker epoch) of those on which a controller puts new copies."""


def draw(chance: random.Random, brokers: int) -> tuple[str, ...]:
    """The rack of each broker, mostly none: two or three racks, of any size."""
    drawn, racks = chance.random() < _SHARE, "abc"[: chance.choice((2, 2, 3))]
    chosen = tuple(chance.choice(racks) for _ in range(brokers))
    return chosen if drawn and brokers > 1 else ()


def rack_of(racks: Sequence[str], number: int) -> str | None:
    """Where a broker or a client stands; those beyond the last stand where the first ones do."""
    return racks[(number - 1) % len(racks)] if racks else None


def is_balanced(racks: Sequence[str], replicas: Sequence[int], brokers: Iterable[int]) -> bool:
    """Whether no rack has a second copy before each has one, nor a third before each that can has two."""
    sizes = Counter(rack_of(racks, broker) for broker in brokers)
    copies = Counter(rack_of(racks, broker) for broker in replicas)
    return all(copies[rack] >= min(size, max(copies.values()) - 1) for rack, size in sizes.items())


@define
class Placements:
    """Whether new partitions are spread over the racks of those brokers that a controller had for them, from when it heard of the wish
    until it was stored: no rack has two copies while one of those racks has none."""

    racks: Sequence[str]
    staying: Callable[[Address], Staying | None]
    """What the controller at an address has now; None: it is not in office."""
    hit: Callable[[str], None]
    """A mark."""
    _heard: dict[Hashable, list[tuple[Address, Staying]]]

    @classmethod
    def none(cls) -> Placements:
        """Nobody stands anywhere."""
        return cls((), lambda _: None, lambda _: None, {})

    def heard(self, wish: Hashable, controller: Address) -> None:
        """A controller in office is about to handle a copy of a wish."""
        if self.racks:
            self._heard.setdefault(wish, []).append((controller, self.staying(controller) or frozenset()))

    def judged(self, placed: Iterable[Sequence[int]], wishes: Iterable[Hashable]) -> str:
        """What is wrong with new partitions by one of these wishes; empty: nothing."""
        if not self.racks:
            return ""
        steady = [then & (self.staying(controller) or frozenset()) for wish in wishes for controller, then in self._heard.get(wish, ())]
        for replicas in placed:
            copies = Counter(rack_of(self.racks, broker) for broker in replicas)
            if len(copies) > 1:
                self.hit("a new partition is spread over racks")
            if max(copies.values()) == 1:
                continue
            self.hit("a rack has two copies of a new partition")
            without = [sorted(broker for broker, _ in one if rack_of(self.racks, broker) not in copies) for one in steady]
            if without and all(without):
                return f"copies on {list(replicas)}, racks are {'+'.join(self.racks)}, and there were brokers {without[0]} all the time"
        return ""


class NearFetch(FetchOp):
    """A fetch that asks an in-sync copy in a rack first, as readers in Spark do; what that cannot serve the leader is asked for."""

    def __init__(self, *args: Any, rack: str, **given: Any) -> None:
        super().__init__(*args, **given)
        self._rack = rack
        self.near = False
        """Whether a copy that does not lead is asked, or was the one that has answered."""

    def target(self, core: ClientCore, now_ms: int) -> Address | None:
        """The copy, at the first try."""
        leader = super().target(core, now_ms)
        self.near = False
        known = core.view.topics.get(self.topic)
        if leader is None or self.failures or self._validating or known is None:
            return leader
        brokers = core.view.brokers
        copies = [b for b in known.partitions[self.partition].isr if b in brokers and brokers[b].rack == self._rack]
        self.near = bool(copies) and leader not in copies
        return copies[0] if self.near else leader

    def _fetched(self, core: ClientCore, entry: FetchedEntry, leader_epoch: int, now_ms: int) -> int:
        if self.near and entry.error == Code.OFFSET_OUT_OF_RANGE:
            return Code.REPLICA_NOT_AVAILABLE  # it may lag behind; the leader knows
        return super()._fetched(core, entry, leader_epoch, now_ms)
