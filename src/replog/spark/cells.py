"""Records on their way into a batch, as cells: what a column holds in a batch, one cell after the other (`replog.payload`).

Cells of the same column can be laid end to end, so whoever makes them need not know where a batch will end, and whoever fills a batch
need not look at a record. That is what lets Arrow's columns become batches without a Python object per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Unpack

from msgpack import Packer

from replog.payload import DIRECTORY, Buffer
from replog.records import HEADER_BYTES, Framing, _frame

__all__ = ["BATCH_OVERHEAD", "NIL", "RECORDS_MAX", "Cells", "Placed", "array_header", "body_of", "packed"]

NIL: Final = b"\xc0"
RECORDS_MAX: Final = 100_000
"""Records that share a batch at most: a tenth of what a broker takes by default (`batch_records_max`)."""
BATCH_OVERHEAD: Final = HEADER_BYTES + 1_024
"""What a batch has besides its cells, at most: header, extension, and the headers of its columns."""
_COLUMNS: Final = 4
_packer: Final = Packer()


class Cells(NamedTuple):
    """Records for one partition; a column that is None holds nothing at all."""

    records: int
    size: int
    """Bytes of all columns, and HEADER_COST for each header: a batch that is filled by it has no more headers than one may have."""
    values: Buffer
    keys: Buffer | None = None
    headers: Buffer | None = None
    header_count: int = 0


class Placed(NamedTuple):
    """Records and where they go."""

    topic: str
    partition: int
    cells: Cells


def array_header(count: int) -> bytes:
    """What stands in front of so many cells."""
    return bytes(_packer.pack_array_header(count))


def packed(column: Sequence[bytes | str | None]) -> memoryview:
    """The cells of a column of bytes, str and None, which the caller has checked."""
    cells = _packer.pack(column)
    return memoryview(cells)[len(array_header(len(column))) :]


def body_of(
    several: Sequence[Cells],
    *,
    now_ms: int,
    **framing: Unpack[Framing],
) -> bytes:
    """The batch body that holds all of these records, in order; all of them bear the time `now_ms` (wall clock)."""
    count = sum(cells.records for cells in several)
    header = array_header(count)
    lengths = [0] * _COLUMNS
    parts: list[Buffer] = []
    for number, column in (
        (0, [cells.values for cells in several]),
        (1, [cells.keys for cells in several]),
        (3, [cells.headers for cells in several]),
    ):
        if all(one is None for one in column):
            continue
        found = [NIL * cells.records if one is None else one for cells, one in zip(several, column, strict=True)]
        lengths[number] = len(header) + sum(map(len, found))
        parts += [header, *found]
    framed = [DIRECTORY.pack(*lengths), *parts]
    return _frame(
        framed,
        count,
        now_ms,
        now_ms,
        **framing,
    )
