"""How sessions end, and that nothing is written in the name of one that has ended."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.zookeeper.conftest import OpenStore
from tests.integration.zookeeper.faults import CuttingProxy, delivered, expire
from tests.integration.zookeeper_server import ZooKeeperServer, free_ports
from tests.threads import in_thread

import replog
from replog.errors import TimedOut, UsageError
from replog.metadata.zookeeper import ZooKeeperStore
from replog.ports import Create, Put, SessionLost, UnknownOutcome, Versioned
from replog.testing.eventually import eventually

pytestmark = pytest.mark.zookeeper

SRC = Path(replog.__file__).resolve().parents[1]


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(server.port)
    yield proxy
    proxy.close()


def through(proxy: CuttingProxy, address: str) -> str:
    return f"127.0.0.1:{proxy.port}/{address.partition('/')[2]}"


def test_a_session_whose_time_runs_out_is_lost(open_store: OpenStore, proxy: CuttingProxy, address: str) -> None:
    other = open_store()
    store = open_store(through(proxy, address), session_ms=1_500)
    store.commit([Create("/ids/1", b"", ephemeral=True), Create("/kept", b"")])
    states: list[str] = []
    store.on_session(states.append)
    proxy.refusing = True
    proxy.cut()
    eventually(lambda: other.read("/ids/1") is None)
    proxy.refusing = False
    eventually(lambda: repr(store).endswith("lost>"))
    with pytest.raises(SessionLost):
        store.commit([Put("/kept", b"late")])
    eventually(lambda: "lost" in states)
    assert states[-2:] == ["suspended", "lost"]
    kept = other.read("/kept")
    assert kept is not None
    assert kept.version == 0


def test_a_call_that_waits_for_a_connection_ends_with_the_session(open_store: OpenStore, proxy: CuttingProxy, address: str) -> None:
    other = open_store()
    store = open_store(through(proxy, address), session_ms=1_500, timeout_s=60)
    store.commit([Create("/ids/1", b"", ephemeral=True)])
    proxy.refusing = True
    proxy.cut()
    eventually(lambda: not store._connection._connected.is_set())
    waiting, outcome = in_thread(lambda: store.commit([Put("/ids/1", b"late")]))
    eventually(lambda: other.read("/ids/1") is None)
    proxy.refusing = False
    waiting.join()
    assert isinstance(outcome[0], SessionLost)


def sessions(server: ZooKeeperServer) -> set[str]:
    """Those that are connected."""
    return set(re.findall("sid=0x[0-9a-f]+", server.asked("cons")))


def test_after_a_lost_session_no_other_is_opened(
    open_store: OpenStore, address: str, server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.commit([Create("/kept", b"")])
    connection = store._connection
    stop = connection._stop
    monkeypatch.setattr(connection, "_stop", lambda: None)  # kazoo is left alone, and tries to connect
    attempts: list[object] = []
    connect = connection._handler.create_connection
    monkeypatch.setattr(connection._handler, "create_connection", lambda *a, **k: (attempts.append(a), connect(*a, **k))[1])
    known = sessions(server)  # those of others are none of ours
    expire(store)
    seen = len(attempts)
    eventually(lambda: len(attempts) > seen + 2)
    assert sessions(server) <= known
    with pytest.raises(SessionLost):
        store.commit([Put("/kept", b"in the name of another session")])
    monkeypatch.undo()
    stop()
    kept = open_store().read("/kept")
    assert kept is not None
    assert kept.version == 0


def test_kazoo_is_stopped_with_a_lost_session(open_store: OpenStore) -> None:
    before = threading.active_count()
    store = open_store()
    assert threading.active_count() == before + 3
    heard: list[str] = []
    store.on_session(heard.append)
    expire(store)
    eventually(lambda: threading.active_count() == before)
    assert heard == ["suspended", "lost"]
    store.close()


def test_requests_that_found_the_connection_broken_hold_up_neither_their_callers_nor_the_end(
    open_store: OpenStore, proxy: CuttingProxy, address: str
) -> None:
    """kazoo's own way of waking its connection thread takes 278 of them."""
    other = open_store()
    before = threading.active_count()
    store = open_store(through(proxy, address), session_ms=1_500)
    store.commit([Create("/ids/1", b"", ephemeral=True)])
    proxy.refusing = True
    proxy.cut()
    connection = store._connection
    eventually(lambda: not connection._connected.is_set())
    asking, outcome = in_thread(lambda: [connection.client.get_async("/a") for _ in range(3_000)])
    eventually(lambda: not asking.is_alive())
    eventually(lambda: other.read("/ids/1") is None)
    proxy.refusing = False
    eventually(lambda: repr(store).endswith("lost>") and all(result.ready() for result in outcome[0]))
    assert {type(result.exception).__name__ for result in outcome[0]} <= {"ConnectionLoss", "SessionExpiredError"}
    eventually(lambda: threading.active_count() == before)


def test_a_store_may_be_closed_by_a_callback(open_store: OpenStore) -> None:
    one, two = open_store(), open_store()
    one.commit([Create("/ids/1", b"", ephemeral=True)])
    one.watch("/a", lambda path: one.close())
    two.commit([Create("/a", b"")])
    eventually(lambda: two.read("/ids/1") is None)
    assert repr(one).endswith("closed>")
    one.close()


def test_a_lost_connection_is_not_a_lost_session(open_store: OpenStore, proxy: CuttingProxy, address: str) -> None:
    other = open_store()
    store = open_store(through(proxy, address), session_ms=20_000)
    (created,) = store.commit([Create("/ids/1", b"one", ephemeral=True)])
    states: list[str] = []
    fired: list[str] = []
    store.on_session(states.append)
    store.watch("/ids", fired.append)
    store.watch("/quiet", fired.append)
    session = store.session_id
    proxy.refusing = True
    proxy.cut()
    eventually(lambda: states == ["suspended"])
    other.commit([Create("/ids/2", b"")])
    assert fired == []
    proxy.refusing = False
    eventually(lambda: states == ["suspended", "connected"])
    delivered(store)
    assert sorted(fired) == ["/ids", "/quiet"]  # what changed meanwhile was not told: look again
    assert store.session_id == session
    found = other.read("/ids/1")
    assert found is not None
    assert found.created == created
    store.commit([Put("/ids/1", b"two", 0)])


def test_a_read_goes_on_when_the_connection_is_back(open_store: OpenStore, proxy: CuttingProxy, address: str) -> None:
    store = open_store(through(proxy, address), session_ms=20_000)
    store.commit([Create(f"/a/{number}", b"%d" % number) for number in range(50)])
    proxy.swallowing = True
    reading, outcome = in_thread(lambda: store.read_each([f"/a/{number}" for number in range(50)]))
    eventually(lambda: proxy.swallowed > 0)
    proxy.swallowing = False
    proxy.cut()
    reading.join()
    assert [found.value for found in outcome[0]] == [b"%d" % number for number in range(50)]


def test_a_commit_whose_answer_is_lost_is_an_unknown_outcome(open_store: OpenStore, proxy: CuttingProxy, address: str) -> None:
    other = open_store()
    store = open_store(through(proxy, address), session_ms=20_000)
    store.commit([Create("/a", b"0")])
    proxy.swallowing = True
    committing, outcome = in_thread(lambda: store.commit([Put("/a", b"1", 0)]))
    eventually(lambda: (found := other.read("/a")) is not None and found.version == 1)
    eventually(lambda: proxy.swallowed > 0)
    proxy.swallowing = False
    proxy.cut()
    committing.join()
    assert isinstance(outcome[0], UnknownOutcome)
    found = store.read("/a")
    assert found is not None
    assert (found.value, found.version) == (b"1", 1)


def test_a_pipeline_that_is_cut_says_so_for_each(open_store: OpenStore, proxy: CuttingProxy, address: str) -> None:
    store = open_store(through(proxy, address), session_ms=20_000)
    store.commit([Create("/many", b"x")])
    cutting = threading.Timer(0, lambda: (eventually(lambda: len(store.list("/many")) > 100), proxy.cut()))
    cutting.start()
    results = store.commit_each([[Create(f"/many/{number}", b"")] for number in range(6_000)])
    cutting.join()
    applied = set(store.list("/many"))
    certain = {str(number) for number, result in enumerate(results) if isinstance(result, list)}
    unknown = {str(number) for number, result in enumerate(results) if isinstance(result, UnknownOutcome)}
    assert certain | unknown == {str(number) for number in range(6_000)}
    assert unknown
    assert certain <= applied
    first = min(map(int, unknown))
    assert not [result for result in results[first + 1_000 :] if isinstance(result, list)]  # not sent, once one was unknown


def test_without_a_server_calls_end_with_an_unknown_outcome(open_store: OpenStore, proxy: CuttingProxy, address: str) -> None:
    store = open_store(through(proxy, address), session_ms=60_000, timeout_s=0.2)
    proxy.refusing = True
    proxy.cut()
    eventually(lambda: not store._connection._connected.is_set())
    with pytest.raises(UnknownOutcome, match=r"nothing was sent"):
        store.commit([Create("/a", b"")])
    with pytest.raises(UnknownOutcome, match=r"0\.2 s"):
        store.read("/a")
    proxy.refusing = False
    eventually(lambda: store._connection._connected.is_set())
    assert store.read("/a") is None


def test_a_session_ends_when_its_owner_is_silent_although_kazoo_is_not(open_store: OpenStore) -> None:
    other, store, careless = open_store(), open_store(session_ms=1_500), open_store(session_ms=4_000)
    store.commit([Create("/ids/1", b"", ephemeral=True)])
    careless.commit([Create("/ids/2", b"", ephemeral=True)])  # never says that it is alive, and need not
    states: list[str] = []
    store.on_session(states.append)
    store.keep_alive()
    eventually(lambda: other.read("/ids/1") is None)
    assert states[-1] == "suspended"

    def lost() -> bool:
        store.keep_alive()  # the owner is back, and says so again and again
        return states[-1] == "lost"

    eventually(lost)
    assert other.list("/ids") == ["2"]
    store.keep_alive()  # it has ended: nothing happens
    assert repr(careless).endswith("open>")


def test_an_owner_that_comes_back_in_time_has_its_session(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    other, store = open_store(), open_store(session_ms=20_000)
    (created,) = store.commit([Create("/ids/1", b"", ephemeral=True)])
    states: list[str] = []
    store.on_session(states.append)
    store.keep_alive()
    connection = store._connection
    tried: list[str] = []
    for name, handler in (("wanted", connection._handler), ("connected", connection._handler.kazoo)):
        connect = handler.create_connection
        monkeypatch.setattr(handler, "create_connection", lambda *a, _n=name, _c=connect, **k: (tried.append(_n), _c(*a, **k))[1])
    connection._handler.alive_at -= 15.0  # type: ignore[operator]
    other.commit([Create("/a", b"")])
    reading, outcome = in_thread(lambda: store.read("/a"))  # finds the connection being dropped, and waits for the owner
    eventually(lambda: states == ["suspended"] and len(tried) > 2)
    assert set(tried) == {"wanted"}  # each connection would prolong the session
    store.keep_alive()
    eventually(lambda: states == ["suspended", "connected"])
    reading.join()
    assert isinstance(outcome[0], Versioned)
    found = other.read("/ids/1")
    assert found is not None
    assert found.created == created


@pytest.mark.parametrize("found", [True, False], ids=["dropped already", "about to be dropped"])
def test_an_owner_that_was_silent_before_it_ends_its_session_ends_it(open_store: OpenStore, found: bool) -> None:
    """As one that had much to write to its disk: nothing that it registered is left, long before the session could run out."""
    other, store = open_store(), open_store(session_ms=20_000)
    store.commit([Create("/ids/1", b"", ephemeral=True)])
    states: list[str] = []
    store.on_session(states.append)
    store.keep_alive()
    connection = store._connection
    connection._handler.alive_at -= 12.0  # type: ignore[operator]
    if found:
        other.commit([Create("/a", b"")])
        in_thread(lambda: store.read("/a"))  # finds the connection being dropped
        eventually(lambda: states == ["suspended"])
    store.close()
    assert other.read("/ids/1") is None


def test_a_silent_owner_whose_servers_are_away_is_not_kept_from_closing(open_store: OpenStore, proxy: CuttingProxy, address: str) -> None:
    """For longer than its calls wait."""
    store = open_store(through(proxy, address), session_ms=4_000, timeout_s=0.2)
    states: list[str] = []
    store.on_session(states.append)
    store.keep_alive()
    proxy.refusing = True
    store._connection._handler.alive_at -= 3.0  # type: ignore[operator]
    in_thread(lambda: store.read("/a"))
    eventually(lambda: states == ["suspended"])
    closing, _ = in_thread(store.close)
    eventually(lambda: not closing.is_alive())
    proxy.refusing = False


def test_nobody_there() -> None:
    threads = threading.active_count()
    with pytest.raises(TimedOut, match=r"no ZooKeeper server of 127\.0\.0\.1:"):
        ZooKeeperStore(f"127.0.0.1:{free_ports(1)[0]}", timeout_s=0.3)
    eventually(lambda: threading.active_count() == threads)


def test_in_a_forked_child_the_store_is_dead_and_the_parent_goes_on(address: str) -> None:
    code = """
import os, sys, threading
from replog.errors import UsageError
from replog.metadata.zookeeper import ZooKeeperStore
from replog.ports import Create, Put

store = ZooKeeperStore(sys.argv[1])
(created,) = store.commit([Create("/ids/1", b"", ephemeral=True)])
held, done = threading.Event(), threading.Event()


def hold():
    with store._connection._handler.kazoo._state_change:
        held.set()
        done.wait()


holder = threading.Thread(target=hold)  # the child has its lock, but not the thread
holder.start()
held.wait()
child = os.fork()
if child == 0:
    for call in (lambda: store.read("/a"), lambda: store.commit([Put("/ids/1", b"child")]), lambda: store.session()):
        try:
            call()
        except UsageError:
            print("dead")
    store.keep_alive()
    store.close()
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
done.set()
holder.join()
store.commit([Put("/ids/1", b"parent", 0)])
found = store.read("/ids/1")
print("alive" if (found.value, found.created) == (b"parent", created) else found)
store.close()
"""
    environment = {"PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1"}
    child = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert child.stdout.split() == ["dead", "dead", "dead", "alive"], child.stderr


@pytest.mark.parametrize(
    ("address", "options", "said"),
    [
        ("", {}, "hosts"),
        ("/chroot", {}, "hosts"),
        ("127.0.0.1:port", {}, r"127.0.0.1:\*\*\*"),
        ("127.0.0.1:1/a//b", {}, "/a//b"),
        ("127.0.0.1:1/a/", {}, "/a/"),
        ("user:secret@127.0.0.1:1", {}, "auth="),
        (None, {}, "None"),
        ("127.0.0.1:1", {"session_ms": 99}, "session_ms is 99; at least 100"),
        ("127.0.0.1:1", {"session_ms": 86_400_001}, "at most 86400000"),
        ("127.0.0.1:1", {"session_ms": 1e3}, r"not 1000\.0"),
        ("127.0.0.1:1", {"timeout_s": 0}, "timeout_s is 0"),
        ("127.0.0.1:1", {"auth": ("digest", "me")}, "auth is three texts"),
        ("127.0.0.1:1", {"auth": ("sasl", "me", "secret")}, "digest"),
        ("127.0.0.1:1", {"auth": ("digest", "m:e", "secret")}, "colon"),
        ("127.0.0.1:1", {"auth": ("digest", "me", "")}, "empty"),
    ],
)
def test_bad_arguments(address: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        ZooKeeperStore(address, **options)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)
