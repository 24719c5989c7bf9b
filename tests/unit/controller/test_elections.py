"""Elections on demand: who may become the leader, what each partition is answered, wishes in the store (P-92)."""

from __future__ import annotations

import json

import pytest
from tests.unit.controller.harness import World, pid

from replog.controller.elections import preferred, unclean
from replog.controller.refusal import Refusal
from replog.errors import Code
from replog.metadata import judgements, layout
from replog.metadata.wishes import encode_elect
from replog.model import PartitionState

AR = (1, 2, 3)


def state(leader: int | None, isr: tuple[int, ...], elr: tuple[int, ...] = (), last: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(leader, 5, isr, elr, last, partition_epoch=9, min_isr=2)


# (before, live, lossy, leaving) -> (leader, epoch, isr), or the code of the refusal
PREFERRED = {
    "in the ISR": (state(2, (1, 2, 3)), (1, 2, 3), (), (), (1, 6, (1, 2, 3))),
    "leads already": (state(1, (1, 2, 3)), (1, 2, 3), (), (), Code.ELECTION_NOT_NEEDED),
    "fenced or dead": (state(2, (1, 2, 3)), (2, 3), (), (), Code.PREFERRED_LEADER_NOT_AVAILABLE),
    "not in the ISR": (state(2, (2, 3)), (1, 2, 3), (), (), Code.PREFERRED_LEADER_NOT_AVAILABLE),
    "shutting down": (state(2, (1, 2, 3)), (1, 2, 3), (), (1,), Code.PREFERRED_LEADER_NOT_AVAILABLE),
    "eligible, the ISR is not empty": (state(2, (2,), (1,), (1, 2)), (1, 2), (), (), Code.PREFERRED_LEADER_NOT_AVAILABLE),
    "eligible, the ISR is empty": (state(None, (), (1, 2), (1, 2)), (1, 2), (), (), (1, 6, (1,))),
    "eligible and lossy": (state(None, (), (1, 2), (1, 2)), (1, 2), (1,), (), Code.PREFERRED_LEADER_NOT_AVAILABLE),
    "in the ISR and lossy": (state(2, (1, 2, 3)), (1, 2, 3), (1,), (), Code.PREFERRED_LEADER_NOT_AVAILABLE),
    "nobody complete is live": (state(None, (), (2,), (2,)), (1, 3), (), (), Code.PREFERRED_LEADER_NOT_AVAILABLE),
    "the leader has died, and nobody has been elected yet": (state(2, (1, 2, 3)), (1, 3), (), (), (1, 6, (1, 3))),
}


@pytest.mark.parametrize("case", PREFERRED)
def test_p_92_preferred(case):
    before, live, lossy, leaving, expected = PREFERRED[case]
    arguments = {"replicas": AR, "min_isr": 2, "live": live, "lossy": lossy, "leaving": leaving}
    if isinstance(expected, int):
        with pytest.raises(Refusal) as refusal:
            preferred(before, **arguments)
        assert refusal.value.code == expected
    else:
        after = preferred(before, **arguments)
        assert (after.leader, after.leader_epoch, after.isr) == expected
        assert not after.recovering


# (before, live, to) -> (leader, epoch), or the code and a part of the text of the refusal
NAMED = {
    "in the ISR": (state(1, (1, 2, 3)), (1, 2, 3), 3, (3, 6)),
    "the preferred one, by name": (state(2, (1, 2, 3)), (1, 2, 3), 1, (1, 6)),
    "leads already": (state(2, (1, 2, 3)), (1, 2, 3), 2, (Code.ELECTION_NOT_NEEDED, "broker 2 leads already")),
    "the preferred one leads": (state(1, (1, 2)), (1, 2, 3), 3, (Code.PREFERRED_LEADER_NOT_AVAILABLE, "broker 3 is not in the ISR")),
    "dead": (state(1, (1, 2, 3)), (1, 2), 3, (Code.PREFERRED_LEADER_NOT_AVAILABLE, "broker 3 is not in the ISR")),
    "has no copy": (state(1, (1, 2, 3)), (1, 2, 3), 4, (Code.INVALID_REPLICA_ASSIGNMENT, "broker 4 has no copy; those of 1, 2, 3")),
}


@pytest.mark.parametrize("case", NAMED)
def test_p_92_a_replica_by_name(case):
    before, live, to, expected = NAMED[case]
    if isinstance(expected[1], str):
        with pytest.raises(Refusal, match=expected[1]) as refusal:
            preferred(before, replicas=AR, min_isr=2, live=live, to=to)
        assert refusal.value.code == expected[0]
    else:
        after = preferred(before, replicas=AR, min_isr=2, live=live, to=to)
        assert (after.leader, after.leader_epoch) == expected
        assert set(after.isr) <= set(before.isr)


UNCLEAN = {
    "somebody leads": (state(2, (2,), (1,), (1, 2)), (2, 3), Code.ELECTION_NOT_NEEDED),
    "only an incomplete replica is live": (state(None, (), (1, 2), (1, 2)), (3,), (3, True)),
    "an eligible one is live: nothing is lost": (state(None, (), (1, 2), (1, 2)), (2, 3), (2, False)),
    "nobody is live": (state(None, (), (1, 2), (1, 2)), (), Code.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    "the last-known set is live, and is asked": (state(None, (), (), (1, 2)), (1, 2, 3), Code.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    "the last-known set is not all live": (state(None, (), (), (1, 2)), (1, 3), (1, True)),
}


@pytest.mark.parametrize("case", UNCLEAN)
def test_unclean(case):
    before, live, expected = UNCLEAN[case]
    if isinstance(expected, int):
        with pytest.raises(Refusal) as refusal:
            unclean(before, replicas=AR, min_isr=2, live=live)
        assert refusal.value.code == expected
    else:
        choice = unclean(before, replicas=AR, min_isr=2, live=live)
        assert choice.state is not None
        assert (choice.state.leader, choice.state.recovering) == expected
        assert (choice.loss is not None) == expected[1]


def _moved_away(world: World, **arguments) -> bytes:
    """A topic whose preferred leaders, broker 3, have come back and are in sync again, while others lead."""
    topic = world.create(config={"min_isr": 1}, **arguments)
    world.kill(3)
    world.start(3, settle=True)
    for number in range(len(world.store.list(layout.topic_path("t")))):
        now = world.state(number)
        assert now.leader not in (None, 3)
        assert world.propose(now.leader, pid(topic, number), [*now.isr, 3]).error == Code.NONE
    return topic


def test_a_preferred_leader_that_is_back_is_elected():
    world = World(3)
    _moved_away(world, assignment={0: [3, 1, 2]})
    before = world.state()
    answer = world.admin("elect", partitions=[["t", 0]])
    assert (answer.error, answer.result) == (Code.NONE, {"partitions": [["t", 0, 0, ""]]})
    assert (world.state().leader, world.state().leader_epoch) == (3, before.leader_epoch + 1)
    assert world.nodes[3].broker.states[next(iter(world.nodes[3].broker.states))].state.leader == 3
    again = world.admin("elect", partitions=[["t", 0]])
    assert [one[2] for one in again.result["partitions"]] == [Code.ELECTION_NOT_NEEDED]
    assert world.state().leader_epoch == before.leader_epoch + 1


def test_who_may_lack_records_is_not_said_to_be_behind_a_leader_that_is_not_there():
    world = World(3)
    topic = world.create(assignment={0: [3, 1]}, config={"min_isr": 1})
    assert world.propose(3, pid(topic), [3]).error == Code.NONE
    world.kill(3)
    assert world.state().leader is None
    (result,) = world.admin("elect", partitions=[["t", 0]], to=1).result["partitions"]
    assert result[2] == Code.PREFERRED_LEADER_NOT_AVAILABLE
    assert result[3].endswith("it may miss records that were committed")


def test_a_preferred_leader_that_is_not_in_sync_is_not_elected():
    world = World(3)
    topic = world.create(assignment={0: [3, 1, 2]}, config={"min_isr": 1})
    world.kill(3)
    world.start(3, settle=True)
    before = world.state()
    result = world.admin("elect", partitions=[["t", 0]]).result["partitions"]
    assert result[0][2] == Code.PREFERRED_LEADER_NOT_AVAILABLE
    assert result[0][3].endswith("it has not caught up with the leader")
    assert world.state() == before
    assert world.propose(1, pid(topic), [1, 2, 3]).error == Code.NONE
    assert world.admin("elect", partitions=[["t", 0]]).result["partitions"][0][2] == Code.NONE


@pytest.mark.parametrize(("arguments", "text"), [
    ({"partitions": "t"}, "is a list"),
    ({"partitions": [["t"]]}, "not [topic, partition]"),
    ({"partitions": [["t", -1]]}, "-1"),
    ({"partitions": [["t", True]]}, "True"),
    ({"unclean": 1}, "unclean is 1"),
    ({"partitions": [["t", 0]], "to": "1"}, "to is '1'"),
    ({"partitions": [["t", 0]], "to": True}, "to is True"),
    ({"partitions": [["t", 0]], "to": 1, "unclean": True}, "an unclean election takes whoever is live"),
    ({"partitions": None, "to": 1}, "have to be named"),
])  # fmt: skip
def test_a_malformed_request_is_refused(arguments, text):
    world = World(1)
    world.create()
    answer = world.admin("elect", **arguments)
    assert answer.error == Code.INVALID_REQUEST
    assert text in answer.message


def test_whoever_is_named_leads_and_once_its_answer_was_lost_counts_as_elected():
    world = World(3)
    world.create(assignment={0: [1, 2, 3], 1: [3, 1, 2], 2: [2, 3, 1]})
    faults = ["applied"]
    world.before_store = lambda _, call: faults.pop() if call.verb == "commit_each" and faults else None
    answer = world.admin("elect", partitions=[["t", 0], ["t", 1], ["t", 2]], to=3)
    assert [one[2] for one in answer.result["partitions"]] == [Code.NONE, Code.ELECTION_NOT_NEEDED, Code.NONE]
    assert faults == []
    assert [world.state(n).leader for n in range(3)] == [3, 3, 3]
    assert [world.state(n).leader_epoch for n in range(3)] == [1, 0, 1]


def test_whoever_is_named_and_cannot_lead_is_told_why():
    world = World(4)
    world.create(assignment={0: [1, 2, 3]}, config={"min_isr": 1})
    world.kill(3)
    before = world.state()
    for to, code, why in ((3, Code.PREFERRED_LEADER_NOT_AVAILABLE, "not registered"), (4, Code.INVALID_REPLICA_ASSIGNMENT, "1, 2, 3")):
        (result,) = world.admin("elect", partitions=[["t", 0]], to=to).result["partitions"]
        assert (result[2], why in result[3]) == (code, True), result
    assert world.state() == before


def test_each_partition_has_its_own_result():
    world = World(3)
    world.create(assignment={0: [3, 1, 2], 1: [1, 2, 3]}, config={"min_isr": 1})
    world.kill(3)
    answer = world.admin("elect", partitions=[["t", 0], ["t", 1], ["t", 2], ["none", 0], ["t", 0]])
    results = answer.result["partitions"]
    assert [one[:3] for one in results] == [
        ["t", 0, Code.PREFERRED_LEADER_NOT_AVAILABLE],
        ["t", 1, Code.ELECTION_NOT_NEEDED],
        ["t", 2, Code.UNKNOWN_TOPIC_OR_PARTITION],
        ["none", 0, Code.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert "not registered" in results[0][3]
    assert world.state(0).leader == 1


def test_all_partitions_are_elected_in_slices():
    world = World(3, slice_partitions_max=10)
    _moved_away(world, assignment={p: [3, 1, 2] if p % 2 else [1, 2, 3] for p in range(60)})
    world.commits.clear()
    answer = world.admin("elect")
    assert [one[1:3] for one in answer.result["partitions"]] == [[p, 0] for p in range(1, 60, 2)]
    assert [len(ops) - 1 for ops in world.commits] == [10, 10, 10]
    assert {world.state(p).leader for p in range(1, 60, 2)} == {3}


def test_a_slice_whose_outcome_nobody_heard_ends_the_same():
    world = World(3, slice_partitions_max=2)
    _moved_away(world, assignment={p: [3, 1, 2] for p in range(4)})
    fault = ["applied"]
    world.before_store = lambda address, call: fault.pop() if fault and call.verb == "commit_each" else None
    answer = world.admin("elect")
    world.advance(5_000)
    answer = answer or world.client[-1]
    assert [one[1:3] for one in answer.result["partitions"]] == [[p, Code.NONE] for p in range(4)], "what was done is said to be done"
    assert {world.state(p).leader for p in range(4)} == {3}
    assert {world.state(p).leader_epoch for p in range(4)} == {2}


@pytest.mark.parametrize("uncleanly", [False, True])
@pytest.mark.parametrize("fault", ["lost", "applied"])
def test_what_was_elected_unheard_is_not_answered_as_not_needed(fault, uncleanly):
    world = World(3)
    _moved_away(world, assignment={0: [3, 1, 2], 1: [1, 2, 3]})
    if uncleanly:
        topic = world.create("u", assignment={0: [2, 3]}, config={"min_isr": 1})
        world.propose(2, pid(topic), [2])
        world.kill(2)
    place = ["u", 0] if uncleanly else ["t", 0]
    faults = [fault]
    world.before_store = lambda address, call: faults.pop() if faults and call.verb == "commit_each" else None
    answer = world.admin("elect", partitions=[place, ["t", 1]], unclean=uncleanly)
    world.advance(5_000)
    answer = answer or world.client[-1]
    assert faults == []
    assert [one[2] for one in answer.result["partitions"]] == [Code.NONE, Code.ELECTION_NOT_NEEDED]
    assert world.state(place[1], place[0]).leader == 3


def test_an_unclean_election_on_demand_is_recorded_with_its_candidates():
    world = World(3)
    topic = world.create(assignment={0: [1, 2, 3]}, config={"min_isr": 2})
    world.propose(1, pid(topic), [1, 2])
    world.kill(2)
    world.kill(1)
    assert (world.state().leader, world.state().elr) == (None, (1, 2))
    answer = world.admin("elect", partitions=[["t", 0]])
    assert answer.result["partitions"][0][2] == Code.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.state().leader is None
    answer = world.admin("elect", partitions=[["t", 0]], unclean=True)
    assert answer.result["partitions"] == [["t", 0, 0, ""]]
    assert (world.state().leader, world.state().isr, world.state().recovering) == (3, (3,), True)
    path = judgements.loss_path(topic, 0)
    record = judgements.decode_loss(path, world.store.read(path).value)
    assert (record.kind, record.leader, record.missing) == ("unclean", 3, (1, 2))
    assert world.told("records_may_be_lost")[-1]["missing"] == (1, 2)


def _wish(world: World, path: str, value: bytes) -> None:
    from replog.ports import Create

    world.store.commit([Create(path, value)])
    world.settle()


def test_a_wish_in_the_store_elects_and_goes_in_the_same_transaction():
    world = World(3)
    _moved_away(world, assignment={0: [3, 1, 2], 1: [1, 2, 3]})
    world.commits.clear()
    _wish(world, layout.elect_path("t", 0), encode_elect(unclean=False))
    _wish(world, layout.elect_path("t", 1), encode_elect(unclean=False))  # not needed
    assert world.state(0).leader == 3
    assert world.store.list(layout.ELECT) == []
    assert world.store.list(layout.REJECTED) == []
    assert [len(ops) for ops in world.commits] == [3, 2]


def test_a_wish_may_name_who_is_to_lead():
    world = World(3)
    world.create(assignment={0: [3, 1, 2]})
    _wish(world, layout.elect_path("t", 0), encode_elect(to=2))
    assert world.state().leader == 2
    assert world.store.list(layout.ELECT) == []


@pytest.mark.parametrize(("name", "number", "value", "code"), [
    ("t", 0, encode_elect(to=3), Code.PREFERRED_LEADER_NOT_AVAILABLE),
    ("t", 0, encode_elect(to=7), Code.INVALID_REPLICA_ASSIGNMENT),
    ("t", 0, encode_elect(unclean=True, to=1), Code.INVALID_REQUEST),
    ("t", 0, json.dumps({"version": 1, "unclean": False, "to": "1"}).encode(), Code.INVALID_REQUEST),
    ("t", 0, encode_elect(unclean=False), Code.PREFERRED_LEADER_NOT_AVAILABLE),
    ("t", 7, encode_elect(unclean=False), Code.UNKNOWN_TOPIC_OR_PARTITION),
    ("none", 0, encode_elect(unclean=True), Code.UNKNOWN_TOPIC_OR_PARTITION),
    ("t", 0, b"{not JSON", Code.INVALID_REQUEST),
    ("t", 0, json.dumps({"version": 1, "unclean": "yes"}).encode(), Code.INVALID_REQUEST),
])  # fmt: skip
def test_a_wish_that_cannot_be_granted_is_put_away_with_its_error(name, number, value, code):
    world = World(3)
    world.create(assignment={0: [3, 1, 2]}, config={"min_isr": 1})
    world.kill(3)
    before = world.state()
    path = layout.elect_path(name, number)
    _wish(world, path, value)
    assert world.store.read(path) is None
    rejection = layout.decode_rejection(path, world.store.read(layout.rejected_path(path)).value)
    assert (rejection.code, rejection.wish) == (code, value)
    assert world.state() == before


def test_an_unclean_election_during_a_move_prefers_who_was_there_before_it():
    """Whoever only joins may be empty."""
    world = World(5)
    topic = world.create(partitions=1, assignment={0: [1, 2]}, config={"min_isr": 1})
    world.propose(1, pid(topic), [1])
    assert world.admin("reassign", partitions=[["t", 0, [3, 4]]]).error == Code.NONE
    world.kill(1)
    assert world.state().leader is None
    assert world.admin("elect", partitions=[["t", 0]], unclean=True).error == Code.NONE
    assert (world.state().leader, world.state().recovering) == (2, True)
