"""Bugs of logs and their files: recovery, flushes, and names that are not durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.log import checkpoint as checkpoint_module
from replog.log import directory as directory_module
from replog.log.flushing import FlushRun
from replog.log.memory import MemoryLog
from replog.log.recovery import _Recovery
from replog.log.scan import headers
from replog.log.segment import Segment
from replog.log.segmented import SegmentedLog
from replog.log.verify import Stop
from replog.ports import FlushToken
from replog.records import BadBatch

__all__ = ["MUTANTS"]


def checks_no_payload(patch: Patch) -> None:
    """Recovery reads headers only: a batch whose records are damaged is taken."""

    def mutant(self: _Recovery, segment: Segment) -> Stop:
        fd, segment.size = self.storage.files.descriptor(segment), 0
        try:
            for position, header in headers(self.fs, fd, 0, self.fs.size(segment.path) or 0, segment.base_offset, self.identity):
                self._take(segment, position, header)
        except BadBatch as error:
            return Stop(segment.size, segment.end_offset, str(error))
        return Stop(segment.size, segment.end_offset, "")

    patch.setattr(_Recovery, "_take_verified", mutant)


def leaves_the_torn_end(patch: Patch) -> None:
    """Recovery finds where the valid batches end, and leaves what lies behind."""
    patch.setattr(_Recovery, "_cut", lambda self, segment, later, stop: None)


def hides_corruption(patch: Patch) -> None:
    """Recovery cuts at a damaged batch in the middle, and does not say that flushed records are gone: not before it cuts, and not after."""
    judge = directory_module.judge

    def mutant(configs: Any, states: Any, *args: Any, **given: Any) -> Any:
        for state in states.values():
            state.corrupt = ""
        return judge(configs, states, *args, **given)

    patch.setattr(directory_module, "judge", mutant)
    patch.setattr(directory_module.FileLogDirectory, "_note_loss", lambda *given: None)


def hides_stray_writes(patch: Patch) -> None:
    """As `hides_corruption`; what is damaged is a write that landed elsewhere, or never arrived, with others behind it."""
    hides_corruption(patch)


def ignores_failed_flushes(patch: Patch) -> None:
    """A flush that failed counts as done."""
    for kind in (MemoryLog, SegmentedLog):

        def mutant(self: Any, token: FlushToken, flushed: Any = kind.flushed) -> None:
            token.error = None
            _forget_failure(token)
            flushed(self, token)

        patch.setattr(kind, "flushed", mutant)


def flushes_again(patch: Patch) -> None:
    """A flush that failed is tried again until it succeeds: what the first one did not write, no other will."""
    run = FlushToken.run

    def mutant(self: FlushToken) -> FlushToken:
        for _ in range(3):
            if run(self).error is None:
                break
            _forget_failure(self)
        return self

    patch.setattr(FlushToken, "run", mutant)


def _forget_failure(token: FlushToken) -> None:
    """Of the directory, to which a failed fsync is known from that moment on."""
    syncs = getattr(token.run_, "_syncs", None)
    if syncs is not None:
        syncs.failure = 0


def _unsynced(fs: Any) -> Any:
    """The same disk, without durable names."""

    class Unsynced:
        def __getattr__(self, name: str) -> Any:
            return (lambda path: None) if name == "fsync_dir" else getattr(fs, name)

    return Unsynced()


def renames_without_sync(patch: Patch) -> None:
    """A small file is renamed over the old one, and the folder is not synced."""
    write = checkpoint_module.write_small_file
    patch.setattr(checkpoint_module, "write_small_file", lambda fs, *args: write(_unsynced(fs), *args))


def rolls_without_sync(patch: Patch) -> None:
    """The name of a new segment is not made durable by the flush of its records."""
    init = FlushRun.__init__
    patch.setattr(FlushRun, "__init__", lambda self, files, segments, folders, *rest: init(self, files, segments, (), *rest))


def counts_flushes_of_cut_records(patch: Patch) -> None:
    """A flush that was asked for before a truncation counts for what was appended after it."""
    for kind in (MemoryLog, SegmentedLog):

        def mutant(self: Any, token: FlushToken, flushed: Any = kind.flushed) -> None:
            end = min(token.end, self.end_offset)
            flushed(self, attrs.evolve(token, generation=self.generation, end=end))

        patch.setattr(kind, "flushed", mutant)


@attrs.define
class _LateToken(FlushToken):
    """It reads how far the log is when the fsync has returned."""

    end_now: Callable[[], int] = attrs.field(kw_only=True)

    def run(self) -> FlushToken:
        FlushToken.run(self)
        self.end = max(self.end, self.end_now())
        return self


def reads_the_end_after_the_fsync(patch: Patch) -> None:
    """What was written to the flushed segments while the fsync was under way counts as flushed."""
    for kind in (MemoryLog, SegmentedLog):

        def mutant(self: Any, flush: Any = kind.flush) -> FlushToken | None:
            token = flush(self)
            if token is None:
                return None
            last = self if isinstance(self, MemoryLog) or not self._segments else self._segments[-1]
            return _LateToken(token.identity, token.generation, token.end, token.run_, end_now=lambda: last.end_offset)

        patch.setattr(kind, "flush", mutant)


FILES: dict[str, Any] = {"files": True, "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "segment_bytes": 1_024}
LATE_NEWS: dict[str, Any] = {
    "files": False, "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "absent": 0, "flush": "ack", "flush_heard_ms": 1_500,
    "workloads": ("append", "burst"),
}
LONG_FLUSHES: dict[str, Any] = {
    "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "absent": 0, "flush": "ack", "flush_takes_ms": 400,
    "clients": 3, "think_ms": 60, "drop": 0.0, "delay_ms": 3,
    "workloads": ("append", "burst", "read"),
}
_READ = (*SAFETY, "S10", "S12", "S16", "S18")
_STATES = "tests/simulation/crash_states/test_crash_states.py::test_recovery_from_every_state"
_RECOVERY = "tests/unit/log/test_recovery.py::"
_FAULTS = "tests/unit/log/test_faults.py::"
MUTANTS = (
    Mutant(
        "M25a", "recovery takes a batch with a bad checksum", "P-51", checks_no_payload,
        (*_READ, "L5", "readable"), {"only": ("power", "churn"), "flush": "os", "workloads": ("append", "burst", "read"), **FILES},
        tests=(_RECOVERY + "test_a_bad_batch_below_the_recovery_point_is_reported[1-True]", _STATES + "[a group-ack]"),
    ),
    Mutant(
        "M25b", "recovery leaves half a batch at the end", "P-51", leaves_the_torn_end,
        (*_READ, "L5"), {"only": ("flip", "kill", "power"), **FILES},
        tests=(_RECOVERY + "test_something_else_behind_the_end[tail4]", _STATES + "[a large batch-os]"),
    ),
    Mutant(
        "M26a", "recovery cuts a damaged middle and says nothing", "FAST'17, NATS", hides_corruption,
        _READ, {"only": ("flip", "kill"), "flush": "ack", **FILES},
        tests=(_RECOVERY + "test_a_bad_batch_below_the_recovery_point_is_reported[1-False]",),
    ),
    Mutant(
        "M26c", "recovery cuts where a write went astray and says nothing", "FAST'17, NATS", hides_stray_writes,
        _READ, {"only": ("stale_write", "misdirect", "kill", "rolling"), "flush": "ack", "workloads": ("append", "burst"), **FILES},
    ),
    Mutant(
        "M27a", "a failed flush is ignored", "fsyncgate", ignores_failed_flushes,
        (*SAFETY, "S22"), {"only": ("flush_error", "power"), "flush": "ack", **FILES},
        tests=(
            _FAULTS + "test_a_failed_flush_ends_the_whole_directory[fsync]",
            _FAULTS + "test_a_failed_flush_in_memory_ends_the_whole_directory",
        ),
    ),
    Mutant(
        "M27b", "a failed flush is repeated until it succeeds", "fsyncgate", flushes_again,
        (*SAFETY, "S22"), {"only": ("flush_error", "power"), "flush": "ack", **FILES},
        tests=("tests/simulation/mutants/test_steps.py::test_a_failed_flush_is_not_repeated",),
    ),
    Mutant(
        "M28a", "a file is renamed without syncing its folder", "ALICE", renames_without_sync,
        tests=("tests/unit/log/test_directory.py::test_a_crash_in_the_very_first_open", _STATES + "[close and open-ack]"),
    ),
    Mutant(
        "M28b", "a segment is begun without syncing its folder", "ALICE", rolls_without_sync,
        SAFETY, {"only": ("power", "kill"), "flush": "ack", **FILES},
        tests=(_RECOVERY + "test_an_unsynced_name_is_no_loss_below_the_recovery_point", _STATES + "[a group-ack]"),
    ),
    Mutant(
        "X09", "a flush from before a truncation counts", "own", counts_flushes_of_cut_records,
        (*_READ, "S22", "L5", "L8"), {"only": ("churn", "expire", "isolate", "flush", "power"), **LATE_NEWS},
        tests=("tests/contracts/test_log.py::TestMemory::test_a_flush_from_before_a_truncation_proves_nothing",),
    ),
    Mutant(
        "X92", "the flushed end is read when the fsync returns", "own", reads_the_end_after_the_fsync,
        (*_READ, "L5"), {"only": ("power_all", "power", "kill"), **LONG_FLUSHES},
    ),
)
