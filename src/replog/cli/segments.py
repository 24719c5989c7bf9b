"""`replog log dump FILE`: one segment, wherever it was copied to, batch by batch; where its valid part ends, and why."""

from __future__ import annotations

import os
from typing import Any, Final

from attrs import define, field

from replog.cli.batch_lines import codec_of, columns, offsets_of, plain_batch, producer_of, records_of, tell_records
from replog.cli.context import Context
from replog.cli.copies import FS, Copy, Damage
from replog.cli.damages import tell
from replog.cli.exits import BAD, OK
from replog.cli.times import time_of
from replog.cli.undecodable import undecodable
from replog.config import BrokerConfig
from replog.errors import UsageError
from replog.log.repair.planning import is_unfinished
from replog.log.scan import next_header, valid_batch_follows
from replog.log.segment import Segment, segment_base
from replog.log.verify import Stop, Verifier
from replog.records import HEADER_BYTES, BadBatch, BatchHeader, RecordBatch, read_header

__all__ = ["dump_file", "dump_segment"]

_WIDTHS: Final = (9, 19, 5, 5, 19, 10, 7, 7, 3)
_HEAD: Final = ("position", "offsets", "count", "epoch", "newest (UTC)", "producer", "codec", "bytes", "crc")


def dump_segment(context: Context) -> int:
    """One line for each batch, those behind the valid part too; with --records their records. Status 1 if something is damaged, or cannot
    be decoded.

    A segment on its own does not say how its topic is called, nor whether it is the last one of its log: a file that ends inside a batch
    is called unfinished, and no damage. Raises UsageError for a file that is no segment.
    """
    asked = context.arguments
    path = os.path.realpath(asked.folder)
    if asked.topic is not None:
        raise UsageError(f"--topic chooses logs of a directory, and {asked.folder} is a file")
    try:
        return dump_file(context, path)
    except BadBatch as none:
        raise UsageError(f"{path} is no segment that can be read: {none}") from None


def dump_file(context: Context, path: str, topic: str = "") -> int:
    """As `dump_segment`, of a file whose topic may be known. Raises BadBatch if no batch in it has a valid header; UsageError, OSError."""
    fd = FS.open(path)
    try:
        return _Dump(context, path, fd, os.fstat(fd).st_size, topic).run()
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror or str(problem), path) from problem
    finally:
        FS.close(fd)


@define
class _Dump:
    context: Context
    path: str
    fd: int
    size: int
    topic: str
    batches: int = field(default=0, init=False)
    records: int = field(default=0, init=False)
    damaged: bool = field(default=False, init=False)
    undecodable: bool = field(default=False, init=False)

    def run(self) -> int:
        output, named = self.context.output, segment_base(os.path.basename(self.path))
        if not self.size:
            return self._empty(named)
        first_at, first = self._first()
        base = first.base_offset if named is None or first_at == 0 else named
        copy = Copy(self.path, first.identity, self.topic)
        verifier = Verifier(FS, copy.identity, BrokerConfig().index_interval_bytes, lambda header: None)
        stop = verifier.run(Segment(self.path, base), self.fd, self.size, -1)
        if not output.is_json:
            output.line(f"{copy.name}: offsets {base} to {stop.offset}, {output.units.part(stop.position, self.size)}, {self.path}")
            output.line(columns(_HEAD, _WIDTHS))
        if named is not None and named != base:
            self._tell(Damage(self.path, 0, f"it begins at offset {base}, and its name says {named}"))
        self._walk(copy, stop)
        return self._end(copy, base, stop)

    def _empty(self, named: int | None) -> int:
        """A segment that has just been begun has no batch."""
        if named is None:
            raise UsageError(f"{self.path} is empty, and its name is not that of a segment, such as 00000000000000000000.log")
        if self.context.output.is_json:
            self.context.output.json({"segment": self._plain(None, named, Stop(0, named, ""), intact=True)})
        else:
            self.context.output.line(f"{self.path} is empty: it begins at offset {named}, and has no batch")
        return OK

    def _first(self) -> tuple[int, BatchHeader]:
        """(position, header) of the first batch that has a valid one. BadBatch if none has."""
        try:
            return 0, read_header(FS.pread(self.fd, HEADER_BYTES, 0))
        except BadBatch as bad:
            found = next_header(FS, self.fd, 1)
            if found is None:
                raise BadBatch(f"{bad}, and no batch has a valid header anywhere in it") from None
            return found

    def _walk(self, copy: Copy, stop: Stop) -> None:
        """Every batch, valid or not, in its place."""
        position, told = 0, not stop.reason
        while position < self.size:
            if not told and position >= stop.position:
                told = True
                self._say_end(copy, stop)
            header, why = self._header(position)
            if header is None:
                found = next_header(FS, self.fd, position + 1)
                until = self.size if found is None else found[0]
                if not self.context.output.is_json:
                    self.context.output.line(f"bytes {position} to {until} are no whole batch: {why}")
                position = until
            else:
                is_intact = self._batch(copy, position, header, is_valid=position < stop.position)
                position = position + header.length if is_intact else self._behind(position, header)

    def _behind(self, position: int, header: BatchHeader) -> int:
        """Where to go on after a damaged batch: at its end, if another one of this log begins there, else at the first that does: bytes
        may be missing in it."""
        end = position + header.length
        there, _ = self._header(end)
        if end >= self.size or (there is not None and there.identity == header.identity):
            return end
        found = next_header(FS, self.fd, position + 1)
        while found is not None and found[1].identity != header.identity:  # it lies in a record
            found = next_header(FS, self.fd, found[0] + 1)
        return end if found is None else found[0]

    def _header(self, position: int) -> tuple[BatchHeader | None, str]:
        """That of the batch at a position, if all of it is there; else why there is none."""
        try:
            header = read_header(FS.pread(self.fd, HEADER_BYTES, position))
        except BadBatch as bad:
            return None, str(bad)
        left = self.size - position
        return (None, f"{left} bytes of a batch of {header.length}") if header.length > left else (header, "")

    def _batch(self, copy: Copy, position: int, header: BatchHeader, *, is_valid: bool) -> bool:
        """Show it; whether it is intact."""
        output, batch = self.context.output, None
        try:
            batch = RecordBatch.parse(FS.pread(self.fd, header.length, position))
        except BadBatch:
            self.damaged = True
        self.batches += 1
        self.records += header.count
        if output.is_json:
            plain = plain_batch(Copy("", header.identity, self._topic_of(header, copy)).name, self.path, position, header)
            output.json({**plain, "crc_ok": batch is not None, "valid": is_valid})
        else:
            newest, crc = time_of(header.max_timestamp_ms).partition(".")[0], "BAD" if batch is None else "ok"
            about = (header.count, header.leader_epoch, newest, producer_of(header), codec_of(header), header.length, crc)
            output.line(columns((position, offsets_of(header), *about), _WIDTHS))
        if batch is None:
            return False
        if self.context.arguments.records:
            tell_records(output, records_of(batch, self._topic_of(header, copy), copy.identity.partition))
        strange = undecodable(self.path, position, batch)
        if strange is not None:
            self.undecodable = True
            tell(output, strange)
        return True

    def _topic_of(self, header: BatchHeader, copy: Copy) -> str:
        return self.topic if header.identity == copy.identity else ""

    def _say_end(self, copy: Copy, stop: Stop) -> None:
        """Where the valid part ends, in front of what is behind it."""
        if self._is_unfinished(copy, stop):
            if not self.context.output.is_json:
                text = f"unfinished write (no damage in the last segment of a log): {self.path} at position {stop.position}: {stop.reason}"
                self.context.output.line(text)
        else:
            self._tell(Damage(self.path, stop.position, f"the valid part ends here, before offset {stop.offset}: {stop.reason}"))

    def _is_unfinished(self, copy: Copy, stop: Stop) -> bool:
        follows = valid_batch_follows(FS, self.fd, stop.position, stop.offset, copy.identity)
        return is_unfinished(stop, is_last=True, power=False, follows=follows, flushed_end=0)

    def _tell(self, damage: Damage) -> None:
        self.damaged = True
        tell(self.context.output, damage)

    def _end(self, copy: Copy, base: int, stop: Stop) -> int:
        output = self.context.output
        if output.is_json:
            output.json({"segment": self._plain(copy, base, stop, intact=not self.damaged)})
        else:
            counts = f"{self.batches} batch{'' if self.batches == 1 else 'es'}, {self.records} record{'' if self.records == 1 else 's'}"
            ends = f"valid up to position {stop.position} of {self.size}, offset {stop.offset}" if stop.reason else "all of them valid"
            output.line(f"{counts}; {ends}")
        return BAD if self.damaged or self.undecodable else OK

    def _plain(self, copy: Copy | None, base: int, stop: Stop, *, intact: bool) -> dict[str, Any]:
        return {
            "log": None if copy is None else copy.name,
            "file": self.path,
            "bytes": self.size,
            "batches": self.batches,
            "records": self.records,
            "base_offset": base,
            "end_offset": stop.offset,
            "valid_bytes": stop.position,
            "reason": stop.reason or None,
            "intact": intact,
        }
