"""Endpoints as people write them."""

from __future__ import annotations

import re
import socket

import pytest

from replog.errors import UsageError
from replog.transport.tcp import endpoint as module
from replog.transport.tcp.endpoint import Endpoint, addresses_of, advertised, parse_endpoint


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://127.0.0.1:9000", "127.0.0.1", 9000),
        ("tcp://localhost:0", "localhost", 0),
        ("tcp://[::1]:65535", "::1", 65535),
        ("tcp://broker-1.example:9092", "broker-1.example", 9092),
    ],
)
def test_an_endpoint_is_read_and_written_alike(text: str, host: str, port: int) -> None:
    assert parse_endpoint(text) == Endpoint(host, port)
    assert str(parse_endpoint(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:1",
        "http://a:1",
        "tcp://",
        "tcp://a",
        "tcp://:1",
        "tcp://a:",
        "tcp://a:x",
        "tcp://a:65536",
        "tcp://a:-1",
        "tcp://a:1/x",
        "tcp://::1:5",
        "tcp://[a]:5",
        "tcp://[::1]",
        "tcp://a b:1",
        "tcp://u@h:1",
        "tcp://a:²",
        "tcp://a:000001",
        "tcp://\udcff:1",
        "tcp://[:\udcff]:1",
    ],
)
def test_what_is_none_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(UsageError, match="tcp://"):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert Endpoint(host, 1).is_loopback is loopback


@pytest.mark.parametrize(
    ("bound", "wish", "told"),
    [
        ("tcp://127.0.0.1:7101", None, "tcp://127.0.0.1:7101"),
        ("tcp://0.0.0.0:7101", "tcp://broker-1.example:9000", "tcp://broker-1.example:9000"),
        ("tcp://0.0.0.0:7101", "tcp://10.0.0.1:0", "tcp://10.0.0.1:7101"),
        ("tcp://[::]:7101", "tcp://[fd::1]:0", "tcp://[fd::1]:7101"),
    ],
)
def test_what_others_are_told(bound: str, wish: str | None, told: str) -> None:
    assert advertised(bound, wish) == told


@pytest.mark.parametrize(
    ("bound", "wish", "named"),
    [
        ("tcp://0.0.0.0:7101", None, "listens at tcp://0.0.0.0:7101"),
        ("tcp://[::]:7101", None, "listens at tcp://[::]:7101"),
        ("tcp://127.0.0.1:7101", "tcp://0.0.0.0:1", "advertised as tcp://0.0.0.0:1"),
        ("tcp://0:7101", None, "listens at tcp://0:7101"),
        ("tcp://0:7101", "tcp://0x0.0:0", "advertised as tcp://0x0.0:0"),
        ("tcp://127.0.0.1:7101", "broker-1:1", "not 'broker-1:1'"),
    ],
)
def test_nobody_is_told_what_leads_nowhere(bound: str, wish: str | None, named: str) -> None:
    with pytest.raises(UsageError, match=re.escape(named)):
        advertised(bound, wish)


def test_only_names_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        v4, v6 = ("10.0.0.7", port), ("fd::1", port, 0, 0)
        return [(socket.AF_INET, 1, 6, "", v4), (socket.AF_UNIX, 1, 6, "", ("x", 0)), (socket.AF_INET6, 1, 6, "", v6)]

    monkeypatch.setattr(module.socket, "getaddrinfo", resolve)
    assert [each.host for each in addresses_of(Endpoint("localhost", 5))] == ["127.0.0.1", "::1"]
    assert addresses_of(Endpoint("10.1.1.1", 5)) == [(socket.AF_INET, "10.1.1.1", 5)]
    assert addresses_of(Endpoint("fd::2", 5)) == [(socket.AF_INET6, "fd::2", 5)]
    assert asked == []
    assert addresses_of(Endpoint("broker", 5)) == [(socket.AF_INET, "10.0.0.7", 5), (socket.AF_INET6, "fd::1", 5)]
    assert asked == ["broker"]
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: [(socket.AF_UNIX, 1, 6, "", ("x", 0))])
    with pytest.raises(OSError, match="broker"):
        addresses_of(Endpoint("broker", 5))


@pytest.mark.parametrize(
    "text", ["tcp://user:S3cr@host:1", "tcp://user:S3/S3cr@host:1", "http://user:S3cr@host:1", "user:S3cr@host:1", "tcp://h:1?password=S3cr"]
)
def test_no_password_is_shown_of_what_is_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"tcp://host:port|the port of") as caught:
        parse_endpoint(text)
    assert "S3cr" not in str(caught.value)
