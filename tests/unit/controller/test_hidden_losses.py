"""What a broker has lost is not forgotten while the store does not give out what that is about: whoever is let in reports it no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.unit.controller import harness
from tests.unit.controller.harness import World, pid
from tests.unit.controller.test_refused import REFUSALS, half_delete, refuse

from replog.controller.elections import why_away
from replog.controller.term import Term
from replog.errors import Code, UsageError
from replog.messages import LeaderAndIsr
from replog.metadata import judgements, layout
from replog.metadata.wishes import encode_replicas
from replog.model import PartitionId
from replog.ports import Create, Delete, LossReport, Op, Put, StoreCall

HIDDEN = [*REFUSALS, "damage"]
"""Refused as one store or the other says it, or given out with a value that cannot be decoded."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", 6_000)


class Hiding:
    """A path that cannot be read, until `give_back`."""

    def __init__(self, world: World, path: str, how: str) -> None:
        self._world, self._path = world, path
        self._refused: set[str] = set()
        found = None if path.endswith("/") else world.store.read(path)
        self._value = None if found is None else found.value
        if how == "damage":
            world.store.session().commit([Put(path, b"garbage")])
        else:
            self._refused.add(path)
            refuse(world, self._refused, REFUSALS[how])

    def give_back(self, advance_ms: int = 45_000) -> None:
        if not self._refused:
            assert self._value is not None
            self._world.store.session().commit([Put(self._path, self._value)])
        self._refused.clear()
        self._world.advance(advance_ms)


def with_records(brokers: int = 2, **config: int) -> tuple[World, int, int, PartitionId]:
    """A cluster of four, in which two brokers that are not the controller have a hundred records of a partition."""
    world = World(4, reconcile_ms=10_000)
    one, other = [n for n in world.nodes if n != world.controller_id][:brokers]
    partition = pid(world.create(assignment={0: [one, other]}, config=config))
    for broker in (one, other):
        world.disks[broker][partition] = (0, 100)
    return world, one, other, partition


def loses_power(world: World, broker: int, partition: PartitionId) -> None:
    """The broker comes back with forty of its records."""
    world.kill(broker)
    world.disks[broker][partition] = (0, 40)
    world.start(broker, loss=LossReport("power", (partition,)), settle=True)
    world.advance(15_000)


def live(world: World) -> Sequence[int]:
    return list(world.leader._term.cluster.live_brokers())


@pytest.mark.parametrize("how", HIDDEN)
def test_who_lost_records_of_a_partition_waits_until_its_state_can_be_read(how: str) -> None:
    world, one, other, partition = with_records(min_isr=1)
    hiding = Hiding(world, layout.partition_state_path("t", 0), how)
    loses_power(world, one, partition)
    assert one not in live(world)
    hiding.give_back()
    assert (world.state().leader, world.state().isr) == (other, (other,))
    assert one in live(world)


@pytest.mark.parametrize("how", HIDDEN)
@pytest.mark.parametrize("what", ["topic", "state"])
def test_who_lost_records_of_a_topic_that_is_not_known_waits_until_it_is(what: str, how: str) -> None:
    world, one, other, partition = with_records(min_isr=1)
    u = world.create("u", assignment={0: [one, other]}, config={"min_isr": 1})
    hiding = Hiding(world, layout.topic_path("t") if what == "topic" else layout.partition_state_path("t", 0), how)
    world.kill(world.controller_id)
    world.advance(2_000)
    loses_power(world, one, partition)
    assert one not in live(world)
    assert [event["broker"] for event in world.told("broker_kept_out")] == [one], "once"
    cluster = world.leader._term.cluster
    assert "the store does not give out what says" in why_away(cluster, pid(u), one)
    hiding.give_back()
    assert (world.state().leader, world.state().isr) == (other, (other,))
    assert one in live(world)


@pytest.mark.parametrize("how", REFUSALS)
def test_who_lost_records_of_a_topic_that_may_be_half_deleted_waits(how: str) -> None:
    world, one, other, partition = with_records(min_isr=1)
    hiding = Hiding(world, layout.delete_topic_path("t"), how)
    of_another = Create(layout.delete_topic_path("t"), layout.encode_delete_topic(bytes(16)))
    world.store.session().commit([of_another])
    world.kill(world.controller_id)
    world.advance(2_000)
    loses_power(world, one, partition)
    assert one not in live(world)
    hiding.give_back()
    assert (world.state().leader, world.state().isr) == (other, (other,))


def test_who_lost_nothing_does_not_wait_for_what_cannot_be_read() -> None:
    world, one, _, _ = with_records(min_isr=1)
    Hiding(world, layout.topic_path("t"), "damage")
    world.kill(world.controller_id)
    world.advance(2_000)
    world.kill(one)
    world.start(one, loss=LossReport("process"), settle=True)
    world.advance(2_000)
    assert one in live(world)
    assert world.told("broker_kept_out") == []


@pytest.mark.parametrize("how", ["node", "level", "damage"])
def test_an_empty_disk_is_noticed_although_it_cannot_be_read_who_was_let_in_before(how: str) -> None:
    """Only the record says that the directory is another one: of itself it reports a power cut that cost nothing."""
    world, one, other, partition = with_records(min_isr=2)
    world.kill(other)
    world.kill(one)
    assert set(world.state().elr) == {one, other}
    path = f"{judgements.ADMITTED}/" if how == "level" else judgements.admitted_path(one)
    hiding = Hiding(world, path, "damage" if how == "damage" else "access list")
    world.kill(world.controller_id)
    world.disks[one].clear()
    world.start(one, directory="f" * 32, loss=LossReport("power"), settle=True)
    world.advance(5_000)
    if how == "damage":
        world.advance(45_000)  # it has been written over
    else:
        hiding.give_back()
    assert (world.state().leader, world.state().elr) == (None, (other,))
    world.start(other, settle=True)
    world.advance(5_000)
    assert world.state().leader == other
    assert partition in world.disks[other]


def test_what_was_read_counts_only_once_it_is_taken() -> None:
    """The seat could not be confirmed: a successor may have written what was read."""
    world, one, other, _ = with_records(min_isr=2)
    world.kill(other)
    world.kill(one)
    hiding = Hiding(world, judgements.admitted_path(one), "access list")
    world.kill(world.controller_id)
    world.disks[one].clear()
    world.start(one, directory="f" * 32, loss=LossReport("power"), settle=True)
    world.advance(5_000)

    read: list[bool] = []

    def unsure(_address: object, call: StoreCall) -> str | None:
        if call.verb == "read_each" and judgements.admitted_path(one) in call.argument:
            read.append(True)
        elif call.verb == "read_each" and layout.CONTROLLER in call.argument and read:
            read.clear()
            hidden.append(world.leader._term.cluster.hidden.admissions)
            return "lost"
        return None

    hidden: list[frozenset[int]] = []
    world.before_store = unsure
    hiding.give_back()
    assert len(hidden) > 1
    assert set(hidden) == {frozenset({one})}
    world.before_store = lambda _address, _call: None
    world.advance(45_000)
    assert (world.state().leader, world.state().elr) == (None, (other,))


def test_the_next_controller_knows_who_was_let_in_although_the_level_may_not_be_listed() -> None:
    world = World(4, reconcile_ms=10_000)
    brokers = [n for n in world.nodes if n != world.controller_id]
    world.create(assignment={n: [brokers[n % 3], brokers[(n + 1) % 3]] for n in range(6)}, config={"min_isr": 2})
    before = [world.state(n) for n in range(6)]
    hiding = Hiding(world, f"{judgements.ADMITTED}/", "access list")
    world.kill(world.controller_id)
    world.advance(3_000)
    assert [world.state(n) for n in range(6)] == before
    world.kill(brokers[0])
    world.start(brokers[0], settle=True)
    world.advance(3_000)
    assert brokers[0] in live(world), "its record is known"
    new = max(world.nodes) + 1
    world.start(new, settle=True)
    world.advance(3_000)
    assert new not in live(world), "nobody knows whether it has one"
    hiding.give_back()
    assert new in live(world)


def half_deleted(refused: set[str]) -> tuple[World, str]:
    """A controller that begins in the middle of a deletion, of which the wish is refused."""
    world = World(4, reconcile_ms=10_000, slice_partitions_max=2)
    world.create(assignment={n: [1, 2] for n in range(6)}, config={"min_isr": 1})
    deposed, wish = half_delete(world), layout.delete_topic_path("t")
    refused.add(wish)
    refuse(world, refused, REFUSALS["checksum"])
    world.nodes.pop(deposed).session.expire()
    world.settle()
    world.advance(25_000)
    return world, wish


def test_a_topic_that_is_half_deleted_is_not_made_whole_before_it_is_deleted() -> None:
    refused: set[str] = set()
    world, _ = half_deleted(refused)
    before = len(world.commits)
    refused.clear()
    world.advance(25_000)
    assert world.store.list(layout.TOPICS) == []
    done: list[Op] = [op for ops in world.commits[before:] for op in ops if op.path.startswith(layout.TOPICS)]
    assert not any(isinstance(op, Create | Put) for op in done)


def test_a_damaged_wish_to_delete_a_topic_that_somebody_removes_brings_the_topic_back() -> None:
    refused: set[str] = set()
    world, wish = half_deleted(refused)
    refused.clear()
    world.store.session().commit([Delete(wish)])
    world.advance(45_000)
    assert [world.state(n).leader is not None for n in range(6)] == [True] * 6


def test_a_wish_that_is_refused_after_it_was_heard_still_counts() -> None:
    world = World(4, reconcile_ms=10_000)
    partition = pid(world.create(assignment={0: [1, 2]}, config={"min_isr": 1}))
    path = layout.reassigned_path("t", 0)
    world.store.session().commit([Create(path, encode_replicas((3, 4)))])
    world.advance(11_000)
    before = world.leader._term.cluster.wishes[partition]
    hiding = Hiding(world, path, "checksum")
    world.advance(25_000)
    assert world.leader._term.cluster.wishes[partition] == before
    hiding.give_back()
    world.store.session().commit([Delete(path)])
    world.advance(11_000)
    assert partition not in world.leader._term.cluster.wishes


# ---------------------------------------------------------------------------------------------- who is let in all the same


def is_early(world: World, broker: int) -> bool:
    found = world.store.read(judgements.admitted_path(broker))
    assert found is not None
    return judgements.decode_admission("", found.value).is_early


def restarts(world: World, broker: int) -> None:
    world.kill(broker)
    world.start(broker, loss=LossReport("process"), settle=True)
    world.advance(2_000)


@pytest.mark.parametrize("meanwhile", ["known", "the next does not know it", "the next does", "both"])
@pytest.mark.parametrize("how", HIDDEN)
def test_no_life_leads_what_an_earlier_one_led_and_nobody_could_see(meanwhile: str, how: str) -> None:
    """P-44: it would go on in an epoch in which the earlier one may have written what is not there any more."""
    world, leader, _, _ = with_records(min_isr=1)
    hiding = Hiding(world, layout.partition_state_path("t", 0), how)
    if meanwhile in ("the next does not know it", "both"):
        world.kill(world.controller_id)
        world.advance(1_000)
    restarts(world, leader)
    assert leader in live(world)
    assert is_early(world, leader)
    seen = len(world.nodes[leader].broker.received)
    if meanwhile in ("the next does", "both"):
        gone = next(n for n in world.nodes if n != leader and n == world.controller_id)
        world.kill(gone, settle=False)
    hiding.give_back()
    told = [one for one in world.nodes[leader].broker.received[seen:] if isinstance(one, LeaderAndIsr)]
    states = [entry.state for one in told for entry in one.entries]
    assert states
    assert all(state.leader_epoch > 0 for state in states)
    assert world.state().leader is not None
    assert not is_early(world, leader)


@pytest.mark.parametrize("how", HIDDEN)
def test_a_copy_of_a_topic_that_the_controller_cannot_read_is_no_stray(how: str) -> None:
    world, one, _, partition = with_records(min_isr=1)
    hiding = Hiding(world, layout.topic_path("t"), how)
    world.kill(world.controller_id)
    world.advance(2_000)

    def last_complete() -> LeaderAndIsr:
        received = world.nodes[one].broker.received
        return [message for message in received if isinstance(message, LeaderAndIsr) and message.complete][-1]

    assert (last_complete().is_partial, last_complete().entries) == (True, [])
    assert world.told("stray_kept") == []
    hiding.give_back()
    assert partition in world.nodes[one].broker.states


@pytest.mark.parametrize("how", HIDDEN)
def test_a_copy_that_is_not_wanted_goes_once_its_topic_can_be_read(how: str) -> None:
    world, one, _, partition = with_records(min_isr=1)
    unwanted = partition._replace(partition=7)
    world.disks[one][unwanted] = (0, 5)
    hiding = Hiding(world, layout.topic_path("t"), how)
    world.kill(world.controller_id)
    world.advance(2_000)
    assert unwanted in world.disks[one]
    hiding.give_back()
    assert unwanted not in world.disks[one]
    assert partition in world.disks[one]


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_a_topic_of_which_a_state_was_refused_is_deleted_and_not_made_whole(is_asked_for: bool) -> None:
    """Its deletion has begun, and the wish waits while the topic cannot be read."""
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [1, 2], 1: [1, 2]}, config={"min_isr": 1})
    world.store.session().commit([Create(layout.delete_topic_path("t"), layout.encode_delete_topic(t))])
    hiding = Hiding(world, layout.partition_state_path("t", 1), "checksum")
    world.store.session().commit([Delete(layout.partition_state_path("t", 0))])
    world.kill(world.controller_id)
    world.advance(2_000)
    before = len(world.commits)
    hiding.give_back(0 if is_asked_for else 45_000)
    if is_asked_for:  # which finds the topic before anybody looks at all of them
        assert world.admin("create_topic", name="t", replication_factor=1).error != Code.NONE
        world.advance(45_000)
    assert world.store.list(layout.TOPICS) == []
    refused = layout.topic_path("t")  # the request for another one
    stored = [ops for ops in world.commits[before:] if not any(isinstance(op, Create) and op.path == refused for op in ops)]
    done: list[Op] = [op for ops in stored for op in ops if op.path.startswith(layout.TOPICS)]
    assert not any(isinstance(op, Create | Put) for op in done)


def test_who_came_early_stays_so_while_the_next_epoch_cannot_be_stored() -> None:
    """The state can be read again, and an access list forbids to write it: nobody is told of the epoch of the earlier life."""
    world, leader, _, partition = with_records(min_isr=1)
    path = layout.partition_state_path("t", 0)
    hiding = Hiding(world, path, "damage")
    world.kill(world.controller_id)
    world.advance(2_000)
    restarts(world, leader)
    read_only = {path}
    for node in world.nodes.values():
        _writes_nothing(node.session, read_only)
    hiding.give_back()
    assert is_early(world, leader)
    if world.controller_id != leader:
        world.kill(world.controller_id)
    world.advance(25_000)
    assert partition not in world.nodes[leader].broker.states
    assert is_early(world, leader)
    read_only.clear()
    world.advance(45_000)
    assert world.state().leader_epoch > 0
    assert not is_early(world, leader)


def _writes_nothing(session: Any, paths: set[str]) -> None:
    commit_each = session.commit_each

    def writes(batches: Sequence[Sequence[Op]]) -> list[Any]:
        return [UsageError("not allowed") if any(op.path in paths for op in ops) else commit_each([ops])[0] for ops in batches]

    session.commit_each = writes


def test_an_early_record_that_is_read_late_counts_before_anything_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    world, leader, _, partition = with_records(min_isr=1)
    hiding = Hiding(world, layout.topic_path("t"), "damage")
    world.kill(world.controller_id)
    world.advance(2_000)
    restarts(world, leader)
    assert is_early(world, leader)
    refused = {judgements.admitted_path(leader)}
    refuse(world, refused, REFUSALS["access list"])
    load = Term._load

    def loaded(self: Term) -> Iterator[Any]:
        yield from load(self)
        refused.clear()
        self._looks["brokers"] = None

    monkeypatch.setattr(Term, "_load", loaded)
    deposed = world.nodes.pop(world.controller_id) if world.controller_id != leader else None
    hiding.give_back(0)
    if deposed is not None:
        deposed.session.expire()
    world.settle()
    world.advance(25_000)
    assert world.state().leader_epoch > 0
    states = world.nodes[leader].broker.states
    assert partition not in states or states[partition].state.leader_epoch > 0


def test_a_request_does_not_make_a_topic_known_of_which_a_state_cannot_be_read() -> None:
    world, one, _, _ = with_records(min_isr=1)
    hiding = Hiding(world, layout.partition_state_path("t", 0), "damage")
    world.kill(world.controller_id)
    world.advance(2_000)
    assert world.admin("create_topic", name="t", replication_factor=1).error != Code.NONE
    assert world.leader._term.cluster.topics == {}
    restarts(world, one)
    complete = [one for one in world.nodes[one].broker.received if isinstance(one, LeaderAndIsr) and one.complete]
    assert complete[-1].is_partial
    hiding.give_back()
    assert world.state().leader is not None


def test_deletions_are_looked_at_again_if_that_fails_once_a_topic_is_known() -> None:
    world = World(4, reconcile_ms=10_000)
    t = world.create(assignment={0: [2, 3], 1: [2, 3]}, config={"min_isr": 1})
    hiding = Hiding(world, layout.topic_path("t"), "damage")
    world.kill(world.controller_id)
    world.advance(2_000)
    half = [Create(layout.delete_topic_path("t"), layout.encode_delete_topic(t)), Delete(layout.partition_state_path("t", 1))]
    world.store.session().commit(half)
    world.advance(2_000)
    before, fails = len(world.commits), [3]

    def lost(_address: object, call: StoreCall) -> str | None:
        if call.verb == "list" and call.argument == layout.DELETE_TOPICS and fails[0] and t in world.leader._term.cluster.topics:
            fails[0] -= 1
            return "lost"
        return None

    world.before_store = lost
    hiding.give_back()
    assert fails == [0]
    assert world.store.list(layout.TOPICS) == []
    done: list[Op] = [op for ops in world.commits[before:] for op in ops if op.path.startswith(layout.TOPICS)]
    assert not any(isinstance(op, Create | Put) for op in done)
