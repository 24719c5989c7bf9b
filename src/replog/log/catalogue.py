"""Which logs a directory has: a file that only grows, one entry per change, each with its checksum.

::

    ┌────────┬────────┬──────────────────────────┐
    │ length │ crc32c │ changes (msgpack list)   │  ...
    └────────┴────────┴──────────────────────────┘

A change is durable before anything that relies on it happens. A crash can leave an unfinished last entry, which nobody
has relied on yet: it is cut off. A bad entry with a good one behind it is damage, and is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Any, Final

import msgpack
from attrs import define, field
from crc32c import crc32c

from replog.config import TopicConfig
from replog.errors import LogCorrupt, UsageError
from replog.log.checkpoint import read_file, unpack, write_all
from replog.log.files import Fs
from replog.log.segmented import PASSING
from replog.log.shapes import CATALOGUE
from replog.log.syncing import Syncs
from replog.model import PartitionId

__all__ = ["Catalogue", "Entry"]

_HEAD: Final = Struct("<II")
_FILE: Final = "catalogue"
_COMPACT_AT: Final = 1_000
_LISTS: Final = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
"""What a list of msgpack begins with: it says of most places that no entry is there, before a checksum is computed."""

# The first item of a change.
_LIVE: Final = 0
_QUARANTINED: Final = 1
_PURGED: Final = 2


@define
class Entry:
    """A log that the directory has."""

    topic: str
    config: TopicConfig
    """As of when the log was made, or last had another `flush`: a power cut is judged by it (`replog.log.recorded`)."""


@define
class Catalogue:
    """The logs of a directory by identity, and those in quarantine with the time (wall clock, ms) they went there."""

    fs: Fs
    folder: str
    syncs: Syncs
    live: dict[PartitionId, Entry] = field(factory=dict)
    quarantined: dict[PartitionId, int] = field(factory=dict)
    _size: int = 0
    _torn: bool = False
    """The file goes on behind `_size` with an unfinished entry."""
    _unsynced: bool = False
    """The file has its name, and that may not be on the disk."""
    _changes: int = 0
    _configs: dict[tuple[Any, ...], TopicConfig] = field(factory=dict)

    @classmethod
    def load(cls, fs: Fs, folder: str, *, anew: bool = False, syncs: Syncs | None = None) -> Catalogue:
        """Read the catalogue of a directory; empty if there is none. Raises LogCorrupt.

        `anew`: an fsync has failed, so that what is read may not be on the disk; the file is written again.
        """
        catalogue = cls(fs, folder, syncs or Syncs(fs))
        path = f"{folder}/{_FILE}"
        data = read_file(fs, path) or b""
        at = 0
        while (payload := _entry_at(data, at)) is not None:
            catalogue._take_entry(payload, at)
            at += _HEAD.size + len(payload)
        if at < len(data):
            _check_torn(data, at, path)
            catalogue._torn = True  # cut before the next entry, not here: whoever opens a damaged catalogue may yet refuse it
        catalogue._size = at
        catalogue._configs.clear()
        if catalogue._is_grown or (anew and at):
            catalogue._compact()
        return catalogue

    @property
    def _is_grown(self) -> bool:
        """Whether most of the file speaks of what is no more."""
        return self._changes > _COMPACT_AT and self._changes > 2 * (len(self.live) + len(self.quarantined))

    def add(self, logs: Sequence[tuple[PartitionId, str, TopicConfig]]) -> None:
        """Logs that exist from now on, or have another configuration: one write and one fsync for all. Raises OSError."""
        plain: dict[TopicConfig, dict[str, Any]] = {}
        changes = []
        for identity, topic, config in logs:
            if config not in plain:
                plain[config] = config.to_mapping()
            changes.append([_LIVE, *identity, topic, plain[config]])
        self._write(changes)
        for identity, topic, config in logs:
            self.live[identity] = Entry(topic, config)
        self._changes += len(changes)

    def quarantine(self, identities: Sequence[PartitionId], wall_ms: int) -> None:
        """Logs are out of service: one write and one fsync for all. Raises OSError."""
        self._write_and_take([[_QUARANTINED, *identity, wall_ms] for identity in identities])

    def purge(self, identities: Sequence[PartitionId]) -> None:
        """Nothing is left of logs in quarantine, nor, after many of them, of what the file says about them. Raises OSError."""
        self._write_and_take([[_PURGED, *identity] for identity in identities])
        if self._is_grown:
            try:
                self._compact()
            except OSError as error:
                if error.errno not in PASSING:
                    raise
                if not self._is_grown:
                    raise  # it has the name of the other already, and that may not be on the disk
                with suppress(OSError):  # it takes space: another time
                    self.fs.unlink(f"{self.folder}/{_FILE}.new")

    def _write_and_take(self, changes: list[list[Any]]) -> None:
        self._write(changes)
        for change in changes:
            self._take(change)

    def _write(self, changes: list[list[Any]]) -> None:
        """Make changes durable. After an error the file is as it was, as far as the disk allows."""
        if not changes:
            return
        path, entry = f"{self.folder}/{_FILE}", _entry(changes)
        is_new = self._size == 0
        fd = self.fs.open(path, create=True)
        try:
            if self._torn:
                self.fs.ftruncate(fd, self._size)
                self._torn = False
            try:
                write_all(self.fs, fd, entry, self._size)
                self.fs.fsync(fd)
            except OSError:
                self.fs.ftruncate(fd, self._size)
                raise
        finally:
            self.fs.close(fd)
        if is_new or self._unsynced:
            self.syncs.folder(self.folder)
            self._unsynced = False
        self._size += len(entry)

    def _take_entry(self, payload: bytes, at: int) -> None:
        """What a stored entry says. A checksum fits by chance as well, or bytes of another file."""
        where = f"{self.folder}/{_FILE}: the entry at byte {at}"
        changes = unpack(payload, CATALOGUE)
        if changes is None:
            raise LogCorrupt(f"{where} is damaged: it matches its checksum, and says nothing of logs")
        try:
            for change in changes:
                self._take(change)
        except UsageError as bad:
            raise LogCorrupt(f"{where} is damaged: {bad}") from None

    def _take(self, change: list[Any]) -> None:
        kind, topic_id, partition, creation, *rest = change
        identity = PartitionId(topic_id, partition, creation)
        self._changes += 1
        if kind == _LIVE:
            topic, plain = rest
            key = tuple(sorted(plain.items()))  # most logs have the configuration of many others: keep it once
            if key not in self._configs:
                self._configs[key] = TopicConfig.from_mapping(TopicConfig.kept(plain))
            self.live[identity] = Entry(topic, self._configs[key])
        elif kind == _QUARANTINED:
            self.live.pop(identity, None)
            self.quarantined[identity] = rest[0]
        else:
            self.quarantined.pop(identity, None)

    def _compact(self) -> None:
        """Write the file anew with what still holds."""
        changes = [_live(identity, entry.topic, entry.config) for identity, entry in self.live.items()]
        # A log can be in quarantine and live again: its quarantine comes first, because it ends an earlier life.
        data = _entry([*([_QUARANTINED, *identity, wall_ms] for identity, wall_ms in self.quarantined.items()), *changes])
        temporary = f"{self.folder}/{_FILE}.new"
        fd = self.fs.open(temporary, create=True)
        try:
            self.fs.ftruncate(fd, 0)
            write_all(self.fs, fd, data, 0)
            self.fs.fsync(fd)
        finally:
            self.fs.close(fd)
        self.fs.rename(temporary, f"{self.folder}/{_FILE}")
        self._size, self._changes, self._torn, self._unsynced = len(data), len(changes) + len(self.quarantined), False, True
        self.syncs.folder(self.folder)
        self._unsynced = False


def _live(identity: PartitionId, topic: str, config: TopicConfig) -> list[Any]:
    return [_LIVE, *identity, topic, config.to_mapping()]


def _entry(changes: list[list[Any]]) -> bytes:
    payload: bytes = msgpack.packb(changes)
    return _HEAD.pack(len(payload), crc32c(payload)) + payload


def _entry_at(data: bytes, at: int) -> bytes | None:
    """The payload of the entry at `at`, None if it is not complete and intact."""
    if len(data) - at < _HEAD.size:
        return None
    length, crc = _HEAD.unpack_from(data, at)
    begin = at + _HEAD.size
    if not 0 < length <= len(data) - begin:
        return None  # before anything is copied: at most bytes that `_check_torn` looks at this is no length of an entry
    payload = data[begin : begin + length]
    return payload if crc32c(payload) == crc else None


def _check_torn(data: bytes, at: int, path: str) -> None:
    """Raise LogCorrupt unless the bad entry at `at` is an unfinished last one."""
    for later in range(at + 1, len(data) - _HEAD.size):
        if data[later + _HEAD.size] in _LISTS and _entry_at(data, later) is not None:
            raise LogCorrupt(f"{path}: the entry at byte {at} is damaged, and there are good ones behind it")
