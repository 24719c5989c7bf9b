"""Clients of a run: they append and read all the time, and keep a history of what they were told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import replog
from replog.errors import Rejected, ReplogError
from replog.testing.history import History, key_of
from replog.testing.history.events import Send

__all__ = ["TOPIC", "Load", "in_sync"]

TOPIC = "orders"
_OUTSTANDING = 40
_REST_S = 0.1
"""After so many records, so that the machine is not busy with these alone."""


class Load:
    """A producer for each partition, so that none waits for what befalls another, and readers of all; until told to stop."""

    def __init__(self, bootstrap: str, partitions: int, *, writes: bool = True, readers: int = 2) -> None:
        self.history = History(stale_reads=True)
        self.partitions = partitions
        self.acknowledged = 0
        self.troubles: list[str] = []
        """What left a thread: none may."""
        self._bootstrap = bootstrap
        self._done = threading.Event()
        with replog.connect(bootstrap) as client:
            client.create_topic(TOPIC, partitions=partitions, replication_factor=3, min_isr=2, timeout_s=30)
            self.topic_id = client.describe(TOPIC).topic_id
        work = [(self._produce, n) for n in range(partitions if writes else 0)] + [(self._read, n) for n in range(readers)]
        self._threads = [threading.Thread(target=self._guarded, args=one, daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    def key(self, partition: int) -> str:
        """Of a partition in the history."""
        return key_of(TOPIC, self.topic_id, partition)

    def stop(self) -> None:
        """Let everything under way come to its end."""
        self._done.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive(), f"{thread.name} hangs"

    def _guarded(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as problem:  # told by the test, not by a thread nobody looks at
            self.troubles.append(f"{work.__name__} {number}: {problem!r}")

    def _produce(self, partition: int) -> None:
        """Idempotent, acks=all, several batches under way; a new producer whenever one has given up on something."""
        made = 0
        for life in range(1_000_000):
            if self._done.is_set():
                return
            name = f"producer {partition}.{life}"
            with replog.connect(self._bootstrap) as client:
                producer = client.producer(acks="all", linger_ms=1)
                failed = False
                while not failed and not self._done.is_set():
                    value = f"{partition}/{made}"
                    made += 1
                    op = self.history.invoke_send(name, self.key(partition), [value])
                    try:
                        producer.send(TOPIC, value, partition=partition).add_done_callback(partial(self._told, op))
                        if made % _OUTSTANDING == 0:
                            producer.flush(timeout_s=60)
                            self._done.wait(_REST_S)
                    except ReplogError:
                        failed = True
                with suppress(ReplogError):  # what was given up is in the history
                    producer.close()

    def _told(self, op: Send, delivery: replog.Delivery) -> None:
        problem = delivery.exception()
        if problem is None:
            op.ok(delivery.result().offset)
            self.acknowledged += 1
        elif isinstance(problem, Rejected):
            op.fail()
        else:
            op.info()

    def _read(self, number: int) -> None:
        """Follow every partition, one after the other."""
        positions = dict.fromkeys(range(self.partitions), 0)
        with replog.connect(self._bootstrap) as client:
            while not self._done.is_set():
                for partition, position in positions.items():
                    poll = self.history.invoke_poll(f"reader {number}", self.key(partition), position)
                    try:
                        records = client.fetch(TOPIC, partition, position, wait_s=0.05)
                    except ReplogError:
                        poll.info()
                        continue
                    poll.ok([(record.offset, record.text()) for record in records])
                    if records:
                        positions[partition] = records[-1].offset + 1

    def read_all(self) -> int:
        """Everything, at the end; how many records there are."""
        count = 0
        with replog.connect(self._bootstrap) as client:
            for partition in range(self.partitions):
                end, position = client.offset(TOPIC, partition, "latest"), 0
                assert end is not None
                while True:  # the last poll finds nothing: without it nobody can say that the log ends there
                    poll = self.history.invoke_poll("last reader", self.key(partition), position, final=True)
                    records = client.fetch(TOPIC, partition, position, wait_s=5 if position < end else 0)
                    poll.ok([(record.offset, record.text()) for record in records])
                    if not records:
                        break
                    position = records[-1].offset + 1
                    count += len(records)
                assert position >= end, f"nothing at {position} of partition {partition}, which ends at {end}"
        return count


def in_sync(bootstrap: str, partitions: int) -> bool:
    """Whether every partition has a leader and all its replicas in sync."""
    try:
        with replog.connect(bootstrap) as client:
            described = client.describe(TOPIC).partitions
    except ReplogError:
        return False
    return len(described) == partitions and all(p.leader is not None and set(p.isr) == set(p.replicas) for p in described)
