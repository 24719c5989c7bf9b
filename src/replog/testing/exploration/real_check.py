"""What must hold after every step of the exploration, on plain data. Names are those of the simulator's invariants."""

from __future__ import annotations

from collections.abc import Sequence

from replog.testing.exploration.real_broker import BrokerState
from replog.testing.exploration.real_snapshot import Frozen

__all__ = ["judge_broker", "judge_state", "judge_store"]

Verdict = tuple[Frozen, Frozen, str]
"""The ledger, who led which epoch, and what is wrong (empty: nothing)."""


def judge_broker(
    brokers: Sequence[BrokerState], broker_id: int, before: BrokerState, stored: Frozen, min_isr: int, ledger: Frozen, leaders: Frozen
) -> Verdict:
    """A broker has done something: does its copy agree with everything that was ever committed, and with every other copy?

    `ledger` are the entries below the highest high watermark that any leader ever had, `leaders` the (epoch, broker,
    incarnation) of each leadership that was taken up.
    """
    broker = brokers[broker_id - 1]
    entries = broker.log[0]
    why = ""
    if broker.alive and broker.copy[6]:
        ledger, leaders, why = _judge_leader(broker, broker_id, before, stored, min_isr, ledger, leaders)
    elif broker.alive:
        watermark = broker.copy[4]
        if watermark > len(ledger):
            why = f"S9: follower {broker_id} has high watermark {watermark}, nobody committed beyond {len(ledger)}"
        elif entries[:watermark] != ledger[:watermark]:
            why = f"S9: follower {broker_id} with high watermark {watermark} holds {entries}, committed is {ledger}"
    if not why and entries != before.log[0]:
        why = _parted(brokers, broker_id, entries)
    return ledger, leaders, why or judge_store(brokers, stored, ledger)


def _judge_leader(
    broker: BrokerState, broker_id: int, before: BrokerState, stored: Frozen, min_isr: int, ledger: Frozen, leaders: Frozen
) -> Verdict:
    _, epoch, _, _, watermark, _, leading, (entries, *_), _ = broker.copy
    was_leading = before.alive and before.copy[6] and before.copy[1] == epoch and before.incarnation == broker.incarnation
    end = len(ledger)
    if not was_leading:
        mine = (epoch, broker_id, broker.incarnation)
        other = next((one for one in leaders if one[0] == epoch), mine)
        if other != mine:
            return ledger, leaders, f"S5: epoch {epoch} is led by (epoch, broker, process) {other} and by {mine}"
        leaders = tuple(sorted({*leaders, mine}))
        if epoch == stored[1] and entries[:end] != ledger:
            return ledger, leaders, f"S2: the leader {broker_id} of epoch {epoch} holds {entries}, committed is {ledger}"
    if was_leading and watermark == before.copy[4]:
        return ledger, leaders, ""
    if entries[: min(watermark, end)] != ledger[:watermark]:
        return ledger, leaders, f"S1: leader {broker_id} commits {entries[:watermark]}, committed is {ledger}"
    if was_leading or watermark > end:
        isr = leading[6]
        counted = {broker_id, *isr[1], *(isr[2] if isr[0] == 1 else ())}
        if len(isr[1]) < min_isr:
            return ledger, leaders, f"S4: broker {broker_id} commits with ISR {isr[1]} below min ISR {min_isr}"
        if epoch == stored[1] and not counted.issuperset(stored[2]):
            return ledger, leaders, f"S4: broker {broker_id} counts {sorted(counted)}, the stored ISR is {stored[2]}"
    return (entries[:watermark] if watermark > end else ledger), leaders, ""


def _parted(brokers: Sequence[BrokerState], broker_id: int, entries: Frozen) -> str:
    """Log matching: equal epochs at an offset mean equal logs up to there."""
    for other_id, other in enumerate(brokers, 1):
        theirs = other.log[0]
        for offset in range(min(len(entries), len(theirs)) - 1, -1, -1):
            if entries[offset][0] == theirs[offset][0]:
                if entries[: offset + 1] != theirs[: offset + 1]:
                    return f"S9: brokers {broker_id} and {other_id} agree on the epoch at {offset}, but hold {entries} and {theirs}"
                break
    return ""


def judge_store(brokers: Sequence[BrokerState], stored: Frozen, ledger: Frozen) -> str:
    """Whoever may lead next holds everything committed, unless it is known to have lost it (S3)."""
    end = len(ledger)
    for member in (*stored[2], *stored[3]):
        broker = brokers[member - 1]
        entries = broker.log[0]
        if entries[:end] != ledger and not broker.lossy:
            return f"S3: broker {member} of ISR {stored[2]}, ELR {stored[3]} (epoch {stored[1]}) holds {entries}, committed is {ledger}"
    return ""


def judge_state(before: Frozen, after: Frozen) -> str:
    """A stored state follows from the one before by one change (S15)."""
    leader, epoch, isr, elr, _, recovering, version = after
    if version != before[6] + 1:
        return f"S15: partition epoch {version} after {before[6]}"
    if set(isr) & set(elr) or (leader and leader not in isr):
        return f"S15: leader {leader}, ISR {isr}, ELR {elr}"
    if epoch != before[1] + (leader != before[0]):
        return f"S15: leader {before[0]} of epoch {before[1]}, then {leader} of {epoch}"
    if leader != before[0] and leader and not recovering and leader not in (*before[2], *before[3]):
        return f"S15: leader {leader} was in neither ISR {before[2]} nor ELR {before[3]}"
    return ""
