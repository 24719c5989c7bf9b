"""Processes that die, hang and leave under load, and the judgement on what their clients were told.

Three broker processes; some producers and readers in the process of the test; a seed decides who is hit when and how. What
clients were told goes into a history, which is judged as a whole at the end.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import replog
from replog.errors import Rejected, ReplogError
from replog.testing.eventually import eventually
from replog.testing.history import History, check, key_of
from replog.testing.history.events import Send

TOPIC = "orders"
SESSION_MS = 1_500
CONFIG = {"session_ms": SESSION_MS, "heartbeat_ms": 300, "replica_lag_ms_max": 2_000, "ack_timeout_ms": 1_000, "reconcile_ms": 3_000}
IN_SYNC_S = 15.0
"""How long after the last fault every partition may take to have its full ISR: what the library promises."""
_OUTSTANDING = 40


class Brokers:
    """Broker processes that share a store; whoever died is started again where it was."""

    def __init__(self, folder: Path, store: str, count: int = 3) -> None:
        self.folder = folder
        self.store = store
        self.processes: dict[int, replog.BrokerProcess] = {}
        for broker_id in range(1, count + 1):
            self.start(broker_id)

    def start(self, broker_id: int) -> None:
        """The first life takes any port, later ones the same."""
        known = self.processes.get(broker_id)
        self.processes[broker_id] = replog.BrokerProcess(
            broker_id,
            listen="tcp://127.0.0.1:0" if known is None else known.endpoint,
            data=str(self.folder / f"broker-{broker_id}"),
            store=self.store,
            config=CONFIG,
        ).start()

    @property
    def bootstrap(self) -> str:
        """Of all of them."""
        return ",".join(process.endpoint for process in self.processes.values())

    def close(self) -> None:
        """End all of them, whatever state they are in."""
        for process in self.processes.values():
            process.kill()

    def hit(self, broker_id: int, how: str, seconds: float, wait: Callable[[float], object]) -> None:
        """One fault: "kill", "stop" (TERM), or "pause" (SIGSTOP), and back after some time."""
        process = self.processes[broker_id]
        if how == "pause":
            process.pause()
            wait(seconds)
            process.resume()
            return
        process.kill() if how == "kill" else process.stop()
        wait(seconds)
        self.start(broker_id)


class Load:
    """Producers and readers on all partitions, until told to stop."""

    def __init__(self, bootstrap: str, partitions: int, *, producers: int = 2, readers: int = 2) -> None:
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
        work = [(self._produce, n) for n in range(producers)] + [(self._read, n) for n in range(readers)]
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

    def _produce(self, number: int) -> None:
        """Idempotent, acks=all, several batches under way; a new producer whenever one has given up on something."""
        made = 0
        for life in range(1_000_000):
            if self._done.is_set():
                return
            name = f"producer {number}.{life}"
            with replog.connect(self._bootstrap) as client:
                producer = client.producer(acks="all", linger_ms=1)
                failed = False
                while not failed and not self._done.is_set():
                    value, partition = f"{number}/{made}", made % self.partitions
                    made += 1
                    op = self.history.invoke_send(name, self.key(partition), [value])
                    try:
                        producer.send(TOPIC, value, partition=partition).add_done_callback(partial(self._told, op))
                        if made % _OUTSTANDING == 0:
                            producer.flush(timeout_s=60)
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
                while position < end:
                    poll = self.history.invoke_poll("last reader", self.key(partition), position, final=True)
                    records = client.fetch(TOPIC, partition, position, wait_s=5)
                    poll.ok([(record.offset, record.text()) for record in records])
                    assert records, f"nothing at {position} of partition {partition}, which ends at {end}"
                    position = records[-1].offset + 1
                    count += len(records)
        return count


def in_sync(bootstrap: str, partitions: int, brokers: int) -> bool:
    """Whether every partition has a leader and all its replicas in sync."""
    try:
        with replog.connect(bootstrap) as client:
            described = client.describe(TOPIC).partitions
    except ReplogError:
        return False
    return len(described) == partitions and all(p.leader is not None and len(p.isr) == brokers for p in described)


def run(
    folder: Path,
    store: str,
    seed: int,
    seconds: float,
    *,
    also: Callable[[float], None] = lambda chance: None,
    after: Callable[[], None] = lambda: None,
) -> Load:
    """Faults for so long, then the judgement. `also` is called between faults, for what else can be hit; `after`, to heal that."""
    chance, partitions = random.Random(seed), 3
    brokers = Brokers(folder, store)
    try:
        load = Load(brokers.bootstrap, partitions)
        over = threading.Event()
        end = time.monotonic() + seconds
        faults = 0
        while time.monotonic() < end:
            victim = chance.choice(list(brokers.processes))
            how = chance.choice(("kill", "kill", "pause", "stop"))
            length = chance.uniform(1.2, 2.0) * SESSION_MS / 1_000 if how == "pause" else chance.uniform(0.0, 1.5)
            brokers.hit(victim, how, length, over.wait)
            faults += 1
            over.wait(chance.uniform(0.2, 2.0))
            also(chance.random())
        after()
        eventually(lambda: in_sync(brokers.bootstrap, partitions, len(brokers.processes)), IN_SYNC_S, every_s=0.1)
        load.stop()
        assert load.troubles == []
        assert load.read_all() >= load.acknowledged
        report = check(load.history)
        assert report.ok, str(report)
        assert faults >= seconds / 8
        assert load.acknowledged > 5 * faults  # it went on in between
        return load
    finally:
        brokers.close()
