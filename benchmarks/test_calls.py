"""How many function calls an acknowledgement costs each process: a figure that no neighbour disturbs.

Run with `pytest benchmarks/test_calls.py --benchmark-enable -s`. Three brokers that listen on loopback, each on a thread of its own, and a
client: 100 bytes at a time, acks=all. Calls of Python functions and of functions in C are counted apart; the first cost about
twice as much. What is counted is what each thread runs, whichever process it is in.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measuring import report

import replog

APPENDS = 500
_BROKERS = (1, 2, 3)


class _Calls:
    """Counts what threads call that begin while it is installed, and the thread that installs it."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: Any, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.counts[threading.current_thread().name, event] += 1

    def __enter__(self) -> _Calls:
        threading.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)  # type: ignore[arg-type]  # the stubs forget that it can be taken back


def test_calls(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """Of the leader, of a follower, and of the client."""
    with ExitStack() as stack:
        calls = stack.enter_context(_Calls())
        store = f"file://{tmp_path / 'store.db'}"
        nodes = [replog.Broker(n, listen="tcp://127.0.0.1:0", data=tmp_path / f"b{n}", store=store) for n in _BROKERS]
        for node in nodes:
            stack.enter_context(node)
        client = stack.enter_context(replog.connect([node.endpoint for node in nodes]))
        client.create_topic("t", assignment={0: list(_BROKERS)}, min_isr=2)
        producer = stack.enter_context(client.producer(compression=None))

        def append() -> None:
            producer.send("t", b"x" * 100, partition=0).result()

        append()
        before = calls.counts.copy()
        sys.setprofile(calls)
        for _ in range(APPENDS):
            append()
        sys.setprofile(None)
        spent = calls.counts - before
    benchmark.pedantic(lambda: None, rounds=1)
    own = threading.current_thread().name
    threads = {"leader": "replog broker 1", "follower": "replog broker 2", "client": own}
    kinds = {"python": "call", "c": "c_call"}
    figures = {f"{who}_{kind}": spent[name, event] / APPENDS for who, name in threads.items() for kind, event in kinds.items()}
    report(benchmark, capsys, "function calls of an acknowledgement, RF 3, acks=all", figures)
