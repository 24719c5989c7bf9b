"""Under acks=0 nobody answers: how a client learns all the same that it sends to the wrong broker."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, FakeDriver, make, metadata_asked

from replog.client.producer import Producer
from replog.errors import Code
from replog.messages import Disconnected, Produce, Produced, ProducedEntry

UNANSWERED_MS = 3_000
AGE_MS = 300_000


def quiet(**options: Any) -> tuple[FakeCluster, FakeDriver, Producer]:
    """A producer under acks=0 that has sent a record to broker 1, which leads; and nobody was asked for a while."""
    cluster, driver, client = make({"t": 1}, **options)
    producer = client.producer(acks=0)
    producer.send("t", "first")
    driver.pass_time(2 * UNANSWERED_MS)
    return cluster, driver, producer


def test_a_leader_that_ended_costs_what_was_sent_before_another_was_found() -> None:
    cluster, driver, producer = quiet()
    cluster.down = {1}
    producer.send("t", "to the dead")
    driver.pass_time(10)
    cluster.move("t", 0, 2)
    producer.send("t", "to the dead, too")
    driver.pass_time(1_000)
    producer.send("t", "a")
    assert cluster.partition("t").values() == [b"first", b"a"]


def test_nor_is_a_broker_that_leads_no_more_sent_more_than_what_it_refuses_first() -> None:
    cluster, _, producer = quiet()
    told: list[int] = []

    def says_that_it_does_not_lead(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce) or broker == cluster.partition("t").leader:
            return None
        told.append(broker)
        return [Produced([ProducedEntry(entry.request, Code.NOT_LEADER_OR_FOLLOWER) for entry in message.entries])]

    cluster.override = says_that_it_does_not_lead
    cluster.move("t", 0, 2)
    producer.send("t", "refused")
    producer.send("t", "a")
    assert (cluster.partition("t").values(), told) == ([b"first", b"a"], [1])


@pytest.mark.parametrize("end", ["says nothing", "stands still"])
def test_what_says_nothing_is_found_out_with_time(end: str) -> None:
    cluster, driver, producer = quiet()
    cluster.paused = {1} if end == "stands still" else set()
    cluster.move("t", 0, 2)
    for _ in range(8):  # a broker that stands still may be the one that is asked
        producer.send("t", "x")
        driver.pass_time(UNANSWERED_MS)
    assert len(cluster.partition("t").values()) > 5


def test_that_costs_a_question_now_and_then_and_none_once_nothing_is_sent() -> None:
    _, driver, producer = quiet(metadata_max_age_ms=AGE_MS)
    asked = metadata_asked(driver)
    for _ in range(10 * UNANSWERED_MS // 100):
        producer.send("t", "x")
        driver.pass_time(100)
    assert len(asked) == 10
    driver.pass_time(AGE_MS - 1)
    assert len(asked) <= 11


def test_ten_thousand_records_for_a_dead_leader_are_ten_questions_in_ten_seconds() -> None:
    cluster, driver, producer = quiet()
    cluster.down = {1}
    asked = metadata_asked(driver)
    for _ in range(10_000):
        producer.send("t", "x")
        driver.pass_time(1)
    assert len(asked) in (10, 11)
    cluster.move("t", 0, 3)
    for _ in range(4):  # the dead broker may be the one that is asked
        producer.send("t", "x")
        driver.pass_time(1_000)
    assert len(cluster.partition("t").values()) > 2


def test_a_client_whose_whole_cluster_is_gone_asks_no_more_than_anybody_else_when_it_is_idle() -> None:
    cluster, driver, producer = quiet(metadata_max_age_ms=AGE_MS)
    cluster.down = {1, 2, 3}
    producer.send("t", "x")
    driver.pass_time(10_000)
    asked = metadata_asked(driver)
    driver.pass_time(10 * AGE_MS)
    assert len(asked) <= 11


def test_who_waits_for_answers_asks_nobody_because_an_idle_connection_ends() -> None:
    cluster, driver, client = make({"t": 1}, metadata_max_age_ms=AGE_MS)
    client.append("t", 0, ["a"])
    driver.pass_time(2 * UNANSWERED_MS)
    asked = metadata_asked(driver)
    cluster.down = {1}
    driver.core.receive(1, Disconnected(1), driver.now_ms())
    driver.pass_time(UNANSWERED_MS)
    assert asked == []
