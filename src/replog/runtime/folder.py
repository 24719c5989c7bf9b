"""The folder of an embedded cluster: who has it open, what is in it, and what must not be mistaken for a new one.

::

    lock          held (flock) while a Cluster has the folder open
    metadata.db   the metadata store
    broker-1/     the log directory of broker 1, and so on
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import warnings
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from replog.config import BrokerConfig
from replog.errors import LogDamaged, LogFull, StoreCorrupt, UsageError
from replog.log.directory import MADE_BY_SYSTEM, FileLogDirectory
from replog.log.files import OS, Fs
from replog.log.lock import FolderLock
from replog.log.segmented import PASSING
from replog.metadata.file import FileStore
from replog.runtime.descriptors import within_descriptors
from replog.runtime.owner import Owner
from replog.security.private import check_folder

__all__ = ["ClusterFolder", "open_directory"]

_BROKER: Final = re.compile(r"broker-([1-9][0-9]*)")
_log = logging.getLogger("replog")

_LOCK: Final = "lock"
"""Of the folder, and by the same name of the log directory of each broker."""
_STORE: Final = "metadata.db"
_BEGUN: Final = f"{_STORE}.new-"
"""What a store is made as, before it gets its name; with its companions it stays if the process is killed meanwhile."""
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""What says that this path is no place for a directory of this user: nothing in it is damaged, and nobody should wipe or repair it."""


def open_directory(path: str, limits: BrokerConfig, fs: Fs = OS, lock: FolderLock | None = None) -> FileLogDirectory:
    """A log directory, made if it is missing.

    Raises UsageError if it is in use, may not be written, or can be written by others; LogFull or LogDamaged if its disk is full or broken.
    """
    check_folder(path, "the data folder")
    try:
        return FileLogDirectory(path, limits=limits, fs=fs, lock=lock)
    except OSError as problem:
        kind = LogFull if problem.errno in PASSING else UsageError if problem.errno in _FORBIDDEN else LogDamaged
        raise kind(f"{path} cannot be opened: {_why(problem, path)}") from problem


class ClusterFolder:
    """An open folder. `fs_of` says through what each broker reaches its files; tests pass failing disks."""

    def __init__(self, path: Path, count: int, *, fs_of: Callable[[int], Fs] | None = None, own_store: bool = True) -> None:
        """Make the folder if it is missing, and lock it. Raises UsageError or StoreCorrupt naming it; it is then as it was.

        `own_store`: the metadata store is in the folder as well.
        """
        self.path = path
        self._count = count
        self._lock = FolderLock(OS)
        """Let go as well when nobody has this object any more: what was never closed does not lock the folder for good."""
        self._fs_of = fs_of or (lambda broker_id: OS)
        self._locks: dict[int, FolderLock] = {}
        """That of each broker's latest life."""
        self._cluster_id = ""
        """"" until it is known."""
        self._owners: dict[int, Owner] = {}
        """The note of each, of whose folder it is: a mistyped number is heard of before copies are put away that nobody seems to want."""
        check_folder(str(path), "the folder of the cluster")
        try:
            for folder in (*reversed(path.parents), path):  # whoever may change one above could put another in its place
                if folder == path or not folder.exists():
                    folder.mkdir(mode=0o700, exist_ok=True)
            self._look()  # before anything is written
            try:
                self._take(count, own_store=own_store)
            except BaseException:
                self.close()
                raise
        except OSError as problem:
            raise UsageError(f"{path} cannot hold a cluster: {_why(problem, str(path))}") from problem

    def _take(self, count: int, *, own_store: bool) -> None:
        path = self.path
        if not self._lock.take(str(path / _LOCK)):
            raise UsageError(f"{path} is in use: another process, or another Cluster in this one, has it open")
        brokers = self._look()  # until now others may have changed it
        if max(brokers, default=0) > count:
            raise UsageError(f"{path} holds {max(brokers)} brokers; opening it with {count} would leave copies behind")
        store = path / _STORE
        if own_store and brokers and not OS.size(str(store)):  # made before the first broker: a new one would forget every topic
            state = "is missing" if OS.size(str(store)) is None else "is empty"
            raise StoreCorrupt(str(store), f"the metadata store {state}, although {path} has the logs of {len(brokers)} brokers")
        if own_store:
            for broker_id in brokers:
                self._check_stopped(broker_id)
            self._clear()

    def _check_stopped(self, broker_id: int) -> None:
        """Whoever opens the store here ends every session on it: also that of a broker which a process of its own runs in this folder."""
        folder = self.path / f"broker-{broker_id}"
        lock = FolderLock(OS)
        if os.path.lexists(folder / _LOCK) and not lock.take(str(folder / _LOCK)):
            raise UsageError(f"{self.path} is in use: a broker of another process, or of this one, has {folder.name} open")
        lock.release()

    def _look(self) -> list[int]:
        """Ids of the brokers in the folder. UsageError if something else is in it, and no cluster."""
        names = os.listdir(self.path)
        brokers = [int(match.group(1)) for name in names if (match := _BROKER.fullmatch(name))]
        foreign = sorted(name for name in names if name not in (_LOCK, MADE_BY_SYSTEM) and not name.startswith(_BEGUN))
        if foreign and _STORE not in names and not brokers:
            raise UsageError(f"{self.path} is not empty, and holds no cluster: it has {foreign[0]!r} and no {_STORE!r}")
        return brokers

    def _clear(self) -> None:
        """Under the lock nobody else makes a store here."""
        for name in os.listdir(self.path):
            if name.startswith(_BEGUN):
                with suppress(OSError):  # it is in nobody's way
                    os.unlink(self.path / name)

    def open_store(self) -> FileStore:
        """A session on the metadata store. The lock is held: every session that is still recorded has ended."""
        return FileStore(str(self.path / _STORE), private=True)

    def open_directory(self, broker_id: int, limits: BrokerConfig, *, listens: bool) -> FileLogDirectory:
        """The log directory of a broker that has none open, made if it is missing. Raises what `open_directory` raises.

        All brokers share the descriptors of the process; those that are added later take a smaller share.
        """
        fs, before = self._fs_of(broker_id), self._locks.get(broker_id)
        if before is not None:
            before.release()  # an interrupt may have come before anybody had that directory, and what is held still holds it
        lock = self._locks[broker_id] = FolderLock(fs)
        limits = within_descriptors(limits, broker_id, brokers=max(self._count, len(self._locks)), listens=listens)
        path = str(self.path / f"broker-{broker_id}")
        directory = open_directory(path, limits, fs, lock)
        try:
            if fs is OS:
                with suppress(LogFull):  # a full disk keeps no cluster from starting: the next start writes it
                    owner = self._owners[broker_id] = Owner(path, broker_id)
                    owner.joined(self._cluster_id)
        except BaseException:
            directory.close(clean=False)
            raise
        return directory

    def joined(self, cluster_id: str) -> None:
        """Its brokers are registered in this cluster: noted in the folder of each, for whoever goes on with one broker per process."""
        self._cluster_id = cluster_id
        for owner in self._owners.values():
            with suppress(LogFull):
                owner.joined(cluster_id)

    @contextmanager
    def adding(self, broker_id: int, running: Container[int]) -> Iterator[None]:
        """Within it a broker starts that was not there before. If that fails, nor is its folder: the next opening would count it."""
        was_there = os.path.lexists(self.path / f"broker-{broker_id}")
        try:
            yield
        except BaseException:
            if not was_there and broker_id not in running:  # no actor of it has run: it was asked to hold nothing
                self.remove_directory(broker_id)
            raise

    def remove_directory(self, broker_id: int) -> None:
        """Delete the log directory of a broker that is stopped and holds no copy of anything."""
        self._owners.pop(broker_id, None)
        shutil.rmtree(self.path / f"broker-{broker_id}", ignore_errors=True)

    def close(self, lingering: Collection[int] = ()) -> None:
        """Let others have it, when no broker runs any more; not the log directories of those that have not ended. Idempotent."""
        for broker_id, lock in self._locks.items():
            if broker_id not in lingering:
                lock.release()
        if lingering:
            text = "%s is closed, but in use until the disks of brokers %s have ended a flush; of a failure after the process nobody hears"
            _log.warning(text, self.path, sorted(lingering))
        self._lock.release()

    def __del__(self) -> None:
        if getattr(self, "_locks", None) and self._lock.is_held:  # no broker was opened: an interrupt came, and the lock goes by itself
            text = f"a Cluster was dropped with its folder {self.path} open; use `with` or call close()"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)


def _why(problem: OSError, path: str) -> str:
    """What the system says, and of which file if it is another one."""
    said = problem.strerror or str(problem)
    return said if problem.filename in (None, path) else f"{said} ({problem.filename})"
