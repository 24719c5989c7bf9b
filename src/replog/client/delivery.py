"""What a send gives back: handles that cost next to nothing until somebody asks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from concurrent.futures._base import CANCELLED
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from replog.client.arguments import check_timeout
from replog.client.batches import Batch, afresh
from replog.client.results import Receipt, RecordMetadata
from replog.errors import TimedOut, UsageError

if TYPE_CHECKING:
    from replog.client.core import ClientCore

__all__ = ["Deliveries", "Delivery", "may_call", "run_callbacks"]

_log = logging.getLogger("replog.client")

_LOOK_S: Final = 0.1
"""So often whoever waits for a future looks whether another thread has cancelled it."""

_TRIES_MAX: Final = 9
"""So often the settling of a future is tried again: what breaks it off that often is a mistake."""


class Delivery:
    """One record on its way. `result()` waits for it; nobody has to."""

    __slots__ = ("_batch", "_index", "_producer")

    def __init__(self, producer: Any, batch: Batch, index: int) -> None:
        self._producer = producer
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether the outcome is known. Never blocks."""
        return self._batch.done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is stored; sends its batch at once if it still lingers. Raises what the delivery failed with, or TimedOut.

        Under acks=0 nobody knows where, or whether: it is sent.
        """
        self._producer._await(self._batch, timeout_s)
        if self._batch.error is not None:
            self._producer._reported(self._batch)
            raise afresh(self._batch.error)
        return self._metadata()

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """What the delivery failed with; None if it is stored (under acks=0: sent). Raises TimedOut while that is not known.

        The records of a batch share it; `result` raises another one each time.
        """
        self._producer._await(self._batch, timeout_s)
        self._producer._reported(self._batch)
        return self._batch.error

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(self)` once the outcome is known, outside every lock; at once if it is known already. What it raises is logged.

        A failure that no callback asks for (`result`, `exception`) is still raised by `flush`. UsageError for what cannot be called.
        """
        if not callable(callback):
            raise UsageError(f"a callback is called with the delivery; {callback!r:.120} cannot be called")
        with self._producer._lock, self._producer._changing:
            callbacks = self._producer._writer.heard(self._batch)
            if not self._batch.done:
                callbacks.append(partial(callback, self))
                self._producer._driver.expect()
                return
        _call(partial(callback, self))

    def future(self) -> Future[RecordMetadata]:
        """The same as a `concurrent.futures.Future`, for code that wants one: its `result` and `exception` wait as those here do.

        Nobody has to wait: the outcome comes also to whoever only awaits it (`asyncio.wrap_future`) or has a callback, once the batch has
        lingered.
        A failure that nobody asks it for, nor hears of by a callback of it, is still raised by `flush`.
        """
        future = _DeliveryFuture(self)
        self.add_done_callback(future.settle)
        return future

    def _metadata(self) -> RecordMetadata:
        batch, queue = self._batch, self._batch.queue
        offset = None if batch.base_offset is None else batch.base_offset + self._index
        return RecordMetadata(queue.topic, queue.partition, offset, batch.timestamp_of(self._index))

    def __repr__(self) -> str:
        batch = self._batch
        state = "under way" if not batch.done else "failed" if batch.error is not None else "sent"
        if batch.base_offset is not None:
            state = f"stored at {self._metadata().offset}"
        return f"Delivery({batch.queue.topic}-{batch.queue.partition}, {state})"


class _DeliveryFuture(Future[RecordMetadata]):
    """A failure that somebody has learned from it is reported, as if he had asked the delivery."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__()
        self._delivery = delivery
        self._producer = delivery._producer
        self._batch = delivery._batch
        self._settled = False
        self._broken_off = 0

    def settle(self, delivery: Delivery) -> None:
        """The outcome is there: say it, once."""
        is_first: bool | None = None
        try:
            with self._producer._lock:
                is_first, self._settled = not self._settled, True
            is_over = self.done() and self._state != CANCELLED  # of one that was cancelled those who wait are told here
            if not is_first or is_over or not (self.running() or self.set_running_or_notify_cancel()):
                return
            if self._batch.error is not None:
                self.set_exception(afresh(self._batch.error))
            else:
                self.set_result(delivery._metadata())
        except BaseException:  # of any kind: a signal handler may have raised it
            self._broken_off += 1
            if is_first is not False and self._broken_off <= _TRIES_MAX:
                self._settled = self._settled and not is_first
                self._settle_later(delivery)
            raise

    def _settle_later(self, delivery: Delivery) -> None:
        """An interrupt came before it was said: whoever asks, or calls the producer, next says it. Callbacks that were broken off are not
        called again."""
        batch, finished = self._batch, self._producer._core.finished
        with self._producer._lock:
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append(partial(self.settle, delivery))
            if batch not in finished:
                finished.append(batch)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is stored; sends its batch at once if it still lingers. TimedOut when `timeout` seconds have passed."""
        error = self.exception(timeout)
        if error is not None:
            raise afresh(error)
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the delivery failed with. Sends and waits as `result` does."""
        error = super().exception(self._drive(timeout))
        if error is not None:
            self._producer._reported(self._batch)
        return error

    def _drive(self, timeout: float | None) -> float | None:
        """Bring the outcome, as whoever asks the delivery does; returns how many seconds are left for whoever settles this.

        Raises TimedOut, which is a TimeoutError as well.
        """
        producer, batch = self._producer, self._batch
        limit_s, began_ms = check_timeout(timeout if timeout is None else max(0.0, timeout)), producer._driver.now_ms()
        left_s = limit_s
        while not self.done():
            try:
                producer._await(batch, _LOOK_S if left_s is None else min(_LOOK_S, left_s))
            except TimedOut:
                is_late = left_s is not None and left_s <= _LOOK_S
                if is_late and not self.done():
                    raise timed_out(batch.queue.waiting_for(batch), limit_s) from None
            if limit_s is not None:
                left_s = max(0.0, limit_s - (producer._driver.now_ms() - began_ms) / 1_000)
            if batch.done:
                self.settle(self._delivery)  # whose turn that is may be waiting for whoever asks here
                if not self.done() and not wait((self,), _LOOK_S if left_s is None else min(_LOOK_S, left_s)).done and left_s == 0:
                    raise timed_out(batch.queue.waiting_for(batch), limit_s)  # another thread is in the middle of that
        return left_s

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Whoever has it call him learns of the failure: asyncio looks at its state without asking (since Python 3.14)."""

        def tell(future: Future[RecordMetadata]) -> None:
            if not future.cancelled():
                self._producer._reported(self._batch)
            fn(future)

        super().add_done_callback(tell)


class Deliveries:
    """Many records on their way, as `send_many` sent them: iterated, a Delivery for each, in the order given; and one result for all."""

    __slots__ = ("_parts", "_places", "_producer")

    def __init__(self, producer: Any, parts: list[tuple[Batch, int, int]], places: list[int] | None) -> None:
        self._producer = producer
        self._parts = parts
        """(batch, index of the first record, how many), in the order they were filled."""
        self._places = places
        """For each value in the order given: its position in the parts laid end to end; None: they are in that order."""

    def done(self) -> bool:
        """Whether every outcome is known."""
        return all(batch.done for batch, _, _ in self._parts)

    def result(self, timeout_s: float | None = None) -> list[Receipt]:
        """One Receipt for each stretch of records in a batch. Waits for all; raises the first failure."""
        self._producer._await_all([batch for batch, _, _ in self._parts], timeout_s)
        receipts: list[Receipt] = []
        for batch, first, count in self._parts:
            if batch.error is not None:
                self._producer._reported(batch)
                raise afresh(batch.error)
            base = None if batch.base_offset is None else batch.base_offset + first
            receipts.append(Receipt(batch.queue.topic, batch.queue.partition, base, None if base is None else base + count - 1))
        return receipts

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """The first failure, once all outcomes are known; None if everything is stored. Raises TimedOut while one is not known."""
        self._producer._await_all([batch for batch, _, _ in self._parts], timeout_s)
        for batch, _, _ in self._parts:
            self._producer._reported(batch)
        return next((batch.error for batch, _, _ in self._parts if batch.error is not None), None)

    def __len__(self) -> int:
        return sum(count for _, _, count in self._parts)

    def __iter__(self) -> Iterator[Delivery]:
        laid = [(batch, first + n) for batch, first, count in self._parts for n in range(count)]
        for place in self._places if self._places is not None else range(len(laid)):
            yield Delivery(self._producer, *laid[place])


class _Calling(threading.local):
    """Of one thread: in how many callbacks of which cores it is."""

    def __init__(self) -> None:
        self.depths: dict[ClientCore, int] = {}


_calling = _Calling()
_DEPTH_MAX: Final = 16
"""So many callbacks may stand on one another, each asking for something that the next one may have to do."""


def may_call(core: ClientCore) -> bool:
    """Whether `run_callbacks` would call anything from here: not where so many stand on one another that the stack might end."""
    return _calling.depths.get(core, 0) < _DEPTH_MAX


def run_callbacks(core: ClientCore) -> None:
    """Call what was registered on deliveries that have an outcome now. Called without the lock; a failing callback is logged.

    Also within a callback, which may wait for what another one does, but not to any depth: the rest is for whoever called the first.
    """
    if not may_call(core):
        return
    finished, depths = core.finished, _calling.depths
    depth = depths.get(core, 0)
    try:
        depths[core] = depth + 1
        while finished:
            try:
                batch = finished[0]
            except IndexError:  # another thread took it
                return
            try:
                finished.remove(batch)
                _call_back(batch)
            except ValueError:  # another thread took it
                continue
            except BaseException:
                if batch.callbacks and batch not in finished:  # the others are owed their outcome all the same
                    finished.appendleft(batch)
                raise
    finally:
        if depth:
            depths[core] = depth
        else:
            depths.pop(core, None)


def _call_back(batch: Batch) -> None:
    """Each is taken in the statement that calls it: an interruption leaves those that were not called, and none that was."""
    callbacks = batch.callbacks
    while callbacks:
        _call(lambda: callbacks.pop(0)())


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a delivery callback failed")


def timed_out(what: str, timeout_s: float | None) -> TimedOut:
    """The error of somebody who stopped waiting; what is under way goes on."""
    return TimedOut(f"waited {timeout_s or 0:g} s for {what}; it is still being tried")
