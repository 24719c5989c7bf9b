"""A replica that was repaired comes back as one that has lost records: nobody takes it for complete, and what it lacks it copies."""

from __future__ import annotations

import io
import json
import random
import shutil
from pathlib import Path

import pytest

import replog
from replog.cli import main
from replog.testing.eventually import eventually


def repair(data: Path) -> dict[str, object]:
    """Look, then do what was shown."""

    def run(*words: str) -> dict[str, object]:
        stdout = io.BytesIO()
        main(["log", "repair", str(data), "--format", "json", *words], stdin=io.BytesIO(), stdout=stdout, stderr=io.StringIO())
        found: dict[str, object] = json.loads(stdout.getvalue())
        return found

    shown = run()
    done = run("--yes", str(shown["plan"]))
    assert done["done"] is True
    return done


def damage(data: Path, kind: str, chance: random.Random) -> None:
    files = sorted(data.glob("logs/*/*.log"))
    file = files[1]
    if kind == "gone":
        file.unlink()
        return
    content = bytearray(file.read_bytes())
    if kind == "flip":
        content[chance.randrange(len(content))] ^= 1
    else:
        del content[chance.randrange(len(content)) :]
    file.write_bytes(content)


def values(cluster: replog.Cluster) -> list[str]:
    return [record.text() for record in cluster.read("t")]


@pytest.mark.parametrize("kind", ["flip", "cut", "gone"])
@pytest.mark.parametrize("stopped", [True, False])
def test_nothing_acknowledged_is_lost(tmp_path: Path, kind: str, stopped: bool) -> None:
    """The leader is damaged and repaired, and comes back before the others; they have everything."""
    chance, data = random.Random(f"{kind} {stopped}"), tmp_path / "data"
    with replog.Cluster(data, brokers=3) as cluster:
        cluster.create_topic("t", replication_factor=3, min_isr=2, segment_bytes=600)
        expected = [f"{n} {'x' * 50}" for n in range(40)]
        for value in expected:
            cluster.append("t", 0, [value])
        cluster.wait_until_in_sync(timeout_s=60)
        leader = cluster.leader("t", 0)
        assert leader is not None
        others = [broker for broker in (1, 2, 3) if broker != leader]
        for broker in [*others, leader]:
            cluster.stop_broker(broker) if stopped else cluster.kill_broker(broker)
        damage(data / f"broker-{leader}", kind, chance)
        done = repair(data / f"broker-{leader}")
        assert done["lossy"]
        cluster.start_broker(leader)
        for broker in others:
            cluster.start_broker(broker)
        cluster.wait_until_in_sync(timeout_s=60)
        assert values(cluster) == expected
        cluster.append("t", 0, ["goes on"])
        assert values(cluster) == [*expected, "goes on"]
        cluster.wait_until_in_sync(timeout_s=60)
    copies = [b"".join(file.read_bytes() for file in sorted((data / f"broker-{n}").glob("logs/*/*.log"))) for n in (1, 2, 3)]
    assert copies[0] == copies[1] == copies[2]


def test_a_repaired_copy_alone_is_not_believed(tmp_path: Path) -> None:
    """Nobody leads as long as it is the only one there: that would make a loss of what the others still have."""
    data = tmp_path / "data"
    with replog.Cluster(data, brokers=4) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=2)
        expected = [f"{n}" for n in range(20)]
        cluster.append("t", 0, expected)
        cluster.wait_until_in_sync(timeout_s=60)
        for broker in (3, 2, 1):  # 4 stays, and holds nothing
            cluster.stop_broker(broker)
        (file,) = (data / "broker-1").glob("logs/*/*.log")
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        repair(data / "broker-1")
        cluster.start_broker(1)
        eventually(lambda: any(b.broker_id == 1 and not b.fenced for b in cluster.describe_cluster().brokers), 60)
        assert cluster.describe("t").partitions[0].leader is None
        cluster.start_broker(2)
        cluster.start_broker(3)
        cluster.wait_until_in_sync(timeout_s=60)
        assert values(cluster) == expected


@pytest.mark.parametrize("how", ["replaced", "repaired"])
def test_the_only_complete_copy_is_lost_and_an_older_one_is_kept(tmp_path: Path, how: str) -> None:
    """X-16: what the other copies still have is not cut because the one that had more begins anew."""
    data = tmp_path / "data"
    with replog.Cluster(data, brokers=2) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2]}, min_isr=1, segment_bytes=600)
        older = [f"{n} {'x' * 50}" for n in range(40)]
        for value in older:
            cluster.append("t", 0, [value])
        cluster.wait_until_in_sync(timeout_s=60)
        cluster.kill_broker(2)
        cluster.append("t", 0, ["more"] * 5)
        cluster.kill_broker(1)
    cut = 0
    if how == "replaced":
        shutil.rmtree(data / "broker-1")
    else:
        damage(data / "broker-1", "flip", random.Random(how))
        cut = repair(data / "broker-1")["logs"][0]["end_offset"]  # type: ignore[index]
    with replog.Cluster(data, brokers=2) as cluster:
        cluster.wait_until_in_sync(timeout_s=60)
        assert values(cluster) == older
        said = " ".join(cluster.explain("t", 0).sentences)
        assert f"with the longest log of those that were there (broker 1 to {cut}, broker 2 to 40)" in said
