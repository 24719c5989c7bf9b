"""A file system in memory that keeps two images of everything: as the processes see it, and as it would be after a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from errno import EBADF, EEXIST, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY

from replog.log.files import Fs
from replog.testing.disk.choices import Choose, keep_none
from replog.testing.disk.images import Change, File, Folder

__all__ = ["MemoryFs"]


class MemoryFs(Fs):
    """A file system in memory, for one process at a time (several objects of it may share it, and lock each other out)."""

    def __init__(self, boots: int = 1) -> None:
        self.root = Folder()
        self._changes: list[Change] = []
        self._open: dict[int, tuple[File, str]] = {}
        self._locks: dict[File, int] = {}
        self._next_fd = 1_000
        self.boots = boots
        """How often the machine has started."""
        self._tokens = 0

    @classmethod
    def holding(cls, files: Mapping[str, bytes], folders: Iterable[str] = (), *, boots: int = 1) -> MemoryFs:
        """A disk with these files and folders (parents are made), all of it durable; the machine has started `boots` times."""
        disk = cls(boots)
        disk.put_back(files, folders)
        return disk

    def put_back(self, files: Mapping[str, bytes], folders: Iterable[str] = ()) -> None:
        """Add these files and folders (parents are made), all of them durable."""
        for path in [*folders, *(path.rpartition("/")[0] for path in files)]:
            node = self.root
            for name in filter(None, path.split("/")):
                child = node.names.setdefault(name, Folder())
                assert isinstance(child, Folder), f"{path} is below a file"
                node.durable[name] = child
                node = child
        for path, data in files.items():
            folder, name = self._place(path)
            folder.names[name] = folder.durable[name] = File(bytearray(data), bytearray(data))

    # ---------------------------------------------------------------------------------------------- how lives end

    def kill(self) -> None:
        """The process dies: descriptors and locks go, everything written stays."""
        self._open.clear()
        self._locks.clear()

    def cut_power(self, choose: Choose = keep_none) -> None:
        """The machine stops: of what was not synced, `choose` decides what is there when it starts again."""
        self.kill()
        self.boots += 1
        for change in self._changes:
            if choose():
                change.apply()
        self._changes.clear()
        self._lose(self.root, choose)

    def _lose(self, folder: Folder, choose: Choose) -> None:
        folder.names = dict(folder.durable)
        for name in sorted(folder.names):
            node = folder.names[name]
            if isinstance(node, Folder):
                self._lose(node, choose)
            else:
                node.lose(choose)

    def content(self, path: str) -> bytearray:
        """The bytes of a file, to be looked at or damaged: changes go to both images."""
        return self._file(path).expose()

    def file_at(self, path: str) -> File:
        """Both images of a file. Raises FileNotFoundError."""
        return self._file(path)

    def pending_names(self) -> list[Change]:
        """The changes of names that no fsync_dir has made durable, in order."""
        return list(self._changes)

    def snapshot(self, folder: str = "") -> dict[str, bytes]:
        """Every file under a folder, as processes see it."""
        return {path: bytes(self._file(path).data) for path in self.paths(folder)}

    def paths(self, folder: str = "") -> list[str]:
        """Every file under a folder, sorted."""
        found: list[str] = []

        def walk(node: Folder, prefix: str) -> None:
            for name in sorted(node.names):
                child = node.names[name]
                if isinstance(child, Folder):
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
        if isinstance(node, Folder):
            raise IsADirectoryError(EISDIR, "is a directory", path)
        if node is None:
            if not create:
                raise FileNotFoundError(ENOENT, "no such file", path)
            node = File()
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
        file.write(position, data)
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
        """As `Fs.fsync`: what was written before it began is durable when it ends."""
        file = self._opened(fd)[0]
        begun = file.written
        self.take_time()
        file.sync(self.reached(begun, file.written))

    def take_time(self) -> None:
        """Called between the beginning and the end of an fsync. Here no time passes."""

    def reached(self, begun: int, ended: int) -> int:
        """Of writes (or changes of names), so many when an fsync began and so many when it ended: how many it has made durable."""
        return begun

    def drop_dirty(self, fd: int) -> None:
        """What a failed fsync leaves: processes go on seeing what was written, it is not durable, and no later fsync makes it so."""
        self._opened(fd)[0].drop()

    def ftruncate(self, fd: int, size: int) -> None:
        """As `Fs.ftruncate`: cached, not durable before an fsync."""
        self._opened(fd)[0].resize(size)

    def path_of(self, fd: int) -> str:
        """What a descriptor was opened as."""
        return self._opened(fd)[1]

    def lock(self, fd: int) -> bool:
        """As `Fs.lock`."""
        file, _ = self._opened(fd)
        return self._locks.setdefault(file, fd) == fd

    # ------------------------------------------------------------------------------------------------- names

    def fsync_dir(self, path: str) -> None:
        """As `Fs.fsync_dir`: what had changed in this folder before it began is durable when it ends."""
        folder = self._folder(path)
        begun = frozenset(self._changes)
        self.take_time()
        early = sum(change in begun for change in self._changes)
        count = self.reached(early, len(self._changes))
        mine: list[Change] = []
        others: list[Change] = []
        places: set[tuple[Folder, str]] = set()
        for change in reversed(self._changes[:count]):
            for place, name, _ in change.effects:
                # What changed a name earlier is durable with what changed it later: it cannot come back and undo that.
                if place is folder or (place, name) in places:
                    places.update((place, name) for place, name, _ in change.effects)
                    mine.append(change)
                    break
            else:
                others.append(change)
        for change in reversed(mine):
            change.apply()
        self._changes = others[::-1] + self._changes[count:]

    def mkdir(self, path: str) -> None:
        """As `Fs.mkdir`."""
        folder, name = self._place(path)
        if name in folder.names:
            raise FileExistsError(EEXIST, "exists", path)
        self._change((folder, name, Folder()))

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        """As `Fs.rename`: one change, though it may touch two folders."""
        (old, old_name), (new, new_name) = self._place(source), self._place(target)
        node = old.names.get(old_name)
        if node is None:
            raise FileNotFoundError(ENOENT, "no such file", source)
        if isinstance(new.names.get(new_name), Folder):
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
        return None if node is None else 0 if isinstance(node, Folder) else len(node.data)

    # ------------------------------------------------------------------------------------------------- the rest

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def random_bytes(self, count: int) -> bytes:
        """A counter: the same in every run."""
        self._tokens += 1
        return self._tokens.to_bytes(count, "big")

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def _change(self, *effects: tuple[Folder, str, File | Folder | None]) -> None:
        for folder, name, node in effects:
            if node is None:
                folder.names.pop(name, None)
            else:
                folder.names[name] = node
        self._changes.append(Change(list(effects)))

    def _find(self, path: str) -> File | Folder | None:
        node: File | Folder | None = self.root
        for name in path.split("/"):
            if name:
                node = node.names.get(name) if isinstance(node, Folder) else None
        return node

    def _folder(self, path: str) -> Folder:
        node = self._find(path)
        if isinstance(node, File):
            raise NotADirectoryError(ENOTDIR, "not a directory", path)
        if node is None:
            raise FileNotFoundError(ENOENT, "no such folder", path)
        return node

    def _file(self, path: str) -> File:
        node = self._find(path)
        if not isinstance(node, File):
            raise FileNotFoundError(ENOENT, "no such file", path)
        return node

    def _place(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    def _opened(self, fd: int) -> tuple[File, str]:
        if fd not in self._open:
            raise OSError(EBADF, f"descriptor {fd} is not open")
        return self._open[fd]
