"""What is particular to the store in a file: leases, other processes' changes, damage, a full disk, forks."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from replog.errors import ReplogError, StoreCorrupt, StoreFull, UsageError
from replog.metadata import file as file_store
from replog.metadata.database import NodeCorrupt
from replog.metadata.file import FileStore
from replog.metadata.looking import look_at_file
from replog.ports import Check, Create, Delete, Put, SessionLost, UnknownOutcome, Versioned
from replog.testing.clock import ManualClock
from replog.testing.eventually import eventually

Open = Callable[..., FileStore]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store_at(path: Path, clock: ManualClock) -> Iterator[Open]:
    """Opens another object on the file, as another process would."""
    opened: list[FileStore] = []

    def another(*, boot: str = "boot", private: bool = False, session_ms: int = 9_000) -> FileStore:
        opened.append(FileStore(path, session_ms=session_ms, private=private, clock_ns=clock.now_ns, boot_id=lambda: boot))
        return opened[-1]

    yield another
    for store in opened:
        store.close()


# ------------------------------------------------------------------------------------------------------------ leases


def test_a_session_that_is_not_renewed_is_ended_by_others(store_at: Open, clock: ManualClock) -> None:
    dead, alive = store_at(), store_at()
    dead.commit([Create("/ids/1", b"", ephemeral=True)])
    fired: list[str] = []
    alive.watch("/ids", fired.append)
    for _ in range(3):
        clock.advance(3_000)
        alive.renew()
        assert alive.list("/ids") == ["1"]
    clock.advance(1)
    alive.renew()
    assert alive.list("/ids") == []
    assert fired == ["/ids"]


def test_a_session_that_is_renewed_stays(store_at: Open, clock: ManualClock) -> None:
    one, two = store_at(), store_at()
    one.commit([Create("/a", b"", ephemeral=True)])
    for _ in range(20):
        clock.advance(3_000)
        one.renew()
        two.renew()
    assert two.read("/a") is not None


def test_whoever_just_came_waits_for_a_full_session_time(store_at: Open, clock: ManualClock) -> None:
    dead = store_at()
    dead.commit([Create("/a", b"", ephemeral=True)])
    clock.advance(1_000_000)
    alive = store_at()
    for _ in range(2):
        clock.advance(3_000)
        alive.renew()
        assert alive.read("/a") is not None
    clock.advance(3_000)
    alive.renew()
    assert alive.read("/a") is None


def test_whoever_was_stopped_does_not_judge_others_by_the_time_that_passed(store_at: Open, clock: ManualClock) -> None:
    one, two = store_at(), store_at()
    one.commit([Create("/a", b"", ephemeral=True)])
    for _ in range(4):
        clock.advance(3_000)
        one.renew()
        two.renew()
    clock.advance(60_000)  # the whole host stood still
    two.renew()
    assert two.read("/a") is not None
    one.renew()
    one.commit([Put("/a", b"still here")])


def test_a_process_that_could_not_write_does_not_judge_others(store_at: Open, clock: ManualClock, path: Path) -> None:
    one, two = store_at(session_ms=300), store_at(session_ms=300)
    one.commit([Create("/a", b"", ephemeral=True)])
    for _ in range(2):
        clock.advance(100)
        two.renew()
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnknownOutcome, match="another process"):
        two.renew()
    blocker.execute("ROLLBACK")
    blocker.close()
    clock.advance(101)
    two.renew()
    assert two.read("/a") is not None  # it may have been unable to write as well
    for _ in range(3):
        clock.advance(100)
        two.renew()
    assert two.read("/a") is None


def test_a_session_that_cannot_renew_is_suspended_until_it_can(store_at: Open, path: Path) -> None:
    store = store_at(session_ms=300)
    states: list[str] = []
    store.on_session(states.append)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        with pytest.raises(UnknownOutcome):
            store.renew()
    blocker.execute("ROLLBACK")
    blocker.close()
    store.renew()
    store.renew()
    assert states == ["suspended", "connected"]


def test_a_late_renewal_succeeds_if_nobody_ended_the_session(store_at: Open, clock: ManualClock) -> None:
    store = store_at()
    store.commit([Create("/a", b"", ephemeral=True)])
    clock.advance(100_000)
    store.renew()
    store.commit([Put("/a", b"1", 0)])


def test_whoever_was_ended_hears_of_it_at_renewal(store_at: Open, clock: ManualClock) -> None:
    stopped, alive = store_at(), store_at()
    states: list[str] = []
    stopped.on_session(states.append)
    for _ in range(4):
        clock.advance(3_000)
        alive.renew()
    with pytest.raises(SessionLost):
        stopped.renew()
    assert states == ["lost"]


def test_sessions_of_another_boot_end_at_once(store_at: Open, clock: ManualClock) -> None:
    before = store_at(boot="first")
    before.commit([Create("/a", b"", ephemeral=True), Create("/kept", b"")])
    after = store_at(boot="second")
    assert after.list("/") == ["kept"]
    with pytest.raises(SessionLost):
        before.commit([Create("/late", b"")])


def test_private_sessions_of_another_boot_end_too(store_at: Open) -> None:
    store_at(boot="first", private=True).commit([Create("/a", b"", ephemeral=True)])
    assert store_at(boot="second").list("/") == []


def test_a_private_store_never_expires_and_begins_without_sessions(store_at: Open, clock: ManualClock) -> None:
    earlier = store_at(private=True)
    earlier.commit([Create("/ids/1", b"", ephemeral=True), Create("/kept", b"")])
    later = store_at(private=True)
    assert later.list("/") == ["kept"]
    with pytest.raises(SessionLost):
        earlier.commit([Create("/late", b"")])
    second = later.session()
    second.commit([Create("/ids/2", b"", ephemeral=True)])
    for _ in range(100):
        clock.advance(9_001)
        later.renew()
        later.poll()
    second.commit([Put("/ids/2", b"")])
    later.end_session(second.session_id)
    assert later.list("/") == ["kept"]


def test_ending_a_session_that_is_over_or_unknown_does_nothing(store_at: Open) -> None:
    one, two = store_at(), store_at()
    one.close()
    two.end_session(one.session_id)
    two.end_session("nobody")
    two.commit([Create("/a", b"")])


def test_session_ids_are_not_used_again_by_a_store_that_begins_anew(path: Path) -> None:
    ids = []
    for _ in range(2):
        with FileStore(path) as store:
            ids.append(store.session_id)
        path.unlink()
    assert ids[0] != ids[1]


def test_ephemeral_nodes_of_a_killed_process_survive_until_its_lease_ends(store_at: Open, path: Path) -> None:
    store_at().commit([Create("/a", b"", ephemeral=True)])
    assert store_at().read("/a") is not None


def test_a_session_time_too_short_to_keep_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="session_ms is 99"):
        FileStore(path, session_ms=99)
    assert not path.exists()


# ----------------------------------------------------------------------------------------- changes of other processes


def test_changes_of_others_arrive_by_poll_once(store_at: Open) -> None:
    one, two = store_at(), store_at()
    fired: list[str] = []
    for watched in ("/a", "/b", "/c"):
        one.watch(watched, fired.append)
    two.commit_each([[Create("/b", b"")], [Create("/a/x", b"")], [Create("/d", b"")]])
    assert fired == []
    one.poll()
    assert fired == ["/b", "/a"]
    one.poll()
    assert fired == ["/b", "/a"]


def test_a_commit_of_ours_brings_what_others_did_before(store_at: Open) -> None:
    one, two = store_at(), store_at()
    fired: list[str] = []
    one.watch("/a", fired.append)
    two.commit([Create("/a", b"")])
    one.commit([Create("/b", b"")])
    assert fired == ["/a"]


def test_whoever_missed_too_many_changes_looks_at_everything(store_at: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_store, "CHANGES_KEPT", 10)
    one, two = store_at(), store_at()
    fired: list[str] = []
    for watched in ("/a", "/untouched"):
        one.watch(watched, fired.append)
    two.commit([Create("/a", b"")])
    for number in range(20):
        two.commit([Create(f"/many{number}", b"")])
    one.poll()
    assert fired == ["/a", "/untouched"]
    one.watch("/a", fired.append)
    two.commit([Create(f"/more{number}", b"") for number in range(20)])
    one.poll()
    assert fired == ["/a", "/untouched", "/a"]
    assert _count(one.path, "changes") == 10


def test_independent_transactions_share_writes_to_disk(store_at: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_at()
    begun: list[str] = []
    store._file._database.connection.set_trace_callback(lambda sql: begun.append(sql) if sql.startswith("BEGIN") else None)
    results = store.commit_each([[Create(f"/a/{number}", b"")] for number in range(2_000)])
    assert len(begun) == 1
    assert not [result for result in results if isinstance(result, ReplogError)]
    monkeypatch.setattr(file_store, "GROUP_OPS_MAX", 10)
    store.commit_each([[Put(f"/a/{number}", b""), Put(f"/a/{number}", b"")] for number in range(25)])
    assert len(begun) == 1 + 5


# ---------------------------------------------------------------------------------------------------- file and errors


def test_what_was_committed_is_there_when_opened_again(path: Path) -> None:
    with FileStore(path) as store:
        (created,) = store.commit([Create("/a/b", b"x")])
        store.commit([Put("/a/b", b"y")])
    with FileStore(path) as store:
        assert store.read("/a/b") == Versioned(b"y", 1, created)
        store.commit([Delete("/a/b")])
        assert store.commit([Create("/a/b", b"")]) > [created]


def test_the_file_is_its_owners_only_and_nothing_is_left_beside_it(path: Path) -> None:
    with FileStore(path) as store:
        store.commit([Create("/a", b"")])
        names = sorted(os.listdir(path.parent))
        assert names == ["store.db", "store.db-shm", "store.db-wal"]
        assert {stat.S_IMODE(os.stat(path.parent / name).st_mode) for name in names} == {0o600}
    assert os.listdir(path.parent) == ["store.db"]


def test_the_file_stays_open_for_the_other_sessions(path: Path) -> None:
    first = FileStore(path)
    second = first.session()
    first.close()
    second.commit([Create("/a", b"")])
    with pytest.raises(UsageError, match="closed"):
        first.session()
    second.close()
    with pytest.raises(UsageError, match="closed"):
        second.read("/a")


@pytest.mark.parametrize("step", ["release", "close", "leave"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_close_that_is_repeated_after_an_interrupt_lets_go_of_the_file_once(
    path: Path, step: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far the first one came."""
    one = FileStore(path)
    others = [one.session(), one.session()] if shared else []
    owner = one._file._database if step == "close" else one._file
    done = getattr(owner, step)
    interrupts = [KeyboardInterrupt()]

    def interrupted(*args: object, **options: object) -> None:
        done(*args, **options)
        if interrupts:
            raise interrupts.pop()

    monkeypatch.setattr(owner, step, interrupted)
    if shared and step == "close":
        interrupts.clear()  # the file stays open
    else:
        with pytest.raises(KeyboardInterrupt):
            one.close()
    one.close()
    one.close()
    for left in others[1:]:
        left.close()
        left.close()
    for store in others[:1]:
        assert store.list("/") == []
        store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        one._file._database.connection.execute("SELECT 1")
    assert _count(str(path), "sessions") == 0


def test_a_path_is_remembered_as_absolute(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with FileStore("store.db") as store:
        assert store.path == str(path)


def _foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs(x)")
    connection.commit()
    connection.close()


def _newer_format(path: Path) -> None:
    FileStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.write_bytes(b"not a database at all\n" * 500), "not a SQLite database"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"\0" * 8192), "not a SQLite database"),
        (_foreign_database, "something else"),
        (_newer_format, "format 2"),
    ],
)
def test_a_file_that_is_something_else_is_refused_and_left_alone(path: Path, make: Callable[[Path], None], why: str) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=why) as caught:
        FileStore(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["store.db"]


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o640, 0o604, 0o601])
def test_a_store_that_is_open_to_others_is_refused_and_left_alone(path: Path, mode: int) -> None:
    """Whoever can write to it can do anything, and SQLite would give its companions the same mode."""
    with FileStore(path) as store:
        store.commit([Create("/a", b"1")])
    path.chmod(mode)
    before = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        FileStore(path)
    assert str(caught.value) == f"others can read or change the metadata store '{path}' (mode {mode:03o}); chmod 600 '{path}'*"
    assert (path.read_bytes(), os.listdir(path.parent)) == (before, ["store.db"])
    assert look_at_file(str(path), 1.0, lambda look: look.children("/")) == ["a"]  # which writes nothing, and decides nothing
    path.chmod(0o600)
    with FileStore(path) as store:
        assert store.list("/") == ["a"]


@pytest.mark.parametrize("companion", ["-wal", "-shm", "-journal"])
def test_a_companion_that_is_open_to_others_is_refused_before_it_is_used(path: Path, companion: str) -> None:
    FileStore(path).close()
    before = path.read_bytes()
    Path(f"{path}{companion}").write_bytes(b"of somebody")
    Path(f"{path}{companion}").chmod(0o666)
    with pytest.raises(UsageError) as caught:
        FileStore(path)
    assert str(caught.value) == f"others can read or change the metadata store '{path}{companion}' (mode 666); chmod 600 '{path}'*"
    assert (path.read_bytes(), Path(f"{path}{companion}").read_bytes()) == (before, b"of somebody")


@pytest.mark.parametrize("end", ["", "-wal"])
def test_a_store_belongs_to_this_user_or_to_root(path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    FileStore(path).close()
    if end:
        Path(f"{path}{end}").touch(0o600)
    stat, user = os.stat, os.geteuid()
    owner = user

    def owned(file: Any, **how: Any) -> os.stat_result:
        found = list(stat(file, **how))
        found[4] = owner if str(file) == f"{path}{end}" else user
        return os.stat_result(found)

    monkeypatch.setattr(os, "stat", owned)
    owner = user + 1
    with pytest.raises(UsageError, match=f"the metadata store '{path}{end}' belongs to user {owner}; allowed are this user and root"):
        FileStore(path)
    owner = 0
    FileStore(path).close()


def test_folders_links_and_missing_folders_are_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="not a file"):
        FileStore(path.parent)
    with pytest.raises(UsageError, match="No such file"):
        FileStore(path.parent / "missing" / "store.db")
    FileStore(path).close()
    link = path.parent / "link.db"
    link.symlink_to(path)
    with pytest.raises(UsageError, match="symbolic link"):
        FileStore(link)


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (errno.EMFILE, UnknownOutcome),
        (errno.ENFILE, UnknownOutcome),
        (errno.EIO, UnknownOutcome),
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EACCES, UsageError),
        (errno.EROFS, UsageError),
    ],
)
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_cannot_be_made_now_may_be_made_later(
    path: Path, number: int, raised: type[Exception], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what whoever configured it can change is his mistake: that is not tried again."""
    opened = os.open

    def fail(name: str, flags: int, *args: int, **options: int) -> int:
        if what == ("folder" if flags & os.O_DIRECTORY else "file" if ".new-" in str(name) else "else"):
            raise OSError(number, os.strerror(number))
        return opened(name, flags, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        with pytest.raises(raised, match=os.strerror(number)):
            FileStore(path)
    assert not [name for name in os.listdir(path.parent) if ".new-" in name]
    FileStore(path).close()


def test_a_path_need_not_be_text(path: Path) -> None:
    odd = path.parent / os.fsdecode(b"\xff?%41#.db")
    with FileStore(odd, session_ms=500) as store:
        store.commit([Create("/a", b"1")])
        store.keep_alive()
    with FileStore(odd) as store:
        assert store.list("/") == ["a"]
        assert look_at_file(str(odd), 1.0, lambda look: look.children("/")) == ["a"]
    assert look_at_file(str(odd), 1.0, lambda look: look.children("/")) == ["a"]
    assert os.listdir(path.parent) == [odd.name]


def test_a_damaged_page_is_found_when_the_store_is_opened(path: Path) -> None:
    with FileStore(path) as store:
        store.commit([Create(f"/a/{number}", b"v" * 300) for number in range(500)])
    content = bytearray(path.read_bytes())
    for page in range(8, len(content) // 4096):
        content[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="damaged") as caught:
        FileStore(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == bytes(content)


def test_a_flipped_bit_in_a_value_is_found_when_it_is_read(path: Path) -> None:
    with FileStore(path) as store:
        store.commit([Create("/a", b"needle"), Create("/b", b"")])
    content = path.read_bytes()
    assert content.count(b"needle") == 1
    path.write_bytes(content.replace(b"needle", b"noodle"))
    with FileStore(path) as store:
        with pytest.raises(StoreCorrupt, match="/a") as caught:
            store.read("/a")
        assert caught.value.path == "/a"
        with pytest.raises(StoreCorrupt):
            store.commit([Put("/a", b"")])
        assert store.read("/b") is not None


def rot(path: Path, needle: bytes) -> None:
    """Turn a value into another one, behind the back of whoever has the file open."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("UPDATE nodes SET value = ? WHERE value = ?", (needle[::-1], needle)).rowcount == 1


def test_a_damaged_value_refuses_the_transaction_that_needs_it_alone(path: Path) -> None:
    with FileStore(path) as store:
        store.commit([Create("/a", b"needle"), Create("/b", b"")])
        rot(path, b"needle")
        results = store.commit_each([[Put("/b", b"1")], [Put("/b", b"no"), Put("/a", b"no")], [Check("/a", 0)], [Put("/b", b"2")]])
        assert [type(result) for result in results] == [list, NodeCorrupt, NodeCorrupt, list]
        assert {result.path for result in results if isinstance(result, NodeCorrupt)} == {"/a"}
        assert store.read("/b") == Versioned(b"2", 2, 2)
        with pytest.raises(NodeCorrupt):
            store.commit([Put("/a", b"")])


def test_a_session_ends_although_what_it_owns_is_damaged(store_at: Open, clock: ManualClock, path: Path) -> None:
    """It would never end: and nobody's lease would be renewed by whoever tries to end it."""
    dead, alive = store_at(), store_at()
    dead.commit([Create("/ids/1", b"needle", ephemeral=True), Create("/ids/2", b"", ephemeral=True)])
    alive.commit([Create("/ids/3", b"", ephemeral=True)])
    rot(path, b"needle")
    fired: list[str] = []
    alive.watch("/ids", fired.append)
    alive.watch("/ids/1", fired.append)
    for _ in range(4):
        clock.advance(3_000)
        alive.renew()
    assert alive.list("/ids") == ["3"]
    assert sorted(fired) == ["/ids", "/ids/1"]


def test_a_damaged_node_keeps_nothing_from_coming_and_going_below_it_and_can_be_removed(path: Path) -> None:
    with FileStore(path) as store:
        store.commit([Create("/a", b"needle"), Create("/a/b", b"")])
        rot(path, b"needle")
        store.commit([Create("/a/c/d", b"")])
        store.commit([Delete("/a/b"), Delete("/a/c/d")])
        assert (store.list("/a"), store.list("/")) == ([], ["a"])
        for condition in ({"version": 0}, {"created": 1}):
            with pytest.raises(NodeCorrupt):
                store.commit([Delete("/a", **condition)])
        fired: list[str] = []
        store.watch("/a", fired.append)
        assert store.commit([Delete("/a"), Create("/a", b"anew")])[0] == 0
        assert (store.read("/a").value, fired) == (b"anew", ["/a"])


def test_a_damaged_text_is_a_damaged_node(path: Path) -> None:
    with FileStore(path) as store:
        store.commit([Create("/a", b"", ephemeral=True), Create("/b", b"")])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE nodes SET owner = CAST(x'ff41' AS TEXT) WHERE path = '/a'")
        with pytest.raises(NodeCorrupt) as caught:
            store.read_each(["/b", "/a"])
        assert caught.value.path == "/a"
        store.commit([Delete("/a")])
        assert store.list("/") == ["b"]


def test_a_full_disk_applies_nothing_and_heals(path: Path) -> None:
    with FileStore(path) as store:
        store.commit([Create("/a", b"small")])
        connection = store._file._database.connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreFull, match="disk is full"):
            store.commit([Put("/a", b"changed"), Create("/big", b"x" * 100_000)])
        results = store.commit_each([[Put("/a", b"changed")], [Create("/big", b"x" * 100_000)]])
        assert [type(result) for result in results] == [StoreFull, StoreFull]
        stored = store.read("/a")
        assert stored is not None
        assert (stored.value, stored.version) == (b"small", 0)
        connection.execute("PRAGMA max_page_count = 1000000")
        assert store.commit([Put("/a", b"changed", 0), Create("/big", b"x" * 100_000)])[0] == 1


def test_another_process_that_holds_the_file_for_too_long_leaves_the_outcome_open(path: Path) -> None:
    with FileStore(path, session_ms=300) as store:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnknownOutcome, match="another process"):
            store.commit([Create("/a", b"")])
        assert store.read("/a") is None  # reads do not wait for writers
        blocker.execute("ROLLBACK")
        blocker.close()
        store.commit([Create("/a", b"")])


@contextmanager
def _held(path: Path, store: FileStore) -> Iterator[None]:
    """Another process is at it."""
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    yield
    blocker.close()


@contextmanager
def _full(path: Path, store: FileStore) -> Iterator[None]:
    """Nothing can be written to the disk."""
    begin = store._file._database._begin

    def refuse(timeout_s: float) -> None:
        raise StoreFull("the disk is full")

    store._file._database._begin = refuse  # type: ignore[method-assign]
    yield
    store._file._database._begin = begin  # type: ignore[method-assign]


@pytest.mark.parametrize("trouble", [_held, _full])
@pytest.mark.parametrize("private", [True, False])
def test_a_session_that_could_not_be_ended_ends_as_soon_as_the_file_can_be_written(
    path: Path, trouble: Callable[[Path, FileStore], AbstractContextManager[None]], private: bool
) -> None:
    """Nobody else writes, and one of a private store would never run out."""
    with FileStore(path, session_ms=300, private=private) as store:
        left = store.session()
        left.commit([Create("/seat", b"", ephemeral=True)])
        fired: list[str] = []
        store.watch("/seat", fired.append)
        with trouble(path, store):
            with pytest.raises((UnknownOutcome, StoreFull)):
                left.close()
            left.close()
            assert store.read("/seat") is not None
        eventually(lambda: fired)
        assert store.read("/seat") is None
        assert _count(str(path), "sessions") == 1


def test_where_no_thread_can_be_had_the_next_write_ends_what_was_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileStore(path, session_ms=300, private=True) as store:
        monkeypatch.setattr(store._file.upkeep, "start", lambda: None)
        left = store.session()
        left.commit([Create("/seat", b"", ephemeral=True)])
        with _full(path, store), pytest.raises(StoreFull):
            left.close()
        store.commit([Create("/seat", b"another's")])
        assert _count(str(path), "sessions") == 1


def test_a_session_left_by_the_last_user_of_a_file_is_nobodys_work(path: Path) -> None:
    store = FileStore(path, session_ms=300, private=True)
    with _full(path, store), pytest.raises(StoreFull):
        store.close()
    assert store._file._left == {}
    FileStore(path, private=True).close()
    assert _count(str(path), "sessions") == 0


def test_an_interrupted_commit_applies_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileStore(path) as store:
        store.commit([Create("/a", b"0")])

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(store._file, "_remember", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.commit([Put("/a", b"1")])
        assert store.commit([Put("/a", b"2", 0)]) == [1]


def _count(path: str, table: str) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()
