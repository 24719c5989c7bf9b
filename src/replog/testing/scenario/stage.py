"""A stage of brokers whose controller is the script itself: every message can be held, every answer chosen.

Commands: `brokers A B C min_isr=2 flush=os lag=30s` begins; `state ...` stores and sends a partition's
state; `append`, `once`, `stage`, `publish`, `read`, `latest`, `epoch-end` are a client; `run`, `deliver`, `hold`, `release`, `drop`,
`repeat`, `cut`, `heal` are the network; `advance` is time; `crash`, `start`, `disk` are the machines; `answer`, `decide`, `stop`,
`fence` are the controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from replog.broker.broker import Broker
from replog.broker.commands import TOPIC_DELETED
from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code, UsageError
from replog.messages import Fetch, FetchEntry, Registered, StopEntry, StopReplica
from replog.model import Address, BrokerInfo, PartitionId
from replog.ports import LogDirectory, LogStart
from replog.records import RecordBatch
from replog.testing.scenario.client import batch_of
from replog.testing.scenario.commands import CommonCommands
from replog.testing.scenario.links import link
from replog.testing.scenario.names import Command, broker_id, code, code_name, letter, letters, milliseconds
from replog.testing.scenario.play import CLIENT, Place
from replog.testing.scenario.script import Script

__all__ = ["Stage"]

SCRIPT = "ctl"


class Stage(CommonCommands):
    """Brokers A, B, C ... (ids 1, 2, 3 ...), a client, and the script."""

    _fakes = 1_000_000
    """Requests of brokers that are not on stage; beyond any number that a real one reaches here."""

    def home_of_other(self, address: Address) -> str:
        """The client, the script, or somebody who is not there."""
        return CLIENT if address == CLIENT else SCRIPT if isinstance(address, tuple) else str(address)

    def heard(self, sender: Address, to: Address, message: Any) -> None:
        """The client or the script got a message."""
        if to == CLIENT:
            assert isinstance(sender, int)
            self.client.heard(sender, message)
        elif isinstance(to, tuple):
            self.script.heard(message)

    # ------------------------------------------------------------------------------------------------------- beginning

    def do_brokers(self, command: Command) -> None:
        """Begin: these brokers run, registered in life 1; nobody leads or follows anything."""
        lag_ms = milliseconds(command.take("lag", "30s"))
        fetch_bytes, slice_bytes = command.number("fetch", 1 << 20), command.number("slice", 1 << 20)
        self.config = BrokerConfig(
            replica_lag_ms_max=lag_ms,
            fetch_partition_bytes_max=fetch_bytes,
            publish_slice_bytes=slice_bytes,
            retention_check_ms=10**12,
        )
        config: dict[str, Any] = {"min_isr": command.number("min_isr", 1), "flush": command.take("flush", "os")}
        self.disks.limits = self.config
        ids = tuple(map(broker_id, command.words))
        command.words.clear()
        self.script = Script(self.names, TopicConfig.from_mapping(config), ids)
        for each in ids:
            self._open(each, self.disks.new(letter(each)), 1)
        self._send_views()

    def _open(self, number: int, directory: LogDirectory, life: int, *, fenced: bool = False) -> None:
        name = letter(number)
        broker = Broker(number, directory, config=self.config, ids=self.ids)
        self.places[name] = Place(name, broker, directory, {number: broker})
        self.script.registered[number] = BrokerInfo(number, life, fenced=fenced)
        broker.receive(None, Registered(number, life), self.clock.now_ms())
        self.telling.look(name, broker)

    def do_log(self, command: Command) -> None:
        """`log A m0.1 m1..m9.2 m10+m11.2 [start=0] [hw=0]`: give a broker this log before it is told anything."""
        place, identity = self.place(command.word("the broker")), self.of(command)
        (log,) = place.directory.create([LogStart(identity, "t", self.script.config)])
        start = command.number("start", 0)
        if start:
            log.reset_to(start)
        for text in command.words:
            names, _, epoch = text.rpartition(".")
            for name in _expanded(names):
                batch = RecordBatch(batch_of(name, self.clock.wall_ms()))
                batch.stamp(identity, log.end_offset, int(epoch))
                log.append(batch)
        command.words.clear()
        place.directory.high_watermarks[identity] = command.number("hw", start)

    # ------------------------------------------------------------------------------------------------------ controller

    def do_state(self, command: Command) -> None:
        """Store a state and send it (`to=A,B`; default: every running replica; `to=nobody`), then everyone's metadata."""
        identity = self.of(command)
        life = command.number("life", -1)
        to = command.take("to", "")
        complete = command.flag("complete")
        without = [self.names.partition(text) for text in command.take("without", "").split(",") if text]
        number = self.script.store(identity, command)
        listed = tuple(i for i in sorted(self.script.states) if i not in without) if complete else None
        self._send_notice(number, to, complete=listed, life=life)
        if to != "nobody":
            self._send_views()

    def _send_notice(self, number: int, to: str, *, complete: tuple[PartitionId, ...] | None = None, life: int = -1) -> None:
        identity = self.script.notices[number].partition
        if to:
            names = [] if to == "nobody" else to.split(",")
        else:
            names = [p.name for p in self.running() if p.broker.broker_id in self.script.assignment(identity).replicas]
        for name in names:
            message = self.script.notice(number, broker_id(name), complete=complete, life=None if life < 0 else life)
            self.hand_over(broker_id(name), ("controller", self.script.controller_id), message)

    def do_resend(self, command: Command) -> None:
        """`resend 0 to=B`: deliver the notice of the first state (number 0) once more, as it was."""
        number = int(command.word("the number of the notice"))
        self._send_notice(number, command.take("to", ""), life=command.number("life", -1))

    def do_controller(self, command: Command) -> None:
        """`controller 2 epoch=6`: another controller commands from now on (or an old one again)."""
        self.script.controller_id = int(command.word("the controller's broker id"))
        self.script.controller_epoch = command.number("epoch", self.script.controller_epoch + 1)

    def _send_views(self) -> None:
        for place in self.running():
            number = place.broker.broker_id
            one = (SCRIPT, place.name)
            if number in self.script.registered:
                arrives = self.post(number, ("controller", self.script.controller_id), self.script.view(number))
                if arrives and not self.links.is_held(one):
                    self.deliver(self.links.waiting.pop())

    def do_fence(self, command: Command) -> None:
        """Nobody may count on this broker (its lease is in doubt); everyone is told."""
        self._mark(command, lambda info: evolve(info, fenced=True))

    def do_unfence(self, command: Command) -> None:
        """The opposite."""
        self._mark(command, lambda info: evolve(info, fenced=False, draining=False))

    def do_drain(self, command: Command) -> None:
        """The broker is about to stop; everyone is told."""
        self._mark(command, lambda info: evolve(info, draining=True))

    def _mark(self, command: Command, mark: Callable[[BrokerInfo], BrokerInfo]) -> None:
        number = broker_id(command.word("the broker"))
        self.script.registered[number] = mark(self.script.registered[number])
        self._send_views()

    def do_forget(self, command: Command) -> None:
        """`forget t-0`: the script's store has this partition no more; everyone is told."""
        identity = self.names.partition(command.word("the partition"))
        del self.script.states[identity]
        self._send_views()

    def do_register(self, command: Command) -> None:
        """A running broker whose registration has ended is registered anew, in its next life; everyone is told."""
        place = self.place(command.word("the broker"))
        number, life = place.broker.broker_id, place.broker.broker_epoch + 1
        self.script.registered[number] = BrokerInfo(number, life)
        self.step(place, number, lambda: place.broker.receive(None, Registered(number, life), self.clock.now_ms()))
        self._send_views()

    def do_gone(self, command: Command) -> None:
        """The broker's registration has ended; everyone is told."""
        del self.script.registered[broker_id(command.word("the broker"))]
        self._send_views()

    def do_stop(self, command: Command) -> None:
        """`stop C epoch=6 [delete] [life=1]`: take a copy out of service; `epoch=topic` if its topic is deleted."""
        number, identity = broker_id(command.word("the broker")), self.of(command)
        epoch = command.take("epoch", "topic")
        entry = StopEntry(identity, TOPIC_DELETED if epoch == "topic" else int(epoch), command.flag("delete"))
        life = command.number("life", self.script.registered[number].broker_epoch)
        script = self.script
        notice = script.next_notice()
        message = StopReplica(script.controller_id, script.controller_epoch, life, notice, [entry], as_of=notice)
        self.hand_over(number, ("controller", script.controller_id), message)

    def do_answer(self, command: Command) -> None:
        """`answer A ok`, or an error's name; `top=` is an error of the whole request, `nr=0` the first proposal heard, not the newest."""
        sender = broker_id(command.word("the leader"))
        proposal = self.script.proposal(sender, command.number("nr", -1))
        top = code(command.take("top", "ok"))
        error = code(command.words.pop(0)) if command.words else Code.NONE
        self.hand_over(sender, ("controller", self.script.controller_id), self.script.answer(proposal, error, top=top))

    def do_decide(self, command: Command) -> None:
        """`decide A`: store and answer the proposal by the controller's own rules."""
        sender = broker_id(command.word("the leader"))
        answer = self.script.judge(self.script.proposal(sender, command.number("nr", -1)))
        for result in answer.entries:
            isr = f", ISR {letters(result.state.isr)}" if result.state is not None else ""
            self.say(f"the controller says {code_name(result.error) if result.error else 'yes'}{isr}")
        self.hand_over(sender, ("controller", self.script.controller_id), answer)

    # ---------------------------------------------------------------------------------------------------------- client

    def do_append(self, command: Command) -> None:
        """See `Client.append`."""
        to, identity = broker_id(command.word("the broker")), self.of(command)
        self.client.append(to, identity, command)

    def do_once(self, command: Command) -> None:
        """See `Client.once`."""
        to, identity = broker_id(command.word("the broker")), self.of(command)
        self.client.once(to, identity, command)

    def do_stage(self, command: Command) -> None:
        """See `Client.stage`."""
        to, identity = broker_id(command.word("the broker")), self.of(command)
        self.client.stage(to, identity, command)

    def do_publish(self, command: Command) -> None:
        """See `Client.publish`."""
        to, identity = broker_id(command.word("the broker")), self.of(command)
        self.client.publish(to, identity, command)

    def do_read(self, command: Command) -> None:
        """`read A 0 [epoch=1] [wait=500ms]`: what a client gets there, and below which high watermark."""
        to, offset = broker_id(command.word("the broker")), int(command.word("the offset"))
        wait_ms = milliseconds(command.take("wait", "0ms"))
        self.client.read(to, self.of(command), offset, leader_epoch=command.number("epoch", -1), wait_ms=wait_ms)

    def do_latest(self, command: Command) -> None:
        """`latest A`: the end of what is committed."""
        to = broker_id(command.word("the broker"))
        self.client.offset(to, self.of(command), "latest", command.number("epoch", -1))

    def do_epoch_end(self, command: Command) -> None:
        """`epoch-end A 2 [epoch=3]`: where epoch 2 ends, asked of a leader of epoch 3."""
        to, epoch = broker_id(command.word("the broker")), int(command.word("the epoch"))
        self.client.epoch_end(to, self.of(command), epoch, command.number("epoch", -1))

    def do_fetch(self, command: Command) -> None:
        """`fetch D>A offset=1 last=1 epoch=1 [life=1]`: one fetch of a broker that is not on stage; its answer is told."""
        source, target = link(command.word("the link"))
        identity = self.of(command)
        entry = FetchEntry(identity, command.number("epoch", 0), command.number("offset", 0), command.number("last", -1), 1 << 20)
        self._fakes += 1
        fetch = Fetch(self._fakes, broker_id(source), command.number("life", 1), 0, 0, 0, 1, 1 << 20, [entry])
        self.hand_over(broker_id(target), f"fake {source}", fetch)

    def do_trickle(self, command: Command) -> None:
        """`trickle A 40 every=1s behind=B [count=2]`: each round appends, then one round trip of B, whose fetch was made before that."""
        leader, rounds = broker_id(command.word("the leader")), int(command.word("the rounds"))
        every_ms, behind, count = milliseconds(command.take("every", "1s")), command.take("behind", "B"), command.number("count", 1)
        there, back = (behind, letter(leader)), (letter(leader), behind)
        self.links.hold(there)
        self.links.hold(back)
        identity = self.of(command)
        for number in range(rounds):
            for extra in range(count):
                self.client.append(leader, identity, Command("append", [f"r{number}-{extra}".ljust(600, ".")], {"acks": "0"}))
            for one in (there, back):
                for envelope in self.links.take(one):
                    self.deliver(envelope)
            self.pass_time(every_ms)
        self.links.release(there)
        self.links.release(back)
        self.said = [line for line in self.said if ": HW " not in line]

    # -------------------------------------------------------------------------------------------------------- machines

    def do_crash(self, command: Command) -> None:
        """`crash C [power]`: kill the process; with `power`, what was not flushed is lost."""
        self.end(self.place(command.word("the broker")), power=command.flag("power"))

    def do_start(self, command: Command) -> None:
        """`start C [wiped] [fenced]`: the next life of a broker, with what its disk still has; everyone is told."""
        name = command.word("the broker")
        place = self.places[name]
        if place.alive:
            raise UsageError(f"{name} runs already")
        number = broker_id(name)
        life = place.broker.broker_epoch + 1
        directory = self.disks.new(name, replaced=True) if command.flag("wiped") else self.disks.reopened(name)
        kept = [f"{self.names.text(i)} to {log.end_offset}" for i in directory.identities() if (log := directory.get(i)) is not None]
        self.say(f"{name} starts in life {life} with {', '.join(kept) or 'nothing'}")
        self._open(number, directory, life, fenced=command.flag("fenced"))
        self._send_views()

    # --------------------------------------------------------------------------------------------------------- looking

    def do_applied(self, command: Command) -> None:
        """`applied B`: the highest notice such that it and all before it were applied."""
        place = self.place(command.word("the broker"))
        self.say(f"{place.name} has applied notices up to {place.broker._commands.notice}")

    def do_why(self, command: Command) -> None:
        """`why A C`: why C may not join the ISR of leader A now."""
        place, other = self.place(command.word("the leader")), broker_id(command.word("the broker"))
        leading = place.broker.partitions[self.of(command)].leading
        assert leading is not None
        self.say(leading.refusal(leading.replicas[other], self.clock.now_ms()) or f"{letter(other)} may join")

    def do_caught_up(self, command: Command) -> None:
        """`caught-up A`: which followers count as caught up by the time rule."""
        place = self.place(command.word("the leader"))
        partition = place.broker.partitions[self.of(command)]
        assert partition.leading is not None
        limit, end, now = self.config.replica_lag_ms_max, partition.log.end_offset, self.clock.now_ms()
        for number, replica in sorted(partition.leading.replicas.items()):
            lags = replica.lags(end, partition.high_watermark, now, limit)
            self.say(f"{letter(number)} at {replica.end_offset} of {end} {'lags' if lags else 'is caught up'}")


def _expanded(names: str) -> list[str]:
    """`m1..m3` is m1, m2, m3."""
    first, dots, last = names.partition("..")
    if not dots:
        return [first]
    stem = first.rstrip("0123456789")
    return [f"{stem}{n}" for n in range(int(first.removeprefix(stem)), int(last.removeprefix(stem)) + 1)]
