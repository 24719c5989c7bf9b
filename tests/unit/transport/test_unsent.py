"""A message that fits no frame: whoever said it gets it back, and people hear of it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import pytest
from tests.unit.transport.harness import Party, fetched, piece, question, settle

from replog import codec, config
from replog import messages as m
from replog.codec import HEADER
from replog.runtime.pump import tell
from replog.slices import MemorySlice
from replog.transport.tcp import TcpLimits

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


def test_what_finds_no_room_while_a_broker_is_dialed_was_not_sent(party: Make) -> None:
    client, broker = party(limits=TcpLimits(output_bytes_max=65_536)), party(1)
    client.say(1, wish(1, 200_000))
    client.say(1, wish(2, 100_000))
    settle([client, broker], lambda: bool(client.lost) and bool(broker.messages))
    assert [message.request for message in client.unreached] == [2]
    assert [message.request for message in broker.messages] == [1]


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
