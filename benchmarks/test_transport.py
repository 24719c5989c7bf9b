"""What the TCP transport costs: a question and its answer against an echo of bare sockets, 1 MiB from a file against bare `sendfile`.

Each peer is a process of its own; both sides of a ratio are measured in turn within one run, and are ratios of medians. A
round trip of the transport includes both codecs, both admissions and both event loops.
`fetch_of_sendfile`: 1 MiB of a fetch, as a share of the rate of a loop of `sendfile` and `recv_into`.
`fetch_cpu_of_reading`: processor time of the broker for it, as a share of that of a bare loop over epoll which reads the MiB into new bytes
and sends them; `sendfile_cpu_of_reading`: the same of the bare loop of `sendfile`, which is what a server that reads nothing takes.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.measuring import cpu_us, report
from benchmarks.targets import at_least, at_most

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
def child(work: Callable[[], None]) -> Iterator[int]:
    """Run `work` in a forked process until the block is left; yields its id."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    try:
        yield pid
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


def raw_reading(server: socket.socket, fd: int) -> None:
    """Answers each byte with the MiB, through bytes that are made for it, as a loop that serves many would: it never waits in a send."""
    peer, _ = server.accept()
    peer.setblocking(False)
    left, events = memoryview(b""), select.epoll()
    events.register(peer.fileno(), select.EPOLLIN)
    while True:
        events.poll()
        if not left:
            if not peer.recv(1):
                return
            left = memoryview(os.pread(fd, MIB, 0))
        with suppress(BlockingIOError):
            left = left[peer.send(left) :]
        events.modify(peer.fileno(), select.EPOLLOUT if left else select.EPOLLIN)


class Questions:
    """A client of the transport that asks the broker, one question at a time."""

    def __init__(self, endpoint: str) -> None:
        self.answers: list[Any] = []
        self.client = TcpTransport(role="client", now_ms=now_ms, endpoint_of=lambda _: endpoint)
        self.client.listen("client", lambda _, message: self.answers.append(message))

    def ask(self, message: Any) -> None:
        """Until it is answered."""
        self.answers.clear()
        self.client.send("client", 1, message)
        while not self.answers:
            self.client.poll(None)
            if self.answers and isinstance(self.answers[0], m.Disconnected):  # it is still starting
                self.answers.clear()
                self.client.wait(0.01)
                self.client.send("client", 1, message)

    def fetch(self) -> None:
        """A MiB."""
        self.ask(m.Fetch(1, -1, -1, 0, -1, 0, 1, MIB, []))
        assert self.answers[0].entries[0].slices[0].length == MIB


def bounce(raw: socket.socket) -> None:
    """A round trip."""
    raw.sendall(b"x" * 60)
    raw.recv(65_536)


def receive(stream: socket.socket, buffer: memoryview) -> None:
    """A MiB that was asked for."""
    stream.sendall(b"x")
    got = 0
    while got < MIB:
        got += stream.recv_into(buffer[got:])


Actions = dict[str, tuple[Callable[[], object], int, int]]
"""What is done, how often in a round, and the process that serves it."""


def measured(actions: Actions) -> dict[str, float]:
    """Seconds of each, and microseconds of processor time of who serves it as `..._cpu`: medians of rounds that take turns."""
    samples: dict[str, list[float]] = {name: [] for one in actions for name in (one, f"{one}_cpu")}
    for action, _, _ in actions.values():
        action()
    for _ in range(ROUNDS):
        for name, (action, count, server) in actions.items():
            before, begin = cpu_us(server), perf_counter()
            for _ in range(count):
                action()
            samples[name].append((perf_counter() - begin) / count)
            samples[f"{name}_cpu"].append((cpu_us(server) - before) / count)
    return {name: statistics.median(kept) for name, kept in samples.items()}


def test_transport(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(os.urandom(MIB))
    endpoint, buffer = free_port(), memoryview(bytearray(MIB))
    with ExitStack() as stack:
        fd = os.open(tmp_path / "f", os.O_RDONLY)
        stack.callback(os.close, fd)
        echo, files, reading = (stack.enter_context(listening()) for _ in range(3))
        broker_pid = stack.enter_context(child(lambda: broker(endpoint, fd)))
        echo_pid = stack.enter_context(child(lambda: raw_echo(echo)))
        file_pid = stack.enter_context(child(lambda: raw_file(files, fd)))
        reading_pid = stack.enter_context(child(lambda: raw_reading(reading, fd)))
        questions = Questions(endpoint)
        stack.callback(questions.client.close)
        raw, stream, other = (stack.enter_context(connected(server)) for server in (echo, files, reading))
        found = measured({
            "raw_rtt": (lambda: bounce(raw), ROUND_TRIPS, echo_pid),
            "rtt": (lambda: questions.ask(m.ListOffsets(1, [])), ROUND_TRIPS, broker_pid),
            "sendfile": (lambda: receive(stream, buffer), FETCHES, file_pid),
            "reading": (lambda: receive(other, buffer), FETCHES, reading_pid),
            "fetch": (questions.fetch, FETCHES, broker_pid),
        })
    benchmark.pedantic(lambda: None, rounds=1)
    figures = {"rtt_times_raw": found["rtt"] / found["raw_rtt"], "fetch_of_sendfile": found["sendfile"] / found["fetch"]}
    figures |= {f"{name}_cpu_of_reading": found[f"{name}_cpu"] / found["reading_cpu"] for name in ("fetch", "sendfile")}
    figures |= {f"{name}_us": value if name.endswith("_cpu") else value * 1e6 for name, value in found.items()}
    targets = [at_least("fetch_of_sendfile", 0.90), at_most("fetch_cpu_of_reading", 0.35)]
    report(benchmark, capsys, "TCP transport / bare sockets", figures, *targets)
