"""Nothing grows without bound: neither what waits in memory, nor the number of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from replog.messages import AlterIsr
from replog.model import Address, PartitionId
from replog.testing.simulator.invariants.base import Invariant

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node

__all__ = ["EVENTS_MAX", "LIMITS", "PROPOSALS_MAX", "BuffersAreBounded", "MessagesAreBounded", "ProposalsAreBounded"]

EVENTS_MAX: Final = 1_000
"""Per broker or client and second of virtual time. The busiest runs have 500: clients that hardly think, at one broker."""

PROPOSALS_MAX: Final = 8
"""Per partition and second, while the store stands still: who is refused makes a pause of 300 ms."""

LIMITS: Final[dict[str, int]] = {
    "messages of one event": 300,
    "appends that wait": 1_000,
    "fetches of clients that wait": 500,
    "fetches under way in one session": 100,
    "proposals under way": 1_000,
    "gaps among the notices applied": 500,
    "notices that a broker has not confirmed": 500,
    "wishes under way": 1_000,
    "works put aside": 1_000,
    "events to come": 10_000,
}
"""What may wait at one broker (the last: in the whole run): several times what the busiest runs have."""

_MESSAGES_MAX: Final = LIMITS["messages of one event"]

_EVERY: Final = 4
"""One look in so many is at everything."""


class BuffersAreBounded(Invariant):
    """Queues, sessions and requests under way stay within limits that follow from the size of the cluster."""

    name = "S20"
    source = "KIP-227, KAFKA-9952; seed V3, S30"

    def __init__(self) -> None:
        self._looks = 0

    def handled(self, node: Node) -> None:
        """Compare with the limits."""
        assert node.broker is not None
        if len(node.broker.outbox.messages) > _MESSAGES_MAX:
            self.broken(f"broker {node.broker_id} sends {len(node.broker.outbox.messages)} messages at once")
        stages = node.broker._publishing.stages
        if stages.bytes > node.world.config.stage_bytes_max:
            self.broken(f"broker {node.broker_id} has put {stages.bytes} bytes aside, {node.world.config.stage_bytes_max} are allowed")
        self._looks += 1
        if self._looks % _EVERY == 0:
            for what, found in self.measure(node):
                limit = LIMITS.get(what, 2 * (len(node.world.nodes) - 1))
                if found > limit:
                    self.broken(f"broker {node.broker_id} has {found} {what}; at most {limit} are expected")

    def measure(self, node: Node) -> Iterator[tuple[str, int]]:
        """What there is of each kind."""
        broker, controller = node.broker, node.controller
        assert broker is not None
        yield "appends that wait", broker._waiting.count
        yield "sessions of followers", len(broker._sessions._followers)
        yield "fetches of clients that wait", len(broker._sessions._clients)
        for fetcher in broker._fetching._fetchers.values():
            yield "fetches under way in one session", len(fetcher.unanswered)
        yield "proposals under way", len(broker._proposals._requests)
        yield "gaps among the notices applied", broker._commands.gaps
        yield "wishes under way", len(broker._forwarding._under_way)
        yield "works put aside", len(broker._publishing.stages._works)
        if controller is not None and controller.is_controller:
            for count in controller.unacknowledged.values():
                yield "notices that a broker has not confirmed", count
        yield "events to come", len(node.world._heap)


class MessagesAreBounded(Invariant):
    """So many events in one second of virtual time are a storm, which is a fault of its own."""

    name = "S21"
    source = "M24; KIP-841, KAFKA-2143"
    protocol = ("L8",)

    def passed(self, second: int, events: int, members: int) -> None:
        """One more event, and never so many in a second before."""
        if events > EVENTS_MAX * members:
            self.broken(f"{events} events in second {second}")


class ProposalsAreBounded(Invariant):
    """A leader that is refused makes a pause: while its partition stays as it is, it does not ask again and again for another ISR."""

    name = "S21"
    source = "KIP-841; P-27"
    protocol = ("L8",)

    def __init__(self) -> None:
        self._second = 0
        self._asked: dict[tuple[int, PartitionId, int, int], set[int]] = {}
        """(broker, partition, leader epoch, partition epoch) -> numbers of proposals in this second. One that is sent again counts once."""

    def said(self, node: Node, to: Address, message: Any) -> None:
        """Count what it asks for."""
        if type(message) is not AlterIsr:
            return
        second = node.world.now_ms // 1_000
        if second != self._second:
            self._second = second
            self._asked.clear()
        for entry in message.entries:
            asked = self._asked.setdefault((node.broker_id, entry.partition, entry.leader_epoch, entry.partition_epoch), set())
            asked.add(entry.proposal)
            if len(asked) > PROPOSALS_MAX:
                self.broken(f"broker {node.broker_id} asks {len(asked)} times in second {second} to change the ISR of {entry.partition!r}")
