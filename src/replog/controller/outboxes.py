"""What brokers have yet to hear. Per broker only the newest state of each partition, in numbered notices.

A notice keeps its number until the broker has applied it: what is sent again under that number is the newest state of
the partitions it was about, perhaps none of them any more. So a broker's count of notices without a gap always gets on.

It is sent again after an ack timeout in which the broker has acknowledged nothing before it: one that is slow, and works through
what it was told earlier, would only have more to do. Of those before it each is acknowledged once, so its turn comes.

While a broker owes answers to many notices no other is opened: what is new waits, and goes out in one, newest only, with the next
acknowledgement. So what there is for a broker that cannot be reached follows from its partitions, not from how long that lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from attrs import Factory, define, evolve, field

from replog.controller.changes import HiddenSet
from replog.messages import ControlledShutdownAnswer, LeaderAndIsr, PartitionNotice, StopEntry, StopReplica
from replog.model import Address, PartitionId

__all__ = ["BrokerOutbox", "Outboxes"]

_NOTICES_MAX = 100
"""So many notices of states, the complete one among them, wait for an answer before no other is opened."""

Look = Callable[[PartitionId], PartitionNotice | None]
"""The newest state of a partition; None if it has none."""


@define
class _Notice:
    sent_ms: int
    """Unanswered since then, or since the broker acknowledged one before it; later than now while it waits, because the broker had
    no room for copies that it names."""
    complete: bool = False
    keys: dict[PartitionId, None] = field(factory=dict)
    stops: dict[PartitionId, StopEntry] = field(factory=dict)
    is_stop: bool = False
    refusals: int = 0
    """How often the broker had no room."""
    asked_ms: int = field(default=Factory(lambda self: self.sent_ms, takes_self=True))
    """Since when an answer is owed: it was sent for the first time, or after the last answer without room."""
    sends: int = 1
    unsaid: set[PartitionId] = field(factory=set)
    """Keys that it said nothing of at least once: there was nothing to say then that the broker may hear."""


@define
class BrokerOutbox:
    """What one life of one broker has been told, and has yet to acknowledge."""

    broker_epoch: int
    stops_max: int = 1_000
    """So many stops are under way at once, a notice that has none any more counting as one: each may cost the broker some work on its
    disk."""
    beat_ms: int = 0
    """Between two heartbeats. Late ones come together, and all of them may be older than what was sent a moment ago."""
    pause_ms: int = 0
    """Doubled each time that the broker has no room for what a notice names."""
    announced: bool = False
    """Whether the complete notice has been made; before it nothing else is sent."""
    complete_notice: int = -1
    is_blind: bool = False
    """Whether it was sent while nobody could say which copies are wanted."""
    removals: tuple[bytes, ...] = ()
    """Deleted topics the broker was listed for when the complete notice was made."""
    acknowledged: bool = False
    """Whether the complete notice was answered."""
    as_of: int = 0
    """Counts what there was to say of its copies."""
    _next: int = 0
    _notices: dict[int, _Notice] = field(factory=dict)
    _newest: dict[PartitionId, int] = field(factory=dict)
    _news: dict[PartitionId, None] = field(factory=dict)
    _stops: dict[PartitionId, StopEntry] = field(factory=dict)
    _failures: dict[PartitionId, int] = field(factory=dict)
    """The first number after the last report that a copy has failed."""
    heard_ms: int = -1
    """When the broker answered last."""
    alive_ms: int = -1
    """When it last said anything."""
    _heartbeat_ms: int = -1
    _applied: int = -1
    """As the newest heartbeat says."""
    _leaves_after: int | None = None
    _roomless: dict[PartitionId, None] = field(factory=dict)
    """Copies that the broker had no room for, and has not made since."""
    _room_news: dict[PartitionId, bool] = field(factory=dict)

    def go_on_from(self, earlier: BrokerOutbox) -> None:
        """The same life was told notices before: an older number than one that it has heard of counts for nothing. Nor is forgotten what it
        had no room for: that there is room now is news only then."""
        self._next, self.as_of, self._failures = earlier._next, earlier.as_of, earlier._failures
        self._roomless, self._room_news = earlier._roomless, earlier._room_news

    def note(self, partition: PartitionId) -> None:
        """The state of a partition changed."""
        self.as_of += 1
        self._keep(partition)
        if self.announced:
            self._news[partition] = None
        if complete := self._notices.get(self.complete_notice):
            complete.keys[partition] = None  # sent again, it names all that are wanted then

    def _keep(self, partition: PartitionId) -> None:
        """A copy is wanted: it was to be stopped, and is assigned again before that was heard."""
        self._stops.pop(partition, None)
        for notice in self._notices.values():
            if notice.is_stop:
                notice.stops.pop(partition, None)

    def stop(self, entry: StopEntry) -> None:
        """A copy is to be taken out of service; states of it that are still under way are withdrawn.

        Also from the complete notice, which is sent again with the states of then: a broker that heard from it of a later leader
        epoch than the one that ended its copy would refuse the stop for ever (KIP-570).
        """
        self.as_of += 1
        self._news.pop(entry.partition, None)
        self._withdraw(entry.partition)
        if complete := self._notices.get(self.complete_notice):
            complete.keys.pop(entry.partition, None)
        self._failures.pop(entry.partition, None)  # no notice from before is about it now
        self._stops[entry.partition] = entry

    def announce(self, partitions: Iterable[PartitionId], removals: tuple[bytes, ...], now_ms: int) -> int:
        """Make the complete notice; it closes every gap before it. Returns its number."""
        self.as_of += 1
        self.announced, self.acknowledged, self.removals = True, False, removals
        self._notices = {n: notice for n, notice in self._notices.items() if notice.is_stop}
        self._newest.clear()
        self._news.clear()
        wanted = list(partitions)
        for partition in wanted if self._stops or self._notices else ():
            self._keep(partition)
        self.complete_notice = self._open(_Notice(now_ms, complete=True), wanted)
        return self.complete_notice

    def take_news(self, now_ms: int) -> list[int]:
        """Turn what is new into notices; returns their numbers. Asked again after each acknowledgement while something waits for one."""
        numbers = []
        if self._news:
            if self._is_full():
                return []  # nor is a stop opened: the next number is that of these news, see `let_go`
            numbers.append(self._open(_Notice(now_ms), self._news))
            self._news = {}
        room = self.stops_max - sum(len(notice.stops) or 1 for notice in self._notices.values() if notice.is_stop)
        if self._stops and self.announced and room > 0:
            slice_ = dict(islice(self._stops.items(), room))
            for key in slice_:
                del self._stops[key]
            numbers.append(self._open(_Notice(now_ms, stops=slice_, is_stop=True), ()))
        return numbers

    def _is_full(self) -> bool:
        """Whether the broker owes so many answers that news wait. What waits for room was answered, and may wait for days: it keeps nothing
        else back. Nor does a stop that fails."""
        return sum(not (notice.is_stop or notice.refusals) for notice in self._notices.values()) >= _NOTICES_MAX

    @property
    def is_waiting(self) -> bool:
        """Whether news or stops wait for others to be answered."""
        return bool(self._news or self._stops)

    def stopping(self) -> set[bytes]:
        """Ids of the topics of which a copy has yet to be stopped."""
        waiting = (self._stops, *(notice.stops for notice in self._notices.values()))
        return {key.topic_id for stops in waiting for key in stops}

    def _open(self, notice: _Notice, keys: Iterable[PartitionId]) -> int:
        number = self._next
        self._next += 1
        for key in keys:
            self._withdraw(key)
            notice.keys[key] = None
            self._newest[key] = number
        self._notices[number] = notice
        return number

    def _withdraw(self, key: PartitionId) -> None:
        older = self._newest.pop(key, None)
        if older is not None and older != self.complete_notice:
            self._notices[older].keys.pop(key, None)

    def entries(self, number: int) -> _Notice | None:
        """The notice under a number; None once it is acknowledged."""
        return self._notices.get(number)

    def named(self, number: int) -> list[PartitionId]:
        """The partitions of which this notice is the newest, and later than any failure that was reported: an answer to it says how their
        copies are now."""
        notice = self._notices.get(number)
        if notice is None:
            return []
        said = [key for key in notice.keys if self._newest.get(key) == number and key not in self._news and key not in notice.unsaid]
        return [key for key in said if self._failures.get(key, 0) <= number]

    def failed(self, partitions: Iterable[PartitionId]) -> None:
        """The broker reports these copies as failed: it has yet to be asked how they are after that."""
        self._failures.update(dict.fromkeys(partitions, self._next))

    def names(self, partition: PartitionId) -> bool:
        """Whether a notice that was sent, and is not acknowledged, is about this partition."""
        return partition in self._newest

    def answered(self, number: int, roomless: tuple[PartitionId, ...] = (), now_ms: int = 0) -> bool:
        """The broker has applied a notice. True if it was the complete one, for the first time.

        All of it but `roomless`: the notice goes on with these, under its number, since the broker does not count it. The
        complete one is over, and another goes on with them.
        """
        notice = self._notices.get(number)
        if notice is None:
            return False
        missing = dict.fromkeys(key for key in roomless if self._newest.get(key) == number)
        for key in missing:
            self._roomless[key] = None
            self._room_news[key] = False
            del self._newest[key]
        self._forget(number)
        if number == self.complete_notice:
            if missing:
                self._hold(self._notices[self._open(_Notice(now_ms), missing)], now_ms)
        elif roomless:
            self._notices[number] = notice
            notice.keys = missing
            self._newest.update(dict.fromkeys(missing, number))
            self._hold(notice, now_ms)
            return False
        self._got_on(number, now_ms)
        if number != self.complete_notice or self.acknowledged:
            return False
        self.acknowledged = True
        return True

    def _hold(self, notice: _Notice, now_ms: int) -> None:
        """Overdue one ack timeout after this; the first time at once, then ever later, up to a limit."""
        notice.sent_ms = now_ms + self.pause_ms * ((1 << min(notice.refusals, 2)) - 1)
        notice.refusals += 1
        notice.asked_ms, notice.sends = notice.sent_ms + self.pause_ms, 0

    def _got_on(self, number: int, now_ms: int) -> None:
        """The broker has applied this one only now: those after it, sent later, are not late yet."""
        for later, notice in self._notices.items():
            if later > number:
                notice.sent_ms = max(notice.sent_ms, now_ms)

    def take_removals(self) -> tuple[bytes, ...]:
        """The deleted topics that the acknowledgement of the complete notice is about; asked once."""
        removals, self.removals = self.removals, ()
        return removals

    def let_go(self) -> int:
        """The number that the broker has to reach before it leaves: the same one whenever it asks (KAFKA-14292)."""
        if self._leaves_after is None:
            self._leaves_after = self._next if self._news else self._next - 1  # news that wait may say who leads in its place
        return self._leaves_after

    def room_news(self) -> dict[PartitionId, bool]:
        """Whether there is room for a copy now, where that has changed since this was asked last."""
        news, self._room_news = self._room_news, {}
        return news

    def _forget(self, number: int) -> None:
        for key in self._notices.pop(number).keys:
            if self._newest.get(key) == number:
                del self._newest[key]
                if key in self._roomless:
                    del self._roomless[key]
                    self._room_news[key] = True

    def stopped(self, number: int) -> list[StopEntry]:
        """The stops under a number, which the broker has answered."""
        notice = self._notices.get(number)
        return [] if notice is None else list(notice.stops.values())

    def heartbeat(self, applied: int, now_ms: int) -> list[int]:
        """Notices up to `applied` have arrived. Returns those to send again: under way since before the last heartbeat, and for as
        long as it takes from one to the next.

        None of them if this one acknowledges others. The complete notice and stops wait for their answer all the same: it carries
        more than an acknowledgement.
        """
        arrived = [n for n in self._notices if n <= applied]
        if any(n > self._applied for n in arrived):
            self._got_on(applied, now_ms)
        self._applied = max(self._applied, applied)
        for number in arrived:
            if not self._notices[number].is_stop and number != self.complete_notice:
                self._forget(number)
                self.heard_ms = now_ms
        before_ms = min(self._heartbeat_ms, now_ms - self.beat_ms)
        missing = [n for n, notice in self._notices.items() if n > applied and notice.sent_ms <= before_ms]
        self._heartbeat_ms = self.alive_ms = now_ms
        return missing

    def heard(self, now_ms: int) -> None:
        """The broker has answered a notice, whatever it says."""
        self.heard_ms = self.alive_ms = now_ms

    def owes(self, before_ms: int, asked_ms: int | None = None) -> bool:
        """Whether a notice that was sent more than once has been waiting since before, or a question since `asked_ms`, and nothing has been
        answered since."""
        if not self._notices and asked_ms is None:
            return False  # as nearly always, and it is asked of every broker at every event
        since = max(self.heard_ms, 0)
        if asked_ms is not None and max(asked_ms, since) <= before_ms:
            return True
        return any(notice.sends > 1 and max(notice.asked_ms, since) <= before_ms for notice in self._notices.values())

    def overdue(self, before_ms: int) -> list[int]:
        """Notices that wait since a time, or longer."""
        return [n for n, notice in self._notices.items() if notice.sent_ms <= before_ms]

    def unacknowledged(self) -> int:
        """How many notices the broker has yet to acknowledge."""
        return len(self._notices)

    def oldest_ms(self) -> int | None:
        """Since when that notice waits that is to be sent again next."""
        return min((notice.sent_ms for notice in self._notices.values()), default=None)


class Outboxes:
    """Every registered broker's outbox, and the messages made from them."""

    def __init__(
        self,
        controller_id: int,
        controller_epoch: int,
        ack_timeout_ms: int,
        look: Look,
        stops_max: int = 1_000,
        beat_ms: int = 0,
        hidden: Callable[[], HiddenSet] = HiddenSet,
    ) -> None:
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._ack_timeout_ms = ack_timeout_ms
        self._stops_max = stops_max
        self._beat_ms = beat_ms
        self._look = look
        self._hidden = hidden
        """What the controller could not read."""
        self._brokers: dict[int, BrokerOutbox] = {}
        self._left: dict[int, BrokerOutbox] = {}
        """Of brokers that are gone: a life that is seen again goes on from there."""
        self._changed: dict[int, None] = {}
        """Brokers that have something new to hear, or something that waits."""

    def register(self, broker_id: int, broker_epoch: int) -> None:
        """A broker's life begins: what an earlier one was told counts no more."""
        box = self._brokers[broker_id] = BrokerOutbox(broker_epoch, self._stops_max, self._beat_ms, self._ack_timeout_ms)
        earlier = self._left.pop(broker_id, None)
        if earlier is not None and earlier.broker_epoch == broker_epoch:
            box.go_on_from(earlier)

    def forget(self, broker_id: int) -> None:
        """A broker is gone; or so it seems, if its registration could not be read."""
        box = self._brokers.pop(broker_id, None)
        if box is not None:
            self._left[broker_id] = box

    def get(self, broker_id: int, broker_epoch: int) -> BrokerOutbox | None:
        """The outbox of this life of a broker."""
        box = self._brokers.get(broker_id)
        return box if box is not None and box.broker_epoch == broker_epoch else None

    def let_go(self, answers: Sequence[tuple[Address, ControlledShutdownAnswer]]) -> tuple[tuple[Address, ControlledShutdownAnswer], ...]:
        """Answers to brokers that want to leave, with the number of the notice that each is to apply before it does."""
        told = []
        for sender, answer in answers:
            box = self.get(answer.broker_id, answer.broker_epoch)
            notice = -1 if box is None or answer.error else box.let_go()
            told.append((sender, evolve(answer, controller_epoch=self._controller_epoch, notice=notice)))
        return tuple(told)

    def blind(self) -> list[int]:
        """Brokers whose complete notice was made while not everything could be read: another one says which of their copies may stay."""
        return [b for b, box in sorted(self._brokers.items()) if box.announced and box.is_blind]

    def silent(self) -> list[int]:
        """Brokers that have not been sent a complete notice."""
        return [b for b in sorted(self._brokers) if not self._brokers[b].announced]

    def unacknowledged(self) -> dict[int, int]:
        """Broker -> notices it has yet to acknowledge, where there are any."""
        return {b: box.unacknowledged() for b, box in sorted(self._brokers.items()) if box.unacknowledged()}

    def note(self, partition: PartitionId, brokers: Iterable[int]) -> None:
        """The state of a partition was stored: its replicas are to hear it."""
        for broker_id in brokers:
            box = self._brokers.get(broker_id)
            if box is not None:
                box.note(partition)
                self._changed[broker_id] = None

    def name(self, partition: PartitionId, broker_id: int) -> None:
        """A broker is to hear of a partition once more; not if a notice that it has yet to acknowledge does that."""
        box = self._brokers.get(broker_id)
        if box is not None and not box.names(partition):
            self.note(partition, (broker_id,))

    def stop(self, broker_id: int, entry: StopEntry) -> None:
        """A broker is to take a copy out of service. One that is not registered will be found out when it comes back."""
        box = self._brokers.get(broker_id)
        if box is not None:
            box.stop(entry)
            self._changed[broker_id] = None

    def announce(self, broker_id: int, partitions: Iterable[PartitionId], removals: tuple[bytes, ...], now_ms: int) -> LeaderAndIsr:
        """The complete notice for a broker."""
        box = self._brokers[broker_id]
        box.is_blind = False
        number = box.announce(partitions, removals, now_ms)
        self._changed[broker_id] = None
        message = self._message(box, number)
        assert isinstance(message, LeaderAndIsr)
        return message

    def flush(self, now_ms: int) -> Iterator[tuple[int, LeaderAndIsr | StopReplica]]:
        """What is new, one message of a kind per broker."""
        changed, self._changed = self._changed, {}
        for broker_id in sorted(changed):
            box = self._brokers.get(broker_id)
            if box is not None:
                yield from ((broker_id, self._message(box, number)) for number in box.take_news(now_ms))
                if box.is_waiting:
                    self._changed[broker_id] = None

    def heartbeat(self, broker_id: int, broker_epoch: int, applied: int, now_ms: int) -> Iterator[tuple[int, LeaderAndIsr | StopReplica]]:
        """A broker says how far it is: what it should have by now and has not is sent again."""
        box = self.get(broker_id, broker_epoch)
        if box is not None:
            yield from self._again(broker_id, box, box.heartbeat(applied, now_ms), now_ms)

    def overdue(self, now_ms: int) -> Iterator[tuple[int, LeaderAndIsr | StopReplica]]:
        """Notices that were not acknowledged in time, in their newest form."""
        for broker_id, box in sorted(self._brokers.items()):
            yield from self._again(broker_id, box, box.overdue(now_ms - self._ack_timeout_ms), now_ms)

    def owing(self, now_ms: int, session_ms: int, asked: Mapping[int, int]) -> dict[int, bool]:
        """Brokers that have not answered in time -> whether for so long that they count as dead, although their sessions live.

        `asked`: since when those wait for answers that were asked something besides their notices.

        One that is alone with the controller's own cannot be told from a controller that nobody hears; of several, one at least
        has to be heard: else it is this controller that is cut off, and taking leaderships away would only do harm.
        """
        found: dict[int, bool] = {}
        before_ms = now_ms - session_ms
        heard = [b for b, box in self._brokers.items() if box.alive_ms > before_ms and not box.owes(before_ms, asked.get(b))]
        for broker_id, box in sorted(self._brokers.items()):
            if box.owes(now_ms - self._ack_timeout_ms, asked.get(broker_id)):
                others = [b for b in self._brokers if b not in (broker_id, self._controller_id)]
                found[broker_id] = box.owes(before_ms, asked.get(broker_id)) and (not others or any(b in heard for b in others))
        return found

    def deadline_ms(self) -> int | None:
        """When the next notice becomes overdue."""
        oldest = [at for at in (box.oldest_ms() for box in self._brokers.values()) if at is not None]
        return min(oldest) + self._ack_timeout_ms if oldest else None

    def _again(
        self, broker_id: int, box: BrokerOutbox, numbers: Iterable[int], now_ms: int
    ) -> Iterator[tuple[int, LeaderAndIsr | StopReplica]]:
        for number in numbers:
            notice = box.entries(number)
            assert notice is not None
            notice.sent_ms = now_ms
            notice.sends += 1
            yield broker_id, self._message(box, number)

    def _message(self, box: BrokerOutbox, number: int) -> LeaderAndIsr | StopReplica:
        notice = box.entries(number)
        assert notice is not None
        head = (self._controller_id, self._controller_epoch, box.broker_epoch, number)
        if notice.is_stop:
            return StopReplica(*head, [notice.stops[key] for key in sorted(notice.stops)], as_of=box.as_of)
        found = {key: self._look(key) for key in sorted(notice.keys)}
        notice.unsaid.update(key for key, entry in found.items() if entry is None)
        entries = [entry for entry in found.values() if entry is not None]
        box.is_blind = box.is_blind or (notice.complete and self._hidden().hides_copies)
        is_partial = notice.complete and bool(self._hidden().topics)
        return LeaderAndIsr(*head, notice.complete, self._ack_timeout_ms, entries, is_partial, as_of=box.as_of)
