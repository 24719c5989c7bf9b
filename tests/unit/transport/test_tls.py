"""Connections under TLS: both ends show certificates that name them, or one of them proves itself by a secret."""

from __future__ import annotations

import errno
import logging
import os
import select
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.authorities import CLIENT_SECRET, expired, server, tls_of, unreadable
from tests.unit.transport.harness import Party, Stranger, fetched, idle, piece, question, settle, shown

from replog import messages as m
from replog.codec import encode
from replog.errors import UsageError
from replog.security.certificates import certified
from replog.security.identity import Identity
from replog.security.settings import Security, Tls
from replog.security.tls import TlsFiles
from replog.testing.clock import ManualClock
from replog.transport.tcp.secured import TlsSocket

Make = Callable[..., Party]
Strange = Callable[[str], Stranger]


def identities(party: Party) -> set[str]:
    """Who has proven what at its open connections."""
    return {str(connection.identity) for connection in party.transport._connections.open.values()}


def last_words(broker: Party, folder: Path, data: bytes) -> tuple[socket.socket, bytes]:
    """A client's socket, and what it has to send still: the end of its handshake with TLS, and what it says then."""
    plain = socket.create_connection(("127.0.0.1", int(broker.endpoint.rpartition(":")[2])))
    plain.setblocking(False)
    fed, made = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = TlsFiles(shown(folder, "client/billing")).loaded(listens=False).context.wrap_bio(fed, made)

    def done() -> bool:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            plain.sendall(made.read())
            with suppress(BlockingIOError):
                fed.write(plain.recv(1 << 20))
            return False
        return True

    settle([broker], done)
    end.write(data)
    return plain, made.read()


# ------------------------------------------------------------------------------------------------------------ who is let in


def test_certificates_of_both_ends(party: Make, folder: Path) -> None:
    one, two = party(1, security=shown(folder, "broker/1")), party(2, security=shown(folder, "broker/2"))
    client = party(security=shown(folder, "client/billing"))
    one.say(2, m.Flushed(1, 0, []))
    client.say(one.endpoint, question(1))
    settle([one, two, client], lambda: len(one.messages) == len(two.messages) == 1)
    assert identities(one) == {"broker/2", "client/billing"}
    assert identities(two) == {"broker/1"}
    one.say(one.items[0][0], m.ListedOffsets(1, []))
    settle([one, two, client], lambda: len(client.messages) == 1)


def test_who_goes_as_soon_as_it_has_said_who_it_is_ends_nobodys_turn(party: Make, folder: Path) -> None:
    """OpenSSL does not know its certificate any more by then."""
    broker = party(1, security=shown(folder, "broker/1"))
    hello = m.Handshake("", "client", -1, -1, 1, 1, 1)
    plain, words = last_words(broker, folder, b"".join(encode(hello)))
    plain.sendall(words)
    plain.close()  # without a word of TLS, as a process that ends
    settle([broker], lambda: broker.told("peer_disconnected") != [])
    assert broker.told("peer_connected") != []
    assert broker.open == 0


def test_a_certificate_says_what_a_client_may(party: Make, folder: Path) -> None:
    broker, anna = party(1, security=shown(folder, "broker/1")), party(security=shown(folder, "admin/anna"))
    anna.say(broker.endpoint, question(1))
    settle([broker, anna], lambda: len(broker.messages) == 1)
    assert identities(broker) == {"admin/anna"}


def test_a_client_without_a_certificate_proves_itself_by_a_secret(party: Make, folder: Path) -> None:
    broker = party(1, security=Security(tls=tls_of(folder, "broker/1"), secret={"client": CLIENT_SECRET}))
    client = party(security=Security(tls=Tls(authority=str(folder / "authority.pem")), secret={"client": CLIENT_SECRET}))
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: len(broker.messages) == 1)
    assert identities(broker) == {"client"}


def test_large_frames_arrive_whole_both_ways_in_turn(party: Make, folder: Path) -> None:
    one, two = party(1, security=shown(folder, "broker/1")), party(2, security=shown(folder, "broker/2"))
    pieces = [os.urandom(size) for size in (1, 16_384, 16_385, 300_000, 1 << 20, 3_000_001)]
    for number, data in enumerate(pieces):
        one.say(2, fetched(number, piece(data)))
        two.say(1, fetched(number, piece(data[::-1])))
    settle([one, two], lambda: len(one.messages) == len(two.messages) == len(pieces))
    assert [bytes(message.entries[0].slices[0].view()) for message in two.messages] == pieces
    assert [bytes(message.entries[0].slices[0].view())[::-1] for message in one.messages] == pieces


def test_a_reader_that_takes_nothing_for_a_while_loses_nothing(party: Make, folder: Path) -> None:
    """What is queued grows while a record that the socket did not take is begun again and again."""
    one, two = party(1, security=shown(folder, "broker/1")), party(2, security=shown(folder, "broker/2"))
    one.say(2, fetched(0))
    settle([one, two], lambda: len(two.messages) == 1)
    pieces = [os.urandom(size) for size in (7_000_000, 1, 100, 16_384, 40_000, 70_000, 3, 300_000, *[200] * 500)]
    for number, data in enumerate(pieces, 1):
        one.say(2, fetched(number, piece(data)))
        for _ in range(3):
            one.transport.flush()
            one.transport.handle([(fd, select.EPOLLOUT) for fd in one.transport._connections.open], one.transport._now_ms())
    assert one.transport.unsent_bytes == one.transport.unsent_to(1, 2) > 0
    settle([one, two], lambda: len(two.messages) == 1 + len(pieces))
    assert [bytes(message.entries[0].slices[0].view()) for message in two.messages[1:]] == pieces


@pytest.mark.parametrize("settled", [True, False])
def test_regions_of_files_are_read_and_encrypted(
    party: Make, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    one, two = party(1, security=shown(folder, "broker/1")), party(2, security=shown(folder, "broker/2"))
    monkeypatch.setattr(os, "sendfile", lambda *_: pytest.fail("the kernel was handed plain bytes"))
    data = os.urandom(2_000_000)
    path = tmp_path / "region"
    path.write_bytes(b"before" + data)
    with path.open("rb") as file:

        class Region:
            base_offset, end_offset, position, length, stale = 0, 10, 6, len(data), False

            def fileno(self) -> int:
                return file.fileno()

            def view(self) -> memoryview:
                return memoryview(data)

            def release(self) -> None:
                pass

        one.say(2, fetched(1, Region(), high_watermark=10 if settled else 0))
        settle([one, two], lambda: len(two.messages) == 1)
    assert bytes(two.messages[0].entries[0].slices[0].view()) == data


def test_many_small_frames_at_once_are_all_delivered(party: Make, folder: Path) -> None:
    """More than one record holds, so that some wait decrypted, of which the selector knows nothing."""
    one, two = party(1, security=shown(folder, "broker/1")), party(2, security=shown(folder, "broker/2"))
    for number in range(5_000):
        one.say(2, fetched(number))
    settle([one, two], lambda: len(two.messages) == 5_000)
    assert [message.request for message in two.messages] == list(range(5_000))


def test_what_waits_decrypted_is_read_once_the_peer_may_go_on(party: Make, folder: Path) -> None:
    one, two = party(1, security=shown(folder, "broker/1")), party(2, security=shown(folder, "broker/2"))
    one.say(2, fetched(1))
    settle([one, two], lambda: len(two.messages) == 1)
    connections = two.transport._connections
    (connection,) = connections.open.values()

    class Waiting:
        has_decrypted = True

    plain, connection.socket, connection.paused = connection.socket, Waiting(), True
    connections._note_unread(connection)
    assert connections.unread == {}
    connections.select(connection)
    connections.write(connection, two.transport._now_ms())
    assert list(connections.unread) == [connection.fd]
    assert two.transport.next_poll_ms() == two.transport._now_ms()  # at once: no selector will say so
    connection.socket = plain


def test_nothing_is_readable_on_the_way(party: Make, folder: Path) -> None:
    relay, said = socket.create_server(("127.0.0.1", 0)), bytearray()
    broker, client = party(1, security=shown(folder, "broker/1")), party(security=shown(folder, "client/a"))
    client.say(f"tcp://127.0.0.1:{relay.getsockname()[1]}", m.Metadata(1, -1, -1, ["a long and readable name"]))
    with relay:
        client.transport.flush()
        near, _ = relay.accept()
        far = socket.create_connection(("127.0.0.1", int(broker.endpoint.rpartition(":")[2])))
        with near, far:
            near.setblocking(False)
            far.setblocking(False)

            def passed_on() -> bool:
                for source, target in ((near, far), (far, near)):
                    try:
                        data = source.recv(65_536)
                    except BlockingIOError:
                        continue
                    said.extend(data)
                    target.sendall(data)
                return len(broker.messages) == 1

            settle([broker, client], passed_on)
    assert broker.messages[0].sought == ["a long and readable name"]
    assert b"readable name" not in said
    assert len(said) > 1_000


# --------------------------------------------------------------------------------------------------------- who is not let in


def failed(broker: Party, client: Party) -> tuple[str, list[dict[str, Any]]]:
    """Why the dialer has given up, and what the listener was told."""
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: bool(client.told("dial_failed")))
    idle([broker, client], 5)
    assert broker.messages == []
    assert client.told("dial_failed")[0]["endpoint"] == broker.endpoint
    return client.told("dial_failed")[0]["reason"], broker.told("authentication_failed")


def test_an_expired_certificate_of_a_listener(party: Make, folder: Path) -> None:
    broker, client = party(1, security=Security(tls=expired(folder, "broker/1"))), party(security=shown(folder, "client/a"))
    reason, told = failed(broker, client)
    assert reason == "its certificate is not accepted: certificate has expired"
    assert len(told) == 1


def test_an_expired_certificate_of_a_dialer(party: Make, folder: Path) -> None:
    broker, client = party(1, security=shown(folder, "broker/1")), party(security=Security(tls=expired(folder, "client/old")))
    reason, told = failed(broker, client)
    assert "does not accept the certificate of this process: that has expired" in reason
    assert told[0]["reason"] == "its certificate is not accepted: certificate has expired"


def test_a_certificate_of_another_authority(party: Make, folder: Path, tmp_path: Path) -> None:
    broker, client = party(1, security=shown(folder, "broker/1")), party(security=shown(tmp_path / "other", "client/a"))
    reason, told = failed(broker, client)
    assert reason.startswith("its certificate is not accepted: ")
    assert len(told) == 1
    mixed = Tls(authority=str(folder / "authority.pem"), certificate=f"{tmp_path}/other/client-a.pem", key=f"{tmp_path}/other/client-a.key")
    late = party(security=Security(tls=mixed))
    reason, _ = failed(broker, late)
    assert "does not accept the certificate of this process" in reason


def test_no_certificate_at_all(party: Make, folder: Path) -> None:
    authority = str(folder / "authority.pem")
    broker = party(1, security=shown(folder, "broker/1"))
    client = party(security=Security(tls=Tls(authority=authority), secret={"client": CLIENT_SECRET}))
    reason, told = failed(broker, client)
    assert reason == "it asks for a certificate, and this process has shown none"
    assert told[0]["reason"] == "it has shown no certificate"


@pytest.mark.parametrize("name", ["broker/2", "client/a", "admin/anna"])
def test_a_listener_whose_certificate_names_another(party: Make, folder: Path, name: str) -> None:
    broker, client = party(1, security=Security(tls=server(folder, name))), party(security=shown(folder, "client/a"))
    reason, _ = failed(broker, client)
    assert f"says that it is broker 1; its certificate is of {name}" in reason


def test_a_broker_is_the_one_that_its_certificate_names(party: Make, folder: Path, clock: ManualClock) -> None:
    """Broker 2 claims to be broker 3."""
    one, liar = party(1, security=shown(folder, "broker/1")), party(3, security=shown(folder, "broker/2"))
    liar.say(1, m.Flushed(3, 0, []))
    settle([one, liar], lambda: bool(one.told("authentication_failed")))
    clock.advance(1_000)
    settle([one, liar], lambda: bool(liar.told("dial_failed")))
    assert "have not proven who you are" in liar.told("dial_failed")[0]["reason"]
    assert one.messages == []


def test_a_client_is_no_broker_whatever_it_claims(party: Make, folder: Path, clock: ManualClock) -> None:
    one, liar = party(1, security=shown(folder, "broker/1")), party(2, security=shown(folder, "client/a"))
    liar.say(1, m.Flushed(2, 0, []))
    settle([one, liar], lambda: bool(one.told("authentication_failed")))
    assert one.messages == []


def test_a_name_that_is_no_text_is_nobodys(party: Make, folder: Path, clock: ManualClock) -> None:
    """The authority has signed it, so TLS lets it in; it ended the turn of the loop, each time with a traceback."""
    odd = Security(tls=unreadable(folder, b"client/caf\xe9"))
    broker, client, other = party(1, security=shown(folder, "broker/1")), party(security=odd), party(security=shown(folder, "client/a"))
    client.say(broker.endpoint, question(1))
    other.say(broker.endpoint, question(2))
    settle([broker, client, other], lambda: bool(broker.told("authentication_failed")) and bool(broker.messages))
    assert broker.told("authentication_failed")[0]["reason"] == "you have not proven who you are"
    clock.advance(1_000)
    settle([broker, client], lambda: bool(client.told("dial_failed")))
    assert "have not proven who you are" in client.told("dial_failed")[0]["reason"]
    assert [message.request for message in broker.messages] == [2]


def test_a_listener_whose_name_is_no_text_is_nobody(party: Make, folder: Path) -> None:
    broker, client = party(1, security=Security(tls=unreadable(folder, b"broker/\xff"))), party(security=shown(folder, "client/a"))
    reason, _ = failed(broker, client)
    assert "says that it is broker 1; its certificate is of nobody" in reason


def test_a_proof_is_of_no_use_to_somebody_in_between(party: Make, folder: Path, clock: ManualClock) -> None:
    """One who has got hold of another certificate of broker 1 passes on all that both say, and cannot make the proofs fit."""
    own = Security(tls=Tls(authority=str(folder / "authority.pem")), secret={"client": CLIENT_SECRET})
    broker = party(1, security=Security(tls=tls_of(folder, "broker/1"), secret={"client": CLIENT_SECRET}))
    client, files = party(security=own), TlsFiles(Security(tls=server(folder, "broker/1"), secret=own.secret))
    with socket.create_server(("127.0.0.1", 0)) as relay:
        client.say(f"tcp://127.0.0.1:{relay.getsockname()[1]}", question(1))
        client.transport.flush()
        near, _ = relay.accept()
        far = socket.create_connection(("127.0.0.1", int(broker.endpoint.rpartition(":")[2])))
        near.setblocking(False)
        far.setblocking(False)
        theirs = TlsFiles(own).loaded(listens=False)
        ends = [TlsSocket(near, files.loaded(listens=True), listens=True), TlsSocket(far, theirs, listens=False)]
        settle([broker, client], lambda: not any([end.shake_hands() for end in ends]))
        passed, buffer = 0, bytearray(65_536)

        def refused() -> bool:
            nonlocal passed
            for source, target in (ends, ends[::-1]):
                try:
                    size = source.recv_into(buffer)
                except BlockingIOError:
                    continue
                passed += target.send(buffer[:size]) > 0
            return bool(broker.told("authentication_failed"))

        settle([broker, client], refused)
        for end in ends:
            end.close()
    assert passed >= 3  # who it is, the challenge, the proof
    assert broker.messages == []


# -------------------------------------------------------------------------------------------------------------- downgrades


def test_a_dialer_with_tls_does_not_go_on_without(party: Make, folder: Path) -> None:
    broker, client = party(1), party(security=shown(folder, "client/a"))
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: bool(client.told("dial_failed")))
    assert broker.messages == []
    assert "TLS" in client.told("dial_failed")[0]["reason"] or "closed" in client.told("dial_failed")[0]["reason"]


def test_a_dialer_without_tls_is_not_let_in(party: Make, folder: Path) -> None:
    for security in (None, Security(secret={"client": CLIENT_SECRET})):
        broker, client = party(1, security=shown(folder, "broker/1")), party(security=security)
        _, told = failed(broker, client)
        assert told[0]["reason"] == "it does not speak TLS"


def test_an_older_tls_is_not_spoken(party: Make, folder: Path) -> None:
    broker = party(1, security=shown(folder, "broker/1"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    ends = ssl.MemoryBIO(), ssl.MemoryBIO()
    old = context.wrap_bio(*ends)
    with pytest.raises(ssl.SSLWantReadError):
        old.do_handshake()
    with socket.create_connection(("127.0.0.1", int(broker.endpoint.rpartition(":")[2])), timeout=5) as bare:
        bare.sendall(ends[1].read())
        settle([broker], lambda: bool(broker.told("authentication_failed")))
    assert broker.told("authentication_failed")[0]["reason"] == "it does not speak TLS 1.3"


def test_garbage_before_tls(party: Make, folder: Path, stranger: Strange) -> None:
    broker = party(1, security=shown(folder, "broker/1"))
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5_000), b"\x16\x03\x01\xff\xff" + bytes(20_000)):
        one = stranger(broker.endpoint)
        one.socket.sendall(garbage)
        settle([broker], one.is_cut_off)
        assert broker.open == 1  # until it has gone: closing before that could destroy what it was told
        one.close()
        settle([broker], lambda: broker.open == 0)
    assert len(broker.told("authentication_failed")) == 1


def test_half_a_handshake_is_closed_in_time(party: Make, folder: Path, stranger: Strange, clock: ManualClock) -> None:
    broker = party(1, security=shown(folder, "broker/1"))
    silent, slow = stranger(broker.endpoint), stranger(broker.endpoint)
    slow.socket.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    settle([broker], lambda: broker.open == 2)
    clock.advance(4_999)
    idle([broker], 5)
    assert broker.open == 2
    clock.advance(1)
    idle([broker], 5)
    assert broker.open == 0
    assert silent.is_cut_off()
    assert slow.is_cut_off()


# ------------------------------------------------------------------------------------------------------------- the files


def test_renewed_certificates_are_used_for_new_connections(party: Make, folder: Path, tmp_path: Path) -> None:
    authority = str(folder / "authority.pem")
    old, new = expired(folder, "broker/1"), tls_of(folder, "broker/1")
    assert old.certificate is not None
    assert new.certificate is not None
    tls = Tls(authority=authority, certificate=str(tmp_path / "b.pem"), key=str(tmp_path / "b.key"))
    shutil.copy(old.certificate, tmp_path / "b.pem")
    shutil.copy(str(old.key), tmp_path / "b.key")
    broker = party(1, security=Security(tls=tls))
    reason, _ = failed(broker, party(security=shown(folder, "client/a")))
    assert "expired" in reason
    (tmp_path / "b.pem").write_bytes(b"half a file")  # what was there before goes on being used
    reason, _ = failed(broker, party(security=shown(folder, "client/a")))
    assert "expired" in reason
    taken = Path(new.certificate).read_text().replace("CERTIFICATE-", "X509 CERTIFICATE-")  # by OpenSSL
    (tmp_path / "b.pem").write_text(taken)
    reason, _ = failed(broker, party(security=shown(folder, "client/a")))
    assert "expired" in reason
    shutil.copy(new.certificate, tmp_path / "b.pem")
    client = party(security=shown(folder, "client/a"))
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: len(broker.messages) == 1)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"authority": "none"}, "No such file"),
        ({"authority": "key"}, "no certificates of an authority"),
        ({"certificate": "none"}, "No such file"),
        ({"key": "other"}, "key values mismatch"),
        ({"key": "open"}, "mode 644"),
        ({"key": "locked"}, "encrypted"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_the_start(
    party: Make, folder: Path, tmp_path: Path, changes: dict[str, str], word: str
) -> None:
    tls = tls_of(folder, "broker/1")
    names = {"none": "none", "key": str(tls.key), "other": str(tls_of(folder, "broker/2").key)}
    names["open"], names["locked"] = str(tmp_path / "open.key"), str(tmp_path / "locked.key")
    shutil.copy(str(tls.key), names["open"])
    os.chmod(names["open"], 0o644)
    words = ["openssl", "ec", "-in", str(tls.key), "-aes128", "-passout", "pass:abcdef", "-out", names["locked"]]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    os.chmod(names["locked"], 0o600)
    files = {"authority": tls.authority, "certificate": tls.certificate, "key": tls.key} | {k: names[v] for k, v in changes.items()}
    with pytest.raises(UsageError, match=word):
        party(1, security=Security(tls=files))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([("URI", "replog://role/broker/3")], Identity("broker", "3")),
        ([("DNS", "broker-3.example.org"), ("URI", "replog://role/client/a.b@c")], Identity("client", "a.b@c")),
        ([("URI", "replog://role/admin")], Identity("admin")),
        ([("URI", "spiffe://x/broker/3"), ("URI", "replog://role/broker/0")], Identity("broker", "0")),
        ([("DNS", "broker-3.example.org")], None),
        ([("DNS", "replog://role/broker/3")], None),
        ([("URI", "replog://role/broker/3"), ("URI", "replog://role/broker/4")], None),
        ([("URI", "replog://role/broker")], None),
        ([("URI", "replog://role/broker/x")], None),
        ([("URI", "replog://role/broker/03")], None),
        ([("URI", "replog://role/broker/99999999999")], None),
        ([("URI", "replog://role/king/3")], None),
        ([("URI", "replog://role/client/a b")], None),
        ([("URI", "replog://role/client/")], None),
        ([], None),
    ],
)
def test_whom_a_certificate_names(names: list[tuple[str, str]], found: Identity | None) -> None:
    assert certified({"subjectAltName": tuple(names)}) == found
    assert certified({}) is None
    assert certified(None) is None


def test_renewed_files_that_could_not_be_read_for_a_while_are_used_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="replog")  # whatever a command line in this process has left
    clock = ManualClock()
    own, renewed = tls_of(tmp_path / "ca", "broker/1"), tls_of(tmp_path / "next", "broker/1")
    files = TlsFiles(Security(tls=own), now_s=lambda: clock.now_ms() / 1_000)
    before = files.loaded(listens=True)
    for each in ("authority", "certificate", "key"):
        shutil.copy(getattr(renewed, each), getattr(own, each))

    def exhausted(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as during:
        during.setattr(os, "open", exhausted)
        for _ in range(3):
            assert files.loaded(listens=True) is before
            clock.advance(1_000)
    assert len(caplog.records) == 1  # once, not with each try
    after = files.loaded(listens=True)
    assert after.fingerprint not in (before.fingerprint, b"")
    clock.advance(5_000)
    assert files.loaded(listens=True) is after  # nothing is read again for no reason
