"""A broker's data directory: its logs, who it is, and how its last life ended.

::

    lock         held (flock) while a process has the directory open
    meta         format and directory id; written once
    life         the boot id of the life that has it open, losses that are reported until it is let in, whether an fsync failed
    catalogue    which logs there are
    checkpoint   per log: high watermark, start offset, flushed end; all advisory, replaced now and then
    clean        only after a clean stop: the state of every log, so that the next open reads nothing else
    logs/        one folder per log, made with its first record
    quarantine/  folders of logs that are out of service
    staged/      what is put aside to be published later; removed by the next life
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, TypeVar
from weakref import ref

from attrs import evolve

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogClosed, LogCorrupt, LogDamaged, LogFull, UsageError
from replog.log import shapes
from replog.log.catalogue import Catalogue
from replog.log.checkpoint import is_sealed_file, read_file, read_plain, unpack, unseal, write_plain
from replog.log.files import OS, Fs, check_path, kill_in_child, make_folders
from replog.log.lock import FolderLock
from replog.log.log import FileLog
from replog.log.loss import Life, gravest, judge
from replog.log.recorded import is_flushed, recordable
from replog.log.recovery import LogState, recover, restore
from replog.log.segmented import PASSING, SegmentedLog
from replog.log.staging import FileStaging
from replog.log.storage import Storage, folder_name
from replog.model import PartitionId
from replog.ports import Location, Log, LogDirectory, LogStart, LossKind

__all__ = ["MADE_BY_SYSTEM", "FileLogDirectory", "Recovered"]

FORMAT: Final = 1
_KIND: Final = "replog log directory"
_LOCK, _META, _LIFE, _CHECKPOINT, _CLEAN, _LOGS, _QUARANTINE = "lock", "meta", "life", "checkpoint", "clean", "logs", "quarantine"
_STAGED = "staged"
MADE_BY_SYSTEM: Final = "lost+found"
"""What a new file system has at its top: a folder with nothing else is empty."""

Result = TypeVar("Result")


class Recovered(NamedTuple):
    """What opening found out about one log after an unclean stop."""

    bytes_cut: int
    """Bytes of an unfinished write that were removed."""
    corrupt: str
    """Why stored records are gone or unreadable; empty if none are."""


class Known(NamedTuple):
    """What the checkpoint says of a log."""

    high_watermark: int
    """-1 if it has none."""
    start_offset: int
    flushed_end: int


class FileLogDirectory(LogDirectory):
    """The directory at `path`, made if it is missing, opened and recovered by the constructor.

    Raises UsageError, naming the path, if somebody has it open, if it is something else, or if a newer version of the
    library made it; LogCorrupt if what it says about itself is damaged (nothing is deleted then).
    """

    _log_class: ClassVar[type[FileLog]] = FileLog

    def __init__(self, path: str | Location, *, limits: BrokerConfig | None = None, fs: Fs = OS, lock: FolderLock | None = None) -> None:
        """`lock` is what it takes its lock with: whoever has that can let go although he never got the directory."""
        self.path = check_path(path).rstrip("/") or "/"
        self.fs = fs
        self.high_watermarks: dict[PartitionId, int] = {}
        self.recovered: dict[PartitionId, Recovered] = {}
        """Logs that lost the end of a write, or more, when this directory was opened."""
        self._limits = limits or BrokerConfig()
        self._failed = ""
        self._failure_noted = False
        self._closed = ""
        self._broker_epoch = -1
        self.staging: FileStaging = FileStaging(fs, f"{self.path}/{_STAGED}")
        self._lock = FolderLock(fs) if lock is None else lock
        # No circle: when nobody has the directory any more, nor a log of it, its lock is let go at once.
        self._storage = Storage(fs, f"{self.path}/{_LOGS}", self._limits, partial(_fail, ref(self), self._lock))
        self._logs: dict[PartitionId, FileLog] = {}
        self._checkpointed: frozenset[PartitionId] = frozenset()
        self._unrecorded: dict[PartitionId, int] = {}  # flushed before each answer, and not yet recorded so: their ends at that change
        try:
            self._take_lock()
            self._open()
            kill_in_child(self)
        except BaseException:
            if self._storage.syncs.failure:
                self._fail(self._storage.syncs.reason)
            self._closed = f"log directory {self.path} could not be opened"  # nor closed once more in a forked child
            for log in self._logs.values():
                log.close()
            self._lock.release()
            raise

    # -------------------------------------------------------------------------------------------------------- opening

    def _take_lock(self) -> None:
        """The lock, before anything is read or written."""
        try:
            names = self.fs.listdir(self.path)
        except FileNotFoundError:
            make_folders(self.fs, self.path)
            names = []
        except NotADirectoryError:
            raise UsageError(f"{self.path} is a file, not a log directory") from None
        begun = (_LOCK, f"{_META}.new", _CHECKPOINT, f"{_CHECKPOINT}.new")  # a crash may have come while it was made
        foreign = [name for name in names if name not in (*begun, MADE_BY_SYSTEM)]
        if foreign and _META not in names and "catalogue" in names:
            raise LogCorrupt(f"{self.path} has lost its {_META!r} file; nothing was changed")
        if foreign and _META not in names:
            raise UsageError(f"{self.path} is not empty and no log directory: it has {foreign[0]!r} and no {_META!r}")
        if not self._lock.take(f"{self.path}/{_LOCK}"):
            raise UsageError(f"log directory {self.path} is in use: another process, or another object in this one, has it open")

    def _open(self) -> None:
        self.directory_id = self._read_meta()
        for folder in (_LOGS, _QUARANTINE):
            if self.fs.size(f"{self.path}/{folder}") is None:
                make_folders(self.fs, f"{self.path}/{folder}")
        life = self._life = Life.from_plain(read_plain(self.fs, f"{self.path}/{_LIFE}", shapes.LIFE))
        self._catalogue = Catalogue.load(self.fs, self.path, anew=life.flush_failed, syncs=self._storage.syncs)
        self._finish_quarantines()
        clean = read_plain(self.fs, f"{self.path}/{_CLEAN}", shapes.CLEAN)
        checkpoint = self._read_checkpoint()
        known = checkpoint or {}
        self._checkpointed = frozenset(known)
        boot_id = self.fs.boot_id()
        power = clean is None and (life.boot_id != boot_id or life.flush_failed)
        states = self._load_logs(clean, checkpoint, power=power)
        configs = {identity: entry.config for identity, entry in self._catalogue.live.items()}
        life = self._life  # with what was noted meanwhile
        self.loss = judge(configs, states, {i: k.flushed_end for i, k in known.items()}, life, clean=clean is not None, power=power)
        self.incarnation = self.fs.random_bytes(16).hex()
        life = Life.begun(boot_id, self.incarnation, self.loss)
        self.staging.clear()  # before something has to be written: it may be what fills the disk
        # In this order: a crash in between must not lose what was found out, and the marker goes before the first append.
        write_plain(self.fs, self.path, _LIFE, life.to_plain())
        if clean is not None:
            self.fs.unlink(f"{self.path}/{_CLEAN}")
            self.fs.fsync_dir(self.path)
        self._life = life
        is_lower = False
        for identity, (high_watermark, _, _) in known.items():
            log = self._logs.get(identity)
            if log is not None and high_watermark >= 0:
                self.high_watermarks[identity] = log.left_of(high_watermark)
                is_lower = is_lower or log.ends_below_watermark
        if is_lower or any(one.corrupt for one in self.recovered.values()):
            self._lower_recovery_points()

    def _lower_recovery_points(self) -> None:
        """Records that the checkpoint calls flushed, or committed, are gone, which is reported and noted by now: what takes their place is
        neither."""
        try:
            self.checkpoint()
        except LogFull:  # without one everything is verified and nothing taken for flushed; to remove it takes no space
            with suppress(FileNotFoundError):
                self.fs.unlink(f"{self.path}/{_CHECKPOINT}")
            self.fs.fsync_dir(self.path)

    def _read_meta(self) -> str:
        """The directory id, made with the directory."""
        path = f"{self.path}/{_META}"
        data = read_file(self.fs, path)
        if data is None:
            directory_id = self.fs.random_bytes(16).hex()
            write_plain(self.fs, self.path, _CHECKPOINT, [])
            write_plain(self.fs, self.path, _META, {"kind": _KIND, "format": FORMAT, "directory_id": directory_id})
            return directory_id
        payload = unseal(data)
        if payload is None:
            if data and not is_sealed_file(data):
                raise UsageError(f"{self.path} is no log directory: {_META!r} is a file of something else")
            raise LogCorrupt(f"{path} is damaged; nothing was changed")
        meta = unpack(payload, shapes.anything)
        if not isinstance(meta, dict) or meta.get("kind") != _KIND:
            raise UsageError(f"{self.path} is no log directory: {_META!r} is of another kind")
        if not shapes.fits(meta, shapes.META):
            raise LogCorrupt(f"{path} is damaged; nothing was changed")
        if meta["format"] > FORMAT:
            raise UsageError(f"{self.path} has format {meta['format']}; this version of the library reads up to {FORMAT}")
        return str(meta["directory_id"])

    def _read_checkpoint(self) -> dict[PartitionId, Known] | None:
        """What the last checkpoint said; None if it is lost (there is one from the beginning, and it is replaced atomically)."""
        entries = read_plain(self.fs, f"{self.path}/{_CHECKPOINT}", shapes.CHECKPOINT)
        return None if entries is None else {PartitionId(*entry[:3]): Known(*entry[3:]) for entry in entries}

    def _load_logs(
        self, clean: list[Any] | None, checkpoint: dict[PartitionId, Known] | None, *, power: bool
    ) -> dict[PartitionId, LogState]:
        """Make every log of the catalogue; only those with a folder are looked at, and after a clean stop not even they."""
        known = checkpoint or {}
        saved = {} if clean is None else {PartitionId(*entry[:3]): entry[3] for entry in clean[1]}
        folders = set(self.fs.listdir(self._storage.folder))
        states: dict[PartitionId, LogState] = {}
        for identity, entry in self._catalogue.live.items():
            state = None
            watermark, start, flushed = known.get(identity, Known(-1, 0, 0))
            committed = 0 if power else watermark
            if folder_name(identity) in folders:
                folders.discard(folder_name(identity))
                state = restore(self._storage, identity, saved[identity]) if identity in saved else None
                if state is None:
                    flushed = saved[identity][1] if identity in saved else flushed
                    start_known, rewrite = None if checkpoint is None else start, self._life.flush_failed
                    note = partial(self._note_loss, identity, entry.config)
                    state = recover(
                        self._storage, identity, start_known, flushed, note, power=power, committed_end=committed, rewrite=rewrite
                    )
                    if state.bytes_cut or state.corrupt:
                        self.recovered[identity] = Recovered(state.bytes_cut, state.corrupt)
            elif flushed or start or committed > 0:
                state = LogState.missing(self._limits.producers_max, start, flushed, committed)
                if state.corrupt:
                    self.recovered[identity] = Recovered(0, state.corrupt)
            if state is not None:
                states[identity] = state
            self._logs[identity] = self._log_class(identity, entry.config, self._storage, state)
        if folders:
            raise LogCorrupt(f"{self._storage.folder}/{min(folders)} is in no catalogue entry: the catalogue is damaged")
        if clean is None and states:  # what a killed process made may not be on the disk: a log must not lose its folder unnoticed
            self._sync_folder(self._storage.folder)
        return states

    def _note_loss(self, identity: PartitionId, config: TopicConfig, kind: LossKind) -> None:
        """Recovery is about to cut what may have counted: should this opening not be finished, the next one finds no trace of it.

        The rest of the note stays, so that the next opening judges as this one does. Raises OSError, and then nothing is cut.
        """
        life = self._life
        if kind == "power" and (config.flush != "ack" or life.flush_failed):
            return  # after a power cut such a log is lossy whatever is found
        kinds: list[LossKind] = [kind, life.kind] if life.lossy else [kind]
        noted = evolve(life, kind=gravest(kinds), lossy=tuple(sorted({*life.lossy, identity})), since="")
        if noted != life:
            self._write_life(noted)

    def _sync_folder(self, folder: str) -> None:
        """The system tells of a failure once: the next open must not trust what the cache shows."""
        try:
            self._storage.syncs.folder(folder)
        except OSError as error:
            self._storage.flush_failed(error)
            raise

    def _finish_quarantines(self) -> None:
        """A crash may have come between the entry of a quarantine and the renaming of its folder."""
        gone = {identity: ms for identity, ms in self._catalogue.quarantined.items() if identity not in self._catalogue.live}
        if self._rename_away(gone):
            self._sync_folder(f"{self.path}/{_QUARANTINE}")
            self._sync_folder(self._storage.folder)

    # ------------------------------------------------------------------------------------------------------- the logs

    def identities(self) -> list[PartitionId]:
        return sorted(self._logs)

    def topic_of(self, identity: PartitionId) -> str:
        return self._catalogue.live[identity].topic

    def get(self, identity: PartitionId) -> FileLog | None:
        return self._logs.get(identity)

    def create(self, starts: Iterable[LogStart]) -> list[Log]:
        self._check_open()
        starts = list(starts)
        live = self._catalogue.live
        changed: list[LogStart] = []
        for identity, topic, config in starts:
            old = live.get(identity)
            held = recordable(self._logs.get(identity), None if old is None else old.config, config)
            if old is None or old.topic != topic or old.config != held:
                changed.append(LogStart(identity, topic, held))
        if any(start[0] in self._checkpointed and start[0] not in live for start in changed):
            self.checkpoint()  # the last one speaks of a deleted log of the same identity: its flushed end is not that of a new one
        # A new log must not find the files of one that a full disk kept from being renamed.
        gone = self._catalogue.quarantined
        leftover = {start[0]: gone[start[0]] for start in changed if start[0] in gone and start[0] not in live}
        if leftover:
            self._on_disk(lambda: self._move_away(leftover))
        self._on_disk(lambda: self._catalogue.add(changed))
        logs: list[Log] = []
        for identity, _, config in starts:
            log = self._logs.get(identity)
            if log is None:
                log = self._logs[identity] = self._log_class(identity, config, self._storage)
            log.config = config
            if config.flush == live[identity].config.flush:
                self._unrecorded.pop(identity, None)
            else:
                self._unrecorded.setdefault(identity, log.end_offset)
            logs.append(log)
        return logs

    def record_flushes(self) -> None:
        self._check_open()
        live = self._catalogue.live
        flushed = [one for one, end in self._unrecorded.items() if is_flushed(self._logs[one], end)]
        if flushed:
            changes = [(one, live[one].topic, evolve(live[one].config, flush="ack")) for one in flushed]
            self._on_disk(lambda: self._catalogue.add(changes))
        for one in flushed:
            del self._unrecorded[one]

    def quarantine_each(self, identities: Iterable[PartitionId], wall_ms: int) -> None:
        self._check_open()
        here = [identity for identity in dict.fromkeys(identities) if identity in self._logs]
        self._on_disk(lambda: self._catalogue.quarantine(here, wall_ms))
        for identity in here:
            self.high_watermarks.pop(identity, None)
            self._unrecorded.pop(identity, None)
            self._logs.pop(identity).close()
        self._on_disk(lambda: self._move_away({identity: wall_ms for identity in here}))

    def quarantined(self) -> dict[PartitionId, int]:
        return dict(self._catalogue.quarantined)

    def purge_each(self, identities: Iterable[PartitionId]) -> None:
        self._check_open()
        here = [identity for identity in dict.fromkeys(identities) if identity in self._catalogue.quarantined]
        if here:
            self._on_disk(lambda: self._delete_quarantined(here))

    def _move_away(self, since_ms: Mapping[PartitionId, int]) -> None:
        """Rename the folders of logs, where they have one, into quarantine, durably."""
        if self._rename_away(since_ms):
            self._sync_folder(f"{self.path}/{_QUARANTINE}")
            self._sync_folder(self._storage.folder)

    def _rename_away(self, since_ms: Mapping[PartitionId, int]) -> bool:
        moved = False
        for identity, wall_ms in since_ms.items():
            source, target = self._storage.folder_of(identity), f"{self.path}/{_QUARANTINE}/{folder_name(identity)}.{wall_ms}"
            if self.fs.size(source) is not None:
                while self.fs.size(target) is not None:  # an earlier life of this log is there already, from the same millisecond
                    target += "x"
                self.fs.rename(source, target)
                moved = True
        return moved

    def _delete_quarantined(self, identities: Sequence[PartitionId]) -> None:
        """Nothing here needs space: a full disk may have come between the entry of a quarantine and the renaming of its folder."""
        quarantine, logs = f"{self.path}/{_QUARANTINE}", self._storage.folder
        wanted = {folder_name(identity) for identity in identities}
        for name in self.fs.listdir(quarantine):
            if name.rpartition(".")[0] in wanted:
                self._delete_folder(f"{quarantine}/{name}")
        self._sync_folder(quarantine)
        leftover = [path for one in identities if one not in self._logs and self.fs.size(path := self._storage.folder_of(one)) is not None]
        for path in leftover:
            self._delete_folder(path)
        if leftover:
            self._sync_folder(logs)
        self._catalogue.purge(identities)

    def _delete_folder(self, path: str) -> None:
        for file in self.fs.listdir(path):
            self.fs.unlink(f"{path}/{file}")
        self.fs.rmdir(path)

    # ------------------------------------------------------------------------------------------- its life, and the end

    def registered(self, broker_epoch: int) -> None:
        self._check_open()
        self._broker_epoch = broker_epoch
        let_in = self._life.let_in()
        if let_in != self._life:
            self._on_disk(lambda: self._write_life(let_in))

    def checkpoint(self) -> None:
        self._check_open()
        marks = self.high_watermarks
        logs = [log for identity, log in self._logs.items() if identity in marks or not log.is_fresh]
        flushed = [(log.flushed_end, marks.get(log.identity, -1)) for log in logs]
        entries = [[*log.identity, mark, log.start_offset, end] for log, (end, mark) in zip(logs, flushed, strict=True)]

        def write() -> None:
            named = frozenset(log.identity for log in logs)
            self._checkpointed |= named  # after an error the file may be the old one or the new one
            for log, (end, mark) in zip(logs, flushed, strict=True):
                log.recording(end, mark)
            write_plain(self.fs, self.path, _CHECKPOINT, entries)
            self._checkpointed = named
            for log, (end, mark) in zip(logs, flushed, strict=True):
                log.recorded(end, mark)

        self._on_disk(write)

    def close_unused(self) -> None:
        self._storage.files.close_unused()

    def close(self, *, clean: bool) -> None:
        if self._closed:
            self._lock.release()  # an interrupt may have kept the first call from it
            return
        try:
            try:
                if clean and not self._is_failed and not any(log.is_damaged for log in self._logs.values()):
                    self._leave_clean()
            finally:
                if self._is_failed:
                    self._fail(self._storage.syncs.reason)
        finally:
            self._closed = f"log directory {self.path} is closed"
            try:
                for log in self._logs.values():
                    SegmentedLog.close(log)  # one that is alone is closed with this directory, not the other way round
            finally:  # an interrupt must not leave the folder locked for the rest of the process
                self._lock.release()

    def _leave_clean(self) -> None:
        """Flush everything, then say so."""
        for log in self._logs.values():
            token = log.flush()
            if token is not None:
                log.flushed(token.run())
        self.checkpoint()
        for log in self._logs.values():
            self._on_disk(log.settle)
        saved = [[*identity, log.saved()] for identity, log in self._logs.items() if not log.is_fresh]
        self._on_disk(lambda: write_plain(self.fs, self.path, _CLEAN, [self._broker_epoch, saved]))

    def die_in_child(self) -> None:
        """A forked child must not touch what its parent has open."""
        if not self._closed:
            self._closed = f"log directory {self.path} was opened before a fork and is dead in the child"
            for log in self._logs.values():
                log.die_in_child()
            self._lock.release()

    @property
    def _is_failed(self) -> bool:
        """Whether an fsync has failed, or a file operation for good; also where whoever asked was interrupted as he heard of it."""
        return bool(self._failed or self._storage.syncs.failure)

    def _fail(self, reason: str) -> None:
        """A flush failed: nothing here can be trusted to reach the disk any more, now and after the next open."""
        self._failed = self._failed or reason
        if not self._failure_noted:  # perhaps since an interrupt came between
            for log in self._logs.values():
                log.fail(self._failed)
            # The disk is failing; if not even this can be stored, a power cut will be assumed or found.
            try:
                self._write_life(evolve(self._life, flush_failed=True))
            except OSError:
                with suppress(OSError):  # no note at all says as much, and takes no space
                    self.fs.unlink(f"{self.path}/{_LIFE}")
                    self.fs.fsync_dir(self.path)
            self._failure_noted = True

    def _write_life(self, life: Life) -> None:
        write_plain(self.fs, self.path, _LIFE, life.to_plain())
        self._life = life

    def _on_disk(self, operation: Callable[[], Result]) -> Result:
        """Run a file operation: LogFull if it may work later, else the directory is damaged for good."""
        try:
            return operation()
        except OSError as error:
            if error.errno in PASSING:
                raise LogFull(f"log directory {self.path}: {error}") from error
            self._fail(f"log directory {self.path}: {error}")
            raise LogDamaged(self._failed) from error

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(self._closed)
        if self._is_failed:
            self._fail(self._storage.syncs.reason)
            raise LogDamaged(self._failed)


def _fail(directory: ref[FileLogDirectory], lock: FolderLock, reason: str) -> None:
    """A log of it has failed to flush. The log holds the lock by this: as long as it is used nobody else opens the directory."""
    found = directory()
    if found is not None:
        found._fail(reason)
