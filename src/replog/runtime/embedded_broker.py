"""One broker in a process: its directory, its session, its three actors, and how they end together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from replog.broker.broker import Broker
from replog.broker.durability import flushed_aside
from replog.broker.membership import Membership
from replog.config import BrokerConfig
from replog.controller.executor import ControllerExecutor
from replog.errors import ReplogError, UsageError
from replog.messages import FlushAll, Leave
from replog.metrics.deciding import EventTimes
from replog.metrics.meter import Meter
from replog.metrics.watching import BrokerWatch, StoreWatch
from replog.model import Address
from replog.ports import Actor, FlushToken, Ids, LogDirectory, MetadataStore, SessionChanged
from replog.runtime.pump import Pump
from replog.runtime.seat import Seat
from replog.runtime.store_sessions import StoreSessions

__all__ = ["DISK_S", "EmbeddedBroker", "addresses_of"]

DISK_S: Final = 30.0
"""A disk that takes longer for one flush is taken for one that hangs."""
_GONE_S: Final = 5.0
"""So long whoever ends a broker waits for a flush of it that is under way."""


def addresses_of(broker_id: int) -> tuple[Address, Address, Address]:
    """Of the broker, its membership and its controller."""
    return broker_id, ("membership", broker_id), ("controller", broker_id)


class EmbeddedBroker:
    """Takes part in a pump from `take_seats` to `stop`. The directory and the store are its own from the start.

    A store that may block comes as `StoreSessions`, which are then started with the actors.
    """

    def __init__(
        self,
        broker_id: int,
        pump: Pump,
        directory: LogDirectory,
        store: MetadataStore | StoreSessions,
        *,
        config: BrokerConfig,
        ids: Ids,
        rack: str | None,
        endpoints: Sequence[str] = (),
        cluster_id: str | None = None,
        meter: Meter | None = None,
    ) -> None:
        """`meter` counts what this life does; None: nobody counts."""
        self.broker_id = broker_id
        self._meter = meter
        self.directory = directory
        self.store = store
        self.broker = Broker(broker_id, directory, config=config, ids=ids)
        self.membership = Membership(
            broker_id,
            config=config,
            ids=ids,
            directory_id=directory.directory_id,
            loss=directory.loss,
            incarnation=directory.incarnation,
            endpoints=endpoints,
            rack=rack,
            cluster_id=cluster_id,
        )
        self.controller = ControllerExecutor(broker_id, config=config, ids=ids)
        self._pump = pump
        self._addresses = addresses_of(broker_id)
        self._seat: Seat | None = None
        self._clean = True
        """Whether it may be stopped cleanly."""
        self._stopped = False
        self._released = False
        """Whether the directory is closed."""

    def take_seats(self, died: Callable[[BaseException], None]) -> None:
        """Let the actors take part; `died` is told what killed one of them."""
        store, sessions = (None, self.store) if isinstance(self.store, StoreSessions) else (self.store, None)
        calls, meter = None if sessions is None else sessions.call, self._meter
        watch = None if meter is None else BrokerWatch(self.broker, meter)
        self._seat = Seat(self.broker_id, self.broker, store, died, calls, watch)
        self._pump.seat(self._seat)
        members: tuple[Actor, ...] = (self.membership, self.controller)
        if meter is not None:
            self.controller.observer = EventTimes(meter.decisions)
            members = StoreWatch(self.membership, meter, counts_sessions=True), StoreWatch(self.controller, meter)
        for address, actor in zip(self._addresses[1:], members, strict=True):
            self._pump.seat(Seat(address, actor, store, died, calls))
            # A session that has yet to be opened: an answer that there is none must not be heard after it is there.
            self._pump.post(address, SessionChanged("connected" if sessions is None else "lost"))
        if sessions is not None:
            sessions.start()

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic, as far as this broker knows."""
        found = self.broker.routing.topics.get(topic_id)
        return None if found is None else found.topic

    def knows_unfenced(self, lives: Mapping[int, int]) -> bool:
        """Whether it has heard that these brokers are unfenced, each in the life of that epoch."""
        known = {broker_id: self.broker.routing.brokers.get(broker_id) for broker_id in lives}
        return all(found is not None and not found.fenced and 0 <= lives[b] == found.broker_epoch for b, found in known.items())

    def copies_on(self, broker_id: int) -> list[str]:
        """Partitions that a broker has copies of, as far as this one knows, for people."""
        topics = self.broker.routing.topics.values()
        return [f"{topic.topic}-{p.partition}" for topic in topics for p in topic.partitions if broker_id in p.replicas]

    def out_of_sync(self) -> list[str]:
        """Partitions without a leader or without their full ISR, as far as this broker knows, for people."""
        return [
            f"{topic.topic}-{p.partition} (leader {p.leader}, ISR {list(p.isr)} of {list(p.replicas)})"
            for topic in self.broker.routing.topics.values()
            for p in topic.partitions
            if p.leader is None or set(p.isr) != set(p.replicas)
        ]

    def endpoint_of(self, broker_id: int) -> str | None:
        """Where another broker listens, as far as the broker or the controller here knows."""
        found, stored = self.broker.routing.brokers.get(broker_id), self.controller.registered(broker_id)
        if stored is not None and (found is None or stored.broker_epoch > found.broker_epoch):
            found = stored
        return found.endpoints[0] if found is not None and found.endpoints else None

    def leave(self) -> None:
        """Have it ask to be let go; `may_leave` says when it is. It goes on as before until it is stopped."""
        self._pump.post(self.broker_id, Leave())

    def flush_all(self) -> None:
        """Have it flush what its disk does not have, as `left_to_flush` tells once it has heard of it. It goes on as before."""
        self._pump.post(self.broker_id, FlushAll())

    @property
    def left_to_flush(self) -> int:
        """Logs of which that flush has not ended."""
        return self.broker.upkeep.left_to_flush

    @property
    def may_leave(self) -> bool:
        """Whether what it leads has been moved as far as possible, and it knows."""
        return self.broker.leaving.is_over

    def goes(self) -> bool:
        """Let go of the directory, too, if that is over for which it waits; whether it has. Not before it is stopped."""
        if self._stopped and not self._released:
            self._let_go()
        return self._released

    def wait_until_gone(self) -> None:
        """Let go of the lock until it is, for a moment."""
        if not self._released:
            with suppress(UsageError):  # in a signal handler that came into that flush, which has to go on
                self._pump.wait(self.goes, _GONE_S)

    def stop(self, *, clean: bool, timeout_s: float | None = None, settle_s: float = 0.0) -> float:
        """End all three actors, then the directory, then the session; not `clean`: as SIGKILL would.

        A store that may block has `timeout_s` to end the session (None: the session time); returns how much of it was taken. A flush
        under way is waited for `settle_s`; after that the directory is closed when it has ended, as a process that is killed in a
        call of the disk is gone when that returns.

        Idempotent, and to be repeated after an interrupt. A stop that cannot be clean, because the disk is full or broken, is one
        that is not: the log says so, and the next start finds out what is missing. Nor is it while a copy has failed: after a
        clean stop nobody would read it.
        """
        self._clean = self._clean and clean and not any(partition.failed for partition in self.broker.partitions.values())
        for address in self._addresses:
            self._pump.unseat(address)
        self._stopped = True
        self._let_go(settle_s)
        began_s = time.monotonic()
        try:
            if isinstance(self.store, StoreSessions):
                self.store.close(timeout_s)
            else:
                self.store.close()
        except ReplogError as problem:  # the store ends it when it can, at the latest with the next opening
            self._pump.log(logging.WARNING, "broker %d could not end its session: %s", self.broker_id, problem)
        return time.monotonic() - began_s

    def _let_go(self, settle_s: float = 0.0) -> None:
        """Close the directory, once no flush of it is under way. To be repeated after an interrupt."""
        with self._pump.lock:
            log = self._pump.log
            flights = [] if self._seat is None or self._released else list(self._seat.flights.values())
            give_up_s = time.monotonic() + settle_s
            under_way = [flight for flight in flights if not flight.settle(give_up_s - time.monotonic())]
            for flight in under_way:
                flight.then = self._let_go
            waits = not all(flight.ended for flight in under_way)
            problems = [] if waits or self._released else self._release([flight.token for flight in flights if flight.token.failed])
        if waits:
            log(logging.INFO, "broker %d ends when its disk has ended a flush that is under way", self.broker_id)
        for problem in problems:
            log(logging.WARNING, "broker %d could not be stopped cleanly: %s", self.broker_id, problem)

    def _release(self, failed: Sequence[FlushToken]) -> list[object]:
        """Close the directory; it learns first what flushes have failed that the broker has not heard of. Returns what went wrong."""
        problems: list[object] = [f"a flush failed: {token.error}" for token in failed]
        for token in failed:  # its own log may be put away; whichever says so, it is the disk of all
            logs = map(self.directory.get, (token.identity, *self.directory.identities()))
            flushed_aside(next((log for log in logs if log is not None), None), token)
        try:
            clean = self._clean and not failed
            if clean:
                self.broker.upkeep.save()
            self.directory.close(clean=clean)
        except ReplogError as problem:
            problems.append(problem)
        finally:  # after an interrupt, too: nobody may ever repeat the stop, and the folder would be locked as long as the process lives
            self.directory.close(clean=False)
            self._released = True
            self._pump.wake()
        return problems
