"""A turn of the loop takes as much of what clients ask as it has time for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from replog.model import Address
from replog.ports import Outbox
from replog.runtime.loop import Loop
from replog.runtime.pump import Pump
from replog.runtime.seat import Seat
from replog.testing.clock import ManualClock
from replog.transport.tcp import TcpTransport
from replog.transport.tcp.inbox import Inbox
from replog.transport.tcp.turns import DELIVER_MS_MAX, DELIVER_REQUESTS_MAX
from replog.transport.tcp.whereabouts import Whereabouts, nobody


class Wire:
    """A transport of which only the inbox is there."""

    def __init__(self) -> None:
        self.inbox = Inbox(Whereabouts(nobody))
        self.flushes = 0

    def listen(self, address: Address, receive: Callable[[Address, Any], None]) -> None:
        self.inbox.receivers[address] = receive

    def wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        return []

    def handle(self, ready: list[tuple[int, int]], now_ms: int) -> int:
        return self.inbox.deliver()

    def deliver(self) -> int:
        return self.inbox.deliver()

    @property
    def has_asked(self) -> bool:
        return bool(self.inbox.clients)

    def next_poll_ms(self) -> int | None:
        return 0 if self.inbox.brokers or self.inbox.clients else None

    def flush(self) -> None:
        self.flushes += 1


class Slow:
    """An actor that takes its time over each message."""

    def __init__(self, clock: ManualClock, takes_ms: int) -> None:
        self.outbox = Outbox()
        self.heard: list[Any] = []
        self._clock, self._takes_ms = clock, takes_ms

    def receive(self, sender: Address, message: Any, now_ms: int) -> None:
        self.heard.append(message)
        self._clock.advance(self._takes_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        pass

    def deadline_ms(self) -> int | None:
        return None


@pytest.mark.parametrize(
    ("takes_ms", "turns"), [(0, [1_000]), (2, [128] * 7 + [104]), (DELIVER_MS_MAX, [DELIVER_REQUESTS_MAX] * 15 + [40])]
)
def test_what_is_left_of_a_turn_comes_in_the_next(takes_ms: int, turns: list[int]) -> None:
    clock, wire = ManualClock(), Wire()
    pump = Pump(messages_max=10_000, now_ms=clock.now_ms, wall_ms=clock.wall_ms)
    actor = Slow(clock, takes_ms)
    pump.seat(Seat(1, actor))
    loop = Loop(pump, cast(TcpTransport, wire), wait_ms_max=1_000_000)
    loop.listen(1)
    wire.inbox.clients.extend((1, ("peer", 1), number) for number in range(1_000))
    taken = []
    while wire.inbox.clients:
        before = len(actor.heard)
        assert loop.turn() == len(actor.heard) - before
        taken.append(len(actor.heard) - before)
        assert (loop.next_turn_s() == 0) is bool(wire.inbox.clients)
    assert taken == turns
    assert actor.heard == [*range(1_000)]
    assert wire.flushes >= 1_000 // DELIVER_REQUESTS_MAX, "answers leave with each portion"
