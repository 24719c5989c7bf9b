"""Work that is repeated, in a whole cluster with files: killed between any two slices of a publication, it is there once or not at all."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.broker.publishing import Publishing
from replog.errors import MessageTooLarge, ReplogError, UnknownStage
from replog.testing.eventually import eventually

PIECES = 4
VALUES = [f"{number}/{n}" for number in range(PIECES) for n in range(3)]
CONFIG: dict[str, Any] = {"publish_slice_bytes": 1}
WORK: dict[str, Any] = {"writer": "job/0", "version": 7}


def staged(cluster: Any, attempt: str, *, version: int = 7) -> list[tuple[str, int]]:
    """Stage all of the work; what to publish."""
    for number in range(PIECES):
        cluster.stage("t", 0, VALUES[3 * number : 3 * number + 3], writer="job/0", version=version, attempt=attempt, number=number)
    return [(attempt, PIECES)]


def values(cluster: replog.Cluster) -> list[str]:
    """What a reader finds."""
    return [record.text() for record in cluster.read("t", partitions=[0])]


def stored(broker: Path) -> dict[str, bytes]:
    """The bytes of each log."""
    logs: dict[str, bytes] = {}
    for file in sorted(broker.rglob("*.log")):
        logs[file.parent.name] = logs.get(file.parent.name, b"") + file.read_bytes()
    return logs


class Held:
    """Publications stop after so many slices, and stay there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slices: int) -> None:
        self.slices: int | None = slices
        self.seen = 0
        self.stopped = threading.Event()
        go_on = Publishing._go_on

        def held(publishing: Publishing, partition: Any, publication: Any, now_ms: int) -> None:
            if self.seen == self.slices:
                publication.not_before_ms = now_ms + 3_600_000
                self.stopped.set()
                return
            self.seen += 1
            go_on(publishing, partition, publication, now_ms)

        monkeypatch.setattr(Publishing, "_go_on", held)

    def release(self) -> None:
        self.slices = None

    def go_on(self, cluster: replog.Cluster) -> None:
        """Release what has stopped."""
        publishing = cluster._embedded.running[cluster.leader("t", 0)].broker._publishing
        with cluster._embedded.lock:
            self.release()
            (publication,) = publishing._under_way.values()
            publication.not_before_ms = publishing.due_ms = 0


@contextmanager
def published(cluster: replog.Cluster, attempts: list[tuple[str, int]]) -> Iterator[list[Any]]:
    """Publish in another thread; what came of it, once it has ended."""
    found: list[Any] = []

    def publish() -> None:
        try:
            found.append(cluster.publish("t", 0, attempts, **WORK, timeout_s=60))
        except ReplogError as problem:
            found.append(problem)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield found
    finally:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("slices", range(PIECES))
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_the_leader_goes_between_two_slices(tmp_path: Path, slices: int, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, slices)
    with replog.Cluster(tmp_path / "data", config=CONFIG) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3]})
        cluster.append("t", 0, ["before"])
        leader = cluster.leader("t", 0)
        with published(cluster, staged(cluster, "a")) as found:
            assert held.stopped.wait(60)
            assert values(cluster) == ["before"]
            (partition,) = cluster._embedded.running[leader].broker.partitions.values()
            assert partition.log.end_offset == 1 + 3 * slices, "it is there, and not to be seen"
            held.release()
            (cluster.kill_broker if how == "killed" else cluster.stop_broker)(leader)
            assert values(cluster) == ["before"]
        assert isinstance(found[0], UnknownStage)
        assert cluster.leader("t", 0) != leader
        cluster.append("t", 0, ["between"])
        cluster.start_broker(leader)
        receipt = cluster.publish("t", 0, staged(cluster, "b"), **WORK)
        assert receipt == ("t", 0, 2, 1 + len(VALUES))
        assert cluster.publish("t", 0, [("a", PIECES)], **WORK) == receipt
        assert values(cluster) == ["before", "between", *VALUES]
        cluster.wait_until_in_sync(timeout_s=30)
        assert values(cluster) == ["before", "between", *VALUES]
    copies = [stored(tmp_path / "data" / f"broker-{broker}") for broker in (1, 2, 3)]
    assert copies[0] == copies[1] == copies[2]


@pytest.mark.parametrize("slices", range(1, PIECES))
def test_a_follower_goes_between_two_slices(tmp_path: Path, slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader goes on as soon as it may; who comes back with half a group gets the rest."""
    held = Held(monkeypatch, slices)
    with replog.Cluster(tmp_path / "data", config=CONFIG) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3]})
        with published(cluster, staged(cluster, "a")) as found:
            assert held.stopped.wait(60)
            follower = next(broker for broker in (2, 3) if broker != cluster.leader("t", 0))
            cluster.kill_broker(follower)
            assert values(cluster) == []
            held.go_on(cluster)
            cluster.append("t", 0, ["after"], timeout_s=60)
        assert found == [("t", 0, 0, len(VALUES) - 1)]
        assert values(cluster) == [*VALUES, "after"]
        cluster.start_broker(follower)
        cluster.wait_until_in_sync(timeout_s=30)
    copies = [stored(tmp_path / "data" / f"broker-{broker}") for broker in (1, 2, 3)]
    assert copies[0] == copies[1] == copies[2]


def test_readers_see_whole_groups_while_leaders_come_and_go(tmp_path: Path) -> None:
    """A writer that repeats its work until it is told that it is there; a reader that reads all the time; brokers that die."""
    with replog.Cluster(tmp_path / "data", config=CONFIG) as cluster:
        cluster.create_topic("t", segment_bytes=2_000)
        seen, over = [0], threading.Event()
        problems: list[Any] = []

        def read() -> None:
            while not over.is_set():
                found = values(cluster)
                if found != VALUES * (len(found) // len(VALUES)) or len(found) < seen[-1]:
                    problems.append(found)
                seen.append(len(found))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for version in range(10):
                lost = cluster.leader("t", 0)
                attempts = staged(cluster, "a", version=version)
                if version % 2:
                    cluster.kill_broker(lost)
                for attempt in range(5):
                    try:
                        cluster.publish("t", 0, attempts, writer="job/0", version=version, timeout_s=60)
                        break
                    except UnknownStage:
                        attempts = staged(cluster, f"again {attempt}", version=version)
                cluster.publish("t", 0, attempts, writer="job/0", version=version)
                if version % 2:
                    cluster.start_broker(lost)
                    cluster.wait_until_in_sync(timeout_s=30)
            eventually(lambda: seen[-1] == 10 * len(VALUES) or problems)
        finally:
            over.set()
            reader.join(60)
        assert problems == []
        assert values(cluster) == VALUES * 10


WRITER = """
import sys, replog
from replog.broker.publishing import Publishing
data, halt = sys.argv[1], int(sys.argv[2])
go_on, seen = Publishing._go_on, []
def held(*arguments):
    if len(seen) == halt:
        print("halted", flush=True)
        sys.stdin.read()
    seen.append(1)
    go_on(*arguments)
Publishing._go_on = held
with replog.Cluster(data, config={"publish_slice_bytes": 1}) as cluster:
    cluster.create_topic("t", flush=sys.argv[3])
    cluster.append("t", 0, ["before"])
    for number in range(4):
        cluster.stage("t", 0, [f"{number}/{n}" for n in range(3)], writer="job/0", version=7, attempt="a", number=number)
    print("staged", flush=True)
    cluster.publish("t", 0, [("a", 4)], writer="job/0", version=7)
    print("published", flush=True)
    sys.stdin.read()
"""


@pytest.mark.processes
@pytest.mark.parametrize(("flush", "slices"), [*(("os", slices) for slices in range(PIECES + 1)), ("ack", 2), ("ack", PIECES)])
def test_the_whole_process_is_killed_between_two_slices(tmp_path: Path, flush: str, slices: int) -> None:
    """kill -9 of everything at once: half a group is in every log, and in none a moment later."""
    data = tmp_path / "data"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(data), str(slices), flush], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(2)]
    process.kill()
    process.stdin.close()
    process.stdout.close()
    process.wait(30)
    is_published = slices == PIECES
    assert lines == ["staged", "published" if is_published else "halted"]
    assert any(path.parent.name == "staged" for path in data.rglob("*")) is not is_published
    with replog.Cluster(data, config=CONFIG) as cluster:
        assert [path for path in data.rglob("*") if path.parent.name == "staged"] == [], "the next life has removed it"
        assert values(cluster) == ["before", *(VALUES if is_published else [])]
        if not is_published:
            with pytest.raises(UnknownStage):
                cluster.publish("t", 0, [("a", PIECES)], **WORK)
        cluster.append_once("t", 0, ["another"], writer="job/1", version=1)
        receipt = cluster.publish("t", 0, [("b", PIECES)] if is_published else staged(cluster, "b"), **WORK)
        assert receipt.base_offset == (1 if is_published else 2)
        assert cluster.publish("t", 0, [("c", 1)], **WORK) == receipt
        assert sorted(values(cluster)) == sorted(["before", *VALUES, "another"])
        cluster.wait_until_in_sync(timeout_s=30)
    copies = [stored(data / f"broker-{broker}") for broker in (1, 2, 3)]
    assert copies[0] == copies[1] == copies[2]
    with replog.Cluster(data, config=CONFIG) as cluster:
        assert cluster.publish("t", 0, [("d", 1)], **WORK) == receipt
        assert cluster.append_once("t", 0, ["again"], writer="job/1", version=1).base_offset is not None
        assert sorted(values(cluster)) == sorted(["before", *VALUES, "another"])


def test_what_is_too_large_for_a_batch_is_staged_and_what_is_too_large_for_a_piece_is_refused() -> None:
    with replog.Cluster() as cluster:
        cluster.create_topic("t", max_batch_bytes=2_000)
        chance = [random.Random(n).randbytes(512) for n in range(12)]
        with pytest.raises(MessageTooLarge):
            cluster.append_once("t", 0, chance, **WORK)
        with pytest.raises(MessageTooLarge):
            cluster.stage("t", 0, chance, **WORK, attempt="a", number=0)
        for number in range(6):
            cluster.stage("t", 0, chance[2 * number : 2 * number + 2], **WORK, attempt="a", number=number)
        assert cluster.publish("t", 0, [("a", 6)], **WORK) == ("t", 0, 0, 11)
        assert [record.value for record in cluster.read("t")] == chance
        assert cluster.append_once("t", 0, chance[:1], **WORK) == ("t", 0, 0, 11), "one record, of twelve"


def test_a_full_stage_says_so_and_takes_more_once_something_is_published() -> None:
    with replog.Cluster(config={"stage_bytes_max": 20_000}) as cluster:
        cluster.create_topic("t")
        cluster.stage("t", 0, ["a"], **WORK, attempt="a", number=0)
        cluster.stage("t", 0, ["b"], writer="job/1", version=1, attempt="a", number=0)
        fits = 1

        def fill() -> None:
            nonlocal fits
            for fits in range(1, 100):
                cluster.stage("t", 0, ["x" * n for n in range(60)], **WORK, attempt="a", number=fits, timeout_s=0.2)

        with pytest.raises(replog.TimedOut, match="the last answer was QuotaExceeded"):
            fill()
        assert fits > 1
        assert cluster.publish("t", 0, [("a", fits)], **WORK).base_offset == 0
        assert cluster.stage("t", 0, ["more"], writer="job/1", version=1, attempt="a", number=1)
        assert cluster.publish("t", 0, [("a", 2)], writer="job/1", version=1).base_offset == 1 + 60 * (fits - 1)


def test_other_writers_wait_for_a_publication_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, 2)
    with replog.Cluster(tmp_path / "data", config=CONFIG) as cluster:
        cluster.create_topic("t")
        with published(cluster, staged(cluster, "a")) as found:
            assert held.stopped.wait(60)
            with pytest.raises(replog.TimedOut, match="the last answer was QuotaExceeded"):
                cluster.append_once("t", 0, ["x"], writer="other", version=1, timeout_s=0.2)
            held.go_on(cluster)
            with cluster.producer() as producer:
                handles = [producer.send("t", f"produced {n}", partition=0) for n in range(5)]
            assert [handle.result().offset for handle in handles] == list(range(len(VALUES), len(VALUES) + 5))
        assert found == [("t", 0, 0, len(VALUES) - 1)]
        assert cluster.append_once("t", 0, ["x"], writer="other", version=1).base_offset == len(VALUES) + 5
        assert values(cluster) == [*VALUES, *(f"produced {n}" for n in range(5)), "x"]
