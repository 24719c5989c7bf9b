"""A session that lives by the turns of its owner's loop: what is renewed up to when, and what a silent owner hears."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replog.errors import UsageError
from replog.metadata.file import FileStore
from replog.metadata.lease import NS_PER_MS, check_session_ms, is_due
from replog.metadata.memory import MemoryStore
from replog.metadata.upkeep import Upkeep
from replog.ports import Create, Put, SessionLost
from replog.testing.clock import ManualClock
from replog.testing.eventually import eventually

Open = Callable[..., FileStore]
SESSION_MS = 8_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_000_000)


@pytest.fixture
def store_at(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens an object as another process would; its thread does not run, the test calls `tend` instead."""
    monkeypatch.setattr(Upkeep, "start", lambda self: None)
    opened: list[FileStore] = []

    def another(*, private: bool = False, session_ms: int = SESSION_MS) -> FileStore:
        opened.append(
            FileStore(tmp_path / "store.db", session_ms=session_ms, private=private, clock_ns=clock.now_ns, boot_id=lambda: "boot")
        )
        return opened[-1]

    yield another
    for store in opened:
        store.close()


def turn(clock: ManualClock, *ticking: FileStore, silent: tuple[FileStore, ...] = (), ms: int = 100, times: int = 1) -> None:
    """Time passes; the loops of some stores tick, and the threads of all do their work."""
    for _ in range(times):
        clock.advance(ms)
        for store in ticking:
            store.keep_alive()
        for store in (*ticking, *silent):
            store._file.tend()


def renewed_ms(store: FileStore) -> dict[str, int]:
    rows = store._file._database.connection.execute("SELECT id, renewed_ns FROM sessions").fetchall()
    return {session: ns // NS_PER_MS for session, ns in rows}


def writes_of(store: FileStore) -> list[str]:
    """Collects the write transactions that begin from now on."""
    begun: list[str] = []
    store._file._database.connection.set_trace_callback(lambda sql: begun.append(sql) if sql.startswith("BEGIN IMMEDIATE") else None)
    return begun


@pytest.mark.parametrize(
    ("why", "alive_ms", "recorded_ms", "now_ms", "due"),
    [
        ("a quarter of the time has passed", 2_000, 0, 2_000, True),
        ("less", 1_999, 0, 1_999, False),
        ("a sign that is not written, and nothing since", 10, 0, 2_000, True),
        ("nothing new to write", 10, 10, 100_000, False),
        ("a sign from before", 9, 10, 100_000, False),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_is_due(why: str, alive_ms: int, recorded_ms: int, now_ms: int, due: bool) -> None:
    found = is_due(alive_ms * NS_PER_MS, recorded_ns=recorded_ms * NS_PER_MS, now_ns=now_ms * NS_PER_MS, session_ms=SESSION_MS)
    assert found is due


@pytest.mark.parametrize(
    ("session_ms", "why"),
    [
        (99, "is 99; at least 100"),
        (-1, "is -1; at least 100"),
        (86_400_001, "is 86400001; at most 86400000"),
        (True, "whole number of milliseconds, not True"),
        (1_000.0, "whole number of milliseconds, not 1000.0"),
        ("9000", "whole number of milliseconds, not '9000'"),
        (None, "whole number of milliseconds, not None"),
    ],
)
def test_a_session_time_that_cannot_be_kept_is_refused(session_ms: object, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"session_ms (is a )?{why}"):
        check_session_ms(session_ms)
    with pytest.raises(UsageError, match="session_ms"):
        FileStore(tmp_path / "store.db", session_ms=session_ms)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_bounds_of_a_session_time() -> None:
    assert [check_session_ms(ms) for ms in (100, 86_400_000)] == [100, 86_400_000]


def test_a_loop_that_ticks_keeps_its_session_with_four_writes_in_its_time(store_at: Open, clock: ManualClock) -> None:
    one, two = store_at(), store_at()
    one.commit([Create("/a", b"", ephemeral=True)])
    begun = writes_of(one)
    turn(clock, one, two, times=1_600)  # twenty session times
    assert one.read("/a") is not None
    assert len(begun) == 80


def test_the_session_of_a_loop_that_hangs_ends_its_time_after_the_last_turn(store_at: Open, clock: ManualClock) -> None:
    hangs, alive = store_at(), store_at()
    hangs.commit([Create("/ids/1", b"", ephemeral=True)])
    fired: list[str] = []
    alive.watch("/ids", fired.append)
    turn(clock, hangs, alive, times=105)
    last_ms = clock.now_ms()
    turn(clock, alive, silent=(hangs,), times=SESSION_MS // 100)
    assert renewed_ms(alive)[hangs.session_id] in range(last_ms - 100, last_ms + 1)
    assert fired == []
    turn(clock, alive, silent=(hangs,), times=2)
    assert fired == ["/ids"]
    assert alive.list("/ids") == []


def test_a_hanging_loop_hears_that_it_may_be_lost_and_then_that_it_is(store_at: Open, clock: ManualClock) -> None:
    hangs, alive = store_at(), store_at()
    states: list[str] = []
    hangs.on_session(states.append)
    turn(clock, hangs, alive, times=100)
    turn(clock, alive, ms=100, times=100)  # its thread stands still as well
    assert states == []
    hangs._file.tend()
    assert states == ["suspended", "lost"]
    hangs.keep_alive()
    with pytest.raises(SessionLost):
        hangs.commit([Create("/late", b"")])


def test_a_loop_that_comes_back_before_anybody_ended_its_session_goes_on(store_at: Open, clock: ManualClock) -> None:
    store = store_at()
    store.commit([Create("/a", b"", ephemeral=True)])
    states: list[str] = []
    store.on_session(states.append)
    turn(clock, store, times=10)
    turn(clock, silent=(store,), times=200)
    store.renew()  # says nothing about the owner
    assert states == ["suspended"]
    turn(clock, store, times=2)
    assert states == ["suspended", "connected"]
    store.commit([Put("/a", b"still here")])


def test_a_renewal_by_hand_does_not_speak_for_a_silent_owner(store_at: Open, clock: ManualClock) -> None:
    store = store_at()
    store.keep_alive()
    at_ms = clock.now_ms()
    clock.advance(5_000)
    store.renew()
    assert renewed_ms(store)[store.session_id] == at_ms


def test_whoever_never_calls_is_renewed_by_hand_as_ever(store_at: Open, clock: ManualClock) -> None:
    store = store_at()
    clock.advance(5_000)
    store._file.tend()
    assert renewed_ms(store)[store.session_id] == clock.now_ms() - 5_000
    store.renew()
    assert renewed_ms(store)[store.session_id] == clock.now_ms()


def test_a_late_sign_does_not_take_a_renewal_back(store_at: Open, clock: ManualClock) -> None:
    store = store_at()
    clock.advance(1_000)
    store.renew()
    store._file.renew({store.session_id: (clock.now_ms() - 500) * NS_PER_MS})
    assert renewed_ms(store)[store.session_id] == clock.now_ms()


def test_a_dead_neighbour_is_ended_at_the_first_look_after_its_time(store_at: Open, clock: ManualClock) -> None:
    alive = store_at()
    turn(clock, alive, times=SESSION_MS // 100)
    dead = store_at()  # just after a renewal of the other, which would judge again only in a quarter of a session time
    dead.commit([Create("/a", b"", ephemeral=True)])
    turn(clock, alive, times=SESSION_MS // 100)
    assert alive.read("/a") is not None
    turn(clock, alive)
    assert alive.read("/a") is None


def test_sessions_of_one_file_live_and_end_one_by_one(store_at: Open, clock: ManualClock) -> None:
    one = store_at()
    two = one.session()
    for store in (one, two):
        store.commit([Create(f"/ids/{store.session_id}", b"", ephemeral=True)])
    begun = writes_of(one)
    turn(clock, one, two, times=80)
    assert len(begun) == 4  # both in one write
    turn(clock, one, times=82)
    assert one.list("/ids") == [one.session_id]
    with pytest.raises(SessionLost):
        two.read("/ids")
    two.close()


def test_a_session_that_was_ended_from_outside_is_lost_at_the_next_look(store_at: Open, clock: ManualClock) -> None:
    store, other = store_at(), store_at()
    states: list[str] = []
    store.on_session(states.append)
    turn(clock, store)
    other.end_session(store.session_id)
    turn(clock, store)
    assert states == ["lost"]
    turn(clock, store, times=100)
    assert states == ["lost"]


def test_calls_for_what_has_ended_or_never_ends_do_nothing(store_at: Open) -> None:
    private = store_at(private=True)
    private.keep_alive()
    assert private.alive_ns is None
    memory = MemoryStore()
    memory.keep_alive()
    memory.expire()
    memory.keep_alive()
    memory.close()
    memory.keep_alive()
    private.close()
    private.keep_alive()


def test_whoever_held_the_file_does_not_end_a_shorter_session_that_could_not_renew(store_at: Open, clock: ManualClock) -> None:
    slow, quick = store_at(session_ms=20_000), store_at(session_ms=1_000)
    turn(clock, slow, quick, times=60)
    with slow._file._writing():  # a commit, while the disk is busy or the process is stopped
        clock.advance(5_000)
        quick.keep_alive()
        quick._file.tend()
    turn(clock, slow, quick, times=2)
    assert quick.session_id in renewed_ms(slow)
    assert quick.read("/a") is None


def test_a_shorter_session_is_ended_in_its_own_time(store_at: Open, clock: ManualClock) -> None:
    """Although whoever ends it has no other reason to write that often; nor does it, once that is done."""
    slow, quick = store_at(session_ms=20_000), store_at(session_ms=1_000)
    turn(clock, slow, quick, times=60)
    begun = writes_of(slow)
    turn(clock, slow, times=30)
    assert quick.session_id not in renewed_ms(slow)
    assert 4 <= len(begun) <= 8
    begun.clear()
    turn(clock, slow, times=40)
    assert len(begun) <= 1


@pytest.mark.parametrize("every_ms", [100, 1_000])
def test_a_shorter_session_is_ended_although_the_loop_of_whoever_does_it_seldom_turns(
    store_at: Open, clock: ManualClock, every_ms: int
) -> None:
    slow, quick = store_at(session_ms=20_000), store_at(session_ms=1_500)
    turn(clock, slow, quick, times=60)
    for _ in range(6_000 // every_ms):
        slow.keep_alive()
        turn(clock, silent=(slow,), times=every_ms // 100)
    assert quick.session_id not in renewed_ms(slow)
    assert slow.session_id in renewed_ms(slow)


# ---------------------------------------------------------------------------------------------------------- the thread


def threads_of(store: FileStore) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"replog {Path(store.path).name}"]


def test_the_thread_begins_with_the_first_call_and_ends_with_the_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "threaded.db", session_ms=500)
    second = store.session()
    assert threads_of(store) == []
    for _ in range(3):
        store.keep_alive()
        second.keep_alive()
    assert len(threads_of(store)) == 1
    assert threads_of(store)[0].daemon
    store.close()
    assert len(threads_of(store)) == 1
    second.close()
    eventually(lambda: not threads_of(store))


def test_changes_of_others_arrive_without_a_poll(tmp_path: Path) -> None:
    with FileStore(tmp_path / "store.db") as one, FileStore(tmp_path / "store.db") as two:
        fired: list[str] = []
        one.watch("/a", fired.append)
        one.keep_alive()
        two.commit([Create("/a", b"")])
        eventually(lambda: fired == ["/a"])


def test_a_store_may_be_closed_in_a_callback_of_its_thread(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "closing.db")
    with FileStore(tmp_path / "closing.db") as other:
        store.watch("/a", lambda path: store.close())
        store.keep_alive()
        eventually(lambda: threads_of(store))
        other.commit([Create("/a", b"")])
        eventually(lambda: not threads_of(store))
        with pytest.raises(UsageError, match="closed"):
            store.read("/a")


def test_a_mistake_in_a_callback_is_shown_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_value))

    def mistaken(path: str) -> None:
        raise ZeroDivisionError(path)

    with FileStore(tmp_path / "store.db") as one, FileStore(tmp_path / "store.db") as two:
        fired: list[str] = []
        one.watch("/a", mistaken)
        one.watch("/b", fired.append)
        one.keep_alive()
        two.commit([Create("/a", b"")])
        eventually(lambda: shown)
        assert [str(error) for error in shown] == ["/a"]
        two.commit([Create("/b", b"")])
        eventually(lambda: fired == ["/b"])


def test_whose_session_has_run_out_is_known_before_anybody_may_end_it(store_at: Open, clock: ManualClock) -> None:
    """Whoever opens the store has to be able to write for a session time first; its owner may come back until then."""
    first = store_at()
    first.keep_alive()
    clock.advance(SESSION_MS + 1)
    second = store_at()
    first._file._look()
    assert second.is_judging
    assert not first.is_judging, "of one's own session nothing is to be judged"
    turn(clock, second, ms=500, times=4)
    assert second.is_judging
    turn(clock, first, second)  # it was only late
    assert not second.is_judging
    turn(clock, second, ms=500, times=17)
    assert second.is_judging or first.session_id not in renewed_ms(second)
    turn(clock, second, ms=500, times=8)
    assert not second.is_judging
    assert first.session_id not in renewed_ms(second)
