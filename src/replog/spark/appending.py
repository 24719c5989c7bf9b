"""Cells on their way to the brokers: a client's producer that takes whole columns, for one task at a time.

What a `Producer` does for records (its own order per partition, sequences, repetition without duplicates, bounded memory), for batches
that are cut already. A process keeps a producer for the next task once a task has ended well: brokers remember every one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from replog.client.batches import Batch
from replog.client.client import Client
from replog.client.delivery import timed_out
from replog.client.writer import Writer
from replog.errors import Unavailable
from replog.model import ACKS_NONE
from replog.records import RecordBatch, with_producer
from replog.spark.cells import BATCH_OVERHEAD, Cells, body_of

__all__ = ["UNTRIED", "Appender", "ColumnBatch", "Worth"]

UNTRIED: Final = 15
"""Batches that are not compressed, after one that lz4 could not make smaller: trying costs more than all else that is done to it."""

_idle: WeakKeyDictionary[Client, dict[tuple[int, str | None], list[Writer]]] = WeakKeyDictionary()
"""Producers that nobody uses, by acknowledgement and compression."""


class Worth:
    """Whether compressing pays: what did not become smaller is followed by batches that are not tried, then by one that is."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = 0

    def wanted(self) -> bool:
        """Try this one?"""
        self._left = max(0, self._left - 1)
        return not self._left

    def told(self, body: bytes) -> None:
        """What came of a try."""
        self._left = 0 if RecordBatch(body).codec else UNTRIED + 1


class ColumnBatch(Batch):
    """A batch that was never a list of records."""

    __slots__ = ("cells", "worth")

    def __init__(self, queue: Any, cells: Sequence[Cells], worth: Worth, now_ms: int, wall_ms: int, timeout_ms: int) -> None:
        super().__init__(queue, now_ms, wall_ms, 0, timeout_ms)
        self.cells: Sequence[Cells] = cells
        self.worth = worth
        self.count = sum(one.records for one in cells)
        self.size = sum(one.size for one in cells)

    def encode(self, *, compression: Literal["lz4"] | None, producer_id: int, epoch: int, sequence: int) -> None:
        """Make the body, once; later numbers are written over the old ones."""
        if self.body is None:
            tried = compression is not None and self.worth.wanted()
            self.body = body_of(
                self.cells,
                now_ms=self.wall_ms,
                compression=compression if tried else None,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            self.cells = ()
            if tried:
                self.worth.told(self.body)
        elif (epoch, sequence) != (self.epoch, self.sequence):
            self.body = with_producer(self.body, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        self.epoch, self.sequence = epoch, sequence

    def drop_records(self) -> None:
        """They are needed no more, nor counted."""
        super().drop_records()
        self.cells = ()


class Appender:
    """The batches of one task. Either `finish` or `give_up` ends it."""

    def __init__(self, client: Client, *, acks: int, compression: Literal["lz4"] | None) -> None:
        client._check_open()
        self._client = client
        self._driver = client._driver
        self._core = client._driver.core
        self._config = self._core.config
        self._kind = (acks, compression)
        self._worth = Worth()
        idle = _idle.setdefault(client, {}).setdefault(self._kind, [])
        with self._driver.lock, self._driver.changing:
            self._writer = (
                idle.pop()
                if idle
                else self._core.open_writer(
                    acks=acks, idempotent=acks != ACKS_NONE, compression=compression, batch_bytes=self._config.batch_bytes
                )
            )

    def room_in_a_batch(self, topic: str) -> int:
        """Bytes of cells that one batch of this topic can hold, whatever the configuration of this client wishes."""
        return self._core.view.batch_limit(topic) - BATCH_OVERHEAD

    def append(self, topic: str, partition: int, several: Sequence[Cells]) -> ColumnBatch:
        """Send these records as one batch, when it is its turn. Waits while `buffer_bytes` are on their way.

        Raises what became of an earlier batch that failed: then nothing more need be sent.
        """
        writer, limit = self._writer, self._config.buffer_bytes
        size = sum(one.size for one in several)

        def is_room() -> bool:
            held = writer.held(self._driver.unsent_to)
            return not held or held + size <= limit or bool(writer.failed)

        with self._driver.lock, self._driver.changing:
            must_wait = not is_room()
        if must_wait:
            self._driver.wait(is_room, None)
        self._raise_failed()
        self._client._check_open()
        with self._driver.lock, self._driver.changing:
            now_ms = self._driver.now_ms()
            queue = writer.queue(topic, partition)
            batch = ColumnBatch(queue, several, self._worth, now_ms, self._driver.wall_ms(), self._config.delivery_timeout_ms)
            queue.batches.append(batch)
            writer.buffered += batch.size
            self._core.kick(queue, now_ms)
            self._driver.run()
        self._raise_failed()
        return batch

    def finish(self) -> None:
        """Wait for all outcomes; raises the first failure. Under acks=0, until the operating system has the records."""
        with self._driver.lock:
            batches = list(self._writer.unsettled())
        if batches:
            self._driver.wait(lambda: all(batch.done for batch in batches), None)
        timeout_s = self._config.delivery_timeout_ms / 1000
        if not self._writer.leaving.wait(self._driver, timeout_s, self._driver.now_ms()):
            raise timed_out("records sent under acks=0 to leave this process", timeout_s)
        self._raise_failed()
        _idle.setdefault(self._client, {}).setdefault(self._kind, []).append(self._writer)

    def give_up(self) -> None:
        """Nobody wants to know what becomes of the rest: it is sent no more. What was sent may be stored."""
        with self._driver.lock, self._driver.changing:
            for queue in list(self._writer.queues.values()):
                queue.refuse_all(Unavailable("the task that wrote this has failed"))
            self._writer.failed.clear()

    def _raise_failed(self) -> None:
        failed = next(iter(self._writer.failed), None)
        if failed is not None and failed.error is not None:
            raise failed.error
