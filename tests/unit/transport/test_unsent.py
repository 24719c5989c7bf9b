"""A message that fits no frame: whoever said it gets it back, and people hear of it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.transport.harness import Party, fetched, idle, piece, question, settle

from replog import codec, config
from replog import messages as m
from replog.codec import HEADER
from replog.runtime.pump import tell
from replog.slices import MemorySlice
from replog.testing.clock import ManualClock
from replog.transport.tcp import TcpLimits
from replog.transport.tcp.lanes import DATA

Make = Callable[..., Party]


class Pinned(MemorySlice):
    """Counts who lets go of it."""

    released = 0

    def release(self) -> None:
        self.released += 1


def test_the_largest_frame_is_one_number() -> None:
    assert codec.FRAME_BYTES_MAX is config.FRAME_BYTES_MAX
    assert TcpLimits().frame_bytes_max == config.FRAME_BYTES_MAX


@pytest.mark.parametrize("connected", [True, False])
def test_whoever_said_what_is_too_large_gets_it_back(party: Make, connected: bool) -> None:
    one, two = party(1, limits=TcpLimits(frame_bytes_max=100_000)), party(2)
    if connected:
        one.say(2, fetched(1))
        settle([one, two], lambda: bool(two.items))
    pinned = Pinned(0, 1, bytes(100_000))
    large = fetched(2, pinned)
    one.say(2, large)
    one.say(2, fetched(3, piece(b"x" * 90_000)))
    settle([one, two], lambda: bool(one.items) and len(two.items) == 1 + connected)
    ((sender, unsent),) = one.items
    (dropped,) = one.told("message_dropped")
    assert sender == 2
    assert isinstance(unsent, m.Unsent)
    assert (unsent.to, unsent.message, unsent.reason) == (2, large, dropped["reason"])
    assert "allowed are 100000" in unsent.reason
    assert pinned.released == 1
    assert [message.request for message in two.messages] == ([1, 3] if connected else [3])


def wish(number: int, size: int = 0) -> m.Admin:
    return m.Admin(number, "create_topic", {"name": "t" * size})


def nowhere() -> str:
    """Where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


def test_what_waited_for_a_connection_that_was_refused_was_not_sent(party: Make) -> None:
    client, there = party(), nowhere()
    client.say(there, wish(1))
    client.say(there, question(2))
    client.say(there, wish(3))
    settle([client], lambda: bool(client.lost))
    assert [message.request for message in client.unreached] == [1, 3]
    client.say(there, wish(4))  # it is not dialed again so soon
    settle([client], lambda: len(client.lost) == 2)
    assert [message.request for message in client.unreached] == [1, 3, 4]
    assert isinstance(client.items[-1][1], m.Disconnected)


def test_what_nobody_knows_an_address_for_was_not_sent(party: Make) -> None:
    client = party()
    client.say(7, wish(1))
    settle([client], lambda: 7 in client.lost)
    assert client.unreached == [wish(1)]


def test_what_finds_no_room_while_a_broker_is_dialed_was_not_sent_nor_what_it_has_found_there(party: Make) -> None:
    """Whoever hears that something was lost there asks again for all of it: what waits still would be asked for twice."""
    client, broker = party(limits=TcpLimits(output_bytes_max=65_536)), party(1)
    client.say(1, wish(1, 200_000))
    client.say(1, question(2))
    client.say(1, wish(3, 100_000))
    settle([client, broker], lambda: bool(client.lost) and bool(broker.messages))
    assert sorted(message.request for message in client.unreached) == [1, 3]
    idle([client, broker])
    assert [message.request for message in broker.messages] == [2]


@pytest.mark.parametrize("is_told", [True, False])
def test_what_was_queued_for_a_connection_that_had_ended_was_not_sent(party: Make, is_told: bool) -> None:
    client, broker = party(), party(1)
    client.say(1, question(1))
    settle([client, broker], lambda: bool(broker.messages))
    broker.transport.close()
    client.transport.wait(5)  # it is there to be read that the other end has closed
    client.say(1, wish(2))
    if is_told:
        client.transport.handle(client.transport.wait(5), client.transport._now_ms())
    else:
        client.transport.flush()  # written: whoever has it, or had, is gone
    settle([client], lambda: bool(client.lost))
    assert client.unreached == ([wish(2)] if is_told else [])


def test_what_waited_for_a_connection_that_opens_and_ends_was_not_sent(party: Make) -> None:
    client, broker = party(), party(1)
    client.say(1, wish(1))
    client.transport.flush()

    def is_open() -> list[Any]:
        return [one for one in client.transport._connections.open.values() if one.peer_id == 1]

    for _ in range(2_000):
        broker.transport.flush()
        broker.transport.handle(broker.transport.wait(0.002), broker.transport._now_ms())
        client.transport.handle(client.transport.wait(0.002), client.transport._now_ms())
        if is_open():
            break
        client.transport.flush()
    client.transport._connections.end(is_open()[0], "test", abort=True)
    settle([client], lambda: bool(client.lost))
    assert client.unreached == [wish(1)]


def test_what_was_queued_on_a_connection_and_then_for_the_next_was_not_sent(party: Make, clock: ManualClock) -> None:
    """A long silence ends it, which is nobody's loss: what was said just then waits for another one, in vain."""
    client, broker = party(limits=TcpLimits(idle_timeout_ms=1_000)), party(1)
    client.say(1, question(1))
    settle([client, broker], lambda: bool(broker.messages))
    clock.advance(900)
    broker.transport.close()
    client.transport.wait(5)
    client.say(1, wish(2))
    client.transport.handle(client.transport.wait(5), client.transport._now_ms())
    assert client.lost == []
    settle([client], lambda: bool(client.lost))
    assert client.unreached == [wish(2)]


def test_what_waits_for_one_lane_is_given_up_when_another_is_lost(party: Make) -> None:
    """Or the hint that says so would put it in doubt, and it would be sent all the same."""
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    settle([one, two], lambda: bool(two.items))
    one.say(("controller", 2), wish(2))  # on a lane that is yet to be dialed
    one.transport._lost.add(2, DATA)
    settle([one, two], lambda: bool(one.unreached))
    idle([one, two])
    assert one.unreached == [wish(2)]
    assert [type(message).__name__ for message in two.messages] == ["Fetched"]


def test_what_was_sent_on_a_connection_that_ends_is_in_doubt(party: Make) -> None:
    client, broker = party(), party(1)
    client.say(1, wish(1))
    settle([client, broker], lambda: bool(broker.messages))
    broker.transport.close()
    settle([client], lambda: bool(client.lost))
    assert client.unreached == []


def test_an_answer_that_is_too_large_comes_back_with_the_clients_address(party: Make) -> None:
    broker, client = party(1, limits=TcpLimits(frame_bytes_max=100_000)), party()
    client.say(1, question(1))
    settle([broker, client], lambda: bool(broker.items))
    peer = broker.items.pop()[0]
    broker.say(peer, fetched(2, piece(b"x" * 100_000)))
    broker.say(peer, m.ListedOffsets(3, []))
    settle([broker, client], lambda: bool(broker.items) and bool(client.items))
    assert [(sender, message.to) for sender, message in broker.items] == [(peer, peer)]
    assert client.messages == [m.ListedOffsets(3, [])]


def test_a_client_hears_that_its_message_is_larger_than_a_broker_reads(party: Make) -> None:
    broker, client = party(1), party()
    most = TcpLimits().client_meta_bytes_max
    client.say(1, m.Admin(4, "x", {"a": "y" * most}))
    settle([broker, client], lambda: bool(client.items))
    ((_, unsent),) = client.items
    assert unsent.message.request == 4
    assert f"allowed are {most}" in unsent.reason
    assert HEADER.size < most
    assert broker.items == []


def test_people_hear_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tell("message_dropped", {"to": 1})
    tell("peer_connected", {"peer": 1})
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "message_dropped {'to': 1}"),
        (logging.INFO, "peer_connected {'peer': 1}"),
    ]
