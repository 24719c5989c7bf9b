"""How one partition moves to other brokers: expressions on its assignment and its state (V3 F, KIP-455, PROTOCOL 4.7).

A move begins with more replicas (the target first, then those that leave), goes on while the new ones catch up, and ends with the
target alone, once every one of it is in sync. The replicas from before the first wish, and their order, stay in the record.

A cancelled move ends at once, unless those that were to join are needed: where without them fewer complete copies than min ISR would
be left, it first goes back, that is on to the original replicas, and ends when enough of these are complete.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from attrs import evolve

from replog.controller.election import Choice, Loss, uncleanly, with_isr
from replog.model import Assignment, PartitionState

__all__ = [
    "cancelled",
    "completed",
    "costs_copies",
    "in_order_of_trust",
    "is_complete",
    "is_moving",
    "is_returning",
    "joining",
    "left",
    "placed",
    "restored",
    "started",
    "target_of",
]


def is_moving(assignment: Assignment) -> bool:
    """Whether a reassignment has begun, and neither completed nor been cancelled."""
    return bool(assignment.original)


def target_of(assignment: Assignment) -> tuple[int, ...]:
    """Where the partition shall be in the end: where it is, unless it moves."""
    return tuple(r for r in assignment.replicas if r not in assignment.removing)


def joining(assignment: Assignment) -> tuple[int, ...]:
    """Replicas that were not there before the move: for its target, or for one that was given up since."""
    return tuple(r for r in assignment.replicas if r not in assignment.original) if is_moving(assignment) else ()


def started(assignment: Assignment, target: Sequence[int]) -> Assignment:
    """On the way to `target`, also from halfway to another one: whatever is not in it leaves, those that were to join included."""
    original = assignment.original or assignment.replicas
    removing = tuple(r for r in assignment.replicas if r not in target)
    adding = tuple(r for r in target if r not in original)
    return evolve(assignment, replicas=(*target, *removing), adding=adding, removing=removing, original=original)


def is_returning(assignment: Assignment) -> bool:
    """Whether a move is on its way to where it came from."""
    return is_moving(assignment) and set(target_of(assignment)) == set(assignment.original)


def placed(assignment: Assignment, replicas: Sequence[int]) -> Assignment:
    """At rest on these brokers."""
    return Assignment(tuple(replicas), assignment.creation)


def restored(assignment: Assignment) -> Assignment:
    """As it was before the reassignment, in the order of then."""
    return placed(assignment, assignment.original or assignment.replicas)


def left(before: Assignment, after: Assignment) -> tuple[int, ...]:
    """Brokers that hold no copy any more."""
    return tuple(r for r in before.replicas if r not in after.replicas)


def in_order_of_trust(assignment: Assignment) -> tuple[int, ...]:
    """The replicas, those of before the move first: who has joined since, for this target or an earlier one, may be empty."""
    before = assignment.original or assignment.replicas
    return tuple(sorted(assignment.replicas, key=lambda r: r not in before))


def costs_copies(assignment: Assignment, state: PartitionState, *, min_isr: int) -> bool:
    """Whether going back at once would leave fewer complete copies than there are now, and than `min_isr`.

    So many hold whatever was acknowledged (KIP-966): no cancellation may be what takes that away.
    """
    complete = {*state.isr, *state.elr}
    kept = complete.intersection(restored(assignment).replicas)
    return len(kept) < min(min_isr, len(complete))


def is_complete(assignment: Assignment, state: PartitionState, *, min_isr: int, is_cancelled: bool) -> bool:
    """Whether every replica of the target is in sync: no fewer, or old ones would go before new ones are complete (P-85, KAFKA-15665).

    Who leaves does not matter, dead or alive (P-89). A move that `is_cancelled` ends on its way back when enough are in sync: nobody of
    the original replicas is new. Whoever is wished to be there once more is waited for, as at the end of any other move.
    """
    target = target_of(assignment)
    if is_cancelled and is_returning(assignment):
        return any(r in state.isr for r in target) and not costs_copies(assignment, state, min_isr=min_isr)
    return all(r in state.isr for r in target)


def completed(assignment: Assignment, state: PartitionState, *, min_isr: int, live: Container[int]) -> PartitionState:
    """The state of the partition on its target alone, which is complete; `min_isr` is the one that counts there.

    A leader that leaves hands over to the first of the target that may lead; if none may, it is deposed all the same (P-88).
    """
    target = target_of(assignment)
    isr = tuple(r for r in target if r in state.isr)
    after = evolve(with_isr(state, isr, replicas=target, min_isr=min_isr), min_isr=min_isr)
    return _led(state, after, live, leaves=bool(left(assignment, placed(assignment, target))))


def cancelled(
    assignment: Assignment,
    state: PartitionState,
    *,
    min_isr: int,
    live: Container[int],
    unclean: bool = False,
    emptied: Collection[int] = (),
) -> Choice | None:
    """The state of the partition back on its original replicas: the ISR without those that were to join; or a complete one of the ELR.

    None if nobody complete would be left: only an unclean election could go back then, which takes a topic that allows it and
    somebody who lives (P-87): of these one that has not begun anew, and was complete last.
    """
    original = restored(assignment).replicas
    isr = tuple(r for r in original if r in state.isr)
    if isr:
        after = evolve(with_isr(state, isr, replicas=original, min_isr=min_isr), min_isr=min_isr)
        return Choice(_led(state, after, live, leaves=bool(left(assignment, restored(assignment)))))
    complete = next((r for r in original if r in state.elr and r in live), None)
    if complete is not None:
        after = evolve(with_isr(state, (complete,), replicas=original, min_isr=min_isr), min_isr=min_isr)
        return Choice(evolve(after, leader=complete, leader_epoch=state.leader_epoch + 1))
    begun, complete_once = {*emptied, *state.anew}, {*state.elr, *state.last_known}
    trusted = sorted(original, key=lambda r: (r in begun, r not in complete_once))
    leader = next((r for r in trusted if r in live), None) if unclean else None
    if leader is None:
        return None
    after = uncleanly(state, leader, state.leader_epoch)
    candidates = tuple((r, -1, -1) for r in assignment.replicas if r in live)
    missing = tuple(r for r in assignment.replicas if r not in live)
    leaving = tuple(r for r in assignment.replicas if r not in original)
    return Choice(evolve(after, min_isr=min_isr), loss=Loss("unclean", leader, candidates, missing, leaving))


def _led(before: PartitionState, after: PartitionState, live: Container[int], *, leaves: bool) -> PartitionState:
    """`after` under a leader of its own ISR. The leader epoch grows if that is another, or if any replica leaves (PROTOCOL 4.7).

    The leader may never hear that one has left, because it is back by then: in the same epoch its empty copy would count for the one
    that is gone (X-10).
    """
    leader = before.leader if before.leader in after.isr else next((r for r in after.isr if r in live), None)
    return after if leader == before.leader and not leaves else evolve(after, leader=leader, leader_epoch=before.leader_epoch + 1)
