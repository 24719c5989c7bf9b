"""`Producer`: many records in batches, driven by whoever calls it. Sending costs an append to a list; batches go when they are due."""

from __future__ import annotations

import os
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from replog.client.arguments import check_timeout
from replog.client.batches import Batch
from replog.client.columns import ROW_BYTES, as_cells, as_extras, sizes_of
from replog.client.delivery import Deliveries, Delivery, run_callbacks, timed_out
from replog.client.queues import PartitionQueue
from replog.client.route import Route, seek_partition
from replog.client.untold import dropped, records_in
from replog.config import ClientConfig, check_partition_number, check_topic_name
from replog.errors import MessageTooLarge, ReplogError, TimedOut, Unavailable, UsageError
from replog.model import ACKS_NONE
from replog.payload import Headers, as_bytes

if TYPE_CHECKING:
    from replog.client.client import Client

__all__ = ["Deliveries", "Delivery", "Producer"]

_Run = tuple[int | None, list[bytes | None] | None, list[bytes | None]]
"""Partition (None: the next in turn), keys (None: none at all), values."""

_FAILED_MAX: Final = 10_000
"""So many failed batches that nobody was told of are kept for `flush`; it says how many more there were."""


class Producer:
    """Sends records in batches, in order per partition. Any thread may call.

    With `linger_ms=0` a record goes at once while fewer than five batches of its partition are under way, otherwise it joins the next
    batch. Where disks are waited for (`flush="ack"`) less than half a batch goes at once only while none is under way. A `Cluster` stores
    what goes at once within `send`, so each record is a batch of its own there: writing, and later reading, costs tens of times as much.
    Many records, one by one, take `linger_ms=5`, or `send_many`. Whoever waits does not wait longer for that: `result`, `exception` and
    `flush` send the batch at once. Whoever only awaits a future, or has a callback, hears after the linger.
    Leaving the `with` block flushes, and raises what failed and was not reported by a delivery or its future. Without it, call
    `flush` before the client is closed or the producer dropped: neither waits, and only a warning says how many records that cost.
    """

    def __init__(
        self,
        client: Client,
        *,
        acks: int,
        config: ClientConfig,
        compression: Literal["lz4"] | None,
        idempotent: bool,
        partitioner: Callable[[bytes, int], int],
    ) -> None:
        self._client = client
        self._driver = driver = client._driver
        self._core = driver.core
        self._lock, self._changing = driver.lock, driver.changing
        self._config = config
        self._partitioner = partitioner
        self._linger_ms = config.linger_ms
        with self._lock, self._changing:
            self._writer = driver.core.open_writer(
                acks=acks,
                idempotent=idempotent and acks != ACKS_NONE,
                compression=compression,
                batch_bytes=config.batch_bytes,
                linger_ms=config.linger_ms,
            )
        self._writer.complains = True
        self._leaving = self._writer.leaving
        self._pid = os.getpid()
        self._routes: dict[str, Route] = self._writer.routes
        self._closed = False  # last: before, `__del__` has nothing to say

    # ------------------------------------------------------------------------------------------------------------ sending

    def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        *,
        headers: Iterable[tuple[str, bytes | str]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send one record; returns a handle that need not be looked at.

        The partition is the one given, or the key's, or the next in turn. Blocks for a full buffer and for an unknown topic or partition,
        `max_block_ms` each, then raises Unavailable. Raises MessageTooLarge, UsageError or UnknownTopicOrPartition, nothing being buffered.
        """
        if type(value) is not bytes:
            value = as_bytes("value", value)
        size = ROW_BYTES if value is None else ROW_BYTES + len(value)
        if key is not None:
            key = as_bytes("key", key)
            size += len(key)  # type: ignore[arg-type]
        kept: Headers | None = None
        if headers is not None or timestamp_ms is not None:
            kept, size = as_extras(headers, timestamp_ms, size)
        driver, writer, routes = self._driver, self._writer, self._routes
        limit, longest = self._config.buffer_bytes, self._config.max_record_bytes + ROW_BYTES
        since_ms: int | None = None
        while True:
            with self._lock:
                try:
                    route = routes.get(topic) if isinstance(topic, str) and (partition is None or self._has(topic, partition)) else None
                    fits = writer.buffered + self._leaving.bytes + size <= limit and size <= longest
                    if route is not None and route.serial == self._core.view.serial and fits and not self._closed and not driver.closed:
                        queue = route.sticky
                        if partition is not None:
                            queue = writer.queue(topic, partition)
                        elif key is not None:
                            queue = route.queues[self._partitioner(key, len(route.queues))]
                        elif queue.open is None:
                            queue = route.next_sticky()
                        batch = queue.open
                        if batch is None or batch.size + size > queue.full_at:
                            batch, queue = self._begin(queue)
                        index = batch.add(value, key, kept, timestamp_ms)
                        batch.size += size
                        writer.buffered += size
                        if self._linger_ms:
                            if driver.now_ms() >= batch.linger_at or batch.size >= queue.full_at:
                                self._go(queue)
                        elif len(queue.batches) < (queue.eager_max if 2 * batch.size < queue.full_at else writer.max_in_flight):
                            self._go(queue)  # as `PartitionQueue.is_eager`, which costs every record a call
                        break
                except BaseException as problem:
                    self._changing.__exit__(type(problem), problem, None)  # as `with`, which costs every record a call
                    raise
            since_ms = self._make_room(topic, size, since_ms)
            self._find_place(topic, partition)
        if self._core.finished:
            run_callbacks(self._core)
        return Delivery(self, batch, index)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | str | None],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """Send many records, much cheaper than one by one. Without keys they stay together: one partition per batch, in order.

        Blocks while the buffer is full, at most `max_block_ms` for the next records to find room. Raises what `send` raises before anything
        is buffered: one record that is too large, and none is sent. What ends it later (no room, the topic deleted, the producer
        closed meanwhile) is Unavailable and says how many were taken before: those are on their way, without keys the first ones, and
        `flush` raises if they fail; the others were not sent.
        """
        cells = as_cells("value", values)
        runs: list[_Run] = [(partition, None, cells)]
        places: list[int] | None = None
        if keys is not None:
            named = as_cells("key", keys)
            if len(named) != len(cells):
                raise UsageError(f"{len(cells)} values, but {len(named)} keys")
            runs, places = self._by_partition(topic, cells, named, partition)
        measured = [(*run, sizes_of(run[1], run[2])) for run in runs]
        for *_, sizes in measured:
            if sizes:
                self._check_size(topic, max(sizes))
        parts: list[tuple[Batch, int, int]] = []
        try:
            for number, names, some, sizes in measured:
                self._send_run(topic, number, names, some, sizes, parts)
        except ReplogError as error:
            taken = sum(count for _, _, count in parts)
            if not taken:
                raise
            kind = TimedOut if isinstance(error, TimedOut) else Unavailable
            raise kind(f"{taken} of {len(cells)} records were taken and are on their way, the others were not sent: {error}") from error
        if self._core.finished:
            run_callbacks(self._core)
        return Deliveries(self, parts, places)

    def _by_partition(
        self, topic: str, values: list[bytes | None], keys: list[bytes | None], partition: int | None
    ) -> tuple[list[_Run], list[int]]:
        """Records grouped by partition, each group in the order given, and where each record went in the groups laid end to end."""
        route = self._find_route(topic)
        count, choose = len(route.queues), self._partitioner
        groups: dict[int | None, list[int]] = {}
        for position, key in enumerate(keys):
            number = partition
            if partition is None and key is not None:
                number = route.queues[choose(key, count)].partition
            groups.setdefault(number, []).append(position)
        places = [0] * len(keys)
        for place, position in enumerate(position for group in groups.values() for position in group):
            places[position] = place
        return [(number, [keys[p] for p in group], [values[p] for p in group]) for number, group in groups.items()], places

    def _send_run(
        self,
        topic: str,
        partition: int | None,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        sizes: list[int],
        parts: list[tuple[Batch, int, int]],
    ) -> None:
        """Fill batches of one partition (or of one after the other) by as many records at once as fit."""
        ends = list(accumulate(sizes))
        at = 0
        since_ms: int | None = None
        sealed: list[PartitionQueue] = []
        try:
            while at < len(values):
                before, limit = ends[at - 1] if at else 0, self._config.buffer_bytes
                if self._writer.buffered + self._leaving.bytes + sizes[at] > limit:
                    self._go_all(sealed)
                since_ms = self._make_room(topic, sizes[at], since_ms)
                route = self._find_place(topic, partition)
                with self._lock, self._changing:
                    if self._closed or self._driver.closed or self._writer.buffered + self._leaving.bytes + sizes[at] > limit:
                        continue  # another thread was quicker
                    if partition is not None and not self._has(topic, partition):
                        continue  # removed meanwhile
                    queue = route.sticky if partition is None else self._writer.queue(topic, partition)
                    if partition is None and queue.open is None:
                        queue = route.next_sticky()
                    batch = queue.open
                    if batch is None or batch.size + sizes[at] > queue.full_at:
                        batch, queue = self._begin(queue)
                    room = min(queue.full_at - batch.size, limit - self._writer.buffered - self._leaving.bytes)
                    stop = max(at + 1, bisect_right(ends, before + room, at))  # a record may be larger than a batch is to be
                    first = batch.add_many(values[at:stop], None if keys is None else keys[at:stop])
                    batch.size += ends[stop - 1] - before
                    self._writer.buffered += ends[stop - 1] - before
                    parts.append((batch, first, stop - at))
                    if stop < len(values) or (not self._linger_ms and queue.is_eager(batch)):
                        queue.seal()
                        sealed.append(queue)
                        if len(sealed) == self._config.max_in_flight:  # as many as may be under way share their messages
                            self._go_all(sealed)
                at, since_ms = stop, None
        finally:
            with suppress(UsageError):  # the client was closed meanwhile: what becomes of those that were taken their handles say
                self._go_all(sealed)

    def _begin(self, queue: PartitionQueue) -> tuple[Batch, PartitionQueue]:
        """A new open batch, and its queue: that which there is now, for the log of the one given may be gone. A full one is sent first."""
        queue = self._writer.queue(queue.topic, queue.partition)
        if queue.open is not None:
            self._go(queue)  # before the new one is there: what this brings may refuse, and forget, the whole queue
        elif self._linger_ms:
            self._send_overdue()
        queue = self._writer.queue(queue.topic, queue.partition)
        self._driver.attend()  # this may fail, so it comes first: a batch that nothing is added to would never have an outcome
        if self._leaving.bytes:  # acks=0 alone
            self._held()
        self._writer.forget_failed(_FAILED_MAX)
        now_ms = self._driver.now_ms()
        batch = queue.begin(now_ms, self._driver.wall_ms(), self._config.delivery_timeout_ms)
        if self._linger_ms or len(queue.batches) >= queue.eager_max:
            self._core.watch_queue(queue, now_ms)
        return batch, queue

    def _send_overdue(self) -> None:
        """Send what has lingered for long enough. Of whoever begins batches in one partition after the other no record joins one that is
        overdue, and while he does so without a pause no thread sends it for him."""
        due_ms = self._core.deadline_ms()
        if due_ms is not None and due_ms <= self._driver.now_ms():
            self._run()

    def _go_all(self, sealed: list[PartitionQueue]) -> None:
        """Send what was sealed, all at once; empties the list."""
        if sealed:
            with self._lock, self._changing:
                for queue in dict.fromkeys(sealed):
                    self._core.kick(queue, self._driver.now_ms())
                sealed.clear()
                self._run()

    def _go(self, queue: PartitionQueue) -> None:
        queue.seal()
        self._core.kick(queue, self._driver.now_ms())
        self._run()

    def _run(self) -> None:
        """Move messages. Where that cannot be done for want of a connection, records were taken all the same, and go when it can."""
        try:  # noqa: SIM105 (every `send` comes here, and a `suppress` takes time)
            self._driver.run()
        except Unavailable:
            pass

    def _has(self, topic: str, partition: int) -> bool:
        """Whether the view has that partition. UsageError for what is no number of one."""
        known = self._core.view.topics.get(topic)
        return known is not None and check_partition_number(partition) in known.partitions

    def _find_place(self, topic: str, partition: int | None) -> Route:
        """As `_find_route`, of a topic that has this partition (None: any); asks also for one that is not in the view."""
        route = self._find_route(topic)
        if partition is None or self._has(topic, partition):
            return route
        seek_partition(self._driver, route, topic, partition, self._config)
        return self._find_route(topic)

    def _find_route(self, topic: str) -> Route:
        """The route of a topic under the newest view; asks for metadata when the view does not know the topic."""
        core = self._core
        check_topic_name(topic)
        while True:
            with self._lock, self._changing:
                old = self._routes.get(topic)
                if old is not None and old.serial == core.view.serial:
                    return old
                known = core.view.topics.get(topic)
                if known is not None and known.partitions:
                    route = self._routes[topic] = Route(self._writer, known, old)
                    return route
            self._client._sought(topic, self._config.max_block_ms / 1000)

    def _check_size(self, topic: str, size: int) -> None:
        """Whether a record of so many bytes may be sent at all. Raises UsageError if nothing may."""
        if self._closed:
            raise UsageError("this Producer is closed")
        self._client._check_open()
        config, length = self._config, size - ROW_BYTES
        if length > config.max_record_bytes:
            raise MessageTooLarge(f"a record of {length} bytes is too large; max_record_bytes is {config.max_record_bytes}", topic=topic)
        if size > config.buffer_bytes:
            text = f"it takes {size} of the buffer, and buffer_bytes is {config.buffer_bytes}"
            raise MessageTooLarge(f"a record of {length} bytes is too large; {text}", topic=topic)

    def _make_room(self, topic: str, size: int, since_ms: int | None) -> int | None:
        """Wait until `size` more bytes may be buffered. The open batches are sent: otherwise nothing might ever be settled.

        Returns since when that is waited for: another thread may take the room first.
        """
        self._check_size(topic, size)
        config, writer = self._config, self._writer
        with self._lock, self._changing:
            if self._held() + size <= config.buffer_bytes:
                return since_ms
        self._send_open()
        now_ms = self._driver.now_ms()
        left_ms = config.max_block_ms if since_ms is None else since_ms + config.max_block_ms - now_ms
        is_late = left_ms <= 0 and since_ms is not None
        if is_late or not self._driver.wait(lambda: self._held() + size <= config.buffer_bytes, check_timeout(left_ms / 1000)):
            raise Unavailable(
                f"waited {config.max_block_ms / 1000:g} s for room: {writer.buffered + self._leaving.bytes} bytes are buffered, "
                f"buffer_bytes is {config.buffer_bytes}; the record was not sent"
            )
        return now_ms if since_ms is None else since_ms

    def _held(self) -> int:
        return self._writer.held(self._driver.unsent_to)

    # ------------------------------------------------------------------------------------------------------------ waiting

    def flush(self, timeout_s: float | None = None) -> None:
        """Send everything and wait until every outcome is known. Raises the first failure that was not reported yet, or TimedOut.

        Under acks=0 nobody answers: it waits until connections have taken what this producer had sent before. When the client itself was
        closed meanwhile, Unavailable says how many records were lost by that.
        """
        self._finish(check_timeout(timeout_s), self._driver.now_ms())
        self._raise_failed()

    def _finish(self, timeout_s: float | None, since_ms: int) -> None:
        """Wait for every outcome, at most `timeout_s` from `since_ms` on."""
        if self._driver.closed:
            self._raise_lost()
            return
        self._await_all(self._send_open(), timeout_s, since_ms)
        if not self._leaving.wait(self._driver, timeout_s, since_ms):
            raise timed_out("records sent under acks=0 to leave this process", timeout_s)

    def _raise_failed(self, first: BaseException | None = None) -> None:
        """`first`, or the first failure that nobody was told of yet; it says how many others there are."""
        with self._lock, self._changing:
            failed, more = self._writer.take_failed()
        if first is None:
            first = failed
        elif failed is not None:
            more += 1
        if first is not None:
            if more > 0:
                first.add_note(f"{more} more batches of this producer failed")
            raise first

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then refuse further records; what came meanwhile is waited for, too. Idempotent. Raises what `flush` raises; closed all
        the same.
        """
        timeout_s, since_ms = check_timeout(timeout_s), self._driver.now_ms()
        if self._closed:
            return
        try:
            self._finish(timeout_s, since_ms)
        finally:
            self._retire()
        self._finish(timeout_s, since_ms)
        self._raise_failed()

    def _raise_lost(self) -> None:
        """Nothing can be sent any more: Unavailable with the number of records whose outcome nobody has been told of."""
        with self._lock, self._changing:
            failed = self._writer.failed
            lost = [*self._writer.unsettled(), *(batch for batch in failed if isinstance(batch.error, Unavailable))]
            for batch in lost:
                failed.pop(batch, None)
        if lost:
            unsent, unknown = records_in(b for b in lost if b.sent_ms < 0), records_in(b for b in lost if b.sent_ms >= 0)
            parts = [f"{unsent} records were not sent"] if unsent else []
            parts += [f"{unknown} records were sent, but whether they were stored is unknown"] if unknown else []
            self._raise_failed(Unavailable(f"the client was closed before this Producer: {', '.join(parts)}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        # What can be delivered is; what cannot must not hide the error that is under way, nor hold it up for ever.
        ends = isinstance(error, SystemExit | GeneratorExit)  # a generator that is closed has not failed, nor been interrupted
        try:
            if isinstance(error, Exception) or ends or self._driver.closed:
                self.close(self._config.max_block_ms / 1000)
            else:
                self._leave()
        except Exception as failure:
            # Nobody would see a note, and might think that all went well. A forked child of a `Cluster` has none: they are its parent's.
            if ends and (os.getpid() == self._pid or not self._driver.closed):
                raise
            error.add_note(f"while closing the producer: {type(failure).__name__}: {failure}")
            self._writer.complains = False  # that says it

    def _leave(self) -> None:
        """Close without waiting, for somebody who presses Ctrl-C: what can go at once goes. Raises Unavailable if something is left."""
        if self._closed:
            return
        self._retire()
        left = [batch for batch in self._send_open() if not batch.done]
        run_callbacks(self._core)
        if left:
            self._writer.complains = False
            raise Unavailable(f"{records_in(left)} records had no outcome yet and were not waited for")
        self._raise_failed()

    def __del__(self) -> None:
        if getattr(self, "_closed", True):
            return
        self._writer.is_retired = True
        if self._driver.closed and os.getpid() != self._pid:  # a forked child of a `Cluster`: they are its parent's
            return
        if text := dropped(self._writer):
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def _retire(self) -> None:
        with self._lock, self._changing:
            self._closed = True
            self._writer.retire()

    def _send_open(self) -> list[Batch]:
        """Send what still lingers; returns every batch without an outcome."""
        with self._lock, self._changing:
            now_ms = self._driver.now_ms()
            batches = list(self._writer.unsettled())
            for queue in list(self._writer.queues.values()):  # one whose topic is found to be gone is forgotten on the way
                if queue.has_batches:  # also what was sealed by a `send_many` that was interrupted before it sent it
                    queue.seal()
                    self._core.kick(queue, now_ms)
            self._driver.run()
        return batches

    def _await(self, batch: Batch, timeout_s: float | None) -> None:
        self._await_all([batch], timeout_s)

    def _await_all(self, batches: Sequence[Batch], timeout_s: float | None, since_ms: int | None = None) -> None:
        """Wait for outcomes, sending what lingers. Raises TimedOut when `timeout_s` from now, or from `since_ms` on, have passed."""
        timeout_s, now_ms = check_timeout(timeout_s), self._driver.now_ms()
        with self._lock, self._changing:
            for batch in batches:
                if batch is batch.queue.open:
                    self._go(batch.queue)
        if not all(batch.done for batch in batches):
            left_s = timeout_s if timeout_s is None or since_ms is None else max(0.0, timeout_s - (now_ms - since_ms) / 1000)
            self._writer.wait_for(self._driver, batches, left_s)
        run_callbacks(self._core)
        late = next((batch for batch in batches if not batch.done), None)
        if late is not None:
            raise timed_out(late.queue.waiting_for(late), timeout_s)

    def _reported(self, batch: Batch) -> None:
        if batch.error is not None:
            with self._lock, self._changing:
                self._writer.told(batch)
