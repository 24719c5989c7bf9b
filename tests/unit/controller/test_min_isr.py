"""Another min ISR for partitions that have a state: when it counts, and who stays a candidate (KAFKA-16540)."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.unit.controller.harness import World, pid

from replog.controller.election import choose, with_min_isr
from replog.errors import Code
from replog.metadata import layout
from replog.model import PartitionState
from replog.ports import Put

REPLICAS = (1, 2, 3)


def state(
    leader: int | None, isr: tuple[int, ...], elr: tuple[int, ...] = (), last: tuple[int, ...] = (), *, min_isr: int
) -> PartitionState:
    return PartitionState(leader, 5, isr, elr, last, min_isr=min_isr)


# Until a leader hears of the new state it commits by the old min ISR with everybody in the old ISR; so whoever is complete under the
# old state still is when the new one is stored. Afterwards it commits by the new one: alone, if that is enough.
TABLE = {
    # 3 left while nothing committed. From now on broker 1 and 2 commit without it: it must be a candidate no more.
    "lowered to what is in sync": (state(1, (1, 2), (3,), (1, 2, 3), min_isr=3), 2, (1, 2, 3), state(1, (1, 2), min_isr=2)),
    # Still nothing commits: who was complete stays complete.
    "lowered, and still above": (
        state(1, (1,), (2, 3), (1, 2, 3), min_isr=3), 2, (1, 2, 3), state(1, (1,), (2, 3), (1, 2, 3), min_isr=2),
    ),
    # The leader stops committing. Broker 3 left while two were enough: it may miss what they committed, and is no candidate.
    "raised above what is in sync": (state(1, (1, 2), min_isr=2), 3, (1, 2, 3), state(1, (1, 2), (), (1, 2), min_isr=3)),
    "raised, and enough": (state(1, (1, 2, 3), min_isr=1), 3, (1, 2, 3), state(1, (1, 2, 3), min_isr=3)),
    # 2 was in the ISR that the leader counted until it hears of both changes: it is complete. From then on broker 1 commits alone.
    "lowered with a death": (state(1, (1, 2), min_isr=2), 1, (1, 3), state(1, (1,), min_isr=1)),
    # 2 is complete likewise, and stays so: the new min ISR lets broker 1 commit nothing.
    "raised with a death": (state(1, (1, 2), min_isr=1), 2, (1, 3), state(1, (1,), (2,), (1, 2), min_isr=2)),
    # Broker 1 never led with min ISR 1: it died with 2, alone, and committed nothing. So 2 is as complete as it is.
    "lowered with the death of the leader": (
        state(1, (1,), (2,), (1, 2), min_isr=2), 1, (2, 3), evolve(state(2, (2,), min_isr=1), leader_epoch=6),
    ),
    # Broker 2 was in the ISR: it leads, and 3, which had left while 2 and 1 committed, stays outside.
    "raised with the death of the leader": (
        state(1, (1, 2), min_isr=1), 2, (2, 3), evolve(state(2, (2,), (1,), (1, 2), min_isr=2), leader_epoch=6),
    ),
    # Nobody is left: under min ISR 1 broker 1 was the only complete one when it died.
    "raised with the death of everybody": (
        state(1, (1,), min_isr=1), 2, (2, 3), evolve(state(None, (), (1,), (1,), min_isr=2), leader_epoch=6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_the_state_becomes(case):
    before, min_isr, live, after = TABLE[case]
    assert choose(before, replicas=REPLICAS, min_isr=min_isr, live=live).state == after


@pytest.mark.parametrize("case", TABLE)
def test_whoever_is_a_candidate_was_one_before_and_a_second_look_changes_nothing(case):
    before, min_isr, live, after = TABLE[case]
    assert {*after.isr, *after.elr} <= {*before.isr, *before.elr}
    assert choose(after, replicas=REPLICAS, min_isr=min_isr, live=live).state is None


def test_a_state_that_says_nothing_is_left_to_its_topic():
    without = state(1, (1,), (2,), (1, 2), min_isr=0)
    assert with_min_isr(without, 1, replicas=REPLICAS) == without


# ------------------------------------------------------------------------------------------------------------- altered


def test_a_lower_min_isr_reaches_every_state_and_empties_its_elr():
    world = World(3)
    topic = world.create(partitions=2, config={"min_isr": 2})
    world.kill(3)
    world.kill(2)
    assert [(world.state(p).elr, world.state(p).min_isr) for p in (0, 1)] == [((2,), 2), ((2,), 2)]
    world.commits.clear()
    answer = world.admin("alter_topic", name="t", config={"min_isr": 1})
    assert (answer.error, answer.result) == (Code.NONE, {"config": {"min_isr": 1}})
    assert [(world.state(p).elr, world.state(p).last_known, world.state(p).min_isr) for p in (0, 1)] == [((), (), 1)] * 2
    assert [[type(op) for op in ops if isinstance(op, Put)] for ops in world.commits] == [[Put], [Put, Put]]
    notices = world.nodes[1].broker.states
    assert [(n.state.min_isr, n.config.min_isr) for n in (notices[pid(topic, 0)], notices[pid(topic, 1)])] == [(1, 1), (1, 1)]


def test_the_answer_comes_after_the_states():
    world = World(3, slice_partitions_max=3)
    world.create(partitions=10, config={"min_isr": 2})
    world.before_store = lambda _address, _call: None
    seen = []
    deliver = world._deliver

    def watch(sender, to, message):
        if to == "client":
            seen.append([world.state(p).min_isr for p in range(10)])
        deliver(sender, to, message)

    world._deliver = watch  # type: ignore[method-assign]
    assert world.admin("alter_topic", name="t", config={"min_isr": 1}).error == Code.NONE
    assert seen == [[1] * 10]


def test_a_controller_that_dies_between_topic_and_states_is_followed_by_one_that_goes_on():
    world = World(3)
    world.create(partitions=3, config={"min_isr": 2})
    victim = world.controller_id

    def die(address, call):
        if address == ("controller", victim) and call.verb == "commit_each":
            world.after_store = lambda _address, _call: None
            world.queue.append(lambda: world.kill(victim, settle=False))

    world.after_store = die
    world.admin("alter_topic", name="t", config={"min_isr": 1})
    entry = layout.decode_topic("", world.store.read(layout.topic_path("t")).value)
    assert entry.config == {"min_isr": 1}
    assert [world.state(p).min_isr for p in range(3)] == [1, 1, 1]


def test_other_keys_reach_brokers_without_another_state():
    world = World(3)
    topic = world.create(config={"min_isr": 2})
    before = world.state()
    assert world.admin("alter_topic", name="t", config={"retention_ms": 5_000, "flush": "ack"}).error == Code.NONE
    assert world.state() == before
    for node in world.nodes.values():
        config = node.broker.states[pid(topic)].config
        assert (config.retention_ms, config.flush, config.min_isr) == (5_000, "ack", 2)
    answer = world.admin("alter_topic", name="t", config={"retention_ms": None})
    assert answer.result == {"config": {"min_isr": 2, "flush": "ack"}}


REFUSED = {
    "nothing": ({}, "mapping of keys to change"),
    "no mapping": ([1], "not [1]"),
    "an unknown key": ({"retention": 1}, "unknown configuration key 'retention'"),
    "a bad value": ({"flush": "never"}, "'never'"),
    "more than replicas": ({"min_isr": 4}, "min_isr is 4; allowed are 1 to 3"),
    "twice": ({"min_isr": 1, "min_insync_replicas": 1}, "given twice"),
    "more than are in sync": ({"min_isr": 3}, "min_isr is 3, and partition 1 of 't' has 2 in sync (brokers [2, 3])"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_the_value_and_the_limit(case):
    config, text = REFUSED[case]
    world = World(3)
    topic = world.create(partitions=2, config={"min_isr": 2})
    assert world.propose(2, pid(topic, 1), [2, 3]).error == Code.NONE
    before = world.store.read(layout.topic_path("t"))
    answer = world.admin("alter_topic", name="t", config=config)
    assert (answer.error, text in answer.message) == (Code.INVALID_CONFIG, True), answer
    assert world.store.read(layout.topic_path("t")) == before


def test_kafkas_names_are_the_same_keys():
    world = World(3)
    world.create(config={"min_isr": 2})
    assert world.admin("alter_topic", name="t", config={"min_insync_replicas": 1}).result == {"config": {"min_isr": 1}}


def test_a_topic_that_is_not_there_is_not_altered():
    world = World(1)
    assert world.admin("alter_topic", name="t", config={"min_isr": 1}).error == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_default_min_isr_follows_the_replicas():
    world = World(3)
    world.create(config={"min_isr": 1})
    assert world.admin("alter_topic", name="t", config={"min_isr": None}).result == {"config": {"min_isr": 2}}
    assert world.state().min_isr == 2


def test_leave_for_unclean_elections_reaches_partitions_without_a_leader():
    """It did nothing, until something else had them decided: then, at a moment that nobody chose, it did."""
    world = World(4)
    t = world.create(assignment={0: [2, 3], 1: [2, 3]}, config={"min_isr": 1})
    leader = world.state().leader
    other = 5 - leader
    world.propose(leader, pid(t), [leader])
    world.kill(leader)
    assert (world.state().leader, world.state(1).leader) == (None, other)
    epoch = world.state(1).leader_epoch
    world.admin("alter_topic", name="t", config={"unclean_leader_election": True})
    assert (world.state().leader, world.state().recovering) == (other, True)
    assert world.state(1).leader_epoch == epoch
