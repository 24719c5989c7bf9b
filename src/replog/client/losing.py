"""What is lost with a producer, or with its client, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replog.client.batches import Batch
    from replog.client.writer import Writer

__all__ = ["dropped_text", "records_in", "unsent_text"]


def records_in(batches: Iterable[Batch]) -> int:
    """How many records they have, sealed or open."""
    return sum(batch.count or len(batch.values) for batch in batches)


def unsent_text(lost: list[Batch]) -> str:
    """What became of batches that their client was closed before."""
    unsent, unknown = records_in(b for b in lost if b.sent_ms < 0), records_in(b for b in lost if b.sent_ms >= 0)
    parts = [f"{unsent} records were not sent"] if unsent else []
    parts += [f"{unknown} records were sent, but whether they were stored is unknown"] if unknown else []
    return ", ".join(parts)


def dropped_text(writer: Writer) -> str:
    """What nobody will hear of if its producer is dropped: batches without an outcome, and failures that nobody was told of; empty if
    there are none. Called without the lock: whoever drops a producer may be anywhere."""
    left = list(writer.unsettled())
    failed, more = writer.untold()
    parts = [f"{records_in(left)} records ({len(left)} batches) not flushed"] if left else []
    if failed or more:  # of those that were not kept each had a record at least
        count = f"{'at least ' if more else ''}{records_in(failed) + more}"
        parts.append(f"{count} records ({len(failed) + more} batches) whose failure nobody was told of")
    return " and ".join(parts)
