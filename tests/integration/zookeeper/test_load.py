"""Many operations, many watches, several sessions at once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from tests.integration.zookeeper.conftest import OpenStore
from tests.integration.zookeeper.faults import delivered

from replog.errors import ReplogError
from replog.metadata.zookeeper import ZooKeeperStore
from replog.ports import Check, Conflict, Create, Delete, Put
from replog.testing.eventually import eventually

pytestmark = pytest.mark.zookeeper


def test_five_thousand_steps_of_a_failover(store: ZooKeeperStore) -> None:
    """As a controller does it: each step checks the controller epoch and changes one partition."""
    store.commit([Create("/controller_epoch", b"7")])
    paths = [f"/brokers/topics/t/{number}/leaderAndISR" for number in range(2_500)]
    created = store.commit_each([[Check("/controller_epoch", 0), Create(path, b"old")] for path in paths])
    changed = store.commit_each([[Check("/controller_epoch", 0), Put(path, b"new", 0)] for path in paths])
    assert changed == [[0, 1]] * len(paths)
    found = store.read_each(paths)
    assert [(each.value, each.version) for each in found if each] == [(b"new", 1)] * len(paths)
    assert [[0, each.created] for each in found if each] == created
    store.commit([Put("/controller_epoch", b"8")])  # another controller
    late = store.commit_each([[Check("/controller_epoch", 0), Put(path, b"late", 1)] for path in paths])
    assert [result.path for result in late if isinstance(result, Conflict)] == ["/controller_epoch"] * len(paths)
    assert store.read_each(paths) == found


def test_a_storm_of_watches(open_store: OpenStore) -> None:
    """Every watch fires once for its path, and a watcher that arms again and reads sees the last value."""
    watcher, writer = open_store(), open_store()
    paths = [f"/w/{number}" for number in range(300)]
    writer.commit([Create(path, b"0") for path in paths])
    once: Counter[str] = Counter()
    seen: dict[str, bytes] = {}

    def again(path: str) -> None:
        watcher.watch(path, again)
        found = watcher.read(path)
        seen[path] = b"" if found is None else found.value

    for path in paths:
        watcher.watch(path, lambda path: once.update([path]))
        watcher.watch(path, again)
    for value in range(1, 4):
        assert not [r for r in writer.commit_each([[Put(path, b"%d" % value)] for path in paths]) if isinstance(r, ReplogError)]
    eventually(lambda: seen == dict.fromkeys(paths, b"3"))
    delivered(watcher)
    assert once == dict.fromkeys(paths, 1)


def test_a_watch_that_is_armed_again_at_once_hears_of_a_removal_once(open_store: OpenStore) -> None:
    watcher, writer = open_store(), open_store()
    writer.commit([Create("/a", b""), Create("/end", b"")])
    heard: list[str] = []

    def again(path: str) -> None:
        heard.append(path)
        watcher.watch(path, again)

    watcher.watch("/a", again)
    writer.commit([Delete("/a")])
    eventually(lambda: bool(heard))
    delivered(watcher)
    assert heard == ["/a"]


def in_threads(*works: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def test_two_sessions_count_to_a_sum(open_store: OpenStore) -> None:
    stores = [open_store(), open_store()]
    stores[0].commit([Create("/count", b"0")])

    def count(store: ZooKeeperStore) -> None:
        for _ in range(100):
            while True:
                found = store.read("/count")
                assert found is not None
                try:
                    store.commit([Put("/count", b"%d" % (int(found.value) + 1), found.version)])
                    break
                except Conflict:
                    pass

    in_threads(*[lambda store=store: count(store) for store in stores])  # type: ignore[misc]
    found = stores[0].read("/count")
    assert found is not None
    assert (found.value, found.version) == (b"200", 200)


def test_threads_share_a_session(store: ZooKeeperStore) -> None:
    def write(name: int) -> None:
        for number in range(50):
            store.commit([Create(f"/{name}/{number}", b"x")])
            assert store.read(f"/{name}/{number}") is not None

    in_threads(*[lambda name=name: write(name) for name in range(4)])  # type: ignore[misc]
    assert [len(store.list(f"/{name}")) for name in range(4)] == [50] * 4


def between(monkeypatch: pytest.MonkeyPatch, store: ZooKeeperStore, *acts: Callable[[], object]) -> None:
    """Have others act after `store` has read what it plans with, and before it sends: the first act at the first time, and so on."""
    read, left = store._backend._known, iter(acts)  # type: ignore[attr-defined]

    def then_act(*args: object, **options: object) -> object:
        known = read(*args, **options)
        act = next(left, None)
        if act is not None:
            act()
        return known

    monkeypatch.setattr(store._backend, "_known", then_act)


def test_a_parent_that_two_empty_at_once_goes(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = open_store(), open_store()
    one.commit([Create("/p/q/a", b""), Create("/p/q/b", b"")])
    between(monkeypatch, one, lambda: two.commit([Delete("/p/q/b")]))
    one.commit([Delete("/p/q/a")])
    assert one.list("/") == []


def test_a_parent_that_gets_another_child_meanwhile_stays(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = open_store(), open_store()
    one.commit([Create("/p/a", b"")])
    between(monkeypatch, one, lambda: two.commit([Create("/p/b", b"")]))
    assert one.commit([Delete("/p/a", 0)]) == [0]
    assert one.list("/p") == ["b"]


def test_a_parent_that_goes_meanwhile_is_made_again(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = open_store(), open_store()
    one.commit([Create("/p/a", b"")])
    between(monkeypatch, one, lambda: two.commit([Delete("/p/a")]))
    results = one.commit_each([[Create("/p/b", b"")], [Create("/p/c", b"")]])
    assert [type(result) for result in results] == [list, list]
    assert one.list("/p") == ["b", "c"]


def test_a_transaction_that_others_always_come_between_is_refused(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = open_store(), open_store()
    toggles = [lambda: two.commit([Create("/p/x", b"")]), lambda: two.commit([Delete("/p/x")])]
    between(monkeypatch, one, *(toggles[number % 2] for number in range(100)))
    with pytest.raises(Conflict, match="changed 20 times"):
        one.commit([Create("/p/a", b"")])
    assert "a" not in two.list("/p")


def test_parents_come_and_go_under_several_sessions(open_store: OpenStore) -> None:
    """Each session makes and removes its own nodes below the same implied parents: nobody is refused, and nothing is left."""
    stores = [open_store() for _ in range(3)]

    def come_and_go(name: int) -> None:
        draw = random.Random(name)
        for _ in range(60):
            path = f"/p/{draw.randrange(2)}/q/{name}"
            stores[name].commit([Create(path, b"")])
            stores[name].commit([Delete(path, 0)])

    in_threads(*[lambda name=name: come_and_go(name) for name in range(3)])  # type: ignore[misc]
    assert stores[0].list("/") == []
