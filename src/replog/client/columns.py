"""What callers hand to a producer, as it is kept, what it is counted for, and up to what count it shares a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from replog.payload import DIRECTORY, Headers, as_bytes, as_headers, as_timestamp, check_rows, headers_size
from replog.records import HEADER_BYTES

__all__ = ["ROW_BYTES", "as_cells", "as_extras", "full_at", "sizes_of"]

ROW_BYTES: Final = 20
"""What a record is counted for besides value, key and headers: at least its share of the batch's columns."""
_FRAME_BYTES: Final = HEADER_BYTES + DIRECTORY.size + 4 * 5
"""What a batch has besides what its records are counted for, at most: its header, and the lengths of four columns."""
_RECORDS_MAX: Final = 1_000_000
"""So many records a batch has at most: what brokers take unless they are told otherwise (`batch_records_max`)."""


def full_at(batch_bytes: int, batch_limit: int) -> int:
    """The count up to which records share a batch of a topic that takes batches of so many bytes. A single record may be above it."""
    return min(batch_bytes, batch_limit - _FRAME_BYTES, _RECORDS_MAX * ROW_BYTES)


def as_extras(headers: Any, timestamp_ms: int | None, size: int) -> tuple[Headers | None, int]:
    """Headers as they are kept, and the size of a record with them that has `size` without; the timestamp is checked."""
    as_timestamp(timestamp_ms)
    kept = as_headers(headers) if headers else None
    return kept, size + headers_size(kept or ())


def sizes_of(keys: list[bytes | None] | None, values: list[bytes | None]) -> list[int]:
    """What each of these records is counted for."""
    sizes = [ROW_BYTES + len(value or b"") for value in values]
    if keys is not None:
        sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
    return sizes


def as_cells(name: str, cells: Sequence[bytes | str | None]) -> list[bytes | None]:
    """A column as bytes. Raises UsageError naming what is not allowed."""
    check_rows(f"{name}s", cells, f"{name}s")
    return [cell if type(cell) is bytes else as_bytes(name, cell) for cell in cells]
