"""Who may lead, and what the ISR, the eligible (ELR) and the last-known replicas become: expressions on plain data.

Rules: KIP-966 for ELR and last-known, KIP-704 for recovering, KAFKA-15021 (a shrink alone costs no leader epoch).
The invariant behind all of them: while |ISR| < min_isr nothing commits, so whoever leaves the ISR then is still complete.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Literal

from attrs import evolve, frozen

from replog.model import PartitionState

__all__ = [
    "Choice",
    "Loss",
    "choose",
    "effective_min_isr",
    "initial",
    "longest",
    "lost",
    "recover",
    "uncleanly",
    "whom_to_await",
    "with_isr",
    "with_min_isr",
]


@frozen
class Loss:
    """A decision that may lose committed records: what is recorded beside the new state."""

    kind: Literal["unclean", "last_known"]
    leader: int
    candidates: tuple[tuple[int, int, int], ...]
    """(broker, last epoch, end offset) of each replica considered; -1, -1 where nobody could be asked."""
    missing: tuple[int, ...]
    """Replicas that may hold more and were not there."""
    leaving: tuple[int, ...] = ()
    """Replicas that may hold more, there or not, and whose copies are put away by this."""


@frozen
class Choice:
    """What to do about one partition: store `state` (None: it is right as it is), or ask the `ask` replicas first."""

    state: PartitionState | None = None
    ask: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()
    """Those of `ask` who have to answer; of the others what they have said by then counts."""
    loss: Loss | None = None


def effective_min_isr(min_isr: int | None, replicas: Sequence[int]) -> int:
    """The min ISR that counts: never more than there are replicas."""
    return min(min_isr or 1, len(replicas))


def initial(replicas: Sequence[int], live: Container[int], leaving: Container[int] = ()) -> PartitionState | None:
    """The first state of a partition: the live replicas are in sync, the first leads. None while nobody is live.

    Those that are `leaving` (in controlled shutdown) count only if nobody else is live.
    """
    isr = _staying(tuple(r for r in replicas if r in live), leaving)
    return PartitionState(leader=isr[0], leader_epoch=0, isr=isr) if isr else None


def with_min_isr(state: PartitionState, min_isr: int, *, replicas: Sequence[int]) -> PartitionState:
    """`state` once another min ISR counts: with enough replicas in sync for it, whoever left may miss records from now on (KAFKA-16540)."""
    if state.min_isr in (0, min_isr):
        return state
    return evolve(with_isr(state, state.isr, replicas=replicas, min_isr=min_isr), min_isr=min_isr)


def with_isr(
    state: PartitionState, isr: Sequence[int], *, replicas: Sequence[int], min_isr: int, lossy: Container[int] = ()
) -> PartitionState:
    """`state` with another ISR, and the ELR and last-known set that follow from it.

    A target ISR of at least `min_isr` empties both. Below it, ELR := (ELR + old ISR) - new ISR - `lossy`, and the last-known set
    gains everyone who was complete: a lossy replica leaves the ELR but never the last-known set.
    """
    if len(isr) >= min_isr:
        return evolve(state, isr=tuple(isr), elr=(), last_known=(), anew=())
    complete = {*state.isr, *state.elr}
    elr = tuple(r for r in replicas if r in complete and r not in isr and r not in lossy)
    last_known = tuple(r for r in replicas if r in complete or r in state.last_known)
    anew = tuple(r for r in last_known if r in state.anew and r not in isr)
    return evolve(state, isr=tuple(isr), elr=elr, last_known=last_known, anew=anew)


def choose(
    state: PartitionState,
    *,
    replicas: Sequence[int],
    min_isr: int,
    live: Container[int],
    lossy: Container[int] = (),
    leaving: Container[int] = (),
    roomless: Container[int] = (),
    unclean: bool = False,
    joining: Container[int] = (),
    emptied: Collection[int] = (),
    broken: Container[int] = (),
    by_hand: bool = False,
) -> Choice:
    """What the partition should be now that these replicas are `live` (registered, unfenced, their disk working).

    In this order: the leader stays if it can; the first live ISR member in replica order; the first live ELR member
    once the ISR is empty; who reaches furthest, once all of the last-known set is live (they must be asked first, and with them
    everybody else who is live: what they lost others may have); an unclean election if the topic allows it; nobody.
    `lossy` replicas lost acknowledged records: out of ISR and ELR before anything else. What `emptied` ones lost is not just the end
    of the log, which the state remembers (`anew`) when their next life does not show it any more. While one of them is in the last-known
    set every replica is waited for whose copy is not `broken`, for any of them may hold what nobody else does any more, and would be cut;
    unless the topic allows unclean elections, or a person wants one (`by_hand`), which is not kept waiting for questions that nobody has
    asked.
    Live ones that are `leaving` (in controlled shutdown) lead and are in sync only where nobody else can be (PROTOCOL 4.9). Those that are
    `joining` with a move are not elected uncleanly: they may be empty, and the move would take away whoever is not. Nor is anybody while
    one that is complete is only `roomless` (it would be live if its disk had room): nobody has died, and nothing is lost.
    """
    isr = _staying(tuple(r for r in state.isr if r in live and r not in lossy), leaving)
    after = with_min_isr(state, min_isr, replicas=replicas)
    if isr != state.isr or any(r in lossy for r in state.elr):
        # From `state`: its leader has reckoned with the old min ISR so far, and hears of both changes at once.
        after = evolve(with_isr(state, isr, replicas=replicas, min_isr=min_isr, lossy=lossy), min_isr=state.min_isr and min_isr)
    after = _noting(after, lossy, emptied, broken)
    leader = after.leader if after.leader in isr else next((r for r in replicas if r in isr), None)
    if leader is None:
        leader = next(iter(_staying(tuple(r for r in replicas if r in after.elr and r in live), leaving)), None)
        if leader is not None:
            after = with_isr(after, (leader,), replicas=replicas, min_isr=min_isr, lossy=lossy)
    if leader is None:
        waits = any(r in roomless for r in after.elr)
        settled = tuple(r for r in replicas if r not in joining)
        able = _staying(tuple(r for r in settled if r in live), leaving) if unclean and not waits else ()
        after = _led(after, None)
        # A topic that allows unclean elections would rather have a leader than wait for what others may have.
        intact = () if unclean and not by_hand else tuple(r for r in settled if r not in broken)
        begun = {*emptied, *after.anew}
        awaited = whom_to_await(after, intact, begun)
        if awaited and all(r in live for r in awaited):
            asked = tuple(r for r in replicas if r in awaited or (r in settled and r in live))
            return Choice(None if after == state else after, ask=asked, awaited=awaited)
        return _without_leader(state, after, replicas, live, able, begun)
    after = _led(after, leader)
    return Choice(None if after == state else after)


def _noting(state: PartitionState, lossy: Container[int], emptied: Container[int], broken: Container[int]) -> PartitionState:
    """`state`, remembering who of the last-known set has lost more than the end of its log, until it is in sync again."""
    anew = tuple(r for r in state.last_known if r in state.anew or (r in lossy and r in emptied and r not in broken))
    return state if anew == state.anew else evolve(state, anew=anew)


def _staying(replicas: tuple[int, ...], leaving: Container[int]) -> tuple[int, ...]:
    """Those that are not about to leave; all of them, if that is nobody."""
    return tuple(r for r in replicas if r not in leaving) or replicas


def _led(state: PartitionState, leader: int | None) -> PartitionState:
    """`state` under `leader`: a change of leadership, to nobody included, costs an epoch; nothing else does."""
    return state if leader == state.leader else evolve(state, leader=leader, leader_epoch=state.leader_epoch + 1)


def whom_to_await(state: PartitionState, intact: Sequence[int], begun: Container[int]) -> tuple[int, ...]:
    """Who has to be live before anybody is asked how far it reaches; empty while a complete replica is waited for, or none ever was.

    `intact`: replicas that may have something, as far as anybody knows; `begun`: those that have begun anew, in this life or before.
    """
    if state.isr or state.elr:
        return ()
    more = intact if any(r in begun for r in state.last_known) else ()
    return tuple(dict.fromkeys((*state.last_known, *more))) if state.last_known else ()


def _without_leader(
    before: PartitionState,
    after: PartitionState,
    replicas: Sequence[int],
    live: Container[int],
    able: tuple[int, ...],
    begun: Container[int],
) -> Choice:
    """No ISR or ELR member can lead: elect one of those who are `able` to lead uncleanly, or wait."""
    if not able:
        return Choice(None if after == before else after)
    # Who was complete once lacks the least, as far as anybody knows, unless it has begun anew.
    leader = min(able, key=lambda r: (r in begun, r not in after.last_known))
    candidates = tuple((r, -1, -1) for r in replicas if r in live)
    missing = tuple(r for r in replicas if r not in live)
    return Choice(uncleanly(after, leader, before.leader_epoch), loss=Loss("unclean", leader, candidates, missing))


def uncleanly(state: PartitionState, leader: int, epoch: int) -> PartitionState:
    """Led by a replica that may miss committed records: alone in the ISR, and recovering until it says otherwise (KIP-704)."""
    return evolve(state, leader=leader, leader_epoch=epoch + 1, isr=(leader,), elr=(), last_known=(), anew=(), recovering=True)


def longest(answers: Mapping[int, tuple[int, int]], replicas: Sequence[int], complete: Container[int] = ()) -> int:
    """The replica with the largest (last epoch, end offset); of equals one that was `complete`, and the first in replica order."""
    assert answers, "somebody must have answered"
    return max((r for r in replicas if r in answers), key=lambda r: (answers[r], r in complete))


def lost(loss: Loss) -> str:
    """What may be lost, for people."""
    end = next((end for broker, _, end in loss.candidates if broker == loss.leader), -1)
    more = f"; brokers {', '.join(map(str, loss.missing))} are away and may hold more" if loss.missing else ""
    more += f"; brokers {', '.join(map(str, loss.leaving))} may hold more, and their copies are put away" if loss.leaving else ""
    return (f"records from offset {end} on" if end >= 0 else f"every record that broker {loss.leader} does not hold") + more


def recover(state: PartitionState, answers: Mapping[int, tuple[int, int]], replicas: Sequence[int], min_isr: int) -> Choice:
    """Elect once everybody in the last-known set has said how far it reaches, and who else is there (KIP-966, unclean recovery).

    Of two logs with one last epoch the longer one has all that the other has, so whoever was never complete may lack the least.

    Below `min_isr` the set stays: nothing is committed until enough others have followed, so whoever else is in it may hold all
    there is if the new leader loses its disk as well (X-11).
    """
    leader = longest(answers, replicas, state.last_known)
    candidates = tuple((r, *answers[r]) for r in replicas if r in answers)
    last_known = state.last_known if min_isr > 1 else ()
    anew = tuple(r for r in state.anew if r in last_known and r != leader)
    after = evolve(uncleanly(state, leader, state.leader_epoch), last_known=last_known, anew=anew)
    return Choice(after, loss=Loss("last_known", leader, candidates, ()))
