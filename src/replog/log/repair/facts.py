"""What a data directory says of its logs, as it is read by whoever does not open it: nothing is changed.

What is damaged among the small files is named, and answered as the next start of a broker answers it: without a checkpoint nothing is
known to be flushed, without the note of a clean stop there was none, and without that of its life every log may have lost something.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import define, field, frozen

from replog.errors import LogCorrupt, UsageError
from replog.log import shapes
from replog.log.catalogue import Catalogue
from replog.log.checkpoint import read_file, unpack, unseal
from replog.log.directory import FORMAT
from replog.log.files import Fs
from replog.log.loss import Life
from replog.log.storage import folder_name
from replog.model import PartitionId

__all__ = ["CHECKPOINT", "CLEAN", "LIFE", "Claims", "Facts", "claims_of", "facts_of", "value_of"]

META: Final = "meta"
CHECKPOINT: Final = "checkpoint"
CLEAN: Final = "clean"
LIFE: Final = "life"


@frozen
class Claims:
    """What was stored of all logs together."""

    flushed_ends: dict[PartitionId, int]
    """Everything below was flushed, and must be there; none for a log that nothing is known of."""
    start_offsets: dict[PartitionId, int]
    files_may_go: bool
    """A log may begin later than was noted, at its first file: it may have been trimmed since. After a power cut files may be missing in
    front that were not trimmed, which nobody can tell if the checkpoint is lost as well."""
    left: frozenset[PartitionId]
    """Those that the note of a clean stop describes as they were left: nothing was trimmed since."""
    power: bool
    """The machine has restarted since the directory was last written to, or an fsync has failed: what was not flushed may be anything."""

    def starts_with_files(self, identity: PartitionId) -> bool:
        """Whether a log begins where its files do, whatever was noted. If not, what is missing in front is lost."""
        return self.files_may_go and identity not in self.left


def claims_of(checkpoint: list[Any] | None, clean: list[Any] | None, life: Life, boot_id: str) -> Claims:
    """What the small files claim; None for one that is missing or damaged."""
    flushed = {PartitionId(*entry[:3]): entry[5] for entry in checkpoint or ()}
    starts = {PartitionId(*entry[:3]): entry[4] for entry in checkpoint or ()}
    left = {PartitionId(*entry[:3]): entry[3] for entry in ([] if clean is None else clean[1])}
    for identity, state in left.items():
        starts[identity], flushed[identity] = state[:2]
    power = clean is None and (life.flush_failed or life.boot_id != boot_id)
    return Claims(flushed, starts, not power or checkpoint is None, frozenset(left), power)


def value_of(fs: Fs, path: str, shape: shapes.Shape) -> tuple[Any | None, bool]:
    """The value of a small file (None if it is missing or damaged), and whether it is not damaged. Raises OSError."""
    data = read_file(fs, path)
    payload = None if data is None else unseal(data)
    value = None if payload is None else unpack(payload, shape)
    return value, data is None or value is not None


class _Catalogue(Catalogue):
    """Of a directory that is only read."""

    def _compact(self) -> None:
        pass


@define
class Facts:
    """One directory."""

    directory_id: str
    claims: Claims
    life: Life
    clean: list[Any] | None
    topics: dict[PartitionId, str] = field(factory=dict)
    """Of the logs it has."""
    damaged: list[str] = field(factory=list)
    """Names of small files that are damaged, or hold what belongs elsewhere."""

    @property
    def stopped_cleanly(self) -> bool:
        """Whether its last broker said that it was stopped."""
        return self.clean is not None


def facts_of(fs: Fs, path: str) -> Facts:
    """Read the small files of a directory. Raises UsageError if it is none, or one of a newer format; LogCorrupt if nobody can say which
    logs it has, or whose it is; OSError if the disk does not give a file."""
    damaged: list[str] = []

    def plain(name: str, shape: shapes.Shape) -> Any | None:
        value, intact = value_of(fs, f"{path}/{name}", shape)
        if not intact:
            damaged.append(name)
        return value

    meta = plain(META, shapes.anything)
    if meta is None:
        raise LogCorrupt(f"{path}/{META} is {'damaged' if damaged else 'missing'}: nothing says whose directory this is")
    if not shapes.fits(meta, shapes.META):
        raise UsageError(f"{path} is no log directory: {META!r} is of another kind")
    if meta["format"] > FORMAT:
        raise UsageError(f"{path} has format {meta['format']}; this version of the library reads up to {FORMAT}")
    checkpoint = plain(CHECKPOINT, shapes.CHECKPOINT)
    clean = plain(CLEAN, shapes.CLEAN)
    life = Life.from_plain(plain(LIFE, shapes.LIFE))
    found = Facts(str(meta["directory_id"]), claims_of(checkpoint, clean, life, fs.boot_id()), life, clean, damaged=damaged)
    catalogue = _Catalogue.load(fs, path)
    found.topics = {identity: entry.topic for identity, entry in sorted(catalogue.live.items())}
    known = {folder_name(identity) for identity in (*catalogue.live, *catalogue.quarantined)}
    for name in fs.listdir(f"{path}/logs"):
        if name not in known:
            raise LogCorrupt(f"{path}/logs/{name} is in no catalogue entry: the catalogue is damaged")
    return found
