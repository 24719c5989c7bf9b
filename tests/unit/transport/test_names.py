"""Names of hosts: whoever answers for them may be silent, and nobody else waits for that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.transport.harness import Party, fetched, idle, question, settle

from replog.testing.clock import ManualClock
from replog.testing.eventually import eventually
from replog.transport.tcp import TcpLimits
from replog.transport.tcp import endpoint as endpoint_module

Make = Callable[..., Party]


class Names:
    """A resolver that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.threads: list[threading.Thread] = []
        self.answers = threading.Event()
        self.known = {"broker.example": "127.0.0.1"}

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        self.threads.append(threading.current_thread())
        assert self.answers.wait(20)
        if host not in self.known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.known[host], port))]

    def answer(self) -> None:
        """Answer what was asked, and see that whoever asked has gone."""
        eventually(lambda: len(self.threads) > 0)
        self.finish()
        self.answers.clear()

    def finish(self) -> None:
        """Answer whatever is asked from now on."""
        self.answers.set()
        for thread in self.threads:
            thread.join(20)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """In place of the system's."""
    names = Names()
    monkeypatch.setattr(endpoint_module.socket, "getaddrinfo", names)
    yield names
    names.finish()


def named(broker: Party, name: str = "broker.example") -> str:
    return f"tcp://{name}:{broker.endpoint.rpartition(':')[2]}"


def test_while_a_name_is_looked_up_others_are_served(party: Make, endpoints: dict[int, str], names: Names) -> None:
    one, two, three = party(1), party(2), party(3)
    endpoints[2] = named(two)
    one.say(2, fetched(1))
    one.say(2, fetched(2, catch_up=True))
    one.say(3, fetched(3))
    settle([one, two, three], lambda: len(three.items) == 1)
    settle([one], lambda: names.asked == ["broker.example"])  # once, for two lanes
    assert one.transport.next_poll_ms() > one.transport._now_ms()  # type: ignore[operator]
    one.say(2, fetched(4))
    assert two.items == one.lost == []
    names.answer()
    settle([one, two, three], lambda: len(two.items) == 3)
    idle([one, two, three])
    assert names.asked == ["broker.example"]
    assert sorted(message.request for message in two.messages) == [1, 2, 4]


def test_what_was_found_is_used_once(party: Make, names: Names, clock: ManualClock) -> None:
    broker, client = party(1), party()
    for number in (1, 2):
        client.say(named(broker), question(number))
        client.transport.flush()
        settle([client], lambda want=number: len(names.asked) == want)  # type: ignore[misc]
        names.answer()
        settle([client, broker], lambda want=number: len(broker.messages) == want)  # type: ignore[misc]
        (connection,) = broker.transport._connections.open.values()
        broker.transport._connections.end(connection, "over")
        settle([client], lambda: client.open == 0)
        clock.advance(2_000)


def test_whoever_rests_is_woken_by_the_answer(party: Make, names: Names) -> None:
    """As a client does that drives its sockets itself."""
    broker, client = party(1), party()
    client.say(named(broker), question(1))
    client.transport.flush()
    settle([broker], lambda: len(names.asked) == 1)
    names.answers.set()
    client.transport.poll(60)
    settle([broker, client], lambda: len(broker.messages) == 1)


def test_a_name_that_nobody_answers_for_is_given_up_in_time(party: Make, names: Names, clock: ManualClock) -> None:
    broker, client = party(1), party(limits=TcpLimits(connect_timeout_ms=500))
    client.say(named(broker), question(1))
    client.transport.flush()
    assert client.transport.next_poll_ms() == clock.now_ms() + 500
    clock.advance(499)
    idle([client], 3)
    assert client.lost == []
    clock.advance(1)
    settle([client], lambda: client.lost == [named(broker)])
    assert client.told("dial_failed") == [{"endpoint": named(broker), "reason": "looking up its name took too long", "retry_ms": 50}]
    assert client.transport.unsent_bytes == 0
    clock.advance(50)
    client.say(named(broker), question(2))  # the same look-up, and a time of its own
    client.transport.flush()
    names.answer()
    assert len(names.asked) == 1
    settle([broker, client], lambda: len(broker.messages) == 1)
    assert broker.messages == [question(2)]


def test_an_answer_that_nobody_waits_for_any_more_is_forgotten(party: Make, names: Names, clock: ManualClock) -> None:
    broker, client = party(1), party()
    client.say(named(broker), question(1))
    client.transport.flush()
    clock.advance(3_000)
    settle([client], lambda: bool(client.lost))
    names.answer()
    settle([client], lambda: client.transport.next_poll_ms() is None)
    assert client.open == 0
    clock.advance(2_000)
    client.say(named(broker), question(2))
    client.transport.flush()
    settle([client], lambda: len(names.asked) == 2)


def test_a_name_that_there_is_not(party: Make, names: Names) -> None:
    client = party()
    client.say("tcp://gone.example:9092", question(1))
    client.transport.flush()
    names.answers.set()
    settle([client], lambda: client.lost == ["tcp://gone.example:9092"])
    assert "Name or service not known" in client.told("dial_failed")[0]["reason"]


def test_addresses_and_localhost_take_no_thread(party: Make, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    broker, client = party(1), party()
    monkeypatch.setattr(threading.Thread, "start", start)
    client.say(broker.endpoint, question(1))
    client.say(named(broker, "localhost"), question(2))
    settle([broker, client], lambda: len(broker.messages) == 2)
    client.say(named(broker), question(3))
    settle([client], lambda: client.lost == [named(broker)])
    assert client.told("dial_failed")[0]["reason"] == "can't start new thread"


def test_a_broker_that_moves_while_its_name_is_looked_up(party: Make, endpoints: dict[int, str], names: Names) -> None:
    one, two = party(1), party(2)
    there, endpoints[2] = endpoints[2], "tcp://gone.example:1"
    one.say(2, fetched(1))
    one.transport.flush()
    endpoints[2] = there
    one.say(2, fetched(2))
    settle([one, two], lambda: [message.request for message in two.messages] == [1, 2])
    names.answer()
    idle([one, two], 5)
    assert one.told("dial_failed") == []


def test_a_peer_that_dials_first_is_not_dialed(party: Make, endpoints: dict[int, str], names: Names) -> None:
    one, two = party(1), party(2)
    endpoints[2] = named(two)
    one.say(2, fetched(1))
    one.transport.flush()
    two.say(1, fetched(2))
    settle([one, two], lambda: len(one.items) == len(two.items) == 1)
    names.answer()
    idle([one, two], 5)
    assert one.open == two.open == 1


def test_who_is_closed_meanwhile_hears_no_more_of_it(party: Make, names: Names) -> None:
    broker, client = party(1), party()
    client.say(named(broker), question(1))
    client.transport.flush()
    client.transport.close()
    names.answer()
    assert client.transport.next_poll_ms() is None
    assert not any(thread.is_alive() for thread in names.threads)
