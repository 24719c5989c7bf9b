"""What an idle partition costs a broker: bytes of memory for each copy, all state included, and the time to make 10,000.

Run with `pytest benchmarks/test_memory.py --benchmark-enable -s`. Three brokers without a driver, over files: one leads 10,000 partitions,
the others follow and have a fetch open. Bytes are those that Python's allocator handed out and has not got back. Each broker has its
notice from a frame of its own, as in processes. `least_bytes`: the objects of its log and its partition without what they refer to, and an
entry of a dict for each, which no partition can be without. That an idle one has no open file, no task and no timer is asserted.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import threading
import tracemalloc
import types
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import report, timed
from benchmarks.targets import at_most

from replog.broker.broker import Broker
from replog.broker.due import Due
from replog.codec import decode, encode
from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.messages import ClusterView, LeaderAndIsr, PartitionNotice, Registered, UpdateMetadata
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.testing.clock import SeededIds

PARTITIONS: Final = 10_000
COPIES: Final = (1, 2, 3)
ROUNDS: Final = 5
SETTLED_MAX: Final = 50
TASKS: Final = (asyncio.Future, threading.Thread, types.CoroutineType, types.GeneratorType)
"""What something that runs by itself is, or is kept in."""


def notice() -> bytes:
    """The frame that makes a broker one of three that have the partitions; broker 1 leads them."""
    config, state, assignment = TopicConfig(min_isr=2), PartitionState(1, 1, COPIES), Assignment(COPIES)
    entries = [PartitionNotice(PartitionId(bytes(16), n, 0), "t", state, assignment, config) for n in range(PARTITIONS)]
    return b"".join(encode(LeaderAndIsr(1, 1, 1, 0, True, 600_000, entries, as_of=0)))


def seated(broker_id: int, folder: Path, stack: ExitStack) -> Broker:
    """A registered broker over files."""
    directory = FileLogDirectory(str(folder))
    stack.callback(directory.close, clean=False)
    broker = Broker(broker_id, directory, config=BrokerConfig(), ids=SeededIds(broker_id))
    broker.receive("membership", Registered(broker_id, 1), 0)
    view = ClusterView(1, 1, -1, 1, [BrokerInfo(b, 1) for b in COPIES], [])
    broker.receive(("controller", 1), UpdateMetadata(1, 1, 1, view), 0)
    broker.tick(0, 0)
    return broker


def tell(broker: Broker, frame: bytes) -> None:
    """Hand the notice over, read from its frame."""
    broker.receive(("controller", 1), decode(frame), 0)


def settle(brokers: dict[int, Broker]) -> None:
    """Carry messages between them until nobody says anything more; what is for others is dropped."""
    for _ in range(SETTLED_MAX):
        said = []
        for broker_id, broker in brokers.items():
            broker.tick(0, 0)
            said += [(broker_id, to, message) for to, message in broker.outbox.messages]
            for kept in (broker.outbox.messages, broker.outbox.events, broker.outbox.flushes):
                kept.clear()
        if not said:
            return
        for sender, to, message in said:
            if to in brokers:
                brokers[to].receive(sender, message, 0)
    raise AssertionError(f"after {SETTLED_MAX} rounds they still talk")


def kept_bytes(step: Callable[[], object]) -> int:
    """Memory that is in use after a step and was not before."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    step()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def busy_things() -> dict[str, int]:
    """How many open files this process has, how many tasks of any kind, and how many moments at which partitions are due."""
    gc.collect()
    kept = gc.get_objects()
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "tasks": sum(isinstance(one, TASKS) for one in kept),
        "timers": sum(len(one._at) for one in kept if type(one) is Due),
    }


def least_bytes(broker: Broker) -> float:
    """Of one partition: the two objects themselves, without what they refer to, and their places in the two dicts that find them."""
    partition = next(iter(broker.partitions.values()))
    dicts = [broker.partitions, dict.fromkeys(broker.directory.identities())]
    return sys.getsizeof(partition.log) + sys.getsizeof(partition) + sum(map(sys.getsizeof, dicts)) / PARTITIONS


def test_idle_partitions(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`create_ms`: from the decoded notice until a broker leads them all, their logs made."""
    frame = notice()
    figures: dict[str, float] = {}
    with ExitStack() as stack:
        seconds = []
        for number in range(ROUNDS):
            seconds.append(timed(partial(seated(1, tmp_path / f"timed-{number}", stack).receive, ("controller", 1), decode(frame), 0)))
        figures["create_ms"] = statistics.median(seconds) * 1e3
        brokers = {b: seated(b, tmp_path / f"b{b}", stack) for b in COPIES}
        before = busy_things()
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        kept = {b: kept_bytes(partial(tell, brokers[b], frame)) for b in COPIES}
        replicating = kept_bytes(lambda: settle(brokers))
        assert [len(brokers[b].partitions) for b in COPIES] == [PARTITIONS] * 3
        assert busy_things() == before
        assert not any(broker._fetching._delayed for broker in brokers.values())
        figures |= {"leader_bytes": kept[1] / PARTITIONS, "follower_bytes": (kept[2] + kept[3]) / 2 / PARTITIONS}
        figures["more_while_replicating_bytes"] = replicating / 3 / PARTITIONS
        figures["bytes_per_copy"] = (sum(kept.values()) + replicating) / 3 / PARTITIONS
        figures["least_bytes"] = statistics.mean(least_bytes(broker) for broker in brokers.values())
        figures["bytes_over_least"] = figures["bytes_per_copy"] / figures["least_bytes"]
    benchmark.pedantic(lambda: None, rounds=1)
    report(benchmark, capsys, "an idle partition, for each copy", figures, at_most("bytes_per_copy", 700), at_most("create_ms", 50))
