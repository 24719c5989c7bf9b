"""A store that takes nothing for a while: nothing is concluded from what it would have replaced, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve
from tests.unit.controller import harness
from tests.unit.controller.harness import World, pid
from tests.unit.controller.test_parked import STEPS, given_up, refusing

from replog.errors import Code, StoreFull
from replog.messages import LeaderAndIsr, ReplicaStatesAnswer
from replog.metadata import judgements, layout
from replog.ports import Delete, LossReport, Op, Put, StoreCall


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", STEPS)


def full(world: World) -> list[int]:
    """The disk of the store is full: nobody's transactions are stored while there is something in the list that is given back."""
    is_full: list[int] = []
    for node in world.nodes.values():
        stored = node.session.commit_each

        def commit_each(batches: list[list[Op]], stored: Callable[..., list[object]] = stored) -> list[object]:
            return [StoreFull("no room")] * len(batches) if is_full else stored(batches)

        node.session.commit_each = commit_each  # type: ignore[assignment]
    return is_full


def parked_without(world: World, lossy: int, *, store: str) -> Callable[[], None]:
    """`lossy` loses its disk, and the store does not take the state of t-0 without it. What gives the store room again."""
    path = layout.partition_state_path("t", 0)
    refused = refusing(world, path, lambda: StoreFull("no room")) if store == "of one node" else full(world)
    refused += [1] if store == "full" else []  # type: ignore[list-item]
    world.kill(lossy)
    world.disks[lossy].clear()
    world.start(lossy, loss=LossReport("replaced"), directory="f" * 32, settle=True)
    assert list(world.leader._term.cluster.parked) == [pid(world.leader._term.cluster.names["t"])]
    assert lossy in world.state().isr, "what the store has is the old state"
    return refused.clear


@pytest.mark.parametrize("store", ["full", "of one node"])
def test_a_move_ends_on_no_state_that_could_not_be_replaced(store: str) -> None:
    """The state that was refused is what says that the replica which stays is empty, and that the one which leaves is not."""
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    world.disks[2][pid(t)] = (0, 100)
    mend = parked_without(world, 3, store=store)
    mend()
    assert world.admin("reassign", partitions=[["t", 0, [3]]]).result["errors"] == []
    assert world.disks[2] == {pid(t): (0, 100)}
    world.advance(11_000)
    assert (world.state().leader, world.state().isr) == (2, (2,))
    assert world.disks[2] == {pid(t): (0, 100)}
    assert world.propose(2, pid(t), [2, 3]).error == Code.NEW_LEADER_ELECTED
    assert (world.state().leader, world.state().isr) == (3, (3,)), "it has caught up"
    assert pid(t) not in world.disks[2]
    assert world.store.list(layout.PARTITIONS_REASSIGNED) == []


@pytest.mark.parametrize("store", ["full", "of one node"])
def test_a_cancellation_goes_back_on_no_state_that_could_not_be_replaced(store: str) -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [3]}, config={"min_isr": 1})
    world.admin("reassign", partitions=[["t", 0, [2, 4]]])
    world.propose(3, pid(t), [2, 3])
    world.disks[2][pid(t)] = (0, 100)
    mend = parked_without(world, 3, store=store)
    mend()
    assert world.admin("reassign", partitions=[["t", 0, None]]).result["errors"] == []
    assert world.disks[2] == {pid(t): (0, 100)}
    world.advance(11_000)
    assert (world.state().leader, world.state().isr) == (2, (2,))
    assert world.disks[2] == {pid(t): (0, 100)}
    assert world.propose(2, pid(t), [2, 3]).error == Code.NEW_LEADER_ELECTED
    assert (world.state().leader, world.state().isr) == (3, (3,))


def test_a_move_that_waited_begins_as_soon_as_another_state_is_stored() -> None:
    """What a leader proposes says who is complete by now."""
    world = World(4, reconcile_ms=30_000)
    t = world.create(assignment={0: [2, 3, 4]}, config={"min_isr": 1})
    refused = refusing(world, layout.partition_state_path("t", 0), lambda: StoreFull("no room"))
    world.kill(4)
    assert world.leader._term.cluster.parked == {pid(t): True}
    refused.clear()
    assert world.admin("reassign", partitions=[["t", 0, [2, 3, 1]]]).result["errors"] == []
    assert world.leader._term.cluster.replicas(pid(t)) == (2, 3, 4)
    assert world.propose(2, pid(t), [2, 3]).error == Code.NONE
    assert world.leader._term.cluster.parked == {}
    assert world.leader._term.cluster.replicas(pid(t)) == (2, 3, 1, 4)


def test_who_has_lost_records_is_let_in_once_the_store_has_taken_the_state_without_it() -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    world.create("u", assignment={0: [2, 4]})
    mend = parked_without(world, 3, store="of one node")
    assert not world.leader._term.cluster.is_admitted(3)
    world.advance(10_000)
    assert not world.leader._term.cluster.is_admitted(3)
    mend()
    world.kill(2)
    assert (world.state().leader, world.state().isr, world.state().elr) == (None, (), (2,)), "and not 3, which is empty"
    assert world.leader._term.cluster.is_admitted(3)
    assert t in world.leader._term.cluster.topics


def test_a_broker_that_was_not_let_in_because_the_store_was_full_is_let_in_later() -> None:
    world = World(3, reconcile_ms=10_000)
    is_full = full(world)
    is_full.append(1)
    world.kill(3)
    world.start(3, settle=True)
    world.advance(25_000)
    assert not world.leader._term.cluster.is_admitted(3)
    assert given_up(world) == ["BrokerAcknowledged"], "told once"
    is_full.clear()
    world.advance(10_000)
    assert world.leader._term.cluster.is_admitted(3)


def test_copies_whose_removal_could_not_be_stored_are_struck_off_later() -> None:
    world = World(3, reconcile_ms=10_000)
    world.create(assignment={0: [2, 3]})
    is_full = full(world)

    def fill(_address: object, call: StoreCall) -> None:
        """Behind the transaction that removes the topic."""
        written = [op for ops in call.argument for op in ops] if call.verb == "commit_each" else []
        if any(isinstance(op, Delete) and op.path == layout.topic_path("t") for op in written):
            is_full.append(1)

    world.after_store = fill
    world.admin("delete_topic", name="t")
    assert is_full
    assert len(world.store.list(layout.REMOVED)) == 1
    is_full.clear()
    world.advance(10_000)
    assert world.store.list(layout.REMOVED) == []


def test_those_that_were_last_complete_are_asked_again_when_the_election_could_not_be_stored() -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 2})
    for broker in (2, 3):
        world.kill(broker)
    assert world.state().last_known == (2, 3)
    for broker, end in ((2, 50), (3, 100)):
        world.disks[broker][pid(t)] = (0, end)
    is_full = full(world)
    world.start(2, loss=LossReport("power", lossy=(pid(t),)), settle=True)
    world.drop = lambda _sender, to, message: isinstance(message, ReplicaStatesAnswer)
    world.start(3, loss=LossReport("power", lossy=(pid(t),)), settle=True)
    assert world.state().leader is None
    is_full.append(1)
    world.drop = lambda _sender, _to, _message: False
    world.advance(25_000)
    assert given_up(world) == ["LastKnownAnswered"], "told once"
    world.disks[3][pid(t)] = (0, 10)
    is_full.clear()
    world.advance(11_000)
    assert world.state().leader == 2, "by what they say now"


def test_those_that_were_last_complete_are_asked_although_something_else_could_not_be_stored() -> None:
    """In one slice with what the store refuses."""
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 2})
    world.create("u", assignment={0: [3]})
    for broker in (2, 3):
        world.kill(broker)
    lost = LossReport("power", lossy=(pid(t),))
    world.start(2, loss=lost, settle=True)
    refusing(world, layout.partition_state_path("u", 0), lambda: StoreFull("no room"))
    world.start(3, loss=lost, settle=True)
    assert (world.state().leader is None, world.state(0, "u").leader) == (False, None)


@pytest.mark.parametrize("store", ["full", "of one node"])
def test_a_leader_that_has_died_leads_no_more_under_the_state_that_could_not_be_replaced(store: str) -> None:
    """Under its old epoch it would make those cut their logs who have what it has lost."""
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    mend = parked_without(world, 2, store=store)
    assert (world.state().leader, world.state().leader_epoch) == (2, 0)
    assert pid(t) not in world.nodes[2].broker.states
    mend()
    world.advance(11_000)
    assert (world.state().leader, world.state().leader_epoch, world.state().isr) == (3, 1, (3,))
    told = world.nodes[2].broker.states[pid(t)].state
    assert (told.leader, told.leader_epoch) == (3, 1)


def test_who_died_beside_a_state_that_is_refused_is_let_in_afterwards_also_without_a_loss() -> None:
    """Each life leads another epoch."""
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    refused = refusing(world, layout.partition_state_path("t", 0), lambda: StoreFull("no room"))
    world.bounce(2)
    assert not world.leader._term.cluster.is_admitted(2)
    assert pid(t) not in world.nodes[2].broker.states
    refused.clear()
    world.advance(11_000)
    assert (world.state().leader, world.state().leader_epoch, world.state().isr) == (3, 1, (3,))
    assert world.leader._term.cluster.is_admitted(2)


def test_a_leader_that_came_back_while_its_state_was_damaged_leads_another_epoch() -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2]})
    path = layout.partition_state_path("t", 0)
    good = world.store.read(path)
    world.store.session().commit([Put(path, b"{", good.version)])
    world.bounce(2)
    assert list(world.leader._term.cluster.parked) == [pid(t)]
    assert world.leader._term.cluster.is_admitted(2)
    assert pid(t) not in world.nodes[2].broker.states
    world.store.session().commit([Put(path, good.value, good.version + 1)])
    world.advance(11_000)
    assert (world.state().leader, world.state().leader_epoch) == (2, 1)
    assert world.nodes[2].broker.states[pid(t)].state.leader_epoch == 1
    world.advance(11_000)
    assert world.state().leader_epoch == 1, "once"


def test_an_unclean_election_that_the_store_refuses_keeps_nobody_out_who_makes_it_needless() -> None:
    """No new node fits, such as the record of a loss: the broker that is complete comes back, and leads also what it alone holds."""
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1, "unclean_leader_election": True})
    world.create("u", assignment={0: [2]})
    world.kill(3)
    world.start(3, settle=True)
    refusing(world, judgements.loss_path(t, 0), lambda: StoreFull("no room"))
    world.kill(2)
    assert world.leader._term.cluster.parked == {pid(t): True}
    world.start(2, settle=True)
    assert world.leader._term.cluster.is_admitted(2)
    assert (world.state().leader, world.state().isr, world.state(0, "u").leader) == (2, (2,), 2)
    assert world.state().leader_epoch == 2, "one for nobody, one for its new life"
    assert world.leader._term.cluster.parked == {}


def test_a_move_whose_end_is_refused_keeps_no_broker_out() -> None:
    """The topic cannot be stored: what says that the broker is in sync no more is stored without it, once."""
    world = World(5, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    world.admin("reassign", partitions=[["t", 0, [3, 4]]])
    cluster = world.leader._term.cluster
    wish = cluster.wishes[pid(t)]
    cluster.apply(evolve(wish, target=(3, 5)))  # it waits for another wish, which is taken back
    world.propose(2, pid(t), [2, 3, 4])
    refused = refusing(world, layout.topic_path("t"), lambda: StoreFull("no room"))
    cluster.apply(wish)
    world.kill(2)
    assert cluster.parked == {pid(t): True}
    world.start(2, settle=True)
    assert cluster.is_admitted(2)
    assert (world.state().leader, world.state().isr) == (3, (3, 4))
    epoch = world.state().leader_epoch
    world.advance(35_000)
    assert (world.state().leader_epoch, cluster.parked) == (epoch, {pid(t): True})
    refused.clear()
    world.advance(11_000)
    assert cluster.replicas(pid(t)) == (3, 4)


def test_who_counts_as_complete_beside_the_isr_and_has_lost_records_waits_too() -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 2})
    world.kill(3)
    assert (world.state().isr, world.state().elr) == ((2,), (3,))
    refused = refusing(world, layout.partition_state_path("t", 0), lambda: StoreFull("no room"))
    world.disks[3].clear()
    world.start(3, loss=LossReport("replaced"), directory="f" * 32, settle=True)
    assert world.leader._term.cluster.parked == {pid(t): True}
    assert not world.leader._term.cluster.is_admitted(3)
    refused.clear()
    world.advance(11_000)
    assert world.leader._term.cluster.is_admitted(3)
    assert world.state().elr == ()


def test_who_lost_records_is_not_told_that_this_was_dealt_with_before_it_was() -> None:
    """A broker reports a loss until it has the complete notice: a restart before the state is stored must not hide it."""
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3]}, config={"min_isr": 1})
    refused = refusing(world, layout.partition_state_path("t", 0), lambda: StoreFull("no room"))
    world.kill(3)
    life = world.start(3, loss=LossReport("power", lossy=(pid(t),)), settle=True)
    assert not any(isinstance(m, LeaderAndIsr) and m.complete for m in life.broker.received)
    refused.clear()
    world.advance(11_000)
    assert any(isinstance(m, LeaderAndIsr) and m.complete for m in life.broker.received)
    assert world.leader._term.cluster.is_admitted(3)
