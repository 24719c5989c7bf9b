"""Every built-in transport keeps the contract; what is particular to the one in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from tests.pages import python

from replog.model import Address
from replog.ports import Transport
from replog.testing.transport_contract import TransportContract
from replog.transport.memory import Envelope, MemoryTransport
from replog.transport.tcp import TcpTransport


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class TestMemoryTransport(TransportContract):
    @pytest.fixture
    def ends(self) -> tuple[Transport, Transport]:
        transport = MemoryTransport()
        return transport, transport

    def pump(self, ends: tuple[Transport, Transport], done: Callable[[], bool]) -> None:
        assert isinstance(ends[0], MemoryTransport)
        while ends[0].deliver(100):
            pass


def test_messages_are_shared_and_keep_their_order() -> None:
    transport = MemoryTransport()
    got: list[object] = []
    transport.listen(1, lambda _, message: got.append(message))
    sent = [object() for _ in range(5)]
    for message in sent:
        transport.send(2, 1, message)
    assert got == []
    assert len(transport) == 5
    assert transport.deliver() == 5
    assert [id(message) for message in got] == [id(message) for message in sent]


def test_deliver_hands_over_at_most_its_limit_and_zero_means_quiet() -> None:
    transport = MemoryTransport()
    got: list[int] = []
    transport.listen(1, lambda _, message: got.append(message))
    transport.listen(3, lambda *_: None)
    for number in range(4):
        transport.send(2, 3, number)
        transport.send(2, 1, number)
    transport.unlisten(3)
    assert transport.deliver(1) == 1
    assert transport.deliver(2) == 2
    assert got == [0, 1, 2]
    assert transport.deliver(5) == 1
    assert transport.deliver(5) == 0


def test_what_receivers_send_is_delivered_by_the_same_call_but_not_within_the_receiver() -> None:
    transport = MemoryTransport()
    trace: list[str] = []

    def ping(_: Address, number: int) -> None:
        trace.append(f"ping {number}")
        if number < 3:
            transport.send(1, 2, number)
        trace.append("done")

    def pong(_: Address, number: int) -> None:
        trace.append(f"pong {number}")
        transport.send(2, 1, number + 1)

    transport.listen(1, ping)
    transport.listen(2, pong)
    transport.send(2, 1, 1)
    assert transport.deliver() == 5
    assert trace == ["ping 1", "done", "pong 1", "ping 2", "done", "pong 2", "ping 3", "done"]


def test_messages_to_an_earlier_life_do_not_reach_a_later_one() -> None:
    transport = MemoryTransport()
    got: list[int] = []
    transport.listen(1, lambda _, message: got.append(message))
    transport.send(2, 1, 1)
    transport.unlisten(1)
    transport.listen(1, lambda _, message: got.append(-message))
    transport.send(2, 1, 2)
    transport.deliver()
    assert got == [-2]


def test_a_receiver_that_raises_loses_its_message_only() -> None:
    transport = MemoryTransport()
    got: list[int] = []

    def receive(_: Address, number: int) -> None:
        if number == 1:
            raise ValueError("no ones")
        got.append(number)

    transport.listen(1, receive)
    for number in range(3):
        transport.send(2, 1, number)
    with pytest.raises(ValueError, match="no ones"):
        transport.deliver()
    assert transport.deliver() == 1
    assert got == [0, 2]


def test_intercept_drops_repeats_and_reorders() -> None:
    held: list[Envelope] = []

    def intercept(sender: Address, to: Address, message: Any) -> Iterable[Envelope]:
        if message == "lose":
            return []
        if message == "hold":
            held.append((sender, to, message))
            return []
        if message == "twice":
            return [(sender, to, message)] * 2
        released = [(sender, to, message), *held]
        held.clear()
        return released

    transport = MemoryTransport(intercept=intercept)
    got: list[str] = []
    transport.listen(1, lambda _, message: got.append(message))
    for message in ("lose", "hold", "twice", "go"):
        transport.send(2, 1, message)
    transport.deliver()
    assert got == ["twice", "twice", "go", "hold"]


class TestTcpTransport(TransportContract):
    C = ("controller", TransportContract.A)  # a frame has no place for other tuples

    @pytest.fixture
    def ends(self) -> Iterator[tuple[Transport, Transport]]:
        endpoints: dict[int, str] = {}
        both = [TcpTransport(role="broker", broker_id=n, now_ms=now_ms, endpoint_of=endpoints.get) for n in (self.A, self.B)]
        for transport in both:
            transport.cluster_id = "c"
            endpoints[transport.broker_id] = transport.serve("tcp://127.0.0.1:0")
        self.asker = TcpTransport(role="client", now_ms=now_ms, endpoint_of=endpoints.get)
        yield both[0], both[1]
        for transport in (*both, self.asker):
            transport.close()

    def client(self, ends: tuple[Transport, Transport]) -> Transport:
        return self.asker

    def pump(self, ends: tuple[Transport, Transport], done: Callable[[], bool]) -> None:
        quiet = 0
        while not done() and quiet < 20:  # loopback: 10 ms of silence each time mean that nothing is under way
            taken = [end.poll(0.01) for end in (*ends, self.asker) if isinstance(end, TcpTransport)]
            quiet = 0 if any(taken) else quiet + 1


def of_the_guide() -> Any:
    """The class that docs/writing-a-transport.md shows, made by running its block."""
    names: dict[str, Any] = {}
    code = next(code for _, code in python("docs/writing-a-transport.md") if "class Stutter" in code)
    type(of_the_guide)(compile(code, "docs/writing-a-transport.md", "exec"), names)()
    return names["Stutter"]


class TestTransportOfTheGuide(TransportContract):
    @pytest.fixture
    def ends(self) -> tuple[Transport, Transport]:
        wire = of_the_guide()(every=0)
        return wire, wire

    def pump(self, ends: tuple[Transport, Transport], done: Callable[[], bool]) -> None:
        ends[0].deliver()  # type: ignore[attr-defined]
