"""The network of proxies: each direction by itself, and what arrives afterwards."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.bare_socket import BareSocket
from tests.chaos.links import CLIENT, Links

from replog.codec import decode, frame_length
from replog.messages.transport import Handshake
from replog.testing.eventually import eventually

PATIENCE_S = 30.0


class Echo:
    """Says everything back, and remembers it."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.heard: list[int] = []
        self.ended = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                while head := stream.read(4):
                    frame = head + stream.read(frame_length(head) - 4)
                    self.heard.append(decode(frame).lane)
                    connection.sendall(frame)
        except OSError:
            pass
        finally:
            self.ended += 1


class End:
    """A broker, or a client, that talks to broker 1."""

    def __init__(self, address: str, broker_id: int) -> None:
        self.broker_id = broker_id
        self.bare = BareSocket(address, patience_s=PATIENCE_S)

    def say(self, number: int) -> None:
        role = "client" if self.broker_id < 0 else "broker"
        self.bare.send(Handshake("", role, self.broker_id, 1, number, 1, 1))

    def hear(self) -> int:
        return int(self.bare.read().lane)

    def ask(self, number: int) -> int:
        self.say(number)
        return self.hear()

    def has_heard_nothing(self) -> bool:
        self.bare.socket.setblocking(False)
        try:
            self.bare.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.bare.socket.settimeout(PATIENCE_S)
        return False


@pytest.fixture
def end(links: Links) -> Iterator[Callable[[int], End]]:
    made: list[End] = []

    def make(broker_id: int) -> End:
        made.append(End(links.addresses[1], broker_id))
        return made[-1]

    yield make
    for one in made:
        one.bare.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.socket.close()


@pytest.fixture
def links(echo: Echo) -> Iterator[Links]:
    with Links({1: echo.port}) as made:
        yield made


Connect = Callable[[int], End]


@pytest.mark.parametrize(("pair", "is_heard"), [((CLIENT, 1), False), ((1, CLIENT), True)])
def test_one_direction_is_cut_for_one_end_and_what_it_held_arrives_later(
    links: Links, echo: Echo, end: Connect, pair: tuple[int, int], is_heard: bool
) -> None:
    client, broker = end(-1), end(2)
    assert client.ask(1) == broker.ask(1) == 1
    links.change([pair], cut=True)
    for number in (5, 6):
        client.say(number)
    if is_heard:
        eventually(lambda: echo.heard[-2:] == [5, 6])
    assert [broker.ask(number) for number in range(10, 60)] == list(range(10, 60))
    assert (5 in echo.heard) is is_heard
    assert client.has_heard_nothing()
    links.mend()
    assert [client.hear(), client.hear()] == [5, 6]


def test_who_connects_during_a_cut_is_answered_after_it(links: Links, end: Connect) -> None:
    links.change([(CLIENT, 1)], cut=True)
    late = end(-1)
    late.say(7)
    assert end(2).ask(1) == 1
    assert late.has_heard_nothing()
    links.mend()
    assert late.hear() == 7


def test_frames_are_repeated(links: Links, end: Connect) -> None:
    client = end(-1)
    assert client.ask(1) == 1
    links.change([(CLIENT, 1)], repeats=1.0)
    client.say(3)
    assert [client.hear(), client.hear()] == [3, 3]
    assert links.repeated == 1


@pytest.mark.parametrize("change", [{"delay_s": 0.01}, {"bytes_per_s": 10_000.0}])
def test_frames_that_are_late_keep_their_order(links: Links, end: Connect, change: dict[str, float]) -> None:
    client = end(-1)
    links.change([(CLIENT, 1), (1, CLIENT)], **change)
    for number in range(10):
        client.say(number)
    assert [client.hear() for _ in range(10)] == list(range(10))


def test_a_reset_ends_both_ends_and_the_next_connection_works(links: Links, echo: Echo, end: Connect) -> None:
    client = end(-1)
    assert client.ask(1) == 1
    assert links.reset(2) == 0
    assert links.reset(1) == 1
    with pytest.raises(ConnectionResetError):
        client.hear()
    eventually(lambda: echo.ended == 1)
    assert end(-1).ask(1) == 1


def test_a_broker_that_is_not_there(links: Links, end: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        links.targets[1] = gone.getsockname()[1]
    client = end(-1)
    client.say(7)
    eventually(client.bare.is_cut_off)
