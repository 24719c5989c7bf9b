"""What peers send before anything is known of them: streams of bytes, handshakes and their proofs, addresses, requests of browsers."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, Final

from attrs import evolve
from tests.fuzz.code import CODE
from tests.fuzz.sealing import frame_sealed
from tests.fuzz.target import Target
from tests.unit.samples import P0, messages

from replog import messages as m
from replog.codec import PROTOCOL_VERSION, CodecError, encode, frame_length
from replog.errors import UsageError
from replog.security.proof import NONCE_BYTES
from replog.security.settings import Security
from replog.status.http import HEAD_BYTES_MAX, Answer, BadRequest, check_host, names_of, read_request
from replog.status.http import encode as encode_answer
from replog.status.server import _query
from replog.transport.tcp import TcpLimits
from replog.transport.tcp.buffers import FRESH_BYTES, Buffers
from replog.transport.tcp.connections import Unwelcome
from replog.transport.tcp.endpoint import advertised, known_addresses, parse_endpoint
from replog.transport.tcp.fitting import Fitting
from replog.transport.tcp.incoming import EndOfStream, Incoming
from replog.transport.tcp.reception import Reception

__all__ = ["PEERS", "endpoint", "handshake", "handshakes", "http", "stream", "streams"]


def _each_sealed(data: bytearray) -> None:
    """Length and checksum of the frames behind the first byte; the last one takes what is left."""
    at = 1
    while len(data) - at >= 16:
        length = int.from_bytes(data[at : at + 4], "little") + 4
        stop = at + length if 16 <= length <= len(data) - at else len(data)
        one = data[at:stop]
        frame_sealed(one)
        data[at:stop] = one
        at = stop


# ----------------------------------------------------------------------------------------------------------------- streams

_FRAME_MAX: Final = 1 << 20


class _Pieces:
    """A socket that brings so many bytes at once, at most."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._at, self._size = data, 0, size

    def recv_into(self, room: Any) -> int:
        size = min(len(room), self._size, len(self._data) - self._at)
        room[:size] = self._data[self._at : self._at + size]
        self._at += size
        return size

    def settimeout(self, timeout_s: float) -> None:
        pass

    def recv(self, most: int) -> bytes:
        room = bytearray(min(most, self._size))
        return bytes(room[: self.recv_into(room)])


@cache
def _buffers() -> Buffers:
    return Buffers()


def stream(data: bytes) -> None:
    """What a connection brings, in pieces (the first byte says of which size): the frames in it, however it is cut, or CodecError."""
    if not data:
        return
    expected, at, refused = [], 1, False
    try:
        while len(data) - at >= 4 and len(data) - at >= (length := frame_length(data[at : at + 4], frame_bytes_max=_FRAME_MAX)):
            expected.append(data[at : at + length])
            at += length
    except CodecError:
        refused = True
    taken: list[bytes] = []
    incoming, source = Incoming(_FRAME_MAX), _Pieces(data[1:], max(1 + data[0] ** 2, len(data) // 256))
    incoming.bound(1 + data[0] % 4)
    try:
        while True:
            incoming.receive(source, _buffers(), lambda frame, lasting: taken.append(bytes(frame)))  # type: ignore[arg-type]
            while incoming.kept:
                incoming.go_on(_buffers(), lambda frame, lasting: taken.append(bytes(frame)))
    except EndOfStream:
        assert not refused, "a length that is not allowed was taken"
        assert incoming.filled == len(data) - at, "bytes of the last frame were lost"
    except CodecError:
        assert refused, "a length that is allowed was refused"
    assert taken == expected, "other frames than there are"
    incoming.drop(_buffers())
    assert _buffers().held == 0, "memory is counted that nobody has"


def streams() -> list[bytes]:
    """A few frames: small ones, and one that gets a buffer of its own."""
    small = [b"".join(encode(message)) for message in list(messages().values())[:6]]
    large = b"".join(encode(m.Produce(-1, 1, [m.ProduceEntry(1, P0, bytes(2 * FRESH_BYTES))])))
    return [b"\xff" + b"".join(small), b"\x03" + b"".join(small[:2]), b"\x80" + small[0] + large + small[1]]


# -------------------------------------------------------------------------------------------------------------- handshakes

_CLUSTER: Final = "c-1"
_SECRETS: Final = Security(secret={m.BROKER: b"b" * 32, m.CLIENT: b"c" * 32, "client/billing": b"d" * 32})


def _unheard(event: str, about: dict[str, Any]) -> None:
    pass


@cache
def _reception(role: str, *, secret: bool) -> Reception:
    return Reception(role, _SECRETS if secret else None, on_event=_unheard)


_FITTING: Final = Fitting(m.BROKER, TcpLimits(), _unheard)


def _connection(local: Any) -> Any:
    return SimpleNamespace(local=local, exchange=None, identity=None, socket=None, name="127.0.0.1:1", expects=3, lane=0)


def handshake(data: bytes) -> None:
    """The frames of somebody who is not known, to a listener or a dialer, with secrets or without (the first byte says that).

    Nobody is let in who knows no secret: whatever was said fits no nonce that was made since.
    """
    if not data:
        return
    secret, dials = bool(data[0] & 1), bool(data[0] & 2)
    reception, connection = _reception(m.CLIENT if data[0] & 4 else m.BROKER, secret=secret), _connection(1)
    if dials:
        reception.greet(connection, _CLUSTER)
    at, is_in = 1, False
    try:
        while not is_in and len(data) - at >= 4 and (length := frame_length(data[at : at + 4])) <= len(data) - at:
            message = _FITTING.decode(data[at : at + length], trusted=False)
            at += length
            if dials:
                further = reception.heard(connection, message, _CLUSTER)
                is_in = further is None
                if further is not None:
                    encode(further)
            else:
                verdict = reception.judge(connection, message, _CLUSTER)
                encode(verdict.answer)
                is_in = verdict.said is not None
                assert not (is_in and verdict.answer.error), "let in, and refused"
                if verdict.answer.error:
                    return
    except (CodecError, Unwelcome):
        return
    assert not (is_in and secret), "somebody was let in who knows no secret"


def handshakes() -> list[bytes]:
    """What is said to a listener and to a dialer, twice."""
    nonce = bytes(range(NONCE_BYTES))
    of_client = m.Handshake(_CLUSTER, m.CLIENT, -1, 1, 0, 1, PROTOCOL_VERSION, nonce)
    named = m.Handshake(_CLUSTER, "client/billing", -1, -1, 0, 1, PROTOCOL_VERSION, nonce)
    of_broker = m.Handshake(_CLUSTER, m.BROKER, 3, 1, 1, 1, PROTOCOL_VERSION, nonce)
    answer = m.HandshakeAnswer(0, "", _CLUSTER, 3, PROTOCOL_VERSION)
    asks = m.HandshakeAnswer(0, "", _CLUSTER, 3, PROTOCOL_VERSION, nonce, b"")
    proves = m.HandshakeAnswer(0, "", _CLUSTER, 3, PROTOCOL_VERSION, nonce, b"p" * 32)
    refuses = m.HandshakeAnswer(41, "another\ncluster", "c-2", 3, 0)
    said: list[tuple[int, Any, Any]] = []
    for one in (of_client, named, of_broker):
        said += [(mode, one, evolve(one, proof=b"p" * 32)) for mode in (0, 1)]
    said += [(mode, *both) for mode in (2, 3, 6, 7) for both in ((answer, answer), (asks, proves), (refuses, refuses))]
    return [bytes((mode,)) + b"".join((*encode(first), *encode(second))) for mode, first, second in said]



# --------------------------------------------------------------------------------------------------------------- addresses


def endpoint(data: bytes) -> None:
    """An address, as a registration or a view of the cluster tells it. (Names are not looked up: the resolver is the system's.)"""
    text = data.decode("utf-8", "surrogateescape")
    try:
        found = parse_endpoint(text)
    except UsageError:
        return
    assert parse_endpoint(str(found)) == found, "an address is another when it is written and read"
    known_addresses(found)
    assert isinstance(found.is_loopback, bool)
    try:
        assert parse_endpoint(advertised("tcp://127.0.0.1:9000", text)).host == found.host
    except UsageError:
        assert found.is_unspecified


def endpoints() -> list[bytes]:
    """Names and addresses of both kinds."""
    said = ("tcp://127.0.0.1:9000", "tcp://[::1]:65535", "tcp://broker-1.example.org:0", "tcp://0x0:1", "tcp://[fe80::1%eth0]:9", "tcp://ü:7")
    return [one.encode() for one in said]


# -------------------------------------------------------------------------------------------------------------------- http

_SERVED: Final = parse_endpoint("tcp://127.0.0.1:8101")
_NAMES: Final = names_of(_SERVED)


def http(data: bytes) -> None:
    """A request to the status page, in pieces (the first byte says of which size): understood, or refused with a status."""
    if not data:
        return
    try:
        request = read_request(_Pieces(data[1:], 1 + data[0] ** 2), 10.0)  # type: ignore[arg-type]
        if request is None:
            return
        check_host(request.host, _SERVED, _NAMES)
        asked = _query(request.query)
    except BadRequest as refused:
        head = encode_answer(Answer(refused.status, f"{refused}\n".encode()))
        assert head.count(b"\r\n\r\n") == 1, "what was asked stands in the head of the answer"
        return
    assert (request.method in ("GET", "HEAD"), request.path[:1]) == (True, "/")
    assert (1 <= asked.size <= 500, len(asked.text) <= 300) == (True, True)


def requests() -> list[bytes]:
    """Such as browsers, load balancers and scripts send, with a size in front."""
    browser = b"Accept: text/html\r\nAccept-Language: de,en;q=0.5\r\nCookie: a=b\r\n"
    heads = [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8101\r\n" + browser,
        b"HEAD /health HTTP/1.0\r\n",
        b"GET /metrics?format=json&partitions=1 HTTP/1.1\r\nHost: localhost:8101\r\n",
        b"GET /status.json?filter=orders%2D1&page=2&size=50&unhealthy=1 HTTP/1.1\r\nHost: [::1]:8101\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n",
    ]
    long = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8101\r\nX: " + bytes(HEAD_BYTES_MAX)
    return [*(bytes((size,)) + head + b"\r\n" for head in heads for size in (255, 3)), b"\xff" + long]


PEERS: Final = {
    "stream": Target(stream, streams, CODE["stream"], _each_sealed),
    "handshake": Target(handshake, handshakes, CODE["handshake"], _each_sealed, million=10),
    "endpoint": Target(endpoint, endpoints, CODE["endpoint"]),
    "http": Target(http, requests, CODE["http"]),
}
