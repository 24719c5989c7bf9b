"""Ten thousand partitions in one cluster: what an append costs does not depend on how many are idle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import replog
from replog.log.files import Fs
from replog.log.segmented import SegmentedLog

MANY = 10_000


class CountingFs(Fs):
    """The real files, and how often each function was called."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1

    def open(self, path: str, *, create: bool = False) -> int:
        self._count("open")
        return super().open(path, create=create)

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:  # type: ignore[override]
        self._count("pwritev")
        return Fs.pwritev(fd, buffers, position)

    def pread(self, fd: int, count: int, position: int) -> bytes:  # type: ignore[override]
        self._count("pread")
        return Fs.pread(fd, count, position)

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self._count("fsync")
        Fs.fsync(fd)

    def mkdir(self, path: str) -> None:
        self._count("mkdir")
        super().mkdir(path)

    def fsync_dir(self, path: str) -> None:
        self._count("fsync_dir")
        super().fsync_dir(path)

    def listdir(self, path: str) -> list[str]:
        self._count("listdir")
        return super().listdir(path)

    def size(self, path: str) -> int | None:
        self._count("size")
        return super().size(path)


def appends(cluster: replog.Cluster, disks: dict[int, CountingFs], partition: int) -> tuple[int, dict[str, int]]:
    """Messages and system calls that ten appends to one partition take, the files being open."""
    cluster.append("t-3", partition, ["first"])
    cluster._embedded.run()
    pump = cluster._embedded._pump
    before = pump.delivered
    for disk in disks.values():
        disk.calls.clear()
    for _ in range(10):
        cluster.append("t-3", partition, ["x"])
    total: dict[str, int] = {}
    for disk in disks.values():
        for name, count in disk.calls.items():
            total[name] = total.get(name, 0) + count
    return pump.delivered - before, total


@pytest.mark.parametrize("shape", ["one topic", "ten topics"])
def test_many_partitions(tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = {"heartbeat_ms": 600_000, "checkpoint_interval_ms": 600_000, "reconcile_ms": 600_000}  # nothing but the appends is counted

    def opened(name: str, disks: dict[int, CountingFs], brokers: int = 3) -> replog.Cluster:
        def fs_of(broker_id: int) -> Fs:
            return disks.setdefault(broker_id, CountingFs())

        return replog.Cluster(tmp_path / name, brokers=brokers, config=quiet, _fs_of=fs_of).start()

    def create(cluster: replog.Cluster, partitions: int) -> None:
        topics = {"t-3": partitions} if shape == "one topic" else {f"t-{n}": partitions // 10 for n in range(10)}
        for topic, count in topics.items():
            cluster.create_topic(topic, partitions=count, replication_factor=1, timeout_s=120)
            assert cluster.partitions_for(topic) == list(range(count))

    few_disks: dict[int, CountingFs] = {}
    with opened("few", few_disks) as few:
        create(few, 10)
        few_cost = appends(few, few_disks, 0)

    disks: dict[int, CountingFs] = {}
    many = opened("many", disks)
    try:
        before = sum(1 for path in (tmp_path / "many").rglob("*") if path.is_file())
        for disk in disks.values():
            disk.calls.clear()
        create(many, MANY)
        many.wait_until_in_sync(timeout_s=120)
        after = sum(1 for path in (tmp_path / "many").rglob("*") if path.is_file())
        assert after - before <= len(disks)  # one catalogue for each broker, and nothing for a partition
        assert all(disk.calls.get("mkdir", 0) == 0 for disk in disks.values())
        assert all(disk.calls["pwritev"] <= 60 for disk in disks.values()), "one write for each slice of a topic"
        assert appends(many, disks, 7) == few_cost
        assert few_cost == (20, {"pwritev": 10})
    finally:
        many.close()

    looked_at: list[object] = []
    recover = SegmentedLog.__init__
    monkeypatch.setattr(SegmentedLog, "__init__", lambda self, *a: (looked_at.append(a[3]), recover(self, *a))[1])
    for disk in disks.values():
        disk.calls.clear()
    with opened("many", disks) as cluster:
        assert len(looked_at) == MANY
        assert sum(1 for state in looked_at if state is not None) == 1  # only what holds records is looked at
        assert all(sum(disk.calls.values()) < 100 for disk in disks.values())
        assert [record.text() for record in cluster.read("t-3", partitions=[7])] == ["first", *"x" * 10]
        assert cluster.append("t-3", 8, ["y"]).base_offset == 0


def test_ten_thousand_in_memory_with_three_replicas() -> None:
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=MANY, replication_factor=3, timeout_s=120)
        cluster.wait_until_in_sync(timeout_s=120)
        leaders = [p.leader for p in cluster._core.view.topics["t"].partitions.values()]
        assert sorted({leaders.count(broker) for broker in (1, 2, 3)}) in ([3333, 3334], [3333])
        pump = cluster._embedded._pump
        cluster.append("t", 17, ["a"])
        taken = []
        for value in "bcdef":  # a heartbeat may be due in one of them
            before = pump.delivered
            cluster.append("t", 17, [value])
            taken.append(pump.delivered - before)
        assert min(taken) <= 12
        cluster.kill_broker(leaders[17] or 1)
        assert [record.text() for record in cluster.read("t", partitions=[17])] == [*"abcdef"]
