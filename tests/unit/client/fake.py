"""A client's world in memory: brokers with committed logs, a network that can misbehave, a clock that moves when told."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from attrs import define, evolve, field

from replog.client.client import Client
from replog.client.core import ClientCore
from replog.config import ClientConfig, TopicConfig
from replog.errors import Code
from replog.messages import (
    Admin,
    AdminAnswer,
    ClusterView,
    Disconnected,
    Epochs,
    EpochsResult,
    Fetch,
    Fetched,
    FetchedEntry,
    ListedOffset,
    ListedOffsets,
    ListOffsets,
    Metadata,
    OffsetsForLeaderEpoch,
    PartitionView,
    Produce,
    Produced,
    ProducedEntry,
    TopicView,
)
from replog.model import BrokerInfo, PartitionId
from replog.ports import MemorySlice
from replog.records import RecordBatch, decode_records
from replog.runtime.changing import Changing
from replog.testing.clock import ManualClock, SeededIds

CLIENT = "client"
MESSAGES_MAX = 200_000


@define
class FakePartition:
    """One partition: a single log that every leader shares, and how far it is committed."""

    topic: str
    identity: PartitionId
    leader: int | None
    epoch: int = 0
    log: list[RecordBatch] = field(factory=list)
    start: int = 0
    uncommitted: int = 0
    """How many of the last records are above the high watermark."""
    enough_replicas: bool = True
    offset_available: bool = True
    forgetful: bool = False
    """Whether it may have forgotten producers: then one that it does not know may begin anywhere."""

    @property
    def end(self) -> int:
        return self.log[-1].end_offset if self.log else self.start

    @property
    def high_watermark(self) -> int:
        return self.end - self.uncommitted

    def judge(self, batch: RecordBatch) -> tuple[int, int]:
        """(code, offset of the original or -1): the broker's sequence check, from the log alone (KIP-98)."""
        mine = [b for b in self.log if b.producer_id == batch.producer_id]
        if batch.producer_id < 0:
            return 0, -1
        if not mine:
            return (0 if batch.base_sequence == 0 or self.forgetful else Code.OUT_OF_ORDER_SEQUENCE), -1
        epoch = mine[-1].producer_epoch
        if batch.producer_epoch < epoch:
            return Code.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > epoch:
            return (0 if batch.base_sequence == 0 else Code.OUT_OF_ORDER_SEQUENCE), -1
        current = [b for b in mine if b.producer_epoch == epoch][-5:]
        for old in current:
            if old.base_sequence == batch.base_sequence and old.count == batch.count:
                return (0 if old.payload_crc == batch.payload_crc else Code.INVALID_RECORD), old.base_offset
        following = (current[-1].base_sequence + current[-1].count) % 2**31
        return (0 if batch.base_sequence == following else Code.OUT_OF_ORDER_SEQUENCE), -1

    def append(self, batch: RecordBatch) -> int:
        batch.stamp(self.identity, self.end, self.epoch)
        self.log.append(batch)
        return batch.base_offset

    def values(self) -> list[bytes]:
        return [record.value for batch in self.log for record in decode_records(batch)]


class FakeCluster:
    """Brokers 1 to n as a client sees them. `answers` overrides: (message, broker) -> answer, or None for the usual one."""

    def __init__(self, brokers: int = 3) -> None:
        self.brokers = {n: BrokerInfo(n, 10 + n, (f"tcp://host{n}:1",)) for n in range(1, brokers + 1)}
        self.down: set[int] = set()
        self.paused: set[int] = set()
        """These take what they are sent, and do nothing with it until they go on."""
        self.partitions: dict[PartitionId, FakePartition] = {}
        self.topics: dict[str, tuple[bytes, TopicConfig]] = {}
        self.version = 1
        self.controller_epoch = 1
        self.override: Callable[[Any, int], list[Any] | None] | None = None
        self.late_views: dict[int, ClusterView] = {}
        self.counts: dict[str, int] = {}
        self._topic_ids = 0

    def create(self, topic: str, partitions: int = 1, **config: Any) -> None:
        self._topic_ids += 1
        topic_id = self._topic_ids.to_bytes(16, "big")
        self.topics[topic] = (topic_id, TopicConfig(**config))
        for n in range(partitions):
            self.add_partition(topic, n)

    def add_partition(self, topic: str, number: int) -> None:
        identity = PartitionId(self.topics[topic][0], number, 0)
        self.partitions[identity] = FakePartition(topic, identity, leader=1 + number % len(self.brokers))
        self.version += 1

    def delete(self, topic: str) -> None:
        topic_id, _ = self.topics.pop(topic)
        self.partitions = {i: p for i, p in self.partitions.items() if i.topic_id != topic_id}
        self.version += 1

    def partition(self, topic: str, number: int = 0) -> FakePartition:
        return self.partitions[PartitionId(self.topics[topic][0], number, 0)]

    def move(self, topic: str, number: int, leader: int | None) -> None:
        partition = self.partition(topic, number)
        partition.leader = leader
        partition.epoch += 1
        self.version += 1

    def view(self, request: int = -1) -> ClusterView:
        topics = []
        for name, (topic_id, config) in sorted(self.topics.items()):
            places = tuple(
                PartitionView(i.partition, i.creation, p.leader, p.epoch, (1, 2, 3), (), (1, 2, 3), p.epoch)
                for i, p in self.partitions.items()
                if i.topic_id == topic_id
            )
            topics.append(TopicView(name, topic_id, config, places))
        brokers = [self.brokers[n] for n in sorted(self.brokers)]
        return ClusterView(self.controller_epoch, self.version, -1, 1, brokers, topics, cluster_id="fake", request=request)

    def answer(self, broker: int, message: Any) -> list[Any]:
        """What a broker says to a message."""
        kind = type(message).__name__
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.override is not None:
            said = self.override(message, broker)
            if said is not None:
                return said
        if isinstance(message, Metadata):
            late = self.late_views.get(broker)
            return [evolve(late, request=message.request) if late is not None else self.view(message.request)]
        if isinstance(message, Produce):
            entries = [self._produced(broker, message.acks, entry) for entry in message.entries]
            return [] if message.acks == 0 else [Produced([entry]) for entry in entries]
        if isinstance(message, Fetch):
            return [Fetched(message.request, 0, -1, 0, [self._fetched(broker, entry) for entry in message.entries])]
        if isinstance(message, ListOffsets):
            return [ListedOffsets(message.request, [self._listed(broker, entry) for entry in message.entries])]
        if isinstance(message, OffsetsForLeaderEpoch):
            return [Epochs(message.request, [self._epoch_end(entry) for entry in message.entries])]
        assert isinstance(message, Admin)
        return [self._admin(message)]

    def _produced(self, broker: int, acks: int, entry: Any) -> ProducedEntry:
        partition = self.partitions.get(entry.partition)
        if partition is None:
            return ProducedEntry(entry.request, Code.UNKNOWN_TOPIC_ID)
        if partition.leader != broker:
            return ProducedEntry(entry.request, Code.NOT_LEADER_OR_FOLLOWER, leader=partition.leader or -1, leader_epoch=partition.epoch)
        batch = RecordBatch(entry.body)
        batch.check_body(length_max=2**30, records_max=10**6)
        code, original = partition.judge(batch)
        if not code and original < 0 and not partition.enough_replicas and acks == -1:
            code = Code.NOT_ENOUGH_REPLICAS
        if code:
            return ProducedEntry(entry.request, code)
        return ProducedEntry(entry.request, 0, original if original >= 0 else partition.append(batch), partition.start)

    def _fetched(self, broker: int, entry: Any) -> FetchedEntry:
        partition = self.partitions.get(entry.partition)
        answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset)
        if partition is None or partition.leader != broker:
            answer.error = Code.UNKNOWN_TOPIC_ID if partition is None else Code.NOT_LEADER_OR_FOLLOWER
            return answer
        answer.start_offset, answer.high_watermark, answer.end_offset = partition.start, partition.high_watermark, partition.end
        if entry.leader_epoch != partition.epoch:
            answer.error = Code.FENCED_LEADER_EPOCH
        elif not partition.start <= entry.offset <= partition.end:
            answer.error = Code.OFFSET_OUT_OF_RANGE
        else:
            taken = 0
            for batch in partition.log:
                if batch.end_offset > entry.offset and batch.end_offset <= partition.high_watermark and taken < entry.max_bytes:
                    answer.slices.append(MemorySlice(batch.base_offset, batch.end_offset, batch.to_bytes()))
                    taken += batch.length
        return answer

    def _listed(self, broker: int, entry: Any) -> ListedOffset:
        partition = self.partitions.get(entry.partition)
        if partition is None or partition.leader != broker:
            return ListedOffset(entry.partition, Code.UNKNOWN_TOPIC_ID if partition is None else Code.NOT_LEADER_OR_FOLLOWER)
        listed = ListedOffset(entry.partition, 0, -1, -1, partition.epoch, partition.end, partition.start)
        if entry.at == -2:
            listed.offset = partition.start
        elif not partition.offset_available:
            listed.error = Code.OFFSET_NOT_AVAILABLE
        elif entry.at == -1:
            listed.offset = partition.high_watermark
        else:
            kept = (batch for batch in partition.log if batch.end_offset > partition.start)
            found = next((batch for batch in kept if batch.max_timestamp_ms >= entry.at), None)
            if found is not None and found.base_offset < partition.high_watermark:
                listed.offset, listed.timestamp_ms = found.base_offset, found.max_timestamp_ms
        return listed

    def _epoch_end(self, entry: Any) -> EpochsResult:
        partition = self.partitions[entry.partition]
        known = [batch for batch in partition.log if batch.leader_epoch <= entry.epoch]
        if not known:
            return EpochsResult(entry.partition)
        return EpochsResult(entry.partition, 0, known[-1].leader_epoch, known[-1].end_offset)

    def _admin(self, message: Admin) -> AdminAnswer:
        if message.verb == "find_view":
            return AdminAnswer(message.request, 0, result={"controller_epoch": self.controller_epoch, "version": self.version})
        name = message.arguments["name"]
        if message.verb == "create_topic":
            if name in self.topics:
                return AdminAnswer(message.request, Code.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists")
            self.create(name, message.arguments["partitions"], **message.arguments["config"])
            return AdminAnswer(message.request, 0, result={"topic_id": self.topics[name][0].hex()})
        if name not in self.topics:
            return AdminAnswer(message.request, Code.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {name!r}")
        if message.verb == "find_topic":
            topic_id = self.topics[name][0]
            count = sum(i.topic_id == topic_id for i in self.partitions)
            result: dict[str, Any] = {"topic_id": topic_id.hex(), "partitions": count, "next_creation": 0}
            if "leaders" in message.arguments:
                asked = [p for i, p in self.partitions.items() if i.topic_id == topic_id and i.partition in message.arguments["leaders"]]
                result["leaders"] = [[p.identity.partition, p.identity.creation, p.epoch, p.leader] for p in asked]
            return AdminAnswer(message.request, 0, result=result)
        self.delete(name)
        return AdminAnswer(message.request, 0)


class FakeDriver:
    """Runs one client core against a FakeCluster. With `chaos`, a seeded network drops, repeats and delays."""

    def __init__(self, cluster: FakeCluster, *, seed: int = 0, chaos: float = 0.0, bootstrap: Any = (1, 2, 3), **config: Any) -> None:
        self.cluster = cluster
        self.clock = ManualClock(now_ms=1_000)
        self.random = random.Random(seed)
        self.chaos = chaos
        self.core = ClientCore(CLIENT, config=ClientConfig(**config), ids=SeededIds(seed), bootstrap=bootstrap)
        self.lock = threading.RLock()
        self.changing = Changing()
        self.closed = False
        self.flying: list[tuple[int, int, Any, Any, Any]] = []
        self.delivered = 0
        self.filter: Callable[[Any, Any], bool] | None = None
        """(to, message) -> whether to drop it."""
        self.interrupt: Callable[[], None] | None = None
        """Called between two deliveries; may raise."""
        self.unsent: dict[Any, int] = {}
        """Bytes that wait for a broker."""
        self.held: list[tuple[int, int, Any, Any, Any]] = []
        """What paused brokers were sent."""
        self.events: list[Callable[[], None]] = []
        """Called one at a time whenever time passes."""
        self._serial = 0

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def wall_ms(self) -> int:
        return self.clock.wall_ms()

    def close(self) -> None:
        self.closed = True

    def _post(self, to: Any, sender: Any, message: Any) -> None:
        if self.filter is not None and self.filter(to, message):
            return
        copies = 1
        if self.random.random() < self.chaos:
            copies = self.random.choice((0, 0, 2))
        for _ in range(copies):
            delay = self.random.randrange(200) if self.random.random() < 2 * self.chaos else 0
            self._serial += 1
            self.flying.append((self.now_ms() + delay, self._serial, to, sender, message))

    def _collect(self) -> None:
        sent, self.core.outbox.messages[:] = list(self.core.outbox.messages), []
        for to, message in sent:
            self._post(to, CLIENT, message)

    def run(self) -> None:
        with self.lock, self.changing:
            self._collect()
            while True:
                due = [item for item in self.flying if item[0] <= self.now_ms()]
                if due:
                    self._deliver(min(due))
                    continue
                deadline = self.core.deadline_ms()
                if deadline is None or deadline > self.now_ms():
                    return
                self.core.tick(self.now_ms(), self.wall_ms())
                self.delivered += 1
                assert self.delivered < MESSAGES_MAX, "the core keeps itself busy"
                self._collect()

    def _deliver(self, item: Any) -> None:
        if self.interrupt is not None:
            self.interrupt()
        self.flying.remove(item)
        _, _, to, sender, message = item
        self.delivered += 1
        assert self.delivered < MESSAGES_MAX, "messages go round in a loop"
        if to == CLIENT:
            self.core.receive(sender, message, self.now_ms())
            self._collect()
        elif to in self.cluster.down:
            self._post(CLIENT, to, Disconnected(to))
        elif to in self.cluster.paused:
            self.held.append(item)
        else:
            for answer in self.cluster.answer(to, message):
                self._post(CLIENT, to, answer)

    def resume(self) -> None:
        """Paused brokers go on, with what they were sent meanwhile."""
        self.cluster.paused.clear()
        self.flying += [(self.now_ms(), *item[1:]) for item in self.held]
        self.held.clear()

    def pass_time(self, ms: int) -> None:
        """Let time pass, running what becomes due on the way."""
        until = self.now_ms() + ms
        self.run()
        while self._step(until):
            self.run()

    def _step(self, until: int | None) -> bool:
        if self.events:
            self.events.pop(0)()
        times = [item[0] for item in self.flying]
        deadline = self.core.deadline_ms()
        is_endless = until is None and deadline == self.core._metadata_old_at  # nothing is left but to grow old
        times += [deadline] if deadline is not None and not is_endless else []
        times += [until] if until is not None else []
        future = [at for at in times if at > self.now_ms()]
        if not future or (until is not None and min(future) > until):
            return False
        self.clock.advance(min(future) - self.now_ms())
        return True

    def wake(self) -> None:
        """Whoever waits looks after every step."""

    def attend(self) -> None:
        """Nobody but the test drives it."""

    def expect(self) -> None:
        """As `attend`."""

    def unsent_to(self, broker: Any) -> int:
        """Whatever is sent has arrived, unless a test says otherwise."""
        return self.unsent.get(broker, 0)

    def wait(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        with self.lock:
            until = None if timeout_s is None else self.now_ms() + int(timeout_s * 1000)
            self.run()
            while not done():
                if not self._step(until):
                    return done()
                self.run()
            return True


def make(topics: dict[str, int] | None = None, **options: Any) -> tuple[FakeCluster, FakeDriver, Client]:
    """A cluster of three with these topics, a driver and a client."""
    cluster = FakeCluster()
    for topic, partitions in (topics or {}).items():
        cluster.create(topic, partitions)
    driver = FakeDriver(cluster, **options)
    return cluster, driver, Client(driver)


def metadata_asked(driver: FakeDriver) -> list[Any]:
    """Whom every Metadata goes to from now on; filled as they go, and nothing is held back."""
    asked: list[Any] = []

    def note(to: Any, message: Any) -> bool:
        if isinstance(message, Metadata):
            asked.append(to)
        return False

    driver.filter = note
    return asked
