"""Doing what a plan says, in an order that a crash, a full disk or a failing one may end at any moment.

1. What goes is copied beside, and synced; nothing has changed yet. What differs from what the plan saw ends it here.
2. The note of the directory's life says which logs have lost something: from then on the broker reports it when it starts, and no
   controller takes the replica for complete (KIP-966; the same note that a broker makes when it finds damage by itself).
3. The note of a clean stop no longer speaks of these logs, so that the next start reads them; a marker in each says that nothing behind
   the cut was flushed.
4. The cut: newest segment first, and the damaged one last, so that what is left is one piece at every moment. This takes no space.
5. Damaged small files go.

Until 4 is done the damage is there, and the repair can be asked for again; what it takes then is what is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from attrs import evolve
from crc32c import crc32c

from replog.errors import UsageError
from replog.log import shapes
from replog.log.checkpoint import read_file, write_all, write_plain
from replog.log.files import Fs
from replog.log.loss import Life
from replog.log.repair.facts import CLEAN, LIFE, value_of
from replog.log.repair.planning import PIECE, Cut, LogPlan, Plan, index_of, marker_of
from replog.log.storage import Marker, place_marker

__all__ = ["carry_out"]

_PLAN: Final = "plan.json"
_CHANGED: Final = "has changed since it was looked at; nothing was cut. Look again, without --yes"


def carry_out(fs: Fs, plan: Plan, evidence: str, done: Callable[[int], None] | None = None) -> None:
    """Do what `plan` says. What goes is first copied to the folder `evidence`, which is made; `done` is told of bytes when they were.

    The caller holds the lock of the directory. Raises UsageError if something has changed since the plan was made, or if `evidence` holds
    anything but an earlier try with this plan: nothing was cut then. OSError if the disk does not let it: what was not cut yet is as it
    was, and the repair can be asked for again.
    """
    _check_small(fs, plan)
    _keep(fs, plan, evidence, done or (lambda count: None))
    _check_small(fs, plan)
    _note_losses(fs, plan)
    for one in plan.logs:
        _place_marker(fs, plan.path, one)
    for one in plan.logs:
        _cut(fs, plan.path, one)
    _remove_small(fs, plan)


def _check_small(fs: Fs, plan: Plan) -> None:
    for name in [*plan.small_crcs, *plan.small]:
        data = read_file(fs, f"{plan.path}/{name}")
        if data is None or crc32c(data) != plan.small_crcs[name]:
            raise UsageError(f"{plan.path}/{name} {_CHANGED}")
    for one in plan.logs:
        for cut in one.cuts:
            if fs.size(f"{plan.path}/{cut.file}") != cut.size:
                raise UsageError(f"{plan.path}/{cut.file} {_CHANGED}")


# --------------------------------------------------------------------------------------------------------------- evidence


def _keep(fs: Fs, plan: Plan, evidence: str, done: Callable[[int], None]) -> None:
    """Copy everything that goes, and the plan; durable when this returns. The plan is first: it says whose folder this is."""
    _make(fs, evidence)
    text = json.dumps({"plan": plan.name, "directory": plan.path, **plan.to_plain()}, indent=1).encode()
    _check_evidence(fs, evidence, text)
    _write(fs, f"{evidence}/{_PLAN}", text)
    fs.fsync_dir(evidence)
    _make(fs, f"{evidence}/logs")
    for one in plan.logs:
        folder = f"{evidence}/{one.folder}"
        _make(fs, folder)
        for cut in one.cuts:
            name = cut.file.rpartition("/")[2]
            _copy(fs, plan.path, cut, f"{folder}/{name}" + (f".from-{cut.position}" if cut.position else ""), done)
        if one.marker:
            _write(fs, f"{folder}/marker", read_file(fs, f"{plan.path}/{one.folder}/marker") or b"")
        fs.fsync_dir(folder)
    fs.fsync_dir(f"{evidence}/logs")
    for name in plan.small:
        _write(fs, f"{evidence}/{name}", read_file(fs, f"{plan.path}/{name}") or b"")
    fs.fsync_dir(evidence)
    fs.fsync_dir(evidence.rpartition("/")[0] or "/")


def _check_evidence(fs: Fs, evidence: str, text: bytes) -> None:
    """UsageError for a folder of anything else than an earlier try with the same plan: it would be written over."""
    names = fs.listdir(evidence)
    if names not in ([], [_PLAN]) and read_file(fs, f"{evidence}/{_PLAN}") != text:
        raise UsageError(f"{evidence} holds something else already, and would be written over; nothing was cut. Name a new folder")


def _make(fs: Fs, folder: str) -> None:
    with suppress(FileExistsError):  # of an earlier try with the same plan
        fs.mkdir(folder)


def _write(fs: Fs, path: str, data: bytes) -> None:
    fd = fs.open(path, create=True)
    try:
        fs.ftruncate(fd, 0)
        write_all(fs, fd, data, 0)
        fs.fsync(fd)
    finally:
        fs.close(fd)


def _copy(fs: Fs, path: str, cut: Cut, target: str, done: Callable[[int], None]) -> None:
    """The bytes of one cut; UsageError if they are not those of the plan."""
    source = fs.open(f"{path}/{cut.file}")
    try:
        fd, crc, position = fs.open(target, create=True), 0, cut.position
        try:
            fs.ftruncate(fd, 0)
            while position < cut.size and (piece := fs.pread(source, min(PIECE, cut.size - position), position)):
                write_all(fs, fd, piece, position - cut.position)
                crc, position = crc32c(piece, crc), position + len(piece)
                done(len(piece))
            if (position, crc) != (cut.size, cut.crc):
                raise UsageError(f"{path}/{cut.file} {_CHANGED}")
            fs.fsync(fd)
        finally:
            fs.close(fd)
    finally:
        fs.close(source)


# ---------------------------------------------------------------------------------------------------------------- the notes


def _note_losses(fs: Fs, plan: Plan) -> None:
    """What the next life reports, and which logs it has to read."""
    life = Life.from_plain(value_of(fs, f"{plan.path}/{LIFE}", shapes.LIFE)[0])
    if LIFE in plan.small or any(one.is_lossy for one in plan.logs):  # also what is named already: it is lost anew, whoever reported it
        kind = "corrupt" if plan.lossy else life.kind
        write_plain(fs, plan.path, LIFE, evolve(life, kind=kind, lossy=plan.lossy, since="").to_plain())
    clean = None if CLEAN in plan.small else value_of(fs, f"{plan.path}/{CLEAN}", shapes.CLEAN)[0]
    if clean is not None:
        repaired = {tuple(one.identity) for one in plan.logs}
        kept = [entry for entry in clean[1] if tuple(entry[:3]) not in repaired]
        if len(kept) < len(clean[1]):
            write_plain(fs, plan.path, CLEAN, [clean[0], kept, *clean[2:]])


def _place_marker(fs: Fs, path: str, one: LogPlan) -> None:
    """Nothing behind the end was flushed; where nothing is left, the log begins where it did."""
    folder = f"{path}/{one.folder}"
    if fs.size(folder) is None:
        fs.mkdir(folder)
        fs.fsync_dir(f"{path}/logs")
    marker, _ = marker_of(fs, folder)
    start, recovery_max = (-1, one.end) if marker is None else (marker.start, min(marker.recovery_max, one.end))
    place_marker(fs, folder, Marker(one.start if one.end == one.start else start, recovery_max))
    fs.fsync_dir(folder)


# ------------------------------------------------------------------------------------------------------------------ the cut


def _cut(fs: Fs, path: str, one: LogPlan) -> None:
    folder = f"{path}/{one.folder}"
    for cut in reversed(one.cuts):
        file = f"{path}/{cut.file}"
        if index_of(cut.file) in one.indexes:
            fs.unlink(f"{path}/{index_of(cut.file)}")
        if cut.position:
            fd = fs.open(file)
            try:
                fs.ftruncate(fd, cut.position)
                fs.fsync(fd)
            finally:
                fs.close(fd)
        else:
            fs.unlink(file)
        fs.fsync_dir(folder)


def _remove_small(fs: Fs, plan: Plan) -> None:
    for name in plan.small:
        if name != LIFE:  # written anew
            with suppress(FileNotFoundError):
                fs.unlink(f"{plan.path}/{name}")
    if plan.small:
        fs.fsync_dir(plan.path)
