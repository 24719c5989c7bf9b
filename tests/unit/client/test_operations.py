"""Requests other than appends: where they go, when they are repeated, and what a caller is told in the end."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.unit.client.fake import CLIENT, make, metadata_asked

from replog.errors import Code, TimedOut, TopicAlreadyExists, Unavailable, UnknownTopicOrPartition
from replog.messages import Admin, AdminAnswer, Disconnected, Fetch, ListOffsets, Metadata, Unreached


def test_create_list_and_delete() -> None:
    cluster, _, client = make()
    topic_id = client.create_topic("orders", partitions=3, min_isr=1, config={"retention_ms": 5})
    assert topic_id == cluster.topics["orders"][0].hex()
    assert cluster.topics["orders"][1].to_mapping() == {"min_isr": 1, "retention_ms": 5}
    assert client.topics() == ["orders"]
    assert client.partitions_for("orders") == [0, 1, 2]
    assert [client.leader("orders", n) for n in range(3)] == [1, 2, 3]
    with pytest.raises(TopicAlreadyExists, match="exist_ok=True"):
        client.create_topic("orders")
    assert client.create_topic("orders", exist_ok=True) == topic_id
    client.delete_topic("orders")
    assert client.topics() == []
    with pytest.raises(UnknownTopicOrPartition):
        client.delete_topic("orders")
    with pytest.raises(UnknownTopicOrPartition, match="there are no topics yet"):
        client.partitions_for("orders")


def test_a_created_topic_is_waited_for_although_some_brokers_are_late() -> None:
    cluster, driver, client = make()
    cluster.late_views = dict.fromkeys((1, 2, 3), cluster.view())
    driver.events = [*[lambda: None] * 6, cluster.late_views.clear]
    client.create_topic("orders")
    assert client.append("orders", 0, ["a"]).base_offset == 0


def test_an_unanswered_wish_that_was_granted_is_no_error() -> None:
    cluster, driver, client = make()
    lost: list[Any] = []

    def drop(to: Any, message: Any) -> bool:
        if to == CLIENT and isinstance(message, AdminAnswer) and not lost:
            lost.append(message)
            return True
        return False

    driver.filter = drop
    client.create_topic("orders", timeout_s=100)
    assert cluster.counts["Admin"] == 2
    lost.clear()
    client.delete_topic("orders", timeout_s=100)
    assert cluster.counts["Admin"] == 4


def test_no_controller_is_tried_again_elsewhere() -> None:
    cluster, _, client = make()
    client.topics()
    asked: list[int] = []

    def refuse(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Admin):
            asked.append(broker)
            if len(asked) < 4:
                return [AdminAnswer(message.request, Code.NOT_CONTROLLER)]
        return None

    cluster.override = refuse
    client.create_topic("orders")
    assert len(asked) == 4
    assert len(set(asked)) > 1
    cluster.override = lambda m, b: [AdminAnswer(m.request, Code.NOT_CONTROLLER)] if isinstance(m, Admin) else None
    with pytest.raises(TimedOut, match=r"waited 2 s for .* to the request 'create_topic'; the last answer was NotController"):
        client.create_topic("more", timeout_s=2)


def test_a_wish_whose_outcome_a_broker_does_not_know_is_repeated_and_may_turn_out_to_be_granted() -> None:
    """The broker that passed it on has lost the controller."""
    cluster, driver, client = make()
    client.topics()
    asked: list[int] = []

    def lost(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Admin):
            return None
        asked.append(broker)
        if len(asked) == 1:
            cluster._admin(message)
            return [AdminAnswer(message.request, Code.REQUEST_TIMED_OUT, "lost")]
        return None

    cluster.override = lost
    before = driver.now_ms()
    client.create_topic("orders")
    assert len(asked) == 2
    assert driver.now_ms() - before <= 1.2 * driver.core.config.retry_backoff_ms_max
    asked.clear()
    client.delete_topic("orders")
    assert len(asked) == 2


def test_metadata_is_asked_of_another_broker_when_one_is_gone_stale_or_silent() -> None:
    cluster, driver, client = make({"t": 1})
    cluster.down = {1, 2}
    assert client.topics() == ["t"]
    cluster.down = set()
    old = cluster.view()
    cluster.create("u")
    assert client.topics() == ["t", "u"]
    cluster.late_views = {1: old, 2: old}
    for _ in range(6):
        assert client.topics() == ["t", "u"]
    driver.filter = lambda to, message: isinstance(message, Metadata) and to != 3
    assert client.topics() == ["t", "u"]


def test_nobody_answers_says_who_was_waited_for() -> None:
    _, driver, client = make({"t": 1})
    driver.filter = lambda to, message: True
    with pytest.raises(TimedOut, match=r"waited 4 s for an answer of broker \d to a question about the cluster"):
        client.topics(timeout_s=4)
    assert issubclass(TimedOut, TimeoutError)


def test_an_unanswered_request_names_the_leader() -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    driver.filter = lambda to, message: isinstance(message, ListOffsets)
    with pytest.raises(TimedOut, match=re.escape("waited 3 s for an answer of broker 1, leader of t-0 to an offset")):
        client.offset("t", 0, "latest", timeout_s=3)


def test_a_disconnect_is_noticed_at_once() -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    started = driver.now_ms()

    def lose(to: Any, message: Any) -> bool:
        if isinstance(message, Fetch) and to == 1 and cluster.partition("t").leader == 1:
            cluster.move("t", 0, 2)
            driver.flying.append((driver.now_ms(), 0, CLIENT, 1, Disconnected(1)))
            return True
        return False

    driver.filter = lose
    assert client.fetch("t", 0, 0) == []
    assert driver.now_ms() - started < 200


def test_only_reads_are_asked_again_when_only_their_connection_ends() -> None:
    """What is appended waits on another one: a second copy of it would be stored where it has no numbers."""
    _, driver, client = make({"t": 1})
    client.topics()
    sent: list[str] = []

    def lose(to: Any, message: Any) -> bool:
        sent.append(type(message).__name__)
        if sent[-1] in ("Produce", "Fetch") and sent.count(sent[-1]) == 1:
            driver.flying.append((driver.now_ms(), 0, CLIENT, 1, Disconnected(1, only_reads=True)))
        return isinstance(message, Fetch) and sent.count("Fetch") == 1

    driver.filter = lose
    producer = client.producer(idempotent=False, linger_ms=0)
    delivery = producer.send("t", "a")
    assert client.fetch("t", 0, 0) is not None
    assert delivery.result(timeout_s=5).offset == 0
    assert sent.count("Fetch") == 2
    assert sent.count("Produce") == 1
    producer.close()


def test_a_request_sent_again_before_its_pause_was_over_is_repeated_when_it_is_lost() -> None:
    """News of a leader end the pause; the timer that was set for it must then not be the last one."""
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    client.topics()
    asked: list[int] = []

    def lose_one(to: Any, message: Any) -> bool:
        if isinstance(message, ListOffsets):
            asked.append(to)
            if len(asked) < 6:  # the longer the pauses, the surer news comes before their end
                cluster.move("t", 0, 3 - to)
            return len(asked) == 6
        return False

    driver.filter = lose_one
    assert client.offset("t", 0, "latest", timeout_s=10) == 0
    assert len(asked) == 7


def test_offset_not_available_is_asked_again_p48() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    cluster.partition("t").offset_available = False

    def recover() -> None:
        cluster.partition("t").offset_available = True

    driver.events = [*[lambda: None] * 5, recover]
    assert client.offset("t", 0, "latest") == 1
    cluster.partition("t").offset_available = False
    with pytest.raises(TimedOut, match="the last answer was OffsetNotAvailable"):
        client.offset("t", 0, "latest", timeout_s=1)


def test_describe_prints_a_table_and_leaves_unknown_offsets_open() -> None:
    cluster, _, client = make({"t": 2})
    client.append("t", 0, ["a", "b"])
    cluster.move("t", 1, None)
    told = client.describe("t")
    assert told.partitions[0].high_watermark == 2
    assert told.partitions[1].leader is None
    assert told.partitions[1].end_offset is None
    lines = str(told).splitlines()
    assert lines[0] == "t (2 partitions)"
    assert lines[1].split() == ["partition", "leader", "epoch", "replicas", "ISR", "ELR", "start", "HW", "LEO"]
    assert lines[2].split() == ["0", "1", "0", "1,2,3", "1,2,3", "-", "0", "2", "2"]
    assert lines[3].split()[1] == "-"
    assert told.to_dict()["partitions"][0]["isr"] == [1, 2, 3]
    cluster_told = client.describe_cluster()
    assert cluster_told.to_dict()["brokers"][2]["broker_id"] == 3
    assert str(cluster_told).startswith("cluster fake: controller 1, epoch 1, 1 topic\n")


def test_finished_operations_leave_nothing_behind() -> None:
    _, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    for _ in range(1_000):
        client.fetch("t", 0, 0)
    core = driver.core
    assert not core._requests
    assert not core._ops
    assert not core._stalled
    assert len(core._timers) < 200


def test_an_idle_client_needs_no_tick_before_its_deadlines() -> None:
    _, driver, client = make({"t": 1}, metadata_max_age_ms=4_000_000)
    client.append("t", 0, ["a"])
    delivered = driver.delivered
    driver.pass_time(3_600_000)
    assert driver.delivered - delivered < 5


def test_a_topic_that_existed_before_is_not_taken_for_ones_own() -> None:
    cluster, driver, client = make({"t": 1})
    with pytest.raises(TopicAlreadyExists):
        client.create_topic("t")
    lost: list[Any] = []

    def drop(to: Any, message: Any) -> bool:
        if isinstance(message, AdminAnswer) and not lost:
            lost.append(message)
            return True
        return False

    client.topics()
    driver.filter = drop
    with pytest.raises(TopicAlreadyExists):
        client.create_topic("t", timeout_s=100)
    assert lost
    assert cluster.counts["Admin"] == 4  # the last of them asks which topic has the name


@pytest.mark.parametrize("sent", [True, False])
def test_only_what_was_sent_may_have_made_the_topic(sent: bool) -> None:
    """The client knows no topic yet: of one that exists, and a request before its own, it cannot tell who has made it."""
    cluster, driver, client = make({"t": 1})
    lost: list[int] = []

    def lose(to: Any, message: Any) -> bool:
        if isinstance(message, Admin) and len(lost) < 2:
            lost.append(message.request)
            hints = [Disconnected(to)] if sent else [Unreached(to, message), Disconnected(to)]
            driver.flying += [(driver.now_ms(), n, CLIENT, None, hint) for n, hint in enumerate(hints)]
            return True
        return False

    driver.filter = lose
    topic_id = cluster.topics["t"][0].hex()
    if sent:
        assert client.create_topic("t", partitions=1, replication_factor=3) == topic_id
    else:
        with pytest.raises(TopicAlreadyExists, match="exist_ok=True"):
            client.create_topic("t", partitions=1, replication_factor=3)
    assert len(lost) == 2


def test_a_request_that_was_sent_after_one_that_was_not_is_in_doubt() -> None:
    cluster, driver, client = make({"t": 1})
    lost: list[Any] = []

    def lose(to: Any, message: Any) -> bool:
        if isinstance(message, Admin) and len(lost) < 2:
            late = [Unreached(to, one) for one in lost]  # of the one before, again
            lost.append(message)
            hints = [Disconnected(to)] if late else [Unreached(to, message), Disconnected(to)]
            driver.flying += [(driver.now_ms(), n, CLIENT, None, hint) for n, hint in enumerate(late + hints)]
            return True
        return False

    driver.filter = lose
    assert client.create_topic("t", partitions=1, replication_factor=3) == cluster.topics["t"][0].hex()
    assert len(lost) == 2


@pytest.mark.parametrize("then", ["made", "deleted", "hidden"])
def test_a_topic_of_a_view_that_is_late_is_not_taken_for_the_one_that_was_made(then: str) -> None:
    """Somebody else has deleted it; the answer to the first request is lost, and the repetition finds what that has made."""
    cluster, driver, client = make({"t": 1})
    client.topics()
    before = cluster.view()
    cluster.delete("t")
    cluster.late_views = dict.fromkeys((1, 2, 3), before)
    lost: list[Any] = []

    def drop(to: Any, message: Any) -> bool:
        if isinstance(message, AdminAnswer) and not lost:
            lost.append(message)
            return True
        return False

    def look(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Admin) or message.verb != "find_topic":
            return None
        cluster.late_views.clear()
        if then == "hidden":
            return [AdminAnswer(message.request, Code.TOPIC_AUTHORIZATION_FAILED, "you may not describe topic 't'")]
        if then == "deleted":
            cluster.delete("t")
        return None

    driver.filter, cluster.override = drop, look
    if then == "made":
        assert client.create_topic("t", partitions=7, timeout_s=100) == cluster.topics["t"][0].hex()
        assert client.partitions_for("t") == list(range(7))
    else:
        with pytest.raises(Unavailable, match=r"'create_topic': TopicAlreadyExists .*whether it was carried out before is unknown"):
            client.create_topic("t", timeout_s=100)
    assert lost[0].error == Code.NONE


def test_the_id_is_that_of_the_topic_that_was_made_although_brokers_still_show_the_one_before() -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    cluster.late_views = dict.fromkeys((1, 2, 3), cluster.view())
    cluster.delete("t")
    driver.events = [*[lambda: None] * 6, cluster.late_views.clear]
    assert client.create_topic("t") == cluster.topics["t"][0].hex()
    assert not cluster.late_views


def test_a_late_broker_is_forgiven_for_topics_this_client_created() -> None:
    cluster, driver, client = make()
    before = cluster.view()
    client.create_topic("t")
    with driver.lock:
        driver.core.crash(KeyboardInterrupt())
    cluster.late_views = dict.fromkeys((1, 2, 3), before)
    driver.events = [*[lambda: None] * 6, cluster.late_views.clear]
    assert client.append("t", 0, ["a"]).base_offset == 0
    with driver.lock:
        driver.core.crash(KeyboardInterrupt())
    driver.pass_time(60_000)
    cluster.late_views = dict.fromkeys((1, 2, 3), before)
    with pytest.raises(UnknownTopicOrPartition):
        client.append("t", 0, ["b"])


def test_a_partition_that_a_new_topic_does_not_have_is_refused_at_once() -> None:
    _, driver, client = make()
    client.create_topic("t", partitions=2)
    started = driver.now_ms()
    with pytest.raises(UnknownTopicOrPartition, match="topic 't' has no partition 7; it has 0, 1"):
        client.append("t", 7, ["a"])
    with pytest.raises(UnknownTopicOrPartition, match="no partition 7"):
        client.fetch("t", 7, 0)
    assert driver.now_ms() == started


def test_a_broker_that_was_not_reached_is_left_alone_for_a_while() -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    asked = metadata_asked(driver)
    with driver.lock:
        driver.core.receive(None, Disconnected(2), driver.now_ms())
    for _ in range(6):
        client.topics()
    assert sorted(set(asked)) == [1, 3]
    driver.pass_time(2_000)
    for _ in range(6):
        client.topics()
    assert sorted(set(asked)) == [1, 2, 3]
