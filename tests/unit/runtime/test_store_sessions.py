"""How long the end of a session may take: a store that is silent is left behind, and never waited for twice."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.errors import TimedOut, UsageError
from replog.metadata.memory import MemoryStore
from replog.ports import MetadataStore, SessionChanged, SessionLost, SessionState, StoreCall, StoreResult, UnknownOutcome, Versioned
from replog.runtime import store_sessions
from replog.runtime.ids import RandomIds
from replog.runtime.store_sessions import StoreSessions
from replog.runtime.workers import Workers
from replog.testing.eventually import eventually

MEMBER = ("membership", 1)
PATIENCE_S = 60
SHORT = {"session_ms": 150, "heartbeat_ms": 40}


class Silent(MemoryStore):
    """Ends no session before it is told to."""

    answers: threading.Event
    closing: list[threading.Thread]
    session_ms = 100

    def session(self) -> Silent:
        another = super().session()
        another.__class__ = Silent
        assert isinstance(another, Silent)
        another.answers, another.closing = self.answers, self.closing
        return another

    def close(self) -> None:
        self.closing.append(threading.current_thread())
        self.answers.wait(PATIENCE_S)
        super().close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    store = Silent()
    store.answers, store.closing = threading.Event(), []
    yield store
    store.answers.set()
    for thread in store.closing:
        thread.join(PATIENCE_S)


def opened(store: Silent) -> StoreSessions:
    told: list[Any] = []
    sessions = StoreSessions(
        store.session, members=[MEMBER], post=lambda to, message: told.append(message), workers=Workers("test"), ids=RandomIds()
    )
    sessions.start()
    eventually(lambda: told)
    return sessions


def returns(call: Callable[[], object]) -> bool:
    """Whether a call comes back at all."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE_S / 2)
    return not thread.is_alive()


@pytest.mark.parametrize("timeout_s", [0.0, 0.05, None])
def test_a_silent_store_is_left_behind(silent: Silent, timeout_s: float | None, caplog: pytest.LogCaptureFixture) -> None:
    sessions = opened(silent)
    assert returns(lambda: sessions.close(timeout_s))
    limit_s = 0.1 if timeout_s is None else timeout_s
    assert f"the store has not ended the session within {limit_s:g} s" in caplog.text
    assert returns(lambda: sessions.close(None)), "there is nothing left to wait for"
    assert len(silent.closing) == 1
    assert silent.closing[0].is_alive()
    silent.answers.set()
    eventually(lambda: not silent.closing[0].is_alive())


class Fragile(MemoryStore):
    """The first one is lost as soon as somebody listens to it."""

    opened: list[Fragile]
    lose: Callable[[Fragile, Callable[[], None]], None]

    def session(self) -> Fragile:
        another = super().session()
        another.__class__ = Fragile
        assert isinstance(another, Fragile)
        another.opened, another.lose = self.opened, self.lose
        self.opened.append(another)
        return another

    def on_session(self, changed: Callable[[SessionState], None]) -> None:
        def listen() -> None:
            super(Fragile, self).on_session(changed)

        if len(self.opened) == 1:
            self.lose(self, listen)
        else:
            listen()


def states_told(lose: Callable[[StoreSessions, Fragile, Callable[[], None]], None]) -> tuple[list[str], int]:
    """What members hear, and how many sessions are opened, where the first one is lost by `lose`."""
    store, told, workers = Fragile(), [], Workers("test")
    store.opened = []
    sessions = StoreSessions(
        store.session, members=[MEMBER], post=lambda to, message: told.append(message.state), workers=workers, ids=RandomIds()
    )
    store.lose = lambda session, listen: lose(sessions, session, listen)
    sessions.start()
    eventually(lambda: len(store.opened) > 1 and "connected" in told)
    workers.close()  # and whatever was begun ends
    assert sessions.is_open
    opened = len(store.opened)
    sessions.close()
    return told, opened


def test_a_session_that_is_lost_before_it_was_told_is_not_told_afterwards() -> None:
    def lose(sessions: StoreSessions, session: Fragile, listen: Callable[[], None]) -> None:
        listen()
        session.expire()

    assert states_told(lose) == (["lost", "connected"], 2)


def test_a_session_whose_loss_is_found_twice_while_it_is_opened_is_replaced_once() -> None:
    """By a caller, and by whoever listens to it."""

    def lose(sessions: StoreSessions, session: Fragile, listen: Callable[[], None]) -> None:
        session.expire()
        assert isinstance(sessions._run(MEMBER, StoreCall(1, "read", "/a")).error, SessionLost)
        listen()

    assert states_told(lose) == (["lost", "connected"], 2)


def test_members_hear_that_a_session_is_lost_before_they_hear_of_the_next() -> None:
    """However long it takes whoever tells them."""
    store, opened = MemoryStore(), []
    told: list[str] = []
    another = threading.Event()

    def open_session() -> MemoryStore:
        opened.append(store.session())
        return opened[-1]

    def post(to: Any, message: SessionChanged) -> None:
        if message.state == "lost":
            another.wait(0.2)  # long enough for another one, if it can come in between
        told.append(message.state)
        if len(opened) > 1:
            another.set()

    sessions = StoreSessions(open_session, members=[MEMBER], post=post, workers=Workers("test"), ids=RandomIds())
    sessions.start()
    eventually(lambda: told)
    opened[0].expire()
    eventually(lambda: len(told) == 3)
    assert told == ["connected", "lost", "connected"]
    sessions.close()


def test_the_next_session_does_not_wait_for_the_end_of_a_lost_one(silent: Silent) -> None:
    """Whatever its store waits for."""
    told: list[str] = []
    opened: list[Silent] = []

    def open_session() -> Silent:
        opened.append(silent.session())
        return opened[-1]

    sessions = StoreSessions(
        open_session, members=[MEMBER], post=lambda to, message: told.append(message.state), workers=Workers("test"), ids=RandomIds()
    )
    sessions.start()
    eventually(lambda: told)
    opened[0].expire()
    eventually(lambda: len(told) == 3)
    assert told == ["connected", "lost", "connected"]
    eventually(lambda: len(silent.closing) == 1)
    assert silent.closing[0].is_alive()
    silent.answers.set()
    sessions.close()


@pytest.mark.parametrize("where", ["opening", "listening"])
@pytest.mark.parametrize(
    "problem", [OSError(errno.EMFILE, "Too many open files"), RuntimeError("can't start new thread"), MemoryError(), AttributeError("send")]
)
def test_whatever_is_raised_for_a_session_it_is_tried_again(where: str, problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sessions, "_PAUSE_MS", 1)
    store, told = MemoryStore(), list[str]()
    left = [problem] * 3
    seen: list[object] = []

    def fail(*_: object) -> None:
        raise left.pop()

    def open_session() -> MetadataStore:
        seen.append(sessions.last_error)
        if where == "opening" and left:
            fail()
        session = store.session()
        if left:
            monkeypatch.setattr(session, "on_session", fail)
        return session

    sessions = StoreSessions(
        open_session, members=[MEMBER], post=lambda to, message: told.append(message.state), workers=Workers("test"), ids=RandomIds()
    )
    sessions.start()
    eventually(lambda: told)
    assert told == ["connected"]
    assert [type(error) for error in seen] == [type(None)] + [UnknownOutcome] * 3
    assert f"{type(problem).__name__}: {problem}" in str(seen[-1])
    assert sessions.last_error is None
    sessions.close()


def no_descriptor() -> None:
    try:
        raise OSError(errno.EMFILE, "Too many open files")
    except OSError:
        raise UsageError("the credentials cannot be read") from None


def wrong() -> None:
    raise UsageError("the credentials are no line USER:PASSWORD")


def silent_servers() -> None:
    raise TimedOut("no server answers")


@pytest.mark.parametrize(
    ("tries", "is_refused"),
    [
        ([wrong], True),
        ([silent_servers, wrong], False),
        ([no_descriptor], False),
        ([no_descriptor, wrong], True),
        ([None, wrong], False),
    ],
)
def test_what_is_configured_wrong_shows_at_the_first_try(
    tries: list[Callable[[], None] | None], is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later it is a file that is being replaced, or that cannot be opened at the moment."""
    monkeypatch.setattr(store_sessions, "_PAUSE_MS", 1)
    store, told = MemoryStore(), list[str]()
    left = tries[:]
    opened: list[MemoryStore] = []

    def open_session() -> MetadataStore:
        fail = left.pop(0) if left else None
        if fail is not None:
            fail()
        opened.append(store.session())
        return opened[-1]

    sessions = StoreSessions(
        open_session, members=[MEMBER], post=lambda to, message: told.append(message.state), workers=Workers("test"), ids=RandomIds()
    )
    sessions.start()
    if tries[0] is None:
        eventually(lambda: told)
        opened[0].expire()
    eventually(lambda: sessions.refused is not None or (sessions.is_open and not left))
    assert (sessions.refused is not None, sessions.is_open, left) == (is_refused, not is_refused, [])
    sessions.close()


def test_a_call_has_a_result_whatever_the_store_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its actor waits for it, and for nothing else."""
    store, told = MemoryStore(), list[Any]()
    session = store.session()
    sessions = StoreSessions(
        lambda: session, members=[MEMBER], post=lambda to, message: told.append(message), workers=Workers("test"), ids=RandomIds()
    )
    sessions.start()
    eventually(lambda: told)
    store.close()

    def fail(path: str) -> Versioned | None:
        raise MemoryError

    monkeypatch.setattr(session, "read", fail)
    sessions.call(MEMBER, StoreCall(7, "read", "/a"))
    eventually(lambda: len(told) == 2)
    result = told[1]
    assert isinstance(result, StoreResult)
    assert (result.call, type(result.error)) == (7, UnknownOutcome)
    assert "MemoryError" in str(result.error)
    assert sessions.is_open
    sessions.close()


def test_where_no_thread_can_start_the_session_is_ended_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter ends, or the process has too many."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    store = MemoryStore()
    told: list[Any] = []
    session = store.session()
    sessions = StoreSessions(
        lambda: session, members=[MEMBER], post=lambda to, message: told.append(message), workers=Workers("test"), ids=RandomIds()
    )
    sessions.start()
    eventually(lambda: told)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    sessions.close()
    with pytest.raises(UsageError, match="closed"):
        session.read("/cluster")


def test_one_that_answers_is_waited_for(silent: Silent, caplog: pytest.LogCaptureFixture) -> None:
    sessions = opened(silent)
    threading.Timer(0.02, silent.answers.set).start()
    sessions.close(PATIENCE_S)
    silent.closing[0].join(PATIENCE_S)
    assert caplog.text == ""


def test_a_broker_stops_although_its_store_is_silent(silent: Silent, tmp_path: Path) -> None:
    one = replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b1", store=silent, config=SHORT)
    one.start().wait_until_ready(timeout_s=PATIENCE_S)
    with pytest.raises(UsageError, match="timeout_s"):
        one.stop(timeout_s=-1)
    assert returns(lambda: one.stop(timeout_s=0.05))
    assert [thread.is_alive() for thread in silent.closing] == [True]
    assert (tmp_path / "b1" / "clean").exists()


def test_a_cluster_waits_for_a_silent_store_once() -> None:
    """As long as for one broker, not for each; what else takes long does not count."""
    cluster = replog.Cluster(brokers=3, config=SHORT)
    embedded = cluster._embedded
    with cluster:
        given: list[float | None] = []
        for one in embedded.running.values():
            stop = one.stop

            def stopped(*, clean: bool, timeout_s: float | None, stop: Any = stop) -> float:
                given.append(timeout_s)
                stop(clean=clean, timeout_s=timeout_s)
                return 0.0625

            one.stop = stopped  # type: ignore[method-assign]
    assert given == [0.15, 0.15 - 0.0625, 0.15 - 0.125]


def test_a_broker_without_a_session_says_so(tmp_path: Path) -> None:
    """As long as the store has neither answered nor refused."""
    asked, answers = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def session(self) -> MemoryStore:
            asked.set()
            answers.wait(PATIENCE_S)
            return super().session()

    one = replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b1", store=Slow(), config=SHORT)
    assert one.trouble == ""
    one.start()
    asked.wait(PATIENCE_S)
    assert one.trouble == "it has no session at the metadata store yet"
    answers.set()
    one.wait_until_ready(timeout_s=PATIENCE_S)
    assert one.trouble == ""
    one.stop()
