"""The controller as an actor: one script at a time runs against the store; it campaigns, and resigns when in doubt.

There is never more than one decision under way. A script yields a store operation, the driver runs it, and the script
goes on with the result; whatever is received meanwhile waits in a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replog.config import BrokerConfig
from replog.controller.campaign import Deposed, Won, campaign
from replog.controller.events import IsrProposed, ReplicasLost, ShutdownAsked
from replog.controller.queues import Observer
from replog.controller.reading import Reader, Script
from replog.controller.term import Term
from replog.errors import Code, ReplogError
from replog.messages import (
    Admin,
    AdminAnswer,
    AlterIsr,
    AlterIsrAnswer,
    ControlledShutdown,
    ControlledShutdownAnswer,
    Heartbeat,
    LeaderAndIsrAnswer,
    Metadata,
    Registered,
    ReplicasFailed,
    ReplicaStatesAnswer,
    StopReplicaAnswer,
    Unsent,
)
from replog.metadata import layout
from replog.model import Address, BrokerInfo
from replog.ports import Event as Told
from replog.ports import Ids, Outbox, SessionChanged, SessionLost, StoreCall, StoreResult, UnknownOutcome, WatchFired

__all__ = ["ControllerExecutor"]


class ControllerExecutor:
    """The controller on one broker: asleep until its broker is registered and the seat is free."""

    def __init__(self, broker_id: int, *, config: BrokerConfig, ids: Ids) -> None:
        self.outbox = Outbox()
        self._broker_id = broker_id
        self._config = config
        self._ids = ids
        self._reader = Reader(config.slice_partitions_max, self.outbox.events.append)
        self._now_ms = 0
        self._wall_ms = 0
        """The time of day; 0 before the first tick."""
        self._wall_ahead_ms: int | None = None
        """Of the monotonic clock, at the last tick: that may be long ago where nothing was to be done meanwhile."""
        self._broker_epoch = -1
        self._cluster_id = ""
        self._campaigning = False
        self._seat_seen = -1
        self._attempted: list[int] = []
        self._abandoned: list[int] = []
        self._term: Term | None = None
        self._epoch = -1
        self._script: Script | None = None
        self._waiting: int | None = None
        self._calls = 0
        self._failures = 0
        self._retry_ms: int | None = None
        self._reconcile_ms: int | None = None
        self.observer: Observer | None = None
        """Of the events of each term that begins."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker holds the seat, as far as it knows."""
        return self._term is not None

    @property
    def controller_epoch(self) -> int:
        """Of the present term; -1 without one."""
        return self._epoch

    @property
    def unacknowledged(self) -> dict[int, int]:
        """Broker -> notices it has yet to acknowledge; empty when this is not the controller."""
        return {} if self._term is None else self._term.publisher.outboxes.unacknowledged()

    def registered(self, broker_id: int) -> BrokerInfo | None:
        """A registered broker, as the store says; None when this is not the controller."""
        broker = None if self._term is None else self._term.cluster.brokers.get(broker_id)
        return None if broker is None else broker.info

    @property
    def waiting(self) -> int:
        """Events that wait for their turn; 0 when this is not the controller."""
        return 0 if self._term is None else self._term.waiting

    @property
    def questions(self) -> int:
        """Partitions whose last-known replicas are being asked how far they reach."""
        return 0 if self._term is None else len(self._term.publisher.last_known)

    # ---- the actor

    def receive(self, sender: Address, message: Any, now_ms: int) -> None:
        """Take one message, and go on as far as the store allows."""
        self._at(now_ms)
        match message:
            case StoreResult():
                self._on_store_result(message)
            case WatchFired():
                self._on_watch_fired(message)
            case SessionChanged():
                self._on_session_changed(message)
            case Registered():
                self._on_registered(message)
            case Unsent(to, AdminAnswer() as answer, reason):
                self._send(to, AdminAnswer(answer.request, Code.MESSAGE_TOO_LARGE, reason, origin=answer.origin))
            case _:
                self._guarded(lambda: self._hear(sender, message))
        self._run()

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Timers: retry, resend, reconcile."""
        self._wall_ahead_ms = wall_ms - now_ms
        self._at(now_ms)
        if self._retry_ms is not None and self._retry_ms <= now_ms:
            self._retry_ms = None
        if self._reconcile_ms is not None and self._reconcile_ms <= now_ms:
            self._reconcile_ms = now_ms + self._config.reconcile_ms
            if self._term is None:
                self._campaigning = self._broker_epoch >= 0
            else:
                self._term.reconcile()
        if self._term is not None:
            self._term.run_timers()
        self._run()

    def deadline_ms(self) -> int | None:
        """When `tick` is needed next."""
        deadlines = [self._retry_ms, self._reconcile_ms, None if self._term is None else self._term.deadline_ms()]
        return min((d for d in deadlines if d is not None), default=None)

    def _at(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._wall_ahead_ms is not None:
            self._wall_ms = now_ms + self._wall_ahead_ms
        if self._term is not None:
            self._term.at(now_ms, self._wall_ms)

    # ---- messages

    def _hear(self, sender: Address, message: Any) -> None:
        term = self._term
        if term is None:
            self._refuse(sender, message)
            return
        match message:
            case Admin():
                term.on_wish(sender, message, self._ids.token())
            case AlterIsr():
                term.on_proposal(IsrProposed(sender, message))
            case Heartbeat():
                term.on_heartbeat(message)
            case LeaderAndIsrAnswer():
                term.on_leader_and_isr_answer(message)
            case StopReplicaAnswer():
                term.on_stop_replica_answer(message)
            case ReplicaStatesAnswer():
                term.on_replica_states_answer(message)
            case ReplicasFailed(broker_id, broker_epoch, reason, partitions):
                term.on_replicas_failed(ReplicasLost(broker_id, broker_epoch, reason, tuple(partitions)))
            case ControlledShutdown():
                term.ask(ShutdownAsked(sender, message))
            case Metadata():
                term.on_metadata_asked(sender)
            case _:
                pass  # not for a controller: hints of the driver, and messages of a later version

    def _refuse(self, sender: Address, message: Any) -> None:
        if isinstance(message, Admin):
            text = f"broker {self._broker_id} is not the controller"
            self._send(sender, AdminAnswer(message.request, Code.NOT_CONTROLLER, text, origin=message.origin))
        elif isinstance(message, AlterIsr):
            self._send(sender, AlterIsrAnswer(message.request, Code.NOT_CONTROLLER, []))
        elif isinstance(message, ControlledShutdown):
            self._send(sender, ControlledShutdownAnswer(message.broker_id, message.broker_epoch, -1, Code.NOT_CONTROLLER))

    def _send(self, to: Address, message: Any) -> None:
        self.outbox.messages.append((to, message))

    def _on_registered(self, message: Registered) -> None:
        """Only a registered broker may be the controller."""
        self._broker_epoch = message.broker_epoch
        if message.broker_epoch < 0:
            self._resign("the broker is not registered")
            self._campaigning = False
            return
        self._cluster_id = message.cluster_id or self._cluster_id
        self._campaigning = self._term is None
        if self._reconcile_ms is None:
            self._reconcile_ms = self._now_ms + self._config.reconcile_ms

    def _on_session_changed(self, message: SessionChanged) -> None:
        if message.state == "lost":
            self._reader.disarmed()
            self._abandoned.clear()  # the seat went with the session
            self._broker_epoch = -1
            self._resign("the store session is lost", seated=False)
            self._campaigning = False
        elif message.state == "connected" and self._term is not None:
            self._term.reconcile()

    def _on_watch_fired(self, message: WatchFired) -> None:
        self._reader.fired(message.path)
        if self._term is not None:
            self._term.fired(message.path)
        elif message.path == layout.CONTROLLER:
            self._campaigning = self._broker_epoch >= 0

    # ---- the serial loop

    def _on_store_result(self, message: StoreResult) -> None:
        if message.call != self._waiting:
            return  # of a script that was given up
        self._waiting = None
        self._guarded(lambda: self._advance(message.value, message.error))

    def _run(self) -> None:
        """Start scripts until one waits for the store, or there is nothing to do."""
        while self._script is None and self._retry_ms is None:
            self._script = self._next_script()
            if self._script is None:
                break
            self._guarded(lambda: self._advance(None, None))
        if self._term is not None:
            self._term.publish()

    def _next_script(self) -> Script | None:
        if self._term is not None:
            return self._term.next_script()
        return self._campaign() if self._campaigning and self._broker_epoch >= 0 else None

    def _advance(self, value: Any, error: ReplogError | None) -> None:
        """Run the script up to its next store operation."""
        script = self._script
        assert script is not None
        try:
            verb, argument = script.send(value) if error is None else script.throw(error)
            while verb == "attempt":
                self._attempted = [*self._attempted[-9:], argument]
                verb, argument = script.send(None)
        except StopIteration:
            self._script = None
            self._failures = 0
            if self._term is not None:
                self._term.publish()
            return
        self._calls += 1
        self._waiting = self._calls
        self.outbox.calls.append(StoreCall(self._calls, verb, argument))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do something that may find out that this is not the controller, or that the store cannot be reached."""
        try:
            work()
        except Deposed:
            self._resign("another controller has been elected")
            self._campaigning = self._broker_epoch >= 0
        except SessionLost:
            self._resign("the store session is lost", seated=False)
            self._campaigning = False
        except ReplogError as error:
            # UnknownOutcome of a read, Conflict of a campaign, a value that cannot be read: again, after a pause.
            self._script = None
            self._waiting = None
            self._campaigning = self._campaigning or (self._term is None and self._broker_epoch >= 0)
            self._pause(error)

    def _pause(self, error: ReplogError) -> None:
        pause = min(self._config.retry_backoff_ms << min(self._failures, 16), self._config.retry_backoff_ms_max)
        self._failures += 1
        self._retry_ms = self._now_ms + max(1, round(pause * (0.5 + self._ids.jitter() / 2)))
        name = "store_outcome_unknown" if isinstance(error, UnknownOutcome) else "controller_retries"
        self.outbox.events.append(Told(name, {"broker": self._broker_id, "error": str(error), "retry_ms": self._retry_ms}))

    def _campaign(self) -> Script:
        self._campaigning = False  # now, not later: a watch that fires while this runs asks for another campaign
        armed = self._reader.is_armed(layout.CONTROLLER)
        found: Won | int = yield from campaign(self._reader, self._broker_id, self._attempted, self._abandoned)
        if isinstance(found, Won):
            self._take_seat(found)
            return
        if armed and found != self._seat_seen:
            # The seat changed hands and the watch did not say so: arm another, and look behind it.
            self._reader.fired(layout.CONTROLLER)
            self._campaigning = True
        self._seat_seen = found

    def _take_seat(self, won: Won) -> None:
        self._attempted.clear()
        self._abandoned.clear()
        self._epoch = won.controller_epoch
        self._term = Term(
            self._broker_id,
            won,
            config=self._config,
            cluster_id=self._cluster_id,
            outbox=self.outbox,
            reader=self._reader,
            observer=self.observer,
        )
        self._term.at(self._now_ms, self._wall_ms)
        self._reconcile_ms = self._now_ms + self._config.reconcile_ms
        self.outbox.events.append(Told("controller_elected", {"broker": self._broker_id, "controller_epoch": self._epoch}))

    def _resign(self, why: str, *, seated: bool = True) -> None:
        """End the term. The seat, if it may still be ours, is given up by the next campaign."""
        self._script = None
        self._waiting = None
        if self._term is None:
            return
        self._term.resign()
        if seated:
            self._abandoned.append(self._epoch)
        self.outbox.events.append(Told("controller_resigned", {"broker": self._broker_id, "controller_epoch": self._epoch, "why": why}))
        self._term = None
        self._epoch = -1
        self._reader.fired(layout.CONTROLLER)  # its watch did not say so in time: have another
