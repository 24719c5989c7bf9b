"""`replog log dump|verify` of what a repair has cut off: files, and ends of files, each for itself.

They are no log: something is missing in front of them, and between them there may be damage. So nothing is said of them but what is in each
one, and whether it is intact. Positions count from the beginning of a file here; its name says where that was in the segment.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from attrs import define, field, frozen

from replog.cli.context import Context
from replog.cli.copies import FS, Damage, Unread
from replog.cli.damages import plain_damage, plain_unread, tell, tell_all
from replog.cli.exits import BAD, OK
from replog.cli.progress import shown_progress
from replog.cli.segments import dump_file
from replog.cli.spoken import nearest
from replog.errors import UsageError
from replog.log.checkpoint import read_file
from replog.log.scan import next_header
from replog.log.segment import segment_base
from replog.model import PartitionId
from replog.records import BadBatch, RecordBatch

__all__ = ["Evidence", "dump_evidence", "evidence_in", "verify_evidence"]

_PIECE: Final = re.compile(r"([0-9]{20}\.log)\.from-([0-9]+)")
"""The end of a segment, from a position on (`replog.log.repair.cutting`)."""
_INTERRUPTED: Final = "it is empty: a repair was interrupted while it copied"
_PLAN: Final = "plan.json"


@frozen
class Kept:
    """One file."""

    path: str
    topic: str
    """"" where no plan says it."""
    log: str
    """As people call it, or as its folder is called."""


@frozen
class Evidence:
    """What lies in a folder of it, or in that of one log."""

    folder: str
    files: tuple[Kept, ...]


@define
class _Found:
    """What is in one file."""

    kept: Kept
    size: int = 0
    batches: int = 0
    records: int = 0
    offsets: list[list[int]] = field(factory=list)
    """Of intact batches, in the order of the file: from (inclusive) and to (exclusive)."""
    damages: list[Damage] = field(factory=list)


# ------------------------------------------------------------------------------------------------------------- finding


def evidence_in(folder: str, topic: str | None) -> Evidence | None:
    """What a repair has kept in a folder, of one topic or of all; None if no repair has made it. UsageError if none of it is of `topic`."""
    try:
        names = FS.listdir(folder)
    except OSError:
        return None
    if "meta" in names or "catalogue" in names:
        return None
    path = folder.rstrip("/") or "/"
    above, logs = os.path.split(os.path.dirname(os.path.abspath(path)))
    if logs == "logs" and FS.size(f"{above}/meta") is not None:  # a log of a broker, whatever somebody has put beside it
        return None
    plan = _topics(above) if logs == "logs" else None
    if plan is not None or _has_pieces(names):
        files = _files(path, names, plan or {})
    elif "logs" in names:
        there = {log: _names(log) for log in (f"{path}/logs/{name}" for name in sorted(FS.listdir(f"{path}/logs")))}
        plan = _topics(path)
        if plan is None and not any(inside is not None and _has_pieces(inside) for inside in there.values()):
            return None
        files = [one for log, inside in there.items() for one in _files(log, inside, plan or {})]
    else:
        return None
    chosen = tuple(one for one in files if topic in (None, one.topic))
    if topic is not None and not chosen:
        known = sorted({one.topic for one in files if one.topic})
        named = ", ".join(known) or "none with a name"
        raise UsageError(f"no log of topic {topic!r} in {folder}; there are {named}{nearest(topic, known)}")
    return Evidence(path, chosen)


def _names(folder: str) -> list[str] | None:
    """What is in it; None if the disk does not say."""
    try:
        return FS.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None


def _has_pieces(names: list[str]) -> bool:
    return any(_PIECE.fullmatch(name) for name in names)


def _topics(folder: str) -> dict[str, str] | None:
    """Name of a log's folder -> topic, as the plan of a repair says; None if there is no such plan."""
    with suppress(OSError, ValueError, RecursionError):
        plan = json.loads(read_file(FS, f"{folder}/{_PLAN}") or b"")
        if isinstance(plan, dict) and isinstance(plan.get("logs"), list) and {"plan", "directory"} <= plan.keys():
            pairs = [(one.get("folder"), one.get("log")) for one in plan["logs"] if isinstance(one, dict)]
            named = [(where, log) for where, log in pairs if isinstance(where, str) and isinstance(log, str)]
            return {where.rpartition("/")[2]: log.rpartition("-")[0] for where, log in named}
    return None


def _files(folder: str, names: list[str] | None, topics: dict[str, str]) -> list[Kept]:
    """Those of one log, in the order of their offsets; the folder itself, which tells why it cannot be read, if that is so."""
    identity = os.path.basename(os.path.abspath(folder))
    topic, partition = topics.get(identity, ""), identity.split("-")[1:2]
    log = f"{topic}-{''.join(partition)}" if topic else identity
    if names is None:
        return [Kept(folder, topic, log)]
    kept = sorted((name for name in names if segment_base(name) is not None or _PIECE.fullmatch(name)), key=_place)
    return [Kept(f"{folder}/{name}", topic, log) for name in kept]


def _place(name: str) -> tuple[str, int]:
    """The segment, and where in it a piece of it begins."""
    segment, _, position = name.partition(".from-")
    return segment, int(position or 0)


# ------------------------------------------------------------------------------------------------------------- showing


def dump_evidence(context: Context, evidence: Evidence) -> int:
    """Each file as `dump` shows one that it is given alone. Status 1 if anything is damaged, or cannot be read."""
    status = OK
    for one in evidence.files:
        wrong: Damage | Unread | None = None
        try:
            if not FS.size(one.path) and segment_base(os.path.basename(one.path)) is None:
                wrong = Damage(one.path, 0, _INTERRUPTED)
            else:
                status = max(status, dump_file(context, one.path, one.topic))
        except BadBatch as none:
            wrong = Damage(one.path, 0, str(none))
        except (OSError, UsageError) as problem:
            wrong = _unread(one, problem)
        if wrong is not None:
            tell(context.output, wrong)
            status = BAD
    if not evidence.files and not context.output.is_json:
        _sum_up(context, evidence, [], [])
    return status


def _unread(one: Kept, problem: OSError | UsageError) -> Unread:
    """Also a batch that a newer version has made: nobody knows whether that is intact."""
    said = problem.strerror if isinstance(problem, OSError) else None
    return Unread(one.path, said or str(problem).removeprefix(f"{one.path} "))


# ------------------------------------------------------------------------------------------------------------ verifying


def verify_evidence(context: Context, evidence: Evidence) -> int:
    """What is in each file, and which places of it are no intact batch. Status 1 if there are any, or if a file cannot be read."""
    output = context.output
    found: list[_Found] = []
    unread: list[Unread] = []
    with shown_progress(output, lambda: sum(FS.size(one.path) or 0 for one in evidence.files)) as read:
        for one in evidence.files:
            try:
                found.append(_look(one, read))
            except OSError as problem:
                unread.append(_unread(one, problem))
    damages = [damage for one in found for damage in one.damages]
    if output.is_json:
        output.json({
            "intact": not damages and not unread,
            "logs": [],
            "evidence": [_plain(one) for one in found],
            "damages": [plain_damage(damage) for damage in damages],
            "unreadable": [plain_unread(one) for one in unread],
        })
    else:
        if found:
            head = ("log", "file", "bytes", "intact batches", "records", "offsets")
            output.table(head, [(*_named(one), output.units.size(one.size), one.batches, one.records, _span(one)) for one in found])
        tell_all(output, [*damages, *unread])
        _sum_up(context, evidence, found, unread)
    return BAD if damages or unread else OK


def _look(one: Kept, read: Callable[[int], None] | None) -> _Found:
    """Every byte of a file."""
    found = _Found(one)
    fd = FS.open(one.path)
    try:
        found.size = os.fstat(fd).st_size
        _walk(found, fd)
    finally:
        FS.close(fd)
    if read is not None:
        read(found.size)
    return found


def _walk(found: _Found, fd: int) -> None:
    path, told, position = found.kept.path, 0, 0
    identity: PartitionId | None = None
    while (there := next_header(FS, fd, position)) is not None:
        position, header = there
        identity = identity or header.identity
        if header.identity != identity:  # it lies in a record of a damaged batch
            position += 1
            continue
        try:
            RecordBatch.parse(FS.pread(fd, header.length, position))
        except BadBatch:
            position += 1
            continue
        if told < position:
            found.damages.append(Damage(path, told, f"no intact batch in {position - told} bytes"))
        found.batches += 1
        found.records += header.count
        if found.offsets and found.offsets[-1][1] == header.base_offset:
            found.offsets[-1][1] = header.end_offset
        else:
            found.offsets.append([header.base_offset, header.end_offset])
        told = position = position + header.length
    if told < found.size:
        found.damages.append(Damage(path, told, f"no intact batch in {found.size - told} bytes"))
    if not found.size and segment_base(os.path.basename(path)) is None:
        found.damages.append(Damage(path, 0, _INTERRUPTED))


def _named(one: _Found) -> tuple[str, str]:
    return one.kept.log, os.path.basename(one.kept.path)


def _span(one: _Found) -> str | None:
    """The first and the last."""
    return f"{min(first for first, _ in one.offsets)}-{max(stop for _, stop in one.offsets) - 1}" if one.offsets else None


def _sum_up(context: Context, evidence: Evidence, found: list[_Found], unread: list[Unread]) -> None:
    damages, records = sum(len(one.damages) for one in found), sum(one.records for one in found)
    wrong = f", damaged places: {damages}" if damages else ""
    wrong += f", files that cannot be read: {len(unread)}" if unread else ""
    hint = "" if evidence.files else f"; {evidence.folder}/{_PLAN} says what was cut"
    context.output.line(f"evidence of a repair: {len(evidence.files)} files, {records} intact records{wrong}{hint}")


def _plain(one: _Found) -> dict[str, Any]:
    return {
        "log": one.kept.log,
        "topic": one.kept.topic or None,
        "file": one.kept.path,
        "bytes": one.size,
        "intact_batches": one.batches,
        "intact_records": one.records,
        "intact_offsets": one.offsets,
        "intact": not one.damages,
    }
