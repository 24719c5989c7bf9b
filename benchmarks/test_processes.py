"""What bad peers, a follower far behind and a reader from the start cost somebody well-behaved: ratios of acknowledgement times.

Run with `pytest benchmarks/test_processes.py --benchmark-enable -s`. Three broker processes share a file store, and share the
processors with the client and with whoever disturbs it: where processors are few, that is part of the factor. What a process
costs that touches no broker and only computes is measured along with it (`busy_...`). Periods take turns in one run; medians
and 99th percentiles of 100-byte appends, acks=all on two copies.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measuring import cpu_us, last_percent, raw_peer, report, times_of
from benchmarks.targets import at_most

import replog
from replog import messages as m
from replog.codec import PROTOCOL_VERSION, encode
from replog.model import PartitionId
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

ROUNDS = 5
APPENDS = 400
BIG_MIB = 192
MIB = 1 << 20
PEERS = 200


@contextmanager
def brokers(folder: Path) -> Iterator[list[replog.BrokerProcess]]:
    """Three processes."""
    with ExitStack() as started:
        yield [
            started.enter_context(replog.BrokerProcess(n, data=folder / f"b{n}", store=f"file://{folder / 'store.db'}").start())
            for n in (1, 2, 3)
        ]


@contextmanager
def child(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in a forked process until the block is left."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            work()
        os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def busy() -> None:
    """Compute, and nothing else."""
    while True:
        pass


def factors(quiet: list[float], disturbed: list[float], beside_busy: list[float]) -> dict[str, float]:
    """How much longer things took."""
    return {
        "busy_median_factor": statistics.median(beside_busy) / statistics.median(quiet),
        "busy_p99_factor": last_percent(beside_busy) / last_percent(quiet),
        "median_factor": statistics.median(disturbed) / statistics.median(quiet),
        "p99_factor": last_percent(disturbed) / last_percent(quiet),
        "quiet_us": statistics.median(quiet) * 1e6,
        "quiet_p99_us": last_percent(quiet) * 1e6,
        "disturbed_us": statistics.median(disturbed) * 1e6,
        "disturbed_p99_us": last_percent(disturbed) * 1e6,
        "appends": len(disturbed),
    }


def fill(client: replog.Client, mib: int) -> None:
    """The topic that makes everybody work."""
    body = os.urandom(MIB - 1_000)
    for _ in range(mib):
        client.append("big", 0, [body])


# ------------------------------------------------------------------------------------------------------------- bad peers


def bad_peers(endpoint: str, partition: PartitionId) -> None:
    """200 that send a byte a second, 10 that never read what they asked for, and 20 new ones a second that send nonsense."""
    at = ("127.0.0.1", int(endpoint.rpartition(":")[2]))
    hello = b"".join(encode(m.Handshake("", "client", -1, -1, 1, 1, PROTOCOL_VERSION)))
    entry = m.FetchEntry(partition, -1, 0, -1, MIB)
    question = b"".join(encode(m.Fetch(1, -1, -1, 0, -1, 0, 1, MIB, [entry])))
    chance = random.Random(1)

    def met(*, small: bool = False) -> socket.socket:
        one = socket.socket()
        if small:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        one.connect(at)
        one.sendall(hello)
        return one

    pace = threading.Event()
    drips = [met() for _ in range(PEERS)]
    stuck = [met(small=True) for _ in range(10)]
    for one in stuck:
        one.sendall(question * 30)
    for one in drips:
        one.send((60 * MIB).to_bytes(4, "little"))
    while True:
        for one in drips[:: PEERS // 10]:
            with suppress(OSError):
                one.send(b"\0")
        drips = drips[1:] + drips[:1]
        with met() as one, suppress(OSError):
            one.sendall(chance.choice((chance.randbytes(10_000), b"\xff\xff\xff\x7f" + bytes(1_000))))
        pace.wait(0.05)


def test_bad_peers(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """What they cost a healthy client of the same broker."""
    quiet: list[float] = []
    disturbed: list[float] = []
    beside_busy: list[float] = []
    with brokers(tmp_path) as processes, replog.connect([one.endpoint for one in processes]) as client:
        for topic in ("t", "big"):
            client.create_topic(topic, assignment={0: [1, 2]}, min_isr=2)
        fill(client, 32)
        partition = PartitionId(bytes.fromhex(client.describe("big").topic_id), 0, 0)

        def append() -> None:
            client.append("t", 0, [b"x" * 100])

        times_of(append, APPENDS)
        for _ in range(ROUNDS):
            quiet += times_of(append, APPENDS)
            with child(busy):
                beside_busy += times_of(append, APPENDS)
            with child(lambda: bad_peers(processes[0].endpoint, partition)):
                times_of(append, 50)  # while they come
                disturbed += times_of(append, APPENDS)
            times_of(append, 50)  # while they go
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "an append among bad peers", factors(quiet, disturbed, beside_busy), at_most("p99_factor", 2))


# ----------------------------------------------------------------------------------------------------- those far behind


def test_a_consumer_that_reads_from_the_start(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """Tail latency while another process reads as fast as it can."""
    quiet: list[float] = []
    disturbed: list[float] = []
    beside_busy: list[float] = []
    with brokers(tmp_path) as processes, replog.connect([one.endpoint for one in processes]) as client:
        for topic in ("t", "big"):
            client.create_topic(topic, assignment={0: [1, 2]}, min_isr=2)
        fill(client, 64)

        def append() -> None:
            client.append("t", 0, [b"x" * 100])

        def read() -> None:
            with replog.connect(processes[0].endpoint) as reader:
                while True:
                    offset = 0
                    while offset < 64:
                        offset = reader.fetch("big", 0, offset, max_bytes=8 * MIB)[-1].offset + 1

        times_of(append, APPENDS)
        for _ in range(ROUNDS):
            quiet += times_of(append, APPENDS)
            with child(busy):
                beside_busy += times_of(append, APPENDS)
            with child(read):
                times_of(append, 50)
                disturbed += times_of(append, APPENDS)
            times_of(append, 50)
    benchmark.pedantic(lambda: None, rounds=1)
    figures = factors(quiet, disturbed, beside_busy)
    report(benchmark, capsys, "an append while somebody reads from the start", figures, at_most("p99_factor", 3))


def test_a_follower_that_is_far_behind(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """Tail latency while a broker that was away fetches 192 MiB from the leader."""
    quiet: list[float] = []
    disturbed: list[float] = []
    beside_busy: list[float] = []
    with brokers(tmp_path) as processes, replog.connect([one.endpoint for one in processes[:2]]) as client:
        client.create_topic("t", assignment={0: [1, 2]}, min_isr=2)
        client.create_topic("big", assignment={0: [1, 2, 3]}, min_isr=2)

        def append() -> None:
            client.append("t", 0, [b"x" * 100])

        def is_back() -> bool:
            return 3 in client.describe("big").partitions[0].isr

        times_of(append, APPENDS)
        for _ in range(2):
            eventually(is_back)
            quiet += times_of(append, 2 * APPENDS)
            with child(busy):
                beside_busy += times_of(append, 2 * APPENDS)
            processes[2].stop()
            fill(client, BIG_MIB)
            quiet += times_of(append, APPENDS)
            processes[2].start()
            while not is_back():
                disturbed += times_of(append, 20)
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "an append while a follower catches up", factors(quiet, disturbed, beside_busy), at_most("p99_factor", 3))


# ------------------------------------------------------------------------------------------------ what a record costs


def test_processor_time_of_an_acknowledgement(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """100 bytes on three copies, acks=all: microseconds of processor time, which neighbours disturb less than they do the time that
    it takes; and that time as a multiple of a TCP round trip."""
    body = os.urandom(100)
    spent: dict[str, list[float]] = {"leader": [], "follower": [], "client": []}
    acks: list[float] = []
    trips: list[float] = []
    with ExitStack() as stack:
        processes = stack.enter_context(brokers(tmp_path))
        peer = stack.enter_context(raw_peer(len(body)))
        client = stack.enter_context(replog.connect([one.endpoint for one in processes]))
        client.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=2)
        producer = stack.enter_context(client.producer(compression=None))

        def append() -> None:
            producer.send("t", body, partition=0).result()

        def trip() -> None:
            peer.sendall(body)
            peer.recv(1)

        times_of(append, APPENDS)
        for _ in range(ROUNDS):
            before = [cpu_us(pid) for pid in (*(one.pid for one in processes), os.getpid())]
            acks += times_of(append, APPENDS)
            leader, *followers, own = (
                (cpu_us(pid) - was) / APPENDS for pid, was in zip((*(one.pid for one in processes), os.getpid()), before, strict=True)
            )
            trips += times_of(trip, APPENDS)
            for name, value in (("leader", leader), ("follower", statistics.mean(followers)), ("client", own)):
                spent[name].append(value)
    figures = {f"{name}_cpu_us": statistics.median(values) for name, values in spent.items()}
    figures["all_cpu_us"] = figures["leader_cpu_us"] + 2 * figures["follower_cpu_us"] + figures["client_cpu_us"]
    ack, tcp = statistics.median(acks), statistics.median(trips)
    figures |= {"ack_us": ack * 1e6, "tcp_us": tcp * 1e6, "ack_over_tcp": ack / tcp, "p99_us": last_percent(acks) * 1e6}
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "an acknowledgement", figures)
