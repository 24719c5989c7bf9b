"""An embedded cluster as its user sees it: it starts, loses brokers, gets them back, is closed and opened again."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.errors import UsageError


def values(cluster: replog.Cluster, topic: str, **where: Any) -> list[str]:
    """What a reader finds, as text."""
    return [record.text() for record in cluster.read(topic, **where)]


def open_descriptors(folder: Path) -> list[str]:
    """Files under `folder` that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return sorted(found)


# ---------------------------------------------------------------------------------------------------------------- losing brokers


def test_quickstart(data: Path | None) -> None:
    with replog.Cluster(data, brokers=3) as cluster:
        cluster.create_topic("orders", partitions=2, replication_factor=3, min_isr=2, exist_ok=True)
        with cluster.producer(acks="all") as producer:
            for i in range(1000):
                producer.send("orders", key=f"user-{i % 7}", value=f"order {i}")

        lost = cluster.leader("orders", 0)
        assert lost is not None
        cluster.kill_broker(lost)

        records = list(cluster.read("orders"))
        assert sorted(int(record.text().split()[1]) for record in records) == list(range(1000))
        described = cluster.describe("orders")
        assert sum(p.high_watermark or 0 for p in described.partitions) == 1000
        assert all(p.leader not in (lost, None) and len(p.isr) == 2 for p in described.partitions)
        assert "orders (2 partitions, min_isr=2)" in str(described)


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("who", ["leader", "follower", "controller"])
def test_a_broker_goes_and_comes_back(data: Path | None, who: str, how: str) -> None:
    with replog.Cluster(data, brokers=3) as cluster:
        cluster.create_topic("t", assignment={0: [2, 3, 1], 1: [3, 1, 2]})
        cluster.append("t", 0, ["a", "b"])
        controller = cluster.controller_id
        assert controller is not None
        lost = {"leader": 2, "follower": 1, "controller": controller}[who]
        (cluster.kill_broker if how == "kill" else cluster.stop_broker)(lost)
        assert lost not in cluster.brokers
        assert len(cluster.brokers) == 2
        assert cluster.controller_id not in (lost, None)

        cluster.append("t", 0, ["c"])
        cluster.append("t", 1, ["d"])
        assert values(cluster, "t") == ["a", "b", "c", "d"]
        assert cluster.leader("t", 0) != lost

        cluster.start_broker(lost)
        cluster.wait_until_in_sync(timeout_s=30)
        assert [sorted(p.isr) for p in cluster.describe("t").partitions] == [[1, 2, 3], [1, 2, 3]]
        for other in [b for b in (1, 2, 3) if b != lost]:
            cluster.kill_broker(other)
            break
        cluster.append("t", 0, ["e"])
        assert values(cluster, "t", partitions=[0]) == ["a", "b", "c", "e"]


def test_every_broker_in_turn(data: Path | None) -> None:
    """A rolling restart, by kills: each leader changes, and nothing acknowledged is lost or repeated."""
    with replog.Cluster(data, brokers=3) as cluster:
        cluster.create_topic("t", partitions=3)
        expected = []
        for round_ in range(2):
            for broker in (1, 2, 3):
                for partition in range(3):
                    cluster.append("t", partition, [f"{round_}{broker}{partition}"])
                    expected.append((partition, f"{round_}{broker}{partition}"))
                cluster.kill_broker(broker)
                cluster.append("t", 0, [f"{round_}{broker}-"])
                expected.append((0, f"{round_}{broker}-"))
                cluster.start_broker(broker)
                cluster.wait_until_in_sync(timeout_s=30)
        for partition in range(3):
            assert values(cluster, "t", partitions=[partition]) == [text for p, text in expected if p == partition]


def test_two_of_three_gone_refuses_and_recovers(data: Path | None) -> None:
    with replog.Cluster(data, brokers=3) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3]})
        cluster.append("t", 0, ["a"])
        cluster.kill_broker(2)
        cluster.kill_broker(3)
        with pytest.raises(replog.Rejected, match="NotEnoughReplicas") as refused:
            cluster.append("t", 0, ["b"], timeout_s=0.2)
        assert refused.value.code in (19, 20)
        assert values(cluster, "t") == ["a"]
        with pytest.raises(replog.TimedOut, match=r"t-0 \(leader 1, ISR \[1\] of \[1, 2, 3\]\)"):
            cluster.wait_until_in_sync(timeout_s=0.05)
        cluster.start_broker(2)
        cluster.append("t", 0, ["c"])
        assert values(cluster, "t") == ["a", "c"]


def test_all_brokers_gone_and_back(tmp_path: Path) -> None:
    with replog.Cluster(tmp_path / "data", brokers=3) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["a"])
        for broker in (1, 2, 3):
            cluster.kill_broker(broker)
        assert cluster.brokers == []
        assert cluster.controller_id is None
        with pytest.raises(replog.TimedOut):
            cluster.append("t", 0, ["lost"], timeout_s=0.1)
        for broker in (1, 2, 3):
            cluster.start_broker(broker)
        cluster.wait_until_in_sync(timeout_s=30)
        assert values(cluster, "t") == ["a"]


def test_add_broker(data: Path | None) -> None:
    with replog.Cluster(data, brokers=2) as cluster:
        cluster.create_topic("old")
        assert cluster.add_broker(rack="b") == 3
        assert cluster.brokers == [1, 2, 3]
        cluster.create_topic("new", replication_factor=3)
        cluster.append("new", 0, ["x"])
        assert sorted(cluster.describe("new").partitions[0].replicas) == [1, 2, 3]
        assert sorted(cluster.describe("old").partitions[0].replicas) == [1, 2]
        assert [b.rack for b in cluster.describe_cluster().brokers] == [None, None, "b"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.kill_broker(9), r"broker 9 does not run; running are \[1, 2, 3\]"),
        (lambda c: c.stop_broker("1"), r"broker_id is '1'; a broker has a number"),
        (lambda c: c.start_broker(1), "broker 1 runs already"),
        (lambda c: c.start_broker(7), "there is no broker 7 to start; stopped are none"),
    ],
)
def test_brokers_that_are_not_there(call: Any, says: str) -> None:
    with replog.Cluster(brokers=3) as cluster:
        with pytest.raises(UsageError, match=says):
            call(cluster)
        assert cluster.brokers == [1, 2, 3]


# ---------------------------------------------------------------------------------------------------------------- open and close


def test_a_constructor_opens_nothing(tmp_path: Path) -> None:
    threads = threading.active_count()
    cluster = replog.Cluster(tmp_path / "data")
    assert not (tmp_path / "data").exists()
    assert cluster.endpoints == []
    cluster.close()
    assert not (tmp_path / "data").exists()
    assert threading.active_count() == threads


def test_no_thread_is_started(data: Path | None) -> None:
    threads = threading.active_count()
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t", flush="ack" if data is None else "os")  # each broker has one for a disk to flush to
        with cluster.producer() as producer:
            producer.send("t", "x").result(timeout_s=10)
        assert threading.active_count() == threads


def test_close_at_any_time(data: Path | None, tmp_path: Path) -> None:
    never_started = replog.Cluster(data)
    never_started.close()
    never_started.close()
    with pytest.raises(UsageError, match="closed"):
        never_started.start()

    cluster = replog.Cluster(data).start()
    cluster.create_topic("t")
    producer = cluster.producer()
    producer.send("t", "x").result(timeout_s=10)
    cluster.close()
    cluster.close()
    for call in (
        lambda: cluster.topics(),
        lambda: cluster.append("t", 0, ["x"]),
        lambda: cluster.producer(),
        lambda: cluster.consumer("t"),
        lambda: cluster.kill_broker(1),
        lambda: cluster.start_broker(1),
        lambda: cluster.add_broker(),
        lambda: cluster.wait_until_in_sync(),
        lambda: cluster.brokers,
        lambda: producer.send("t", "y"),
        lambda: list(cluster.read("t")),
    ):
        with pytest.raises(UsageError, match="closed"):
            call()
    assert open_descriptors(tmp_path) == []


def test_close_ends_another_threads_wait(data: Path | None) -> None:
    cluster = replog.Cluster(data).start()
    cluster.create_topic("t")
    waiting = threading.Event()
    ended: list[BaseException] = []

    def follow() -> None:
        try:
            with cluster.consumer("t") as consumer:
                consumer.poll()
                waiting.set()
                consumer.poll(timeout_s=60)
        except replog.ReplogError as error:
            ended.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    assert waiting.wait(30)
    cluster.close()
    thread.join(30)
    assert not thread.is_alive()
    assert [type(error) for error in ended] == [UsageError]


def test_reopened(tmp_path: Path) -> None:
    for run in range(3):
        with replog.Cluster(tmp_path / "data") as cluster:
            topic_id = cluster.create_topic("t", exist_ok=True)
            assert cluster.append("t", 0, [f"run {run}"]).base_offset == run
            assert values(cluster, "t") == [f"run {n}" for n in range(run + 1)]
            assert cluster.describe("t").topic_id == topic_id
            cluster.wait_until_in_sync(timeout_s=30)
    assert open_descriptors(tmp_path) == []


def test_reopened_with_more_and_fewer_brokers(tmp_path: Path) -> None:
    with replog.Cluster(tmp_path / "data", brokers=2) as cluster:
        cluster.create_topic("t", replication_factor=2)
        cluster.append("t", 0, ["x"])
    with replog.Cluster(tmp_path / "data", brokers=4) as cluster:
        assert cluster.brokers == [1, 2, 3, 4]
        cluster.create_topic("wide", replication_factor=4)
        cluster.append("wide", 0, ["y"])
    with pytest.raises(UsageError, match="holds 4 brokers; opening it with 3 would leave copies behind"):
        replog.Cluster(tmp_path / "data", brokers=3).start()
    with replog.Cluster(tmp_path / "data", brokers=4) as cluster:
        assert (values(cluster, "t"), values(cluster, "wide")) == (["x"], ["y"])


def test_a_wiped_broker_is_filled_again(tmp_path: Path) -> None:
    """A folder that is gone is a loss: its broker leads nothing before it has caught up."""
    data = tmp_path / "data"
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t", assignment={0: [2, 1, 3]})
        cluster.append("t", 0, ["a", "b"])
    (data / "broker-2").rename(tmp_path / "elsewhere")
    with replog.Cluster(data) as cluster:
        assert values(cluster, "t") == ["a", "b"]
        cluster.wait_until_in_sync(timeout_s=30)
        cluster.kill_broker(1)
        cluster.kill_broker(3)
        assert values(cluster, "t") == ["a", "b"]


def test_an_open_that_fails_undoes_itself(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["x"])
    meta = data / "broker-3" / "meta"
    good = meta.read_bytes()
    meta.write_bytes(b"something else")
    cluster = replog.Cluster(data)
    for _ in range(2):
        with pytest.raises(replog.ReplogError, match="broker-3"), cluster:
            raise AssertionError("not reached")
        assert open_descriptors(tmp_path) == []
    meta.write_bytes(good)
    with cluster:  # the same object: nothing of the failed attempts is left in the way
        assert values(cluster, "t") == ["x"]


def test_an_exception_in_with_closes(data: Path | None, tmp_path: Path) -> None:
    cluster = replog.Cluster(data)
    with pytest.raises(ZeroDivisionError), cluster:
        cluster.create_topic("t", partitions=1 // 0)
    with pytest.raises(UsageError):
        cluster.topics()
    assert open_descriptors(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"brokers": 0}, "brokers is 0; a cluster has 1 to 100"),
        ({"brokers": "3"}, "brokers is '3'"),
        ({"brokers": True}, "brokers is True"),
        ({"brokers": 101}, "brokers is 101"),
        ({"brokers": 2.0}, "brokers is 2.0"),
        ({"listen": "127.0.0.1:0"}, "an endpoint is written tcp://host:port"),
        ({"listen": "tcp://0.0.0.0:0"}, "listen='tcp://0.0.0.0:0'"),
        ({"store": 5}, "store=5"),
        ({"config": {"replica_lag_ms": 5}}, "unknown configuration key 'replica_lag_ms'; did you mean 'replica_lag_ms_max'"),
        ({"config": {"session_ms": "9"}}, "session_ms is an int, not '9'"),
        ({"client_config": {"linger": 5}}, "unknown configuration key 'linger'; did you mean 'linger_ms'"),
        ({"data": 5}, "data is 5"),
        ({"data": ""}, "data is ''"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        replog.Cluster(**arguments)


# ----------------------------------------------------------------------------------------------------------- threads, callbacks


@pytest.mark.parametrize("wait_s", [0, 0.05])
def test_a_fetch_at_the_end_finds_nothing(data: Path | None, wait_s: float) -> None:
    with replog.Cluster(data, client_config={"request_timeout_ms": 2_000}) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["a"])
        assert cluster.fetch("t", 0, 1, wait_s=wait_s) == []
        assert [record.text() for record in cluster.fetch("t", 0, 0, wait_s=wait_s)] == ["a"]


def test_two_threads_append_and_read(data: Path | None) -> None:
    count = 150
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t", partitions=2)
        failures: list[BaseException] = []

        def work(name: str, partition: int) -> None:
            try:
                for i in range(count):
                    cluster.append("t", partition, [f"{name}{i}"])
                    if i % 25 == 0:
                        mine = [text for text in values(cluster, "t") if text[0] == name]
                        assert mine == [f"{name}{n}" for n in range(i + 1)]
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(name, n % 2)) for n, name in enumerate("abcd")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert failures == []
        found = values(cluster, "t")
        for name in "abcd":
            assert [text for text in found if text[0] == name] == [f"{name}{i}" for i in range(count)]
        assert len(found) == 4 * count


def test_callbacks_run_outside_the_lock() -> None:
    """Another thread can use the cluster while a callback waits for it, and a callback may use the cluster itself."""
    with replog.Cluster() as cluster:
        cluster.create_topic("t")
        seen: list[Any] = []

        def called(delivery: replog.Delivery) -> None:
            other = threading.Thread(target=lambda: seen.append(cluster.append("t", 0, ["from a thread"])))
            other.start()
            other.join(30)
            seen.append(other.is_alive())
            seen.append(cluster.append("t", 0, ["from the callback"]))

        with cluster.producer() as producer:
            producer.send("t", "first").add_done_callback(called)
        assert [getattr(entry, "base_offset", entry) for entry in seen] == [1, False, 2]
        assert values(cluster, "t") == ["first", "from a thread", "from the callback"]


def test_fork(data: Path | None) -> None:
    with replog.Cluster(data) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["before"])
        producer = cluster.producer()
        producer.send("t", "also before").result(timeout_s=10)
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with cluster._embedded.lock:
                held.set()
                release.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(30)
        child = os.fork()
        if child == 0:  # another thread held the lock at the fork, and does not exist here
            status = 1
            try:
                refused = 0
                for call in (
                    lambda: cluster.append("t", 0, ["child"]),
                    lambda: cluster.topics(),
                    lambda: cluster.create_topic("u"),
                    lambda: producer.send("t", "child"),
                    lambda: cluster.kill_broker(1),
                    lambda: cluster.start(),
                ):
                    try:
                        call()
                    except UsageError:
                        refused += 1
                cluster.close()
                status = 0 if refused == 6 else 2
            finally:
                os._exit(status)
        release.set()
        thread.join(30)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        cluster.append("t", 0, ["after"])
        producer.send("t", "also after").result(timeout_s=10)
        producer.close()
        cluster.kill_broker(cluster.leader("t", 0) or 1)
        assert values(cluster, "t") == ["before", "also before", "after", "also after"]


def test_only_an_empty_last_broker_can_be_removed(tmp_path: Path) -> None:
    with replog.Cluster(tmp_path / "data", brokers=3) as cluster:
        assert cluster.add_broker() == 4
        cluster.create_topic("spread", assignment={0: [4, 1]})
        with pytest.raises(replog.UsageError, match="broker 4 holds copies of spread-0"):
            cluster.remove_broker(4)
        with pytest.raises(replog.UsageError, match=r"brokers are \[1, 2, 3, 4\]"):
            cluster.remove_broker(2)
        cluster.delete_topic("spread")
        cluster.remove_broker(4)
        assert cluster.brokers == [1, 2, 3]
    with replog.Cluster(tmp_path / "data", brokers=3) as cluster:
        assert cluster.brokers == [1, 2, 3]
