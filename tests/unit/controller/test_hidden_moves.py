"""Wishes to move partitions that were not looked at yet, or cannot be read: no move ends while it may be wished elsewhere, or back."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.unit.controller.harness import World, pid
from tests.unit.controller.test_reassign import a_world, assignment, joins, reassign, wishes
from tests.unit.controller.test_refused import REFUSALS, Refusal, refuse, told

from replog.metadata import layout
from replog.metadata.wishes import encode_replicas
from replog.model import Assignment
from replog.ports import Delete, Put

STATE = layout.partition_state_path("t", 0)
WISH = layout.reassigned_path("t", 0)
HIDDEN = {
    "checksum": (WISH, REFUSALS["checksum"]),
    "access list": (WISH, REFUSALS["access list"]),
    "access list of the topic": (f"{layout.PARTITIONS_REASSIGNED}/t/", REFUSALS["access list"]),
    "access list of the row": (f"{layout.PARTITIONS_REASSIGNED}/", REFUSALS["access list"]),
}


@pytest.fixture(params=list(REFUSALS))
def refusal(request: pytest.FixtureRequest) -> Refusal:
    return REFUSALS[request.param]


def on_its_way() -> tuple[World, bytes]:
    """A partition between brokers 2, 3 and 3, 4; broker 1 is the controller."""
    world, t = a_world(5, (2, 3))
    assert reassign(world, ("t", 0, [3, 4])) == []
    assert world.controller_id == 1
    return world, t


def wish(world: World, target: tuple[int, ...] | None) -> None:
    """What the controller has stored before it ended: this wish, and that everybody of the target is in sync."""
    stored = world.store.read(WISH)
    assert stored is not None
    state = world.state()
    complete = evolve(state, isr=(2, 3, 4), partition_epoch=state.partition_epoch + 1)
    world.store.session().commit(
        [Put(WISH, encode_replicas(target), stored.version), Put(STATE, layout.encode_partition_state(complete), state.partition_epoch)]
    )


@pytest.mark.parametrize(("target", "there"), [(None, (2, 3)), ((3, 4), (3, 4)), ((4, 5), (4, 5, 3, 2))])
def test_what_is_wished_of_a_topic_that_can_be_read_again_is_looked_at_before_its_move_ends(
    target: tuple[int, ...] | None, there: tuple[int, ...], refusal: Refusal
) -> None:
    world, t = on_its_way()
    refused = {STATE}
    refuse(world, refused, refusal)
    world.kill(1)
    assert t not in world.leader._term.cluster.topics
    wish(world, target)
    refused.clear()
    world.advance(50_000)
    assert assignment(world).replicas == there
    assert world.store.list(layout.REJECTED) == []


@pytest.mark.parametrize("what", HIDDEN)
@pytest.mark.parametrize(("target", "there"), [(None, (2, 3)), ((3, 4), (3, 4))])
def test_a_move_whose_wish_cannot_be_read_ends_when_it_can_be(
    target: tuple[int, ...] | None, there: tuple[int, ...], what: str
) -> None:
    world, t = on_its_way()
    wish(world, target)
    before = assignment(world)
    path, refusal = HIDDEN[what]
    refused = {path}
    refuse(world, refused, refusal)
    world.kill(1)
    world.advance(25_000)
    assert told(world) == [path]
    assert assignment(world) == before
    (says,) = [s for s in world.admin("explain", name="t", partition=0).result["sentences"] if "cannot be read" in s]  # type: ignore[union-attr]
    assert WISH in says
    assert joins(world, t, 2, 3).error == 0, "its ISR changes as before"
    assert joins(world, t, 2, 3, 4).error == 0
    assert assignment(world) == before
    refused.clear()
    world.advance(25_000)
    assert assignment(world) == Assignment(there, 0)
    assert wishes(world) == []
    assert world.store.list(layout.REJECTED) == []


def test_a_move_whose_wish_is_gone_ends_when_that_can_be_seen(refusal: Refusal) -> None:
    world, _ = on_its_way()
    wish(world, (3, 4))
    refused = {WISH}
    refuse(world, refused, refusal)
    world.kill(1)
    world.advance(25_000)
    world.store.session().commit([Delete(WISH)])
    refused.clear()
    world.advance(45_000)
    assert assignment(world) == Assignment((3, 4), 0)


def test_a_wish_that_cannot_be_read_holds_up_no_other_move(refusal: Refusal) -> None:
    world, _ = on_its_way()
    u = world.create("u", assignment={0: [2, 3]})
    assert reassign(world, ("u", 0, [3, 4])) == []
    wish(world, None)
    refuse(world, {WISH}, refusal)
    world.kill(1)
    world.advance(25_000)
    leader = world.state(topic="u").leader
    assert leader is not None
    world.propose(leader, pid(u), [2, 3, 4])
    assert assignment(world, topic="u") == Assignment((3, 4), 0)


def test_a_wish_that_was_known_before_it_could_not_be_read_ends_no_move_either(refusal: Refusal) -> None:
    world, t = on_its_way()
    refused = {WISH}
    refuse(world, refused, refusal)
    world.advance(35_000)
    assert told(world) == [WISH]
    assert joins(world, t, 2, 3, 4).error == 0, "that would be stored with the end of the wish, which is refused"
    assert assignment(world).adding == (4,)
    refused.clear()
    world.advance(35_000)
    assert assignment(world) == Assignment((3, 4), 0)


def test_a_partition_at_rest_waits_for_no_wish() -> None:
    world = World(4, reconcile_ms=10_000)
    refuse(world, {f"{layout.PARTITIONS_REASSIGNED}/"}, REFUSALS["access list"])
    world.kill(world.controller_id)
    world.advance(1_000)
    assert world.create("new", replication_factor=2)
    assert world.state(topic="new").leader is not None
