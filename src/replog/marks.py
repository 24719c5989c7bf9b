"""Writer marks: who has made a batch, and under which version, so that work that is run again is stored once (design, section 8).

A writer is whoever does the same work again under the same name until it is done: a task of a job that is retried, a stream that is
started again. Its batches bear its key and a version that grows with each piece of work. The header carries both where other
batches have their producer: the producer id is a hash of the key, epoch and sequence are the halves of the version. The extension
holds the key itself, and how far into its group a batch begins.

>>> from replog.records import encode_values
>>> batch = RecordBatch(encode_values([b"a", b"b"], now_ms=0, **framing(WriterMark("job-1/0", version=7))))
>>> mark_of(batch)
WriterMark(key='job-1/0', version=7, group_offset=0)
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

from attrs import frozen
from crc32c import crc32c

from replog.errors import Code, UsageError
from replog.payload import BadBatch, Framing
from replog.records import BODY_HEADER, GROUP_OPEN_BIT, BatchHeader, RecordBatch, sealed

__all__ = [
    "KEY_BYTES_MAX",
    "MARK_BYTES_MAX",
    "PIECES_MAX",
    "VERSION_MAX",
    "WriterMark",
    "check_mark",
    "check_writer",
    "framing",
    "mark_of",
    "marked",
    "version_of",
    "writer_id",
]

KEY_BYTES_MAX: Final = 255
"""Longest key of a writer, in UTF-8."""
PIECES_MAX: Final = 1_000_000
"""Most pieces of one attempt that are put aside."""
VERSION_MAX: Final = 2**62 - 1
"""Greatest version: times in microseconds fit, and whatever else counts up."""
_GROUP_OFFSET: Final = Struct("<Q")
MARK_BYTES_MAX: Final = _GROUP_OFFSET.size + KEY_BYTES_MAX
"""What the mark of a batch takes at most."""
_HALF: Final = 31
_LOW: Final = 2**_HALF - 1


@frozen
class WriterMark:
    """What the batches of one piece of work say of themselves."""

    key: str
    """Of the writer; 1 to 255 bytes in UTF-8."""
    version: int
    """Of this piece of work; a writer's later work has a greater one."""
    group_offset: int = 0
    """Offsets between the start of its group and this batch: 0 for work that fits into one batch."""


def writer_id(key: str) -> int:
    """What stands for the writer in a header: 63 bits of a hash. Two of a million writers share one with a chance of 1 in 20 million."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little") >> 1


def framing(mark: WriterMark) -> Framing:
    """How a body bears the mark: for `encode_records` and `encode_values`. Raises UsageError for a key or a version that cannot be one."""
    encoded = check_writer(mark.key, mark.version)
    return {
        "producer_id": writer_id(mark.key),
        "producer_epoch": mark.version >> _HALF,
        "base_sequence": mark.version & _LOW,
        "extension": _GROUP_OFFSET.pack(mark.group_offset) + encoded,
    }


def check_writer(key: str, version: int) -> bytes:
    """The key as it is stored. Raises UsageError, naming the value and the limit."""
    if not isinstance(key, str):
        raise UsageError(f"the key of a writer is a str, not {key!r:.80}")
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the key of a writer is not valid Unicode: {error}") from None
    if not 1 <= len(encoded) <= KEY_BYTES_MAX:
        raise UsageError(f"the key of a writer has {len(encoded)} bytes; allowed are 1 to {KEY_BYTES_MAX}")
    if not 0 <= version <= VERSION_MAX:
        raise UsageError(f"version {version} of writer {key!r}; allowed are 0 to {VERSION_MAX}")
    return encoded


def marked(body: bytes | memoryview, mark: WriterMark, *, is_last: bool) -> bytes:
    """The records of a body without a mark, as a batch of a group: `is_last` ends it. Raises UsageError like `framing`, or BadBatch."""
    batch = RecordBatch(body)
    if crc32c(memoryview(body)[4:]) != batch.payload_crc:
        raise BadBatch("the batch does not match its payload checksum")  # it would get another one that does
    bears = framing(mark)
    attributes = batch.attributes if is_last else batch.attributes | GROUP_OPEN_BIT
    header = BODY_HEADER.pack(
        0,
        attributes,
        len(bears["extension"]),
        batch.count,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        bears["producer_id"],
        bears["producer_epoch"],
        bears["base_sequence"],
    )
    return sealed([header[4:], bears["extension"], batch.payload])


def check_mark(batch: RecordBatch) -> WriterMark | None:
    """The mark of a batch that a client sends: whole work. Raises BadBatch for one that is no mark, or begins within a group."""
    mark = mark_of(batch)
    if mark is not None and mark.group_offset:
        raise BadBatch(f"a batch of writer {mark.key!r} that begins {mark.group_offset} records into a group", Code.INVALID_RECORD)
    return mark


def version_of(batch: RecordBatch | BatchHeader) -> int:
    """The version in the header of a marked batch."""
    return batch.producer_epoch << _HALF | batch.base_sequence


def mark_of(batch: RecordBatch) -> WriterMark | None:
    """The mark of a batch; None if it has none. Raises BadBatch for one that is no mark, or not that of its producer id."""
    if not batch.extension_bytes:
        return None
    extension = batch.extension
    try:
        (group_offset,) = _GROUP_OFFSET.unpack_from(extension)
        key = extension[_GROUP_OFFSET.size :].decode()
    except Exception:
        raise BadBatch(f"an extension of {len(extension)} bytes that is no writer's mark", Code.INVALID_RECORD) from None
    if not key or writer_id(key) != batch.producer_id:
        raise BadBatch(f"the mark of writer {key!r} under producer id {batch.producer_id}", Code.INVALID_RECORD)
    return WriterMark(key, version_of(batch), group_offset)
