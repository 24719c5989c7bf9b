"""Questions before a read, against brokers in memory: which are asked again, and what is left out."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from attrs import evolve
from tests.unit.client.fake import make

from replog.client.client import Client
from replog.errors import InvalidTopic, LeaderNotAvailable, OffsetOutOfRange, Rejected
from replog.model import TopicPartition
from replog.records import Record
from replog.spark import connections
from replog.spark.connections import Connection, close_clients
from replog.spark.offsets import EARLIEST, times_bound
from replog.spark.options import ReadOptions, Subscription
from replog.spark.positions import Lookup

OPTIONS = ReadOptions(Connection(("tcp://nobody:1",)), Subscription(("t", "u")), EARLIEST, offset_retries=3, offset_retry_ms=0)


@pytest.fixture
def client() -> Iterator[Client]:
    """The one of this process: topic t has three partitions and a record in the first, topic u one."""
    _, _, client = make({"t": 3, "u": 1})
    client.append("t", 0, ["a"])
    connections._clients[os.getpid(), OPTIONS.connection] = client
    yield client
    close_clients()


@pytest.mark.parametrize(
    ("refusal", "times", "asked"),
    [(LeaderNotAvailable, 2, 3), (LeaderNotAvailable, 3, 4), (LeaderNotAvailable, 4, 4), (InvalidTopic, 1, 1)],
)
@pytest.mark.usefixtures("client")
def test_a_refusal_that_may_pass_is_asked_about_again(refusal: type[Rejected], times: int, asked: int) -> None:
    calls: list[Client] = []

    def question(client: Client) -> str:
        calls.append(client)
        if len(calls) <= times:
            raise refusal
        return "answer"

    if times < asked:
        assert Lookup(OPTIONS)._again(question) == "answer"
    else:
        with pytest.raises(refusal):
            Lookup(OPTIONS)._again(question)
    assert len(calls) == asked


def test_what_does_not_exist_is_left_out(client: Client) -> None:
    lookup = Lookup(OPTIONS)
    places = lookup.places(must_exist=True)
    assert [str(place) for place in places] == ["t-0", "t-1", "t-2", "u-0"]
    held = lookup.held([*places, TopicPartition("t", 9), TopicPartition("none", 0)])
    assert {str(place): has.latest for place, has in held.items()} == {"t-0": 1, "t-1": 0, "t-2": 0, "u-0": 0}
    client.delete_topic("u")
    assert len(lookup.places(must_exist=False)) == 3
    assigned = evolve(OPTIONS, subscription=Subscription(assigned=(("t", (1, 9)), ("u", (0,)))))
    assert [str(place) for place in Lookup(assigned).places(must_exist=False)] == ["t-1"]


@pytest.mark.usefixtures("client")
def test_all_leaders_are_asked_side_by_side() -> None:
    lookup = Lookup(OPTIONS)
    places = lookup.places(must_exist=True)
    counts = connections._clients[os.getpid(), OPTIONS.connection]._driver.cluster.counts  # type: ignore[attr-defined]
    before = dict(counts)
    held = lookup.held(places)
    assert counts["ListOffsets"] - before.get("ListOffsets", 0) == len(held) == 4
    assert lookup.resolved(EARLIEST, held) == dict.fromkeys(places, 0)
    assert counts["ListOffsets"] - before.get("ListOffsets", 0) == 4  # the first answer said that too


def test_a_time_is_its_first_record_also_within_a_batch(client: Client) -> None:
    client.append("u", 0, [Record(f"{n}", timestamp_ms=5_000 + n) for n in range(4)])
    lookup, place = Lookup(OPTIONS), TopicPartition("u", 0)
    held = lookup.held([place])
    for time, or_latest, found in ((5_000, False, 0), (5_002, False, 2), (5_003, True, 3), (5_004, True, 4)):
        assert lookup.resolved(times_bound("startingTimestamp", str(time), or_latest=or_latest), held) == {place: found}
    with pytest.raises(OffsetOutOfRange, match="no record of u-0 is as young as 5004"):
        lookup.resolved(times_bound("startingTimestamp", "5004", or_latest=False), held)
