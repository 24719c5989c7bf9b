"""`replog log dump|verify DIR`: what the files of a broker hold, batch by batch, and whether it is what was written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from replog.cli.context import Context
from replog.cli.copies import Copy, Damage, Place, Report, batches, examine, find
from replog.cli.exits import BAD, OK
from replog.cli.records import plain_record
from replog.errors import UsageError
from replog.payload import BadBatch
from replog.records import RecordBatch, decode_records

__all__ = ["dump", "verify"]

_CODECS: Final = {0: "none", 1: "lz4"}
_WIDTHS: Final = (20, 12, 16, 7, 6, 23, 24, 10, 7, 8)
_HEAD: Final = ("file", "position", "offsets", "records", "epoch", "newest (UTC)", "producer", "sequence", "codec", "bytes")


def verify(context: Context) -> int:
    """Every byte of every log against its checksums. Damaged places are named; then the exit status is 1."""
    output = context.output
    places = _found(context)
    reports: list[tuple[Place, Report]] = [(place, examine(copy)) for place in places for copy in _chosen(context, place)]
    damages = [damage for place in places for damage in place.damages] + [damage for _, report in reports for damage in report.damages]
    if output.is_json:
        output.json({
            "intact": not damages,
            "logs": [_plain_report(report) for _, report in reports],
            "damages": [_plain_damage(damage) for damage in damages],
        })
    else:
        head = ("directory", "log", "segments", "start", "end", "bytes", "state")
        rows = [
            (place.path, report.copy.name, len(report.parts), report.start_offset, report.end_offset, report.size, _state(report))
            for place, report in reports
        ]
        if rows:
            output.table(head, rows)
        for _, report in reports:
            if report.unfinished is not None:
                output.line(f"unfinished write (no damage; the next start cuts it off): {report.unfinished}")
        for damage in damages:
            output.line(f"DAMAGED: {damage}")
        output.line(f"{len(reports)} logs, {f'damaged places: {len(damages)}' if damages else 'all intact'}")
    return BAD if damages else OK


def dump(context: Context) -> int:
    """One line for each batch of each log; with --records one for each record as well. Damaged places stand where they are."""
    places = _found(context)
    found = False
    for place in places:
        for damage in place.damages:
            found = True
            _tell(context, damage)
        for copy in _chosen(context, place):
            found = _dump_one(context, copy) or found
    return BAD if found else OK


def _dump_one(context: Context, copy: Copy) -> bool:
    """One log; returns whether something in it is damaged."""
    output = context.output
    report = examine(copy)
    told: list[Damage] = []
    if not output.is_json:
        output.line(f"{copy.name}: offsets {report.start_offset} to {report.end_offset}, {report.size} bytes, {copy.folder}")
        if report.parts:
            output.line(_columns(_HEAD))
    for part in report.parts:
        for position, batch in batches(part, told.append):
            _batch(context, copy, part.file, position, batch, told)
        if part.damage is not None and part.damage != report.unfinished:
            told.append(part.damage)
        while told:
            _tell(context, told.pop(0))
    for damage in report.damages:
        if all(damage != part.damage for part in report.parts):
            _tell(context, damage)
    if report.unfinished is not None and not output.is_json:
        output.line(f"unfinished write (no damage; the next start cuts it off): {report.unfinished}")
    return bool(report.damages)


def _batch(context: Context, copy: Copy, file: str, position: int, batch: RecordBatch, told: list[Damage]) -> None:
    output, name = context.output, file.rpartition("/")[2].removesuffix(".log")
    producer = None if batch.producer_id < 0 else f"{batch.producer_id}/{batch.producer_epoch}"
    codec = "control" if batch.is_control else _CODECS.get(batch.codec, str(batch.codec))
    if output.is_json:
        output.json({
            "log": copy.name,
            "file": file,
            "position": position,
            "base_offset": batch.base_offset,
            "last_offset": batch.end_offset - 1,
            "records": batch.count,
            "leader_epoch": batch.leader_epoch,
            "max_timestamp_ms": batch.max_timestamp_ms,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "codec": codec,
            "bytes": batch.length,
        })
    else:
        offsets = f"{batch.base_offset}-{batch.end_offset - 1}"
        sequence = None if producer is None else batch.base_sequence
        place = (name, position, offsets, batch.count, batch.leader_epoch, _time(batch.max_timestamp_ms))
        output.line(_columns((*place, producer, sequence, codec, batch.length)))
    if context.arguments.records and not batch.is_control:
        for plain in _records(copy, file, position, batch, told):
            if output.is_json:
                output.json(plain)
            else:
                key, value = (plain.get(name, plain.get(f"{name}_base64")) for name in ("key", "value"))
                output.line(f"    {plain['offset']}  {_time(plain['timestamp_ms'])}  {key!r}  {value!r}")


def _records(copy: Copy, file: str, position: int, batch: RecordBatch, told: list[Damage]) -> Iterator[dict[str, Any]]:
    try:
        yield from map(plain_record, decode_records(batch, copy.topic, copy.identity.partition))
    except BadBatch as bad:
        told.append(Damage(file, position, f"the batch cannot be decoded: {bad}"))


def _found(context: Context) -> list[Place]:
    """Where the logs are. UsageError if --topic names none of them; a damaged catalogue may be why, so damages are told first."""
    folder, topic = context.arguments.folder, context.arguments.topic
    places = find(folder)
    if topic is not None and not any(place.damages or _chosen(context, place) for place in places):
        names = sorted({copy.topic for place in places for copy in place.copies if copy.topic})
        raise UsageError(f"no log of topic {topic!r} in {folder}; there are {', '.join(names) or 'none with a name'}")
    return places


def _chosen(context: Context, place: Place) -> list[Copy]:
    topic = context.arguments.topic
    return [copy for copy in place.copies if topic is None or copy.topic == topic]


def _tell(context: Context, damage: Damage) -> None:
    if context.output.is_json:
        context.output.json({"damage": _plain_damage(damage)})
    else:
        context.output.line(f"DAMAGED: {damage}")


def _plain_damage(damage: Damage) -> dict[str, Any]:
    return {"file": damage.file, "position": damage.position, "reason": damage.reason}


def _plain_report(report: Report) -> dict[str, Any]:
    unfinished = report.unfinished
    return {
        "log": report.copy.name,
        "topic": report.copy.topic or None,
        "partition": report.copy.identity.partition,
        "folder": report.copy.folder,
        "segments": len(report.parts),
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "bytes": report.size,
        "intact": not report.damages,
        "unfinished": None if unfinished is None else _plain_damage(unfinished),
    }


def _state(report: Report) -> str:
    return "DAMAGED" if report.damages else "unfinished write" if report.unfinished is not None else "intact"


def _time(timestamp_ms: int) -> str:
    if not 0 <= timestamp_ms < 253_402_300_800_000:  # the year 10000
        return str(timestamp_ms)
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1_000:03d}"


def _columns(cells: tuple[object, ...]) -> str:
    """Of fixed width: a log may be longer than memory, so nobody measures all of it first."""
    shown = ("-" if cell is None else str(cell) for cell in cells)
    return "  ".join(cell.ljust(width) for cell, width in zip(shown, _WIDTHS, strict=True)).rstrip()
