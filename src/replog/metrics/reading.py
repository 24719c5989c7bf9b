"""Takes a snapshot: what was counted, and the state of the actors, read between their turns.

The lock of the pump is held for a slice of the partitions at a time, so that ten thousand of them hold no acknowledgement up for long.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from attrs import define, field

from replog.broker.broker import Broker
from replog.controller.executor import ControllerExecutor
from replog.metrics.histogram import Histogram, Observed
from replog.metrics.meter import Meter
from replog.metrics.snapshot import Sample, Snapshot
from replog.metrics.troubles import found
from replog.partition.leading import Leading
from replog.partition.partition import Partition
from replog.partition.replica import NEVER, UNKNOWN, Replica

__all__ = ["SLICE", "Subject", "Tally", "take"]

SLICE: Final = 500
"""Partitions that are looked at under the lock at once: some 1 ms."""
_PAUSE_S: Final = 0.0005
"""Between two slices, for whoever waits for the lock."""


_TROUBLES: Final = {
    "under_replicated": "under_replicated_partitions",
    "under_min_isr": "under_min_isr_partitions",
    "at_min_isr": "at_min_isr_partitions",
}
_TALLIED: Final[tuple[str, ...]] = (
    "partitions",
    "leaders",
    "failed_partitions",
    "under_replicated_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
    "preferred_leader_imbalance",
    "reassigning_partitions",
    "replica_max_lag_records",
    "replica_max_lag_seconds",
    "reassignment_lag_records",
)


class Subject(NamedTuple):
    """One broker: its counters, and the actors of its present life; None while it does not run."""

    meter: Meter
    broker: Broker | None
    controller: ControllerExecutor | None


def take(
    subjects: Sequence[Subject],
    *,
    lock: AbstractContextManager[Any],
    now_ms: int,
    wall_ms: int,
    turns: Histogram,
    partitions: bool,
) -> Snapshot:
    """Everything that the table of names has. `partitions`: the series of each partition as well.

    Called from any thread; whoever holds `lock` already keeps it throughout.
    """
    samples: list[Sample] = []
    for subject in subjects:
        tally = Tally(str(subject.meter.broker_id), now_ms, partitions)
        with lock:
            held = [] if subject.broker is None else list(subject.broker.partitions.values())
            samples += _counted(subject.meter)
            samples += _actors(subject)
        rest = threading.Event()
        for start in range(0, len(held), SLICE):
            if start:
                rest.wait(_PAUSE_S)
            with lock:
                for partition in held[start : start + SLICE]:
                    tally.look(partition)
        samples += tally.samples()
    samples.append(Sample("replog_loop_stall_seconds", (), turns.observed()))
    samples.append(Sample("replog_loop_stall_longest_seconds", (), turns.longest))
    return Snapshot(wall_ms, samples)


@define
class Tally:
    """What the partitions of one broker add up to."""

    broker: str
    now_ms: int
    each: bool
    counts: dict[str, float] = field(factory=lambda: dict.fromkeys(_TALLIED, 0))
    series: list[Sample] = field(factory=list)

    def look(self, partition: Partition) -> None:
        """Add one partition."""
        counts, leading = self.counts, partition.leading
        counts["partitions"] += 1
        counts["failed_partitions"] += partition.failed is not None
        if self.each:
            self._copy(partition)
        if leading is None:
            return
        assignment = leading.assignment
        is_moving = bool(assignment.adding or assignment.removing)
        self.led(assignment.replicas, leading.isr.isr, leading.effective_min_isr, is_moving, len(assignment.adding))
        for broker_id, replica in leading.replicas.items():
            lag, seconds = lag_of(partition, leading, replica, self.now_ms)
            if lag > counts["replica_max_lag_records"]:
                counts["replica_max_lag_records"] = lag
            if seconds is not None and seconds > counts["replica_max_lag_seconds"]:
                counts["replica_max_lag_seconds"] = seconds
            if broker_id in assignment.adding and lag > counts["reassignment_lag_records"]:
                counts["reassignment_lag_records"] = lag
            if self.each:
                place = (partition.topic, str(partition.identity.partition), str(broker_id))
                self.series.append(Sample("replog_replica_lag_records", place, lag))
                if seconds is not None:
                    self.series.append(Sample("replog_replica_lag_seconds", place, seconds))

    def led(self, replicas: Sequence[int], isr: Sequence[int], least: int, is_moving: bool, adding: int = 0) -> None:
        """Add a partition that the broker leads; `least` replicas must be in sync, and a move adds so many of them."""
        counts, broker_id = self.counts, int(self.broker)
        counts["leaders"] += 1
        for kind in found(broker_id, len(replicas) - adding, isr, least):
            counts[_TROUBLES[kind]] += 1
        counts["preferred_leader_imbalance"] += replicas[0] != broker_id
        counts["reassigning_partitions"] += is_moving

    def _copy(self, partition: Partition) -> None:
        place, log = (partition.topic, str(partition.identity.partition), self.broker), partition.log
        self.series.append(Sample("replog_log_end_offset", place, log.end_offset))
        self.series.append(Sample("replog_log_start_offset", place, log.start_offset))
        self.series.append(Sample("replog_high_watermark", place, partition.high_watermark))
        self.series.append(Sample("replog_log_bytes", place, log.size_bytes))

    def samples(self) -> Iterator[Sample]:
        """What was found."""
        for name, value in self.counts.items():
            yield Sample(f"replog_{name}", (self.broker,), value)
        yield from self.series


def lag_of(partition: Partition, leading: Leading, replica: Replica, now_ms: int) -> tuple[int, float | None]:
    """How many records a replica lacks, and for how many seconds it has not been caught up.

    None: its leader cannot say, because it has heard nothing of it since it leads, or the replica never was.
    """
    log = partition.log
    end = log.end_offset
    if replica.position == end or replica.is_equal(end, leading.high_watermark):
        return 0, 0.0
    if replica.seen_end == UNKNOWN:
        return end - log.start_offset, None
    lag = end - max(replica.seen_end, log.start_offset)
    return max(lag, 0), None if replica.caught_up_ms == NEVER else max(now_ms - replica.caught_up_ms, 0) / 1_000


def _counted(meter: Meter) -> Iterator[Sample]:
    """The counters and histograms of one broker."""
    broker = str(meter.broker_id)
    for name, count in (
        ("isr_shrinks", meter.isr_shrinks),
        ("isr_expands", meter.isr_expands),
        ("isr_updates_refused", meter.isr_refused),
        ("unclean_elections", meter.unclean_elections),
        ("reassignment_bytes", meter.reassignment_bytes),
        ("store_conflicts", meter.conflicts),
    ):
        yield Sample(f"replog_{name}_total", (broker,), count)
    for topic, traffic in sorted(meter.traffic.items()):
        yield Sample("replog_records_in_total", (broker, topic), traffic.records_in)
        yield Sample("replog_bytes_in_total", (broker, topic), traffic.bytes_in)
        yield Sample("replog_bytes_out_total", (broker, topic), traffic.bytes_out)
    for name, counts in (
        ("store_session_events", meter.session_events),
        ("events", meter.events),
    ):
        for label, count in sorted(counts.items()):
            yield Sample(f"replog_{name}_total", (broker, label), count)
    for request, ms in sorted(meter.throttled_ms.items()):
        yield Sample("replog_client_throttle_seconds_total", (broker, request), ms / 1_000)
    for name, times in (("leader_election", meter.elections), ("log_flush", meter.flushes), ("store_commit", meter.commits)):
        yield Sample(f"replog_{name}_seconds", (broker,), _observed(times))
    for kind, times in sorted(meter.decisions.items()):
        yield Sample("replog_controller_event_seconds", (broker, kind), _observed(times))
    for kind, times in meter.requests.items():
        yield Sample("replog_request_seconds", (broker, kind), _observed(times))


def _observed(times: Histogram) -> Observed:
    return times.observed()


def _actors(subject: Subject) -> Iterator[Sample]:
    """What the actors hold now, but for partitions. Called under the lock."""
    broker_id, broker, controller = str(subject.meter.broker_id), subject.broker, subject.controller
    in_charge = controller is not None and controller.is_controller
    appends = fetches = offline = 0
    if broker is not None:
        sessions = broker._sessions
        appends = broker._waiting.count
        fetches = sum(one.request is not None for one in (*sessions._followers.values(), *sessions._clients))
        if in_charge:
            offline = sum(p.leader is None for topic in broker.routing.topics.values() for p in topic.partitions)
    queued = 0 if controller is None else controller.waiting
    for name, value in (
        ("active_controller", int(in_charge)),
        ("offline_partitions", offline),
        ("controller_queue_events", queued),
        ("waiting_appends", appends),
        ("waiting_fetches", fetches),
    ):
        yield Sample(f"replog_{name}", (broker_id,), value)
