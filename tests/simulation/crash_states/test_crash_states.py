"""Every state that a power cut can leave of small workloads is recovered as it must be; and the net has no holes.

`python -m replog.testing.disk crashes` does the same with all states of each moment, or many more of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replog.log.recovery import _Recovery
from replog.log.segment import Segment
from replog.log.verify import Stop
from replog.testing.disk import FaultyFs, MemoryFs
from replog.testing.disk.trial import Broken, Trial
from replog.testing.disk.workloads import OPERATIONS_MAX, WORKLOADS, Workload

LIMIT = 60
BY_NAME = {workload.name: workload for workload in WORKLOADS}


@pytest.mark.parametrize("flush", ["os", "ack"])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_recovery_from_every_state(workload: Workload, flush: str) -> None:
    outcome = Trial(workload, flush, limit=LIMIT).run()
    assert outcome.moments > len(workload.steps)
    assert len(outcome.states) > 3
    assert outcome.recovered >= len(outcome.states)
    assert outcome.sampled < outcome.moments


def test_the_workloads_are_as_small_and_as_many_as_they_should_be() -> None:
    assert len(WORKLOADS) >= 20
    assert len(BY_NAME) == len(WORKLOADS)
    for workload in WORKLOADS:
        operations = [step for step in workload.steps if not step.startswith("log ")]
        assert 1 <= len(operations) <= OPERATIONS_MAX, workload.name
    words = {step.split()[0] for workload in WORKLOADS for step in workload.steps}
    wanted = "append many again flush checkpoint truncate trim reset retain epoch create alter delete purge close open"
    assert set(wanted.split()) <= words


def test_a_small_workload_is_enumerated_whole() -> None:
    """One append of two sectors behind nothing: counted by hand."""
    outcome = Trial(Workload("by hand", ("flush",), ("append 700",)), "os", limit=10_000).run()
    assert outcome.sampled == 0
    # Before its folder is synced there is no log at all, or a folder with nothing or with a file in it: empty; one sector of
    # zeros or of data; both sectors, each of zeros or of data.
    assert len(outcome.states) == 1 + 1 + 1 + 2 + 4


# ---------------------------------------------------------------------------------------------------------- negative controls


def run_all(trials: list[Trial]) -> None:
    for trial in trials:
        trial.run()


class Lying(FaultyFs):
    """Says that something is durable, and does nothing, as long as `lies` says so: (operation, path) -> whether."""

    def __init__(self, disk: MemoryFs, begun: Callable[[], bool], lies: Callable[[str, str], bool]) -> None:
        super().__init__(disk)
        self.begun = begun
        self.lies = lies
        self.cut = ""
        """The file that was cut a moment ago, to something."""

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        path = self._paths[fd]
        if not (self.begun() and self.lies("fsync of what was cut" if self.cut == path else "fsync", path)):
            self.inner.fsync(fd)
        self.cut = ""

    def fsync_dir(self, path: str) -> None:
        after = " after unlink" if self.operations and self.operations[-1][0] == "unlink" else ""
        if not (self.begun() and self.lies(f"fsync_dir{after}", path)):
            self.inner.fsync_dir(path)

    def ftruncate(self, fd: int, size: int) -> None:
        super().ftruncate(fd, size)
        self.cut = self._paths[fd] if size else ""


# what is not true -> a workload, what is said of it, and the lie
LIES: dict[str, tuple[str, str, Callable[[str, str], bool]]] = {
    "a flush reaches the disk": (
        "append to what is flushed",
        "lost what was flushed",
        lambda operation, path: operation == "fsync" and path.endswith(".log"),
    ),
    "a new segment's name does": ("roll and flush", "lost what was flushed", lambda operation, path: operation == "fsync_dir"),
    "a new log's folder does": ("the first batch", "lost what was flushed", lambda _, path: path == "/d/logs"),
    "the clean mark does": ("close", "a clean stop was reported", lambda operation, path: operation == "fsync_dir" and path == "/d"),
    "the removal of the clean mark does": (
        "close and open",
        "a power cut was reported",
        lambda operation, path: operation == "fsync_dir after unlink" and path == "/d",
    ),
    "the content of a checkpoint does": ("close", "a clean stop|called corrupt", lambda _, path: path.endswith(".new")),
    "a marker does": ("truncate into an earlier segment", "called corrupt", lambda _, path: path.endswith("-0-0")),
    "the catalogue does": ("a second log", "is not there", lambda _, path: path.endswith("catalogue")),
    "another flush does": ("alter to os", "has counted, and that is not reported", lambda _, path: path.endswith("catalogue")),
    "a truncation does": (
        "truncate and get the same again",
        "holds what it never held",
        lambda operation, path: operation == "fsync of what was cut",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_noticed(lie: str) -> None:
    name, said, lies = LIES[lie]
    trials = [Trial(BY_NAME[name], flush, limit=400, wrap=lambda disk, begun: Lying(disk, begun, lies)) for flush in ("os", "ack")]
    with pytest.raises(Broken, match=said):
        run_all(trials)


def test_recovery_that_takes_a_batch_with_a_bad_checksum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """M25: only headers are looked at."""
    monkeypatch.setattr(_Recovery, "_take_verified", lambda self, segment: self._take_headers(segment, -1))
    with pytest.raises(Broken, match="checksum"):
        Trial(BY_NAME["append after append"], "os", limit=LIMIT).run()


def test_recovery_that_stops_inside_a_batch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """M25: it leaves the beginning of the batch that did not make it."""
    verified = _Recovery._take_verified

    def beyond(self: _Recovery, segment: Segment) -> Stop:
        stop = verified(self, segment)
        segment.size = stop.position + (7 if stop.reason else 0)
        return stop._replace(position=segment.size)

    monkeypatch.setattr(_Recovery, "_take_verified", beyond)
    with pytest.raises(Broken):
        Trial(BY_NAME["append after append"], "os", limit=LIMIT).run()


def test_recovery_that_does_not_cut_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Recovery, "_cut", lambda self, segment, later, stop: None)
    with pytest.raises(Broken):
        run_all([Trial(BY_NAME[name], "os", limit=LIMIT) for name in ("append after append", "roll twice")])
