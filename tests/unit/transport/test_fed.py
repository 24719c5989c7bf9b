"""TLS is fed from sockets: what one call does is bounded, records are sent whole or not at all, and every end is told of as it was."""

from __future__ import annotations

import random
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.authorities import CLIENT_SECRET, tls_of
from tests.unit.transport.harness import Party, fetched, settle
from tests.unit.transport.renewing import Renewing
from tests.unit.transport.test_bounds import arrived
from tests.unit.transport.test_crowds import turn

from replog.security.settings import Security
from replog.security.tls import TlsFiles
from replog.testing.clock import ManualClock
from replog.testing.eventually import eventually
from replog.transport.tcp.secured import FED_BYTES, UNSENT_BYTES_MAX, USELESS_BYTES_MAX, TlsSocket
from replog.transport.tcp.turns import HANDLE_MS_MAX

Make = Callable[..., Party]
Wrap = Callable[..., Any]

AT_ONCE = USELESS_BYTES_MAX + FED_BYTES
"""Of one connection in one turn, if it is no data."""
KEY_UPDATE_BYTES = 27
"""One request for a new key, as a record."""
TINY_BYTES = 4_608
"""The least that a kernel keeps of what is sent."""


@pytest.fixture(scope="module")
def secured(folder: Path) -> Security:
    """A broker's, whose clients have secrets: whoever connects can shake hands with it."""
    return Security(tls=tls_of(folder, "broker/1"), secret={"broker": b"b" * 32, "client": CLIENT_SECRET})


@pytest.fixture
def wrap(secured: Security, folder: Path) -> Iterator[Wrap]:
    """TLS on a socket."""
    files, made = (TlsFiles(secured), TlsFiles(Security(tls=tls_of(folder, "client/a")))), []

    def on(sock: socket.socket, *, listens: bool, renews: bool = False) -> Any:
        sock.setblocking(False)
        made.append(Renewing(sock) if renews else TlsSocket(sock, files[not listens].loaded(listens=listens), listens=listens))
        return made[-1]

    yield on
    for each in made:
        each.close()


def plain(*, tiny: bool = False) -> tuple[socket.socket, socket.socket]:
    """The ends of a connection by TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        if tiny:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, TINY_BYTES)
        far = socket.create_connection(listening.getsockname())
        near, _ = listening.accept()
    for end in (near, far):
        end.setblocking(False)
        if tiny:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TINY_BYTES)
    return near, far


def both(wrap: Wrap, near: socket.socket, far: socket.socket) -> tuple[TlsSocket, TlsSocket]:
    """... that have shaken hands."""
    ends = wrap(near, listens=True), wrap(far, listens=False)
    eventually(lambda: not any([end.shake_hands() for end in ends]))
    return ends


def renewing(wrap: Wrap, near: socket.socket, far: socket.socket) -> tuple[TlsSocket, Renewing]:
    """... of which one asks for new keys."""
    own, other = wrap(near, listens=True), wrap(far, listens=False, renews=True)
    eventually(lambda: all([other.shake_hands(), own.shake_hands() == 0]))
    return own, other


def received(end: TlsSocket, size: int = 1 << 18) -> bytes:
    """What is there now."""
    buffer = bytearray(size)
    with suppress(BlockingIOError):
        return bytes(buffer[: end.recv_into(buffer)])
    return b""


# --------------------------------------------------------------------------------------------------------------- new keys


@pytest.fixture
def flooder(party: Make, secured: Security) -> Iterator[Callable[[Party], tuple[Renewing, int]]]:
    """Those that have shaken hands with a broker, which knows them by a descriptor."""
    made = []

    def on(broker: Party) -> tuple[Renewing, int]:
        before = set(broker.transport._connections.open)
        sock = socket.create_connection(("127.0.0.1", int(broker.endpoint.rpartition(":")[2])))
        sock.setblocking(False)
        made.append(Renewing(sock))
        settle([broker], made[-1].shake_hands)
        (fd,) = set(broker.transport._connections.open) - before
        turn(broker)
        return made[-1], fd

    yield on
    for each in made:
        each.close()


def asked(other: Renewing, fd: int) -> int:
    """Have one ask for new keys, more than are looked at in two turns; returns the bytes that wait at its broker."""
    size = other.renew(20_000) * KEY_UPDATE_BYTES
    assert size > 2 * AT_ONCE
    eventually(lambda: arrived(fd) >= 2 * AT_ONCE)
    return arrived(fd)


def test_brokers_are_heard_while_somebody_asks_for_new_keys(
    party: Make, secured: Security, flooder: Callable[[Party], tuple[Renewing, int]]
) -> None:
    one, two = party(1, security=secured), party(2, security=secured)
    two.say(1, fetched(0))
    settle([one, two], lambda: len(one.messages) == 1)
    (friend,) = one.transport._connections.open
    other, fd = flooder(one)
    number = 0
    while other.renewed < 100_000:
        left = asked(other, fd)
        while left:
            number += 1
            two.say(1, fetched(number))
            two.transport.flush()
            eventually(lambda: bool(arrived(friend)) and not two.transport.unsent_bytes)
            turn(one)
            assert one.messages[-1].request == number, "it is heard in this very turn"
            assert left - arrived(fd) <= AT_ONCE, "a little of the other one is read"
            assert one.transport._connections.bytes_read >= KEY_UPDATE_BYTES
            left = arrived(fd)
    assert number * AT_ONCE >= other.renewed * KEY_UPDATE_BYTES
    assert fd in one.transport._connections.open


def test_new_keys_of_many_end_a_turn_and_each_has_its_own(
    party: Make, secured: Security, flooder: Callable[[Party], tuple[Renewing, int]], clock: ManualClock
) -> None:
    one = party(1, security=secured)
    before = {}
    for other, fd in [flooder(one) for _ in range(4)]:
        before[fd] = other.renew(AT_ONCE // KEY_UPDATE_BYTES) * KEY_UPDATE_BYTES
        eventually(lambda: arrived(fd) == before[fd])  # noqa: B023  it is called at once; none is under way that could take the place of what is read
    late_ms = clock.now_ms() - HANDLE_MS_MAX  # so long ago the turn has begun
    one.transport.handle(one.transport.wait(0), late_ms)
    heard = {fd for fd, size in before.items() if arrived(fd) < size}
    assert 0 < len(heard) < 4
    for _ in range(3):
        one.transport.handle(one.transport.wait(0), late_ms)
    assert all(arrived(fd) < size for fd, size in before.items())


def test_data_among_new_keys_arrives_in_order(wrap: Wrap) -> None:
    own, other = renewing(wrap, *plain())
    said, heard, echoed = bytearray(), bytearray(), bytearray()
    for number in range(200):
        other.renew(number % 7, asks=number % 2 == 0)
        piece = bytes([number]) * (1 + 37 * number)
        assert other.say(piece)
        said += piece
        heard += received(own)
        assert own.send(piece) == len(piece)
        echoed += other.hear()
    eventually(lambda: [heard.extend(received(own)), echoed.extend(other.hear()), len(heard) == len(echoed) == len(said)][-1])
    assert heard == echoed == said


def flood(own: TlsSocket, other: Renewing, *, takes: bool) -> int:
    """Ask for new keys, again and again; returns the most that was kept of the answers."""
    most = 0
    for _ in range(400):
        other.renew(100, asks=True)
        received(own)
        most = max(most, len(own._unsent) + own._made.pending)
        if takes:
            assert other.hear() == b""
    return most


@pytest.mark.parametrize("waits", [False, True], ids=["nothing is said", "data waits"])
def test_who_takes_no_answers_to_its_requests_for_new_keys_is_cut_off(wrap: Wrap, waits: bool) -> None:
    own, other = renewing(wrap, *plain(tiny=True))
    if waits:
        with suppress(BlockingIOError):
            while True:
                own.send(bytes(100_000))
    with pytest.raises(OSError, match="does not take the answers"):
        flood(own, other, takes=False)
    assert len(own._unsent) + own._made.pending <= UNSENT_BYTES_MAX + 2 * AT_ONCE


def test_who_takes_the_answers_may_ask_for_as_many_new_keys_as_it_likes(wrap: Wrap) -> None:
    own, other = renewing(wrap, *plain())
    assert flood(own, other, takes=True) < UNSENT_BYTES_MAX
    assert other.say(b"and on")
    heard = bytearray()
    eventually(lambda: [heard.extend(received(own)), heard == b"and on"][-1])


# ------------------------------------------------------------------------------------------------------------ what is sent


@pytest.mark.parametrize("tiny", [False, True], ids=["buffers as they are", "tiny buffers"])
def test_what_is_said_both_ways_at_once_arrives_byte_for_byte(wrap: Wrap, tiny: bool) -> None:
    ends = both(wrap, *plain(tiny=tiny))
    luck = random.Random(7)
    said = [luck.randbytes(2_000_000 if tiny else 10_000_000) for _ in ends]
    heard, sent, given = [bytearray(), bytearray()], [0, 0], [0, 0]

    def done() -> bool:
        for at, end in enumerate(ends):
            if not given[at]:  # else the same again, as every queue does
                given[at] = luck.choice([1, 100, 16_384, 16_385, 70_000, luck.randrange(1, 200_000)])
            with suppress(BlockingIOError):
                if sent[at] < len(said[at]):
                    sent[at] += end.send(memoryview(said[at])[sent[at] : sent[at] + given[at]])
                    given[at] = 0
            heard[1 - at] += received(ends[1 - at], luck.choice([1, 1_000, 16_384, 100_000]))
        return [len(each) for each in heard] == [len(each) for each in said]

    eventually(lambda: any(done() for _ in range(1_000)))
    assert heard == said[::-1]


def test_what_is_said_to_be_sent_can_be_read_and_nothing_else(wrap: Wrap) -> None:
    """Also if the other end has asked for new keys in between: who waits to send is told as soon as more has gone."""
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TINY_BYTES)
    own, other = renewing(wrap, near, far)
    said, sent, heard = random.Random(3).randbytes(1_000_000), 0, b""
    blocked = 0
    while sent < len(said):
        with suppress(BlockingIOError):
            while sent < len(said):
                sent += own.send(said[sent:])
        blocked += own._sealed > 0
        heard += other.hear()
        assert heard == said[:sent]
        other.renew(1, asks=True)
        assert received(own) == b""
        heard += other.hear()
        assert heard == said[:sent]
    assert blocked > 5


def test_the_rest_of_a_record_waits_and_is_known_to(wrap: Wrap) -> None:
    ends = both(wrap, *plain())
    ends[1].send(b"abcdefgh")
    eventually(lambda: arrived(ends[0].fileno()))
    heard = []
    while ends[0].has_decrypted or not heard:
        heard.append(received(ends[0], 3))
    assert heard == [b"abc", b"def", b"gh"]
    assert received(ends[0]) == b""


def test_who_has_said_its_last_believes_nothing_more(wrap: Wrap) -> None:
    near, far = plain()
    ends = both(wrap, near, far)
    ends[1].send(b"abcdefgh")
    eventually(lambda: arrived(near.fileno()))
    assert received(ends[0], 3) == b"abc"
    assert ends[0].has_decrypted
    ends[0].shutdown(socket.SHUT_WR)
    assert not ends[0].has_decrypted
    assert received(ends[0]) == b""
    far.send(b"no record at all")
    eventually(lambda: received(ends[0]) == b"no record at all")
    assert end_of(ends[1]) == b""
    far.close()
    end_of(ends[0])


# -------------------------------------------------------------------------------------------------------------- handshakes


def test_a_handshake_that_comes_byte_by_byte(wrap: Wrap) -> None:
    (near, ours), (far, theirs) = socket.socketpair(), socket.socketpair()
    ends = wrap(near, listens=True), wrap(far, listens=False)
    passed = 0
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)

        def done() -> bool:
            nonlocal passed
            states = [end.shake_hands() for end in ends]
            for source, target in ((ours, theirs), (theirs, ours)):
                with suppress(BlockingIOError):
                    passed += target.send(source.recv(1))
            return not any(states)

        eventually(lambda: any(done() for _ in range(1_000)))
        assert passed > 1_000
        ends[1].send(b"hello")
        while not (data := received(ends[0])):
            with suppress(BlockingIOError):
                ours.send(theirs.recv(1))
        assert data == b"hello"


def test_an_end_that_cannot_say_its_part_of_a_handshake_waits_until_it_can(wrap: Wrap) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += near.send(bytes(1_000))
    own = wrap(near, listens=False)
    assert [own.shake_hands(), own.shake_hands()] == [select.EPOLLOUT, select.EPOLLOUT]
    with far:
        while sent:
            sent -= len(far.recv(sent))
        assert own.shake_hands() == select.EPOLLIN
        assert far.recv(1) == b"\x16"


def cut(source: socket.socket, target: socket.socket, size: int) -> None:
    """Pass on so many bytes at most."""
    with suppress(BlockingIOError):
        target.send(source.recv(size))


@pytest.mark.parametrize("size", [0, 1, 4, 5, 100, 200], ids=lambda size: f"after {size} bytes of the other end")
@pytest.mark.parametrize("listens", [True, False], ids=["who listens", "who dials"])
def test_an_end_in_the_middle_of_a_handshake(wrap: Wrap, size: int, listens: bool) -> None:
    (near, ours), (far, theirs) = socket.socketpair(), socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    own, other = wrap(near, listens=listens), wrap(far, listens=not listens)
    for end in (other,) if listens else (own, other):
        assert end.shake_hands()
    if not listens:  # whoever listens answers a whole greeting
        cut(ours, theirs, 100_000)
        assert other.shake_hands()
    cut(theirs, ours, size)
    ours.close()
    with pytest.raises((ssl.SSLEOFError, BrokenPipeError, ConnectionResetError)):
        eventually(lambda: not own.shake_hands())
    theirs.close()


# -------------------------------------------------------------------------------------------------------------- how it ends


def end_of(own: TlsSocket) -> bytes:
    """What comes until the end."""
    buffer, heard = bytearray(1 << 18), bytearray()

    def over() -> bool:
        with suppress(BlockingIOError):
            size = own.recv_into(buffer)
            heard.extend(buffer[:size])
            return not size
        return False

    eventually(over)
    return bytes(heard)


def test_a_stream_that_ends_with_or_without_a_word_has_ended(wrap: Wrap, secured: Security) -> None:
    for words in (True, False):
        near, far = plain()
        own, fed, made = wrap(near, listens=True), ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        other = context.wrap_bio(fed, made)

        def shaken(own: TlsSocket = own, other: Any = other, fed: Any = fed, made: Any = made, far: Any = far) -> bool:
            states = own.shake_hands()
            with suppress(BlockingIOError):
                fed.write(far.recv(100_000))
            with suppress(ssl.SSLWantReadError):
                other.do_handshake()
            far.sendall(made.read())
            return not states

        eventually(shaken)
        other.write(bytes(40_000))
        if words:
            with suppress(ssl.SSLWantReadError):
                other.unwrap()
        far.sendall(made.read())
        if not words:
            far.close()
        assert end_of(own) == bytes(40_000)
        far.close()


def test_an_end_within_a_record_is_one_and_half_a_record_is_nothing(wrap: Wrap) -> None:
    (near, ours), (far, theirs) = socket.socketpair(), socket.socketpair()
    ends = wrap(near, listens=True), wrap(far, listens=False)

    def pump(size: int) -> None:
        for source, target in ((ours, theirs), (theirs, ours)):
            cut(source, target, size)

    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        eventually(lambda: [pump(100_000), not any([end.shake_hands() for end in ends])][-1])
        ends[1].send(b"a" * 100)
        pump(100_000)
        ends[1].send(b"b" * 100)
        pump(60)
    assert end_of(ends[0]) == b"a" * 100


def test_what_came_before_a_reset_is_read_first_and_the_buffer_is_free_again(wrap: Wrap) -> None:
    ends = both(wrap, *plain())
    said = 2 * ends[1].send(bytes(16_384))
    assert ends[1].send(bytes(16_384)) == 16_384
    eventually(lambda: arrived(ends[0].fileno()) == 2 * FED_BYTES)
    ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends[1].close()
    buffer = bytearray(1 << 18)
    assert ends[0].recv_into(buffer) == said
    buffer.extend(b"x")  # as a frame that grows
    assert ends[0].has_decrypted
    with pytest.raises(ConnectionResetError):
        ends[0].recv_into(buffer)


def test_a_record_that_was_changed_on_the_way_ends_it_and_the_other_end_is_told(wrap: Wrap) -> None:
    near, far = plain()
    own, other = wrap(near, listens=True), wrap(far, listens=False)
    eventually(lambda: not any([end.shake_hands() for end in (own, other)]))
    other.send(b"whole")
    eventually(lambda: received(own) == b"whole")
    far.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        eventually(lambda: bool(received(own)))
    with pytest.raises(ssl.SSLError, match="ALERT_BAD_RECORD_MAC"):
        eventually(lambda: bool(received(other)))
