"""Redis as a peer: a primary and two replicas on loopback, and as much of its protocol as appending to a stream needs."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.measuring import times_of
from benchmarks.peers.servers import NODES, PATIENCE_S, Needs, Servers, free_ports

__all__ = ["NEEDS", "Redis", "redis_servers"]

NEEDS = Needs(program="redis-server", debian="redis-server")
COPIES = NODES - 1  # besides the primary's


class Redis:
    """A connection that has one pipeline under way at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def append(self, values: Sequence[bytes]) -> None:
        """Pipeline an XADD for each, all of one size, and WAIT; returns once both replicas have them all."""
        head = b"*5\r\n" + _words(b"XADD", b"s", b"*", b"v") + b"$%d\r\n" % len(values[0])
        self.socket.sendall(b"".join([part for value in values for part in (head, value, b"\r\n")]) + _WAIT)
        answer = self._answer(2 * len(values) + 1)  # the length and the name of each entry, and the number of replicas
        copies = int(answer[answer.rindex(b":") + 1 :])
        assert copies == COPIES, f"{copies} replicas of {COPIES} acknowledged"

    def append_each(self, value: bytes, count: int) -> list[float]:
        """Append it so often, each after the last one is acknowledged; returns the seconds that each took."""
        return times_of(lambda: self.append([value]), count)

    def forget(self) -> None:
        """Free what was appended."""
        self.socket.sendall(b"*2\r\n" + _words(b"UNLINK", b"s"))
        self._answer(1)

    def has_replicas(self) -> bool:
        """Whether both follow, and have everything."""
        self.socket.sendall(b"*3\r\n" + _words(b"WAIT", b"%d" % COPIES, b"100"))
        return self._answer(1) == b":%d\r\n" % COPIES

    def _answer(self, lines: int) -> bytes:
        """What it answers, in so many lines. Raises RuntimeError with what it complains about."""
        data = bytearray()
        while lines > 0:
            part = self.socket.recv(1 << 18)
            if not part:
                raise RuntimeError("redis-server has closed the connection")
            data += part
            lines -= part.count(b"\n")
            at = 0 if data.startswith(b"-") else data.find(b"\n-") + 1
            if at or data.startswith(b"-"):
                raise RuntimeError(f"redis-server: {bytes(data[at:]).splitlines()[0].decode()}")
        return bytes(data)

    def close(self) -> None:
        """Leave."""
        self.socket.close()


def _words(*words: bytes) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


_WAIT = b"*3\r\n" + _words(b"WAIT", b"%d" % COPIES, b"%d" % (PATIENCE_S * 500))


@contextmanager
def redis_servers(folder: Path) -> Iterator[Redis]:
    """One primary and two replicas, as durable as replog's brokers are by default; yields a connection to the primary.

    Each writes what it has into a file of its own (appendonly) before it answers, and leaves fsync to the operating system
    (appendfsync no), as a topic with `flush="os"` does. Nobody snapshots, or rewrites that file, while others measure.
    """
    ports = free_ports(NODES)
    with Servers(folder) as servers:
        for number, port in enumerate(ports):
            place = folder / f"redis-{number}"
            place.mkdir()
            command = [NEEDS.server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place)]
            command += ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0", "--save", ""]
            command += ["--repl-diskless-sync-delay", "0", "--client-output-buffer-limit", "replica 0 0 0"]
            command += ["--replicaof", "127.0.0.1", str(ports[0])] if number else []
            servers.start(place.name, command)
        servers.listening(*ports)
        with closing(Redis(ports[0])) as primary:
            servers.eventually(primary.has_replicas)
            # A replica writes its file anew once it has what the primary had, and the process that does so is to be gone.
            servers.eventually(lambda: not list(folder.glob("redis-*/**/temp-*")))
            yield primary
