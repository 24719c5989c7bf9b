"""Whether a partition is right to have no leader while brokers are absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.ports import LossReport
from replog.testing.simulator.clients import TOPIC

if TYPE_CHECKING:
    from replog.testing.simulator.ledger import Ledger
    from replog.testing.simulator.world import World

__all__ = ["waits_rightly"]


def waits_rightly(world: World, ledger: Ledger) -> bool:
    """Whether nobody of those who are there may lead: the topic came when the absent ones were already going, and only they were in it.

    Where nobody is complete for certain, all of the last-known set are asked, so it waits for each of them; and for everybody else while
    one of them has begun anew. Not so the topic that every run has: `absence` leaves it enough of its replicas.
    """
    state = ledger.state
    if not world.absent or ledger.topic == TOPIC or state is None:
        return False
    if state.leader is not None:
        return False
    complete = (*state.isr, *state.elr)
    if complete:
        return world.absent.issuperset(complete)
    anew = any(_has_begun_anew(world.nodes[broker].directory.loss, ledger) for broker in state.last_known)
    return not world.absent.isdisjoint((*state.last_known, *(ledger.replicas if anew else ())))


def _has_begun_anew(loss: LossReport, ledger: Ledger) -> bool:
    return not loss.lives or loss.kind == "replaced" or (loss.kind == "corrupt" and ledger.identity in loss.lossy)
