"""Every byte of a log's files turned over, every file cut at every length: detected or harmless, alone and in a cluster.

`python -m replog.testing.disk bytes` and `... cluster` do it with every byte (and bit); here it is a fixed selection.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from replog import records
from replog.log import verify
from replog.log.recovery import LogState, _Recovery
from replog.testing.disk.cluster_sweep import sweep_cluster
from replog.testing.disk.sweep import Injury, Stop, injuries, prepare, sweep, sweep_running
from replog.testing.disk.trial import Broken

ENDS: list[tuple[Stop, bool]] = [("clean", False), ("process", False), ("process", True), ("power", False)]


@pytest.mark.parametrize(("stop", "unflushed"), ENDS, ids=["clean", "process", "process, unflushed end", "power"])
def test_damage_found_when_a_directory_is_opened(stop: Stop, unflushed: bool) -> None:
    prepared = prepare(stop, unflushed=unflushed)
    tally = sweep(prepared, every=3)
    assert tally.total == -(-2 * sum(map(len, prepared.files.values())) // 3)
    wanted = {"catalogue", "checkpoint", "life", "meta", ".log", ".index"} | ({"clean"} if stop == "clean" else set())
    assert wanted <= tally.names.keys()
    assert ("marker" in tally.names) == (stop != "clean" and not unflushed)
    for outcome in ("refused", "reported", "caught", "harmless"):
        assert getattr(tally, outcome) > 0, outcome
    assert (tally.unfinished > 0) == (stop != "clean")


def test_damage_found_while_a_log_runs() -> None:
    tally = sweep_running()
    size = sum(len(data) for path, data in prepare("clean").files.items() if path.endswith(".log"))
    assert tally.total == tally.caught == 2 * size, "no byte of a segment is without meaning"


def test_all_bits_are_as_bad_as_one() -> None:
    tally = sweep(prepare("process"), bits=8, every=23)
    assert tally.total > 600
    assert min(tally.refused, tally.reported, tally.caught, tally.harmless) > 0


def test_damage_to_one_of_three_replicas(tmp_path: Path) -> None:
    tally = sweep_cluster(tmp_path, every=149, offset=3)
    assert tally.injured >= 80
    assert tally.refused > 0


def test_an_injury_is_what_it_says() -> None:
    assert Injury("f", 1, 3).applied({"f": b"abc", "g": b"x"}) == {"f": b"ajc", "g": b"x"}
    assert Injury("f", 1, -1).applied({"f": b"abc"}) == {"f": b"a"}
    assert [str(one) for one in injuries({"f": b"a"})] == ["f, cut at byte 0", "f, bit 0 turned over at byte 0"]


# ---------------------------------------------------------------------------------------------------------- negative controls


def test_a_recovery_that_cuts_a_corrupt_middle_and_says_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """M26."""
    run = _Recovery.run

    def silent(self: _Recovery) -> LogState:
        state = run(self)
        state.corrupt, state.hole = "", False
        return state

    monkeypatch.setattr(_Recovery, "run", silent)
    with pytest.raises(Broken, match="but the log is"):
        sweep(prepare("process"))


def test_a_recovery_that_does_not_compare_checksums_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """M25: what is read later is caught by its reader, but what was stored unverified is called whole."""
    monkeypatch.setattr(verify.Verifier, "run", lambda self, segment, fd, size, epoch: verify.Stop(size, segment.base_offset, ""))
    with pytest.raises(Broken):
        sweep(prepare("process", unflushed=True))


def test_a_reader_that_believes_the_bytes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "crc32c", lambda data, crc=0: 0)
    prepared = prepare("clean")
    with pytest.raises(Broken, match="never written"):
        sweep(prepared)
