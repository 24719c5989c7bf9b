"""What is particular to the store in memory."""

from __future__ import annotations

import pytest

from replog.errors import UsageError
from replog.metadata.memory import MemoryStore
from replog.ports import Create, SessionLost


def test_each_store_is_a_tree_of_its_own() -> None:
    one, two = MemoryStore(), MemoryStore()
    one.commit([Create("/a", b"")])
    assert two.read("/a") is None


def test_what_is_no_list_of_operations_is_refused() -> None:
    """One that was put into no list ended in a TypeError that said nothing of lists."""
    store, single = MemoryStore(), Create("/a", b"")
    for no_list in (single, "/a", iter([single])):
        with pytest.raises(UsageError, match=r"^a transaction is a list of operations, not "):
            store.commit(no_list)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^a transaction is a list of operations, not "):
            store.commit_each([[Create("/b", b"")], no_list])  # type: ignore[list-item]
    with pytest.raises(UsageError, match=r"^commit_each takes a list of lists of operations, not Create\("):
        store.commit_each(single)  # type: ignore[arg-type]
    assert store.list("/") == []


def test_a_lost_session_can_open_another_one() -> None:
    store = MemoryStore()
    store.commit([Create("/kept", b"")])
    store.expire()
    store.expire()
    assert store.session().list("/") == ["kept"]


def test_a_commit_that_reaches_the_tree_after_its_session_ended_is_refused() -> None:
    store = MemoryStore()
    other = store.session()
    store.expire()
    results = store._tree.transact(store.session_id, [[Create("/late", b"")]])
    assert [type(result) for result in results] == [SessionLost]
    assert other.list("/") == []


def test_the_watches_of_a_session_end_with_it_but_not_those_of_others() -> None:
    one = MemoryStore()
    two = one.session()
    fired: list[str] = []
    one.watch("/a", lambda _: fired.append("one"))
    two.watch("/a", lambda _: fired.append("two"))
    two.expire()
    one.commit([Create("/a", b"")])
    assert fired == ["one"]


def test_arming_the_same_watch_twice_counts_once() -> None:
    store = MemoryStore()
    fired: list[str] = []
    for _ in range(3):
        store.watch("/a", fired.append)
    store.commit([Create("/a", b"")])
    assert fired == ["/a"]


def test_a_watch_that_raises_does_not_keep_others_from_being_delivered() -> None:
    store = MemoryStore()
    fired: list[str] = []

    def broken(path: str) -> None:
        raise ValueError(path)

    store.watch("/a", broken)
    store.watch("/a", fired.append)
    with pytest.raises(ValueError, match="/a"):
        store.commit([Create("/a", b"")])
    store.commit([Create("/b", b"")])
    assert fired == ["/a"]


def test_sessions_are_context_managers() -> None:
    with MemoryStore() as store:
        assert "open" in repr(store)
    assert "closed" in repr(store)
    with pytest.raises(UsageError, match="MemoryStore is closed"):
        store.read("/a")


def test_values_are_bytes_and_nothing_else() -> None:
    store = MemoryStore()
    for value in ("text", bytearray(b"x"), None, 1):
        with pytest.raises(UsageError, match="a value is bytes"):
            store.commit([Create("/a", value)])  # type: ignore[arg-type]
    assert store.read("/a") is None
