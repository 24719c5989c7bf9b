"""A batch that goes bad is never taken for a good one; it hides none of those in front, nor, while the log is open, those behind."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.unit.log.lives import IDENTITY, kill, open_log, reopened, segments

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogCorrupt
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.log.memory import MemoryLog
from replog.records import FRONT, Record, RecordBatch
from replog.testing.disk import FaultyFs, MemoryFs
from replog.testing.log_contract import append, batch_of, flush

BATCHES = 12
SIZES = (1, 3, 2)
WHERE = {"magic": 0, "version": 2, "length": 4, "length, far": 6, "topic": 8, "base offset": 32, "epoch": 40, "count": FRONT.size + 4 + 8}
READS = (1, 250, 400, 700, 1 << 20)


def written(segment_bytes: int = 1 << 20, index_interval_bytes: int = 1) -> tuple[MemoryFs, FileLogDirectory, FileLog, list[RecordBatch]]:
    """A log of batches of different lengths, which is read from its files."""
    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig(segment_bytes=segment_bytes), BrokerConfig(index_interval_bytes=index_interval_bytes))
    batches = [append(log, SIZES[number % 3]) for number in range(BATCHES)]
    flush(log)
    log.forget_tail()
    return disk, directory, log, batches


def damage(disk: MemoryFs, batch: RecordBatch, at: int) -> None:
    """A bit of a stored batch turns over."""
    for path in segments(disk):
        if (found := disk.content(path).find(batch.to_bytes())) >= 0:
            disk.content(path)[found + at] ^= 2
            return
    raise AssertionError(batch)


def followed(log: FileLog, max_bytes: int, offset: int = 0) -> int:
    """Read on and on, each time from where the last read ended, as far as it goes: the offset of the first batch that is not intact.

    Each read gets at least one, and what it gets ends where a batch does. What is damaged raises LogCorrupt, or is there to be seen.
    """
    while offset < log.end_offset:
        try:
            parts = log.read(offset, log.end_offset, max_bytes)
        except LogCorrupt:
            return offset
        assert parts
        for part in parts:
            try:
                for batch in log._batches(part):
                    assert batch.base_offset == offset
                    offset = batch.end_offset
            except LogCorrupt:
                return offset
            assert part.end_offset == offset
    return offset


def offsets_of(log: FileLog, start: int = 0) -> list[int]:
    """Those that are read before LogCorrupt says that something is wrong."""
    found: list[Record] = []
    with pytest.raises(LogCorrupt):
        found.extend(log.records(start))
    return [record.offset for record in found]


@pytest.mark.parametrize("segment_bytes", [1 << 20, 700], ids=["one segment", "segments"])
@pytest.mark.parametrize("where", WHERE)
def test_what_is_in_front_of_a_damaged_batch_is_served(where: str, segment_bytes: int) -> None:
    """However much is asked for at once, whether there is an index or not, and however often somebody runs into it."""
    for victim in range(BATCHES):
        for max_bytes in READS:
            disk, _, log, batches = written(segment_bytes)
            damage(disk, batches[victim], WHERE[where])
            base = batches[victim].base_offset
            assert [followed(log, max_bytes) for _ in range(2)] == [base, base]
            for segment in log._segments:
                segment.index = None
            assert [followed(log, max_bytes) for _ in range(2)] == [base, base]
            assert offsets_of(log) == list(range(base))


@pytest.mark.parametrize("where", ["magic", "length", "length, far", "base offset", "count"])
def test_where_the_way_breaks_off_only_intact_batches_are_served(where: str) -> None:
    """A batch whose length or count is damaged leads to a wrong place behind it: it is no more served than one at which the way ends."""
    for victim in range(BATCHES - 2):
        disk, _, log, batches = written(index_interval_bytes=1 << 20)
        damage(disk, batches[victim], WHERE[where])
        base, reach = batches[victim].base_offset, sum(batch.length for batch in batches[: victim + 2])
        if victim:
            assert [(part.base_offset, part.end_offset) for part in log.read(0, log.end_offset, reach)] == [(0, base)]
        for max_bytes in (1, batches[victim].length + batches[victim + 1].length):
            with pytest.raises(LogCorrupt):
                log.read(base, log.end_offset, max_bytes)


@pytest.mark.parametrize("where", WHERE)
def test_what_is_behind_a_damaged_batch_stays_within_reach(where: str) -> None:
    """Whoever runs into it costs nobody the way to the others; appends go on, and a clean stop keeps all of that."""
    for victim in range(BATCHES - 1):
        disk, directory, log, batches = written()
        damage(disk, batches[victim], WHERE[where])
        base, behind = batches[victim].base_offset, batches[victim + 1].base_offset
        for _ in range(2):
            assert offsets_of(log) == list(range(base))
            assert [record.offset for record in log.records(behind)] == list(range(behind, log.end_offset))
            append(log, 2)
            log.forget_tail()
        directory.close(clean=True)
        _, log = reopened(disk)
        assert offsets_of(log) == list(range(base))
        assert [record.offset for record in log.records(behind)] == list(range(behind, log.end_offset))


@pytest.mark.parametrize("meet", ["records", "small reads", "one batch", "a read that ends in front of it", "one behind it"])
@pytest.mark.parametrize("where", WHERE)
def test_what_is_appended_once_a_damaged_batch_was_met_is_found(where: str, meet: str) -> None:
    """Also where no index entry is due for long: the batches in front lead to it no more. Of damage behind a read nobody is told."""
    for victim in range(BATCHES):
        disk, directory, log, batches = written(index_interval_bytes=1 << 20)
        damage(disk, batches[victim], WHERE[where])
        base = batches[victim].base_offset
        if meet == "records":
            assert offsets_of(log) == list(range(base))
        elif meet.startswith("a read"):
            with suppress(LogCorrupt):
                log.read(0, log.end_offset, log.size_bytes - 1)
        elif meet == "one behind it":
            assert [record.offset for record in log.records(max(log.end_offset - 1, batches[victim].end_offset))] == (
                [log.end_offset - 1] if victim < BATCHES - 1 else []
            )
        else:
            assert followed(log, 250 if meet == "small reads" else 1, 0 if meet == "small reads" else base) == base
        end = log.end_offset
        append(log, 2)
        group = [batch_of(1), batch_of(1)]
        for number, batch in enumerate(group):
            batch.stamp(IDENTITY, log.end_offset + number, 0)
        log.append_many(group)
        log.forget_tail()
        for _ in range(2):
            for offset in range(end, end + 4):
                assert [record.offset for record in log.records(offset)] == list(range(offset, end + 4))
            assert offsets_of(log) == list(range(base))
        directory.close(clean=True)
        _, log = reopened(disk)
        assert [record.offset for record in log.records(end)] == list(range(end, end + 4))
        told = meet in ("records", "one batch") or where in ("magic", "length", "length, far", "base offset", "count")
        if told and (victim < BATCHES - 1 or meet != "one behind it"):  # the log was told of it, and not the reader alone
            append(log, 1)


@pytest.mark.parametrize("index", ["at hand", "built", "lost"])
@pytest.mark.parametrize("where", WHERE)
def test_every_intact_batch_is_found_behind_damaged_ones_that_no_index_entry_parts_from_it(where: str, index: str) -> None:
    """The lengths lead there no more: it is looked for. Also what was appended before anybody had met the damage."""
    for victims in ((0,), (3,), (4,), (BATCHES - 1,), (4, 5), (3, 7), (1, 4, BATCHES - 1)):
        disk, _, log, batches = written(index_interval_bytes=1 << 20)
        for victim in victims:
            damage(disk, batches[victim], WHERE[where])
        if index != "lost":
            batches += [append(log, size) for size in SIZES]
            log.forget_tail()
        if index == "built":
            assert offsets_of(log) == list(range(batches[victims[0]].base_offset))
        if index == "lost":
            log._segments[0].index = None
        for _ in range(2):
            for number, batch in enumerate(batches):
                for offset in range(batch.base_offset, batch.end_offset):
                    if number in victims:
                        with pytest.raises(LogCorrupt):
                            list(log.records(offset, offset + 1))
                    else:
                        assert [record.offset for record in log.records(offset, offset + 1)] == [offset]
        if index != "lost":
            with suppress(LogCorrupt):  # what is in front of the new end cannot all be looked at
                log.truncate_to(batches[-1].base_offset - 1)  # into a batch
            assert log.end_offset == batches[-2].base_offset
            append(log, 2)
            log.forget_tail()
            assert [record.offset for record in log.records(batches[-2].base_offset)] == [log.end_offset - 2, log.end_offset - 1]


def test_a_batch_within_a_record_is_not_taken_for_the_damaged_one_that_it_copies() -> None:
    _, _, log, _ = made = written(index_interval_bytes=1 << 20)
    batches = made[3]
    copy = RecordBatch(batch_of(["other"]).body)
    copy.stamp(IDENTITY, batches[6].base_offset, 0)
    holder = batch_of([copy.to_bytes()])  # type: ignore[list-item]
    holder.stamp(IDENTITY, log.end_offset, 0)
    log.append(holder)
    append(log, 1)
    log.forget_tail()
    damage(made[0], batches[6], WHERE["magic"])
    for _ in range(2):
        with pytest.raises(LogCorrupt):
            list(log.records(batches[6].base_offset, batches[6].base_offset + 1))
        assert [record.offset for record in log.records(holder.base_offset)] == [holder.base_offset, holder.end_offset]


def test_several_damaged_batches_hide_no_others() -> None:
    """An index is built anew up to the first: what it says of places behind that can be wrong as well, and is no end of the others."""
    for max_bytes in READS:
        disk, _, log, batches = written()
        for victim in (4, 5, 8):
            damage(disk, batches[victim], WHERE["magic"])
        for _ in range(2):
            for begin, victim in ((0, 4), (6, 8)):
                assert followed(log, max_bytes, batches[begin].base_offset) == batches[victim].base_offset
            assert followed(log, max_bytes, batches[9].base_offset) == log.end_offset
            for victim in (4, 5, 8):
                with pytest.raises(LogCorrupt):
                    log.read(batches[victim].base_offset, log.end_offset, max_bytes)


def test_a_log_that_has_no_index_and_can_make_none_is_read_and_takes_no_appends() -> None:
    """Nothing but the batches says where it ends; the way along them leads there again once it is cut in front of the damage."""
    disk, _, log, batches = written()
    damage(disk, batches[7], WHERE["magic"])
    log._segments[0].index = None
    for _ in range(2):
        with pytest.raises(LogCorrupt):
            append(log, 2)
        assert offsets_of(log) == list(range(batches[7].base_offset))
    log.truncate_to(batches[6].base_offset)
    append(log, 2)
    log.forget_tail()
    assert followed(log, 1 << 20) == log.end_offset == batches[6].base_offset + 2


def test_a_damaged_batch_that_was_run_into_is_found_by_the_next_start_after_a_kill() -> None:
    disk, directory, log, batches = written()
    damage(disk, batches[7], WHERE["magic"])
    assert offsets_of(log) == list(range(batches[7].base_offset))
    kill(disk, directory)
    directory, log = reopened(disk)
    assert log.end_offset == batches[7].base_offset
    assert IDENTITY in directory.recovered


def test_records_of_a_range_know_nothing_of_what_is_behind_it() -> None:
    """Of the range there are those in front of the damage, whichever byte it is, and LogCorrupt only if it is in a batch of the range."""
    victim = 5
    for at in (*WHERE.values(), -1):
        disk, _, log, batches = written()
        damage(disk, batches[victim], at if at >= 0 else batches[victim].length - 1)
        base, behind = batches[victim].base_offset, batches[victim].end_offset
        for start in range(log.end_offset):
            for stop in range(start + 1, log.end_offset + 1):
                found: list[Record] = []
                if start < behind and stop > base:
                    with pytest.raises(LogCorrupt):
                        found.extend(log.records(start, stop))
                    assert [record.offset for record in found] == list(range(start, base))
                else:
                    assert [record.offset for record in log.records(start, stop)] == list(range(start, stop))


@pytest.mark.parametrize("tail", [True, False], ids=["tail", "no tail"])
@pytest.mark.parametrize("kind", ["file", "memory"])
def test_records_of_a_range_begin_and_end_within_batches(kind: str, tail: bool) -> None:
    log = open_log(MemoryFs())[1] if kind == "file" else MemoryLog(IDENTITY)
    for number in range(BATCHES):
        append(log, SIZES[number % 3])
    if not tail:
        log.forget_tail()
    for start in range(log.end_offset):
        for stop in range(start, log.end_offset + 2):
            assert [record.offset for record in log.records(start, stop)] == list(range(start, min(stop, log.end_offset)))


class Counted(FaultyFs):
    bytes_read = 0

    def pread(self, fd: int, count: int, position: int) -> bytes:
        data = super().pread(fd, count, position)
        self.bytes_read += len(data)
        return data


def test_one_record_costs_no_reading_of_those_behind_it() -> None:
    disk = Counted(MemoryFs())
    _, log = open_log(disk, TopicConfig())
    for _ in range(1_000):
        append(log, 3)
    log.forget_tail()
    for offset in (0, 1_501, 2_998):
        before = disk.bytes_read
        assert [record.offset for record in log.records(offset, offset + 1)] == [offset]
        assert disk.bytes_read - before < 2_000


@pytest.mark.parametrize("index", ["at hand", "lost"])
def test_a_record_that_is_gone_is_not_looked_for_everywhere(index: str) -> None:
    """As far as the next index entry, or the first intact batch behind it."""
    memory = MemoryFs()
    disk = Counted(memory)
    _, log = open_log(disk, TopicConfig())
    batches = [append(log, 3) for _ in range(5_000)]
    log.forget_tail()
    file = memory.content(segments(memory)[0])
    begin = 10 * batches[0].length
    gone = len(file) - begin if index == "at hand" else batches[0].length
    file[begin : begin + gone] = bytes(gone)
    if index == "lost":
        log._segments[0].index = None
    for _ in range(2):
        before = disk.bytes_read
        with pytest.raises(LogCorrupt):
            list(log.records(31, 32))
        assert disk.bytes_read - before < 50_000
