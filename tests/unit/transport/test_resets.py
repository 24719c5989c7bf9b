"""Whoever is gone before anything could be said: that costs nobody else a turn, a place, or a peer."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.transport.harness import Party, Stranger, idle, question, settle, shown

from replog.testing.clock import ManualClock
from replog.transport.tcp import TcpLimits
from replog.transport.tcp import sockets as sockets_module

Make = Callable[..., Party]
Bare = Callable[[str], Stranger]


def reset(connection: socket.socket) -> None:
    """Say something, and be gone at once: the other end has a byte to read on a connection that there is not."""
    connection.sendall(b"x")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_strangers_that_are_gone_before_tls_begins_end_no_turn_and_take_no_place(party: Make, folder: Path, stranger: Bare) -> None:
    limits = TcpLimits(connections_per_address_max=4)
    broker, client = party(1, security=shown(folder, "broker/1"), limits=limits), party(security=shown(folder, "client/a"))
    for _ in range(6):
        reset(stranger(broker.endpoint).socket)
        idle([broker], 2)
        assert broker.open == 0
    assert [fields["reason"] for fields in broker.told("peer_disconnected")] == ["it has reset the connection before TLS began"]  # once
    assert "connection_refused" not in [name for name, _ in broker.events]
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: len(broker.messages) == 1)


def test_a_peer_that_is_gone_before_tls_begins_is_dialed_again(
    party: Make, folder: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, real, peers = party(security=shown(folder, "client/a")), sockets_module.failure_of, []

    def failure_of(dialed: socket.socket) -> str | None:
        failure = real(dialed)
        assert failure == ""
        reset(peers.pop())  # right after the dialer has seen that it is there
        return failure

    monkeypatch.setattr(sockets_module, "failure_of", failure_of)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for attempt in range(1, 4):
            client.say(f"tcp://127.0.0.1:{listening.getsockname()[1]}", question(attempt))
            client.transport.flush()
            peers.append(listening.accept()[0])
            settle([client], lambda want=attempt: len(client.told("dial_failed")) == want)  # type: ignore[misc]
            assert client.open == 0
            clock.advance(2_000)
    assert len(client.lost) == 3


class Full:
    """A selector that takes nobody more, like one beyond `max_user_watches`."""

    def __init__(self, epoll: Any) -> None:
        self._epoll = epoll

    def register(self, fd: int, mask: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)


def test_a_connection_that_cannot_be_looked_after_ends_no_turn_and_takes_no_place(party: Make, stranger: Bare) -> None:
    broker = party(1, limits=TcpLimits(connections_per_address_max=4))
    epoll = broker.transport._connections._epoll
    broker.transport._connections._epoll = Full(epoll)  # type: ignore[assignment]
    turned_away = [stranger(broker.endpoint) for _ in range(6)]
    settle([broker], lambda: all(one.is_cut_off() for one in turned_away))
    assert broker.told("peer_disconnected")[0]["reason"] == "No space left on device"
    broker.transport._connections._epoll = epoll
    one = stranger(broker.endpoint)
    one.hello()
    settle([broker], lambda: len(broker.told("peer_connected")) == 1)
