"""The newest batches of a log, kept in memory for readers that follow closely."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replog.config import TopicConfig
from replog.log import tail as module
from replog.log.directory import FileLogDirectory
from replog.log.memory import MemoryLog
from replog.log.tail import Tail
from replog.ports import Log, LogStart
from replog.records import RecordBatch
from replog.testing.disk import MemoryFs
from replog.testing.log_contract import FIRST, append, batch_of, shown


def filled(*counts: int) -> tuple[Tail, list[RecordBatch]]:
    """A tail that begins at offset 10, with batches of so many records."""
    tail, batches, offset = Tail(), [], 10
    for count in counts:
        batch = batch_of(count)
        batch.stamp(FIRST, offset, 0)
        tail.add(batch)
        batches.append(batch)
        offset = batch.end_offset
    return tail, batches


def found(tail: Tail, offset: int, limit: int = 1_000, max_bytes: int = 1 << 20) -> list[RecordBatch] | None:
    part = tail.slice_at(offset, limit, max_bytes)
    if part is None:
        return None
    data = b"".join(batch.to_bytes() for batch in part.batches)
    assert bytes(part.view()) == b"".join(part.parts) == data
    assert part.length == len(data)
    assert (part.base_offset, part.end_offset) == (part.batches[0].base_offset, part.batches[-1].end_offset)
    return part.batches


def test_a_read_gets_whole_batches_from_the_one_that_holds_its_offset() -> None:
    tail, batches = filled(2, 3, 1)
    assert found(tail, 10) == batches
    assert found(tail, 12) == found(tail, 14) == batches[1:]
    assert found(tail, 15) == batches[2:]
    assert found(tail, 16) is None, "stored, and about to be added: a signal handler may ask"


def test_it_ends_at_or_below_its_limit_and_below_its_size_but_one_batch_goes_through() -> None:
    tail, batches = filled(2, 3, 1)
    assert found(tail, 10, 15) == found(tail, 10, 15, batches[0].length + batches[1].length) == batches[:2]
    assert found(tail, 10, 14) == found(tail, 10, 16, 1) == batches[:1]
    assert found(tail, 12, 14) is None


def test_what_is_not_all_here_is_read_elsewhere() -> None:
    tail, _ = filled(2)
    assert found(tail, 9) is None
    tail.clear()
    assert found(tail, 10) is None


def test_followers_at_one_place_share_one_slice() -> None:
    tail, _ = filled(2, 3)
    first = tail.slice_at(10, 15, 1 << 20)
    assert tail.slice_at(10, 15, 1 << 20) is first
    assert tail.slice_at(12, 15, 1 << 20) is not first


def test_a_slice_keeps_what_it_showed() -> None:
    tail, batches = filled(2)
    part = tail.slice_at(10, 12, 1 << 20)
    assert part is not None
    tail.clear()
    assert bytes(part.view()) == batches[0].to_bytes()


def test_the_oldest_go_when_it_grows_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    size = batch_of(1).length
    monkeypatch.setattr(module, "TAIL_BYTES_MAX", 3 * size)
    tail, batches = filled(1, 1, 1, 1, 1)
    assert found(tail, 11) is None
    assert found(tail, 12) == batches[2:]
    monkeypatch.setattr(module, "TAIL_BYTES_MAX", 1)
    tail, batches = filled(1, 1)
    assert found(tail, 11) == batches[1:], "the newest stays whatever its size"


def in_memory() -> Log:
    return MemoryLog(FIRST)


def in_files() -> Log:
    (log,) = FileLogDirectory("/d", fs=MemoryFs()).create([LogStart(FIRST, "t", TopicConfig())])
    return log


@pytest.mark.parametrize("make", [in_memory, in_files])
def test_only_what_was_appended_one_by_one_is_kept(make: Callable[[], Log]) -> None:
    for count in (1, 2):
        log = make()
        append(log)
        assert log.read(0, 1, 1 << 20)[0].batches is not None
        batches = [batch_of(1) for _ in range(count)]
        for batch in batches:
            batch.stamp(FIRST, 1 + batches.index(batch), 0)
        log.append_many(batches)
        assert log.read(0, 3, 1 << 20)[0].batches is None, "a follower's copy is read as it is stored"


@pytest.mark.parametrize("take_away", [lambda log: log.truncate_to(1), lambda log: log.reset_to(0)])
@pytest.mark.parametrize("make", [in_memory, in_files])
def test_what_was_taken_away_is_never_read_again(make: Callable[[], Log], take_away: Callable[[Log], None]) -> None:
    log = make()
    for _ in range(3):
        append(log)
    take_away(log)
    append(log, ["other"], epoch=1)
    append(log, ["another"], epoch=1)
    assert shown(log) == [b"value 0", b"other", b"another"][-log.end_offset :]
