"""Records that have failed, and nobody was told: how many they are is said where their producer, or its client, comes to an end.

Told is who asks (a delivery, its future, `flush` or `close` of the producer), who waits for the outcome, and who has a callback for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from attrs import define

from replog.client.batches import Batch

if TYPE_CHECKING:
    from replog.client.core import ClientCore
    from replog.client.writer import Writer

__all__ = ["Untold", "dropped", "records_in"]

_REMEDY: Final = "call flush() or use `with`"


@define
class Untold:
    """What a client that is closed leaves behind."""

    writers: list[Writer]
    """Of producers: each complains once."""
    unsent: int = 0
    unknown: int = 0
    """Records that were sent and not answered."""
    failed: int = 0
    """... and those that had failed before."""

    @classmethod
    def of(cls, core: ClientCore) -> Untold:
        """Look, before what is under way is failed. Called with the lock held."""
        found = cls([writer for _, writer in sorted(core._writers.items()) if writer.complains])
        for writer in found.writers:
            awaited = {batch for batches in list(writer.awaited) for batch in batches}
            left = [batch for batch in writer.unsettled() if batch.callbacks is None and batch not in awaited]
            found.unsent += records_in(batch for batch in left if batch.sent_ms < 0)
            found.unknown += records_in(batch for batch in left if batch.sent_ms >= 0)
            found.failed += records_in(_failed(writer)) + writer.forgotten_records
        return found

    def told(self, client: str) -> str:
        """What is to be said of it, once; empty if there is nothing."""
        for writer in self.writers:
            writer.complains = False
        parts = [f"{self.unsent} were not sent"] if self.unsent else []
        parts += [f"{self.unknown} were sent, but whether they were stored is unknown"] if self.unknown else []
        parts += [f"{self.failed} had failed before"] if self.failed else []
        count = self.unsent + self.unknown + self.failed
        text = f"a {client} was closed, and nobody was told what became of {count} records of its producers: {', '.join(parts)}; {_REMEDY}"
        return text if count else ""


def dropped(writer: Writer) -> str:
    """What is to be said of a producer that nobody has any more, once; empty if there is nothing. Without the lock."""
    if not writer.complains:
        return ""
    writer.complains = False
    left, failed = list(writer.unsettled()), _failed(writer)
    parts = [f"{records_in(left)} records ({len(left)} batches) not flushed"] if left else []
    count = records_in(failed) + writer.forgotten_records
    if count:
        first = failed[0].error if failed else None
        why = "" if first is None else f" ({type(first).__name__}: {first})"
        parts.append(f"{count} records that have failed{why}, of which nobody was told")
    return f"a Producer was dropped with {' and '.join(parts)}; {_REMEDY}" if parts else ""


def records_in(batches: Iterable[Batch]) -> int:
    """How many records they have, sealed or open."""
    return sum(batch.count or len(batch.values) for batch in batches)


def _failed(writer: Writer) -> list[Batch]:
    return [batch for batch in list(writer.failed) if batch.callbacks is None]
