"""What the watches of every metadata store must do, as tests: part of `MetadataStoreContract`."""

from __future__ import annotations

import pytest

from replog.ports import Conflict, Create, Delete, MetadataStore, Op, Put
from replog.testing.contract_sessions import ContractSessions, OpenSession

__all__ = ["WatchContract"]


class WatchContract(ContractSessions):
    """The part of the contract that is about watches."""

    @pytest.mark.parametrize(
        ("path", "op"),
        [
            ("/a", Put("/a", b"1")),
            ("/a", Delete("/a")),
            ("/new", Create("/new", b"")),
            ("/p", Create("/p/new", b"")),
            ("/p", Delete("/p/c")),
            ("/p/c", Put("/p/c", b"1")),
            ("/", Create("/new", b"")),
            ("/", Delete("/a")),
            ("/late", Create("/late/child", b"")),
        ],
    )
    def test_a_watch_fires_once(self, sessions: OpenSession, path: str, op: Op) -> None:
        one, two = sessions(), sessions()
        two.commit([Create("/a", b"0"), Create("/p", b""), Create("/p/c", b""), Create("/p/d", b"")])
        fired: list[str] = []
        one.watch(path, fired.append)
        assert fired == []
        two.commit([op])
        self.settle(lambda: bool(fired), one, two)
        assert fired == [path]
        two.commit([Create("/p/c/again", b"")] if op != Delete("/p/c") else [Create("/p/again", b"")])
        two.commit([Create("/again", b"")])
        self.settle(lambda: True, one, two)
        assert fired == [path]

    def test_a_watch_reaches_one_level(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        two.commit([Create("/p", b""), Create("/p/c", b""), Create("/p/c/d", b"")])
        fired: list[str] = []
        one.watch("/p", fired.append)
        two.commit([Put("/p/c", b"1")])
        two.commit([Create("/p/c/e", b"")])
        two.commit([Delete("/p/c/d")])
        two.commit([Create("/q", b"")])
        self.settle(lambda: True, one, two)
        assert fired == []
        two.commit([Create("/p/f", b"")])
        self.settle(lambda: bool(fired), one, two)
        assert fired == ["/p"]

    def test_a_watch_can_be_armed_again_and_again(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        seen: list[int] = []

        def changed(path: str) -> None:
            one.watch(path, changed)  # arm, then read
            stored = one.read(path)
            seen.append(-1 if stored is None else stored.version)

        one.watch("/a", changed)
        two.commit([Create("/a", b"")])
        self.settle(lambda: bool(seen), one, two)
        for version in range(1, 4):
            two.commit([Put("/a", b"")])
            self.settle(lambda version=version: seen[-1] == version, one, two)  # type: ignore[misc]
        assert seen == [0, 1, 2, 3]

    def test_what_a_watch_announces_can_be_read(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        two.commit([Create("/a", b"0"), Create("/b", b"0")])
        seen: list[tuple[bytes | None, bytes | None]] = []
        one.watch("/a", lambda _: seen.append((_value(one, "/a"), _value(one, "/b"))))
        two.commit([Put("/a", b"1"), Put("/b", b"1")])
        self.settle(lambda: bool(seen), one, two)
        assert seen == [(b"1", b"1")]

    def test_a_session_hears_of_its_own_changes_and_may_commit_meanwhile(self, store: MetadataStore) -> None:
        heard: list[str] = []

        def changed(path: str) -> None:
            heard.append(path)
            if path == "/a":
                store.watch("/b", changed)
                store.commit([Create("/b", b"")])
                heard.append("committed")

        store.watch("/a", changed)
        store.commit([Create("/a", b"")])
        self.settle(lambda: len(heard) == 3, store)
        assert heard == ["/a", "committed", "/b"]

    def test_the_transactions_of_commit_each_fire_watches(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        two.commit([Create("/a", b""), Create("/gone", b""), Create("/p", b"")])
        fired: list[str] = []
        for path in ("/a", "/gone", "/p", "/new", "/refused"):
            one.watch(path, fired.append)
        two.commit_each([
            [Put("/a", b"1")],
            [Create("/refused", b""), Put("/missing", b"")],
            [Delete("/gone")],
            [Create("/p/c", b"")],
            [Create("/new", b"")],
        ])
        self.settle(lambda: len(fired) == 4, one, two)
        assert sorted(fired) == ["/a", "/gone", "/new", "/p"]

    def test_each_of_several_callbacks_on_a_path_is_told(self, sessions: OpenSession) -> None:
        """Of one session, and of several."""
        one, two = sessions(), sessions()
        two.commit([Create("/p", b"")])
        told: list[tuple[str, str]] = []
        one.watch("/p", lambda path: told.append(("first", path)))
        one.watch("/p", lambda path: told.append(("second", path)))
        two.watch("/p", lambda path: told.append(("other", path)))
        two.commit([Create("/p/c", b"")])
        self.settle(lambda: len(told) == 3, one, two)
        assert sorted(told) == [("first", "/p"), ("other", "/p"), ("second", "/p")]

    def test_the_end_of_a_session_fires_watches(self, sessions: OpenSession) -> None:
        one, two, three = sessions(), sessions(), sessions()
        one.commit([Create("/ids/1", b"", ephemeral=True)])
        two.commit([Create("/ids/2", b"", ephemeral=True)])
        fired: list[str] = []
        for path in ("/ids", "/ids/1"):
            three.watch(path, fired.append)
        one.close()
        self.settle(lambda: len(fired) == 2, two, three)
        assert sorted(fired) == ["/ids", "/ids/1"]
        three.watch("/ids", fired.append)
        self.end(two, three)
        self.settle(lambda: len(fired) == 3, three)
        assert fired[2] == "/ids"

    def test_a_child_that_is_replaced_fires_the_watch_of_its_parent(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        two.commit([Create("/ids/1", b"")])
        fired: list[str] = []
        one.watch("/ids", fired.append)
        two.commit([Delete("/ids/1"), Create("/ids/1", b"")])
        self.settle(lambda: bool(fired), one, two)
        assert fired == ["/ids"]

    @pytest.mark.parametrize("path", ["/seat", "/ids", "/late/child"])
    def test_what_came_and_went_unseen_fires_a_watch(self, sessions: OpenSession, path: str) -> None:
        one, two, three = sessions(), sessions(), sessions()
        two.commit([Create("/ids/1", b"")])
        fired: list[str] = []
        one.watch(path, fired.append)
        three.commit([Create(short, b"", ephemeral=True) for short in ("/seat", "/ids/2", "/late/child")])
        three.close()
        assert (two.read("/seat"), two.list("/ids")) == (None, ["1"])
        self.settle(lambda: bool(fired), one, two)
        assert fired == [path]

    def test_a_conflict_fires_nothing(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        two.commit([Create("/a", b"")])
        fired: list[str] = []
        one.watch("/a", fired.append)
        with pytest.raises(Conflict):
            two.commit([Put("/a", b""), Put("/a", b"", 9)])
        self.settle(lambda: True, one, two)
        assert fired == []

    def test_watches_end_with_their_session(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        fired: list[str] = []
        one.watch("/a", fired.append)
        one.close()
        two.commit([Create("/a", b"")])
        self.settle(lambda: True, two)
        assert fired == []


def _value(store: MetadataStore, path: str) -> bytes | None:
    stored = store.read(path)
    return None if stored is None else stored.value
