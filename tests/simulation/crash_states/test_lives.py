"""Several lives of one log, each ended in the middle of something, by a kill or a power cut: what one left concerns the next but one.

The crash states of `test_crash_states` are those of one life. Here each life goes on from what the one before left in the cache.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.log.recovery import _Recovery
from replog.log.segmented import SegmentedLog
from replog.testing.disk import CrashedError, FaultyFs, MemoryFs, keep_none, some
from replog.testing.disk.ledger import Content, LogLedger
from replog.testing.disk.session import FOLDER, LIMITS, Session
from replog.testing.disk.trial import Broken, _judge, content_of
from replog.testing.disk.workloads import Workload

RUNS = 400
LIVES = 4
OPERATIONS_MAX = 9
"""Of files, in the last step of a life before it ends."""


def a_step(toss: random.Random, log: FileLog) -> str:
    """Something that can be asked of this log."""
    within = toss.randint(log.start_offset, log.end_offset)
    length = toss.choice((512, 512, 200))
    return toss.choice(
        (
            *[f"append {length}"] * 4,
            f"many {length} 512",
            "flush",
            "flush",
            *[f"truncate {within}"] * 2,
            f"trim {within}",
            f"trim {log.end_offset}",
            f"reset {toss.choice((0, log.start_offset, log.end_offset + toss.randint(0, 5)))}",
            "retain",
            "checkpoint",
        )
    )


def end_a_life(toss: random.Random, session: Session, layer: FaultyFs, disk: MemoryFs) -> str:
    """Some steps, the last of them not to its end; returns how it ended."""
    count = toss.randint(2, 9)
    with suppress(CrashedError):
        for number in range(count):
            step = a_step(toss, session.log)
            if number == count - 1:
                layer.crash_after = len(layer.operations) + toss.randint(0, OPERATIONS_MAX)
            session.do(step)
    layer.crash_after = None
    session.directory.close(clean=False)
    disk.kill()
    how = toss.choice(("process", "process", "power", "power of some"))
    if how != "process":
        disk.cut_power(keep_none if how == "power" else some(toss.randrange(1 << 30)))
    return how


def begin_the_next(session: Session, how: str) -> None:
    """Judge what is found, and write a new book that begins with it."""
    session.directory = directory = FileLogDirectory(FOLDER, fs=session.fs, limits=LIMITS)
    kind = directory.loss.kind
    if kind != how.split()[0] or any(one.corrupt for one in directory.recovered.values()):
        raise Broken(f"a stop by {how} was reported as {directory.loss}: {directory.recovered}")
    directory.registered(2)
    content, old = content_of(session.log), session.book
    _judge(session.log, content, old.known())
    below = tuple(batch for batch in old.now.batches if batch.end <= content.start)  # what was trimmed may come back
    whole = Content(min([content.start, *(batch.base for batch in below)]), below + content.batches)
    book = LogLedger(old.identity, old.flush, [*old.contents, whole], starts_max=content.start, trimmed_to=content.start)
    book.may_exist = book.must_exist = True
    book.flushed(session.log.flushed_end)
    session.ledger.logs[session.chosen] = book
    session.do("epoch")


def live(seed: int) -> None:
    """Raises Broken."""
    toss = random.Random(seed)
    disk = MemoryFs()
    layer = FaultyFs(disk)
    session = Session(layer, Workload("lives", (), (), toss.choice((1_200, 2_048, 100_000))), "os")
    for number in range(LIVES):
        how = end_a_life(toss, session, layer, disk)
        try:
            begin_the_next(session, how)
        except Exception as problem:
            raise Broken(f"seed {seed}, after life {number}: {problem!r}") from problem


def test_lives() -> None:
    for seed in range(RUNS):
        live(seed)


def flushed_at_once(self: SegmentedLog, offset: int) -> None:
    self.start_offset = offset
    self.flushed_end = max(self.flushed_end, offset)
    self.epochs.trim(offset)


@pytest.mark.parametrize(
    ("owner", "name", "broken", "said"),
    [
        (SegmentedLog, "_start_at", flushed_at_once, "ends below"),
        (_Recovery, "_sync", lambda self, fd: None, "ends below"),
    ],
    ids=["what is trimmed counts as flushed", "what a kill leaves is not synced"],
)
def test_a_hole_is_noticed(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, broken: object, said: str) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(Broken, match=said):
        test_lives()
