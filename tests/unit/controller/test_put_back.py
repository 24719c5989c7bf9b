"""What somebody has removed or damaged by hand, and writes back: it is decided again, and what was wished about it meanwhile runs."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.unit.controller.harness import World, pid

from replog.errors import Code
from replog.metadata import layout
from replog.metadata.wishes import Meant, encode_replicas
from replog.ports import Create, Delete, Put

TOPIC, STATE = layout.topic_path("t"), layout.partition_state_path("t", 0)


def removed(world: World, *paths: str) -> dict[str, bytes]:
    """Somebody removes these; what was there."""
    good = {path: world.store.read(path).value for path in paths}
    for path in paths:
        world.store.session().commit([Delete(path)])
    world.settle()
    return good


def put_back(world: World, good: dict[str, bytes]) -> None:
    for path in sorted(good):
        known = world.store.read(path)
        world.store.session().commit([Create(path, good[path]) if known is None else Put(path, good[path], known.version)])
        world.settle()


BOTH = (STATE, TOPIC)


@pytest.mark.parametrize(("away", "junk"), [((STATE,), ()), (BOTH, ()), (BOTH, (TOPIC,)), ((), (STATE,)), ((), (TOPIC,)), ((), BOTH)])
def test_what_is_put_back_hears_of_who_died_meanwhile(away: tuple[str, ...], junk: tuple[str, ...]) -> None:
    world = World(5, reconcile_ms=30_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    good = {path: world.store.read(path).value for path in {*away, *junk}}
    removed(world, *away)
    put_back(world, dict.fromkeys(junk, b"{"))
    world.kill(2)
    world.start(4, settle=True)  # who is let in has its leaderless partitions decided: this one has had a state
    world.advance(35_000)
    put_back(world, good)
    world.advance(35_000)
    assert (world.state().leader, world.state().isr) == (3, (3,))
    assert pid(t) in world.disks[3]
    assert world.leader._term.cluster.vanished == {}


@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_a_leader_that_has_died_while_its_topic_was_away_leads_another_epoch(how: str) -> None:
    """Two records never have one epoch and offset: each life leads an epoch of its own."""
    world = World(4, reconcile_ms=30_000)
    t = world.create(assignment={0: [3]})
    if how == "removed":
        good = removed(world, *BOTH)
    else:
        good = {TOPIC: world.store.read(TOPIC).value}
        put_back(world, {TOPIC: b"{"})
        world.kill(1)
        world.advance(5_000)
    world.bounce(3)
    assert world.leader._term.cluster.is_admitted(3)
    put_back(world, good)
    world.advance(65_000)
    state = world.state()
    assert (state.leader, state.leader_epoch, state.isr) == (3, 1, (3,))
    assert world.nodes[3].broker.states[pid(t)].state == state


def test_the_next_controller_costs_no_epoch_where_nothing_was_away() -> None:
    world = World(4)
    world.create(assignment={0: [3, 4]})
    before, first = world.state(), world.controller_id
    world.kill(first)
    assert world.controller_id != first
    assert world.state() == before


def test_a_partition_whose_state_was_removed_gets_no_first_one_and_does_not_move() -> None:
    """Nobody knows any more who is complete."""
    world = World(5, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3], 1: [2, 3]}, config={"min_isr": 1})
    world.disks[3][pid(t)] = (0, 100)
    good = removed(world, STATE)
    world.kill(2)
    assert world.state(1).leader == 3
    for again in range(3):
        world.kill(3)
        world.start(3, settle=True)
        assert world.admin("reassign", partitions=[["t", 0, [4 + again % 2]]]).result["errors"] == []
        assert world.admin("add_partitions", name="t", total=3 + again).error == 0
        world.advance(11_000)
        assert (world.store.read(STATE), pid(t) in world.disks[3]) == (None, True)
    put_back(world, good)
    world.advance(11_000)
    assert world.state().leader == 3
    assert set(world.leader._term.cluster.replicas(pid(t))) == {2, 3, 4}
    assert world.propose(3, pid(t), [3, 4]).error != 0
    assert world.leader._term.cluster.replicas(pid(t)) == (4,)


def test_what_was_wished_about_a_topic_that_is_put_back_runs_at_once() -> None:
    world = World(5, reconcile_ms=30_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    good = removed(world, STATE, TOPIC)
    world.drop_watches = True
    world.store.session().commit([Create(layout.reassigned_path("t", 0), encode_replicas((3, 4), Meant(t)))])
    world.drop_watches = False
    world.store.session().commit([Create(TOPIC, good[TOPIC]), Create(STATE, good[STATE])])
    world.settle()
    assert world.leader._term.cluster.replicas(pid(t)) == (3, 4, 2)


def test_a_move_that_is_wished_when_nobody_has_noticed_yet_that_the_state_is_gone_waits_too() -> None:
    world = World(5, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    world.disks[3][pid(t)] = (0, 100)
    good = removed(world, STATE)
    assert world.admin("reassign", partitions=[["t", 0, [4]]]).result["errors"] == []
    world.advance(11_000)
    assert world.disks[3] == {pid(t): (0, 100)}
    put_back(world, good)
    world.advance(11_000)
    assert world.leader._term.cluster.replicas(pid(t)) == (4, 2, 3)


def test_a_topic_that_is_removed_after_its_state_comes_back_without_a_first_one() -> None:
    world = World(5, reconcile_ms=10_000)
    world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    good = removed(world, STATE)
    world.kill(2)
    good |= removed(world, TOPIC)
    put_back(world, {TOPIC: good[TOPIC]})
    world.advance(11_000)
    assert world.store.read(STATE) is None
    put_back(world, good)
    world.advance(11_000)
    assert (world.state().leader, world.state().isr) == (3, (3,))


def test_a_topic_whose_state_was_removed_can_be_deleted_and_leaves_nothing_behind() -> None:
    world = World(3)
    world.create(assignment={0: [2, 3], 1: [2, 3]})
    removed(world, STATE)
    world.kill(2)
    cluster = world.leader._term.cluster
    assert len(cluster.vanished) == 1
    world.admin("delete_topic", name="t")
    assert (cluster.topics, cluster.vanished) == ({}, {})


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_state_that_is_removed_and_put_back_reaches_a_leader_that_knows_later_ones(is_seen: bool) -> None:
    """The node is another, and its versions begin anew: without a new leader epoch its replicas would hear nothing any more."""
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 1})
    for isr in ([2, 3], [2, 3, 4], [2, 3], [2, 3, 4]):
        assert world.propose(2, pid(t), isr).error == 0
    good = removed(world, STATE)
    if is_seen:
        assert world.propose(2, pid(t), [2, 3]).error != 0
    put_back(world, good)
    world.advance(11_000)
    assert (world.propose(2, pid(t), [2, 3]).error != 0) is not is_seen, "whoever did not see it finds it out now"
    assert world.propose(2, pid(t), [2, 4]).error == 0
    state = world.state()
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 4))
    assert world.nodes[2].broker.states[pid(t)].state == state


# ------------------------------------------------------------------------------ mended, and a broker that loses its disk after that


def _loses_its_disk(world: World, broker: int) -> None:
    """It is back, empty, before anybody has noticed that it was gone."""
    world.disks[broker] = {}
    world.nodes.pop(broker).session.expire()
    world.start(broker, directory="f" * 32, settle=True)


@pytest.mark.parametrize("how", ["state removed", "topic removed", "state damaged", "topic damaged"])
def test_who_loses_its_disk_after_a_repair_that_nobody_has_looked_at_yet_is_complete_no_more(how: str) -> None:
    """No watch tells of it. To let the new life in first would be to forget what it has lost."""
    world = World(5, reconcile_ms=30_000)
    t = world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 2})
    if how == "topic removed":
        good = removed(world, *BOTH)
    elif how == "state removed":
        good = removed(world, STATE)
        assert world.propose(2, pid(t), [2, 4]).error != 0, "it is known to be gone"
    else:
        what = STATE if how == "state damaged" else TOPIC
        good = {what: world.store.read(what).value}
        put_back(world, dict.fromkeys(good, b"{"))
        world.kill(world.controller_id)  # the next one cannot read it, and so knows nothing of the topic
    world.drop_watches = True
    put_back(world, good)
    world.drop_watches = False
    _loses_its_disk(world, 3)
    assert world.leader._term.cluster.is_admitted(3)
    world.advance(65_000)
    assert world.state().isr == (2, 4)


def test_brokers_that_come_cost_no_look_at_topics_where_all_of_them_can_be_read() -> None:
    world = World(4, reconcile_ms=30_000)
    world.create(assignment={0: [2, 3]})
    looked: list[str] = []
    world.before_store = lambda _address, call: looked.append(call.argument) if call.verb == "list" else None
    _loses_its_disk(world, 4)
    assert layout.BROKER_IDS in looked
    assert layout.TOPICS not in looked


# ----------------------------------------------------------------------------- put back, and another controller before anybody has looked


def _next_controller(world: World) -> None:
    """As by a crash of the one that there is."""
    world.kill(world.controller_id)
    world.advance(1_000)


def test_the_next_controller_gives_a_leader_that_knows_later_states_of_the_same_epoch_a_new_one() -> None:
    """The node was made anew: whatever follows from it would seem old to the brokers, and what they propose would be of the future."""
    world = World(5, reconcile_ms=30_000)
    t = world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 1})
    for isr in ([2, 3], [2, 3, 4], [2, 3], [2, 3, 4]):
        assert world.propose(2, pid(t), isr).error == 0
    put_back(world, removed(world, STATE))
    _next_controller(world)
    assert world.propose(2, pid(t), [2, 3]).error == Code.NOT_CONTROLLER, "it may be the controller that is out of date"
    assert world.propose(2, pid(t), [2, 3]).error == Code.NONE
    state = world.state()
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))
    assert world.nodes[3].broker.states[pid(t)].state == state


@pytest.mark.parametrize(("isr", "leader"), [((2, 3, 4), 3), ((2, 4), 2)])
def test_who_led_later_than_the_state_that_was_put_back_goes_on_if_it_is_in_sync(isr: tuple[int, ...], leader: int) -> None:
    world = World(5, reconcile_ms=30_000)
    t = world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 1})
    old = world.state()
    for _ in range(2):
        world.kill(2)
        world.start(2, settle=True)
        assert world.propose(3, pid(t), [2, 3, 4]).error == 0
        assert world.admin("elect", partitions=[["t", 0]]).error == 0
    world.kill(2)
    world.start(2, settle=True)
    later = world.state()
    assert (later.leader, later.leader_epoch) == (3, 5)
    put_back(world, {STATE: layout.encode_partition_state(evolve(old, isr=isr))})
    _next_controller(world)
    assert world.propose(3, pid(t), [3, 4]).error == Code.NOT_CONTROLLER
    state = world.state()
    assert (state.leader, state.leader_epoch, state.isr) == (leader, 6, isr)
    assert {world.nodes[b].broker.states[pid(t)].state for b in (2, 3, 4)} == {state}


def test_a_proposal_of_a_later_state_that_comes_twice_costs_one_epoch() -> None:
    world = World(5, reconcile_ms=30_000)
    t = world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 1})
    for isr in ([2, 3], [2, 3, 4]):
        assert world.propose(2, pid(t), isr).error == 0
    known = world.state()
    put_back(world, removed(world, STATE))
    _next_controller(world)
    for _ in range(2):
        world.propose(2, pid(t), [2, 3], settle=False)
    world.settle()
    assert world.state().leader_epoch == 1
    world.propose(2, pid(t), [2, 3], leader_epoch=0, partition_epoch=known.partition_epoch)
    assert (world.state().leader_epoch, world.state().isr) == (1, (2, 3, 4))
