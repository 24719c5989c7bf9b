"""One broker of the simulated cluster: its storage and its clock outlive it, its three actors and their memory do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from replog.broker.broker import Broker
from replog.broker.membership import Membership
from replog.controller.executor import ControllerExecutor
from replog.messages import Admin, Disconnected, Produce, Publish, Registered, Stage
from replog.model import Address, PartitionId
from replog.ports import Actor, FlushDone, FlushToken, LogDirectory, Outbox, SessionChanged
from replog.testing.clock import SeededIds
from replog.testing.simulator.clocks import NodeClock
from replog.testing.simulator.flushes import Flushes
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.plan import stream
from replog.testing.simulator.racks import rack_of
from replog.testing.simulator.storage import FileStorage, MemoryStorage, Storage
from replog.testing.simulator.store import StoreLine

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["Node"]

_REPLACED_MS: Final = 300
"""After so long something starts a process again that could not go on."""
_UNSURE: Final = 0.5
"""Share of store calls whose outcome gets lost under the fault of that name."""
_POLLED: Final = 0.5
"""Share of messages after which an actor does not get its turn at once, where it is polled."""
_SLOW_STORE_MS: Final = 1_000
"""So much later may answers of a slow store be."""


class Node:
    """A machine that runs one broker process at a time. `life` counts the processes."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.life = 0
        self.alive = False
        self.actors: dict[Address, Actor] = {}
        shape, seed = world.plan.shape, world.plan.seed
        disk = stream(seed, f"directory {broker_id}")
        self.storage: Storage = FileStorage(world.config, disk) if shape.files else MemoryStorage(world.config, disk)
        clock = stream(seed, f"clock {broker_id}")
        drift = shape.drift
        self.clock = NodeClock(clock.randint(0, 5_000), 1 + clock.uniform(-drift, drift)) if drift else NodeClock()
        self.wall_offset_ms = 0
        self.paused = 0
        self.slow = {"flush": 0, "starve": 0, "unsure": 0, "slow_store": 0}
        """Kind of slowness -> how many faults of that kind are on."""
        self.store_cuts = 0
        self.line: StoreLine | None = None
        self.session = -1
        """The number of that line, among all of the run."""
        self.broker: Broker | None = None
        self.controller: ControllerExecutor | None = None
        self._backlog: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        self._wakes: dict[Address, int] = {}
        self._failing = False
        self._failed_lives = 0
        """So many in a row have ended because a disk was spoiled."""
        self._armed: set[str] = set()
        self.lied = False
        """Whether the present disk has ever put a write elsewhere or nowhere."""
        self.came_back: set[PartitionId] = set()
        """Copies that it had dropped before its disk was put back to an image that has them."""
        self._hurt = False
        """Whether anything has ever happened to its disk."""
        self._failed_reads = 0
        """The last process whose reads may have failed; the first is 1."""
        self._chance = stream(seed, f"node {broker_id}")
        self._outcomes = stream(seed, f"outcomes of flushes {broker_id}")
        self._turns = stream(seed, f"slices {broker_id}")
        self._polls = stream(seed, f"polls {broker_id}")
        self._polled: set[Address] = set()
        """Actors that were handed messages, and get their turn soon."""
        self.flushes = Flushes(self)

    @property
    def directory(self) -> LogDirectory:
        """As the present process has it, or as the next one will find it."""
        return self.storage.directory

    # ------------------------------------------------------------------------------------------------------- its life

    def start(self) -> None:
        """A new process on what the data directory holds."""
        world, broker_id = self.world, self.broker_id
        if self.alive or broker_id in world.absent:
            return
        self.life += 1
        self.alive = True
        self._failing = False
        config = world.config
        ids = SeededIds(stream(world.plan.seed, f"ids {broker_id} {self.life}").getrandbits(63))
        directory = self.directory
        self.broker = Broker(broker_id, directory, config=config, ids=ids)
        identity, incarnation, loss = directory.directory_id, directory.incarnation, directory.loss
        said: dict[str, Any] = {"directory_id": identity, "loss": loss, "incarnation": incarnation}
        membership = Membership(broker_id, config=config, ids=ids, rack=rack_of(world.plan.shape.racks, broker_id), **said)
        self.controller = ControllerExecutor(broker_id, config=config, ids=ids)
        self.actors = {broker_id: self.broker, ("membership", broker_id): membership, ("controller", broker_id): self.controller}
        self._wakes = {}
        self._polled.clear()
        world.note(f"broker {broker_id} starts, life {self.life}, loss {directory.loss.kind}")
        world.marks.hit(f"a broker starts with loss {directory.loss.kind}")
        self._connect()
        for address in self.actors:
            self.soon(0, self._tick, address)

    def kill(self) -> None:
        """The process ends; the store finds out by its session, the others by silence."""
        self.end("kill")

    def stop(self) -> None:
        """The process ends as it should: everything is flushed, the directory is left clean."""
        self.end("clean")

    def end(self, how: str) -> None:
        """The process ends, and its directory is left as the storage says of `how` (see `Storage.end`)."""
        if not self.alive:
            return
        world = self.world
        self.alive = False
        self.actors, self.broker, self.controller = {}, None, None
        self._backlog.clear()
        if self.line is not None:
            world.at(1 if how == "clean" else world.plan.shape.session_ms, self._expire, self.line, self.session)
            self.line = None
        failing, self._failing = self._failing, False
        self._failed_lives = self._failed_lives + 1 if failing else 0
        self.doubt()
        self._armed.clear()
        self.flushes.end(how)
        identity, held = self.directory.directory_id, self.directory.identities()
        self.storage.end(how)
        if world.checks.robbed(self, how):  # a disk lied about the last write, and nobody can tell: somebody puts in a new one
            world.marks.hit("a machine is replaced that could not know")
            self.storage.end("wipe")
        if how == "restore":
            self.came_back.update(set(self.directory.identities()).difference(held))
        self.lied = self.lied and self.directory.directory_id == identity
        world.note(f"broker {self.broker_id} ends: {how}")
        lossy = how in ("power", "wipe", "restore") or failing or bool(self.directory.loss.lossy) or self.directory.directory_id != identity
        world.checks.reopened(self, lossy=lossy)
        self.disconnect_all()

    def disconnect_all(self) -> None:
        """Its connections break; some of the others hear of it, soon."""
        world = self.world
        for node in world.nodes.values():
            if node is not self and node.alive and self._chance.random() < 0.5 and world.network.reaches(self.broker_id, node.broker_id):
                for address in (self.broker_id, ("controller", self.broker_id)):
                    node.later(self._chance.randint(0, 40), node.broker_id, None, Disconnected(address))
                if self.alive:
                    self.later(self._chance.randint(0, 40), self.broker_id, None, Disconnected(node.broker_id))
        for client in world.clients.values():
            if self._chance.random() < 0.5:
                world.at(self._chance.randint(0, 40), client.deliver, 0, client.address, None, Disconnected(self.broker_id))

    def _restart(self) -> None:
        """Somebody starts it again. If that did not help against a spoiled disk, the handbook says: with an empty folder on another one."""
        if self._failing and self._failed_lives and self.world.checks.may_lose(self.broker_id):
            self.world.note(f"broker {self.broker_id} fails again")
            self.end("wipe")
        else:
            self.kill()
        self.world.at(_REPLACED_MS, self.start)

    def heal(self) -> None:
        """Every fault on this node is over, and its process runs."""
        self.slow = dict.fromkeys(self.slow, 0)
        line = self.line
        if line is not None:
            self._trouble(line)
        if self.store_cuts:
            self.cut_store(-self.store_cuts)
        elif line is not None and not line.reachable:
            self.outage(over=True)
        if self.paused:
            self.pause(-self.paused)
        for kind in sorted(self._armed):
            self._disarm(kind, self.life)
        self.start()

    # -------------------------------------------------------------------------------------------------------- the disk

    def damage(self, kind: str, length_ms: int) -> bool:
        """A fault of the disk begins; whether there is anything that it can befall."""
        if not self.alive or kind in self._armed:
            return False
        self._hurt = True
        if kind == "flip":
            flipped = self.storage.flip()
            if flipped:
                self.world.checks.tampered(self.broker_id, None)
            return flipped
        if not self.storage.arm(kind):
            return False
        self._armed.add(kind)
        if kind == "read_error":
            self._failed_reads = self.life
        self.lied = self.lied or self.lies
        self.doubt()
        self.world.at(length_ms, self._disarm, kind, self.life)
        return True

    @property
    def reads_fail(self) -> bool:
        """Whether the disk has failed to give back something in the life of this process: then it need not know where work begins."""
        return self._failed_reads == self.life

    @property
    def lies(self) -> bool:
        """Whether its disk says of writes that they were made, and puts them elsewhere or nowhere."""
        return not self._armed.isdisjoint(("stale_write", "misdirect"))

    def doubt(self) -> None:
        """If the disk lies now, what it is given now may not be there later: also copies that were not there when it began."""
        if self.lies:
            self.world.checks.tampered(self.broker_id, None)

    def _disarm(self, kind: str, life: int) -> None:
        if life == self.life and kind in self._armed:
            self.doubt()
            self._armed.discard(kind)
            self.storage.disarm(kind)

    def _connect(self) -> None:
        world = self.world
        life = self.life
        line = StoreLine(
            world,
            f"{self.broker_id}.{life}",
            world.root.session(),
            lambda address, message: self.deliver(life, address, None, message),
            chance=stream(world.plan.seed, f"store {self.broker_id} {world.sessions}"),
        )
        self.session = world.sessions
        world.sessions += 1
        line.reachable = not self.store_cuts and not world.nemesis.outage
        self.line = line
        self._trouble(line)
        self._tell_session("connected")

    def _tell_session(self, state: Any) -> None:
        for address in (("membership", self.broker_id), ("controller", self.broker_id)):
            self.soon(0, self._handle, address, None, SessionChanged(state))

    # ------------------------------------------------------------------------------------------------------- the store

    def trouble(self, kind: str, step: int) -> None:
        """A time begins (1) or ends (-1) in which the store is slow, or its outcomes get lost, for the present session and later ones."""
        self.slow[kind] += step
        if self.line is not None:
            self._trouble(self.line)

    def _trouble(self, line: StoreLine) -> None:
        shape = self.world.plan.shape
        line.unsure = 0.0 if self.world.calm else _UNSURE if self.slow["unsure"] else shape.unsure
        line.slow_ms = _SLOW_STORE_MS if self.slow["slow_store"] else 0

    def expire(self) -> bool:
        """The store ends the session of the running process, which hears of it when it reaches the store again; whether there was one."""
        line = self.line
        if line is None or line.ended:
            return False
        self._expire(line, self.session)
        self.soon(self._chance.randint(1, 300), self._hear_of_the_end, line)
        return True

    def _expire(self, line: StoreLine, session: int) -> None:
        line.expire()
        self.world.wishes.ended(session)

    def _hear_of_the_end(self, line: StoreLine) -> None:
        if line is self.line and line.ended and line.reachable:
            self._tell_session("lost")
            self.soon(self._chance.randint(1, 300), self._reconnect, line)

    def _reconnect(self, line: StoreLine) -> None:
        if line is self.line:
            self._connect()

    def cut_store(self, step: int) -> None:
        """Begin (1) or end (-1) a time in which the store is not reached; a session does not survive a long one."""
        self.store_cuts += step
        line = self.line
        if line is None:
            return
        if step > 0:
            line.reachable = False
            self._tell_session("suspended")
        elif not self.store_cuts and not self.world.nemesis.outage and not line.reachable:
            self._mend(line)

    def outage(self, *, over: bool) -> None:
        """The store is down for everybody: no session ends meanwhile."""
        line = self.line
        if line is None:
            return
        if not over:
            line.reachable = False
            self._tell_session("suspended")
        elif not self.store_cuts and not line.reachable:
            self._mend(line)

    def _mend(self, line: StoreLine) -> None:
        line.mend()
        if line.ended:
            self.soon(self._chance.randint(1, 100), self._hear_of_the_end, line)
        else:
            self._tell_session("connected")

    # ------------------------------------------------------------------------------------------------------ its actors

    def pause(self, step: int) -> None:
        """Stand still (1), or go on (-1) with all that has come meanwhile."""
        self.paused += step
        if not self.paused:
            backlog, self._backlog = self._backlog, []
            for life, what, args in backlog:
                self.world.at(0, self._run, life, what, *args)

    def later(self, delay_ms: int, address: Address, sender: Address, message: Any) -> None:
        """Deliver a message to the present process after a delay."""
        self.world.at(delay_ms, self.deliver, self.life, address, sender, message)

    def deliver(self, life: int, address: Address, sender: Address, message: Any) -> None:
        """A message arrives; it was meant for one process, and is lost with it."""
        self._run(life, self._handle, address, sender, message)

    def soon(self, delay_ms: int, what: Callable[..., None], *args: Any) -> None:
        """Have the present process do something after a delay."""
        self.world.at(delay_ms, self._run, self.life, what, *args)

    def _run(self, life: int, what: Callable[..., None], *args: Any) -> None:
        if not self.alive or life != self.life:
            return
        if self.paused:
            self._backlog.append((life, what, args))
        else:
            what(*args)

    def _handle(self, address: Address, sender: Address, message: Any) -> None:
        world = self.world
        world.trace_message(address, sender, message)
        kind = type(message)
        if kind is Produce:
            world.checks.asked(sender, message)
        elif kind is Stage:
            world.checks.staged(sender, message)
        elif kind is Publish:
            world.checks.claimed(sender, message)
        elif kind is Admin:
            self._hear_wish(address, sender, message)
        elif kind is Registered:
            world.checks.registered(self.broker_id, message.broker_epoch)
        world.checks.received(self, address, sender, message)
        actor = self.actors[address]
        try:
            actor.receive(sender, message, self.clock.now(world.now_ms))
        except Exception as problem:
            raise Violation("crash", f"{address} at {type(message).__name__}: {problem!r}") from problem
        wait_ms = world.plan.shape.poll_ms
        if wait_ms and self._polls.random() < _POLLED:
            if actor is self.broker:
                world.checks.look(self)
            self._drain(address, actor)  # a driver sends what an actor says at once, and gives it its turn when nothing more has come
            if address not in self._polled:
                self._polled.add(address)
                self.soon(self._polls.randint(0, wait_ms), self._turn, address)
        else:
            self._tick(address)

    def _turn(self, address: Address) -> None:
        """An actor that was handed messages gets its turn, unless it has had one since."""
        if address in self._polled:
            self._tick(address)

    def _hear_wish(self, address: Address, sender: Address, wish: Admin) -> None:
        """Who is not in office does nothing with a wish but to refuse it."""
        if address == self.broker_id or (self.controller is not None and self.controller.is_controller):
            self.world.wishes.heard(address, sender, wish, self.session)

    def _tick(self, address: Address) -> None:
        world = self.world
        self._polled.discard(address)
        actor = self.actors[address]
        try:
            actor.tick(self.clock.now(world.now_ms), world.wall_ms + self.wall_offset_ms)
        except Exception as problem:
            raise Violation("crash", f"{address} at a tick: {problem!r}") from problem
        if actor is self.broker:
            world.checks.look(self)
        self._drain(address, actor)
        due = actor.deadline_ms()
        if due is not None:
            wake = self._wakes.get(address)
            if wake is None or due < wake:
                self._wakes[address] = due
                late = self._chance.randint(0, 500) if self.slow["starve"] else 0
                if address == self.broker_id and self._slices(due):
                    late += self._turns.randint(0, world.plan.shape.slice_ms)
                self.soon(self.clock.delay_until(due, world.now_ms) + late, self._wake, address, due)

    def _wake(self, address: Address, due_ms: int) -> None:
        if self._wakes.get(address) == due_ms:
            del self._wakes[address]
            sliced = address == self.broker_id and self._slices(due_ms)
            self._tick(address)
            again = self._wakes.get(address)
            if sliced or (again is not None and address == self.broker_id and self._slices(again)):
                return  # the next slice is due at once
            if again is not None and again <= due_ms:  # a driver would spin
                raise Violation("S21", f"{address} was woken at its deadline of {due_ms} ms, and still has one at {again}")

    def _slices(self, due_ms: int) -> bool:
        """Whether it is the next slice of a publication that is due then, or there are more fetches to answer than one turn takes."""
        if self.broker is None:
            return False
        parked = self.broker._sessions.parked
        return self.broker._publishing.due_ms == due_ms or (parked.is_behind and parked.due_ms == due_ms)

    def _drain(self, address: Address, actor: Actor) -> None:
        outbox, world = actor.outbox, self.world
        if outbox.messages:
            messages, outbox.messages = outbox.messages, []
            sent = world.checks.sent if actor is self.broker else None
            for to, message in messages:
                if sent is not None:
                    sent(self, to, message)
                world.send(address, to, message)
        if outbox.calls:
            calls, outbox.calls = outbox.calls, []
            for call in calls:
                assert self.line is not None
                self.line.call(address, call)
        if outbox.flushes:
            flushes, outbox.flushes = outbox.flushes, []
            for token in flushes:
                self._flush(token)
        if outbox.events:
            self._tell(outbox)

    def _tell(self, outbox: Outbox) -> None:
        """What an actor found worth telling."""
        world = self.world
        events, outbox.events = outbox.events, []
        for event in events:
            world.note_event(self.broker_id, event)
            gives_up = event.name in ("replica_failed", "directory_failed")
            if gives_up and not self._hurt:
                raise Violation("S22", f"broker {self.broker_id} gives a copy up, and nothing ever happened to its disk: {event.fields}")
            if (gives_up or event.name == "membership_refused") and not self._failing:
                # Its process ends with an error, or a person sees that a disk has failed; something starts it again.
                self._failing = gives_up
                self.soon(_REPLACED_MS, self._restart)

    def _flush(self, token: FlushToken) -> None:
        delay = self._chance.randint(100, 2_000) if self.slow["flush"] else self._chance.randint(0, 10)
        if self.world.plan.shape.flush_takes_ms:
            self.flushes.ask(token, delay)
        else:
            self.soon(delay, lambda: self.flushed(token.run()))

    def flushed(self, token: FlushToken) -> None:
        """The disk has done it, or has failed; the broker hears of it, now or later."""
        done, late_ms = FlushDone(token), self.world.plan.shape.flush_heard_ms
        if late_ms:
            self.soon(self._outcomes.randint(0, late_ms), self._handle, self.broker_id, None, done)
        else:
            self._handle(self.broker_id, None, done)
