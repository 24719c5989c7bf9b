"""What the logs of one directory share, and what each leaves on disk beside its batches.

One folder per log, made with its first batch. In it::

    00000000000000000000.log      batches; the name is the offset of the first
    00000000000000000000.index    what is known of a segment that is complete: never needed, only quicker than reading it
    00000000000000000500-7.start  the log begins at this offset, behind a record of leader epoch 7 (left out where nobody knows): what
                                  is left of a segment that was trimmed, and empty
    marker                        a truncation or reset that the directory's checkpoint does not know of yet
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgpack
from attrs import define, field, frozen

from replog.config import BrokerConfig
from replog.log.checkpoint import place_small_file, read_file, read_plain, seal, stage_small_file, unpack, unpack_first, unseal, write_all
from replog.log.epochs import EpochTable
from replog.log.files import Fs
from replog.log.open_files import OpenFiles
from replog.log.producers import ProducerTable
from replog.log.scan import header_at, steps
from replog.log.segment import LOG_SUFFIX, SUMMARY_SUFFIX, Segment, SparseIndex
from replog.log.shapes import MARKER, SUMMARY
from replog.log.syncing import Syncs
from replog.model import PartitionId
from replog.ports import NO_DESCRIPTORS
from replog.records import BadBatch

__all__ = ["Marker", "Storage", "Summary", "place_marker", "read_index", "read_marker", "read_summary", "stage_marker", "write_summary"]

_MARKER: Final = "marker"


@define
class Storage:
    """Where the logs of a directory live, and what they share."""

    fs: Fs
    folder: str
    """Holds one folder per log."""
    limits: BrokerConfig
    fail_directory: Callable[[str], None]
    """Called when a flush failed, with the reason: final for every log here."""
    files: OpenFiles = field(init=False)
    syncs: Syncs = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.files = OpenFiles(self.fs, self.limits.open_files_max)
        self.syncs = Syncs(self.fs)

    def flush_failed(self, error: OSError) -> None:
        """An fsync in the middle of something else has raised this. The system tells of a failure once: it is the end of the whole
        directory (R14). Not so if there was no descriptor to open the folder with: then nothing was tried."""
        if error.errno not in NO_DESCRIPTORS:
            self.fail_directory(f"a flush failed: {error}")

    def folder_of(self, identity: PartitionId) -> str:
        """The folder of a log, named by its identity alone: no text from outside ever becomes a path."""
        return f"{self.folder}/{folder_name(identity)}"


def folder_name(identity: PartitionId) -> str:
    """The name of a log's folder."""
    return f"{identity.topic_id.hex()}-{identity.partition}-{identity.creation}"


class Marker(NamedTuple):
    """What the last truncation or reset needs to be remembered by, until the next checkpoint of the directory."""

    start: int
    """Where the log begins since it was reset, whatever the checkpoint says. -1 if it was not."""
    recovery_max: int
    """Nothing at or above this may be taken for flushed or for committed, whatever the checkpoint says."""
    resetting: bool = False
    """A reset has begun: every segment goes."""


def place_marker(fs: Fs, folder: str, marker: Marker) -> None:
    """Leave a marker; durable once the folder is synced. After an OSError nothing has changed."""
    place_small_file(fs, folder, _MARKER, msgpack.packb(list(marker)))


def stage_marker(fs: Fs, folder: str, marker: Marker) -> Callable[[], None]:
    """Write a marker for later: what is returned puts it in its place, and needs no more space for that."""
    temporary = stage_small_file(fs, folder, f"{_MARKER}.next", msgpack.packb(list(marker)))
    return lambda: fs.rename(temporary, f"{folder}/{_MARKER}")


def read_marker(fs: Fs, folder: str) -> Marker | None:
    """The marker, if there is an intact one (it is replaced atomically, so that a torn one cannot be)."""
    value = read_plain(fs, f"{folder}/{_MARKER}", MARKER)
    return None if value is None else Marker(*value)


def remove_marker(fs: Fs, folder: str) -> None:
    """The checkpoint of the directory knows everything now."""
    fs.unlink(f"{folder}/{_MARKER}")


@frozen
class Summary:
    """What is known at the end of a segment."""

    index: SparseIndex
    epochs: EpochTable
    """Of the whole log up to there."""
    producers: list[Any]
    """Likewise; for `ProducerTable.load`."""


def _summary_path(segment: Segment) -> str:
    return segment.path.removesuffix(LOG_SUFFIX) + SUMMARY_SUFFIX


def write_summary(fs: Fs, segment: Segment, epochs: EpochTable, producers: ProducerTable) -> None:
    """Leave the summary of a segment beside it. Not synced, and errors do not matter: whoever reads it does without as well."""
    if segment.index is None or not segment.size:
        return
    value = [
        segment.size,
        segment.end_offset,
        segment.first_timestamp_ms,
        segment.max_timestamp_ms,
        segment.index.to_list(),
        [list(entry) for entry in epochs.entries() if entry.start < segment.end_offset],
        producers.snapshot(),
    ]
    with suppress(OSError):
        fd = fs.open(_summary_path(segment), create=True)
        try:
            data = seal(msgpack.packb(value))
            write_all(fs, fd, data, 0)
            fs.ftruncate(fd, len(data))  # not before: to cut what is on its way to the disk took 3.4 ms on ext4
        finally:
            fs.close(fd)


def read_summary(fs: Fs, fd: int, segment: Segment, end_offset: int, identity: PartitionId) -> Summary | None:
    """The summary of a segment whose batches end at `segment.size` and `end_offset`, None unless it is surely that.

    A summary may be of an earlier life of its file (truncated since, then as long again): so its last index entry must lead
    to a batch of this log, and from there to exactly this end. Sets what it says about times.
    """
    known = _known(fs, fd, segment, end_offset, identity, lambda payload: unpack(payload, SUMMARY))
    return None if known is None else Summary(SparseIndex.from_list(known[4]), EpochTable(map(tuple, known[5])), known[6])


def read_index(fs: Fs, fd: int, segment: Segment, end_offset: int, identity: PartitionId) -> SparseIndex | None:
    """The index in the summary of such a segment. What is known of producers, which may be a thousand times as much, is not unpacked."""
    known = _known(fs, fd, segment, end_offset, identity, lambda payload: unpack_first(payload, SUMMARY[:-1]))
    return None if known is None else SparseIndex.from_list(known[4])


def _known(
    fs: Fs, fd: int, segment: Segment, end_offset: int, identity: PartitionId, unpacked: Callable[[bytes], list[Any] | None]
) -> list[Any] | None:
    try:
        data = read_file(fs, _summary_path(segment))
        payload = None if data is None else unseal(data)
        known = None if payload is None else unpacked(payload)
        if known is None:
            return None
        size, end, first_ms, newest_ms, columns, epochs = known[:6]
        if (size, end) != (segment.size, end_offset):
            return None
        index = SparseIndex.from_list(columns)
        offset, position = index.offsets[-1], index.positions[-1]
        last = None
        for at, base, stop, _ in steps(fs, fd, position, size, offset):
            last = header_at(fs, fd, at, base, stop, identity)
        if last is None or last.end_offset != end or last.leader_epoch != epochs[-1][0]:
            return None
    except (OSError, BadBatch, ValueError, TypeError, IndexError):
        return None
    segment.first_timestamp_ms, segment.max_timestamp_ms = first_ms, newest_ms
    segment.end_offset = end
    return known


def remove_summary(fs: Fs, segment: Segment) -> None:
    """The segment changes: what was known of it no longer holds."""
    with suppress(FileNotFoundError):
        fs.unlink(_summary_path(segment))
