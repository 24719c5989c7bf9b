"""More partitions and fewer, by request and by a path of the store; finished by the next controller whatever the last one left."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from attrs import evolve
from tests.unit.controller import harness
from tests.unit.controller.harness import World

from replog.config import default_min_isr
from replog.controller.assignment import spread
from replog.controller.topics import TOPIC_GONE
from replog.errors import Code
from replog.messages import StopReplica
from replog.metadata import layout
from replog.metadata.wishes import Meant, encode_partition_remove, encode_replicas
from replog.model import Assignment, PartitionId
from replog.ports import Create, Delete, Put


def entry(world: World, topic: str = "t") -> layout.TopicEntry:
    value = world.store.read(layout.topic_path(topic))
    assert value is not None
    return layout.decode_topic("", value.value)


def replicas(world: World, topic: str = "t") -> dict[int, tuple[int, ...]]:
    return {number: one.replicas for number, one in entry(world, topic).partitions.items()}


def under(world: World, path: str = "/admin") -> list[str]:
    """Wishes, wherever they are."""
    found = []
    for name in world.store.list(path):
        child = f"{path}/{name}"
        found += under(world, child) or [child]
    return [one for one in found if not one.startswith((layout.REJECTED, layout.REMOVED))]


def rejection(world: World, path: str) -> layout.Rejection:
    value = world.store.read(layout.rejected_path(path))
    assert value is not None, f"{path} was not rejected; left are {under(world)}"
    return layout.decode_rejection(path, value.value)


def wish(world: World, *ops: Any) -> None:
    world.store.commit([Create(path, value) for path, value in ops])
    world.settle()


def adds(*numbers: int, topic: str = "t", said: tuple[int, ...] | None = None) -> list[tuple[str, bytes]]:
    return [(layout.partition_add_path(topic, n), encode_replicas(said)) for n in numbers]


def removes(*numbers: int, topic: str = "t", creation: int | None = None) -> list[tuple[str, bytes]]:
    return [(layout.partition_remove_path(topic, n), encode_partition_remove(Meant(creation=creation))) for n in numbers]


# -------------------------------------------------------------------------------------------------------------- added


def test_partitions_are_added_in_one_transaction_spread_and_led():
    world = World(3)
    world.create(partitions=2)
    world.commits.clear()
    answer = world.admin("add_partitions", name="t", total=5)
    assert (answer.error, answer.result) == (Code.NONE, {"partitions": 5})
    assert list(replicas(world)) == [0, 1, 2, 3, 4]
    assert sorted(world.state(p).leader for p in (2, 3, 4)) == [1, 2, 3]
    assert [[op.path for op in ops if isinstance(op, Put)] for ops in world.commits[:1]] == [[layout.topic_path("t")]]
    assert world.admin("add_partitions", name="t", total=5).error == Code.NONE  # asked again
    assert len(replicas(world)) == 5


ADD_REFUSED = {
    "fewer": ({"total": 1}, Code.INVALID_PARTITIONS, "total is 1; topic 't' has 2, allowed are 2 to 50"),
    "too many": ({"total": 51}, Code.INVALID_PARTITIONS, "total is 51"),
    "text": ({"total": "4"}, Code.INVALID_PARTITIONS, "'4'"),
    "no topic": ({"name": "x", "total": 3}, Code.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic 'x'; known are t"),
    "other numbers": ({"total": 3, "assignment": {5: [1, 2, 3]}}, Code.INVALID_REPLICA_ASSIGNMENT, "partitions 2 to 2"),
    "an unknown broker": ({"total": 3, "assignment": {2: [1, 2, 9]}}, Code.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
    "another factor": ({"total": 3, "assignment": {2: [1]}}, Code.INVALID_REPLICA_ASSIGNMENT, "has 3 replicas"),
}


@pytest.mark.parametrize("case", ADD_REFUSED)
def test_partitions_are_not_added(case):
    arguments, code, text = ADD_REFUSED[case]
    world = World(3, topic_partitions_max=50)
    world.create(partitions=2)
    before = entry(world)
    answer = world.admin("add_partitions", **{"name": "t", **arguments})
    assert (answer.error, text in answer.message) == (code, True), answer
    assert entry(world) == before


def test_the_store_limits_a_topic_by_bytes():
    world = World(3, topic_bytes_max=1_000)
    answer = world.admin("create_topic", name="big", partitions=40)
    assert answer.error == Code.INVALID_PARTITIONS
    assert "of 40 partitions takes 1" in answer.message
    assert "the limit is 1000 (topic_bytes_max)" in answer.message
    assert world.store.read(layout.topic_path("big")) is None
    world.create(partitions=10)
    assert "the limit is 1000" in world.admin("add_partitions", name="t", total=30).message
    wish(world, *adds(*range(10, 30)))
    assert "the limit is 1000" in rejection(world, layout.partition_add_path("t", 10)).message
    assert (len(replicas(world)), under(world)) == (10, [])


def test_a_creation_can_be_tried_without_doing_it():
    world = World(3)
    world.create("there")
    answer = world.admin("create_topic", name="t", partitions=2, replication_factor=2, validate_only=True)
    assert (answer.error, answer.result) == (Code.NONE, {"topic_id": None, "config": {"min_isr": 1}})
    assert world.store.read(layout.topic_path("t")) is None
    refused = {"bad": {"partitions": 0}, "taken": {"name": "there"}, "key": {"config": {"retention": 1}}}
    for arguments in refused.values():
        assert world.admin("create_topic", **{"name": "t", "validate_only": True, **arguments}).error != Code.NONE


@pytest.mark.parametrize("factor", [1, 2, 12])
def test_a_creation_that_is_tried_is_answered_like_the_real_one(factor: int) -> None:
    """Also where it depends on the digits of the brokers, some of which have two, whether there is room for the topic in the store."""
    world = World(12, topic_bytes_max=900)
    granted: dict[int, bool] = {}
    for count in range(8, 24):
        wanted = {"name": f"n{count}", "partitions": count, "replication_factor": factor}
        start = sum(len(entry(world, name).partitions) for name in world.store.list(layout.TOPICS))
        tried, made = world.admin("create_topic", **wanted, validate_only=True), world.admin("create_topic", **wanted)
        assert (tried.error, tried.message) == (made.error, made.message)
        assert made.error in (Code.NONE, Code.INVALID_PARTITIONS)
        placed = {number: Assignment(one) for number, one in spread(dict.fromkeys(range(1, 13)), count, factor, start).items()}
        size = len(layout.encode_topic(layout.TopicEntry(bytes(16), {"min_isr": default_min_isr(factor)}, placed)))
        granted[count] = made.error == Code.NONE
        assert granted[count] == (size <= 900)
        said = re.fullmatch(r".* takes (at least )?(\d+) bytes in the metadata store; the limit is 900 \(topic_bytes_max\)", made.message)
        assert granted[count] or (said is not None and (size >= int(said[2]) if said[1] else size == int(said[2])))
        assert not granted[count] or entry(world, f"n{count}").partitions == placed
    assert {*granted.values()} == {True, False}


@pytest.mark.parametrize("room", [0, -1])
def test_a_creation_that_is_tried_is_measured_to_the_byte(room: int) -> None:
    """Three of the brokers have numbers of two digits, and hold as many of the copies as are placed there."""
    placed = {number: Assignment(one) for number, one in spread(dict.fromkeys(range(1, 13)), 15, 2).items()}
    size = len(layout.encode_topic(layout.TopicEntry(bytes(16), {"min_isr": 1}, placed)))
    world = World(12, topic_bytes_max=size + room)
    for validate_only in (True, False):
        answer = world.admin("create_topic", name="t", partitions=15, replication_factor=2, validate_only=validate_only)
        assert answer.error == (Code.NONE if room == 0 else Code.INVALID_PARTITIONS)
        assert room == 0 or f"of 15 partitions takes {size} bytes" in answer.message


@pytest.mark.parametrize(("count", "code"), [(14_500, Code.NONE), (100_000, Code.INVALID_PARTITIONS)])
def test_what_it_costs_to_try_a_creation_does_not_grow_with_its_partitions(count: int, code: int) -> None:
    world = World(3)

    def cost(partitions: int, expected: int, **arguments: Any) -> int:
        """Lines of Python until it is answered."""
        lines = 0

        def trace(_frame: Any, event: str, _arg: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            answer = world.admin("create_topic", name="t", partitions=partitions, **arguments)
        finally:
            sys.settrace(before)
        assert answer.error == expected
        return lines

    few = cost(10, Code.NONE, validate_only=True)
    assert cost(count, code, validate_only=True) < 2 * few
    assert code == Code.NONE or cost(count, code) < 2 * few, "nor what it costs to refuse one"


def test_a_path_is_enough_to_add_partitions_with_or_without_brokers():
    world = World(3)
    world.create(partitions=1)
    wish(world, *adds(1, said=(3, 2, 1)), *adds(2, 3, 4))
    assert replicas(world)[1] == (3, 2, 1)
    assert sorted(world.state(p).leader for p in (2, 3, 4)) == [1, 2, 3]
    assert under(world) == []


def test_wishes_are_granted_by_number_however_many_slices_they_take():
    """Names sort as text: 10 before 2."""
    world = World(3, slice_partitions_max=4)
    world.create(partitions=1)
    wish(world, *adds(*range(1, 26)))
    assert (len(replicas(world)), under(world)) == (26, [])
    wish(world, *removes(*range(1, 26)))
    assert (len(replicas(world)), under(world)) == (1, [])


@pytest.mark.parametrize("count", [998, 999, 1_500])
def test_more_wishes_than_a_transaction_has_operations(count):
    world = World(1, slice_partitions_max=5_000)
    world.create(partitions=1)
    for at in range(1, count, 900):
        world.store.commit([Create(path, value) for path, value in adds(*range(at, min(at + 900, count)))])
    world.settle()
    assert (len(replicas(world)), under(world)) == (count, [])
    assert world.admin("remove_partitions", name="t", partitions=list(range(1, count))).error == Code.NONE
    assert (len(replicas(world)), under(world)) == (1, [])


_NEVER = Meant(creation=9)
BAD = {
    "not JSON": (layout.partition_add_path("t", 1), b"{", Code.INVALID_REQUEST, "JSON"),
    "no list": (layout.partition_add_path("t", 1), b'{"version":1,"replicas":7}', Code.INVALID_REQUEST, "replicas"),
    "no number": ("/admin/partitions_add/t/one", encode_replicas(None), Code.INVALID_REQUEST, "'one'"),
    "a bad topic": ("/admin/partitions_add/a b/1", encode_replicas(None), Code.INVALID_REQUEST, "a b"),
    "no topic": (layout.partition_add_path("x", 0), encode_replicas(None), Code.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic 'x'"),
    "a hole": (layout.partition_add_path("t", 7), encode_replicas(None), Code.INVALID_PARTITIONS, "is 1, not 7"),
    "an unknown broker": (layout.partition_add_path("t", 1), encode_replicas((1, 2, 9)), Code.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
    "there, elsewhere": (layout.partition_add_path("t", 0), encode_replicas((3, 1, 2)), Code.INVALID_PARTITIONS, "is 1, not 0"),
    "remove: not JSON": (layout.partition_remove_path("t", 0), b"\xff", Code.INVALID_REQUEST, "JSON"),
    "remove: the last": (layout.partition_remove_path("t", 0), encode_partition_remove(), Code.INVALID_PARTITIONS, "last one"),
    "remove: unknown": (*removes(4)[0], Code.UNKNOWN_TOPIC_OR_PARTITION, "no partition 4"),
    "remove: never": (layout.partition_remove_path("t", 0), encode_partition_remove(_NEVER), Code.UNKNOWN_TOPIC_OR_PARTITION, "number 9"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_wish_is_put_away_with_its_error_and_the_controller_goes_on(case):
    path, value, code, text = BAD[case]
    world = World(3)
    world.create(partitions=1)
    before = entry(world)
    for _ in range(2):  # the second rejection takes the place of the first
        wish(world, (path, value))
        found = rejection(world, path)
        assert (found.code, found.wish) == (code, value)
        assert text in found.message
    assert (entry(world), under(world)) == (before, [])
    assert {told["path"] for told in world.told("wish_rejected")} == {path}
    assert world.admin("add_partitions", name="t", total=2).error == Code.NONE


def test_what_was_rejected_is_forgotten_after_a_day():
    world = World(1, rejected_wish_ms=100_000, reconcile_ms=10_000)
    term = world.nodes[1].controller
    wish(world, *adds(0, topic="x"))
    path = layout.partition_add_path("x", 0)
    assert rejection(world, path).wall_ms == 0
    term.tick(world.now_ms, 99_999)
    world._take(world.nodes[1], ("controller", 1), term)
    term._term.reconcile()
    world._tick = lambda node: None  # type: ignore[method-assign]  # its wall clock says 0
    term.receive(None, object(), world.now_ms)
    world._take(world.nodes[1], ("controller", 1), term)
    world.settle()
    assert rejection(world, path).wall_ms == 0
    term.tick(world.now_ms, 100_000)
    term._term.reconcile()
    term.receive(None, object(), world.now_ms)
    world._take(world.nodes[1], ("controller", 1), term)
    world.settle()
    assert world.store.read(layout.rejected_path(path)) is None
    wish(world, *adds(0, topic="x"))
    assert rejection(world, path).wall_ms == 100_000


def test_a_rejection_that_a_person_removed_is_written_anew():
    world = World(1)
    path = layout.partition_add_path("x", 0)
    wish(world, *adds(0, topic="x"))
    world.store.commit([Delete(layout.rejected_path(path))])
    wish(world, *adds(0, topic="x"))
    assert rejection(world, path).code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert under(world) == []


def test_a_wish_too_large_or_too_deep_to_be_kept_is_rejected_all_the_same():
    world = World(1)
    wish(world, (layout.partition_add_path("x", 0), b"x" * 1_000_000))
    assert rejection(world, layout.partition_add_path("x", 0)).wish == b"x" * 10_000
    deep = "/admin/partitions_add/" + "y" * 990 + "/0"
    wish(world, (deep, b"{"))
    assert deep in {told["path"] for told in world.told("wish_rejected")}
    assert under(world) == []


def test_wishes_for_a_topic_that_is_being_deleted_are_rejected():
    world = World(3)
    topic = world.create(partitions=2)
    for node in world.nodes.values():
        node.broker.mute = True
    store_call = world.before_store

    def interfere(address: Any, call: Any) -> str | None:
        if call.verb == "commit_each" and any(op.path.startswith(layout.DELETE_TOPICS) for ops in call.argument for op in ops):
            world.before_store = store_call
            world.store.commit([Create(path, value) for path, value in (*adds(2), *removes(1))])
        return None

    world.before_store = interfere
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.read(layout.topic_path("t")) is None
    for path in (layout.partition_add_path("t", 2), layout.partition_remove_path("t", 1)):
        assert rejection(world, path).code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert under(world) == []
    assert topic


def test_a_wish_whose_watch_was_lost_is_found_by_the_next_reconcile():
    world = World(3, reconcile_ms=10_000)
    world.create(partitions=1)
    world.drop_watches = True
    wish(world, *adds(1))
    assert under(world) == [layout.partition_add_path("t", 1)]
    world.advance(10_001)
    assert (len(replicas(world)), under(world)) == (2, [])


def test_two_who_want_more_at_the_same_time_are_both_granted_it():
    world = World(3)
    world.create(partitions=2)
    for total in (4, 6, 3):
        world.admin("add_partitions", name="t", total=total, settle=False)
    world.settle()
    assert [(answer.error, answer.result) for answer in world.client[-3:]] == [
        (Code.INVALID_PARTITIONS, {}), (Code.NONE, {"partitions": 6}), (Code.NONE, {"partitions": 6}),
    ], "who asks for 3 when there are 6, and says no more, is told so"
    assert len(replicas(world)) == 6


def test_a_request_that_says_how_many_there_were_may_be_repeated():
    world = World(3)
    world.create(partitions=2)
    assert world.admin("add_partitions", name="t", total=4, count=2).error == Code.NONE
    assert world.admin("add_partitions", name="t", total=6, count=4).error == Code.NONE
    world.kill(world.controller_id)
    world.start(4, settle=True)
    again = world.admin("add_partitions", name="t", total=4, count=2)
    assert (again.error, again.result) == (Code.NONE, {"partitions": 6})
    assert world.admin("add_partitions", name="t", total=4, count=6).error == Code.INVALID_PARTITIONS
    assert world.admin("add_partitions", name="t", total=6, count="2").error == Code.INVALID_REQUEST
    assert len(replicas(world)) == 6


DONE_BESIDE_A_DELETION = {
    "create_topic": {"partitions": 30, "replication_factor": 2},
    "add_partitions": {"total": 30},
    "remove_partitions": {"partitions": [3, 4]},
    "alter_topic": {"config": {"retention_ms": 1_000}},
}


@pytest.mark.parametrize("verb", DONE_BESIDE_A_DELETION)
def test_what_was_stored_is_not_answered_as_refused_because_its_topic_is_deleted(verb, monkeypatch):
    monkeypatch.setattr(harness, "STEPS_MAX", 5_000)
    world = World(3, slice_partitions_max=10)
    if verb != "create_topic":
        world.create(partitions=5)
    asked = []

    def after(address: Any, call: Any) -> None:
        if call.verb == "commit_each" and not asked and any(op.path == layout.topic_path("t") for ops in call.argument for op in ops):
            asked.append(call)
            world.admin("delete_topic", name="t", settle=False)

    world.after_store = after
    before = len(world.client)
    world.admin(verb, name="t", **DONE_BESIDE_A_DELETION[verb])
    assert asked
    assert [answer.error for answer in world.client[before:]] == [Code.NONE, Code.NONE]
    world.advance(60_000)
    assert world.store.read(layout.topic_path("t")) is None, "nor made once more"
    assert under(world) == []
    assert world.leader._term.cluster.topics == {}


def test_what_was_not_stored_is_refused_when_its_topic_is_deleted():
    world = World(3)
    world.create(partitions=5)
    world.admin("delete_topic", name="t", settle=False)
    for verb in ("add_partitions", "remove_partitions", "alter_topic"):
        world.admin(verb, name="t", **DONE_BESIDE_A_DELETION[verb], settle=False)
    world.settle()
    assert [answer.error for answer in world.client[-4:]] == [*[Code.UNKNOWN_TOPIC_OR_PARTITION] * 3, Code.NONE]


# ------------------------------------------------------------------------------------------------------------ removed


def test_the_highest_partitions_are_removed_everywhere_in_one_transaction():
    world = World(3)
    topic = world.create(partitions=4)
    world.commits.clear()
    world.sent.clear()
    answer = world.admin("remove_partitions", name="t", partitions=[2, 3])
    assert (answer.error, answer.result) == (Code.NONE, {"partitions": 2})
    assert list(replicas(world)) == [0, 1]
    assert world.store.list(layout.topic_path("t")) == ["0", "1"]
    (ops,) = world.commits
    assert sorted(type(op).__name__ for op in ops) == ["Check", "Delete", "Delete", "Put"]
    stops = [m for _, _, m in world.sent if isinstance(m, StopReplica)]
    assert {(e.partition.partition, e.leader_epoch, e.delete) for m in stops for e in m.entries} == {(p, TOPIC_GONE, True) for p in (2, 3)}
    assert all(sorted(n.broker.copies) == [PartitionId(topic, p, 0) for p in (0, 1)] for n in world.nodes.values())
    assert world.controller_id in world.nodes
    cluster = world.leader._term.cluster
    assert {p.partition for p in cluster.states} == {0, 1}
    assert cluster.partitions_total == 2


def test_a_number_that_is_added_again_is_another_log():
    """S36."""
    world = World(3)
    topic = world.create(partitions=2)
    for creation in (1, 2, 3):
        assert world.admin("remove_partitions", name="t", partitions=[1]).error == Code.NONE
        assert world.admin("add_partitions", name="t", total=2).error == Code.NONE
        assert (entry(world).partitions[1].creation, world.state(1).leader_epoch) == (creation, 0)
        assert all(sorted(n.broker.copies) == [PartitionId(topic, 0, 0), PartitionId(topic, 1, creation)] for n in world.nodes.values())


def test_p_80b_a_broker_that_was_down_puts_its_old_copy_away():
    world = World(3)
    topic = world.create(assignment={0: [1, 3], 1: [1, 3]})
    old = PartitionId(topic, 1, 0)
    world.kill(3)
    world.disks[3][old] = (0, 100)
    assert world.admin("remove_partitions", name="t", partitions=[1]).error == Code.NONE
    assert world.admin("add_partitions", name="t", total=2).error == Code.NONE
    assert (entry(world).partitions[1].creation, world.state(1).isr) == (1, replicas(world)[1])
    world.start(3, settle=True)
    assert old not in world.disks[3]
    assert PartitionId(topic, 0, 0) in world.disks[3]


def test_a_broker_that_was_down_for_removal_and_deletion_is_still_told():
    world = World(3)
    topic = world.create(assignment={0: [1], 1: [3]})
    world.kill(3)
    assert world.admin("remove_partitions", name="t", partitions=[1]).error == Code.NONE
    assert world.admin("delete_topic", name="t").error == Code.NONE
    removed = world.store.read(layout.removed_path(topic))
    assert removed is not None
    assert layout.decode_removed("", removed.value) == (3,)
    world.start(3, settle=True)
    assert world.disks[3] == {}
    assert world.store.read(layout.removed_path(topic)) is None


def test_a_live_broker_whose_partitions_were_removed_confirms_the_deletion():
    world = World(3)
    topic = world.create(assignment={0: [1], 1: [3]})
    assert world.admin("remove_partitions", name="t", partitions=[1]).error == Code.NONE
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.read(layout.removed_path(topic)) is None


REMOVE_REFUSED = {
    "the last": ({"partitions": [0, 1, 2]}, Code.INVALID_PARTITIONS, "the last one goes only with its topic"),
    "not the highest": ({"partitions": [1]}, Code.INVALID_PARTITIONS, "that is 2 here, not 1"),
    "a hole": ({"partitions": [2, 0]}, Code.INVALID_PARTITIONS, "that is 1 here, not 0"),
    "unknown": ({"partitions": [3]}, Code.UNKNOWN_TOPIC_OR_PARTITION, "no partition 3; it has 3"),
    "none": ({"partitions": []}, Code.INVALID_PARTITIONS, "not []"),
    "twice": ({"partitions": [2, 2]}, Code.INVALID_PARTITIONS, "each once"),
    "text": ({"partitions": "2"}, Code.INVALID_PARTITIONS, "'2'"),
    "no topic": ({"name": "x", "partitions": [2]}, Code.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic 'x'"),
    "of another topic": ({"partitions": [2], "topic_id": "00" * 16, "creations": [0]}, Code.UNKNOWN_TOPIC_ID, "00" * 16),
    "half of it": ({"partitions": [2], "creations": []}, Code.INVALID_REQUEST, "creations is []"),
}


@pytest.mark.parametrize("case", REMOVE_REFUSED)
def test_partitions_are_not_removed(case):
    arguments, code, text = REMOVE_REFUSED[case]
    world = World(3)
    world.create(partitions=3)
    before = entry(world)
    answer = world.admin("remove_partitions", **{"name": "t", **arguments})
    assert (answer.error, text in answer.message) == (code, True), answer
    assert (entry(world), under(world)) == (before, [])


def test_numbers_that_are_chosen_to_collide_cost_no_more_than_others():
    """A number is its own hash: 170,000 can be chosen that each meet all before them where a set would keep them."""
    compared = 0

    class Counted(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int.__eq__(self, other)

        def __ne__(self, other: object) -> bool:
            return not self == other

        def __hash__(self) -> int:
            return 0

    world, count = World(1), 1_000
    world.create()
    answer = world.admin("remove_partitions", name="t", partitions=[Counted(n) for n in range(count)])
    assert answer.error == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert compared < 10 * count < count**2 / 2


def test_a_request_that_says_which_ones_it_means_may_be_repeated():
    world = World(3)
    topic = world.create(partitions=3)
    said = {"partitions": [1, 2], "topic_id": topic.hex(), "creations": [0, 0]}
    assert world.admin("remove_partitions", name="t", **said).error == Code.NONE
    assert world.admin("add_partitions", name="t", total=3).error == Code.NONE
    assert world.admin("remove_partitions", name="t", **said).error == Code.NONE
    assert list(replicas(world)) == [0, 1, 2]


def test_wishes_to_remove_say_which_one_they_mean():
    world = World(3)
    world.create(partitions=3)
    wish(world, *removes(2, creation=0))
    world.admin("add_partitions", name="t", total=3)
    wish(world, *removes(2, creation=0))  # it has gone
    assert (len(replicas(world)), under(world)) == (3, [])
    assert world.told("wish_rejected") == []
    wish(world, *removes(2, creation=1))
    assert (len(replicas(world)), under(world)) == (2, [])


def test_wishes_that_leave_a_hole_are_rejected_one_by_one():
    world = World(3)
    world.create(partitions=4)
    wish(world, *removes(3, 1))
    assert list(replicas(world)) == [0, 1, 2]
    assert "that is 2 here, not 1" in rejection(world, layout.partition_remove_path("t", 1)).message


@pytest.mark.parametrize("lost", ["lost", "applied"])
@pytest.mark.parametrize("big", [False, True])
def test_an_outcome_that_nobody_heard_removes_once_and_everybody_is_told(lost, big):
    world = World(3, slice_partitions_max=2)
    topic = world.create(partitions=6)
    left = list(range(1, 20))

    def interfere(address: Any, call: Any) -> str | None:
        if call.verb == "commit_each" and left:
            return lost if left.pop() % 2 else None
        return None

    world.before_store = interfere
    gone = [2, 3, 4, 5] if big else [4, 5]
    world.admin("remove_partitions", name="t", partitions=gone)
    world.advance(60_000)
    world.before_store = lambda _address, _call: None
    kept = [PartitionId(topic, p, 0) for p in range(6) if p not in gone]
    assert world.client[-1].error == Code.NONE
    assert list(replicas(world)) == [p.partition for p in kept]
    assert all(sorted(n.broker.copies) == kept for n in world.nodes.values())
    assert under(world) == []


@pytest.mark.parametrize("operation", ["add", "remove", "wish to add", "wish to remove"])
def test_a_controller_that_dies_at_any_step_is_followed_by_one_that_finishes(operation):
    def run(die_at: int | None) -> tuple[World, int]:
        world = World(3, slice_partitions_max=2)
        world.create(partitions=5, replication_factor=2)
        victim, steps = world.controller_id, [0]

        def step(address: Any, call: Any) -> None:
            if address == ("controller", victim):
                steps[0] += 1
                if steps[0] == die_at:
                    world.after_store = lambda _address, _call: None
                    world.queue.append(lambda: world.kill(victim, settle=False))

        world.after_store = step
        match operation:
            case "add":
                world.admin("add_partitions", name="t", total=9)
            case "remove":
                world.admin("remove_partitions", name="t", partitions=[1, 2, 3, 4])
            case "wish to add":
                wish(world, *adds(5, 6, 7, 8))
            case "wish to remove":
                wish(world, *removes(1, 2, 3, 4))
        world.after_store = lambda _address, _call: None
        world.advance(40_000)
        return world, steps[0]

    world, steps = run(None)
    assert 2 <= steps <= 60
    for die_at in range(1, steps + 1):
        world, _ = run(die_at)
        count = len(replicas(world))
        if operation == "add":
            assert count in (5, 9)
        elif operation == "wish to add":
            assert count == 9
        elif operation == "wish to remove":
            assert count == 1
        else:
            # Either nothing was begun, or what was wished for by then is finished.
            assert count in (5, 3, 1), f"died at {die_at}"
        assert under(world) == [], f"died at {die_at}"
        assert world.told("wish_rejected") == []
        assert world.store.list(layout.topic_path("t")) == sorted(map(str, range(count)))
        assert all(world.state(p).leader is not None for p in range(count))
        for node in world.nodes.values():
            assert all(p.partition < count for p in node.broker.copies), f"died at {die_at}"


def test_a_removal_in_several_slices_is_finished_although_nobody_asks_again():
    """Its wishes are stored before the first partition goes."""
    world = World(3, slice_partitions_max=2)
    world.create(partitions=8)
    victim = world.controller_id

    def die(address: Any, call: Any) -> None:
        if address == ("controller", victim) and 1 < len(replicas(world)) < 8:
            world.after_store = lambda _address, _call: None
            world.queue.append(lambda: world.kill(victim, settle=False))

    world.after_store = die
    world.admin("remove_partitions", name="t", partitions=list(range(1, 8)))
    world.advance(40_000)
    assert victim not in world.nodes
    assert (list(replicas(world)), under(world)) == ([0], [])


def test_most_partitions_fit_what_zookeeper_takes():
    """A node of ZooKeeper, with the transaction around it, is below 1 MiB; the limit leaves room for states, wishes and moves."""
    world = World(3, topic_partitions_max=100_000)
    assert "the limit is 600000" in world.admin("create_topic", name="t", partitions=15_000, validate_only=True).message
    assert world.admin("create_topic", name="t", partitions=14_500, validate_only=True).error == Code.NONE
    world.commits.clear()
    world.create(partitions=14_500)
    world.admin("remove_partitions", name="t", partitions=list(range(13_500, 14_500)))
    sizes = [sum(len(op.path) + len(getattr(op, "value", b"")) for op in ops) for ops in world.commits]
    assert 590_000 < max(sizes) < 1_000_000


def test_a_reader_of_the_view_hears_where_a_topic_ends():
    world = World(1)
    world.create(partitions=3)
    world.nodes[1].broker.received.clear()
    world.admin("remove_partitions", name="t", partitions=[2])
    views = [m.view for m in world.nodes[1].broker.received if hasattr(m, "view")]
    assert [[(t.end, [p.partition for p in t.partitions]) for t in view.topics] for view in views if view.topics] == [[(2, [0, 1])]]
    assert Assignment((1,)) == entry(world).partitions[0]


class Counted(dict[int, Assignment]):
    """Assignments that count how many were looked at, all together."""

    looked = 0

    def values(self) -> Any:
        for value in super().values():
            self.looked += 1
            yield value


@pytest.mark.parametrize("by", ["request", "wish"])
def test_what_each_new_partition_costs_does_not_grow_with_their_number(by: str) -> None:
    """Each looked at all that the topic has: a thousand more of thirteen thousand took seconds."""
    looked = []
    for count in (1, 30):
        world = World(3)
        topic_id = world.create(partitions=50, replication_factor=2)
        topics = world.leader._term.cluster.topics
        counted = Counted(topics[topic_id].assignments)
        topics[topic_id] = evolve(topics[topic_id], assignments=counted)
        new = range(50, 50 + count)
        if by == "request":
            answer = world.admin("add_partitions", name="t", total=50 + count, assignment={number: [1, 2] for number in new})
            assert answer is not None
            assert answer.error == Code.NONE, answer.message
        else:
            wish(world, *adds(*new, said=(1, 2)))
        assert {replicas(world)[number] for number in new} == {(1, 2)}
        looked.append(counted.looked)
    assert 0 < looked[1] <= looked[0] + 50
