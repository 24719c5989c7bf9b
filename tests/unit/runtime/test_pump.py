"""The in-process driver: order, timers, bounds, and what becomes of an actor that an exception has left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.threads import in_thread

from replog.errors import ReplogError
from replog.messages import Admin, Disconnected, Unreached
from replog.metadata.memory import MemoryStore
from replog.model import PartitionId
from replog.ports import Create, Event, FlushDone, FlushToken, Outbox, StoreCall, StoreResult, WatchFired
from replog.runtime.pump import Pump
from replog.runtime.seat import Seat


class Echo:
    """Keeps what it is told; `reply` says what to send on."""

    def __init__(self, reply: Any = None) -> None:
        self.outbox = Outbox()
        self.heard: list[tuple[Any, Any]] = []
        self.ticks = 0
        self.due: int | None = None
        self._reply = reply

    def receive(self, sender: Any, message: Any, now_ms: int) -> None:
        self.heard.append((sender, message))
        if self._reply is not None:
            self._reply(self, sender, message)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        self.ticks += 1

    def deadline_ms(self) -> int | None:
        return self.due


def make_pump(**actors: Echo) -> Pump:
    pump = Pump(messages_max=1_000, now_ms=lambda: 5, wall_ms=lambda: 1_000)
    for name, actor in actors.items():
        pump.seat(Seat(name, actor))
    return pump


def test_messages_go_round_until_quiet() -> None:
    def count_down(actor: Echo, sender: Any, message: int) -> None:
        if message > 0:
            actor.outbox.messages.append((sender, message - 1))

    a, b = Echo(count_down), Echo(count_down)
    pump = make_pump(a=a, b=b)
    pump.post("a", 10, "b")
    pump.run()
    assert [m for _, m in a.heard] == [10, 8, 6, 4, 2, 0]
    assert [m for _, m in b.heard] == [9, 7, 5, 3, 1]
    assert pump.delivered == 11


def test_what_arrives_during_a_run_for_the_next_one_waits_for_it() -> None:
    """A store that answers at once, to a decision of many steps: between two of them others are heard, and hear."""
    sent: list[int] = []

    def decide(actor: Echo, sender: Any, message: int) -> None:
        actor.outbox.messages.append(("b", message))
        if message < 5:
            pump.post_next("a", message + 1)

    a, b = Echo(decide), Echo()
    pump = make_pump(a=a, b=b)
    pump.after_run = lambda: sent.append(len(b.heard))
    pump.post_next("a", 1)
    for turn in range(1, 6):
        pump.run()
        assert [m for _, m in a.heard] == [m for _, m in b.heard] == list(range(1, turn + 1))
    assert sent == [1, 2, 3, 4, 5]


def test_what_waits_for_the_next_run_is_not_for_who_sits_there_then() -> None:
    a, b, later = Echo(), Echo(), Echo()
    pump = make_pump(a=a, b=b)
    pump.post_next("a", "to a")
    pump.post_next("b", "to b")
    pump.unseat("a")
    pump.seat(Seat("a", later))
    pump.run()
    assert (a.heard, later.heard) == ([], [])
    assert (None, "to b") in b.heard
    pump.post_next("b", "again")
    pump.clear()
    pump.run()
    assert "again" not in [m for _, m in b.heard]


def test_loss_is_logged_as_a_warning_and_the_rest_is_not(caplog: pytest.LogCaptureFixture) -> None:
    def tell(actor: Echo, sender: Any, message: str) -> None:
        actor.outbox.events.append(Event(message, {"broker": 1}))

    caplog.set_level(logging.INFO, "replog")
    pump = make_pump(a=Echo(tell))
    names = ["broker_registered", "records_may_be_lost", "replicas_failed", "replica_failed", "log_full", "directory_full", "stray_kept"]
    for name in names:
        pump.post("a", name, "b")
    pump.run()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO" if name == "broker_registered" else "WARNING", f"{name} {{'broker': 1}}") for name in names
    ]


def test_an_endless_conversation_is_named() -> None:
    def for_ever(actor: Echo, sender: Any, message: Any) -> None:
        actor.outbox.messages.append((sender, message))

    pump = make_pump(a=Echo(for_ever), b=Echo(for_ever))
    pump.post("a", "ping", "b")
    with pytest.raises(ReplogError, match="more than 1000 messages in one run: str"):
        pump.run()


def test_timers_run_after_messages_and_once_per_run() -> None:
    now = 1
    actor = Echo()
    actor.due = 0
    pump = Pump(messages_max=100, now_ms=lambda: now)
    pump.seat(Seat("a", actor))
    pump.run()
    assert actor.ticks == 2  # seated, and due
    pump.run()
    assert actor.ticks == 2  # looked at in this millisecond already
    now = 2
    pump.run()
    assert actor.ticks == 3


def test_a_dead_address_is_told_to_the_sender_once() -> None:
    def complain(actor: Echo, sender: Any, message: Any) -> None:
        if message == "go":
            actor.outbox.messages.append(("nobody", "hello"))

    actor = Echo(complain)
    pump = make_pump(a=actor)
    pump.post("a", "go")
    pump.run()
    assert [m for _, m in actor.heard] == ["go", Disconnected("nobody")]


def test_what_could_not_be_handed_to_anybody_is_in_no_doubt() -> None:
    wish = Admin(7, "create_topic", {})

    def ask(actor: Echo, sender: Any, message: Any) -> None:
        if message == "go":
            actor.outbox.messages.append(("nobody", wish))

    actor = Echo(ask)
    pump = make_pump(a=actor)
    pump.post("a", "go")
    pump.run()
    assert actor.heard[1:] == [(None, Unreached("nobody", wish)), ("nobody", Disconnected("nobody"))]


def test_unseating_tells_the_others() -> None:
    a, b = Echo(), Echo()
    pump = make_pump(a=a, b=b)
    pump.unseat("b")
    pump.run()
    assert [m for _, m in a.heard] == [Disconnected("b")]
    assert b.heard == []


@pytest.mark.parametrize("problem", [ValueError("bug"), KeyboardInterrupt(), MemoryError()])
def test_an_exception_kills_its_actor_and_goes_on(problem: BaseException) -> None:
    def fail(actor: Echo, sender: Any, message: Any) -> None:
        raise problem

    died: list[BaseException] = []
    pump = Pump(messages_max=100, now_ms=lambda: 0)
    pump.seat(Seat("a", Echo(fail), died=died.append))
    pump.seat(Seat("b", Echo()))
    pump.post("a", "now")
    with pytest.raises(type(problem)):
        pump.run()
    assert died == [problem]
    pump.post("a", "again", "b")
    pump.run()  # nobody is there any more, and the pump is not stuck


def test_an_interrupt_between_two_actors_loses_no_message() -> None:
    class Interrupting(dict[Any, Any]):
        armed = True

        def get(self, key: Any, default: Any = None) -> Any:
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt
            return super().get(key, default)

    actor = Echo()
    pump = make_pump(a=actor)
    pump._seats = Interrupting(pump._seats)
    pump.post("a", "precious")
    with pytest.raises(KeyboardInterrupt):
        pump.run()
    pump.run()
    assert [m for _, m in actor.heard] == ["precious"]


def flushing(ran: list[int]) -> Echo:
    """Asks for a flush whenever it hears a number, which that notes."""

    def flush(actor: Echo, sender: Any, message: Any) -> None:
        if isinstance(message, int):
            actor.outbox.flushes.append(FlushToken(PartitionId(bytes(16), 0, 0), 0, message, lambda: ran.append(message)))

    return Echo(flush)


def test_a_flush_that_ran_elsewhere_is_not_for_who_sits_there_then() -> None:
    """Nor does the thread that ran it wait for the lock: its holder may be waiting for that thread to end."""
    done: list[Callable[[], None]] = []
    a, later = flushing([]), Echo()
    pump = make_pump(a=a)
    pump.flusher = lambda _of, run, tell: done.append(lambda: tell(run()))
    for number in (1, 2):
        pump.post("a", number)
        pump.run()
    with pump.lock:
        thread, _ = in_thread(done[0])
        thread.join(10)
        assert not thread.is_alive()
    pump.run()
    assert [type(m) for _, m in a.heard] == [int, int, FlushDone]
    done[1]()
    pump.unseat("a")
    pump.seat(Seat("a", later))
    pump.run()
    assert later.heard == []


def test_flushes_that_wait_together_run_before_the_next_message() -> None:
    ran: list[int] = []
    actor = flushing(ran)
    pump = make_pump(a=actor)
    pump.post("a", 1)
    pump.post("a", 2)
    pump.run()
    assert ran == [1, 2]
    assert [type(m) for _, m in actor.heard] == [int, int, FlushDone, FlushDone]


def test_store_calls_are_answered_and_watches_fire() -> None:
    store = MemoryStore()

    def ask(actor: Echo, sender: Any, message: Any) -> None:
        if message == "go":
            actor.outbox.calls += [
                StoreCall(1, "watch", "/a"),
                StoreCall(2, "commit", [Create("/a", b"1")]),
                StoreCall(3, "commit", [Create("/a", b"2")]),
            ]

    actor = Echo(ask)
    pump = Pump(messages_max=100, now_ms=lambda: 0)
    pump.seat(Seat("a", actor, store.session()))
    pump.post("a", "go")
    pump.run()
    results = {m.call: m for _, m in actor.heard if isinstance(m, StoreResult)}
    assert results[2].error is None
    assert type(results[3].error).__name__ == "Conflict"
    assert [m.path for _, m in actor.heard if isinstance(m, WatchFired)] == ["/a"]


def test_another_thread_can_bring_what_is_waited_for() -> None:
    actor = Echo()
    pump = make_pump(a=actor)
    waiting = threading.Event()

    def bring() -> None:
        waiting.wait(5)
        with pump.lock:
            pump.post("a", "here")
            pump.run()

    thread = threading.Thread(target=bring)
    thread.start()

    def done() -> bool:
        waiting.set()
        return bool(actor.heard)

    assert pump.wait(done, 10)
    thread.join()


def test_who_waits_is_told_at_once() -> None:
    actor = Echo()
    actor.due = 3_600_000
    pump = make_pump(a=actor)
    waiting = threading.Event()

    def done() -> bool:
        waiting.set()
        return bool(actor.heard)

    thread = threading.Thread(target=lambda: pump.wait(done, None), daemon=True)
    thread.start()
    assert waiting.wait(30)
    with pump.lock:
        pump.post("a", "here")
        pump.run()
    thread.join(30)
    assert not thread.is_alive()


def test_waiting_in_vain_ends() -> None:
    clock = iter(range(0, 10_000, 50))
    pump = Pump(messages_max=100, now_ms=lambda: next(clock))
    assert not pump.wait(lambda: False, 0.2)


def test_after_an_exception_everyone_gets_a_turn_and_watches_are_told() -> None:
    def fail(actor: Echo, sender: Any, message: Any) -> None:
        raise KeyboardInterrupt

    other = Echo()
    pump = make_pump(a=Echo(fail), b=other)
    pump.run()
    told: list[int] = []
    pump.after_interrupt = lambda: told.append(other.ticks)
    pump.post("a", "now")
    with pytest.raises(KeyboardInterrupt):
        pump.run()
    ticks = other.ticks
    pump.run()
    assert told == [ticks]  # before anybody's turn
    assert other.ticks > ticks
    pump.run()
    assert told == [ticks]


def test_a_killed_actor_is_missed_by_the_others() -> None:
    def fail(actor: Echo, sender: Any, message: Any) -> None:
        raise KeyboardInterrupt

    other = Echo()
    pump = make_pump(a=Echo(fail), b=other)
    pump.post("a", "now")
    with pytest.raises(KeyboardInterrupt):
        pump.run()
    pump.run()
    assert [m for _, m in other.heard] == [Disconnected("a")]


def test_an_exception_in_a_store_call_kills_who_asked() -> None:
    """Its answer would never come, and it would wait for ever."""

    class Interrupted(MemoryStore):
        def list(self, path: str) -> Any:
            raise KeyboardInterrupt

    def ask(actor: Echo, sender: Any, message: Any) -> None:
        actor.outbox.calls.append(StoreCall(1, "list", "/a"))

    died: list[BaseException] = []
    pump = Pump(messages_max=100, now_ms=lambda: 0)
    pump.seat(Seat("a", Echo(ask), Interrupted(), died.append))
    pump.post("a", "go")
    with pytest.raises(KeyboardInterrupt):
        pump.run()
    assert len(died) == 1


def test_a_repair_is_repeated_until_it_is_done() -> None:
    attempts: list[int] = []

    def repair() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise KeyboardInterrupt

    actor = Echo()
    pump = make_pump(a=actor)
    pump.post("a", "later")
    pump.repair_first(repair)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            pump.run()
        assert actor.heard == []
    pump.run()
    assert [m for _, m in actor.heard] == ["later"]
    assert len(attempts) == 3


def test_work_under_the_lock_that_is_interrupted_is_reported() -> None:
    pump = make_pump()
    heard: list[BaseException] = []
    pump.changing.interrupted = heard.append

    def work(problem: BaseException) -> None:
        with pump.lock, pump.changing:
            raise problem

    with pytest.raises(ValueError, match="a bug"):
        work(ValueError("a bug"))
    assert heard == []
    with pytest.raises(KeyboardInterrupt):
        work(KeyboardInterrupt())
    assert len(heard) == 1
    with pump.lock:  # and the lock is free
        pass


def test_an_actor_that_was_interrupted_is_not_reported_twice() -> None:
    """The pump has dealt with it: whoever called it did nothing halfway."""

    def fail(actor: Echo, sender: Any, message: Any) -> None:
        raise KeyboardInterrupt

    pump = make_pump(a=Echo(fail))
    heard: list[BaseException] = []
    pump.changing.interrupted = heard.append
    pump.post("a", "now")

    def call() -> None:
        with pump.lock, pump.changing:
            pump.run()

    with pytest.raises(KeyboardInterrupt):
        call()
    assert heard == []


def test_a_signal_handler_may_do_a_repair_that_is_under_way() -> None:
    """As whoever kills a broker in a handler that came into its stop."""
    pump, done = make_pump(), []

    def first() -> None:
        done.append("first")
        if done == ["first"]:
            pump.repair()  # what the handler does comes by here

    pump.repair_first(first)
    pump.repair_first(lambda: done.append("second"))
    pump.repair()
    assert done == ["first", "first", "second"]
    pump.repair()
    assert len(done) == 3
