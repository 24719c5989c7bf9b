"""A copy that takes what its leader sends: its own offsets stay in order, whatever becomes of the records."""

from __future__ import annotations

import pytest
from tests.unit.partition.copies import fetched, log_of, notice, partition_of

from replog.errors import LogFull


def test_a_full_disk_after_a_trim_leaves_no_high_watermark_below_the_start() -> None:
    log = log_of(("a", 1), ("b", 1), ("c", 1))
    partition = partition_of(log, broker_id=2, high_watermark=1)
    assert partition.become(notice(1, 5, (1,)), 0) == 0
    log.full = True
    with pytest.raises(LogFull):
        partition.take(fetched(5, 3, ("d", 5), high_watermark=3, start_offset=2))
    assert (log.start_offset, partition.high_watermark, log.end_offset) == (2, 2, 3)
    partition.check()
    log.full = False
    partition.take(fetched(5, 3, ("d", 5), high_watermark=3, start_offset=2))
    assert (log.start_offset, partition.high_watermark, log.end_offset) == (2, 3, 4)
