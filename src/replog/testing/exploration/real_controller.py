"""The controller of the exploration: the real decisions on what the store holds, and the real bookkeeping of what was stored.

`Controller.decide` and `Controller.apply` run as they are; the executor between them, which talks to the store, is reduced
to what it can do to anybody: a step is stored, or the outcome is unknown and the event is decided again. One controller
lives through it all, and nobody writes to the store beside it: what it knows is what is stored.

Proposals have no numbers here, and which were refused is not remembered from one step to the next. It would tell no states apart:
a proposal that its leader no longer waits for is out of date by its epochs as well, since no broker is draining or out of room
here, and whoever was not registered comes with another broker epoch. A test looks that none of them is ever granted.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from replog.controller.changes import Admitted, Broker, BrokerAdmitted, BrokerSet, Due, StateSet, Topic, TopicSet
from replog.controller.controller import Controller
from replog.controller.decision import Decision
from replog.controller.events import BrokerAcknowledged, BrokersSeen, Event, IsrProposed, Recheck
from replog.messages import AlterIsr, AlterIsrEntry
from replog.model import BrokerInfo
from replog.ports import LossReport
from replog.testing.exploration.real_snapshot import IDENTITY, LIMITS, TOPIC, Frozen, Setting, freeze_state, thaw_state

__all__ = ["ControllerState", "Controllers"]

_DIRECTORY: Final = "directory"


@frozen
class ControllerState:
    """What is stored, and who is registered; all ints and tuples of such."""

    state: Frozen
    """The partition's state, as `freeze_state` makes it."""
    registered: Frozen
    """By broker: (broker epoch, incarnation, lossy), or ()."""
    admitted: Frozen
    """By broker: (broker epoch, incarnation) of the last one that was let in."""
    due: int
    """Whether the partition has to be decided again."""

    def flat(self) -> Frozen:
        """Everything, to tell states apart."""
        return self.state, self.registered, self.admitted, self.due

    @property
    def view(self) -> Frozen:
        """What the brokers are told of each other: (broker epoch, fenced), or ()."""
        both = zip(self.registered, self.admitted, strict=True)
        return tuple((one[0], int(not let_in or let_in[0] != one[0])) if one else () for one, let_in in both)


class Controllers:
    """The decisions of a controller in one setting."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._topic = Topic(TOPIC, IDENTITY.topic_id, setting.config, {0: setting.assignment})

    def brokers_seen(self, before: ControllerState, registered: Frozen) -> ControllerState:
        """The registrations have changed."""
        brokers = tuple(_broker(n, one) for n, one in enumerate(registered, 1) if one)
        return self._decided(before, BrokersSeen(brokers), registered)[0]

    def rechecked(self, before: ControllerState) -> ControllerState:
        """What is due is decided: the election."""
        return self._decided(before, Recheck(), before.registered)[0]

    def acknowledged(self, before: ControllerState, broker_id: int, broker_epoch: int) -> ControllerState:
        """A broker has applied its complete notice: it is let in."""
        return self._decided(before, BrokerAcknowledged(broker_id, broker_epoch), before.registered)[0]

    def proposed(self, before: ControllerState, message: Frozen, *, unknown: bool = False) -> tuple[ControllerState, Frozen]:
        """A wish for another ISR, and the answer: (error, state), or () if there is none that its sender would look at.

        After an outcome that nobody heard the controller reads what is stored and decides once more.
        """
        _, broker_id, broker_epoch, leader_epoch, partition_epoch, members, recovering, _ = message
        entry = AlterIsrEntry(IDENTITY, leader_epoch, partition_epoch, list(members), bool(recovering))
        event = IsrProposed(broker_id, AlterIsr(1, broker_id, broker_epoch, [entry]))
        after, decision = self._decided(before, event, before.registered)
        if unknown:
            after, decision = self._decided(after, event, after.registered)
        ((_, answer),) = decision.answers
        if answer.error:
            return after, ()
        (result,) = answer.entries
        return after, (int(result.error), () if result.state is None else freeze_state(result.state))

    def _decided(self, before: ControllerState, event: Event, registered: Frozen) -> tuple[ControllerState, Decision]:
        controller = self._controller(before)
        decision = controller.decide(event)
        for step in decision.steps:
            controller.apply(step)
        cluster = controller.cluster
        admitted = tuple(
            (cluster.admitted[n].broker_epoch, int(cluster.admitted[n].incarnation)) if n in cluster.admitted else ()
            for n in self._setting.assignment.replicas
        )
        return ControllerState(freeze_state(cluster.states[IDENTITY]), registered, admitted, len(cluster.due)), decision

    def _controller(self, before: ControllerState) -> Controller:
        controller = Controller(controller_epoch=1, epoch_version=0, config=LIMITS)
        apply = controller.cluster.apply
        apply(TopicSet(self._topic))
        apply(StateSet(IDENTITY, thaw_state(before.state)))
        for n, one in enumerate(before.registered, 1):
            if one:
                apply(BrokerSet(_broker(n, one)))
        for n, let_in in enumerate(before.admitted, 1):
            if let_in:
                apply(BrokerAdmitted(n, Admitted(let_in[0], str(let_in[1]), _DIRECTORY, 0)))
        if before.due:
            apply(Due((IDENTITY,)))
        return controller


def _broker(broker_id: int, registered: Frozen) -> Broker:
    broker_epoch, incarnation, lossy = registered
    lives = tuple(map(str, reversed(range(incarnation))))
    loss = LossReport("power", lossy=(IDENTITY,), lives=lives) if lossy else LossReport("process", lives=lives)
    return Broker(BrokerInfo(broker_id, broker_epoch, directory_id=_DIRECTORY, fenced=True), loss, str(incarnation))
