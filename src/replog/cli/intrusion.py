"""What keeps a command from changing the files of a data directory: somebody else's files, ways out of it, and brokers that use it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from replog.cli.copies import FS
from replog.errors import UsageError
from replog.log.checkpoint import read_plain
from replog.log.files import OS

__all__ = ["check_cuttable", "check_files", "check_is_no_copy", "locked"]

_REMOVED: Final = " (deleted)"
"""What the system says behind the path of an open file that has none any more."""


@contextmanager
def locked(directory: str, *, changes: bool) -> Iterator[None]:
    """Hold the lock that a broker of this directory holds. Raises UsageError if somebody has it, or has one that was removed since.

    A directory without the file was copied without it, or somebody has removed it: that says nothing about who uses the directory. Who
    `changes` something makes the file, as a broker would, and leaves it there: without it a broker could start in the middle. Who only
    looks makes none, and holds none: what a broker that starts meanwhile does to the files is no damage, and is found at the second look.
    """
    for process, path in _open_files():
        if path == f"{directory}/lock{_REMOVED}":
            raise UsageError(f"{directory} is in use by process {process}, although its lock file was removed: stop its broker first")
    try:
        fd = OS.open(f"{directory}/lock", create=changes)
    except FileNotFoundError:
        yield
        return
    try:
        if not OS.lock(fd):
            raise UsageError(f"{directory} is in use: stop its broker first")
        yield
    finally:
        OS.close(fd)


def _open_files() -> Iterator[tuple[str, str]]:
    """(process, path) of what processes of this machine have open, as far as the system shows it to this user."""
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            for number in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    yield process, os.readlink(f"/proc/{process}/fd/{number}")


def check_files(directory: str) -> None:
    """UsageError unless the directory, and all in it that is not in quarantine, belongs to who runs this, and leads nowhere else."""
    user = os.geteuid()
    for path, found in _walk(directory):
        if stat.S_ISLNK(found.st_mode):
            raise UsageError(f"{path} is a symbolic link: no broker makes one here, and what is behind it may be somebody else's")
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{path} is no regular file: no broker makes one here")
        if found.st_uid != user:
            whose = f"{path} belongs to user {found.st_uid}, and this is user {user}"
            raise UsageError(f"{whose}: repair it as its owner, or its broker cannot open it")


def _walk(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    yield directory, os.lstat(directory)
    for top in sorted(os.listdir(directory)):
        path = f"{directory}/{top}"
        found = os.lstat(path)
        yield path, found
        if top == "logs" and stat.S_ISDIR(found.st_mode):
            for log in sorted(os.listdir(path)):
                yield f"{path}/{log}", (inside := os.lstat(f"{path}/{log}"))
                if stat.S_ISDIR(inside.st_mode):
                    for name in sorted(os.listdir(f"{path}/{log}")):
                        yield f"{path}/{log}/{name}", os.lstat(f"{path}/{log}/{name}")


def check_cuttable(files: list[str]) -> None:
    """UsageError if a file has another name as well: what is cut off here would be cut off there."""
    for path in files:
        if (links := os.lstat(path).st_nlink) > 1:
            what = f"{path} has {links} names (hard links): what is cut off here would be cut off there"
            raise UsageError(f"{what}; replace it by a copy first")


def check_is_no_copy(directory: str, directory_id: str) -> None:
    """UsageError if a process of this machine has another directory of the same id open: then this is a copy of that.

    Sees what the system shows to this user. A copy of a directory on another machine is not seen.
    """
    for process, lock in _open_files():
        folder = os.path.dirname(lock)
        if os.path.basename(lock) != "lock":
            continue
        with suppress(OSError):
            if os.path.samefile(folder, directory):
                continue
            meta = read_plain(FS, f"{folder}/meta")
            if isinstance(meta, dict) and meta.get("directory_id") == directory_id:
                original = f"{folder}, which process {process} has open"
                raise UsageError(f"{directory} is a copy of {original}: no broker may serve from a copy")
