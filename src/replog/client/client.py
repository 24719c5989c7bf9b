"""`Client`: the public face of a cluster, wherever its brokers run. Every call blocks until its answer or its timeout."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, Self

from attrs import evolve

from replog.client.absent import TopicOp
from replog.client.administration import Administration
from replog.client.arguments import (
    Acks,
    Position,
    check_choice,
    check_count,
    check_timeout,
    checked_assignment,
    checked_partitions,
    checked_records,
    merged_config,
    parse_acks,
    parse_place,
    parse_position,
)
from replog.client.batches import Batch, afresh
from replog.client.consumer import Consumer
from replog.client.delivery import run_callbacks, timed_out
from replog.client.driver import Driver
from replog.client.fetching import FetchOp
from replog.client.offsets import OffsetOp
from replog.client.operations import AT_LATEST, AdminOp, MetadataOp, Operation, unknown_outcome
from replog.client.partitioner import PARTITIONERS
from replog.client.producer import Producer
from replog.client.reading import Reading
from replog.client.results import BrokerDescription, ClusterDescription, Fetch, PartitionDescription, Receipt, TopicDescription
from replog.client.staging import Staging
from replog.client.unpacking import unpack_all
from replog.client.view import Topic, View
from replog.client.writer import Writer
from replog.config import ClientConfig, TopicConfig, check_partition_number, check_topic_name
from replog.errors import Code, MessageTooLarge, Rejected, ReplogError, TopicAlreadyExists, UnknownTopicOrPartition, UsageError, rejection
from replog.messages import ListedOffset, PartitionView
from replog.model import ACKS_NONE
from replog.records import Record, record_size

__all__ = ["Client"]

FOREVER_MS: Final = 2**62


class Client(Administration, Staging):
    """Topics, appends and reads. Any thread may call; a KeyboardInterrupt ends the call, not the client.

    Made by `replog.connect(...)`; a `Cluster` is a Client too. Errors: UsageError before anything was sent, `Rejected` when the
    cluster refused, `Unavailable` (TimedOut) when the outcome is unknown.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._appenders: dict[int, Writer] = {}

    # ------------------------------------------------------------------------------------------------------------ topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        exist_ok: bool = False,
        validate_only: bool = False,
        config: Mapping[str, Any] | None = None,
        timeout_s: float | None = 30,
        **config_keys: Any,
    ) -> str:
        """Create a topic and wait until it can be used; returns its id (32 hexadecimal digits).

        `replication_factor` None means min(3, live brokers); `assignment` names the brokers of each partition, the preferred leader first;
        further keywords (`min_isr=2`, `retention_ms=...`) are the topic's configuration and override `config`. With `exist_ok` an
        existing topic is left as it is. With `validate_only` everything is checked, nothing is created, and the id is empty.
        """
        name = check_topic_name(name)
        partitions = check_count("partitions", partitions, 1, 100_000)
        if replication_factor is not None:
            replication_factor = check_count("replication_factor", replication_factor, 1, 64)
        placed = checked_assignment(assignment) if assignment is not None else None
        if placed is not None and partitions not in (1, len(placed)):
            raise UsageError(f"partitions is {partitions}, but the assignment names {len(placed)}")
        settings = TopicConfig.from_mapping(merged_config(config, config_keys)).to_mapping()
        arguments = {
            "name": name,
            "partitions": len(placed) if placed is not None else partitions,
            "replication_factor": replication_factor,
            "assignment": placed,
            "config": settings,
        }
        deadline_ms = self._deadline(timeout_s)
        if check_choice("validate_only", validate_only, (True, False)):
            self._do(AdminOp("create_topic", {**arguments, "validate_only": True}, deadline_ms))
            return ""
        with self._driver.lock:
            known = self._core.view.topics.get(name)
        before = known.topic_id if known is not None else b""
        op = AdminOp("create_topic", arguments, deadline_ms, granted_code=0 if before else Code.TOPIC_ALREADY_EXISTS)
        if before:  # that may be why; or it is gone, and a request before has made the next one
            op.certain = frozenset({Code.TOPIC_ALREADY_EXISTS})
        try:
            self._do(op)
        except TopicAlreadyExists as exists:
            if exist_ok:
                before = b""
            elif not (op.uncertain and before and self._is_another(name, before, op, exists)):
                raise rejection(exists.code, f"a topic named {name!r} exists; exist_ok=True accepts it", topic=name) from None
        with self._driver.lock, self._driver.changing:
            now_ms = self._driver.now_ms()
            self._core.absent.created(name, now_ms + 5 * self._core.config.retry_backoff_ms_max, now_ms)
        made = self._until_usable(name, before, deadline_ms)
        if op.presumed and not exist_ok and not made.is_as_asked(arguments):  # the request before may not have reached anybody
            text = f"a topic named {name!r} exists, made otherwise; exist_ok=True accepts it"
            raise rejection(Code.TOPIC_ALREADY_EXISTS, text, topic=name)
        return made.topic_id.hex()

    def _is_another(self, name: str, before: bytes, asked: AdminOp, exists: TopicAlreadyExists) -> bool:
        """Whether the topic that exists is another one than before, as the controller knows. Raises Unavailable if that cannot be told."""
        try:
            return bool(self._found(name, asked.deadline_ms)["topic_id"] != before.hex())
        except Rejected:  # nobody has the name any more, or who asks may not describe it
            raise unknown_outcome(asked.what, exists) from exists

    def _until_usable(self, name: str, before: bytes, deadline_ms: int) -> Topic:
        """Wait for the topic of this name that is not the one before."""
        found: list[Topic] = []

        def usable(view: View) -> bool:
            topic = view.topics.get(name)
            found[:] = [topic] if topic is not None and topic.topic_id != before and _usable(topic) else []
            return bool(found)

        self._do(MetadataOp(deadline_ms, until=usable, what=f"the creation of topic {name!r}"))
        return found[0]  # of that moment: it may be gone by now

    def delete_topic(self, name: str, *, timeout_s: float | None = 30) -> None:
        """Delete a topic and everything in it. Raises UnknownTopicOrPartition if there is none."""
        name = check_topic_name(name)
        deadline_ms = self._deadline(timeout_s)
        view = self._view(timeout_s)
        while True:
            known = view.topics.get(name)
            topic_id = known.topic_id if known is not None else bytes.fromhex(self._found(name, deadline_ms)["topic_id"])
            try:
                return self._delete(name, topic_id, deadline_ms)
            except UnknownTopicOrPartition:
                # Another one has its name by now, or nobody: whoever was asked for the view had not heard of it.
                view = self._until_gone(name, topic_id, deadline_ms, f"news of topic {name!r}")

    def _delete(self, name: str, topic_id: bytes, deadline_ms: int) -> None:
        with self._driver.lock, self._driver.changing:
            self._core.absent.deleted(name)
        # The id says which one is meant: asked again after an answer was lost, it must not delete the next topic of that name.
        wish = {"name": name, "topic_id": topic_id.hex()}
        self._do(AdminOp("delete_topic", wish, deadline_ms, granted_code=Code.UNKNOWN_TOPIC_OR_PARTITION))
        self._until_gone(name, topic_id, deadline_ms, f"the deletion of topic {name!r}")

    def _until_gone(self, name: str, topic_id: bytes, deadline_ms: int, what: str) -> View:
        """Wait until this topic does not have the name any more."""

        def gone(view: View) -> bool:
            topic = view.topics.get(name)
            return topic is None or topic.topic_id != topic_id

        view: View = self._do(MetadataOp(deadline_ms, until=gone, what=what))
        return view

    def topics(self, *, timeout_s: float | None = 30) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(self._view(timeout_s).topics)

    def partitions_for(self, topic: str, *, timeout_s: float | None = 30) -> list[int]:
        """The partition numbers of a topic, ascending. The topic is made if the brokers make what is sought (`auto_create_topics`)."""
        return self._sought(topic, timeout_s).numbers()

    def leader(self, topic: str, partition: int, *, timeout_s: float | None = 30) -> int:
        """The broker that leads a partition now. Raises LeaderNotAvailable while none does (`describe` says why)."""
        partition = check_partition_number(partition)
        known = self._topic(topic, timeout_s)
        if partition not in known.partitions:
            text = self._core.view.unknown(topic, partition)
            raise rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, text, topic=topic, partition=partition)
        leader = known.partitions[partition].leader
        if leader is None:
            raise rejection(Code.LEADER_NOT_AVAILABLE, "no broker leads this partition now", topic=topic, partition=partition)
        return leader

    def describe(self, topic: str, *, timeout_s: float | None = 30) -> TopicDescription:
        """Leader, epoch, replicas, ISR and offsets of each partition. Prints as a table; `.to_dict()` for programs.

        Offsets are None where no leader answers within the time.
        """
        known = self._topic(topic, timeout_s)
        deadline_ms = self._deadline(timeout_s)
        numbers = known.numbers()  # another thread may hear of further ones, and of some that are gone
        asked = {
            number: OffsetOp(topic, number, AT_LATEST, deadline_ms)
            for number in numbers
            if (p := known.partitions.get(number)) is not None and p.leader is not None
        }
        self._do_all(asked.values())
        found = [(number, known.partitions.get(number)) for number in numbers]
        rows = tuple(_described(p, asked.get(number)) for number, p in found if p is not None)
        return TopicDescription(topic, known.topic_id.hex(), known.config.to_mapping(), rows)

    def describe_cluster(self, *, timeout_s: float | None = 30) -> ClusterDescription:
        """Brokers, controller and topics. Prints as a table; `.to_dict()` for programs."""
        view = self._view(timeout_s)
        brokers = tuple(
            BrokerDescription(b.broker_id, b.broker_epoch, b.endpoints, b.rack, b.fenced, b.draining, b.overdue)
            for _, b in sorted(view.brokers.items())
        )
        return ClusterDescription(view.cluster_id, view.controller, view.controller_epoch, brokers, tuple(sorted(view.topics)))

    # --------------------------------------------------------------------------------------------------------- appending

    def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record | bytes | str | None],
        *,
        acks: Acks = "all",
        timeout_s: float | None = 30,
    ) -> Receipt:
        """Append records as one batch, stored together or not at all, and wait for the acknowledgement.

        Repeated without duplicates when an answer is lost. TimedOut: it may or may not be stored. Whatever is raised, an interrupt too,
        it is not tried again after that.
        """
        topic = check_topic_name(topic)
        partition = check_partition_number(partition)
        number, timeout_s = parse_acks(acks), check_timeout(timeout_s)
        made = checked_records(records)
        size = self._check_sizes(topic, made)
        self._check_open()
        driver, core = self._driver, self._core
        begun: Batch | None = None
        try:
            with driver.lock, driver.changing:
                now_ms = driver.now_ms()
                queue = self._appender(number).queue(topic, partition)
                wait_ms = FOREVER_MS - now_ms if timeout_s is None else int(timeout_s * 1000)
                begun = batch = queue.begin(now_ms, driver.wall_ms(), wait_ms)
                for record in made:
                    if isinstance(record, Record):
                        batch.add(record.value, record.key, record._headers, record.timestamp_ms)
                    else:
                        batch.add(record)
                batch.size = size
                queue.writer.buffered += size
                queue.seal()
                core.kick(queue, now_ms)
                driver.run()
            if not batch.done:
                driver.wait(lambda: batch.done, timeout_s)
            # What waits for other brokers says nothing of this one.
            is_sent = number == ACKS_NONE and batch.done and batch.error is None
            if is_sent and not queue.writer.leaving.wait(driver, timeout_s, batch.opened_ms, batch.went_to):
                raise timed_out("an append under acks=0 to leave this process", timeout_s)
            if core.finished:
                run_callbacks(core)
        finally:
            if begun is not None and (not begun.done or begun.error is not None):
                self._take_back(begun)
        if batch.error is not None:
            raise afresh(batch.error)
        base = batch.base_offset
        return Receipt(topic, partition, base, None if base is None else base + batch.count - 1)

    def _take_back(self, batch: Batch) -> None:
        """Its append has ended, in time or not: it is not tried again, and nobody else need be told."""
        driver, queue = self._driver, batch.queue
        with driver.lock, driver.changing:
            is_late = not batch.done
            if is_late:
                batch.deadline_ms = driver.now_ms()
                queue.expire(batch.deadline_ms)
            queue.writer.failed.pop(batch, None)
            if is_late:
                self._core.kick(queue, batch.deadline_ms)  # what waits behind it
                with contextlib.suppress(ReplogError):  # as when it could not be sent itself
                    driver.run()

    def producer(
        self,
        *,
        acks: Acks = "all",
        linger_ms: int | None = None,
        batch_bytes: int | None = None,
        compression: Literal["lz4"] | None = "lz4",
        idempotent: bool = True,
        partitioner: Literal["crc32", "murmur2"] = "crc32",
        buffer_bytes: int | None = None,
        max_block_ms: int | None = None,
    ) -> Producer:
        """A producer: many records, batched, in order per partition. What is None comes from the client's configuration.

        Who sends many records one by one gives `linger_ms=5`: with 0, the default, each is a batch of its own on a `Cluster`: see Producer.
        `idempotent=False` (and acks=0) gives up sequences: a batch whose answer is lost is sent again and may then be stored
        twice (never under acks=0, which sends once and never hears of a loss). With `max_block_ms=0` nothing is asked either: topics that
        the client has not heard of raise TimedOut until another call has, `partitions_for` for example.
        """
        given = {"linger_ms": linger_ms, "batch_bytes": batch_bytes, "buffer_bytes": buffer_bytes, "max_block_ms": max_block_ms}
        config: ClientConfig = evolve(self._core.config, **{key: value for key, value in given.items() if value is not None})
        check_choice("compression", compression, ("lz4", None))
        check_choice("partitioner", partitioner, PARTITIONERS)
        check_choice("idempotent", idempotent, (True, False))
        self._check_open()
        choose = PARTITIONERS[partitioner]
        return Producer(self, acks=parse_acks(acks), config=config, compression=compression, idempotent=idempotent, partitioner=choose)

    # ----------------------------------------------------------------------------------------------------------- reading

    def fetch(self, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, wait_s: float | None = 0) -> list[Record]:
        """Committed records from `offset` on: at least one batch if there is one, about `max_bytes` at most.

        Waits up to `wait_s` for the first one (None: as long as it takes). Raises OffsetOutOfRange naming the offset and what the
        partition holds.
        """
        topic = check_topic_name(topic)
        partition = check_partition_number(partition)
        offset = check_count("offset", offset, 0)
        max_bytes = check_count("max_bytes", max_bytes, 1, 2**31 - 1)
        wait_s = check_timeout(wait_s, "wait_s")
        patience_ms = self._core.config.request_timeout_ms
        wait_ms = patience_ms if wait_s is None else int(wait_s * 1000)
        expected, position = None, offset
        while True:
            deadline_ms = FOREVER_MS if wait_s is None else self._driver.now_ms() + wait_ms + patience_ms
            op = FetchOp(topic, partition, position, max_bytes=max_bytes, wait_ms=wait_ms, deadline_ms=deadline_ms, expected=expected)
            result: Fetch = self._do(op)
            if result.batches or wait_s is not None:
                return unpack_all(op).records
            expected, position = op.place.identity if op.place is not None else None, result.next_offset

    def read(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        start: Position = "earliest",
        stop: Position = "latest",
        timeout_s: float | None = 30,
    ) -> Iterator[Record]:
        """Everything between two positions, partition by partition in order, then it ends: the same answer twice.

        "latest" is the leader's high watermark now: asked for once, before this call returns. `timeout_s` bounds each wait for a
        broker. Raises LogTruncated if an unclean election removed what was just read.
        """
        topic = check_topic_name(topic)
        begin, end = parse_position(start, "start"), parse_position(stop, "stop")
        chosen = None if partitions is None else checked_partitions(partitions)
        timeout_s = check_timeout(timeout_s)
        numbers = self.partitions_for(topic, timeout_s=timeout_s) if chosen is None else chosen
        return Reading(self, topic, numbers, begin, end, timeout_s).records()

    def offset(
        self, topic: str, partition: int, at: Literal["earliest", "latest"] | datetime, *, timeout_s: float | None = 30
    ) -> int | None:
        """The first offset kept, the high watermark, or the first offset at or after a time (None: there is none yet).

        Times are those of the records, which need not be in order. For a time, the batch with that record is read: raises CorruptMessage
        if it stays damaged, TopicAuthorizationFailed for who may not read.
        """
        topic = check_topic_name(topic)
        partition = check_partition_number(partition)
        listed: ListedOffset = self._do(OffsetOp(topic, partition, parse_place(at, "at"), self._deadline(timeout_s)))
        return listed.offset if listed.offset >= 0 else None

    def consumer(self, *topics: str, partitions: Iterable[int] | None = None, start: Position = "latest") -> Consumer:
        """A consumer that follows topics from `start` on ("latest": the end at its first `poll`). There are no consumer groups: it reads
        every partition named."""
        if not topics:
            raise UsageError("a consumer needs at least one topic")
        names = list(dict.fromkeys([check_topic_name(topic) for topic in topics]))
        chosen = None if partitions is None else checked_partitions(partitions)
        self._check_open()
        return Consumer(self, names, chosen, start)

    # -------------------------------------------------------------------------------------------------------------- life

    def close(self) -> None:
        """Let go of everything. Idempotent; afterwards calls raise UsageError. In a signal handler: when the call it came into lets go.

        Nothing is flushed: records of producers that are not settled fail. Of how many nobody was told is logged, and a ResourceWarning.
        """
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------------- internal

    @property
    def _core(self) -> Any:
        return self._driver.core

    def _check_open(self) -> None:
        if self._driver.closed:
            raise UsageError(f"this {type(self).__name__} is closed")

    def _deadline(self, timeout_s: float | None) -> int:
        seconds = check_timeout(timeout_s)
        return FOREVER_MS if seconds is None else self._driver.now_ms() + int(seconds * 1000)

    def _do(self, op: Operation) -> Any:
        """Run an operation to its end; its result, or its error raised."""
        self._do_all([op])
        if op.error is not None:
            raise op.error
        return op.result

    def _do_all(self, ops: Iterable[Operation]) -> None:
        """Run operations side by side until all are done, each with its result or its error."""
        self._check_open()
        driver, core = self._driver, self._core
        started = list(ops)
        try:
            with driver.lock, driver.changing:
                for op in started:
                    core.submit(op, driver.now_ms())
                driver.run()
            latest = max((op.deadline_ms for op in started), default=0)
            self._wait(lambda: all(op.done for op in started), None if latest >= FOREVER_MS else (latest - driver.now_ms()) / 1000)
        finally:
            with driver.lock, driver.changing:
                for op in started:
                    core.expire(op, driver.now_ms())

    def _wait(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        finished = done() or self._driver.wait(done, None if timeout_s is None else max(0.0, timeout_s))
        run_callbacks(self._core)
        return finished

    def _view(self, timeout_s: float | None) -> View:
        view: View = self._do(MetadataOp(self._deadline(timeout_s)))
        return view

    def _topic(self, topic: str, timeout_s: float | None) -> Topic:
        """The topic, as some broker knows it now. Raises UnknownTopicOrPartition naming the topics that exist."""
        topic, view = check_topic_name(topic), self._view(timeout_s)
        if topic not in view.topics and topic in view.hidden:
            text = f"topic {topic!r} is there, and the controller cannot read it now"
            raise rejection(Code.UNKNOWN_SERVER_ERROR, text, topic=topic)
        if topic not in view.topics:
            raise rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, view.unknown(topic, 0), topic=topic)
        return view.topics[topic]

    def _sought(self, topic: str, timeout_s: float | None) -> Topic:
        """The same for one that is to be written to or read from: with `auto_create_topics` it is made if there is none."""
        found: Topic = self._do(TopicOp(check_topic_name(topic), self._deadline(timeout_s)))
        return found

    def _appender(self, acks: int) -> Writer:
        writer = self._appenders.get(acks)
        if writer is None:
            config = self._core.config
            writer = self._core.open_writer(acks=acks, idempotent=acks != ACKS_NONE, compression="lz4", batch_bytes=config.batch_bytes)
            self._appenders[acks] = writer
        return writer

    def _check_sizes(self, topic: str, records: Sequence[Record | bytes | None]) -> int:
        """The bytes of all records. Raises MessageTooLarge naming size and limit."""
        limit, total = self._core.config.max_record_bytes, 0
        for record in records:
            size = record_size(record)
            if size > limit:
                raise MessageTooLarge(f"a record of {size} bytes is too large; max_record_bytes is {limit}", topic=topic)
            total += size
        return total


def _usable(topic: Topic | None) -> bool:
    return topic is not None and bool(topic.partitions) and all(p.leader is not None for p in topic.partitions.values())


def _described(v: PartitionView, asked: OffsetOp | None) -> PartitionDescription:
    listed: ListedOffset | None = asked.result if asked is not None and asked.error is None else None
    start, watermark, end = (None, None, None) if listed is None else (listed.start_offset, listed.offset, listed.end_offset)
    return PartitionDescription(
        v.partition, v.leader, v.leader_epoch, v.replicas, v.isr, v.elr, start, watermark, end, adding=v.adding, removing=v.removing
    )
