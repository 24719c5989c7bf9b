"""A stage with a real controller: each process holds a broker, its membership and a controller, over one store in memory.

Commands: `cluster A B C lag=30s` begins; `create`, `delete`, `add`, `remove` are wishes of a client; `append t-0 m0 [at=A]`, `read`,
`latest`, `epoch-end` go to the leader the store names, or `at=` another broker; `kill`, `start`, `pause`, `resume`, `expire` are the
processes and their sessions; `state`, `controller`, `store` look at the store. After each command everything that can be
delivered is. What a process asks of the store travels on the link `A>store`, its transactions on `A>commit`: they can be held
like any message.
"""

from __future__ import annotations

from typing import Any

from replog.broker.broker import Broker
from replog.broker.membership import Membership
from replog.config import BrokerConfig
from replog.controller.executor import ControllerExecutor
from replog.errors import ReplogError, UsageError
from replog.messages import Admin, AdminAnswer, Leave
from replog.metadata import layout
from replog.metadata.memory import MemoryStore
from replog.model import Address, PartitionId, PartitionState
from replog.ports import Actor, Delete, LogDirectory, SessionChanged, StoreCall, StoreResult, UnknownOutcome, WatchFired
from replog.testing.scenario.commands import CommonCommands
from replog.testing.scenario.disks import Disks
from replog.testing.scenario.links import Envelope
from replog.testing.scenario.names import Command, broker_id, broker_ids, code_name, letter, letters, milliseconds
from replog.testing.scenario.play import CLIENT, COMMIT, STORE, Place

__all__ = ["ClusterStage"]


class ClusterStage(CommonCommands):
    """Processes A, B, C ..., a store, and a client that knows everything."""

    def __init__(self, disks: Disks | None = None) -> None:
        super().__init__(disks)
        self.root = MemoryStore()
        self.config = BrokerConfig()
        self._requests = 0
        self._wishes: dict[int, str] = {}
        self._topics: dict[str, str] = {}
        self._stored: dict[str, PartitionState | None] = {}
        self._left_behind: dict[str, MemoryStore] = {}
        self._unsure: dict[str, str] = {}
        self._deaf: dict[str, None] = {}

    def after(self) -> None:
        """Nothing stays undelivered that can be delivered."""
        self.run()

    def home_of_other(self, address: Address) -> str:
        """The process, or the client."""
        if isinstance(address, tuple):
            return letter(address[1])
        return CLIENT if address == CLIENT else str(address)

    def heard(self, sender: Address, to: Address, message: Any) -> None:
        """The client got an answer."""
        if isinstance(message, AdminAnswer):
            wish = self._wishes[message.request]
            topic_id = message.result.get("topic_id")
            if not message.error and topic_id is not None and wish.startswith("create"):
                label = self.names.add(wish.split()[1], bytes.fromhex(topic_id))
                self._topics[label] = wish.split()[1]
            results = message.result.get("errors") or (message.result.get("partitions") if wish.startswith("elect") else ())
            errors = [message.error] if message.error else [code for *_, code, _ in results or () if code]
            self.say(f"{wish}: {', '.join(map(code_name, errors)) or 'done'}")
        elif to == CLIENT:
            assert isinstance(sender, int)
            self.client.heard(sender, message)

    # ------------------------------------------------------------------------------------------------------- processes

    def do_cluster(self, command: Command) -> None:
        """Begin: these processes run, have registered, and have a controller."""
        lag_ms = milliseconds(command.take("lag", "30s"))
        self.config = BrokerConfig(replica_lag_ms_max=lag_ms, retention_check_ms=10**12)
        self.disks.limits = self.config
        for name in command.words:
            self._open(name, self.disks.new(name))
        command.words.clear()
        self.pass_time(1_000)
        self.said = []
        self.do_controller(command)

    def _open(self, name: str, directory: LogDirectory) -> None:
        number = broker_id(name)
        broker = Broker(number, directory, config=self.config, ids=self.ids)
        identity, incarnation, loss = directory.directory_id, directory.incarnation, directory.loss
        membership = Membership(number, config=self.config, ids=self.ids, directory_id=identity, loss=loss, incarnation=incarnation)
        controller = ControllerExecutor(number, config=self.config, ids=self.ids)
        actors: dict[Address, Actor] = {number: broker, ("membership", number): membership, ("controller", number): controller}
        self.places[name] = Place(name, broker, directory, actors)
        self._connect(self.places[name])

    def _connect(self, place: Place) -> None:
        """Open a session, and tell everyone in the process who has use for it."""
        place.store = self.root.session()
        place.store.on_session(lambda state: self._session_changed(place, state))
        self._tell_session(place, "connected")

    def _tell_session(self, place: Place, state: Any) -> None:
        for address in place.actors:
            if address != place.broker.broker_id:
                self.post(address, address, SessionChanged(state))

    def _session_changed(self, place: Place, state: Any) -> None:
        """The store has ended the session. The process hears it after all that it has been sent before, and opens another."""
        if place.alive:
            self._tell_session(place, state)
            self.links.post(Envelope((place.name, place.name), None, None, lambda: self._connect(place)))

    def deliver(self, envelope: Envelope) -> None:
        """To an actor, or to the store."""
        source, target = envelope.link
        if target in (STORE, COMMIT):
            self._at_store(self.places[source], envelope)
        elif callable(envelope.message):
            envelope.message()
        else:
            super().deliver(envelope)

    def do_kill(self, command: Command) -> None:
        """`kill A [power] [quietly]`: the process ends as by SIGKILL; its session ends too, unless `quietly`: then by `expire A`."""
        place = self.place(command.word("the process"))
        assert place.store is not None
        quietly, store = command.flag("quietly"), place.store
        self.end(place, power=command.flag("power"))
        if quietly:
            self._left_behind[place.name] = store
        else:
            store.close()

    def do_stop(self, command: Command) -> None:
        """`stop A`: a clean stop: everything flushed, the marker left, the session ended."""
        place = self.place(command.word("the process"))
        assert place.store is not None
        place.broker.upkeep.save()
        place.directory.close(clean=True)
        self.end(place, power=False)
        place.store.close()

    def do_start(self, command: Command) -> None:
        """`start A [wiped]`: the next life, with what the disk still has."""
        name = command.word("the process")
        place = self.places[name]
        if place.alive:
            raise UsageError(f"{name} runs already")
        if command.flag("wiped"):
            self.say(f"{name} starts with another disk, and nothing on it")
            self._open(name, self.disks.new(name, replaced=True))
            return
        directory = self.disks.reopened(name)
        kept = [f"{self._label(i)} to {log.end_offset}" for i in directory.identities() if (log := directory.get(i)) is not None]
        lossy = [self._label(i) for i in directory.loss.lossy]
        loss = f"; may have lost records of {', '.join(lossy)}" if lossy else ""
        self.say(f"{name} starts with {', '.join(kept) or 'nothing'} (last life: {directory.loss.kind}{loss})")
        self._open(name, directory)

    def _label(self, identity: PartitionId) -> str:
        return self.names.text(identity)

    def do_pause(self, command: Command) -> None:
        """The process stands still: it gets nothing, its timers do not run; its session lives on until `expire`."""
        self.place(command.word("the process")).paused = True

    def do_resume(self, command: Command) -> None:
        """It goes on, with everything that has come for it meanwhile."""
        self.place(command.word("the process")).paused = False

    def do_expire(self, command: Command) -> None:
        """`expire A`: the store ends the session of a process, or the one that a killed process left."""
        name = command.word("the process")
        store = self._left_behind.pop(name, None) or self.place(name).store
        assert store is not None
        store.expire()

    # ----------------------------------------------------------------------------------------------------------- store

    def call(self, place: Place, address: Address, call: StoreCall) -> None:
        """Put a call on its way to the store, under the session of now."""
        target = COMMIT if call.verb.startswith("commit") else STORE
        self.links.post(Envelope((place.name, target), address, place.store, call))

    def _at_store(self, place: Place, envelope: Envelope) -> None:
        call, store, address = envelope.message, envelope.sender, envelope.to
        assert isinstance(store, MemoryStore)
        assert isinstance(call, StoreCall)
        result = StoreResult(call.call)
        try:
            if call.verb == "watch":
                store.watch(call.argument, lambda path: self._fired(place, address, path))
            else:
                result.value = self._outcome(place, store, call)
        except ReplogError as problem:
            result.error = problem
        if call.verb in ("commit", "commit_each"):
            self._tell_states()
        if place.alive:
            self.post(address, address, result)

    def _outcome(self, place: Place, store: MemoryStore, call: StoreCall) -> Any:
        unsure = self._unsure.pop(place.name, "") if call.verb in ("commit", "commit_each") else ""
        if unsure == "before":
            self._tell_unsure(place)
        value = getattr(store, call.verb)(call.argument)
        if unsure == "after":
            self._tell_states()
            self._tell_unsure(place)
        return value

    def _tell_unsure(self, place: Place) -> None:
        self.say(f"{place.name} does not hear what became of its transaction")
        raise UnknownOutcome("the connection broke")

    def _fired(self, place: Place, address: Address, path: str) -> None:
        if place.alive and place.name not in self._deaf:
            self.post(address, address, WatchFired(path))

    def do_unsure(self, command: Command) -> None:
        """`unsure A before|after`: A's next transaction breaks off before it reaches the store, or after it was applied."""
        name, when = command.word("the process"), command.word("before or after")
        if when not in ("before", "after"):
            raise UsageError(f"unsure: {when!r} is neither before nor after")
        self._unsure[name] = when

    def do_remove_by_hand(self, command: Command) -> None:
        """`remove-by-hand t`: somebody deletes a topic's node and states with a tool of the store."""
        topic = command.word("the topic")
        path = layout.topic_path(topic)
        states = [layout.partition_state_path(topic, int(n)) for n in self.root.list(path)]
        self.root.commit([Delete(state) for state in states])
        self.root.commit([Delete(path)])
        self._tell_states()

    def do_deaf(self, command: Command) -> None:
        """`deaf A`: no watch reaches A any more."""
        self._deaf[self.place(command.word("the process")).name] = None

    def do_unseat(self, command: Command) -> None:
        """Somebody removes the controller's node by hand."""
        self.root.commit([Delete(layout.CONTROLLER)])

    def do_controller(self, command: Command) -> None:
        """Who holds the seat, as the store says, and who believes to."""
        seat = self.root.read(layout.CONTROLLER)
        held = None if seat is None else layout.decode_controller(layout.CONTROLLER, seat.value)
        self.say("the seat is empty" if held is None else f"{letter(held.broker_id)} holds the seat, epoch {held.controller_epoch}")
        for place in self.running():
            controller = place.actors["controller", place.broker.broker_id]
            assert isinstance(controller, ControllerExecutor)
            if controller.is_controller and (held is None or held.broker_id != place.broker.broker_id):
                self.say(f"{place.name} believes to be the controller, epoch {controller.controller_epoch}")

    def do_store(self, command: Command) -> None:
        """`store /brokers/ids`: the names below a path, and its value."""
        path = command.word("the path")
        found = self.root.read(path)
        names = " ".join(self.root.list(path))
        self.say(f"{path}: {names or '-'}" + (f" = {found.value.decode()}" if found is not None and found.value else ""))

    def _states(self) -> dict[str, PartitionState | None]:
        states: dict[str, PartitionState | None] = {}
        for topic in self.root.list(layout.TOPICS):
            for number in self.root.list(layout.topic_path(topic)):
                path = layout.partition_state_path(topic, int(number))
                stored = self.root.read(path)
                if stored is not None:
                    states[f"{topic}-{number}"] = layout.decode_partition_state(path, stored)
        return states

    def _tell_states(self) -> None:
        now = self._states()
        for name in sorted({*now, *self._stored}):
            if now.get(name) != self._stored.get(name):
                self.say(f"stored: {_state(name, now.get(name))}")
        self._stored = now

    def do_state(self, command: Command) -> None:
        """`state t-0`: as stored."""
        name = command.word("the partition")
        self.say(_state(name, self._states().get(name)))

    # ---------------------------------------------------------------------------------------------------------- wishes

    def do_create(self, command: Command) -> None:
        """`create t [partitions=1] [rf=3] [min_isr=2] [flush=os] [unclean] [on=A,B,C] [via=B]`."""
        topic = command.word("the topic")
        config: dict[str, Any] = {"flush": command.take("flush", "os"), "unclean_leader_election": command.flag("unclean")}
        if "min_isr" in command.keys:
            config["min_isr"] = command.number("min_isr", 1)
        arguments: dict[str, Any] = {"name": topic, "config": config}
        if "on" in command.keys:
            arguments["assignment"] = {0: list(broker_ids(command.keys.pop("on")))}
        else:
            rf = command.number("rf", len(self.running()))
            arguments |= {"partitions": command.number("partitions", 1), "replication_factor": rf}
        self._wish(f"create {topic}", "create_topic", arguments, command)

    def do_alter(self, command: Command) -> None:
        """`alter t flush=ack [via=B]`."""
        topic, flush = command.word("the topic"), command.take("flush", "os")
        self._wish(f"alter {topic}", "alter_topic", {"name": topic, "config": {"flush": flush}}, command)

    def do_delete(self, command: Command) -> None:
        """`delete t [via=B]`."""
        topic = command.word("the topic")
        self._wish(f"delete {topic}", "delete_topic", {"name": topic}, command)

    def do_add(self, command: Command) -> None:
        """`add t-1 on=B,C [via=B]`: a partition more; the broker that leads first, first."""
        name = command.word("the partition")
        topic, _, number = name.rpartition("-")
        placed = {int(number): list(broker_ids(command.take("on", "nobody")))}
        self._wish(f"add {name}", "add_partitions", {"name": topic, "total": int(number) + 1, "assignment": placed}, command)

    def do_remove(self, command: Command) -> None:
        """`remove t-1 [via=B]`: the last partition of a topic, with all that is in it."""
        name = command.word("the partition")
        topic, _, number = name.rpartition("-")
        self._wish(f"remove {name}", "remove_partitions", {"name": topic, "partitions": [int(number)]}, command)

    def do_reassign(self, command: Command) -> None:
        """`reassign t-0 B,C [via=B]`; `reassign t-0 cancel`."""
        name, target = command.word("the partition"), command.word("the brokers, or cancel")
        topic, _, number = name.rpartition("-")
        wished = None if target == "cancel" else list(broker_ids(target))
        self._wish(f"reassign {name} {target}", "reassign", {"partitions": [[topic, int(number), wished]]}, command)

    def do_elect(self, command: Command) -> None:
        """`elect t-0 [unclean] [via=B]`: its preferred leader, or anybody."""
        name = command.word("the partition")
        topic, _, number = name.rpartition("-")
        arguments = {"partitions": [[topic, int(number)]], "unclean": command.flag("unclean")}
        self._wish(f"elect {name}", "elect", arguments, command)

    def do_drain(self, command: Command) -> None:
        """`drain B [via=A]`: what B leads is moved; it goes on running."""
        name = command.word("the process")
        self._wish(f"drain {name}", "drain", {"broker": broker_id(name)}, command)

    def do_leave(self, command: Command) -> None:
        """`leave B`: B asks to be let go, as it does before a clean stop."""
        place = self.place(command.word("the process"))
        self.hand_over(place.broker.broker_id, CLIENT, Leave())

    def do_assignment(self, command: Command) -> None:
        """`assignment t-0`: as stored."""
        name = command.word("the partition")
        topic, _, number = name.rpartition("-")
        path = layout.topic_path(topic)
        found = self.root.read(path)
        if found is None:
            self.say(f"{topic} is gone")
            return
        assignment = layout.decode_topic(path, found.value).partitions[int(number)]
        parts = [f"{name} on {letters(assignment.replicas)}"]
        for word in ("adding", "removing", "original"):
            parts += [f"{word} {letters(brokers)}"] if (brokers := getattr(assignment, word)) else []
        self.say(" ".join(parts))

    def _wish(self, label: str, verb: str, arguments: dict[str, Any], command: Command) -> None:
        able = [place.name for place in self.running() if not place.paused]
        via = command.take("via", able[0])
        self._requests += 1
        self._wishes[self._requests] = label
        self.hand_over(broker_id(via), CLIENT, Admin(self._requests, verb, arguments))

    # ---------------------------------------------------------------------------------------------------------- client

    def _where(self, command: Command) -> tuple[int, PartitionId]:
        """The partition, and the broker to ask: the leader that the store names, or `at=`."""
        name = command.word("the partition")
        if "at" in command.keys:
            return broker_id(command.keys.pop("at")), self.names.partition(name)
        state = self._states().get(name.replace("'", ""))
        if state is None or state.leader is None:
            raise UsageError(f"{name} has no leader; say at=")
        return state.leader, self.names.partition(name)

    def do_append(self, command: Command) -> None:
        """`append t-0 m0 [at=A]`; more: `Client.append`."""
        to, identity = self._where(command)
        self.client.append(to, identity, command)

    def do_read(self, command: Command) -> None:
        """`read t-0 0 [at=A] [epoch=1]`."""
        to, identity = self._where(command)
        offset = int(command.word("the offset"))
        self.client.read(to, identity, offset, leader_epoch=command.number("epoch", -1), wait_ms=0)

    def do_latest(self, command: Command) -> None:
        """`latest t-0`."""
        to, identity = self._where(command)
        self.client.offset(to, identity, "latest", command.number("epoch", -1))

    def do_epoch_end(self, command: Command) -> None:
        """`epoch-end t-0 5`."""
        to, identity = self._where(command)
        self.client.epoch_end(to, identity, int(command.word("the epoch")), command.number("epoch", -1))

    # --------------------------------------------------------------------------------------------------------- telling

    def event(self, place: Place, name: str, fields: dict[str, Any]) -> None:
        """What a person would want to hear of a controller or a membership."""
        match name:
            case "controller_elected":
                self.say(f"{place.name} is the controller, epoch {fields['controller_epoch']}")
            case "controller_resigned":
                self.say(f"{place.name} resigns: {fields['why']}")
            case "records_may_be_lost":
                reach = ", ".join(f"{letter(b)} {'unasked' if end < 0 else f'to {end}'}" for b, _, end in fields["candidates"])
                missing = f"; missing {letters(fields['missing'])}" if fields["missing"] else ""
                where = f"{fields['topic']}-{fields['partition']}"
                self.say(f"records of {where} may be lost: {letter(fields['leader'])} elected ({fields['kind']}) of {reach}{missing}")
            case "membership_refused":
                self.say(f"{place.name} may not register: {fields['why'].split(' with directory')[0]}")
            case "registration_taken_over":
                self.say(f"{place.name} takes over the registration it left")
            case "broker_draining":
                self.say(f"{letter(fields['broker'])} is draining")
            case "broker_silent":
                self.say(f"{letter(fields['broker'])} does not answer: it counts as fenced")
            case "broker_answers_again":
                self.say(f"{letter(fields['broker'])} answers again")
            case "shutdown_granted":
                left = f", {fields['remaining']} remaining" if fields["remaining"] else ""
                self.say(f"{place.name} may leave once it has applied what it was told{left}")
            case "broker_admitted":
                self.say(f"{letter(fields['broker'])} is let in")
            case "stray_kept":
                self.say(f"{letter(fields['broker'])} keeps a log nobody knows")
            case _:
                pass


def _state(name: str, state: PartitionState | None) -> str:
    if state is None:
        return f"{name} is gone"
    parts = [f"{name} leader {letter(state.leader)} epoch {state.leader_epoch} ISR {letters(state.isr)}"]
    if state.elr:
        parts.append(f"ELR {letters(state.elr)}")
    if state.last_known:
        parts.append(f"last known {letters(state.last_known)}")
    if state.anew:
        parts.append(f"anew {letters(state.anew)}")
    if state.recovering:
        parts.append("recovering")
    return " ".join([*parts, f"pe {state.partition_epoch}"])
