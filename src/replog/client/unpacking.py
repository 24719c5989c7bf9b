"""Records of what was fetched: unpacked batch by batch by whoever wants them, in the thread of the reader, while nobody waits for it.

Under the lock of its driver a client only verifies what arrives. A batch is verified before it is handed on, so what is wrong with one here
is what its writer has sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from replog.config import BATCH_HEADERS_MAX
from replog.errors import UndecodableBatch
from replog.records import BadBatch, BatchReader, Record, RecordBatch

if TYPE_CHECKING:
    from replog.client.fetching import FetchOp
    from replog.client.results import Fetch

__all__ = ["Epochs", "Unpacked", "epochs_before", "unpack", "unpack_all"]

Epochs = Sequence[tuple[int, int]]
"""Leader epochs, and where each began."""


class Unpacked(NamedTuple):
    """The records of a fetch, and where the next one goes on; the others as of a `results.Fetch`."""

    records: list[Record]
    next_offset: int
    known_epoch: int
    high_watermark: int
    epochs: Epochs


def unpack(batch: RecordBatch, topic: str, partition: int, offset: int) -> tuple[list[Record], int]:
    """The records of a batch from `offset` on, and how many headers all of its records have. Raises UndecodableBatch."""
    try:
        reader = BatchReader(batch)
        records = reader.records(topic, partition)
    except BadBatch as bad:
        raise UndecodableBatch(topic, partition, batch.base_offset, batch.end_offset, str(bad)) from None
    if batch.base_offset < offset:
        del records[: offset - batch.base_offset]
    return records, reader.header_count


def unpack_all(op: FetchOp) -> Unpacked:
    """All that a fetch has brought, as far as it can be decoded: what is behind that, or behind BATCH_HEADERS_MAX headers (compressed, an
    answer may hold any number), is left to the next fetch. Raises UndecodableBatch if there is nothing in front of such a batch."""
    found: Fetch = op.result
    records: list[Record] = []
    headers, stop = 0, found.next_offset
    for batch in found.batches:
        if headers >= BATCH_HEADERS_MAX:
            stop = batch.base_offset
            break
        try:
            more, count = unpack(batch, op.topic, op.partition, op.offset)
        except UndecodableBatch:
            if not records:
                raise
            stop = batch.base_offset
            break
        records += more
        headers += count
    return Unpacked(records, stop, found.known_epoch, found.high_watermark, epochs_before(found.epochs, stop))


def epochs_before(epochs: Epochs, offset: int) -> Epochs:
    """Those of what is in front of an offset, which is not in front of what was read before."""
    return [one for one in epochs if one[1] < offset]
