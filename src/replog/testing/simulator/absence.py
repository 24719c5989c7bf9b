"""Brokers that stay out after everything else is healed: the others must keep every promise without them (L8 of RELIABILITY 6.5).

Who stays out is chosen such that the others can. acks=all survives min_isr - 1 losses at a time, and a broker that is away is one
of them: the rest of ISR and ELR then holds whatever was committed, and min_isr replicas are there. Where more are lost when the
faults end, or min_isr is 1 and so nobody may be missed, everybody recovers first; then some go, while every ISR is full. A
broker is away when its process has ended, which the controller finds out, or when only its messages are lost, which its leaders do.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from replog.errors import ReplogError
from replog.testing.simulator.clients import TOPIC, SimulatedClient
from replog.testing.simulator.liveness import EveryPartitionIsLed, keep_promises, lives_are_known, recover
from replog.testing.simulator.plan import stream

if TYPE_CHECKING:
    from replog.testing.simulator.ledger import Ledger
    from replog.testing.simulator.node import Node
    from replog.testing.simulator.world import World

__all__ = ["may_stay_out", "recover_in_turns"]

_CUT_OFF: Final = 0.4
"""Share of the absences in which brokers live and reach the store, but nobody else."""


def recover_in_turns(world: World) -> None:
    """The time of faults is over: everything recovers. If the plan says so, first all but some brokers, and then all."""
    count, chance = world.plan.shape.absent, stream(world.plan.seed, "who stays out")
    brokers = list(world.nodes)
    chance.shuffle(brokers)
    cut_off, chosen = chance.random() < _CUT_OFF, frozenset(brokers[:count])
    if count and not cut_off and may_stay_out(world, chosen, healed=False):
        world.marks.hit("brokers stay out of the recovery")
        _send_away(world, chosen)
        recover(world)
    else:
        recover(world)
        if count:
            _go_while_all_is_well(world, brokers, count, cut_off=cut_off)
    if world.absent:
        world.note(f"brokers {sorted(world.absent)} come back")
        world.absent = frozenset()
        recover(world)


def _go_while_all_is_well(world: World, brokers: list[int], count: int, *, cut_off: bool) -> None:
    """Everybody has recovered: now some go, and the others keep their promises.

    Not before all have heard of each broker's present life: one that has registered again, and whose watch was lost, leaves the ISR when
    the controller hears of it, and would then be one more that is gone.
    """
    if not lives_are_known(world):
        world.run_until(world.now_ms + EveryPartitionIsLed().limit_ms(world.plan.shape), lambda: lives_are_known(world))
        keep_promises(world)
    if cut_off:
        brokers = [broker for broker in brokers if not _decides(world.nodes[broker])]
    chosen = frozenset(brokers[:count])
    if not chosen or not may_stay_out(world, chosen, healed=True):
        world.marks.hit("nobody may stay out")
        return
    world.marks.hit("brokers are cut off" if cut_off else "brokers go away once all have recovered")
    (_cut_off if cut_off else _send_away)(world, chosen)
    keep_promises(world)


def _send_away(world: World, brokers: frozenset[int]) -> None:
    """Their processes end, and do not begin again."""
    world.note(f"brokers {sorted(brokers)} stay out")
    world.absent = brokers
    for broker in sorted(brokers):
        world.nodes[broker].kill()


def _cut_off(world: World, brokers: frozenset[int]) -> None:
    """They live, and the store knows them, but no message passes: leaders must do without them, and nobody else tells them so."""
    world.note(f"brokers {sorted(brokers)} are cut off")
    world.absent = brokers
    for broker in sorted(brokers):
        world.network.isolate(broker, 1)
    client = next(iter(world.clients.values()))
    for ledger in world.checks.expected():  # whoever is at the end of a log that does not grow is caught up, heard of or not
        world.spawn(f"append to {ledger.topic}", _append(client, ledger))


async def _append(client: SimulatedClient, ledger: Ledger) -> None:
    """One record; if it is refused, some promise says why.

    A client that knows only an earlier partition of this number finds that out by being refused, and knows this one then (S36).
    """
    for _ in range(2):
        with suppress(ReplogError):
            await client.append(ledger.topic, ledger.identity.partition, client.values(1), writer=client.writer())
            return


def _decides(node: Node) -> bool:
    """Whether a broker leads or is the controller: as long as the store hears of it, nobody takes that from it."""
    leads = node.broker is not None and any(partition.leading is not None for partition in node.broker.partitions.values())
    return leads or (node.controller is not None and node.controller.is_controller)


def may_stay_out(world: World, brokers: frozenset[int], *, healed: bool) -> bool:
    """Whether every partition can have a leader and min_isr replicas in sync without these brokers.

    `healed`: every ISR is full and everything is idle.
    """
    return all(_can_do_without(world, ledger, brokers, healed=healed) for ledger in world.checks.expected())


def _can_do_without(world: World, ledger: Ledger, brokers: frozenset[int], *, healed: bool) -> bool:
    state = ledger.state
    if state is None:
        return False
    gone = brokers & set(ledger.replicas)
    missed = world.checks.incomplete(ledger) | gone
    if not gone:
        return True
    if len(ledger.replicas) - len(gone) < ledger.min_isr:
        return False
    if healed:  # unless a wish that was on its way for long has just taken somebody out of the ISR again
        return len(missed) < len(ledger.replicas) and set(state.isr) >= set(ledger.replicas)
    failed = {broker for broker in ledger.replicas if _has_failed(world.nodes[broker], ledger)}
    if not {*state.isr, *state.elr} - gone - failed:  # whose disk has failed will be in neither, although it may hold everything
        return False
    # A topic that was made while few brokers were there may never have had min_isr replicas in sync.
    return len(missed | failed) <= ledger.min_isr - 1 and (ledger.topic == TOPIC or len(state.isr) >= ledger.min_isr)


def _has_failed(node: Node, ledger: Ledger) -> bool:
    """Whether this copy takes no part any more, also if the controller has yet to hear of it."""
    partition = None if node.broker is None else node.broker.partitions.get(ledger.identity)
    return partition is not None and partition.failed is not None
