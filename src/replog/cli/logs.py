"""`replog log dump|verify DIR`: what the files of a broker hold, batch by batch, and whether it is what was written."""

from __future__ import annotations

import os
from typing import Any, Final

from replog.cli.batch_lines import codec_of, columns, offsets_of, plain_batch, producer_of, records_of, tell_records
from replog.cli.context import Context
from replog.cli.copies import Copy, Damage, Place, Report, Unread, batches, examine, find, size_of
from replog.cli.damages import plain_damage, plain_unread, tell, tell_all
from replog.cli.evidence import dump_evidence, evidence_in, verify_evidence
from replog.cli.exits import BAD, OK
from replog.cli.progress import shown_progress
from replog.cli.segments import dump_segment
from replog.cli.spoken import nearest
from replog.cli.times import time_of
from replog.cli.undecodable import plain_undecodable, undecodable, undecodable_in
from replog.errors import UsageError
from replog.records import RecordBatch

__all__ = ["dump", "verify"]

_WIDTHS: Final = (10, 19, 5, 19, 10, 8, 7, 7)
_HEAD: Final = ("position", "offsets", "epoch", "newest (UTC)", "producer", "sequence", "codec", "bytes")


def verify(context: Context) -> int:
    """Every byte of every log against its checksums, and every batch as a reader takes it. Damaged places, files that cannot be read, and
    batches that cannot be decoded are named; then the status is 1."""
    output = context.output
    if (evidence := evidence_in(context.arguments.folder, context.arguments.topic)) is not None:
        return verify_evidence(context, evidence)
    places = _found(context)
    chosen = [(place, copy) for place in places for copy in _chosen(context, place)]
    with shown_progress(output, lambda: 2 * sum(size_of(copy) for _, copy in chosen)) as read:
        reports = [(place, examine(copy, place.now, read)) for place, copy in chosen]
        strange = [one for _, report in reports for one in undecodable_in(report, read)]
    damages = [damage for place in places for damage in place.damages] + [damage for _, report in reports for damage in report.damages]
    unread = [one for place in places for one in place.unread] + [one for _, report in reports for one in report.unread]
    if output.is_json:
        output.json({
            "intact": not damages and not unread,
            "logs": [_plain_report(report) for _, report in reports],
            "damages": [plain_damage(damage) for damage in damages],
            "unreadable": [plain_unread(one) for one in unread],
            "undecodable": [plain_undecodable(one) for one in strange],
        })
    else:
        head, size = ("directory", "log", "segments", "start", "end", "bytes", "state"), output.units.size
        rows = [
            (at.path, one.copy.name, len(one.parts), one.start_offset, one.end_offset, size(one.size), one.state) for at, one in reports
        ]
        if rows:
            output.table(head, rows)
        for _, report in reports:
            if report.unfinished is not None:
                output.line(f"unfinished write (no damage; the next start cuts it off): {report.unfinished}")
        tell_all(output, [*damages, *unread, *strange])
        wrong = [f"damaged places: {len(damages)}"] if damages else []
        wrong += [f"files that cannot be read: {len(unread)}"] if unread else []
        wrong += [f"batches that cannot be decoded: {len(strange)}"] if strange else []
        output.line(f"{len(reports)} logs, {', '.join(wrong) or 'all intact'}")
    return BAD if damages or unread or strange else OK


def dump(context: Context) -> int:
    """One line for each batch of each log, in 100 columns; with --records one for each record as well. Damaged places stand where they are.

    JSON has what the lines have no room for: whole ids of producers, milliseconds, and how many records there are. A file is one segment.
    """
    if os.path.isfile(context.arguments.folder):
        return dump_segment(context)
    if (evidence := evidence_in(context.arguments.folder, context.arguments.topic)) is not None:
        return dump_evidence(context, evidence)
    places = _found(context)
    found = False
    for place in places:
        found = tell_all(context.output, [*place.damages, *place.unread]) or found
        for copy in _chosen(context, place):
            found = _dump_one(context, place, copy) or found
    return BAD if found else OK


def _dump_one(context: Context, place: Place, copy: Copy) -> bool:
    """One log; returns whether something in it is damaged, or cannot be read or decoded."""
    output = context.output
    report = examine(copy, place.now)
    strange = False
    changed: list[Damage] = []
    unread = list(report.unread)
    if not output.is_json:
        output.line(f"{copy.name}: offsets {report.start_offset} to {report.end_offset}, {output.units.sized(report.size)}, {copy.folder}")
        if report.parts:
            output.line(columns(_HEAD, _WIDTHS))
    for part in report.parts:
        if not output.is_json:
            output.line(f"{_name(part.file)}:")
        try:
            for position, batch in batches(part, changed.append):
                strange = _batch(context, copy, part.file, position, batch) or strange
        except FileNotFoundError:  # trimmed since
            changed.append(Damage(part.file, 0, "the file is not there any more"))
        except OSError as problem:
            unread.append(Unread(part.file, problem.strerror or str(problem)))
        if part.damage is not None and part.damage in report.damages:
            tell(output, part.damage)
    damages = [damage for damage in report.damages if all(damage != part.damage for part in report.parts)]
    if changed:  # since it was verified: by its broker, or by the disk
        again = examine(copy, place.now)
        damages += [damage for damage in again.damages if damage not in report.damages]
        unread += [one for one in again.unread if one not in unread]
    tell_all(output, [*damages, *unread])
    if changed and not damages:
        _tell_changed(context, changed[0])
    if report.unfinished is not None and not output.is_json:
        output.line(f"unfinished write (no damage; the next start cuts it off): {report.unfinished}")
    return bool(report.damages or damages or unread or strange)


def _tell_changed(context: Context, change: Damage) -> None:
    if context.output.is_json:
        context.output.json({"changed": plain_damage(change)})
    else:
        context.output.line(f"changed by its broker while it was shown, from here on: {change}")


def _batch(context: Context, copy: Copy, file: str, position: int, batch: RecordBatch) -> bool:
    """Show it; whether it cannot be decoded."""
    output = context.output
    if output.is_json:
        output.json(plain_batch(copy.name, file, position, batch))
    else:
        sequence = None if batch.producer_id < 0 else batch.base_sequence
        newest = time_of(batch.max_timestamp_ms).partition(".")[0]
        cells = (position, offsets_of(batch), batch.leader_epoch, newest, producer_of(batch), sequence, codec_of(batch), batch.length)
        output.line(columns(cells, _WIDTHS))
    if context.arguments.records:
        tell_records(output, records_of(batch, copy.topic, copy.identity.partition))
    strange = undecodable(file, position, batch)
    if strange is not None:
        tell(output, strange)
    return strange is not None


def _found(context: Context) -> list[Place]:
    """Where the logs are. UsageError if --topic names none of them; a damaged catalogue may be why, so damages are told first."""
    folder, topic = context.arguments.folder, context.arguments.topic
    places = find(folder)
    if topic is not None and not any(place.damages or place.unread or _chosen(context, place) for place in places):
        names = sorted({copy.topic for place in places for copy in place.copies if copy.topic})
        there = ", ".join(names) or "none with a name"
        raise UsageError(f"no log of topic {topic!r} in {folder}; there are {there}{nearest(topic, names)}")
    return places


def _chosen(context: Context, place: Place) -> list[Copy]:
    topic = context.arguments.topic
    return [copy for copy in place.copies if topic is None or copy.topic == topic]


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
        "intact": report.state in ("intact", "unfinished write"),
        "state": report.state,
        "unfinished": None if unfinished is None else plain_damage(unfinished),
    }


def _name(file: str) -> str:
    """Of a segment, without its folder: the offset of its first batch."""
    return file.rpartition("/")[2].removesuffix(".log")
