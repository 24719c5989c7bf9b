"""What the TCP transport costs: a question and its answer against an echo of bare sockets, 1 MiB from a file against bare `sendfile`.

Each peer is a process of its own; both sides of a ratio are measured in turn within one run, and are ratios of medians. A
round trip of the transport includes both codecs, both admissions and both event loops.
`fetch_of_sendfile`: 1 MiB of a fetch, as a share of the rate of a loop of `sendfile` and `recv_into`.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.measuring import report
from benchmarks.targets import at_least

from replog import messages as m
from replog.model import PartitionId
from replog.transport.tcp import TcpTransport

ROUNDS = 15
ROUND_TRIPS = 300
FETCHES = 40
MIB = 1 << 20
P0 = PartitionId(b"t" * 16, 0, 0)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@contextmanager
def child(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in a forked process until the block is left."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def listening() -> socket.socket:
    server = socket.create_server(("127.0.0.1", 0))
    return server


def connected(server: socket.socket) -> socket.socket:
    sock = socket.create_connection(server.getsockname())
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Region:
    """The first MiB of a file, as a slice."""

    base_offset, end_offset, position, length, stale, batches = 0, 1, 0, MIB, False, None

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def fileno(self) -> int:
        return self.fd

    def view(self) -> memoryview:
        return memoryview(os.pread(self.fd, MIB, 0))

    def release(self) -> None:
        pass


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def broker(endpoint: str, fd: int) -> None:
    """Answers questions, and fetches with a MiB of the file."""
    transport = TcpTransport(role="broker", broker_id=1, now_ms=now_ms)
    transport.cluster_id = "c"

    def receive(sender: Any, message: Any) -> None:
        if type(message) is m.Fetch:
            entry = m.FetchedEntry(P0, 0, 0, high_watermark=1, slices=[Region(fd)])
            transport.send(1, sender, m.Fetched(message.request, 0, 0, 0, [entry]))
        else:
            transport.send(1, sender, m.ListedOffsets(message.request, []))

    transport.listen(1, receive)
    transport.serve(endpoint)
    while True:
        transport.poll(None)


def raw_echo(server: socket.socket) -> None:
    peer, _ = server.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := peer.recv(65_536):
        peer.sendall(data)


def raw_file(server: socket.socket, fd: int) -> None:
    peer, _ = server.accept()
    while peer.recv(1):
        sent = 0
        while sent < MIB:
            sent += os.sendfile(peer.fileno(), fd, sent, MIB - sent)


def test_transport(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(os.urandom(MIB))
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    endpoint, echo, files = free_port(), listening(), listening()
    answers: list[Any] = []
    with child(lambda: broker(endpoint, fd)), child(lambda: raw_echo(echo)), child(lambda: raw_file(files, fd)):
        client = TcpTransport(role="client", now_ms=now_ms, endpoint_of=lambda _: endpoint)
        client.listen("client", lambda _, message: answers.append(message))
        raw, stream = connected(echo), connected(files)
        buffer = memoryview(bytearray(MIB))

        def ask(message: Any) -> None:
            answers.clear()
            client.send("client", 1, message)
            while not answers:
                client.poll(None)
                if answers and isinstance(answers[0], m.Disconnected):  # it is still starting
                    answers.clear()
                    client.wait(0.01)
                    client.send("client", 1, message)

        def fetch() -> None:
            ask(m.Fetch(1, -1, -1, 0, -1, 0, 1, MIB, []))
            assert answers[0].entries[0].slices[0].length == MIB

        def bounce() -> None:
            raw.sendall(b"x" * 60)
            raw.recv(65_536)

        def receive() -> None:
            stream.sendall(b"x")
            got = 0
            while got < MIB:
                got += stream.recv_into(buffer[got:])

        actions = {"raw_rtt": (bounce, ROUND_TRIPS), "rtt": (lambda: ask(m.ListOffsets(1, [])), ROUND_TRIPS)}
        actions |= {"sendfile": (receive, FETCHES), "fetch": (fetch, FETCHES)}
        samples: dict[str, list[float]] = {name: [] for name in actions}

        def measure() -> None:
            for action, _ in actions.values():
                action()
            for _ in range(ROUNDS):
                for name, (action, count) in actions.items():
                    begin = perf_counter()
                    for _ in range(count):
                        action()
                    samples[name].append((perf_counter() - begin) / count)

        benchmark.pedantic(measure, rounds=1)
        client.close()
        raw.close()
        stream.close()
    echo.close()
    files.close()
    os.close(fd)
    found = {name: statistics.median(kept) for name, kept in samples.items()}
    figures = {"rtt_times_raw": found["rtt"] / found["raw_rtt"], "fetch_of_sendfile": found["sendfile"] / found["fetch"]}
    figures |= {f"{name}_us": seconds * 1e6 for name, seconds in found.items()}
    report(benchmark, capsys, "TCP transport / bare sockets", figures, at_least("fetch_of_sendfile", 0.7))
