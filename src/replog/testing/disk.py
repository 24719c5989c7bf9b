"""Disks that misbehave: one in memory that loses what was not synced, and a layer that counts, fails and stops any disk.

`MemoryFs` keeps two images of everything: as the processes see it, and as it would be after a power cut. `kill` ends the
processes (the page cache survives), `cut_power` ends everything: of what was not synced, any part may be there
afterwards, sector by sector and name by name, as a `choose` function decides.

`FaultyFs` stands in front of any `Fs` and asks a function before each operation that changes something.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from errno import EBADF, EEXIST, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY

from attrs import define, field

from replog.log.files import OS, Fs

__all__ = ["CrashedError", "FaultyFs", "MemoryFs", "keep_all", "keep_none", "some"]

SECTOR = 512

Choose = Callable[[], bool]
"""Asked once for everything that may or may not have reached the disk."""


def keep_all() -> bool:
    """Everything reached the disk in time."""
    return True


def keep_none() -> bool:
    """Only what was synced reached the disk."""
    return False


def some(seed: int) -> Choose:
    """Whatever the seed says reached the disk."""
    toss = random.Random(seed)
    return lambda: toss.random() < 0.5


class CrashedError(BaseException):
    """The simulated process was killed in the middle of a file operation. Nothing catches it by accident."""


@define(eq=False)
class _File:
    data: bytearray = field(factory=bytearray)
    durable: bytearray = field(factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(factory=list)
    """(position, bytes written) or (new size, None), since the last fsync."""

    def sync(self) -> None:
        self.durable = bytearray(self.data)
        self.pending.clear()

    def lose(self, choose: Choose) -> None:
        """Keep any part of what was not synced: sectors, and sizes, in any order."""
        for position, data in self.pending:
            if data is None:
                if choose():
                    _resize(self.durable, position)
                continue
            for at in range(0, len(data), SECTOR):
                if choose():
                    _put(self.durable, position + at, data[at : at + SECTOR])
        self.data = bytearray(self.durable)
        self.pending.clear()


@define(eq=False)
class _Folder:
    names: dict[str, _File | _Folder] = field(factory=dict)
    durable: dict[str, _File | _Folder] = field(factory=dict)


@define(eq=False)
class _Change:
    """One change of names, atomic even if it touches two folders."""

    effects: list[tuple[_Folder, str, _File | _Folder | None]]

    def apply(self) -> None:
        for folder, name, node in self.effects:
            if node is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = node


def _put(data: bytearray, position: int, new: bytes) -> None:
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(new)] = new


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


class MemoryFs(Fs):
    """A file system in memory, for one process at a time (several objects of it may share it, and lock each other out)."""

    def __init__(self) -> None:
        self.root = _Folder()
        self._changes: list[_Change] = []
        self._open: dict[int, tuple[_File, str]] = {}
        self._locks: dict[_File, int] = {}
        self._next_fd = 1_000
        self._boots = 1
        self._tokens = 0

    # ---------------------------------------------------------------------------------------------- how lives end

    def kill(self) -> None:
        """The process dies: descriptors and locks go, everything written stays."""
        self._open.clear()
        self._locks.clear()

    def cut_power(self, choose: Choose = keep_none) -> None:
        """The machine stops: of what was not synced, `choose` decides what is there when it starts again."""
        self.kill()
        self._boots += 1
        for change in self._changes:
            if choose():
                change.apply()
        self._changes.clear()
        self._lose(self.root, choose)

    def _lose(self, folder: _Folder, choose: Choose) -> None:
        folder.names = dict(folder.durable)
        for name in sorted(folder.names):
            node = folder.names[name]
            if isinstance(node, _Folder):
                self._lose(node, choose)
            else:
                node.lose(choose)

    def content(self, path: str) -> bytearray:
        """The bytes of a file, to be looked at or damaged: changes go to both images."""
        file = self._file(path)
        file.sync()
        file.durable = file.data
        return file.data

    def paths(self, folder: str = "") -> list[str]:
        """Every file under a folder, sorted."""
        found: list[str] = []

        def walk(node: _Folder, prefix: str) -> None:
            for name in sorted(node.names):
                child = node.names[name]
                if isinstance(child, _Folder):
                    walk(child, f"{prefix}{name}/")
                else:
                    found.append(f"{prefix}{name}")

        walk(self.root, "")
        return [path for path in found if path.startswith(folder.lstrip("/"))]

    # ------------------------------------------------------------------------------------------------- files

    def open(self, path: str, *, create: bool = False) -> int:
        """As `Fs.open`."""
        folder, name = self._place(path)
        node = folder.names.get(name)
        if isinstance(node, _Folder):
            raise IsADirectoryError(EISDIR, "is a directory", path)
        if node is None:
            if not create:
                raise FileNotFoundError(ENOENT, "no such file", path)
            node = _File()
            self._change((folder, name, node))
        self._next_fd += 1
        self._open[self._next_fd] = (node, path)
        return self._next_fd

    def close(self, fd: int) -> None:
        """As `Fs.close`."""
        file, _ = self._opened(fd)
        del self._open[fd]
        if self._locks.get(file) == fd:
            del self._locks[file]

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:  # type: ignore[override]
        """As `Fs.pwritev`: cached, not durable before an fsync."""
        file, _ = self._opened(fd)
        data = b"".join(map(bytes, buffers))
        _put(file.data, position, data)
        file.pending.append((position, data))
        return len(data)

    def pread(self, fd: int, count: int, position: int) -> bytes:
        return bytes(self._opened(fd)[0].data[position : position + count])

    def preadv(self, fd: int, buffers: Sequence[memoryview], position: int) -> int:  # type: ignore[override]
        """As `Fs.preadv`."""
        data = self._opened(fd)[0].data
        total = 0
        for buffer in buffers:
            part = data[position + total : position + total + len(buffer)]
            buffer[: len(part)] = part
            total += len(part)
        return total

    def sendfile(self, out: int, fd: int, position: int, count: int) -> int:  # type: ignore[override]
        return os.write(out, self.pread(fd, count, position))

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self._opened(fd)[0].sync()

    def ftruncate(self, fd: int, size: int) -> None:
        """As `Fs.ftruncate`: cached, not durable before an fsync."""
        file, _ = self._opened(fd)
        if size != len(file.data):
            _resize(file.data, size)
            file.pending.append((size, None))

    def path_of(self, fd: int) -> str:
        """What a descriptor was opened as."""
        return self._opened(fd)[1]

    def lock(self, fd: int) -> bool:
        """As `Fs.lock`."""
        file, _ = self._opened(fd)
        return self._locks.setdefault(file, fd) == fd

    # ------------------------------------------------------------------------------------------------- names

    def fsync_dir(self, path: str) -> None:
        """As `Fs.fsync_dir`: what changed in this folder is durable."""
        folder = self._folder(path)
        mine = [change for change in self._changes if any(place is folder for place, _, _ in change.effects)]
        for change in mine:
            change.apply()
            self._changes.remove(change)

    def mkdir(self, path: str) -> None:
        """As `Fs.mkdir`."""
        folder, name = self._place(path)
        if name in folder.names:
            raise FileExistsError(EEXIST, "exists", path)
        self._change((folder, name, _Folder()))

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        """As `Fs.rename`: one change, though it may touch two folders."""
        (old, old_name), (new, new_name) = self._place(source), self._place(target)
        node = old.names.get(old_name)
        if node is None:
            raise FileNotFoundError(ENOENT, "no such file", source)
        if isinstance(new.names.get(new_name), _Folder):
            raise OSError(ENOTEMPTY, "target exists", target)
        self._change((old, old_name, None), (new, new_name, node))

    def unlink(self, path: str) -> None:  # type: ignore[override]
        """As `Fs.unlink`."""
        self._file(path)
        self._change((*self._place(path), None))

    def rmdir(self, path: str) -> None:  # type: ignore[override]
        """As `Fs.rmdir`."""
        if self._folder(path).names:
            raise OSError(ENOTEMPTY, "not empty", path)
        self._change((*self._place(path), None))

    def listdir(self, path: str) -> list[str]:
        return sorted(self._folder(path).names)

    def size(self, path: str) -> int | None:
        """As `Fs.size`."""
        node = self._find(path)
        return None if node is None else 0 if isinstance(node, _Folder) else len(node.data)

    # ------------------------------------------------------------------------------------------------- the rest

    def boot_id(self) -> str:
        return f"boot {self._boots}"

    def random_bytes(self, count: int) -> bytes:
        """A counter: the same in every run."""
        self._tokens += 1
        return self._tokens.to_bytes(count, "big")

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def _change(self, *effects: tuple[_Folder, str, _File | _Folder | None]) -> None:
        for folder, name, node in effects:
            if node is None:
                folder.names.pop(name, None)
            else:
                folder.names[name] = node
        self._changes.append(_Change(list(effects)))

    def _find(self, path: str) -> _File | _Folder | None:
        node: _File | _Folder | None = self.root
        for name in path.split("/"):
            if name:
                node = node.names.get(name) if isinstance(node, _Folder) else None
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._find(path)
        if isinstance(node, _File):
            raise NotADirectoryError(ENOTDIR, "not a directory", path)
        if node is None:
            raise FileNotFoundError(ENOENT, "no such folder", path)
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if not isinstance(node, _File):
            raise FileNotFoundError(ENOENT, "no such file", path)
        return node

    def _place(self, path: str) -> tuple[_Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    def _opened(self, fd: int) -> tuple[_File, str]:
        if fd not in self._open:
            raise OSError(EBADF, f"descriptor {fd} is not open")
        return self._open[fd]


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
