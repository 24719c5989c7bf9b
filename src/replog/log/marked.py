"""The mark of a batch as it is stored, for whoever goes by it: it is in the extension, which no header's checksum covers."""

from __future__ import annotations

from replog.errors import LogCorrupt
from replog.marks import WriterMark, mark_of
from replog.ports import Log
from replog.records import BadBatch, RecordBatch

__all__ = ["stored_mark"]


def stored_mark(log: Log, base_offset: int) -> WriterMark | None:
    """The mark of the batch that begins there, which is verified in full; None if it has none. Raises LogCorrupt, or LogFull."""
    slices = log.read(base_offset, log.end_offset, 1)
    try:
        return mark_of(RecordBatch.parse(slices[0].view(), identity=log.identity))
    except BadBatch as bad:
        raise LogCorrupt(f"log {log.identity!r} at offset {base_offset}: {bad}") from bad
    finally:
        for one in slices:
            one.release()
