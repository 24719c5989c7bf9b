"""A log that expires whole goes in turns: whatever comes between two of them, it shows no expired record again, and misses none."""

from __future__ import annotations

import random

import pytest
from tests.unit.log.lives import FOLDER, IDENTITY, crash_everywhere, kill, open_log, reopened, segments

from replog.config import TopicConfig
from replog.log import segmented
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.log.repair import plan_of
from replog.ports import LogStart
from replog.testing.disk import MemoryFs, SimulatedDisk, keep_all
from replog.testing.log_contract import append, flush, shown

CONFIG = TopicConfig(segment_bytes=1_500, retention_ms=1_000, flush="os")
BATCHES = 12
LATER = 1_000_000
TEXT = "x" * 300


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note of the start, and one segment more."""
    monkeypatch.setattr(segmented, "_REMOVALS_MAX", 2)


def fill(log: FileLog) -> None:
    for number in range(BATCHES):
        append(log, [TEXT], at_ms=number)


def notes(fs: MemoryFs) -> list[str]:
    return [path.rpartition("/")[2] for path in fs.paths(FOLDER) if path.endswith(".start")]


@pytest.mark.parametrize("checkpoints", [(), ("turn",), ("append",), ("turn", "append", "end")])
@pytest.mark.parametrize("appends", [0, 1, 5])
def test_a_crash_anywhere_between_the_turns(appends: int, checkpoints: tuple[str, ...]) -> None:
    """Once a turn is done, what has expired stays away, and what nobody has flushed of it is no damage."""
    least = [0]
    values = [TEXT.encode()] * BATCHES + [b"new"] * appends

    def act(directory: FileLogDirectory) -> None:
        least[0] = 0

        def note(when: str) -> None:
            least[0] = log.start_offset
            if when in checkpoints:
                directory.checkpoint()

        (log,) = directory.create([LogStart(IDENTITY, "t", CONFIG)])
        assert isinstance(log, FileLog)
        fill(log)
        assert len(log._segments) == 4
        assert log.retain(LATER, log.end_offset) == BATCHES
        assert log.is_trimming
        note("turn")
        for _ in range(appends):
            append(log, ["new"], at_ms=LATER)
        note("append")
        while log.is_trimming:
            log.retain(LATER, log.end_offset)
        note("end")

    def check(directory: FileLogDirectory, finished: bool) -> None:
        assert directory.loss.kind in ("process", "power", "replaced", "none")
        assert not any(one.corrupt for one in directory.recovered.values())
        log = directory.get(IDENTITY)
        if log is None:
            assert not least[0]
            return
        assert isinstance(log, FileLog)
        assert least[0] <= log.start_offset <= BATCHES
        assert log.flushed_end <= log.end_offset
        assert shown(log) == values[log.start_offset : log.end_offset]
        append(log, ["more"], at_ms=LATER)
        assert shown(log)[-1] == b"more"

    assert crash_everywhere(lambda fs: None, act, check) > 30


@pytest.mark.parametrize("appends", [0, 1, 5])
def test_the_note_of_the_start_never_moves_back(appends: int) -> None:
    fs = MemoryFs()
    directory, log = open_log(fs, CONFIG)
    fill(log)
    log.retain(LATER, log.end_offset)
    for _ in range(appends):
        append(log, ["new"], at_ms=LATER)
    while log.is_trimming:
        log.retain(LATER, log.end_offset)
        assert notes(fs) == [f"{BATCHES:020}-0.start"]
    kill(fs, directory)
    _, log = reopened(fs)
    assert (log.start_offset, log.end_offset) == (BATCHES, BATCHES + appends)
    assert shown(log) == [b"new"] * appends
    log.trim_to(log.end_offset)
    assert notes(fs) == [f"{BATCHES + appends:020}-0.start"]


@pytest.mark.parametrize("room", [True, False], ids=["room", "full disk"])
@pytest.mark.parametrize("loss", ["half", "a sector in the middle"])
@pytest.mark.parametrize("appends", [0, 1])
def test_a_power_cut_that_tears_what_was_expired_and_never_flushed_is_a_power_cut(appends: int, loss: str, room: bool) -> None:
    """Nothing is kept as evidence, nothing needs room, and `log repair` has nothing to do."""
    fs = SimulatedDisk(random.Random(1))
    directory, log = open_log(fs, CONFIG)
    fill(log)
    log.retain(LATER, log.end_offset)
    for _ in range(appends):
        append(log, ["new"], at_ms=LATER)
    directory.checkpoint()
    kill(fs, directory)
    fs.cut_power(keep_all)
    last = fs.content(segments(fs)[-1])
    if loss == "half":
        del last[len(last) // 2 - appends * 50 :]
    else:
        last[500:600] = bytes(100)
        del last[len(last) - appends * 60 :]
    assert plan_of(fs, "/d").logs == ()
    if not room:
        fs.arm("no_space", paths=".bad")
    directory, log = reopened(fs)
    assert [one.corrupt for one in directory.recovered.values()] == [""]
    assert (directory.loss.kind, log.start_offset, log.end_offset) == ("power", BATCHES, BATCHES)
    assert not [path for path in fs.paths(FOLDER) if ".bad" in path]
    append(log, ["new"], at_ms=LATER)
    flush(log)
    assert shown(log) == [b"new"]
