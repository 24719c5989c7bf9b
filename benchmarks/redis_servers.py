"""Redis as a peer: a primary and two replicas on loopback, and as much of its protocol as appending to a stream needs."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from replog.testing.eventually import eventually

__all__ = ["Redis", "redis_servers"]

COPIES = 2  # besides the primary's
_PATIENCE_S = 30
_END_S = 10
_LINES_TOLD = 5


class Redis:
    """A connection that has one pipeline under way at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def append(self, values: Sequence[bytes]) -> None:
        """Pipeline an XADD for each, all of one size, and WAIT; returns once both replicas have them all."""
        head = b"*5\r\n" + _words(b"XADD", b"s", b"*", b"v") + b"$%d\r\n" % len(values[0])
        self.socket.sendall(b"".join([part for value in values for part in (head, value, b"\r\n")]) + _WAIT)
        answer = self._answer(2 * len(values) + 1)  # the length and the name of each entry, and the number of replicas
        copies = int(answer[answer.rindex(b":") + 1 :])
        assert copies == COPIES, f"{copies} replicas of {COPIES} acknowledged"

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


_WAIT = b"*3\r\n" + _words(b"WAIT", b"%d" % COPIES, b"%d" % (_PATIENCE_S * 500))


@contextmanager
def redis_servers(program: str, folder: Path) -> Iterator[Redis]:
    """One primary and two replicas, as durable as replog's brokers are by default; yields a connection to the primary.

    Each writes what it has into a file of its own (appendonly) before it answers, and leaves fsync to the operating system
    (appendfsync no), as a topic with `flush="os"` does. Nobody snapshots, or rewrites that file, while others measure.
    """
    ports = _free_ports(1 + COPIES)
    with ExitStack() as started:
        servers = []
        for number, port in enumerate(ports):
            place = folder / f"redis-{number}"
            place.mkdir()
            command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place), "--logfile", str(place / "log")]
            command += ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0", "--save", ""]
            command += ["--repl-diskless-sync-delay", "0", "--client-output-buffer-limit", "replica 0 0 0"]
            command += ["--replicaof", "127.0.0.1", str(ports[0])] if number else []
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
            started.callback(_end, process)
            servers.append((process, place / "log"))

        def connection() -> Redis | None:
            for process, log in servers:
                if process.poll() is not None:
                    said = log.read_text(errors="replace").splitlines()[-_LINES_TOLD:] if log.exists() else []
                    raise RuntimeError(f"redis-server ended with status {process.returncode}: {' / '.join(said)}")
            try:
                return Redis(ports[0])
            except ConnectionRefusedError:
                return None

        primary = eventually(connection)
        assert primary is not None
        started.callback(primary.close)
        eventually(primary.has_replicas)
        # A replica writes its file anew once it has what the primary had, and the process that does so is to be gone.
        eventually(lambda: not list(folder.glob("redis-*/**/temp-*")))
        yield primary


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment."""
    with ExitStack() as probes:
        servers = [probes.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it, and wait until it is gone."""
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
