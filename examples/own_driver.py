"""Brokers, controllers and a client as bare actors, on a driver of one's own.

`replog.Cluster` and `replog.Broker` are drivers that are shipped. This one carries messages, calls of the store and time itself: time
passes as soon as there is nothing to do, and each run is the same. A driver for a network, a game loop or a test of yours has the same
things to do: deliver messages to `receive`, call `tick` when messages have come or `deadline_ms()` has passed, carry out what is in the
`outbox`, keep the store's session alive, and tell actors what becomes of it.

Logs may be any that keep the contract. Where time does not wait, transport and store must not either: a transport that hands over what
it has in `deliver`, as that in memory does, and a store that tells of changes at once, as those in memory and in a file do.

    python examples/own_driver.py
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import RLock
from typing import Any

from replog.broker.broker import Broker
from replog.broker.membership import Membership
from replog.client.client import Client
from replog.client.core import ClientCore
from replog.config import BrokerConfig, ClientConfig
from replog.controller.executor import ControllerExecutor
from replog.errors import ReplogError
from replog.log.memory import MemoryLogDirectory
from replog.metadata.memory import MemoryStore
from replog.model import Address
from replog.ports import Actor, FlushDone, LogDirectory, MetadataStore, SessionChanged, SessionState, StoreCall, StoreResult, WatchFired
from replog.testing.clock import SeededIds
from replog.transport.memory import MemoryTransport


class World:
    """Actors, what is said between them, and what time it is."""

    def __init__(self, wire: MemoryTransport | None = None) -> None:
        self.now_ms = 0
        self.wire = wire or MemoryTransport()
        self.store = MemoryStore()
        self.actors: dict[Address, tuple[Actor, MetadataStore | None]] = {}
        self.own: list[tuple[Address, Actor, Any]] = []
        """What a process tells its own actors: no message of the protocol, and no transport carries it."""
        self.told: list[str] = []

    def seat(self, address: Address, actor: Actor, session: MetadataStore | None = None) -> None:
        """Deliver to an actor what is sent to its address, from now on; `session` is its process's session at the store."""
        self.actors[address] = actor, session
        self.wire.listen(address, lambda sender, message: actor.receive(sender, message, self.now_ms))

    def start_broker(self, number: int, directory: LogDirectory) -> None:
        """The three actors of a broker's process: the broker, who keeps it registered, and a controller, which may be elected."""
        config, session = BrokerConfig(), self.store.session()
        ids = SeededIds(number)
        lives = Membership(
            number, config=config, ids=ids, directory_id=directory.directory_id, loss=directory.loss, incarnation=directory.incarnation
        )
        self.seat(number, Broker(number, directory, config=config, ids=ids))
        self.seat(("membership", number), lives, session)
        self.seat(("controller", number), ControllerExecutor(number, config=config, ids=ids), session)
        for address in (("membership", number), ("controller", number)):
            session.on_session(partial(self._session_changed, address))
            self._session_changed(address, "connected")

    def _session_changed(self, address: Address, state: SessionState) -> None:
        self._tell(address, SessionChanged(state))

    def _tell(self, address: Address, news: Any) -> None:
        if address in self.actors:
            self.own.append((address, self.actors[address][0], news))

    def kill_broker(self, number: int) -> None:
        """As if its process had died: what it knew is gone, and its session ends."""
        _, session = self.actors[("controller", number)]
        for address in (number, ("membership", number), ("controller", number)):
            self.wire.unlisten(address)
            del self.actors[address]
        assert session is not None
        session.close()

    # ------------------------------------------------------------------------------------------------------------ moving

    def settle(self) -> None:
        """Until nobody has anything to say at this time."""
        busy = True
        while busy:
            busy = self.wire.deliver() > 0
            own, self.own = self.own, []
            for address, actor, news in own:
                if self.actors.get(address, (None,))[0] is actor:  # it has not died since
                    actor.receive(None, news, self.now_ms)
            for address, (actor, session) in list(self.actors.items()):
                if session is not None:
                    session.keep_alive()
                actor.tick(self.now_ms, self.now_ms)
                busy = self._carry_out(address, actor, session) or busy
            busy = busy or bool(self.own)

    def _carry_out(self, address: Address, actor: Actor, session: MetadataStore | None) -> bool:
        box = actor.outbox
        messages, box.messages = box.messages, []
        calls, box.calls = box.calls, []
        flushes, box.flushes = box.flushes, []
        self.told += [event.name for event in box.events]
        box.events.clear()
        for to, message in messages:
            self.wire.send(address, to, message)
        for call in calls:
            assert session is not None
            self._tell(address, self._called(address, session, call))
        for token in flushes:  # of topics with another `flush` than "os": elsewhere a thread does this, and the loop goes on
            token.run()
            self._tell(address, FlushDone(token))
        return bool(messages or calls or flushes)

    def _called(self, address: Address, session: MetadataStore, call: StoreCall) -> StoreResult:
        try:
            if call.verb == "watch":
                session.watch(call.argument, lambda path: self._tell(address, WatchFired(path)))
                return StoreResult(call.call)
            return StoreResult(call.call, getattr(session, call.verb)(call.argument))
        except ReplogError as error:
            return StoreResult(call.call, error=error)

    def pass_time(self, until_ms: int) -> None:
        """Go to the next moment for which somebody has plans, at the latest that one."""
        plans = [due for actor, _ in self.actors.values() if (due := actor.deadline_ms()) is not None and due > self.now_ms]
        self.now_ms = min([*plans, until_ms])
        self.settle()


class InWorld:
    """What a `Client` needs of a driver (`replog.client.driver.Driver`): one thread, and time that passes while it waits."""

    def __init__(self, world: World, core: ClientCore) -> None:
        self.world = world
        self.core = core
        self.lock: AbstractContextManager[Any] = RLock()
        self.changing: AbstractContextManager[Any] = nullcontext()
        self.closed = False
        world.seat(core.address, core)

    def now_ms(self) -> int:
        return self.world.now_ms

    wall_ms = now_ms

    def run(self) -> None:
        self.world.settle()

    def wait(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        end_ms = self.world.now_ms + (600_000 if timeout_s is None else int(timeout_s * 1_000))
        self.run()
        while not done() and self.world.now_ms < end_ms:
            self.world.pass_time(end_ms)
        return done()

    def wake(self) -> None: ...

    attend = expect = wake  # nobody else has to see to what was begun: the world does

    def unsent_to(self, broker: Address) -> int:
        return 0

    def close(self) -> None:
        self.closed = True


def main() -> None:
    world = World()
    for number in (1, 2, 3):
        world.start_broker(number, MemoryLogDirectory())  # or logs of your own
    core = ClientCore("me", config=ClientConfig(), ids=SeededIds(9), bootstrap=[1, 2, 3])
    client = Client(InWorld(world, core))
    client.create_topic("orders", replication_factor=3)
    for number in range(5):
        client.append("orders", 0, [f"order {number}"])
    leader = client.leader("orders", 0)
    print(f"after {world.now_ms} ms broker {leader} leads")
    world.kill_broker(leader)
    client.append("orders", 0, ["an order after a failover"])
    print(f"after {world.now_ms} ms broker {client.leader('orders', 0)} leads, and all is there:")
    for record in client.read("orders"):
        print(f"  {record.offset}: {record.text()}")
    print("what happened:", ", ".join(sorted(set(world.told))))


if __name__ == "__main__":
    main()
