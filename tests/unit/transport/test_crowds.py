"""Very many that come at once: their TLS handshakes and their refusals do not keep brokers waiting, and each has its turn."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.authorities import CLIENT_SECRET
from tests.unit.transport.harness import Party, Stranger, fetched, question, settle, shown
from tests.unit.transport.test_bounds import arrived

from replog import messages as m
from replog.security.audit import REFUSALS_MAX, REFUSALS_MS
from replog.security.settings import Security
from replog.security.tls import TlsFiles
from replog.testing.clock import ManualClock
from replog.testing.eventually import eventually
from replog.transport.tcp.connection import State
from replog.transport.tcp.connections import SECURE_AT_ONCE, SECURING_MAX
from replog.transport.tcp.incoming import TURN_BYTES
from replog.transport.tcp.secured import RECORDS_AT_ONCE, TlsSocket

Make = Callable[..., Party]
Bare = Callable[[str], Stranger]


def greeting() -> bytes:
    """The first that a client of TLS says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[TlsSocket]:
    """Each step of a handshake at the end that listens."""
    found: list[TlsSocket] = []
    shake = TlsSocket.shake_hands

    def counted(one: TlsSocket) -> int:
        if one._tls.server_side:
            found.append(one)
        return shake(one)

    monkeypatch.setattr(TlsSocket, "shake_hands", counted)
    return found


def turn(broker: Party) -> int:
    taken = broker.transport.handle(broker.transport.wait(0), broker.transport._now_ms())
    broker.transport.flush()
    return taken


def securing(broker: Party) -> list[int]:
    return [fd for fd, each in broker.transport._connections.open.items() if each.state is State.SECURING]


def crowd(broker: Party, stranger: Bare, count: int) -> list[Stranger]:
    """So many that are connected, and have all begun a handshake of which nothing was heard yet."""
    ends = []
    for _ in range(count):
        ends.append(stranger(broker.endpoint))
        turn(broker)
    settle([broker], lambda: len(securing(broker)) == count)
    first = greeting()
    for one in ends:
        one.socket.sendall(first)
    eventually(lambda: all(arrived(fd) == len(first) for fd in securing(broker)))
    return ends


def friends(party: Make, folder: Path) -> tuple[Party, Party]:
    """Two brokers that know each other."""
    one, two = (party(number, security=shown(folder, f"broker/{number}")) for number in (1, 2))
    two.say(1, fetched(0))
    settle([one, two], lambda: len(one.messages) == 1)
    return one, two


def test_brokers_are_heard_between_a_few_steps_of_handshakes(party: Make, stranger: Bare, folder: Path, steps: list[TlsSocket]) -> None:
    one, two = friends(party, folder)
    (fd,) = one.transport._connections.open
    ends = crowd(one, stranger, 40)
    steps.clear()
    for number in range(1, 11):
        two.say(1, fetched(number))
        two.transport.flush()
        eventually(lambda: bool(arrived(fd)) and not two.transport.unsent_bytes)
        turn(one)
        assert one.messages[-1].request == number, "it is heard in this very turn"
        assert len(steps) == SECURE_AT_ONCE * number
        assert one.transport.next_poll_ms() == one.transport._now_ms() or number == 10
    assert len({id(each) for each in steps}) == 40, "each has had its turn"
    assert all(end.socket.recv(5)[0] == 22 for end in ends), "and was answered, with a record of a handshake"


def test_nobody_of_a_crowd_is_left_out(party: Make, folder: Path) -> None:
    one, two = friends(party, folder)
    clients = [party(security=shown(folder, "client/a")) for _ in range(20)]
    for client in clients:
        client.say(one.endpoint, question(1))
    two.say(1, fetched(7))
    settle([one, two, *clients], lambda: len(one.messages) == 22)
    assert one.open == 21


def test_who_comes_into_a_crowd_is_taken_one_at_a_time(party: Make, stranger: Bare, folder: Path) -> None:
    one, _ = friends(party, folder)
    crowd(one, stranger, SECURING_MAX + 2 * SECURE_AT_ONCE)
    turn(one)
    late = [stranger(one.endpoint) for _ in range(30)]
    before, counts = one.open, []
    for _ in range(3):
        turn(one)
        counts.append(one.open - before)
    assert counts == [1, 2, len(late)]


def test_who_leaves_the_crowd_is_forgotten(party: Make, stranger: Bare, folder: Path, clock: ManualClock) -> None:
    one = party(1, security=shown(folder, "broker/1"))
    ends = crowd(one, stranger, 3 * SECURE_AT_ONCE)
    turn(one)
    for end in ends:
        end.close()
    clock.advance(one.transport.limits.handshake_timeout_ms)
    turn(one)
    settle([one], lambda: one.open == 0)
    assert not one.transport._connections.securing


def test_a_turn_takes_in_so_many_small_records_of_one(folder: Path) -> None:
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    ends = [
        TlsSocket(near, TlsFiles(shown(folder, "broker/1")).loaded(listens=True), listens=True),
        TlsSocket(far, TlsFiles(shown(folder, "client/a")).loaded(listens=False), listens=False),
    ]
    while any([each.shake_hands() for each in ends]):
        pass
    sent = 0
    with suppress(BlockingIOError):
        while sent < 5 * RECORDS_AT_ONCE:
            sent += ends[1].send(bytes([sent % 251]))
    assert sent > 2 * RECORDS_AT_ONCE
    buffer = bytearray(TURN_BYTES)
    came = bytearray()
    with suppress(BlockingIOError):
        while True:
            size = ends[0].recv_into(buffer)
            assert size <= RECORDS_AT_ONCE
            came += buffer[:size]
    assert bytes(came) == bytes(number % 251 for number in range(sent))
    for each in ends:
        each.close()


def test_a_sum_of_refusals_is_written_in_time(party: Make, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Although whoever was refused says nothing more."""
    caplog.set_level(logging.INFO, "replog.audit")
    broker = party(1, security=Security(secret={"client": CLIENT_SECRET}))
    client = party(security=Security(secret={"client": CLIENT_SECRET}))
    for number in range(REFUSALS_MAX + 5):
        client.say(broker.endpoint, m.Admin(number, "delete_topic", {"name": "t"}))
    settle([broker, client], lambda: len(client.messages) == REFUSALS_MAX + 5)

    def written() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "replog.audit"]

    assert len(written()) == REFUSALS_MAX
    due_ms: Any = broker.transport.next_poll_ms()
    assert due_ms <= clock.now_ms() + REFUSALS_MS
    clock.advance(REFUSALS_MS)
    turn(broker)
    assert written()[-1].endswith("outcome=refused more=5 within_s=10")
