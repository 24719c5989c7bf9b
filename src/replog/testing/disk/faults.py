"""A disk whose faults are armed and disarmed by whoever plays fate, and happen as a `random.Random` says.

    disk = SimulatedDisk(random.Random("7 disk 2"))
    disk.arm("write_error", paths=".log", times=1)     the next write to a segment fails with EIO
    disk.arm("no_space", space=300)                    300 more bytes fit: the write that needs more is a short one
    disk.disarm("no_space")                            space is back
    disk.flip(".log", whole=True)                      one bit of a stored byte turns over
    disk.cut_power()                                   as chance has it, for all that was not synced

A *window* of time is an `arm` and a later `disarm`; the *n-th call* is `after=n - 1, times=1`. All that happened is
counted in `injected`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from errno import EIO, ENOSPC, EROFS
from typing import Final, Literal, get_args

from attrs import define

from replog.testing.disk.choices import Choose
from replog.testing.disk.memory import MemoryFs

__all__ = ["Damage", "Fault", "FaultKind", "SimulatedDisk"]

FaultKind = Literal[
    "read_error",  # EIO on reading
    "write_error",  # EIO on writing, truncating, and changing names
    "fsync_error",  # EIO on fsync, which also drops what it should have made durable
    "no_space",  # ENOSPC on what takes space, after a short write if a part still fits
    "read_only",  # EROFS on everything that changes something
    "short_write",  # only a part is written, and no error said
    "misdirected_write",  # it lands at another place, or in another file, and no error said
    "stale_write",  # nothing is written at all, and no error said
    "lying_fsync",  # nothing becomes durable, and no error said: the negative control
]
_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

Paths = str | Callable[[str], bool]
"""Which files: those whose path contains a text, or for which a function says so."""


@define
class Fault:
    """An armed fault."""

    kind: FaultKind
    paths: Paths = ""
    probability: float = 1.0
    after: int = 0
    """So many calls that it would meet are let go by first."""
    times: int | None = None
    """It happens so often, then no more; None: until it is disarmed."""
    space: int = 0
    """For `no_space`: bytes that still fit."""

    def concerns(self, path: str) -> bool:
        """Whether this file is meant."""
        return self.paths in path if isinstance(self.paths, str) else self.paths(path)


_REACHES_ON: Final = 0.3
"""Share of fsyncs that make durable what was written after they began, or some of it."""


@define(frozen=True)
class Damage:
    """One stored byte that has changed without anyone writing it."""

    path: str
    position: int
    bit: int


class SimulatedDisk(MemoryFs):
    """A `MemoryFs` with faults. Same `chance`, same calls: the same faults."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.injected: dict[str, int] = {}
        """How often each kind of fault has happened, bit flips and power cuts included."""
        self._armed: dict[FaultKind, Fault] = {}

    # ------------------------------------------------------------------------------------------------ arming, damaging

    def arm(
        self,
        kind: FaultKind,
        *,
        paths: Paths = "",
        probability: float = 1.0,
        after: int = 0,
        times: int | None = None,
        space: int = 0,
    ) -> None:
        """From now on this happens; an earlier fault of the same kind is replaced."""
        assert kind in _KINDS, f"{kind!r} is none of {_KINDS}"
        self._armed[kind] = Fault(kind, paths, probability, after, times, space)

    def disarm(self, kind: FaultKind | None = None) -> None:
        """This happens no more; None: nothing does."""
        if kind is None:
            self._armed.clear()
        else:
            self._armed.pop(kind, None)

    @property
    def armed(self) -> tuple[FaultKind, ...]:
        """What can happen now."""
        return tuple(self._armed)

    def flip(self, paths: Paths = ".log", *, whole: bool | None = None, region: tuple[float, float] = (0.0, 1.0)) -> Damage | None:
        """Turn over one bit of a stored byte, in the cache as on the disk; None if no file qualifies.

        `whole`: only in a segment that is complete (True), or that still grows (False). `region`: which part of the file,
        as fractions of its length.
        """
        wanted = Fault("stale_write", paths)
        files = [path for path in self.paths() if wanted.concerns(path) and self._file(path).data]
        if whole is not None:
            files = [path for path in files if path.endswith(".log") and self._is_whole(path) == whole]
        if not files:
            return None
        path = self.chance.choice(files)
        file = self._file(path)
        first, stop = (int(part * len(file.data)) for part in region)
        damage = Damage(path, self.chance.randrange(first, max(stop, first + 1)), self.chance.randrange(8))
        for image in (file.data,) if file.durable is file.data else (file.data, file.durable):
            if damage.position < len(image):
                image[damage.position] ^= 1 << damage.bit
        self._count("bit_flip")
        return damage

    def _is_whole(self, path: str) -> bool:
        folder = path.rpartition("/")[0]
        return any(other > path for other in self.paths(folder + "/") if other.endswith(".log"))

    def cut_power(self, choose: Choose | None = None) -> None:
        """As `MemoryFs.cut_power`; by default chance decides what of the unsynced is left."""
        self._count("power_cut")
        super().cut_power(choose or (lambda: self.chance.random() < 0.5))

    # ----------------------------------------------------------------------------------------------------- what happens

    def _happens(self, kind: FaultKind, path: str) -> Fault | None:
        fault = self._armed.get(kind)
        if fault is None or fault.times == 0 or not fault.concerns(path):
            return None
        if fault.after > 0:
            fault.after -= 1
            return None
        if fault.probability < 1.0 and self.chance.random() >= fault.probability:
            return None
        if fault.times is not None:
            fault.times -= 1
        return fault

    def _count(self, kind: str) -> None:
        self.injected[kind] = self.injected.get(kind, 0) + 1

    def _fail_if(self, kind: FaultKind, code: int, path: str) -> None:
        if self._happens(kind, path) is not None:
            self._count(kind)
            raise OSError(code, os.strerror(code), path)

    def _may_change(self, path: str, *, grows: bool = False) -> None:
        """What changes names or sizes can fail in these ways."""
        self._fail_if("read_only", EROFS, path)
        self._fail_if("write_error", EIO, path)
        fault = self._armed.get("no_space")
        if grows and fault is not None and fault.space <= 0:
            self._fail_if("no_space", ENOSPC, path)

    def open(self, path: str, *, create: bool = False) -> int:
        """As `Fs.open`."""
        if create and self.size(path) is None:
            self._may_change(path, grows=True)
        return super().open(path, create=create)

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:  # type: ignore[override]
        """As `Fs.pwritev`, or one of the faults of writing."""
        path = self.path_of(fd)
        self._fail_if("read_only", EROFS, path)
        self._fail_if("write_error", EIO, path)
        data = b"".join(map(bytes, buffers))
        allowed = self._room_for(path, len(data))
        if allowed == len(data) > 1 and self._happens("short_write", path):
            self._count("short_write")
            allowed = self.chance.randrange(1, len(data))
        data = data[:allowed]
        if self._happens("stale_write", path):
            self._count("stale_write")
            return len(data)
        if self._happens("misdirected_write", path) and self._misdirect(path, data, position):
            return len(data)
        return super().pwritev(fd, [data], position)

    def _room_for(self, path: str, length: int) -> int:
        """How much of a write fits. Raises ENOSPC if nothing does."""
        fault = self._armed.get("no_space")
        if fault is None or not fault.concerns(path):
            return length
        if fault.space >= length:
            fault.space -= length
            return length
        if fault.space <= 0:
            self._fail_if("no_space", ENOSPC, path)
            return length
        fits, fault.space = fault.space, 0
        self._count("short_write")
        return fits

    def _misdirect(self, path: str, data: bytes, position: int) -> bool:
        """Write elsewhere: at another place of this file, or at this place of another one like it. False if there is no other place."""
        suffix = path.rpartition(".")[2]
        others = [f"/{other}" for other in self.paths() if other.endswith(suffix) and f"/{other}" != "/" + path.lstrip("/")]
        if others and self.chance.random() < 0.5:
            self._file(self.chance.choice(others)).write(position, data)
        elif position:
            self._file(path).write(self.chance.randrange(position), data)
        else:
            return False
        self._count("misdirected_write")
        return True

    def pread(self, fd: int, count: int, position: int) -> bytes:
        """As `Fs.pread`, or an error."""
        self._fail_if("read_error", EIO, self.path_of(fd))
        return super().pread(fd, count, position)

    def preadv(self, fd: int, buffers: Sequence[memoryview], position: int) -> int:  # type: ignore[override]
        """As `Fs.preadv`, or an error."""
        self._fail_if("read_error", EIO, self.path_of(fd))
        return super().preadv(fd, buffers, position)

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        """As `Fs.fsync`; or an error, and what was to become durable never will; or a lie."""
        path = self.path_of(fd)
        if self._happens("fsync_error", path) is not None:
            self._count("fsync_error")
            self.take_time()
            self.drop_dirty(fd)
            raise OSError(EIO, os.strerror(EIO), path)
        if self._happens("lying_fsync", path):
            self._count("lying_fsync")
            return
        super().fsync(fd)

    def reached(self, begun: int, ended: int) -> int:
        """As `MemoryFs.reached`: by chance, not mostly, also some of what came in between."""
        return begun if begun == ended or self.chance.random() >= _REACHES_ON else self.chance.randint(begun, ended)

    def fsync_dir(self, path: str) -> None:
        """As `Fs.fsync_dir`; or an error, or a lie."""
        self._fail_if("fsync_error", EIO, path)
        if self._happens("lying_fsync", path):
            self._count("lying_fsync")
            return
        super().fsync_dir(path)

    def ftruncate(self, fd: int, size: int) -> None:
        """As `Fs.ftruncate`, or an error."""
        self._may_change(self.path_of(fd))
        super().ftruncate(fd, size)

    def mkdir(self, path: str) -> None:
        """As `Fs.mkdir`, or an error."""
        self._may_change(path, grows=True)
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        """As `Fs.rename`, or an error."""
        self._may_change(target)
        super().rename(source, target)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        """As `Fs.unlink`, or an error."""
        self._may_change(path)
        super().unlink(path)

    def rmdir(self, path: str) -> None:  # type: ignore[override]
        """As `Fs.rmdir`, or an error."""
        self._may_change(path)
        super().rmdir(path)
