"""The controller's commands lost, repeated and in any order, through registrations and controllers: a broker and its outbox as they are.

Within the life of a process no copy goes back, and once everything arrives the broker serves what it is to serve, as it is now.
"""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve
from tests.unit.broker.test_commands import FullDirectory

from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.controller.outboxes import Outboxes
from replog.errors import Code, LogFull
from replog.messages import LeaderAndIsr, LeaderAndIsrAnswer, PartitionNotice, Registered, StopEntry, StopReplica, StopReplicaAnswer
from replog.model import Assignment, PartitionId, PartitionState
from replog.testing.clock import SeededIds

PARTITIONS = [PartitionId(b"t" * 16, number, 0) for number in range(3)]
BROKER, CONTROLLER = 3, 1
Message = LeaderAndIsr | StopReplica | LeaderAndIsrAnswer | StopReplicaAnswer | Registered


class Surroundings:
    """What is stored, one broker, its controller, and what is on its way between them."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now_ms = 1
        self.states = {one: PartitionState(2, 1, (2,), partition_epoch=0) for one in PARTITIONS}
        self.wanted = {one: self.chance.random() < 0.7 for one in PARTITIONS}
        self.life = self.controller_epoch = 1
        self.waiting: list[Message] = []
        self.directory = FullDirectory(limits=BrokerConfig(), directory_id="d" * 32)
        self.directory.problem = None
        self.start()
        self.elect()

    def start(self) -> None:
        """Another process of the broker; it learns of its registration later."""
        self.broker = Broker(BROKER, self.directory, config=BrokerConfig(), ids=SeededIds(1))
        self.seen: dict[PartitionId, tuple[int, int]] = {}
        self.waiting = [one for one in self.waiting if not isinstance(one, Registered)] + [Registered(BROKER, self.life)]

    def elect(self) -> None:
        """Another controller."""
        self.boxes = Outboxes(CONTROLLER, self.controller_epoch, 3_000, self.look)
        self.register()

    def register(self) -> None:
        """The controller sees the registration of now, and tells the broker everything."""
        self.boxes.register(BROKER, self.life)
        self.waiting.append(self.boxes.announce(BROKER, [one for one in PARTITIONS if self.wanted[one]], (), self.now_ms))

    def look(self, partition: PartitionId) -> PartitionNotice:
        replicas = (2, BROKER) if self.wanted[partition] else (2,)
        return PartitionNotice(partition, "t", self.states[partition], Assignment(replicas), TopicConfig(min_isr=1))

    def change(self) -> None:
        """A partition has another state; often it comes, or goes."""
        one = self.chance.choice(PARTITIONS)
        known = self.states[one]
        moves, epochs = self.chance.random() < 0.5, self.chance.random() < 0.4
        self.states[one] = evolve(known, partition_epoch=known.partition_epoch + 1, leader_epoch=known.leader_epoch + epochs)
        self.wanted[one] ^= moves
        if self.wanted[one]:
            self.boxes.note(one, [BROKER])
        elif moves:
            self.boxes.stop(BROKER, StopEntry(one, self.states[one].leader_epoch, self.chance.random() < 0.8))

    def deliver(self, message: Message) -> None:
        if isinstance(message, LeaderAndIsr | StopReplica):
            self.broker.receive(("controller", CONTROLLER), message, self.now_ms)
            self.waiting += [one for _, one in self.broker.outbox.messages if isinstance(one, LeaderAndIsrAnswer | StopReplicaAnswer)]
            self.broker.outbox.messages.clear()
            self.check()
        elif isinstance(message, Registered):
            if message.broker_epoch > self.broker.broker_epoch:  # a process hears of its registrations in their order
                self.broker.receive(None, message, self.now_ms)
        elif (message.error, message.controller_epoch) == (0, self.controller_epoch):
            box = self.boxes.get(BROKER, message.broker_epoch)
            if box is not None:
                assert {code for _, code in message.errors} <= {Code.LOG_DIRECTORY_FULL}
                box.answered(message.notice, tuple(one for one, _ in message.errors), self.now_ms)

    def check(self) -> None:
        """No copy goes back."""
        for identity, copy in self.broker.partitions.items():
            epochs = (copy.leader_epoch, copy.partition_epoch)
            assert epochs >= self.seen.get(identity, epochs)
            self.seen[identity] = epochs

    def remind(self) -> None:
        """What is overdue is said again, and what a heartbeat shows to be missing."""
        commands = self.broker._commands
        applied = commands.notice if commands.controller_epoch == self.controller_epoch else -1
        self.waiting += [one for _, one in self.boxes.heartbeat(BROKER, self.broker.broker_epoch, applied, self.now_ms)]
        self.waiting += [one for _, one in self.boxes.overdue(self.now_ms)]

    def step(self) -> None:
        """One thing that happens, with everything that may go wrong."""
        self.now_ms += self.chance.choice((1, 10, 500, 1_500))
        kinds = {"change": 25, "deliver": 40, "lose": 7, "remind": 14, "register": 5, "elect": 2, "start": 1, "fill": 3}
        (what,) = self.chance.choices(list(kinds), kinds.values())
        if what in ("deliver", "lose") and self.waiting:
            index = self.chance.randrange(len(self.waiting))
            message = self.waiting[index] if self.chance.random() < 0.25 else self.waiting.pop(index)
            if what == "deliver":
                self.deliver(message)
        elif what == "change":
            self.change()
        elif what == "remind":
            self.remind()
        elif what == "fill":
            self.directory.problem = None if self.directory.problem else LogFull
        elif what == "register":  # anew, or the same one that could not be read for a while
            self.boxes.forget(BROKER)
            if self.chance.random() < 0.5:
                self.life += 1
                self.waiting.append(Registered(BROKER, self.life))
            self.register()
        elif what == "elect":
            self.controller_epoch += 1
            self.elect()
        elif what == "start":
            self.life += 1
            self.start()
            self.register()
        self.waiting += [one for _, one in self.boxes.flush(self.now_ms)]

    def settle(self) -> None:
        """Nothing is lost any more, and there is room."""
        self.directory.problem = None
        box = self.boxes.get(BROKER, self.life)
        assert box is not None
        for _ in range(100):
            self.waiting.append(Registered(BROKER, self.life))
            while self.waiting:
                self.deliver(self.waiting.pop(self.chance.randrange(len(self.waiting))))
                self.waiting += [one for _, one in self.boxes.flush(self.now_ms)]
            if not (box.unacknowledged() or box.is_waiting):
                return
            self.now_ms += 3_000
            self.remind()
        pytest.fail("the broker never gets on")


@pytest.mark.parametrize("first", range(0, 800, 100))
def test_nothing_goes_back_and_everything_is_heard_at_last(first: int) -> None:
    for seed in range(first, first + 100):
        around = Surroundings(seed)
        for _ in range(around.chance.choice((40, 120, 300))):
            around.step()
        around.settle()
        served = {identity: copy.partition_epoch for identity, copy in around.broker.partitions.items()}
        assert served == {one: around.states[one].partition_epoch for one in PARTITIONS if around.wanted[one]}, f"seed {seed}"
