"""etcd as a peer: three members on loopback, and the two requests of its gRPC interface that are measured, encoded by hand."""

from __future__ import annotations

import json
import urllib.request
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measuring import times_of
from benchmarks.peers.servers import NODES, PATIENCE_S, Needs, Servers, free_ports

__all__ = ["NEEDS", "TXN_PUTS", "Etcd", "etcd_servers", "put_request", "txn_request"]

NEEDS = Needs(program="etcd", debian="etcd-server", module="grpc", pypi="grpcio")
TXN_PUTS = 128
"""The most that a transaction may hold, by the server's default."""
_PUT = "/etcdserverpb.KV/Put"
_TXN = "/etcdserverpb.KV/Txn"


class Etcd:
    """A channel to the leader. Each append is a key of its own: etcd has no log to append to."""

    def __init__(self, channel: Any) -> None:
        self._put = channel.unary_unary(_PUT)
        self._txn = channel.unary_unary(_TXN)
        self._numbers = count()

    def append_each(self, value: bytes, count: int) -> list[float]:
        """Put it so often, each after the last one is acknowledged; returns the seconds that each took."""
        return times_of(lambda: self._put(put_request(self._key(), value), timeout=PATIENCE_S), count)

    def append(self, values: Sequence[bytes], window: int) -> None:
        """Put them in full transactions, so many under way at a time; returns once all are acknowledged."""
        under_way: deque[Any] = deque()
        for at in range(0, len(values), TXN_PUTS):
            if len(under_way) == window:
                under_way.popleft().result()
            request = txn_request([put_request(self._key(), value) for value in values[at : at + TXN_PUTS]])
            under_way.append(self._txn.future(request, timeout=PATIENCE_S))
        for one in under_way:
            one.result()

    def _key(self) -> bytes:
        return b"k%012d" % next(self._numbers)


def put_request(key: bytes, value: bytes) -> bytes:
    """A PutRequest: field 1 the key, field 2 the value."""
    return _field(1, key) + _field(2, value)


def txn_request(puts: Sequence[bytes]) -> bytes:
    """A TxnRequest without conditions: field 2, what is done on success, is a RequestOp for each, whose field 2 is the put."""
    return b"".join([_field(2, _field(2, put)) for put in puts])


def _field(number: int, body: bytes) -> bytes:
    """A field of bytes in protocol buffers: its number and kind, the length in groups of seven bits, lowest first, the bytes."""
    length = len(body)
    head = bytearray([number << 3 | 2])
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body


@contextmanager
def etcd_servers(folder: Path) -> Iterator[Etcd]:
    """Three members; yields a channel to the leader.

    Here alone is fsync before each acknowledgement: it is etcd's default, and what it is used for.
    """
    grpc = import_module("grpc")
    ports = free_ports(2 * NODES)
    clients = [f"http://127.0.0.1:{port}" for port in ports[:NODES]]
    members = {f"etcd-{number}": f"http://127.0.0.1:{port}" for number, port in enumerate(ports[NODES:])}
    with Servers(folder) as servers:
        for client, (name, member) in zip(clients, members.items(), strict=True):
            command = [NEEDS.server(), "--name", name, "--data-dir", str(folder / name), "--logger", "zap"]
            command += ["--listen-client-urls", client, "--advertise-client-urls", client]
            command += ["--listen-peer-urls", member, "--initial-advertise-peer-urls", member]
            command += ["--initial-cluster", ",".join(f"{other}={url}" for other, url in members.items())]
            servers.start(name, command)
        leader = servers.eventually(lambda: next(filter(_leads, clients), ""))
        with grpc.insecure_channel(leader.removeprefix("http://")) as channel:
            yield Etcd(channel)


def _leads(client: str) -> bool:
    """Whether the member that listens there says that it is the leader."""
    request = urllib.request.Request(f"{client}/v3/maintenance/status", data=b"{}", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=1) as answer:
            status = json.load(answer)
    except OSError:
        return False
    return bool(status.get("leader")) and status["leader"] == status["header"]["member_id"]
