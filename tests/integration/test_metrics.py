"""What a cluster counts is what has happened in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import replog
from replog.errors import UsageError
from replog.metrics.histogram import Histogram
from replog.metrics.meter import CHANGES_MAX, TOPICS_MAX, Meter, recent
from replog.metrics.names import METRICS
from replog.metrics.reading import SLICE, Subject, take
from replog.metrics.snapshot import Snapshot
from replog.ports import Event

PARTITIONS = 6
BATCHES = 4
RECORDS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[replog.Cluster]:
    with replog.Cluster(tmp_path / "data", brokers=3) as cluster:
        yield cluster


def filled(cluster: replog.Cluster, **config: object) -> None:
    cluster.create_topic("orders", partitions=PARTITIONS, replication_factor=3, min_isr=2, **config)
    for partition in range(PARTITIONS):
        for _ in range(BATCHES):
            cluster.append("orders", partition, [b"x" * 100] * RECORDS)


def led_by(cluster: replog.Cluster, broker_id: int) -> int:
    return sum(p.leader == broker_id for p in cluster.describe("orders").partitions)


def leaders_bytes(snapshot: Snapshot, cluster: replog.Cluster) -> float:
    """The sizes of the copies of leaders."""
    copies = cluster.describe("orders").partitions
    return sum(snapshot.value("replog_log_bytes", partition=p.partition, broker=p.leader) for p in copies)


def test_events_of_the_controller_are_timed_by_kind(cluster: replog.Cluster) -> None:
    filled(cluster)
    before = cluster.metrics()
    name, first = "replog_controller_event_seconds", cluster.controller_id
    assert before.value(name, event="admin_asked", broker=first) == before.value(name, event="admin_asked") > 0
    assert before.value(name, event="broker_acknowledged") == 3
    assert before.value(name, event="isr_proposed") == 0
    seen = before.observed(name, event="admin_asked")
    assert seen is not None
    assert seen.sum > 0
    cluster.kill_broker(first)
    cluster.alter_topic("orders", retention_ms=5_000)
    after = cluster.metrics()
    cluster.start_broker(first)
    cluster.wait_until_in_sync()
    assert cluster.metrics().value(name, event="isr_proposed") > 0
    assert after.value(name, event="admin_asked", broker=cluster.controller_id) > 0
    assert after.value(name, event="admin_asked", broker=first) == before.value(name, event="admin_asked")


def test_a_failover_is_counted(cluster: replog.Cluster) -> None:
    filled(cluster, flush="ack")
    assert len(list(cluster.read("orders"))) == PARTITIONS * BATCHES * RECORDS
    before = cluster.metrics(partitions=True)
    assert before.value("replog_records_in_total", topic="orders") == PARTITIONS * BATCHES * RECORDS
    assert before.value("replog_bytes_in_total") == before.value("replog_bytes_out_total") == leaders_bytes(before, cluster) > 0
    assert before.value("replog_request_seconds", request="produce") == PARTITIONS * BATCHES
    assert before.value("replog_log_flush_seconds") >= PARTITIONS
    assert before.value("replog_log_end_offset") == 3 * PARTITIONS * BATCHES * RECORDS
    assert [before.value(f"replog_{name}_total") for name in ("isr_shrinks", "isr_expands", "unclean_elections")] == [0, 0, 0]
    assert before.value("replog_leader_election_seconds") == 0

    controller = cluster.controller_id
    killed = next(b for b in cluster.brokers if b != controller)
    led = led_by(cluster, killed)
    assert led > 0
    cluster.kill_broker(killed)
    cluster.append("orders", 0, ["while one is away"])
    down = cluster.metrics()
    assert down.value("replog_leader_election_seconds", broker=controller) == led
    assert down.value("replog_isr_shrinks_total", broker=controller) == PARTITIONS
    assert down.value("replog_under_replicated_partitions") == down.value("replog_at_min_isr_partitions") == PARTITIONS
    assert (down.value("replog_leaders"), down.value("replog_leaders", broker=killed)) == (PARTITIONS, 0)
    assert down.value("replog_preferred_leader_imbalance") == led
    assert down.value("replog_replica_max_lag_records") > 0
    assert down.value("replog_active_controller") == 1
    assert down.value("replog_records_in_total") == PARTITIONS * BATCHES * RECORDS + 1

    cluster.start_broker(killed)
    cluster.wait_until_in_sync()
    after = cluster.metrics(partitions=True)
    assert after.value("replog_isr_expands_total") == PARTITIONS
    assert after.value("replog_under_replicated_partitions") == after.value("replog_replica_lag_records") == 0
    assert after.value("replog_events_total", event="broker_gone") == 1
    assert after.value("replog_store_session_events_total", state="connected") == 4
    assert after.value("replog_store_commit_seconds") > 0
    assert {metric.name for metric, _ in after} == {metric.name for metric in METRICS}


def test_the_end_of_the_controller_is_counted_by_the_next(cluster: replog.Cluster) -> None:
    filled(cluster)
    controller = cluster.controller_id
    assert controller is not None
    led = led_by(cluster, controller)
    cluster.kill_broker(controller)
    cluster.append("orders", 0, ["x"])
    found = cluster.metrics()
    assert found.value("replog_leader_election_seconds", broker=cluster.controller_id) == led
    assert found.value("replog_isr_shrinks_total", broker=cluster.controller_id) == PARTITIONS
    assert found.value("replog_active_controller") == 1


def test_partitions_without_a_leader_are_offline_and_an_unclean_election_is_counted(cluster: replog.Cluster) -> None:
    cluster.create_topic("one", assignment={0: [2, 3]}, min_isr=1)
    cluster.kill_broker(3)
    cluster.append("one", 0, ["only on 2"])
    cluster.kill_broker(2)
    assert cluster.metrics().value("replog_offline_partitions") == 1
    cluster.start_broker(3)
    cluster.elect_leaders([("one", 0)], unclean=True)
    found = cluster.metrics()
    assert (found.value("replog_offline_partitions"), found.value("replog_unclean_elections_total")) == (0, 1)


def test_a_move_is_counted_where_the_bytes_arrive(cluster: replog.Cluster) -> None:
    cluster.create_topic("orders", assignment={0: [1, 2]}, min_isr=1)
    cluster.append("orders", 0, [b"x" * 1_000] * 50)
    cluster.reassign({("orders", 0): [3, 1]})
    cluster.wait_until_in_sync()
    while cluster.reassignments():
        threading.Event().wait(0.01)
    found = cluster.metrics(partitions=True)
    assert found.value("replog_reassignment_bytes_total") == found.value("replog_reassignment_bytes_total", broker=3)
    assert found.value("replog_reassignment_bytes_total") == found.value("replog_log_bytes", broker=3) > 0
    assert found.value("replog_reassigning_partitions") == 0


def test_what_nobody_answers_and_what_is_published_in_groups_is_counted(cluster: replog.Cluster) -> None:
    cluster.create_topic("orders", min_isr=1)
    cluster.append("orders", 0, ["a", "b"], acks=0)
    cluster.append("orders", 0, ["c"], acks=1)
    cluster.stage("orders", 0, ["d", "e", "f"], writer="w", version=1, attempt="1", number=0)
    for _ in range(2):  # the second time it is there already
        cluster.publish("orders", 0, [("1", 1)], writer="w", version=1)
    for values in (["g", "h"], ["g", "h", "i"]):  # the second time it is there already, with another number of records
        cluster.append_once("orders", 0, values, writer="other", version=1)
    found = cluster.metrics()
    assert found.value("replog_records_in_total") == 8
    assert found.value("replog_request_seconds", request="produce") == 3
    assert found.value("replog_request_seconds", request="publish") == 2
    assert found.value("replog_request_seconds", request="stage") == 1


def test_ten_thousand_partitions_have_no_series_unless_asked_for(tmp_path: Path) -> None:
    with replog.Cluster(brokers=3) as cluster:
        few = {metric.name: len(samples) for metric, samples in cluster.metrics()}
        cluster.create_topic("many", partitions=10_000, replication_factor=1, min_isr=1)
        found = cluster.metrics()
        many = {metric.name: len(samples) for metric, samples in found}
        assert {name for name in many if many[name] != few.get(name)} <= {"replog_events_total", "replog_controller_event_seconds"}
        assert found.value("replog_leaders") == found.value("replog_partitions") == 10_000
        asked = cluster.metrics(partitions=True)
        assert len(asked) >= len(found) + 40_000


def test_the_lock_is_free_between_slices_of_partitions() -> None:
    """A snapshot holds an acknowledgement up for one slice at most, and looks at each partition once."""
    with replog.Cluster(brokers=1) as cluster:
        cluster.create_topic("many", partitions=3 * SLICE, replication_factor=1, min_isr=1)
        lock, taken = cluster._embedded._pump.lock, []

        class Counted:
            def __enter__(self) -> None:
                lock.__enter__()
                taken.append("in")

            def __exit__(self, *problem: object) -> None:
                lock.__exit__(None, None, None)

        life = cluster._embedded.running[1]
        subjects = [Subject(cluster._embedded.meters[1], life.broker, life.controller)]
        found = take(subjects, lock=Counted(), now_ms=0, wall_ms=0, turns=Histogram(), partitions=False)
        assert found.value("replog_partitions", broker=1) == 3 * SLICE
        assert len(taken) == 1 + 3


def test_topics_without_end_have_no_series_without_end() -> None:
    meter = Meter(1)
    for number in range(TOPICS_MAX + 5):
        meter.of(f"t{number}").records_in += 2
    meter.of("t0").records_in += 1
    assert len(meter.traffic) == TOPICS_MAX + 1
    assert (meter.traffic["t0"].records_in, meter.traffic[""].records_in) == (3, 10)


def test_the_last_changes_are_kept_and_of_large_ones_some_partitions() -> None:
    meter = Meter(1)
    for number in range(CHANGES_MAX + 5):
        meter.change("isr", [{"topic": "t", "partition": n, "partition_epoch": number} for n in range(1_000)])
        meter.event(Event("broker_gone", {"broker": number}))
    assert (len(meter.changes), len(meter.told), meter.events) == (CHANGES_MAX, CHANGES_MAX, {"broker_gone": CHANGES_MAX + 5})
    newest = meter.changes[-1]
    assert (newest["count"], len(newest["partitions"])) == (1_000, 10)
    assert len(recent([meter, meter])) == CHANGES_MAX


def test_a_broker_counts_over_its_lives_and_says_nothing_once_it_is_stopped(tmp_path: Path) -> None:
    store = f"file://{tmp_path / 'store.db'}"
    with replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b1", store=store) as broker:
        broker.wait_until_ready()
        with broker.client() as client:
            client.create_topic("orders", replication_factor=1)
            client.append("orders", 0, ["a", "b"])
            found = broker.metrics()
            assert found.value("replog_records_in_total", broker=1, topic="orders") == 2
            assert found.value("replog_loop_stall_seconds") > 0
            assert found.value("replog_loop_stall_longest_seconds") > 0
            assert found.value("replog_active_controller") == 1
            events = {state: found.value("replog_store_session_events_total", state=state) for state in ("connected", "lost")}
            assert events == {"connected": 1, "lost": 0}  # that there is no session yet is no loss of one
    with pytest.raises(UsageError, match="this Broker is stopped"):
        broker.metrics()
