"""A task reads its range: one fetch is under way while the records of the one before are being unpacked and handed to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import evolve

from replog.client.client import Client
from replog.client.results import Fetch
from replog.errors import LogTruncated, TimedOut, Unavailable, UnknownTopicId, UnknownTopicOrPartition
from replog.spark.arrow import Unpacking
from replog.spark.connections import ClusterReplaced
from replog.spark.fetching import RangeFetchOp, Trimmed
from replog.spark.losses import Losses
from replog.spark.options import ReadOptions
from replog.spark.planning import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangeReading", "read_range"]


def read_range(options: ReadOptions, one: OffsetRange, *, anew: bool = False) -> Iterator[pa.RecordBatch]:
    """The records of a range, as Arrow batches of bounded size.

    `anew`: where this process knows another cluster than the one that is there by now, ask that one; it has the log that was planned, or
    says that it has not. Raises DataLost (or leaves out what is gone, as `failOnDataLoss` has it), Unavailable, CorruptMessage,
    UndecodableBatch.
    """
    is_begun = False
    try:
        for rows in _rows(options, one):
            is_begun = True
            yield rows
        return
    except ClusterReplaced:
        if is_begun or not anew:
            raise
    yield from _rows(options, one)


def _rows(options: ReadOptions, one: OffsetRange) -> Iterator[pa.RecordBatch]:
    unpacking = Unpacking(headers=options.include_headers)
    with options.connection.explained() as client:
        reading = RangeReading(client, options, one)
        try:
            for fetched in reading.stretches():
                yield from unpacking.rows(one.place, fetched.batches, one.start, reading.stop)
        finally:
            reading.close()


class RangeReading:
    """The fetches of one range, one ahead of whoever takes them."""

    def __init__(self, client: Client, options: ReadOptions, one: OffsetRange) -> None:
        self._client = client
        self._range = one
        self._losses = Losses(fail=options.fail_on_data_loss)
        self._rack = options.rack
        self._timeout_ms = options.fetch_timeout_ms
        self._known_epoch = one.leader_epoch
        self._offset = one.start
        self._under_way: RangeFetchOp | None = None
        self._waiting_since = -1
        """Since when the next offset, which was committed, is not served; -1: it is."""

    @property
    def stop(self) -> int:
        """Where the range ends: earlier than planned once the log was found to be cut there."""
        return self._range.stop

    def stretches(self) -> Iterator[Fetch]:
        """What each fetch brought, in order, until the end of the range, or of what is left of it."""
        while self._offset < self._range.stop:
            fetched = self._next()
            if fetched is None:
                continue
            self._known_epoch = fetched.known_epoch
            if fetched.next_offset == self._offset:
                self._check_patience()
                continue
            self._waiting_since = -1
            self._offset = fetched.next_offset
            if self._offset < self._range.stop:
                self._under_way = self._ask()
            if fetched.batches:
                yield fetched

    def close(self) -> None:
        """Nobody waits for what is under way."""
        op, self._under_way = self._under_way, None
        if op is not None and not self._client._driver.closed:
            with self._client._driver.lock, self._client._driver.changing:
                self._client._core.forget(op)

    def _next(self) -> Fetch | None:
        """The next answer; None if something was lost: then the range begins later or ends earlier than it did."""
        try:
            op, self._under_way = self._under_way, None
            if op is not None:
                driver = self._client._driver
                with driver.lock, driver.changing:
                    op.attended(self._client._core, driver.now_ms(), driver.now_ms() + self._timeout_ms)
                try:
                    return self._answer(op)
                except Unavailable:
                    pass  # its time may have run out while Spark was busy with other rows
            return self._answer(self._ask())
        except Trimmed as trimmed:
            stop = min(trimmed.start, self._range.stop) if trimmed.start >= 0 else self._range.stop
            self._skip(stop, "they were trimmed by the topic's retention" if trimmed.start >= 0 else "the log ends before them")
        except LogTruncated as truncated:
            end = max(truncated.divergent_offset, self._offset)
            self._losses.lost(self._range.place, end, self._range.stop, "an unclean election removed them")
            self._range = evolve(self._range, stop=end)
        except UnknownTopicId:
            self._skip(self._range.stop, "the topic was deleted and created again, or the partition removed and added again")
        except UnknownTopicOrPartition:
            self._skip(self._range.stop, "the topic or the partition does not exist any more")
        return None

    def _skip(self, stop: int, why: str) -> None:
        self._losses.lost(self._range.place, self._offset, stop, why)
        self._offset = stop

    def _ask(self) -> RangeFetchOp:
        driver, core = self._client._driver, self._client._core
        self._client._check_open()
        now_ms = driver.now_ms()
        op = RangeFetchOp(
            self._range,
            self._offset,
            max_bytes=core.config.fetch_bytes,
            wait_ms=core.config.fetch_wait_ms,
            deadline_ms=now_ms + self._timeout_ms,
            known_epoch=self._known_epoch,
            rack=self._rack if self._waiting_since < 0 else None,
        )
        with driver.lock, driver.changing:
            core.submit(op, now_ms)
        driver.run()
        return op

    def _answer(self, op: RangeFetchOp) -> Fetch:
        driver, core = self._client._driver, self._client._core
        try:
            if not op.done:
                self._client._wait(lambda: op.done, (op.deadline_ms - driver.now_ms()) / 1000)
        finally:
            with driver.lock, driver.changing:
                core.expire(op, driver.now_ms())
        if op.error is not None:
            raise op.error
        fetched: Fetch = op.result
        return fetched

    def _check_patience(self) -> None:
        """A new leader may not know yet how much is committed: it will, or the time runs out."""
        now_ms = self._client._driver.now_ms()
        self._waiting_since = now_ms if self._waiting_since < 0 else self._waiting_since
        if now_ms - self._waiting_since >= self._timeout_ms:
            waited = f"waited {self._timeout_ms / 1000:g} s (replog.fetch.timeout.ms)"
            raise TimedOut(f"{waited} for {self._range.place} to serve offset {self._offset}, which was committed before")
        self._client._wait(lambda: False, self._client._core.config.retry_backoff_ms / 1000)  # it may not have held the fetch
