"""What the sessions of every metadata store must do, as tests: part of `MetadataStoreContract`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Final

import pytest

from replog.errors import UsageError
from replog.ports import Conflict, Create, Delete, MetadataStore, Op, Put, SessionLost, UnknownOutcome, Versioned
from replog.testing.contract_sessions import ContractSessions, OpenSession, kept_alive
from replog.testing.contract_traits import asked_if
from replog.testing.eventually import eventually

__all__ = ["SessionContract"]

LATER_SESSIONS = 10
_TRIES: Final = 5


class SessionContract(ContractSessions):
    """The part of the contract that is about sessions: what they own, and that they stay ended."""

    def test_session_ids_differ(self, sessions: OpenSession) -> None:
        stores = [sessions() for _ in range(3)]
        ids = [store.session_id for store in stores]
        assert len(set(ids)) == 3
        assert {type(one) for one in ids} == {str}
        assert [store.session_id for store in stores] == ids

    def test_ephemeral_nodes_go_when_their_session_closes(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        one.commit([Create("/ids/1", b"", ephemeral=True), Create("/ids/x", b"")])
        two.commit([Create("/ids/2", b"", ephemeral=True)])
        two.commit([Put("/ids/1", b"by another")])
        assert two.list("/ids") == ["1", "2", "x"]
        one.close()
        assert two.list("/ids") == ["2", "x"]

    def test_an_ephemeral_node_has_no_children(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"", ephemeral=True)])
        with pytest.raises(Conflict):
            store.commit([Create("/a/b", b"")])
        assert store.list("/a") == []

    def test_another_session_may_take_an_ephemeral_node_over(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        (first,) = one.commit([Create("/ids/1", b"one", ephemeral=True)])
        second = two.commit([Delete("/ids/1"), Create("/ids/1", b"two", ephemeral=True)])[1]
        assert second > first
        one.close()
        assert two.read("/ids/1") == Versioned(b"two", 0, second)

    def test_what_took_the_place_of_an_ephemeral_node_stays_when_its_session_closes(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        one.commit([Create("/seat", b"", ephemeral=True)])
        (created,) = two.commit([Delete("/seat"), Create("/seat", b"kept")])[1:]
        one.close()
        assert two.read("/seat") == Versioned(b"kept", 0, created)

    def test_who_closes_is_told_nothing(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        states: list[str] = []
        one.on_session(states.append)
        one.commit([Create("/a", b"", ephemeral=True)])
        one.close()
        assert two.read("/a") is None
        self.settle(lambda: True, two)
        assert states == []

    def test_closing_is_idempotent_and_final(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        one.commit([Create("/a", b"", ephemeral=True)])
        one.close()
        one.close()
        calls: list[Callable[[], object]] = [
            lambda: one.read("/a"),
            lambda: one.list("/"),
            lambda: one.commit([Create("/b", b"")]),
            lambda: one.commit_each([[Create("/b", b"")]]),
            lambda: one.watch("/a", print),
        ]
        for call in calls:
            with pytest.raises(UsageError):
                call()
        assert two.read_each(["/a", "/b"]) == [None, None]

    def test_a_session_that_was_ended_writes_no_more(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        one.commit([Create("/a", b"", ephemeral=True), Create("/kept", b"")])
        states: list[str] = []
        others: list[str] = []
        one.on_session(states.append)
        one.on_session(others.append)
        self.end(one, two)
        assert two.read("/a") is None
        for result in self._results_of(one, [[Create("/b", b"")], [Put("/kept", b"late")]]):
            assert isinstance(result, SessionLost)
        with pytest.raises(SessionLost):
            one.commit([Create("/b", b"")])
        assert _value(two, "/kept") == b""
        assert two.read("/b") is None
        self.settle(lambda: "lost" in states and "lost" in others, one, two)
        for told in (states, others):
            assert told[-1] == "lost"
            assert told.count("lost") == 1
        with pytest.raises(SessionLost):
            one.read("/kept")

    @staticmethod
    def _results_of(store: MetadataStore, batches: list[list[Op]]) -> list[object]:
        try:
            return list(store.commit_each(batches))
        except SessionLost as error:
            return [error]

    def test_a_session_that_was_ended_stays_ended_whoever_comes_after_it(self, sessions: OpenSession) -> None:
        """An id that is given to somebody else brings the ended session back to life."""
        one, two, closed = sessions(), sessions(), sessions()
        ids = [session.session_id for session in (one, two, closed)]
        closed.close()
        self.end(one, two)
        later = [sessions() for _ in range(LATER_SESSIONS)]
        ids += [session.session_id for session in later]
        assert len(set(ids)) == 3 + LATER_SESSIONS
        for result in self._results_of(one, [[Create("/late", b"")]]):
            assert isinstance(result, SessionLost)
        with pytest.raises(SessionLost):
            one.commit([Create("/late", b"")])
        assert two.read("/late") is None

    def test_keep_alive_never_raises(self, sessions: OpenSession) -> None:
        """The driver calls it in every turn of its loop, whatever has become of the session, and from a thread of its own."""
        one, two = sessions(), sessions()
        for store in (one, two):
            store.keep_alive()
            store.keep_alive()
            _in_another_thread(store.keep_alive)
        one.commit([Create("/a", b"", ephemeral=True)])
        assert two.list("/") == ["a"]
        self.end(one, two)
        one.keep_alive()
        _in_another_thread(one.keep_alive)
        with pytest.raises(SessionLost):
            one.commit([Create("/late", b"")])
        for store in (one, two):
            store.close()
            store.keep_alive()
        with pytest.raises(UsageError):
            two.commit([Create("/late", b"")])
        assert sessions().list("/") == []

    def test_keep_alive_does_not_wait_for_a_callback(self, sessions: OpenSession) -> None:
        """An owner says that it lives whatever its store is at: here a callback of a watch, which goes on when the calls have returned."""
        one, two = sessions(), sessions()
        two.commit([Create("/a", b"")])
        begun, returned = threading.Event(), threading.Event()
        in_time: list[bool] = []

        def hold(path: str) -> None:
            begun.set()
            in_time.append(returned.wait(self.patience_s))

        def deliver() -> None:
            two.commit([Put("/a", b"1")])
            self.settle(begun.is_set, one, two)

        one.watch("/a", hold)
        with ThreadPoolExecutor(1) as pool:
            delivering = pool.submit(deliver)
            assert begun.wait(self.patience_s)
            for store in (one, two):
                store.keep_alive()
            returned.set()
            delivering.result()
        eventually(lambda: in_time, self.patience_s)  # a thread of the store's may still be in it
        assert in_time == [True]

    @asked_if("expires")
    def test_a_session_whose_owner_falls_silent_ends_by_its_time(self, sessions: OpenSession, short_sessions: OpenSession) -> None:
        """Whatever else goes on in its process: another thread, or a connection that is up."""
        one, other = short_sessions(), sessions()
        one.commit([Create("/ids/1", b"", ephemeral=True), Create("/kept", b"")])
        states: list[str] = []
        fired: list[str] = []
        one.on_session(states.append)
        for path in ("/ids", "/ids/1"):
            other.watch(path, fired.append)
        one.keep_alive()  # it lives by these calls from now on, and none follows

        def lost() -> bool:
            try:
                one.commit([Put("/kept", b"late")])
            except UnknownOutcome:
                return False  # it does not reach its service yet
            except SessionLost:
                return True
            raise AssertionError("a session that has ended has written")

        with kept_alive(other):
            eventually(lambda: other.list("/ids") == [], self.patience_s)
            self.settle(lambda: len(fired) == 2, other)
            eventually(lambda: sorted(fired) == ["/ids", "/ids/1"], self.patience_s)
            with kept_alive(one):  # the owner is back, too late
                eventually(lambda: "lost" in states, self.patience_s)
                eventually(lost, self.patience_s)
            assert other.read("/ids/1") is None
            assert _value(other, "/kept") == b""

    @asked_if("expires")
    def test_a_session_lives_as_long_as_its_owner_says_so(self, sessions: OpenSession, short_sessions: OpenSession) -> None:
        """However long that is: two others come and end by their time, one after the other. Tried again where the machine has kept the
        owner from it for half of that time: then nobody has said so."""
        other = sessions()
        for number in range(_TRIES):
            one, name, shortest_s = short_sessions(), f"one-{number}", inf
            try:
                one.commit([Create(f"/ids/{name}", b"", ephemeral=True)])
                with kept_alive(one) as kept, kept_alive(other):
                    for turn in range(2):
                        silent, another = short_sessions(), f"silent-{number}-{turn}"
                        silent.commit([Create(f"/ids/{another}", b"", ephemeral=True)])
                        silent.keep_alive()
                        since_s = time.monotonic()
                        eventually(lambda: another not in other.list("/ids"), self.patience_s)  # noqa: B023  it is called at once
                        shortest_s = min(shortest_s, time.monotonic() - since_s)
                    left = other.list("/ids")
                    if name in left:
                        one.commit([Create("/still", b"")])
                        return
            except (SessionLost, UnknownOutcome):
                continue  # the machine stood still
            assert kept.longest_s > shortest_s / 2, f"it ended although its owner said every {kept.longest_s:.3f} s that it lives: {left}"
        raise AssertionError(f"the machine stood still in each of {_TRIES} tries: nothing can be said of sessions that are so short")


def _in_another_thread(call: Callable[[], None]) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert raised == []


def _value(store: MetadataStore, path: str) -> bytes | None:
    stored = store.read(path)
    return None if stored is None else stored.value
