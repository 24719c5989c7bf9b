"""Every legal state of a disk after a power cut, from what was and was not synced at one moment.

Independent of each other are: each change of names that its folder was not synced after; and for each file one of its
sizes and, sector by sector, one of the contents since its last fsync. The states are numbered by these choices. Where
they are more than `limit`, they are sampled: nothing kept, everything kept, everything but one, nothing but one, and
then numbers spread evenly over all of them. `CrashStates` says which it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import product
from math import gcd, prod

from attrs import define, field, frozen

from replog.testing.disk.images import Change, Fates, File, Folder
from replog.testing.disk.memory import MemoryFs

__all__ = ["CrashStates", "DiskState", "crash_states"]

_CHANGES_MAX = 14


@frozen
class DiskState:
    """What is on a disk when the machine starts again."""

    files: dict[str, bytes]
    folders: tuple[str, ...]
    boots: int
    """How often the machine has started, this time included."""

    @property
    def fingerprint(self) -> bytes:
        """Equal for equal contents, and as good as never otherwise."""
        seen = blake2b(digest_size=16)
        for folder in self.folders:
            seen.update(f"{folder}/\0".encode())
        for path in sorted(self.files):
            seen.update(f"{path}\0{len(self.files[path])}\0".encode())
            seen.update(self.files[path])
        return seen.digest()

    def disk(self) -> MemoryFs:
        """A disk in this state."""
        return MemoryFs.holding(self.files, self.folders, boots=self.boots)


@define
class _Names:
    """The files and folders that one subset of the changes of names leaves."""

    files: list[tuple[str, File]] = field(factory=list)
    folders: list[str] = field(factory=list)
    radices: list[int] = field(factory=list)
    fates: list[Fates] = field(factory=list)
    total: int = 1
    count: int = 1
    """As `total`, without choices that do not show."""


@define
class CrashStates:
    """The states one can find after a power cut now; iterate to have them, each once."""

    boots: int
    limit: int
    _names: list[_Names]
    possible: int = field(init=False)
    """How many combinations of choices there are, of those that show."""
    _total: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.possible = sum(names.count for names in self._names)
        self._total = sum(names.total for names in self._names)

    @property
    def exhaustive(self) -> bool:
        """Whether all of them are given, or a sample."""
        return self.possible <= self.limit

    def __iter__(self) -> Iterator[DiskState]:
        seen: set[bytes] = set()
        for state in self._all() if self.exhaustive else map(self._state, self._sample()):
            fingerprint = state.fingerprint
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield state

    def _all(self) -> Iterator[DiskState]:
        known: dict[File, list[bytes]] = {}
        for names in self._names:
            for (_, file), fates in zip(names.files, names.fates, strict=True):
                if file not in known:
                    known[file] = fates.outcomes()
            for chosen in product(*(known[file] for _, file in names.files)):
                files = {path: data for (path, _), data in zip(names.files, chosen, strict=True)}
                yield DiskState(files, tuple(names.folders), self.boots)

    def _sample(self) -> Iterator[int]:
        chosen = dict.fromkeys(self._extremes())
        # A step near the golden section that shares no divisor with the total visits every number once, evenly spread.
        step = int(self._total * 0.6180339887498949) | 1
        while gcd(step, self._total) != 1:
            step += 2
        number = 0
        while len(chosen) < min(self.limit, self._total):
            chosen[number] = None
            number = (number + step) % self._total
        yield from list(chosen)[: self.limit]

    def _extremes(self) -> Iterator[int]:
        """For every set of names: nothing kept, everything kept, and one choice different from either."""
        base = 0
        for names in self._names:
            top = names.total - 1
            yield from (base, base + top)
            weight = 1
            for radix in reversed(names.radices):
                yield from (base + weight * (radix - 1), base + top - weight * (radix - 1))
                weight *= radix
            base += names.total

    def _state(self, number: int) -> DiskState:
        for names in self._names:
            if number < names.total:
                break
            number -= names.total
        picks = []
        for radix in reversed(names.radices):
            number, pick = divmod(number, radix)
            picks.append(pick)
        picks.reverse()
        files: dict[str, bytes] = {}
        at = 0
        for (path, _), fates in zip(names.files, names.fates, strict=True):
            count = len(fates.radices)
            files[path] = fates.outcome(picks[at : at + count])
            at += count
        return DiskState(files, tuple(names.folders), self.boots)


def crash_states(fs: MemoryFs, *, limit: int = 1 << 14) -> CrashStates:
    """What a power cut could leave of this disk now. The disk itself is not changed; `limit` bounds how many states are given."""
    changes = fs.pending_names()
    assert len(changes) <= _CHANGES_MAX, f"{len(changes)} changes of names at once have too many subsets: sync a folder in between"
    known: dict[File, Fates] = {}
    found: dict[tuple[tuple[str, File | None], ...], _Names] = {}
    for kept in range(1 << len(changes)):
        names = _tree(fs, [change for bit, change in enumerate(changes) if kept >> bit & 1])
        for _, file in names.files:
            if file not in known:
                known[file] = file.fates()
            names.fates.append(known[file])
            names.radices += known[file].radices
        names.total = prod(names.radices)
        names.count = prod(fates.count for fates in names.fates)
        key = (*names.files, *((folder, None) for folder in names.folders))
        found.setdefault(key, names)
    return CrashStates(fs.boots + 1, limit, list(found.values()))


def _tree(fs: MemoryFs, kept: list[Change]) -> _Names:
    """The durable names, with these changes."""
    changed: dict[Folder, dict[str, File | Folder | None]] = {}
    for change in kept:
        for folder, name, node in change.effects:
            changed.setdefault(folder, {})[name] = node
    names = _Names()

    def walk(folder: Folder, prefix: str) -> None:
        present = {**folder.durable, **changed.get(folder, {})}
        for name in sorted(present):
            node = present[name]
            if isinstance(node, File):
                names.files.append((f"{prefix}{name}", node))
            elif node is not None:
                names.folders.append(f"{prefix}{name}")
                walk(node, f"{prefix}{name}/")

    walk(fs.root, "")
    return names
