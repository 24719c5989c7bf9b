"""P-29, P-66: every refusal of a proposal, and their order."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from replog.controller.isr_change import change_isr
from replog.errors import Code
from replog.messages import AlterIsrEntry
from replog.model import BrokerInfo, PartitionId, PartitionState

P = PartitionId(b"t" * 16, 0, 0)
STATE = PartitionState(1, 5, (1, 2), partition_epoch=8)
BROKERS = {n: BrokerInfo(n, 10 + n) for n in (1, 2, 3)}
GOOD = [(1, 11), (2, 12), (3, 13)]


def change(isr: Any = GOOD, *, sender: int = 1, state: PartitionState = STATE, brokers: Any = BROKERS, **entry: Any) -> Any:
    fields = {"leader_epoch": 5, "partition_epoch": 8, "isr": isr, **entry}
    return change_isr(AlterIsrEntry(P, **fields), sender, state, replicas=(1, 2, 3), min_isr=2, brokers=brokers)


REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "leader epoch from the future": (Code.NOT_CONTROLLER, {"leader_epoch": 6}),
    "partition epoch from the future (P-66)": (Code.NOT_CONTROLLER, {"partition_epoch": 9}),
    "the future comes before everything": (Code.NOT_CONTROLLER, {"partition_epoch": 9, "leader_epoch": 4, "sender": 2, "isr": []}),
    "an earlier leader epoch (P-20)": (Code.FENCED_LEADER_EPOCH, {"leader_epoch": 4}),
    "an earlier epoch comes before the sender": (Code.FENCED_LEADER_EPOCH, {"leader_epoch": 4, "sender": 2}),
    "the sender does not lead": (Code.INVALID_REQUEST, {"sender": 2}),
    "not leading comes before the partition epoch": (Code.INVALID_REQUEST, {"sender": 2, "partition_epoch": 7}),
    "an earlier partition epoch": (Code.INVALID_UPDATE_VERSION, {"partition_epoch": 7}),
    "the partition epoch comes before the ISR": (Code.INVALID_UPDATE_VERSION, {"partition_epoch": 7, "isr": []}),
    "a member that is not assigned": (Code.INVALID_REQUEST, {"isr": [(1, 11), (4, 14)]}),
    "a member twice": (Code.INVALID_REQUEST, {"isr": [(1, 11), (2, 12), (2, 12)]}),
    "an ISR without its leader": (Code.INVALID_REQUEST, {"isr": [(2, 12), (3, 13)]}),
    "an empty ISR": (Code.INVALID_REQUEST, {"isr": []}),
    "recovering with two members (KIP-704)": (
        Code.INVALID_REQUEST,
        {"isr": [(1, 11), (2, 12)], "recovering": True, "state": evolve(STATE, isr=(1,), recovering=True)},
    ),
    "recovering cannot begin by a proposal": (Code.INVALID_REQUEST, {"isr": [(1, 11)], "recovering": True}),
    "an earlier life of a member (P-28, KIP-903)": (Code.INELIGIBLE_REPLICA, {"isr": [(1, 11), (2, 12), (3, 12)]}),
    "an unknown life of a new member": (Code.INELIGIBLE_REPLICA, {"isr": [(1, 11), (2, 12), (3, -1)]}),
    "a fenced member (P-27, KIP-841)": (Code.INELIGIBLE_REPLICA, {"brokers": {**BROKERS, 3: evolve(BROKERS[3], fenced=True)}}),
    "a draining member": (Code.INELIGIBLE_REPLICA, {"brokers": {**BROKERS, 3: evolve(BROKERS[3], draining=True)}}),
    "a member that is not registered": (Code.INELIGIBLE_REPLICA, {"brokers": {1: BROKERS[1], 2: BROKERS[2]}}),
    "the shape comes before the members": (Code.INVALID_REQUEST, {"isr": [(2, 12), (3, 99)]}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused(case):
    code, changes = REFUSALS[case]
    got, state = change(**changes)
    assert got == code
    assert state is changes.get("state", STATE)


def test_a_member_that_comes_back_is_added():
    assert change() == (Code.NONE, evolve(STATE, isr=(1, 2, 3)))


def test_the_stored_isr_is_in_replica_order():
    assert change([(3, 13), (2, 12), (1, 11)])[1].isr == (1, 2, 3)


def test_a_member_without_a_fetch_stays_without_naming_its_life():
    assert change([(1, 11), (2, -1), (3, 13)])[0] == Code.NONE


def test_a_shrink_below_min_isr_keeps_the_leaver_eligible():
    code, state = change([(1, 11)])
    assert code == Code.NONE
    assert (state.isr, state.elr, state.last_known, state.leader_epoch) == ((1,), (2,), (1, 2), 5)


def test_the_same_isr_changes_nothing():
    assert change([(2, 12), (1, 11)]) == (Code.NONE, STATE)


def test_recovered_ends_recovering():
    before = evolve(STATE, isr=(1,), recovering=True)
    assert change([(1, 11)], state=before)[1] == evolve(before, recovering=False)
    assert change([(1, 11)], state=before, recovering=True) == (Code.NONE, before)
