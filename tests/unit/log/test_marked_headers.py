"""The front of a mark, which is behind the header: wherever a window ends, and whatever is there instead of one."""

from __future__ import annotations

import pytest
from tests.unit.log.lives import IDENTITY, kill, open_log, reopened, segments

from replog.config import TopicConfig
from replog.log.scan import headers
from replog.log.verify import _WINDOW
from replog.marks import WriterMark, framing, writer_id
from replog.records import BadBatch, RecordBatch, encode_values
from replog.testing.disk import MemoryFs
from replog.testing.log_samples import append, append_group

BIG = TopicConfig(segment_bytes=1 << 30)


@pytest.mark.parametrize("left", [91, 92, 93, 100, 111, 112, 113, 130])
def test_a_mark_at_the_end_of_a_window_is_read_in_full(left: int) -> None:
    """A start after a kill reads every byte, window by window."""
    fs = MemoryFs()
    directory, log = open_log(fs, BIG)
    spare = append(log, ["x" * 100_000]).length - 100_000
    append(log, ["x" * (_WINDOW - left - log.size_bytes - spare)])
    assert log.size_bytes == _WINDOW - left
    append_group(log, 1, key="w", version=7, made_ms=5)
    append(log, 1)
    kill(fs, directory)
    _, again = reopened(fs)
    assert again.end_offset == 4
    found = again.producers.writer(writer_id("w"))
    assert found is not None
    assert [(one.base_sequence, one.timestamp_ms) for one in found.recent] == [(7, 5)]


def test_an_intact_batch_whose_mark_is_none_ends_the_log() -> None:
    """No leader has ever written it; and no start may end with an exception because of it."""
    fs = MemoryFs()
    directory, log = open_log(fs, BIG)
    append(log, 2)
    mark = {**framing(WriterMark("w", 7)), "extension": b"what an earlier format had"}
    batch = RecordBatch(encode_values([b"x"], now_ms=0, **mark))
    batch.stamp(IDENTITY, 2, 0)
    (path,) = segments(fs)
    kill(fs, directory)
    fs.content(path).extend(batch.to_bytes())
    _, again = reopened(fs)
    assert again.end_offset == 2


@pytest.mark.parametrize("at", range(92, 112))
def test_headers_are_no_answer_where_the_front_of_a_mark_is_damaged(at: int) -> None:
    """Nobody looks at the rest of such a batch, and an altered time would have its writer forgotten."""
    fs = MemoryFs()
    _, log = open_log(fs, BIG)
    append_group(log, 1, key="w")
    (path,) = segments(fs)
    size = len(fs.content(path))
    descriptor = fs.open(path)
    assert len(list(headers(fs, descriptor, 0, size, 0, IDENTITY))) == 1
    fs.content(path)[at] ^= 1
    with pytest.raises(BadBatch, match="does not match its checksum"):
        list(headers(fs, descriptor, 0, size, 0, IDENTITY))
