"""Clients over their quotas: they wait, their connections stay, and nothing of what they say is lost or refused."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.authorities import BROKER_SECRET, CLIENT_SECRET, OTHER_SECRET, tls_of
from tests.unit.transport.harness import P0, TURNS_MAX, Party, Stranger, fetched, idle, piece, question, settle

from replog import messages as m
from replog.codec import encode
from replog.security.quotas import Quotas
from replog.security.settings import Security
from replog.testing.clock import ManualClock
from replog.transport.tcp import TcpLimits
from replog.transport.tcp.connection import Connection
from replog.transport.tcp.muting import MUTED_MS_MAX, PORTION_BYTES_MIN, PORTION_MS, PRODUCE, Muting

Make = Callable[..., Party]
Strange = Callable[[str], Stranger]

RATE = 1_000_000
BURST_MS = 500
BODY = b"x" * 50_000
SEND = Quotas(produce_bytes_per_s=RATE, burst_ms=BURST_MS)
TAKE = Quotas(fetch_bytes_per_s=RATE, burst_ms=BURST_MS)
SECRETS = {"broker": BROKER_SECRET, "client/a": CLIENT_SECRET, "client/b": OTHER_SECRET}
ANY = Security(secret=SECRETS)


def named(name: str) -> Security:
    return Security(secret={f"client/{name}": SECRETS[f"client/{name}"]})


def produce(number: int) -> m.Produce:
    return m.Produce(-1, 1_000, [m.ProduceEntry(number, P0, BODY)])


def ask(number: int) -> m.Fetch:
    return m.Fetch(number, -1, -1, 0, -1, 0, 1, 1 << 20, [m.FetchEntry(P0, 0, 0, -1, 1 << 20)])


def numbers(broker: Party) -> list[int]:
    """Of the batches that have arrived, in the order in which they have."""
    return [message.entries[0].request for message in broker.messages if isinstance(message, m.Produce)]


def guests(broker: Party) -> list[Connection]:
    """The connections of clients."""
    return [each for each in broker.transport._connections.open.values() if each.peer_id < 0 and not each.dialed]


def muting_of(broker: Party) -> Muting:
    muting = broker.transport._muting
    assert muting is not None
    return muting


def let_pass(parties: Iterable[Party], clock: ManualClock, done: Callable[[], bool]) -> int:
    """Let them work; when the clients of the first are muted, or say no more, time passes until one is heard again. Returns how much."""
    parties = list(parties)
    began = clock.now_ms()
    for _ in range(TURNS_MAX):
        arrived = len(parties[0].items)
        for _ in range(6):  # what is heard now is answered now
            if done():
                return clock.now_ms() - began
            for party in parties:
                party.transport.flush()
                party.transport.handle(party.transport.wait(0.001), clock.now_ms())
        muted = [each.muted_ms for each in guests(parties[0]) if each.muted_ms > clock.now_ms()]
        if muted and (len(muted) == len(guests(parties[0])) or len(parties[0].items) == arrived):
            clock.advance(min(muted) - clock.now_ms())
    raise AssertionError("it did not come to that")


def bytes_due(passed_ms: int) -> int:
    """What a client may have sent meanwhile: at most one portion more."""
    return RATE * (passed_ms + BURST_MS + PORTION_MS) // 1_000


# ------------------------------------------------------------------------------------------------------------------ sending


def test_who_sends_too_much_is_slowed_to_its_rate_and_loses_nothing(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=SEND), party()
    began, ahead = clock.now_ms(), []
    for number in range(60):
        client.say(1, produce(number))

    def done() -> bool:
        ahead.append(len(BODY) * len(numbers(broker)) - bytes_due(clock.now_ms() - began))
        return len(numbers(broker)) == 60

    passed = let_pass([broker, client], clock, done)
    assert numbers(broker) == list(range(60))
    assert max(ahead) <= 0
    least = 60 * len(BODY) * 1_000 // RATE - BURST_MS - PORTION_MS
    assert least <= passed <= least + 2 * PORTION_MS
    assert broker.lost == client.lost == []
    assert broker.open == 1
    # What was imposed is what has passed, but for the last time, which is not over.
    assert passed <= sum(ms for _, _, ms in broker.throttled) <= passed + PORTION_MS
    assert {(who, request) for who, request, _ in broker.throttled} == {(1, "produce")}


def test_another_client_is_not_slowed(party: Make, clock: ManualClock) -> None:
    broker, one, two = party(1, quotas=SEND, security=ANY), party(security=named("a")), party(security=named("b"))
    for number in range(40):
        one.say(broker.endpoint, produce(number))
    settle([broker, one], lambda: [each.muted_ms > 0 for each in guests(broker)] == [True])
    before = len(numbers(broker))
    assert 0 < before < 40
    two.say(broker.endpoint, produce(100))
    settle([broker, one, two], lambda: 100 in numbers(broker))
    assert len(numbers(broker)) == before + 1


def test_connections_of_one_name_share_one_budget(party: Make, clock: ManualClock) -> None:
    broker = party(1, quotas=SEND, security=ANY)
    clients = [party(security=named("a")) for _ in range(3)]
    for number in range(60):
        clients[number % 3].say(broker.endpoint, produce(number))
    passed = let_pass([broker, *clients], clock, lambda: len(numbers(broker)) == 60)
    assert passed >= 60 * len(BODY) * 1_000 // RATE - BURST_MS - 3 * PORTION_MS
    for number in range(3):  # all get on, each in its order
        assert [each for each in numbers(broker) if each % 3 == number] == list(range(number, 60, 3))


def test_many_connections_of_one_name_take_turns_so_that_none_waits_for_long(party: Make, clock: ManualClock) -> None:
    count = 6
    broker = party(1, quotas=Quotas(produce_bytes_per_s=RATE, burst_ms=0), security=ANY)
    clients = [party(security=named("a")) for _ in range(count)]
    for client in clients:
        client.say(broker.endpoint, question(0))
    let_pass([broker, *clients], clock, lambda: len(broker.messages) == count)
    clock.advance(PORTION_MS)
    for number in range(3 * count):
        clients[number % count].say(broker.endpoint, produce(number))
    longest = 0

    def done() -> bool:
        nonlocal longest
        longest = max([longest, *(each.muted_ms - clock.now_ms() for each in guests(broker))])
        return len(numbers(broker)) == 3 * count

    passed = let_pass([broker, *clients], clock, done)
    assert passed >= 3 * count * len(BODY) * 1_000 // RATE - PORTION_MS
    assert 0 < longest <= PORTION_MS + count  # each is rounded up to a whole millisecond


def test_who_owes_for_long_is_heard_a_little_every_second(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=Quotas(produce_bytes_per_s=RATE, burst_ms=0)), party()
    client.say(1, question(0))
    let_pass([broker, client], clock, lambda: len(broker.messages) == 1)
    clock.advance(1_000)
    settle([broker, client], lambda: [each.muted_ms for each in guests(broker)] == [-1])
    muting_of(broker).budgets[PRODUCE].charge("127.0.0.1", 10 * RATE, clock.now_ms())
    client.say(1, question(1))  # who is not muted is heard
    (connection,) = guests(broker)
    settle([broker, client], lambda: connection.muted_ms == clock.now_ms() + MUTED_MS_MAX)
    many = 4 * PORTION_BYTES_MIN // len(b"".join(encode(question(1))))
    for number in range(many):
        client.say(1, question(2 + number))
    heard = [2]
    while len(broker.messages) < 2 + many:
        clock.advance(MUTED_MS_MAX)
        settle([broker, client], lambda: connection.muted_ms == clock.now_ms() + MUTED_MS_MAX)
        heard.append(len(broker.messages))
    assert all(0 < after - before <= many // 4 + 1 for before, after in pairwise(heard))
    assert [message.request for message in broker.messages] == list(range(2 + many))
    assert broker.lost == client.lost == []


def test_without_security_an_address_is_a_client(party: Make, clock: ManualClock) -> None:
    own = {"127.0.0.1": {"produce_bytes_per_s": 0}}
    broker, client = party(1, quotas=Quotas(produce_bytes_per_s=RATE, clients=own)), party()
    for number in range(40):
        client.say(1, produce(number))
    settle([broker, client], lambda: len(numbers(broker)) == 40)
    assert [each.limited for each in guests(broker)] == [None]
    assert broker.throttled == []


def test_brokers_are_never_muted(party: Make, clock: ManualClock) -> None:
    one, two = party(1, quotas=SEND), party(2, quotas=TAKE)
    many = [fetched(number, piece(BODY)) for number in range(40)]
    for message in many:
        one.say(2, message)
        two.say(1, message)
    settle([one, two], lambda: len(one.messages) == len(two.messages) == 40)
    assert one.throttled == two.throttled == []
    assert all(each.limited is None for each in (*one.transport._connections.open.values(), *two.transport._connections.open.values()))


def test_who_was_silent_has_its_burst_and_who_was_not_has_none(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=SEND), party()
    burst = RATE * BURST_MS // 1_000 // len(BODY)
    for number in range(burst - 1):
        client.say(1, produce(number))
    settle([broker, client], lambda: len(numbers(broker)) == burst - 1)
    assert broker.throttled == []
    for number in range(burst - 1, burst + 2):
        client.say(1, produce(number))
    settle([broker, client], lambda: len(broker.throttled) > 0)


def test_what_it_has_asked_is_answered_while_it_is_muted(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=SEND), party()
    for number in range(40):
        client.say(1, produce(number))
    settle([broker, client], lambda: [each.muted_ms > 0 for each in guests(broker)] == [True])
    for number in numbers(broker):
        broker.say(("peer", 1), m.Produced([m.ProducedEntry(number)]))
    settle([broker, client], lambda: len(client.messages) == len(numbers(broker)) > 0)


def test_it_is_heard_again_exactly_once(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=SEND), party()
    for number in range(40):
        client.say(1, produce(number))
    settle([broker, client], lambda: [each.muted_ms > 0 for each in guests(broker)] == [True])
    (connection,) = guests(broker)
    arrived, until = len(numbers(broker)), connection.muted_ms
    assert broker.transport.next_poll_ms() == until
    clock.advance(until - 1 - clock.now_ms())
    idle([broker, client])
    assert (len(numbers(broker)), connection.muted_ms) == (arrived, until)
    clock.advance(1)
    settle([broker, client], lambda: len(numbers(broker)) > arrived)
    assert connection.muted_ms > until  # one portion, and muted again
    portion = RATE * PORTION_MS // 1_000
    assert len(numbers(broker)) - arrived <= portion // len(BODY) + 1


# ----------------------------------------------------------------------------------------------------------------- fetching


def answering(broker: Party, size: int) -> Callable[[], None]:
    """Answer every fetch that has arrived with so many bytes of records, once each."""
    done = 0

    def answer() -> None:
        nonlocal done
        for peer, message in broker.items[done:]:
            if isinstance(message, m.Fetch):
                broker.say(peer, fetched(message.request, piece(b"x" * size)))
        done = len(broker.items)

    return answer


def reader(client: Party, broker: Party, to: Any = 1) -> Callable[[], int]:
    """Ask one fetch after the other; returns how many bytes of records have come."""
    heard = asked = 0

    def go_on() -> int:
        nonlocal heard, asked
        if asked == len(client.messages):
            client.say(to, ask(asked))
            asked += 1
        heard = sum(len(part.view()) for each in client.messages for entry in each.entries for part in entry.slices)
        return heard

    return go_on


def test_who_fetches_too_much_is_slowed_to_its_rate_and_is_answered_all_the_time(party: Make, clock: ManualClock) -> None:
    rate = RATE // 10
    broker, client = party(1, quotas=Quotas(fetch_bytes_per_s=rate, burst_ms=BURST_MS)), party()
    size, began, ahead = 3 * rate, clock.now_ms(), []
    answer, go_on = answering(broker, size), reader(client, broker)
    pauses, last, count = [], began, 0

    def done() -> bool:
        nonlocal last, count
        answer()
        heard = go_on()
        if len(client.messages) > count:
            count = len(client.messages)
            pauses.append(clock.now_ms() - last)
            last = clock.now_ms()
        ahead.append(heard - size - rate * (clock.now_ms() - began + BURST_MS) // 1_000)
        return heard == 4 * size

    passed = let_pass([broker, client], clock, done)
    assert max(ahead) <= 0  # at most one answer more than is due
    assert passed >= 3 * size * 1_000 // rate - BURST_MS
    assert max(pauses) <= MUTED_MS_MAX  # by answers without records
    assert len(client.messages) > 4
    assert broker.lost == client.lost == []
    assert {request for _, request, _ in broker.throttled} == {"fetch_consumer"}
    assert all(ms > 0 for _, _, ms in broker.throttled)  # a second that is imposed again while it lasts is none more


def test_questions_that_were_asked_together_do_not_bring_more(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=TAKE), party()
    for number in range(20):
        client.say(1, ask(number))
    settle([broker, client], lambda: len(broker.messages) == 20)
    answering(broker, RATE)()
    settle([broker, client], lambda: len(client.messages) == 20)
    assert [message.request for message in client.messages] == list(range(20))
    assert sum(bool(entry.slices) for message in client.messages for entry in message.entries) == 1


def test_who_owes_for_what_it_sent_may_fetch_and_the_other_way_round(party: Make, clock: ManualClock) -> None:
    both = Quotas(produce_bytes_per_s=RATE, fetch_bytes_per_s=RATE, burst_ms=BURST_MS)
    broker, client = party(1, quotas=both), party()
    for number in range(40):
        client.say(1, produce(number))
    settle([broker, client], lambda: any(each.muted_ms > 0 for each in guests(broker)))
    client.say(1, ask(100))
    settle([broker, client], lambda: any(isinstance(message, m.Fetch) for message in broker.messages))
    answering(broker, 2 * RATE)()
    settle([broker, client], lambda: len(client.messages) == 1)
    assert len(client.messages[0].entries[0].slices[0].view()) == 2 * RATE


def test_a_question_costs_nothing(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=Quotas(produce_bytes_per_s=RATE, fetch_bytes_per_s=RATE, burst_ms=0)), party()
    client.say(1, ask(1))
    settle([broker, client], lambda: len(broker.messages) == 1)
    idle([broker, client], 2)
    assert broker.throttled == []


def test_a_long_question_for_records_is_heard_at_once_when_its_time_has_come(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=TAKE), party()
    client.say(1, ask(0))
    settle([broker, client], lambda: len(broker.messages) == 1)
    answering(broker, 3 * RATE)()
    settle([broker, client], lambda: [each.muted_ms for each in guests(broker)] == [clock.now_ms() + MUTED_MS_MAX])
    long = ask(1)
    long.entries = long.entries * 2_000
    client.say(1, long)
    idle([broker, client])
    assert len(broker.messages) == 1
    clock.advance(MUTED_MS_MAX)
    settle([broker, client], lambda: len(broker.messages) == 2)


@pytest.mark.parametrize(("lane", "message"), [(2, produce(1)), (2, question(1)), (1, ask(1)), (0, ask(1))])
def test_a_limit_is_not_evaded_by_the_other_connection(party: Make, stranger: Strange, lane: int, message: Any) -> None:
    broker = party(1, quotas=SEND)
    one = stranger(broker.endpoint)
    one.hello(lane=lane)
    settle([broker], lambda: bool(broker.told("peer_connected")))
    one.send(message)
    settle([broker], lambda: bool(broker.told("peer_disconnected")))
    assert f"{type(message).__name__} on a connection for" in broker.told("peer_disconnected")[0]["reason"]
    assert broker.messages == []


# -------------------------------------------------------------------------------------------------- coming, going, time-outs


def in_debt(broker: Party, stranger: Strange) -> Stranger:
    """A bare socket whose client owes two seconds or more."""
    one = stranger(broker.endpoint)
    one.hello()
    settle([broker], lambda: bool(broker.told("peer_connected")))
    one.socket.setblocking(False)
    frame, sent = b"".join(encode(produce(1))), 0

    def muted() -> bool:
        nonlocal sent
        with contextlib.suppress(BlockingIOError):
            sent = (sent + one.socket.send(frame[sent:])) % len(frame)
        return [each.muted_ms > 0 for each in guests(broker)] == [True]

    settle([broker], muted)
    return one


def test_who_connects_anew_owes_what_it_owed(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker = party(1, quotas=SEND)
    one = in_debt(broker, stranger)
    until = guests(broker)[0].muted_ms
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    one.close()
    settle([broker], lambda: not guests(broker))
    another = stranger(broker.endpoint)
    another.hello()
    settle([broker], lambda: bool(guests(broker)) and guests(broker)[0].peer is not None)
    assert guests(broker)[0].muted_ms >= until


def test_what_is_sent_right_behind_the_handshake_is_read_in_a_small_portion(party: Make, stranger: Strange) -> None:
    broker = party(1, quotas=Quotas(produce_bytes_per_s=RATE, burst_ms=0))
    one = stranger(broker.endpoint)
    hello = b"".join(encode(m.Handshake("", "client", -1, -1, 1, 1, 1)))
    asked = b"".join(encode(question(1)))
    one.socket.sendall(hello + asked * (4 * PORTION_BYTES_MIN // len(asked)))
    settle([broker], lambda: bool(broker.told("peer_connected")))
    idle([broker], 2)
    assert 0 < len(broker.messages) <= PORTION_BYTES_MIN // len(asked)


def test_a_muted_client_that_goes_away_leaves_nothing(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker = party(1, quotas=SEND)
    one = in_debt(broker, stranger)
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # the kernel says so at once
    one.close()
    settle([broker], lambda: broker.lost == [("peer", 1)])
    assert broker.open == 0
    assert broker.held == 0
    assert len(broker.transport._connections.timers) == 0
    assert not muting_of(broker).senders


def test_who_misbehaves_while_it_owes_is_cut_off(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker = party(1, quotas=Quotas(produce_bytes_per_s=RATE, burst_ms=0))
    one = stranger(broker.endpoint)
    one.hello()
    settle([broker], lambda: bool(broker.told("peer_connected")))
    (connection,) = guests(broker)
    settle([broker], lambda: connection.muted_ms > 0)
    one.send(fetched())
    clock.advance(connection.muted_ms - clock.now_ms())
    settle([broker], lambda: bool(broker.told("peer_disconnected")))
    assert broker.told("peer_disconnected")[0]["reason"].startswith("misbehaved")


def test_a_muted_client_that_has_said_all_is_heard_to_the_end(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=SEND), party()
    for number in range(20):
        client.say(1, produce(number))
    settle([broker, client], lambda: not client.transport.unsent_bytes)
    client.transport.close()
    let_pass([broker], clock, lambda: broker.lost == [("peer", 1)])
    assert numbers(broker) == list(range(20))


def test_neither_end_takes_a_muted_one_for_gone(party: Make, clock: ManualClock) -> None:
    limits = TcpLimits(stalled_timeout_ms=600, idle_timeout_ms=50, frame_timeout_ms=100)
    slow = Quotas(produce_bytes_per_s=70_000, burst_ms=0)
    broker, client = party(1, quotas=slow, limits=limits), party(limits=TcpLimits(idle_timeout_ms=60_000))
    for number in range(10):
        client.say(1, produce(number))
    passed = let_pass([broker, client], clock, lambda: len(numbers(broker)) == 10)
    assert passed > 10 * limits.stalled_timeout_ms
    assert numbers(broker) == list(range(10))
    assert broker.lost == client.lost == []


def test_after_the_mute_the_usual_time_outs_hold(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker = party(1, quotas=SEND)
    one = stranger(broker.endpoint)
    one.hello()
    settle([broker], lambda: bool(broker.told("peer_connected")))
    one.send(m.Produce(-1, 1_000, [m.ProduceEntry(1, P0, b"x" * (RATE * BURST_MS // 1_000 + 5_000))]))
    let_pass([broker], clock, lambda: len(numbers(broker)) == 1)
    clock.advance(1_000)
    settle([broker], lambda: [each.muted_ms for each in guests(broker)] == [-1])
    clock.advance(2 * broker.transport.limits.idle_timeout_ms)
    settle([broker], lambda: bool(broker.told("peer_disconnected")))
    assert broker.told("peer_disconnected")[0]["reason"] == "idle"


def test_it_is_told_once_a_minute(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, quotas=SEND), party()
    for number in range(60):
        client.say(1, produce(number))
    let_pass([broker, client], clock, lambda: len(numbers(broker)) == 60)
    (told,) = broker.told("client_throttled")
    assert {key: told[key] for key in ("client", "broker", "request", "more")} == {
        "client": "127.0.0.1", "broker": 1, "request": "produce", "more": 0,
    }  # fmt: skip
    clock.advance(60_000)
    for number in range(40):
        client.say(1, produce(number))
    settle([broker, client], lambda: len(broker.told("client_throttled")) == 2)
    assert broker.told("client_throttled")[1]["more"] == len(broker.throttled) - 2


def test_encrypted_connections_are_limited_as_well(party: Make, clock: ManualClock, tmp_path: Path) -> None:
    quotas = Quotas(clients={"client/a": {"produce_bytes_per_s": RATE}}, burst_ms=BURST_MS)
    broker = party(1, quotas=quotas, security=Security(tls=tls_of(tmp_path / "ca", "broker/1")))
    client = party(security=Security(tls=tls_of(tmp_path / "ca", "client/a")))
    for number in range(60):
        client.say(1, produce(number))
    settle([broker, client], lambda: [each.muted_ms > 0 for each in guests(broker)] == [True])
    idle([broker, client])
    assert broker.transport.next_poll_ms() == guests(broker)[0].muted_ms  # what is decrypted already waits as well
    passed = let_pass([broker, client], clock, lambda: len(numbers(broker)) == 60)
    assert numbers(broker) == list(range(60))
    assert passed >= 60 * len(BODY) * 1_000 // RATE - BURST_MS - PORTION_MS
    assert broker.told("client_throttled")[0]["client"] == "client/a"


def test_what_the_process_of_a_broker_asks_as_a_client_is_not_limited(party: Make, tmp_path: Path) -> None:
    certificates = Security(tls=tls_of(tmp_path / "ca", "broker/1"))
    broker, own = party(1, quotas=SEND, security=certificates), party(security=certificates)
    for number in range(60):
        own.say(1, produce(number))
    settle([broker, own], lambda: len(numbers(broker)) == 60)
    assert ([str(each.identity) for each in guests(broker)], broker.throttled) == (["broker/1"], [])
