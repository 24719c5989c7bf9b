"""The driver of `replog.connect` over a transport in memory: who rests on it, who gives way, and what an error leaves."""

from __future__ import annotations

import asyncio
import errno
import gc
import inspect
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from tests.calling import called
from tests.interrupts import at_every_line, interrupted_at
from tests.threads import in_thread
from tests.unit.client.fake import FakeCluster

import replog
from replog.client import silence
from replog.client.offsets import OffsetOp
from replog.client.operations import AdminOp
from replog.codec import encode
from replog.config import ClientConfig
from replog.errors import TimedOut, Unavailable, UsageError
from replog.log import files
from replog.messages import Disconnected, Fetch, ListOffsets, Produce
from replog.runtime import connected, finishing
from replog.runtime.connected import ConnectedDriver, parse_bootstrap
from replog.runtime.resting import Resting
from replog.testing.eventually import eventually

_WOKEN = 0
"""In what is ready: somebody has called `wake`."""


class FakeTransport:
    """Answers from a FakeCluster at the next `handle`, unless `held` says to keep an answer back."""

    made: list[FakeTransport]
    cluster: FakeCluster

    def __init__(self, *, role: str, now_ms: Callable[[], int], endpoint_of: Any, on_event: Any, security: Any) -> None:
        assert security is None
        self.cluster_id = ""
        self.tell = on_event
        self.endpoint_of = endpoint_of
        self.held: Callable[[Any], bool] = lambda message: False
        self.kept: list[tuple[Any, Any]] = []
        self.cut: set[Any] = set()
        """Connections that have ended, which `handle` is yet to find out."""
        self.failing: BaseException | None = None
        self.unsent: dict[Any, int] = {}
        """Bytes that wait for a broker."""
        self.flushed = self.waits = self.wakes = 0
        self.readers: list[int] = []
        """Threads that took in what had arrived."""
        self.ended = ""
        self._arrived: deque[tuple[Any, Any]] = deque()
        self._ready = threading.Condition()
        self._woken = False
        self.made.append(self)

    def listen(self, address: Any, receive: Any) -> None:
        assert address == "client"
        self.receive = receive

    def send(self, sender: Any, to: Any, message: Any) -> None:
        assert not self.ended
        encode(message)
        broker = to if isinstance(to, int) else int(to.rpartition(":")[2])
        if broker in self.cluster.down:
            self.tell("dial_failed", {"endpoint": self.endpoint_of(to) if isinstance(to, int) else to, "reason": "ECONNREFUSED"})
            self.arrive(to, Disconnected(to))
        elif to in self.cut:
            pass
        elif self.held(message):
            self.kept.append((to, message))
        else:
            for answer in self.cluster.answer(broker, message):
                self.arrive(to, answer)

    def arrive(self, sender: Any, message: Any) -> None:
        with self._ready:
            self._arrived.append((sender, message))
            self._ready.notify_all()

    def release(self, kind: type = object) -> None:
        """Send the answers that were kept back, those to messages of one kind first of all."""
        kept, self.kept = self.kept, [item for item in self.kept if not isinstance(item[1], kind)]
        if kind is object:
            self.held = lambda message: False
        for to, message in kept:
            if isinstance(message, kind):
                for answer in self.cluster.answer(to, message):
                    self.arrive(to, answer)

    @property
    def unsent_bytes(self) -> int:
        return sum(self.unsent.values())

    def unsent_to(self, sender: Any, to: Any) -> int:
        assert sender == "client"
        return self.unsent.get(to, 0)

    def next_poll_ms(self) -> int | None:
        return None

    def wait(self, timeout_s: float | None) -> list[Any]:
        self.waits += 1
        with self._ready:
            self._ready.wait_for(lambda: self._arrived or self._woken, timeout_s)
            return [_WOKEN] * self._woken + [1] * bool(self._arrived)

    def handle(self, ready: list[Any], now_ms: int) -> int:
        if self.failing is not None:
            failing, self.failing = self.failing, None
            raise failing
        while self.cut:
            self.receive(None, Disconnected(self.cut.pop()))
        if _WOKEN in ready:
            self._woken = False
        if ready and self._arrived:
            self.readers.append(threading.get_ident())
        while ready and self._arrived:
            self.receive(*self._arrived.popleft())
        return 0

    def flush(self) -> None:
        self.flushed += 1

    def wake(self) -> None:
        with self._ready:
            self.wakes += 1
            self._woken = True
            self._ready.notify_all()

    def close(self) -> None:
        self.ended = "closed"

    def abandon(self) -> None:
        self.ended = "abandoned"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    made.create("t")
    FakeTransport.made, FakeTransport.cluster = [], made
    monkeypatch.setattr(connected, "TcpTransport", FakeTransport)
    return made


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[replog.Client]:
    with replog.connect("host:1,host:2,host:3", config={"retry_backoff_ms": 1}) as made:
        yield made


def driver_of(client: replog.Client) -> Any:
    return client._driver


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("tcp://a:1", ["tcp://a:1"]),
        ("a:1", ["tcp://a:1"]),
        ("tcp://a:1,b:2", ["tcp://a:1", "tcp://b:2"]),
        (" a:1 , tcp://b:2 ", ["tcp://a:1", "tcp://b:2"]),
        (["a:1", "tcp://a:1", "b:2,c:3"], ["tcp://a:1", "tcp://b:2", "tcp://c:3"]),
        (("[::1]:9",), ["tcp://[::1]:9"]),
        ((text for text in ["a:1"]), ["tcp://a:1"]),
    ],
)
def test_endpoints_as_people_write_them(given: Any, found: list[str]) -> None:
    assert parse_bootstrap(given) == found


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "tcp://host:port"),
        ("a:1,,b:2", "tcp://host:port"),
        ("a", "tcp://host:port"),
        ("http://a:1", "'http://a:1'"),
        ("a:0", "port of 'a:0' is 0"),
        ("a:70000", "'70000'"),
        ([], "the list is empty"),
        (["a:1", 7], "7 is none"),
        (b"a:1", "not b'a:1'"),
        (None, "not None"),
        ({"a:1": 1}, "not {'a:1': 1}"),
    ],
)
def test_endpoints_that_are_none(given: Any, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        replog.connect(given)
    assert why in str(caught.value)


def test_configuration_is_checked() -> None:
    with pytest.raises(UsageError, match="linger_ms"):
        replog.connect("a:1", config={"linger_m": 1})
    config = ClientConfig(linger_ms=7)
    assert driver_of(replog.connect("a:1", config=config)).core.config is config


def test_nothing_is_open_before_the_first_call(client: replog.Client) -> None:
    assert FakeTransport.made == []
    client.topics()
    assert len(FakeTransport.made) == 1


def test_one_thread_rests_on_the_sockets_and_brings_everybody_theirs(client: replog.Client) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Fetch)
    threads = [in_thread(lambda: client.fetch("t", 0, 0, wait_s=None)) for _ in range(5)]
    driver = driver_of(client)
    eventually(lambda: len(driver._waiters) == 4 and driver._polling is not None)
    first = driver._polling.thread
    client.append("t", 0, ["a"])
    transport.release()
    for thread, outcome in threads:
        thread.join(30)
        assert [r.text() for r in outcome[0]] == ["a"]
    assert not driver._waiters
    assert driver._polling is None
    assert threading.get_ident() not in transport.readers[-1:]  # what the resting thread brought
    assert first in transport.readers


def test_who_rests_brings_others_theirs_and_goes_on_resting(client: replog.Client) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Fetch | Produce)
    driver = driver_of(client)
    long, found = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: driver._polling is not None)
    short, receipt = in_thread(lambda: client.append("t", 0, ["a"], timeout_s=None))
    eventually(lambda: driver._waiters)
    transport.release(Produce)
    short.join(30)
    assert receipt[0].base_offset == 0
    assert long.is_alive()
    transport.release()
    long.join(30)
    assert [r.text() for r in found[0]] == ["a"]


def test_the_place_on_the_sockets_is_passed_on(client: replog.Client) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Fetch)
    driver = driver_of(client)
    leave = threading.Event()
    short, gone = in_thread(lambda: driver.wait(leave.is_set, None))
    eventually(lambda: driver._polling is not None)
    long, outcome = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: driver._waiters)
    leave.set()
    transport.wake()
    short.join(30)
    assert gone == [True]
    eventually(lambda: driver._polling is not None and driver._polling.thread == long.ident)
    client.append("t", 0, ["a"])
    transport.release()
    long.join(30)
    assert [r.text() for r in outcome[0]] == ["a"]


@pytest.fixture
def quiet(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[replog.Client]:
    """A client whose brokers hold every fetch, and in which no timer runs out."""
    monkeypatch.setattr(silence, "SILENT_MS", 10**9)
    config = {"request_timeout_ms": 10**9, "unanswered_ms": 600_000, "metadata_max_age_ms": 10**9}
    with replog.connect("host:1,host:2,host:3", config=config) as made:
        made.topics()
        FakeTransport.made[0].held = lambda message: isinstance(message, Fetch)
        yield made


def test_closing_a_consumer_ends_whoever_iterates_it(quiet: replog.Client) -> None:
    driver = driver_of(quiet)
    consumers = [quiet.consumer("t", start="earliest") for _ in range(3)]
    threads = [in_thread(lambda consumer=consumer: list(consumer)) for consumer in consumers]  # type: ignore[misc]
    eventually(lambda: len(driver._waiters) == 2 and driver._polling is not None)
    for consumer in consumers:  # one rests on the sockets, others behind it
        consumer.close()
    for thread, outcome in threads:
        thread.join(30)
        assert outcome == [[]]


def test_a_signal_handler_that_closes_a_consumer_just_before_it_rests_is_heard(
    quiet: replog.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, driver = quiet.consumer("t", start="earliest"), driver_of(quiet)
    rest = driver._take_place

    def interrupted(*args: Any) -> Any:
        consumer.close()
        return rest(*args)

    monkeypatch.setattr(driver, "_take_place", interrupted)
    thread, outcome = in_thread(lambda: list(consumer))
    thread.join(30)
    assert outcome == [[]]


def test_running_beside_a_thread_that_rests_neither_waits_nor_reads(client: replog.Client) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Fetch)
    driver = driver_of(client)
    thread, _ = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: driver._polling is not None)
    readers, flushed = len(transport.readers), transport.flushed
    driver.run()
    assert transport.flushed == flushed + 1
    assert len(transport.readers) == readers
    assert transport.wakes == 0  # nothing is due any earlier
    transport.release()
    client.append("t", 0, ["a"])
    thread.join(30)


def test_a_nearer_deadline_calls_up_the_thread_that_rests(client: replog.Client) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Fetch | Produce)
    driver = driver_of(client)
    thread, _ = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: driver._polling is not None and transport.kept)
    resting = driver._polling
    before = resting.until_ms
    producer = client.producer(linger_ms=300)
    delivery = producer.send("t", "x")
    driver.run()
    assert transport.wakes == 1
    eventually(lambda: driver._polling is resting and resting.until_ms < before)
    transport.release()
    assert delivery.result(timeout_s=30).offset == 0
    thread.join(30)


@pytest.mark.parametrize("how", ["wait", "run"])
@pytest.mark.parametrize("paused_ms", [0, 130_000])
def test_what_arrived_while_nobody_listened_is_heard_before_time_is_up(
    client: replog.Client, monkeypatch: pytest.MonkeyPatch, paused_ms: int, how: str
) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, ListOffsets)
    driver = driver_of(client)
    asked = OffsetOp("t", 0, -1, driver.now_ms() + 60_000)
    with driver.lock:
        driver.core.submit(asked, driver.now_ms())
        driver.run()
    transport.release()
    assert not asked.done
    now_ms = driver.now_ms
    monkeypatch.setattr(driver, "now_ms", lambda: now_ms() + paused_ms)
    if how == "run":
        driver.run()
    else:
        assert driver.wait(lambda: asked.done, 30)
    assert asked.done
    assert asked.error is None


def test_it_is_heard_before_time_is_up_by_whichever_thread_comes_first(client: replog.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while in which the process stood still, not only the thread that rests on the sockets has something to do."""
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, ListOffsets)
    driver, over = driver_of(client), threading.Event()
    thread, _ = in_thread(lambda: driver.wait(over.is_set, None))
    eventually(lambda: driver._polling is not None)
    resting = driver._polling
    asked = OffsetOp("t", 0, -1, driver.now_ms() + 60_000)
    now_ms = driver.now_ms
    with driver.lock:
        driver.core.submit(asked, driver.now_ms())
        driver.run()
        wakes = transport.wakes
        transport.release()
        monkeypatch.setattr(driver, "now_ms", lambda: now_ms() + 130_000)
        driver.run()
        assert asked.done
        assert asked.error is None
        assert resting.resting_on is None  # what it comes with is of before
        assert transport.wakes == wakes + 1  # and whoever called it up is not forgotten
        over.set()
    thread.join(30)
    assert not thread.is_alive()


def test_a_background_thread_gives_way_to_the_application(client: replog.Client) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Produce)
    driver = driver_of(client)
    producer = client.producer()
    delivery = producer.send("t", "x")
    eventually(lambda: driver._polling is not None and driver._polling.background)
    asked = transport.wakes
    thread, outcome = in_thread(lambda: delivery.result(timeout_s=30))
    eventually(lambda: driver._polling is not None and not driver._polling.background)
    assert transport.wakes > asked
    transport.release()
    thread.join(30)
    assert outcome[0].offset == 0
    producer.close()


def test_whoever_rests_on_behalf_of_nobody_gives_way_also_if_it_came_later(client: replog.Client) -> None:
    client.topics()
    driver, over = driver_of(client), threading.Event()
    background, outcomes = in_thread(lambda: driver.wait(over.is_set, 60, background=True))
    eventually(lambda: driver._polling is not None and driver._polling.background)
    application, outcome = in_thread(lambda: driver.wait(over.is_set, 60))
    eventually(lambda: driver._polling is not None and not driver._polling.background)
    over.set()
    FakeTransport.made[0].wake()
    for thread in (application, background):
        thread.join(30)
    assert [*outcome, *outcomes] == [True, True]


def test_a_mistake_in_the_middle_ends_what_was_under_way_and_no_more(client: replog.Client) -> None:
    client.topics()
    (broken,) = FakeTransport.made
    broken.cluster_id = "fake"
    broken.failing = ZeroDivisionError("a mistake")
    with pytest.raises(ZeroDivisionError):
        client.topics()
    assert broken.ended == "abandoned"
    assert client.append("t", 0, ["a"]).base_offset == 0
    assert [r.text() for r in client.read("t")] == ["a"]
    assert len(FakeTransport.made) == 2
    assert FakeTransport.made[1].cluster_id == "fake"  # it still belongs to the same cluster
    assert driver_of(client).core.bootstrap == ["tcp://host:1", "tcp://host:2", "tcp://host:3", *(f"tcp://host{n}:1" for n in (1, 2, 3))]


def test_what_no_frame_can_carry_fails_alone(client: replog.Client, cluster: FakeCluster) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Fetch)
    producer = client.producer(linger_ms=60_000)
    lingering = producer.send("t", "a")
    other, found = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: driver_of(client)._polling is not None)
    bad = AdminOp("elect", {"partitions": [object()]}, driver_of(client).now_ms() + 60_000)
    with pytest.raises(UsageError, match=r"^the request was not sent: Admin.arguments holds a object; allowed are str, int, "):
        client._do(bad)
    assert (transport.ended, len(FakeTransport.made)) == ("", 1)
    assert not lingering.done()
    assert lingering.result().offset == 0
    transport.release()
    other.join(30)
    assert [r.text() for r in found[0]] == ["a"]
    assert not driver_of(client).core._requests
    producer.close()


def test_no_call_that_is_interrupted_keeps_the_lock(client: replog.Client) -> None:
    """Its thread would not notice, for it may take the lock again; every other one would wait for ever."""

    def in_client(frame: FrameType) -> bool:
        code = frame.f_code
        if code.co_flags & inspect.CO_GENERATOR:
            return False  # an exception in what cleans it up leads nowhere
        return "replog/client/" in code.co_filename or "replog/runtime/" in code.co_filename

    def once(number: int) -> bool:
        interrupted = interrupted_at(number, in_client, lambda: client.append("t", 0, ["a"]), ("call",))
        assert not driver_of(client).lock._is_owned(), number
        return interrupted

    assert at_every_line(once) > 50
    assert client.append("t", 0, ["a"]).base_offset is not None


def interrupt_again_and_again(driver: Any, transport: FakeTransport, times: int) -> threading.Event:
    """Ctrl-C for the thread that rests on the sockets next, once the event is set, and so often again while it waits for the lock."""
    lock, wait, resting, pressed = driver.lock, transport.wait, [], threading.Event()

    class Held:
        left = times

        def __enter__(self) -> Any:
            if threading.get_ident() in resting and self.left:
                self.left -= 1
                driver.lock = self if self.left else lock
                raise KeyboardInterrupt("again")
            return lock.__enter__()

        def __exit__(self, *problem: Any) -> None:
            lock.__exit__(*problem)

    def interrupted(timeout_s: float | None) -> list[Any]:
        if not timeout_s:
            return wait(timeout_s)
        transport.wait = wait  # type: ignore[method-assign]
        pressed.wait(30)
        resting.append(threading.get_ident())
        driver.lock = Held()
        raise KeyboardInterrupt("first")

    transport.wait = interrupted  # type: ignore[method-assign]
    return pressed


@pytest.mark.parametrize("times", [1, 2])
def test_whoever_is_interrupted_while_it_leaves_is_not_waited_for_by_others(client: replog.Client, times: int) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    driver = driver_of(client)
    pressed = interrupt_again_and_again(driver, transport, times)
    gone, outcome = in_thread(lambda: driver.wait(lambda: False, None))
    eventually(lambda: driver._polling is not None)
    pressed.set()
    gone.join(30)
    assert isinstance(outcome[0], KeyboardInterrupt)
    calling, names = in_thread(client.topics)
    calling.join(10)
    assert names == [["t"]]


def test_whoever_waits_already_takes_the_place_of_one_that_was_interrupted_twice(client: replog.Client) -> None:
    client.append("t", 0, ["a"])
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Fetch)
    driver = driver_of(client)
    pressed = interrupt_again_and_again(driver, transport, 1)
    gone, _ = in_thread(lambda: driver.wait(lambda: False, None))
    eventually(lambda: driver._polling is not None)
    waiting, found = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: driver._waiters)
    pressed.set()
    gone.join(30)
    transport.release()
    waiting.join(10)
    assert [r.text() for r in found[0]] == ["a"]


def no_descriptor(**_: Any) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def test_what_an_append_could_not_send_is_not_stored_later(
    client: replog.Client, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process has no descriptor left: nothing was sent, and whoever repeats the append has one copy."""
    with monkeypatch.context() as patched:
        patched.setattr(connected, "TcpTransport", no_descriptor)
        with pytest.raises(Unavailable, match=r"no connection can be opened: .*Too many open files") as caught:
            client.append("t", 0, ["a"])
        assert isinstance(caught.value.__cause__, OSError)
    assert client.append("t", 0, ["again"]).base_offset == 0
    assert cluster.partition("t").values() == [b"again"]


def test_an_append_that_is_interrupted_while_it_waits_is_taken_back(client: replog.Client, cluster: FakeCluster) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    cluster.move("t", 0, None)
    appending = threading.get_ident()
    wait = transport.wait

    def wait_until_interrupted(timeout_s: float | None) -> list[Any]:
        if timeout_s and threading.get_ident() == appending:
            transport.wait = wait  # type: ignore[method-assign]
            raise KeyboardInterrupt
        return wait(timeout_s)

    transport.wait = wait_until_interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        client.append("t", 0, ["a"])
    (writer,) = client._appenders.values()
    assert (list(writer.unsettled()), writer.buffered, writer.failed) == ([], 0, {})
    cluster.move("t", 0, 1)
    assert client.append("t", 0, ["b"]).base_offset == 0
    assert cluster.partition("t").values() == [b"b"]


def test_who_waits_behind_an_interrupted_append_goes_on_at_once(client: replog.Client, cluster: FakeCluster) -> None:
    client.append("t", 0, ["a"])
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Produce) and not transport.kept
    driver = driver_of(client)
    driver.core.breaks[1] += 1  # as after a lost connection: only the oldest is sent
    interrupted, pressed = threading.Event(), threading.Event()
    wait = transport.wait

    def wait_until_interrupted(timeout_s: float | None) -> list[Any]:
        if timeout_s and not pressed.is_set():
            pressed.set()
            interrupted.wait(30)
            raise KeyboardInterrupt
        return wait(timeout_s)

    transport.wait = wait_until_interrupted  # type: ignore[method-assign]
    first, outcome = in_thread(lambda: client.append("t", 0, ["b"]))
    assert pressed.wait(30)
    second, receipt = in_thread(lambda: client.append("t", 0, ["c"]))
    eventually(lambda: driver._waiters)
    assert len(transport.kept) == 1
    interrupted.set()
    first.join(30)
    second.join(10)
    assert isinstance(outcome[0], KeyboardInterrupt)
    assert [one.base_offset for one in receipt] == [1]
    assert cluster.partition("t").values() == [b"a", b"c"]


def test_the_background_rests_after_a_mistake(
    client: replog.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connected, "TcpTransport", no_descriptor)
    driver = driver_of(client)
    finisher = finishing.Finisher(driver)
    rests: list[float] = []
    monkeypatch.setattr(finisher, "_clock", SimpleNamespace(wait=rests.append))
    finisher._finish(driver.calls)
    assert rests == [finishing._REST_S]
    assert "Too many open files" in caplog.text


def test_a_connection_is_not_ended_under_the_thread_that_rests_on_it(client: replog.Client) -> None:
    client.topics()
    (old,) = FakeTransport.made
    old.held = lambda message: isinstance(message, Fetch)
    driver = driver_of(client)
    thread, outcome = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: driver._polling is not None)
    with driver.lock:
        driver._crashed(KeyboardInterrupt())
        assert not old.ended
        assert old.wakes == 1
    thread.join(30)
    assert isinstance(outcome[0], Unavailable)
    assert old.ended == "abandoned"


def test_whoever_was_kept_from_leaving_its_place_is_not_waited_for(client: replog.Client) -> None:
    client.topics()
    driver = driver_of(client)
    driver._polling = connected._Waiter(lambda: True, driver.lock, background=False)  # as a second Ctrl-C leaves it
    assert client.append("t", 0, ["a"]).base_offset == 0
    assert driver._polling is None


@pytest.fixture
def fork(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What happens in a child right after the fork, to what was made since this fixture."""
    monkeypatch.setattr(files, "_living", WeakSet())
    return files._after_fork


def test_a_child_is_another_producer_although_nothing_was_sent_before_the_fork(cluster: FakeCluster, fork: Callable[[], None]) -> None:
    """As a server that forks its workers has it: made in the parent, used in the children."""
    client = replog.connect("host:1")
    producer = client.producer()
    ids = {producer._writer.producer_id}
    for _ in range(3):  # each of these is a child of the one before, which has done nothing
        fork()
        ids.add(producer._writer.producer_id)
    assert len(ids) == 4
    assert producer.send("t", "x").result().offset == 0
    assert {batch.producer_id for batch in cluster.partition("t").log} == {producer._writer.producer_id}
    client.close()


def test_a_lock_that_another_thread_held_at_the_fork_is_free_in_the_child(cluster: FakeCluster, fork: Callable[[], None]) -> None:
    client = replog.connect("host:1")
    driver = driver_of(client)
    thread, _ = in_thread(driver.lock.acquire)  # and is no more: as after a fork
    thread.join(30)
    fork()
    asked, names = in_thread(client.topics)
    asked.join(30)
    assert names == [["t"]]
    client.close()


def test_nobody_reached(client: replog.Client, cluster: FakeCluster) -> None:
    cluster.down = {1, 2, 3}
    with pytest.raises(TimedOut) as caught:
        client.topics(timeout_s=0.2)
    for number in (1, 2, 3):
        assert f"tcp://host:{number} (Connection refused)" in str(caught.value)
    cluster.down = {1}
    assert client.topics() == ["t"]
    cluster.move("t", 0, 1)
    with pytest.raises(TimedOut, match=r"not reached: .*broker 1 \(tcp://host1:1: Connection refused\)"):
        client.append("t", 0, ["x"], timeout_s=0.3)
    cluster.down = set()
    assert client.append("t", 0, ["x"]).base_offset == 0
    assert 1 not in driver_of(client).core.unreached


@pytest.mark.parametrize("failed", [1, "tcp://host1:1"])
def test_who_answers_is_reached_whatever_failed_before(client: replog.Client, failed: int | str) -> None:
    """One of the connections to a broker could not be made: that is no reason of what fails later."""
    client.append("t", 0, ["x"])
    (transport,) = FakeTransport.made
    transport.tell("dial_failed", {"endpoint": "tcp://host1:1", "reason": "[Errno 24] Too many open files"})
    transport.arrive(None, Disconnected(failed, only_reads=True))
    client.fetch("t", 0, 1)
    transport.held = lambda message: True
    with pytest.raises(TimedOut) as caught:
        client.offset("t", 0, "latest", timeout_s=0.1)
    assert "not reached" not in str(caught.value)
    assert driver_of(client).core.unreached == {}


def test_a_connection_that_ended_unnoticed_makes_no_second_copy(client: replog.Client, cluster: FakeCluster) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    with client.producer(idempotent=False) as producer:
        for n in range(3):
            transport.cut = {1}
            assert producer.send("t", f"{n}").result().offset == n
    assert cluster.partition("t").values() == [b"0", b"1", b"2"]


def test_a_client_that_is_dropped_says_so(cluster: FakeCluster) -> None:
    client = replog.connect("host:1")
    client.topics()
    (transport,) = FakeTransport.made
    del transport.receive, transport.endpoint_of, transport.tell, client  # what leads from the transport to the driver
    with pytest.warns(ResourceWarning, match="dropped with its connections open"):
        gc.collect()
    assert transport.ended == "closed"


def test_a_callback_that_fails_and_one_that_closes(client: replog.Client, caplog: pytest.LogCaptureFixture) -> None:
    producer = client.producer()
    producer.send("t", "a").add_done_callback(lambda _: 1 // 0)
    producer.send("t", "b").add_done_callback(lambda _: client.close())
    eventually(lambda: driver_of(client).closed)
    assert FakeTransport.made[0].ended == "closed"
    assert "a delivery callback failed" in caplog.text
    eventually(lambda: not [t for t in threading.enumerate() if t.name == "replog client"])


def test_what_an_interrupted_call_has_settled_is_told_although_nobody_calls_again(client: replog.Client) -> None:
    producer = client.producer(linger_ms=60_000)
    future = producer.send("t", "lingers").future()
    (transport,) = FakeTransport.made
    interrupted, driver = threading.get_ident(), driver_of(client)
    handle = transport.handle

    def handle_until_interrupted(ready: list[Any], now_ms: int) -> int:
        if threading.get_ident() == interrupted:
            raise KeyboardInterrupt
        return handle(ready, now_ms)

    transport.handle = handle_until_interrupted  # type: ignore[method-assign]
    with driver.lock, pytest.raises(KeyboardInterrupt):
        driver._turn([])  # the interrupt fails the batch, and this thread calls nobody back
    assert isinstance(future.exception(timeout=10), Unavailable)


def test_a_callback_that_raises_anything_costs_nobody_else_theirs(
    client: replog.Client, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is there who could hear of it: what is under way in the background goes on, and so does what is sent later."""

    def cancelled(_: Any) -> None:
        raise asyncio.CancelledError("as Task.result() does")

    producer = client.producer(linger_ms=20)
    called: list[str] = []
    first = producer.send("t", "a")
    first.add_done_callback(cancelled)
    first.add_done_callback(lambda _: sys.exit("a callback wants to leave"))
    first.add_done_callback(lambda _: called.append("a"))
    eventually(lambda: called == ["a"])
    assert "as Task.result() does" in caplog.text
    assert "a callback wants to leave" in caplog.text
    producer.send("t", "b").add_done_callback(lambda _: called.append("b"))
    eventually(lambda: called == ["a", "b"])
    assert cluster.partition("t").values() == [b"a", b"b"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_another_thread_finishes_what_is_sent_after_one_has_died(client: replog.Client, cluster: FakeCluster) -> None:
    client.topics()
    driver = driver_of(client)
    producer = client.producer(linger_ms=60_000)
    producer.send("t", "a")
    thread = driver.finisher
    assert thread.is_alive()
    FakeTransport.made[0].failing = SystemExit()
    FakeTransport.made[0].wake()
    thread.join(30)
    assert driver.finisher is None
    called = threading.Event()
    client.producer(linger_ms=20).send("t", "b").add_done_callback(lambda _: called.set())
    assert called.wait(10)
    assert cluster.partition("t").values() == [b"b"]
    with pytest.raises(Unavailable, match=r"interrupted \(SystemExit\)"):
        producer.flush()


def test_a_record_without_acknowledgement_is_waited_for_until_it_has_left(client: replog.Client) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.unsent = {1: 10}
    producer = client.producer(acks=0)
    producer.send("t", "a")
    with pytest.raises(TimedOut, match="records sent under acks=0 to leave this process"):
        producer.flush(timeout_s=0.05)
    thread, outcome = in_thread(lambda: client.append("t", 0, ["b"], acks=0))
    driver = driver_of(client)
    eventually(lambda: thread.ident in [waiter.thread for waiter in (*driver._waiters, driver._polling) if waiter is not None])
    assert thread.is_alive()
    transport.unsent = {}
    transport.wake()
    thread.join(30)
    assert isinstance(outcome[0], replog.Receipt)
    producer.close()


def two_to_brokers(client: replog.Client, cluster: FakeCluster, **options: Any) -> tuple[replog.Producer, replog.Producer]:
    """Producers without acknowledgements; the first has written to broker 1, the other one to broker 2."""
    cluster.create("pair", 2)
    client.topics()
    busy, quick = client.producer(acks=0, compression=None, **options), client.producer(acks=0, compression=None, **options)
    busy.send("pair", b"x" * 900, partition=0)
    quick.send("pair", b"x" * 900, partition=1)
    return busy, quick


def test_what_another_producer_has_sent_to_a_slow_broker_holds_up_nobody_else(client: replog.Client, cluster: FakeCluster) -> None:
    busy, quick = two_to_brokers(client, cluster, buffer_bytes=2_000, max_block_ms=50)
    FakeTransport.made[0].unsent = {1: 5_000}
    quick.flush(timeout_s=0)
    for _ in range(3):
        quick.send("pair", b"x" * 900, partition=1)
    with pytest.raises(TimedOut, match="records sent under acks=0 to leave this process"):
        busy.flush(timeout_s=0)
    for _ in range(3):
        quick.send("pair", b"x" * 300, partition=0)  # beside much of the other one
    with pytest.raises(TimedOut):
        quick.flush(timeout_s=0)
    FakeTransport.made[0].unsent = {2: 1}
    for one in (busy, quick):
        one.close(timeout_s=0)
    assert not busy._leaving.bytes + quick._leaving.bytes


def test_what_is_not_with_the_sockets_yet_is_not_taken_for_gone(client: replog.Client, cluster: FakeCluster) -> None:
    busy, _ = two_to_brokers(client, cluster)
    driver = driver_of(client)
    with driver.lock:
        driver.core.outbox.messages.append((1, "what was sent"))
        assert busy._held() > 900
        driver.core.outbox.messages.clear()
        assert busy._held() == 0


def test_what_has_not_left_the_process_fills_the_buffer_without_acknowledgements(client: replog.Client, cluster: FakeCluster) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    producer = client.producer(acks=0, buffer_bytes=2_000, max_block_ms=50, compression=None)
    acknowledged = client.producer(acks=1, buffer_bytes=2_000, max_block_ms=50)
    value = b"x" * 900
    patient = client.producer(acks=0, buffer_bytes=2_000, compression=None)
    for one in (producer, patient):
        one.send("t", value)
    transport.unsent = {1: 5_000}
    for one in (producer, patient):
        one.send("t", value)  # the one before may still be there
    for send in (lambda: producer.send("t", value), lambda: producer.send_many("t", [value])):
        with pytest.raises(Unavailable, match=r"waited 0.05 s for room: 1[89]\d\d bytes are buffered, buffer_bytes is 2000"):
            send()
    assert acknowledged.send("t", value).result(timeout_s=30).partition == 0  # what it holds is settled by answers
    thread, sent = in_thread(lambda: patient.send_many("t", [value] * 2))
    driver = driver_of(client)
    eventually(lambda: thread.ident in [waiter.thread for waiter in (*driver._waiters, driver._polling) if waiter is not None])
    transport.unsent = {}
    transport.wake()
    thread.join(30)
    assert len(sent[0]) == 2
    producer.send("t", value)
    client.topics()
    assert len(cluster.partition("t").values()) == 8


def test_who_waits_for_room_for_ever_waits_beside_another_that_rests_on_the_sockets(client: replog.Client, cluster: FakeCluster) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Produce)
    producer = client.producer(buffer_bytes=2_000, max_block_ms=2**63 - 1)
    for _ in range(2):
        producer.send("t", b"x" * 900)
    driver = driver_of(client)
    leave = threading.Event()
    resting, _ = in_thread(lambda: driver.wait(leave.is_set, None))
    eventually(lambda: driver._polling is not None and driver._polling.thread == resting.ident)
    sending, sent = in_thread(lambda: producer.send("t", b"x" * 900))
    eventually(lambda: driver._waiters or sent)
    leave.set()
    transport.release()
    for thread in (sending, resting):
        thread.join(30)
    assert sent[0].result(timeout_s=30).offset == 2


def test_while_a_callback_takes_its_time_another_rests_on_the_sockets(client: replog.Client) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Fetch | Produce)
    driver = driver_of(client)
    driver.finisher = "nobody"
    producer = client.producer()
    delivery = producer.send("t", "a")
    others_turn = threading.Event()
    turned: list[bool] = []
    delivery.add_done_callback(lambda _: turned.append(others_turn.wait(30)))
    first, _ = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: driver._polling is not None and driver._polling.thread == first.ident)
    second, found = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: second.ident in [waiter.thread for waiter in driver._waiters])
    transport.release(Produce)
    eventually(lambda: driver._polling is not None and driver._polling.thread == second.ident, 10)
    transport.release()
    second.join(30)
    others_turn.set()
    first.join(30)
    assert turned == [True]
    assert [r.text() for r in found[0]] == ["a"]
    producer.close()


def test_what_one_waits_for_may_raise_and_raises_there(client: replog.Client) -> None:
    client.topics()
    (transport,) = FakeTransport.made
    transport.held = lambda message: isinstance(message, Fetch)
    driver = driver_of(client)
    first, found = in_thread(lambda: client.fetch("t", 0, 0, wait_s=None))
    eventually(lambda: driver._polling is not None)
    broken = threading.Event()
    second, problem = in_thread(lambda: driver.wait(lambda: broken.is_set() and 1 // 0 == 1, None))
    eventually(lambda: driver._waiters)
    broken.set()
    client.append("t", 0, ["a"])  # the first thread takes in the answer, and asks for the second whether it is done
    second.join(30)
    assert isinstance(problem[0], ZeroDivisionError)
    transport.release()
    first.join(30)
    assert [r.text() for r in found[0]] == ["a"]


def test_the_driver_is_one() -> None:
    from replog.client.driver import Driver

    driver: Driver = ConnectedDriver(["tcp://a:1"], config=ClientConfig())
    assert not driver.closed
    driver.close()
    assert driver.closed
    with pytest.raises(UsageError, match="this Client is closed"):
        driver.run()


@pytest.mark.parametrize("beside", ["nobody", "somebody on the sockets"])
def test_what_a_turn_takes_is_not_waited_for_once_more(client: replog.Client, monkeypatch: pytest.MonkeyPatch, beside: str) -> None:
    client.topics()
    driver, took_ms = driver_of(client), 0
    rests: list[float] = []
    (transport,) = FakeTransport.made

    def flush() -> None:
        nonlocal took_ms
        took_ms += 60_000

    def rest(*told: Any) -> list[Any]:
        if told[-1]:  # else it only looks what has arrived
            rests.append(told[-1])
        return []

    with monkeypatch.context() as patch:
        if beside == "nobody":
            patch.setattr(transport, "wait", rest)
        else:
            in_thread(lambda: driver.wait(lambda: bool(rests), None))
            eventually(lambda: driver._polling is not None)
            patch.setattr(Resting, "rest", rest)
        patch.setattr(ConnectedDriver, "now_ms", lambda self: time.monotonic_ns() // 1_000_000 + took_ms)
        patch.setattr(transport, "flush", flush)
        assert not driver.wait(lambda: False, 61.0)
    driver.wake()
    assert 0.5 < rests[0] <= 1.0, "as long as is left when it has sent what there was"


def test_whoever_waits_alone_asks_nobody_and_the_clock_no_more_than_needed(client: replog.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connected, "start_finisher", lambda driver: None)
    producer = client.producer()
    producer.send("t", "a").result()
    delivery = producer.send("t", "b")
    assert not delivery.done(), "its answer has arrived, and nobody has looked"
    names = called(delivery.result)
    assert [name for name in names if name.startswith("Resting.")] == ["Resting.__len__"], "in passing on what nobody waits for"
    assert not [name for name in names if name.startswith("Writer.wait_for.") and "genexpr" in name], "of one batch it is asked for that"
    assert names.count("ConnectedDriver.now_ms") == 6, "when it began, twice; in a turn; to rest; for whom an answer is; behind"
