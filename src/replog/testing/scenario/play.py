"""Actors on a stage: places that hold them, links between the places, one clock; every step is checked and told.

A place is a process: a broker with whatever runs beside it. Nothing happens by itself: a message is delivered by a command,
and time passes by a command. The same commands give the same transcript on any machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from attrs import define

from replog.broker.broker import Broker
from replog.errors import UsageError
from replog.metadata.memory import MemoryStore
from replog.model import Address
from replog.ports import Actor, FlushDone, FlushToken, LogDirectory, StoreCall
from replog.testing.clock import ManualClock, SeededIds
from replog.testing.scenario.disks import Disks, MemoryDisks
from replog.testing.scenario.links import Envelope, Links
from replog.testing.scenario.names import Command, Names, letter
from replog.testing.scenario.telling import Telling

__all__ = ["Place", "Play"]

CLIENT = "client"
DISK = "disk"
STORE = "store"
COMMIT = "commit"
_WITHIN = (DISK, STORE, COMMIT)
"""Where a process sends work to: such a link ends with its process."""
_STEPS_MAX = 20_000
"""More deliveries than this in one command: the actors keep each other busy for ever."""


@define(eq=False)
class Place:
    """One process."""

    name: str
    broker: Broker
    directory: LogDirectory
    actors: dict[Address, Actor]
    store: MemoryStore | None = None
    paused: bool = False
    alive: bool = True


class Play(ABC):
    """What both kinds of stage share: delivering, time, and what went on."""

    def __init__(self, disks: Disks | None = None) -> None:
        """Logs are kept in memory unless `disks` says otherwise."""
        self.disks = disks or MemoryDisks()
        self.clock = ManualClock(now_ms=3_600_000)  # of a machine that has been up for an hour
        self.ids = SeededIds(1)
        self.names = Names()
        self.links = Links()
        self.places: dict[str, Place] = {}
        self.said: list[str] = []
        self.telling = Telling(self.names, self.say)

    def say(self, line: str) -> None:
        """Add to the transcript of the command under way."""
        self.said.append(line)

    def perform(self, text: str) -> list[str]:
        """Run one command; returns its transcript. Equal lines are told once, with their number."""
        command = Command.parse(text)
        verb = getattr(self, f"do_{command.verb.replace('-', '_')}", None)
        if verb is None:
            known = sorted(name.removeprefix("do_").replace("_", "-") for name in dir(self) if name.startswith("do_"))
            raise UsageError(f"unknown command {command.verb!r}; known are {', '.join(known)}")
        self.said = []
        verb(command)
        command.finished()
        self.after()
        counts: dict[str, int] = {}
        for line in self.said:
            counts[line] = counts.get(line, 0) + 1
        return [line if count == 1 else f"{line}  (x{count})" for line, count in counts.items()]

    def after(self) -> None:  # noqa: B027 - a stage may leave it at that
        """The end of each command."""

    # --------------------------------------------------------------------------------------------------------- places

    def place(self, name: str) -> Place:
        """A running broker's place. UsageError if it is down."""
        place = self.places.get(name)
        if place is None or not place.alive:
            raise UsageError(f"{name} does not run; running are {', '.join(p.name for p in self.running()) or 'none'}")
        return place

    def running(self) -> list[Place]:
        """Places that are alive, by name."""
        return [self.places[name] for name in sorted(self.places) if self.places[name].alive]

    def end(self, place: Place, *, power: bool) -> None:
        """Kill a process: what it was about to hear, and what it said to itself or its disk, is lost."""
        place.alive = False
        self.disks.end(place.name, power=power)
        within = [(place.name, target) for target in _WITHIN]
        self.links.waiting = [e for e in self.links.waiting if e.link[1] != place.name and e.link not in within]
        self.telling.forget(place.name)

    def home(self, address: Address) -> str:
        """The place where an actor lives."""
        if isinstance(address, int):
            return letter(address)
        return self.home_of_other(address)

    @abstractmethod
    def home_of_other(self, address: Address) -> str:
        """The same for whatever is not a broker."""

    # ------------------------------------------------------------------------------------------------------ messages

    def post(self, to: Address, sender: Address, message: Any) -> bool:
        """Put a message on its link; False if that is cut. To people and scripts it is handed over at once unless the link is held."""
        one = (self.home(sender), self.home(to))
        envelope = Envelope(one, to, sender, message)
        if one[1] not in self.places and not self.links.is_held(one):
            reaches = self.links.post(envelope)
            if reaches:
                self.links.waiting.remove(envelope)
                self.heard(sender, to, message)
            return reaches
        return self.links.post(envelope)

    def hand_over(self, to: Address, sender: Address, message: Any) -> None:
        """A command's own message: delivered before the command ends, unless its link is held or the process cannot take it."""
        one = (self.home(sender), self.home(to))
        place = self.places.get(one[1])
        if place is None or not place.alive:
            self.say(f"{one[1]} is down")
            return
        if not self.post(to, sender, message):
            self.say(f"lost on {one[0]}>{one[1]}")
        elif not self.links.is_held(one) and not place.paused:
            self.deliver(self.links.waiting.pop())

    @abstractmethod
    def heard(self, sender: Address, to: Address, message: Any) -> None:
        """Somebody who is not on stage got a message."""

    def deliver(self, envelope: Envelope) -> None:
        """Hand over one message, whatever its link says."""
        source, target = envelope.link
        if target == DISK:
            target = source
            envelope.message = FlushDone(envelope.message.run())
        place = self.places.get(target)
        if place is None:
            self.heard(envelope.sender, envelope.to, envelope.message)
        elif place.alive and envelope.to in place.actors:
            actor = place.actors[envelope.to]
            self.step(place, envelope.to, lambda: actor.receive(envelope.sender, envelope.message, self.clock.now_ms()))

    def step(self, place: Place, address: Address, work: Callable[[], None]) -> None:
        """Let one actor do something, to its end: then look at every invariant, at what has changed, and at its outbox."""
        actor = place.actors[address]
        work()
        actor.tick(self.clock.now_ms(), self.clock.wall_ms())
        for partition in place.broker.partitions.values():
            partition.check()
        self.telling.look(place.name, place.broker)
        self._drain(place, address, actor)

    def _drain(self, place: Place, address: Address, actor: Actor) -> None:
        outbox = actor.outbox
        for event in _taken(outbox.events):
            self.event(place, event.name, event.fields)
        for to, message in _taken(outbox.messages):
            self.telling.sent(place.name, self.home(to), message)
            self.post(to, address, message)
        for call in _taken(outbox.calls):
            self.call(place, address, call)
        for token in _taken(outbox.flushes):
            self._flush(place, address, token)

    def _flush(self, place: Place, address: Address, token: FlushToken) -> None:
        self.links.post(Envelope((place.name, DISK), address, address, token))

    def event(self, place: Place, name: str, fields: dict[str, Any]) -> None:  # noqa: B027 - a stage may say nothing of it
        """An actor has something to tell a person."""

    def call(self, place: Place, address: Address, call: StoreCall) -> None:
        """An actor wants something of the store; where there is none, nobody does."""
        raise AssertionError(f"{place.name} has no store")

    # ---------------------------------------------------------------------------------------------------- running, time

    def run(self) -> None:
        """Deliver until nothing is left that can be."""
        for _ in range(_STEPS_MAX):
            envelope = self.links.next(self._can_take)
            if envelope is None:
                return
            self.deliver(envelope)
        raise UsageError(f"more than {_STEPS_MAX} messages in one run")

    def _can_take(self, envelope: Envelope) -> bool:
        source, target = envelope.link
        place = self.places.get(source if target == DISK else target)
        return place is None or not place.paused

    def pass_time(self, ms: int) -> None:
        """Let time pass, from timer to timer; whatever can be delivered meanwhile is."""
        end = self.clock.now_ms() + ms
        self.run()
        while True:
            now = self.clock.now_ms()
            due = min((d for d in self._deadlines() if d is not None), default=end)
            if max(due, now + 1) > end:
                break
            self.clock.advance(max(due, now + 1) - now)
            self._tick()
        self.clock.advance(end - self.clock.now_ms())
        self._tick()

    def _deadlines(self) -> list[int | None]:
        return [actor.deadline_ms() for place in self.running() if not place.paused for actor in place.actors.values()]

    def _tick(self) -> None:
        for place in self.running():
            for address, actor in list(place.actors.items()):
                due = actor.deadline_ms()
                if not place.paused and due is not None and due <= self.clock.now_ms():
                    self.step(place, address, _nothing)
        self.run()


def _nothing() -> None:
    """Only the tick that follows every step."""


def _taken(items: list[Any]) -> list[Any]:
    taken = items[:]
    items.clear()
    return taken
