"""What is larger than is allowed: topics of a time when more was, and answers that no frame carries."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.security import OPEN_ACL_UNSAFE
from tests.unit.controller.harness import World, pid

from replog.config import BATCH_BYTES_MAX
from replog.errors import Code
from replog.messages import AdminAnswer, LeaderAndIsr, Unsent
from replog.metadata import layout
from replog.metadata.wishes import encode_partition_remove, encode_replicas
from replog.metadata.zookeeper.nodes import _request, request_bytes
from replog.metadata.zookeeper.plan import Known, Parent, Planner, ancestors
from replog.metadata.zookeeper.store import REQUEST_BYTES_MAX
from replog.model import Assignment
from replog.ports import Create, Delete, Op

LONG = "t" * 249
CHROOT = "/" + "c" * 199


def at_zookeeper(ops: Sequence[Op]) -> int:
    """Bytes of a transaction at ZooKeeper if every parent of a node has to be made, or goes, with it."""
    known: Known = {}
    for op in ops:
        known.update((path, Parent(0, 1, implied=True) if isinstance(op, Delete) else None) for path in ancestors(op.path))
    return request_bytes([_request(step, CHROOT + step.path, OPEN_ACL_UNSAFE) for step in Planner(known).plan(ops)])


def test_a_topic_of_a_time_when_larger_batches_were_allowed_is_led() -> None:
    world = World(3)
    entry = layout.TopicEntry(b"x" * 16, {"max_batch_bytes": 512 << 20}, {0: Assignment((2, 1))}, 1)
    world.store.commit([Create(layout.topic_path("t"), layout.encode_topic(entry))])
    world.settle()
    assert world.state(0).leader == 2
    assert world.nodes[2].broker.states[pid(b"x" * 16)].config.max_batch_bytes == BATCH_BYTES_MAX


def test_whoever_asked_hears_that_the_answer_is_too_large() -> None:
    world = World(1)
    world.settle()
    controller = world.nodes[1].controller
    controller.outbox.messages.clear()
    controller.receive(2, Unsent(2, AdminAnswer(7, 0, result={"a": 1}, origin=5), "too large"), world.now_ms)
    controller.receive(2, Unsent(2, LeaderAndIsr(1, 1, 1, 1, False, 1, [], as_of=1), "too large"), world.now_ms)
    assert controller.outbox.messages == [(2, AdminAnswer(7, Code.MESSAGE_TOO_LARGE, "too large", origin=5))]


def test_the_states_of_a_new_topic_fit_beside_it() -> None:
    world = World(3)
    world.create(LONG, partitions=999)
    assert max(map(at_zookeeper, world.commits)) <= REQUEST_BYTES_MAX
    assert len(world.store.list(layout.topic_path(LONG))) == 999


def test_the_largest_topics_are_reshaped_in_transactions_that_zookeeper_takes() -> None:
    """The topic's node, which takes up to `topic_bytes_max`, goes with first states, with wishes that end, and with states that go."""
    world = World(3)
    world.create(LONG, partitions=13_000, replication_factor=3)
    stored = world.store.read(layout.topic_path(LONG))
    assert stored is not None
    assert len(stored.value) > 500_000
    world.commits.clear()
    new = range(13_000, 13_960)

    def has_partitions(count: int) -> None:
        assert len(world.store.list(layout.topic_path(LONG))) == count
        assert max(map(at_zookeeper, world.commits)) <= REQUEST_BYTES_MAX
        world.commits.clear()

    assert world.admin("add_partitions", name=LONG, total=new[-1] + 1).result == {"partitions": new[-1] + 1}
    has_partitions(13_960)
    assert world.admin("remove_partitions", name=LONG, partitions=list(new)).error == Code.NONE
    has_partitions(13_000)
    world.store.commit([Create(layout.partition_add_path(LONG, number), encode_replicas(None)) for number in new])
    world.settle()
    has_partitions(13_960)
    world.store.commit([Create(layout.partition_remove_path(LONG, number), encode_partition_remove()) for number in new])
    world.settle()
    has_partitions(13_000)
    assert world.told("decision_given_up") == []
