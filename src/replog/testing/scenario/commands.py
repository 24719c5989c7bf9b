"""Commands of both kinds of stage: the network, time, disks, and looking at what is there."""

from __future__ import annotations

from replog.errors import UsageError
from replog.log.memory import MemoryLog
from replog.model import PartitionId
from replog.testing.scenario.client import Client
from replog.testing.scenario.disks import Disks
from replog.testing.scenario.links import link
from replog.testing.scenario.names import Command, milliseconds
from replog.testing.scenario.play import Play
from replog.testing.scenario.telling import shown

__all__ = ["CommonCommands"]


class CommonCommands(Play):
    """What a script may do without being the controller."""

    def __init__(self, disks: Disks | None = None) -> None:
        super().__init__(disks)
        self.client = Client(self)

    def of(self, command: Command) -> PartitionId:
        """The partition a command is about: t-0 unless it says `of=`."""
        identity = self.names.partition(command.take("of", "t-0"))
        known = {i for place in self.running() for i in place.broker.partitions} | {identity}
        self.telling.many = self.telling.many or len(known) > 1
        return identity

    # --------------------------------------------------------------------------------------------------------- network

    def do_run(self, command: Command) -> None:
        """Deliver until nothing is left that can be."""
        self.run()

    def do_deliver(self, command: Command) -> None:
        """`deliver A>B [1] [after=2]`: what waits there now (or the first so many; `after` so many that wait on), and nothing else."""
        taken = self.links.take(link(command.word("the link")))
        first = command.number("after", 0)
        end = first + int(command.words.pop(0)) if command.words else len(taken)
        if not taken[first:]:
            self.say("nothing waits there")
        self.links.waiting = taken[:first] + taken[end:] + self.links.waiting
        for envelope in taken[first:end]:
            self.deliver(envelope)

    def do_hold(self, command: Command) -> None:
        """Messages stay on the link."""
        self.links.hold(link(command.word("the link")))

    def do_release(self, command: Command) -> None:
        """They go on; `run` delivers them."""
        one = link(command.word("the link"))
        self.links.release(one)
        for envelope in [e for e in self.links.waiting if e.link[1] not in self.places and e.link[1] != "disk"]:
            if not self.links.is_held(envelope.link):
                self.links.waiting.remove(envelope)
                self.deliver(envelope)

    def do_drop(self, command: Command) -> None:
        """Lose what waits on the link."""
        self.say(f"{len(self.links.take(link(command.word('the link'))))} lost")

    def do_repeat(self, command: Command) -> None:
        """Double what waits on the link."""
        self.say(f"{self.links.repeat(link(command.word('the link')))} repeated")

    def do_cut(self, command: Command) -> None:
        """`cut A B`: nothing passes between them; `cut A>B`: one way."""
        first = command.word("a place")
        if ">" in first:
            self.links.cut(link(first))
            return
        second = command.word("the other place")
        self.links.cut((first, second))
        self.links.cut((second, first))

    def do_heal(self, command: Command) -> None:
        """Nothing is cut any more; `heal A>B`: this link is not."""
        self.links.heal(link(command.words.pop(0)) if command.words else None)

    def do_advance(self, command: Command) -> None:
        """Time passes; whatever can be delivered meanwhile is."""
        self.pass_time(milliseconds(command.word("the time")))

    def do_wall(self, command: Command) -> None:
        """`wall 365d`: the wall clock is set forward; the monotonic one is not."""
        self.clock.set_wall(self.clock.wall_ms() + milliseconds(command.word("the time")))

    # ----------------------------------------------------------------------------------------------------------- disks

    def do_flush(self, command: Command) -> None:
        """Make everything a broker has durable, as the operating system does some time."""
        place = self.place(command.word("the broker"))
        for identity in place.directory.identities():
            log = place.directory.get(identity)
            token = None if log is None else log.flush()
            if log is not None and token is not None:
                log.flushed(token.run())

    def do_checkpoint(self, command: Command) -> None:
        """Have a broker write its high watermarks."""
        self.place(command.word("the broker")).broker.upkeep.save()

    def do_disk(self, command: Command) -> None:
        """`disk C full|broken|flushes-fail|well`: what its next write or flush meets."""
        place, fault = self.place(command.word("the broker")), command.word("the fault")
        if fault not in ("full", "broken", "flushes-fail", "well"):
            raise UsageError(f"{fault!r} is not a fault; known are full, broken, flushes-fail, well")
        log = place.directory.get(self.of(command))
        if not isinstance(log, MemoryLog):
            raise UsageError(f"only logs in memory have faults to order; {place.name} has {log!r}")
        log.full, log.flushes_fail = fault == "full", fault == "flushes-fail"
        if fault == "broken":
            log.fail("the disk is broken")

    # --------------------------------------------------------------------------------------------------------- looking

    def do_logs(self, command: Command) -> None:
        """Every copy, as a line."""
        wanted = self.names.partition(command.keys.pop("of")) if "of" in command.keys else None
        for name in sorted(self.places):
            place = self.places[name]
            if not place.alive:
                self.say(f"{name} is down")
                continue
            for identity, partition in sorted(place.broker.partitions.items()):
                if wanted in (None, identity):
                    self.say(shown(self.telling.name(name, identity), partition))

    def do_disks(self, command: Command) -> None:
        """What a broker's disk holds, served or not."""
        for place in self.running():
            kept = [f"{self.names.text(i)} to {log.end_offset}" for i in place.directory.identities() if (log := place.directory.get(i))]
            put_away = [f"{self.names.text(i)} put away" for i in sorted(place.directory.quarantined())]
            self.say(f"{place.name} holds {', '.join(kept + put_away) or 'nothing'}")

    def do_lost(self, command: Command) -> None:
        """Whether the leader of the newest epoch has everything that acks=all has acknowledged."""
        identity = self.of(command)
        held = [p.broker.partitions[identity] for p in self.running() if identity in p.broker.partitions]
        leaders = [p for p in held if p.leading is not None]
        if not leaders:
            self.say("nobody leads")
            return
        missing = self.client.missing(max(leaders, key=lambda p: p.leader_epoch))
        self.say(f"lost: {', '.join(missing)}" if missing else "nothing acknowledged is lost")
