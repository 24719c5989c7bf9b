"""Processes that write as fast as they can, or at a pace, and say twice a second how far they have come.

    python benchmarks/writers.py BOOTSTRAP TOPIC PARTITIONS BYTES RECORDS_PER_S ACKS IN_A_ROW TOGETHER
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Literal, Self

import replog
from replog.client.columns import ROW_BYTES
from replog.errors import ReplogError

__all__ = ["Writers", "cpu_s", "forget_peak", "peak_bytes", "rss_bytes"]

_COUNTED = ("offered", "refused", "acknowledged", "failed")
_AT_ONCE = 500
_BUFFER_BYTES = 32 << 20
_EVERY_S = 0.5
_TICK_S = 0.02


class Writers:
    """So many processes; `with` starts them and ends them."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        processes: int,
        size: int = 100,
        records_per_s: float = 0,
        acks: Literal["all", "1"] = "all",
        in_a_row: int = 1,
        together: int = 1,
        nice: int = 0,
    ) -> None:
        """Without `records_per_s` each has 500 records more under way each time it looks, and waits while its buffer is full. With it, so
        many are offered by all of them whatever becomes of those before: what finds the buffer full is refused, and not offered again.

        So many records are sent `together`, as a batch if there are several; so many calls `in_a_row` go to one partition before the next
        has its turn. A `nice` above 0 leaves brokers more of processors that all share.
        """
        numbers = [str(partitions), str(size), str(records_per_s / processes), acks, str(in_a_row), str(together)]
        self._command = ["nice", "-n", str(nice), sys.executable, __file__, bootstrap, topic, *numbers]
        self._count = processes
        self._running: list[subprocess.Popen[str]] = []
        self._lines: list[dict[str, Any]] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for _ in range(self._count):
            one = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._running.append(one)
            self._threads.append(threading.Thread(target=self._listen, args=(one,), daemon=True))
            self._threads[-1].start()
        return self

    def _listen(self, one: subprocess.Popen[str]) -> None:
        assert one.stdout is not None
        for line in one.stdout:
            self._lines.append({**json.loads(line), "pid": one.pid})

    def __exit__(self, *problem: object) -> None:
        for one in self._running:
            assert one.stdin is not None
            one.stdin.close()
        for one, thread in zip(self._running, self._threads, strict=True):
            one.wait(120)
            thread.join()
            assert one.stdout is not None
            one.stdout.close()
            assert one.returncode == 0, f"a writer ended with {one.returncode}"

    def all_there(self) -> bool:
        """Whether each of them has said something."""
        return len({line["pid"] for line in list(self._lines)}) == self._count

    def per_second(self, seconds: float) -> float:
        """Records acknowledged per second by all of them, in the next so many seconds."""
        return self.rates(seconds)["acknowledged"]

    def rates(self, seconds: float) -> dict[str, float]:
        """Records per second of all of them, in the next so many seconds: `offered`, and `refused`, `acknowledged` and `failed`."""
        begun, before = time.monotonic(), len(self._lines)
        threading.Event().wait(seconds)
        took = time.monotonic() - begun
        return {name: sum(line[name] for line in self._lines[before:]) / took for name in _COUNTED}

    def waits_ms(self, seconds: float) -> list[float]:
        """How long the oldest record without an outcome has waited, by process and half second, in the next so many seconds."""
        before = len(self._lines)
        threading.Event().wait(seconds)
        return [line["oldest_ms"] for line in self._lines[before:]]

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far, as of each one's last half second."""
        return sum(line["acknowledged"] for line in list(self._lines))

    @property
    def failed(self) -> int:
        """Records that were given up."""
        return sum(line["failed"] for line in self._lines)


def rss_bytes(pid: int) -> int:
    """Memory of a process that is resident."""
    return _status_bytes(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The most memory of a process that was resident at any time since it began, or since `forget_peak`: the kernel misses nothing."""
    return _status_bytes(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """From now on `peak_bytes` begins with what is resident now. Raises OSError where the kernel or its owner does not allow that."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_bytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith(f"{name}:"))


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _sizes(size: int, together: int) -> dict[str, int]:
    """What a producer is given so that records which are sent together are a batch, and find room together or not at all."""
    whole = together * (size + ROW_BYTES)
    return {} if together == 1 else {"batch_bytes": whole, "buffer_bytes": _BUFFER_BYTES // whole * whole}


def _sent(producer: replog.Producer, topic: str, values: list[bytes], partition: int) -> replog.Delivery:
    """Send them; the handle of the last one."""
    if len(values) == 1:
        return producer.send(topic, values[0], partition=partition)
    *_, last = producer.send_many(topic, values, partition=partition)
    return last


def _write(
    bootstrap: str, topic: str, partitions: int, size: int, per_s: float, acks: Literal["all", 1], in_a_row: int, together: int
) -> None:
    """Until stdin is closed. What is numbered is calls."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    values, counted = [bytes(size)] * together, dict.fromkeys(_COUNTED, 0)
    under_way: dict[int, float] = {}
    ended: deque[tuple[int, replog.Delivery]] = deque()

    def count() -> None:
        """Not in the callback: to ask a delivery there would call the next one's from within."""
        while ended:
            number, delivery = ended.popleft()
            under_way.pop(number, None)
            counted["failed" if delivery.exception() is not None else "acknowledged"] += together

    block_ms = 0 if per_s else None
    more = _sizes(size, together)
    with replog.connect(bootstrap) as client, client.producer(acks=acks, compression=None, max_block_ms=block_ms, **more) as producer:
        client.partitions_for(topic)
        begun = reported = time.monotonic()
        number = 0
        while not over.is_set():
            now = time.monotonic()
            due = number + _AT_ONCE // together
            if per_s:
                due = min(due, int((now - begun) * per_s / together))
            if due <= number:
                over.wait(_TICK_S)
            for number in range(number + 1, due + 1):  # noqa: B020
                under_way[number] = now
                counted["offered"] += together
                try:
                    delivery = _sent(producer, topic, values, number // in_a_row % partitions)
                    delivery.add_done_callback(lambda d, n=number: ended.append((n, d)))
                except ReplogError:
                    counted["refused"] += together
                    del under_way[number]
            count()
            if now - reported >= _EVERY_S:
                oldest = next(iter(list(under_way.values())[:1]), now)
                print(json.dumps({**counted, "oldest_ms": round((now - oldest) * 1_000, 1)}), flush=True)
                counted.update(dict.fromkeys(_COUNTED, 0))
                reported = now


if __name__ == "__main__":
    bootstrap, topic, partitions, size, per_s, acks, in_a_row, together = sys.argv[1:]
    _write(bootstrap, topic, int(partitions), int(size), float(per_s), 1 if acks == "1" else "all", int(in_a_row), int(together))
