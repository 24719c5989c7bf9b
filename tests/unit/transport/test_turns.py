"""How much of what one client says a turn takes in: the rest waits in order, others are heard meanwhile, and memory has bounds."""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import attrs
import pytest
from tests.interrupts import at_every_line, interrupted_at
from tests.unit.transport.harness import Party, Stranger, fetched, idle, piece, question, settle
from tests.unit.transport.test_bounds import arrived, fetch

from replog import messages as m
from replog.codec import encode
from replog.security.quotas import Quotas
from replog.testing.clock import ManualClock
from replog.testing.eventually import eventually
from replog.transport.tcp import TcpLimits, sockets
from replog.transport.tcp import inbox as inbox_module
from replog.transport.tcp import transport as transport_module
from replog.transport.tcp.muting import MUTED_MS_MAX

Make = Callable[..., Party]
Bare = Callable[[str], Stranger]

TEN = TcpLimits(client_turn_requests_max=10, output_bytes_max=100_000)
HELLO = b"".join(encode(m.Handshake("", "client", -1, -1, 1, 1, 1)))


def questions(count: int, first: int = 0) -> bytes:
    return b"".join(b"".join(encode(question(first + number))) for number in range(count))


def guest(broker: Party, stranger: Bare) -> Stranger:
    """A client that has shaken hands."""
    one = stranger(broker.endpoint)
    one.hello()
    count = len(broker.told("peer_connected"))
    settle([broker], lambda: len(broker.told("peer_connected")) > count)
    idle([broker], 2)
    assert one.read().error == 0
    return one


def send(broker: Party, one: Stranger, data: bytes) -> None:
    """Send it, and see that it has come; of the newest connection."""
    one.socket.sendall(data)
    fd = list(broker.transport._connections.open)[-1]
    eventually(lambda: arrived(fd) == len(data))


def turn(broker: Party) -> int:
    """How many messages one turn takes in, of those that are here."""
    taken = broker.transport.handle(broker.transport.wait(0), broker.transport._now_ms())
    broker.transport.flush()
    return taken


def asked(broker: Party) -> list[int]:
    return [message.request for message in broker.messages]


def test_a_client_that_asks_very_much_is_taken_in_by_and_by_and_in_order(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TEN)
    one = guest(broker, stranger)
    send(broker, one, questions(35) + questions(1, 35)[:9])
    taken = []
    for _ in range(4):
        taken.append(turn(broker))
        assert (broker.transport.next_poll_ms() == broker.transport._now_ms()) == (len(taken) < 4)
        assert (broker.held > 0) is True
    assert taken == [10, 10, 10, 5]
    one.socket.sendall(questions(1, 35)[9:])
    settle([broker], lambda: len(broker.messages) == 36)
    assert asked(broker) == list(range(36))
    assert broker.held == 0


def test_what_comes_together_with_the_handshake_is_bounded_as_well(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TEN)
    one = stranger(broker.endpoint)
    settle([broker], lambda: broker.open == 1)
    send(broker, one, HELLO + questions(25))
    assert [turn(broker) for _ in range(4)] == [0, 10, 10, 5], "what it asks begins with the next turn, as that of other clients"
    assert asked(broker) == list(range(25))


def test_nothing_is_read_from_it_meanwhile(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TEN)
    one = guest(broker, stranger)
    send(broker, one, questions(25))
    assert turn(broker) == 10
    send(broker, one, questions(5, 25))
    fd = list(broker.transport._connections.open)[-1]
    assert turn(broker) == 10
    assert arrived(fd) == len(questions(5, 25))
    assert [turn(broker), turn(broker)] == [5, 5]
    assert asked(broker) == list(range(30))


def test_brokers_and_other_clients_are_heard_in_between_and_brokers_first(party: Make, stranger: Bare) -> None:
    broker, two, client = party(1, limits=TEN), party(2), party()
    two.say(1, m.Flushed(2, 0, []))
    client.say(broker.endpoint, question(1_000))
    settle([broker, two, client], lambda: len(broker.messages) == 2)
    broker.items.clear()
    one = guest(broker, stranger)
    send(broker, one, questions(1_000))
    assert turn(broker) == 10
    open_ = broker.transport._connections.open.values()
    fds = [each.fd for each in open_ if each.peer == 2] + [each.fd for each in open_ if each.peer == ("peer", 1)]
    client.say(broker.endpoint, question(1_001))
    client.transport.flush()
    two.say(1, m.Flushed(2, 1, []))
    two.transport.flush()
    eventually(lambda: all(arrived(fd) for fd in fds))
    assert turn(broker) == 12
    kinds = [(sender, type(message)) for sender, message in broker.items[10:]]
    assert kinds == [(2, m.Flushed), (("peer", 1), m.ListOffsets)] + [(("peer", 2), m.ListOffsets)] * 10


def test_who_does_not_take_its_answers_is_not_asked_on(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=attrs.evolve(TEN, output_bytes_max=1 << 20))
    one = guest(broker, stranger)
    send(broker, one, questions(400))

    def answered() -> int:
        taken = turn(broker)
        for number in asked(broker)[len(broker.messages) - taken :]:
            broker.say(("peer", 1), m.AdminAnswer(number, 0, "x" * 200_000))
        broker.transport.flush()
        return taken

    while answered() or answered():  # as long as the kernel takes more
        pass
    count = len(broker.messages)
    assert 10 <= count < 400
    assert broker.transport.next_poll_ms() > broker.transport._now_ms()  # type: ignore[operator]
    assert broker.transport.unsent_bytes <= 4 << 20
    one.socket.settimeout(0)

    def all_heard() -> bool:
        with suppress(BlockingIOError):
            while one.socket.recv(1 << 20):
                pass
        answered()
        return len(broker.messages) == 400

    settle([broker], all_heard)
    assert asked(broker) == list(range(400))


def test_what_was_said_before_the_end_is_heard_before_the_end(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TEN)
    one = guest(broker, stranger)
    send(broker, one, questions(35))
    one.close()
    settle([broker], lambda: bool(broker.lost))
    assert asked(broker) == list(range(35))
    assert isinstance(broker.items[-1][1], m.Disconnected)
    assert (broker.open, broker.held) == (0, 0)


def test_what_was_said_is_heard_although_the_answers_reach_nobody(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TEN)
    one = guest(broker, stranger)
    send(broker, one, questions(95))
    one.close()
    for _ in range(8):  # the first answer has the kernel at the other end say that nobody is there
        assert turn(broker) == 10
        broker.say(("peer", 1), m.ListedOffsets(1, []))
        broker.transport.flush()
    settle([broker], lambda: bool(broker.lost))
    assert asked(broker) == list(range(95))
    assert broker.transport._connections.output_held == 0


def test_nothing_of_it_is_left_when_it_is_cut_off(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TEN)
    one = guest(broker, stranger)
    (connection,) = broker.transport._connections.open.values()
    send(broker, one, questions(35))
    assert turn(broker) == 10
    assert broker.held == len(questions(25, 10))
    broker.transport._connections.end(connection, "over")
    assert broker.held == 0
    idle([broker])
    assert len(broker.messages) == 10


def test_a_wrong_frame_among_those_that_wait_ends_it_in_its_place(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TEN)
    one = guest(broker, stranger)
    send(broker, one, questions(15) + bytes(50) + questions(15))
    settle([broker], lambda: broker.open == 0)
    assert asked(broker) == list(range(15))
    assert broker.told("peer_disconnected")[0]["reason"].startswith("misbehaved")
    assert isinstance(broker.items[-1][1], m.Disconnected)
    assert broker.held == 0


def test_what_was_read_of_a_client_over_its_quota_is_taken_in(party: Make, stranger: Bare, clock: ManualClock) -> None:
    """It is paid for, and the clock stands still."""
    broker = party(1, limits=TEN, quotas=Quotas(produce_bytes_per_s=65_536, burst_ms=0))
    one = guest(broker, stranger)
    clock.advance(60_000)
    idle([broker], 3)
    (connection,) = broker.transport._connections.open.values()
    send(broker, one, questions(200))
    assert turn(broker) == 10
    assert connection.muted_ms > clock.now_ms()
    send(broker, one, questions(10, 200))
    while turn(broker):
        pass
    assert len(broker.messages) == 200
    assert broker.transport.wait(0) == []  # from now on it is not heard, although there is something
    for _ in range(40):
        clock.advance(1_000)
        idle([broker], 3)
    assert asked(broker) == list(range(210))


def test_asking_on_does_not_mute_for_longer(party: Make, stranger: Bare, clock: ManualClock) -> None:
    broker = party(1, limits=TEN, quotas=Quotas(fetch_bytes_per_s=65_536, burst_ms=0))
    one = stranger(broker.endpoint)
    one.hello(lane=2)
    settle([broker], lambda: len(broker.told("peer_connected")) == 1)
    send(broker, one, b"".join(encode(fetch(1))) * 30)
    (connection,) = broker.transport._connections.open.values()
    assert turn(broker) == 10
    broker.say(("peer", 1), fetched(1, piece(bytes(1 << 20))))
    until_ms = connection.muted_ms
    assert until_ms == clock.now_ms() + MUTED_MS_MAX
    clock.advance(500)
    assert [turn(broker), turn(broker)] == [10, 10]
    assert connection.muted_ms == until_ms


def test_of_very_many_clients_each_has_its_turn(party: Make, stranger: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "HANDLE_REQUESTS_MAX", 20)
    broker = party(1, limits=TEN)
    guests = [guest(broker, stranger) for _ in range(7)]
    for one in guests:
        one.socket.sendall(questions(50))
    eventually(lambda: all(arrived(fd) == len(questions(50)) for fd in broker.transport._connections.open))
    served = []
    while (count := len(broker.items)) < 350:
        assert turn(broker) == min(20, 350 - count)
        served.append([sender[1] for sender, _ in broker.items[count::10]])  # type: ignore[index]
        assert len(broker.transport._left) < 7
    rounds = [who for turn_ in served for who in turn_]
    assert [sorted(rounds[at : at + 7]) for at in range(0, 35, 7)] == [list(range(1, 8))] * 5
    for number in range(1, 8):
        assert [message.request for sender, message in broker.items if sender == ("peer", number)] == list(range(50))


def views(count: int) -> bytes:
    return b"".join(b"".join(encode(m.Metadata(number, -1, -1))) for number in range(count))


def test_of_what_may_take_long_a_connection_has_one_in_a_turn_and_all_clients_four(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TEN)
    guests = [guest(broker, stranger) for _ in range(7)]
    for one in guests:
        one.socket.sendall(views(8))
    eventually(lambda: all(arrived(fd) == len(views(8)) for fd in broker.transport._connections.open))
    served: list[int] = []
    while len(broker.items) < 56:
        count = len(broker.items)
        assert turn(broker) == 4
        served += [sender[1] for sender, _ in broker.items[count:]]  # type: ignore[index]
    assert [sorted(served[at : at + 7]) for at in range(0, 56, 7)] == [list(range(1, 8))] * 8, "each has its turn"
    for number in range(1, 8):
        assert [message.request for sender, message in broker.items if sender == ("peer", number)] == list(range(8))


def test_what_comes_behind_something_long_waits_for_the_next_turn(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TEN)
    one = guest(broker, stranger)
    send(broker, one, questions(3) + views(1) + questions(2, 3))
    assert [turn(broker), turn(broker)] == [4, 2]
    assert [type(message).__name__ for message in broker.messages] == ["ListOffsets"] * 3 + ["Metadata"] + ["ListOffsets"] * 2


@pytest.mark.parametrize("what", [views(50), questions(50)], ids=["long", "many"])
def test_brokers_are_heard_when_clients_have_said_enough(
    what: bytes, party: Make, stranger: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "HANDLE_REQUESTS_MAX", 20)
    one, two = party(1, limits=TEN), party(2)
    guests = [guest(one, stranger) for _ in range(9)]
    two.say(1, fetched(0))
    settle([one, two], lambda: len(one.messages) == 1)
    fd = next(fd for fd, each in one.transport._connections.open.items() if each.peer_id == 2)
    for number in range(1, 6):
        two.say(1, fetched(number))
        for guest_ in guests:
            guest_.socket.sendall(what)
        two.transport.flush()
        eventually(lambda: bool(arrived(fd)) and not two.transport.unsent_bytes)
        before = len(one.items)
        turn(one)
        assert [message.request for sender, message in one.items[before:] if sender == 2] == [number]
        assert len(one.items) - before <= 31


def test_a_broker_connects_while_requests_of_clients_are_left(party: Make, stranger: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has said who it is, it may be one: it does not wait behind them, or it would be closed for being late."""
    monkeypatch.setattr(inbox_module, "DELIVER_REQUESTS_MAX", 5)
    one, two = party(1), party(2)
    guest_ = guest(one, stranger)
    send(one, guest_, questions(100))
    two.say(1, fetched(7))
    heard = 0
    while turn(one) and one.transport.has_asked:
        turn(two)
        heard += sum(sender == 2 for sender, _ in one.items)
    assert heard


def test_nothing_more_is_read_of_clients_while_requests_are_left(party: Make, stranger: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decoded is memory that no limit counts."""
    monkeypatch.setattr(inbox_module, "DELIVER_REQUESTS_MAX", 5)
    broker = party(1)
    one, two = guest(broker, stranger), guest(broker, stranger)
    fds = list(broker.transport._connections.open)
    one.socket.sendall(questions(8))
    eventually(lambda: arrived(fds[0]) == len(questions(8)))
    assert (turn(broker), broker.transport.has_asked) == (5, True)
    two.socket.sendall(questions(2, 8))
    eventually(lambda: arrived(fds[1]) == len(questions(2, 8)))
    assert (turn(broker), arrived(fds[1])) == (3, len(questions(2, 8)))
    assert (turn(broker), broker.transport.has_asked) == (2, False)
    assert asked(broker) == [*range(10)]


def heard_in_spite_of_an_interrupt(line: int, broker: Party, stranger: Bare) -> bool:
    """Two clients ask, one of them too much for a turn, and the next turn is broken off at a line of it; whether it was."""
    one, two = guest(broker, stranger), guest(broker, stranger)
    first = next(iter(broker.transport._connections.open))
    one.socket.sendall(questions(25))
    eventually(lambda: arrived(first) == len(questions(25)))
    assert turn(broker) == 10
    send(broker, two, questions(1, 25))
    ready = broker.transport.wait(0)
    interrupted = interrupted_at(line, in_turn, lambda: broker.transport.handle(ready, broker.transport._now_ms()))
    while broker.transport.next_poll_ms() == broker.transport._now_ms():
        turn(broker)
    turn(broker)
    assert sorted(asked(broker)) == [*range(26)]
    return interrupted


def test_an_interrupt_anywhere_in_a_turn_leaves_everybody_to_be_heard(party: Make, stranger: Bare) -> None:
    """Of what was kept the selector tells nobody again."""
    assert at_every_line(lambda line: heard_in_spite_of_an_interrupt(line, party(line, limits=TEN), stranger)) > 20


def in_turn(frame: FrameType) -> bool:
    return frame.f_code.co_name in ("handle", "_in_turn") and frame.f_code.co_filename.endswith("tcp/transport.py")


def paused_in_spite_of_an_interrupt(line: int, broker: Party, stranger: Bare, clock: ManualClock) -> bool:
    """No descriptor is left for one more client, and the pause is broken off at a line of it; whether it was."""
    one = guest(broker, stranger)
    send(broker, one, questions(25))
    assert turn(broker) == 10
    late = stranger(broker.endpoint)
    (listening,) = broker.transport._listeners.by_fd
    eventually(lambda: (listening, select.EPOLLIN) in broker.transport.wait(0))

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "injected")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sockets, "accept", none_left)
        interrupted = interrupted_at(line, lambda frame: frame.f_code.co_name == "_pause", lambda: turn(broker))
        while len(broker.items) < 25:
            turn(broker)
        turn(broker)
        assert broker.transport.wait(0) == []
    clock.advance(broker.transport.limits.accept_pause_ms)
    late.hello()
    settle([broker], lambda: len(broker.told("peer_connected")) == 2)
    return interrupted


def test_a_listener_whose_pause_is_broken_off_anywhere(party: Make, stranger: Bare, clock: ManualClock) -> None:
    assert at_every_line(lambda line: paused_in_spite_of_an_interrupt(line, party(line, limits=TEN), stranger, clock)) > 4


def test_a_listener_whose_pause_was_broken_off_and_whose_client_has_gone(party: Make, stranger: Bare, clock: ManualClock) -> None:
    """Nobody waits, so nothing tells that it was not taken out."""
    broker = party(1, limits=TEN)
    (listener,) = broker.transport._listeners.by_fd.values()
    listener.resume_ms = clock.now_ms() + 1
    broker.transport._listeners.paused = True
    clock.advance(1)
    turn(broker)
    guest(broker, stranger)


def ended_by_an_interrupt(line: int, broker: Party, stranger: Bare) -> bool:
    """A client asks, and the turn is broken off at a line of the taking in of that: it is heard whole, or it is cut off."""
    one = guest(broker, stranger)
    send(broker, one, questions(5))

    def taking_in(frame: FrameType) -> bool:
        return frame.f_code.co_filename.endswith("tcp/incoming.py")

    interrupted = interrupted_at(line, taking_in, lambda: turn(broker))
    turn(broker)
    turn(broker)
    is_whole, ended = asked(broker) == [*range(5)], bool(broker.told("peer_disconnected"))
    assert is_whole or ended
    assert interrupted or not ended
    return interrupted


def test_who_is_broken_off_in_the_middle_of_a_word_is_cut_off(party: Make, stranger: Bare) -> None:
    """Some of what it said is lost, and it would wait for the answer for ever."""
    assert at_every_line(lambda line: ended_by_an_interrupt(line, party(line, limits=TEN), stranger)) > 20


def test_brokers_say_as_much_as_they_like(party: Make) -> None:
    one, two = party(1, limits=TEN), party(2)
    two.say(1, fetched(0))
    settle([one, two], lambda: len(one.messages) == 1)
    for number in range(1, 60):
        two.say(1, fetched(number))
    two.transport.flush()
    (fd,) = one.transport._connections.open
    eventually(lambda: bool(arrived(fd)) and not two.transport.unsent_bytes)
    assert turn(one) == 59


# -------------------------------------------------------------------------------------------------- what waits for all of them


def held(broker: Party) -> dict[Any, int]:
    return {each.peer: each.outgoing.held for each in broker.transport._connections.open.values()}


def silent(broker: Party, stranger: Bare, **who: Any) -> Stranger:
    """One that reads nothing, and whose kernel takes little."""
    one = stranger(broker.endpoint)
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    one.hello(**who)
    count = len(broker.told("peer_connected"))
    settle([broker], lambda: len(broker.told("peer_connected")) > count)
    return one


def test_the_answers_of_all_together_are_bounded_and_the_client_with_most_goes(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=attrs.evolve(TEN, output_bytes_max=10 << 20, output_bytes_total_max=20 << 20))
    ends = [silent(broker, stranger), silent(broker, stranger)]
    ends.append(silent(broker, stranger, cluster_id="c", role="broker", broker_id=2, lane=0))
    broker.say(2, m.AdminAnswer(1, 0, "x" * (15 << 20)))
    broker.say(("peer", 1), m.AdminAnswer(1, 0, "x" * (4 << 20)))
    broker.say(("peer", 2), m.AdminAnswer(1, 0, "x" * (8 << 20)))
    broker.transport.flush()
    assert set(held(broker)) == {("peer", 1), 2}
    reasons = [(fields["peer"], fields["reason"]) for fields in broker.told("peer_disconnected")]
    assert reasons == [(("peer", 2), f"what waits for all takes more than {20 << 20} bytes")]
    assert broker.transport._connections.output_held == sum(held(broker).values())
    broker.say(2, m.AdminAnswer(1, 0, "x" * (2 << 20)))
    broker.transport.flush()
    assert set(held(broker)) == {2}  # a client first, though it holds less
    broker.say(2, m.AdminAnswer(1, 0, "x" * (6 << 20)))
    broker.transport.flush()
    assert held(broker) == {}
    assert broker.transport._connections.output_held == 0
    assert all(one.is_cut_off() for one in ends)


def test_records_that_lie_in_a_log_take_no_memory(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=attrs.evolve(TEN, output_bytes_max=30 << 20, output_bytes_total_max=1 << 20))
    one = guest(broker, stranger)
    broker.say(("peer", 1), fetched(1, piece(bytes(20 << 20))))
    broker.transport.flush()
    assert broker.open == 1
    assert broker.transport._connections.output_held < 1_000 < broker.transport.unsent_bytes
    one.socket.settimeout(0)

    def taken() -> bool:
        with suppress(BlockingIOError):
            while one.socket.recv(1 << 20):
                pass
        return not broker.transport.unsent_bytes

    settle([broker], taken)
    assert broker.transport._connections.output_held == 0


def test_what_a_client_has_to_send_is_not_for_the_transport_to_bound(party: Make) -> None:
    broker, client = party(1), party(limits=TcpLimits(output_bytes_total_max=1_000))
    client.say(broker.endpoint, question(1))
    settle([client, broker], lambda: len(broker.messages) == 1)
    for number in range(2, 22):
        client.say(broker.endpoint, m.Admin(number, "x" * 900_000, {}))
    client.transport.flush()
    assert client.transport._connections.output_held > 1_000
    settle([client, broker], lambda: len(broker.messages) == 21)
    assert client.lost == []
