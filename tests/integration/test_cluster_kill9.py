"""kill -9 of the whole process, at seeded moments: whatever was acknowledged is there, once and in order, and nobody waits."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import replog

PARTITIONS = 2

WRITER = """
import sys, replog
data, flush, brokers_die = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
out = sys.stdout
with replog.Cluster(data) as cluster:
    cluster.create_topic("t", partitions=2, exist_ok=True, flush=flush, segment_bytes=20_000)
    numbers = {p: cluster.offset("t", p, "latest") for p in range(2)}
    out.write("ready\\n"); out.flush()
    for turn in range(1_000_000):
        partition = turn % 2
        first = numbers[partition]
        count = turn % 3 + 1
        cluster.append("t", partition, [f"{partition}/{n}" for n in range(first, first + count)])
        numbers[partition] = first + count
        out.write(f"{partition} {numbers[partition]}\\n"); out.flush()
        if brokers_die and turn % 7 == 6:
            lost = turn // 7 % 3 + 1
            cluster.kill_broker(lost)
            cluster.start_broker(lost)
"""


def killed_run(data: Path, flush: str, chance: random.Random, *, brokers_die: bool) -> dict[int, int]:
    """Let a process append until it is killed; how many records of each partition it knew to be acknowledged."""
    command = [sys.executable, "-c", WRITER, str(data), flush, str(int(brokers_die))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged: dict[int, int] = {}
    lines_left = chance.choice([0, 1, chance.randrange(60), chance.randrange(400)])
    extra = chance.random() / 200
    while lines_left >= 0:
        line = process.stdout.readline()
        assert line, "the writer ended by itself"
        lines_left -= 1
        if line != "ready\n":
            partition, end = map(int, line.split())
            acknowledged[partition] = end
    until = time.perf_counter() + extra  # somewhere inside the next appends
    while time.perf_counter() < until:
        pass
    process.kill()
    for line in process.stdout:  # said before it died
        if line.endswith("\n"):
            partition, end = map(int, line.split())
            acknowledged[partition] = end
    process.stdout.close()
    process.wait(30)
    return acknowledged


def stored(broker: Path) -> dict[str, bytes]:
    """The bytes of each log that has any; where its segments begin may differ (one may have been made for a batch that never came)."""
    logs: dict[str, bytes] = {}
    for file in sorted(broker.rglob("*.log")):
        logs[file.parent.name] = logs.get(file.parent.name, b"") + file.read_bytes()
    return {name: content for name, content in logs.items() if content}


@pytest.mark.processes
@pytest.mark.parametrize(("flush", "rounds", "brokers_die"), [("os", 12, False), ("os", 6, True), ("ack", 4, False)])
def test_killed_and_opened_again(tmp_path: Path, flush: str, rounds: int, brokers_die: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round goes on in the folder that the last one left."""
    chance = random.Random(f"{flush} {brokers_die}")
    data = tmp_path / "data"
    expected = dict.fromkeys(range(PARTITIONS), 0)
    slept: list[float] = []

    wait, opener = threading.Condition.wait, threading.get_ident()

    for _ in range(rounds):
        acknowledged = killed_run(data, flush, chance, brokers_die=brokers_die)
        for partition, end in acknowledged.items():
            assert end >= expected[partition]
            expected[partition] = end

        def counted(self: object, timeout: float | None = None) -> bool:
            if threading.get_ident() == opener:  # threads that other tests have left wait too
                slept.append(timeout or 0)
            return wait(self, timeout)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(threading.Condition, "wait", counted)
            with replog.Cluster(data) as cluster:
                assert cluster.brokers == [1, 2, 3]
                cluster.wait_until_in_sync(timeout_s=30)
                if "t" not in cluster.topics():
                    assert expected == {0: 0, 1: 0}  # killed before the topic was made
                    patch.undo()
                    continue
                for p in cluster.describe("t").partitions:
                    assert p.leader is not None
                    assert sorted(p.isr) == [1, 2, 3]
                for partition in range(PARTITIONS):
                    found = [record.text() for record in cluster.read("t", partitions=[partition])]
                    assert len(found) >= expected[partition]
                    assert found == [f"{partition}/{n}" for n in range(len(found))]
                    expected[partition] = len(found)
                patch.undo()  # closing waits for disks
        copies = [stored(data / f"broker-{broker}") for broker in (1, 2, 3)]
        assert copies[0] == copies[1] == copies[2]
    assert sum(expected.values()) > 20 * rounds
    assert slept == [] or flush == "ack"  # but for disks nothing was waited for, no lease, no session and no retry: opening needs no timer
