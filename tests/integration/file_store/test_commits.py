"""What several processes commit at once, and what is left when they are killed, when the disk is full, when they fork."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from replog.metadata.database import WAL_BYTES_MAX
from replog.metadata.file import FileStore
from replog.ports import Create, Versioned
from replog.testing.eventually import eventually

from .conftest import Child, Start

pytestmark = pytest.mark.processes

COUNTER = """
store = FileStore(path)
say("ready")
sys.stdin.readline()
done = conflicts = 0
while done < 200:
    store.keep_alive()
    found = store.read("/count")
    try:
        store.commit([Put("/count", b"%d" % (int(found.value) + 1), found.version)])
        done += 1
    except Conflict:
        conflicts += 1
store.close()
"""


def value_of(store: FileStore, path: str) -> Versioned:
    found = store.read(path)
    assert found is not None
    return found


def test_three_processes_lose_no_update(start: Start, path: Path) -> None:
    with FileStore(path) as store:
        store.commit([Create("/count", b"0")])
        children = [start(COUNTER) for _ in range(3)]
        for child in children:
            eventually(lambda child=child: child.lines)
        for child in children:
            child.tell("go")
        for child in children:
            child.finish()
        found = value_of(store, "/count")
        assert (found.value, found.version) == (b"600", 600)
        assert path.with_name("store.db-wal").stat().st_size <= WAL_BYTES_MAX


WRITER = """
number, = arguments
mine = "/writers/" + number
store = FileStore(path)
if store.read(mine) is None:
    store.commit([Create(mine, b"0")])
while True:
    store.keep_alive()
    own, total = store.read_each([mine, "/total"])
    count = own.version + 1
    say("begins", count)
    try:
        store.commit([Put(mine, b"%d," % count * 500, own.version), Put("/total", b"%d" % (int(total.value) + 1), total.version)])
        say("wrote", count)
    except Conflict:
        pass
"""
KILLS = 20


def acknowledged(child: Child, word: str = "wrote") -> int:
    return max((int(line.split()[1]) for line in list(child.lines) if line.startswith(word)), default=0)


def test_writers_that_are_killed_in_the_middle_lose_nothing_and_damage_nothing(start: Start, path: Path) -> None:
    """Three write, one after another is killed right after it has begun a commit, and started again."""
    with FileStore(path) as store:
        store.commit([Create("/total", b"0")])
    children = [start(WRITER, number) for number in range(3)]
    sure = [0, 0, 0]
    for kill in range(KILLS):
        number = kill % 3
        victim = children[number]
        goal = sure[number] + 1 + kill % 4
        eventually(lambda victim=victim, goal=goal: acknowledged(victim, "begins") > goal)
        victim.kill()
        sure[number] = max(sure[number], acknowledged(victim))
        with FileStore(path) as store:
            found = value_of(store, f"/writers/{number}")
            assert sure[number] <= found.version <= max(sure[number], acknowledged(victim, "begins"))
            assert found.value == (b"%d," % found.version * 500 if found.version else b"0")
            sure[number] = found.version
        children[number] = start(WRITER, number)
    for number, child in enumerate(children):
        child.kill()
        sure[number] = max(sure[number], acknowledged(child))
    with FileStore(path) as store:
        found = store.read_each([f"/writers/{number}" for number in range(3)])
        versions = [one.version for one in found if one is not None]
        assert all(version >= least for version, least in zip(versions, sure, strict=True))
        total = value_of(store, "/total")
        assert int(total.value) == total.version == sum(versions)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


FULL = """
import resource
store = FileStore(path)
store.commit([Create("/kept", b"0")])
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
largest = max(os.path.getsize(path + end) for end in ("", "-wal", "-shm"))
resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 50_000, most))
version = 0
while True:
    try:
        version = store.commit([Put("/kept", b"%d" % (version + 1), version), Create("/more/%d" % version, bytes(9_000))])[0]
    except ReplogError as error:
        say("refused", type(error).__name__)
        break
refusals = 0
for _ in range(10):
    try:
        store.commit([Create("/big", bytes(100_000))])
    except ReplogError:
        refusals += 1
say("refusals", refusals)
found = store.read("/kept")
say("there", found.version, found.value.decode(), len(store.list("/more")))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
store.commit([Create("/big", bytes(100_000))])
say("acknowledged", store.commit([Put("/kept", b"after", version)])[0])
sys.stdin.readline()
"""


def test_a_file_that_cannot_grow_refuses_and_heals(start: Start, path: Path) -> None:
    child = start(FULL)
    eventually(lambda: len(child.lines) == 4 or child.process.poll() is not None)
    refused, refusals, there, acknowledged_ = [line.split() for line in child.lines]
    assert refused[1] in ("StoreFull", "UnknownOutcome")
    assert refusals[1] == "10"
    version = int(there[1])
    assert version >= 1
    assert there[1:] == [str(version), str(version), str(version)]
    assert acknowledged_[1] == str(version + 1)
    child.kill()
    with FileStore(path) as store:
        assert value_of(store, "/kept") == Versioned(b"after", version + 1, 1)
        assert len(store.list("/more")) == version
        assert len(value_of(store, "/big").value) == 100_000


FORKS = """
import os, sys
path = sys.argv[1]
held = []
os.register_at_fork(before=lambda: held.append(store._file._database.lock._is_owned()))  # the first that registers runs last
import threading
from replog.errors import UsageError
from replog.metadata.file import FileStore
from replog.ports import Create, Put
store = FileStore(path, session_ms=1_000)
store.commit([Create("/count", b"")])
store.keep_alive()
stop = threading.Event()
def write():
    while not stop.is_set():
        store.commit([Put("/count", b"")])
writer = threading.Thread(target=write, daemon=True)
writer.start()
for number in range(20):
    child = os.fork()
    if child == 0:
        store.keep_alive()  # as the port says: it never raises
        for call in (store.fire_all, store.renew, store.poll):
            try:
                call()
            except UsageError as error:
                assert "fork" in str(error)
            else:
                os._exit(2)
        store.close()
        with FileStore(path + ".own") as own:
            own.keep_alive()
            own.commit([Create("/%d" % number, b"")])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    store.keep_alive()
stop.set()
writer.join()
assert not store._file._database.lock._is_owned()
print("held", held.count(True))
store.close()
with FileStore(path + ".own") as own:
    print("made", len(own.list("/")))
"""


def test_a_fork_waits_for_calls_of_other_threads_and_its_child_has_a_store_of_its_own(start: Start) -> None:
    """A child inherits SQLite's locks as they are at that moment: one that is held would never be released."""
    assert start(FORKS, prelude="").finish() == ["held 20", "made 20"]
