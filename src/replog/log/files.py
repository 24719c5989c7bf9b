"""The one door to the operating system: what the log asks of files, time and randomness, as an object that can be replaced.

`OS` is the real one. `replog.testing.disk` has one in memory that can tear, lose, fill up and fail. All paths are
strings, all descriptors ints, all errors OSError. Nothing follows a symbolic link at the end of a path, files are made
0600 and folders 0700, and no descriptor is inherited by another program.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from contextlib import ExitStack, suppress
from typing import Final, Protocol
from weakref import WeakSet

from replog.errors import UsageError

__all__ = ["BUFFERS_MAX", "OS", "DiesInChild", "Fs", "Turns", "check_path", "kill_in_child", "make_folders"]

BUFFERS_MAX: Final = 1024
"""IOV_MAX on Linux: most buffers that one `pwritev` takes."""

_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


_STREAMS_MAX: Final = 2
"""stdin, stdout, stderr: where a program was started with one of them closed, the next file gets its number, and what anybody prints."""


class Turns(Protocol):
    """A lock for `with`, which the thread that holds it may take again."""

    def __enter__(self) -> object: ...
    def __exit__(self, *exc: object) -> object: ...
    def _is_owned(self) -> bool:
        """Whether this thread holds it."""


class Fs:
    """The functions of `os` that the log uses. The busiest are the builtins themselves: no Python frame in between."""

    pwritev = staticmethod(os.pwritev)
    """(descriptor, buffers, position) -> bytes written, which may be fewer than asked."""
    pread = staticmethod(os.pread)
    """(descriptor, count, position) -> bytes, fewer only at the end of the file."""
    preadv = staticmethod(os.preadv)
    """(descriptor, buffers, position) -> bytes read."""
    sendfile = staticmethod(os.sendfile)
    """(socket, descriptor, position, count) -> bytes sent."""
    close = staticmethod(os.close)
    fsync = staticmethod(os.fsync)
    ftruncate = staticmethod(os.ftruncate)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)

    def open(self, path: str, *, create: bool = False) -> int:
        """A descriptor for reading and writing. With `create` the file is made if it is missing; the folder is not synced."""
        fd = os.open(path, _FLAGS | (os.O_CREAT if create else 0), 0o600)
        return fd if fd > _STREAMS_MAX else _above_the_streams(fd)

    def fsync_dir(self, path: str) -> None:
        """Make creations, removals and renames in the folder `path` durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def mkdir(self, path: str) -> None:
        """Make a folder that only the owner may enter; FileExistsError if there is one."""
        os.mkdir(path, 0o700)

    def listdir(self, path: str) -> list[str]:
        """Names in a folder, sorted; FileNotFoundError if there is none."""
        return sorted(os.listdir(path))

    def size(self, path: str) -> int | None:
        """Size of a file in bytes, None if there is nothing at `path`."""
        try:
            return os.stat(path, follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of an open file, or return False at once. A second descriptor of this very process
        is refused as well, which is why this is flock and not lockf."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True

    def boot_id(self) -> str:
        """What changes with every start of the machine: under the same one, the page cache has survived."""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()

    def random_bytes(self, count: int) -> bytes:
        """For identities: of a directory, of a log that stands alone."""
        return os.urandom(count)

    def wall_ms(self) -> int:
        """The wall clock: for the timestamps of records that are appended without one. Decides nothing."""
        return time.time_ns() // 1_000_000

    def turns(self) -> Turns:
        """For what several threads share."""
        return threading.RLock()  # type: ignore[return-value]


def _above_the_streams(fd: int) -> int:
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STREAMS_MAX + 1)
    finally:
        os.close(fd)


OS: Final = Fs()
"""The real one."""


def check_path(path: object, name: str = "path", hint: str = "name a folder") -> str:
    """A path as a str, from the root of the file system: wherever the process goes (`os.chdir`), it stays the same place.

    UsageError if it is no path, is empty, has what no system takes (a NUL, half of a surrogate pair), or is relative and the current folder
    is gone.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise UsageError(f"{name} is {path!r}; {hint}")
    try:
        os.fsencode(text)
        return text if os.path.isabs(text) else os.path.join(os.getcwd(), text)  # no abspath: behind a symbolic link, ".." is elsewhere
    except UnicodeEncodeError:
        raise UsageError(f"{name} is {path!r}; it cannot be written in the encoding of file names") from None
    except FileNotFoundError:
        raise UsageError(f"{name} is {path!r}, and the current folder is gone; name it from the root") from None


def make_folders(fs: Fs, path: str) -> None:
    """Make a folder and those above it that are missing, durably."""
    parent = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    if fs.size(parent) is None:
        make_folders(fs, parent)
    with suppress(FileExistsError):
        fs.mkdir(path)
    fs.fsync_dir(parent)


class DiesInChild(Protocol):
    """Something whose descriptors a forked child must not use."""

    def die_in_child(self) -> None:
        """Close every descriptor and refuse every further call. Runs in the child, right after the fork."""


_living: WeakSet[DiesInChild] = WeakSet()


def kill_in_child(living: DiesInChild) -> None:
    """Have `living.die_in_child` called in every child that is forked from now on."""
    _living.add(living)


def _after_fork() -> None:
    forked = list(_living)
    _living.clear()
    with ExitStack() as each:  # what one of them raises keeps no other alive
        for living in forked:  # one that goes on as something new has itself put down again, for the child's own children
            each.callback(living.die_in_child)


os.register_at_fork(after_in_child=_after_fork)
