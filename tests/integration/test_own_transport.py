"""`Broker(transport=...)`: one with limits of its own, and everything else as it is with the usual one."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.errors import UsageError
from replog.transport.tcp import TcpLimits

CONFIG = {"session_ms": 2_000, "heartbeat_ms": 200}
SECURITY = replog.Security(secret={role: secrets.token_bytes(32) for role in ("broker", "client", "admin")})


def transport(broker_id: int = 1, **given: Any) -> replog.TcpTransport:
    return replog.TcpTransport(role="broker", broker_id=broker_id, now_ms=lambda: int(time.monotonic() * 1000), **given)


@pytest.fixture
def own() -> Iterator[replog.TcpTransport]:
    made = transport()
    yield made
    made.close()


def test_brokers_with_transports_of_their_own_make_a_cluster(tmp_path: Path) -> None:
    """Where the others are, what topics are called and whom to tell the broker says."""
    limits = TcpLimits(frame_bytes_max=1 << 20)
    with ExitStack() as stack:
        for n in (1, 2):
            made = transport(n, limits=limits)
            broker = replog.Broker(n, listen="tcp://127.0.0.1:0", data=None, store=f"file://{tmp_path}/s.db", transport=made, config=CONFIG)
            stack.enter_context(broker).wait_until_ready()
        with broker.client() as client:
            client.create_topic("t", replication_factor=2, min_isr=2)
            client.append("t", 0, ["on both"])
            assert [record.text() for record in client.read("t")] == ["on both"]


def test_whoever_the_transport_does_not_let_in_stays_out(tmp_path: Path) -> None:
    given = {"data": None, "store": f"file://{tmp_path}/s.db", "transport": transport(security=SECURITY), "config": CONFIG}
    with replog.Broker(1, listen="tcp://127.0.0.1:0", **given) as broker:
        broker.wait_until_ready()
        with broker.client() as client:
            assert client.topics() == []
        with pytest.raises(replog.errors.ReplogError, match="you have not proven who you are"), replog.connect(broker.endpoint) as stranger:
            stranger.topics(timeout_s=2)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"security": SECURITY}, r"security belongs to the transport .* TcpTransport\(security=\.\.\.\)"),
        ({"insecure": True}, r"insecure belongs to the transport"),
        ({"quotas": replog.Quotas(produce_bytes_per_s=1_000_000)}, r"quotas belongs to the transport"),
        ({"config": {"connections_max": 700}}, r"connections_max is 700, .* give it TcpLimits\(connections_max=700\)"),
        ({"config": {"connections_per_address_max": 700}}, r"connections_per_address_max is 700"),
        ({"config": {"handshake_timeout_ms": 700}}, r"handshake_timeout_ms is 700"),
    ],
)
def test_what_is_said_of_a_transport_is_said_to_it(given: dict[str, Any], match: str, own: replog.TcpTransport) -> None:
    with pytest.raises(UsageError, match=match):
        replog.Broker(1, listen="tcp://127.0.0.1:0", data=None, store=replog.MemoryStore(), transport=own, **given)


@pytest.mark.parametrize("wrong", [0, "", [], "tcp", replog.MemoryTransport()])
def test_what_is_no_transport_for_sockets_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="it must be a TcpTransport, or None"):
        replog.Broker(1, listen="tcp://127.0.0.1:0", data=None, store=replog.MemoryStore(), transport=wrong)


def test_the_transport_of_somebody_else_is_refused(own: replog.TcpTransport) -> None:
    with pytest.raises(UsageError, match="that is given here is that of broker 1, and this is broker 2"):
        replog.Broker(2, listen="tcp://127.0.0.1:0", data=None, store=replog.MemoryStore(), transport=own)
    clients = replog.TcpTransport(role="client", now_ms=lambda: 0)
    with pytest.raises(UsageError, match="that is given here is that of a client"):
        replog.Broker(2, listen="tcp://127.0.0.1:0", data=None, store=replog.MemoryStore(), transport=clients)
    clients.close()


@pytest.mark.parametrize("wrong", ["false", "no", 0, 1, None, [0]])
def test_listening_insecurely_is_written_out(wrong: Any, tmp_path: Path) -> None:
    """Any other value might mean the opposite."""
    for made in (
        lambda: transport(insecure=wrong),
        lambda: replog.Broker(1, listen="tcp://0.0.0.0:0", data=None, store=replog.MemoryStore(), insecure=wrong),
        lambda: replog.BrokerProcess(1, data=None, store=f"file://{tmp_path}/s.db", insecure=wrong),
    ):
        with pytest.raises(UsageError, match="insecure is True or False, not "):
            made()


@pytest.mark.parametrize(
    ("store", "match"),
    [
        (None, "a store is an object of a MetadataStore or a URL"),
        (5, "a store is an object of a MetadataStore or a URL"),
        ("here", "is not the URL of a store: known are memory://"),
        ("redis://x", "no store is registered for redis://"),
    ],
)
def test_what_is_no_store_is_refused_at_once(store: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        replog.Broker(1, listen="tcp://127.0.0.1:0", data=None, store=store)
