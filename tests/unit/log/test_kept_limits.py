"""A directory made when larger batches were allowed opens, with all that is in it."""

from __future__ import annotations

from tests.unit.log.lives import IDENTITY, open_log, reopened

from replog.config import BATCH_BYTES_MAX, TopicConfig
from replog.testing.disk import MemoryFs
from replog.testing.disk.trial import content_of
from replog.testing.log_contract import append


def test_a_log_of_a_time_when_larger_batches_were_allowed() -> None:
    config = TopicConfig(flush="ack")
    object.__setattr__(config, "max_batch_bytes", 512 << 20)
    disk = MemoryFs()
    directory, log = open_log(disk, config)
    append(log, "a")
    append(log, "b")
    held = content_of(log).batches
    directory.close(clean=True)
    directory, log = reopened(disk)
    assert log.identity == IDENTITY
    assert content_of(log).batches == held
    assert len(held) == 2
    assert log.config == TopicConfig(flush="ack", max_batch_bytes=BATCH_BYTES_MAX)
    directory.close(clean=True)
