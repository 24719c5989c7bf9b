"""What is put aside to be published later: in memory, or in files below the data folder that the next life of it removes."""

from __future__ import annotations

import errno
from contextlib import suppress

from replog.errors import LogCorrupt, LogDamaged, LogFull
from replog.log.checkpoint import write_all
from replog.log.files import Fs
from replog.ports import NO_DESCRIPTORS, Staging

__all__ = ["FileStaging", "MemoryStaging"]


class MemoryStaging(Staging):
    """Gone with its process."""

    def __init__(self) -> None:
        self._stages: dict[int, list[bytes]] = {}

    def put(self, stage: int, body: bytes) -> int:
        pieces = self._stages.setdefault(stage, [])
        pieces.append(bytes(body))
        return len(pieces) - 1

    def read(self, stage: int, number: int) -> bytes:
        pieces = self._stages.get(stage, [])
        if number >= len(pieces):
            raise LogCorrupt(f"piece {number} of stage {stage} is not here")
        return pieces[number]

    def drop(self, stage: int) -> None:
        self._stages.pop(stage, None)


class FileStaging(Staging):
    """A file for each stage, open only while it is used, in a folder that is made with the first one and emptied when the directory is
    opened."""

    def __init__(self, fs: Fs, folder: str) -> None:
        self._fs = fs
        self._folder = folder
        self._pieces: dict[int, list[tuple[int, int]]] = {}
        """Stage -> (position, length) of each piece."""

    def clear(self) -> None:
        """Forget everything, and remove what an earlier life has left; what cannot be removed is in nobody's way."""
        self._pieces.clear()
        with suppress(OSError):
            for name in self._fs.listdir(self._folder):
                self._fs.unlink(f"{self._folder}/{name}")

    def put(self, stage: int, body: bytes) -> int:
        pieces = self._pieces.get(stage, [])
        position = sum(pieces[-1]) if pieces else 0
        try:
            if not pieces:
                self._make_room(stage)
            descriptor = self._fs.open(self._path(stage), create=not pieces)
            try:
                write_all(self._fs, descriptor, body, position)
            finally:
                self._fs.close(descriptor)
        except OSError as error:
            if not pieces:
                self._remove(stage)  # nobody will drop it
            full = error.errno in (errno.ENOSPC, errno.EDQUOT) or error.errno in NO_DESCRIPTORS
            raise (LogFull if full else LogDamaged)(f"{self._path(stage)}: {error}") from error
        pieces.append((position, len(body)))
        self._pieces[stage] = pieces
        return len(pieces) - 1

    def _make_room(self, stage: int) -> None:
        if self._fs.size(self._folder) is None:
            self._fs.mkdir(self._folder)
        elif self._fs.size(self._path(stage)) is not None:  # of an earlier life
            self._fs.unlink(self._path(stage))

    def read(self, stage: int, number: int) -> bytes:
        pieces = self._pieces.get(stage, [])
        if number >= len(pieces):
            raise LogCorrupt(f"{self._path(stage)}: piece {number} is not here")
        position, length = pieces[number]
        try:
            descriptor = self._fs.open(self._path(stage))
            try:
                body = self._fs.pread(descriptor, length, position)
            finally:
                self._fs.close(descriptor)
        except OSError as error:
            raise (LogFull if error.errno in NO_DESCRIPTORS else LogCorrupt)(f"{self._path(stage)}: {error}") from error
        if len(body) != length:
            raise LogCorrupt(f"{self._path(stage)}: {len(body)} of {length} bytes at {position}")
        return body

    def drop(self, stage: int) -> None:
        if self._pieces.pop(stage, None) is not None:
            self._remove(stage)

    def _remove(self, stage: int) -> None:
        with suppress(OSError):
            self._fs.unlink(self._path(stage))

    def _path(self, stage: int) -> str:
        return f"{self._folder}/{stage}"
