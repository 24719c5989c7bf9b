"""Peers that are slow, stuck, mad or many: each costs bounded memory, is told of, is cut off, and does not hold up the others."""

from __future__ import annotations

import errno
import os
import resource
import socket
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.samples import messages
from tests.unit.transport.harness import Party, Stranger, fetched, idle, piece, question, settle

import replog
from replog import messages as m
from replog.codec import MESSAGE_TYPES, encode
from replog.errors import Code
from replog.slices import MemorySlice
from replog.testing.clock import ManualClock
from replog.transport.tcp import TcpLimits, TcpTransport
from replog.transport.tcp import listeners as listeners_module
from replog.transport.tcp import transport as transport_module
from replog.transport.tcp.buffers import FRESH_BYTES
from replog.transport.tcp.limits import FRAME_STEP_BYTES

Make = Callable[..., Party]
Bare = Callable[[str], Stranger]

SMALL = TcpLimits(frame_bytes_max=1 << 20, receive_bytes_max=1 << 20, output_bytes_max=100_000)


@pytest.fixture
def others(party: Make) -> Callable[[Party], None]:
    """Make sure that a broker still serves others."""
    client = party()

    def served(broker: Party) -> None:
        count = len(broker.messages)
        client.say(1, question(4_711))
        settle([broker, client], lambda: len(broker.messages) > count)
        assert broker.messages[-1] == question(4_711)

    return served


def guest(broker: Party, stranger: Bare) -> Stranger:
    """A client that has shaken hands."""
    one = stranger(broker.endpoint)
    one.hello()
    count = len(broker.told("peer_connected"))
    settle([broker], lambda: len(broker.told("peer_connected")) > count)
    idle([broker], 2)
    assert one.read().error == 0
    return one


def one_asks(party: Make, stranger: Bare) -> tuple[Party, Stranger]:
    """A broker for which little may wait, and a client whose question it has."""
    broker = party(1, limits=SMALL)
    one = guest(broker, stranger)
    one.send(question(1))
    settle([broker], lambda: len(broker.items) == 1)
    return broker, one


def reasons(broker: Party) -> list[str]:
    return [fields["reason"] for fields in broker.told("peer_disconnected")]


def test_two_thousand_idle_connections_own_nothing(party: Make, clock: ManualClock, others: Callable[[Party], None]) -> None:
    broker = party(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert min(soft, hard) > 5_000 or resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)) is None
    hello = b"".join(encode(m.Handshake("", "client", -1, -1, 1, 1, 1)))
    port = int(broker.endpoint.rpartition(":")[2])
    clients: list[socket.socket] = []
    tracemalloc.start()
    try:
        for number in range(2_000):
            clients.append(socket.create_connection(("127.0.0.1", port)))
            clients[-1].sendall(hello)
            if number % 50 == 49:
                settle([broker], lambda want=number + 1: len(broker.transport._opening.peers) == want)  # type: ignore[misc]
        broker.events.clear()
        memory, _ = tracemalloc.get_traced_memory()
        assert broker.open == 2_000
        assert broker.held == 0
        assert memory < 2_000 * 4_000 + 1_000_000
        others(broker)
        clock.advance(1_300_000)
        settle([broker], lambda: broker.open == 0)
    finally:
        tracemalloc.stop()
        for client in clients:
            client.close()


def test_one_turn_reads_so_much_and_each_has_its_turn(party: Make, stranger: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = party(1)
    guests = [guest(broker, stranger) for _ in range(3)]
    flood = b"".join(encode(question(1))) * 10_000
    for one in guests:
        one.socket.settimeout(0)
        with suppress(BlockingIOError):
            one.socket.send(flood)
    monkeypatch.setattr(transport_module, "HANDLE_BYTES_MAX", 1)
    served = []
    for _ in range(3):
        count = len(broker.items)
        ready = broker.transport.wait(1)
        broker.transport.handle(ready, 1_000_000)
        while broker.transport.has_asked:
            broker.transport.deliver()
        served.append({sender for sender, _ in broker.items[count:]})
        assert broker.transport.next_poll_ms() == 1_000_000
    assert sorted(map(len, served)) == [1, 1, 1]
    assert len(set().union(*served)) == 3


def test_a_client_that_never_reads_is_not_read_any_more_and_cut_off_in_time(
    party: Make, stranger: Bare, clock: ManualClock, others: Callable[[Party], None]
) -> None:
    broker = party(1, limits=SMALL)
    one = guest(broker, stranger)
    (connection,) = broker.transport._connections.open.values()
    while not connection.paused:
        one.send(question(1))
        asked = len(broker.items) + 1
        settle([broker], lambda: len(broker.items) == asked or connection.paused)  # noqa: B023
        broker.say(("peer", 1), fetched(1, piece(bytes(20_000))))
        assert connection.outgoing.size < 2 * SMALL.output_bytes_max
    idle([broker])  # while the kernel takes some more of it
    asked = len(broker.items)
    paused = connection.paused
    one.send(question(2))
    idle([broker])
    assert len(broker.items) == asked + (not paused)
    others(broker)
    clock.advance(30_001)
    settle([broker], lambda: "it takes nothing" in reasons(broker))
    others(broker)
    assert ("peer", 1) in broker.lost


def test_a_client_that_reads_again_is_served_again(party: Make, stranger: Bare) -> None:
    broker, one = one_asks(party, stranger)
    (connection,) = broker.transport._connections.open.values()
    while not connection.paused:
        broker.say(("peer", 1), fetched(1, piece(bytes(60_000))))
        idle([broker], 1)
    one.send(question(2))
    idle([broker])
    assert len(broker.items) == 1
    one.socket.settimeout(0)
    for _ in range(200):
        with suppress(BlockingIOError):
            one.socket.recv(1 << 20)
        idle([broker], 1)
    assert [message.request for message in broker.messages] == [1, 2]


def test_a_broker_never_queues_without_end_for_one_that_takes_nothing(party: Make, stranger: Bare) -> None:
    broker, one = one_asks(party, stranger)
    for _ in range(1_000):
        broker.say(("peer", 1), m.AdminAnswer(1, 0, "x" * 10_000))
        if broker.open:
            (connection,) = broker.transport._connections.open.values()
            assert connection.outgoing.size <= 4 * SMALL.output_bytes_max + 11_000
    assert broker.open == 0
    assert "wait for it" in reasons(broker)[0]
    assert one.is_cut_off()


def test_a_client_that_has_asked_for_more_than_may_wait_gets_the_rest_when_it_asks_again(party: Make, stranger: Bare) -> None:
    broker, one = one_asks(party, stranger)
    (connection,) = broker.transport._connections.open.values()
    released: list[int] = []

    class Pinned(MemorySlice):
        def release(self) -> None:
            released.append(self.base_offset)

    for at in range(500):  # all in one turn: 5 MB where 100 kB may wait
        broker.say(("peer", 1), fetched(at, Pinned(at, at + 1, bytes(10_000)), high_watermark=7))
        assert connection.outgoing.size < SMALL.output_bytes_max + 11_000 + 200 * at
    answers: list[m.Fetched] = []
    one.socket.settimeout(0)
    while len(answers) < 500:
        with suppress(BlockingIOError):
            answers.append(one.read())
        idle([broker], 1)
    assert [answer.request for answer in answers] == list(range(500))
    full = [sum(len(part.view()) for part in answer.entries[0].slices) for answer in answers]
    assert full == [10_000] * 10 + [0] * 490
    assert {answer.entries[0].high_watermark for answer in answers} == {7}
    assert sorted(released) == list(range(500))


def test_one_byte_a_second(party: Make, stranger: Bare, clock: ManualClock, others: Callable[[Party], None]) -> None:
    broker = party(1)
    one = guest(broker, stranger)
    frame = b"".join(encode(fetched(1, piece(bytes(50_000)))))
    for at in range(200):
        with suppress(OSError):
            one.socket.send(frame[at : at + 1])
        idle([broker], 1)
        clock.advance(1_000)
        assert broker.held <= FRESH_BYTES
        if broker.open == 0:
            break
    assert 28 <= at <= 32
    assert reasons(broker) == ["a frame was not completed in time"]
    others(broker)


def test_bytes_that_keep_coming_are_not_slow(party: Make, stranger: Bare, clock: ManualClock) -> None:
    broker = party(1)
    one = guest(broker, stranger)
    frame = b"".join(encode(question(1)))
    for number in range(300):  # every moment some frame is incomplete, but never the same one
        one.socket.sendall(frame[len(frame) // 2 :] + frame[: len(frame) // 2] if number else frame[: len(frame) // 2])
        settle([broker], lambda want=number: len(broker.items) == want)  # type: ignore[misc]
        clock.advance(1_000)
    assert broker.open == 1


def test_nobody_has_for_ever_to_say_who_he_is(party: Make, stranger: Bare, clock: ManualClock) -> None:
    broker = party(1)
    one, two = stranger(broker.endpoint), stranger(broker.endpoint)
    two.socket.send(b"\x20")
    settle([broker], lambda: broker.open == 2)
    clock.advance(5_001)
    settle([broker], lambda: broker.open == 0)
    assert reasons(broker) == ["the handshake took too long"]  # of one address it is told once
    assert one.is_cut_off()
    assert two.is_cut_off()


@pytest.mark.parametrize("length", [2**31, 2**32 - 5, (1 << 20) - 3])
@pytest.mark.parametrize("greets", [True, False])
def test_giant_frames(party: Make, stranger: Bare, others: Callable[[Party], None], length: int, greets: bool) -> None:
    broker = party(1, limits=SMALL)
    one = guest(broker, stranger) if greets else stranger(broker.endpoint)
    one.socket.sendall(length.to_bytes(4, "little") + bytes(1_000))
    settle([broker], lambda: bool(reasons(broker)))
    assert str(length + 4) in reasons(broker)[0]
    assert one.is_cut_off()
    others(broker)
    assert broker.held == 0


def test_a_stranger_may_not_send_what_a_known_one_may(party: Make, stranger: Bare) -> None:
    broker = party(1)
    one = stranger(broker.endpoint)
    one.socket.sendall((17_000).to_bytes(4, "little"))
    settle([broker], lambda: bool(reasons(broker)))
    assert "16384" in reasons(broker)[0]


def test_half_received_frames_of_all_are_bounded_and_the_largest_goes_first(
    party: Make, stranger: Bare, others: Callable[[Party], None]
) -> None:
    broker = party(1, limits=SMALL)
    claim = ((1 << 20) - 4).to_bytes(4, "little")
    guests = [guest(broker, stranger) for _ in range(8)]
    for size, one in enumerate(guests, 1):
        one.socket.sendall(claim + bytes(size * 20_000))
        idle([broker], 3)
        assert broker.held <= SMALL.receive_bytes_max + 2 * size * 20_000
    guests[0].socket.sendall(bytes(600_000))
    settle([broker], lambda: bool(reasons(broker)))
    idle([broker])
    assert broker.held <= SMALL.receive_bytes_max
    assert "half-received" in reasons(broker)[0]
    assert guests[0].is_cut_off()
    others(broker)


def test_clients_go_before_brokers_when_memory_is_short(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=SMALL)
    claim = ((1 << 20) - 4).to_bytes(4, "little")
    peer = stranger(broker.endpoint)
    peer.hello(cluster_id="c", role="broker", broker_id=2)
    client = guest(broker, stranger)
    peer.socket.sendall(claim + bytes(700_000))
    idle([broker], 10)
    client.socket.sendall(claim + bytes(200_000))
    settle([broker], lambda: bool(reasons(broker)))
    assert [fields["peer"] for fields in broker.told("peer_disconnected")] == [("peer", 1)]


@pytest.mark.parametrize("greets", [True, False])
def test_random_bytes(party: Make, stranger: Bare, others: Callable[[Party], None], greets: bool) -> None:
    broker = party(1, limits=SMALL)
    random = Random(7)
    for _ in range(40):
        one = guest(broker, stranger) if greets else stranger(broker.endpoint)
        with suppress(OSError):
            one.socket.sendall(random.randbytes(random.randrange(16, 5_000)))
        one.socket.close()
    settle([broker], lambda: broker.open == 0)
    assert broker.messages == []
    assert broker.held == 0
    others(broker)


def test_frames_cut_at_every_byte(party: Make, stranger: Bare, others: Callable[[Party], None]) -> None:
    broker = party(1)
    hello = b"".join(encode(m.Handshake("", "client", -1, -1, 1, 1, 1)))
    stream = hello + b"".join(encode(question(1)))
    for cut in range(1, len(stream)):
        one = stranger(broker.endpoint)
        one.socket.sendall(stream[:cut])
        one.socket.close()
        if cut % 20 == 0:
            idle([broker], 2)
    settle([broker], lambda: broker.open == 0)
    assert broker.messages == []
    assert broker.held == 0
    others(broker)


SAMPLES = [each for each in messages().values() if type(each) in MESSAGE_TYPES.values()]


@pytest.mark.parametrize("message", SAMPLES, ids=lambda each: type(each).__name__)
def test_before_the_handshake_nothing_is_listened_to(party: Make, stranger: Bare, message: Any) -> None:
    broker = party(1)
    one = stranger(broker.endpoint)
    one.send(message)
    settle([broker], lambda: bool(broker.told("peer_disconnected") or broker.told("peer_refused")))
    idle([broker], 3)
    assert broker.items == []
    if type(message) is not m.Handshake:
        assert "before the handshake" in reasons(broker)[0]
        assert one.is_cut_off()


@pytest.mark.parametrize(
    "message",
    [
        m.Handshake("", "client", -1, -1, 1, 1, 1),
        m.HandshakeAnswer(0, "", "c", 3, 1),
        m.Fetch(1, 2, 1, 0, -1, 0, 0, 1, []),
        m.Flushed(2, 1, []),
        m.Heartbeat(2, 1, 1, 1),
        m.AlterIsr(1, 2, 1, []),
        m.LeaderAndIsr(2, 9, 1, 1, True, 1, [], as_of=1),
        m.StopReplica(2, 9, 1, 1, [], as_of=1),
        m.Admin(1, "delete_topic", {}, 5),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_client_that_plays_broker_is_cut_off(party: Make, stranger: Bare, others: Callable[[Party], None], message: Any) -> None:
    broker = party(1)
    one = guest(broker, stranger)
    one.send(message)
    settle([broker], lambda: bool(reasons(broker)))
    assert type(message).__name__ in reasons(broker)[0] or "client" in reasons(broker)[0]
    assert broker.messages == []
    assert one.is_cut_off()
    others(broker)


def test_a_broker_in_anothers_name_is_cut_off(party: Make, stranger: Bare) -> None:
    broker = party(1)
    one = stranger(broker.endpoint)
    one.hello(cluster_id="c", role="broker", broker_id=2, lane=0)
    settle([broker], lambda: bool(broker.told("peer_connected")))
    one.send(m.Fetch(1, 3, 1, 0, -1, 0, 0, 1, []))
    settle([broker], lambda: bool(reasons(broker)))
    assert "broker 3" in reasons(broker)[0]
    assert broker.messages == []


def test_a_dialed_peer_that_answers_nonsense(party: Make, endpoints: dict[int, str]) -> None:
    one = party(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoints[2] = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        one.say(2, fetched(1))
        idle([one], 2)
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"".join(encode(fetched(1))))
            settle([one], lambda: 2 in one.lost)
    assert "Fetched in place of the answer" in one.told("dial_failed")[0]["reason"]
    assert one.messages == []


def test_more_connections_than_allowed(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=attrs.evolve(SMALL, connections_max=4))
    silent = [stranger(broker.endpoint) for _ in range(4)]
    settle([broker], lambda: broker.open == 4)
    known = [guest(broker, stranger) for _ in range(3)]  # each in place of a silent one
    assert [one.is_cut_off() for one in silent] == [True, True, True, False]
    peer = stranger(broker.endpoint)
    peer.hello(cluster_id="c", role="broker", broker_id=2)
    settle([broker], lambda: len(broker.told("peer_connected")) == 4)
    late = stranger(broker.endpoint)
    settle([broker], lambda: bool(broker.told("connection_refused")))
    assert late.is_cut_off()
    assert broker.open == 4
    assert not any(one.is_cut_off() for one in (*known, peer))


def test_clients_leave_places_for_brokers(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=attrs.evolve(SMALL, connections_max=16))
    known = [guest(broker, stranger) for _ in range(14)]
    late = [stranger(broker.endpoint) for _ in range(2)]
    for one in late:
        one.hello()
    settle([broker], lambda: bool(broker.told("peer_refused")))  # told once a minute and address
    idle([broker], 10)
    for one in late:
        answer = one.read()
        assert (answer.error, "14 connections of clients are open" in answer.message) == (Code.QUOTA_EXCEEDED, True)
        assert one.is_cut_off()
    for number in (2, 3):
        stranger(broker.endpoint).hello(cluster_id="c", role="broker", broker_id=number)
    settle([broker], lambda: len(broker.told("peer_connected")) == 16)
    known.pop().socket.close()
    settle([broker], lambda: broker.open == 15)
    guest(broker, stranger)
    assert not any(one.is_cut_off() for one in known)


def test_so_many_of_one_address(party: Make, stranger: Bare, others: Callable[[Party], None]) -> None:
    broker = party(1, limits=attrs.evolve(SMALL, connections_per_address_max=3))
    known = [guest(broker, stranger), guest(broker, stranger)]
    silent = stranger(broker.endpoint)
    settle([broker], lambda: broker.open == 3)
    late = stranger(broker.endpoint)
    settle([broker], lambda: bool(broker.told("connection_refused")))
    assert late.is_cut_off()
    assert "3 connections of its address are open" in broker.told("connection_refused")[0]["reason"]
    silent.socket.close()
    settle([broker], lambda: broker.open == 2)
    others(broker)
    assert not any(one.is_cut_off() for one in known)


@pytest.mark.parametrize(("step", "cut"), [(FRAME_STEP_BYTES, False), (FRAME_STEP_BYTES // 4, True)])
def test_a_frame_that_comes_slowly_may_go_on_as_long_as_enough_of_it_does(
    party: Make, stranger: Bare, clock: ManualClock, step: int, cut: bool
) -> None:
    broker = party(1)
    one = stranger(broker.endpoint)
    one.hello(cluster_id="c", role="broker", broker_id=2)
    settle([broker], lambda: bool(broker.told("peer_connected")))
    one.socket.settimeout(None)
    one.socket.sendall((12 + 8 * step).to_bytes(4, "little") + bytes(12))
    settle([broker], lambda: broker.held > 0)
    for sent in range(1, 8):
        clock.advance(broker.transport.limits.frame_timeout_ms - 1)
        one.socket.sendall(bytes(step))
        (connection,) = broker.transport._connections.open.values()
        settle([broker], lambda: bool(reasons(broker)) or connection.incoming.filled >= 16 + sent * step)  # noqa: B023
        if reasons(broker):
            break
    assert reasons(broker) == ["a frame was not completed in time"] * cut


@pytest.mark.parametrize(("allowed", "most"), [(8, 6), (4_000, 7), (resource.RLIM_INFINITY, 7)])
def test_strangers_leave_descriptors_for_files(
    party: Make, stranger: Bare, monkeypatch: pytest.MonkeyPatch, allowed: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    broker = party(1, limits=attrs.evolve(SMALL, connections_max=7))
    silent = [stranger(broker.endpoint) for _ in range(9)]
    settle([broker], lambda: [one.is_cut_off() for one in silent] == [*[True] * (9 - most), *[False] * most])
    assert broker.open == most


def test_out_of_descriptors(party: Make, stranger: Bare, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = party(1)
    real = listeners_module.sockets.accept
    tries: list[int] = []

    def accept(*arguments: Any) -> Any:
        tries.append(1)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(listeners_module.sockets, "accept", accept)
    one = stranger(broker.endpoint)
    one.hello()
    idle([broker], 50)
    assert len(tries) == 1
    assert len(broker.told("accept_paused")) == 1
    assert broker.transport.next_poll_ms() == clock.now_ms() + 1_000
    clock.advance(1_000)
    idle([broker], 5)
    assert len(tries) == 2
    monkeypatch.setattr(listeners_module.sockets, "accept", real)
    clock.advance(1_000)
    settle([broker], lambda: bool(broker.told("peer_connected")))


def test_a_reset_in_the_middle_of_everything(party: Make, stranger: Bare, others: Callable[[Party], None]) -> None:
    broker = party(1)
    one = guest(broker, stranger)
    one.send(question(1))
    settle([broker], lambda: len(broker.items) == 1)
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    one.socket.close()
    for _ in range(20):
        broker.say(("peer", 1), fetched(1, piece(bytes(100_000))))
    settle([broker], lambda: ("peer", 1) in broker.lost)
    broker.say(("peer", 1), fetched(1, piece(bytes(100_000))))
    others(broker)


@given(st.data())
def test_valid_frames_with_nonsense_inside(data: st.DataObject) -> None:
    """Whatever order, route and role: what comes out is admissible, and nothing but closing follows."""
    clock = ManualClock()
    broker = Party(1, clock=clock, endpoints={}, limits=SMALL)
    one = Stranger(broker.endpoint)
    try:
        role = data.draw(st.sampled_from([{}, {"role": "broker", "broker_id": 2, "cluster_id": "c"}]))
        one.hello(**role)
        for message in data.draw(st.lists(st.sampled_from(SAMPLES), max_size=4)):
            junk = bytearray(b"".join(encode(message, data.draw(st.integers(0, 3)))))
            if data.draw(st.booleans()):
                junk[data.draw(st.integers(0, len(junk) - 1))] ^= 1
            one.socket.sendall(junk)
        one.socket.close()
        settle([broker], lambda: broker.open == 0 and bool(broker.events))
        of_clients = (m.Produce, m.Stage, m.Publish, m.Fetch, m.ListOffsets, m.OffsetsForLeaderEpoch, m.Metadata, m.Admin)
        allowed = of_clients if not role else (m.Fetched,)
        assert all(isinstance(message, allowed) for message in broker.messages)
        assert broker.held == 0
    finally:
        one.close()
        broker.transport.close()


# ------------------------------------------------------------------------------------------------------ files under us


def make_log(path: Path) -> Any:
    log = replog.Log.open(path / "log")
    for number in range(40):
        log.append_records([bytes([number]) * 50_000])
    return log


@pytest.mark.parametrize("high_watermark", [-1, 20, 40])
def test_slices_are_sent_from_the_file_and_released(party: Make, tmp_path: Path, high_watermark: int) -> None:
    one, two = party(1), party(2)
    log = make_log(tmp_path)
    slices = log.read(0, log.end_offset, 10 << 20)
    expected = b"".join(bytes(each.view()) for each in log.read(0, log.end_offset, 10 << 20))
    one.say(2, fetched(1, *slices, high_watermark=high_watermark))
    settle([one, two], lambda: bool(two.items))
    got = b"".join(bytes(each.view()) for each in two.messages[0].entries[0].slices)
    assert got == expected
    assert all(each._view is None and each.fileno() == -1 for each in slices)
    log.close()


def test_a_slice_whose_log_is_truncated_under_a_slow_reader_ends_the_connection(party: Make, stranger: Bare, tmp_path: Path) -> None:
    broker = party(1)
    log = make_log(tmp_path)
    one = guest(broker, stranger)
    one.send(question(1))
    settle([broker], lambda: len(broker.items) == 1)
    before = b"".join(bytes(each.view()) for each in log.read(0, log.end_offset, 10 << 20))
    kept = []
    for _ in range(3):
        kept.append(log.read(0, log.end_offset, 10 << 20))
        broker.say(("peer", 1), fetched(1, *kept[-1]))
    idle([broker], 3)
    (connection,) = broker.transport._connections.open.values()
    assert connection.outgoing.size > 1_000_000
    log.truncate_to(30)
    log.append_records([b"other" * 20_000])
    got = b""
    one.socket.settimeout(0)
    for _ in range(2_000):
        with suppress(BlockingIOError):
            try:
                data = one.socket.recv(1 << 20)
            except ConnectionError:
                break
            if not data:
                break
            got += data
        idle([broker], 1)
    assert reasons(broker) == ["a log was truncated below what was being sent"]
    assert b"other" not in got
    assert before[: 20 * 50_000] in got
    assert all(each.fileno() == -1 for slices in kept for each in slices)
    log.close()


@pytest.mark.parametrize("how", ["nobody", "closed", "gone", "back-off"])
def test_slices_that_are_not_sent_are_released(party: Make, tmp_path: Path, how: str, endpoints: dict[int, str]) -> None:
    one = party(1)
    log = make_log(tmp_path)
    (first, *_) = slices = log.read(0, log.end_offset, 1 << 20)
    to: Any = 2
    if how == "closed":
        one.transport.close()
    elif how == "gone":
        to = ("peer", 9)
    elif how == "back-off":
        endpoints[2] = "tcp://nonsense"
        one.say(2, fetched(1))
        idle([one], 2)
    assert first.fileno() >= 0
    one.say(to, fetched(1, *slices))
    if how != "closed":
        idle([one], 2)
    assert [each.fileno() for each in slices] == [-1] * len(slices)
    log.close()


# ---------------------------------------------------------------------------------------------------------------- forks


def test_a_forked_child_has_nothing_of_it_and_the_parent_goes_on(party: Make) -> None:
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    settle([one, two], lambda: len(two.items) == 1)
    one.say(2, fetched(2))
    descriptors = [one.transport.fileno(), *one.transport._connections.open, one.transport._wakeup.fd]
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            one.say(2, fetched(3))
            one.transport.flush()
            one.transport.close()
            status = 2 if one.transport.fileno() != -1 or one.transport.handle([], 0) else 0
            for fd in descriptors:
                with suppress(OSError):
                    os.fstat(fd)
                    status = 3
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    one.say(2, fetched(4))
    settle([one, two], lambda: len(two.items) == 3)
    assert [message.request for message in two.messages] == [1, 2, 4]
    assert isinstance(one.transport, TcpTransport)
    assert one.lost == two.lost == []
