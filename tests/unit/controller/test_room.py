"""Moves that wait for others take their turn when those end, whichever way: also with their topic, or with their partition."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World, pid
from tests.unit.controller.test_refused import REFUSALS, _refuse

from replog.errors import Code
from replog.metadata import layout
from replog.ports import Delete


@pytest.mark.parametrize("how", ["deleted", "removed", "vanished", "cancelled"])
def test_a_move_that_waits_begins_when_another_ends_with_what_it_was_about(how: str) -> None:
    world = World(4, reassignments_max=1)
    world.create("a", assignment={0: [1, 2], 1: [1, 2]})
    b = world.create("b", assignment={0: [1, 2]})
    world.admin("reassign", partitions=[["a", 1, [1, 3]]])
    world.admin("reassign", partitions=[["b", 0, [1, 4]]])
    cluster = world.leader._term.cluster
    assert cluster.topics[b].assignments[0].adding == ()
    world.drop_watches = True  # which may come late; then nothing else says that there is room
    match how:
        case "deleted":
            assert world.admin("delete_topic", name="a").error == Code.NONE
        case "removed":
            assert world.admin("remove_partitions", name="a", partitions=[1]).error == Code.NONE
        case "cancelled":
            world.admin("reassign", partitions=[["a", 1, None]])
        case _:
            world.store.session().commit([Delete(layout.partition_state_path("a", number)) for number in (0, 1)])
            world.store.session().commit([Delete(layout.topic_path("a"))])
            world.leader._term.fired(layout.TOPICS)
            world.heartbeat(1)
    assert cluster.topics[b].assignments[0].adding == (4,)
    assert len(cluster.moving) == 1


def test_a_broker_whose_registration_was_out_of_sight_is_believed_that_it_has_room_again() -> None:
    """Seed 37490705: it had no room when it was seen last; that it has some again was no news of the broker that came back."""
    world = World(3, reconcile_ms=10_000)
    leader, full = [n for n in world.nodes if n != world.controller_id]
    world.nodes[full].broker.full = True
    t = world.create(assignment={0: [leader, full]}, config={"min_isr": 1})
    assert world.state().isr == (leader,)
    refused = {layout.broker_path(full)}
    _refuse(world.nodes[world.controller_id].session, refused, REFUSALS["checksum"])
    world.advance(11_000)
    assert full not in world.leader._term.cluster.brokers
    world.nodes[full].broker.full = False
    refused.clear()
    world.advance(11_000)
    assert world.propose(leader, pid(t), [leader, full]).error == Code.NONE
    assert world.state().isr == (leader, full)
