"""How long copies may take after the last fault: what there is to copy, and what brokers have fetched ahead of their limit for moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from replog.messages import Fetched
from replog.model import PartitionId
from replog.testing.simulator.ledger import Copy, Ledger

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node
    from replog.testing.simulator.plan import Shape
    from replog.testing.simulator.world import World

__all__ = ["Moved", "Patience", "copying_ms"]

_LOOK_MS: Final = 100
"""Between two looks at how much there is to copy."""


class Moved:
    """By when each broker has paid for what moves have brought to it, at most: kept by what arrives there, since a throttle that reckons
    wrongly is among the things that are to be found."""

    def __init__(self, shape: Shape) -> None:
        self._bytes_per_s = shape.limits.reassignment_bytes_per_s / (1 + 2 * shape.drift)
        self._added: set[tuple[PartitionId, int]] = set()
        """Copies that a move has made or kept there at some time. Each broker hears of its beginning and its end in its own time."""
        self._paid_ms: dict[int, float] = {}

    def stored(self, ledgers: Mapping[PartitionId, Ledger]) -> None:
        """The store has other assignments."""
        for identity, ledger in ledgers.items():
            assignment = ledger.assignment
            if assignment is not None and assignment.original:
                self._added.update((identity, broker) for broker in assignment.replicas if broker not in assignment.original)

    def arrived(self, broker: int, message: Fetched, now_ms: int) -> None:
        """A broker is handed an answer."""
        size = sum(piece.length for entry in message.entries if (entry.partition, broker) in self._added for piece in entry.slices)
        if size:
            self._paid_ms[broker] = max(self._paid_ms.get(broker, 0.0), now_ms) + size * 1_000 / self._bytes_per_s

    def owed_ms(self, node: Node) -> int:
        """So much virtual time passes until the process of a broker is even with its limit, as it says itself, but no longer than that.

        What it has fetched for a move that was given up counts as well, though that copy is gone.
        """
        if node.broker is None:
            return 0
        now_ms, free_ms = node.world.now_ms, node.broker._fetching._throttle._free_ms
        said_ms = node.clock.delay_until(int(free_ms), now_ms) if free_ms > node.clock.now(now_ms) else 0
        return min(said_ms, max(0, int(self._paid_ms.get(node.broker_id, 0.0)) + 1 - now_ms))


class Patience:
    """What one promise allows for copies on top of its own time.

    The most that there was to copy at any time since it began: what retention takes away was fetched all the same, or is paid for. And
    only until nobody can have an append under way any more, so that a log which grows by itself is not waited for.
    """

    def __init__(self, world: World) -> None:
        moved = world.moved
        self._owed_ms = 0 if moved is None else max(map(moved.owed_ms, world.nodes.values()))
        self._grows_until_ms = world.now_ms + 2 * world.plan.shape.client_config().delivery_timeout_ms  # clocks of clients drift
        self._most_ms = 0
        self._look_ms = world.now_ms

    def look(self, world: World) -> None:
        """See what there is to copy now."""
        if self._look_ms <= world.now_ms <= self._grows_until_ms:
            self._look_ms = world.now_ms + _LOOK_MS
            self._most_ms = max(self._most_ms, copying_ms(world))

    @property
    def ms(self) -> int:
        """So much virtual time, from when it began."""
        return self._owed_ms + self._most_ms


def copying_ms(world: World) -> int:
    """What it may take to copy the largest log, one fetch after the other, if each brings half of what it may.

    Where all that a fetch brings is little, and where moves are slow or few at a time, each log waits for all the others.
    """
    shape, limits = world.plan.shape, world.plan.shape.limits
    in_turn = limits.fetch_bytes_max or limits.slice_partitions_max or limits.reassignments_max or limits.reassignment_bytes_per_s
    sizes = [_size(world.checks.copies(identity).values()) for identity in world.checks.ledgers]
    size = sum(sizes) if in_turn else max(sizes, default=0)
    fetches = 2 * size // min(shape.fetch_partition_bytes, world.config.fetch_bytes_max)
    slow_ms = int(size * 1_000 * (1 + 2 * shape.drift)) // limits.reassignment_bytes_per_s if limits.reassignment_bytes_per_s else 0
    return fetches * (4 * shape.delay_ms + 2) + slow_ms


def _size(copies: Iterable[Copy]) -> int:
    """Of the largest, also of those that no process has opened yet."""
    return max((copy.bytes_from(copy.start) for copy in copies), default=0)
