"""One term of one controller: it loads the store, runs events one by one, and tells brokers what was stored.

Nothing here outlives the term: the next controller, perhaps on the same broker, starts again from the store.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice

from attrs import evolve

from replog.config import BrokerConfig
from replog.controller import topics
from replog.controller.admitting import is_kept_out, is_led_early, is_to_wait
from replog.controller.balance import Rhythm
from replog.controller.campaign import Deposed, Won, still_seated
from replog.controller.changes import Change, DrainingSet, Due, HiddenSet, NodesFreed, Parked, Settled, StateSet, TopicGone, TopicSet
from replog.controller.controller import Controller
from replog.controller.decision import Decision, Step
from replog.controller.echoes import Echoes
from replog.controller.events import (
    AdminAsked,
    BalanceDue,
    DeletionsSeen,
    Event,
    FinishDeletion,
    MovesDue,
    Recheck,
    RejectionsSeen,
    ShutdownAsked,
    WishesSeen,
)
from replog.controller.hearing import Hearing
from replog.controller.looks import LATER, LOOKS, ONCE, WISHED, looks_at
from replog.controller.parking import TOGETHER_MAX, TRIES_MAX, waiting, without
from replog.controller.publishing import Publisher
from replog.controller.queues import Observer, Queued, Queues, row_of
from replog.controller.reading import Reader, Script
from replog.controller.refusal import failed, resigned, why_given_up
from replog.controller.rows import may_be_of_unknown, noted
from replog.controller.stuck import let_be
from replog.errors import ReplogError, UsageError
from replog.metadata import layout
from replog.ports import Conflict, Delete, Outbox, SessionLost, UnknownOutcome
from replog.ports import Event as Told

__all__ = ["Term"]

_SEEN = DeletionsSeen | WishesSeen | RejectionsSeen


class Term(Hearing):
    """The state of one term, and the scripts that its executor runs."""

    def __init__(
        self,
        broker_id: int,
        won: Won,
        *,
        config: BrokerConfig,
        cluster_id: str,
        outbox: Outbox,
        reader: Reader,
        observer: Observer | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._won = won
        self._since_ms = 0
        self._controller_epoch = won.controller_epoch
        self._config = config
        self._cluster_id = cluster_id
        self._outbox = outbox
        self._reader = reader
        self._queues = Queues(observer=observer)
        self._looks: dict[str, None] = {}
        """Levels of the store to be read again."""
        self._echoes = Echoes(config.reconcile_ms)
        self._unsure: dict[str, None] = {}
        """Paths to be read again before anything is decided: a conflict, or an outcome nobody heard."""
        self._failure: ReplogError | None = None
        """What the store said to the last step that it did not commit."""
        self._failed: list[tuple[Step, ReplogError]] = []
        """The steps of the last decision that were not stored."""
        self._confirmed = 0
        """What was asked up to this number was asked before the seat was seen to be ours, or a step was committed."""
        self._kept_out: dict[int, int] = {}
        """Of which life of a broker people were told that it has to wait."""
        self.loaded = False
        self._now_ms = 0
        self._wall_ms = 0
        self._begin()

    def _begin(self) -> None:
        self.controller = Controller(
            controller_epoch=self._won.controller_epoch, epoch_version=self._won.epoch_version, config=self._config
        )
        self.controller.broker_id = self._broker_id
        self.controller.wall_ms = self._wall_ms
        self.cluster = self.controller.cluster
        epoch = self._won.controller_epoch
        self.publisher = Publisher(
            self._broker_id, epoch, self._cluster_id, config=self._config, cluster=self.cluster, outbox=self._outbox
        )
        self.balance = Rhythm(self._config.leader_imbalance_check_ms)

    @property
    def waiting(self) -> int:
        """Events that wait for their turn."""
        return len(self._queues)

    # ---- what to run next

    def at(self, now_ms: int, wall_ms: int) -> None:
        """The time of what happens next."""
        self._now_ms = now_ms
        self._wall_ms = self.controller.wall_ms = wall_ms
        self._since_ms = self.controller.since_ms = self._since_ms or wall_ms  # an actor that was never polled has no clock yet

    def next_script(self) -> Script | None:
        """The most urgent thing to do with the store; None if there is nothing."""
        if self._unsure:
            return self._reassure()
        if not self.loaded:
            return self._load()
        for look in ("seat", "brokers"):
            if look in self._looks:
                return self._look(look)
        if self.cluster.due:
            self.ask(Recheck())
        if self._queues.urgent:
            return self._perform()
        for look in LATER:
            if look in self._looks:
                return self._look(look)
        return self._perform() if self._queues.background else None

    def _load(self) -> Script:
        """Everything the store knows; then every partition is looked at once, and every broker told everything."""
        self._begin()
        for read in (self._reader.identity, self._reader.admitted, self._reader.removed, self._reader.draining, self._reader.losses):
            self._applied(Step(changes=tuple((yield from read()))))
        self._observe(self.controller.decide((yield from self._reader.brokers())))
        self._observe(self.controller.decide((yield from self._reader.topics(self.cluster))))
        self._take_standing(*(yield from self._standing()))
        self._applied(Step(changes=tuple(map(TopicGone, self._reader.doubted(self.cluster.topics.values())))))
        yield from self._confirm()
        self._note_hidden(is_whole=True)
        everything = tuple(p for t in sorted(self.cluster.topics) for p in self.cluster.topics[t].identities())
        early = tuple(p for p in everything if is_led_early(self.cluster, self.cluster.states.get(p)))
        # Of all others nothing was missed: nobody was let in before that.
        self._applied(Step(changes=(Settled(everything), Parked(early), Due(everything))))
        for topic_id in sorted(self.cluster.deletions):
            self.ask(FinishDeletion(topic_id))
        self._looks.update(dict.fromkeys(WISHED))  # drops wishes that name no topic
        self.loaded = True
        self._echoes.end(self._now_ms)
        self._tell("controller_loaded", topics=len(self.cluster.topics), partitions=len(everything))

    def _standing(self) -> Script:
        """Wishes that stand against what is decided about a topic that is new here. Read before it is taken, and taken with it."""
        moves = yield from self._reader.wishes(layout.PARTITIONS_REASSIGNED, self.cluster)
        return moves, (yield from self._reader.deletions(self.cluster, nested=True))

    def _take_standing(self, moves: WishesSeen, deletions: DeletionsSeen) -> None:
        """Where partitions are wished to be: no move ends elsewhere. Which topics are to be deleted: they are left as they are."""
        self._applied(Step(changes=noted(self.cluster, moves)))
        self._observe(Decision(tuple(s for s in self.controller.decide(deletions).steps if not s.ops)))

    def _admissions(self) -> Script:
        """Who was let in, of those of whom the store did not say so: that may show what they have lost."""
        found = yield from self._reader.admitted()
        news = tuple(change for change in found if self.cluster.admitted.get(change.broker_id) != change.admitted)
        if news:
            yield from self._confirm()
            self._applied(Step(changes=(*news, topics.due_after(self.cluster, news))))
            led = {change.broker_id for change in news if change.admitted.is_early}
            early = tuple(partition for partition, state in self.cluster.states.items() if state.leader in led)
            self._applied(Step(changes=(Parked(early), Due(early))))
        self._note_hidden(is_whole=True)

    def _look(self, what: str) -> Script:
        """Read one level again. A watch that fires meanwhile makes it due once more; so does a failure."""
        self._looks.pop(what, None)
        try:
            yield from self._look_at(what)
        except ReplogError:
            self._looks[what] = None
            raise
        finally:
            self._note_hidden()

    def _note_hidden(self, *, is_whole: bool = False) -> None:
        """What could not be read: until it can be, whoever may have lost something of it is not let in. Of who was let in before that is
        known only once all of that `is_whole`: read, and taken.
        """
        hidden, before = self._reader.hidden(self.cluster), self.cluster.hidden
        if not is_whole and before.hides_admissions:
            hidden = evolve(
                hidden,
                admissions=hidden.admissions | before.admissions,
                others=hidden.others or before.others,
                garbled=hidden.garbled | before.garbled,
            )
        if hidden != before:
            self._applied(Step(changes=(hidden,)))

    def _look_at(self, what: str) -> Script:
        if what == "seat":
            return (yield from self._confirm())
        if what in ONCE:
            return (yield from self._look_again(what))
        armed = self._reader.is_armed(LOOKS[what])
        if what == "brokers":
            if self.cluster.hidden.hides_admissions:
                yield from self._admissions()
            seen = yield from self._reader.brokers()
            if self._reader.is_blind(self.cluster) and self.controller.decide(seen).steps:
                yield from self._look_closer()
            decision = self.controller.decide(seen)
            if decision.steps:
                yield from self._confirm()  # a new life obeys whoever comes first, and forgets what it has lost
        elif what == "topics":
            return (yield from self._look_at_topics())
        else:
            wishes = yield from self._wishes(what)
            if self._echoes.deadline_ms() is not None and may_be_of_unknown(self.cluster, wishes):
                self._looks.update({"topics": None, what: None})  # the look that waits may show its topic: else it would be dropped
            elif wishes.wishes:
                self.ask(wishes)
            return
        self._observe(decision)
        self._look_behind(what, armed and bool(decision.steps))

    def _look_at_topics(self) -> Script:
        armed = self._reader.is_armed(layout.TOPICS)
        self._echoes.begin()
        seen = yield from self._reader.topics(self.cluster)
        standing = (yield from self._standing()) if seen.topics else ()
        doubted = self._reader.doubted(seen.topics)
        decision = self.controller.decide(seen.without(doubted))
        if decision.steps:
            yield from self._confirm()
        self._looks.update(dict.fromkeys(WISHED if seen.topics else ()))  # what is wished about them may have waited
        self._observe(decision)
        if standing:
            self._take_standing(*standing)
        self._echoes.end(self._now_ms)
        self._look_behind("topics", armed and bool(decision.steps))

    def _look_behind(self, what: str, is_silent: bool) -> None:
        """Something changed and the watch did not say so: it is lost, or late. Arm another, and look behind it."""
        if is_silent and what not in self._looks:
            self._reader.fired(LOOKS[what])
            self._looks[what] = None

    def _look_again(self, what: str) -> Script:
        """What was read when the term began, and not all of it could be."""
        reads = {"removed": self._reader.removed, "draining": self._reader.draining, "losses": self._reader.losses}
        found = tuple((yield from reads[what]()))
        yield from self._confirm()
        drained = [one.broker_id for one in found if isinstance(one, DrainingSet) and self.cluster.draining.get(one.broker_id) != one]
        led = tuple(partition for broker_id in drained for partition in self.cluster.on_broker(broker_id))
        self._applied(Step(changes=(*found, Due(led))))

    def _look_closer(self) -> Script:
        """What could not be read may be mended: what a new life has lost counts there too, and is forgotten once it is let in."""
        yield from self._look_at("topics")
        self._unsure.update(dict.fromkeys(self.cluster.vanished_paths()))
        yield from self._reassure()

    def _wishes(self, what: str) -> Script:
        seen = yield from self._reader.row(what, self.cluster)
        self._applied(Step(changes=noted(self.cluster, seen)))
        return seen

    def _reassure(self) -> Script:
        """After a conflict or an unknown outcome: what does the store have at those paths, and is the seat still ours?"""
        paths = list(self._unsure)
        changes = yield from self._reader.again(self.cluster, paths)
        found = [change.topic for change in changes if isinstance(change, TopicSet) and change.topic.topic_id not in self.cluster.topics]
        standing = (yield from self._standing()) if found else ()
        changes = _without(changes, self._reader.doubted(found))
        yield from self._confirm()
        stops = topics.stops_of(self.cluster, changes)
        due = topics.due_after(self.cluster, changes)
        new = (change for change in changes if isinstance(change, StateSet) and change.partition not in self.cluster.states)
        early = tuple(change.partition for change in new if is_led_early(self.cluster, change.state))
        self._applied(Step(changes=(*changes, Parked(early), due), stops=stops))
        if standing:
            self._take_standing(*standing)
        self._note_hidden()
        for path in paths:
            self._unsure.pop(path, None)

    def _confirm(self) -> Script:
        """What was read counts if the seat is still ours: else a successor may have written it, and told less than that before (P-61)."""
        asked = self._queues.asked
        if not (yield from still_seated(self._reader, self._broker_id, self._won.controller_epoch)):
            raise Deposed
        self._confirmed = asked

    # ---- one event

    def ask(self, event: Event) -> None:
        """Have an event decided when its turn comes."""
        self._queues.ask(event)

    def _perform(self) -> Script:
        """Decide the event whose turn it is, store the steps, and only then tell. It stays first if it has to be decided again."""
        queued = self._queues.next()
        assert queued is not None
        decision = self.controller.decide(queued.event)
        if decision.as_controller and queued.number > self._confirmed:
            yield from self._confirm()  # for all that wait: many questions cost one look
        tries = self._queues.tries(queued)
        found = self.cluster.found
        steps = decision.steps if tries < TOGETHER_MAX else tuple(one for step in decision.steps for one in step.apart())
        stored = yield from self._store(steps)
        if not stored and self.cluster.found > found:
            return  # decided again at once: without what cannot be removed, or with what is below
        aside = Step() if stored else waiting(self.cluster, queued.event, self._failed, self._reader.unreadable, tries)
        self._applied(aside)
        if not stored and (rest := without(queued.event, aside, self._failed, self._reader.unreadable, tries)) is not None:
            queued.event, queued.tries = rest, 0
            return  # decided again at once
        if not stored and queued.tries < TRIES_MAX and not isinstance(queued.event, _SEEN):
            queued.tries += 1
            return
        self._queues.done(queued, stored=stored)
        if stored:
            self._conclude(queued, decision)
        elif isinstance(queued.event, _SEEN):
            # What was seen is true no more: look again; at what cannot be stored only so often before the next `reconcile`.
            what = row_of(queued.event)
            if self._queues.in_vain(what) > TRIES_MAX:
                self._give_up(queued.event)
            else:
                self._looks[what] = None
        else:
            self._give_up(queued.event)

    def _store(self, steps: tuple[Step, ...]) -> Script:
        """Each step is a transaction of its own. True if all of them were committed; what was not is read again first."""
        stored, asked = [step for step in steps if step.ops], self._queues.asked
        self._echoes.store(stored)
        try:
            results = (yield "commit_each", [step.ops for step in stored]) if stored else []
        except (UnknownOutcome, UsageError) as error:  # whoever only waited would try the same for ever
            results = [error] * len(stored)
        outcome = dict(zip(map(id, stored), results, strict=True))
        self._failed = []
        refused, beside = list[Delete](), list[Delete]()
        for step in steps:
            result = outcome.get(id(step), [])
            if isinstance(result, list):
                self._confirmed = asked if step.ops else self._confirmed  # its guard has held
                self._applied(step.as_stored(result))
                continue
            self._failure = result
            self._failed.append((step, result))
            if isinstance(result, Conflict):
                if result.path == layout.CONTROLLER_EPOCH:
                    raise Deposed
                self._unsure[result.path] = None
                removals = [op for op in step.ops if isinstance(op, Delete)]
                beside += removals
                refused += [op for op in removals if op.path == result.path]
            elif isinstance(result, SessionLost):
                raise result
            else:
                self._unsure.update(dict.fromkeys(op.path for op in step.ops[1:]))
        for step in (yield from let_be(self._reader, self.cluster, refused, beside)):
            self._applied(step)
        return not self._unsure

    def _observe(self, decision: Decision) -> None:
        """Take a decision that stores nothing."""
        for step in decision.steps:
            assert not step.ops
            self._applied(step)
        for event in decision.after:
            self.ask(event)

    def _applied(self, step: Step) -> None:
        publisher = self.publisher
        altered = publisher.altered(step)
        moving, parked = len(self.cluster.moving), len(self.cluster.parked)
        self.controller.apply(step)
        if len(self.cluster.moving) < moving or len(self.cluster.parked) < parked:
            self.ask(MovesDue())  # there is room for those that wait, whichever way these have ended; or one need not wait any more
            self._queues.resume()
        publisher.note(step, altered)
        self._outbox.events.extend(step.told)

    def _conclude(self, queued: Queued, decision: Decision) -> None:
        """Every step is applied: answer, ask, and go on."""
        event, answers = queued.event, decision.answers
        if isinstance(event, ShutdownAsked) and answers:
            self.publish()  # what was moved is to be on its way, with its number, when the broker hears that it may leave
            answers = self.publisher.outboxes.let_go(answers)
        self._outbox.messages.extend(answers)
        if isinstance(event, FinishDeletion) and decision.answers:
            self.controller.waiters.pop(event.topic_id, None)
        if decision.asks:
            self.publisher.ask_replicas(decision.asks, self._now_ms)
        for following in decision.after:
            self._queues.ask(following, queued)
        self._queues.put_off(decision.later)
        doubted = ((self.cluster.topics[p.topic_id].topic, p.partition) for p in decision.doubt)
        self._unsure.update(dict.fromkeys(layout.partition_state_path(*place) for place in doubted))

    def _give_up(self, event: Event) -> None:
        if isinstance(event, FinishDeletion):
            asking = self.controller.waiters.pop(event.topic_id, ())
            why = f"{self._why('delete_topic')}; it is wished, and is tried again"
            self._outbox.messages.extend((sender, failed(said.request, said.origin, why)) for sender, said in asking)
        if not self._queues.given_up(event):
            return  # people have been told
        name = type(event).__name__
        self._tell("decision_given_up", event=name, why=self._why(name))
        if isinstance(event, AdminAsked):
            asked = event.request
            self._outbox.messages.append((event.sender, failed(asked.request, asked.origin, self._why(asked.verb))))

    def _why(self, asked: str) -> str:
        return why_given_up(self._failure, asked, self._reader.unreadable)

    def _tell(self, name: str, **fields: object) -> None:
        self._outbox.events.append(Told(name, {"controller_epoch": self._won.controller_epoch, **fields}))

    def _tell_kept_out(self) -> None:
        """Of each life of a broker once."""
        for broker_id in self.publisher.outboxes.silent() if self.cluster.hidden != HiddenSet() else ():
            epoch = self.cluster.brokers[broker_id].info.broker_epoch
            if is_kept_out(self.cluster, broker_id) and self._kept_out.get(broker_id) != epoch:
                self._kept_out[broker_id] = epoch
                self._tell("broker_kept_out", broker=broker_id, unreadable=", ".join(islice(self._reader.unreadable, 10)))

    def publish(self) -> None:
        """Tell brokers what has become known."""
        if self.loaded:
            self._tell_kept_out()
            self.publisher.publish(self._now_ms, partial(is_to_wait, self.cluster))
            self.controller.view_version = self.publisher.version

    # ---- time

    def fired(self, path: str) -> None:
        """A watch fired: look again."""
        for what in looks_at(path):
            if what != "topics" or not self._echoes.is_one(len(self.cluster.topics), self._now_ms):
                self._looks[what] = None

    def reconcile(self) -> None:
        """Look at everything whose watch may have been lost, and let brokers notice a delta that was."""
        self._looks.update(dict.fromkeys(LOOKS))
        self._looks.update({what: None for what, level in ONCE.items() if self._reader.is_refused(level)})
        self._queues.forgive()
        self._applied(Step(changes=(NodesFreed(),)))
        self._unsure.update(dict.fromkeys(self.cluster.vanished_paths()))
        if self.cluster.identity.identity is None:
            self._unsure[layout.CLUSTER] = None  # nobody may raise the level until it is mended
        if self.loaded:
            self.publisher.send_still()
            self.publisher.name_again(self.cluster.broken())

    def run_timers(self) -> None:
        """Send again what was not acknowledged or answered in time."""
        self.publisher.send_overdue(self._now_ms)
        self._listen()
        if self._echoes.is_due(self._now_ms):
            self._looks["topics"] = None
        if self.balance.is_due(self._now_ms):
            self.ask(BalanceDue())
        for event in self.publisher.ask_again(self._now_ms):
            self.ask(event)

    def deadline_ms(self) -> int | None:
        """When `run_timers` has something to do."""
        deadlines = self.publisher.deadline_ms(), self.balance.deadline_ms(self._now_ms), self._echoes.deadline_ms()
        return min((d for d in deadlines if d is not None), default=None)

    def resign(self) -> None:
        """Tell everyone who waits for an answer to look for another controller."""
        self._outbox.messages.extend(resigned(self._queues.waiting(), self.controller.waiters.values()))


def _without(changes: Sequence[Change], topics: Collection[bytes]) -> list[Change]:
    """What the store says, but for what is about topics that are left out."""
    return [change for change in changes if not (isinstance(change, TopicSet | StateSet) and _topic_id(change) in topics)]


def _topic_id(change: TopicSet | StateSet) -> bytes:
    return change.topic.topic_id if isinstance(change, TopicSet) else change.partition.topic_id
