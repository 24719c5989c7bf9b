"""One producer: who it is to the brokers, what it waits for, and its queues, one per partition (`queues.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from replog.client.batches import Batch, afresh
from replog.client.leaving import Leaving
from replog.client.queues import PartitionQueue
from replog.errors import Unavailable
from replog.model import ACKS_NONE, Address

if TYPE_CHECKING:
    from replog.client.core import ClientCore
    from replog.client.driver import Driver
    from replog.ports import Ids

__all__ = ["Writer"]

NO_LIMIT: Final = 2**31


class Writer:
    """One producer: who it is to the brokers (a random id), what it waits for, and its queues."""

    def __init__(
        self,
        core: ClientCore,
        *,
        acks: int,
        idempotent: bool,
        compression: Literal["lz4"] | None,
        batch_bytes: int,
        linger_ms: int = 0,
    ) -> None:
        self.core = core
        self.acks = acks
        self.idempotent = idempotent and acks != ACKS_NONE
        self.producer_id = core.ids.number() if self.idempotent else -1
        self.compression = compression
        self.batch_bytes = batch_bytes
        self.linger_ms = linger_ms
        self.max_in_flight = core.config.max_in_flight if self.idempotent else NO_LIMIT if acks == ACKS_NONE else 1
        """Without sequences a broker cannot refuse an overtaking batch: one at a time keeps the order (P-107). acks=0 waits for nobody."""
        self.buffered = 0
        """What the records that are not settled count for: values, keys, headers, and in a `Producer` `columns.ROW_BYTES` each."""
        self.leaving = Leaving(core)
        """Under acks=0, where sending settles a batch."""
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.unplaced: dict[PartitionQueue, None] = {}
        """Those of partitions that the view did not have when they were made, or has no more: they may have to be forgotten."""
        self.routes: dict[str, Any] = {}
        """What a producer remembers of topics that there are: kept here so that it goes with them."""
        self.failed: dict[Batch, None] = {}
        """Failed batches that nobody has been told of yet, ..."""
        self._forgotten = 0
        """... how many more there were, ..."""
        self.forgotten_records = 0
        """... with how many records of which no callback has heard, ..."""
        self._example: Batch | None = None
        """... and one of those, unless somebody was told of it."""
        self._taken = 0
        """How often they were taken: each time they are counted anew."""
        self.awaited: list[Sequence[Batch]] = []
        """What threads wait for now: they hear of it."""
        self.complains = False
        """Whether failures of which nobody was told are to be named at the end (`untold.py`): those of a `Producer`, once."""
        self.is_retired = False
        """Whether its producer is closed, or gone: no timer keeps what is settled."""
        self.first_epoch = 0
        """Where the epochs of a new queue begin."""

    def eager_max(self, topic: str) -> int:
        """How many batches of a partition may be under way before few records wait for company.

        One where an acknowledgement waits for disks: what comes while one flush is under way shares the next one in any case, and in one
        batch it costs one message, append and answer (64 records sent one by one: 2 batches instead of 6). The price: where
        acknowledgements are slow for another reason than disks, a record that nobody waits for may go one of them later.
        """
        known = self.core.view.topics.get(topic)
        waits_for_disks = self.acks != ACKS_NONE and known is not None and known.config.flush == "ack"
        return 1 if waits_for_disks else self.max_in_flight

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition, made when first asked for."""
        found = self.queues.get((topic, partition))
        if found is None:
            found = self.queues[topic, partition] = PartitionQueue(self, topic, partition)
            if self.core.view.place(topic, partition) is None:
                self.unplaced[found] = None
        return found

    def forget(self, queue: PartitionQueue) -> None:
        """The log of a queue without batches is gone. Another queue under its name begins in an epoch that it has not used."""
        if self.queues.get((queue.topic, queue.partition)) is queue:
            del self.queues[queue.topic, queue.partition]
            self.unplaced.pop(queue, None)
            self.first_epoch = max(self.first_epoch, queue.epoch + 1)

    def retire(self) -> None:
        """Its producer sends no more: what is settled, now or later, is kept by no timer. Called with the lock held, perhaps again."""
        self.is_retired = True
        for queue in self.queues.values():
            if not queue.has_batches:
                queue.rest()

    def wait_for(self, driver: Driver, batches: Sequence[Batch], timeout_s: float | None) -> None:
        """Wait until each of these (one at least) has its outcome, or so long; this thread hears of it. Without the lock."""
        first = batches[0]
        done = (lambda: first.done) if len(batches) == 1 else (lambda: all(batch.done for batch in batches))
        try:  # as a context manager it cost each `result` six calls
            self.awaited.append(batches)
            driver.wait(done, timeout_s)
        finally:
            try:  # noqa: SIM105 (every `result` comes here, and a `suppress` takes time)
                self.awaited.remove(batches)
            except ValueError:  # an interrupt came first, or a fork
                pass

    def crash(self, error: BaseException) -> None:
        """The core was interrupted: nothing that was under way can be relied on."""
        for queue in list(self.queues.values()):
            queue.crash(error)
        self.buffered = 0
        self.leaving.clear()

    def renew(self, ids: Ids) -> None:
        """Become another producer: new id, nothing remembered."""
        self.producer_id = ids.number() if self.idempotent else -1
        self.queues.clear()
        self.unplaced.clear()
        self.routes.clear()
        self.awaited.clear()
        self.take_failed()

    def held(self, unsent_to: Callable[[Address], int]) -> int:
        """Bytes that count for `buffer_bytes`: what is not settled, or was sent under acks=0 and may not have left this process."""
        return self.buffered + self.leaving.look(unsent_to)

    def forget_failed(self, kept: int) -> None:
        """Keep no more failed batches than that, those that failed first: of a producer that is never flushed they grow without end."""
        while len(self.failed) > kept:
            batch, _ = self.failed.popitem()
            batch.forgotten = self._taken
            self._forgotten += 1
            self.forgotten_records += batch.count if batch.callbacks is None else 0
            self._example = batch

    def heard(self, batch: Batch) -> list[Callable[[], object]]:
        """Somebody hears of its outcome by a callback, and it is named no more at the end. Its callbacks. Called with the lock held."""
        if batch.callbacks is None:
            batch.callbacks = []
            if batch.forgotten == self._taken:
                self.forgotten_records -= batch.count
        return batch.callbacks

    def told(self, batch: Batch) -> None:
        """Somebody was told what this batch failed with: nobody else need be. Called with the lock held."""
        self.heard(batch)
        self.failed.pop(batch, None)
        if batch.forgotten == self._taken:
            batch.forgotten = -1
            self._forgotten -= 1
            if self._example is batch:
                self._example = None

    def take_failed(self) -> tuple[BaseException | None, int]:
        """What the first failed batch that nobody was told of has failed with, and how many more there are. Now they are told of."""
        count = len(self.failed) + self._forgotten
        first = next(iter(self.failed), self._example)
        error: BaseException | None = None
        if first is not None and first.error is not None:
            error = afresh(first.error)
        elif self._forgotten:
            error = Unavailable("a batch of this producer failed, with what was not kept")
        self.failed.clear()
        self._forgotten, self.forgotten_records, self._example = 0, 0, None
        self._taken += 1
        return error, count - 1

    def unsettled(self) -> Iterator[Batch]:
        """Every batch without an outcome, open ones included."""
        for queue in list(self.queues.values()):  # whoever drops a producer looks at it without the lock
            lingering, sealed = queue.open, list(queue.batches)  # in this order: what is sealed meanwhile is in both, and not in neither
            yield from (batch for batch in sealed if not batch.done)
            if lingering is not None and not lingering.done and lingering not in sealed:
                yield lingering
