"""Transports that break the contract, each in one way that a real one well might, and the test of the suite that notices.

`test_suites_can_fail.py` runs them; pytest alone does not, because of the name of this file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from replog.errors import UsageError
from replog.messages import ControlledShutdown, ControlledShutdownAnswer, Fetched
from replog.model import Address
from replog.ports import Transport
from replog.testing.transport_contract import TransportContract
from replog.transport.memory import MemoryTransport

WAITING_MAX = 600


class Right(MemoryTransport):
    """Carries everything in order."""

    def carry(self) -> None:
        self.deliver()


class OnlyIntegers(Right):
    """Nobody but brokers can listen."""

    def listen(self, address: Address, receive: Callable[[Address, Any], None]) -> None:
        if not isinstance(address, int):
            raise UsageError(f"{address!r} is no number")
        super().listen(address, receive)


class SenderOfItsTuple(Right):
    """Keeps the last part of a tuple for the whole."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        super().send(sender[-1] if isinstance(sender, tuple) else sender, to, message)


class OnlySmall(Right):
    """Drops what is too large for a datagram, every time."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        if not isinstance(message, Fetched) or sum(part.length for entry in message.entries for part in entry.slices) < 65_000:
            super().send(sender, to, message)


class OnlyFourMiB(Right):
    """Drops what is larger than a library for calls between processes takes as it comes."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        if not isinstance(message, Fetched) or sum(part.length for entry in message.entries for part in entry.slices) <= 4 << 20:
            super().send(sender, to, message)


class AtOnce(Right):
    """Hands a message over inside `send` if nothing waits, once it has got going."""

    def __init__(self) -> None:
        super().__init__()
        self._sent = 0

    def send(self, sender: Address, to: Address, message: Any) -> None:
        super().send(sender, to, message)
        self._sent += 1
        if self._sent > 3 and len(self) == 1 and not self._delivering:
            self.deliver()


class WithinReceive(Right):
    """Hands the answer over before the receiver that has sent it is done."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        super().send(sender, to, message)
        if self._delivering:
            self._delivering = False
            self.deliver()
            self._delivering = True


class TwoThreads(Right):
    """Each half of what waits is handed over by a thread of its own."""

    def carry(self) -> None:
        items = list(self._queue)
        self._queue.clear()
        threads = [threading.Thread(target=self._hand_over, args=(items[start::2],)) for start in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _hand_over(self, items: list[Any]) -> None:
        for listener, sender, message in items:
            listener.receive(sender, message)


class BlocksWhenFull(Right):
    """Waits for room that somebody else would have to make."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        if len(self) >= WAITING_MAX:
            threading.Event().wait()
        super().send(sender, to, message)


class RaisesWhenFull(Right):
    """Lets the sender know that there is no room."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        if len(self) >= WAITING_MAX:
            raise BlockingIOError("no room")
        super().send(sender, to, message)


class DropsForEver(Right):
    """Takes nothing more once it was full."""

    def __init__(self) -> None:
        super().__init__()
        self._was_full = False

    def send(self, sender: Address, to: Address, message: Any) -> None:
        self._was_full |= len(self) >= WAITING_MAX
        if not self._was_full:
            super().send(sender, to, message)


class CrossedWhenFull(Right):
    """Gives what has no room to somebody else."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        super().send(sender, sender if len(self) >= WAITING_MAX else to, message)


class PerSenderThread(Right):
    """Each sender has a thread, as each connection has in many servers: one receiver has several at once."""

    def carry(self) -> None:
        items = list(self._queue)
        self._queue.clear()
        senders = {sender for _listener, sender, _message in items}
        together = threading.Barrier(max(1, len(senders)))
        threads = [threading.Thread(target=self._hand_over, args=(items, sender, together)) for sender in senders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _hand_over(self, items: list[Any], of: Address, together: threading.Barrier) -> None:
        together.wait()
        for listener, sender, message in items:
            if sender == of:
                listener.receive(sender, message)


class DropsLists(Right):
    """Carries one slice of each partition."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        if isinstance(message, Fetched):
            for entry in message.entries:
                entry.slices[1:] = []  # also of what the sender has
        super().send(sender, to, message)


class LosesProduce(Right):
    """Knows three kinds of messages, and drops the others."""

    def send(self, sender: Address, to: Address, message: Any) -> None:
        if isinstance(message, Fetched | ControlledShutdown | ControlledShutdownAnswer):
            super().send(sender, to, message)


class LateUnlisten(Right):
    """Looks for the receiver when a message is there: what was under way to one comes to the next."""

    def __init__(self) -> None:
        super().__init__()
        self._lives: dict[Address, Any] = {}

    def listen(self, address: Address, receive: Callable[[Address, Any], None]) -> None:
        super().listen(address, receive)
        earlier, now = self._lives.get(address), self._listeners[address]
        self._lives[address] = now
        moved = [(now if listener is earlier else listener, sender, message) for listener, sender, message in self._queue]
        self._queue.clear()
        self._queue.extend(moved)


class Closes(Right):
    """Takes nothing more once it is closed, but goes on with what it has."""

    def close(self) -> None:
        self._closed = True

    def send(self, sender: Address, to: Address, message: Any) -> None:
        if not self._closed:
            super().send(sender, to, message)


CAUGHT_BY: dict[type[Right], str] = {
    OnlyIntegers: "test_an_address_may_be_a_tuple",
    SenderOfItsTuple: "test_an_address_may_be_a_tuple",
    OnlySmall: "test_a_large_message_arrives_whole",
    OnlyFourMiB: "test_a_large_message_arrives_whole",
    AtOnce: "test_receive_is_not_called_inside_send",
    WithinReceive: "test_answers_are_sent_from_within_receive",
    TwoThreads: "test_receive_is_called_by_one_thread_at_a_time",
    BlocksWhenFull: "test_send_takes_whatever_waits_already",
    RaisesWhenFull: "test_send_takes_whatever_waits_already",
    DropsForEver: "test_send_takes_whatever_waits_already",
    CrossedWhenFull: "test_send_takes_whatever_waits_already",
    PerSenderThread: "test_several_senders_are_received_one_at_a_time",
    DropsLists: "test_every_kind_of_message_arrives_whole",
    LosesProduce: "test_every_kind_of_message_arrives_whole",
    LateUnlisten: "test_what_was_under_way_does_not_come_to_a_later_listener",
    Closes: "test_what_was_under_way_is_dropped_by_close",
}
"""The wrong transports, and a test of the suite that fails for each."""
RIGHT: dict[type[Right], list[str]] = {Right: sorted(set(CAUGHT_BY.values()))}
"""What they are made of, and the same tests, which pass."""


class TestTransport(TransportContract):
    @pytest.fixture(params=[*CAUGHT_BY, *RIGHT], ids=lambda kind: kind.__name__)
    def ends(self, request: pytest.FixtureRequest) -> tuple[Transport, Transport]:
        if request.param is BlocksWhenFull:
            self.patience_s = 0.5
        wire = request.param()
        return wire, wire

    def pump(self, ends: tuple[Transport, Transport], done: Callable[[], bool]) -> None:
        assert isinstance(ends[0], Right)
        ends[0].carry()
