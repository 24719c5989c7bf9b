"""The store in a file as several processes and threads meet it: turns to write, looks that cost nothing, a log that stays short."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replog.errors import StoreCorrupt, UsageError
from replog.metadata import database
from replog.metadata import file as file_store
from replog.metadata.file import FileStore
from replog.metadata.place import StoreGone
from replog.ports import Conflict, Create, Put, SessionLost, UnknownOutcome
from replog.testing.eventually import eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def blocker(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process's connection, as far as SQLite's locks go."""
    FileStore(path).close()
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    yield connection
    connection.close()


def traced(store: FileStore) -> list[str]:
    """Collects the statements that SQLite runs from now on."""
    statements: list[str] = []
    store._file._database.connection.set_trace_callback(statements.append)
    return statements


def test_a_look_where_nobody_wrote_is_one_statement(path: Path) -> None:
    with FileStore(path) as one, FileStore(path) as two:
        one.poll()
        statements = traced(one)
        for _ in range(100):
            one.poll()
        assert statements == ["PRAGMA data_version"] * 100
        one.commit([Create("/own", b"")])  # our own changes are no reason to look
        statements.clear()
        one.poll()
        assert statements == ["PRAGMA data_version"]
        two.commit([Create("/theirs", b"")])
        statements.clear()
        one.poll()
        assert len(statements) > 1
        statements.clear()
        one.poll()
        assert statements == ["PRAGMA data_version"]


def test_changes_that_an_interrupt_left_untold_are_told_at_the_next_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileStore(path) as store:
        store.poll()
        fired: list[str] = []
        store.watch("/a", fired.append)

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(store._file, "_notice", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.commit([Create("/a", b"")])
        assert store.read("/a") is not None
        store.poll()
        assert fired == ["/a"]


def test_a_writer_asks_again_and_again_until_it_is_its_turn(path: Path, blocker: sqlite3.Connection) -> None:
    with FileStore(path) as store:
        blocker.execute("BEGIN IMMEDIATE")
        statements = traced(store)
        writer = threading.Thread(target=store.commit, args=([Create("/a", b"")],))
        writer.start()
        eventually(lambda: statements.count("BEGIN IMMEDIATE") >= 5)
        blocker.execute("ROLLBACK")
        writer.join()
        assert store.read("/a") is not None


def test_who_waited_in_vain_has_applied_nothing_and_waits_as_long_as_before(path: Path, blocker: sqlite3.Connection) -> None:
    with FileStore(path, session_ms=300) as store:
        blocker.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(UnknownOutcome, match=r"more than 0\.1 s: nothing applied"):
                store.commit([Create("/a", b"")])
        blocker.execute("ROLLBACK")
        assert store._file._database.connection.execute("PRAGMA busy_timeout").fetchone()[0] == 100
        store.commit([Create("/a", b"")])


def test_a_long_log_is_cut_once_it_was_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAL_BYTES_MAX", 1 << 20)
    wal = path.with_name("store.db-wal")
    with FileStore(path) as store, FileStore(path) as other:
        store.commit([Create(f"/{number}", bytes(1 << 18)) for number in range(20)])
        assert wal.stat().st_size > 5 << 20
        store.commit([Create("/a", b"")])
        assert wal.stat().st_size <= 1 << 20
        other.commit([Create("/b", b"")])
        assert wal.stat().st_size <= 1 << 20


def test_the_log_is_as_long_as_the_slowest_reader_lets_it_be(path: Path, blocker: sqlite3.Connection) -> None:
    wal = path.with_name("store.db-wal")
    with FileStore(path) as store:
        store.commit([Create("/a", b"")])
        blocker.execute("BEGIN")
        blocker.execute("SELECT * FROM state").fetchall()
        for number in range(40):
            store.commit([Put("/a", bytes([number]) * (1 << 18))])
        assert wal.stat().st_size > database.WAL_BYTES_MAX
        blocker.execute("ROLLBACK")
        for _ in range(2):
            store.commit([Put("/a", b"")])
        assert wal.stat().st_size <= database.WAL_BYTES_MAX


# -------------------------------------------------------------------------------------------- the file is taken away


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    other = path.with_name("other.db")
    FileStore(other).close()
    os.replace(other, path)


@pytest.mark.parametrize("take_away", [removed, replaced])
@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.commit([Create("/b", b"")]),
        lambda store: store.read("/a"),
        lambda store: store.list("/"),
        lambda store: store.watch("/a", print),
        lambda store: store.poll(),
        lambda store: store.renew(),
        lambda store: store.session(),
        lambda store: store.end_session("somebody"),
    ],
    ids=["commit", "read", "list", "watch", "poll", "renew", "session", "end_session"],
)
def test_the_first_call_after_the_file_was_taken_away_says_so(
    path: Path, take_away: Callable[[Path], None], call: Callable[[FileStore], object]
) -> None:
    with FileStore(path) as store:
        other = store.session()
        states: list[str] = []
        for session in (store, other):
            session.on_session(states.append)
        store.commit([Create("/a", b"")])
        store.poll()
        take_away(path)
        with pytest.raises(StoreCorrupt, match="removed or replaced") as caught:
            call(store)
        assert str(path) in str(caught.value)
        store._file.watches.deliver()
        assert states == ["lost", "lost"]
        for session in (store, other):
            with pytest.raises(SessionLost):
                session.commit([Create("/c", b"")])
        other.close()


def test_independent_transactions_on_a_file_that_was_taken_away_all_fail(path: Path) -> None:
    with FileStore(path) as store:
        path.unlink()
        results = store.commit_each([[Create("/a", b"")], [Create("/b", b"")]])
        assert [type(result) for result in results] == [StoreGone] * 2


def test_a_store_that_disappeared_does_not_come_back_empty(path: Path) -> None:
    """A session that is lost is replaced by another one; that must not begin a cluster without topics."""
    with FileStore(path) as store:
        store.commit([Create("/a", b"")])
    content = path.read_bytes()
    with FileStore(path) as store:
        path.unlink()
        with pytest.raises(StoreCorrupt):
            store.read("/a")
        with pytest.raises(StoreCorrupt, match="removed or replaced"):
            FileStore(path)
    assert not path.exists()
    path.write_bytes(content)  # somebody has put it back
    path.chmod(0o600)
    with FileStore(path) as store:
        assert store.list("/") == ["a"]
    path.unlink()
    with FileStore(path, private=True) as store:  # whoever is alone with it may begin anew
        assert store.list("/") == []


def test_a_store_whose_file_was_taken_away_closes(path: Path) -> None:
    store = FileStore(path)
    path.unlink()
    store.close()
    store.close()


OTHER_PROCESS = """
import sys
from replog.metadata.file import FileStore
from replog.ports import Create, Put

with FileStore(sys.argv[1]) as store:
    store.commit([Create("/seat", b"theirs", ephemeral=True), Put("/a", b"theirs")])
    print(store.read("/a").value.decode(), flush=True)
    sys.stdin.read()
"""
LATER_PROCESS = """
import sys
from replog.metadata.file import FileStore

with FileStore(sys.argv[1]) as store:
    print(store.read("/a").value.decode(), store.read("/b").value.decode())
"""


@contextmanager
def beside_another(path: Path) -> Iterator[FileStore]:
    """Has the store open, as has another process that came when its index had been removed, and has written."""
    store = FileStore(path)
    store.commit([Create("/a", b"ours"), Create("/b", b"ours")])
    path.with_name("store.db-shm").unlink()
    command = [sys.executable, "-c", OTHER_PROCESS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "theirs\n"
        yield store
        other.communicate()
    assert other.returncode == 0


def assert_nothing_was_spoilt(path: Path) -> None:
    """Whoever comes later finds what the first had written while it was alone, and all that the other one has."""
    found = subprocess.run([sys.executable, "-c", LATER_PROCESS, str(path)], capture_output=True, text=True, check=True)
    assert found.stdout == "theirs ours\n"


@pytest.mark.parametrize("ending", ["-shm", "-wal"])
@pytest.mark.parametrize("take_away", [removed, replaced], ids=["removed", "replaced"])
def test_a_part_of_the_file_that_is_taken_away_is_the_file_taken_away(
    path: Path, take_away: Callable[[Path], None], ending: str
) -> None:
    """The locks that keep two processes apart are on the index: of two that each have one of their own, both would be let in."""
    store = FileStore(path)
    store.commit([Create("/a", b"ours")])
    part = path.with_name(path.name + ending)
    if take_away is replaced:
        part.rename(part.with_name("elsewhere"))
        part.write_bytes(b"")
        part.chmod(0o600)
    else:
        part.unlink()
    with pytest.raises(StoreGone, match=f"{ending}.* was removed or replaced while it was open"):
        store.commit([Create("/seat", b"ours", ephemeral=True)])
    with pytest.raises(SessionLost):
        store.read("/a")
    store.close()
    store.close()


@pytest.mark.processes
@pytest.mark.parametrize("notices", [True, False], ids=["noticed before", "first noticed by close"])
def test_who_has_lost_a_part_of_the_file_spoils_nothing_for_those_who_come_after(path: Path, notices: bool) -> None:
    """A close copies the log into the file; that of somebody whose log is nobody's any more must not."""
    with beside_another(path) as store:
        if notices:
            with pytest.raises(StoreGone):
                store.commit([Create("/seat", b"ours", ephemeral=True)])
        store.close()
    with pytest.raises(UsageError, match="use it from one that is started anew"):
        FileStore(path)
    assert_nothing_was_spoilt(path)


@pytest.mark.processes
@pytest.mark.parametrize("notices", [True, False])
def test_nor_does_the_same_process_open_it_once_more(path: Path, notices: bool) -> None:
    """SQLite has one index for a file in a process: that which is gone, although another one is at its path."""
    with beside_another(path) as store:
        if notices:
            with pytest.raises(StoreGone):
                store.read("/a")
        with pytest.raises((StoreGone, UsageError)):
            FileStore(path)
        with pytest.raises((StoreGone, SessionLost)):
            store.commit([Create("/seat", b"ours", ephemeral=True)])
        store.close()
    assert_nothing_was_spoilt(path)


@pytest.mark.parametrize("endings", [("",), ("", "-wal", "-shm")], ids=["the file alone", "all of it"])
def test_a_store_that_was_moved_away_and_back_goes_on(path: Path, endings: tuple[str, ...]) -> None:
    store = FileStore(path)
    store.commit([Create("/a", b"")])
    away = path.parent / "away"
    away.mkdir()
    for ending in endings:
        Path(f"{path}{ending}").rename(away / f"store.db{ending}")
    with pytest.raises(StoreGone):
        store.read("/a")
    store.close()
    for ending in endings:
        if (moved := away / f"store.db{ending}").exists():
            moved.rename(f"{path}{ending}")
    with FileStore(path) as store:
        assert store.list("/") == ["a"]


@pytest.mark.parametrize("size", [0, 8_192])
def test_a_file_that_was_cut_acknowledges_nothing(path: Path, size: int) -> None:
    with FileStore(path) as store:
        store.commit([Create(f"/n/{number}", b"x" * 500) for number in range(100)])
    store = FileStore(path)
    whole = path.stat().st_size
    os.truncate(path, size)
    with pytest.raises(StoreGone, match=f"was cut from {whole} bytes to {size} while it was open"):
        store.commit([Create("/late", b"")])
    store.close()


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_no_store_is_begun_beside_what_is_left_of_another(path: Path, ending: str) -> None:
    """SQLite takes the log of the one that is gone for that of the new one."""
    left = path.with_name(path.name + ending)
    left.write_bytes(b"the last commits of another store")
    left.chmod(0o600)
    with pytest.raises(UsageError, match=f"{left} is what it had written last: put both back, or move that away"):
        FileStore(path)
    assert [one.name for one in path.parent.iterdir()] == [left.name]
    left.unlink()
    FileStore(path).close()


# ------------------------------------------------------------------------------------------------ threads and failures


def test_a_store_that_cannot_record_its_session_leaves_nothing_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> str:
        raise UnknownOutcome("no")

    with monkeypatch.context() as patch:
        patch.setattr(file_store._SharedFile, "join", fail)
        with pytest.raises(UnknownOutcome):
            FileStore(path)
    assert os.listdir(path.parent) == ["store.db"]  # SQLite removes its companions with the last connection


def test_the_file_stays_open_for_a_session_that_is_about_to_be_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(path)
    join = store._file.join

    def join_while_the_other_closes() -> str:
        session = join()
        store.close()
        return session

    monkeypatch.setattr(store._file, "join", join_while_the_other_closes)
    with store.session() as late:
        late.commit([Create("/a", b"")])
    with FileStore(path) as later:
        assert later.list("/") == ["a"]
        assert [lease.session for lease in later._file._leases()] == [later.session_id]


def test_a_session_that_was_ended_before_its_object_was_there_is_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileStore(path) as store:
        join = store._file.join

        def join_and_end() -> str:
            session = join()
            store.end_session(session)
            return session

        store.poll()
        monkeypatch.setattr(store._file, "join", join_and_end)
        late = store.session()
        late.poll()
        with pytest.raises(SessionLost):
            late.read("/a")
        late.close()


def test_threads_share_a_store(path: Path) -> None:
    """Each counts on; meanwhile sessions come and go, and somebody looks for changes."""
    problems: list[BaseException] = []
    counted = threading.Event()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as problem:
                problems.append(problem)

        return run

    with FileStore(path) as store:
        store.commit([Create("/count", b"0")])

        def count() -> None:
            done = 0
            while done < 25:
                found = store.read("/count")
                assert found is not None
                try:
                    store.commit([Put("/count", b"%d" % (int(found.value) + 1), found.version)])
                    done += 1
                except Conflict:
                    pass

        def come_and_go() -> None:
            while not counted.is_set():
                with store.session() as another:
                    another.commit([Create("/there", b"", ephemeral=True)])
                    another.keep_alive()

        def look() -> None:
            while not counted.is_set():
                store.poll()
                store.renew()

        counters = [threading.Thread(target=guarded(count)) for _ in range(4)]
        others = [threading.Thread(target=guarded(work)) for work in (come_and_go, look)]
        for thread in (*counters, *others):
            thread.start()
        for thread in counters:
            thread.join()
        counted.set()
        for thread in others:
            thread.join()
        assert problems == []
        found = store.read("/count")
        assert found is not None
        assert (found.value, found.version) == (b"100", 100)
        assert store.list("/") == ["count"]
        assert list(store._file.sessions) == [store.session_id]

