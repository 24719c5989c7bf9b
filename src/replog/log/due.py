"""Which batch a log takes next: its own, at its end, of no older epoch. Any other would be stored as damage that the next reader finds.

`append` compares in place, because every batch goes through it, and asks here for the words; several batches are looked at before the first
of them is stored.
"""

from __future__ import annotations

from collections.abc import Iterable

from replog.errors import UsageError
from replog.model import PartitionId
from replog.records import RecordBatch

__all__ = ["check_due", "not_due"]


def check_due(batches: Iterable[RecordBatch], identity: PartitionId, end_offset: int, last_epoch: int) -> None:
    """Raise UsageError unless all of them, in this order, are what the log takes next."""
    for batch in batches:
        if batch.base_offset != end_offset or batch.leader_epoch < last_epoch or batch.identity != identity:
            raise not_due(batch, identity, end_offset, last_epoch)
        end_offset, last_epoch = end_offset + batch.count, batch.leader_epoch


def not_due(batch: RecordBatch, identity: PartitionId, end_offset: int, last_epoch: int) -> UsageError:
    """What is wrong with a batch that is not what the log takes next, and what is."""
    if batch.identity is None:
        due = f"stamp(log.identity, {end_offset}, {max(last_epoch, 0)})"
        return UsageError(f"log {identity!r}: the batch is not stamped; {due} makes it the next one, and append_records does that itself")
    if batch.identity != identity:
        return UsageError(f"log {identity!r}: the batch is stamped for log {batch.identity!r}")
    if batch.base_offset != end_offset:
        return UsageError(f"log {identity!r}: the batch is stamped for offset {batch.base_offset}; the next one begins at {end_offset}")
    return UsageError(f"log {identity!r}: the batch is of leader epoch {batch.leader_epoch}; the next one is of {last_epoch} at least")
