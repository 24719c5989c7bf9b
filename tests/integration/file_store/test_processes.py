"""One file store, several real processes: races, kills in the middle, leases, forks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from replog.metadata.file import FileStore
from replog.ports import Create

from .conftest import Start

pytestmark = pytest.mark.processes


def test_two_processes_count_to_a_sum(start: Start, store: FileStore) -> None:
    store.commit([Create("/count", b"0")])
    code = """
store = FileStore(path)
for _ in range(100):
    while True:
        found = store.read("/count")
        try:
            store.commit([Put("/count", b"%d" % (int(found.value) + 1), found.version)])
            break
        except Conflict:
            pass
store.close()
"""
    for child in [start(code), start(code)]:
        child.finish()
    found = store.read("/count")
    assert found is not None
    assert (found.value, found.version) == (b"200", 200)


def test_processes_that_make_the_store_at_once_make_one(start: Start, path: Path) -> None:
    code = """
say("ready")
sys.stdin.readline()
store = FileStore(path)
store.commit([Create("/from/" + store.session_id, b"")])
say(store.session_id)
"""
    children = [start(code) for _ in range(3)]
    for child in children:
        assert child.line() == "ready"
    for child in children:
        child.tell("go")
    ids = [child.finish()[-1] for child in children]
    with FileStore(path) as store:
        assert store.list("/from") == sorted(ids)
        assert len(set(ids)) == 3
    assert not [name for name in os.listdir(path.parent) if ".new-" in name]


def test_changes_reach_another_process(start: Start, store: FileStore) -> None:
    fired: list[str] = []
    store.watch("/a", fired.append)
    start('FileStore(path).commit([Create("/a/b", b"x")])').finish()
    store.poll()
    assert fired == ["/a"]
    assert store.list("/a") == ["b"]


HOLDER = """
store = FileStore(path)
store.commit([Create("/ids/1", b"", ephemeral=True)])
say(store.session_id)
sys.stdin.readline()
"""


def test_whoever_holds_the_lock_of_a_killed_process_ends_its_session(start: Start, store: FileStore) -> None:
    child = start(HOLDER)
    session = child.line()
    child.kill()
    assert store.list("/ids") == ["1"]
    store.end_session(session)
    assert store.list("/ids") == []


def test_the_lease_of_a_killed_process_runs_out(start: Start, path: Path) -> None:
    later_ns = [0]
    with FileStore(path, clock_ns=lambda: time.monotonic_ns() + later_ns[0]) as store:
        child = start(HOLDER)
        child.line()
        child.kill()
        for _ in range(3):
            store.renew()
            assert store.list("/ids") == ["1"]
            later_ns[0] += 3_100_000_000
        store.renew()
        assert store.list("/ids") == []


def test_a_process_whose_session_was_ended_writes_no_more(start: Start, store: FileStore) -> None:
    child = start(HOLDER + 'store.commit([Put("/ids/1", b"late")])')
    store.end_session(child.line())
    child.tell("go")
    child.end()
    assert child.process.returncode == 1
    assert store.list("/ids") == []
    store.commit([Create("/ids/1", b"mine")])


def test_kill_9_in_the_middle_of_commits_loses_nothing_that_was_applied(start: Start, path: Path) -> None:
    code = """
store = FileStore(path)
found = store.read("/a")
version = 0 if found is None else found.version
if found is None:
    store.commit([Create("/a", b"0"), Create("/b", b"0")])
while True:
    value = b"%d" % (version + 1) * 200
    version = store.commit([Put("/a", value, version), Put("/b", value, version)])[0]
    say(version)
"""
    for round_ in range(8):
        child = start(code)
        for _ in range(3 + 5 * round_):
            child.line()
        acknowledged = int(child.kill()[-1])
        with FileStore(path) as store:
            one, two = store.read_each(["/a", "/b"])
            assert one is not None
            assert two is not None
            assert acknowledged <= one.version <= acknowledged + 1
            assert (one.version, one.value) == (two.version, two.value)
            assert one.value == b"%d" % one.version * 200


def test_a_forked_child_is_refused_and_does_no_harm(start: Start, path: Path) -> None:
    code = """
import gc
store = FileStore(path)
other = store.session()
store.commit([Create("/before", b"", ephemeral=True)])
if os.fork() == 0:
    calls = [lambda: store.read("/before"), lambda: store.list("/"), lambda: store.commit([Create("/child", b"")]), store.renew,
             store.poll, store.session, lambda: store.end_session(other.session_id), lambda: store.watch("/before", print)]
    for call in calls:
        try:
            call()
        except UsageError as error:
            assert "fork" in str(error)
        else:
            raise AssertionError(call)
    other.close()
    store.close()
    try:
        FileStore(path)
    except UsageError as error:
        assert "forked" in str(error)
    else:
        raise AssertionError("opened without locks")
    with FileStore(path + ".own") as fresh:
        fresh.commit([Create("/from the child", b"")])
    def descriptors():
        links = ["/proc/self/fd/%d" % number for number in range(3, 100)]
        return [link for link in links if os.path.lexists(link) and os.readlink(link).startswith(path)]
    before = descriptors()
    del store, other, calls, call
    gc.collect()
    assert before and descriptors() == before, "the inherited connection was closed"
    sys.exit(0)
_, status = os.wait()
assert status == 0, status
assert os.path.exists(path + "-wal")
store.commit([Create("/after", b"")])
say(",".join(store.list("/")))
sys.stdin.readline()
"""
    child = start(code)
    assert child.line() == "after,before"
    with FileStore(path) as store:
        assert store.list("/") == ["after", "before"]
        assert child.finish() == ["after,before"]


def test_a_child_of_a_fork_while_another_thread_opens_a_store_is_refused_that_one_and_no_other(start: Start, path: Path) -> None:
    """SQLite would believe there that it has the parent's locks; and nobody is left who would let go of what that thread held."""
    code = """
import threading
from replog.metadata import database
database.FORK_WAIT_S = 0.05
FileStore(path).close()
inside, done = threading.Event(), threading.Event()
check = database.Database._check
def slow(self):
    check(self)
    inside.set()
    done.wait()
database.Database._check = slow
opening = threading.Thread(target=lambda: FileStore(path).close(), daemon=True)
opening.start()
inside.wait()
database.Database._check = check
def hold():
    with database._opening:
        held.set()
        done.wait()
held = threading.Event()
for holds in (False, True):
    if holds:
        holding = threading.Thread(target=hold, daemon=True)
        holding.start()
        held.wait()
    if os.fork() == 0:
        try:
            FileStore(path)
        except UsageError as error:
            assert "forked" in str(error)
        else:
            raise AssertionError("opened without locks")
        with FileStore(path + ".own") as fresh:
            fresh.commit([Put("/from the child", b"")] if holds else [Create("/from the child", b"")])
        os._exit(0)
    _, status = os.wait()
    assert status == 0, status
done.set()
opening.join()
holding.join()
with FileStore(path) as store:
    store.commit([Create("/after", b"")])
    say(",".join(store.list("/")))
"""
    child = start(code)
    assert child.finish() == ["after"]
