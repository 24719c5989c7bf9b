"""Small workloads for crash-state enumeration: what is prepared and on the disk, then at most four operations.

Steps, as words: `append BYTES...` one batch of that many stored bytes each (512 bytes is a sector); `many BYTES...` the same
with one call; `again BYTES...` batches whose records are those that were at these offsets before; `flush`; `checkpoint`;
`truncate N`, `trim N`, `reset N` with an offset; `retain` by age; `epoch`; `create`, `delete`, `purge`; `alter 1` to flush="ack",
`alter 0` to "os"; `close`, `open`;
`log N` chooses the log that the steps after it concern.
"""

from __future__ import annotations

from attrs import frozen

__all__ = ["OPERATIONS_MAX", "WORKLOADS", "Workload"]

OPERATIONS_MAX = 4


@frozen
class Workload:
    """One of them."""

    name: str
    prepared: tuple[str, ...]
    steps: tuple[str, ...]
    segment_bytes: int = 2_048


_THREE = ("append 300 300 300", "flush", "checkpoint")
_SEGMENTS = ("append 512 512 512 512", "append 512 512 512 512", "append 512 512 512", "flush", "checkpoint")  # begin at 0, 4 and 8

WORKLOADS: tuple[Workload, ...] = (
    Workload("the first batch", (), ("append 300",)),
    Workload("append after append", (), ("append 200", "append 700", "append 300", "append 150")),
    Workload("append to what is flushed", _THREE, ("append 400", "flush", "append 900")),
    Workload("flush in between", (), ("append 600", "flush", "append 600", "flush")),
    Workload("a group", _THREE, ("many 200 300 400", "flush", "many 500 500")),
    Workload("a group over several segments", (), ("many 900 900 900", "flush")),
    Workload("a large batch", (), ("append 3000", "append 200")),
    Workload("roll", ("append 900 900", "flush", "checkpoint"), ("append 900", "append 400")),
    Workload("roll and flush", ("append 900 900", "flush", "checkpoint"), ("append 900", "flush", "append 900")),
    Workload("roll twice", ("append 1800", "flush", "checkpoint"), ("append 1800", "append 1800", "flush")),
    Workload("checkpoint", ("append 300", "flush"), ("append 500", "flush", "checkpoint", "append 500")),
    Workload("checkpoint before flush", ("append 300",), ("append 500", "checkpoint", "flush")),
    Workload("truncate in a segment", _THREE, ("truncate 1", "append 300", "flush")),
    Workload("truncate and go on", _THREE, ("truncate 1", "append 400", "append 300")),
    Workload("truncate what was not flushed", ("append 300",), ("append 512 512", "truncate 1", "append 512 512")),
    Workload("truncate whole sectors", ("append 512 512 512", "flush", "checkpoint"), ("truncate 1", "append 512 512")),
    Workload("truncate and get the same again", ("append 512 1024 512", "flush", "checkpoint"), ("truncate 1", "again 1024", "append 512")),
    Workload("truncate into an earlier segment", _SEGMENTS, ("truncate 2", "append 512 512")),
    Workload("truncate at a segment's start", _SEGMENTS, ("truncate 8", "append 512 512 512")),
    Workload("truncate twice", _SEGMENTS, ("truncate 9", "truncate 5", "append 512", "flush")),
    Workload("truncate to a new segment", ("append 1024 1024 512", "flush", "checkpoint"), ("truncate 2", "append 512", "append 600")),
    Workload("truncate and checkpoint", _SEGMENTS, ("truncate 6", "checkpoint", "append 512")),
    Workload("trim a segment", _SEGMENTS, ("trim 5", "append 300")),
    Workload("trim to the last", _SEGMENTS, ("trim 9", "checkpoint", "append 300", "flush")),
    Workload("trim everything", _SEGMENTS, ("trim 11", "append 600", "flush")),
    Workload("trim, then truncate", _SEGMENTS, ("trim 5", "truncate 7", "append 512")),
    Workload("trim twice", _SEGMENTS, ("trim 4", "trim 9", "append 512")),
    Workload("reset ahead", _THREE, ("reset 100", "append 300", "flush")),
    Workload("reset to the beginning", _SEGMENTS, ("reset 0", "append 512 512")),
    Workload("reset twice", _THREE, ("reset 50", "append 300", "reset 40", "append 200")),
    Workload("reset what is new", (), ("reset 70", "append 300", "flush")),
    Workload("reset and checkpoint", _THREE, ("reset 9", "checkpoint", "append 300")),
    Workload("age", _SEGMENTS, ("retain", "append 300", "flush")),
    Workload("trim, then reset", _SEGMENTS, ("trim 5", "reset 3", "append 300")),
    Workload("trim what was not flushed", ("append 300", "flush"), ("append 512 512", "trim 3", "append 300")),
    Workload("trim everything, unflushed", (), ("append 512 512 512 512 512", "trim 5", "append 300")),
    Workload("reset what was not flushed", (), ("append 512 512", "reset 500", "append 300")),
    Workload("age, then reset", _SEGMENTS, ("retain", "reset 40", "append 300")),
    Workload("age, close, open", _SEGMENTS, ("retain", "close", "open", "append 300")),
    Workload("age twice", _SEGMENTS, ("retain", "append 512 512", "retain", "append 300")),
    Workload("epochs", _THREE, ("epoch", "append 300", "epoch", "append 300")),
    Workload("epochs without records", ("append 300", "flush"), ("epoch", "epoch", "flush", "append 300")),
    Workload("close", ("append 300",), ("append 500", "close")),
    Workload("close and open", _SEGMENTS, ("append 300", "close", "open", "append 300")),
    Workload("close after truncating", _SEGMENTS, ("truncate 6", "close", "open", "append 300")),
    Workload("a second log", _THREE, ("log 1", "create", "append 300", "flush")),
    Workload("two logs", (*_THREE, "log 1", "create"), ("append 300", "log 0", "append 300", "flush")),
    Workload("delete", _THREE, ("delete",)),
    Workload("delete and purge", _SEGMENTS, ("delete", "purge")),
    Workload("delete with unflushed records", ("append 300",), ("append 300", "delete", "purge")),
    Workload("delete and create the next", _THREE, ("delete", "log 1", "create", "append 300")),
    Workload("delete and create the same", _THREE, ("delete", "create", "append 300", "flush")),
    Workload("alter to os", _THREE, ("alter 0", "append 400", "append 700")),
    Workload("alter to ack", _THREE, ("append 700", "alter 1", "append 400")),
    Workload("alter to ack and back", _THREE, ("append 400", "alter 1", "alter 0", "append 700")),
    Workload("alter to ack between two lives", _THREE, ("append 400", "alter 1", "close", "open")),
    # From here on much is unsynced at once: thousands of states at each moment.
    Workload("four large appends", (), ("append 1500", "append 1500", "append 1500", "append 1500"), 8_192),
    Workload("large appends behind what is flushed", _THREE, ("append 2000", "append 1300", "append 1800"), 8_192),
    Workload("large appends behind a checkpoint", _THREE, ("append 1500", "append 1400", "append 1600", "append 1300"), 8_192),
    Workload("two large groups", (), ("many 1300 1400", "many 1500 1200"), 8_192),
    Workload("a large group", _THREE, ("many 900 800 700 600 500 400", "append 1000"), 8_192),
    Workload("truncate and large appends", ("append 2500 2500", "flush", "checkpoint"), ("truncate 1", "append 1800", "append 900"), 8_192),
    Workload("trim and large appends", _SEGMENTS, ("trim 5", "many 1500 1500", "append 1000")),
    Workload("reset and large appends", _THREE, ("reset 60", "append 2300", "append 2300"), 8_192),
    Workload("roll over large batches", (), ("append 1900", "append 1900", "append 1900")),
)
