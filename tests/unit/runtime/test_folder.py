"""What the system says about a folder, as people are told it."""

from __future__ import annotations

import errno
import gc
import os
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.config import BrokerConfig
from replog.errors import LogDamaged, LogFull, UsageError
from replog.log.files import OS, Fs
from replog.metadata import database
from replog.runtime.folder import ClusterFolder, open_directory
from replog.runtime.urls import open_store
from replog.security.private import check_folder
from replog.testing.eventually import eventually


class Refusing(Fs):
    """Makes no folder."""

    def __init__(self, number: int, words: str, file: str | None) -> None:
        self.problem = OSError(number, words) if file is None else OSError(number, words, file)

    def mkdir(self, path: str) -> None:
        raise self.problem


@pytest.mark.parametrize(
    ("fs", "kind", "told"),
    [
        (Refusing(errno.EIO, "Input/output error", None), LogDamaged, "d cannot be opened: Input/output error"),
        (Refusing(errno.ENOSPC, "No space left on device", "d"), LogFull, "d cannot be opened: No space left on device"),
        (Refusing(errno.EACCES, "Permission denied", "d/logs"), UsageError, "d cannot be opened: Permission denied (d/logs)"),
        (Refusing(errno.EPERM, "Operation not permitted", None), UsageError, "d cannot be opened: Operation not permitted"),
        (Refusing(errno.EROFS, "Read-only file system", "d"), UsageError, "d cannot be opened: Read-only file system"),
    ],
)
def test_a_directory_that_cannot_be_opened(
    fs: Fs, kind: type[Exception], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as refused:
        open_directory("d", BrokerConfig(), fs)
    assert str(refused.value) == told


def test_a_cluster_whose_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refused, replog.Cluster(tmp_path / "file" / "data"):
        pass
    assert str(refused.value) == f"{tmp_path}/file/data cannot hold a cluster: Not a directory"


class Killed(BaseException):
    """A process that ends here."""


def test_a_cluster_that_was_killed_in_its_very_first_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is a store without its name, and its companions."""
    data, unlink, set_up = tmp_path / "data", os.unlink, database._set_up

    def kill(connection: sqlite3.Connection) -> None:
        set_up(connection)
        monkeypatch.setattr("os.unlink", lambda path: None)
        raise Killed

    monkeypatch.setattr(database, "_set_up", kill)
    with pytest.raises(Killed):
        replog.Cluster(data).start()
    monkeypatch.setattr("os.unlink", unlink)
    monkeypatch.setattr(database, "_set_up", set_up)
    (begun,) = (name for name in os.listdir(data) if name != "lock")
    assert begun.startswith("metadata.db.new-")
    (data / f"{begun}-wal").touch()

    with replog.Cluster(data) as cluster:
        cluster.create_topic("t")
    assert sorted(os.listdir(data)) == ["broker-1", "broker-2", "broker-3", "lock", "metadata.db"]


def test_what_others_did_until_the_folder_was_locked_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metadata.db").write_bytes(b"x")
    lock = OS.lock

    def late(fd: int) -> bool:
        (tmp_path / "broker-4").mkdir(exist_ok=True)
        return lock(fd)

    monkeypatch.setattr(OS, "lock", late)
    with pytest.raises(UsageError, match="holds 4 brokers; opening it with 3"):
        ClusterFolder(tmp_path, 3)
    ClusterFolder(tmp_path, 4).close()


class Full(Fs):
    """Nothing fits any more, except into folders of the first brokers."""

    def open(self, path: str, *, create: bool = False) -> int:
        if create and "/broker-4/" in path and not path.endswith("/lock"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().open(path, create=create)


def test_a_broker_that_could_not_be_added_is_not_counted(tmp_path: Path) -> None:
    data, full = tmp_path / "data", [Full()]
    with replog.Cluster(data, _fs_of=lambda broker_id: full[0] if full and broker_id == 4 else OS) as cluster:
        with pytest.raises(LogFull):
            cluster.add_broker()
        assert cluster.brokers == [1, 2, 3]
    assert sorted(os.listdir(data)) == ["broker-1", "broker-2", "broker-3", "lock", "metadata.db"]
    full.clear()
    with replog.Cluster(data, _fs_of=lambda broker_id: OS) as cluster:
        assert cluster.add_broker() == 4
    assert (data / "broker-4").is_dir()


def test_a_folder_that_was_there_before_stays_when_its_broker_cannot_be_added(tmp_path: Path) -> None:
    with replog.Cluster(tmp_path, brokers=2, _fs_of=lambda broker_id: Full() if broker_id == 4 else OS) as cluster:
        assert cluster.add_broker() == 3
        (tmp_path / "broker-4").mkdir()
        (tmp_path / "broker-4" / "checkpoint.new").write_bytes(b"x")
        with pytest.raises(LogFull):
            cluster.add_broker()
    assert (tmp_path / "broker-4" / "checkpoint.new").exists()


def test_a_broker_that_runs_keeps_its_folder_whatever_leaves_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with replog.Cluster(tmp_path) as cluster:

        def interrupted(number: int) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(cluster._embedded._undoing, "finished", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cluster.add_broker()
        assert cluster.brokers == [1, 2, 3, 4]
        assert (tmp_path / "broker-4").is_dir()


def dropped(data: Path, *, close: bool) -> list[str]:
    """What is said of a cluster that nobody has any more."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        cluster = replog.Cluster(data, brokers=2).start()
        if close:
            cluster.close()
        del cluster
        gc.collect()
    return [str(one.message) for one in told if "Cluster" in str(one.message)]


def test_a_cluster_that_is_dropped_lets_its_folder_go_and_says_so(tmp_path: Path) -> None:
    said = f"a Cluster was dropped with its folder {tmp_path} open; use `with` or call close()"
    assert dropped(tmp_path, close=False) == [said]
    assert dropped(tmp_path, close=False) == [said]
    assert dropped(tmp_path, close=True) == []


def test_a_folder_that_an_interrupt_kept_from_its_cluster_is_let_go_in_silence(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            assert ClusterFolder(tmp_path, 1)._lock.is_held
            gc.collect()
    assert told == []


def test_the_top_of_a_new_file_system_is_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    for _ in range(2):
        with replog.Cluster(tmp_path, brokers=1) as cluster:
            assert [broker.broker_id for broker in cluster.describe_cluster().brokers] == [1]


def test_a_folder_of_something_else_stays_as_it_was(tmp_path: Path) -> None:
    for name in ("metadata.db.new-0", "notes"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match="is not empty, and holds no cluster: it has 'notes'"):
        ClusterFolder(tmp_path, 3)
    assert sorted(os.listdir(tmp_path)) == ["metadata.db.new-0", "notes"]


OPENERS: dict[str, Callable[[Path], object]] = {
    "the data folder": lambda path: open_directory(str(path), BrokerConfig()).close(clean=True),
    "the folder of the cluster": lambda path: ClusterFolder(path, 1).close(),
}


@pytest.mark.parametrize("what", OPENERS)
@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_a_folder_that_others_can_change_is_refused_before_anything_is_in_it(tmp_path: Path, what: str, mode: int) -> None:
    """They could put other logs in the place of those."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(UsageError) as caught:
        OPENERS[what](data)
    assert str(caught.value) == f"others can change {what} '{data}' (mode {mode:03o}); chmod 700 it"
    assert os.listdir(data) == []
    data.chmod(0o755)  # to read is up to those above
    OPENERS[what](data)
    assert os.listdir(data) != []


@pytest.mark.parametrize("what", OPENERS)
def test_a_folder_for_the_group_is_closed_to_it_while_it_is_empty_and_refused_later(tmp_path: Path, what: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o775)
    OPENERS[what](data)
    assert data.stat().st_mode & 0o777 == 0o755
    data.chmod(0o775)
    with pytest.raises(UsageError, match=f"others can change {what}"):
        OPENERS[what](data)
    assert data.stat().st_mode & 0o777 == 0o775


@pytest.mark.parametrize(("user", "mode", "is_refused"), [(1, 0o2775, False), (1, 0o777, True), (0, 0o2775, True)])
def test_root_may_give_its_folder_to_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, mode: int, is_refused: bool
) -> None:
    """As Kubernetes does with a volume (`fsGroup`): a process that is not root could not change it."""
    data, stat = tmp_path / "data", os.stat
    data.mkdir()
    data.chmod(mode)
    if is_refused:
        (data / "notes").touch()

    def owned(file: Any, **how: Any) -> os.stat_result:
        found = list(stat(file, **how))
        found[4] = 0 if str(file) == str(data) else found[4]
        return os.stat_result(found)

    monkeypatch.setattr(os, "stat", owned)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if is_refused:
        with pytest.raises(UsageError, match="others can change the data folder"):
            open_directory(str(data), BrokerConfig())
    else:
        open_directory(str(data), BrokerConfig()).close(clean=True)
    with pytest.raises(UsageError, match="others can change the folder"):
        check_folder(str(data), "the folder", is_own=True)


def test_a_relative_folder_is_that_of_when_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of when it is opened, or written to."""
    for folder in ("here", "there", "elsewhere"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    cluster = replog.Cluster("cluster", brokers=1)
    broker = replog.Broker(1, listen="tcp://127.0.0.1:0", data="broker", store="file://broker.db")
    process = replog.BrokerProcess(2, data="process", store="file://process.db?session_ms=700")
    shared = replog.Cluster("shared", brokers=1, store="file://shared.db")
    monkeypatch.chdir(tmp_path / "there")
    with cluster:
        cluster.create_topic("orders", replication_factor=1, min_isr=1)
        monkeypatch.chdir(tmp_path / "elsewhere")
        with cluster.producer() as producer:
            producer.send("orders", value="x")
    for one, file in ((broker, "broker.db"), (shared, "shared.db")):
        with one:
            eventually((tmp_path / "here" / file).exists)  # a broker opens its store in its own time
    assert f"--data={tmp_path}/here/process" in process._command
    (store,) = (word.removeprefix("--store=") for word in process._command if word.startswith("--store="))
    with open_store(store, session_ms=5_000) as opened:
        assert isinstance(opened, replog.FileStore)
        assert (opened.path, opened.session_ms) == (f"{tmp_path}/here/process.db", 700)
    assert os.listdir(tmp_path / "there") == os.listdir(tmp_path / "elsewhere") == []
    assert {"broker", "broker.db", "cluster", "process.db", "shared", "shared.db"} <= set(os.listdir(tmp_path / "here"))
    with replog.Cluster(tmp_path / "here" / "cluster", brokers=1) as cluster:
        assert [record.text() for record in cluster.read("orders")] == ["x"]
