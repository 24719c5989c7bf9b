"""Anything at all, at every path that a controller reads: the next one loads, and does its work on what is sound."""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from tests.unit.controller import harness
from tests.unit.controller.harness import World, pid

from replog.errors import Code
from replog.metadata import judgements, layout
from replog.metadata.wishes import Meant, encode_elect, encode_partition_remove, encode_replicas
from replog.model import Assignment, PartitionState
from replog.ports import Conflict, Create, Op, Put

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1.5, 2**31, 2**31 - 1, 2**63 - 1, 2**64, float("inf"), float("nan"), "", "x", "\ud800", "0" * 2_000,
    [], [0], [1, 1], [None], [[]], {}, {"": 0}, {"0": {}},
)  # fmt: skip


def odd(rng: Random, value: bytes) -> bytes:
    """Something that somebody may have written where this belongs."""
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.randrange(40))
        case 1:
            return value[: rng.randrange(len(value))]
        case 2:
            at = rng.randrange(len(value))
            return value[:at] + rng.randbytes(1) + value[at + 1 :]
        case 3:
            return b"[" * 3_000 if rng.random() < 0.1 else json.dumps(deepcopy(rng.choice(ODD))).encode()
    fields = json.loads(value)
    for _ in range(rng.randint(1, 2)):
        where = fields
        while True:
            keys = list(where) if isinstance(where, dict) else list(range(len(where)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(where[key], dict | list) and where[key] and rng.random() < 0.7:
                where = where[key]
            elif isinstance(where, dict) and rng.random() < 0.3:
                del where[key]
                break
            else:
                where[key] = deepcopy(rng.choice(ODD))
                break
    return json.dumps(fields).encode()


def samples(world: World, topic_id: bytes) -> dict[str, bytes]:
    """Paths of every row, with what belongs there: about things that there are, and things that there are not."""
    entry = layout.TopicEntry(topic_id, {"min_isr": 1}, {0: Assignment((1, 2)), 1: Assignment((2, 3), 1, (3,), (1,), (2, 1))}, 2, (4,))
    state = PartitionState(1, 3, (1, 2), (3,), (4,))
    loss = judgements.LossRecord("t", "unclean", 1, 2, (judgements.Candidate(1, 0, 5),), (2,))
    found: dict[str, bytes] = {}
    for broker in (7, 8):
        found[layout.broker_path(broker)] = layout.encode_registration(layout.Registration(("tcp://h:1",), "r", "d", incarnation="i"))
        found[judgements.admitted_path(broker)] = judgements.encode_admission(judgements.Admission(3, "i", "d"))
    for broker in (1, 2, 7):
        found[layout.draining_path(broker)] = layout.encode_draining(999)
    for name in ("x", "y", "bad name"):
        found[f"{layout.TOPICS}/{name}"] = layout.encode_topic(entry)
        for number in (0, 1, "z", 9):
            found[f"{layout.TOPICS}/{name}/{number}/leaderAndISR"] = layout.encode_partition_state(state)
    for name in ("wished", "x", "none", "bad name"):
        found[f"{layout.DELETE_TOPICS}/{name}"] = layout.encode_delete_topic(topic_id)
        for number in (0, 3, "z"):
            found[f"{layout.PARTITIONS_ADD}/{name}/{number}"] = encode_replicas((1, 2))
            found[f"{layout.PARTITIONS_REMOVE}/{name}/{number}"] = encode_partition_remove(Meant(creation=0))
            found[f"{layout.PARTITIONS_REASSIGNED}/{name}/{number}"] = encode_replicas((3, 4))
            found[f"{layout.ELECT}/{name}/{number}"] = encode_elect(unclean=True)
    for wish in (f"{layout.ELECT}/x/0", f"{layout.DELETE_TOPICS}/x", f"{layout.PARTITIONS_ADD}/none/0"):
        found[layout.rejected_path(wish)] = layout.encode_rejection(layout.Rejection(b"{", 3, "no", 0))
    for id_ in (topic_id, bytes(16)):
        found[layout.removed_path(id_)] = layout.encode_removed((1, 4, 9))
        found[judgements.loss_path(id_, 0)] = judgements.encode_loss(loss)
    found |= {f"{layout.REMOVED}/z": b"{}", f"{judgements.LOSSES}/z/z": b"{}", f"{judgements.ADMITTED}/z": b"{}"}
    return found


def put(world: World, op: Create | Put) -> None:
    session = world.store
    try:
        session.commit([op])
    except Conflict:
        session.commit([Put(op.path, op.value)])


@pytest.mark.parametrize("seed", range(40))
def test_a_controller_survives_anything_that_is_written_to_its_paths(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    world = World(5, reconcile_ms=10_000)
    gone = world.controller_id
    first, second = [b for b in (1, 2, 3, 4, 5) if b != gone][:2]
    fails = world.create("fails", assignment={n: [first, second] for n in range(3)})
    deleted = world.create("deleted", assignment={0: [second, first]})
    wished = world.create("wished", assignment={0: [second, first], 1: [second, first]})
    world.kill(gone, settle=False)
    written = samples(world, wished)
    for path, value in written.items():
        garbage = odd(rng, value) if rng.random() < 0.9 else value
        ops: list[Op] = [Create(path, garbage)]
        put(world, ops[0])  # type: ignore[arg-type]
        if rng.random() < 0.1:
            put(world, Create(f"{path}/below", b"junk"))
    for broker in world.nodes:
        if broker not in (first, second):  # they would have to join the ISR again
            put(world, Create(judgements.admitted_path(broker), rng.randbytes(9)))
    monkeypatch.setattr(harness, "STEPS_MAX", 20_000)
    world.settle()
    world.advance(5_000)

    def told() -> Counter[str]:
        return Counter(one["path"] for one in world.told("store_value_unreadable"))

    assert world.leader._term.loaded
    assert set(told().values()) <= {1}
    assert all(world.leader._term.cluster.is_admitted(broker) for broker in world.nodes), "whatever stood there before"
    assert world.admin("create_topic", name="new", partitions=3).error == Code.NONE
    assert all(world.state(number, "new").leader is not None for number in range(3))
    assert world.admin("delete_topic", name="deleted").error == Code.NONE
    assert world.store.read(layout.topic_path("deleted")) is None
    assert pid(deleted) not in {p for disk in world.disks.values() for p in disk}
    leads = world.state(0, "fails").leader
    assert leads is not None
    world.kill(leads)
    world.advance(5_000)
    assert {world.state(number, "fails").leader for number in range(3)} == ({first, second} - {leads})
    assert fails in world.leader._term.cluster.topics
    for _ in range(2):
        before, commits = told(), len(world.commits)
        world.advance(10_000)
        for node in world.nodes:
            world.heartbeat(node)
        assert set(told().values()) <= ({1} if world.leader.controller_epoch == 2 else {1, 2}), "told once by each"
        assert len(world.commits) - commits < 500
        assert sum(before.values()) > 0
    retries = [one for one in world.told("controller_retries") if "epoch" not in one["error"]]
    assert retries == []
