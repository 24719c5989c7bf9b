"""Who comes second, on a folder or with the id of a live broker: what it leaves behind, to the byte."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replog import Broker, Cluster
from replog.errors import UsageError
from replog.log.directory import FileLogDirectory

NOTES = {"lock", "meta", "life", "checkpoint", "clean", "owner"}
FOLDERS = {"logs", "quarantine"}
"""What is in a folder with which nobody was let in: who it is, and nothing else."""
NEVER = 3_600_000
QUIET = {"checkpoint_interval_ms": NEVER, "session_ms": 30_000}


def looks(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that is in it, and the folder itself: what it holds, and when that was written."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        stat = path.lstat()
        held = path.read_bytes() if path.is_file() else sorted(os.listdir(path))
        found[str(path.relative_to(folder))] = (held, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_mode)
    return found


def broker(folder: Path, data: str) -> Broker:
    return Broker(1, listen="tcp://127.0.0.1:0", data=folder / data, store=f"file://{folder}/store.db", config=QUIET)


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """With b1, in which a broker has been, which holds records."""
    with broker(tmp_path, "b1").start().wait_until_ready() as first, first.client() as client:
        client.create_topic("t", replication_factor=1, min_isr=1)
        client.append("t", 0, ["x"])
    return tmp_path


@pytest.fixture
def held(used: Path) -> Iterator[Path]:
    """The same while somebody has b1 open."""
    directory = FileLogDirectory(f"{used}/b1")
    yield used
    directory.close(clean=False)


def test_a_second_broker_on_a_folder_writes_nothing(held: Path) -> None:
    before = looks(held)
    with pytest.raises(UsageError, match="is in use"):
        broker(held, "b1").open()
    assert looks(held) == before


def test_nor_does_a_second_process(held: Path) -> None:
    before = looks(held)
    words = ["--id", "1", "--listen", "tcp://127.0.0.1:0", "--data", f"{held}/b1", "--store", f"file://{held}/store.db"]
    done = subprocess.run([sys.executable, "-m", "replog", "broker", *words], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is in use" in done.stderr
    assert looks(held) == before


def test_a_second_broker_with_its_own_folder_leaves_only_who_it_is(used: Path) -> None:
    with broker(used, "b1").start().wait_until_ready():
        before = looks(used / "b1")
        second = broker(used, "another").start()
        with pytest.raises(UsageError, match="broker id 1 is registered by a live broker"):
            second.wait_until_ready()
        second.stop()
        assert looks(used / "b1") == before, "nothing of the other's"
    left = looks(used / "another")
    assert set(left) - {"."} == NOTES | FOLDERS
    assert all(left[name][0] == [] for name in FOLDERS)


def test_nor_does_it_touch_the_records_in_its_folder(used: Path) -> None:
    shutil.copytree(used / "b1", used / "copy")
    with broker(used, "fresh").start().wait_until_ready():
        before = looks(used / "copy")
        second = broker(used, "copy").start()
        with pytest.raises(UsageError, match="broker id 1 is registered by a live broker"):
            second.wait_until_ready()
        second.stop()
    after = looks(used / "copy")
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed <= NOTES | {"."}
    assert any(name.startswith("logs/") and name.endswith(".log") for name in after), "there were some"


def test_a_cluster_ends_no_session_of_a_broker_that_has_its_folder_open(tmp_path: Path) -> None:
    """A `Cluster` opens the store of its folder as its only user, and ends all sessions that are recorded there."""
    with Cluster(tmp_path, brokers=2) as cluster:
        cluster.create_topic("t", replication_factor=2, min_isr=1)
    one = Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "broker-1", store=f"file://{tmp_path}/metadata.db", config=QUIET)
    with one.start().wait_until_ready(), one.client() as client:
        before = client.describe_cluster()
        with pytest.raises(UsageError, match=r"is in use: a broker .* has broker-1 open"):
            Cluster(tmp_path, brokers=2).start()
        client.append("t", 0, ["x"])
        after = client.describe_cluster()
        assert [(known.broker_id, known.broker_epoch) for known in after.brokers] == [
            (known.broker_id, known.broker_epoch) for known in before.brokers
        ]
    with Cluster(tmp_path, brokers=2) as cluster:
        assert [record.value for record in cluster.read("t")] == [b"x"]
