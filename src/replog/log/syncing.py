"""fsync, and the news that one has failed: the system tells it once, to whoever has asked."""

from __future__ import annotations

import sys
from errno import EIO, ENOENT, errorcode
from typing import Final

from replog.log.files import Fs
from replog.ports import NO_DESCRIPTORS

__all__ = ["Syncs"]

_NOT_TRIED: Final = frozenset({*NO_DESCRIPTORS, ENOENT})
"""A folder could not even be opened for its fsync."""


class Syncs:
    """The fsyncs of one log directory. Any thread may ask for one."""

    __slots__ = ("_fs", "failure")

    def __init__(self, fs: Fs) -> None:
        self._fs = fs
        self.failure = 0
        """The errno that an fsync here has failed with, from that very moment on: where whoever asked for it is interrupted on the way
        (Ctrl-C, a signal handler that raises), whoever asks for the next, and who closes the directory, still finds it. 0: none has."""

    @property
    def reason(self) -> str:
        """The failure in words; empty if there was none."""
        return f"a flush failed: {errorcode.get(self.failure, self.failure)}" if self.failure else ""

    def file(self, fd: int) -> None:
        """fsync of an open file. Raises OSError. One out of a signal handler cannot be told from that of a disk, and counts."""
        try:
            self._fs.fsync(fd)
        except OSError as error:
            self.failure = error.errno or EIO  # no call before this: a signal may come with each
            raise

    def folder(self, path: str) -> None:
        """fsync of a folder: the names in it. Raises OSError. Closing it comes after that, and what a signal handler raises then is raised
        instead: the error is behind it."""
        outer = sys.exception()
        try:
            self._fs.fsync_dir(path)
        except BaseException as raised:
            one: BaseException | None = raised
            while one is not None and one is not outer:
                match one:
                    case OSError(errno=number) if number not in _NOT_TRIED:
                        self.failure = number or EIO
                one = one.__context__
            raise
