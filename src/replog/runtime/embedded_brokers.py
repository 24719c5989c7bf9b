"""All brokers of an embedded cluster and the pump that runs them, which is the driver of the cluster's own client."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replog.client.core import ClientCore
from replog.config import BrokerConfig, ClientConfig, check_rack
from replog.errors import ReplogError, Unavailable, UsageError
from replog.log.files import Fs, kill_in_child
from replog.log.memory import MemoryLogDirectory
from replog.metadata.file import FileStore
from replog.metadata.memory import MemoryStore
from replog.metrics.histogram import Histogram
from replog.metrics.meter import Meter
from replog.metrics.reading import Subject, take
from replog.metrics.snapshot import Snapshot
from replog.model import Address
from replog.ports import LogDirectory, LossReport, MetadataStore
from replog.runtime.before_stop import BeforeStop
from replog.runtime.changing import Changing
from replog.runtime.closing import Closing
from replog.runtime.embedded_broker import EmbeddedBroker
from replog.runtime.finishing import Finisher, start_finisher
from replog.runtime.flushing import Flushing
from replog.runtime.folder import ClusterFolder
from replog.runtime.ids import RandomIds
from replog.runtime.informed import check_removable, out_of_sync
from replog.runtime.pump import Pump
from replog.runtime.putting_off import is_inside, put_off
from replog.runtime.reopening import Reopening
from replog.runtime.seat import Seat
from replog.runtime.store_sessions import StoreSessions
from replog.runtime.undoing import Undoing

if TYPE_CHECKING:
    from replog.runtime.outside import Outside
    from replog.security.quotas import Quotas
    from replog.security.settings import Security

__all__ = ["BROKERS_MAX", "EmbeddedBrokers"]

_CLIENT: Final = "client"
_START_S: Final = 30.0
BROKERS_MAX: Final = 100
_STORE_MS_MAX: Final = 10_000
"""A store has this long to end the sessions of all brokers, or a session time."""


class EmbeddedBrokers:
    """Opens nothing before `ensure_started`. Every method may be called from any thread.

    Whatever changes a broker's life is a repair of the pump: an interrupt in the middle leaves it to be finished before
    any actor runs again.
    """

    def __init__(
        self,
        data: Path | None,
        count: int,
        *,
        listen: str | None,
        store: str | MetadataStore | None,
        config: BrokerConfig,
        client_config: ClientConfig,
        fs_of: Callable[[int], Fs] | None = None,
        security: Security | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """`fs_of` says through what each broker reaches its files: the operating system, or a disk that fails in a test.

        With `listen`, or a store that may block, there is an `Outside`: a thread that serves what does not come by calls.
        """
        self.running: dict[int, EmbeddedBroker] = {}
        self.stopped: set[int] = set()
        self.config = config
        self._data = data
        self._count = count
        self._fs_of = fs_of
        self._listen = listen
        self._security = security
        self._quotas = quotas
        self._given_store = store
        self._store: MemoryStore | FileStore | None = None
        """The store whose calls need no worker; None while closed, and for a store that may block."""
        self._folder: ClusterFolder | None = None
        self.meters: dict[int, Meter] = {}
        """What each broker has counted, over all of its lives."""
        self._racks: dict[int, str | None] = {}
        self._undoing = Undoing()
        self._kept: dict[int, MemoryLogDirectory] = {}
        """What brokers of a cluster in memory come back to: after a clean stop, or after an exception in their own process."""
        self._ids = RandomIds()
        self._pump = Pump(messages_max=config.outstanding_messages_max)
        self._reopening = Reopening(self._start, self._pump)
        self.wake = self._pump.wake
        self._pump.changing.interrupted = self._interrupted
        self._flushing = Flushing(self._pump)
        self._before_stop = BeforeStop(self._pump, self._pump.wait, self._flushing.spread, self.running.get)
        self._shared = store is not None and not isinstance(store, MemoryStore)
        self.outside = self._make_outside(listen, store if self._shared else None)
        self._state = "new"
        self.calls = 0
        """How often the client was called: what tells a busy application from one that has stopped."""
        self.finisher: Finisher | None = None
        """Who sees to batches with a future or a callback when nobody calls; it takes itself off under the lock."""
        self.core = ClientCore(_CLIENT, config=client_config, ids=self._ids, bootstrap=range(1, count + 1))
        self._seat = Seat(_CLIENT, self.core)
        kill_in_child(self)

    def _make_outside(self, listen: str | None, store: str | MetadataStore | None) -> Outside | None:
        if listen is None and store is None:
            return None
        from replog.runtime.outside import Outside  # no sockets for whoever needs none

        return Outside(
            self._pump, listen, store, config=self.config, ids=self._ids, cluster_id=self._cluster_id, security=self._security,
            quotas=self._quotas, throttled=lambda broker, request, ms: self.meters[broker].throttle(request, ms), topic_of=self._topic_of,
        )  # fmt: skip

    def _topic_of(self, topic_id: bytes) -> str | None:
        return next((name for one in self.running.values() if (name := one.topic_name(topic_id)) is not None), None)

    def _cluster_id(self) -> str:
        return next((embedded.membership.cluster_id for embedded in self.running.values()), "")

    # ---------------------------------------------------------------------------------------------- the client's driver

    @property
    def lock(self) -> Any:
        """Held while actors run."""
        return self._pump.lock

    @property
    def changing(self) -> Changing:
        """Entered inside it by whoever changes the client's core."""
        return self._pump.changing

    @property
    def closed(self) -> bool:
        """Whether the cluster can no longer be used."""
        return self._state in ("closed", "forked")

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return self._pump.now_ms()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._pump.wall_ms()

    def run(self) -> None:
        """Move messages until nothing can be done without waiting."""
        self.calls += 1
        self.ensure_started()
        self._pump.run(self._seat)

    def attend(self) -> None:
        """Batches of producers are finished by whoever calls next: no thread is started for them."""

    def expect(self) -> None:
        """Whoever has a future may never call: a thread finishes all batches, until none is left."""
        if not self.closed:
            start_finisher(self)

    def has_left(self) -> bool:
        """Whether a producer's batches have no outcome yet, or one that nobody was told of. Called with the lock held."""
        return self.core.has_batches or bool(self.core.finished)

    def unsent_to(self, broker: Address) -> int:
        """None: whatever is sent here has arrived."""
        return 0

    def wait(self, done: Callable[[], bool], timeout_s: float | None, *, background: bool = False) -> bool:
        """Run until `done()`; False when `timeout_s` has passed first. UsageError if the cluster is closed meanwhile.

        `background`: on behalf of nobody.
        """
        self.calls += not background
        self.ensure_started()
        with self._pump.lock:
            self._pump.touch(self._seat)

        def done_or_over() -> bool:
            return done() or self.closed or self._state == "new"

        if not self._pump.wait(done_or_over, timeout_s):
            return False
        return done() or self.wait(done, timeout_s, background=background)  # which says why it is over

    # ------------------------------------------------------------------------------------------------------------ life

    def check_usable(self) -> None:
        """UsageError if the cluster is closed, or lives in the parent process."""
        if self._state == "forked":
            raise UsageError("this Cluster belongs to the parent process; make a new one after fork")
        if self._state == "closed":
            raise UsageError("this Cluster is closed")

    def ensure_started(self) -> None:
        """Open the folder and start every broker, unless that is done. Raises UsageError, Unavailable, LogCorrupt, StoreCorrupt."""
        if self._state == "started":
            if self._reopening.barred and not is_inside(self.lock):
                self._try_barred()
            self._pump.repair()
            return
        self.check_usable()
        with self.lock, self.changing:
            self.check_usable()
            if self._state == "new":
                self._state = "starting"
                try:
                    self._open()
                except BaseException as problem:
                    self._abandon()
                    if self._state != "closed":
                        self._state = "new"
                        self.core.crash(problem)  # who has come meanwhile waits for nothing
                        self._pump.wake()
                    raise

    def _open(self) -> None:
        if self._data is not None:
            self._folder = ClusterFolder(self._data, self._count, fs_of=self._fs_of, own_store=not self._shared)
            self._flushing.begin()
        if isinstance(self._given_store, MemoryStore):
            self._store = self._given_store
        elif not self._shared:
            self._store = MemoryStore() if self._folder is None else self._folder.open_store()
        if self._store is not None:
            self._pump.after_interrupt = self._store.fire_all
        if self.outside is not None and self.outside.closed:  # of an opening that failed
            self.outside = self._make_outside(self._listen, self._given_store if self._shared else None)
        if self.outside is not None:
            self.outside.start()
        self._seat_client()
        for broker_id in range(1, self._count + 1):
            self._start(broker_id)
        self._state = "started"
        outside = self.outside
        done = self.wait(lambda: self._are_unfenced(self.running) or (outside is not None and outside.refused is not None), _START_S)
        if outside is not None and outside.refused is not None:
            raise outside.refused
        if not done:
            refused = [f"; broker {b}: {e.membership.refused}" for b, e in self.running.items() if e.membership.refused]
            trouble = "" if outside is None else outside.trouble
            raise Unavailable(f"the brokers did not all register within {_START_S:.0f} s{''.join(refused)}{trouble}")
        if self._folder is not None:
            self._folder.joined(self._cluster_id())

    def _seat_client(self) -> None:
        self._pump.unseat(_CLIENT)
        self._seat = Seat(_CLIENT, self.core, died=self._client_died)
        self._pump.seat(self._seat)

    def _directory(self, broker_id: int) -> LogDirectory:
        if self._folder is not None:
            return self._folder.open_directory(broker_id, self.config, listens=self._listen is not None)
        if broker_id in self._kept:
            return self._kept[broker_id].reopened()
        lost = broker_id in self.stopped
        return MemoryLogDirectory(limits=self.config, loss=LossReport("replaced") if lost else None)

    def _start(self, broker_id: int) -> None:
        """Start a broker that does not run; if that fails, nothing of it is left open."""
        assert broker_id not in self.running
        undoing, embedded = self._undoing, None
        undoing.undo(broker_id)  # what an interrupt has left of the last attempt
        self._reopening.check_gone(broker_id)
        try:
            directory = self._directory(broker_id)
            undoing.later(broker_id, lambda: embedded or directory.close(clean=False))  # that of a life is closed by it alone
            if self.outside is not None:
                undoing.later(broker_id, partial(self.outside.stop_serving, broker_id))
            endpoints = () if self.outside is None else self.outside.serve(broker_id)
            session = self._session(broker_id)
            undoing.later(broker_id, session.close)
            embedded = EmbeddedBroker(
                broker_id,
                self._pump,
                directory,
                session,
                config=self.config,
                ids=self._ids,
                rack=self._racks.get(broker_id),
                endpoints=endpoints,
                meter=self.meters.setdefault(broker_id, Meter(broker_id)),
            )
            undoing.later(broker_id, partial(embedded.stop, clean=False))
            self._reopening.begins(embedded)
            embedded.take_seats(partial(self._broker_died, embedded))
            self.running[broker_id] = embedded
        except BaseException:
            undoing.undo(broker_id)
            raise
        undoing.finished(broker_id)
        self._kept.pop(broker_id, None)
        self.stopped.discard(broker_id)

    def _session(self, broker_id: int) -> MemoryStore | FileStore | StoreSessions:
        if self._store is not None:
            return self._store.session()
        assert self.outside is not None
        return self.outside.sessions(broker_id)

    def _are_unfenced(self, brokers: Sequence[int] | dict[int, EmbeddedBroker]) -> bool:
        """Whether every running broker has heard that all of `brokers` are unfenced, in their present life."""
        lives = {b: self.running[b].broker.broker_epoch for b in brokers if b in self.running}
        return all(embedded.knows_unfenced(lives) for embedded in self.running.values())

    def close(self) -> None:
        """Stop all brokers at once, cleanly; no leader is moved. Idempotent. Inside a call of this thread: when that has left the lock."""
        if self.closed:
            return
        if is_inside(self.lock):
            return put_off(self.close, "replog cluster close")
        problem = self._before_stop.flush(list(self.running.values()))
        if self.outside is not None:
            self.outside.stop()  # before the lock is taken: its thread may be waiting for it
        self._flushing.end()
        with self.lock, self.changing:
            if self.closed:
                return
            if self._state == "started":
                problem = self._pump.run_last() or problem
                self._stop_all(clean=True)
            self._abandon()
            self._state = "closed"
            closing = Closing(self.core, "Cluster")
            self._pump.wake()
        closing.tell(self.finisher, problem)
        if problem is not None:
            raise problem

    def _stop_all(self, *, clean: bool) -> None:
        """A store that is silent is waited for once, not once per broker."""
        left_s = min(self.config.session_ms, _STORE_MS_MAX) / 1_000
        for broker_id in sorted(self.running):
            left_s = max(0.0, left_s - self.running[broker_id].stop(clean=clean, timeout_s=left_s))
            self.running.pop(broker_id, None)  # a signal handler may have ended it meanwhile

    def _abandon(self) -> None:
        """Let go of everything, as a killed process would."""
        self._stop_all(clean=False)
        self._undoing.undo_all()
        self._pump.unseat(_CLIENT)
        self._pump.clear()
        if self.outside is not None:
            self.outside.close()
        store, self._store = self._store, None
        if store is not None and store is not self._given_store:
            with contextlib.suppress(ReplogError):  # what it could not store ends with the next opening
                store.close()
        if self._folder is not None:
            self._folder.close(self._reopening.lingering)
            self._folder = None

    def die_in_child(self) -> None:
        """After a fork the child has a copy of everything, and may touch none of it."""
        if self._folder is not None and self._state != "forked":
            self._folder.close()  # the lock itself stays with the parent
        self._folder = None
        self._state = "forked"
        if self.outside is not None:
            self.outside.abandon()
        self._flushing.abandon()
        self._pump.free_lock()

    # --------------------------------------------------------------------------------------------------------- brokers

    def end(self, broker_id: int, *, clean: bool) -> None:
        """End a running broker: as SIGKILL would, or cleanly."""
        with self.lock, self.changing:
            self.ensure_started()
            embedded = self.running.get(broker_id)
            if embedded is None:
                raise UsageError(f"broker {broker_id!r} does not run; running are {sorted(self.running)}")
            if clean:
                self._take_leave(embedded)
                embedded = self.running.get(broker_id, embedded)  # an exception may have ended that one, and begun another
            self._pump.repair_first(lambda: self._end(embedded, clean=clean, keep=clean))
            self.run()
            self._reopening.wait_until_gone(embedded)

    def _take_leave(self, embedded: EmbeddedBroker) -> None:
        """Have its logs flushed, and the controller move what the broker leads, if one answers in time."""
        leave_s = self.config.shutdown_timeout_ms / 1_000 if self._are_unfenced([embedded.broker_id]) else 0
        self._before_stop.prepare(embedded, leave_s)
        self.run()

    def _end(self, embedded: EmbeddedBroker, *, clean: bool, keep: bool, settle_s: float = 0.0) -> None:
        """Take a broker out; `keep` what it had in memory for its next life. Repeatable."""
        broker_id = embedded.broker_id
        if self.running.get(broker_id) is embedded:
            if self.outside is not None:
                self.outside.stop_serving(broker_id)
            embedded.stop(clean=clean, settle_s=settle_s)
            if keep and isinstance(embedded.directory, MemoryLogDirectory):
                self._kept[broker_id] = embedded.directory
            self.stopped.add(broker_id)
            self.running.pop(broker_id, None)  # a signal handler may have ended it meanwhile

    def start_again(self, broker_id: int, timeout_s: float | None) -> None:
        """Start a stopped or killed broker, and wait until it is unfenced."""
        with self.lock, self.changing:
            self.ensure_started()
            if broker_id in self.running:
                raise UsageError(f"broker {broker_id} runs already")
            if broker_id not in self.stopped:
                raise UsageError(f"there is no broker {broker_id!r} to start; stopped are {sorted(self.stopped) or 'none'}")
            self._start(broker_id)
        self._wait_unfenced(broker_id, timeout_s)

    def add(self, rack: str | None, timeout_s: float | None) -> int:
        """Start one more broker; returns its id."""
        check_rack(rack)
        with self.lock, self.changing:
            self.ensure_started()
            broker_id = max([*self.running, *self.stopped]) + 1
            if broker_id > BROKERS_MAX:
                raise UsageError(f"a cluster has at most {BROKERS_MAX} brokers")
            self._racks[broker_id] = rack
            with contextlib.nullcontext() if self._folder is None else self._folder.adding(broker_id, self.running):
                self._start(broker_id)
        self._wait_unfenced(broker_id, timeout_s)
        return broker_id

    def remove(self, broker_id: int) -> None:
        """Take the newest broker out for good; only one that holds no copy may go."""
        with self.lock, self.changing:
            self.ensure_started()
            self.run()
            check_removable(self.running, self.stopped, broker_id)
            if broker_id in self.running:
                self.end(broker_id, clean=True)
                check_removable(self.running, self.stopped, broker_id, has_left=True)  # others had their turn meanwhile
            self._reopening.check_gone(broker_id)
            self.stopped.discard(broker_id)
            self._kept.pop(broker_id, None)
            self.meters.pop(broker_id, None)
            if self._folder is not None:
                self._folder.remove_directory(broker_id)

    def _wait_unfenced(self, broker_id: int, timeout_s: float | None) -> None:
        if not self.wait(lambda: self._are_unfenced([broker_id]), timeout_s):
            refused = self.running[broker_id].membership.refused if broker_id in self.running else None
            why = f": {refused}" if refused else ""
            raise Unavailable(f"waited {timeout_s} s for the controller to unfence broker {broker_id}{why}")

    def metrics(self, *, partitions: bool) -> Snapshot:
        """Of every broker that ran, whether it runs now or not."""
        self.ensure_started()
        with self.lock:
            lives = {broker_id: (life.broker, life.controller) for broker_id, life in self.running.items()}
            subjects = [Subject(self.meters[broker_id], *lives.get(broker_id, (None, None))) for broker_id in sorted(self.meters)]
        turns = Histogram() if self.outside is None else self.outside.turns
        return take(subjects, lock=self.lock, now_ms=self.now_ms(), wall_ms=self.wall_ms(), turns=turns, partitions=partitions)

    def out_of_sync(self) -> list[str]:
        """Partitions without a leader or without their full ISR, for people; empty if every replica is in sync."""
        return out_of_sync(self.running)

    # -------------------------------------------------------------------------------------------------------- failures

    def _broker_died(self, embedded: EmbeddedBroker, problem: BaseException) -> None:
        """An exception has left one of its actors: its memory is discarded; it is opened again from its logs, uncleanly. Repeatable."""
        broker_id = embedded.broker_id
        if self.running.get(broker_id) is embedded:
            self._end(embedded, clean=False, keep=True, settle_s=1.0)  # the process lives on, and so does what it had stored
        if broker_id in self.running or self._state == "closed" or (self._pump.is_last and isinstance(problem, Exception)):
            return
        self._pump.log(logging.WARNING, "broker %d is restarted after %s", broker_id, type(problem).__name__)
        self._open_again(broker_id)

    def _open_again(self, broker_id: int) -> None:
        if broker_id not in self.running:
            self._reopening.attempt(broker_id)

    def _try_barred(self) -> None:
        with self.lock, self.changing:
            for broker_id in self._reopening.due(self.stopped):
                self._pump.repair_first(partial(self._open_again, broker_id))

    def _interrupted(self, problem: BaseException) -> None:
        """The application's own thread was interrupted in a call of the client, under the lock: its core may be half changed."""
        self._pump.repair_first(lambda: self._client_died(problem))
        self._pump.repair()

    def _client_died(self, problem: BaseException) -> None:
        """An exception has left the client's core: what was under way has an unknown outcome; it starts anew. Repeatable."""
        self.core.crash(problem)
        if self._state != "closed":
            self._seat_client()
