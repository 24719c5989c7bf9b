"""A layer in front of any file system that sees every operation which changes something, and may prevent it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from replog.log.files import OS, Fs
from replog.testing.disk.choices import CrashedError

__all__ = ["Before", "FaultyFs"]

Before = Callable[[str, str], int | None]
"""(operation, path) -> None to let it happen; raise to prevent it; a number to let only so many bytes be written."""


class FaultyFs(Fs):
    """In front of another `Fs`: `before` sees every operation that changes something, and may prevent it.

    `operations` lists them. With `crash_after` set, the operation after so many raises CrashedError, and so does each
    one that follows: a killed process does nothing more, whatever its `finally` clauses try.
    """

    def __init__(self, inner: Fs = OS, before: Before | None = None, *, crash_after: int | None = None) -> None:
        self.inner = inner
        self.before = before
        self.crash_after = crash_after
        self.operations: list[tuple[str, str]] = []
        self._paths: dict[int, str] = {}

    def _ask(self, operation: str, path: str) -> int | None:
        if self.crash_after is not None and len(self.operations) >= self.crash_after:
            raise CrashedError(f"before {operation} of {path}")
        self.operations.append((operation, path))
        return self.before(operation, path) if self.before is not None else None

    def open(self, path: str, *, create: bool = False) -> int:
        """As `Fs.open`."""
        if create and self.inner.size(path) is None:
            self._ask("create", path)
        fd = self.inner.open(path, create=create)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        """As `Fs.close`."""
        self._paths.pop(fd, None)
        self.inner.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:  # type: ignore[override]
        """As `Fs.pwritev`, after asking."""
        allowed = self._ask("write", self._paths[fd])
        if allowed is None:
            return self.inner.pwritev(fd, buffers, position)
        return self.inner.pwritev(fd, [b"".join(map(bytes, buffers))[:allowed]], position)

    def pread(self, fd: int, count: int, position: int) -> bytes:
        return self.inner.pread(fd, count, position)

    def preadv(self, fd: int, buffers: Sequence[memoryview], position: int) -> int:  # type: ignore[override]
        return self.inner.preadv(fd, buffers, position)

    def sendfile(self, out: int, fd: int, position: int, count: int) -> int:  # type: ignore[override]
        return self.inner.sendfile(out, fd, position, count)

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        """As `Fs.fsync`, after asking."""
        self._ask("fsync", self._paths[fd])
        self.inner.fsync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        """As `Fs.ftruncate`, after asking."""
        self._ask("truncate", self._paths[fd])
        self.inner.ftruncate(fd, size)

    def fsync_dir(self, path: str) -> None:
        """As `Fs.fsync_dir`, after asking."""
        self._ask("fsync_dir", path)
        self.inner.fsync_dir(path)

    def mkdir(self, path: str) -> None:
        """As `Fs.mkdir`, after asking."""
        self._ask("mkdir", path)
        self.inner.mkdir(path)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        """As `Fs.rename`, after asking."""
        self._ask("rename", target)
        self.inner.rename(source, target)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        """As `Fs.unlink`, after asking."""
        self._ask("unlink", path)
        self.inner.unlink(path)

    def rmdir(self, path: str) -> None:  # type: ignore[override]
        """As `Fs.rmdir`, after asking."""
        self._ask("rmdir", path)
        self.inner.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        return self.inner.listdir(path)

    def size(self, path: str) -> int | None:
        return self.inner.size(path)

    def lock(self, fd: int) -> bool:
        return self.inner.lock(fd)

    def boot_id(self) -> str:
        return self.inner.boot_id()

    def random_bytes(self, count: int) -> bytes:
        return self.inner.random_bytes(count)

    def wall_ms(self) -> int:
        return self.inner.wall_ms()
