"""Every metric: its name, kind, unit, labels and meaning, and when somebody should be woken. Nothing has a name that is not here.

The names follow Kafka's, so that its alerts can be carried over; `kafka` says which one is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import frozen

__all__ = ["BY_NAME", "METRICS", "Kind", "Metric"]

Kind = Literal["gauge", "counter", "histogram"]


@frozen
class Metric:
    """One row of the table."""

    name: str
    kind: Kind
    unit: str
    """Of its values; of a histogram, of what is observed."""
    labels: tuple[str, ...]
    meaning: str
    """One sentence; also the help text of Prometheus."""
    alert: str = ""
    """When to alarm, as a comparison or a rate; "" where no value is bad by itself."""
    kafka: str = ""
    """The metric of Kafka that it stands for; "" if there is none."""
    per_partition: bool = False
    """Whether it has a series for each partition: then it is in a snapshot only when asked for."""


def _gauge(name: str, unit: str, meaning: str, *labels: str, **more: str) -> Metric:
    return Metric(f"replog_{name}", "gauge", unit, ("broker", *labels), meaning, **more)  # type: ignore[arg-type]


def _counter(name: str, unit: str, meaning: str, *labels: str, **more: str) -> Metric:
    return Metric(f"replog_{name}_total", "counter", unit, ("broker", *labels), meaning, **more)  # type: ignore[arg-type]


def _histogram(name: str, meaning: str, *labels: str, **more: str) -> Metric:
    return Metric(f"replog_{name}_seconds", "histogram", "seconds", ("broker", *labels), meaning, **more)  # type: ignore[arg-type]


def _each(name: str, unit: str, meaning: str, **more: str) -> Metric:
    labels = ("topic", "partition", "broker")
    return Metric(f"replog_{name}", "gauge", unit, labels, meaning, per_partition=True, **more)


METRICS: Final[tuple[Metric, ...]] = (
    # ----------------------------------------------------------------------------------------------------------- partitions
    _gauge("partitions", "partitions", "Copies of partitions that the broker serves.", kafka="ReplicaManager PartitionCount"),
    _gauge("leaders", "partitions", "Partitions that the broker leads.", kafka="ReplicaManager LeaderCount"),
    _gauge(
        "failed_partitions", "partitions", "Copies that the broker gave up after an error of its disk.",
        alert="> 0", kafka="LogManager OfflineLogDirectoryCount",
    ),
    _gauge(
        "under_replicated_partitions", "partitions", "Partitions led here with fewer replicas in sync than they should have.",
        alert="> 0 for 5 minutes", kafka="ReplicaManager UnderReplicatedPartitions",
    ),
    _gauge(
        "under_min_isr_partitions", "partitions", "Partitions led here with fewer replicas in sync than min_isr: acks=all is refused.",
        alert="> 0", kafka="ReplicaManager UnderMinIsrPartitionCount",
    ),
    _gauge(
        "at_min_isr_partitions", "partitions",
        "Partitions led here with just min_isr replicas in sync, as those with no more replicas than min_isr always have.",
        alert="> 0 while under_replicated_partitions > 0, for 5 minutes", kafka="ReplicaManager AtMinIsrPartitionCount",
    ),
    _gauge(
        "offline_partitions", "partitions", "Partitions without a leader; only the broker with the active controller counts them.",
        alert="> 0", kafka="KafkaController OfflinePartitionsCount",
    ),
    _gauge(
        "preferred_leader_imbalance", "partitions", "Partitions led here of which another broker is the preferred leader.",
        kafka="KafkaController PreferredReplicaImbalanceCount",
    ),
    _gauge(
        "replica_max_lag_records", "records", "The most records that a replica lacks of a partition led here.",
        kafka="ReplicaFetcherManager MaxLag",
    ),
    _gauge(
        "replica_max_lag_seconds", "seconds", "The longest time for which a replica that its leader has heard of has not been caught up.",
        alert="> 30",
    ),
    _gauge(
        "reassigning_partitions", "partitions", "Partitions led here that are being moved.", kafka="KafkaController ReassigningPartitions"
    ),
    _gauge(
        "reassignment_lag_records", "records", "The most records that a replica lacks which joins a partition led here.",
        kafka="ReplicaManager ReassignmentMaxLag",
    ),
    _counter(
        "reassignment_bytes", "bytes", "Bytes that the broker has received for partitions which are moved to it.",
        kafka="BrokerTopicMetrics ReassignmentBytesInPerSec",
    ),
    # ---------------------------------------------------------------------------------------------------------- controller
    _gauge(
        "active_controller", "0 or 1", "Whether the broker's controller is the one in charge, as far as it knows.",
        alert="sum != 1 for 1 minute", kafka="KafkaController ActiveControllerCount",
    ),
    _gauge(
        "controller_queue_events", "events", "Events that wait for the active controller.",
        kafka="ControllerEventManager EventQueueSize",
    ),
    _histogram(
        "controller_event", "Events of the active controller by kind, from when they were asked for until they are decided and stored.",
        "event", kafka="ControllerEventManager EventQueueTimeMs (there without deciding)",
    ),
    _counter(
        "isr_shrinks", "changes", "Changes that took replicas out of an ISR; counted where the active controller is.",
        alert="rate > 0 while no broker is restarted", kafka="ReplicaManager IsrShrinksPerSec",
    ),
    _counter(
        "isr_expands", "changes", "Changes that let replicas into an ISR; counted where the active controller is.",
        kafka="ReplicaManager IsrExpandsPerSec",
    ),
    _counter(
        "isr_updates_refused", "proposals", "Changes of an ISR that the broker proposed as a leader, and that were refused.",
        alert="rate > 0 for 5 minutes", kafka="ReplicaManager FailedIsrUpdatesPerSec",
    ),
    _counter(
        "unclean_elections", "elections", "Elections after which committed records may be missing; counted where the active controller is.",
        alert="increase > 0", kafka="ControllerStats UncleanLeaderElectionsPerSec",
    ),
    _histogram(
        "leader_election", "Elections of new leaders, from when the controller turned to what led to them until leaders are told.",
        kafka="ControllerStats LeaderElectionRateAndTimeMs",
    ),
    # ------------------------------------------------------------------------------------------------------------- traffic
    _counter(
        "records_in", "records", "Records that the broker has appended as a leader.", "topic", kafka="BrokerTopicMetrics MessagesInPerSec"
    ),
    _counter(
        "bytes_in", "bytes", "Bytes of batches that the broker has appended as a leader, or staged.", "topic",
        kafka="BrokerTopicMetrics BytesInPerSec",
    ),
    _counter(
        "bytes_out", "bytes", "Bytes of batches that the broker has sent to readers; not to other brokers.", "topic",
        kafka="BrokerTopicMetrics BytesOutPerSec",
    ),
    _histogram(
        "request", "Requests that the broker answered, from arrival to answer; of followers one fetch per 16 appends.", "request",
        kafka="RequestMetrics TotalTimeMs",
    ),
    _counter(
        "client_throttle_seconds", "seconds", "How long connections of clients over their quotas were not heard; each counts.", "request",
        kafka="ClientQuotaManager throttle-time",
    ),
    _gauge(
        "waiting_appends", "appends", "Appends that wait for the replicas in sync, or for the leader's disk.",
        kafka="DelayedOperationPurgatory PurgatorySize",
    ),
    _gauge(
        "waiting_fetches", "fetches", "Fetches of followers and readers that wait for records.",
        kafka="DelayedOperationPurgatory PurgatorySize",
    ),
    # ------------------------------------------------------------------------------------------------------------- machine
    _histogram("log_flush", "Flushes of logs to disk.", alert="p99 > 1", kafka="LogFlushStats LogFlushRateAndTimeMs"),
    Metric(
        "replog_loop_stall_seconds", "histogram", "seconds", (),
        "Turns of the event loop: nothing else is served meanwhile. A Cluster without a thread has no loop.",
        alert="p99 > 1",
    ),
    Metric(
        "replog_loop_stall_longest_seconds", "gauge", "seconds", (), "The longest of these since the start.", alert="> session_ms / 3"
    ),
    _histogram(
        "store_commit", "Transactions at the metadata store, as its callers wait for them.", alert="p99 > 1",
        kafka="ZooKeeperClientMetrics ZooKeeperRequestLatencyMs",
    ),
    _counter("store_conflicts", "transactions", "Transactions that the metadata store refused because something had changed."),
    _counter(
        "store_session_events", "events", "Changes of the broker's session at the metadata store.", "state",
        alert='increase{state="lost"} > 0', kafka="SessionExpireListener ZooKeeperExpiresPerSec",
    ),
    _counter("events", "events", "Events of the broker's actors, by name; those to act on are on the operations page.", "event"),
    # ------------------------------------------------------------------------------------------ of each partition, if asked
    _each("replica_lag_records", "records", "Records that a replica lacks; `broker` is the replica.", kafka="ConsumerLag"),
    _each("replica_lag_seconds", "seconds", "For how long a replica that its leader has heard of has not been caught up."),
    _each("log_end_offset", "offset", "The end of a copy (LEO).", kafka="Log LogEndOffset"),
    _each("log_start_offset", "offset", "The start of a copy.", kafka="Log LogStartOffset"),
    _each("high_watermark", "offset", "What a copy knows to be committed."),
    _each("log_bytes", "bytes", "Size of a copy on its disk.", kafka="Log Size"),
)  # fmt: skip

BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in METRICS}
