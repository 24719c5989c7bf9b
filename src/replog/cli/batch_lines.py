"""One batch that lies in a file as a line, or as plain values; and the records in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from replog.cli.output import Output
from replog.cli.records import plain_record
from replog.cli.times import time_of
from replog.payload import BadBatch
from replog.records import CODEC_MASK, CONTROL_BIT, UNBOUNDED, BatchHeader, RecordBatch, decode_records

__all__ = ["codec_of", "columns", "offsets_of", "plain_batch", "producer_of", "records_of", "tell_records"]

_CODECS: Final = {0: "none", 1: "lz4"}
_PRODUCER_DIGITS: Final = 5
"""So many of the last digits of a producer's id are enough to tell one from another at a glance."""


def plain_batch(log: str, file: str, position: int, batch: RecordBatch | BatchHeader) -> dict[str, Any]:
    """What the header of a batch says."""
    return {
        "log": log,
        "file": file,
        "position": position,
        "base_offset": batch.base_offset,
        "last_offset": batch.end_offset - 1,
        "records": batch.count,
        "leader_epoch": batch.leader_epoch,
        "max_timestamp_ms": batch.max_timestamp_ms,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "codec": codec_of(batch),
        "bytes": batch.length,
    }


def codec_of(batch: RecordBatch | BatchHeader) -> str:
    """How its records are compressed; "control" for one of the log itself."""
    codec = batch.attributes & CODEC_MASK
    return "control" if batch.attributes & CONTROL_BIT else _CODECS.get(codec, str(codec))


def producer_of(batch: RecordBatch | BatchHeader) -> str | None:
    """The end of its producer's id, and its epoch; None if it has none."""
    if batch.producer_id < 0:
        return None
    text = str(batch.producer_id)
    return f"{text if len(text) <= _PRODUCER_DIGITS + 2 else f'..{text[-_PRODUCER_DIGITS:]}'}/{batch.producer_epoch}"


def offsets_of(batch: RecordBatch | BatchHeader) -> str:
    """Its first and its last."""
    return f"{batch.base_offset}-{batch.end_offset - 1}"


def records_of(batch: RecordBatch, topic: str, partition: int) -> Iterator[dict[str, Any]]:
    """Its records as plain values, also if they are more than a reader takes. None of one that cannot be decoded (`undecodable`), nor of a
    batch of the log itself."""
    if not batch.is_control:
        with suppress(BadBatch):
            yield from map(plain_record, decode_records(batch, topic, partition, **UNBOUNDED))


def tell_records(output: Output, records: Iterator[dict[str, Any]]) -> None:
    """A line for each, below that of its batch."""
    for plain in records:
        if output.is_json:
            output.json(plain)
        else:
            key, value = (_shown(plain, name) for name in ("key", "value"))
            output.line(f"    {plain['offset']}  {time_of(plain['timestamp_ms'])}  {key}  {value}")


def _shown(plain: dict[str, Any], name: str) -> str:
    """A key or value, quoted; one that is no UTF-8 says so, for its base64 may be the text of another record."""
    return repr(plain[name]) if name in plain else f"base64 {plain[f'{name}_base64']!r}"


def columns(cells: Sequence[object], widths: Sequence[int]) -> str:
    """Of fixed width: a log may be longer than memory, so nobody measures all of it first."""
    shown = ("-" if cell is None else str(cell) for cell in cells)
    return "  ".join(cell.ljust(width) for cell, width in zip(shown, widths, strict=True)).rstrip()
