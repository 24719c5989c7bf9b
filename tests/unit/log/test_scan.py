"""Finding batches behind a broken place, wherever they lie in the pieces in which a file is read."""

from __future__ import annotations

import pytest
from tests.unit.log.lives import IDENTITY

from replog.log import scan
from replog.log.scan import intact_batches, next_header, valid_batch_follows
from replog.model import PartitionId
from replog.testing.disk import MemoryFs
from replog.testing.log_samples import batch_of

OTHER = PartitionId(b"o" * 16, 0, 0)


def stored(offset: int, value: str, identity: PartitionId = IDENTITY) -> bytes:
    batch = batch_of([value])
    batch.stamp(identity, offset, 0)
    return batch.to_bytes()


def opened(data: bytes) -> tuple[MemoryFs, int]:
    fs = MemoryFs.holding({"/f": data}, [])
    return fs, fs.open("/f")


@pytest.mark.parametrize("window", [100, 128, 600])
def test_batches_are_found_at_every_distance(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_FAR", 100)
    monkeypatch.setattr(scan, "_WINDOW", window)
    one, foreign, damaged, two = stored(5, "a"), stored(20, "b", OTHER), bytearray(stored(6, "c")), stored(7, stored(9, "in").hex())
    damaged[-1] ^= 1
    for gap in range(0, 3 * window, 7):
        fs, fd = opened(b"RL" * (gap // 2) + b"x" * (gap % 2) + one + foreign + bytes(damaged) + b"RL" + two)
        at, header = next_header(fs, fd, 0) or (-1, None)
        assert (at, header and header.base_offset) == (gap, 5)
        assert [found.base_offset for _, found in intact_batches(fs, fd, 0, IDENTITY)] == [5, 7]
        assert [found.base_offset for _, found in intact_batches(fs, fd, gap + 1, IDENTITY)] == [7]
        follows = [valid_batch_follows(fs, fd, gap, offset, IDENTITY) for offset in (5, 7, 8)]
        assert follows == [True, True, False]
        assert next_header(fs, fd, gap + len(one + foreign + damaged + two)) is None


def test_what_lies_inside_a_batch_is_no_batch() -> None:
    inner = stored(9, "in")
    batch = batch_of([inner])  # type: ignore[list-item]
    batch.stamp(IDENTITY, 5, 0)
    fs, fd = opened(batch.to_bytes() + stored(6, "b"))
    assert [found.base_offset for _, found in intact_batches(fs, fd, 0, IDENTITY)] == [5, 6]
