"""What comes over the network is parsed in bounded bytes, and nobody reaches the page by another name."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.status.http import HEAD_BYTES_MAX, Answer, BadRequest, check_host, encode, names_of, parse_request, read_request
from replog.transport.tcp.endpoint import Endpoint

LOOPBACK = Endpoint("127.0.0.1", 8101)
ANYWHERE = Endpoint("0.0.0.0", 8101)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def refused(head: bytes) -> int:
    with pytest.raises(BadRequest) as problem:
        parse_request(head)
    return problem.value.status


def test_a_request_is_taken_apart() -> None:
    found = parse_request(b"GET /status.json?page=2&filter=a%2Fb HTTP/1.1\r\nHOST: localhost:8101\r\nX: y")
    assert (found.method, found.path, found.query, found.host) == ("GET", "/status.json", {"page": "2", "filter": "a/b"}, "localhost:8101")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: localhost", 405),
        (b"DELETE / HTTP/1.1\r\nHost: localhost", 405),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", 400),
        (b"GET / HTTP/1.0\r\nHost: localhost\r\nHost: evil.example", 400),
        (b"GET / HTTP/2\r\nHost: localhost", 400),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost", 400),
        (b"GET /" + b"a" * 3_000 + b" HTTP/1.1\r\nHost: localhost", 400),
        (b"GET /?a=%ff HTTP/1.1\r\nHost: localhost", 400),
        (b"GET /?" + b"a=1&" * 20 + b" HTTP/1.1\r\nHost: localhost", 400),
        (b"", 400),
    ],
)
def test_what_is_refused(head: bytes, status: int) -> None:
    assert refused(head) == status


@given(st.binary(max_size=300))
def test_bytes_are_a_request_or_refused(head: bytes) -> None:
    try:
        found = parse_request(b"GET /" + head)
    except BadRequest:
        return
    assert found.method == "GET"


@pytest.mark.parametrize(
    ("endpoint", "host", "allowed"),
    [
        (LOOPBACK, "127.0.0.1:8101", True),
        (LOOPBACK, "localhost:8101", True),
        (LOOPBACK, "LOCALHOST", True),
        (LOOPBACK, "[::1]:8101", True),
        (LOOPBACK, "127.0.0.1:9999", False),
        (LOOPBACK, "evil.example:8101", False),
        (LOOPBACK, "evil.example", False),
        (LOOPBACK, "localhost.evil.example:8101", False),
        (LOOPBACK, "10.0.0.1:8101", False),
        (LOOPBACK, "", False),
        (LOOPBACK, "localhost:" + "1" * 5_000, False),
        (ANYWHERE, "10.0.0.1:8101", True),
        (ANYWHERE, "[2001:db8::1]:8101", True),
        (ANYWHERE, "evil.example:8101", False),
    ],
)
def test_a_page_of_a_stranger_cannot_ask_under_its_own_name(endpoint: Endpoint, host: str, allowed: bool) -> None:
    if allowed:
        check_host(host, endpoint, names_of(endpoint))
        return
    with pytest.raises(BadRequest) as problem:
        check_host(host, endpoint, names_of(endpoint))
    assert problem.value.status == 421


@pytest.mark.parametrize("endpoint", [LOOPBACK, ANYWHERE])
def test_a_load_balancer_names_nobody_and_a_browser_always_does(endpoint: Endpoint) -> None:
    found = parse_request(b"GET /health HTTP/1.0")
    assert (found.path, found.host) == ("/health", None)
    check_host(found.host, endpoint, names_of(endpoint))
    named = parse_request(b"GET /health HTTP/1.0\r\nHost: evil.example")
    with pytest.raises(BadRequest, match="not served under the name"):
        check_host(named.host, endpoint, names_of(endpoint))


def test_a_request_may_come_in_pieces(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    def say() -> None:
        for piece in (b"GET / HT", b"TP/1.1\r\nHost: localhost\r", b"\n\r\n"):
            theirs.sendall(piece)

    thread = threading.Thread(target=say)
    thread.start()
    found = read_request(ours, 30.0)
    thread.join()
    assert found is not None
    assert found.host == "localhost"


def test_a_request_that_does_not_end_is_cut_off(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * HEAD_BYTES_MAX)
    with pytest.raises(BadRequest, match="at most 8192 bytes") as problem:
        read_request(ours, 30.0)
    assert problem.value.status == 431


def test_who_asks_too_slowly_is_told_and_who_leaves_is_not(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"GET / HTTP/1.1\r\n")
    with pytest.raises(BadRequest, match=r"within 0\.01 s") as problem:
        read_request(ours, 0.01)
    assert problem.value.status == 408
    theirs.close()
    assert read_request(ours, 30.0) is None


def test_an_answer_says_what_browsers_must_not_do() -> None:
    head, _, body = encode(Answer(200, b"text")).partition(b"\r\n\r\n")
    assert body == b"text"
    assert encode(Answer(200, b"text"), head_only=True) == head + b"\r\n\r\n"
    for line in (b"Content-Length: 4", b"Connection: close", b"Cache-Control: no-store", b"X-Content-Type-Options: nosniff"):
        assert line in head.split(b"\r\n")
