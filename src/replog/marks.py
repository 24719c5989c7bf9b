"""Writer marks: who has made a batch, and under which version, so that work that is run again is stored once (design, section 8).

A writer is whoever does the same work again under the same name until it is done: a task of a job that is retried, a stream that is
started again. Its batches bear its key and a version that grows with each piece of work. The header carries both where other
batches have their producer: the producer id is a hash of the key, epoch and sequence are the halves of the version. The extension
says the rest. Its front has a checksum of its own, so that whoever reads headers alone may go by it::

            ┌────────────────────┬───────────────┬──────────┬──────────────┐
            │ group offset  u64  │ made_ms  i64  │ crc u32  │ key, UTF-8   │   the crc covers what is before it, and the producer's
       92   └────────────────────┴───────────────┴──────────┴──────────────┘   three fields of the header

>>> from replog.records import encode_values
>>> batch = RecordBatch(encode_values([b"a", b"b"], now_ms=0, **framing(WriterMark("job-1/0", version=7, made_ms=1_000))))
>>> mark_of(batch)
WriterMark(key='job-1/0', version=7, group_offset=0, made_ms=1000)
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import Final

from attrs import field, frozen
from crc32c import crc32c

from replog.errors import Code, UsageError
from replog.payload import BadBatch, Framing
from replog.records import BODY_HEADER, EXTENSION_FRONT, GROUP_OPEN_BIT, BatchHeader, RecordBatch, sealed

__all__ = [
    "ATTEMPTS_BYTES_MAX",
    "ATTEMPTS_MAX",
    "ATTEMPT_BYTES_MAX",
    "KEY_BYTES_MAX",
    "MADE_AHEAD_MS_MAX",
    "MADE_MS_MAX",
    "MARK_BYTES_MAX",
    "PIECES_MAX",
    "VERSION_MAX",
    "WriterMark",
    "check_attempt",
    "check_attempts",
    "check_mark",
    "check_writer",
    "framing",
    "made_ms_of",
    "made_too_far",
    "mark_of",
    "marked",
    "version_of",
    "writer_id",
]

KEY_BYTES_MAX: Final = 255
"""Longest key of a writer, in UTF-8."""
PIECES_MAX: Final = 1_000_000
"""Most pieces of one attempt that are put aside."""
ATTEMPT_BYTES_MAX: Final = 255
"""Longest name of an attempt, in UTF-8."""
ATTEMPTS_MAX: Final = 10_000
"""Most attempts that one publication names."""
ATTEMPTS_BYTES_MAX: Final = 800_000
"""Their names together, in UTF-8: brokers read 1 MiB of a client's message beside its batches."""
VERSION_MAX: Final = 2**62 - 1
"""Greatest version: times in microseconds fit, and whatever else counts up."""
MADE_MS_MAX: Final = 2**53
"""Latest time that a mark can bear, in ms since 1970: far beyond any clock."""
MADE_AHEAD_MS_MAX: Final = 3_600_000
"""So far ahead of its leader's clock a mark may be made (KIP-937: an hour)."""
_FRONT: Final = Struct("<QqI")
_CHECKED: Final = Struct("<Qqqii")
assert _FRONT.size == EXTENSION_FRONT
MARK_BYTES_MAX: Final = _FRONT.size + KEY_BYTES_MAX
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
    made_ms: int = field(default=0, kw_only=True)
    """When the writer has asked for it (wall clock): what is remembered of it expires so much later, whatever times its records have."""


def writer_id(key: str) -> int:
    """What stands for the writer in a header: 63 bits of a hash. Two of a million writers share one with a chance of 1 in 20 million."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little") >> 1


def framing(mark: WriterMark) -> Framing:
    """How a body bears the mark: for `encode_records` and `encode_values`. Raises UsageError for a key, a version or a time that cannot
    be one."""
    encoded = check_writer(mark.key, mark.version)
    if not 0 <= mark.made_ms <= MADE_MS_MAX:
        raise UsageError(f"the mark of writer {mark.key!r} was made at {mark.made_ms} ms; allowed are 0 to {MADE_MS_MAX}")
    producer = writer_id(mark.key), mark.version >> _HALF, mark.version & _LOW
    crc = crc32c(_CHECKED.pack(mark.group_offset, mark.made_ms, *producer))
    return {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "base_sequence": producer[2],
        "extension": _FRONT.pack(mark.group_offset, mark.made_ms, crc) + encoded,
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


def check_attempt(attempt: object) -> str:
    """The name of an attempt. Raises UsageError, naming the value and the limit."""
    if not isinstance(attempt, str):
        raise UsageError(f"attempt is {attempt!r:.80}; it is a str of 1 to {ATTEMPT_BYTES_MAX} bytes")
    try:
        size = len(attempt.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"the name of an attempt is not valid Unicode: {error}") from None
    if not 1 <= size <= ATTEMPT_BYTES_MAX:
        raise UsageError(f"attempt {attempt!r:.80} has {size} bytes; allowed are 1 to {ATTEMPT_BYTES_MAX}")
    return attempt


def check_attempts(attempts: Sequence[tuple[str, int]]) -> None:
    """What one publication may name: (attempt, number of pieces) each. Raises UsageError, naming the value and the limit."""
    if not attempts:
        raise UsageError("attempts is empty; there is nothing to publish")
    if len(attempts) > ATTEMPTS_MAX:
        raise UsageError(f"attempts names {len(attempts)}; one publication takes {ATTEMPTS_MAX}")
    names: set[str] = set()
    for attempt, pieces in attempts:
        if check_attempt(attempt) in names:
            raise UsageError(f"attempt {attempt!r:.80} is given twice; its records would be stored twice")
        names.add(attempt)
        if not 1 <= pieces <= PIECES_MAX:
            raise UsageError(f"attempt {attempt!r:.80} has {pieces} pieces; allowed are 1 to {PIECES_MAX}")
    if (size := sum(len(name.encode()) for name in names)) > ATTEMPTS_BYTES_MAX:
        raise UsageError(f"the names of {len(names)} attempts have {size} bytes; one publication takes {ATTEMPTS_BYTES_MAX}")


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


def made_too_far(made_ms: int, wall_ms: int, expiry_ms: int) -> bool:
    """Whether a mark was made too long ago, or too far ahead, by a leader's clock: its version may be forgotten already, or would be kept
    for too long."""
    return not wall_ms - expiry_ms <= made_ms <= wall_ms + MADE_AHEAD_MS_MAX


def version_of(batch: RecordBatch | BatchHeader) -> int:
    """The version in the header of a marked batch."""
    return batch.producer_epoch << _HALF | batch.base_sequence


def made_ms_of(batch: RecordBatch | BatchHeader) -> int:
    """When the work of a marked batch was asked for. Raises BadBatch if the front of its extension is none, or damaged."""
    return _front(batch)[1]


def _front(batch: RecordBatch | BatchHeader) -> tuple[int, int]:
    """Group offset and time of a mark."""
    front = batch.extension_front
    try:
        group_offset, made_ms, crc = _FRONT.unpack(front)
        found = crc32c(_CHECKED.pack(group_offset, made_ms, batch.producer_id, batch.producer_epoch, batch.base_sequence))
    except Exception:
        raise BadBatch(f"an extension of {batch.extension_bytes} bytes that is no writer's mark", Code.INVALID_RECORD) from None
    if crc != found:
        raise BadBatch("the front of a writer's mark does not match its checksum", Code.INVALID_RECORD)
    return group_offset, made_ms


def mark_of(batch: RecordBatch) -> WriterMark | None:
    """The mark of a batch; None if it has none. Raises BadBatch for one that is no mark, or not that of its producer id."""
    if not batch.extension_bytes:
        return None
    group_offset, made_ms = _front(batch)
    extension = batch.extension
    try:
        key = extension[_FRONT.size :].decode()
    except UnicodeDecodeError:
        raise BadBatch(f"an extension of {len(extension)} bytes that is no writer's mark", Code.INVALID_RECORD) from None
    if not key or len(extension) > MARK_BYTES_MAX or writer_id(key) != batch.producer_id:
        what = f"the mark of writer {key!r:.80}, {len(extension) - _FRONT.size} bytes of at most {KEY_BYTES_MAX}"
        raise BadBatch(f"{what}, under producer id {batch.producer_id}", Code.INVALID_RECORD)
    if not 0 <= made_ms <= MADE_MS_MAX:
        raise BadBatch(f"the mark of writer {key!r:.80} was made at {made_ms} ms; allowed are 0 to {MADE_MS_MAX}", Code.INVALID_RECORD)
    return WriterMark(key, version_of(batch), group_offset, made_ms=made_ms)
