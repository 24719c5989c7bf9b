"""What became of the records that `replog produce` has sent: stored, not stored, or not known."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from replog.client.delivery import Deliveries, Delivery
from replog.client.producer import Producer
from replog.client.refusals import NOT_STORED
from replog.client.results import Receipt
from replog.errors import Code, Rejected, Unavailable

__all__ = ["Stored"]

_REFUSED: Final = (NOT_STORED - {Code.UNKNOWN_TOPIC_ID}) | {
    Code.MESSAGE_TOO_LARGE,
    Code.INVALID_RECORD,
    Code.INVALID_REQUIRED_ACKS,
    Code.INVALID_TIMESTAMP,
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.CLUSTER_AUTHORIZATION_FAILED,
}
"""Failures that say that nothing was appended. UnknownTopicId does not: it is also that of a topic that was deleted meanwhile."""

_TAKEN: Final = re.compile(r"([0-9]+) of [0-9]+ records were taken and are on their way")
"""How `Producer.send_many` says that it was given up half way."""


class Stored:
    """What was acknowledged, per partition, while calls are under way."""

    def __init__(self) -> None:
        self.records = 0
        self.unknown = 0
        """Of so many it is not known, as of `count`."""
        self.ranges: dict[int, list[int | None]] = {}
        self.under_way: deque[Deliveries] = deque()

    def send(
        self, producer: Producer, topic: str, values: list[bytes], keys: list[bytes | str | None] | None, partition: int | None
    ) -> None:
        """Records on their way. Raises what `Producer.send_many` raises."""
        try:
            self.under_way.append(producer.send_many(topic, values, keys=keys, partition=partition))
        except Unavailable as error:
            taken = _TAKEN.match(str(error))
            self.unknown += int(taken[1]) if taken else 0  # there is no handle that would tell what becomes of them
            raise

    def settle(self, keep: int, timeout_s: float | None) -> None:
        """Take in every outcome that is there, and wait until at most `keep` calls are under way. Raises what one failed with, which stays
        for `count`."""
        self.look()
        while len(self.under_way) > keep:
            self._settle(self.under_way[0], timeout_s)

    def look(self) -> bool:
        """Take in every outcome that is there. Returns whether any call is still under way; raises what one failed with."""
        for one in [one for one in self.under_way if one.done()]:
            self._settle(one, 0)
        return bool(self.under_way)

    def _settle(self, one: Deliveries, timeout_s: float | None) -> None:
        for receipt in one.result(timeout_s):
            self._take(receipt)
        self.under_way.remove(one)
        self.records += len(one)

    def count(self, *, acknowledged: bool) -> None:
        """After a failure, and once nobody waits any more: each record that is left has an outcome of its own.

        Not `acknowledged` (acks=0): what was done was sent, and nobody knows whether it is stored.
        """
        for deliveries in self.under_way:
            for delivery in deliveries:
                if not _is_certain(delivery):
                    self.unknown += 1
                elif delivery._batch.error is None:
                    self.records += 1
        self.under_way.clear()
        if not acknowledged:
            self.records, self.unknown = 0, self.unknown + self.records

    def _take(self, receipt: Receipt) -> None:
        first, last = self.ranges.get(receipt.partition, [receipt.base_offset, None])
        ends = [offset for offset in (last, receipt.last_offset) if offset is not None]
        begins = [offset for offset in (first, receipt.base_offset) if offset is not None]
        self.ranges[receipt.partition] = [min(begins, default=None), max(ends, default=None)]


def _is_certain(delivery: Delivery) -> bool:
    """Whether it is stored, or certainly not: it was never sent, or each copy of it was refused."""
    batch = delivery._batch
    if not batch.done or batch.error is None:
        return batch.done
    is_refused = isinstance(batch.error, Rejected) and batch.error.code in _REFUSED
    return (is_refused or batch.sent_ms < 0) and not batch.uncertain
