"""Rules about epochs: they grow, each has one leader, and old ones change nothing."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import PID, STATE, booted, copy_of, holds, ledger, node_with, partition, violates

from replog.config import TopicConfig
from replog.errors import Code
from replog.messages import (
    AlterIsrAnswer,
    AlterIsrResult,
    ClusterView,
    Fetch,
    Fetched,
    FetchedEntry,
    FetchEntry,
    Flushed,
    FlushedEntry,
    LeaderAndIsr,
    Metadata,
    PartitionNotice,
    Registered,
    ReplicaStates,
    StopEntry,
    StopReplica,
    UpdateMetadata,
)
from replog.metadata import layout
from replog.model import Assignment
from replog.ports import Put
from replog.testing.simulator.invariants import EpochsNeverGoBack, LeadersNeverGoBack, OldMessagesChangeNothing, OneLeaderPerEpoch


def test_s5_two_processes_lead_one_epoch() -> None:
    book, rule = ledger(), OneLeaderPerEpoch()
    holds(rule.led, book, copy_of(1, []), partition())
    holds(rule.led, book, copy_of(1, []), partition())
    again = copy_of(1, [])
    again.life = 2
    violates("S5", rule.led, book, again, partition())


def test_s6_an_epoch_goes_back() -> None:
    rule, copy = EpochsNeverGoBack(), copy_of(1, [])
    copy.leader_epoch, copy.partition_epoch = 3, 4
    holds(rule.changed, ledger(), copy, partition())
    copy.leader_epoch = 4
    violates("S6", rule.changed, ledger(), copy, partition())
    holds(rule.stored, ledger(), {}, evolve(STATE, leader_epoch=2))
    violates("S6", rule.stored, ledger(), {}, evolve(STATE, leader_epoch=4))


def test_s6_epochs_of_the_store() -> None:
    rule = EpochsNeverGoBack()
    holds(rule.epoch, "the controller", 1, 1)
    violates("S6", rule.epoch, "the controller", 2, 1)
    holds(rule.epoch, "broker 1", 1, 2)
    violates("S6", rule.epoch, "broker 1", 2, 2)
    holds(rule.registered, 1, 5, 5)
    violates("S6", rule.registered, 1, 6, 5)


def test_s8_a_leader_goes_back() -> None:
    rule, copy = LeadersNeverGoBack(), copy_of(1, [])
    copy.led, copy.high_watermark = (1, 3), 2
    leader = partition()
    leader.high_watermark = 2
    holds(rule.changed, ledger(), copy, leader)
    leader.high_watermark = 1
    violates("S8", rule.changed, ledger(), copy, leader)
    copy.led = (1, 2)
    holds(rule.changed, ledger(), copy, leader)


def leader_and_isr(controller_epoch: int = 1, broker_epoch: int = 1, **state: int) -> LeaderAndIsr:
    notice = PartitionNotice(PID, "t", evolve(STATE, **state), Assignment((1, 2, 3)), TopicConfig(min_isr=2))
    return LeaderAndIsr(2, controller_epoch, broker_epoch, 0, False, 1_000, [notice], as_of=0)


def fetch(leader_epoch: int, broker_epoch: int = 2) -> Fetch:
    return Fetch(1, 2, broker_epoch, 0, 0, 0, 0, 0, [FetchEntry(PID, leader_epoch, 3, 3, 1)])


def fetched(leader_epoch: int) -> Fetched:
    return Fetched(1, 1, 1, 0, [FetchedEntry(PID, leader_epoch, 0)])


def answer(partition_epoch: int) -> AlterIsrAnswer:
    result = AlterIsrResult(PID, Code.INVALID_UPDATE_VERSION, evolve(STATE, partition_epoch=partition_epoch))
    return AlterIsrAnswer(1, 0, [result])


def view(controller_epoch: int, broker_epoch: int = 1) -> UpdateMetadata:
    return UpdateMetadata(2, controller_epoch, broker_epoch, ClusterView(controller_epoch, 1, -1, 2, [], []))


_OLD_AND_NEW = {
    "leader epoch": (leader_and_isr(leader_epoch=2), leader_and_isr()),
    "partition epoch": (leader_and_isr(partition_epoch=3), leader_and_isr()),
    "controller epoch": (leader_and_isr(controller_epoch=0), leader_and_isr()),
    "broker epoch": (leader_and_isr(broker_epoch=0), leader_and_isr()),
    "stop": (StopReplica(2, 1, 1, 0, [StopEntry(PID, 2, False)], as_of=0), StopReplica(2, 1, 1, 0, [StopEntry(PID, 3, False)], as_of=0)),
    "stop for a deleted topic": (
        StopReplica(2, 0, 1, 0, [StopEntry(PID, -2, False)], as_of=0),
        StopReplica(2, 1, 1, 0, [StopEntry(PID, -2, False)], as_of=0),
    ),
    "view": (view(0), view(1)),
    "view of an earlier life": (view(1, 0), view(1)),
    "question": (ReplicaStates(2, 0, 1, 1, []), ReplicaStates(2, 1, 1, 1, [])),
    "fetch": (fetch(2), fetch(3)),
    "fetch of an earlier life": (fetch(3, broker_epoch=1), fetch(3)),
    "answer to a fetch": (fetched(2), fetched(3)),
    "flushed end": (Flushed(2, 2, [FlushedEntry(PID, 2, 3)]), Flushed(2, 2, [FlushedEntry(PID, 3, 3)])),
    "answer to a proposal": (answer(3), answer(4)),
}


@pytest.mark.parametrize(("old", "new"), _OLD_AND_NEW.values(), ids=_OLD_AND_NEW)
def test_s14_an_old_message_changes_something(old: Any, new: Any) -> None:
    def told(message: Any, *, change: bool) -> Any:
        rule, leader = OldMessagesChangeNothing(), partition()
        assert leader.leading is not None
        leader.leading.replicas[2].broker_epoch = 2
        node = node_with(leader)
        rule.received(node, None, Registered(1, 1))
        rule.received(node, None, leader_and_isr())
        holds(rule.handled, node)
        rule.received(node, 2, message)
        if change:
            leader.high_watermark += 1
        return rule.handled, node

    violates("S14", *told(old, change=True))
    holds(*told(old, change=False))
    holds(*told(new, change=True))


@pytest.mark.parametrize("what", ["dropped", "position"])
def test_s14_what_counts_as_a_change(what: str) -> None:
    rule, leader = OldMessagesChangeNothing(), partition()
    node = node_with(leader)
    rule.received(node, 2, fetch(2))
    if what == "dropped":
        node.broker.partitions.clear()
    else:
        assert leader.leading is not None
        leader.leading.replicas[2].position = 3
    violates("S14", rule.handled, node)
    holds(rule.handled, node)  # told once


def test_s14_other_messages_and_other_processes_are_not_looked_at() -> None:
    rule, node = OldMessagesChangeNothing(), node_with(partition())
    rule.received(node, None, Registered(1, 9))
    rule.received(node, None, Metadata(1, 0, 0))
    holds(rule.handled, node)
    node.life = 2  # what was registered before says nothing about this process
    rule.received(node, None, leader_and_isr(broker_epoch=1))
    node.broker.partitions[PID].high_watermark += 1
    holds(rule.handled, node)


def test_s14_an_old_controller_writes() -> None:
    world = booted()
    book = next(iter(world.checks.ledgers.values()))
    assert book.state is not None
    path = layout.partition_state_path("t", book.identity.partition)
    for epoch, call in ((book.state.controller_epoch, holds), (book.state.controller_epoch - 1, lambda *args: violates("S14", *args))):
        made = evolve(book.state, controller_epoch=epoch)
        ops = [Put(path, layout.encode_partition_state(made))]
        world.root.commit(ops)
        call(world.applied, ops)
