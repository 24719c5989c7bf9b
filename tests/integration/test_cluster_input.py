"""Bad input, bad folders and full disks: each gives one clear error, and nothing that was stored is lost."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.errors import LogCorrupt, LogDirectoryFull, LogFull, Rejected, ReplogError, StoreCorrupt, UsageError
from replog.log.files import OS
from replog.testing.disk import FaultyFs

STORED = ["one", "two"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[replog.Cluster]:
    """A cluster in which `STORED` is stored, before and after every test."""
    with replog.Cluster() as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.create_topic("payments")
        cluster.append("orders", 0, STORED)
        yield cluster


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda c: c.append("orders", 0, [b"x" * (9 << 20)]), Rejected, "a record of 9437184 bytes is too large; max_record_bytes is 83"),
        (lambda c: c.append("orders", 0, []), UsageError, "records is empty"),
        (lambda c: c.add_broker("r\udcff"), UsageError, "rack 'r.udcff' cannot be written in UTF-8"),
        (lambda c: c.add_broker(7), UsageError, "a rack is a str, or None, not 7"),
        (lambda c: replog.Broker(1, listen="tcp://127.0.0.1:0", data=None, store="memory://", rack="\udcff"), UsageError, "rack '.udcff'"),
        (lambda c: c.append("orders", 0, "abc"), UsageError, "a list of values or Records, not one str"),
        (lambda c: c.append("orders", 0, [7]), UsageError, "not int"),
        (lambda c: c.append("orders", -1, ["x"]), UsageError, "partition -1 is out of range"),
        (lambda c: c.append("orders", True, ["x"]), UsageError, "a partition is an int, not True"),
        (lambda c: c.append("orders", 2, ["x"]), Rejected, "orders-2"),
        (lambda c: c.append("orders", 0, ["x"], acks=7), UsageError, "acks is 7"),
        (lambda c: c.append("orders", 0, ["x"], timeout_s=-1), UsageError, "timeout_s is -1"),
        (lambda c: c.wait_until_in_sync(timeout_s=-1), UsageError, "timeout_s is -1"),
        (lambda c: c.start_broker(1, timeout_s="1"), UsageError, "timeout_s is '1'"),
        (lambda c: c.add_broker(timeout_s=float("nan")), UsageError, "timeout_s is nan"),
        (lambda c: c.append("nowhere", 0, ["x"]), Rejected, "nowhere.*orders, payments"),
        (lambda c: c.producer().send("nowhere", "x"), Rejected, "nowhere.*orders, payments"),
        (lambda c: list(c.read("nowhere")), Rejected, "nowhere.*orders, payments"),
        (lambda c: c.describe("nowhere"), Rejected, "nowhere.*orders, payments"),
        (lambda c: c.delete_topic("nowhere"), Rejected, "nowhere"),
        (lambda c: c.producer(acks=7), UsageError, "acks is 7"),
        (lambda c: c.producer(compression="gzip"), UsageError, "compression is 'gzip'"),
        (lambda c: c.fetch("orders", 0, 3), Rejected, "3"),
        (lambda c: c.fetch("orders", 0, -3), UsageError, "offset is -3"),
        (lambda c: c.create_topic("a/b"), UsageError, "'a/b' has '/'"),
        (lambda c: c.create_topic(".."), UsageError, "names a folder"),
        (lambda c: c.create_topic("."), UsageError, "names a folder"),
        (lambda c: c.create_topic(""), UsageError, "has 0 characters; allowed are 1 to 249"),
        (lambda c: c.create_topic("a" * 250), UsageError, "has 250 characters; allowed are 1 to 249"),
        (lambda c: c.create_topic("ü"), UsageError, "'ü' has 'ü'"),
        (lambda c: c.create_topic("a\nb"), UsageError, "allowed are letters"),
        (lambda c: c.create_topic(5), UsageError, "a topic name is a str, not 5"),
        (lambda c: c.create_topic("orders"), Rejected, "'orders' exists; exist_ok=True accepts it"),
        (lambda c: c.create_topic("n", partitions=0), UsageError, "partitions is 0"),
        (lambda c: c.create_topic("n", replication_factor=4), Rejected, "4"),
        (lambda c: c.create_topic("n", min_isr=4), Rejected, "min_isr"),
        (lambda c: c.create_topic("n", min_irs=1), UsageError, "unknown configuration key 'min_irs'; did you mean 'min_isr'"),
        (lambda c: c.create_topic("n", flush="always"), UsageError, "flush is 'always'; allowed are 'os', 'interval', 'ack'"),
        (lambda c: c.create_topic("n", assignment={0: [1, 9]}), Rejected, "9"),
        (lambda c: c.create_topic("n", assignment={0: [1, 1]}), Rejected, "1"),
    ],
)
def test_bad_input(cluster: replog.Cluster, call: Any, error: type[ReplogError], says: str) -> None:
    with pytest.raises(error, match=says):
        call(cluster)
    assert cluster.topics() == ["orders", "payments"]
    assert [record.text() for record in cluster.read("orders")] == STORED


def test_a_batch_over_the_topics_limit(cluster: replog.Cluster) -> None:
    """What the topic takes is said by the topic; other records of the same producer are stored."""
    cluster.create_topic("small", max_batch_bytes=1000)
    try:
        with pytest.raises(Rejected, match=r"a batch of \d+ bytes \(1 records\) is too large; the topic allows 1000"):
            cluster.append("small", 0, [os.urandom(2000)])
        with cluster.producer() as producer:
            big = producer.send("small", os.urandom(2000))
            small = producer.send("small", "fits")
            with pytest.raises(Rejected, match="allows 1000"):
                big.result(timeout_s=10)
            assert small.result(timeout_s=10).offset == 0
        assert [record.text() for record in cluster.read("small")] == ["fits"]
    finally:
        cluster.delete_topic("small")


# ------------------------------------------------------------------------------------------------------------------- bad folders


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed cluster that holds `STORED`."""
    data = tmp_path_factory.mktemp("filled") / "data"
    with replog.Cluster(data) as cluster:
        cluster.create_topic("orders")
        cluster.append("orders", 0, STORED)
    return data


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the locks, which any attempt may make, and the logs of SQLite, which reading it may make."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if not path.name.startswith("metadata.db-")}


def other_database(path: Path) -> None:
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t(x)")
    database.commit()
    database.close()


def garbage(name: str, data: bytes = b"\x00\xffgarbage" * 500) -> Any:
    return lambda folder: (folder / name).write_bytes(data)


def cut(name: str, size: int) -> Any:
    return lambda folder: os.truncate(folder / name, size)


def overwrite(name: str, at: int, data: bytes) -> Any:
    def damage(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(at)
            file.write(data)

    return damage


@pytest.mark.parametrize(
    ("damage", "error", "says"),
    [
        pytest.param(garbage("metadata.db"), (UsageError, StoreCorrupt), "metadata.db", id="store is garbage"),
        pytest.param(cut("metadata.db", 0), StoreCorrupt, "metadata.db: the metadata store is empty", id="store is empty"),
        pytest.param(cut("metadata.db", 5000), (UsageError, StoreCorrupt), "metadata.db", id="store is cut"),
        pytest.param(lambda f: (f / "metadata.db").unlink(), StoreCorrupt, "the metadata store is missing", id="store is gone"),
        pytest.param(lambda f: other_database(f / "metadata.db"), UsageError, "database of something else", id="store is another's"),
        pytest.param(overwrite("metadata.db", 4096, b"\xff" * 4096), (UsageError, StoreCorrupt), "metadata.db", id="store has a bad page"),
        pytest.param(garbage("broker-2/meta"), UsageError, "broker-2 is no log directory", id="meta is another's"),
        pytest.param(overwrite("broker-2/meta", 20, b"\xff"), LogCorrupt, "broker-2/meta is damaged", id="meta is damaged"),
        pytest.param(lambda f: (f / "broker-2/meta").unlink(), ReplogError, "broker-2 .*'meta'", id="meta is gone"),
        pytest.param(garbage("broker-2/catalogue"), LogCorrupt, "broker-2", id="catalogue is garbage"),
        pytest.param(lambda f: (f / "broker-2/catalogue").unlink(), LogCorrupt, "broker-2", id="catalogue is gone"),
    ],
)
def test_bad_folder(filled: Path, tmp_path: Path, damage: Any, error: Any, says: str) -> None:
    """Refused with one error, and what is damaged left as it was: mended, everything is there."""
    data = tmp_path / "data"
    shutil.copytree(filled, data)
    before = contents(data)
    damage(data)
    damaged = contents(data)
    (place,) = {name.partition("/")[0] for name in before if damaged.get(name) != before[name]}
    with pytest.raises(error, match=says):
        replog.Cluster(data).start()
    after = contents(data)
    assert {name: after.get(name) for name in damaged if name.startswith(place)} == {
        name: content for name, content in damaged.items() if name.startswith(place)
    }
    for name, content in before.items():
        if damaged.get(name) != content:
            (data / name).write_bytes(content)
            (data / name).chmod(0o600)
    with replog.Cluster(data) as cluster:
        assert [record.text() for record in cluster.read("orders")] == STORED
        cluster.wait_until_in_sync(timeout_s=30)


@pytest.mark.parametrize("name", ["broker-2/checkpoint", "broker-2/clean", "broker-2/life"])
@pytest.mark.parametrize("how", ["garbage", "empty", "gone"])
def test_bad_notes_of_a_broker(filled: Path, tmp_path: Path, name: str, how: str) -> None:
    """What only saves work, or says how the last life ended, may be lost: the logs are there, and caught up if in doubt."""
    data = tmp_path / "data"
    shutil.copytree(filled, data)
    if how == "garbage":
        (data / name).write_bytes(b"\x00\xffgarbage" * 50)
    elif how == "empty":
        (data / name).write_bytes(b"")
    else:
        (data / name).unlink(missing_ok=True)
    with replog.Cluster(data) as cluster:
        assert [record.text() for record in cluster.read("orders")] == STORED
        cluster.wait_until_in_sync(timeout_s=30)


def test_a_damaged_log_is_filled_again(filled: Path, tmp_path: Path) -> None:
    """A flipped bit in one copy: the copy is not trusted, the others are, and it is fetched again."""
    data = tmp_path / "data"
    shutil.copytree(filled, data)
    for broker in (1, 2):
        (segment,) = (data / f"broker-{broker}" / "logs").rglob("*.log")
        damaged = bytearray(segment.read_bytes())
        damaged[-3] ^= 4
        segment.write_bytes(damaged)
        (data / f"broker-{broker}" / "clean").unlink()
    with replog.Cluster(data) as cluster:
        assert [record.text() for record in cluster.read("orders")] == STORED
        cluster.wait_until_in_sync(timeout_s=30)
    copies = {path.read_bytes() for path in data.rglob("*.log")}
    assert len(copies) == 1


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes", 7, Path("a\0b")])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(UsageError, match=r"data is .*; name a folder, or leave it out"):
        replog.Cluster(path)
    with pytest.raises(UsageError, match=r"path is .*; name a folder"):
        replog.Log.open(path)


@pytest.mark.parametrize("config", ["x", [], "", 0, False, 5, [("a", 1)]])
def test_what_is_no_configuration(config: Any) -> None:
    """Also where it is empty, or false."""
    said = re.escape(f"a configuration is a mapping of keys to values, not {config!r}")
    for make in (
        lambda: replog.Cluster(config=config),
        lambda: replog.Cluster(client_config=config),
        lambda: replog.connect("tcp://127.0.0.1:1", config=config),
        lambda: replog.Broker(1, listen="tcp://127.0.0.1:0", data=None, store="memory://", config=config),
        lambda: replog.BrokerProcess(1, data=None, store="file:///nowhere/s.db", config=config),
        lambda: replog.TopicConfig.from_mapping(config),
    ):
        with pytest.raises(UsageError, match=said):
            make()


@pytest.mark.parametrize("path", [None, 1.5, b"x", [], "", "a\ud800"])
def test_a_store_needs_a_path(path: Any) -> None:
    with pytest.raises(UsageError, match=r"path is .*; (name a file|it cannot be written)"):
        replog.FileStore(path)


@pytest.mark.parametrize("broker", [[1], {}, "1", None])
def test_what_is_no_broker(broker: Any) -> None:
    with replog.Cluster(brokers=1) as cluster:
        for call in (cluster.kill_broker, cluster.stop_broker, cluster.start_broker):
            with pytest.raises(UsageError, match=r"broker_id is .*; a broker has a number"):
                call(broker)
        assert cluster.brokers == [1]


def test_a_log_needs_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a folder named None."""
    monkeypatch.chdir(tmp_path)
    nothing: Any = None
    with pytest.raises(UsageError, match="path is None; name a folder"):
        replog.Log.open(nothing)
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("mine")
    with pytest.raises(UsageError, match=f"{file} cannot hold a cluster"):
        replog.Cluster(file).start()
    with pytest.raises(UsageError, match="cannot hold a cluster"):
        replog.Cluster(file / "below").start()
    assert file.read_text() == "mine"


def test_somebody_elses_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"not empty, and holds no cluster: it has 'thesis.txt'"):
        replog.Cluster(tmp_path).start()
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_in_use_by_this_process(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with replog.Cluster(data) as cluster:
        cluster.create_topic("orders")
        for _ in range(2):
            with pytest.raises(UsageError, match=f"{data} is in use"):
                replog.Cluster(data).start()
        cluster.append("orders", 0, STORED)
        assert [record.text() for record in cluster.read("orders")] == STORED
    replog.Cluster(data).start().close()


@pytest.mark.processes
def test_in_use_by_another_process(tmp_path: Path) -> None:
    data = tmp_path / "data"
    script = f"import replog\ntry:\n    replog.Cluster({str(data)!r}).start()\nexcept replog.UsageError as error:\n    print(error)\n"
    with replog.Cluster(data) as cluster:
        cluster.create_topic("orders")
        cluster.append("orders", 0, STORED)
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
        assert said.startswith(f"{data} is in use: another process")
        cluster.append("orders", 0, ["three"])
        assert [record.text() for record in cluster.read("orders")] == [*STORED, "three"]


# ------------------------------------------------------------------------------------------------------------------- full disks


class Disk:
    """The real files, until `full`."""

    def __init__(self) -> None:
        self.full = False

    def fs(self, broker_id: int) -> FaultyFs:
        """What a broker reaches them through."""
        return FaultyFs(OS, self.before)

    def before(self, operation: str, path: str) -> int | None:
        if self.full and operation in ("write", "mkdir", "create"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return None


def test_full_disk(tmp_path: Path) -> None:
    """Appends are refused with an error that says why, reads go on, and appends work again once there is space."""
    disk = Disk()
    quick = {"retry_backoff_ms": 1, "retry_backoff_ms_max": 5}
    with replog.Cluster(tmp_path / "data", _fs_of=disk.fs, config={"checkpoint_interval_ms": 1}, client_config=quick) as cluster:
        cluster.create_topic("orders")
        cluster.append("orders", 0, STORED)
        disk.full = True
        for _ in range(3):
            with pytest.raises(LogDirectoryFull, match="LogDirectoryFull, waited") as refused:
                cluster.append("orders", 0, ["refused"], timeout_s=0.1)
            assert (refused.value.topic, refused.value.partition, refused.value.retriable) == ("orders", 0, True)
            assert "orders-0" in str(refused.value)
            assert [record.text() for record in cluster.read("orders")] == STORED
        assert cluster.brokers == [1, 2, 3]
        disk.full = False
        cluster.append("orders", 0, ["three"])
        cluster.wait_until_in_sync(timeout_s=30)
        assert [record.text() for record in cluster.read("orders")] == [*STORED, "three"]
    with replog.Cluster(tmp_path / "data") as cluster:
        assert [record.text() for record in cluster.read("orders")] == [*STORED, "three"]


def test_full_disk_of_a_follower(tmp_path: Path) -> None:
    """The follower does not keep up; the others go on once it has left the ISR, and it comes back when there is space."""
    disk = Disk()
    config = {"replica_lag_ms_max": 200, "checkpoint_interval_ms": 1}
    with replog.Cluster(tmp_path / "data", config=config, _fs_of=lambda b: disk.fs(b) if b == 3 else OS) as cluster:
        cluster.create_topic("orders", assignment={0: [1, 2, 3]})
        cluster.append("orders", 0, STORED)
        disk.full = True
        cluster.append("orders", 0, ["three"])
        assert cluster.describe("orders").partitions[0].isr == (1, 2)
        assert cluster.brokers == [1, 2, 3]
        disk.full = False
        cluster.wait_until_in_sync(timeout_s=30)
        assert [record.text() for record in cluster.read("orders")] == [*STORED, "three"]


def test_closing_on_a_full_disk(tmp_path: Path) -> None:
    disk = Disk()
    with replog.Cluster(tmp_path / "data", _fs_of=disk.fs) as cluster:
        cluster.create_topic("orders")
        cluster.append("orders", 0, STORED)
        disk.full = True
    disk.full = False
    with replog.Cluster(tmp_path / "data") as cluster:
        assert [record.text() for record in cluster.read("orders")] == STORED


def test_opening_on_a_full_disk(filled: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(filled, data)
    disk = Disk()
    disk.full = True
    with pytest.raises(LogFull, match=r"broker-1 cannot be opened: No space left"):
        replog.Cluster(data, _fs_of=disk.fs).start()
    with replog.Cluster(data) as cluster:
        assert [record.text() for record in cluster.read("orders")] == STORED
