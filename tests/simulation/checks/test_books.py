"""What the store says becomes ledgers; how much may be lost; which damage is held against nobody."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.simulation.checks.situations import booted

from replog.metadata import layout
from replog.model import Assignment, PartitionId
from replog.ports import Create, Delete, Put
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation


def commit(world: World, *ops: Create | Put | Delete) -> None:
    """Something that the store has committed."""
    world.root.commit(list(ops))
    world.checks.applied(list(ops))  # nobody has wished for it


def create(world: World, topic_id: bytes, **config: object) -> PartitionId:
    """A topic of one partition that nobody serves."""
    entry = layout.TopicEntry(topic_id, config, {0: Assignment((1, 2, 3), 7)})
    commit(world, Create(layout.topic_path("other"), layout.encode_topic(entry)))
    assert [ledger.topic for ledger in world.checks.expected()] == ["t", ""]
    template = next(iter(world.checks.ledgers.values())).state
    assert template is not None
    state = evolve(template, leader=1, leader_epoch=0, isr=(1, 2, 3), elr=(), min_isr=0)
    commit(world, Create(layout.partition_state_path("other", 0), layout.encode_partition_state(state)))
    return PartitionId(topic_id, 0, 7)


def test_a_topic_that_was_altered_to_flush_before_answers_holds_what_was_not() -> None:
    world = booted(flush="os")
    assert not world.checks.ledger(create(world, b"1" * 16, min_isr=3, flush="ack")).durable


def test_a_topic_that_is_made_again_has_another_ledger() -> None:
    world = booted(flush="ack")
    first = create(world, b"1" * 16, min_isr=3, flush="ack")
    book = world.checks.ledger(first)
    assert (book.topic, book.min_isr, book.durable, book.closed) == ("other", 3, True, False)
    book.entries = [next(iter(world.checks.ledgers.values())).entries] * 2  # type: ignore[list-item]
    assert world.checks.committed(0, "other") == world.checks.committed(0) == 2
    assert world.checks.committed(0, "t") == 0
    commit(world, Delete(layout.partition_state_path("other", 0)))
    assert book.closed
    assert [ledger.topic for ledger in world.checks.expected()] == ["t"]
    assert world.checks.committed(0) == 0
    commit(world, Delete(layout.topic_path("other")))
    second = create(world, b"2" * 16)
    assert world.checks.ledger(second) is not book
    assert (world.checks.ledger(second).min_isr, world.checks.ledger(second).durable) == (2, False)
    assert world.checks.ledger(first) is book
    assert world.checks.ledger(first) is world.checks.closed[first]


def test_losses_are_bounded_by_what_acks_all_survives() -> None:
    """The simulator must not lose more than min_isr - 1 copies, or it would find faults of its own making."""
    world = booted(flush="os")
    assert all(world.checks.may_lose(broker) for broker in world.nodes)
    world.nodes[1].end("power")
    assert world.checks.may_lose(1)
    assert not world.checks.may_lose(2)
    assert not world.checks.may_lose(3)


def test_nobody_may_be_lost_who_alone_has_everything() -> None:
    """Also where the copy that was lost before is none any more, because a move has taken it out of the replicas."""
    world = booted(flush="os")
    ledger = next(iter(world.checks.ledgers.values()))
    assert ledger.state is not None
    ledger.state = evolve(ledger.state, isr=(1,), elr=())
    assert world.checks.may_lose(1), "nothing was lost before: whoever took others out of the ISR has to answer for it"
    world.checks.copy(ledger.identity, 3).damaged = True
    assert not world.checks.may_lose(2)
    ledger.replicas, ledger.sent_away = (1, 2), {3}
    assert not world.checks.may_lose(1)
    assert world.checks.may_lose(2)
    ledger.state = evolve(ledger.state, isr=(1, 2))
    assert world.checks.may_lose(1)


def test_a_power_cut_costs_nothing_where_everything_is_flushed_first() -> None:
    world = booted(flush="ack")
    for node in world.nodes.values():
        assert world.checks.may_lose(node.broker_id, power=True)
        node.end("power")
    assert world.checks.may_lose(1)
    world.nodes[1].start()
    world.nodes[1].end("wipe")
    assert not world.checks.may_lose(2)
    assert world.checks.may_lose(2, power=True)


def test_a_damaged_copy_counts_as_lost_until_all_of_it_has_been_read_again() -> None:
    world = booted(flush="os")
    identity = next(iter(world.checks.ledgers))
    world.checks.tampered(1, PartitionId(bytes(16), 9, 9))
    assert world.checks.may_lose(2)
    world.checks.tampered(1, identity)
    copy = world.checks.copy(identity, 1)
    assert copy.suspect
    assert not world.checks.may_lose(2)
    world.nodes[1].kill()
    assert not copy.suspect
    assert world.checks.may_lose(2)


def test_a_disk_that_kept_less_than_it_should_is_found_out() -> None:
    world = booted(flush="os")
    node, client = world.nodes[1], next(iter(world.clients.values()))
    probe = client.probe(0)
    assert world.run_until(world.now_ms + 5_000, lambda: probe.done)
    world.run_until(world.now_ms + 1_000)
    identity = next(iter(world.checks.ledgers))
    assert world.checks.copy(identity, 1).end == 1
    assert not world.checks.robbed(node, "kill")
    world.checks.tampered(1, None)
    assert not world.checks.robbed(node, "kill")
    log = node.directory.get(identity)
    assert log is not None
    log.truncate_to(0)
    assert world.checks.robbed(node, "kill")


@pytest.mark.parametrize(("noted", "batches", "excused"), [(0, 1, True), (1, 1, False), (0, 2, False), (1, 2, True)])
def test_a_bit_turned_over_in_the_last_batch_may_go_unseen(noted: int, batches: int, excused: bool) -> None:
    """It looks like a write that was torn, unless something stands behind it or the note of what was flushed reaches beyond it."""
    world = booted(flush="ack")
    node, client = world.nodes[1], next(iter(world.clients.values()))
    for _ in range(batches):
        probe = client.probe(0)
        assert world.run_until(world.now_ms + 5_000, lambda probe=probe: probe.done)
    world.run_until(world.now_ms + 1_000)
    identity = next(iter(world.checks.ledgers))
    copy = world.checks.copy(identity, 1)
    assert (copy.end, copy.durable) == (batches, batches)
    log = node.directory.get(identity)
    assert log is not None
    world.checks.tampered(1, None)
    log.truncate_to(noted if excused else 0)
    node.storage.noted = {identity: noted}
    assert world.checks.robbed(node, "kill") == excused


def test_a_fault_that_finds_nothing_to_damage_excuses_nothing() -> None:
    world = booted(flush="os")
    assert not world.nodes[1].damage("flip", 1)
    assert not world.checks.copy(next(iter(world.checks.ledgers)), 1).suspect


def test_reads_that_fail_are_remembered_as_long_as_the_process_lives() -> None:
    """Work that was asked for meanwhile may be answered later."""
    world = booted(flush="os", files=True)
    node = world.nodes[1]
    assert not node.reads_fail
    assert node.damage("full", 1)
    assert not node.reads_fail
    assert node.damage("read_error", 1)
    world.run_until(world.now_ms + 100)
    assert node.reads_fail
    node.kill()
    node.start()
    assert not node.reads_fail


@pytest.mark.parametrize("behind", [False, True])
def test_a_machine_is_replaced_if_it_cannot_know_what_its_disk_has_lost(behind: bool) -> None:
    """Something that was written behind shows it: then the broker has to say so itself."""
    world = booted(flush="os", files=True)
    node, client = world.nodes[1], next(iter(world.clients.values()))
    identity = next(iter(world.checks.ledgers))

    def append() -> None:
        probe = client.probe(0)
        assert world.run_until(world.now_ms + 5_000, lambda: probe.done)
        copy = world.checks.copy(identity, 1)
        assert world.run_until(world.now_ms + 1_000, lambda: copy.end == probe.base_offset + 1)

    append()
    assert node.damage("stale_write", 60_000)
    append()  # which is not there
    if behind:
        append()
    before = node.directory.directory_id
    node.kill()
    assert (node.directory.directory_id == before) == behind
    assert world.marks.hits.get("a machine is replaced that could not know", 0) == (not behind)
    assert node.directory.loss.lossy == ((identity,) if behind else ())
