"""A broker that leaves, and elections that are asked for, while somebody dies at every single step (P-92, P-93).

Every commit of the controller is a step, before it and after it; so is every message by which a broker, or who has asked, hears of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.controller.harness import World, pid

from replog.errors import Code
from replog.messages import AdminAnswer, ControlledShutdown, ControlledShutdownAnswer, LeaderAndIsr, UpdateMetadata
from replog.metadata import layout
from replog.metadata.wishes import encode_elect
from replog.ports import Create

COUNT = 5
"""Partitions, in slices of two."""
HEARD = LeaderAndIsr | UpdateMetadata | ControlledShutdownAnswer | AdminAnswer


def seated(controller_id: int, replicas: list[int]) -> tuple[World, bytes]:
    """Six brokers, the controller on one of them, and partitions of which everybody is in sync."""
    world = World(0, slice_partitions_max=2)
    world.start(controller_id, settle=True)
    all_back(world)
    assert world.controller_id == controller_id
    return world, world.create(assignment={n: replicas for n in range(COUNT)}, config={"min_isr": 1})


def all_back(world: World) -> None:
    for node in range(1, 7):
        if node not in world.nodes:
            world.start(node, settle=True)


def dies_at(world: World, step: int, when: str, victim: Callable[[], int], work: Callable[[], None]) -> bool:
    """Kill somebody at one step of some work; whether there was such a step."""
    left = [step]

    def die() -> None:
        found = victim()
        if found in world.nodes:
            world.kill(found, settle=False)

    def is_it() -> bool:
        left[0] -= 1
        return left[0] == 0

    def at_store(address: Any, call: Any) -> str | None:
        if address[0] != "controller" or not call.verb.startswith("commit") or not call.argument or not is_it():
            return None
        is_its_own = victim() == address[1]
        world.queue.appendleft(die)
        return ("lost" if is_its_own else None) if when == "before" else "applied"

    def on_the_way(_sender: Any, _to: Any, message: Any) -> bool:
        if isinstance(message, HEARD) and is_it():
            (world.queue.append if when == "after" else world.queue.appendleft)(die)
        return False

    world.before_store, world.drop = at_store, on_the_way
    work()
    world.settle()
    world.before_store, world.drop = lambda _address, _call: None, lambda _sender, _to, _message: False
    return left[0] <= 0


def asks_to_leave(world: World, broker: int) -> ControlledShutdownAnswer:
    """As a broker does with each heartbeat."""
    world.send(broker, ("controller", world.controller_id), ControlledShutdown(broker, world.nodes[broker].broker.broker_epoch))
    world.settle()
    answer = next(m for _, to, m in reversed(world.sent) if to == broker and isinstance(m, ControlledShutdownAnswer))
    assert isinstance(answer, ControlledShutdownAnswer)
    return answer


@pytest.mark.parametrize("by", ["shutdown", "drain"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("who", ["controller", "leaving", "next leader"])
def test_p_93_whoever_dies_at_whichever_step_of_a_drain_it_ends_as_wished(who: str, when: str, by: str) -> None:
    for step in range(1, 60):
        world, t = seated(6, [2, 3, 4])
        life = world.nodes[2].broker.broker_epoch
        victim = {"controller": world.controller_id, "leaving": 2, "next leader": 3}[who]

        def leave(world: World = world) -> None:
            if by == "drain":
                world.admin("drain", broker=2, settle=False)
            else:
                world.send(2, ("controller", world.controller_id), ControlledShutdown(2, world.nodes[2].broker.broker_epoch))

        happened = dies_at(world, step, when, lambda victim=victim: victim, leave)
        where = f"{who} killed {when} step {step} of a {by}"
        all_back(world)
        world.advance(20_000)
        is_same_life = world.nodes[2].broker.broker_epoch == life
        if is_same_life:  # nobody heard an answer, perhaps: it asks again
            answer = asks_to_leave(world, 2)
            assert (answer.error, answer.remaining_total) == (Code.NONE, 0), where
            assert answer.notice <= world.nodes[2].broker.notice, where
        recorded = [int(name) for name in world.store.list(layout.DRAINING)]
        assert recorded == ([2] if is_same_life else []), where
        for number in range(COUNT):
            state = world.state(number)
            expected = 4 if who == "next leader" and state.isr == (4,) else 3
            assert state.leader == expected, where
            assert 2 not in state.isr, where
            assert world.nodes[state.leader].broker.states[pid(t, number)].state == state, where
        assert world.told("records_may_be_lost") == [], where
        assert world.told("decision_given_up") == [], where
        if not happened:
            assert step > 8, "so few steps cannot be all"
            return
        if who == "leaving":
            assert not is_same_life, where
    raise AssertionError("this never ends")


def is_in_sync_again(world: World, t: bytes) -> None:
    """Whoever came back has caught up."""
    for number in range(COUNT):
        state = world.state(number)
        assert state.leader is not None
        if set(state.isr) != {2, 3, 4}:
            assert world.propose(state.leader, pid(t, number), [2, 3, 4]).error == Code.NONE


@pytest.mark.parametrize("by", ["request", "path"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("who", ["controller", "leader", "preferred leader"])
def test_p_92_whoever_dies_at_whichever_step_of_an_election_it_ends_as_wished(who: str, when: str, by: str) -> None:
    for step in range(1, 80):
        world, t = seated(6, [2, 3, 4])
        world.kill(2)
        world.start(2, settle=True)
        is_in_sync_again(world, t)
        assert {(world.state(n).leader, world.state(n).leader_epoch) for n in range(COUNT)} == {(3, 1)}
        victim = {"controller": world.controller_id, "leader": 3, "preferred leader": 2}[who]
        places = [["t", number] for number in range(COUNT)]

        def ask(world: World = world, places: list[list[Any]] = places) -> None:
            if by == "request":
                world.admin("elect", partitions=places, settle=False)
            else:
                world.store.session().commit([Create(layout.elect_path("t", n), encode_elect(unclean=False)) for n in range(COUNT)])

        before = len(world.client)
        happened = dies_at(world, step, when, lambda victim=victim: victim, ask)
        where = f"{who} killed {when} step {step} of an election by {by}"
        all_back(world)
        world.advance(20_000)
        assert world.store.list(layout.ELECT) == [], where
        if victim != 2:
            assert world.store.list(layout.REJECTED) == [], where
        heard = [answer for answer in world.client[before:] if answer.error == Code.NONE]
        if by == "path" and victim != 2:
            assert {world.state(n).leader for n in range(COUNT)} == {2}, "nobody has to wish again"
        if by == "request" and heard and victim != 2:
            assert [one[2] for one in heard[0].result["partitions"]] == [Code.NONE] * COUNT, where
            assert {world.state(n).leader for n in range(COUNT)} == {2}, where
        epochs = [world.state(n).leader_epoch for n in range(COUNT)]
        assert max(epochs) <= 3, f"{where}: {epochs}"
        is_in_sync_again(world, t)
        again = world.admin("elect", partitions=places)
        assert again is not None
        assert {one[2] for one in again.result["partitions"]} <= {Code.NONE, Code.ELECTION_NOT_NEEDED}, where
        for number in range(COUNT):
            state = world.state(number)
            assert (state.leader, set(state.isr)) == (2, {2, 3, 4}), where
            assert state.leader_epoch <= epochs[number] + 1, "once"
            assert world.nodes[2].broker.states[pid(t, number)].state == state, where
        assert world.told("records_may_be_lost") == [], where
        assert world.told("decision_given_up") == [], where
        if not happened:
            assert step > 8, "so few steps cannot be all"
            return
    raise AssertionError("this never ends")
