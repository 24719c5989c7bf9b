"""The in-process driver: actors in one process, messages handed over directly, payload shared (design, section 2).

One lock, taken per pump and released while waiting; actors never see it. A pump moves messages to quiescence, then runs
timers that are due: so a pause between two calls of the application never evicts, expires or lags anyone. It is a queue,
not recursion.
"""

from __future__ import annotations

import logging
import time
from _thread import RLock, get_ident
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from replog.errors import ReplogError, UsageError
from replog.messages import DOUBTED, Disconnected, Unreached
from replog.model import Address
from replog.ports import FlushDone, FlushToken, Outbox, StoreCall, StoreResult, WatchFired
from replog.runtime.changing import Changing
from replog.runtime.flight import Flight
from replog.runtime.resting import Resting, Waiter
from replog.runtime.seat import Seat

__all__ = ["LOUD", "Flusher", "Heard", "Pump", "tell"]

_log = logging.getLogger("replog")

_LOOK_MS: Final = 1_000
"""So often whoever does not keep the clock looks up nevertheless: an interrupt may have ended the one that did, or a signal handler that
takes its time may keep it from looking."""
LOUD: Final = frozenset(
    {
        "records_may_be_lost",
        "replicas_failed",
        "replica_failed",
        "directory_failed",
        "fetch_session_refused",
        "log_full",
        "directory_full",
        "stray_kept",
        "topic_vanished",
        "store_value_unreadable",
        "broker_kept_out",
        "stranger_removed",
        "decision_given_up",
        "membership_refused",
        "endpoint_shared",
        "message_dropped",
        "authentication_failed",
        "listens_insecurely",
    }
)
"""Events that somebody should look at: data is or may be lost, or something waits for a person. Logged as warnings."""


Heard = Callable[[FlushToken | BaseException], None]
"""Takes what became of a flush, from any thread: its token, or what it has raised."""
Flusher = Callable[[Address, Flight, Heard], FlushToken | None]
"""Runs the flush of an actor (at this address), and returns its token; or has it run elsewhere, and tells later what became of it."""


class Pump:
    """Runs actors to quiescence. Any thread may call `run` or `wait`; one at a time gets to."""

    def __init__(self, *, messages_max: int, now_ms: Callable[[], int] | None = None, wall_ms: Callable[[], int] | None = None) -> None:
        """`messages_max` bounds the messages of one run: more means that actors keep each other busy for ever."""
        self.lock = RLock()
        self.changing = Changing()
        self.now_ms = now_ms or _monotonic_ms
        self.wall_ms = wall_ms or _wall_ms
        self._messages_max = messages_max
        self._seats: dict[Address, Seat] = {}
        self._queue: deque[tuple[Address, Address, Any]] = deque()
        self._arrived: deque[tuple[Address, Address, Any]] = deque()
        """For the next run."""
        self._dirty: dict[Seat, None] = {}
        self._flushes: deque[tuple[Seat, FlushToken]] = deque()
        self._flushed_elsewhere: deque[tuple[Seat, FlushToken | BaseException]] = deque()
        self._repairs: deque[Callable[[], None]] = deque()
        self._running = False
        self._interrupted = False
        self.after_interrupt: Callable[[], None] = _nothing
        """Called before actors run again after an exception has left a run."""
        self.elsewhere: Callable[[Address, Address, Any], bool] | None = None
        """Takes (sender, receiver, message) of messages to whoever has no seat here; False: nobody is there either."""
        self.flusher: Flusher | None = None
        """Without it flushes run here."""
        self.log: Callable[..., None] = _log.log
        """Takes what there is to log under the lock (level, text, arguments)."""
        self.after_run: Callable[[], None] = _nothing
        """Called at the end of each run, under the lock: what was said to others is to be sent."""
        self.is_last = False
        """Whether everything ends with this run: what dies of an error has no next life."""
        self._checked_ms = -1
        self._waiting: Resting[Waiter] = Resting(self.changing)
        """Threads that wait for others to bring them what they want."""
        self._keeper: Waiter | None = None
        """Which of them looks up when the next timer is due; if it rests."""
        self._stirred = False
        """Whether one of them may have it now: since they were last asked an actor was ticked, or `look` was called."""
        self.delivered = 0
        """Messages handed to actors since the start: what tests count."""

    # ---------------------------------------------------------------------------------------------------------- seats

    def seat(self, seat: Seat) -> None:
        """Let an actor take part."""
        assert seat.address not in self._seats, f"two actors at {seat.address}"
        self._seats[seat.address] = seat
        self._dirty[seat] = None

    def unseat(self, address: Address) -> None:
        """Take an actor out, as if its process had died: what it had to say and hear is lost; others are told."""
        seat = self._seats.pop(address, None)
        if seat is None:
            return
        seat.alive = False
        self._dirty.pop(seat, None)
        for queue in (self._queue, self._arrived):
            kept = [item for _ in range(len(queue)) if (item := queue.popleft())[0] != address]  # the next in this seat is another life
            queue.extendleft(reversed(kept))  # in front of what others have appended meanwhile
        for other in self._seats:
            self._queue.append((other, address, Disconnected(address)))

    def post(self, to: Address, message: Any, sender: Address = None) -> None:
        """Queue a message from outside the actors."""
        self._queue.append((to, sender, message))

    def inbox(self, to: Address) -> Callable[[Address, Any], None]:
        """What queues a message from outside the actors: called with its sender and the message."""
        queue = self._queue.append
        return lambda sender, message: queue((to, sender, message))

    def post_next(self, to: Address, message: Any) -> None:
        """Queue a message for the next run, even while there is one. From any thread.

        A run ends when nothing can be done without waiting: with the results of a quick store among its own messages one run could
        be all that ten thousand partitions need, while nobody hears what it has said and the session is not kept alive.
        """
        self._arrived.append((to, None, message))

    def touch(self, seat: Seat) -> None:
        """The actor's outbox was filled by a direct call: look at it in the next run. With the lock: a run goes through what is touched."""
        self._dirty[seat] = None

    def repair_first(self, repair: Callable[[], None]) -> None:
        """Have `repair` done before any other actor runs again. It is repeated until it returns: an interrupt may hit it as well."""
        self._repairs.append(repair)

    def repair(self) -> None:
        """Do the repairs that wait, under the lock."""
        if not self._repairs:
            return
        with self.lock, self.changing:
            while self._repairs:
                self._interrupted = True
                repair = self._repairs[0]
                repair()
                if self._repairs and self._repairs[0] is repair:  # else a signal handler that came into it has done it, too
                    self._repairs.popleft()
            self._waiting.call_all()

    def clear(self) -> None:
        """Forget every message, flush and repair: nobody is left that they could matter to."""
        self._queue.clear()
        self._arrived.clear()
        self._flushes.clear()
        self._flushed_elsewhere.clear()
        self._repairs.clear()
        self._dirty.clear()

    def wake(self) -> None:
        """Have everyone who waits look again."""
        with self.lock:
            self._waiting.call_all()

    def look(self) -> None:
        """What somebody waits for may come about without an actor: whoever has it now is told after the next run."""
        self._stirred = True

    def free_lock(self) -> None:
        """In a forked child: whichever thread of the parent held the lock, or waited, does not exist here."""
        reinit: Callable[[], None] = vars(RLock)["_at_fork_reinit"].__get__(self.lock)  # not in the stubs
        reinit()
        self._waiting.forget_all()

    # -------------------------------------------------------------------------------------------------------- running

    def run(self, touched: Seat | None = None) -> None:
        """Move messages until nothing can be done without waiting. Holds the lock; a run inside a run does nothing.

        `touched`: as `touch`, under the lock.
        """
        with self.lock:
            if touched is not None:
                self.touch(touched)
            self.run_locked()

    def run_last(self) -> Exception | None:
        """Run before everything ends. Returns a mistake of ours, to be raised when all is released; an interrupt is raised here."""
        self.is_last = True
        try:
            self.run()
        except ReplogError:  # whatever is wrong, every log is closed
            return None
        except Exception as problem:
            return problem
        finally:
            self.is_last = False
        return None

    def run_locked(self) -> None:
        """As `run`, for whoever holds the lock."""
        if not self._running:
            self._running = True
            try:
                if self._repairs:
                    self.repair()
                if self._interrupted:  # whose turn it was, and whom a watch should have told, is forgotten
                    self.after_interrupt()
                    self._dirty.update(dict.fromkeys(self._seats.values()))
                self._interrupted = True
                self._run()
                self._interrupted = False
            except BaseException as problem:
                self.changing.handled = problem  # here: the actor is dead, the rest is whole
                self._waiting.call_all()
                raise
            finally:
                self._running = False
                if self._stirred and self._waiting.present:
                    self._call_up()
                self.after_run()

    def _run(self) -> None:
        now_ms, wall_ms = self.now_ms(), self.wall_ms()
        last = self.delivered + self._messages_max
        ticked: set[Address] = set()
        dirty, queue = self._dirty, self._queue
        for _ in range(len(self._arrived)):
            queue.append(self._arrived[0])
            self._arrived.popleft()  # only now, as in `_deliver`
        for _ in range(len(self._flushed_elsewhere)):
            seat, token = self._flushed_elsewhere[0]
            if seat.alive:  # the next life in this seat has not asked for it
                if isinstance(token, BaseException):
                    self._kill(seat, token)  # it would wait for this flush for ever
                else:
                    queue.append((seat.address, None, FlushDone(token)))
            self._flushed_elsewhere.popleft()
        while True:
            if queue:
                self._deliver(now_ms, last)
            if dirty:
                seat = next(iter(dirty))
                del dirty[seat]
                if seat.alive:
                    try:
                        self._stirred = True
                        seat.actor.tick(now_ms, wall_ms)
                        outbox = seat.actor.outbox
                        if outbox.messages or outbox.calls or outbox.flushes or outbox.events:
                            self._drain(seat, outbox)
                        seat.due_ms = seat.actor.deadline_ms()
                    except BaseException as problem:
                        self._kill(seat, problem)
                        raise
            elif self._flushes:
                self._flush()
            elif now_ms == self._checked_ms or not self._wake_due(now_ms, ticked):
                return

    def _deliver(self, now_ms: int, last: int) -> None:
        """Hand over every queued message, and what is said in return."""
        queue, seats, dirty = self._queue, self._seats, self._dirty
        while queue:
            item = queue[0]
            to, sender, message = item
            seat = seats.get(to)
            if seat is None:
                queue.popleft()
                if sender not in seats or isinstance(message, Disconnected):
                    continue
                if self.elsewhere is None or not self.elsewhere(sender, to, message):
                    if type(message) in DOUBTED:
                        queue.append((sender, None, Unreached(to, message)))
                    queue.append((sender, to, Disconnected(to)))
                elif type(to) is tuple and (handed_on := seats[sender].hands_on.get(type(message))) is not None:
                    handed_on(message)
                continue
            self.delivered += 1
            if self.delivered > last:
                kinds = sorted({type(m).__name__ for _, _, m in queue})
                queue.clear()  # or every later run would begin with the same loop
                raise ReplogError(f"more than {self._messages_max} messages in one run: {', '.join(kinds)} go round in a loop")
            try:
                hear = (seat.hears_brokers if type(sender) is int else seat.hears).get(type(message))
                if hear is None:
                    seat.actor.receive(sender, message, now_ms)
                else:
                    hear(sender, message, now_ms)
                # Only now: an interrupt before the call delivers the message again, and every actor bears repetition.
                queue.popleft()
                dirty[seat] = None
                outbox = seat.actor.outbox
                if outbox.messages or outbox.calls or outbox.flushes or outbox.events:
                    self._drain(seat, outbox)
            except BaseException as problem:
                if queue and queue[0] is item:
                    queue.popleft()
                self._kill(seat, problem)  # with what it was about to say: half of that may be said already
                raise

    def _drain(self, seat: Seat, outbox: Outbox) -> None:
        if outbox.messages:
            address, queue, tells = seat.address, self._queue, seat.tells
            for to, message in outbox.messages:
                queue.append((to, address, message))
                tell_of = tells.get(type(message))
                if tell_of is not None:
                    tell_of(to, message)
            outbox.messages.clear()
        if seat.watch is not None and outbox.events:
            seat.watch.look(outbox)
        if outbox.calls:
            calls, outbox.calls = outbox.calls, []
            for call in calls:
                self._call(seat, call)
        if outbox.flushes:
            self._flushes.extend([(seat, token) for token in outbox.flushes])
            outbox.flushes.clear()
        if outbox.events:
            for event in outbox.events:
                tell(event.name, event.fields, self.log)
            outbox.events.clear()

    def _call(self, seat: Seat, call: StoreCall) -> None:
        """A private store answers at once and in memory, or with one fsync: no worker thread is needed."""
        if seat.calls is not None:
            seat.calls(seat.address, call)
            return
        assert seat.store is not None, f"{seat.address} has no store"
        store, address = seat.store, seat.address
        result = StoreResult(call.call)
        try:
            if call.verb == "watch":
                store.watch(call.argument, lambda path: self._queue.append((address, None, WatchFired(path))))
            else:
                result.value = getattr(store, call.verb)(call.argument)
        except ReplogError as problem:
            result.error = problem
        self._queue.append((address, None, result))

    def _flush(self) -> None:
        """Every token that waits now: appends of a whole poll share one fsync per log."""
        while self._flushes:
            seat, token = self._flushes[0]
            try:
                if seat.alive:
                    flight, flusher = seat.take_off(token), self.flusher
                    done = flight() if flusher is None else flusher(seat.address, flight, partial(self._flushed, seat))
                    if done is not None:
                        self._queue.append((seat.address, None, FlushDone(done)))
            except BaseException as problem:
                self._kill(seat, problem)  # it would wait for this flush for ever
                raise
            finally:
                self._flushes.popleft()

    def _flushed(self, seat: Seat, token: FlushToken | BaseException) -> None:
        self._flushed_elsewhere.append((seat, token))  # without the lock: whoever holds it may be waiting for this thread to end

    def _wake_due(self, now_ms: int, ticked: set[Address]) -> bool:
        """Timers come last, and each actor's once per run: a retry is never immediate. They count in ms, so once per ms is enough."""
        found = False
        for address, seat in self._seats.items():
            due = seat.due_ms
            if due is not None and due <= now_ms and address not in ticked:
                ticked.add(address)
                self._dirty[seat] = None
                found = True
        if not found:
            self._checked_ms = now_ms
        return found

    def _kill(self, seat: Seat, problem: BaseException) -> None:
        """An exception that leaves an actor, KeyboardInterrupt included, ends it as SIGKILL would: it may be half changed.

        `died` is told now; if that is interrupted as well, it is told again before the next run.
        """
        died = seat.died
        if died is not None:
            self._repairs.append(lambda: died(problem))
        self.unseat(seat.address)
        self.repair()

    # -------------------------------------------------------------------------------------------------------- waiting

    def deadline_ms(self) -> int | None:
        """When the next timer is due; of actors that have work to do, when their last tick has ended."""
        soonest: int | None = None
        for seat in self._seats.values():
            due = seat.due_ms
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def wait(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Run until `done()`; False when `timeout_s` has passed first. The lock is released while nothing can be done.

        UsageError inside a run, where a signal or logging handler may be: nothing moves before that run goes on.
        """
        with self.lock, self.changing:
            if self._running:
                raise UsageError("a signal or logging handler came into another call of this thread, which has to go on before it can wait")
            end_ms = None if timeout_s is None else self.now_ms() + int(timeout_s * 1000)
            waiter: Waiter | None = None
            try:
                while True:
                    self.run()
                    if done():
                        return True
                    now_ms = self.now_ms()
                    if end_ms is not None and now_ms >= end_ms:
                        return False
                    waiter = waiter or Waiter(done, self.lock)
                    self._rest(waiter, now_ms, end_ms)
            finally:
                if waiter is not None:
                    if self._keeper is waiter:
                        self._keeper = None  # what it waited for may be all that holds a broker which has ended
                    self._pass_on()

    def _rest(self, waiter: Waiter, now_ms: int, end_ms: int | None) -> None:
        """One of those who rest keeps the clock for all: each timer would wake every one of them, to run in turn."""
        due_ms: int | None = now_ms + _LOOK_MS
        if not self._is_kept():
            self._keeper, due_ms = waiter, self.deadline_ms()
        waiter.until_ms = min((t for t in (due_ms, end_ms) if t is not None), default=now_ms + 1_000)
        self._waiting.rest(waiter, max(waiter.until_ms - now_ms, 1) / 1000)

    def _is_kept(self) -> bool:
        """Whether another thread keeps the clock. This one does not: a signal handler is in its way."""
        return self._keeper is not None and self._keeper in self._waiting and self._keeper.thread != get_ident()

    def _pass_on(self) -> None:
        """If nobody keeps the clock now, one of those who rest should."""
        if self._waiting and not self._is_kept():
            next(iter(self._waiting)).condition.notify()

    def _call_up(self) -> None:
        """Wake those who wait and have it now, and whoever keeps the clock if it rests for longer than it now may.

        Not the others: each of them would run as well, and two would keep each other running for ever.
        """
        due_ms = self.deadline_ms() if self._waiting else None
        for waiter in self._waiting:
            if (waiter is self._keeper and due_ms is not None and due_ms < waiter.until_ms) or waiter.is_done():
                waiter.condition.notify()
        self._stirred = False  # only now: an interrupt may have come in between


def tell(name: str, fields: dict[str, Any], log: Callable[..., None] = _log.log) -> None:
    """Log an event of an actor or a transport; those in `LOUD` as warnings."""
    log(logging.WARNING if name in LOUD else logging.INFO, "%s %s", name, fields)


def _nothing() -> None:
    pass


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
