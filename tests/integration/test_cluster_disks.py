"""Power cuts and broken disks under an embedded cluster: what was acknowledged stays, and what may be lost is written down."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import replog
from replog.log.files import OS, Fs
from replog.metadata.judgements import decode_loss, loss_path
from replog.testing.disk import FaultyFs, MemoryFs, keep_all, keep_none


def values(cluster: replog.Cluster, topic: str = "t", partition: int = 0) -> list[str]:
    """What a reader finds, as text."""
    return [record.text() for record in cluster.read(topic, partitions=[partition])]


def leader(cluster: replog.Cluster) -> int | None:
    """Who leads t-0, None if nobody does."""
    return cluster.describe("t").partitions[0].leader


class Machines:
    """A machine for each broker, each with a disk that forgets what was not synced when its power is cut."""

    def __init__(self, folder: Path, brokers: int = 3) -> None:
        self.folder = folder
        self.brokers = brokers
        self.disks = {broker: MemoryFs() for broker in range(1, brokers + 1)}

    def cluster(self) -> replog.Cluster:
        return replog.Cluster(self.folder, brokers=self.brokers, _fs_of=self.disks.__getitem__)

    def cut(self, cluster: replog.Cluster, broker: int, choose: Callable[[], bool] = keep_none) -> None:
        """The machine of one broker stops; the others go on."""
        cluster.kill_broker(broker)
        self.disks[broker].cut_power(choose)

    def cut_all(self, cluster: replog.Cluster, choose: Callable[[], bool] = keep_none, lucky: int = 0) -> None:
        """All at once: nobody sees the others go. The disk of the `lucky` broker had everything."""
        with cluster._embedded.lock:
            cluster._embedded._abandon()
            cluster._embedded._state = "closed"
        for broker, disk in self.disks.items():
            disk.cut_power(keep_all if broker == lucky else choose)


# --------------------------------------------------------------------------------------------------------------------- power cuts


@pytest.mark.parametrize("flush", ["os", "interval", "ack"])
@pytest.mark.parametrize("keep", ["none", "some", "all"])
def test_one_of_three_loses_power(tmp_path: Path, flush: str, keep: str) -> None:
    """min_isr 2: any one replica may lose what it had not synced, the leader included, again and again."""
    chance = random.Random(f"{flush} {keep}")
    choose = {"none": keep_none, "all": keep_all, "some": lambda: chance.random() < 0.5}[keep]
    machines = Machines(tmp_path / "data")
    with machines.cluster() as cluster:
        cluster.create_topic("t", flush=flush, segment_bytes=600)
        expected: list[str] = []
        for round_ in range(12):
            for n in range(chance.randrange(5)):
                expected.append(f"{round_}/{n}")
                cluster.append("t", 0, [expected[-1]])
            broker = chance.choice([cluster.leader("t", 0), 1, 2, 3])
            machines.cut(cluster, broker, choose)
            expected.append(f"{round_}/without {broker}")
            cluster.append("t", 0, [expected[-1]])
            cluster.start_broker(broker)
            assert values(cluster) == expected
            cluster.wait_until_in_sync(timeout_s=30)
        assert values(cluster) == expected


def test_two_of_five_lose_power(tmp_path: Path) -> None:
    """min_isr 3: two replicas at once, the leader among them."""
    chance = random.Random(5)
    machines = Machines(tmp_path / "data", brokers=5)
    with machines.cluster() as cluster:
        cluster.create_topic("t", replication_factor=5, min_isr=3)
        expected: list[str] = []
        for round_ in range(10):
            expected.append(str(round_))
            cluster.append("t", 0, [expected[-1]])
            first = cluster.leader("t", 0)
            lost = [first, chance.choice([b for b in range(1, 6) if b != first])]
            for broker in lost:
                machines.cut(cluster, broker)
            for broker in lost:
                cluster.start_broker(broker)
            assert values(cluster) == expected
            cluster.wait_until_in_sync(timeout_s=30)


def test_the_isr_shrinks_to_one_and_that_one_loses_power(tmp_path: Path) -> None:
    """Nothing is acknowledged by one replica alone, so nothing acknowledged hangs on what it had not synced."""
    machines = Machines(tmp_path / "data")
    with machines.cluster() as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3]})
        cluster.append("t", 0, ["a", "b"])
        cluster.kill_broker(3)
        cluster.append("t", 0, ["c"])
        cluster.kill_broker(2)
        with pytest.raises(replog.ReplogError):
            cluster.append("t", 0, ["never acknowledged"], timeout_s=0.05)
        machines.cut(cluster, 1)
        cluster.start_broker(1)
        assert leader(cluster) is None  # it lost records and says so; broker 2 has them
        cluster.start_broker(3)
        cluster.start_broker(2)
        cluster.wait_until_in_sync(timeout_s=30)
        assert values(cluster)[:3] == ["a", "b", "c"]


@pytest.mark.parametrize("keep", ["none", "some"])
def test_all_lose_power_and_had_flushed(tmp_path: Path, keep: str) -> None:
    chance = random.Random(keep)
    machines = Machines(tmp_path / "data")
    expected: list[str] = []
    for round_ in range(6):
        cluster = machines.cluster().start()
        cluster.create_topic("t", flush="ack", exist_ok=True)
        assert values(cluster) == expected
        for n in range(4):
            expected.append(f"{round_}/{n}")
            cluster.append("t", 0, [expected[-1]])
        machines.cut_all(cluster, keep_none if keep == "none" else lambda: chance.random() < 0.5)
    with machines.cluster() as cluster:
        assert values(cluster) == expected
        cluster.wait_until_in_sync(timeout_s=30)
        assert cluster._embedded._store.read(loss_path(bytes.fromhex(cluster.describe("t").topic_id), 0)) is None


def test_all_lose_power_and_had_not_flushed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """flush="os" may lose what everybody lost at once: the longest copy leads, and what may be missing is on record."""
    machines = Machines(tmp_path / "data")
    cluster = machines.cluster().start()
    cluster.create_topic("t")
    cluster.append("t", 0, ["flushed"])
    cluster.close()  # cleanly: this is on the disks
    cluster = machines.cluster().start()
    cluster.append("t", 0, ["a"])
    cluster.append("t", 0, ["b"])
    machines.cut_all(cluster, lucky=2)
    with machines.cluster() as cluster:
        cluster.wait_until_in_sync(timeout_s=30)
        assert values(cluster) == ["flushed", "a", "b"]
        described = cluster.describe("t")
        stored = cluster._embedded._store.read(loss_path(bytes.fromhex(described.topic_id), 0))
        assert stored is not None
        loss = decode_loss("loss", stored.value)
        assert (loss.topic, loss.kind, loss.leader, loss.missing) == ("t", "last_known", 2, ())
        assert sorted((c.broker, c.end_offset) for c in loss.candidates) == [(1, 1), (2, 3), (3, 1)]
        (warned,) = [r for r in caplog.records if r.getMessage().startswith("records_may_be_lost")]
        assert (warned.levelname, warned.name) == ("WARNING", "replog")
        for said in ("'topic': 't', 'partition': 0", "'lost': 'records from offset 3 on'", loss_path(bytes.fromhex(described.topic_id), 0)):
            assert said in warned.getMessage()
        cluster.append("t", 0, ["c"])
        cluster.kill_broker(2)
        assert values(cluster) == ["flushed", "a", "b", "c"]


def test_one_of_the_last_known_is_still_away(tmp_path: Path) -> None:
    """After all lost power, nobody leads before everyone who may hold the most has come back."""
    machines = Machines(tmp_path / "data")
    cluster = machines.cluster().start()
    cluster.create_topic("t")
    cluster.append("t", 0, ["a"])
    for broker in (1, 2, 3):
        machines.cut(cluster, broker, keep_all)
    for broker in (1, 2):
        cluster.start_broker(broker)
        assert leader(cluster) is None
    cluster.start_broker(3)
    cluster.wait_until_in_sync(timeout_s=30)
    assert values(cluster) == ["a"]
    cluster.close()


# ------------------------------------------------------------------------------------------------------------------- broken disks


class Disk:
    """The real files, and an error for each `operation` on paths that end with `suffix` once it is broken."""

    def __init__(self, operation: str, suffix: str = ".log", code: int = errno.EIO) -> None:
        self.operation, self.suffix, self.code = operation, suffix, code
        self.broken = False
        self.hits = 0
        self.fs = FaultyFs(OS, self.before)

    def before(self, operation: str, path: str) -> int | None:
        if self.broken and operation == self.operation and path.endswith(self.suffix):
            self.hits += 1
            raise OSError(self.code, "Input/output error", path)
        return None


def opened(tmp_path: Path, disk: Disk, broker: int) -> replog.Cluster:
    def fs_of(broker_id: int) -> Fs:
        return disk.fs if broker_id == broker else OS

    return replog.Cluster(tmp_path / "data", _fs_of=fs_of, config={"replica_lag_ms_max": 200}).start()


def test_write_error_on_a_follower(tmp_path: Path) -> None:
    """One copy is out; other partitions of that broker go on. Its broker, started again on a mended disk, catches up."""
    disk = Disk("write")
    with opened(tmp_path, disk, 3) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3], 1: [3, 1, 2]})
        cluster.append("t", 0, ["a"])
        cluster.append("t", 1, ["x"])
        disk.broken = True
        cluster.append("t", 0, ["b"])
        disk.broken = False
        assert cluster.describe("t").partitions[0].isr == (1, 2)
        cluster.append("t", 1, ["y"])
        assert cluster.leader("t", 1) == 3
        with pytest.raises(replog.TimedOut, match=r"missing 1: t-0 \(leader 1, ISR \[1, 2\] of \[1, 2, 3\]\)"):
            cluster.wait_until_in_sync(timeout_s=0.05)
        assert disk.hits == 1  # final until it is opened again: not tried twice
        cluster.kill_broker(3)
        cluster.start_broker(3)
        cluster.wait_until_in_sync(timeout_s=30)
        assert (values(cluster), values(cluster, partition=1)) == (["a", "b"], ["x", "y"])


def test_write_error_on_a_leader(tmp_path: Path) -> None:
    """The append goes on at the next leader; what the broken copy got of it is never seen."""
    disk = Disk("write")
    with opened(tmp_path, disk, 1) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3]})
        cluster.append("t", 0, ["a"])
        disk.broken = True
        receipt = cluster.append("t", 0, ["b"])
        assert receipt.base_offset == 1
        assert cluster.leader("t", 0) == 2
        assert disk.hits == 1
        cluster.append("t", 0, ["c"])
        assert values(cluster) == ["a", "b", "c"]
        with pytest.raises(replog.TimedOut, match=r"t-0 \(leader 2, ISR \[2, 3\] of \[1, 2, 3\]\)"):
            cluster.wait_until_in_sync(timeout_s=0.05)


@pytest.mark.parametrize("broker", [1, 3], ids=["leader", "follower"])
def test_flush_error(tmp_path: Path, broker: int) -> None:
    """A flush that fails is final for the whole directory: nothing is led, acknowledged or flushed there any more."""
    disk = Disk("fsync")
    with opened(tmp_path, disk, broker) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3]}, flush="ack")
        cluster.create_topic("other", assignment={0: [broker, 2]}, min_isr=1)
        cluster.append("t", 0, ["a"])
        cluster.append("other", 0, ["x"])
        disk.broken = True
        cluster.append("t", 0, ["b"])
        disk.broken = False
        cluster.append("t", 0, ["c"])
        cluster.append("other", 0, ["y"])
        assert disk.hits == 1  # no retry: after one failure the kernel calls the pages clean
        assert broker not in (cluster.leader("t", 0), cluster.leader("other", 0))
        assert broker not in cluster.describe("t").partitions[0].isr
        assert (values(cluster), values(cluster, "other")) == (["a", "b", "c"], ["x", "y"])
        missing = r"missing 2: t-0 \(leader [12], ISR \[.*\] of \[1, 2, 3\]\), other-0 \(leader 2, ISR \[2\] "
        with pytest.raises(replog.TimedOut, match=missing):
            cluster.wait_until_in_sync(timeout_s=0.05)
        cluster.kill_broker(broker)
        cluster.start_broker(broker)
        cluster.wait_until_in_sync(timeout_s=30)
        cluster.kill_broker(2)
        assert (values(cluster), values(cluster, "other")) == (["a", "b", "c"], ["x", "y"])


def test_flush_error_of_the_only_copy(tmp_path: Path) -> None:
    """Nobody else has it: no acknowledgement, and reads say why."""
    disk = Disk("fsync")
    with opened(tmp_path, disk, 1) as cluster:
        cluster.create_topic("t", assignment={0: [1]}, flush="ack")
        cluster.append("t", 0, ["a"])
        disk.broken = True
        with pytest.raises(replog.ReplogError):
            cluster.append("t", 0, ["b"], timeout_s=0.1)
        disk.broken = False
        with pytest.raises(replog.ReplogError):
            cluster.append("t", 0, ["c"], timeout_s=0.1)
        assert cluster.brokers == [1, 2, 3]
        assert leader(cluster) is None
    with replog.Cluster(tmp_path / "data") as cluster:  # the disk is mended: what is there is found, and taken for what it is
        cluster.wait_until_in_sync(timeout_s=30)
        assert values(cluster)[:1] == ["a"]


def test_checkpoint_error(tmp_path: Path) -> None:
    """What the directory notes about itself cannot be written: its broker gives up what it leads, and the application goes on."""
    disk = Disk("write", "checkpoint.new")
    with opened(tmp_path, disk, 1) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3]})
        cluster.append("t", 0, ["a"])
        disk.broken = True
        cluster._embedded.running[1].broker.upkeep._checkpoint_ms = 0
        cluster._embedded.running[1].broker.upkeep.next_ms = 0
        cluster.append("t", 0, ["b"])
        assert cluster.append("t", 0, ["c"]).base_offset == 2
        assert disk.hits == 1
        assert cluster.leader("t", 0) == 2
        assert values(cluster) == ["a", "b", "c"]
