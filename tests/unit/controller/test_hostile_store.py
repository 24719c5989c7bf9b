"""Values, names and outcomes that must neither stop the controller nor be half of an operation."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller import harness
from tests.unit.controller.harness import World, pid

from replog.controller.changes import WishNoted
from replog.controller.decision import BYTES_MAX, Piece, pack
from replog.errors import Code
from replog.metadata import judgements, layout
from replog.metadata.wishes import Meant, encode_elect, encode_partition_remove, encode_replicas
from replog.ports import Check, Create, Delete, Op, Put


def write(world: World, *ops: Op) -> None:
    """As a tool does, which knows nothing but the store."""
    world.store.session().commit(list(ops))
    world.settle()


def loses_the_outcome_of(world: World, count: int = 1) -> None:
    """The next commits of the controller are applied, and nobody hears of it."""
    left = [count]

    def before(address: Any, call: Any) -> str | None:
        if call.verb == "commit_each" and address[0] == "controller" and left[0]:
            left[0] -= 1
            return "applied"
        return None

    world.before_store = before


def follower_dies(world: World, topic: str = "t") -> None:
    """A broker that leads `topic` and is not the controller's."""
    state = world.state(0, topic)
    assert state.leader not in (None, world.controller_id)
    world.kill(state.leader)
    world.advance(120_000)
    assert world.state(0, topic).leader not in (None, state.leader)


def test_what_was_stored_unheard_has_its_consequences() -> None:
    """A min ISR that was stored is in force; partitions that were added have leaders."""
    world = World(3)
    world.create(partitions=2, config={"min_isr": 1})
    loses_the_outcome_of(world)
    assert world.admin("alter_topic", name="t", config={"min_isr": 2}).error == Code.NONE
    world.advance(60_000)
    assert [world.state(number).min_isr for number in (0, 1)] == [2, 2]
    loses_the_outcome_of(world)
    write(world, *(Create(layout.partition_add_path("t", number), encode_replicas(None)) for number in range(2, 302)))
    world.advance(60_000)
    assert all(world.state(number).leader is not None for number in range(302))


def test_two_who_wish_for_different_values_are_both_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", 3_000)
    world = World(3)
    world.create(partitions=1)
    said = len(world.client)
    for value in (1_000, 2_000):
        world.admin("alter_topic", name="t", config={"retention_ms": value}, settle=False)
    world.settle()
    assert [answer.error for answer in world.client[said:]] == [Code.NONE, Code.NONE]


@pytest.mark.parametrize("what", ["state", "topic", "draining", "deletion"])
def test_a_value_that_cannot_be_read_holds_up_nobody_else(what: str) -> None:
    world = World(4)
    others = [broker for broker in (1, 2, 3, 4) if broker != world.controller_id]
    world.create("t", assignment={0: others[:2]})
    world.create("u", assignment={0: others[:2]})
    path = {
        "state": layout.partition_state_path("t", 0),
        "topic": layout.topic_path("t"),
        "draining": layout.draining_path(others[2]),
        "deletion": layout.delete_topic_path("t"),
    }[what]
    write(world, Put(path, b"junk", None) if what in ("state", "topic") else Create(path, b"junk"))
    match what:
        case "topic":
            assert world.admin("alter_topic", name="t", config={"retention_ms": 1_000}).error != Code.NONE
        case "deletion":
            world.admin("delete_topic", name="t")
        case "draining":
            world.admin("drain", broker=others[2])
        case _:
            pass
    follower_dies(world, "u")
    assert world.admin("create_topic", name="new", partitions=1).error == Code.NONE


@pytest.mark.parametrize(
    "path",
    [
        f"{judgements.ADMITTED}/x",
        f"{layout.TOPICS}/bad name",
        f"{layout.DELETE_TOPICS}/bad name",
    ],
)
def test_a_name_that_is_none_stops_no_controller(path: str) -> None:
    world = World(4)
    others = [broker for broker in (1, 2, 3, 4) if broker != world.controller_id]
    world.create("u", assignment={0: others[:2]})
    value = layout.encode_delete_topic(bytes(16)) if "delete" in path else world.store.read(layout.topic_path("u")).value
    write(world, Create(path, value))
    follower_dies(world, "u")
    world.kill(world.controller_id)
    world.advance(120_000)
    assert world.admin("create_topic", name="new", partitions=1).error == Code.NONE


def test_a_wish_that_cannot_be_removed_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has written below it."""
    monkeypatch.setattr(harness, "STEPS_MAX", 3_000)
    world = World(3)
    world.create(partitions=2)
    write(world, Create(f"{layout.partition_add_path('t', 2)}/x", b""))
    assert world.admin("create_topic", name="new", partitions=1).error == Code.NONE


def test_a_thousand_removals_of_what_has_gone_end() -> None:
    world = World(3)
    world.create(partitions=1_100)
    numbers = list(range(100, 1_100))
    assert world.admin("remove_partitions", name="t", partitions=numbers).error == Code.NONE
    gone = [Create(layout.partition_remove_path("t", number), encode_partition_remove(Meant(creation=0))) for number in numbers]
    world.store.session().commit(gone[:500])
    world.store.session().commit(gone[500:])
    world.settle()
    world.advance(60_000)
    assert world.store.list(layout.PARTITIONS_REMOVE) == []


def test_a_step_is_limited_in_bytes() -> None:
    """One piece goes whatever its size: it belongs together."""
    guard = Check(layout.CONTROLLER_EPOCH, 0)
    sizes = (BYTES_MAX // 2 - 210, BYTES_MAX // 2 - 210, 100, 2 * BYTES_MAX, 10)  # and some 200 for each operation
    steps = pack(guard, [Piece((Put("/p", b"x" * size),), ()) for size in sizes])
    assert [len(step.ops) - 1 for step in steps] == [2, 1, 1, 1]


# --------------------------------------------------------------------------------------- wishes that cannot be removed


def wish(row: str, number: int, said: tuple[int, ...] | None = None) -> tuple[str, bytes]:
    """The path and value of a good wish."""
    match row:
        case "add":
            return layout.partition_add_path("t", number), encode_replicas(said)
        case "remove":
            return layout.partition_remove_path("t", number), encode_partition_remove()
        case "elect":
            return layout.elect_path("t", number), encode_elect(unclean=False)
        case _:
            return layout.reassigned_path("t", number), encode_replicas(said or (2, 1))


def removals(world: World, path: str) -> int:
    """How often a controller has tried to remove a node."""
    return sum(isinstance(op, Delete) and op.path == path for ops in world.commits for op in ops)


@pytest.mark.parametrize(("row", "good", "bad"), [
    ("add", 2, 3), ("remove", 1, 0), ("elect", 1, 0), ("reassign", 1, 0), ("reassign", 0, 7), ("elect", 0, 1), ("add", 2, 1),
])  # fmt: skip
def test_a_wish_with_something_below_it_stops_no_other_and_is_tried_once_per_reconcile(row: str, good: int, bad: int) -> None:
    world = World(3, reconcile_ms=10_000)
    t = world.create(assignment={0: [1, 2], 1: [1, 2]}, config={"min_isr": 1})
    world.kill(1)
    world.start(1, settle=True)
    for number in (0, 1):
        assert world.propose(2, pid(t, number), [1, 2]).error == Code.NONE
    world.commits.clear()
    (path, value), (clean, wished) = wish(row, bad, (1, 2) if row == "add" else None), wish(row, good)
    write(world, Create(path, value), Create(f"{path}/child", b""), Create(clean, wished))
    assert world.store.read(clean) is None, "granted, although it was to be in one transaction with the other"
    assert world.store.list(f"{layout.REJECTED}{clean.rpartition('/')[0]}") == []
    assert world.store.read(path) is not None
    assert removals(world, path) == 1
    for count in (1, 2, 3):
        world.advance(10_000)
        assert removals(world, path) == 1 + count
        write(world, Create(f"{layout.ELECT}/t/{100 + count}", b""))  # others come and go meanwhile
        assert removals(world, path) == 1 + count
    assert [told["path"] for told in world.told("wish_stuck")] == [path]
    assert world.told("wish_stuck")[0]["below"] == "child"
    write(world, Delete(f"{path}/child"))
    world.advance(10_000)
    assert world.store.read(path) is None, "it is granted, or put away, as soon as it can be"
    assert world.leader._term.cluster.stuck == {}


def test_many_wishes_with_something_below_them_do_not_use_up_the_tries_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEPS_MAX", 3_000)
    world = World(3)
    world.create(partitions=1)
    world.create("u", partitions=1)
    stuck = [layout.partition_add_path("t", number) for number in range(1, 31)]
    value = encode_replicas(None)
    ops = [*(Create(path, value) for path in stuck), *(Create(f"{path}/x", b"") for path in stuck)]
    world.commits.clear()
    write(world, *ops, Create(layout.partition_add_path("u", 1), value))
    assert world.state(1, "u").leader is not None
    assert sorted(world.leader._term.cluster.stuck) == sorted(stuck)
    assert len(world.told("wish_stuck")) == 30
    assert len(world.store.list(layout.topic_path("t"))) == 1
    assert world.told("decision_given_up") == []


def test_moves_of_one_transaction_end_although_most_of_their_wishes_cannot_be_removed() -> None:
    world = World(3)
    t = world.create(assignment={n: [1, 2] for n in range(20)})
    paths = [layout.reassigned_path("t", n) for n in range(20)]
    children = [Create(f"{path}/x", b"") for path in paths[:15]]
    write(world, *(Create(path, encode_replicas((2, 1))) for path in paths), *children)  # another order: done at once
    known = world.leader._term.cluster
    for _ in range(3):
        assert [known.topics[t].assignments[n].replicas for n in range(20)] == [*[(1, 2)] * 15, *[(2, 1)] * 5]
        assert [path for path in paths if world.store.read(path) is not None] == paths[:15]
        assert sorted(known.stuck) == sorted(paths[:15])
        world.advance(30_000)
    assert world.told("decision_given_up") == []
    assert len(world.told("wish_stuck")) == 15


def test_a_wish_that_is_written_anew_without_anything_below_it_need_not_wait() -> None:
    world = World(3)
    world.create(partitions=1)
    path = layout.partition_add_path("t", 1)
    write(world, Create(f"{path}/x", b""))
    write(world, Delete(f"{path}/x"))
    write(world, Create(path, encode_replicas(None)))
    assert world.store.read(path) is None
    assert world.state(1).leader is not None


def test_a_move_ends_although_its_wish_cannot_be_removed() -> None:
    world = World(4)
    t = world.create(assignment={0: [1, 2], 1: [1, 2]})
    path = layout.reassigned_path("t", 0)
    write(world, Create(path, encode_replicas((2, 3))), Create(f"{path}/x", b""))
    assert world.propose(1, pid(t), [1, 2, 3]).error in (Code.NONE, Code.NEW_LEADER_ELECTED)
    assert world.leader._term.cluster.topics[t].assignments[0].replicas == (2, 3)
    assert world.leader._term.cluster.moving == {}
    world.commits.clear()
    world.advance(25_000)
    assert removals(world, path) == 0, "not before the next reconcile"
    assert world.admin("reassign", partitions=[["t", 0, [1, 2]]]).result["errors"] == []
    assert world.leader._term.cluster.topics[t].assignments[0].adding == (1,), "a later wish is written over it"
    assert world.admin("reassign", partitions=[["t", 0, None]]).result["errors"] == []
    assert world.leader._term.cluster.topics[t].assignments[0].replicas == (2, 3)
    world.advance(100_000)
    assert world.told("decision_given_up") == []


def test_a_topic_is_deleted_although_wishes_about_it_cannot_be_removed() -> None:
    world = World(4, reassignments_max=1)
    for _ in range(2):
        t = world.create(assignment={0: [1, 2], 1: [1, 2], 2: [1, 2]})
        paths = [layout.reassigned_path("t", 1), layout.reassigned_path("t", 2), layout.delete_topic_path("t")]
        for path in paths[:2]:
            if world.store.read(path) is None:
                write(world, Create(path, encode_replicas((1, 3))), Create(f"{path}/x", b""))

        def below(address: Any, call: Any, path: str = paths[2]) -> None:
            if world.store.read(path) is not None and not world.store.list(path):
                world.store.commit([Create(f"{path}/x", b"")])

        world.after_store = below
        assert world.admin("delete_topic", name="t").error == Code.NONE
        world.after_store = lambda _address, _call: None
        assert world.store.read(layout.topic_path("t")) is None
        assert [n for n in world.disks if pid(t) in world.disks[n]] == []
        assert {told["path"] for told in world.told("wish_stuck")} >= {paths[2]}
        world.commits.clear()
        world.advance(70_000)
        assert removals(world, paths[2]) == 2, "once a reconcile"
        write(world, Create(f"{layout.DELETE_TOPICS}/other", b"junk"))
        assert removals(world, paths[2]) == 2
    assert world.told("decision_given_up") == []
    assert world.leader._term.cluster.deletions == {}


def test_a_deletion_is_wished_over_one_that_names_no_topic() -> None:
    world = World(3)
    world.create()
    path, left = layout.delete_topic_path("t"), [1]

    def before(address: Any, call: Any) -> str | None:
        if left and call.verb == "commit_each" and any(op.path == path for ops in call.argument for op in ops):
            left.pop()
            world.store.commit([Create(path, layout.encode_delete_topic(bytes(16))), Create(f"{path}/x", b"")])
        return None

    world.before_store = before
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert left == []
    assert world.store.read(layout.topic_path("t")) is None
    assert world.leader._term.cluster.deletions == {}


def test_a_topic_is_deleted_although_what_it_may_have_lost_cannot_be_forgotten() -> None:
    world = World(3)
    t = world.create(assignment={0: [1, 2]}, config={"min_isr": 1, "unclean_leader_election": True})
    world.propose(1, pid(t), [1])
    world.kill(1)
    path = judgements.loss_path(t, 0)
    assert world.store.read(path) is not None
    write(world, Create(f"{path}/x", b""))
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert world.store.read(layout.topic_path("t")) is None
    assert [told["path"] for told in world.told("wish_stuck")] == [path]


def test_what_cannot_be_stored_of_a_decision_keeps_nothing_else_of_it_undone() -> None:
    """The state of one partition of ten is junk: the others are elected, at their own turn."""
    world = World(3)
    t = world.create(assignment={n: [1, 2] for n in range(10)}, config={"min_isr": 1})
    world.kill(1)
    world.start(1, settle=True)
    for number in range(10):
        assert world.propose(2, pid(t, number), [1, 2]).error == Code.NONE
    write(world, Put(layout.partition_state_path("t", 4), b"junk", None))
    world.commits.clear()
    world.admin("elect")
    assert [world.state(n).leader for n in range(10) if n != 4] == [1] * 9
    assert world.told("decision_given_up")[-1]["event"] == "AdminAsked"
    sizes = [len(ops) - 1 for ops in world.commits]
    assert sizes[:2] == [10, 10], "in one transaction while it may help"
    assert sizes[2:12] == [1] * 10
    assert sum(sizes[12:]) < 10, "what is done is not done again"


# -------------------------------------------------------------------- wishes that take the place of those that were seen


def replaces(world: World, path: str, value: bytes, kind: type[Op] = Delete) -> list[int]:
    """Just before the controller ends what is wished at `path`, somebody takes that back and wishes something else."""
    left = [1]

    def before(address: Any, call: Any) -> str | None:
        asked = [op for ops in call.argument for op in ops] if call.verb == "commit_each" else []
        if left and any(isinstance(op, kind) and op.path == path for op in asked):
            left.pop()
            world.store.commit([Delete(path)])
            world.store.commit([Create(path, value)])
        return None

    world.before_store = before
    return left


def test_a_wish_to_add_that_took_the_place_of_another_is_the_one_that_is_granted() -> None:
    world = World(4)
    world.create(assignment={0: [1, 2, 3]})
    path = layout.partition_add_path("t", 1)
    left = replaces(world, path, encode_replicas((3, 2, 4)))
    write(world, Create(path, encode_replicas((1, 2, 3))))
    assert left == []
    assert world.state(1).isr == (3, 2, 4)
    assert world.store.read(path) is None


def test_a_wish_to_move_that_took_the_place_of_another_overrides_it_at_the_very_end() -> None:
    world = World(4)
    t = world.create(assignment={0: [1, 2]})
    path = layout.reassigned_path("t", 0)
    write(world, Create(path, encode_replicas((2, 3))))
    left = replaces(world, path, encode_replicas((2, 4)))
    world.propose(1, pid(t), [1, 2, 3])
    assert left == []
    assert world.leader._term.cluster.topics[t].assignments[0].adding == (4,)
    world.propose(1, pid(t), [1, 2, 4])
    assert world.leader._term.cluster.topics[t].assignments[0].replicas == (2, 4)
    assert world.store.read(path) is None


def test_a_wish_to_move_that_took_the_place_of_another_is_the_one_that_begins() -> None:
    world = World(4)
    world.create(assignment={0: [1, 2]})
    path = layout.reassigned_path("t", 0)
    left = replaces(world, path, encode_replicas((2, 4)), Check)
    write(world, Create(path, encode_replicas((2, 3))))
    assert left == []
    assert [told["adding"] for told in world.told("reassignment_started")] == [(4,)]


def test_a_deletion_that_took_the_place_of_one_that_named_no_topic_is_done() -> None:
    world = World(3)
    t = world.create()
    path = layout.delete_topic_path("t")
    left = replaces(world, path, layout.encode_delete_topic(t))
    write(world, Create(path, layout.encode_delete_topic(bytes(16))))
    assert left == []
    assert world.store.read(layout.topic_path("t")) is None
    assert world.store.read(path) is None


def test_a_bad_wish_in_whose_place_is_a_good_one_is_not_put_away() -> None:
    world = World(3)
    world.create(partitions=1)
    path = layout.elect_path("t", 0)
    left = replaces(world, path, encode_elect(unclean=False))
    write(world, Create(path, b"junk"))
    assert left == []
    assert world.store.list(layout.REJECTED) == []
    assert world.store.read(path) is None


# --------------------------------------------------------------------------------------------- what a new term looks at


def test_a_new_term_that_rejects_what_was_rejected_before_pays_no_round_for_each() -> None:
    world = World(3)
    for number in range(20):
        write(world, Create(layout.partition_add_path("x", number), encode_replicas(None)))
    assert len(world.store.list(f"{layout.REJECTED}{layout.PARTITIONS_ADD}/x")) == 20
    write(world, Put(layout.rejected_path(layout.partition_add_path("x", 3)), b"junk", None))
    world.drop_watches = True
    write(world, *(Create(layout.partition_add_path("x", number), encode_replicas((9,))) for number in range(20)))
    world.drop_watches = False
    world.commits.clear()
    world.kill(world.controller_id)
    tries = [ops for ops in world.commits if any(op.path.startswith(layout.REJECTED) for op in ops)]
    assert len(tries) == 1
    assert world.store.list(layout.PARTITIONS_ADD) == []
    path = layout.rejected_path(layout.partition_add_path("x", 3))
    assert layout.decode_rejection(path, world.store.read(path).value).wish == encode_replicas((9,))


def test_wishes_to_remove_partitions_of_a_topic_are_not_about_the_next_one_of_its_name() -> None:
    """A removal in slices wrote them; the topic went before its turn came."""
    world = World(3, slice_partitions_max=2)
    t = world.create(partitions=30)
    gone: list[bytes] = []

    def delete(address: Any, call: Any) -> None:
        if len(world.store.list(f"{layout.PARTITIONS_REMOVE}/t")) >= 20 and not gone:
            gone.append(t)
            world.admin("delete_topic", name="t", settle=False)

    world.after_store = delete
    world.admin("remove_partitions", name="t", partitions=list(range(2, 30)))
    assert gone == [t]
    assert world.store.read(layout.topic_path("t")) is None
    assert world.store.list(layout.PARTITIONS_REMOVE) == []
    assert world.store.list(layout.REJECTED) == []
    assert world.leader._term.cluster.wished == {}
    world.create(partitions=30)
    world.advance(60_000)
    assert len(world.store.list(layout.topic_path("t"))) == 30


@pytest.mark.parametrize("by", ["rejected", "taken back"])
def test_what_became_of_a_wish_to_remove_is_known(by: str) -> None:
    """Else a removal in slices would not be on record before it begins, or would be given up."""
    world = World(3, slice_partitions_max=2)
    t = world.create(partitions=30)
    cluster = world.leader._term.cluster
    paths = [layout.partition_remove_path("t", number) for number in range(2, 30)]
    if by == "rejected":
        world.drop_watches = True
        for path in paths:
            write(world, Create(path, encode_partition_remove(Meant(creation=9))))
            cluster.apply(WishNoted(path, 0))
        world.drop_watches = False
        world.advance(60_000)
        assert len(world.store.list(f"{layout.REJECTED}{layout.PARTITIONS_REMOVE}/t")) == 28
    else:
        for path in paths:
            cluster.apply(WishNoted(path, 0))
        world.advance(60_000)
    assert cluster.wished == {}
    assert world.admin("remove_partitions", name="t", partitions=list(range(2, 30))).error == Code.NONE
    assert sorted(cluster.topics[t].assignments) == [0, 1]


@pytest.mark.parametrize(("name", "value"), [("t", b"junk"), ("t", b""), ("bad name", layout.encode_delete_topic(bytes(16)))])
def test_what_names_no_topic_where_deletions_are_wished_for_is_put_away(name: str, value: bytes) -> None:
    world = World(1, rejected_wish_ms=100_000, reconcile_ms=10_000)
    world.create("t")
    path = f"{layout.DELETE_TOPICS}/{name}"
    for _ in range(2):  # the second rejection takes the place of the first
        write(world, Create(path, value))
        assert world.store.read(path) is None
    kept = layout.decode_rejection(path, world.store.read(layout.rejected_path(path)).value)
    assert (kept.code, kept.wish) == (Code.INVALID_REQUEST, value)
    assert world.state(0).leader is not None
    assert len(world.told("wish_rejected")) == 2
    assert world.admin("delete_topic", name="t").error == Code.NONE
    node = world.nodes[1]
    node.controller.tick(world.now_ms, 100_000)
    node.controller._term.reconcile()
    world.give(node, ("controller", 1), None, object())
    world.settle()
    assert world.store.read(layout.rejected_path(path)) is None, "it is kept for a day"
