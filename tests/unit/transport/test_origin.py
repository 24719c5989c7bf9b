"""Whoever has many addresses of its own counts once, wherever it is counted by address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from replog.security.quotas import Quotas
from replog.testing.clock import ManualClock
from replog.transport.tcp.connection import Connection
from replog.transport.tcp.limits import TcpLimits
from replog.transport.tcp.muting import Muting
from replog.transport.tcp.origin import origin_of
from replog.transport.tcp.places import Places
from replog.transport.tcp.reception import UNPROVEN_MAX, Reception

HERE = [f"2001:db8:0:7:{number:x}::1:4000" for number in range(1, UNPROVEN_MAX + 2)]
"""Connections of one network of 64 bits."""
ELSEWHERE = "2001:db8:0:8::1:4000"


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("10.0.0.7:4000", "10.0.0.7"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("127.9.9.9:1", "127.0.0.1"),
        ("12.7.0.1:1", "12.7.0.1"),
        ("2001:db8::7:4000", "2001:db8::/64"),
        ("2001:db8:0:1:ffff:ffff:ffff:ffff:4000", "2001:db8:0:1::/64"),
        ("[2001:db8::7]:4000", "2001:db8::/64"),
        ("::1:4000", "::/64"),
        ("fe80::1%eth0:4000", "fe80::/64%eth0"),
        ("fe80::1%eth1:4000", "fe80::/64%eth1"),
        ("::ffff:10.0.0.7:4000", "10.0.0.7"),
        ("::ffff:127.0.0.9:4000", "127.0.0.1"),
        ("no:address:1", "no:address"),
        ("", ""),
    ],
)
def test_an_address_and_whom_it_is_put_down_to(name: str, origin: str) -> None:
    assert origin_of(name) == origin


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    made: list[socket.socket] = []
    yield made
    for one in made:
        one.close()


def coming(sockets: list[socket.socket], name: str) -> Connection:
    sockets.append(socket.socket())
    return Connection(sockets[-1], local=1, name=name, now_ms=0, dialed=False)


def test_so_many_connections_of_one_network_are_open(sockets: list[socket.socket]) -> None:
    refused: list[dict[str, Any]] = []
    connections: Any = SimpleNamespace(open={})
    places = Places(connections, TcpLimits(connections_per_address_max=2), lambda _, fields: refused.append(fields))
    assert [places.has_one(name) for name in (*HERE[:3], ELSEWHERE)] == [True, True, False, True]
    assert [fields["from"] for fields in refused] == [HERE[2]]
    places.ended(coming(sockets, HERE[0]))
    assert [places.has_one(name) for name in HERE[3:5]] == [True, False]


def test_so_many_of_one_network_wait_to_be_refused(sockets: list[socket.socket]) -> None:
    reception = Reception("broker", None, on_event=lambda name, fields: None)
    came = [coming(sockets, name) for name in HERE]
    assert [reception.may_wait(one) for one in came] == [True] * UNPROVEN_MAX + [False]
    assert reception.may_wait(coming(sockets, ELSEWHERE))
    came[0].refusal = b"", 0
    reception.ended(came[0])
    assert reception.may_wait(came[-1])


def test_a_network_shares_a_quota_but_for_addresses_that_have_their_own(sockets: list[socket.socket], clock: ManualClock) -> None:
    own = {HERE[2].rpartition(":")[0]: {"fetch_bytes_per_s": 90_000}, "10.0.0.7": {"fetch_bytes_per_s": 80_000}}
    quotas = Quotas(fetch_bytes_per_s=70_000, clients=own)
    muting = Muting(quotas, now_ms=clock.now_ms, throttled=lambda *_: None, on_event=lambda name, fields: None)
    limited = [muting.of(coming(sockets, name)) for name in (*HERE[:3], "::ffff:10.0.0.7:1", "127.0.0.9:1")]
    names = [one.name for one in limited if one is not None]
    assert names == ["2001:db8:0:7::/64", "2001:db8:0:7::/64", HERE[2].rpartition(":")[0], "10.0.0.7", "127.0.0.1"]
    assert [quotas.of(name).fetch_bytes_per_s for name in names] == [70_000, 70_000, 90_000, 80_000, 70_000]
