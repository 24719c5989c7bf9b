"""What a term queues: events in the order they came, and what finishes a deletion once at a time."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World

from replog.config import BrokerConfig
from replog.controller.campaign import Won
from replog.controller.events import CopiesGone, FinishDeletion
from replog.controller.reading import Reader
from replog.controller.term import Term
from replog.metadata import layout
from replog.metadata.wishes import encode_replicas
from replog.ports import Create, Delete, Outbox, Put


def idle() -> Term:
    config = BrokerConfig()
    return Term(1, Won(1, 0), config=config, cluster_id="c", outbox=Outbox(), reader=Reader(10, lambda told: None))


def queued(term: Term) -> list[object]:
    return [waiting.event for waiting in term._queues.background]


def test_what_finishes_a_deletion_waits_once_in_the_place_of_the_first():
    term = idle()
    for event in (FinishDeletion(b"b"), CopiesGone(1, b"a"), FinishDeletion(b"a"), FinishDeletion(b"b"), CopiesGone(1, b"a")):
        term.ask(event)
    assert queued(term) == [FinishDeletion(b"b"), CopiesGone(1, b"a"), FinishDeletion(b"a"), CopiesGone(1, b"a")]


def test_whether_a_deletion_waits_already_is_known_without_a_look_at_the_others(monkeypatch: pytest.MonkeyPatch):
    term, compared = idle(), []
    equal = FinishDeletion.__eq__
    monkeypatch.setattr(FinishDeletion, "__eq__", lambda self, other: (compared.append(1), equal(self, other))[1])
    for _ in range(2):
        for n in range(500):
            term.ask(FinishDeletion(n.to_bytes(2, "big")))
    assert len(term._queues.background) == 500
    assert len(compared) <= 1_000


def test_a_deletion_that_is_decided_again_still_waits_once():
    world = World(3)
    topic = world.create(partitions=2)
    path, term, counts = layout.topic_path("t"), world.leader._term, []

    def interfere(address, call):
        if call.verb == "commit_each" and any(op.path == path for ops in call.argument for op in ops) and not counts:
            stored = world.store.read(path)
            world.store.commit([Put(path, stored.value, stored.version)])
            counts.append(0)
        elif counts == [0] and call.verb == "read_each":  # it has conflicted, and the store is read again
            term.ask(FinishDeletion(topic))
            counts.append(queued(term).count(FinishDeletion(topic)))

    world.before_store = interfere
    world.admin("delete_topic", name="t")
    assert counts == [0, 1]
    assert world.store.list(layout.TOPICS) == []
    assert queued(term) == []


def test_a_deletion_that_was_done_can_be_asked_for_again():
    world = World(3, slice_partitions_max=1)
    for _ in range(2):
        world.create(partitions=3)
        world.admin("delete_topic", name="t")
        assert world.store.list(layout.TOPICS) == []


def test_a_row_that_was_given_up_has_all_its_tries_again_after_a_reconcile():
    world = World(3, reconcile_ms=10_000)
    world.create(partitions=1)
    path, left = layout.partition_add_path("t", 1), [11]

    def interfere(address, call):
        asked = [op for ops in call.argument for op in ops] if call.verb == "commit_each" else []
        if left[0] and any(isinstance(op, Delete) and op.path == path for op in asked):
            left[0] -= 1
            stored = world.store.read(path)
            world.store.commit([Put(path, stored.value, stored.version)])

    world.before_store = interfere
    world.store.commit([Create(path, encode_replicas(None))])
    world.settle()
    assert [told["event"] for told in world.told("decision_given_up")] == ["WishesSeen"]
    assert left == [0]
    left[0] = 10
    world.advance(10_000)
    assert left == [0]
    assert world.store.read(path) is None
    assert len(world.told("decision_given_up")) == 1
