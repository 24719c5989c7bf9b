"""The little of HTTP/1.1 that the status page needs: one GET or HEAD per connection, in bounded bytes and time.

What comes over the network is parsed here and nowhere else. A request that is not understood is answered with a status and a sentence.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl

from attrs import field, frozen

from replog.transport.tcp.endpoint import Endpoint

__all__ = ["TAKEN_AT", "Answer", "BadRequest", "Request", "check_host", "encode", "names_of", "read_request"]

TAKEN_AT: Final = "Replog-Taken-At-Ms"
"""A header: when numbers were taken, in milliseconds since 1970; an answer may be of a moment ago."""
HEAD_BYTES_MAX: Final = 8 << 10
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout", 421: "Misdirected Request",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
_REQUEST: Final = re.compile(r"([A-Z]{1,16}) (/[!-~]{0,2000}) HTTP/1\.([01])")
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class BadRequest(Exception):
    """A request that is not served, and why: `status` and a sentence for whoever sent it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@frozen
class Request:
    """What was asked for."""

    method: str
    """"GET" or "HEAD"."""
    path: str
    query: dict[str, str]
    host: str | None
    """The header, with the port if one is named; None if there is none, which HTTP/1.0 allows."""


@frozen
class Answer:
    """What is sent back."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(factory=dict)


def read_request(connection: socket.socket, timeout_s: float) -> Request | None:
    """Read one request within `timeout_s`; None if nobody asks anything. Raises BadRequest, OSError."""
    data, give_up = b"", time.monotonic() + timeout_s
    while b"\r\n\r\n" not in data:
        if len(data) >= HEAD_BYTES_MAX:
            raise BadRequest(431, f"a request has at most {HEAD_BYTES_MAX} bytes")
        left_s = give_up - time.monotonic()
        if left_s <= 0:
            raise BadRequest(408, f"a request is sent within {timeout_s:g} s")
        connection.settimeout(left_s)
        try:
            part = connection.recv(HEAD_BYTES_MAX - len(data))
        except TimeoutError:
            continue
        if not part:
            return None
        data += part
    return parse_request(data.partition(b"\r\n\r\n")[0])


def parse_request(head: bytes) -> Request:
    """Take the lines before the empty one apart. Raises BadRequest."""
    first, *lines = head.decode("latin-1").split("\r\n")
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise BadRequest(400, "this is no request of HTTP/1.1")
    if found[1] not in ("GET", "HEAD"):
        raise BadRequest(405, "only GET and HEAD: nothing can be changed here")
    hosts = [line.partition(":")[2].strip() for line in lines if line.partition(":")[0].lower() == "host"]
    if len(hosts) > 1 or (not hosts and found[3] == "1"):
        raise BadRequest(400, "a request has one Host header")
    path, _, query = found[2].partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=16, errors="strict")
    except ValueError:
        raise BadRequest(400, "the query cannot be read") from None
    return Request(found[1], path, dict(pairs), hosts[0] if hosts else None)


def names_of(endpoint: Endpoint) -> frozenset[str]:
    """The names by which this machine is asked for what it serves there, in lower case; addresses are told apart by `check_host`."""
    names = {"localhost", endpoint.host.lower()}
    if not endpoint.is_loopback:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names)


def check_host(host: str | None, endpoint: Endpoint, names: frozenset[str]) -> None:
    """Refuse a request that was made to another name: a page of a stranger can have its name lead to this address (DNS rebinding).

    Addresses are nobody's names: beyond loopback any of them will do, on it only those of loopback. A request without a name (of a load
    balancer's check, in HTTP/1.0) is none of these: that attack needs a browser, and every browser names whom it asks. Raises BadRequest.
    """
    if host is None:
        return
    name, colon, port = host.rpartition(":") if re.search(r":\d{1,5}$", host) and not host.endswith("]") else (host, "", "")
    name = name.removeprefix("[").removesuffix("]").lower() if name.startswith("[") else name.lower()
    try:
        address = ip_address(name)
        known = address.is_loopback or not endpoint.is_loopback
    except ValueError:
        known = name in names
    if not known or (colon and int(port) != endpoint.port):
        raise BadRequest(421, f"this is not served under the name {host[:60]!a}; ask for it by its address")


def encode(answer: Answer, *, head_only: bool = False) -> bytes:
    """The bytes of an answer."""
    headers = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body)), **_HEADERS, **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if head_only else answer.body)
