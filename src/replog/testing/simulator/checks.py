"""Watches a run from outside: keeps the ledger and the mirrors up to date, and gives every invariant its occasions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from replog.log.files import OS
from replog.marks import WriterMark, marked, writer_id
from replog.messages import Fetched, FetchedEntry, ListedOffsets, Produce, Produced, ProducedEntry, Publish, Published, Stage, StopReplica
from replog.model import ACKS_ALL, Address, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.ports import Log
from replog.records import CONTROL_BIT, BatchHeader
from replog.testing.simulator.books import Books
from replog.testing.simulator.clients import TOPIC
from replog.testing.simulator.evidence import is_unknowable
from replog.testing.simulator.forks import able_to_lead, gives_up, holding_more, into, is_of_a_fork, may_have_lost, part, take_up, texts
from replog.testing.simulator.invariants import INVARIANTS, Asked, Claim, Headers, Invariant, NothingIsDropped
from replog.testing.simulator.ledger import Copy, Ledger
from replog.testing.simulator.looking import disk_of, headers_of, observing
from replog.testing.simulator.tracing import state_text

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node
    from replog.testing.simulator.world import World

__all__ = ["Checks"]

_SWEEP: Final = 256
"""Every so many looks at a broker, its directory is compared with what was there."""


class Checks:
    """Everything that is checked while a run goes on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._books = Books(world.root.read, self, durable=world.plan.shape.flush == "ack")
        self.ledgers: dict[PartitionId, Ledger] = self._books.ledgers
        """Of the partitions that there are. Those that were deleted are in `closed`."""
        self.closed: dict[PartitionId, Ledger] = self._books.closed
        self._asked: dict[Address, dict[int, Asked]] = {}
        self._claims: dict[Address, dict[int, Claim]] = {}
        self._pieces: dict[tuple[PartitionId, str, int, str, int], bytes] = {}
        """(partition, writer, version, attempt, number) -> what was put aside, wherever that arrived."""
        self._may_part = bool(world.plan.shape.unclean)
        """Whether more may be lost than acks=all survives: only then does a ledger ever part (`forks`)."""
        self.bodies: dict[int, bytes] = {}
        """Checksum of the payload -> what was sent, if something of it may be lost."""
        self._told: set[tuple[PartitionId, str, int, int, tuple[tuple[str, int], ...]]] = set()
        """Publications that were asked for."""
        self._looks: dict[int, int] = {}
        self._disks: dict[int, tuple[str, object]] = {}
        """Broker -> which directory it has, and on which disk."""
        self._second = 0
        self._events = 0
        self.busiest = 0
        self.invariants = [kind() for kind in INVARIANTS]
        made = self.invariants
        self._batch = _overriding(made, "batch")
        self._cut = _overriding(made, "cut")
        self._changed = _overriding(made, "changed")
        self._led = _overriding(made, "led")
        self._committed = _overriding(made, "committed")
        self._vanished = _overriding(made, "vanished")
        self._stored = _overriding(made, "stored")
        self._signed = _overriding(made, "signed")
        self._epoch = _overriding(made, "epoch")
        self._registered = _overriding(made, "registered")
        self._received = _overriding(made, "received")
        self._handled = _overriding(made, "handled")
        self._said = _overriding(made, "said")
        self._shipped = _overriding(made, "shipped")
        self._produced = _overriding(made, "produced")
        self._published = _overriding(made, "published")
        self._shown = _overriding(made, "shown")
        self._listed = _overriding(made, "listed")
        self._passed = _overriding(made, "passed")
        self._sought = _overriding(made, "asked")
        self._parted = _overriding(made, "parted")

    # -------------------------------------------------------------------------------------------------- occasions: events

    def event(self) -> None:
        """One more event: not too many in one second."""
        second = self._world.now_ms // 1_000
        if second != self._second:
            self._second, self._events = second, 0
        self._events += 1
        if self._events > self.busiest:
            self.busiest = self._events
            shape = self._world.plan.shape
            for passed in self._passed:
                more = 2 if shape.limits.slice_partitions_max else 1  # messages, where each says little
                passed(second, self._events, more * (shape.brokers + shape.clients))

    def no_message(self) -> None:
        """The present event is a step of a worker's, of which there may be thousands in one moment: it makes no storm."""
        self._events -= 1

    # --------------------------------------------------------------------------------------------------- occasions: nodes

    def received(self, node: Node, address: Address, sender: Address, message: Any) -> None:
        """An actor of a broker is about to handle a message."""
        for received in self._received:
            received(node, sender, message)
        if type(message) is StopReplica:
            self._looks[node.broker_id] = 0

    def look(self, node: Node) -> None:
        """A broker has handled something: look at those of its copies that changed."""
        broker, broker_id, life = node.broker, node.broker_id, node.life
        assert broker is not None
        all_copies = self._books.copies
        for identity, partition in broker.partitions.items():
            log, leading = partition.log, partition.leading
            key = (
                log.generation,  # type: ignore[attr-defined]  # of every stored log
                log.end_offset,
                partition.high_watermark,
                partition.leader_epoch,
                partition.partition_epoch,
                log.last_epoch,
                log.start_offset,
                log.flushed_end,
                len(log.producers),
                None if leading is None else leading.isr,
            )
            copies = all_copies.get(identity)
            copy = None if copies is None else copies.get(broker_id)
            if copy is None or key != copy.key or copy.life != life or copy.log is not log:
                copy = self.copy(identity, broker_id)
                self._look(node, identity, partition, copy)
                copy.key = key
        for handled in self._handled:
            handled(node)
        looks = self._looks.get(broker_id, 0)
        if looks % _SWEEP == 0:
            self._sweep(node)
        self._looks[broker_id] = looks + 1

    def _look(self, node: Node, identity: PartitionId, partition: Partition, copy: Copy) -> None:
        ledger = self.ledger(identity)
        if node.lies:
            copy.suspect = copy.damaged = True
        if copy.life != node.life:
            copy.life = node.life
            copy.leader_epoch = copy.partition_epoch = -1
        if partition.log.start_offset > copy.start:
            self._world.trimmed(ledger, partition.log.start_offset)
            if partition.log.start_offset == partition.log.end_offset:
                self._world.marks.hit("retention leaves nothing of a log")
        self._follow(node, ledger, copy, partition.log)
        copy.wall_ms = self._world.wall_ms + node.wall_offset_ms
        copies = self._books.copies[identity]
        leads = partition.leading is not None
        begins = leads and copy.led != (copy.life, partition.leader_epoch)
        if leads or (partition.following is not None and partition.following.agrees):
            copy.agreed = max(copy.agreed, partition.leader_epoch)
        if begins and take_up(ledger, copy, partition):
            self._tell_parted(ledger)
        for changed in self._changed:
            changed(ledger, copy, partition)
        if begins:
            for led in self._led:
                led(ledger, copy, partition)
            copy.led = (copy.life, partition.leader_epoch)
        if leads and (begins or partition.high_watermark != copy.high_watermark):
            fork = ledger.fork_of(partition.leader_epoch)
            if fork is not None:
                fork.grow(copy, partition.high_watermark)
            moved = fork is None and (not begins or partition.high_watermark > ledger.end)
            for committed in self._committed if moved else ():
                committed(ledger, copies, copy, partition)
        copy.high_watermark = partition.high_watermark
        copy.leader_epoch = partition.leader_epoch
        copy.partition_epoch = partition.partition_epoch

    def _follow(self, node: Node, ledger: Ledger, copy: Copy, log: Log | None) -> None:
        """Bring a mirror up to date, and say what is new and what is gone."""

        def batch(copy: Copy, header: BatchHeader) -> None:
            if header.attributes & CONTROL_BIT and ledger.topic == TOPIC:
                self._world.marks.hit("a leader says again what a writer had done")
                for offset in range(header.base_offset, header.end_offset):
                    self._world.history.control(f"{TOPIC}/{ledger.identity.partition}", offset)
            for look in self._batch:
                look(ledger, copy, header)

        same, was_open = copy.log is log, bool(copy.entries) and copy.entries[-1].is_open
        with observing(node):
            parted = copy.follow(log, batch)
        if parted is not None and same:
            self._world.marks.cut(ledger, parted, was_open=was_open)
            heard = None if node.broker is None else node.broker.partitions.get(ledger.identity)
            if heard is not None and gives_up(ledger, self._books.copies[ledger.identity], copy, heard.leader_epoch, parted):
                self._tell_parted(ledger)
            for cut in self._cut:
                cut(ledger, copy, parted)

    def _tell_parted(self, ledger: Ledger) -> None:
        for parted in self._parted:
            parted(ledger)

    def _sweep(self, node: Node) -> None:
        """Compare a directory with what was in it."""
        directory, broker_id = node.directory, node.broker_id
        self._disks.setdefault(broker_id, disk_of(node))
        for identity, copies in self._books.copies.items():
            copy = copies.get(broker_id)
            if copy is not None and copy.log is not None and directory.get(identity) is None:
                for vanished in self._vanished:
                    vanished(self.ledger(identity), broker_id)
                copy.follow(None)
        fs, path = getattr(directory, "fs", OS), getattr(directory, "path", "")
        if fs is not OS:
            self._look_outside(node, fs, path)

    def _look_outside(self, node: Node, fs: Any, path: str) -> None:
        """Nothing stands beside the folders that lead to a directory on its simulated disk."""
        at = ""
        for name in path.strip("/").split("/"):
            with observing(node):
                strange = [other for other in fs.listdir(at or "/") if other != name]
            for other in sorted(strange):
                for one in self.invariants:
                    if isinstance(one, NothingIsDropped):
                        one.outside(node.broker_id, f"{at}/{other}")
            at = f"{at}/{name}"

    def reopened(self, node: Node, *, lossy: bool) -> None:
        """A process has ended: the mirrors follow what its disk has now."""
        directory = node.directory
        loss, broker_id = directory.loss, node.broker_id
        here = disk_of(node)
        before, self._disks[broker_id] = self._disks.get(broker_id, here), here
        replaced = before[0] != here[0] or before[1] is not here[1]
        lost, corrupt = set(loss.lossy), loss.kind == "corrupt"
        for identity, copies in self._books.copies.items():
            copy = copies.get(broker_id)
            if copy is None:
                continue
            log, ledger = directory.get(identity), self.ledger(identity)
            if log is None and copy.log is not None and not replaced and not copy.suspect:
                for vanished in self._vanished:
                    vanished(ledger, broker_id)
            self._follow(node, ledger, copy, log)
            if not copy.unreadable:
                copy.suspect = False  # all of it has been read
            if replaced or ((lossy or corrupt) and identity in lost):
                copy.lossy = copy.damaged = True
                copy.agreed = -1
        if lossy or corrupt or replaced:
            self._books.lost(broker_id)
        self._looks[broker_id] = 1
        self.let_in()

    def robbed(self, node: Node, how: str) -> bool:
        """Whether a disk that lies has kept, over the end of a process, less than it should, and nobody can know (see `evidence`). Asked
        before `reopened`: such a machine gets a new disk, which is noticed, as one that was replaced, or put back to an image, is."""
        broker_id, here = node.broker_id, disk_of(node)
        if how == "restore" or self._disks.get(broker_id, here) != here:
            return False
        with observing(node):
            held = ((identity, copies[broker_id]) for identity, copies in self._books.copies.items() if broker_id in copies)
            return any(is_unknowable(node, identity, copy, how) for identity, copy in held)

    def tampered(self, broker: int, identity: PartitionId | None) -> None:
        """A disk was made to misbehave: what it gives back of a copy (None: of all there) may differ from what was written."""
        for one, copies in self._books.copies.items():
            copy = copies.get(broker)
            if copy is not None and identity in (None, one):
                copy.suspect = copy.damaged = True

    def asked(self, sender: Address, message: Produce) -> None:
        """A broker gets appends of a client."""
        asked = self._asked.setdefault(sender, {})
        for entry in message.entries:
            question = asked[entry.request] = Asked(self.ledger(entry.partition), message.acks, entry.body)
            self._seek(question, entry.body)

    def staged(self, sender: Address, message: Stage) -> None:
        """A broker gets a piece of work to put aside."""
        entry = message.entry
        self._claims.setdefault(sender, {})[entry.request] = Claim(writer_id(message.writer), message.version)
        self._pieces.setdefault((entry.partition, message.writer, message.version, message.attempt, message.number), entry.body)

    def claimed(self, sender: Address, message: Publish) -> None:
        """A broker is asked to publish: from now on all these pieces, in this order, may be stored."""
        self._claims.setdefault(sender, {})[message.request] = Claim(writer_id(message.writer), message.version)
        ledger, work = self.ledger(message.partition), (message.partition, message.writer, message.version)
        whole = (*work, message.made_ms, tuple((one.attempt, one.pieces) for one in message.attempts))
        if whole in self._told:
            return
        self._told.add(whole)
        bodies = [self._pieces.get((*work, one.attempt, number)) for one in message.attempts for number in range(one.pieces)]
        into = 0
        for number, body in enumerate(bodies, 1):
            if body is None:
                break
            made = marked(body, WriterMark(message.writer, message.version, into, made_ms=message.made_ms), is_last=number == len(bodies))
            question = Asked(ledger, ACKS_ALL, made)
            into += question.count
            self._seek(question, made)

    def _seek(self, question: Asked, body: bytes) -> None:
        if self._may_part:
            self.bodies.setdefault(question.payload_crc, body)
        for sought in self._sought:
            sought(question)

    def registered(self, broker_id: int, broker_epoch: int) -> None:
        """A process has learned its broker epoch; the store knew it before."""
        for registered in self._registered:
            registered(broker_id, broker_epoch, self._books.broker_epochs.get(broker_id, -1))

    def sent(self, node: Node, to: Address, message: Any) -> None:
        """A broker says something."""
        for said in self._said:
            said(node, to, message)
        kind = type(message)
        if kind is Fetched:
            self._sent_fetched(node, to, message)
        elif kind is Produced:
            self._sent_produced(node, to, message)
        elif kind is Published:
            self._sent_published(node, to, message)
        elif kind is ListedOffsets:
            partitions = node.broker.partitions if node.broker is not None else {}
            for entry in message.entries:
                ledger, partition = self.ledger(entry.partition), partitions.get(entry.partition)
                for listed in () if entry.error or ledger.fork_of(entry.leader_epoch) is not None else self._listed:
                    listed(to, ledger, partition, entry)

    def _sent_fetched(self, node: Node, to: Address, message: Fetched) -> None:
        client = isinstance(to, tuple) and to[0] == "client"
        for entry in message.entries:
            found = self._ship(node, entry) if entry.slices else ()
            if client and not entry.error:
                assert node.broker is not None
                ledger, partition = self.ledger(entry.partition), node.broker.partitions.get(entry.partition)
                for shown in () if ledger.fork_of(entry.leader_epoch) is not None else self._shown:
                    shown(to, ledger, partition, entry, found)

    def _ship(self, node: Node, entry: FetchedEntry) -> list[Headers]:
        """Stored batches leave a broker: look at each once for everybody."""
        ledger, copy = self.ledger(entry.partition), self.copy(entry.partition, node.broker_id)
        found: list[Headers] = []
        with observing(node):
            for piece in entry.slices:
                headers = headers_of(piece)
                found.append(headers)
                for shipped in self._shipped:
                    shipped(ledger, copy, piece, headers)
        return found

    def _sent_produced(self, node: Node, to: Address, message: Produced) -> None:
        asked = self._asked.get(to, {})
        assert node.broker is not None
        for entry in message.entries:
            question = asked.get(entry.request)
            if question is not None and not entry.error:
                ledger, partition = question.ledger, node.broker.partitions.get(question.ledger.identity)
                for produced in () if self._is_of_a_fork(node, ledger, partition) else self._produced:
                    produced(ledger, partition, entry, question)

    def _sent_published(self, node: Node, to: Address, message: Published) -> None:
        claim = self._claims.get(to, {}).get(message.request)
        assert node.broker is not None
        if claim is None:  # of an append whose work was done before, with another number of records
            return self._sent_produced(node, to, Produced([ProducedEntry(message.request, message.error, message.base_offset)]))
        if not message.error and message.end_offset >= 0:
            ledger, partition = self.ledger(message.partition), node.broker.partitions.get(message.partition)
            for published in () if self._is_of_a_fork(node, ledger, partition) else self._published:
                published(ledger, partition, message, claim)

    def _is_of_a_fork(self, node: Node, ledger: Ledger, partition: Partition | None) -> bool:
        return bool(ledger.forks) and is_of_a_fork(ledger, self.copy(ledger.identity, node.broker_id), partition)

    # --------------------------------------------------------------------------------------------------- occasions: store

    def applied(self, ops: list[Any]) -> None:
        """The store has committed a transaction."""
        self._books.see(dict.fromkeys(op.path for op in ops))

    def stored(self, ledger: Ledger, before: PartitionState | None, controller_epoch: int) -> None:
        """The store has another state of a partition."""
        assert ledger.state is not None
        self._world.marks.stored(before, ledger.state)
        self._world.note(f"state {ledger.topic}-{ledger.identity.partition}: {state_text(ledger.state)}")
        if self._may_part:
            self._judge_election(ledger, before)
        for signed in self._signed:
            signed(ledger, controller_epoch)
        for stored in self._stored:
            stored(ledger, self._books.copies[ledger.identity], before)

    def _judge_election(self, ledger: Ledger, before: PartitionState | None) -> None:
        """What may be lost here, the store has to say (S26); then the ledger parts, before anything is compared with it."""
        world, loss = self._world, ledger.loss
        ledger.able = able_to_lead(world, ledger, before)
        ledger.is_unclean_allowed |= world.wishes.asks_uncleanly(ledger.topic, ledger.identity.partition)
        if loss is None or not may_have_lost(ledger, before):
            return
        ledger.longer = holding_more(ledger, self._books.copies[ledger.identity], before)
        fork = part(ledger, self.copy(ledger.identity, loss.leader), self._books.copies[ledger.identity].values())
        self._tell_parted(ledger)
        world.note(f"{ledger.topic}-{ledger.identity.partition} parts at {fork.end}: {len(fork.entries)} records may be lost")
        world.marks.parted(loss.kind, len(fork.entries))

    def epoch(self, what: str, before: int, after: int) -> None:
        """An epoch in the store has become another."""
        for epoch in self._epoch:
            epoch(what, before, after)

    def let_in(self) -> None:
        """Who counts as complete has changed although no state has."""
        for identity, ledger in self.ledgers.items():
            if ledger.state is not None:
                for stored in self._stored:
                    stored(ledger, self._books.copies[identity], ledger.state)

    # ------------------------------------------------------------------------------------------------------------ state

    def ledger(self, identity: PartitionId) -> Ledger:
        """The ledger of a partition, also of one that was deleted."""
        return self._books.ledger(identity)

    def expected(self) -> list[Ledger]:
        """Every partition that should be there: of every topic that the store has, unless its deletion has begun."""
        found = [self.ledger(identity) for identity in self._books.expected]
        return [ledger for ledger in found if not ledger.closed]

    def copy(self, identity: PartitionId, broker: int) -> Copy:
        """The mirror of one copy."""
        return self._books.copy(identity, broker)

    def copies(self, identity: PartitionId) -> dict[int, Copy]:
        """All mirrors of a partition."""
        return self._books.copies[identity]

    def lost(self, identity: PartitionId) -> list[dict[int, bytes | None]]:
        """What elections have taken out of a ledger that may lose something, each: offset -> the value there."""
        return [texts(fork.entries, fork.end, self.bodies, fork.into) for fork in self.ledger(identity).forks]

    def left(self, identity: PartitionId) -> dict[int, bytes | None]:
        """What they have left of it, and what came since, from where the first of them parted it on."""
        ledger = self.ledger(identity)
        first = min([fork.end for fork in ledger.forks], default=ledger.end)
        return texts(ledger.entries[first:], first, self.bodies, into(ledger.entries, first))

    def committed(self, partition: int, topic: str | None = None) -> int:
        """How far a partition is committed; without a topic, in whichever has the most."""
        found = [one.end for one in self.ledgers.values() if one.identity.partition == partition and topic in (None, one.topic)]
        return max(found, default=0)

    def may_lose(self, broker: int, *, power: bool = False) -> bool:
        """Whether losing this broker's records now leaves at most min_isr - 1 losses anywhere, as acks=all promises to survive.

        A broker counts as lost from its fault until it is in the ISR again, and so holds everything; if a move has taken one out of
        the replicas before that, somebody else must be left who does. A power cut costs nothing where flush="ack". Nor may it be lost while
        another one may get a new disk (`robbed`), on account of whichever partition.
        """
        spoiled = self.spoiled()
        for ledger in self.ledgers.values():
            state = ledger.state
            if broker not in ledger.replicas or state is None or (power and ledger.durable):
                continue
            lost = self.incomplete(ledger) | spoiled.intersection(ledger.replicas) | {broker}
            if len(lost) > ledger.min_isr - 1:
                return False
            copies = self._books.copies[ledger.identity]
            moved_out = any(copies[one].damaged for one in ledger.sent_away.intersection(copies).difference(ledger.replicas))
            if moved_out and lost.issuperset((*state.isr, *state.elr)):
                return False
        return True

    def spoiled(self) -> set[int]:
        """Brokers of whose copies some may hold other things than were written, and not know it."""
        return {one for copies in self._books.copies.values() for one, copy in copies.items() if copy.suspect}

    def incomplete(self, ledger: Ledger) -> set[int]:
        """Replicas that a fault has cost records, and that have not been seen since to hold everything again."""
        return {b for b in ledger.replicas if self._is_incomplete(ledger.identity, ledger, b)}

    def _is_incomplete(self, identity: PartitionId, ledger: Ledger, broker: int) -> bool:
        copy = self._books.copies[identity].get(broker)
        if copy is None or not copy.damaged:
            return False
        assert ledger.state is not None
        whole = not copy.lossy and not copy.suspect and not copy.unreadable
        if whole and broker in ledger.state.isr and copy.mismatch(ledger, ledger.end) is None:
            copy.damaged = False
        return copy.damaged


def _overriding(made: list[Invariant], occasion: str) -> list[Callable[..., None]]:
    """The methods of the invariants that look on this occasion."""
    return [getattr(one, occasion) for one in made if getattr(type(one), occasion) is not getattr(Invariant, occasion)]
