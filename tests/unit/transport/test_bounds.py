"""What one message, and one turn, may cost: clients are trusted with less than brokers, and nobody holds up the others."""

from __future__ import annotations

import fcntl
import termios
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.transport.harness import P0, Party, Stranger, idle, question, settle

from replog import messages as m
from replog.codec import encode
from replog.testing.clock import ManualClock
from replog.testing.eventually import eventually
from replog.transport.tcp import TcpLimits
from replog.transport.tcp import fitting as fitting_module

Make = Callable[..., Party]
Bare = Callable[[str], Stranger]

TIGHT = TcpLimits(client_items_max=1_000, client_meta_bytes_max=40_000)


def reasons(broker: Party) -> list[str]:
    return [fields["reason"] for fields in broker.told("peer_disconnected")]


def fetch(partitions: int, replica: int = -1) -> m.Fetch:
    return m.Fetch(1, replica, 5, 0, -1, 0, 1, 1, [m.FetchEntry(P0, 0, 0, -1, 1)], [P0] * (partitions - 1))


def greeted(broker: Party, stranger: Bare, **who: Any) -> Stranger:
    one = stranger(broker.endpoint)
    one.hello(**who)
    settle([broker], lambda: bool(broker.told("peer_connected")))
    idle([broker], 2)
    assert one.read().error == 0
    return one


BOMBS = {
    "items": (fetch(1_001), "misbehaved: Fetch.forgotten: up to here the message claims 1001 items; allowed are 1000"),
    "plain items": (
        m.Admin(1, "x", {"a": [[]] * 2_000}),
        "misbehaved: Admin.arguments: up to here the message claims 2001 items; allowed are 1000",
    ),
    "bytes": (m.Admin(1, "x" * 40_000, {}), "misbehaved: a message of 40007 bytes beside its batches; allowed are 40000"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_client_whose_message_is_too_much_to_decode_is_cut_off_and_others_are_served(party: Make, stranger: Bare, name: str) -> None:
    message, reason = BOMBS[name]
    broker, client = party(1, limits=TIGHT), party()
    one = greeted(broker, stranger)
    one.send(message)
    settle([broker], lambda: bool(reasons(broker)))
    assert reasons(broker) == [reason]
    assert one.is_cut_off()
    client.say(1, question(1))
    settle([broker, client], lambda: bool(broker.messages))
    assert broker.messages == [question(1)]


def test_before_the_handshake_the_limits_of_clients_hold(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TcpLimits(client_items_max=3))
    one = stranger(broker.endpoint)
    one.send(m.Admin(1, "x", {"a": [1, 2, 3]}))
    settle([broker], lambda: bool(reasons(broker)))
    assert "claims 4 items; allowed are 3" in reasons(broker)[0]


def test_brokers_may_say_more_to_each_other_and_to_clients(party: Make, stranger: Bare) -> None:
    one, two, client = party(1, limits=TIGHT), party(2, limits=TIGHT), party(limits=TIGHT)
    one.say(2, fetch(5_000, replica=1))
    client.say(1, question(1))
    settle([one, two, client], lambda: bool(two.items) and bool(one.items))
    assert two.messages == [fetch(5_000, replica=1)]
    answer = m.ListedOffsets(1, [m.ListedOffset(P0)] * 5_000)
    one.say(("peer", 1), answer)
    settle([one, client], lambda: bool(client.items))
    assert client.messages == [answer]
    assert one.lost == two.lost == client.lost == []


def test_brokers_have_limits_too(party: Make) -> None:
    one, two = party(1), party(2, limits=TcpLimits(items_max=100))
    one.say(2, fetch(101, replica=1))
    settle([one, two], lambda: bool(reasons(two)))
    assert reasons(two) == ["misbehaved: Fetch.forgotten: up to here the message claims 101 items; allowed are 100"]


def test_a_turn_that_takes_long_leaves_the_other_connections_to_the_next(
    party: Make, stranger: Bare, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends what is slow to decode, over many connections, does not keep the broker from its session."""
    broker = party(1)
    guests = []
    for number in range(3):
        guests.append(stranger(broker.endpoint))
        guests[-1].hello()
        settle([broker], lambda want=number: len(broker.told("peer_connected")) == want + 1)  # type: ignore[misc]
    real = fitting_module.decode

    def slow(frame: Any, **bounds: Any) -> Any:
        clock.advance(150)
        return real(frame, **bounds)

    monkeypatch.setattr(fitting_module, "decode", slow)
    wish = b"".join(encode(m.Admin(1, "x" * 70_000, {})))
    for one in guests:
        one.socket.sendall(wish)
    open_ = list(broker.transport._connections.open)
    eventually(lambda: all(arrived(fd) == len(wish) for fd in open_))
    turns = [broker.transport.handle(broker.transport.wait(5), clock.now_ms())]
    assert broker.transport.next_poll_ms() == clock.now_ms()
    turns.append(broker.transport.handle([], clock.now_ms()))
    assert turns == [2, 1]


def arrived(fd: int) -> int:
    """Bytes that can be read from a socket."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), "little")
