"""What a broker is asked about the followers of what it leads: by anybody, hence with anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.partition.copies import IDENTITY, LIMITS, batch, fetch, leading, log_of, notice, partition_of

from replog.broker.followers import FOLLOWERS, followers
from replog.errors import Code
from replog.messages import Admin, AdminAnswer
from replog.model import ACKS_ALL, PartitionId
from replog.partition.partition import Partition

NAME = [IDENTITY.topic_id.hex(), IDENTITY.partition, IDENTITY.creation]


def asked(partitions: dict[PartitionId, Partition], *names: Any, now_ms: int = 0) -> AdminAnswer:
    return followers(Admin(1, FOLLOWERS, {"partitions": list(names)}), partitions, now_ms)


@pytest.mark.parametrize(
    "name",
    [None, [], "x", ["00" * 16], ["00" * 16, [], 0], ["00" * 16, 0, {}], ["00" * 16, True, 0], ["zz", 0, 0], [0, 0, 0], ["", 1.5, 0]],
)
def test_what_is_no_partition_is_not_there(name: Any) -> None:
    answer = asked({}, name)
    assert (answer.error, answer.result) == (Code.NONE, {"partitions": []})


@pytest.mark.parametrize("shape", [dict.fromkeys, lambda name: [name[0].encode(), *name[1:]], lambda name: [*name, 0]])
def test_what_names_no_topic_to_an_authorizer_names_no_partition(shape: Callable[[list[Any]], Any]) -> None:
    """Who may see the cluster, and not this topic, was told of it for a map in place of the list."""
    anew = PartitionId(IDENTITY.topic_id, 0, 7)
    known, name = {anew: leading(log_of(("a", 1)))}, [anew.topic_id.hex(), 0, 7]
    assert len(asked(known, name).result["partitions"]) == 1
    answer = asked(known, shape(name))
    assert (answer.error, answer.result) == (Code.NONE, {"partitions": []})


@pytest.mark.parametrize("partitions", [None, "x", {}, [[]] * 1_001])
def test_what_is_no_list_of_them_is_refused(partitions: Any) -> None:
    assert followers(Admin(1, FOLLOWERS, {"partitions": partitions}), {}, 0).error == Code.INVALID_REQUEST


def test_only_what_is_led_here_is_told() -> None:
    elsewhere = PartitionId(IDENTITY.topic_id, 7, 0)
    known = {IDENTITY: leading(log_of(("a", 1))), elsewhere: partition_of(log_of())}
    answer = asked(known, [elsewhere.topic_id.hex(), 7, 0], NAME, ["00" * 16, 0, 0])
    assert [[one["topic_id"], one["partition"], one["creation"]] for one in answer.result["partitions"]] == [NAME]


def test_of_a_copy_that_does_not_lead_its_end_is_told() -> None:
    copy = partition_of(log_of(("a", 1), ("b", 1)))
    assert asked({IDENTITY: copy}, NAME).result == {
        "partitions": [], "copies": [{"topic_id": NAME[0], "partition": NAME[1], "creation": NAME[2], "end_offset": 2}],
    }  # fmt: skip
    copy.failed = "its disk"
    assert asked({IDENTITY: copy}, NAME).result == {"partitions": []}


def test_how_far_each_is_and_what_keeps_it_out() -> None:
    partition = leading(log_of(("a", 1), ("b", 1), ("c", 1), ("d", 1)), isr=(1, 2))
    fetch(partition, 2, 4, 1, now_ms=100)
    fetch(partition, 3, 1, 1, now_ms=200)
    (told,) = asked({IDENTITY: partition}, NAME, now_ms=1_000).result["partitions"]
    assert (told["leader_epoch"], told["end_offset"], told["high_watermark"]) == (5, 4, 4)
    assert partition.log.size_bytes % 4 == 0
    assert told["followers"] == [
        {"broker": 2, "in_sync": True, "end_offset": 4, "lag_ms": 0, "bytes_behind": 0, "why": ""},
        {"broker": 3, "in_sync": False, "end_offset": 1, "lag_ms": LIMITS.replica_lag_ms_max + 1_001,
         "bytes_behind": partition.log.size_bytes // 4 * 3, "why": "it is at 1, below the high watermark 4"},
    ]  # fmt: skip


def test_under_flush_ack_nobody_is_late_with_what_was_committed_before() -> None:
    partition = partition_of(log_of(("a", 1)), high_watermark=1)
    partition.become(notice(1, 5, (1, 2), flush="ack"), 0)
    fetch(partition, 2, 1, 1, now_ms=100)
    (told,) = asked({IDENTITY: partition}, NAME, now_ms=9_000).result["partitions"]
    fetch(partition, 3, 1, 1, now_ms=100)
    (told,) = asked({IDENTITY: partition}, NAME, now_ms=9_000).result["partitions"]
    assert [one["lag_ms"] for one in told["followers"]] == [0, 9_000 + LIMITS.replica_lag_ms_max + 1], "3 has not flushed"
    partition.append(batch("b", 1, 5), ACKS_ALL, now_ms=9_000)
    fetch(partition, 2, 2, 5, now_ms=9_000)
    (told,) = asked({IDENTITY: partition}, NAME, now_ms=11_000).result["partitions"]
    assert told["followers"][0]["lag_ms"] == 11_000, "it has not said that it was flushed"


def test_how_far_one_was_whose_broker_is_gone_is_told_until_it_is_back() -> None:
    partition = leading(log_of(("a", 1), ("b", 1)), isr=(1, 2))
    assert partition.leading is not None
    fetch(partition, 2, 1, 1)
    told = []
    for life in ({"ended": True}, {"ended": True}, {}):
        partition.leading.forget_life(2, 2 if life else 3, 0, **life)
        (one,) = asked({IDENTITY: partition}, NAME).result["partitions"]
        told.append((one["followers"][0]["end_offset"], one["followers"][0]["bytes_behind"] * 2 // partition.log.size_bytes))
    assert told == [(1, 1), (1, 1), (None, 2)]


def test_who_has_fetched_nothing_lacks_everything() -> None:
    partition = leading(log_of(("a", 1), ("b", 1), start=10), isr=(1,))
    (told,) = asked({IDENTITY: partition}, NAME).result["partitions"]
    assert [(one["end_offset"], one["bytes_behind"]) for one in told["followers"]] == [(None, partition.log.size_bytes)] * 2
    (told,) = asked({IDENTITY: leading(log_of())}, NAME).result["partitions"]
    assert [one["bytes_behind"] for one in told["followers"]] == [0, 0]
