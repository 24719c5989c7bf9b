"""Brokers of a cluster in one process that are taken out for good: nothing is deleted by who does not know what it holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import replog
from replog.errors import TimedOut, Unavailable, UsageError
from replog.runtime import embedded_brokers, informed
from replog.runtime.embedded_broker import EmbeddedBroker
from replog.runtime.embedded_brokers import EmbeddedBrokers


@pytest.fixture
def two(tmp_path: Path) -> replog.Cluster:
    """Brokers 1 and 2, of which the second holds nothing."""
    cluster = replog.Cluster(tmp_path / "data", brokers=2).start()
    cluster.create_topic("t", assignment={0: [1]}, min_isr=1)
    return cluster


def test_nothing_is_deleted_where_nobody_knows_what_a_broker_holds(
    two: replog.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was just opened knows of no topic, and that says nothing."""
    folder = tmp_path / "data/broker-2"
    with two as cluster:
        with monkeypatch.context() as patch:
            patch.setattr(EmbeddedBroker, "knows_unfenced", lambda self, lives: False)
            with pytest.raises(Unavailable, match="what broker 2 holds is not known: no other broker runs"):
                cluster.remove_broker(2)
            with pytest.raises(TimedOut, match="no broker runs that the controller has let in"):
                cluster.wait_until_in_sync(timeout_s=0)
        assert folder.exists()
        assert cluster.brokers == [1, 2]
        cluster.remove_broker(2)
        assert not folder.exists()
        cluster.wait_until_in_sync()


def test_the_last_that_runs_is_not_stopped_for_nothing(two: replog.Cluster) -> None:
    with two as cluster:
        cluster.kill_broker(1)
        with pytest.raises(Unavailable, match="no other broker runs"):
            cluster.remove_broker(2)
        assert cluster.brokers == [2]


def start_again(cluster: replog.Cluster) -> None:
    cluster.start_broker(2)


def give_a_copy(cluster: replog.Cluster) -> None:
    cluster.start_broker(2)
    cluster.create_topic("u", assignment={0: [2]}, min_isr=1)
    cluster.kill_broker(2)


def add_another(cluster: replog.Cluster) -> None:
    assert cluster.add_broker() == 3


@pytest.mark.parametrize(
    ("meanwhile", "says"),
    [
        (start_again, "broker 2 was started again while it was being removed"),
        (give_a_copy, "broker 2 holds copies of u-0"),
        (add_another, r"broker 2 cannot be removed: brokers are \[1, 2, 3\]"),
    ],
)
def test_what_others_did_while_it_took_its_leave_is_seen(
    two: replog.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[replog.Cluster], None], says: str
) -> None:
    end = EmbeddedBrokers.end

    def end_and_others(self: EmbeddedBrokers, broker_id: int, *, clean: bool) -> None:
        end(self, broker_id, clean=clean)
        monkeypatch.setattr(EmbeddedBrokers, "end", end)
        meanwhile(two)

    with two as cluster:
        monkeypatch.setattr(EmbeddedBrokers, "end", end_and_others)
        with pytest.raises(UsageError, match=says):
            cluster.remove_broker(2)
        assert (tmp_path / "data/broker-2").exists()
        assert informed.informed(cluster._embedded.running) is not None


def test_no_more_brokers_are_added_than_can_be_opened_again(two: replog.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_brokers, "BROKERS_MAX", 2)
    with two as cluster, pytest.raises(UsageError, match="a cluster has at most 2 brokers"):
        cluster.add_broker()
    assert sorted(one.name for one in (tmp_path / "data").glob("broker-*")) == ["broker-1", "broker-2"]


def test_each_folder_says_whose_it_is(two: replog.Cluster, tmp_path: Path) -> None:
    """Whoever goes on with one broker per process, and mistypes a number, hears so before copies are put away that nobody wants."""
    with two as cluster:
        cluster.append("t", 0, ["kept"])
    data = tmp_path / "data"
    for number, folder in ((2, "broker-1"), (1, "broker-2")):
        broker = replog.Broker(number, listen="tcp://127.0.0.1:0", data=data / folder, store=f"file://{data}/metadata.db")
        with pytest.raises(UsageError, match=f"{folder} is the data folder of broker {3 - number}; broker {number} needs one of its own"):
            broker.open()
    with replog.Cluster(data, brokers=2) as cluster:
        assert [record.text() for record in cluster.read("t")] == ["kept"]


def test_a_store_in_memory_may_be_named(tmp_path: Path) -> None:
    with replog.Cluster(brokers=2, store="memory://") as cluster:
        cluster.create_topic("t", replication_factor=2, min_isr=2)
        assert cluster.append("t", 0, ["x"]) is not None
    with pytest.raises(UsageError, match="a store in memory has no name"):
        replog.Cluster(store="memory://named")


def test_all_who_use_a_cluster_first_hear_why_it_cannot_be_opened() -> None:
    cluster = replog.Cluster(brokers=1, store="file:///no/such/folder/store.db")
    raised: list[BaseException] = []

    def use(call: Callable[[], object]) -> None:
        try:
            call()
        except (UsageError, Unavailable) as problem:
            raised.append(problem)

    calls: list[Callable[[], object]] = [
        cluster.start,
        lambda: cluster.create_topic("t", timeout_s=None),
        lambda: cluster.wait_until_in_sync(timeout_s=None),
    ]
    threads = [threading.Thread(target=use, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(raised) == 3
    cluster.close()
