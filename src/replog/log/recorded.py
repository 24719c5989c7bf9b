"""Which `flush` a directory may record of a log: after a power cut the next life believes it (`replog.log.loss`).

Recorded "ack" means: whatever this copy was ever counted for is on the disk. So a log that was flushed before each answer, and is so no
longer, is recorded as such before anything is answered without a flush. One that is flushed before each answer from now on keeps the
record that it has until all that it holds as of the change has been flushed: a power cut in between may take any of that.
"""

from __future__ import annotations

from attrs import evolve

from replog.config import TopicConfig
from replog.ports import Log

__all__ = ["is_flushed", "recordable"]


def recordable(log: Log | None, recorded: TopicConfig | None, wanted: TopicConfig) -> TopicConfig:
    """What to record now of a log (None: it is new) that has another configuration: `wanted`, as far as it holds already."""
    if log is None or recorded is None or wanted.flush != "ack" or recorded.flush == "ack" or is_flushed(log, log.end_offset):
        return wanted
    return evolve(wanted, flush=recorded.flush)


def is_flushed(log: Log, end: int) -> bool:
    """Whether all that is left of what the log held below `end` is on the disk."""
    return log.flushed_end >= min(end, log.end_offset)
