"""Whether a life lacks more than the end of a log, and whether that has yet to be noted (X-17, X-18)."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.unit.controller.harness import World

from replog.config import TopicConfig
from replog.controller.admitting import _counts_in_vain
from replog.controller.changes import Admitted, Broker, BrokerAdmitted, BrokerSet, StateSet, Topic, TopicSet
from replog.controller.cluster import Cluster
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.ports import LossReport

PID = PartitionId(bytes(16), 0, 0)
ADMITTED = Admitted(4, "first", "disk", 0)
LED = PartitionState(1, 3, (1,), last_known=(1, 2), controller_epoch=1, partition_epoch=4)


def cluster(state: PartitionState, loss: LossReport, *, incarnation: str = "third", disk: str = "disk") -> Cluster:
    """Broker 2 was let in with its first life; this is the one that is registered now."""
    made = Cluster()
    made.apply(TopicSet(Topic("t", bytes(16), TopicConfig(min_isr=2), {0: Assignment((1, 2, 3))})))
    made.apply(StateSet(PID, state))
    made.apply(BrokerAdmitted(2, ADMITTED))
    made.apply(BrokerSet(Broker(BrokerInfo(2, 7, directory_id=disk, fenced=True), loss, incarnation)))
    return made


@pytest.mark.parametrize(
    ("loss", "given", "begun"),
    [
        (LossReport("process", lives=("second", "first")), {}, False),
        (LossReport("power", (PID,), ("second", "first")), {}, False),
        (LossReport("corrupt", (PID,), ("second", "first")), {}, True),
        (LossReport("corrupt", (PID._replace(partition=1),), ("second", "first")), {}, False),
        (LossReport("replaced", (), ("second", "first")), {}, True),
        (LossReport("none"), {"disk": "other"}, True),
        (LossReport("none", lives=("second",)), {"disk": "other"}, True),  # a life in between never came to register
        (LossReport("process", lives=("zeroth",)), {}, True),  # an image
        (LossReport("process", lives=("zeroth",)), {"incarnation": "first"}, False),  # let in
    ],
)
def test_a_life_that_lacks_more_than_its_end(loss: LossReport, given: dict[str, str], begun: bool) -> None:
    assert cluster(LED, loss, **given).emptied(PID) == ([2] if begun else [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "is_noted"),
    [
        (LED, False),
        (evolve(LED, leader=None, isr=()), False),
        (evolve(LED, anew=(2,)), True),
        (evolve(LED, last_known=(1,)), True),
    ],
)
def test_it_is_let_in_once_that_is_noted(state: PartitionState, is_noted: bool) -> None:
    found = cluster(state, LossReport("none"), disk="other")
    assert _counts_in_vain(found, PID, 2) is not is_noted
    assert state.leader is None or found.concerns(PID, 2) is not is_noted


def test_whoever_was_let_in_has_nothing_to_be_noted() -> None:
    """Its log may be whole again by now: it has followed."""
    found = cluster(LED, LossReport("none"), disk="other")
    found.apply(BrokerAdmitted(2, Admitted(7, "third", "other", 1)))
    assert found.emptied(PID) == [2]
    assert not _counts_in_vain(found, PID, 2)


def test_it_is_noted_of_one_that_others_lead_without() -> None:
    """It counts for nothing just then, and may be asked when its leader is gone."""
    world = World(4)
    partition = PartitionId(world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 2}), 0, 0)
    for broker in (4, 3, 2):
        world.kill(broker)
    world.disks[2][partition], world.disks[3][partition], world.disks[4][partition] = (0, 2), (0, 1), (0, 1)
    for broker in (2, 3):
        world.start(broker, loss=LossReport("power", (partition,)), settle=True)
    world.advance(20_000)
    world.kill(3)
    world.disks[3].clear()
    world.start(3, directory="f" * 32, settle=True)
    world.advance(20_000)
    assert world.leader._term is not None
    found = world.leader._term.cluster
    assert found.is_admitted(3)
    assert (found.states[partition].leader, found.states[partition].last_known, found.states[partition].anew) == (2, (2, 3), (3,))
